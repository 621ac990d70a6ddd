//! The scenarios that are explored: to the end, or for so many steps.

use crate::exploration::explore;
use crate::scenario::{self, Scenario};

/// The variable that says how many steps the larger scenarios are explored for.
const STEPS: &str = "QUORUMGATE_MODEL_STEPS";

fn patience() -> usize {
    std::env::var(STEPS).map_or(1_000_000, |steps| steps.parse().unwrap())
}

/// Nothing is broken in any state.
fn holds_in_every_state_of(scenario: Scenario) {
    let found = explore(scenario, usize::MAX);
    println!("{}", found.tell(&scenario));
    assert!(
        found.broken.is_none(),
        "{}: {}",
        scenario.name,
        found.story()
    );
    assert!(
        found.complete,
        "{} was not explored to its end",
        scenario.name
    );
    assert!(found.lively, "{}: nothing ever happened", scenario.name);
}

/// Nothing is broken in the states that are reached first.
fn holds_as_far_as_seen_of(scenario: Scenario) {
    let found = explore(scenario, patience());
    println!("{}", found.tell(&scenario));
    assert!(
        found.broken.is_none(),
        "{}: {}",
        scenario.name,
        found.story()
    );
    assert!(found.lively, "{}: nothing ever happened", scenario.name);
}

macro_rules! scenarios {
    ($($explored:ident: $($name:ident = $scenario:ident),* $(,)?;)*) => {
        $($(#[test] fn $name() { $explored(scenario::$scenario); })*)*

        /// Whether a scenario is among those that are explored, so that what breaks it by mutation is known to hold in it otherwise.
        pub(crate) fn is_explored(scenario: &Scenario) -> bool {
            [$($(scenario::$scenario,)*)*].contains(scenario)
        }
    };
}

scenarios! {
    holds_in_every_state_of:
        nothing_fails = QUIET,
        members_fail_and_recover = FAILURES,
        quorum_is_lost_and_comes_back = OUTAGE,
        members_take_part_before_they_listen = LISTENING,
        an_address_is_reused = REUSED_ADDRESS,
        members_are_seen_at_different_moments = TORN_LOOKS,
        a_learner_is_promoted = LEARNER,
        a_voter_is_removed = REMOVAL,
        a_rollout_among_strangers = ROLLOUT,
        a_volume_is_replaced = REPLACEMENT,
        the_budget_is_created_anew = RECREATION,
        clocks_are_skewed = SKEWED_CLOCKS,
        five_members = FIVE,
        three_replicas = THREE;
    holds_as_far_as_seen_of:
        members_fail_while_others_are_seen = TORN_FAILING,
        a_rollout_of_members_that_do_not_listen_yet = LISTENING_ROLLOUT,
        a_node_is_lost = LOST_NODE,
        everything_fails = DISASTER,
        a_rollout_with_hardly_any_evidence = BLIND_ROLLOUT,
        a_rollout_that_repairs = TROUBLED_ROLLOUT,
        five_members_that_fail = FIVE_FAILING,
        three_replicas_and_failures = THREE_FAILING;
}
