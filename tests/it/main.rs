//! The integration tests, in one binary so that there is one link.

mod scenarios;
mod world;
