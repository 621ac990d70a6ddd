//! The archive that a report becomes.

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use tar::{Builder, Header};

/// Files of a report, below one folder, and what could not be read.
pub(super) struct Archive {
    folder: String,
    files: Vec<(String, Vec<u8>)>,
    missing: Vec<String>,
}

const ABOUT: &str = "\
A report of quorumgate, written by kubectl quorum report.

versions.json                the plugin, the gate, Kubernetes
doctor.txt                   what kubectl quorum doctor finds
status.txt                   what kubectl quorum status says of each cluster
budgets.yaml                 QuorumDisruptionBudgets
events.yaml                  Events on budgets, on their StatefulSets and pods, and on the gate
webhook-configurations.yaml  the gate's webhook configurations
deployment.yaml, pods.yaml   the gate's Deployment and its pods
lease.yaml, endpoints.yaml   which replica leads, and which are called
logs/                        the logs of each replica; .previous: of the container before
metrics/                     the metrics of each replica

Left out: Secrets, values of environment variables, tokens, passwords, private keys, and the secret
word in the paths of webhooks. [redacted] is in their place.
";

impl Archive {
    pub(super) fn new(folder: String) -> Self {
        Self {
            folder,
            files: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// Adds a file, or the reason why it is missing.
    pub(super) fn add(&mut self, name: &str, text: Result<String>) {
        match text {
            Ok(text) => self.files.push((name.to_owned(), text.into_bytes())),
            Err(error) => self.missing.push(format!("{name}: {error:#}")),
        }
    }

    pub(super) fn missing(&self) -> &[String] {
        &self.missing
    }

    /// The archive as a compressed tar file.
    pub(super) fn finish(self) -> Result<Vec<u8>> {
        let mut about = ABOUT.to_owned();
        if !self.missing.is_empty() {
            about += "\nCould not be read:\n";
            for missing in &self.missing {
                about += &format!("  {missing}\n");
            }
        }
        let about = ("README.txt".to_owned(), about.into_bytes());
        let mut tar = Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        for (name, text) in std::iter::once(&about).chain(&self.files) {
            let mut header = Header::new_gnu();
            header.set_size(text.len().try_into()?);
            header.set_mode(0o644);
            header.set_mtime(Timestamp::now().as_second().try_into()?);
            let path = format!("{}/{name}", self.folder);
            tar.append_data(&mut header, path, text.as_slice())?;
        }
        Ok(tar.into_inner()?.finish()?)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    /// The files of an archive.
    pub(in crate::report) fn read(archive: &[u8]) -> BTreeMap<String, String> {
        let mut tar = tar::Archive::new(GzDecoder::new(archive));
        let files = tar.entries().unwrap().map(|file| {
            let mut file = file.unwrap();
            let name = file.path().unwrap().to_string_lossy().into_owned();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            (name, text)
        });
        files.collect()
    }

    #[test]
    fn an_archive_has_its_files_and_says_what_is_missing() {
        let mut archive = Archive::new("report".to_owned());
        archive.add("logs/a.log", Ok("a line\n".to_owned()));
        archive.add("budgets.yaml", Err(anyhow::anyhow!("forbidden")));
        let files = read(&archive.finish().unwrap());
        assert_eq!(files["report/logs/a.log"], "a line\n");
        assert!(files["report/README.txt"].contains("budgets.yaml: forbidden"));
        assert_eq!(files.len(), 2);
    }
}
