//! A namespace with nodes of its own, for one test.
//!
//! [`Sandbox::close`] ends it in order. A sandbox that is dropped otherwise (its test failed) is
//! torn down at once; its logs are kept, and their path is printed. With `QUORUMGATE_KEEP=1` it
//! stays and runs on. The sandbox of a test that was killed is removed when the next one begins.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;

use crate::bed::Bed;
use crate::builder::print;
use crate::eventually::eventually;
use crate::node::{self, Image, NAMESPACE_LABEL, Node};
use crate::paths::State;
use crate::process::{self, Identity};
use crate::teardown;

/// The time limit until a namespace has its service account, and later until its pods and claims
/// are gone.
const PATIENCE: Duration = Duration::from_secs(180);

/// A namespace with nodes of its own.
pub struct Sandbox {
    bed: Bed,
    namespace: String,
    nodes: Vec<Node>,
    images: Vec<Image>,
    closed: bool,
}

impl Sandbox {
    pub(crate) async fn create(bed: &Bed, name: &str) -> Result<Self> {
        let namespace = format!("{name}-{}", random_suffix());
        let directory = bed.state().sandboxes().join(&namespace);
        fs::create_dir_all(&directory)?;
        // The owner is recorded before there is anything that another process could sweep.
        own(&directory)?;
        let object: Namespace = serde_json::from_value(json!({
            "metadata": { "name": namespace, "labels": { NAMESPACE_LABEL: namespace } },
        }))?;
        let sandbox = Self {
            bed: bed.clone(),
            namespace,
            nodes: Vec::new(),
            images: Vec::new(),
            closed: false,
        };
        Api::<Namespace>::all(bed.client())
            .create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("cannot create namespace {}", sandbox.namespace))?;
        sandbox.wait_for_service_account().await?;
        Ok(sandbox)
    }

    /// The name of the namespace, unique in the control plane.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The test bed.
    pub fn bed(&self) -> &Bed {
        &self.bed
    }

    /// The administrator's client.
    pub fn client(&self) -> Client {
        self.bed.client()
    }

    /// An API for objects in the namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client(), &self.namespace)
    }

    /// A directory for files of the test. Processes with a pid file in it are stopped with the
    /// sandbox.
    pub fn directory(&self) -> PathBuf {
        directory(self.bed.state(), &self.namespace)
    }

    /// The `nodeSelector` for pods on this sandbox's nodes.
    pub fn node_selector(&self) -> std::collections::BTreeMap<String, String> {
        [(NAMESPACE_LABEL.to_owned(), self.namespace.clone())].into()
    }

    /// Lets a directory of binaries stand for an image (its name without a tag), on the nodes that
    /// are added from now on.
    pub fn map_image(&mut self, name: &str, directory: impl Into<PathBuf>) {
        self.images.push((name.to_owned(), directory.into()));
    }

    /// Adds nodes `<namespace>-n1`, `-n2`, ... and waits until they are Ready.
    pub async fn add_nodes(&mut self, count: usize) -> Result<&[Node]> {
        let first = self.nodes.len() + 1;
        for number in first..first + count {
            let name = format!("{}-n{number}", self.namespace);
            self.nodes
                .push(Node::create(&self.bed, &self.namespace, &name, &self.images).await?);
        }
        let added = self.nodes.get(first - 1..).unwrap_or_default();
        futures::future::try_join_all(added.iter().map(|node| node.wait_ready("True"))).await?;
        Ok(added)
    }

    /// The nodes, in the order in which they were added.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node with this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name() == name)
    }

    /// Deletes the namespace, waits until its pods and claims are gone, and then removes the nodes
    /// and their files.
    ///
    /// The namespace itself goes later. Its controller begins five seconds after the delete, and
    /// begins anew after five more if a claim is still protected. Nothing can be created in it.
    pub async fn close(mut self) -> Result<()> {
        self.closed = true;
        if keep_requested() {
            self.keep();
            return Ok(());
        }
        let client = self.client();
        teardown::begin(&client, &self.namespace).await?;
        let what = format!("namespace {} has no pods and no claims", self.namespace);
        eventually(PATIENCE, what, || teardown::empty(&client, &self.namespace)).await?;
        remove_nodes(&client, self.bed.state(), &self.namespace).await?;
        remove_files(self.bed.state(), &self.namespace)
    }

    async fn wait_for_service_account(&self) -> Result<()> {
        let accounts: Api<ServiceAccount> = self.api();
        let what = format!(
            "namespace {} has its default service account",
            self.namespace
        );
        eventually(PATIENCE, what, async || {
            anyhow::ensure!(accounts.get_opt("default").await?.is_some(), "it has none");
            anyhow::Ok(())
        })
        .await
    }

    fn keep(&self) {
        // If this fails, the next sweep removes the files that should be kept.
        let _ = fs::write(self.directory().join(KEEP), "");
        print(&format!(
            "namespace {} is kept; its files are in",
            self.namespace
        ));
        self.tell_where();
        print("`testbed down` removes it");
    }

    fn tell_where(&self) {
        print(&format!("  {}", self.directory().display()));
        for node in &self.nodes {
            print(&format!(
                "  {}",
                self.bed.state().node(node.name()).display()
            ));
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if self.closed {
            return;
        }
        if keep_requested() {
            self.keep();
            return;
        }
        print(&format!(
            "sandbox {} was not closed; its logs stay in",
            self.namespace
        ));
        self.tell_where();
        let (state, namespace) = (self.bed.state().clone(), self.namespace.clone());
        // The runtime in which the sandbox is dropped cannot be blocked on, and may not go on
        // running.
        let torn_down = std::thread::spawn(move || tear_down_blocking(&state, &namespace)).join();
        if let Ok(Err(error)) = torn_down {
            print(&format!(
                "sandbox {} is not torn down completely: {error:#}",
                self.namespace
            ));
        }
    }
}

