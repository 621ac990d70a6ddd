//! HTTP probes: one request, of which only the status line matters. Certificates are not verified,
//! as with a kubelet.

use std::sync::{Arc, LazyLock};

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::HTTPGetAction;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Makes one request. Fails without a connection, without an answer, or with a status other than
/// 2xx and 3xx.
pub(super) async fn get(host: &str, port: u16, action: &HTTPGetAction) -> anyhow::Result<()> {
    let stream = TcpStream::connect((host, port))
        .await
        .with_context(|| format!("dial tcp {host}:{port}"))?;
    let authority = if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    };
    let request = request(&authority, action);
    let status = if action.scheme.as_deref() == Some("HTTPS") {
        let name = ServerName::try_from(host.to_owned())?;
        let stream = CONNECTOR
            .as_ref()
            .map_err(|e| anyhow::anyhow!("{e}"))?
            .connect(name, stream);
        ask(stream.await.context("TLS handshake")?, &request).await?
    } else {
        ask(stream, &request).await?
    };
    if !(200..400).contains(&status) {
        bail!("HTTP probe failed with statuscode: {status}");
    }
    Ok(())
}

fn request(authority: &str, action: &HTTPGetAction) -> String {
    let path = action
        .path
        .as_deref()
        .filter(|p| !p.is_empty())
        .unwrap_or("/");
    let slash = if path.starts_with('/') { "" } else { "/" };
    let headers = action.http_headers.iter().flatten();
    let mut lines: Vec<_> = headers
        .map(|h| format!("{}: {}", h.name, h.value))
        .collect();
    let has = |name: &str| {
        lines
            .iter()
            .any(|l| l.to_ascii_lowercase().starts_with(name))
    };
    let mut defaults = Vec::new();
    for (name, value) in [
        ("Host", authority),
        ("User-Agent", "kube-probe/1"),
        ("Accept", "*/*"),
    ] {
        if !has(&format!("{}:", name.to_ascii_lowercase())) {
            defaults.push(format!("{name}: {value}"));
        }
    }
    lines.extend(defaults);
    format!(
        "GET {slash}{path} HTTP/1.1\r\nConnection: close\r\n{}\r\n\r\n",
        lines.join("\r\n")
    )
}

async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &str,
) -> anyhow::Result<u16> {
    stream.write_all(request.as_bytes()).await?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await?;
    let status = line
        .split(' ')
        .nth(1)
        .and_then(|code| code.trim().parse().ok());
    status.with_context(|| format!("no HTTP status in {line:?}"))
}

static CONNECTOR: LazyLock<Result<TlsConnector, rustls::Error>> = LazyLock::new(|| {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Unverified(provider)))
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
});

/// Accepts every certificate, since a probe asks only whether the process answers.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    async fn answered_with(status: &'static str) -> anyhow::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 1024];
            let n = stream.read(&mut buffer).await.unwrap();
            stream
                .write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes())
                .await
                .unwrap();
            String::from_utf8_lossy(&buffer[..n]).into_owned()
        });
        let action = HTTPGetAction {
            path: Some("health".to_owned()),
            ..HTTPGetAction::default()
        };
        let result = get("127.0.0.1", port, &action).await;
        assert!(server.await?.starts_with("GET /health HTTP/1.1\r\n"));
        result
    }

    #[tokio::test]
    async fn statuses_from_200_to_399_are_success() {
        assert!(answered_with("200 OK").await.is_ok());
        assert!(answered_with("302 Found").await.is_ok());
        let refused = answered_with("503 Service Unavailable").await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "HTTP probe failed with statuscode: 503"
        );
    }
}
