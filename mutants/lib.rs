//! The pure core, and the tests that judge it, as one crate: a mutant is then compiled and linked once.

// The tests call it by its name.
#[cfg(test)]
extern crate self as quorumgate;

pub mod plan;
pub mod quorum;

#[cfg(test)]
#[path = "../tests/it"]
mod it {
    mod plan;
    mod properties;
    mod scenarios;
    pub(crate) mod world;
}
#[cfg(test)]
use it::world;
