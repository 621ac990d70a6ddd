//! The servers of the race, each a process that answers reviews over TLS.
//!
//! The peers come as programs that `scripts/race` has built. Each has one policy, which refuses to
//! delete or evict pods whose names begin with `etcd-`, so that it evaluates something; OpenKruise
//! has a budget for such a pod.

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
use crate::resident::Resident;
use crate::reviews::Reviews;
use crate::turn::Serves;
use crate::{kruise, processor};

/// The time for Gatekeeper to find its CRDs and to compile its policy.
const PATIENCE: Duration = Duration::from_secs(180);

const OPA_POLICY: &str = include_str!("race/policy.rego");
const TEMPLATE: &str = include_str!("race/template.yaml");
const CONSTRAINT: &str = include_str!("race/constraint.yaml");

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

    /// Open Policy Agent as a server of its own.
    pub(crate) async fn opa(directory: &Path, review: &Value) -> Result<Self> {
        let policy = directory.join("policy.rego");
        fs::write(&policy, OPA_POLICY)?;
        let authority = certificate(directory, "opa")?;
        let address = free_port()?;
        let begun = Instant::now();
        let mut command = Command::new(program("QUORUMGATE_RACE_OPA")?);
        command
            .args(["run", "--server", "--log-level=error"])
            .arg(format!("--addr=https://{address}"))
            .arg(format!(
                "--tls-cert-file={}",
                directory.join("opa/tls.crt").display()
            ))
            .arg(format!(
                "--tls-private-key-file={}",
                directory.join("opa/tls.key").display()
            ))
            .arg(&policy);
        let racer = Self {
            name: "OPA",
            deletes: "/",
            evictions: "/",
            address,
            authority,
            process: Process::Peer(spawn(command, directory, "opa")?),
            ready_after: f64::NAN,
        };
        Starting { racer, begun }.answers_rightly(review).await
    }

    /// Gatekeeper's webhook. The second start is timed, which finds its policy in place.
    pub(crate) async fn gatekeeper(bed: &Bed, directory: &Path, review: &Value) -> Result<Self> {
        let crds = program("QUORUMGATE_RACE_GATEKEEPER_CRDS")?;
        apply(bed, &["--server-side", "-f", &crds.to_string_lossy()], "").await?;
        apply(
            bed,
            &["-f", "-"],
            "{apiVersion: v1, kind: Namespace, metadata: {name: gatekeeper-system}}",
        )
        .await?;
        apply(bed, &["-f", "-"], TEMPLATE).await?;
        let first = Self::start_gatekeeper(bed, directory)?;
        eventually(
            PATIENCE,
            "Gatekeeper makes the CRD of its policy",
            async || apply(bed, &["-f", "-"], CONSTRAINT).await,
        )
        .await?;
        drop(first.answers_rightly(review).await?);
        let again = Self::start_gatekeeper(bed, directory)?;
        again.answers_rightly(review).await
    }

    fn start_gatekeeper(bed: &Bed, directory: &Path) -> Result<Starting> {
        let authority = certificate(directory, "gatekeeper")?;
        let address = free_port()?;
        let begun = Instant::now();
        let mut command = Command::new(program("QUORUMGATE_RACE_GATEKEEPER")?);
        command
            .env("KUBECONFIG", bed.admin_kubeconfig())
            .env("POD_NAMESPACE", "gatekeeper-system")
            .args([
                "--operation=webhook",
                "--operation=generate",
                "--debug-use-fake-pod",
                "--disable-cert-rotation",
                "--host=127.0.0.1",
                "--health-addr=127.0.0.1:0",
                "--prometheus-port=0",
                "--log-level=ERROR",
            ])
            .arg(format!("--port={}", address.port()))
            .arg(format!(
                "--cert-dir={}",
                directory.join("gatekeeper").display()
            ));
        Ok(Starting {
            racer: Self {
                name: "Gatekeeper",
                deletes: "/v1/admit",
                evictions: "/v1/admit",
                address,
                authority,
                process: Process::Peer(spawn(command, directory, "gatekeeper")?),
                ready_after: f64::NAN,
            },
            begun,
        })
    }

    /// OpenKruise's manager with its webhooks. The second start is timed, as Gatekeeper's is.
    pub(crate) async fn openkruise(bed: &Bed, directory: &Path, review: &Value) -> Result<Self> {
        let namespace = review.pointer("/request/namespace");
        let namespace = namespace.and_then(Value::as_str).context("no namespace")?;
        let crds = program("QUORUMGATE_RACE_KRUISE_CRDS")?;
        apply(bed, &["--server-side", "-f", &crds.to_string_lossy()], "").await?;
        apply_all(bed, &kruise::objects(namespace)).await?;
        kruise::ready_pod(bed, namespace, (kruise::KEPT, "etcd-0")).await?;
        let first = Self::start_openkruise(bed, directory).await?;
        drop(first.answers_rightly(review).await?);
        let again = Self::start_openkruise(bed, directory).await?;
        again.answers_rightly(review).await
    }

    async fn start_openkruise(bed: &Bed, directory: &Path) -> Result<Starting> {
        let address = free_port()?;
        let folder = directory.join("kruise");
        fs::create_dir_all(&folder)?;
        let begun = Instant::now();
        let mut command = Command::new(program("QUORUMGATE_RACE_KRUISE")?);
        command
            .env("KUBECONFIG", bed.admin_kubeconfig())
            .env("POD_NAMESPACE", kruise::NAMESPACE)
            .env("WEBHOOK_HOST", SERVER_NAME)
            .env("WEBHOOK_PORT", address.port().to_string())
            .env("WEBHOOK_CERT_DIR", &folder)
            .args([
                "--enable-leader-election=false",
                "--enable-pprof=false",
                "--metrics-addr=127.0.0.1:0",
                "--health-probe-addr=127.0.0.1:0",
                "--rest-config-qps=1000",
                "--rest-config-burst=1000",
            ]);
        let process = Process::Peer(spawn(command, directory, "kruise")?);
        // It makes its certificate itself.
        let made = eventually(PATIENCE, "OpenKruise has a certificate", async || {
            fs::read_to_string(folder.join("ca-cert.pem"))
        });
        Ok(Starting {
            racer: Self {
                name: "OpenKruise",
                deletes: "/validate-pod",
                evictions: "/validate-pod",
                address,
                authority: made.await?,
                process,
                ready_after: f64::NAN,
            },
            begun,
        })
    }

    /// Reviews like this one, as this server takes them.
    pub(crate) fn reviews(&self, review: &Value) -> Result<Reviews> {
        let evicts = review.pointer("/request/subResource").is_some();
        let path = if evicts { self.evictions } else { self.deletes };
        Reviews::of(path, review)
    }

    pub(crate) fn memory(&self) -> Result<Resident> {
        Resident::of(&self.pid()?)
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

    async fn allows(&self, review: &Value) -> Result<bool> {
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
        let name = forbidden.pointer_mut("/request/name").context("no name")?;
        *name = "etcd-0".into();
        kruise::about_kept_pod(&mut forbidden)?;
        let racer = &self.racer;
        eventually(PATIENCE, "the peer's policy refuses", async || {
            ensure!(!racer.allows(&forbidden).await?, "{} allows", racer.name);
            anyhow::Ok(())
        })
        .await?;
        racer.lets_pass(review).await?;
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
pub(crate) async fn apply_all(bed: &Bed, objects: &[Value]) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    apply(bed, &["-f", "-"], &list.to_string()).await
}

async fn apply(bed: &Bed, arguments: &[&str], input: &str) -> Result<()> {
    let arguments = ["apply"].iter().chain(arguments);
    bed.kubectl(arguments).stdin(input).await?.success()?;
    Ok(())
}
