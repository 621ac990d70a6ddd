//! The place of a member's data: its claim and volume, its pod, or its node.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    Affinity, Container, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume,
    PersistentVolumeClaim, PodSpec,
};
use kube::Api;

use super::claims::templates;
use super::mounts::{directory_of, mount_of};
use super::patience::soon;
use super::settings::Settings;
use super::{EtcdContainer, Observer, World, belonging, ways};
use crate::api::{DataPlace, EtcdDirectories, RecordedEtcd};
use crate::causes::causes;
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
    /// The thing that has the data: the pod or its node may stand for a claim.
    pub place: Place,
}

impl World {
    /// The name of the claim that has the data of the member in the pod of this name, whether or
    /// not the pod exists: the one that is mounted over etcd's data directory, or else the only one
    /// there is. `None` if the data is on no claim, or nobody can tell on which.
    pub fn data_claim(&self, pod: &PodName) -> Option<String> {
        match self.data_on(pod) {
            DataOn::Claims(claims) => claims.into_iter().next(),
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
        spec.map_or(DataOn::Unknown, |spec| data_on(spec, self.etcd(), set, pod))
    }

    /// The directory of the data of the member in the pod of this name, on its volume.
    pub fn data_directory(&self, pod: &PodName) -> Option<String> {
        let spec = self.pod(pod)?.spec.as_ref()?;
        data_directory(spec, self.etcd(), pod)
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
            let is_shared = |claim: &String| {
                let mut others = present.iter().filter(|(name, _)| *name != pod);
                others.any(|(_, on)| matches!(on, DataOn::Claims(all) if all.contains(claim)))
            };
            match &own {
                DataOn::Claims(claims) if claims.iter().any(is_shared) => DataPlace::SharedClaim,
                DataOn::Claims(_) => DataPlace::Claim,
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
    /// The claims of these names: the one of etcd's data directory, and that of its write-ahead log
    /// if it is another.
    Claims(Vec<String>),
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
            Self::Pod | Self::Node { .. } | Self::Unknown => false,
            Self::Claims(names) | Self::AnyOf(names) => names.iter().any(|name| name == claim),
        }
    }

    /// The place of data of which one part is here and one part there: the place that is lost first
    /// decides.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Claims(mut claims), Self::Claims(others)) => {
                let more = others.into_iter().filter(|other| !claims.contains(other));
                let more: Vec<String> = more.collect();
                claims.extend(more);
                Self::Claims(claims)
            }
            (one, other) if one.lasts() <= other.lasts() => one,
            (_, other) => other,
        }
    }

    /// How long data lasts in such a place, compared with others.
    fn lasts(&self) -> u8 {
        match self {
            Self::Pod => 0,
            Self::Node { bound: false, .. } => 1,
            Self::Unknown => 2,
            Self::AnyOf(_) => 3,
            Self::Node { bound: true, .. } => 4,
            Self::Claims(_) => 5,
        }
    }
}

/// The place of the data of the member in a pod with this spec, which may be that of the template:
/// the volumes that are mounted over etcd's directories, or else the only claim there is.
pub(super) fn data_on(
    spec: &PodSpec,
    etcd: RecordedEtcd<'_>,
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
    let untold = || match claims.len() {
        0 => without_claims(spec),
        1 => DataOn::Claims(claims.values().cloned().collect()),
        _ => DataOn::AnyOf(claims.values().cloned().collect()),
    };
    let Some(container) = EtcdContainer::of(spec, etcd.container).certain() else {
        return untold();
    };
    let place = |path: &str| match directory(path, container) {
        Directory::On(volume) => match claims.get(volume) {
            Some(claim) => DataOn::Claims(vec![claim.clone()]),
            None => on_volume(spec, volume),
        },
        Directory::Elsewhere => DataOn::Pod,
        Directory::Untold => untold(),
    };
    let Some(EtcdDirectories { data, wal }) = directories(&Settings::of(container), etcd) else {
        return untold();
    };
    match wal {
        Some(wal) => place(&data).and(place(&wal)),
        None => place(&data),
    }
}

