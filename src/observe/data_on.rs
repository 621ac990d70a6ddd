//! The place of the data of etcd, by the template or the pod that states it.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Container, EnvVarSource, PodSpec};

use super::bound_node::is_bound_to_a_node;
use super::claim_names::templates;
use super::etcd_container::EtcdContainer;
use super::mounts::{Changes, behind, changes, directory_of, mount_of};
use super::settings::Settings;
use crate::api::{EtcdDirectories, RecordedEtcd};
use crate::quorum::PodName;

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
    let any_of = || DataOn::AnyOf(claims.values().cloned().collect());
    let untold = || match claims.len() {
        0 => without_claims(spec),
        1 => DataOn::Claims(claims.values().cloned().collect()),
        _ => any_of(),
    };
    let doubtful = || {
        if claims.is_empty() {
            DataOn::Unknown
        } else {
            any_of()
        }
    };
    let Some(container) = EtcdContainer::find(spec, etcd.container).certain() else {
        return untold();
    };
    let by = |path: &str| {
        let on_volume = directory_of(path, container).unwrap_or_default();
        changes(path, container).max(changes(&on_volume, container))
    };
    let place = |path: &str| match (by(path), directory(path, container)) {
        // The next pod finds another directory.
        (Some(Changes::WithPod), _) => DataOn::Pod,
        // It may find the old one, and etcd never starts on the data of a removed member.
        (Some(Changes::Perhaps), _) => doubtful(),
        (by, Directory::On(volume)) => match claims.get(volume) {
            Some(_) if by.is_some() => doubtful(),
            Some(claim) => DataOn::Claims(vec![claim.clone()]),
            None => on_volume(spec, volume),
        },
        (_, Directory::Elsewhere) => DataOn::Pod,
        (_, Directory::Untold) => untold(),
    };
    let Some(EtcdDirectories { data, wal, .. }) = directories(container, spec, etcd) else {
        return untold();
    };
    // A mount below the data directory hides what is there.
    let wal = wal.unwrap_or_else(|| below(&data, WAL));
    place(&below(&data, SNAP)).and(place(&wal))
}

/// The parts of etcd's data directory.
const SNAP: &str = "member/snap";
const WAL: &str = "member/wal";

fn below(directory: &str, part: &str) -> String {
    format!("{}/{part}", directory.trim_end_matches('/'))
}

/// etcd's directories: as its container states them, or else as they are on record.
fn directories(
    container: &Container,
    spec: &PodSpec,
    etcd: RecordedEtcd<'_>,
) -> Option<EtcdDirectories> {
    let recorded = etcd.directories.cloned();
    match (Settings::from_container(container).directories(), recorded) {
        (None, recorded) => recorded,
        (Some(stated), Some(recorded)) if may_be_told_log(&stated, container, spec) => {
            let data = stated.data;
            Some(EtcdDirectories { data, ..recorded })
        }
        (Some(stated), _) => Some(stated),
    }
}

/// Whether other objects may name the directory of the log. Its container names that of the data
/// alone.
pub(super) fn may_be_told_log(
    stated: &EtcdDirectories,
    container: &Container,
    spec: &PodSpec,
) -> bool {
    stated.wal.is_none() && is_told_by_others(container, spec)
}

/// The directories of the member's data on its volumes, in a pod with this spec. `None` where not
/// all of them are known.
pub(super) fn data_directory(
    spec: &PodSpec,
    etcd: RecordedEtcd<'_>,
    pod: &PodName,
) -> Option<String> {
    let container = EtcdContainer::find(spec, etcd.container);
    let container = container.certain()?;
    let settings = Settings::from_container(container);
    let EtcdDirectories { data, wal, .. } = directories(container, spec, etcd)?;
    let none = BTreeMap::new();
    let told = etcd.directories.map_or(&none, |told| &told.variables);
    let on_volume = |path: String| {
        let directory = settings.expand(&directory_of(&path, container)?, told);
        let directory = directory.replace("{pod}", pod.as_str());
        let is_known = !directory.contains(['$', '{']);
        is_known.then(|| directory.trim_matches('/').to_owned())
    };
    // The directory, or that of its part where a mount below it hides the part.
    let with = |part: &str| {
        let whole = on_volume(data.clone())?;
        let own = on_volume(below(&data, part))?;
        let is_in_it = own
            .strip_suffix(part)
            .map(|rest| rest.trim_end_matches('/'));
        Some(if is_in_it == Some(&whole) { whole } else { own })
    };
    let snap = with(SNAP)?;
    let wal = match wal {
        Some(wal) => on_volume(wal)?,
        None => with(WAL)?,
    };
    Some(if wal == snap {
        snap
    } else {
        format!("{snap} {wal}")
    })
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
pub(super) fn keeps_data_in_pods(set: &StatefulSet, etcd: RecordedEtcd<'_>) -> bool {
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

/// Whether other objects may name a directory of etcd that its container in such a pod does not.
pub(super) fn may_be_told_directories(spec: &PodSpec, named: Option<&str>) -> bool {
    let etcd = EtcdContainer::find(spec, named);
    etcd.certain().is_some_and(|etcd| {
        let settings = Settings::from_container(etcd);
        let stated = settings.directories();
        let is_whole = |stated| {
            let text = settings.expand(&on_volumes(&stated, etcd), &BTreeMap::new());
            !text.contains('$') && !may_be_told_log(&stated, etcd, spec)
        };
        !stated.is_some_and(is_whole)
    })
}

/// The directories on their volumes, in one text, as their mounts say them.
pub(super) fn on_volumes(of: &EtcdDirectories, container: &Container) -> String {
    let paths = std::iter::once(&of.data).chain(&of.wal);
    let all = paths.filter_map(|path| directory_of(path, container));
    all.collect::<Vec<_>>().join(" ")
}

/// Whether variables of the container, or a script that it runs, come from other objects.
pub(super) fn is_told_by_others(container: &Container, spec: &PodSpec) -> bool {
    let mut words = container.command.iter().chain(&container.args).flatten();
    let has_script = words.any(|word| behind(word, container, spec).is_ok());
    let mut variables = container.env.iter().flatten();
    let is_of_other = |source: &EnvVarSource| {
        source.config_map_key_ref.is_some() || source.secret_key_ref.is_some()
    };
    let refers = variables.any(|v| v.value_from.as_ref().is_some_and(is_of_other));
    has_script || refers || container.env_from.iter().flatten().next().is_some()
}
