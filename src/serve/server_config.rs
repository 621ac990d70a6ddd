//! The TLS configuration of a listener. Certificate and authorities of callers may change under it.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme, version,
};

use super::callers::Callers;
use super::certificate::Certificate;
use crate::crypto;

impl Certificate {
    /// A TLS configuration that serves the certificate in use at the time of each handshake, and
    /// asks callers for a certificate where callers are checked.
    pub fn server_config(self: Arc<Self>) -> Result<ServerConfig, rustls::Error> {
        let versions = &[&version::TLS13, &version::TLS12];
        let builder = ServerConfig::builder_with_provider(crypto::provider())
            .with_protocol_versions(versions)?;
        let builder = match self.callers().cloned() {
            None => builder.with_no_client_auth(),
            Some(callers) => builder.with_client_cert_verifier(Arc::new(CallerVerifier {
                callers,
                certificate: Arc::clone(&self),
            })),
        };
        let mut config = builder.with_cert_resolver(self);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // A resumed session would not show its certificate again. API servers keep their
        // connections, and resume none.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

/// A verifier that uses the authorities in use at the time of each handshake.
#[derive(Debug)]
struct CallerVerifier {
    callers: Callers,
    certificate: Arc<Certificate>,
}

impl CallerVerifier {
    fn authorities(&self) -> Result<Arc<dyn ClientCertVerifier>, Error> {
        let verifier = self.certificate.caller_verifier();
        verifier.ok_or_else(|| Error::General("no authorities to verify callers with".into()))
    }
}

impl ClientCertVerifier for CallerVerifier {
    /// No hints: the authorities may change under this configuration, and a caller has only one
    /// certificate to show.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .authorities()?
            .verify_client_cert(end_entity, intermediates, now)?;
        self.callers.check_name(end_entity).map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities()?
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities()?
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        crypto::provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