/// Tears down the sandboxes whose owners are gone, except those that are to be kept.
///
/// A sandbox that cannot be torn down is reported, and does not keep a new one from starting.
pub(crate) async fn sweep(bed: &Bed) -> Result<()> {
    let Ok(entries) = fs::read_dir(bed.state().sandboxes()) else {
        return Ok(());
    };
    for entry in entries {
        let directory = entry?.path();
        if directory.join(KEEP).exists() || directory.join(SWEPT).exists() || has_owner(&directory)
        {
            continue;
        }
        let Some(namespace) = directory.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        if let Err(error) = tear_down(&bed.client(), bed.state(), namespace).await {
            print(&format!(
                "what is left of sandbox {namespace} cannot be swept away: {error:#}"
            ));
        }
    }
    Ok(())
}

/// The file with the process that owns the sandbox.
const OWNER: &str = "owner";
/// The file that exists if the sandbox is to stay.
const KEEP: &str = "keep";
/// The file that exists if only files are left.
const SWEPT: &str = "torn-down";

/// Records this process as the owner.
fn own(directory: &Path) -> Result<()> {
    // The file is renamed into place, because the sweep of another process takes an empty file for
    // a sandbox without an owner.
    let unfinished = directory.join("owner.unfinished");
    fs::write(&unfinished, Identity::myself()?.to_string())?;
    fs::rename(unfinished, directory.join(OWNER))?;
    Ok(())
}

fn has_owner(directory: &Path) -> bool {
    match fs::read_to_string(directory.join(OWNER)) {
        Ok(owner) => owner.parse().is_ok_and(Identity::is_running),
        // The sandbox is just being created.
        Err(_) => true,
    }
}

fn tear_down_blocking(state: &State, namespace: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let client = crate::kubeconfig::client_from(&state.admin_kubeconfig()).await?;
        tokio::time::timeout(
            Duration::from_secs(15),
            tear_down(&client, state, namespace),
        )
        .await?
    })
}

/// Ends processes and deletes objects, without waiting for the namespace to be gone. Keeps the
/// files.
async fn tear_down(client: &Client, state: &State, namespace: &str) -> Result<()> {
    for directory in node_directories(state, namespace)? {
        process::kill_all_below(&directory).await?;
    }
    process::kill_all_below(&directory(state, namespace)).await?;
    teardown::begin(client, namespace).await?;
    teardown::end_pods(client, namespace).await?;
    remove_nodes(client, state, namespace).await?;
    fs::write(directory(state, namespace).join(SWEPT), "")?;
    Ok(())
}

/// Ends the agents and all processes on their nodes, and deletes the Node objects.
async fn remove_nodes(client: &Client, state: &State, namespace: &str) -> Result<()> {
    for directory in node_directories(state, namespace)? {
        process::kill_all_below(&directory).await?;
        if let Some(name) = directory.file_name().and_then(|name| name.to_str()) {
            node::delete_object(client, name).await?;
            // The kubeconfig is of no use any more. It may never have been written.
            let _ = fs::remove_file(state.node_kubeconfig(name));
        }
    }
    Ok(())
}

fn remove_files(state: &State, namespace: &str) -> Result<()> {
    let mut directories = node_directories(state, namespace)?;
    directories.push(directory(state, namespace));
    for directory in directories {
        fs::remove_dir_all(&directory)
            .with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    Ok(())
}

fn node_directories(state: &State, namespace: &str) -> Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(state.nodes()) else {
        return Ok(Vec::new());
    };
    let prefix = format!("{namespace}-n");
    let mut directories = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(&prefix));
        if number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit())) {
            directories.push(entry.path());
        }
    }
    Ok(directories)
}

fn directory(state: &State, namespace: &str) -> PathBuf {
    state.sandboxes().join(namespace)
}

fn keep_requested() -> bool {
    std::env::var_os("QUORUMGATE_KEEP").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Five characters that no other sandbox of this control plane has had. The hasher's keys are
/// random per process, and count up within it.
fn random_suffix() -> String {
    use std::hash::{BuildHasher as _, Hasher as _};
    const ALPHABET: &[u8; 32] = b"bcdfghjklmnpqrstvwxz0123456789az";
    let mut number = std::hash::RandomState::new().build_hasher().finish();
    (0..5)
        .map(|_| {
            let index = usize::try_from(number % 32).unwrap_or_default();
            number /= 32;
            char::from(ALPHABET.get(index).copied().unwrap_or(b'x'))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_that_is_being_created_has_an_owner_throughout() -> Result<()> {
        let root = tempfile::tempdir()?;
        let directories: Vec<_> = (0..2_000)
            .map(|number| root.path().join(number.to_string()))
            .collect();
        for directory in &directories {
            fs::create_dir(directory)?;
        }
        std::thread::scope(|scope| {
            let creating =
                scope.spawn(|| directories.iter().try_for_each(|directory| own(directory)));
            for directory in &directories {
                while !directory.join(OWNER).exists() && !creating.is_finished() {
                    assert!(has_owner(directory), "{}", directory.display());
                }
                assert!(has_owner(directory), "{}", directory.display());
            }
            creating.join().expect("no panic")
        })
    }
}
