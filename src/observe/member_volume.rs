//! The place of a member's data: its claim and volume, its pod, or its node.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    Container, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim,
    PodSpec,
};
use kube::Api;

use super::claims::templates;
use super::mounts::mount_of;
use super::patience::soon;
use super::settings::Settings;
use super::{EtcdContainer, Observer, World, belonging};
use crate::api::DataPlace;
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
    /// Whether the data is on no claim, and the pod or its node stands for one.
    pub in_pod: bool,
}

impl World {
    /// The name of the claim that has the data of the member in the pod of this name, whether or
    /// not the pod exists: the one that is mounted over etcd's data directory, or else the only one
    /// there is. `None` if the data is on no claim, or nobody can tell on which.
    pub fn data_claim(&self, pod: &PodName) -> Option<String> {
        match self.data_on(pod) {
            DataOn::Claim(claim) => Some(claim),
            _ => None,
        }
    }

    /// The place of the data of the member in the pod of this name, whether or not the pod exists.
    pub(super) fn data_on(&self, pod: &PodName) -> DataOn {
        let set = self.stateful_set();
        let spec = match self.pod(pod) {
            Some(pod) => pod.spec.as_ref(),
            None => set
                .and_then(|set| set.spec.as_ref())
                .and_then(|spec| spec.template.spec.as_ref()),
        };
        spec.map_or(DataOn::Unknown, |spec| {
            data_on(spec, self.etcd_container(), set, pod)
        })
    }

    /// The places of the data of the members in these pods, as a status says them.
    pub fn data_places<'a>(
        &self,
        pods: impl Iterator<Item = &'a PodName>,
    ) -> BTreeMap<PodName, DataPlace> {
        let present = self.pods().iter().map(belonging::name);
        let present: BTreeMap<PodName, DataOn> = present
            .map(|pod| (pod.clone(), self.data_on(&pod)))
            .collect();
        let place = |pod: &PodName| {
            let own = present.get(pod).cloned();
            let own = own.unwrap_or_else(|| self.data_on(pod));
            match &own {
                DataOn::Claim(_) if present.iter().any(|(name, on)| name != pod && *on == own) => {
                    DataPlace::SharedClaim
                }
                DataOn::Claim(_) => DataPlace::Claim,
                DataOn::Pod => DataPlace::Pod,
                DataOn::Node { .. } => DataPlace::Node,
                DataOn::Unknown | DataOn::AnyOf(_) => DataPlace::Unknown,
            }
        };
        pods.map(|pod| (pod.clone(), place(pod))).collect()
    }
}

/// The place of a member's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DataOn {
    /// The claim of this name.
    Claim(String),
    /// The pod, with which the data goes: an `emptyDir`, a volume that is made for the pod, or
    /// etcd's container itself.
    Pod,
    /// A directory of the node.
    Node {
        /// The path of the directory.
        path: String,
        /// Whether every pod of this name has to run on the same node.
        bound: bool,
    },
    /// A claim of these names, and nobody can tell which.
    AnyOf(Vec<String>),
    /// Another kind of volume, or nobody can tell.
    Unknown,
}

impl DataOn {
    /// Whether the data may be on this claim.
    pub(super) fn may_be(&self, claim: &str) -> bool {
        match self {
            Self::Claim(name) => name == claim,
            Self::Pod | Self::Node { .. } | Self::Unknown => false,
            Self::AnyOf(names) => names.iter().any(|name| name == claim),
        }
    }
}

/// The place of the data of the member in a pod with this spec, which may be that of the template:
/// the volume that is mounted over etcd's data directory, or else the only claim there is. `named`
/// is the container of etcd that the budget names.
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
            None => on_volume(spec, volume),
        },
        Some(Directory::Elsewhere) => DataOn::Pod,
        Some(Directory::Untold) | None => {
            let mut all: Vec<String> = claims.into_values().collect();
            match (all.pop(), all.is_empty()) {
                (None, _) => DataOn::Unknown,
                (Some(only), true) => DataOn::Claim(only),
                (Some(last), false) => {
                    all.push(last);
                    DataOn::AnyOf(all)
                }
            }
        }
    }
}

/// Whether the members of a StatefulSet have their data in their pods, or in directories of nodes
/// to which the pods are not bound.
pub fn keeps_data_in_pods(set: &StatefulSet, named: Option<&str>) -> bool {
    let spec = set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref());
    let first = PodName::new(format!(
        "{}-0",
        set.metadata.name.as_deref().unwrap_or_default()
    ));
    spec.is_some_and(|spec| {
        matches!(
            data_on(spec, named, Some(set), &first),
            DataOn::Pod | DataOn::Node { bound: false, .. }
        )
    })
}

/// The place of data on a volume of the pod that is no claim.
fn on_volume(spec: &PodSpec, name: &str) -> DataOn {
    let mut volumes = spec.volumes.iter().flatten();
    let Some(volume) = volumes.find(|volume| volume.name == name) else {
        return DataOn::Unknown;
    };
    let of_pod = volume.empty_dir.is_some() || volume.ephemeral.is_some() || volume.csi.is_some();
    match &volume.host_path {
        Some(host) => DataOn::Node {
            path: host.path.clone(),
            bound: is_bound_to_a_node(spec),
        },
        None if of_pod => DataOn::Pod,
        None => DataOn::Unknown,
    }
}

/// Whether every pod with this spec has to run on one node. The node that the scheduler chose for
/// one pod binds no other.
fn is_bound_to_a_node(spec: &PodSpec) -> bool {
    const HOSTNAME: &str = "kubernetes.io/hostname";
    let mut selected = spec.node_selector.iter().flatten();
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref());
    let required = affinity
        .and_then(|a| {
            a.required_during_scheduling_ignored_during_execution
                .as_ref()
        })
        .map(|required| required.node_selector_terms.as_slice());
    let names_one = |requirement: &NodeSelectorRequirement, key: &str| {
        let one = requirement
            .values
            .as_ref()
            .is_some_and(|values| values.len() == 1);
        requirement.key == key && requirement.operator == "In" && one
    };
    let is_one = |term: &NodeSelectorTerm| {
        let mut labels = term.match_expressions.iter().flatten();
        let mut fields = term.match_fields.iter().flatten();
        labels.any(|label| names_one(label, HOSTNAME))
            || fields.any(|field| names_one(field, "metadata.name"))
    };
    selected.any(|(key, _)| key == HOSTNAME)
        || required.is_some_and(|terms| terms.len() == 1 && terms.iter().all(is_one))
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
        let seen = world.pod(pod);
        let uid = seen.and_then(|pod| pod.metadata.uid.as_deref());
        let node = seen.and_then(|pod| pod.spec.as_ref()?.node_name.as_deref());
        let volume = match (world.data_on(pod), uid, node) {
            (DataOn::Claim(name), _, _) => {
                return self.claim_named(cluster, name).await.map(Some);
            }
            (DataOn::Pod, Some(uid), _) => Volume::in_pod(uid),
            (DataOn::Node { path, .. }, _, Some(node)) => Volume {
                claim_uid: String::new(),
                volume_id: Some(format!("node/{node}{path}")),
            },
            _ => return Ok(None),
        };
        Ok(Some(MemberClaim {
            name: pod.to_string(),
            state: ClaimState::Here {
                uid: uid.unwrap_or_default().to_owned(),
                terminating: false,
            },
            volume: Some(volume),
            lost: false,
            in_pod: true,
        }))
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
                in_pod: false,
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
            in_pod: false,
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
