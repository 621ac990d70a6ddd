//! What the gate does without being asked.
mod enrol;
mod lease;
mod watches;
