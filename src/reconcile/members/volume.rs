//! The volumes that the members have, compared with those on record.

use std::collections::HashMap;

use futures::future::join_all;
use tracing::warn;

use crate::members::MemberInput;
use crate::plan::replacement::Place;
use crate::quorum::{PodName, PodUid, Volume, volume_finding};
use crate::reconcile::look::Look;
use crate::reconcile::run::Run;

/// The volumes of the members' pods. A pod keeps its claim, and a claim its volume, as long as it
/// lives, so each is read once.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    of: HashMap<PodName, (PodUid, Volume)>,
}

impl Volumes {
    /// Reads the volumes of pods that were not read yet.
    pub(super) async fn read(&mut self, run: &Run, look: &Look) {
        let pods = &look.snapshot.pods;
        self.of
            .retain(|name, (uid, _)| pods.iter().any(|pod| pod.name == *name && pod.uid == *uid));
        let unread = pods.iter().filter(|pod| !self.of.contains_key(&pod.name));
        let unread = unread.map(|pod| async move {
            let (cluster, view) = (&look.page.cluster, &look.view);
            let claim = run.observer.member_claim(cluster, view, &pod.name).await;
            (pod, claim)
        });
        for (pod, claim) in join_all(unread).await {
            match claim {
                // One without a volume yet is read again.
                Ok(claim) => {
                    let claim = claim.filter(|claim| claim.place == Place::Claim);
                    let volume = claim.and_then(|claim| claim.volume);
                    if let Some(volume) = volume.filter(|volume| volume.volume_id.is_some()) {
                        self.of.insert(pod.name.clone(), (pod.uid.clone(), volume));
                    }
                }
                Err(why) => {
                    warn!(cluster = %look.page.cluster, member = %pod.name, why, "cannot compare the member's volume");
                }
            }
        }
    }

    /// Adds to `facts` whether the member has the volume on record.
    pub(super) fn add(&self, facts: &mut MemberInput, look: &Look, pod: &PodName) {
        let present = self.of.get(pod).map(|(_, volume)| volume);
        facts.volume = volume_finding(&look.page.recorded_volumes(), pod, present);
    }
}
