//! The rows of `docs/conformance.md` that need a real API server and have no other test. Each step
//! is named after its rows. Steps that do not disturb each other share a world.

#![expect(
    clippy::indexing_slicing,
    reason = "JSON is indexed: what is not there is null, and made where it is written"
)]

mod crowds;
mod disruption_budgets;
mod finalizers;
mod members;
mod raw;
mod refusals;
mod requests;

use anyhow::{Result, ensure};

use crate::asking::refusal;
use crate::rollouts::scene;
use crate::teardown;
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_every_form() -> Result<()> {
    let world = World::new("conf-requests").await?;
    requests::p21_evictions_of_every_version_that_is_served_are_judged(&world).await?;
    requests::p3_a_name_that_is_not_the_urls_is_400(&world).await?;
    requests::p16_n18_dry_runs_by_every_source_leave_no_trace(&world).await?;

    let broken = world.crash("etcd-2").await?;
    refusals::n22_no_refusal_says_when_to_retry(&world).await?;
    refusals::d6_the_operator_is_judged_like_anybody(&world).await?;
    refusals::d3_d4_a_set_that_is_not_enrolled_is_scaled_and_deleted_freely(&world).await?;
    refusals::n17_of_two_refusals_either_may_be_heard(&world).await?;
    refusals::p26_a_drain_that_has_to_wait_ends_at_its_timeout_and_says_why(&world).await?;
    broken.mend();
    world.whole().await?;

    finalizers::s1_s2_s3_s16_an_eviction_is_granted_and_the_next_one_waits(&world).await?;
    finalizers::p10_p17_p22_a_finalizer_keeps_the_grant_and_its_pod_may_be_evicted_again(&world)
        .await?;
    // The API server records an eviction with a wrong UID in the companion's status, which forgets
    // it after two minutes. So no test evicts a pod after that.
    requests::s4_s16_p18_preconditions_that_do_not_hold_are_409_and_take_no_grant(&world).await?;
    d7_n15_an_owner_that_is_deleted_takes_everything_along(&world).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn other_budgets_beside_ours() -> Result<()> {
    let world = World::new("conf-budgets").await?;
    disruption_budgets::p1_p11_p12_p23_every_policy_for_unhealthy_pods_is_foreseen(&world).await?;
    disruption_budgets::p1_a_pending_member_goes_past_a_budget_that_refuses(&world).await?;
    disruption_budgets::p4_a_budget_that_selects_everything_counts(&world).await?;
    disruption_budgets::p2_p20_a_finished_pod_leaves_its_budget_as_it_was(&world).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once() -> Result<()> {
    let world = scene::on_delete("conf-crowds", |etcd| etcd.replicas(5))
        .nodes(5)
        .replicas(3)
        .start()
        .await?;
    crowds::n2_many_deletes_of_one_pod_are_one_grant(&world).await?;
    crowds::p19_concurrent_evictions_meet_429_alone_and_all_go_in_the_end(&world).await?;
    crowds::n6_mixed_requests_through_three_replicas_never_exceed_the_budget(&world).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn members_and_their_pods() -> Result<()> {
    let world = World::builder("conf-members")
        .etcd(|etcd| etcd.quota_bytes(16 << 20))
        .start()
        .await?;
    members::n8_a_pod_of_the_same_name_is_judged_anew(&world).await?;
    members::n12_nospace_counts_and_corrupt_does_not(&world).await?;
    members::n21_a_failed_pod_is_replaced_at_once(&world).await?;
    members::n9_a_voter_that_never_started_counts_and_a_removed_one_does_not(&world).await?;
    members::p24_in_a_namespace_that_goes_a_drain_waits_for_its_pods(&world).await?;
    world.close().await
}

/// Deletes the owner of the StatefulSet. No delete that follows is refused, without any annotation.
async fn d7_n15_an_owner_that_is_deleted_takes_everything_along(world: &World) -> Result<()> {
    let owner = teardown::own(world).await?;
    let (code, message) = refusal(world.etcd.scale(2).await)?;
    ensure!(code == 403, "while the owner lives: {code}: {message}");
    world
        .kubectl(&["delete", "configmap", &owner, "--wait=false"])
        .await?
        .success()?;
    teardown::no_pods(world).await
}
