//! Fuzz target for the answers of an etcd member, as it sends them over HTTP/2: a status, a read
//! and a member list.
//!
//! Whatever the member sends, the probe ends in time, a failure proves nothing, and the memory
//! stays within the bound.

use std::cell::OnceCell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Request, Response};
use futures::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use quorumgate::clock::Clock;
use quorumgate::etcd::{Connections, Endpoint, Prober};
use quorumgate::quorum::PodUid;
use quorumgate::quorum::evidence::{Probe, Target};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::memory::bounded;

/// The next answers of the member.
#[derive(Default)]
struct Script {
    status: Vec<u8>,
    read: Vec<u8>,
    members: Vec<u8>,
    /// gRPC's status code, 0 for success.
    code: u8,
}

type Shared = Arc<Mutex<Script>>;

struct Member {
    runtime: Runtime,
    script: Shared,
    address: SocketAddr,
    prober: Prober,
}

thread_local! {
    static MEMBER: OnceCell<Member> = const { OnceCell::new() };
}

impl Member {
    fn new() -> Self {
        quorumgate::install_crypto_provider();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        // Rust's own main ignores SIGPIPE, and libFuzzer's does not: a peer that closes a
        // connection in the middle of a write would end the process.
        drop(runtime.block_on(async { signal(SignalKind::pipe()).unwrap() }));
        let script = Shared::default();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&script));
        runtime.spawn(async { axum::serve(listener, router).await });
        let clock = Clock::system();
        let prober = Prober::new(Connections::new(clock.clone()), clock);
        Self {
            runtime,
            script,
            address,
            prober,
        }
    }

    /// Sets the next answers. Returns their size in bytes.
    fn learn(&self, script: Script) -> usize {
        let sent = script.status.len() + script.read.len() + script.members.len();
        *self.script.lock().unwrap_or_else(PoisonError::into_inner) = script;
        sent
    }

    fn probe(&self) -> Probe {
        let endpoints = [Endpoint {
            target: Target::Pod(PodUid::new("fuzzed")),
            address: self.address.to_string(),
            server_names: Vec::new(),
            tls: None,
        }];
        let deadline = Instant::now() + Duration::from_millis(500);
        let round = self.prober.round(&endpoints, deadline);
        let round = self.runtime.block_on(round);
        assert!(
            Instant::now() < deadline + Duration::from_secs(5),
            "the probe outlived its deadline"
        );
        let [probe] = <[Probe; 1]>::try_from(round.probes).unwrap();
        probe
    }
}

async fn answer(State(script): State<Shared>, request: Request<Body>) -> Response<Body> {
    let script = script.lock().unwrap_or_else(PoisonError::into_inner);
    let message = match request.uri().path() {
        "/etcdserverpb.Maintenance/Status" => &script.status,
        "/etcdserverpb.KV/Range" => &script.read,
        _ => &script.members,
    };
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let message = [&[0][..], &length.to_be_bytes(), message].concat();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(u16::from(script.code)));
    let frames = [Frame::data(Bytes::from(message)), Frame::trailers(trailers)];
    let body = StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>)));
    let mut answer = Response::new(Body::new(body));
    let grpc = HeaderValue::from_static("application/grpc");
    answer.headers_mut().insert("content-type", grpc);
    answer
}

/// Runs the target. The first three bytes are gRPC's status and the lengths of the status and of
/// the read. The rest is the member list.
pub(crate) fn run(bytes: &[u8]) {
    let [code, status, read, rest @ ..] = bytes else {
        return;
    };
    let (status, rest) = rest.split_at(usize::from(*status).min(rest.len()));
    let (read, members) = rest.split_at(usize::from(*read).min(rest.len()));
    let script = Script {
        status: status.to_vec(),
        read: read.to_vec(),
        members: members.to_vec(),
        code: code % 17,
    };
    let failed = script.code != 0;
    let probe = MEMBER.with(|member| {
        let member = member.get_or_init(Member::new);
        let sent = member.learn(script);
        bounded(sent, || member.probe())
    });
    // A read that fails for lack of permission proves contact with a majority, since etcd confirms
    // the read first.
    if failed {
        assert!(probe.status.is_err() && probe.members.is_err(), "{probe:?}");
    }
}

/// The number of members that are accepted from a list of `count` members. The members are the
/// smallest possible, two bytes each, so that their memory is largest compared with the text.
#[cfg(test)]
pub(crate) fn small_members(
    count: usize,
) -> Result<usize, quorumgate::quorum::evidence::Unanswered> {
    let script = Script {
        // A status of member 7 in cluster 5, which leads.
        status: vec![10, 4, 8, 5, 16, 7, 32, 7, 40, 1, 48, 2],
        read: vec![10, 4, 8, 5, 16, 7],
        // A field with the number 2 and the length 0.
        members: [18, 0].repeat(count),
        code: 0,
    };
    let probe = MEMBER.with(|member| {
        let member = member.get_or_init(Member::new);
        // The member sends copies of the answers. Their memory is bounded, however long they are.
        let copies = 4 * member.learn(script);
        crate::memory::within(copies + 8 * 1024 * 1024, || member.probe())
    });
    assert!(probe.status.is_ok() && probe.read.is_ok(), "{probe:?}");
    probe.members.map(|members| members.len())
}
