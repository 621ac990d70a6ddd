//! What the repository tells people to install.

use std::path::Path;

use anyhow::{Result, bail, ensure};
use quorumgate_testbed::{Bed, eventually};

use crate::world::SOON;

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_accepts_every_object_of_the_base() -> Result<()> {
    let bed = Bed::up().await?;
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/base");
    let objects = bed
        .kubectl(["kustomize".as_ref(), base.as_os_str()])
        .await?
        .success()?;
    let count = objects
        .lines()
        .filter(|line| line.starts_with("kind: "))
        .count();

    // A dry run of an object needs its namespace for real.
    let namespace = ["create", "namespace", "quorumgate"];
    let created = bed.kubectl(namespace).await?;
    ensure!(
        created.succeeded() || created.stderr.contains("AlreadyExists"),
        "{}",
        created.stderr
    );
    let apply = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "--validate=strict",
        "-f",
        "-",
    ];
    let said = eventually(SOON, "a dry run of all objects is accepted", || async {
        let output = bed.kubectl(apply).stdin(objects.clone()).await?;
        // The namespace may be so new that it is not known everywhere.
        if output
            .stderr
            .contains("namespaces \"quorumgate\" not found")
        {
            bail!("{}", output.stderr);
        }
        anyhow::Ok(output)
    })
    .await?
    .success()?;
    ensure!(
        count > 0 && said.lines().count() == count,
        "of {count} objects were accepted:\n{said}"
    );
    Ok(())
}
