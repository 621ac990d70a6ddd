//! Rows of etcd-druid's protection of components.

use super::super::row::{Ours, Row};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "D1",
        theirs: "TestHandleCreateAndConnect",
        asserted: "Creating and connecting pass for every resource.",
        ours: Ours::Same(
            "nobody is asked about them; what is created is patched at most, and a failure to do so stands in nobody's way.",
        ),
        shown_by: &[
            "d1_d2_nobody_is_asked_about_connections_leases_or_creations",
            "what_cannot_be_found_out_stands_in_nobodys_way",
            "without_the_gate_whatever_is_none_of_its_business_goes_on",
        ],
    },
    Row {
        id: "D2",
        theirs: "TestHandleLeaseUpdate",
        asserted: "A member's Lease is updated by the etcd's own service account and by nobody else.",
        ours: Ours::Elsewhere {
            because: "Leases are not guarded. A verdict rests on what etcd itself answers; only where a budget asks for Readiness are roles read from Leases, which is reported as weaker.",
            instead: Some("a stale role in a Lease misleads nobody."),
        },
        shown_by: &[
            "d1_d2_nobody_is_asked_about_connections_leases_or_creations",
            "a_stale_role_in_the_leases_does_not_mislead",
        ],
    },
    Row {
        id: "D3",
        theirs: "TestHandleUnmanagedStatefulSetScaleSubresourceUpdate",
        asserted: "Scaling a StatefulSet that is not managed passes.",
        ours: Ours::Same("a StatefulSet that is not enrolled is scaled and deleted freely."),
        shown_by: &[
            "d3_d4_a_set_that_is_not_enrolled_is_scaled_and_deleted_freely",
            "foreign_sets_pass_and_enrolled_ones_without_budget_wait",
        ],
    },
    Row {
        id: "D4",
        theirs: "TestMissingManagedByLabel, TestMissingResourcePartOfLabel, TestUnexpectedResourceType",
        asserted: "Objects without its labels, and of other kinds, pass.",
        ours: Ours::Same(
            "until a budget of the StatefulSet's name exists: that enrols it whatever its labels say by now.",
        ),
        shown_by: &[
            "d3_d4_a_set_that_is_not_enrolled_is_scaled_and_deleted_freely",
            "rule_1_labels_that_do_not_enrol",
            "rule_1_a_pod_of_a_cluster_with_a_budget_is_guarded",
        ],
    },
    Row {
        id: "D5",
        theirs: "TestHandleUpdate: disable resource protection annotation set",
        asserted: "An annotation on the Etcd switches the protection off.",
        ours: Ours::Differs {
            answer: "The override lifts it on a pod, a StatefulSet or a budget until a moment at most 24 hours ahead.",
            because: "What is switched off for a repair stays off, until the next accident.",
        },
        shown_by: &[
            "an_override_on_the_set_lets_the_last_live_member_go_until_it_expires",
            "rule_6_an_override_stands_for_at_most_24_hours",
        ],
    },
    Row {
        id: "D6",
        theirs: "TestHandleUpdate, TestHandleDelete: Etcd being reconciled; exempt service accounts",
        asserted: "While the Etcd is reconciled its operator may change anything, and nobody else; exempt accounts may otherwise, or when the object terminates.",
        ours: Ours::Differs {
            answer: "Nobody is exempt: the operator and the gate's own rollouts are judged like strangers. Terminating pods go on.",
            because: "Most quorums are lost to operators that are sure of themselves.",
        },
        shown_by: &[
            "d6_an_operator_or_an_administrator_is_a_stranger",
            "d6_the_operator_is_judged_like_anybody",
            "a rollout asks like a stranger",
            "rule_6_an_override_is_for_others_never_for_the_gates_own_steps",
            "rule_2_a_terminating_pod_finishes",
        ],
    },
    Row {
        id: "D7",
        theirs: "TestHandleDelete: Etcd has been deleted",
        asserted: "Once the Etcd terminates, its operator and exempt accounts may delete its components, and nobody else.",
        ours: Ours::Differs {
            answer: "Once the owner terminates, everything that is its goes, whoever deletes it.",
            because: "The garbage collector is the one who does, and nothing is left to be guarded.",
        },
        shown_by: &[
            "d7_n15_an_owner_that_is_deleted_takes_everything_along",
            "rule_3_an_owner_that_goes_frees_everything",
        ],
    },
    Row {
        id: "D8",
        theirs: "TestHandleWithInvalidRequestObject",
        asserted: "Empty and malformed objects are errors.",
        ours: Ours::Same(
            "400 in words, with the request's uid where there is one, and never an allow.",
        ),
        shown_by: &[
            "reviews_that_lack_what_a_verdict_needs_are_refused",
            "fields_of_a_wrong_type_are_refused_with_the_uid",
            "bodies_that_are_no_review_are_refused",
        ],
    },
    Row {
        id: "D9",
        theirs: "TestHandleUpdate, TestHandleDelete: Etcd not found; Etcd cannot be read",
        asserted: "Without the Etcd the request passes; when it cannot be read the answer is 500.",
        ours: Ours::Differs {
            answer: "An owner that is gone lets its StatefulSet go, if it was seen while it lived. One that cannot be read proves nothing, and the answer is 429.",
            because: "500 ends a drain; whoever waits may find the owner readable again.",
        },
        shown_by: &[
            "an_owner_that_is_gone_or_a_terminating_namespace_lets_a_delete_pass",
            "an_owner_that_never_was_takes_nothing_along",
            "an_owner_that_cannot_be_read_makes_a_delete_wait",
            "rule_3_an_owner_that_cannot_be_asked_proves_nothing",
        ],
    },
];
