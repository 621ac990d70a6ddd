//! etcd clusters as users run them: a StatefulSet behind a headless Service, with TLS from Secrets.
//!
//! ```no_run
//! # async fn example(sandbox: &quorumgate_testbed::Sandbox) -> anyhow::Result<()> {
//! use quorumgate_testbed::etcd_cluster::{EtcdCluster, EtcdVersion};
//! use std::time::Duration;
//!
//! let cluster = EtcdCluster::builder("etcd").version(EtcdVersion::V3_6).apply(sandbox).await?;
//! cluster.quorate(Duration::from_secs(20)).await?;
//! assert_eq!(cluster.members().await?.len(), 3);
//! # Ok(())
//! # }
//! ```

mod auth;
mod builder;
mod certificate;
mod connection;
mod connections;
mod data;
mod heartbeat;
mod membership;
mod objects;
mod pods;
mod spec;
mod status;
mod template;
mod version;

use std::fmt;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::{Api, ResourceExt as _};

pub use builder::EtcdClusterBuilder;
pub use connection::Dialer;
pub use connections::Connections;
pub use data::Alarm;
pub use heartbeat::Heartbeat;
pub use membership::Member;
pub(crate) use objects::INITIALISER;
pub use spec::{
    Auth, DataCheck, Initialisation, PASSWORD, PodManagement, Readiness, Shape, Storage, Tls,
    TlsTold, UpdateStrategy,
};
pub use status::EndpointStatus;
pub use version::EtcdVersion;

/// The annotation of the pod template that [`EtcdCluster::change_template`] sets. A new value makes
/// a new revision.
pub const MARKER: &str = "testbed.quorumgate.io/revision";

/// A cluster that was applied. Cheap to clone; holds no connection.
#[derive(Clone)]
pub struct EtcdCluster {
    client: kube::Client,
    namespace: String,
    spec: spec::Spec,
}

impl EtcdCluster {
    /// The builder of a cluster, with the name of its StatefulSet.
    pub fn builder(name: &str) -> EtcdClusterBuilder {
        EtcdClusterBuilder::new(name)
    }

    /// The cluster that another process has applied.
    pub async fn find(client: kube::Client, namespace: &str, name: &str) -> Result<Self> {
        let set = Api::<StatefulSet>::namespaced(client.clone(), namespace)
            .get(name)
            .await?;
        let description = set
            .annotations()
            .get(objects::SPEC_ANNOTATION)
            .with_context(|| format!("StatefulSet {namespace}/{name} is none of the test bed's"))?;
        let spec = serde_json::from_str(description)
            .with_context(|| format!("cannot read the description of {namespace}/{name}"))?;
        Ok(Self {
            client,
            namespace: namespace.to_owned(),
            spec,
        })
    }

    /// The StatefulSet's name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The namespace of the cluster.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The client that applied it.
    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    /// The TLS server name and DNS name of a pod's member.
    pub fn server_name(&self, pod: &str) -> String {
        self.spec.host(&self.namespace, pod)
    }
}

impl fmt::Debug for EtcdCluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "EtcdCluster({}/{})",
            self.namespace, self.spec.name
        )
    }
}
