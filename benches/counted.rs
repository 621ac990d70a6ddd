//! A client of the Kubernetes API like the gate's, which counts its requests.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::util::MapRequestLayer;

/// The client and the count.
pub(crate) struct Counted {
    client: Client,
    requests: Arc<AtomicU32>,
}

impl Counted {
    pub(crate) async fn connect(kubeconfig: &Path) -> Result<Self> {
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        let requests = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&requests);
        let count = MapRequestLayer::new(move |request: http::Request<kube::client::Body>| {
            counter.fetch_add(1, Ordering::Relaxed);
            request
        });
        let client = ClientBuilder::try_from(config)?.with_layer(&count).build();
        Ok(Self { client, requests })
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(crate) fn restart(&self) {
        self.requests.store(0, Ordering::Relaxed);
    }

    /// The number of requests since [`Counted::restart`].
    pub(crate) fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }
}
