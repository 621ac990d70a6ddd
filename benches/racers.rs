//! The servers of the race, each a process that answers reviews over TLS.
//!
//! The peers come as programs that `scripts/race` has built. Each has one policy, which refuses to
//! delete or evict pods whose names begin with `etcd-`, so that it evaluates something; OpenKruise
//! has a budget for such a pod. Gatekeeper and Kyverno can have a better one instead, which takes
//! one pod at a time by their readiness.

mod gatekeeper;
pub(crate) mod kruise;
mod kyverno;
mod opa;
mod registration;

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::gate::Gate;
use quorumgate_testbed::pki::{Authority, Request, Usage};
use quorumgate_testbed::{Bed, Sandbox, eventually};
use serde_json::{Value, json};

use crate::caller::{Caller, SERVER_NAME};
use crate::processor;
use crate::resident::Resident;
use crate::reviews::Reviews;
use crate::turn::Serves;

/// The time for Gatekeeper to find its CRDs and to compile its policy.
const PATIENCE: Duration = Duration::from_secs(180);

/// The pod that every peer keeps.
pub(crate) const KEPT: &str = "etcd-0";

/// A server that takes part.
pub(crate) struct Racer {
    pub(crate) name: &'static str,
    /// The paths that reviews of deletes and of evictions go to.
    deletes: &'static str,
    evictions: &'static str,
    address: SocketAddr,
    /// The authority of its certificate, in PEM.
    authority: String,
    process: Process,
    /// The time from its start until it gave the right answers, in seconds.
    pub(crate) ready_after: f64,
}

enum Process {
    Ours(Box<Gate>),
    Peer(Peer),
}

/// The process of a peer, killed at the end.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Racer {
    /// A replica of this project, in force everywhere on its control plane.
    pub(crate) async fn quorumgate(sandbox: &Sandbox, review: &Value) -> Result<Self> {
        let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
        let gate = Gate::builder(env!("CARGO_BIN_EXE_quorumgate"), manifests)
            .replicas(1)
            .everywhere()
            .argument("--settle-time=8s")
            .start(sandbox)
            .await?;
        gate.ready().await?;
        let replica = gate.replica(0);
        replica.term().await?;
        let begun = Instant::now();
        replica.restart().await?;
        let ready_after = begun.elapsed().as_secs_f64();
        let racer = Self {
            name: "quorumgate",
            deletes: "/validate/pods",
            evictions: "/validate/evictions",
            address: replica.address(),
            authority: gate.ca_certificate().to_owned(),
            process: Process::Ours(Box::new(gate)),
            ready_after,
        };
        racer.lets_pass(review).await?;
        Ok(racer)
    }

    /// Reviews like this one, as this server takes them.
    pub(crate) fn reviews(&self, review: &Value) -> Result<Reviews> {
        let evicts = review.pointer("/request/subResource").is_some();
        let path = if evicts { self.evictions } else { self.deletes };
        Reviews::new(path, review)
    }

    pub(crate) fn memory(&self) -> Result<Resident> {
        Resident::read(&self.pid()?)
    }

    fn pid(&self) -> Result<String> {
        match &self.process {
            Process::Ours(gate) => {
                let process = gate.replica(0).identity().context("the gate has ended")?;
                Ok(process.pid().to_string())
            }
            Process::Peer(peer) => Ok(peer.0.id().to_string()),
        }
    }

    pub(crate) async fn close(self) -> Result<()> {
        match self.process {
            Process::Ours(gate) => gate.close().await,
            Process::Peer(_) => Ok(()),
        }
    }

    async fn lets_pass(&self, review: &Value) -> Result<()> {
        ensure!(
            self.allows(review).await?,
            "{} refuses a foreign pod",
            self.name
        );
        Ok(())
    }

    /// Whether the answer to this review is a permission.
    pub(crate) async fn allows(&self, review: &Value) -> Result<bool> {
        let mut caller = self.connected().await?;
        self.permits(&mut caller, &mut self.reviews(review)?).await
    }

    /// Whether the answer to the next of these reviews is a permission.
    pub(crate) async fn permits(&self, caller: &mut Caller, reviews: &mut Reviews) -> Result<bool> {
        let answer = caller.call(reviews.next()).await?.to_vec();
        let answer: Value = serde_json::from_slice(&answer)?;
        let uid = answer.pointer("/response/uid").and_then(Value::as_str);
        ensure!(
            uid == Some(reviews.uid()?),
            "{} answers {answer}",
            self.name
        );
        let allowed = answer.pointer("/response/allowed").and_then(Value::as_bool);
        allowed.with_context(|| format!("{} answers {answer}", self.name))
    }
}