/// etcd's directories: as its container states them, or else as they are on record.
fn directories(settings: &Settings, etcd: RecordedEtcd<'_>) -> Option<EtcdDirectories> {
    let stated = settings.directories();
    stated.or_else(|| etcd.directories.cloned())
}

/// The directories of the member's data on its volumes, in a pod with this spec. `None` where not
/// all of them are known.
pub(super) fn data_directory(
    spec: &PodSpec,
    etcd: RecordedEtcd<'_>,
    pod: &PodName,
) -> Option<String> {
    let container = EtcdContainer::of(spec, etcd.container);
    let container = container.certain()?;
    let settings = Settings::of(container);
    let EtcdDirectories { data, wal } = directories(&settings, etcd)?;
    let on_volume = |path: String| {
        let directory = settings.expand(&directory_of(&path, container)?);
        let directory = directory.replace("{pod}", pod.as_str());
        let is_known = !directory.contains(['$', '{']);
        is_known.then(|| directory.trim_matches('/').to_owned())
    };
    let data = on_volume(data)?;
    match wal {
        Some(wal) => Some(format!("{data} {}", on_volume(wal)?)),
        None => Some(data),
    }
}

/// The place of data in a pod that has no claim, where nobody knows which directory is etcd's.
fn without_claims(spec: &PodSpec) -> DataOn {
    let volumes = spec.volumes.iter().flatten();
    let may_have_data = volumes.filter(|volume| {
        let is_settings = volume.config_map.is_some()
            || volume.secret.is_some()
            || volume.projected.is_some()
            || volume.downward_api.is_some();
        let host = volume.host_path.as_ref();
        let kind = host.and_then(|host| host.type_.as_deref());
        let is_directory = kind.is_none_or(|kind| kind.is_empty() || kind.contains("Directory"));
        !is_settings && is_directory
    });
    let places = may_have_data.map(|volume| on_volume(spec, &volume.name));
    // A volume that outlives the pod is hardly there for anything else.
    let lasting = places.filter(|place| *place != DataOn::Pod);
    lasting.reduce(DataOn::and).unwrap_or(DataOn::Pod)
}

/// Whether the members of a StatefulSet have their data in their pods.
pub fn keeps_data_in_pods(set: &StatefulSet, etcd: RecordedEtcd<'_>) -> bool {
    let spec = set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref());
    let first = PodName::new(format!(
        "{}-0",
        set.metadata.name.as_deref().unwrap_or_default()
    ));
    spec.is_some_and(|spec| data_on(spec, etcd, Some(set), &first) == DataOn::Pod)
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
    let selects = spec.node_selector.as_ref();
    let selects = selects.is_some_and(|labels| labels.contains_key(HOSTNAME));
    let by_label = |term: &NodeSelectorTerm| {
        let mut labels = term.match_expressions.iter().flatten();
        labels
            .find_map(|label| only_value(label, HOSTNAME))
            .is_some()
    };
    let by_label = match required_terms(spec) {
        [term] => by_label(term),
        _ => false,
    };
    selects || by_label || bound_node(spec).is_some()
}

/// The node to which a pod with this spec is bound by its name.
pub(super) fn bound_node(spec: &PodSpec) -> Option<&str> {
    let terms = required_terms(spec).iter();
    let mut nodes = terms.map(|term| {
        let mut fields = term.match_fields.iter().flatten();
        fields.find_map(|field| only_value(field, NODE_NAME))
    });
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then_some(first)
}

/// The field of a node that has its name.
const NODE_NAME: &str = "metadata.name";

fn required_terms(spec: &PodSpec) -> &[NodeSelectorTerm] {
    let affinity = spec.affinity.as_ref();
    let affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| {
        let required = &affinity.required_during_scheduling_ignored_during_execution;
        required.as_ref()
    });
    required.map_or(&[], |required| &required.node_selector_terms)
}

/// The value that a requirement allows for `key`, if it allows only one.
fn only_value<'a>(requirement: &'a NodeSelectorRequirement, key: &str) -> Option<&'a str> {
    let values = requirement.values.as_deref().unwrap_or_default();
    match values {
        [one] if requirement.key == key && requirement.operator == "In" => Some(one),
        _ => None,
    }
}

