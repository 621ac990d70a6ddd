//! Rows of Kubernetes itself: the eviction API, `PodDisruptionBudgets`, `kubectl drain`.

use super::super::row::{Ours, Row};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "P1",
        theirs: "TestEviction: matching pdbs with no disruptions allowed, pod running, pending, succeeded, failed",
        asserted: "While its budget allows no disruption, a pod that runs, or of which nothing is known, stays (429); one that is pending or finished goes.",
        ours: Ours::Same(
            "the budget's refusal is foreseen, so that it costs no grant, and the answer names the budget.",
        ),
        shown_by: &[
            "p1_p11_p12_p23_every_policy_for_unhealthy_pods_is_foreseen",
            "p1_a_pending_member_goes_past_a_budget_that_refuses",
            "an_eviction_that_another_budget_refuses_takes_no_grant",
            "rule_10_pods_that_no_budget_is_asked_about",
        ],
    },
    Row {
        id: "P2",
        theirs: "TestEviction: non-matching pdbs",
        asserted: "A budget that selects other pods does not matter.",
        ours: Ours::Same("selectors select as the API server has them."),
        shown_by: &[
            "p2_p20_a_finished_pod_leaves_its_budget_as_it_was",
            "rule_10_selectors_select_as_the_api_server_has_them",
        ],
    },
    Row {
        id: "P3",
        theirs: "TestEviction: bad name in URL",
        asserted: "An Eviction of another name than the URL's is a bad request (400).",
        ours: Ours::Same(
            "the API server says so between our two webhooks: the one that changes evictions leaves it alone, the one that judges them would refuse it as malformed.",
        ),
        shown_by: &[
            "p3_a_name_that_is_not_the_urls_is_400",
            "p3_a_name_that_differs_from_the_paths_is_left_to_the_api_server",
            "p3_a_name_that_differs_from_the_paths_is_no_allow",
        ],
    },
    Row {
        id: "P4",
        theirs: "TestEvictionPDBSelector: empty selector",
        asserted: "A budget with an empty selector selects every pod.",
        ours: Ours::Same(
            "and where it is the second budget of a member, the eviction waits instead of failing with 500.",
        ),
        shown_by: &[
            "p4_a_budget_that_selects_everything_counts",
            "rule_10_selectors_select_as_the_api_server_has_them",
        ],
    },
    Row {
        id: "P5",
        theirs: "TestEvictionIgnorePDB: pod pending, first delete conflict, pod still pending",
        asserted: "A pending pod whose delete meets a conflict is read again and deleted, without asking its budget.",
        ours: Ours::Same(
            "a member that has not started goes past its budget; after a conflict of ours everything is read anew.",
        ),
        shown_by: &[
            "p1_a_pending_member_goes_past_a_budget_that_refuses",
            "after_a_lost_race_everything_is_read_anew_before_the_next_write",
        ],
    },
    Row {
        id: "P6",
        theirs: "TestEvictionIgnorePDB: pod pending, first delete conflict, pod becomes running, continueToPDBs",
        asserted: "A pod that was pending and runs by the time of its delete has to ask its budget: an old look is worth nothing.",
        ours: Ours::Same(
            "evidence is younger than the ledger it is recorded in; and a member that was permitted to go while it started does not count as serving until that has settled.",
        ),
        shown_by: &[
            "p6 a member that was starting when it was permitted to go serves by now",
            "pods_and_members_are_asked_after_the_ledger_was_read",
            "after_a_lost_race_everything_is_read_anew_before_the_next_write",
        ],
    },
    Row {
        id: "P7",
        theirs: "TestEvictionIgnorePDB: unhealthyPodEvictionPolicy AlwaysAllow with conflicts",
        asserted: "When deletes of an unhealthy pod keep meeting conflicts, the answer is 429: still being processed, with a Retry-After.",
        ours: Ours::Differs {
            answer: "When writes of the ledger keep meeting conflicts, the answer is 429 before the API server's patience ends, without a Retry-After.",
            because: "With one, client libraries repeat the request by themselves and keep a controller's worker busy.",
        },
        shown_by: &["p7_p8_p13_endless_conflicts_end_in_a_wait_in_time"],
    },
    Row {
        id: "P8",
        theirs: "TestEvictionIgnorePDB: always conflict",
        asserted: "When a pending pod's delete always meets a conflict, the eviction ends with 409 after a number of tries.",
        ours: Ours::Differs {
            answer: "429, and nobody has a grant.",
            because: "To a drain 409 is the end, and nothing is wrong but the moment.",
        },
        shown_by: &["p7_p8_p13_endless_conflicts_end_in_a_wait_in_time"],
    },
    Row {
        id: "P9",
        theirs: "TestEvictionIgnorePDB: user-provided resourceVersion precondition",
        asserted: "With a resourceVersion that the caller insists on, a conflict is not retried.",
        ours: Ours::Same(
            "409 from the API server. It compares after it asked us, so that the grant stands until a look shows that the pod stayed.",
        ),
        shown_by: &[
            "a_grant_whose_request_fails_later_settles_by_itself",
            "s4_s16_p18_preconditions_that_do_not_hold_are_409_and_take_no_grant",
        ],
    },
    Row {
        id: "P10",
        theirs: "TestEviction: terminating pod",
        asserted: "A pod that terminates is evicted whatever its budget says.",
        ours: Ours::Same("without a grant of its own."),
        shown_by: &[
            "p10_p17_p22_a_finalizer_keeps_the_grant_and_its_pod_may_be_evicted_again",
            "rule_2_a_terminating_pod_finishes",
            "rule_10_pods_that_no_budget_is_asked_about",
        ],
    },
    Row {
        id: "P11",
        theirs: "TestEvictionIgnorePDB: healthy pod, unhealthy other",
        asserted: "With no disruptions allowed a healthy pod stays although another one is unhealthy.",
        ours: Ours::Same(
            "429; a serving member stays while another one does not serve and both are needed.",
        ),
        shown_by: &[
            "p1_p11_p12_p23_every_policy_for_unhealthy_pods_is_foreseen",
            "rule_10_an_unready_pod_goes_where_the_policy_or_the_others_let_it",
        ],
    },
    Row {
        id: "P12",
        theirs: "TestEvictionIgnorePDB: own pod unhealthy, budget healthy",
        asserted: "An unready pod goes while its budget's other pods are as many as desired.",
        ours: Ours::Same("a dead member costs nothing."),
        shown_by: &[
            "p1_p11_p12_p23_every_policy_for_unhealthy_pods_is_foreseen",
            "rule_10_an_unready_pod_goes_where_the_policy_or_the_others_let_it",
        ],
    },
    Row {
        id: "P13",
        theirs: "TestEvictionIgnorePDB: own pod unhealthy, budget healthy, resourceVersion conflict",
        asserted: "When that pod changes at the same time, the answer is 429: it may have become healthy.",
        ours: Ours::Same("whoever changes while it is judged is judged again or has to wait."),
        shown_by: &["p7_p8_p13_endless_conflicts_end_in_a_wait_in_time"],
    },
    Row {
        id: "P14",
        theirs: "TestEvictionIgnorePDB: other delete error",
        asserted: "An error of the delete itself is passed on as it is.",
        ours: Ours::Same(
            "what fails after our answer reaches the caller unchanged, and the grant settles.",
        ),
        shown_by: &[
            "a_grant_whose_request_fails_later_settles_by_itself",
            "a_grant_whose_request_another_webhook_refuses_settles_by_itself",
        ],
    },
    Row {
        id: "P15",
        theirs: "TestEviction: matching pdbs with no disruptions allowed by sync failed",
        asserted: "When the budget's controller could not work it out, the refusal says why.",
        ours: Ours::Differs {
            answer: "The refusal names the budget and does not repeat what its condition says.",
            because: "What stands in another object is read there; its refusal is only foreseen here.",
        },
        shown_by: &[
            "rule_10_a_budget_that_its_controller_has_not_seen_refuses",
            "rule_10_a_budget_without_disruptions_left_refuses",
            "an eviction that its disruption budget refuses takes no grant",
        ],
    },
    Row {
        id: "P16",
        theirs: "TestEvictionDryRun",
        asserted: "A dry run by the request's options, by the Eviction's, or by both, deletes nothing, also with budgets.",
        ours: Ours::Same("and takes no grant."),
        shown_by: &[
            "p16_n18_dry_runs_by_every_source_leave_no_trace",
            "s14_p16_a_dry_run_is_told_by_any_of_its_sources",
        ],
    },
    Row {
        id: "P17",
        theirs: "TestEvictionPDBStatus",
        asserted: "A budget's condition DisruptionAllowed turns false when the last allowed disruption is used, not before.",
        ours: Ours::Same("of our companion budget, and of our own `disruptionsAllowed`."),
        shown_by: &["p10_p17_p22_a_finalizer_keeps_the_grant_and_its_pod_may_be_evicted_again"],
    },
    Row {
        id: "P18",
        theirs: "TestAddConditionAndDelete",
        asserted: "Missing pods are 404; UIDs and resourceVersions that are right pass, and that are wrong are conflicts, before the pod's condition is written.",
        ours: Ours::Same(
            "each of these, with the gate in front; of the wrong ones only a resourceVersion on a real run costs a grant, for a settle time.",
        ),
        shown_by: &[
            "s4_s16_p18_preconditions_that_do_not_hold_are_409_and_take_no_grant",
            "s1_s2_s3_s16_an_eviction_is_granted_and_the_next_one_waits",
        ],
    },
    Row {
        id: "P19",
        theirs: "TestConcurrentEvictionRequests",
        asserted: "Of many evictions at once, with retries, each pod is evicted in the end; on the way there are 429s and nothing else.",
        ours: Ours::Same("with three replicas of the gate, and a majority serves throughout."),
        shown_by: &["p19_concurrent_evictions_meet_429_alone_and_all_go_in_the_end"],
    },
    Row {
        id: "P20",
        theirs: "TestTerminalPodEviction",
        asserted: "Evicting a finished pod leaves its budget's status as it was.",
        ours: Ours::Same("we write no status of other people's budgets."),
        shown_by: &["p2_p20_a_finished_pod_leaves_its_budget_as_it_was"],
    },
    Row {
        id: "P21",
        theirs: "TestEvictionVersions",
        asserted: "The subresource can be created and neither read nor patched; bodies of v1, of v1beta1 and without a version are understood, of v2 not.",
        ours: Ours::Same("as the API server serves them; whatever it takes is judged."),
        shown_by: &[
            "p21_evictions_of_every_version_that_is_served_are_judged",
            "s5_p21_n18_every_form_of_an_eviction_is_understood",
            "p21_another_version_of_evictions_is_refused",
        ],
    },
    Row {
        id: "P22",
        theirs: "TestEvictionWithFinalizers",
        asserted: "An evicted pod with a finalizer gets the condition DisruptionTarget and stays; a dry run does not set it.",
        ours: Ours::Same(
            "its member does not count until the finalizer lets it go, however long that takes.",
        ),
        shown_by: &[
            "p10_p17_p22_a_finalizer_keeps_the_grant_and_its_pod_may_be_evicted_again",
            "p16_n18_dry_runs_by_every_source_leave_no_trace",
        ],
    },
    Row {
        id: "P23",
        theirs: "TestEvictionWithUnhealthyPodEvictionPolicy",
        asserted: "Whether an unready pod goes, by policy (none, IfHealthyBudget, AlwaysAllow) and by the health of the budget.",
        ours: Ours::Same(
            "case by case what the API server itself says of a pod beside the member that the gate is not asked about.",
        ),
        shown_by: &[
            "p1_p11_p12_p23_every_policy_for_unhealthy_pods_is_foreseen",
            "rule_10_an_unready_pod_goes_where_the_policy_or_the_others_let_it",
        ],
    },
    Row {
        id: "P24",
        theirs: "TestEvictDuringNamespaceTerminating (kubectl drain)",
        asserted: "A drain that is refused because the namespace terminates waits until the pods are gone, or until its timeout.",
        ours: Ours::Same("the API server refuses evictions there before it asks us; deletes pass."),
        shown_by: &["p24_in_a_namespace_that_goes_a_drain_waits_for_its_pods"],
    },
    Row {
        id: "P25",
        theirs: "TestDeleteOrEvictWithDryRunServer (kubectl drain)",
        asserted: "A drain as a dry run of the server waits for no pod and deletes none.",
        ours: Ours::Same("it is told what would be, and leaves no trace."),
        shown_by: &["dry_runs_of_every_kind_leave_no_trace"],
    },
    Row {
        id: "P26",
        theirs: "TestDeletePods (kubectl drain)",
        asserted: "A drain ends at its timeout with an error, takes a pod of the same name and another UID for gone, and passes errors on; what else is tested there is within kubectl alone.",
        ours: Ours::Same(
            "a member that has to stay keeps a drain until its timeout, and the gate's reason is in what it prints; one that comes back under its name does not.",
        ),
        shown_by: &[
            "p26_a_drain_that_has_to_wait_ends_at_its_timeout_and_says_why",
            "drains_of_all_nodes_with_pods_of_all_kinds_keep_a_majority_and_lose_no_write",
            "a_drain_by_deletes_is_gated_too",
        ],
    },
];
