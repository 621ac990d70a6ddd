//! The probe of a peer: asks it over a new TLS connection to the port of the webhooks, as an API
//! server would, whether it is ready.

use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::page::{PATH, REACHES};
use super::rule::PeerAnswer;
use crate::crypto;

/// The time limit of a probe. A webhook call may take longer, but three probes have to end within
/// two seconds.
const PATIENCE: Duration = Duration::from_millis(400);

type Problem = Box<dyn Error + Send + Sync>;

/// Probes peers.
#[derive(Clone)]
pub(super) struct Prober(TlsConnector);

impl Prober {
    pub(super) fn new() -> Result<Self, rustls::Error> {
        let provider = crypto::provider();
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Probes the peer at this address.
    pub(super) async fn ask(&self, peer: SocketAddr) -> PeerAnswer {
        match tokio::time::timeout(PATIENCE, self.exchange(peer)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(problem)) if is_alert(problem.as_ref()) => PeerAnswer::Mute,
            Ok(Err(problem)) => {
                tracing::debug!(%peer, problem, "peer did not answer");
                PeerAnswer::Silent
            }
            Err(_) => PeerAnswer::Silent,
        }
    }

    async fn exchange(&self, peer: SocketAddr) -> Result<PeerAnswer, Problem> {
        let stream = TcpStream::connect(peer).await?;
        stream.set_nodelay(true)?;
        let stream = self.0.connect(ServerName::from(peer.ip()), stream).await?;
        let (mut requests, connection) = handshake(TokioIo::new(stream)).await?;
        let request = Request::get(PATH)
            .header(header::HOST, peer.to_string())
            .header(header::CONNECTION, "close")
            .body(Body::empty())?;
        let mut connection = pin!(connection);
        let mut response = pin!(requests.send_request(request));
        let response = tokio::select! {
            biased;
            response = &mut response => response?,
            ended = &mut connection => {
                ended?;
                response.await?
            }
        };
        Ok(match response.status() {
            StatusCode::OK => PeerAnswer::Ready(reached(response.headers())),
            StatusCode::SERVICE_UNAVAILABLE => PeerAnswer::Unready,
            // An older release, which does not have the page.
            _ => PeerAnswer::Mute,
        })
    }
}

fn reached(headers: &HeaderMap) -> BTreeSet<String> {
    let header = headers.get(REACHES).and_then(|value| value.to_str().ok());
    let names = header.unwrap_or_default().split(',');
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Whether a TLS alert ended the connection: a peer that requires client certificates refused this
/// one. The peer lives, but says nothing more.
fn is_alert(problem: &(dyn Error + 'static)) -> bool {
    let mut next = Some(problem);
    while let Some(error) = next {
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        let alert = |error: &rustls::Error| matches!(error, rustls::Error::AlertReceived(_));
        let found = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if found
            .or_else(|| error.downcast_ref::<rustls::Error>())
            .is_some_and(alert)
        {
            return true;
        }
        next = error.source();
    }
    false
}

/// A verifier that accepts any certificate whose key the peer holds. A probe sends nothing secret,
/// and only concludes that somebody answers at a peer's address. An impostor there would also
/// receive the calls of API servers, and these do verify the certificate.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
