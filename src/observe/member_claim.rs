//! The claim of a member, or what stands for it, read now.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;

use super::bound_node::bound_node;
use super::claim_names::CLAIM_NAME;
use super::claim_note::ClaimNote;
use super::data_on::DataOn;
use super::observer::Observer;
use super::read_limits::soon;
use super::view::ClusterView;
use crate::causes::causes;
use crate::named;
use crate::plan::replacement::Place;
use crate::quorum::pod::Node;
use crate::quorum::{ClaimState, ClusterRef, PodName, Volume};

/// The claim of a member, read now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberClaim {
    /// The name of the claim.
    pub name: String,
    /// The claim of etcd's write-ahead log, where that is another: its name and its UID.
    pub wal: Option<(String, String)>,
    /// Whether the claim exists, and that of the write-ahead log.
    pub state: ClaimState,
    /// The claim with its volume. `None` if the claim does not exist.
    pub volume: Option<Volume>,
    /// Whether the claim has lost its volume: its phase says so, or the volume it is bound to does
    /// not exist or has failed.
    pub lost: bool,
    /// The volumes that are being deleted. Each goes with its claim, whatever its reclaim policy.
    pub leaving: Vec<String>,
    /// The thing that has the data: the pod or its node may stand for a claim.
    pub place: Place,
    /// The creation of the claim.
    pub made: Option<Timestamp>,
    /// The note on the claim: whose data it has.
    pub note: Option<ClaimNote>,
}

