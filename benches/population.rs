//! Many guarded clusters that are copies of a real one: StatefulSets, pods and budgets as the API
//! server stores them, on a node that is only an object. Their budgets take evidence from
//! readiness, or from paper members.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt as _};
use quorumgate::api::QuorumDisruptionBudget;
use quorumgate_testbed::Sandbox;
use quorumgate_testbed::control_plane::{Component, ControlPlane};
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use serde_json::{Value, json};

use crate::paper_member::{MEMBERS, Member, TOGETHER, cluster_name, namespace_of};

/// The number of concurrent requests.
const AT_ONCE: usize = 24;

/// The time limit for the end of the scheduler and of the controllers.
const SOON: Duration = Duration::from_secs(60);

/// The node of all copies.
const NODE: &str = "paper";

/// The hash in the revision name of all pods.
const REVISION: &str = "6f7d8c9b54";

/// The original and the copies.
pub(crate) struct Population {
    client: Client,
    set: Value,
    members: Vec<Value>,
    /// The port of the paper members.
    port: Option<u16>,
    grown_to: u32,
}

impl Population {
    /// Copies of this cluster. The scheduler and the controllers of its control plane are stopped
    /// for good, since they would act on the copies.
    ///
    /// `port` is that of the paper members. Without it all evidence comes from readiness.
    pub(crate) async fn prepare(
        plane: &ControlPlane,
        etcd: &EtcdCluster,
        port: Option<u16>,
    ) -> Result<Self> {
        for component in [Component::Scheduler, Component::ControllerManager] {
            component.process(&plane.state).stop(SOON).await?;
        }
        let client = etcd.client();
        let sets: Api<StatefulSet> = Api::namespaced(client.clone(), etcd.namespace());
        let set = serde_json::to_value(sets.get(etcd.name()).await?)?;
        let members = etcd.pods().await?;
        let members: Result<_, _> = members.iter().map(serde_json::to_value).collect();
        create_node(client).await?;
        Ok(Self {
            client: client.clone(),
            set,
            members: members?,
            port,
            grown_to: 0,
        })
    }

    pub(crate) async fn grow_to(&mut self, clusters: u32) -> Result<()> {
        let first = self.grown_to.next_multiple_of(TOGETHER);
        for cluster in (first..clusters).step_by(TOGETHER as usize) {
            self.create_namespace(&namespace_of(cluster)).await?;
        }
        let copies = (self.grown_to..clusters).map(|cluster| self.copy(cluster));
        stream::iter(copies)
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        self.grown_to = clusters;
        Ok(())
    }

