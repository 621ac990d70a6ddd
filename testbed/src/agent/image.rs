//! Images stand for binaries of the host. There is no registry and nothing to pull.
//!
//! `etcd:VERSION` (with any registry and path before it, and with or without a leading `v`) puts
//! that version's binaries first on the search path. A short list of well-known base images runs
//! with the host's own binaries, and `--image NAME=DIR` adds more. All other images fail to pull,
//! as they would with a kubelet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Images that run with the host's search path alone.
const HOST_IMAGES: [&str; 8] = [
    "alpine", "bash", "busybox", "curl", "debian", "host", "pause", "ubuntu",
];

/// The search path of every container, after the directories of its image.
const HOST_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The meaning of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Image {
    /// The value of `PATH`.
    pub path: String,
    /// The command of a container without command and arguments.
    pub entrypoint: Vec<String>,
}

/// The images that this node can run.
#[derive(Clone, Debug)]
pub(super) struct Images {
    etcd: PathBuf,
    more: BTreeMap<String, PathBuf>,
}

impl Images {
    /// The images of the binary cache and of `more`, which maps an image name (without tag) to a
    /// directory of binaries.
    pub(super) fn new(cache: &Path, more: BTreeMap<String, PathBuf>) -> Self {
        Self {
            etcd: cache.join("etcd"),
            more,
        }
    }

    /// Finds an image. Fails with the message of a failed pull.
    pub(super) fn find(&self, image: &str) -> Result<Image, String> {
        let (name, tag) = split(image);
        if let Some(dir) = self.more.get(name) {
            return Ok(Image::with_dir(dir, &[name]));
        }
        if name == "etcd" {
            return self.etcd(tag).ok_or_else(|| not_found(image));
        }
        if !HOST_IMAGES.contains(&name) {
            return Err(not_found(image));
        }
        let entrypoint: &[&str] = if name == "pause" {
            &["sleep", "infinity"]
        } else {
            &["sh"]
        };
        Ok(Image {
            path: HOST_PATH.to_owned(),
            entrypoint: strings(entrypoint),
        })
    }

    fn etcd(&self, tag: &str) -> Option<Image> {
        let version = tag.strip_prefix('v').unwrap_or(tag);
        let version = version
            .split_once('-')
            .map_or(version, |(number, _)| number);
        let dir = if version.starts_with("3.4.") {
            PathBuf::from("/usr/bin")
        } else {
            self.etcd.join(version)
        };
        dir.join("etcd")
            .exists()
            .then(|| Image::with_dir(&dir, &["etcd"]))
    }
}

impl Image {
    fn with_dir(dir: &Path, entrypoint: &[&str]) -> Self {
        Self {
            path: format!("{}:{HOST_PATH}", dir.display()),
            entrypoint: strings(entrypoint),
        }
    }
}

/// The last component of the repository, and the tag.
fn split(image: &str) -> (&str, &str) {
    let image = image
        .split_once('@')
        .map_or(image, |(reference, _digest)| reference);
    let last = image.rsplit('/').next().unwrap_or(image);
    last.split_once(':').unwrap_or((last, "latest"))
}

fn not_found(image: &str) -> String {
    format!("failed to pull image {image:?}: no binaries on this host stand for it")
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|&w| w.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images() -> (tempfile::TempDir, Images) {
        let cache = tempfile::tempdir().unwrap();
        let dir = cache.path().join("etcd/3.5.35");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("etcd"), "").unwrap();
        let more = BTreeMap::from([("quorumgate".to_owned(), PathBuf::from("/opt/gate"))]);
        let images = Images::new(cache.path(), more);
        (cache, images)
    }

    #[test]
    fn an_etcd_image_puts_its_version_first_on_the_path() {
        let (cache, images) = images();
        let expected = format!("{}:{HOST_PATH}", cache.path().join("etcd/3.5.35").display());
        for image in [
            "etcd:3.5.35",
            "quay.io:443/coreos/etcd:v3.5.35",
            "etcd:3.5.35-0@sha256:ab",
        ] {
            assert_eq!(images.find(image).unwrap().path, expected, "{image}");
        }
    }

    #[test]
    fn a_version_that_is_not_there_fails_to_pull() {
        let (_cache, images) = images();
        assert!(
            images
                .find("etcd:9.9.9")
                .unwrap_err()
                .contains("etcd:9.9.9")
        );
        assert!(images.find("nginx").is_err());
    }

    #[test]
    fn host_images_and_added_ones_are_found() {
        let (_cache, images) = images();
        assert_eq!(images.find("busybox").unwrap().path, HOST_PATH);
        assert_eq!(images.find("host:anything").unwrap().entrypoint, ["sh"]);
        assert_eq!(
            images
                .find("registry.k8s.io/pause:3.10")
                .unwrap()
                .entrypoint
                .len(),
            2
        );
        assert!(
            images
                .find("quorumgate:dev")
                .unwrap()
                .path
                .starts_with("/opt/gate:")
        );
    }
}
