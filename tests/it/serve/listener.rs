//! A listener under test on the loopback interface, and its clients.

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use quorumgate::clock::Clock;
use quorumgate::serve::certificate::{Certificate, Files};
use quorumgate::serve::{Callers, ServeLimits, Shutdown, Transport, serve};
use quorumgate::telemetry::metrics::Metrics;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

/// A time limit that is long enough for a busy machine, and short enough to notice a hang.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The pause between two checks of the certificate files.
const POLL: Duration = Duration::from_millis(20);

/// A certificate authority.
pub(crate) type Issuer = CertifiedIssuer<'static, KeyPair>;

pub(crate) fn authority() -> Issuer {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate authority, and a Secret mounted as a kubelet does it: its files are links into
/// `..data`, which is a link itself.
pub(crate) struct Pki {
    authority: Issuer,
    mount: TempDir,
    generation: u32,
    callers: Option<Callers>,
}

impl Pki {
    pub(crate) fn new() -> Self {
        let mount = TempDir::new().unwrap();
        for file in ["tls.crt", "tls.key"] {
            symlink(format!("..data/{file}"), mount.path().join(file)).unwrap();
        }
        let mut pki = Self {
            authority: authority(),
            mount,
            generation: 0,
            callers: None,
        };
        pki.rotate();
        pki
    }

    /// Makes the listener accept only callers of this authority, and only under one of these names
    /// if there are any.
    pub(crate) fn ask_callers(&mut self, authority: &Issuer, names: &[&str]) {
        self.callers = Some(Callers {
            authorities: self.mount.path().join("callers.crt"),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        });
        self.trust_callers_of(&authority.pem());
    }

    /// Writes the file with the authorities of callers.
    pub(crate) fn trust_callers_of(&self, pem: &str) {
        std::fs::write(self.mount.path().join("callers.crt"), pem).unwrap();
    }

    pub(crate) fn files(&self) -> Files {
        Files {
            certificate: self.mount.path().join("tls.crt"),
            key: self.mount.path().join("tls.key"),
            callers: self.callers.clone(),
        }
    }

    /// Replaces certificate and key by a new pair, by a swap of links. Returns the new certificate.
    pub(crate) fn rotate(&mut self) -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["gate.test".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        self.publish(&certificate.pem(), &key.serialize_pem());
        certificate.der().clone()
    }

    pub(crate) fn publish(&mut self, certificate: &str, key: &str) {
        self.generation += 1;
        let name = format!("..generation-{}", self.generation);
        let directory = self.mount.path().join(&name);
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("tls.crt"), certificate).unwrap();
        std::fs::write(directory.join("tls.key"), key).unwrap();
        let (fresh, data) = (self.path("..data_tmp"), self.path("..data"));
        symlink(&name, &fresh).unwrap();
        std::fs::rename(&fresh, &data).unwrap();
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        Path::new(self.mount.path()).join(name)
    }

    /// The settings of a client that trusts this authority and shows this certificate, if any.
    pub(crate) fn client_config(
        &self,
        shown: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match shown {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(vec![certificate], key)
                .unwrap(),
        };
        // A resumed session would show the certificate of the session's start.
        config.resumption = rustls::client::Resumption::disabled();
        config
    }
}

/// A running listener.
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    pub(crate) shutdown: Shutdown,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) certificate: Arc<Certificate>,
    pub(crate) ended: JoinHandle<()>,
    connector: TlsConnector,
}

impl Listener {
    pub(crate) async fn start(pki: &Pki, router: Router, limits: ServeLimits) -> Self {
        let metrics = Arc::new(Metrics::new());
        let certificate =
            Certificate::open(pki.files(), Clock::system(), Arc::clone(&metrics)).unwrap();
        let certificate = Arc::new(certificate);
        tokio::spawn(Arc::clone(&certificate).watch(POLL, CancellationToken::new()));
        let config = Arc::clone(&certificate).server_config().unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let shutdown = Shutdown::default();
        let transport = Transport::Tls(Arc::new(config));
        let ended = tokio::spawn(serve(socket, transport, router, shutdown.clone(), limits));
        Self {
            address,
            shutdown,
            metrics,
            certificate,
            ended,
            connector: TlsConnector::from(Arc::new(pki.client_config(None))),
        }
    }

    /// Makes later calls use this TLS configuration.
    pub(crate) fn called_with(&mut self, config: ClientConfig) {
        self.connector = TlsConnector::from(Arc::new(config));
    }

    /// A connection after its handshake.
    pub(crate) async fn handshake(&self) -> std::io::Result<TlsStream<TcpStream>> {
        self.handshake_over(TcpStream::connect(self.address).await?)
            .await
    }

    /// A TLS connection over an existing TCP connection.
    pub(crate) async fn handshake_over(
        &self,
        stream: TcpStream,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("gate.test").unwrap();
        self.connector.connect(name, stream).await
    }

    /// The certificate that a new connection receives.
    pub(crate) async fn shown(&self) -> CertificateDer<'static> {
        let stream = self.handshake().await.unwrap();
        let chain = stream.get_ref().1.peer_certificates().unwrap();
        chain.first().unwrap().clone().into_owned()
    }

    /// Waits until new connections receive this certificate.
    pub(crate) async fn shows_soon(&self, expected: &CertificateDer<'_>) {
        let shown = async {
            while self.shown().await != *expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, shown)
            .await
            .expect("the new certificate is not served");
    }

    /// A connection for requests.
    pub(crate) async fn connect(&self) -> std::io::Result<Client> {
        Client::on(self.handshake().await?).await
    }
}

/// A keep-alive connection.
pub(crate) struct Client {
    requests: SendRequest<Full<Bytes>>,
    /// The task that ends with the connection.
    pub(crate) ended: JoinHandle<()>,
}

impl Client {
    pub(crate) async fn on(stream: TlsStream<TcpStream>) -> std::io::Result<Self> {
        let (requests, connection) = handshake(TokioIo::new(stream))
            .await
            .map_err(std::io::Error::other)?;
        let ended = tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Self { requests, ended })
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<Response<String>, hyper::Error> {
        self.requests.ready().await?;
        let request = Request::get(path)
            .header("host", "gate.test")
            .body(Full::default())
            .unwrap();
        let (parts, body) = self.requests.send_request(request).await?.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Ok(Response::from_parts(parts, text))
    }
}

/// The text of a plain response.
pub(crate) async fn text(response: axum::http::Response<Body>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}