impl Observer {
    /// The claim of the member in the pod of this name, and its volume, read now. `None` if the
    /// data is on no claim. The error says for people what could not be read.
    pub async fn member_claim(
        &self,
        cluster: &ClusterRef,
        view: &ClusterView,
        pod: &PodName,
    ) -> Result<Option<MemberClaim>, String> {
        let seen = view.pod(pod);
        let uid = seen.and_then(|pod| pod.metadata.uid.as_deref());
        let node = seen.and_then(|pod| pod.spec.as_ref()?.node_name.as_deref());
        let bound_to = || seen.and_then(|pod| bound_node(pod.spec.as_ref()?));
        let (place, volume) = match (view.data_on(pod), uid) {
            (DataOn::Claims(names), _) => {
                let mut claim = self.claims_named(cluster, names).await?;
                if let Some(volume) = &mut claim.volume {
                    volume.directory = view.data_directory(pod);
                }
                return Ok(Some(claim));
            }
            (DataOn::Pod, Some(uid)) => (Place::Pod, Volume::in_pod(uid)),
            (DataOn::Node { path, .. }, Some(_)) => match node.or_else(bound_to) {
                Some(node) => {
                    let volume = Volume {
                        directory: view.data_directory(pod),
                        ..Volume::on_node(node, &path)
                    };
                    (Place::Node, volume)
                }
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        let is_lost = match (volume.node(), node) {
            // A pod that is bound to a node which is gone never starts.
            (Some(bound), None) => self.is_node_gone(bound).await,
            _ => false,
        };
        Ok(Some(MemberClaim {
            name: pod.to_string(),
            wal: None,
            state: ClaimState::Here {
                uid: uid.unwrap_or_default().to_owned(),
                terminating: false,
            },
            volume: Some(volume),
            lost: is_lost,
            leaving: Vec::new(),
            place,
            made: None,
            note: None,
        }))
    }

    /// The claims of a member and their volumes, read now, as one: the data needs all of them.
    pub(super) async fn claims_named(
        &self,
        cluster: &ClusterRef,
        names: Vec<String>,
    ) -> Result<MemberClaim, String> {
        let mut names = names.into_iter();
        let name = names.next().unwrap_or_default();
        let mut all = self.claim_named(cluster, name).await?;
        for name in names {
            let wal = self.claim_named(cluster, name).await?;
            let ClaimState::Here {
                uid,
                terminating: wal_terminates,
            } = wal.state
            else {
                return Ok(wal);
            };
            if let ClaimState::Here { terminating, .. } = &mut all.state {
                *terminating |= wal_terminates;
            }
            all.wal = Some((wal.name, uid));
            all.lost |= wal.lost;
            all.leaving.extend(wal.leaving);
            all.volume = all.volume.zip(wal.volume).map(|(data, wal)| data.and(&wal));
        }
        Ok(all)
    }

    /// The claim of this name, and its volume, read now.
    async fn claim_named(&self, cluster: &ClusterRef, name: String) -> Result<MemberClaim, String> {
        let client = self.client().clone();
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client, &cluster.namespace);
        let unread = |why: String| format!("could not read the claim {name}: {why}");
        let claim = match soon(named::get_opt(&claims, CLAIM_NAME, &name)).await {
            Ok(Ok(claim)) => claim,
            Ok(Err(error)) => return Err(unread(causes(&error))),
            Err(late) => return Err(unread(causes(&late))),
        };
        let Some(claim) = claim else {
            return Ok(MemberClaim {
                name,
                wal: None,
                state: ClaimState::Gone,
                volume: None,
                lost: false,
                leaving: Vec::new(),
                place: Place::Claim,
                made: None,
                note: None,
            });
        };
        let note = ClaimNote::read(&claim.metadata);
        let made = claim.metadata.creation_timestamp.map(|at| at.0);
        let uid = claim.metadata.uid.unwrap_or_default();
        let phase = claim.status.and_then(|status| status.phase);
        let bound = claim.spec.and_then(|spec| spec.volume_name);
        let bound = bound.filter(|bound| !bound.is_empty());
        let is_lost = phase.as_deref() == Some("Lost");
        let volume = match bound {
            Some(bound) => self.volume_named(&bound).await?,
            None => SeenVolume::default(),
        };
        Ok(MemberClaim {
            wal: None,
            state: ClaimState::Here {
                uid: uid.clone(),
                terminating: claim.metadata.deletion_timestamp.is_some(),
            },
            volume: Some(Volume {
                claim_uid: uid,
                volume_id: volume.id,
                directory: None,
            }),
            lost: is_lost || volume.lost,
            leaving: volume.leaving.into_iter().collect(),
            place: Place::Claim,
            made,
            note,
            name,
        })
    }

    /// Whether the node is gone for certain.
    pub(super) async fn is_node_gone(&self, node: &str) -> bool {
        let states = self.nodes(std::iter::once(&node.to_owned())).await;
        states.get(node) == Some(&Node::Gone)
    }

    async fn volume_named(&self, name: &str) -> Result<SeenVolume, String> {
        let volumes: Api<PersistentVolume> = Api::all(self.client().clone());
        let unread = |why: String| format!("could not read the volume {name}: {why}");
        let volume = match soon(named::get_opt(
            &volumes,
            "spec.volumeName of the claim",
            name,
        ))
        .await
        {
            Ok(Ok(volume)) => volume,
            Ok(Err(error)) => return Err(unread(causes(&error))),
            Err(late) => return Err(unread(causes(&late))),
        };
        let Some(volume) = volume else {
            return Ok(SeenVolume {
                id: Some(name.to_owned()),
                lost: true,
                leaving: None,
            });
        };
        let leaves = volume.metadata.deletion_timestamp.is_some();
        // Another volume may be made under the same name, on an empty disk.
        let made = format!("{name}/{}", volume.metadata.uid.unwrap_or_default());
        let csi = volume.spec.and_then(|spec| spec.csi);
        let phase = volume.status.and_then(|status| status.phase);
        Ok(SeenVolume {
            id: Some(csi.map_or(made, |csi| csi.volume_handle)),
            lost: phase.as_deref() == Some("Failed"),
            leaving: leaves.then(|| name.to_owned()),
        })
    }
}

/// A volume of a claim, read now.
#[derive(Debug, Default)]
struct SeenVolume {
    /// The id of the storage.
    id: Option<String>,
    /// Whether it is gone or has failed.
    lost: bool,
    /// The name of the volume, if that is being deleted.
    leaving: Option<String>,
}
