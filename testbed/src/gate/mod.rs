//! Replicas of the gate as processes, registered with the API server for one sandbox.
//!
//! Objects that a real installation has once per cluster exist once per gate here: the namespace it
//! watches, its webhook configurations, its service account and roles, and its Lease. So tests with
//! gates run side by side.

mod builder;
mod cleanup;
mod clock;
mod endpoints;
mod http;
mod manifests;
mod permissions;
mod replica;
mod serving_certificate;
mod webhooks;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;

pub use builder::GateBuilder;
pub use replica::Replica;

use crate::Bed;
use crate::balancer::Balancer;
use crate::builder::print;
use crate::eventually;
use cleanup::Leftovers;
use serving_certificate::ServingCertificate;
use webhooks::Webhooks;

/// The time limit until a replica is ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running gate. [`Gate::close`] ends it in order. Dropping it ends it at once.
pub struct Gate {
    bed: Bed,
    replicas: Vec<Replica>,
    balancer: Balancer,
    /// The gate's namespace.
    home: String,
    /// The task that sends callers to replicas in the Service. `None` if they are sent to all
    /// replicas.
    _standing: Option<endpoints::Follower>,
    certificate: ServingCertificate,
    webhooks: Webhooks,
    leftovers: Leftovers,
    closed: bool,
}

impl Gate {
    /// The builder of a gate with two replicas of this program, registered by the manifests in this
    /// directory (the one with `base/webhooks.yaml`).
    pub fn builder(
        program: impl Into<std::path::PathBuf>,
        manifests: impl Into<std::path::PathBuf>,
    ) -> GateBuilder {
        GateBuilder::new(program.into(), manifests.into())
    }

    /// The replica with this index, counted from 0.
    ///
    /// # Panics
    ///
    /// Panics if there are fewer.
    #[expect(
        clippy::indexing_slicing,
        reason = "a test that miscounts its replicas is wrong"
    )]
    pub fn replica(&self, index: usize) -> &Replica {
        &self.replicas[index]
    }

    /// All replicas.
    pub fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// The balancer between the API server and the replicas.
    pub fn balancer(&self) -> &Balancer {
        &self.balancer
    }

    /// For each replica whether it is in the Service.
    ///
    /// # Errors
    ///
    /// Fails if the gate was built without endpoints, or if the API server is away.
    pub async fn standing(&self) -> Result<Vec<bool>> {
        let names = self.replicas.iter().map(Replica::name);
        endpoints::standing(&self.bed.client(), &self.home, names).await
    }

    /// The name of its validating and its mutating webhook configuration.
    pub fn webhook_configuration(&self) -> &str {
        self.webhooks.name()
    }

    /// The authority of the serving certificate (PEM), which a client of [`Replica::admission_url`]
    /// has to trust.
    pub fn ca_certificate(&self) -> &str {
        self.certificate.authority()
    }

    /// The `/metrics` of one replica.
    pub async fn metrics(&self, replica: usize) -> Result<String> {
        self.replica(replica).metrics().await
    }

    /// The log of one replica so far.
    pub fn log(&self, replica: usize) -> Result<String> {
        self.replica(replica).log()
    }

    /// The URL without a path at which one replica answers admission requests.
    pub fn admission_url(&self, replica: usize) -> String {
        self.replica(replica).admission_url()
    }

    /// Waits until every replica that runs is ready.
    pub async fn ready(&self) -> Result<()> {
        for replica in &self.replicas {
            if replica.is_running() {
                replica.ready(PATIENCE).await?;
            }
        }
        Ok(())
    }

    /// Restarts the replicas with this argument, such as `--feature-gates=Name=true`, instead of
    /// arguments of the same name: one after another, as a Deployment does.
    pub async fn roll_out_with(&mut self, argument: &str) -> Result<()> {
        for replica in &mut self.replicas {
            replica.restart_with(argument).await?;
        }
        Ok(())
    }

    /// Restarts the replicas with certificates of their own making instead of one in files: one
    /// after another, as a Deployment does.
    pub async fn roll_out_own_certificates(&mut self) -> Result<()> {
        let own = builder::own_certificates();
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        for replica in &mut self.replicas {
            replica
                .restart_without(&["--tls-cert", "--tls-key"], &own)
                .await?;
            // A kubelet takes longer to call a replica ready than the replica to put itself back.
            eventually(PATIENCE, "its endpoint is ready", || async {
                let page = replica.metrics().await?;
                let is_in = page
                    .lines()
                    .any(|line| line == "quorumgate_endpoint_ready 1");
                ensure!(is_in, "not yet");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Replaces the serving certificate by a new one of the same authority, as a mounted Secret is
    /// replaced: by a swap of a symbolic link.
    pub fn rotate_certificate(&self) -> Result<()> {
        self.certificate.rotate()
    }

    /// Replaces the serving certificate and its key by two files that do not match.
    pub fn break_certificate(&self) -> Result<()> {
        self.certificate.mismatch()
    }

    /// Registers the webhooks with the API server. [`Gate::in_force`] waits until they are asked.
    pub async fn register(&self) -> Result<()> {
        self.webhooks.register(&self.bed.client()).await
    }

    /// Waits until the API server asks the gate: it has noticed the registration, and the gate has
    /// labelled the namespace.
    pub async fn in_force(&self, within: Duration) -> Result<()> {
        self.webhooks.in_force(&self.bed.client(), within).await
    }

    /// Removes the webhook configurations, and waits until the API server has noticed.
    pub async fn unregister(&self) -> Result<()> {
        self.webhooks.unregister(&self.bed.client()).await
    }

    /// Unregisters, ends all replicas with SIGTERM, and removes the objects outside of the
    /// namespace.
    pub async fn close(mut self) -> Result<()> {
        self.unregister().await?;
        let ending = self.replicas.iter().map(Replica::term);
        try_join_all(ending)
            .await
            .context("a replica does not end")?;
        self.leftovers.remove(&self.bed.client()).await?;
        self.closed = true;
        Ok(())
    }

    /// Prints the ends of the replicas' logs after a failed test, for runs whose logs cannot be
    /// read later.
    fn tell_last_words(&self) {
        for replica in &self.replicas {
            print(&format!("{}{}", replica.name(), replica.last_words()));
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if !self.closed {
            self.tell_last_words();
        }
        // The webhooks go first, since requests to a gate that is gone would be refused.
        self.leftovers.remove_now(&self.bed.admin_kubeconfig());
        for replica in &self.replicas {
            // A process that survives is ended with the sandbox, by its pid file.
            let _ = replica.kill_now();
        }
    }
}

/// Waits until a replica answers `/readyz` with 200.
async fn until_ready(replica: &Replica, within: Duration) -> Result<()> {
    let what = format!("{} is ready", replica.name());
    eventually(within, what, || replica.is_ready())
        .await
        .with_context(|| format!("{}{}", replica.name(), replica.last_words()))
}
