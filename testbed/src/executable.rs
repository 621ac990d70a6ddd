//! The path of the `testbed` program, for a test with another executable.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::kubectl::Invocation;

const NAME: &str = "testbed";

/// `$QUORUMGATE_TESTBED_BIN`, or this program itself, or the program that cargo builds beside this
/// one. The last one is built now, so that it is never older than its sources.
pub(crate) async fn find() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("QUORUMGATE_TESTBED_BIN") {
        return Ok(path.into());
    }
    let myself = std::env::current_exe().context("cannot find this program's own file")?;
    if myself.file_name() == Some(NAME.as_ref()) {
        return Ok(myself);
    }
    // The path is target/<profile>/deps/<test>, target/<profile>/examples/<example> or
    // target/<profile>/<program>.
    let profile = myself
        .ancestors()
        .skip(1)
        .find(|directory| {
            !matches!(
                directory.file_name().and_then(|name| name.to_str()),
                Some("deps" | "examples")
            )
        })
        .context("this program is in no directory")?;
    let program = profile.join(NAME);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    if sources.join("Cargo.toml").exists() {
        build(profile, sources).await?;
    }
    ensure!(
        program.exists(),
        "{} is missing; build it with `cargo build -p {}`, or set QUORUMGATE_TESTBED_BIN",
        program.display(),
        env!("CARGO_PKG_NAME"),
    );
    Ok(program)
}

/// Builds the program, which takes a fraction of a second if nothing has changed. Cargo's lock on
/// the target directory is free while tests run.
async fn build(profile: &Path, sources: &Path) -> Result<()> {
    let directory = profile
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("debug");
    // Cargo calls the profile `dev` whose directory it calls `debug`, and puts what the benchmarks
    // are built with beside the release. By itself, or without anything that has the dependencies
    // of the tests, the program would have dependencies with other features, built once more. So
    // something is built with it that scripts build anyway, or that takes no time.
    let (name, beside): (_, &[_]) = match directory {
        "debug" => ("dev", &["--examples"]),
        "release" => ("bench", &["--bench", "decide"]),
        other => (other, &["--examples"]),
    };
    let target = profile
        .parent()
        .context("the target directory has no parent")?;
    Invocation::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([
            "build",
            "--quiet",
            "--offline",
            "--workspace",
            "--bin",
            NAME,
            "--profile",
            name,
        ])
        .args(beside)
        .args([
            "--manifest-path".as_ref(),
            sources.join("Cargo.toml").as_os_str(),
        ])
        .args(["--target-dir".as_ref(), target.as_os_str()])
        .timeout(std::time::Duration::from_secs(900))
        .await
        .and_then(crate::kubectl::Output::success)
        .context("cannot build the `testbed` program")
        .map(drop)
}
