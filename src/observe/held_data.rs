//! The notes on the members' claims: an annotation says whose data a claim has. It outlives the
//! budget, whose record of volumes is the memory of the identity guard otherwise.

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;

use super::claim_names::CLAIM_NAME;
use super::claim_note::ClaimNote;
use super::member_claim::MemberClaim;
use super::observer::Observer;
use super::read_limits::soon;
use crate::ledger::Page;
use crate::named;
use crate::quorum::{ClusterId, ClusterRef, PodName, Volume, VolumeFinding, unrecorded_finding};

/// The start of the guard of the cluster with this id, by the notes on its claims.
pub fn guarded_since(notes: &[ClaimNote], cluster: ClusterId) -> Option<Timestamp> {
    let own = notes.iter().filter(|note| note.held.cluster == cluster);
    own.map(|note| note.since).min()
}

/// The finding about the volume of a pod for whose member nothing is on record. `notes`: those on
/// the claims of all members.
pub(super) fn unrecorded(
    page: &Page,
    claim: Option<&MemberClaim>,
    notes: &[ClaimNote],
) -> VolumeFinding {
    let by_notes = || notes.first().map(|note| note.held.cluster);
    let Some(cluster) = page.cluster_id().or_else(by_notes) else {
        return VolumeFinding::Unknown;
    };
    let is_new = guarded_since(notes, cluster).is_some_and(|since| {
        let made = claim.and_then(|claim| claim.made);
        made.is_none_or(|made| made >= since)
    });
    let unseen = Volume::default();
    let volume = claim.and_then(|claim| claim.volume.as_ref());
    let held = claim.and_then(|claim| claim.note).map(|note| note.held);
    unrecorded_finding(cluster, volume.unwrap_or(&unseen), held, is_new)
}

impl Observer {
    /// The metadata of these claims, read now. Claims that do not exist or could not be read are
    /// left out.
    pub async fn claims_metadata(
        &self,
        cluster: &ClusterRef,
        names: impl IntoIterator<Item = (PodName, String)>,
    ) -> Vec<(PodName, ObjectMeta)> {
        let client = self.client().clone();
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client, &cluster.namespace);
        let read = names.into_iter().map(async |(pod, name)| {
            let claim = soon(named::get_metadata_opt(&claims, CLAIM_NAME, &name))
                .await
                .ok()?
                .ok()??;
            Some((pod, claim.metadata))
        });
        join_all(read).await.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::{HeldData, MemberId};

    #[test]
    fn a_note_is_read_as_it_is_written_and_anything_else_is_none() {
        let note = ClaimNote {
            held: HeldData {
                cluster: ClusterId(0xef37),
                member: MemberId(0x8211),
            },
            since: "2026-11-28T10:00:00Z".parse().unwrap(),
        };
        let text = "member 8211 of cluster ef37 since 2026-11-28T10:00:00Z";
        assert_eq!(note.to_string(), text);
        assert_eq!(text.parse(), Ok(note));
        for other in ["", "member 8211", &text.replace("ef37", "none")] {
            assert_eq!(other.parse::<ClaimNote>(), Err(()), "{other}");
        }
    }

    #[test]
    fn a_cluster_is_guarded_since_the_oldest_note_of_its_own() {
        let note = |cluster, since: &str| ClaimNote {
            held: HeldData {
                cluster: ClusterId(cluster),
                member: MemberId(1),
            },
            since: since.parse().unwrap(),
        };
        let notes = [
            note(1, "2026-11-02T00:00:00Z"),
            note(1, "2026-11-01T00:00:00Z"),
            note(2, "2026-10-01T00:00:00Z"),
        ];
        let since = guarded_since(&notes, ClusterId(1));
        assert_eq!(since, Some(notes[1].since));
        assert_eq!(guarded_since(&notes, ClusterId(3)), None);
    }
}
