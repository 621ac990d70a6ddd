//! Targets for a fuzzer (`scripts/fuzz`), for all input that others send. Here each target runs
//! over its corpus.
//!
//! A target accepts any bytes, and fails only if a promise is broken. The corpus holds one input
//! per shape that matters, and every input with which a fuzzer found an error.

#![expect(clippy::unwrap_used, reason = "a target fails by a panic")]

mod answers;
mod budgets;
mod certificates;
mod memory;
mod reviews;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A lock for one target at a time, because memory of concurrent ones would be counted too.
static TURN: Mutex<()> = Mutex::new(());

/// Runs a target over its corpus.
fn over_corpus(target: &str, run: impl Fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fuzz/corpus")
        .join(target);
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut count = 0;
    for input in std::fs::read_dir(corpus).unwrap() {
        let path = input.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        // Every prefix of an input is an input too.
        let prefixes = (0..bytes.len()).step_by(bytes.len() / 50 + 1);
        for end in prefixes.chain([bytes.len()]) {
            run(bytes.get(..end).unwrap());
        }
        count += 1;
    }
    assert!(count > 2, "{target} has {count} inputs");
}

#[test]
fn reviews() {
    over_corpus("reviews", reviews::run);
}

/// The smallest entries need the most memory compared with their text.
#[test]
fn reviews_of_many_small_things_stay_within_the_bound() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    reviews::small_things(1024 * 1024);
}

#[test]
fn budgets() {
    over_corpus("budgets", budgets::run);
}

#[test]
fn answers() {
    over_corpus("answers", answers::run);
}

/// The sizes are the largest accepted list, one more member, the most members that fit into the
/// longest answer, and the largest number ever seen.
#[test]
fn lists_of_many_small_members_stay_within_the_bound() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(answers::small_members(128), Ok(128));
    for count in [129, 32_000, 40_000, 2_000_000] {
        let listed = answers::small_members(count);
        assert!(listed.is_err(), "{count} members: {listed:?}");
    }
}

#[test]
fn certificates() {
    over_corpus("certificates", certificates::run);
}
