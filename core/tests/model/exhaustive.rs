//! The scenarios that are explored, to the end or for a number of steps.

use crate::exploration::explore;
use crate::scenario::{self, Scenario};

/// The environment variable for the number of steps in the larger scenarios.
const STEPS: &str = "QUORUMGATE_MODEL_STEPS";

fn patience() -> usize {
    std::env::var(STEPS).map_or(1_000_000, |steps| steps.parse().unwrap())
}

/// Asserts that every property holds in every state.
fn holds_in_every_state_of(scenario: Scenario) {
    assert!(
        holds_for(usize::MAX, scenario),
        "{} was not explored to its end",
        scenario.name
    );
}

/// Asserts that every property holds in the states that are reached first.
fn holds_as_far_as_seen_of(scenario: Scenario) {
    holds_for(patience(), scenario);
}

/// Asserts that every property holds in the states that are reached first, in a scenario of which
/// each state takes long.
fn holds_for_fewer_steps_of(scenario: Scenario) {
    holds_for(patience() / 4, scenario);
}

/// Asserts that every property holds in the states of so many steps. Returns whether these are all.
fn holds_for(steps: usize, scenario: Scenario) -> bool {
    let found = explore(scenario, steps);
    println!("{}", found.describe(&scenario));
    assert!(
        found.broken.is_none(),
        "{}: {}",
        scenario.name,
        found.story()
    );
    assert!(found.lively, "{}: nothing ever happened", scenario.name);
    found.complete
}

macro_rules! scenarios {
    ($($explored:ident: $($name:ident = $scenario:ident),* $(,)?;)*) => {
        $($(#[test] fn $name() { $explored(scenario::$scenario); })*)*

        /// Whether a scenario is among those that are explored. A mutation proves something only if
        /// its scenario holds without it.
        pub(crate) fn is_explored(scenario: &Scenario) -> bool {
            [$($(scenario::$scenario,)*)*].contains(scenario)
        }

        /// The names of the scenarios, by how they are explored.
        fn names() -> Vec<(&'static str, Vec<&'static str>)> {
            vec![$((stringify!($explored), vec![$(scenario::$scenario.name),*])),*]
        }
    };
}

scenarios! {
    holds_in_every_state_of:
        nothing_fails = QUIET,
        members_fail_and_recover = FAILURES,
        quorum_is_lost_and_comes_back = OUTAGE,
        members_take_part_before_they_listen = LISTENING,
        the_gate_is_rejected_during_a_rollout = REJECTED_ROLLOUT,
        an_address_is_reused = REUSED_ADDRESS,
        members_are_seen_at_different_moments = TORN_LOOKS,
        a_learner_is_promoted = LEARNER,
        a_voter_is_removed = REMOVAL,
        the_owner_scales_out_and_in_beside_one_delete = SCALING_BESIDE_ONE,
        a_rollout_among_strangers = ROLLOUT,
        two_may_be_out_and_only_one_can = TWO_OUT,
        members_are_replaced = REPLACEMENT,
        one_of_four_is_replaced = REPLACEMENT_OF_FOUR,
        two_volumes_are_lost_at_once = LOST_VOLUMES,
        pods_go_with_their_data = DATA_IN_PODS,
        members_are_defragmented = DEFRAGMENTATION,
        reports_are_written_in_between = REPORTS,
        the_budget_is_created_anew = RECREATION,
        clocks_are_skewed = SKEWED_CLOCKS,
        five_members = FIVE,
        three_replicas = THREE;
    holds_as_far_as_seen_of:
        pods_and_answers_are_of_different_moments = HALVES,
        pods_and_answers_of_members_that_do_not_listen_yet = HALVES_LISTENING,
        members_fail_while_others_are_seen = TORN_FAILING,
        members_fail_while_others_are_defragmented = DEFRAGMENTATION_FAILING,
        containers_run_before_members_take_part = INITIALISING,
        the_gate_is_rejected = REJECTED,
        the_gate_is_rejected_by_five = REJECTED_OF_FIVE,
        a_rollout_of_members_that_do_not_listen_yet = LISTENING_ROLLOUT,
        reports_while_the_owner_scales = REPORTED_SCALING,
        members_fail_while_the_owner_scales = SCALING_FAILING,
        a_node_is_lost = LOST_NODE,
        everything_fails = DISASTER,
        a_rollout_with_hardly_any_evidence = BLIND_ROLLOUT,
        a_rollout_that_repairs = TROUBLED_ROLLOUT,
        a_rollout_of_members_that_answer_nothing_without_a_quorum = MUTE_ROLLOUT,
        all_that_do_not_serve_go_at_once = ALL_AT_ONCE,
        two_of_five_may_be_out = TWO_OUT_OF_FIVE,
        two_of_five_fail_and_go_at_once = ALL_AT_ONCE_OF_FIVE,
        the_owner_scales_out_and_in = SCALING,
        the_gate_is_out_of_force = OUT_OF_FORCE,
        the_gate_is_out_of_force_for_two = OUT_OF_FORCE_FOR_TWO,
        a_rollout_while_the_gate_is_out_of_force = ROLLOUT_OUT_OF_FORCE,
        five_members_that_fail = FIVE_FAILING,
        three_replicas_and_failures = THREE_FAILING,
        reports_while_a_voter_is_removed = REPORTED_REMOVAL;
    holds_for_fewer_steps_of:
        members_fail_while_others_are_replaced = REPLACEMENT_FAILING,
        pods_go_with_their_data_and_members_fail = DATA_IN_PODS_FAILING,
        replacements_are_given_up = REPLACEMENT_GIVEN_UP;
}

#[test]
fn the_evidence_says_what_is_explored_to_its_end_and_what_is_not() {
    let document = include_str!("../../../docs/evidence.md");
    let document = document.split_whitespace().collect::<Vec<_>>().join(" ");
    for (how, names) in names() {
        let told = match how {
            "holds_in_every_state_of" => "explored to their end:",
            "holds_for_fewer_steps_of" => "for a quarter of that:",
            _ => "explored breadth first for a million steps each:",
        };
        let said = format!("{told} {}.", names.join(", "));
        assert!(document.contains(&said), "it does not say \"{said}\"");
    }
}
