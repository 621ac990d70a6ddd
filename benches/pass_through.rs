//! The cost of the gate for a pod that is no member. The gate's side posts the DELETE of a
//! Deployment's pod over TLS to the shipped webhooks. The other side is a bare axum responder that
//! answers the same bytes with the same TLS settings. Each call has a review of its own, as from
//! API servers, so the responder has to read the uid to repeat it. A third side reads nothing.
//!
//! Each side has a runtime like the gate's, and is called over kept connections from one more
//! thread. The sides take turns. A connection lasts a turn, since the gate closes connections that
//! are idle while others have theirs. The sides share the machine, so the caller's own work is in
//! all results. The processor time of the server's threads is shown separately.

mod bare;
mod caller;
mod gate;
mod processor;
mod reviews;
mod round;
mod spread;
mod table;
mod turn;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use http::{Response, StatusCode};
use kube::Client;
use kube::client::Body;
use mimalloc::MiMalloc;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use bare::Reads;
use caller::Caller;
use gate::{Gate, Tls};
use reviews::Reviews;
use spread::Spread;
use table::Table;
use turn::{Serves, Turn};

/// The allocator of the shipped binary, for all sides.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const PATH: &str = "/validate/pods";
/// A review as the API server sends it, with managed fields.
const REVIEW: &str = include_str!("foreign_pod.json");

const CONNECTIONS: usize = 8;
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(1200);
const WARM_UP: Duration = Duration::from_secs(2);

fn main() -> Result<()> {
    quorumgate::install_crypto_provider();
    let directory = tempfile::tempdir()?;
    let _log = gate::log_to(&directory)?;
    let servers = [
        Server::start("gate")?,
        Server::start("bare")?,
        Server::start("blind")?,
    ];
    Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(measure(&servers, &Tls::new(&directory)?))
}

async fn measure([gate, bare, blind]: &[Server; 3], tls: &Tls) -> Result<()> {
    let mut reviews = Reviews::new(PATH, &serde_json::from_str(REVIEW)?)?;
    let reads = Arc::new(AtomicU64::new(0));

    let (client, settings) = (unhelpful(Arc::clone(&reads)), tls.clone());
    let serving = async move { Gate::over(&client).listen(&settings).await };
    let address = gate.runtime.spawn(serving).await??;
    let gate = Side {
        server: gate,
        address,
        tls,
    };
    let answer = gate.answer(&mut reviews).await?;
    let allowed: Value = serde_json::from_slice(&answer)?;
    ensure!(
        allowed.pointer("/response/allowed") == Some(&true.into()),
        "the gate does not let it pass: {allowed}"
    );

    let bare = Side::bare(bare, Reads::Uid, &answer, &reviews, tls).await?;
    let blind = Side::bare(blind, Reads::Nothing, &answer, &reviews, tls).await?;
    let sides = [gate, bare, blind];
    let again = reviews.clone();
    let other = sides[1].answer(&mut again.clone()).await?;
    ensure!(
        other == sides[0].answer(&mut again.clone()).await? && other != answer,
        "the answers have to be the same, and of this very review"
    );

    for side in &sides {
        side.round(&reviews, WARM_UP).await?;
    }
    reads.store(0, Ordering::Relaxed);
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let [gate, bare, blind] = &sides;
        rounds.push(Turns {
            gate: gate.round(&reviews, ROUND).await?,
            bare: bare.round(&reviews, ROUND).await?,
            blind: blind.round(&reviews, ROUND).await?,
        });
    }
    report(&rounds, reviews.length(), reads.load(Ordering::Relaxed))
}

/// The turns of all sides in one round.
struct Turns {
    gate: Turn,
    bare: Turn,
    blind: Turn,
}

/// The choice of one side of a round.
type Pick = fn(&Turns) -> &Turn;

