//! `kubectl quorum report`: an archive for the report of a problem, without secrets.

mod archive;
mod parts;
mod redact;

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use jiff::Timestamp;

use crate::End;
use crate::cli;
use crate::connect::Kubernetes;
use crate::discover::gate;
use crate::show::print_bytes;
use crate::show::{complain, print};
use archive::Archive;

pub(crate) async fn run(of: &Kubernetes, options: &cli::Report) -> Result<End> {
    let name = format!(
        "quorum-report-{}",
        Timestamp::now().strftime("%Y%m%dT%H%M%SZ")
    );
    let file = options.file.clone();
    let file = file.unwrap_or_else(|| PathBuf::from(format!("{name}.tar.gz")));
    let gate = gate(&of.client, &options.gate).await.gate;
    let mut archive = Archive::new(name);
    parts::collect(of, &gate, options, &mut archive).await;
    let missing = archive.missing().to_vec();
    let written = archive.finish()?;
    if file.as_os_str() == "-" {
        print_bytes(&written)?;
    } else {
        std::fs::write(&file, written)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    for missing in missing {
        complain(&format!("WARNING: left out {missing}"));
    }
    if file.as_os_str() != "-" {
        print(&format!(
            "Wrote {}. Read it before you share it: it names namespaces, pods, nodes and users.\n",
            file.display()
        ))?;
    }
    Ok(End::Well)
}