impl Serves for Racer {
    async fn connected(&self) -> Result<Caller> {
        Caller::connect(self.address, &self.authority).await
    }

    fn processor_time(&self) -> Result<f64> {
        processor::time(&self.pid()?, |_| true)
    }
}

/// A peer that has been started and may not answer yet.
struct Starting {
    racer: Racer,
    begun: Instant,
}

impl Starting {
    /// Waits until the peer refuses what its policy forbids and allows the foreign pod of `review`.
    async fn answers_rightly(self, review: &Value) -> Result<Racer> {
        let mut forbidden = review.clone();
        for name in ["/request/name", "/request/oldObject/metadata/name"] {
            *forbidden.pointer_mut(name).context("no name")? = KEPT.into();
        }
        kruise::about_kept_pod(&mut forbidden)?;
        let racer = self.refuses(&forbidden).await?;
        racer.lets_pass(review).await?;
        Ok(racer)
    }

    /// The peer started once more, which finds its policy in place: that start is timed.
    async fn once_more(
        self,
        review: &Value,
        start: impl AsyncFnOnce() -> Result<Self>,
    ) -> Result<Racer> {
        drop(self.answers_rightly(review).await?);
        start().await?.answers_rightly(review).await
    }

    /// Waits until the peer refuses this.
    async fn refuses(self, forbidden: &Value) -> Result<Racer> {
        let racer = &self.racer;
        eventually(PATIENCE, "the peer's policy refuses", async || {
            ensure!(!racer.allows(forbidden).await?, "{} allows", racer.name);
            anyhow::Ok(())
        })
        .await?;
        let ready_after = self.begun.elapsed().as_secs_f64();
        Ok(Racer {
            ready_after,
            ..self.racer
        })
    }
}

/// Writes a serving certificate as `NAME/tls.crt` and `NAME/tls.key`. Returns its authority.
fn certificate(directory: &Path, name: &str) -> Result<String> {
    let authority = Authority::new(name)?;
    let request = Request::new(SERVER_NAME, Usage::Server).names([SERVER_NAME]);
    let folder = directory.join(name);
    fs::create_dir_all(&folder)?;
    let (certificate, key) = authority.issue(&request)?.write(&folder, "serving")?;
    fs::rename(certificate, folder.join("tls.crt"))?;
    fs::rename(key, folder.join("tls.key"))?;
    Ok(authority.certificate().to_owned())
}

fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// The path in a variable that `scripts/race` sets.
fn program(variable: &str) -> Result<PathBuf> {
    let path = std::env::var_os(variable);
    let path = path.with_context(|| format!("{variable} is not set; run `make race`"))?;
    Ok(path.into())
}

/// Starts a peer. Its output goes to a file.
fn spawn(mut command: Command, directory: &Path, name: &str) -> Result<Peer> {
    let log = File::create(directory.join(format!("{name}.log")))?;
    let child = command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    Ok(Peer(
        child
            .spawn()
            .with_context(|| format!("cannot start {name}"))?,
    ))
}

/// Applies objects in one call.
async fn apply_all(bed: &Bed, objects: &[Value]) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    apply(bed, &["-f", "-"], &list.to_string()).await
}

async fn apply(bed: &Bed, arguments: &[&str], input: &str) -> Result<()> {
    let arguments = ["apply"].iter().chain(arguments);
    bed.kubectl(arguments).stdin(input).await?.success()?;
    Ok(())
}
