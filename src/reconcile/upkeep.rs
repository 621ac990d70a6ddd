//! Upkeep after a look, besides the report: the `PodDisruptionBudget` for planners, the notes on
//! claims, the `EtcdMember`s, and deletes that are repeated for the taint eviction controller.
//!
//! A failure in one of them concerns nothing else, so it is only logged.

use std::collections::HashMap;
use std::time::Duration;

use kube::{Resource as _, ResourceExt as _};
use tokio::time::Instant;
use tracing::warn;

use super::initialisations::Initialisations;
use super::look::Look;
use super::members::Members;
use super::run::Run;
use super::volumes::Notes;
use super::{companion, redrive};
use crate::quorum::Snapshot;

/// The upkeep of one cluster.
#[derive(Default)]
pub(super) struct Upkeep {
    asked_again: HashMap<String, Instant>,
    notes: Notes,
    /// `None` until the feature asks for it, since there may be ten thousand loops.
    members: Option<Box<Members>>,
}

impl Upkeep {
    /// Does what follows a look. Returns the time until the next look that it needs.
    pub(super) async fn follow(
        &mut self,
        run: &Run,
        look: &Look,
        initialisations: &Initialisations,
    ) -> Option<Duration> {
        Box::pin(self.notes.write(run, look)).await;
        plan_companion(run, look).await;
        self.keep_members(run, look, initialisations).await;
        self.redrive(run, look).await
    }

    /// Keeps the `EtcdMember`s.
    async fn keep_members(&mut self, run: &Run, look: &Look, initialisations: &Initialisations) {
        if !run.settings.features.etcd_members {
            return;
        }
        let members = self.members.get_or_insert_default();
        if let Err(error) = Box::pin(members.run(run, look, initialisations)).await {
            warn!(cluster = %look.page.cluster, %error, "cannot update the EtcdMembers");
        }
    }

    /// Repeats the next delete for the taint eviction controller that can pass. Returns the time
    /// until the next look while some are due.
    async fn redrive(&mut self, run: &Run, look: &Look) -> Option<Duration> {
        let now = run.clock.now();
        let due = look.view.pods().iter().filter(|pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            let node = node.and_then(|name| run.watches.node(name));
            node.is_some_and(|node| redrive::is_due(pod, &node, now))
        });
        let due: Vec<_> = due.collect();
        let uids: Vec<String> = due.iter().filter_map(|pod| pod.uid()).collect();
        self.asked_again.retain(|uid, _| uids.contains(uid));
        if due.is_empty() {
            return None;
        }
        let instant = run.clock.instant();
        let mut ready = due.into_iter().filter(|pod| {
            let asked = pod.uid().and_then(|uid| self.asked_again.get(&uid));
            let patient =
                asked.is_none_or(|at| instant.saturating_duration_since(*at) >= redrive::AGAIN);
            patient && redrive::may_go(pod, &look.snapshot, &look.page.grants)
        });
        if let Some(pod) = ready.next() {
            self.asked_again
                .insert(pod.uid().unwrap_or_default(), instant);
            redrive::ask(&run.client, pod).await;
        }
        Some(redrive::LOOK_AGAIN)
    }
}

async fn plan_companion(run: &Run, look: &Look) {
    let cluster = &look.page.cluster;
    let tolerance = look.snapshot.tolerance(&look.page.grants);
    let set = look.view.stateful_set();
    let wanted = companion::Wanted {
        budget: look.page.budget(),
        selector: set.and_then(|set| Some(&set.spec.as_ref()?.selector)),
        min_available: companion::min_available(
            tolerance.voters,
            tolerance.majority,
            unseen_by_planners(tolerance.voters, &look.snapshot),
            look.view.policy(),
            companion::Evictions::from_budget(look.page.budget()),
        ),
    };
    let namespace = &cluster.namespace;
    let here = run.watches.disruption_budgets(namespace);
    let leaving = run
        .watches
        .namespace(namespace)
        .is_none_or(|ns| ns.meta().deletion_timestamp.is_some());
    if leaving || !wanted.is_due(&here, look.view.pods()) {
        return;
    }
    if let Err(error) = wanted.apply(&run.client, look.view.pods()).await {
        warn!(%cluster, %error, "cannot update the PodDisruptionBudget for planners");
    }
}

/// The number of voters that a `PodDisruptionBudget` does not count although they serve or may
/// serve: voters beyond the replicas, which never have a pod here (a missing pod comes back), and
/// members that serve in pods that are not Ready.
fn unseen_by_planners(voters: u32, snapshot: &Snapshot) -> u32 {
    let elsewhere = voters.saturating_sub(snapshot.replicas);
    let unready = snapshot.members.iter().filter(|member| {
        let pod = member.pod_name().and_then(|name| snapshot.pod(name));
        member.serves_quorum() && pod.is_some_and(|pod| !pod.ready)
    });
    elsewhere.saturating_add(u32::try_from(unready.count()).unwrap_or(u32::MAX))
}
