//! Files that change all at once: the kubelet's layout of Secret, ConfigMap and projected volumes.
//!
//! ```text
//! <volume>/..2026_11_21_10_00_00.123456789/ca.crt   files in a directory named after the time
//! <volume>/..data -> ..2026_11_21_10_00_00.123456789   replaced by a rename
//! <volume>/ca.crt -> ..data/ca.crt                  the path that users open
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use jiff::{Timestamp, tz::TimeZone};

/// The files: relative paths, with content and mode.
pub(super) type Payload = BTreeMap<PathBuf, (Vec<u8>, u32)>;

const DATA: &str = "..data";
const NEXT: &str = "..data_tmp";

/// Makes `dir` contain exactly `payload`. Does nothing if it already does.
pub(super) fn write(dir: &Path, payload: &Payload) -> io::Result<()> {
    let old = fs::read_link(dir.join(DATA)).ok();
    if old
        .as_ref()
        .is_some_and(|old| shows(&dir.join(old), payload))
    {
        return Ok(());
    }
    let moment = Timestamp::now().to_zoned(TimeZone::UTC);
    let fresh = PathBuf::from(moment.strftime("..%Y_%m_%d_%H_%M_%S.%9f").to_string());
    for (path, (content, mode)) in payload {
        let file = dir.join(&fresh).join(path);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&file, content)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(*mode))?;
    }
    fs::create_dir_all(dir.join(&fresh))?;
    let next = dir.join(NEXT);
    match fs::remove_file(&next) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => symlink(&fresh, &next)?,
    }
    fs::rename(&next, dir.join(DATA))?;
    link_names(dir, payload)?;
    if let Some(old) = old {
        fs::remove_dir_all(dir.join(old))?;
    }
    Ok(())
}

/// Whether the directory holds these files, with this content, and no others.
fn shows(dir: &Path, payload: &Payload) -> bool {
    let same = payload
        .iter()
        .all(|(path, (content, _))| fs::read(dir.join(path)).is_ok_and(|found| found == *content));
    same && top_names(payload)
        == fs::read_dir(dir)
            .into_iter()
            .flatten()
            .filter_map(|e| Some(PathBuf::from(e.ok()?.file_name())))
            .collect()
}

/// Creates the names that users see, as links through `..data`, and removes outdated ones.
fn link_names(dir: &Path, payload: &Payload) -> io::Result<()> {
    let wanted = top_names(payload);
    for name in &wanted {
        let link = dir.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new(DATA).join(name), link)?;
        }
    }
    for entry in fs::read_dir(dir)? {
        let name = PathBuf::from(entry?.file_name());
        if !name.to_string_lossy().starts_with("..") && !wanted.contains(&name) {
            fs::remove_file(dir.join(name))?;
        }
    }
    Ok(())
}

fn top_names(payload: &Payload) -> BTreeSet<PathBuf> {
    payload
        .keys()
        .filter_map(|p| Some(PathBuf::from(p.components().next()?.as_os_str())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        let entry = |(path, content): &(&str, &str)| {
            (PathBuf::from(path), (content.as_bytes().to_vec(), 0o644))
        };
        files.iter().map(entry).collect()
    }

    #[test]
    fn files_appear_behind_the_data_link_and_change_by_its_swap() {
        let dir = tempfile::tempdir().unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).ok();
        write(dir.path(), &payload(&[("a", "1"), ("sub/b", "2")])).unwrap();
        let first = fs::read_link(dir.path().join(DATA)).unwrap();
        assert_eq!(
            fs::read_link(dir.path().join("a")).unwrap(),
            Path::new("..data/a")
        );
        assert_eq!(read("sub/b").unwrap(), "2");

        write(dir.path(), &payload(&[("a", "3"), ("c", "4")])).unwrap();
        assert_ne!(fs::read_link(dir.path().join(DATA)).unwrap(), first);
        assert_eq!(
            (read("a"), read("c")),
            (Some("3".to_owned()), Some("4".to_owned()))
        );
        assert_eq!(read("sub/b"), None);
        assert!(!dir.path().join(first).exists());
    }

    #[test]
    fn the_same_content_is_not_written_again() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &payload(&[("a", "1")])).unwrap();
        let first = fs::read_link(dir.path().join(DATA)).unwrap();
        write(dir.path(), &payload(&[("a", "1")])).unwrap();
        assert_eq!(fs::read_link(dir.path().join(DATA)).unwrap(), first);
    }
}
