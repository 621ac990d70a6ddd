//! Directories of the hostpath provisioner that it will not remove any more.
//!
//! The provisioner puts volumes below `/tmp/hostpath_pv`, whatever control plane it belongs to. The
//! names of this control plane's volumes are read from the raw files of its etcd, which works when
//! no process runs any more.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use memchr::memmem;

const VOLUMES: &[u8] = b"/tmp/hostpath_pv/";
/// The length of a UUID as text.
const NAME_LENGTH: usize = 36;

/// Removes every volume directory whose name occurs in the etcd data in `etcd_data`.
pub(super) fn remove_all(etcd_data: &Path) -> Result<()> {
    let member = etcd_data.join("member");
    let mut volumes = BTreeSet::new();
    for directory in [member.join("snap"), member.join("wal")] {
        let Ok(files) = fs::read_dir(&directory) else {
            continue;
        };
        for file in files {
            volumes.extend(mentioned(&fs::read(file?.path())?));
        }
    }
    for volume in volumes {
        match fs::remove_dir_all(&volume) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error)
                    .with_context(|| format!("cannot remove the volume {}", volume.display()))?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn mentioned(bytes: &[u8]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for at in memmem::find_iter(bytes, VOLUMES) {
        let rest = bytes.get(at + VOLUMES.len()..).unwrap_or_default();
        let name = rest.get(..NAME_LENGTH).unwrap_or_default();
        let is_uuid = name
            .iter()
            .all(|byte| byte.is_ascii_hexdigit() || *byte == b'-');
        if let (Ok(name), true) = (std::str::from_utf8(name), is_uuid && !name.is_empty()) {
            found.insert(Path::new("/tmp/hostpath_pv").join(name));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_found_in_raw_bytes_and_nothing_else_is() {
        let bytes = b"\x00\x12/tmp/hostpath_pv/0f8fad5b-d9cb-469f-a165-70867728950e\x1a\x02/tmp/hostpath_pv/../../etc/passwd\
            /tmp/hostpath_pv/";
        let found = mentioned(bytes);
        let expected = PathBuf::from("/tmp/hostpath_pv/0f8fad5b-d9cb-469f-a165-70867728950e");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [expected]);
    }
}
