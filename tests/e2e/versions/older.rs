//! The cases of members and their data on other etcd versions than those that run on every change.
//! `make versions` runs them.

use anyhow::Result;
use quorumgate_testbed::etcd_cluster::EtcdVersion;

use crate::members::another_writer_ends_its_writes;
use crate::members::sidecar::nothing_acts;
use crate::members::volumes::are_told_until_put_right;
use crate::replacement::kills::goes_on_before_each_step;
use crate::replacement::{
    by_pod_with_a_trace, nothing_is_lost_with_quorum, one_is_lost, owned_are_left_alone, two_lost,
    two_lost_lose_every_write,
};

/// Tests of a case: the name, the case, its version, and the name of its world.
macro_rules! tests {
    ($($name:ident: $case:ident, $version:ident, $world:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        #[ignore = "make versions runs it"]
        async fn $name() -> Result<()> {
            $case(EtcdVersion::$version, $world).await
        }
    )*};
}

tests! {
    a_lost_volume_is_replaced_on_etcd_3_4: one_is_lost, V3_4, "lost-one-3-4";
    a_lost_volume_is_replaced_on_etcd_3_5: one_is_lost, V3_5, "lost-one-3-5";
    a_lost_volume_is_replaced_on_etcd_3_6: one_is_lost, V3_6, "lost-one-3-6";
    a_replacement_goes_on_before_each_step_on_etcd_3_4: goes_on_before_each_step, V3_4, "killed-3-4";
    a_replacement_goes_on_before_each_step_on_etcd_3_5: goes_on_before_each_step, V3_5, "killed-3-5";
    a_replacement_goes_on_before_each_step_on_etcd_3_7: goes_on_before_each_step, V3_7, "killed-3-7";
    two_lost_volumes_make_no_empty_quorum_on_etcd_3_4: two_lost, V3_4, "lost-3-4";
    two_lost_volumes_make_no_empty_quorum_on_etcd_3_6: two_lost, V3_6, "lost-3-6";
    without_the_gate_two_lost_volumes_lose_every_write_on_etcd_3_7: two_lost_lose_every_write, V3_7, "bare-3-7";
    by_the_pod_a_claim_goes_with_a_trace_on_etcd_3_4: by_pod_with_a_trace, V3_4, "pod-3-4";
    by_the_pod_a_claim_goes_with_a_trace_on_etcd_3_5: by_pod_with_a_trace, V3_5, "pod-3-5";
    by_the_pod_a_claim_goes_with_a_trace_on_etcd_3_6: by_pod_with_a_trace, V3_6, "pod-3-6";
    by_the_owner_nothing_is_replaced_on_etcd_3_4: owned_are_left_alone, V3_4, "owner-3-4";
    by_the_owner_nothing_is_replaced_on_etcd_3_5: owned_are_left_alone, V3_5, "owner-3-5";
    by_the_owner_nothing_is_replaced_on_etcd_3_6: owned_are_left_alone, V3_6, "owner-3-6";
    without_quorum_nothing_is_removed_on_etcd_3_4: nothing_is_lost_with_quorum, V3_4, "none-3-4";
    without_quorum_nothing_is_removed_on_etcd_3_5: nothing_is_lost_with_quorum, V3_5, "none-3-5";
    without_quorum_nothing_is_removed_on_etcd_3_6: nothing_is_lost_with_quorum, V3_6, "none-3-6";
    nothing_that_acts_is_asked_of_a_sidecar_on_etcd_3_5: nothing_acts, V3_5, "backups-3-5";
    swapped_volumes_are_told_on_etcd_3_5: are_told_until_put_right, V3_5, "swapped-3-5";
    another_writer_is_noticed_on_etcd_3_5: another_writer_ends_its_writes, V3_5, "writer-3-5";
}
