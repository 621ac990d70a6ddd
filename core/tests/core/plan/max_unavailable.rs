//! The tests that KEP-961 lists for `maxUnavailable`, each for both pod management policies.
//! Headroom is a further limit in all of them.

use super::simulation::{Cluster, Event};
use quorumgate_core::plan::{Desired, MaxUnavailable, PodManagement};

/// Rolls a healthy cluster to the end. Returns the most members that were out at once, and the
/// order in which the pods went.
fn roll(
    members: usize,
    max_unavailable: MaxUnavailable,
    partition: u32,
    management: PodManagement,
) -> (u32, String) {
    let desired = Desired {
        max_unavailable,
        partition,
        management,
        ..Desired::by_default()
    };
    let mut cluster = Cluster::new(members, desired);
    let mut ticks = 0;
    while cluster.says() != "done" {
        cluster.tick(Event::Nothing);
        ticks += 1;
        assert!(ticks < 100, "{}", cluster.says());
    }
    (cluster.most_out, cluster.order.concat())
}

const BOTH: [PodManagement; 2] = [PodManagement::OrderedReady, PodManagement::Parallel];

#[test]
fn max_unavailable_1_is_as_ever() {
    for management in BOTH {
        let rolled = roll(3, MaxUnavailable::Members(1), 0, management);
        assert_eq!(rolled, (1, "cba".into()), "{management:?}");
    }
}

#[test]
fn max_unavailable_greater_than_1_without_partition() {
    for management in BOTH {
        assert_eq!(
            roll(5, MaxUnavailable::Members(2), 0, management),
            (2, "edcba".into())
        );
        assert_eq!(roll(7, MaxUnavailable::Members(3), 0, management).0, 3);
        assert_eq!(roll(7, MaxUnavailable::Percent(30), 0, management).0, 2);
    }
}

#[test]
fn max_unavailable_greater_than_replicas_without_partition() {
    for management in BOTH {
        for (members, headroom) in [(3, 1), (4, 1), (5, 2), (6, 2), (7, 3)] {
            let rolled = roll(members, MaxUnavailable::Members(9), 0, management);
            assert_eq!(rolled.0, headroom, "{members} {management:?}");
        }
    }
}

#[test]
fn max_unavailable_greater_than_1_with_fewer_staged_than_may_be_out() {
    for management in BOTH {
        let rolled = roll(5, MaxUnavailable::Members(2), 4, management);
        assert_eq!(rolled, (1, "e".into()));
    }
}

#[test]
fn max_unavailable_greater_than_1_with_as_many_staged_as_may_be_out() {
    for management in BOTH {
        let rolled = roll(5, MaxUnavailable::Members(2), 3, management);
        assert_eq!(rolled, (2, "ed".into()));
    }
}

#[test]
fn max_unavailable_greater_than_1_with_more_staged_than_may_be_out() {
    for management in BOTH {
        let rolled = roll(5, MaxUnavailable::Members(2), 1, management);
        assert_eq!(rolled, (2, "edcb".into()));
    }
}

#[test]
fn max_unavailable_greater_than_replicas_with_partition() {
    for management in BOTH {
        let rolled = roll(5, MaxUnavailable::Members(9), 2, management);
        assert_eq!(rolled, (2, "edc".into()));
    }
}
