//! Rows of the etcd operator of `OpenShift` control planes.

use super::super::row::{Ours, Row};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "O1",
        theirs: "TestIsQuorumFaultTolerant",
        asserted: "A cluster can lose a member when all of three are available; not when one is unhealthy or has not started, not with fewer than three, not when nothing is known.",
        ours: Ours::Same(
            "a serving member stays in each of those cases. One that is dead may go, and of one or two members the budget's policy decides.",
        ),
        shown_by: &[
            "o1 all of three serve",
            "o1 one of three is unhealthy",
            "o1 one of three has never started",
            "o1 fewer than three",
            "o1 nothing is known",
        ],
    },
    Row {
        id: "O2",
        theirs: "TestMinimumTolerableQuorum",
        asserted: "Of 3 members 2 are needed, of 5 members 3; 0 and negative numbers are errors.",
        ours: Ours::Differs {
            answer: "The majorities are the same. Counts cannot be negative by their type, and of no voters one is needed.",
            because: "There is no number of members for which nothing is needed, so none has to be an error.",
        },
        shown_by: &["a_majority_is_more_than_half", "no_voter_makes_no_majority"],
    },
    Row {
        id: "O3",
        theirs: "Test_CheckSafeToScaleCluster",
        asserted: "Scaling is safe with all of three healthy, not with two of three and not with three of five; two nodes may by topology; while bootstrapping, and in an unsupported configuration, anything goes.",
        ours: Ours::Differs {
            answer: "Two of three, and three of five, spare nobody who serves. Of two members the budget's policy decides. There is no configuration in which anything goes.",
            because: "An exemption by topology or by phase is a way to lose quorum; a person may override, for a limited time.",
        },
        shown_by: &[
            "o3 two of three are healthy",
            "o3 three of five are healthy",
            "o3 four of five are healthy",
            "o3 two nodes, both healthy",
            "o3 two nodes, one healthy",
        ],
    },
    Row {
        id: "O4",
        theirs: "TestAttemptToDeleteQuorumGuard",
        asserted: "Guard pods, one per etcd, which a PodDisruptionBudget keeps together, are deleted when their machine goes and only then.",
        ours: Ours::Elsewhere {
            because: "There are no guard pods: members are guarded themselves, and machines are the autoscaler's.",
            instead: Some(
                "the companion PodDisruptionBudget says the majority, and steps aside for another one.",
            ),
        },
        shown_by: &[
            "the_companion_budget_says_what_must_stay",
            "one_is_made_with_the_majority_where_none_selects_the_members",
            "ours_goes_when_another_appears",
        ],
    },
    Row {
        id: "O5",
        theirs: "TestAttemptToDeleteMachineDeletionHook",
        asserted: "A machine's deletion hook goes once its member left etcd, whether its addresses are of IPv4, IPv6 or both.",
        ours: Ours::Elsewhere {
            because: "The gate does not touch machines. Members are told by their ids, not by addresses.",
            instead: Some(
                "members are asked at IPv6 addresses as well, and a scale-in waits until the members left etcd.",
            ),
        },
        shown_by: &[
            "an_address_of_six_bytes_and_more_stands_in_brackets",
            "a_scale_in_waits_until_the_members_are_removed_from_etcd",
        ],
    },
    Row {
        id: "O6",
        theirs: "its e2e suite: the guard",
        asserted: "On a real cluster the guard's budget lets no second etcd go.",
        ours: Ours::Same(
            "of all nodes drained one after another, or two at once, a majority always serves.",
        ),
        shown_by: &[
            "drains_of_all_nodes_with_pods_of_all_kinds_keep_a_majority_and_lose_no_write",
            "two_drains_at_once_finish_and_lose_no_write",
        ],
    },
];
