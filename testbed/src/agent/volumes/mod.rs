//! A pod's volumes: their directories on this host, and the updates of those with content from the
//! API.

mod atomic;
mod claim;
mod files;
mod token;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{Container, HostPathVolumeSource, Pod, Volume, VolumeMount};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::files::Files;
use super::Agent;
use super::container::Mount;
use super::env::Environment;
use super::fields::Placement;
use super::layout::{NodeDir, PodDir};

/// The prepared volumes of a pod. Files from the API are kept current until the value is dropped.
#[derive(Debug)]
pub(super) struct Volumes {
    paths: BTreeMap<String, PathBuf>,
    _updates: JoinSet<()>,
}

/// Prepares every volume. Waits for the objects they refer to, as a kubelet does before it starts
/// containers.
pub(super) async fn prepare(
    agent: Arc<Agent>,
    pod: watch::Receiver<Arc<Pod>>,
    dir: PodDir,
    place: Placement,
) -> anyhow::Result<Volumes> {
    let current = pod.borrow().clone();
    let namespace = current.metadata.namespace.clone().unwrap_or_default();
    let mut paths = BTreeMap::new();
    let mut updates = JoinSet::new();
    for volume in current.spec.iter().flat_map(|s| s.volumes.iter().flatten()) {
        let path = dir.volume(&volume.name);
        let path = if let Some(files) = Files::from_volume(volume) {
            fs::create_dir_all(&path)?;
            let mut writer = files.writer(agent.clone(), pod.clone(), path.clone(), place);
            writer
                .first()
                .await
                .with_context(|| format!("volume {:?}", volume.name))?;
            updates.spawn(writer.keep_current());
            path
        } else if let Some(source) = &volume.host_path {
            host_path(source, &agent.dir)?
        } else if let Some(claim) = claim_name(&current, volume) {
            claim::path(&agent.client, &namespace, &claim).await?
        } else if volume.empty_dir.is_some() || has_no_source(volume) {
            fs::create_dir_all(&path)?;
            path
        } else {
            bail!(
                "volume {:?} is of a kind that the test bed does not have",
                volume.name
            );
        };
        paths.insert(volume.name.clone(), path);
    }
    Ok(Volumes {
        paths,
        _updates: updates,
    })
}

impl Volumes {
    /// The mounts of a container in order of their depth, so that nested ones come later.
    pub(super) fn mounts(
        &self,
        container: &Container,
        env: &Environment,
    ) -> anyhow::Result<Vec<Mount>> {
        let wanted = container.volume_mounts.iter().flatten();
        let mut mounts = wanted
            .map(|m| self.mount(m, env))
            .collect::<anyhow::Result<Vec<_>>>()?;
        mounts.sort_by_key(|mount| mount.target.components().count());
        Ok(mounts)
    }

    fn mount(&self, wanted: &VolumeMount, env: &Environment) -> anyhow::Result<Mount> {
        let mut source = self
            .paths
            .get(&wanted.name)
            .context("mount of an unknown volume")?
            .clone();
        let sub_path = match (&wanted.sub_path, &wanted.sub_path_expr) {
            (Some(path), _) => Some(path.clone()),
            (None, Some(expression)) => Some(env.expand(expression)),
            (None, None) => None,
        };
        if let Some(sub_path) = sub_path.filter(|p| !p.is_empty()) {
            source = source.join(inside(&sub_path)?);
            if !source.exists() {
                fs::create_dir_all(&source)?;
            }
        }
        Ok(Mount {
            source,
            target: Path::new("/").join(&wanted.mount_path),
            read_only: wanted.read_only == Some(true),
        })
    }
}

/// The claim of a volume, which the spec names or which was made for this pod.
fn claim_name(pod: &Pod, volume: &Volume) -> Option<String> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some(source.claim_name.clone());
    }
    volume.ephemeral.as_ref()?;
    Some(format!("{}-{}", pod.metadata.name.as_deref()?, volume.name))
}

/// Whether a volume has no source at all, which makes it an `emptyDir` by default.
fn has_no_source(volume: &Volume) -> bool {
    *volume
        == Volume {
            name: volume.name.clone(),
            ..Volume::default()
        }
}

/// The path on this machine. A directory that the kubelet would create is each node's own.
fn host_path(source: &HostPathVolumeSource, node: &NodeDir) -> anyhow::Result<PathBuf> {
    let path = PathBuf::from(&source.path);
    match source.type_.as_deref() {
        Some("DirectoryOrCreate") => {
            let own = node.host(&path);
            fs::create_dir_all(&own)?;
            return Ok(own);
        }
        Some("FileOrCreate") if !path.exists() => drop(fs::File::create(&path)?),
        Some("Directory") if !path.is_dir() => bail!("{} is not a directory", path.display()),
        Some("File") if !path.is_file() => bail!("{} is not a file", path.display()),
        // A container runtime creates a missing source of a bind mount.
        None | Some("") if !path.exists() => fs::create_dir_all(&path)?,
        _ => {}
    }
    Ok(path)
}

/// The path, if it stays inside its volume.
fn inside(path: &str) -> anyhow::Result<&Path> {
    let path = Path::new(path);
    let escapes = path
        .components()
        .any(|c| !matches!(c, std::path::Component::Normal(_)));
    if escapes {
        bail!("{} must be a relative path without '..'", path.display());
    }
    Ok(path)
}