/// The affinity of a pod with this spec that is bound to a node besides.
pub fn bound_to(spec: &PodSpec, node: &str) -> Affinity {
    let mut affinity = spec.affinity.clone().unwrap_or_default();
    let of_nodes = affinity.node_affinity.get_or_insert_default();
    let required = &mut of_nodes.required_during_scheduling_ignored_during_execution;
    let terms = &mut required.get_or_insert_default().node_selector_terms;
    if terms.is_empty() {
        terms.push(NodeSelectorTerm::default());
    }
    for term in terms {
        let fields = term.match_fields.get_or_insert_default();
        fields.push(NodeSelectorRequirement {
            key: NODE_NAME.to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![node.to_owned()]),
        });
    }
    affinity
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

fn directory<'a>(path: &str, etcd: &'a Container) -> Directory<'a> {
    match mount_of(path, etcd) {
        Some(mount) => Directory::On(&mount.name),
        // A variable or a relative path may lead anywhere.
        None if path.contains('$') || !path.starts_with('/') => Directory::Untold,
        None => Directory::Elsewhere,
    }
}

impl World {
    /// Whether other objects may name etcd's directories, and etcd's container does not.
    pub fn may_be_told_directories(&self) -> bool {
        let Some(spec) = self.pod_template() else {
            return false;
        };
        let etcd = EtcdContainer::of(spec, self.etcd_container());
        let etcd = etcd.certain();
        etcd.is_some_and(|etcd| Settings::of(etcd).directories().is_none())
    }
}

impl Observer {
    /// The directories of etcd, by what its settings refer to, read now.
    pub async fn directories(&self, world: &World) -> Option<EtcdDirectories> {
        let (spec, named) = (world.pod_template()?, world.etcd_container());
        let container = EtcdContainer::of(spec, named);
        let container = container.certain()?;
        let namespace = &world.cluster().namespace;
        let contents = ways::referred(self.client(), namespace, spec, named).await;
        Settings::read(container, spec, &contents).directories()
    }

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
        let bound_to = || seen.and_then(|pod| bound_node(pod.spec.as_ref()?));
        let (place, volume) = match (world.data_on(pod), uid) {
            (DataOn::Claims(names), _) => {
                let mut claim = self.claims_named(cluster, names).await?;
                if let Some(volume) = &mut claim.volume {
                    volume.directory = world.data_directory(pod);
                }
                return Ok(Some(claim));
            }
            (DataOn::Pod, Some(uid)) => (Place::Pod, Volume::in_pod(uid)),
            (DataOn::Node { path, .. }, Some(_)) => match node.or_else(bound_to) {
                Some(node) => {
                    let volume = Volume {
                        directory: world.data_directory(pod),
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
            place,
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
            let ClaimState::Here { uid, .. } = wal.state else {
                return Ok(wal);
            };
            all.wal = Some((wal.name, uid));
            all.lost |= wal.lost;
            all.volume = all.volume.zip(wal.volume).map(|(data, wal)| data.and(&wal));
        }
        Ok(all)
    }

    /// The claim of this name, and its volume, read now.
    async fn claim_named(&self, cluster: &ClusterRef, name: String) -> Result<MemberClaim, String> {
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
                wal: None,
                state: ClaimState::Gone,
                volume: None,
                lost: false,
                place: Place::Claim,
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
            wal: None,
            state: ClaimState::Here {
                uid: uid.clone(),
                terminating: claim.metadata.deletion_timestamp.is_some(),
            },
            volume: Some(Volume {
                claim_uid: uid,
                volume_id,
                directory: None,
            }),
            lost: is_lost || is_gone,
            place: Place::Claim,
            name,
        })
    }

    /// Whether the node is gone for certain.
    pub(super) async fn is_node_gone(&self, node: &str) -> bool {
        let states = self.nodes(std::iter::once(&node.to_owned())).await;
        states.get(node) == Some(&Node::Gone)
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
