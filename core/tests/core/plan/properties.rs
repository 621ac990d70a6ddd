//! Properties of every rollout, whatever happens to the cluster meanwhile.

use proptest::prelude::*;

use super::simulation::{Ailment, Cluster, Event};
use quorumgate_core::plan::{Desired, MaxUnavailable, NonServing, PodManagement};

/// The number of ticks after which a cluster without further failures has to be done: the grace
/// period, the progress deadline, and a few ticks for each member.
const PATIENCE: usize = 120;

fn ailments() -> impl Strategy<Value = Ailment> {
    prop_oneof![
        Just(Ailment::Crashes),
        Just(Ailment::Hangs),
        Just(Ailment::CutOff),
        Just(Ailment::NodeLost),
        Just(Ailment::NodeGone),
    ]
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => Just(Event::Nothing),
        4 => (0_usize..7, ailments()).prop_map(|(n, ailment)| Event::Falls(n, ailment)),
        4 => (0_usize..7).prop_map(Event::Recovers),
        1 => Just(Event::Changes),
        1 => Just(Event::Breaks),
        1 => Just(Event::RollsBack),
        2 => (0_usize..7).prop_map(Event::Drains),
        1 => Just(Event::KillsDriver),
        1 => Just(Event::ScalesOut),
    ]
}

/// Events that happen to members without taking their pods.
fn mild_events() -> impl Strategy<Value = Event> {
    let ailments = prop_oneof![
        Just(Ailment::Crashes),
        Just(Ailment::Hangs),
        Just(Ailment::CutOff),
    ];
    prop_oneof![
        4 => Just(Event::Nothing),
        2 => (0_usize..7, ailments).prop_map(|(n, ailment)| Event::Falls(n, ailment)),
        2 => (0_usize..7).prop_map(Event::Recovers),
        1 => prop_oneof![Just(Event::Changes), Just(Event::Breaks), Just(Event::RollsBack)],
        1 => Just(Event::KillsDriver),
    ]
}

fn wishes() -> impl Strategy<Value = Desired> {
    let amount = prop_oneof![
        3 => Just(MaxUnavailable::Members(1)),
        1 => (1_u32..4).prop_map(MaxUnavailable::Members),
        1 => (1_u32..=100).prop_map(MaxUnavailable::Percent),
    ];
    let non_serving = prop_oneof![Just(NonServing::OneAtATime), Just(NonServing::AllAtOnce)];
    (amount, non_serving).prop_map(|(max_unavailable, non_serving)| Desired {
        max_unavailable,
        non_serving,
        ..Desired::by_default()
    })
}

/// Lets all events happen, then lets failures stop, and waits for the end of the rollout.
fn converges(mut cluster: Cluster, events: Vec<Event>) -> Result<(), TestCaseError> {
    for event in events {
        cluster.tick(event);
    }
    cluster.heal();
    let before = cluster.steps;
    let mut ticks = 0;
    while !cluster.is_settled() {
        cluster.tick(Event::Nothing);
        ticks += 1;
        prop_assert!(ticks <= PATIENCE, "not done: {}", cluster.says());
    }
    let steps = cluster.steps - before;
    prop_assert!(steps <= cluster.members.len(), "each pod goes at most once");
    prop_assert_eq!(cluster.says(), "done");
    Ok(())
}

// The promises on every single step are asserted by the simulation's driver.
proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_rollout_keeps_its_promises_and_converges_once_failures_stop(
        members in 1_usize..=7,
        desired in wishes(),
        events in prop::collection::vec(events(), 0..50),
    ) {
        converges(Cluster::new(members, desired), events)?;
    }

    /// Kubernetes itself is stuck where pods are missing above one that cannot become ready without
    /// them. So in this test no pods go missing by themselves, and no two members need each other.
    #[test]
    fn with_ordered_ready_it_converges_too(
        members in prop_oneof![1 => Just(1_usize), 5 => 3_usize..=7],
        desired in wishes(),
        events in prop::collection::vec(mild_events(), 0..50),
    ) {
        let management = PodManagement::OrderedReady;
        converges(Cluster::new(members, Desired { management, ..desired }), events)?;
    }
}
