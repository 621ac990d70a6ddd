//! The client certificates and TLS versions that the listener accepts.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use quorumgate::serve::ServeLimits;
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::ClientConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::listener::{Issuer, Listener, Pki, SOON, authority};

/// The TLS settings of a caller with a certificate of this issuer, with a common name and a DNS
/// name.
fn caller(pki: &Pki, issuer: &Issuer, common: &str, dns: &str) -> ClientConfig {
    let mut params = CertificateParams::new(vec![dns.to_owned()]).unwrap();
    params
        .distinguished_name
        .push(DnType::CommonName, common.to_owned());
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    pki.client_config(Some((certificate.der().clone(), key)))
}

async fn listener(pki: &Pki) -> Listener {
    let router = Router::new().route("/", get(|| async { "ok" }));
    Listener::start(pki, router, ServeLimits::default()).await
}

/// Whether a call on a new connection is answered. With TLS 1.3 a caller is rejected only after its
/// side of the handshake.
async fn is_answered(listener: &Listener) -> bool {
    let Ok(mut client) = listener.connect().await else {
        return false;
    };
    client.get("/").await.is_ok()
}

#[tokio::test]
async fn callers_without_a_certificate_of_the_authority_are_turned_away() {
    let (ours, theirs) = (authority(), authority());
    let mut pki = Pki::new();
    pki.ask_callers(&ours, &[]);
    let mut listener = listener(&pki).await;
    assert!(!is_answered(&listener).await, "without any certificate");
    listener.called_with(caller(&pki, &theirs, "kube-apiserver", "api.test"));
    assert!(
        !is_answered(&listener).await,
        "with a certificate of another authority"
    );
    listener.called_with(caller(&pki, &ours, "anybody", "any.test"));
    assert!(is_answered(&listener).await, "with one of the authority");
}

#[tokio::test]
async fn where_callers_are_named_a_certificate_has_to_carry_one_of_the_names() {
    let ours = authority();
    let mut pki = Pki::new();
    pki.ask_callers(&ours, &["kube-apiserver", "api.test"]);
    let mut listener = listener(&pki).await;
    for (common, dns, answered) in [
        ("system:node:a", "node.test", false),
        ("kube-apiserver", "node.test", true),
        ("system:node:a", "api.test", true),
        ("kube-apiserver.evil", "api.test.evil", false),
    ] {
        listener.called_with(caller(&pki, &ours, common, dns));
        assert_eq!(is_answered(&listener).await, answered, "{common} {dns}");
    }
}

#[tokio::test]
async fn authorities_are_read_again_and_bad_ones_change_nothing() {
    let (before, after) = (authority(), authority());
    let mut pki = Pki::new();
    pki.ask_callers(&before, &[]);
    let mut listener = listener(&pki).await;

    pki.trust_callers_of("nothing of the kind");
    let failed = async {
        let said = || prometheus(&listener, "certificate_reload_failures_total");
        while said() == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, failed).await.unwrap();
    listener.called_with(caller(&pki, &before, "kube-apiserver", "api.test"));
    assert!(is_answered(&listener).await, "what was in use stays");

    pki.trust_callers_of(&after.pem());
    let turned_away = async {
        while is_answered(&listener).await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, turned_away).await.unwrap();
    listener.called_with(caller(&pki, &after, "kube-apiserver", "api.test"));
    assert!(is_answered(&listener).await, "the new one is trusted");
}

/// A counter of the listener's metrics.
fn prometheus(listener: &Listener, name: &str) -> u64 {
    let page = listener.metrics.exposition().unwrap();
    let line = page
        .lines()
        .find(|line| line.contains(name) && !line.starts_with('#'));
    let number = line.and_then(|line| line.rsplit(' ').next());
    number.expect("no such counter").parse().unwrap()
}

/// A `ClientHello` that offers nothing newer than TLS 1.1.
const OLD_HELLO: &[u8] = &[
    22, 3, 1, 0, 59, // handshake, 59 bytes
    1, 0, 0, 55, // ClientHello, 55 bytes
    3, 2, // TLS 1.1
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
    26, 27, 28, 29, 30, 31, // random
    0,  // no session
    0, 4, 0xc0, 0x13, 0, 0x2f, // two cipher suites of that time
    1, 0, // no compression
    0, 10, 0, 13, 0, 6, 0, 4, 4, 1, 4, 3, // extensions: two signature algorithms
];

/// The type of a TLS record with an alert.
const ALERT: u8 = 21;
/// The fatal alert for an unsupported protocol version.
const PROTOCOL_VERSION: [u8; 2] = [2, 70];

#[tokio::test]
async fn tls_1_1_is_refused() {
    let pki = Pki::new();
    let listener = listener(&pki).await;
    let mut stream = TcpStream::connect(listener.address).await.unwrap();
    stream.write_all(OLD_HELLO).await.unwrap();
    let mut answer = [0; 7];
    timeout(SOON, stream.read_exact(&mut answer))
        .await
        .unwrap()
        .unwrap();
    let [kind, _, _, _, _, alert @ ..] = answer;
    assert_eq!((kind, alert), (ALERT, PROTOCOL_VERSION));
}

#[tokio::test]
async fn no_session_is_resumed() {
    let pki = Pki::new();
    let mut listener = listener(&pki).await;
    let mut config = pki.client_config(None);
    config.resumption = rustls::client::Resumption::in_memory_sessions(8);
    listener.called_with(config);
    for _ in 0..2 {
        let mut client = listener.handshake().await.unwrap();
        client
            .write_all(b"GET / HTTP/1.1\r\nhost: gate.test\r\n\r\n")
            .await
            .unwrap();
        let mut some = [0; 12];
        client.read_exact(&mut some).await.unwrap();
        let kind = client.get_ref().1.handshake_kind();
        assert_eq!(kind, Some(rustls::HandshakeKind::Full));
    }
}
