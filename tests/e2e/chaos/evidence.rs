//! Files to keep from a failed run, before its control plane is deleted with its logs.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use super::stage::Stage;
use super::timeline::Timeline;

/// Copies the logs, and returns the directory.
pub(super) fn keep(stage: &Stage) -> Result<String> {
    let directory = directory(stage)?;
    for (number, replica) in stage.world.gate.replicas().iter().enumerate() {
        let log = directory.join(format!("{}.log", replica.name()));
        fs::write(log, stage.world.gate.log(number)?)?;
    }
    let audit: PathBuf = stage.world.bed().state().audit_log();
    fs::copy(audit, directory.join("audit.log"))?;
    Ok(format!(
        "timeline, logs of the gate and the API server's audit log are in {}",
        directory.display()
    ))
}

/// Writes the whole timeline of a round.
pub(super) fn write_timeline(stage: &Stage, timeline: &Timeline) -> Result<()> {
    let file = directory(stage)?.join("timeline.txt");
    Ok(fs::write(file, timeline.told())?)
}

fn directory(stage: &Stage) -> Result<PathBuf> {
    let name = format!("quorumgate-{}", stage.world.namespace());
    let directory = std::env::temp_dir().join(name);
    fs::create_dir_all(&directory)?;
    Ok(directory)
}
