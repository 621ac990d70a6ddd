//! What the gate does without being asked.
mod enrol;
mod force;
mod keeper;
mod lease;
mod report;
mod settle;
mod warm;
mod watches;
