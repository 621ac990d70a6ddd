//! The root file system of a container: the host's, with the pod's volumes and files mounted over
//! it.
//!
//! A mount point that the host does not have is not created on the host. Instead the directory that
//! lacks it is covered by a `tmpfs` with all its entries bound into it, and the mount point is made
//! there. The root itself is always such a `tmpfs`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, pivot_root};

use super::Mount;

/// The number of symbolic links that Linux follows.
const MAX_LINKS: usize = 40;

/// Builds the root at `stage` with `mounts` in it, and changes into it. The caller needs a mount
/// namespace of its own.
pub(super) fn enter(stage: &Path, mounts: &[Mount]) -> anyhow::Result<()> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).context("private /")?;
    fs::create_dir_all(stage)?;
    let mut root = Root {
        stage: stage.to_owned(),
        ours: BTreeSet::new(),
        mounted: Vec::new(),
    };
    let host = File::open("/")?;
    cover(stage, &held(&host), Path::new("/"))?;
    root.ours.insert(PathBuf::from("/"));
    for mount in mounts {
        root.bind(mount)
            .with_context(|| format!("mount of {}", mount.target.display()))?;
    }
    chdir(stage)?;
    pivot_root(".", ".").context("pivot_root")?;
    umount2(".", MntFlags::MNT_DETACH).context("leaving the old root")?;
    chdir("/").context("chdir to the new root")
}

struct Root {
    stage: PathBuf,
    /// The directories that are a covering `tmpfs`, as the container sees them.
    ours: BTreeSet<PathBuf>,
    /// The mounted paths. Missing mount points below these are made in the volume.
    mounted: Vec<PathBuf>,
}

impl Root {
    fn bind(&mut self, wanted: &Mount) -> anyhow::Result<()> {
        let is_dir = fs::metadata(&wanted.source)
            .with_context(|| format!("source {}", wanted.source.display()))?
            .is_dir();
        let target = self.ensure(&wanted.target, is_dir)?;
        let at = self.outside(&target);
        let none = None::<&str>;
        mount(
            Some(&wanted.source),
            &at,
            none,
            MsFlags::MS_BIND | MsFlags::MS_REC,
            none,
        )?;
        if wanted.read_only {
            let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
            mount(none, &at, none, flags, none).context("read-only")?;
        }
        self.mounted.push(target);
        Ok(())
    }

    /// Makes sure that a mount point exists, and returns its path without symbolic links.
    fn ensure(&mut self, target: &Path, is_dir: bool) -> anyhow::Result<PathBuf> {
        let mut todo: Vec<_> = names(target).into_iter().rev().collect();
        let mut at = PathBuf::from("/");
        let mut links = 0;
        while let Some(name) = todo.pop() {
            let next = at.join(&name);
            match fs::symlink_metadata(self.outside(&next)) {
                Ok(found) if found.file_type().is_symlink() => {
                    links += 1;
                    if links > MAX_LINKS {
                        bail!("too many symbolic links");
                    }
                    let to = fs::read_link(self.outside(&next))?;
                    let to = if to.is_absolute() { to } else { at.join(to) };
                    todo.extend(names(&to).into_iter().rev());
                    at = PathBuf::from("/");
                    continue;
                }
                Ok(_) => {}
                Err(_missing) => self.create(&at, &next, is_dir || !todo.is_empty())?,
            }
            at = next;
        }
        Ok(at)
    }

    fn create(&mut self, parent: &Path, path: &Path, is_dir: bool) -> anyhow::Result<()> {
        let in_volume = self.mounted.iter().any(|m| parent.starts_with(m));
        if !in_volume && !self.ours.contains(parent) {
            let original = File::open(self.outside(parent))?;
            cover(&self.outside(parent), &held(&original), parent)?;
            self.ours.insert(parent.to_owned());
        }
        if is_dir {
            fs::create_dir(self.outside(path))?;
            if !in_volume {
                self.ours.insert(path.to_owned());
            }
        } else {
            File::create(self.outside(path))?;
        }
        Ok(())
    }

    fn outside(&self, path: &Path) -> PathBuf {
        self.stage.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// The components of an absolute path, with `..` resolved.
fn names(path: &Path) -> Vec<PathBuf> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(PathBuf::from(name)),
            Component::ParentDir => {
                names.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    names
}

/// A path of a directory that stays valid when something is mounted over it.
fn held(dir: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()))
}

/// Covers `target` with a `tmpfs` that shows every entry of `original`. The container knows the
/// directory as `name`.
fn cover(target: &Path, original: &Path, name: &Path) -> anyhow::Result<()> {
    let none = None::<&str>;
    let entries: Vec<_> = fs::read_dir(original)?.collect::<Result<_, _>>()?;
    mount(
        Some("tmpfs"),
        target,
        Some("tmpfs"),
        MsFlags::empty(),
        Some("mode=0755"),
    )
    .with_context(|| format!("tmpfs over {}", name.display()))?;
    for entry in entries {
        let (from, to) = (
            original.join(entry.file_name()),
            target.join(entry.file_name()),
        );
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&from)?, &to)?;
            continue;
        }
        if kind.is_dir() {
            fs::create_dir(&to)?;
        } else {
            File::create(&to)?;
        }
        let bound = mount(
            Some(&from),
            &to,
            none,
            MsFlags::MS_BIND | MsFlags::MS_REC,
            none,
        );
        // Temporary files may have been deleted since they were listed.
        if let Err(error) = bound
            && from.exists()
        {
            return Err(error).with_context(|| format!("bind of {}", to.display()));
        }
    }
    Ok(())
}