    async fn create_namespace(&self, name: &str) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        namespaces
            .create(&PostParams::default(), &namespace)
            .await?;
        // The controller for ServiceAccounts is stopped.
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), name);
        let account: ServiceAccount =
            serde_json::from_value(json!({"metadata": {"name": "default"}}))?;
        accounts.create(&PostParams::default(), &account).await?;
        Ok(())
    }

    /// The API of one kind in a cluster's namespace.
    fn api<K>(&self, cluster: u32) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &namespace_of(cluster))
    }

    async fn copy(&self, cluster: u32) -> Result<()> {
        let name = cluster_name(cluster);
        let create = PostParams::default();
        let mut set = self.set.clone();
        rename(&mut set, &name)?;
        let labels = json!({"app": name});
        put(&mut set, "/spec/selector/matchLabels", labels.clone())?;
        put(&mut set, "/spec/template/metadata/labels", labels)?;
        let set: StatefulSet = serde_json::from_value(set)?;
        let set = self.api(cluster).create(&create, &set).await?;
        self.say_all_are_updated(&set, cluster).await?;
        let budget: QuorumDisruptionBudget = serde_json::from_value(json!({
            "apiVersion": "quorumgate.io/v1alpha1",
            "kind": "QuorumDisruptionBudget",
            "metadata": {"name": name},
            "spec": {"statefulSetName": name, "members": self.how_asked()},
        }))?;
        self.api(cluster).create(&create, &budget).await?;
        for (ordinal, pod) in (0..).zip(&self.members) {
            let member = Member { cluster, ordinal };
            self.copy_member(&set, member, pod).await?;
        }
        Ok(())
    }

    /// Writes the status that the StatefulSet controller would write. Without a status the
    /// StatefulSet might have a rollout to do.
    async fn say_all_are_updated(&self, set: &StatefulSet, cluster: u32) -> Result<()> {
        let revision = revision(set);
        let status = json!({"status": {
            "observedGeneration": set.meta().generation,
            "replicas": MEMBERS,
            "readyReplicas": MEMBERS,
            "availableReplicas": MEMBERS,
            "currentReplicas": MEMBERS,
            "updatedReplicas": MEMBERS,
            "currentRevision": revision,
            "updateRevision": revision,
        }});
        let sets: Api<StatefulSet> = self.api(cluster);
        let parameters = PatchParams::default();
        sets.patch_status(&set.name_any(), &parameters, &Patch::Merge(&status))
            .await?;
        Ok(())
    }

    /// The `spec.members` of a budget.
    fn how_asked(&self) -> Value {
        match self.port {
            Some(port) => json!({"clientPort": port}),
            None => json!({"evidence": "Readiness"}),
        }
    }

    async fn copy_member(&self, set: &StatefulSet, member: Member, pod: &Value) -> Result<()> {
        let ordinal = member.ordinal;
        let name = format!("{}-{ordinal}", set.name_any());
        let mut pod = pod.clone();
        rename(&mut pod, &name)?;
        let labels = json!({
            "app": set.name_any(),
            "apps.kubernetes.io/pod-index": ordinal.to_string(),
            "controller-revision-hash": revision(set),
            "statefulset.kubernetes.io/pod-name": name,
        });
        let owners = json!([{
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "name": set.name_any(),
            "uid": set.uid(),
            "controller": true,
            "blockOwnerDeletion": true,
        }]);
        let metadata = pod.get_mut("metadata").and_then(Value::as_object_mut);
        let metadata = metadata.context("no metadata")?;
        metadata.insert("labels".into(), labels);
        metadata.insert("ownerReferences".into(), owners);
        put(&mut pod, "/spec/nodeName", json!(NODE))?;
        if self.port.is_some() {
            let ip = member.address().to_string();
            put(&mut pod, "/status/podIP", json!(ip))?;
            put(&mut pod, "/status/podIPs", json!([{"ip": ip}]))?;
        }
        let status = json!({"status": pod.get("status")});
        let pod: Pod = serde_json::from_value(pod)?;
        let pods: Api<Pod> = self.api(member.cluster);
        pods.create(&PostParams::default(), &pod).await?;
        let parameters = PatchParams::default();
        pods.patch_status(&name, &parameters, &Patch::Merge(&status))
            .await?;
        Ok(())
    }
}

/// Leaves a sandbox as it is. The control plane is deleted as a whole: without its controllers no
/// namespace would ever be gone.
pub(crate) fn leave(sandbox: Sandbox) {
    std::mem::forget(sandbox);
}

fn revision(set: &StatefulSet) -> String {
    format!("{}-{REVISION}", set.name_any())
}

/// Removes all metadata but the name.
fn rename(object: &mut Value, name: &str) -> Result<()> {
    put(object, "/metadata", json!({"name": name}))
}

fn put(object: &mut Value, path: &str, value: Value) -> Result<()> {
    let place = object.pointer_mut(path);
    *place.with_context(|| format!("nothing at {path}"))? = value;
    Ok(())
}

/// Creates a node that is Ready, although no kubelet is behind it.
async fn create_node(client: &Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node: Node = serde_json::from_value(json!({"metadata": {"name": NODE}}))?;
    nodes.create(&PostParams::default(), &node).await?;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    nodes
        .patch_status(NODE, &PatchParams::default(), &Patch::Merge(&ready))
        .await?;
    Ok(())
}
