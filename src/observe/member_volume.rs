//! The claim and the volume that have the data of a member.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Container, PersistentVolume, PersistentVolumeClaim, PodSpec};
use kube::Api;

use super::claims::templates;
use super::mounts::mount_of;
use super::patience::soon;
use super::settings::Settings;
use super::{EtcdContainer, Observer, World};
use crate::causes::causes;
use crate::quorum::{ClaimState, ClusterRef, PodName, Volume};

/// The claim of a member, read now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberClaim {
    /// The name of the claim.
    pub name: String,
    /// Whether the claim exists.
    pub state: ClaimState,
    /// The claim with its volume. `None` if the claim does not exist.
    pub volume: Option<Volume>,
    /// Whether the claim has lost its volume: its phase says so, or the volume it is bound to does
    /// not exist or has failed.
    pub lost: bool,
}

impl World {
    /// The name of the claim that has the data of the member in the pod of this name, whether or
    /// not the pod exists: the one that is mounted over etcd's data directory, or else the only one
    /// there is. `None` if the data is on no claim, or nobody can tell on which.
    pub fn data_claim(&self, pod: &PodName) -> Option<String> {
        let set = self.stateful_set();
        let spec = match self.pod(pod) {
            Some(pod) => pod.spec.as_ref()?,
            None => set?.spec.as_ref()?.template.spec.as_ref()?,
        };
        data_claim(spec, self.etcd_container(), set, pod)
    }
}

/// The claim that has the data of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DataOn {
    /// The claim of this name.
    Claim(String),
    /// None.
    NoClaim,
    /// A claim of these names, and nobody can tell which.
    AnyOf(Vec<String>),
}

impl DataOn {
    /// Whether the data may be on this claim.
    pub(super) fn may_be(&self, claim: &str) -> bool {
        match self {
            Self::Claim(name) => name == claim,
            Self::NoClaim => false,
            Self::AnyOf(names) => names.iter().any(|name| name == claim),
        }
    }
}

/// The claim with the data of the member in a pod with this spec, which may be that of the
/// template. `named` is the container of etcd that the budget names. `None` if the data is on no
/// claim, or nobody can tell on which.
pub(super) fn data_claim(
    spec: &PodSpec,
    named: Option<&str>,
    set: Option<&StatefulSet>,
    pod: &PodName,
) -> Option<String> {
    match data_on(spec, named, set, pod) {
        DataOn::Claim(claim) => Some(claim),
        DataOn::NoClaim | DataOn::AnyOf(_) => None,
    }
}

/// The claim with the data of the member in a pod with this spec, which may be that of the
/// template: the one that is mounted over etcd's data directory, or else the only one there is.
pub(super) fn data_on(
    spec: &PodSpec,
    named: Option<&str>,
    set: Option<&StatefulSet>,
    pod: &PodName,
) -> DataOn {
    let used = spec.volumes.iter().flatten().filter_map(|volume| {
        let claim = volume.persistent_volume_claim.as_ref()?;
        Some((volume.name.as_str(), claim.claim_name.clone()))
    });
    let given = set.into_iter().flat_map(templates);
    let given = given.map(|template| (template, format!("{template}-{pod}")));
    // The StatefulSet controller replaces volumes of the names of its templates.
    let claims: BTreeMap<&str, String> = used.chain(given).collect();
    match EtcdContainer::of(spec, named).certain().map(data_volume) {
        Some(Directory::On(volume)) => match claims.get(volume) {
            Some(claim) => DataOn::Claim(claim.clone()),
            None => DataOn::NoClaim,
        },
        Some(Directory::Elsewhere) => DataOn::NoClaim,
        Some(Directory::Untold) | None => {
            let mut all: Vec<String> = claims.into_values().collect();
            match (all.pop(), all.is_empty()) {
                (None, _) => DataOn::NoClaim,
                (Some(only), true) => DataOn::Claim(only),
                (Some(last), false) => {
                    all.push(last);
                    DataOn::AnyOf(all)
                }
            }
        }
    }
}

/// The place of etcd's data directory.
enum Directory<'a> {
    /// On the volume of this name.
    On(&'a str),
    /// On no volume.
    Elsewhere,
    /// Unknown: etcd's settings do not say where.
    Untold,
}

fn data_volume(etcd: &Container) -> Directory<'_> {
    let Some(directory) = Settings::of(etcd).get("data-dir") else {
        return Directory::Untold;
    };
    match mount_of(&directory.value, etcd) {
        Some(mount) => Directory::On(&mount.name),
        // A variable or a relative path may lead anywhere.
        None if directory.value.contains('$') || !directory.value.starts_with('/') => {
            Directory::Untold
        }
        None => Directory::Elsewhere,
    }
}

impl Observer {
    /// The claim of the member in the pod of this name, and its volume, read now. `None` if the
    /// data is on no claim. The error says for people what could not be read.
    pub async fn member_claim(
        &self,
        cluster: &ClusterRef,
        world: &World,
        pod: &PodName,
    ) -> Result<Option<MemberClaim>, String> {
        match world.data_claim(pod) {
            Some(name) => self.claim_named(cluster, name).await.map(Some),
            None => Ok(None),
        }
    }

    /// The claim of this name, and its volume, read now.
    pub async fn claim_named(
        &self,
        cluster: &ClusterRef,
        name: String,
    ) -> Result<MemberClaim, String> {
        let client = self.client().clone();
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client, &cluster.namespace);
        let unread = |why: String| format!("could not read the claim {name}: {why}");
        let claim = match soon(claims.get_opt(&name)).await {
            Ok(Ok(claim)) => claim,
            Ok(Err(error)) => return Err(unread(causes(&error))),
            Err(late) => return Err(unread(causes(&late))),
        };
        let Some(claim) = claim else {
            return Ok(MemberClaim {
                name,
                state: ClaimState::Gone,
                volume: None,
                lost: false,
            });
        };
        let uid = claim.metadata.uid.unwrap_or_default();
        let phase = claim.status.and_then(|status| status.phase);
        let bound = claim.spec.and_then(|spec| spec.volume_name);
        let bound = bound.filter(|bound| !bound.is_empty());
        let is_lost = phase.as_deref() == Some("Lost");
        let (volume_id, is_gone) = match bound {
            Some(bound) => self.volume_named(&bound).await?,
            None => (None, false),
        };
        Ok(MemberClaim {
            state: ClaimState::Here {
                uid: uid.clone(),
                terminating: claim.metadata.deletion_timestamp.is_some(),
            },
            volume: Some(Volume {
                claim_uid: uid,
                volume_id,
            }),
            lost: is_lost || is_gone,
            name,
        })
    }

    /// The id of a volume, and whether it is gone or has failed.
    async fn volume_named(&self, name: &str) -> Result<(Option<String>, bool), String> {
        let volumes: Api<PersistentVolume> = Api::all(self.client().clone());
        let unread = |why: String| format!("could not read the volume {name}: {why}");
        let volume = match soon(volumes.get_opt(name)).await {
            Ok(Ok(volume)) => volume,
            Ok(Err(error)) => return Err(unread(causes(&error))),
            Err(late) => return Err(unread(causes(&late))),
        };
        let Some(volume) = volume else {
            return Ok((Some(name.to_owned()), true));
        };
        let csi = volume.spec.and_then(|spec| spec.csi);
        let id = csi.map_or_else(|| name.to_owned(), |csi| csi.volume_handle);
        let phase = volume.status.and_then(|status| status.phase);
        Ok((Some(id), phase.as_deref() == Some("Failed")))
    }
}