fn report(rounds: &[Turns], bytes: usize, reads: u64) -> Result<()> {
    let (gate, bare, blind): (Pick, Pick, Pick) = (|t| &t.gate, |t| &t.bare, |t| &t.blind);
    let ratio = |number: fn(&Turn) -> f64, to: Pick| {
        let ratios = rounds
            .iter()
            .map(|turns| number(&turns.gate) / number(to(turns)));
        Spread::from_numbers(ratios)
    };
    let each = |number: fn(&Turn) -> f64, side: Pick| {
        Spread::from_numbers(rounds.iter().map(|turns| number(side(turns))))
    };
    let throughput = |turn: &Turn| turn.calls / turn.took;
    let p99 = |turn: &Turn| turn.round.percentile(99);
    let processor = |turn: &Turn| turn.processor / turn.calls;
    let micros = |turn: &Turn| 1e6 * turn.processor / turn.calls;
    let calls: f64 = rounds.iter().map(|turns| turns.gate.calls).sum();
    let reads = u32::try_from(reads).map_or(f64::INFINITY, f64::from) / calls;
    let title = format!(
        "Pass-through: the gate against a bare responder, a foreign pod of {bytes} bytes over TLS, {CONNECTIONS} connections, {ROUNDS} rounds in turns"
    );
    Table::new(title)
        .row("throughput, gate / bare", ratio(throughput, bare), 0.8..)
        .row("p99, gate / bare", ratio(p99, bare), ..=1.25)
        .row(
            "reads of the Kubernetes API per call",
            Spread::once(reads),
            ..=0.0,
        )
        .row(
            "processor time of the server per call, gate / bare",
            ratio(processor, bare),
            ..,
        )
        .row(
            "throughput, gate / responder that reads nothing",
            ratio(throughput, blind),
            ..,
        )
        .row(
            "p99, gate / responder that reads nothing",
            ratio(p99, blind),
            ..,
        )
        .row("gate: processor time per call, µs", each(micros, gate), ..)
        .row("bare: processor time per call, µs", each(micros, bare), ..)
        .row("reads nothing: processor time, µs", each(micros, blind), ..)
        .row("gate: calls per second", each(throughput, gate), ..)
        .row("bare: calls per second", each(throughput, bare), ..)
        .row(
            "gate: p99, µs",
            each(|turn| 1e6 * turn.round.percentile(99), gate),
            ..,
        )
        .row(
            "bare: p99, µs",
            each(|turn| 1e6 * turn.round.percentile(99), bare),
            ..,
        )
        .print()?;
    Ok(())
}

/// A side and its address.
struct Side<'a> {
    server: &'a Server,
    address: SocketAddr,
    tls: &'a Tls,
}

impl Serves for Side<'_> {
    async fn connected(&self) -> Result<Caller> {
        Caller::connect(self.address, &self.tls.authority).await
    }

    fn processor_time(&self) -> Result<f64> {
        self.server.processor_time()
    }
}

impl<'a> Side<'a> {
    async fn round(&self, reviews: &Reviews, length: Duration) -> Result<Turn> {
        Turn::take(self, reviews, CONNECTIONS, length).await
    }

    /// A bare responder that answers as the gate answered the last of `reviews`.
    async fn bare(
        server: &'a Server,
        reads: Reads,
        answer: &[u8],
        reviews: &Reviews,
        tls: &'a Tls,
    ) -> Result<Self> {
        let (config, answer) = (Arc::clone(&tls.config), answer.to_vec());
        let uid = reviews.uid()?.to_owned();
        let serving = async move { bare::listen(config, PATH, reads, &answer, &uid).await };
        let address = server.runtime.spawn(serving).await??;
        Ok(Self {
            server,
            address,
            tls,
        })
    }

    async fn answer(&self, reviews: &mut Reviews) -> Result<Vec<u8>> {
        let mut caller = self.connected().await?;
        Ok(caller.call(reviews.next()).await?.to_vec())
    }
}

/// A runtime like the gate's, for one side.
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

    /// The processor time of its threads in seconds.
    fn processor_time(&self) -> Result<f64> {
        processor::time("self", |thread| thread == self.name)
    }
}

/// A client for a Kubernetes API without any object, which counts its requests.
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
