//! Rows of sequences of events that people reported from their clusters.

use super::super::row::{Ours, Row};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "Q17",
        theirs: "",
        asserted: "A cluster is scaled from three members to one and back to three, and the claims of the two were kept. On its old claim etcd ends with `the member has been permanently removed`, over and over.",
        ours: Ours::Own(
            "The claim says whose data it has, by an annotation of the gate that outlives the record. So the pod is known as that of a removed member: a condition says so with the command that replaces it, and with `Auto` it is replaced at once, by a learner on a new claim. Where several were removed, the condition says that etcd takes them one at a time, and how.",
        ),
        shown_by: &[
            "an_id_on_record_that_etcd_does_not_list_proves_that_the_member_was_removed",
            "only_data_that_is_proven_to_be_lost_is_replaced_by_itself",
            "a_member_that_etcd_does_not_list_any_more_is_added_again_at_its_own_url",
            "a_claim_says_whose_data_it_has_where_nothing_is_on_record",
            "removed_members_come_back_beside_the_only_voter_that_is_left",
            "members_on_the_claims_of_removed_ones_are_told_and_replaced",
        ],
    },
    Row {
        id: "Q18",
        theirs: "",
        asserted: "To repair a member somebody scales the StatefulSet from three to two, deletes the claim and scales back to three.",
        ours: Ours::Own(
            "The scale-in is refused with 403 (`MembersListed`) while etcd lists the member. The message leads to the replacement by the gate, and names the command that removes the member. After the removal the scale-in and the delete of the claim pass, and the claims of the other two stay.",
        ),
        shown_by: &[
            "a_scale_in_waits_until_the_members_are_removed_from_etcd",
            "a_scale_in_of_members_that_etcd_lists_is_403",
            "a_move_of_the_ordinals_waits_until_the_members_are_removed_from_etcd",
            "a_refused_scale_in_leads_to_the_replacement_and_says_what_announces_it",
            "the_claim_of_a_removed_member_stays_until_somebody_deletes_it",
        ],
    },
    Row {
        id: "Q19",
        theirs: "",
        asserted: "An operator sees that a pod is absent for a moment, takes the member for gone, and scales in.",
        ours: Ours::Own(
            "The scale-in is refused while etcd lists the member. A member without a pod is known by its name or by the record of its pod, and only a list of a member in contact with a quorum counts.",
        ),
        shown_by: &[
            "a_member_without_a_pod_is_known_by_the_record_of_its_pod",
            "a_member_without_a_pod_is_told_by_its_name",
            "a_scale_in_is_denied_while_etcd_lists_the_members_and_recorded_after",
            "only_a_list_from_a_member_in_contact_with_a_quorum_counts",
        ],
    },
    Row {
        id: "Q20",
        theirs: "",
        asserted: "A node autoscaler drains one node after the other, until two of five voters are left, while a disruption budget counts only those that are left.",
        ours: Ours::Own(
            "The gate goes on to expect five voters, so two may be out and the third stays, also where the member list shrinks. Pods of members ask the cluster autoscaler to leave them where they are. The last of these tests drains by kubectl, as an autoscaler would.",
        ),
        shown_by: &[
            "five voters spare no third one",
            "the member list shrinks further: five were seen, five count",
            "voters_that_get_lost_count_on",
            "of_three_deletes_at_once_five_members_spare_two",
            "members_tell_cluster_autoscaler_to_leave_them",
            "drains_one_after_the_other_leave_three_of_five_whatever_the_disruption_budget",
        ],
    },
    Row {
        id: "Q21",
        theirs: "",
        asserted: "A PodDisruptionBudget asks for one available member of three, so it allows two evictions at once.",
        ours: Ours::Own(
            "The second eviction is refused by the majority of etcd. The permission of a PodDisruptionBudget adds nothing: the gate treats it like the absence of one.",
        ),
        shown_by: &[
            "three voters spare no second one",
            "rule_10_a_budget_with_disruptions_left_permits",
            "s1_s2_s3_s16_an_eviction_is_granted_and_the_next_one_waits",
            "a_disruption_budget_of_one_available_permits_no_second_eviction",
        ],
    },
    Row {
        id: "Q22",
        theirs: "",
        asserted: "A drain is refused, and then the machine of the node is ended all the same.",
        ours: Ours::Own(
            "A member whose node is off or silent does not count, so deletes and evictions of its peers are refused until it serves again.",
        ),
        shown_by: &[
            "a_pod_of_a_lost_node_is_not_forced_away_until_the_node_is_out_of_service",
            "while_a_member_runs_on_without_its_node_object_no_other_is_taken",
            "one of three is silent: the other two are needed",
        ],
    },
    Row {
        id: "Q23",
        theirs: "",
        asserted: "The vertical pod autoscaler evicts members and resizes them in place.",
        ours: Ours::Own(
            "Its evictions are judged like any other, so a majority always serves. A resize passes where its policy does not restart the container, and is refused with 403 where it does.",
        ),
        shown_by: &[
            "evictions_and_changes_in_place_do_not_confuse_a_rollout",
            "a_resize_is_refused_only_where_its_policy_restarts_etcd",
            "k6_a_resize_restarts_by_the_policy_of_the_resource_that_changes",
            "three_members_serve_on_while_somebody_changes_all_of_them_in_place",
        ],
    },
    Row {
        id: "Q24",
        theirs: "",
        asserted: "A graceful shutdown of all nodes leaves every pod in the phase `Succeeded` or `Failed`.",
        ours: Ours::Own(
            "Once the nodes are back, pods whose containers have all ended go without a quorum, each with a grant. While a node is not ready the pods may run for all that is known, and wait. The phase alone proves nothing.",
        ),
        shown_by: &[
            "all nodes were shut down gracefully and are back: their pods have ended and go without a quorum",
            "all nodes were shut down gracefully and are not back: the pods may run for all that is known",
            "all_terminated_needs_every_container_and_the_phase_says_whether_it_is_final",
            "a_failed_phase_alone_proves_nothing",
        ],
    },
    Row {
        id: "Q25",
        theirs: "",
        asserted: "Two of three nodes reboot at once.",
        ours: Ours::Own(
            "Members that are dead for good go. One that is down and may complete the majority when it returns waits, and the survivor stays until quorum is back. The StatefulSet controller replaces pods that a rebooted node rejects.",
        ),
        shown_by: &[
            "quorum is lost: members that are dead for good go, the live one waits",
            "without_a_quorum_whoever_may_bring_it_back_waits",
            "without_a_quorum_a_rejected_pod_goes_and_those_that_may_bring_it_back_stay",
            "without_a_quorum_the_controller_of_the_set_replaces_rejected_pods_until_it_is_back",
        ],
    },
    Row {
        id: "Q26",
        theirs: "",
        asserted: "A script deletes all five pods at once, and a `preStop` hook removes each member from etcd.",
        ours: Ours::Own(
            "Two of five may go and the third delete is refused; a delete of the whole collection stops at the first refusal. Members that left the list count on, so that the majority does not shrink with it. Whoever asks is told where a hook in the template removes the member; a hook that calls a script is not read.",
        ),
        shown_by: &[
            "of_three_deletes_at_once_five_members_spare_two",
            "five voters spare no third one",
            "the member list shrinks further: five were seen, five count",
            "a_collection_delete_takes_one_member_and_stops_at_the_next",
            "whoever_asks_is_told_of_a_hook_that_removes_the_member",
        ],
    },
    Row {
        id: "Q27",
        theirs: "",
        asserted: "After a drain a pod ends over and over under another member id, and is Ready in between.",
        ours: Ours::Own(
            "Members are counted by their ids in the list of etcd and by the id of the cluster, never by readiness: the pod is no member, and the other two have to stay.",
        ),
        shown_by: &[
            "after a drain a pod crash-loops under an id that etcd does not list: its readiness counts for nothing",
            "a recorded id that etcd does not list any more is no pod's",
            "cluster ids differ: the odd one does not count",
        ],
    },
    Row {
        id: "Q28",
        theirs: "",
        asserted: "A cluster grows from one member to three at once, and its template fixes the initial state `new`.",
        ours: Ours::Own(
            "Pods of a formed cluster are given the state `existing`, where the template allows a change. New members join one after the other before the old one is restarted. Members that start a cluster of their own are no majority of the one that was there.",
        ),
        shown_by: &[
            "the_state_is_set_however_it_is_written",
            "a_pod_of_a_formed_cluster_joins_it_and_waits_with_another_volume",
            "from_one_to_three_new_members_join_before_the_old_one_restarts",
            "one voter on its way to three is no cluster of one",
            "rule_15_two_pods_with_a_cluster_of_their_own_are_no_majority_of_five_voters",
        ],
    },
    Row {
        id: "Q29",
        theirs: "",
        asserted: "For a restore somebody scales to zero, mounts the claims of the members in Jobs, writes other data to them, and scales back.",
        ours: Ours::Own(
            "Zero replicas are refused until they are announced. In hibernation no claim may be deleted (429, `LastCopy`), mounted by a Job or not. A new cluster id is a loss of data until somebody accepts it, unless `quorumgate.io/intent: bootstrap` announced it: the members serve, and none goes.",
        ),
        shown_by: &[
            "an_announced_hibernation_takes_every_member_and_waking_brings_them_back",
            "the_last_good_copy_stays_and_so_does_every_copy_in_hibernation",
            "the_cluster_of_a_majority_takes_the_place_of_the_one_on_record",
            "everyone is in another cluster than recorded: they agree, so it is theirs",
            "claims_that_a_restore_job_mounts_stay",
            "another_cluster_in_the_place_of_the_recorded_one_is_a_loss_until_accepted",
        ],
    },
    Row {
        id: "Q30",
        theirs: "",
        asserted: "A backup tool restores a copy into another namespace, so that two StatefulSets report one cluster id.",
        ours: Ours::Own(
            "Where every member has its pod in this StatefulSet, the copy counts for nothing, and the members are judged as ever. The condition of each names the other. Where one has none, and the other budget records a pod for it, all wait, and condition and refusal name the other budget.",
        ),
        shown_by: &[
            "a_second_budget_for_one_etcd_cluster_is_found",
            "several_cluster_ids_and_a_shared_one_are_conditions",
            "two budgets guard one etcd cluster",
            "another budget says that it guards this etcd cluster, and every member has its pod here",
            "a_copy_of_a_cluster_in_another_namespace_counts_only_for_members_without_a_pod_here",
            "a_copy_with_the_same_ids_in_another_namespace_counts_for_nothing",
        ],
    },
    Row {
        id: "Q31",
        theirs: "",
        asserted: "To repair a member somebody deletes its claim and its pod.",
        ours: Ours::Own(
            "The delete of the claim is refused while the member serves; of a dead member the claim goes while the others make the majority. A member whose volume is lost is replaced by itself with `Auto`. A pod whose claim is terminating goes while all others serve, and counts when its member has joined anew. Where both of a dead member are gone, its pod waits on a new claim until somebody asks for the replacement.",
        ),
        shown_by: &[
            "the_claim_of_a_serving_member_stays_and_that_of_no_member_goes",
            "one_claim_of_a_dead_member_goes_and_the_namespace_with_all_of_them",
            "a_member_whose_volume_is_lost_is_replaced_and_no_write_is_lost",
            "a_pod_whose_claim_is_marked_goes_while_all_others_serve_and_counts_when_it_is_back",
            "a_claim_that_terminates_under_its_member_is_said_before_anybody_asks",
            "a_dead_member_whose_claim_and_pod_were_deleted_comes_back_by_replacement",
        ],
    },
    Row {
        id: "Q32",
        theirs: "",
        asserted: "A CronJob defragments all members, one after the other or all at once.",
        ours: Ours::Own(
            "A call by somebody else takes no grant and cannot be refused; it is seen, the member does not count, and refusals say that it is defragmenting its database. The gate permits no run of its own while a member does not serve, and says so.",
        ),
        shown_by: &[
            "a_defragmentation_by_another_client_is_seen_and_keeps_the_others_in_place",
            "a member that defragments, whoever began it, is known not to serve: the others are needed",
            "a_defragmentation_is_not_permitted_while_a_voter_does_not_serve",
            "every_condition_of_the_cluster_is_a_reason_of_its_own",
        ],
    },
    Row {
        id: "Q33",
        theirs: "",
        asserted: "The alarm NOSPACE makes readiness or liveness probes fail.",
        ours: Ours::Own(
            "The member serves on and counts, with a probe that fails as well. A condition and an alert name the alarm whatever the mode, and the members are defragmented and the alarm disarmed by `Auto`. Members that a liveness probe restarts for the alarm count while they serve, and none is replaced.",
        ),
        shown_by: &[
            "n12_nospace_counts_and_corrupt_does_not",
            "serving for etcd, not ready for Kubernetes",
            "alarms_are_a_condition_whatever_is_done_about_them",
            "every_alert_is_tested_to_fire_and_not_to",
            "nospace_is_urgent_and_is_disarmed_when_all_have_room",
            "nospace_is_mended_where_there_is_something_to_free",
            "nospace_with_a_liveness_probe_that_fails_is_no_death",
        ],
    },
    Row {
        id: "Q34",
        theirs: "",
        asserted: "Under `Parallel` pod management a RollingUpdate passes by a pod that is not ready, and goes on to a healthy one.",
        ours: Ours::Own(
            "The delete of a healthy member by the controller is refused while another is down. The gate takes the broken one first, and then the rollout goes on.",
        ),
        shown_by: &[
            "a_broken_lower_member_does_not_block_the_statefulset_controller",
            "a_broken_lower_member_goes_where_the_controller_is_refused_the_highest",
            "a crashed member goes, and leaves no room for another",
        ],
    },
    Row {
        id: "Q35",
        theirs: "",
        asserted: "Unready pods may not be evicted by the policy of their PodDisruptionBudget, or two of these select one pod and every eviction fails with 500.",
        ours: Ours::Own(
            "The gate foresees the answer of the API server and takes no grant for an eviction that it refuses; a delete passes. The gate makes no PodDisruptionBudget where another selects a member, and deletes its own when one appears.",
        ),
        shown_by: &[
            "p1_p11_p12_p23_every_policy_for_unhealthy_pods_is_foreseen",
            "two disruption budgets select the pod",
            "p4_a_budget_that_selects_everything_counts",
            "none_is_made_where_another_selects_a_member",
            "an_eviction_that_another_budget_refuses_takes_no_grant",
        ],
    },
    Row {
        id: "Q36",
        theirs: "",
        asserted: "A member is a voter by the list of the others and a learner by its own status.",
        ours: Ours::Own(
            "The member counts when both agree. Until then it is a voter that is not known to serve, so that the majority is reckoned with it.",
        ),
        shown_by: &[
            "a learner that was promoted serves when it knows",
            "an old list that calls a silent member a learner takes no voter away",
        ],
    },
    Row {
        id: "Q37",
        theirs: "",
        asserted: "All certificates expire.",
        ours: Ours::Own(
            "Nobody is dead and no quorum is lost by that. Members have to stay, and the condition and the refusal name the certificate and the time at which it expired.",
        ),
        shown_by: &[
            "an_expired_client_certificate_makes_nobody_dead_and_the_budget_names_it",
            "an_expired_certificate_is_named_with_its_date",
            "the client certificate has expired: nobody is dead, nothing is lost",
        ],
    },
    Row {
        id: "Q38",
        theirs: "",
        asserted: "Members listen at addresses of IPv6 or of both families: `https://[$(POD_IP)]:2379`, and `[::1]` beside it.",
        ours: Ours::Own(
            "Members are asked at the address of their pod, in brackets where it is one of IPv6, and at the port of the URL that is not loopback.",
        ),
        shown_by: &[
            "urls_of_both_families_are_read_and_loopback_is_left_out",
            "the_likeliest_way_of_each_shape_is_the_right_one",
            "an_address_of_six_bytes_and_more_stands_in_brackets",
            "a_member_at_an_ipv6_address_answers_everything",
        ],
    },
    Row {
        id: "Q39",
        theirs: "",
        asserted: "The label to enrol is on something that is no StatefulSet: bare pods named `x-1`, an InstanceSet, a ReplicaSet.",
        ours: Ours::Own(
            "Nothing of it is guarded: its pods pass without a grant. A labelled Deployment, ReplicaSet or DaemonSet, and each labelled pod that is no StatefulSet's, gets a Warning `NotGuarded` that says so. A labelled pod of a StatefulSet without the label is told where the label belongs.",
        ),
        shown_by: &[
            "a_label_on_what_is_no_stateful_set_is_answered_by_an_event",
            "whatever_is_labelled_and_no_stateful_set_is_told_that_it_is_not_guarded",
            "a_pod_of_a_stateful_set_is_told_only_where_that_is_known_to_lack_the_label",
            "rule_1_pods_of_jobs_and_deployments_are_foreign_at_no_cost",
            "rule_1_a_bare_pod_with_the_members_labels_and_a_name_of_its_own_is_foreign",
            "pods_of_a_job_with_the_members_labels_pass",
        ],
    },
    Row {
        id: "Q40",
        theirs: "",
        asserted: "The StatefulSet of etcd's own documentation has ports `etcd-client` and `etcd-server`, and its URLs begin with `$(URI_SCHEME)://`.",
        ours: Ours::Own(
            "Variables in the arguments are resolved, so that scheme and port are found without settings. Where the test runs it, members listen at the address of their pod alone.",
        ),
        shown_by: &[
            "the_likeliest_way_of_each_shape_is_the_right_one",
            "the_stateful_set_of_etcds_own_documentation_enrols_without_settings",
        ],
    },
    Row {
        id: "Q41",
        theirs: "",
        asserted: "A probe shows no client certificate, so it fails, and kubelets restart members that serve.",
        ours: Ours::Own(
            "A member that serves counts by the evidence of etcd, whatever its probe and the last report of its kubelet say. A member that a probe ends over and over is not replaced unasked.",
        ),
        shown_by: &[
            "a_serving_member_whose_readiness_probe_is_broken_still_counts",
            "a failing container of a member that serves is old news",
            "a_member_that_has_just_started_counts_when_it_is_ready_or_runs_for_a_while",
            "a_member_that_memory_or_a_probe_ends_is_never_replaced_unasked",
            "a_probe_without_a_certificate_restarts_members_and_none_counts_as_dead",
        ],
    },
];
