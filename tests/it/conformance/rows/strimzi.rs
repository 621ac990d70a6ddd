//! Rows of Strimzi's Drain Cleaner.

use super::super::row::{Ours, Row};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "S1",
        theirs: "testEvictionAllowed",
        asserted: "In its legacy mode the eviction passes, after the pod was annotated for its operator.",
        ours: Ours::Differs {
            answer: "An eviction passes only when the cluster can spare the member now; the grant in the budget's status is written first.",
            because: "Nobody has to come along afterwards: what is allowed is safe at that moment.",
        },
        shown_by: &["s1_s2_s3_s16_an_eviction_is_granted_and_the_next_one_waits"],
    },
    Row {
        id: "S2",
        theirs: "testEvictionDenied",
        asserted: "The eviction is refused with code 500 and a message, after the pod was annotated.",
        ours: Ours::Differs {
            answer: "429 TooManyRequests with a message, causes, and no Retry-After.",
            because: "`kubectl drain` gives a pod up at 500; at 429 it asks again.",
        },
        shown_by: &[
            "s1_s2_s3_s16_an_eviction_is_granted_and_the_next_one_waits",
            "s2_wait_is_429_with_causes_and_n22_without_retry_after",
        ],
    },
    Row {
        id: "S3",
        theirs: "testEvictionCorrectUid",
        asserted: "A precondition with the pod's own UID changes nothing.",
        ours: Ours::Same("it is judged like one without."),
        shown_by: &[
            "s1_s2_s3_s16_an_eviction_is_granted_and_the_next_one_waits",
            "s3_s4_the_precondition_is_passed_on",
            "s3_s4_the_precondition_of_an_eviction_is_passed_on",
        ],
    },
    Row {
        id: "S4",
        theirs: "testEvictionWrongUid",
        asserted: "A precondition with another UID lets the request pass, and nothing is done to the pod.",
        ours: Ours::Same(
            "the API server answers 409, and no grant is taken. With a gate or without, it counts the eviction against the pod's PodDisruptionBudget all the same, for two minutes.",
        ),
        shown_by: &[
            "s4_s16_p18_preconditions_that_do_not_hold_are_409_and_take_no_grant",
            "s3_s4_the_precondition_is_passed_on",
            "s3_s4_the_precondition_of_an_eviction_is_passed_on",
            "rule_4_a_request_for_another_incarnation_passes",
        ],
    },
    Row {
        id: "S5",
        theirs: "testV1Beta1Eviction",
        asserted: "An Eviction of policy/v1beta1 is understood like one of policy/v1.",
        ours: Ours::Same("the review is read whichever of the two versions its object names."),
        shown_by: &[
            "p21_evictions_of_every_version_that_is_served_are_judged",
            "s5_p21_n18_every_form_of_an_eviction_is_understood",
        ],
    },
    Row {
        id: "S6",
        theirs: "testEvictionWithoutNamespace",
        asserted: "An Eviction whose metadata has no namespace takes that of the request.",
        ours: Ours::Same("as the API server itself does."),
        shown_by: &[
            "p21_evictions_of_every_version_that_is_served_are_judged",
            "s6_an_eviction_without_a_namespace_takes_the_requests",
        ],
    },
    Row {
        id: "S7",
        theirs: "testNoNamespaceAnywhere",
        asserted: "Without a namespace anywhere the eviction passes.",
        ours: Ours::Differs {
            answer: "The review is refused as malformed (400): it is none that an API server sends.",
            because: "Whatever cannot be read is no reason to let a member go.",
        },
        shown_by: &["s7_an_eviction_without_any_namespace_is_no_allow"],
    },
    Row {
        id: "S8",
        theirs: "testPodDoesNotExist",
        asserted: "An eviction of a pod that does not exist passes.",
        ours: Ours::Differs {
            answer: "404 NotFound, as the API server would say itself.",
            because: "A pod of that name may be created between this answer and the eviction, and would go unjudged. To a drain 404 means done.",
        },
        shown_by: &[
            "s8_an_eviction_of_a_pod_that_does_not_exist_is_404",
            "an_eviction_of_a_pod_that_is_not_there_is_not_found",
        ],
    },
    Row {
        id: "S9",
        theirs: "testEvictionOnPodWithoutAnnotations, testEvictionOnPodWithExistingAnnotations",
        asserted: "Its patch of the pod keeps the annotations that are there, and makes the map where there is none.",
        ours: Ours::Same(
            "our patches are of the Eviction (the UID of the pod that is judged) and of new pods, and keep what is there.",
        ),
        shown_by: &[
            "s9_what_an_eviction_has_stays_as_it_is",
            "members_tell_cluster_autoscaler_to_leave_them",
            "the_uid_is_added_to_whatever_the_eviction_has_and_nothing_else_changes",
        ],
    },
    Row {
        id: "S10",
        theirs: "testAlreadyHasRuLabel",
        asserted: "A second eviction of a marked pod is refused as well, and patches nothing again.",
        ours: Ours::Differs {
            answer: "Each request is judged anew. The same facts give the same answer; a member that was granted stays one grant, however often it is asked for.",
            because: "Between two requests another member may have failed, or the cluster may have recovered.",
        },
        shown_by: &[
            "s10_the_same_review_twice_is_judged_twice_and_answered_alike",
            "n2_many_deletes_of_one_pod_are_one_grant",
            "a granted member is judged again as if it had no grant",
            "a granted member waits once another has failed",
        ],
    },
    Row {
        id: "S11",
        theirs: "testEmptyLabel, testNullLabel, testCorrectLabelWrongValue, testNoKindLabel",
        asserted: "Pods without its labels, or with other values, pass untouched.",
        ours: Ours::Same(
            "who is guarded is told by the StatefulSet that controls the pod and its enrolment; all others pass, without a grant and without a write.",
        ),
        shown_by: &[
            "pods_of_a_stateful_set_that_is_not_enrolled_pass",
            "pods_of_a_deployment_pass",
            "rule_1_labels_that_do_not_enrol",
            "an_owners_own_word_and_s11_pods_of_others_are_left_alone",
        ],
    },
    Row {
        id: "S12",
        theirs: "testCorrectLabelCorrectKafkaValue, testCorrectLabelCorrectZooKeeperValue",
        asserted: "Pods that carry Strimzi's labels for Kafka or ZooKeeper are guarded.",
        ours: Ours::Elsewhere {
            because: "Kafka and ZooKeeper are not etcd.",
            instead: Some("druid's labels, or ours, on a StatefulSet enrol it."),
        },
        shown_by: &[
            "rule_1_enrolled_without_a_budget_has_no_ledger",
            "a_druid_cluster_is_rolled_out_while_its_operator_writes_its_strategy_back",
        ],
    },
    Row {
        id: "S13",
        theirs: "testDisabledKafkaDraining, testDisabledZooKeeperDraining, testKafkaAndZooKeeperFilters",
        asserted: "Each of the two kinds of workload can be switched off, and passes then.",
        ours: Ours::Elsewhere {
            because: "There is one kind of workload. What is not to be guarded is not enrolled; there is no switch that leaves an enrolled cluster without its guard.",
            instead: Some(
                "what is enrolled no more gets its own update strategy back, and its pods pass.",
            ),
        },
        shown_by: &[
            "what_is_enrolled_no_more_gets_its_own_strategy_back",
            "rule_1_labels_that_do_not_enrol",
        ],
    },
    Row {
        id: "S14",
        theirs: "testDryRun",
        asserted: "A request that is a dry run patches nothing.",
        ours: Ours::Differs {
            answer: "A dry run is answered as it would be for real, and writes nothing, whether the request or the Eviction's deleteOptions say so.",
            because: "`kubectl drain --dry-run=server` says so in the deleteOptions alone, which the peer does not look at.",
        },
        shown_by: &[
            "s14_p16_a_dry_run_is_told_by_any_of_its_sources",
            "dry_runs_of_every_kind_leave_no_trace",
            "p16_n18_dry_runs_by_every_source_leave_no_trace",
        ],
    },
    Row {
        id: "S15",
        theirs: "testNamespaceFilter: empty, watched, unwatched, spaces in the list, wildcard",
        asserted: "No list watches everything; a list limits it, spaces in it are ignored, `*` is everything; for other namespaces no pod is even read.",
        ours: Ours::Differs {
            answer: "No `--namespaces` is everything, a list limits it. Spaces and `*` are refused at start. The API server asks only where the gate has put its label on the namespace.",
            because: "A list that is read otherwise than it was meant leaves a namespace unguarded; better not to start.",
        },
        shown_by: &[
            "s15_namespaces_are_a_list_or_everything_and_nothing_is_guessed",
            "every_webhook_has_the_fields_that_the_design_of_admission_asks_for",
            "a_label_that_was_taken_from_the_namespace_is_put_back_and_the_ledger_loses_its_trust",
        ],
    },
    Row {
        id: "S16",
        theirs: "DrainCleanerST: testEvictionRequestOnKafkaPod, WithCorrectUUID, WithWrongUUID, OnRandomPod, testReloadCertificate",
        asserted: "On a real API server: code and message arrive, the annotation appears; a wrong UID fails; other pods pass; a new Secret becomes a new certificate.",
        ours: Ours::Differs {
            answer: "429 where the peer says 500, and a grant where it annotates; the rest is the same.",
            because: "As in S1 and S2.",
        },
        shown_by: &[
            "s1_s2_s3_s16_an_eviction_is_granted_and_the_next_one_waits",
            "s4_s16_p18_preconditions_that_do_not_hold_are_409_and_take_no_grant",
            "pods_of_a_deployment_pass",
            "the_serving_certificate_is_replaced_twice_without_one_failed_call",
        ],
    },
    Row {
        id: "S17",
        theirs: "CertificateWatchTest: testPodDeletionWhenSecretChanged, WhenSecretIsAdded, NoPodDeletionWhenNewFieldIsAdded, WhenNothingChanges, testValidation…",
        asserted: "When the content of its certificate's Secret changes, the pod deletes itself to come back with the new one; other changes do nothing; the watch has a switch.",
        ours: Ours::Differs {
            answer: "New content is served without a restart, the same content is not loaded again, and a pair that does not fit leaves the one before. There is no switch.",
            because: "A gate that is away for its certificate's sake is a gate that refuses or, in the peer's case, lets pass.",
        },
        shown_by: &[
            "s17_the_same_certificate_in_new_files_is_not_loaded_again",
            "n19_two_rotations_by_symlink_under_load_fail_no_call",
            "a_pair_that_does_not_fit_keeps_the_one_before_until_one_fits",
        ],
    },
];
