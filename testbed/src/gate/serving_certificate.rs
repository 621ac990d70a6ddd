//! The gate's serving certificate, in the layout of a Secret that a kubelet has mounted.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};

use crate::pki::{Authority, Credential, Request, Usage};

/// A directory with `tls.crt` and `tls.key`, which are links through `..data` to the current
/// version.
pub(super) struct ServingCertificate {
    directory: PathBuf,
    authority: Authority,
    names: Vec<String>,
    version: AtomicU32,
}

impl ServingCertificate {
    /// Issues the first certificate.
    pub(super) fn create(directory: PathBuf, names: Vec<String>) -> Result<Self> {
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let authority = Authority::new("quorumgate-webhooks")?;
        let certificate = Self {
            directory,
            authority,
            names,
            version: AtomicU32::new(0),
        };
        certificate.rotate()?;
        for file in ["tls.crt", "tls.key"] {
            symlink(
                Path::new("..data").join(file),
                certificate.directory.join(file),
            )?;
        }
        Ok(certificate)
    }

    /// The authority's certificate, PEM.
    pub(super) fn authority(&self) -> &str {
        self.authority.certificate()
    }

    /// The file of the certificate.
    pub(super) fn certificate_file(&self) -> PathBuf {
        self.directory.join("tls.crt")
    }

    /// The file of its key.
    pub(super) fn key_file(&self) -> PathBuf {
        self.directory.join("tls.key")
    }

    /// Issues a new certificate and publishes it.
    pub(super) fn rotate(&self) -> Result<()> {
        self.publish(&self.issue()?)
    }

    /// Publishes a certificate with the key of another one.
    pub(super) fn mismatch(&self) -> Result<()> {
        let certificate = self.issue()?.certificate;
        self.publish(&Credential {
            certificate,
            key: self.issue()?.key,
        })
    }

    fn issue(&self) -> Result<Credential> {
        let request = Request::new("quorumgate", Usage::Server).names(self.names.clone());
        self.authority.issue(&request)
    }

    /// Replaces both files in one instant, by a rename of the link that leads to them.
    fn publish(&self, credential: &Credential) -> Result<()> {
        let version = format!("..{}", self.version.fetch_add(1, Ordering::Relaxed));
        credential.write(&self.directory.join(&version), "tls")?;
        let next = self.directory.join("..data_tmp");
        symlink(&version, &next)?;
        fs::rename(&next, self.directory.join("..data"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(certificate: &ServingCertificate) -> (String, String) {
        let read = |file| fs::read_to_string(file).unwrap();
        (
            read(certificate.certificate_file()),
            read(certificate.key_file()),
        )
    }

    #[test]
    fn a_rotation_replaces_both_files_by_one_rename_twice_in_a_row() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("tls");
        let serving = ServingCertificate::create(root.clone(), vec!["localhost".into()]).unwrap();
        let mut seen = vec![read(&serving)];
        for _ in 0..2 {
            let before = fs::read_link(root.join("..data")).unwrap();
            serving.rotate().unwrap();
            assert_ne!(fs::read_link(root.join("..data")).unwrap(), before);
            let now = read(&serving);
            assert!(
                seen.iter()
                    .all(|(certificate, key)| *certificate != now.0 && *key != now.1)
            );
            seen.push(now);
        }
        assert_eq!(
            fs::read_link(root.join("tls.crt")).unwrap(),
            Path::new("..data/tls.crt")
        );
    }
}
