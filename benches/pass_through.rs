//! What it costs that the gate looks at a pod that is none of its business: the DELETE of a Deployment's pod, posted over TLS to the
//! shipped webhooks, against a bare axum responder that answers the same bytes with the same TLS settings.
//!
//! Each side has a runtime like the gate's own, and is called over kept connections from one more thread; the sides take turns. All of
//! them share the machine, so the caller's own work is in both; what the server's threads ran is told apart.

mod bare;
mod caller;
mod gate;
mod round;
mod spread;
mod table;

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use http::{Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use caller::{Caller, post};
use gate::{Gate, Tls};
use round::Round;
use spread::Spread;
use table::Table;

const PATH: &str = "/validate/pods";
/// As the API server sends it, managed fields included.
const REVIEW: &str = include_str!("foreign_pod.json");

const CONNECTIONS: usize = 8;
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(1200);
const WARM_UP: Duration = Duration::from_secs(2);

fn main() -> Result<()> {
    quorumgate::install_crypto_provider();
    let directory = tempfile::tempdir()?;
    gate::log_to(&directory)?;
    let (gate, bare) = (Server::start("gate")?, Server::start("bare")?);
    Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(measure(&gate, &bare, &Tls::new(&directory)?))
}

async fn measure(gate: &Server, bare: &Server, tls: &Tls) -> Result<()> {
    let review: Value = serde_json::from_str(REVIEW)?;
    let request = post(PATH, &serde_json::to_vec(&review)?);
    let reads = Arc::new(AtomicU64::new(0));

    let (client, settings) = (unhelpful(Arc::clone(&reads)), tls.clone());
    let serving = async move { Gate::over(&client).listen(&settings).await };
    let address = gate.runtime.spawn(serving).await??;
    let mut gate = Side::connect(gate, address, tls).await?;
    let answer = gate.answer(&request).await?;
    let allowed: Value = serde_json::from_slice(&answer)?;
    ensure!(
        allowed.pointer("/response/allowed") == Some(&true.into()),
        "the gate does not let it pass: {allowed}"
    );

    let serving = bare::listen(Arc::clone(&tls.config), PATH, answer.clone());
    let address = bare.runtime.spawn(serving).await??;
    let mut bare = Side::connect(bare, address, tls).await?;
    ensure!(
        bare.answer(&request).await? == answer,
        "the answers have to be the same"
    );

    gate.round(&request, WARM_UP).await?;
    bare.round(&request, WARM_UP).await?;
    reads.store(0, Ordering::Relaxed);
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let ours = gate.round(&request, ROUND).await?;
        rounds.push((ours, bare.round(&request, ROUND).await?));
    }
    report(&rounds, request.len(), reads.load(Ordering::Relaxed))
}

fn report(rounds: &[(Turn, Turn)], bytes: usize, reads: u64) -> Result<()> {
    let ratio = |number: fn(&Turn) -> f64| {
        Spread::of(
            rounds
                .iter()
                .map(|(gate, bare)| number(gate) / number(bare)),
        )
    };
    let each = |number: fn(&Turn) -> f64, of_gate: bool| {
        Spread::of(
            rounds
                .iter()
                .map(|(gate, bare)| number(if of_gate { gate } else { bare })),
        )
    };
    let throughput = |turn: &Turn| turn.calls / turn.took;
    let p99 = |turn: &Turn| turn.round.percentile(99);
    let processor = |turn: &Turn| turn.processor / turn.calls;
    let calls: f64 = rounds.iter().map(|(gate, _)| gate.calls).sum();
    let reads = u32::try_from(reads).map_or(f64::INFINITY, f64::from) / calls;
    let title = format!(
        "Pass-through: the gate against a bare responder, a foreign pod of {bytes} bytes over TLS, {CONNECTIONS} connections, {ROUNDS} rounds in turns"
    );
    Table::new(title)
        .row("throughput, gate / bare", ratio(throughput), 0.8..)
        .row("p99, gate / bare", ratio(p99), ..=1.25)
        .row(
            "reads of the Kubernetes API per call",
            Spread::once(reads),
            ..=0.0,
        )
        .row(
            "processor time of the server per call, gate / bare",
            ratio(processor),
            ..,
        )
        .row("gate: calls per second", each(throughput, true), ..)
        .row("bare: calls per second", each(throughput, false), ..)
        .row(
            "gate: p99, µs",
            each(|turn| 1e6 * turn.round.percentile(99), true),
            ..,
        )
        .row(
            "bare: p99, µs",
            each(|turn| 1e6 * turn.round.percentile(99), false),
            ..,
        )
        .print()?;
    Ok(())
}

/// What one side did in its turn, and what that cost.
struct Turn {
    round: Round,
    calls: f64,
    /// Seconds.
    took: f64,
    /// Seconds that the serving threads ran.
    processor: f64,
}

/// One side and the connections to it.
struct Side<'a> {
    server: &'a Server,
    callers: Vec<Caller>,
}

impl<'a> Side<'a> {
    async fn connect(server: &'a Server, address: SocketAddr, tls: &Tls) -> Result<Self> {
        let callers = (0..CONNECTIONS).map(|_| Caller::connect(address, &tls.authority));
        Ok(Self {
            server,
            callers: try_join_all(callers).await?,
        })
    }

    async fn answer(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        let caller = self.callers.first_mut().context("no connection")?;
        Ok(caller.call(request).await?.to_vec())
    }

    /// Calls on every connection at once, one call after another, for so long.
    async fn round(&mut self, request: &[u8], length: Duration) -> Result<Turn> {
        let before = self.server.processor_time()?;
        let start = Instant::now();
        let calling = self.callers.iter_mut().map(|caller| async move {
            let mut calls = Vec::new();
            while start.elapsed() < length {
                let sent = Instant::now();
                caller.call(request).await?;
                calls.push(sent.elapsed());
            }
            anyhow::Ok(calls)
        });
        let calls = try_join_all(calling).await?.concat();
        Ok(Turn {
            calls: u32::try_from(calls.len())?.into(),
            round: Round::of(calls),
            took: start.elapsed().as_secs_f64(),
            processor: self.server.processor_time()? - before,
        })
    }
}

/// A runtime like the gate's own, for one side.
struct Server {
    name: &'static str,
    runtime: Runtime,
}

impl Server {
    fn start(name: &'static str) -> Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.enable_all().thread_name(name).build()?;
        Ok(Self { name, runtime })
    }

    /// Seconds that its threads have run.
    fn processor_time(&self) -> Result<f64> {
        let mut nanoseconds = 0.0;
        for thread in fs::read_dir("/proc/self/task")? {
            let thread = thread?.path();
            if fs::read_to_string(thread.join("comm"))?.trim_end() == self.name {
                let scheduled = fs::read_to_string(thread.join("schedstat"))?;
                let ran = scheduled.split(' ').next().context("an empty schedstat")?;
                nanoseconds += ran.parse::<f64>()?;
            }
        }
        Ok(nanoseconds / 1e9)
    }
}

/// A Kubernetes API that has nothing, and counts how often it is asked.
fn unhelpful(reads: Arc<AtomicU64>) -> Client {
    let service = tower::service_fn(move |_request: http::Request<Body>| {
        reads.fetch_add(1, Ordering::Relaxed);
        let mut answer = Response::new(Body::from(
            br#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404}"#.to_vec(),
        ));
        *answer.status_mut() = StatusCode::NOT_FOUND;
        std::future::ready(Ok::<_, kube::Error>(answer))
    });
    Client::new(service, "default")
}
