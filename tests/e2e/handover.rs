//! A Service of the gate gets a selector and loses it again, with Kubernetes' own controllers
//! running. At every moment some live replica has to be called.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Binding, Endpoints, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use quorumgate_testbed::gate::Gate;
use quorumgate_testbed::{Bed, eventually};
use serde_json::{Value, json};

use crate::world::{SOON, gate};

/// The gate's namespace as the API server has it.
struct Home {
    client: Client,
    namespace: String,
    /// The serving address of each replica.
    replicas: [SocketAddr; 3],
}

impl Home {
    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The addresses that API servers would call. The values count the slices that have the
    /// address: those of the replicas first, those of others second.
    async fn called(&self) -> Result<BTreeMap<SocketAddr, [usize; 2]>> {
        let mut called: BTreeMap<SocketAddr, [usize; 2]> = BTreeMap::new();
        let slices: Api<EndpointSlice> = self.api();
        for slice in slices.list(&ListParams::default()).await? {
            let manager = slice.labels().get("endpointslice.kubernetes.io/managed-by");
            let is_of_others = manager.is_none_or(|manager| manager != "quorumgate.io");
            let mut ports = slice.ports.iter().flatten();
            let port = ports.find(|port| port.name.as_deref() == Some("webhooks"));
            let Some(port) = port.and_then(|port| port.port) else {
                continue;
            };
            for endpoint in &slice.endpoints {
                let conditions = endpoint.conditions.clone().unwrap_or_default();
                if conditions.ready != Some(false) {
                    let address = endpoint.addresses.first().context("no address")?;
                    let at = SocketAddr::new(address.parse()?, u16::try_from(port)?);
                    let [own, others] = called.entry(at).or_default();
                    *(if is_of_others { others } else { own }) += 1;
                }
            }
        }
        Ok(called)
    }

    /// Waits until exactly these replicas are called, each through one slice, which is either the
    /// replicas' own or another's. Fails if at any moment none of the replicas in `lives` is
    /// called.
    async fn comes_to(&self, replicas: &[usize], own: bool, lives: &[usize]) -> Result<()> {
        let of = |replicas: &[usize]| -> BTreeSet<SocketAddr> {
            let found = replicas
                .iter()
                .filter_map(|index| self.replicas.get(*index));
            found.copied().collect()
        };
        let (wanted, lives) = (of(replicas), of(lives));
        let once = if own { [1, 0] } else { [0, 1] };
        let emptied = OnceLock::new();
        eventually(SOON, format!("they come to {wanted:?}"), || async {
            let called = self.called().await?;
            if emptied.get().is_some() || !called.keys().any(|address| lives.contains(address)) {
                emptied.get_or_init(|| called);
                return anyhow::Ok(());
            }
            let addresses: BTreeSet<SocketAddr> = called.keys().copied().collect();
            let is_there = addresses == wanted && called.values().all(|slices| *slices == once);
            ensure!(is_there, "they are {called:?}");
            Ok(())
        })
        .await?;
        match emptied.get() {
            Some(called) => bail!("no replica that answers is called: {called:?}"),
            None => Ok(()),
        }
    }

    async fn select(&self, selector: Value) -> Result<()> {
        let services: Api<Service> = self.api();
        let patch = json!({"spec": {"selector": selector}});
        let params = PatchParams::default();
        services
            .patch("quorumgate", &params, &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// Sets the pods' status as a kubelet would: on a node, running, ready, with an address.
    async fn shows_pods(&self, node: &str) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let object: Node = serde_json::from_value(json!({"metadata": {"name": node}}))?;
        nodes.create(&PostParams::default(), &object).await?;
        let pods: Api<Pod> = self.api();
        for (index, at) in self.replicas.iter().enumerate() {
            let name = format!("quorumgate-{index}");
            let binding: Binding = serde_json::from_value(json!({
                "metadata": {"name": name}, "target": {"kind": "Node", "name": node},
            }))?;
            let params = PostParams::default();
            let bound = pods.create_subresource("binding", &name, &params, &binding);
            let _: Value = bound.await?;
            let status = json!({"status": {
                "phase": "Running",
                "podIP": at.ip(),
                "podIPs": [{"ip": at.ip()}],
                "conditions": [{"type": "Ready", "status": "True"}],
            }});
            pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
                .await?;
        }
        Ok(())
    }
}

async fn where_they_answer(client: &Client, namespace: &str) -> Result<[SocketAddr; 3]> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let mut replicas = Vec::new();
    for index in 0..3 {
        let name = format!("quorumgate-{index}");
        let at = eventually(SOON, format!("{name} is called"), || async {
            let slice = slices.get(&name).await?;
            let endpoint = slice.endpoints.first().context("no endpoint")?;
            let conditions = endpoint.conditions.as_ref().context("no conditions")?;
            ensure!(conditions.ready == Some(true), "it is out");
            let mut ports = slice.ports.iter().flatten();
            let port = ports.find(|port| port.name.as_deref() == Some("webhooks"));
            let port = port.and_then(|port| port.port).context("no port")?;
            let address = endpoint.addresses.first().context("no address")?;
            Ok(SocketAddr::new(address.parse()?, u16::try_from(port)?))
        })
        .await?;
        replicas.push(at);
    }
    <[SocketAddr; 3]>::try_from(replicas).ok().context("three")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_gets_a_selector_and_loses_it_always_has_an_endpoint_that_answers()
-> Result<()> {
    let sandbox = Bed::up().await?.sandbox("handover").await?;
    let gate: Gate = gate()
        .replicas(3)
        .keeping_endpoints()
        .start(&sandbox)
        .await?;
    let namespace = format!("{}-gate", sandbox.namespace());
    let home = Home {
        client: sandbox.client(),
        replicas: where_they_answer(&sandbox.client(), &namespace).await?,
        namespace,
    };
    let all = [0, 1, 2];
    home.comes_to(&all, true, &all).await?;

    // Kubernetes' controllers take over. Each endpoint of the gate's stays until Kubernetes lists
    // it.
    let node = format!("{}-gate", sandbox.namespace());
    home.shows_pods(&node).await?;
    home.select(json!({"app.kubernetes.io/name": "quorumgate"}))
        .await?;
    home.comes_to(&all, false, &all).await?;

    // Kubernetes keeps an endpoint that is dead. So do the slices that Kubernetes leaves behind,
    // and the mirror of its Endpoints.
    gate.replica(2).kill().await?;
    home.comes_to(&all, false, &[0, 1]).await?;
    home.select(Value::Null).await?;
    home.comes_to(&[0, 1], true, &[0, 1]).await?;
    let endpoints: Api<Endpoints> = home.api();
    ensure!(endpoints.get_opt("quorumgate").await?.is_none());

    gate.replica(2).restart().await?;
    home.comes_to(&all, true, &[0, 1]).await?;
    let nodes: Api<Node> = Api::all(sandbox.client());
    nodes.delete(&node, &DeleteParams::default()).await?;
    gate.close().await?;
    sandbox.close().await
}
