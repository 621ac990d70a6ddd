use axum::Router;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpSocket};

use super::*;
use crate::reachability::{PeerPage, beside};
use crate::serve::admin::Checks;
use crate::serve::{ServeLimits, Shutdown, Transport, serve};

/// A transport that may insist on client certificates.
fn transport(insists: bool) -> Transport {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["gate.test".to_owned()]).unwrap();
    let provider = crate::crypto::provider();
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if insists {
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let callers = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.with_client_cert_verifier(callers.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let config = builder.with_single_cert(vec![cert.der().clone()], key);
    Transport::Tls(Arc::new(config.unwrap()))
}

/// Starts a peer with this readiness, which may insist on client certificates, and returns its
/// address.
async fn peer(ready: bool, insists: bool) -> SocketAddr {
    let transport = transport(insists);
    let said = move || {
        if ready {
            Ok(())
        } else {
            Err("not now".to_owned())
        }
    };
    let view = PeerPage::default();
    view.reaches(["gate-b", "gate-c"].into_iter());
    let router = beside(
        Router::new(),
        Arc::new(Checks::new().with("test", said)),
        view,
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = ServeLimits::default();
    tokio::spawn(serve(
        listener,
        transport,
        router,
        Shutdown::default(),
        limits,
    ));
    address
}

/// Probes until there is an answer: a busy machine may take longer than one probe waits.
async fn answer(peer: SocketAddr) -> PeerAnswer {
    let prober = Prober::new().unwrap();
    let asked = async {
        loop {
            match prober.ask(peer).await {
                PeerAnswer::Silent => {}
                answer => return answer,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), asked)
        .await
        .expect("it does not answer")
}

#[tokio::test]
async fn a_peer_says_whether_it_is_ready_and_whom_it_reaches() {
    let reaches = ["gate-b", "gate-c"].map(str::to_owned);
    assert_eq!(
        answer(peer(true, false).await).await,
        PeerAnswer::Ready(reaches.into())
    );
    assert_eq!(answer(peer(false, false).await).await, PeerAnswer::Unready);
}

#[tokio::test]
async fn one_that_turns_callers_without_a_certificate_away_is_there_and_says_nothing() {
    assert_eq!(answer(peer(false, true).await).await, PeerAnswer::Mute);
}

#[tokio::test]
async fn so_does_one_of_a_release_that_does_not_know_the_question() {
    let transport = transport(false);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (shutdown, limits) = (Shutdown::default(), ServeLimits::default());
    tokio::spawn(serve(listener, transport, Router::new(), shutdown, limits));
    assert_eq!(answer(address).await, PeerAnswer::Mute);
}

#[tokio::test]
async fn one_that_accepts_and_says_nothing_is_silent_and_so_is_nobody() {
    let prober = Prober::new().unwrap();
    let frozen = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = frozen.local_addr().unwrap();
    assert_eq!(prober.ask(address).await, PeerAnswer::Silent);
    // Bound and not listening, it refuses connections, and nobody else can get its port.
    let refusing = TcpSocket::new_v4().unwrap();
    refusing.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nobody = refusing.local_addr().unwrap();
    assert_eq!(prober.ask(nobody).await, PeerAnswer::Silent);
}
