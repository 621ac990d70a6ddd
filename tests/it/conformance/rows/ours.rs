//! Rows that no peer tests.

use super::super::row::{Ours, Row};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "N1",
        theirs: "",
        asserted: "A delete without grace asks twice, the second time with a deletionTimestamp: a refusal in between would leave a half-deleted pod.",
        ours: Ours::Own(
            "Both are judged alike, by the same grant; on a node that can be reached a terminating pod passes.",
        ),
        shown_by: &[
            "n1_a_force_delete_asks_twice_and_both_are_judged_alike",
            "a_forced_delete_of_a_serving_member_counts_like_any_other",
            "rule_2_its_grace_is_shortened_only_where_it_cannot_run_on",
        ],
    },
    Row {
        id: "N2",
        theirs: "",
        asserted: "The API server asks again about the same pod whenever it lost a race for it.",
        ours: Ours::Own("Each yes is a write of its own, and all of them are one grant."),
        shown_by: &[
            "n2_many_deletes_of_one_pod_are_one_grant",
            "a_repeated_yes_is_a_write_of_its_own",
            "a granted member is judged again as if it had no grant",
        ],
    },
    Row {
        id: "N3",
        theirs: "",
        asserted: "The review of a collection delete names no object.",
        ours: Ours::Own(
            "The pod is told by its old object. One member goes, and the collection stops at the next.",
        ),
        shown_by: &[
            "n3_a_collection_delete_has_no_name_and_is_identified_by_its_old_object",
            "a_collection_delete_takes_one_member_and_stops_at_the_next",
        ],
    },
    Row {
        id: "N4",
        theirs: "",
        asserted: "The old object of a review may be from the API server's cache, and the next one fresh.",
        ours: Ours::Own(
            "It says who is meant, never how that pod is: the pod is read again. Another UID passes, for the API server asks again before it deletes that one.",
        ),
        shown_by: &["n4_an_old_object_that_is_out_of_date_is_not_believed"],
    },
    Row {
        id: "N5",
        theirs: "",
        asserted: "A PodDisruptionBudget refuses an eviction after the webhook allowed it.",
        ours: Ours::Own(
            "That is foreseen and costs no grant. Where it comes all the same, the grant settles when a look after the settle time shows the pod where it was.",
        ),
        shown_by: &[
            "an_eviction_that_another_budget_refuses_takes_no_grant",
            "a_grant_whose_request_fails_later_settles_by_itself",
            "a_delete_that_never_happened_settles_after_the_settle_time_and_not_before",
        ],
    },
    Row {
        id: "N6",
        theirs: "",
        asserted: "Several replicas are asked at once, by deletes, evictions and a rollout.",
        ours: Ours::Own(
            "Never are more members out than the voters without their majority: the replicas share one ledger, by compare-and-swap.",
        ),
        shown_by: &[
            "n6_mixed_requests_through_three_replicas_never_exceed_the_budget",
            "of_two_yeses_over_one_page_only_the_first_is_recorded",
            "no_sequence_of_yeses_and_settlements_exceeds_the_headroom",
        ],
    },
    Row {
        id: "N7",
        theirs: "",
        asserted: "The webhook dies between its yes and the delete.",
        ours: Ours::Own("The grant stands in the budget; other replicas count it, and it settles."),
        shown_by: &[
            "the_grant_of_a_replica_that_was_killed_settles_and_the_other_replica_answers",
            "killed_after_the_grant_nothing_is_lost_or_repeated",
        ],
    },
    Row {
        id: "N8",
        theirs: "",
        asserted: "A pod of the same name comes back while the reservation of the old one is remembered.",
        ours: Ours::Own(
            "Grants are tied to UIDs: the new pod is judged anew, and as long as it does not serve no other member may go.",
        ),
        shown_by: &[
            "n8_a_pod_of_the_same_name_is_judged_anew",
            "a_delete_settles_when_another_incarnation_stands_there",
        ],
    },
    Row {
        id: "N9",
        theirs: "",
        asserted: "The member list is not the pods: learners, voters that never started, pods whose member was removed.",
        ours: Ours::Own(
            "A learner may be promoted while it goes, so it needs a larger majority; a voter that never started counts; a pod without a member does not.",
        ),
        shown_by: &[
            "n9_a_voter_that_never_started_counts_and_a_removed_one_does_not",
            "from_three_to_five_a_learner_may_go_and_voters_only_while_a_larger_majority_serves",
            "a voter that was added and never started counts for the majority",
            "a removed member's pod is none of the cluster's business",
        ],
    },
    Row {
        id: "N10",
        theirs: "",
        asserted: "No member answers in time.",
        ours: Ours::Own(
            "Live pods wait (429), before the API server gives the webhook up; terminating ones go.",
        ),
        shown_by: &[
            "when_nobody_answers_the_refusal_comes_before_the_webhook_is_given_up",
            "n10_a_judge_that_overruns_is_left_behind_with_a_429_in_time",
            "no member answers",
            "rule_2_a_terminating_pod_finishes_without_anybody_being_asked",
        ],
    },
    Row {
        id: "N11",
        theirs: "",
        asserted: "Quorum is lost already.",
        ours: Ours::Own(
            "The living wait, for they are needed to bring it back; the dead go, unless one of them would complete a majority.",
        ),
        shown_by: &[
            "without_a_quorum_the_dead_go_and_the_living_wait",
            "without_a_quorum_whoever_may_bring_it_back_waits",
        ],
    },
    Row {
        id: "N12",
        theirs: "",
        asserted: "An alarm stands: NOSPACE or CORRUPT.",
        ours: Ours::Own(
            "NOSPACE takes no quorum away. A member with CORRUPT does not count, and it alone, although every member shows the alarm.",
        ),
        shown_by: &[
            "n12_nospace_counts_and_corrupt_does_not",
            "a full database serves on: NOSPACE takes no quorum away",
            "corrupt data do not count, though every member shows the alarm",
        ],
    },
    Row {
        id: "N13",
        theirs: "",
        asserted: "The leader is asked to go.",
        ours: Ours::Own(
            "Leadership has moved before the yes is given; writers wait less than an election timeout.",
        ),
        shown_by: &[
            "leadership_has_moved_before_the_leader_is_told_to_go",
            "writers_wait_less_than_an_election_timeout_when_the_leader_is_evicted",
        ],
    },
    Row {
        id: "N14",
        theirs: "",
        asserted: "The taint eviction controller forgets a pod whose delete was refused.",
        ours: Ours::Own(
            "The gate deletes it, with a grant, once it can be spared and as long as the taint stands.",
        ),
        shown_by: &[
            "a_taint_eviction_that_was_refused_is_made_good_once_when_the_member_can_be_spared",
        ],
    },
    Row {
        id: "N15",
        theirs: "",
        asserted: "A namespace, or the object that owns an etcd, is deleted.",
        ours: Ours::Own("Both go to their end, also without a quorum."),
        shown_by: &[
            "a_namespace_with_members_goes_even_without_a_quorum",
            "d7_n15_an_owner_that_is_deleted_takes_everything_along",
        ],
    },
    Row {
        id: "N16",
        theirs: "",
        asserted: "The garbage collector, pod GC and kubelets delete pods too.",
        ours: Ours::Own(
            "They finish whatever terminates or is torn down, also while the gate is away. Where pod GC would begin a disruption it is judged: its word that a node is gone does not end an etcd that still serves.",
        ),
        shown_by: &[
            "n16_who_asks_is_told_by_name_and_group",
            "without_the_gate_whatever_is_none_of_its_business_goes_on",
            "an_owner_takes_the_claims_along_by_the_retention_policy_even_without_a_quorum",
            "while_a_member_runs_on_without_its_node_object_no_other_is_taken",
            "the Node object is gone, its etcd still serves: nothing more is taken",
        ],
    },
    Row {
        id: "N17",
        theirs: "",
        asserted: "Another webhook refuses as well, with another code; the API server passes one of the refusals on.",
        ours: Ours::Own(
            "Nothing goes and nothing is granted; the code may be the other's, which ends a drain. Its owner has to know: the gate cannot change it.",
        ),
        shown_by: &["n17_of_two_refusals_either_may_be_heard"],
    },
    Row {
        id: "N18",
        theirs: "",
        asserted: "Clients send Evictions of v1beta1, or (the vertical pod autoscaler) without deleteOptions.",
        ours: Ours::Own(
            "All are understood, and get the UID of the judged pod as their precondition.",
        ),
        shown_by: &[
            "p21_evictions_of_every_version_that_is_served_are_judged",
            "p16_n18_dry_runs_by_every_source_leave_no_trace",
            "s5_p21_n18_every_form_of_an_eviction_is_understood",
            "an_eviction_is_tied_to_the_incarnation_there_is",
        ],
    },
    Row {
        id: "N19",
        theirs: "",
        asserted: "The serving certificate is replaced under load.",
        ours: Ours::Own("Twice, by a swap of links, without one failed call."),
        shown_by: &[
            "n19_two_rotations_by_symlink_under_load_fail_no_call",
            "the_serving_certificate_is_replaced_twice_without_one_failed_call",
        ],
    },
    Row {
        id: "N20",
        theirs: "",
        asserted: "Somebody has to get past the gate.",
        ours: Ours::Own(
            "An annotation with an end, at most 24 hours ahead; expired or unreadable ones count for nothing and the refusal says so.",
        ),
        shown_by: &[
            "an_override_on_the_set_lets_the_last_live_member_go_until_it_expires",
            "of_two_members_none_goes_without_an_override_on_its_pod",
            "an_override_that_does_not_stand_says_why",
        ],
    },
    Row {
        id: "N21",
        theirs: "",
        asserted: "The StatefulSet controller deletes pods itself: those beyond its replicas, and those that failed.",
        ours: Ours::Own(
            "A scale-in waits until the members left etcd. A failed pod goes without asking us once all its containers have ended; before that it is judged, for a phase proves nothing.",
        ),
        shown_by: &[
            "n21_a_failed_pod_is_replaced_at_once",
            "a_scale_in_waits_until_the_members_are_removed_from_etcd",
        ],
    },
    Row {
        id: "N22",
        theirs: "",
        asserted: "A Retry-After makes client libraries repeat a request up to ten times on their own.",
        ours: Ours::Own("No refusal carries one, neither as a header nor in its details."),
        shown_by: &[
            "n22_no_refusal_says_when_to_retry",
            "s2_wait_is_429_with_causes_and_n22_without_retry_after",
        ],
    },
    Row {
        id: "N23",
        theirs: "",
        asserted: "Clusters of one member and of two have nothing to spare.",
        ours: Ours::Own(
            "The only member goes, and of two none, unless the budget's policy says otherwise or a person overrides it.",
        ),
        shown_by: &[
            "the_only_member_may_go_and_serves_again",
            "of_two_members_none_goes_without_an_override_on_its_pod",
            "of_two_members_the_leader_goes_once_the_follower_is_back",
            "one voter that nobody may take",
            "two voters that anyone may take",
        ],
    },
    Row {
        id: "N24",
        theirs: "",
        asserted: "The clocks of the replicas differ; peers whose entries expire by wall-clock time ask for NTP.",
        ours: Ours::Own(
            "No replica compares its time with another's: each counts from when it saw a grant itself, on its own monotonic clock.",
        ),
        shown_by: &[
            "a_settle_time_begins_when_this_replica_first_saw_the_yes",
            "a_repeated_yes_begins_a_settle_time_of_its_own",
            "rule_9_a_new_ledger_is_untrusted_until_it_was_seen_for_a_settle_time",
        ],
    },
];
