//! For how long each pod of a cluster has not served, by this replica's clock.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::quorum::{PodName, PodUid, Snapshot};

/// Since when each pod that does not serve has not. A new incarnation begins anew, and so does a pod that went missing.
#[derive(Debug, Default)]
pub(super) struct Absences(HashMap<PodName, (Option<PodUid>, Instant)>);

impl Absences {
    /// Takes in what a look at `now` showed, and tells how long each has been out.
    pub(super) fn note(
        &mut self,
        snapshot: &Snapshot,
        now: Instant,
    ) -> BTreeMap<PodName, Duration> {
        let serving: Vec<&PodName> = snapshot
            .members
            .iter()
            .filter(|member| member.serves_quorum())
            .filter_map(|member| member.pod_name())
            .collect();
        let mut present: HashMap<PodName, Option<PodUid>> = snapshot
            .pods
            .iter()
            .map(|pod| (pod.name.clone(), Some(pod.uid.clone())))
            .collect();
        for index in 0..snapshot.replicas {
            let name = PodName::new(format!("{}-{index}", snapshot.cluster.name));
            present.entry(name).or_default();
        }
        present.retain(|name, _| !serving.contains(&name));
        let known = std::mem::take(&mut self.0);
        let since = |name: &PodName, uid: &Option<PodUid>| {
            let before = known.get(name).filter(|(before, _)| before == uid);
            before.map_or(now, |(_, since)| *since)
        };
        self.0 = present
            .into_iter()
            .map(|(name, uid)| {
                let since = since(&name, &uid);
                (name, (uid, since))
            })
            .collect();
        let ages = self.0.iter();
        ages.map(|(name, (_, since))| (name.clone(), now.saturating_duration_since(*since)))
            .collect()
    }
}
