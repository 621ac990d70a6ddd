//! Rows of `OpenKruise`, about its `PodUnavailableBudget`.

use super::super::row::{Ours, Row};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "K1",
        theirs: "TestValidateEvictPodForPub",
        asserted: "An eviction passes while the budget has room and is refused otherwise; a dry run passes and leaves the budget's status; creating pods is not its business.",
        ours: Ours::Differs {
            answer: "So do we, but a dry run is refused where the real request would be, and the refusal is 429, not 403.",
            because: "A dry run that passes what is refused a moment later misleads; 403 ends a drain.",
        },
        shown_by: &[
            "s1_s2_s3_s16_an_eviction_is_granted_and_the_next_one_waits",
            "dry_runs_of_every_kind_leave_no_trace",
            "k1_dry_runs_are_told_by_the_request_or_by_its_options",
            "each_webhook_is_sent_exactly_the_requests_that_its_path_answers",
        ],
    },
    Row {
        id: "K2",
        theirs: "TestValidateDeletePodForPub",
        asserted: "The same for DELETE; subresources are ignored; an annotation can take deletes out of what the budget protects.",
        ours: Ours::Differs {
            answer: "DELETE is judged like an eviction. Nothing takes it out but an override with an end.",
            because: "A budget that lets deletes pass for good promises what it does not keep.",
        },
        shown_by: &[
            "of_two_deletes_at_the_same_moment_from_two_replicas_one_is_allowed",
            "a_dead_member_may_go_and_a_healthy_one_has_to_stay_with_names_and_numbers",
            "each_webhook_is_sent_exactly_the_requests_that_its_path_answers",
            "an_override_on_the_set_lets_the_last_live_member_go_until_it_expires",
        ],
    },
    Row {
        id: "K3",
        theirs: "TestValidateUpdatePodForPub",
        asserted: "Updates that restart containers are counted: allowed with room, refused without; ignored are terminating pods, unready pods, the status, labels and annotations, pods of no budget; one that is recorded already passes again; an image by digest is refused although nothing changes.",
        ours: Ours::Differs {
            answer: "An update that would restart etcd or end its pod is refused (403), whatever the cluster can spare; unready members are no exception; images are compared as they are written. What restarts no etcd passes.",
            because: "The kubelet restarts at a moment of its own choosing, and unready is not dead: no permission given now would hold then. An override lifts it, and takes a grant.",
        },
        shown_by: &[
            "a_new_image_of_etcd_or_a_deadline_is_refused_and_what_leaves_etcd_alone_passes",
            "an_override_lets_a_member_restart_in_place_and_its_grant_holds_back_the_others",
            "pods_that_are_no_members_and_terminating_ones_may_be_changed",
            "k3_k6_what_restarts_no_etcd_passes_without_anybody_being_asked",
            "k3_a_new_image_of_etcd_restarts_it_whatever_any_policy_says",
            "k3_new_images_of_other_containers_restart_only_those",
            "k3_what_changes_neither_image_nor_deadline_nor_resources_restarts_nothing",
            "each_webhook_is_sent_exactly_the_requests_that_its_path_answers",
        ],
    },
    Row {
        id: "K4",
        theirs: "TestPodUnavailableBudgetValidatePod",
        asserted: "Ignored are pods in the middle of an update in place, and pods that say by annotation or label that they need no protection or are unavailable anyway.",
        ours: Ours::Differs {
            answer: "No label of a member takes it out, and no state that its pod claims to be in. The one annotation that does, the override, ends by itself within 24 hours, is reported, takes a grant, and does not count where the template sets it.",
            because: "Whether a member can be spared is not for its labels to say.",
        },
        shown_by: &[
            "a_member_without_the_label_that_its_set_selects_is_gated_as_before",
            "a_member_without_any_label_of_its_set_is_gated_as_before",
            "of_two_members_none_goes_without_an_override_on_its_pod",
            "rule_6_an_override_stands_for_at_most_24_hours",
            "rule_6_an_override_that_the_template_sets_is_no_persons_word",
        ],
    },
    Row {
        id: "K5",
        theirs: "TestIsNeedPubProtection",
        asserted: "By default updates, deletes and evictions are protected, and resizes only where the cluster cannot resize in place; an annotation chooses other operations.",
        ours: Ours::Differs {
            answer: "Deletes, evictions, updates and resizes are always looked at; of resizes those are refused that restart etcd by its resize policy. Nothing is chosen.",
            because: "A resize that restarts is a restart, whatever the feature gates are.",
        },
        shown_by: &[
            "each_webhook_is_sent_exactly_the_requests_that_its_path_answers",
            "a_resize_is_refused_only_where_its_policy_restarts_etcd",
        ],
    },
    Row {
        id: "K6",
        theirs: "TestCanResizeInplace",
        asserted: "A resize goes in place unless it changes the QoS class, storage, a static pod, or a resource whose policy says restart.",
        ours: Ours::Differs {
            answer: "Of these only the resize policy is asked: what restarts etcd is refused. QoS class and storage are the API server's to refuse, and static pods are not deleted through it.",
            because: "The gate guards against restarts; it does not repeat the API server's validation.",
        },
        shown_by: &[
            "a_resize_is_refused_only_where_its_policy_restarts_etcd",
            "k3_k6_what_restarts_no_etcd_passes_without_anybody_being_asked",
            "k6_a_resize_restarts_by_the_policy_of_the_resource_that_changes",
            "k6_a_resize_without_a_policy_restarts_nothing",
            "k6_a_resize_of_another_container_restarts_only_that_one",
            "k6_other_resources_are_not_resized_in_place",
        ],
    },
    Row {
        id: "K7",
        theirs: "TestPubReconcile",
        asserted: "The numbers of its status: none of 0 replicas; shares of maxUnavailable and minAvailable; pods that are out, unready, terminating or lately disrupted are subtracted, and entries expire with time.",
        ours: Ours::Differs {
            answer: "What must stay is the majority, not a share that somebody chose. Members that do not serve, terminate or are granted are subtracted; a grant ends when its pod is gone, or when a look after the settle time shows that it stayed. `maxUnavailable` limits rollouts, never below one and never beyond headroom.",
            because: "A share of a hundred is no quorum, and an entry that expires by age alone expires while its delete is still under way.",
        },
        shown_by: &[
            "k7 of seven voters three may go",
            "k7 members that are out are subtracted, whatever the reason",
            "k7 no replicas: everything goes",
            "a_delete_that_never_happened_settles_after_the_settle_time_and_not_before",
            "a_terminating_pod_keeps_its_grant_however_long_it_takes",
            "a_percentage_is_rounded_down",
            "at_least_one_may_go",
            "kubectl_prints_the_budget_with_its_numbers",
        ],
    },
    Row {
        id: "K8",
        theirs: "its e2e suite",
        asserted: "On a real cluster: no pod matches; deleting a Deployment and scaling it in are ignored; a broken image stops a rollout at the budget; two Deployments share a budget; sidecars and updates in place; a label lets a pod be deleted by force, after a 429.",
        ours: Ours::Differs {
            answer: "What is deleted with its owner goes. A broken image holds a rollout at one member. A scale-in waits until its members left etcd. Two budgets of one etcd cluster make it wait. Force counts like any other delete.",
            because: "A scale-in takes votes away, which no replica of a Deployment has; sidecar sets do not exist here.",
        },
        shown_by: &[
            "pods_of_a_stateful_set_that_is_not_enrolled_pass",
            "an_owner_takes_the_claims_along_by_the_retention_policy_even_without_a_quorum",
            "a_scale_in_waits_until_the_members_are_removed_from_etcd",
            "a_bad_template_holds_at_one_member_and_a_rollback_goes_on",
            "two budgets guard one etcd cluster",
            "a_forced_delete_of_a_serving_member_counts_like_any_other",
            "an_override_on_the_set_lets_the_last_live_member_go_until_it_expires",
        ],
    },
];
