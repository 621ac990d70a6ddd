//! The time for which each pod of a cluster has not served, by this replica's clock.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::plan::targets;
use crate::quorum::{Ordinal, PodName, PodUid, Snapshot};

/// For each pod that does not serve, since when. The time starts again with a new incarnation, and
/// when the pod goes missing.
#[derive(Debug, Default)]
pub(super) struct Absences(HashMap<PodName, (Option<PodUid>, Instant)>);

impl Absences {
    /// Records the result of a look at `now`, for a StatefulSet whose ordinals begin with `first`.
    /// Returns the time for which each pod has been out.
    pub(super) fn note(
        &mut self,
        snapshot: &Snapshot,
        first: Ordinal,
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
        for target in targets(snapshot, first) {
            present.entry(target.name).or_default();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::{ClusterRef, Observation};

    fn without_pods(replicas: u32) -> Snapshot {
        Snapshot::assemble(&Observation::before_any_look(
            ClusterRef::new("a", "etcd"),
            replicas,
        ))
    }

    #[test]
    fn more_pods_than_there_can_be_are_not_counted_to_the_end() {
        let absurd = without_pods(u32::MAX);
        let out = Absences::default().note(&absurd, Ordinal(0), Instant::now());
        assert!(out.len() <= 1000, "{} pods are watched", out.len());
    }

    #[test]
    fn missing_pods_are_named_after_the_ordinals_that_there_are_to_be() {
        let mut absences = Absences::default();
        let (start, snapshot) = (Instant::now(), without_pods(2));
        absences.note(&snapshot, Ordinal(5), start);
        let since = Duration::from_secs(9);
        let out = absences.note(&snapshot, Ordinal(5), start + since);
        let expected = [("etcd-5".into(), since), ("etcd-6".into(), since)];
        assert_eq!(out, BTreeMap::from(expected));
    }
}
