//! The manifests of the repository, checked by the API server.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use quorumgate_testbed::kubectl::Invocation;
use quorumgate_testbed::{Bed, eventually};
use serde_json::Value;

use crate::world::SOON;

/// The Go module of cert-manager. Only its CRDs are used here.
const CERT_MANAGER: &str = "github.com/cert-manager/cert-manager@v1.21.2";

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_accepts_every_object_of_the_base() -> Result<()> {
    let bed = Bed::up().await?;
    let objects = kustomized(&bed, "manifests/base").await?;
    every_object_is_accepted(&bed, "quorumgate", &objects).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_accepts_every_object_for_cert_manager() -> Result<()> {
    let bed = Bed::up().await?;
    let schemas = cert_manager_crds().await?;
    bed.kubectl(["apply", "--server-side", "-f"])
        .args([schemas])
        .await?
        .success()?;
    let objects = kustomized(&bed, "manifests/cert-manager").await?;
    ensure!(
        objects.matches("inject-ca-from: quorumgate/").count() == 2,
        "both webhook configurations get the authority:\n{objects}"
    );
    every_object_is_accepted(&bed, "quorumgate", &objects).await?;
    let example = kustomized(&bed, "manifests/examples/tls").await?;
    every_object_is_accepted(&bed, "etcd-example", &example).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_accepts_every_object_for_a_certificate_in_files() -> Result<()> {
    let bed = Bed::up().await?;
    let objects = kustomized(&bed, "manifests/files").await?;
    ensure!(
        !objects.contains("quorumgate-certificates") && !objects.contains("--own-certificates"),
        "the gate would make its own:\n{objects}"
    );
    every_object_is_accepted(&bed, "quorumgate", &objects).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_accepts_every_object_with_the_selector_put_back() -> Result<()> {
    let bed = Bed::up().await?;
    // A kustomization finds its parts by relative paths, so this one is written inside the
    // repository.
    let directory = tempfile::Builder::new()
        .prefix("selector-")
        .tempdir_in(repository("manifests"))?;
    let kustomization = "resources: [../base]\ncomponents: [../selector]\n";
    std::fs::write(directory.path().join("kustomization.yaml"), kustomization)?;
    let objects = kustomized(&bed, &directory.path().to_string_lossy()).await?;
    let service = objects
        .split("---\n")
        .find(|object| object.contains("\nkind: Service\n"));
    let service = service.context("no Service")?;
    ensure!(service.contains("selector:"), "no selector in\n{service}");
    let roles = objects
        .split("---\n")
        .filter(|object| object.contains("\nkind: Role\n"));
    let rights: String = roles.collect();
    ensure!(
        rights.contains("- services\n")
            && !rights.contains("endpointslices")
            && !rights.contains("- endpoints\n"),
        "endpoints may still be written:\n{rights}"
    );
    ensure!(
        !objects.contains("--service="),
        "replicas would still keep endpoints"
    );
    every_object_is_accepted(&bed, "quorumgate", &objects).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_accepts_every_example() -> Result<()> {
    let bed = Bed::up().await?;
    bed.kubectl(["apply", "--server-side", "--force-conflicts", "-f"])
        .args([repository("manifests/base/crds.yaml")])
        .await?
        .success()?;
    let objects = kustomized(&bed, "manifests/examples").await?;
    every_object_is_accepted(&bed, "etcd-example", &objects).await?;
    let quickstart = std::fs::read_to_string(repository("hack/etcd.yaml"))?;
    every_object_is_accepted(&bed, "demo", &quickstart).await
}

/// The namespace stands in many manifests, and one line of one file sets all of them.
#[tokio::test(flavor = "multi_thread")]
async fn another_namespace_is_a_line_of_one_file() -> Result<()> {
    let bed = Bed::up().await?;
    let copy = tempfile::tempdir()?;
    for directory in ["manifests", "certs"] {
        let from = repository(directory);
        let copied = Invocation::new("cp")
            .args(["-r".as_ref(), from.as_os_str(), copy.path().as_os_str()])
            .await?;
        copied.success()?;
    }
    let file = copy.path().join("manifests/base/kustomization.yaml");
    let text = std::fs::read_to_string(&file)?;
    let (line, other) = ("\nnamespace: quorumgate\n", "\nnamespace: elsewhere\n");
    ensure!(text.contains(line), "the namespace is not chosen there");
    std::fs::write(&file, text.replace(line, other))?;
    let moved = copy.path().join("manifests/cert-manager");
    let moved = bed
        .kubectl(["kustomize".as_ref(), moved.as_os_str()])
        .await?
        .success()?;
    let here = kustomized(&bed, "manifests/cert-manager").await?;
    for left in [
        "namespace: quorumgate\n",
        "serviceaccount:quorumgate:",
        "quorumgate.quorumgate.svc",
        "quorumgate/quorumgate-tls",
        "- kube-system\n      - quorumgate\n",
    ] {
        ensure!(here.contains(left), "{left:?} is written otherwise");
        ensure!(!moved.contains(left), "{left:?} is left:\n{moved}");
    }
    ensure!(
        moved.replace("elsewhere", "quorumgate") == here,
        "something else differs:\n{moved}"
    );
    Ok(())
}

pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub(crate) async fn kustomized(bed: &Bed, directory: &str) -> Result<String> {
    let directory = repository(directory);
    bed.kubectl(["kustomize".as_ref(), directory.as_os_str()])
        .await?
        .success()
}

/// The directory with cert-manager's own CRDs, in the Go module cache.
pub(crate) async fn cert_manager_crds() -> Result<PathBuf> {
    Ok(go_module(CERT_MANAGER).await?.join("deploy/crds"))
}

/// The directory of a Go module in the cache.
pub(crate) async fn go_module(module: &str) -> Result<PathBuf> {
    let said = Invocation::new("go")
        .args(["mod", "download", "-json", module])
        .await?
        .success()?;
    let module: Value = serde_json::from_str(&said)?;
    let directory = module.get("Dir").and_then(Value::as_str);
    Ok(directory.context("no directory")?.into())
}

/// Applies all objects with strict validation, as a dry run in their own namespace.
pub(crate) async fn every_object_is_accepted(
    bed: &Bed,
    namespace: &str,
    objects: &str,
) -> Result<()> {
    // A dry run of an object in a namespace needs the namespace itself, so that is created.
    let created = bed.kubectl(["create", "namespace", namespace]).await?;
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
        let output = bed.kubectl(apply).stdin(objects).await?;
        // The API server may not yet know a namespace or a kind that was created just before.
        if output.stderr.contains(" not found") || output.stderr.contains("no matches for kind") {
            bail!("{}", output.stderr);
        }
        anyhow::Ok(output)
    })
    .await?
    .success()?;
    let count = objects
        .lines()
        .filter(|line| line.starts_with("kind: "))
        .count();
    ensure!(
        count > 0 && said.lines().count() == count,
        "of {count} objects were accepted:\n{said}"
    );
    Ok(())
}
