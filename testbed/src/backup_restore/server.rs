//! The listener of the stand-in, which records every request before it answers.

use std::convert::Infallible;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{BackupRestoreCommand, Counts, LATEST};

pub(super) async fn serve(command: BackupRestoreCommand, counts: Arc<Mutex<Counts>>) -> Result<()> {
    let listener = TcpListener::bind((command.address, command.server_port)).await?;
    let tls = acceptor(&command)?;
    let command = Arc::new(command);
    loop {
        let (stream, _) = listener.accept().await?;
        let (command, counts, tls) = (Arc::clone(&command), Arc::clone(&counts), tls.clone());
        tokio::spawn(async move {
            match tls {
                None => answer_all(stream, command, counts).await,
                // A client that does not trust the certificate has sent no request.
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        answer_all(stream, command, counts).await;
                    }
                }
            }
        });
    }
}

fn acceptor(command: &BackupRestoreCommand) -> Result<Option<TlsAcceptor>> {
    let (Some(certificate), Some(key)) = (&command.server_cert, &command.server_key) else {
        return Ok(None);
    };
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

async fn answer_all<S>(stream: S, command: Arc<BackupRestoreCommand>, counts: Arc<Mutex<Counts>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(|request: Request<Incoming>| {
        let answer = answer(&command, &counts, &request);
        let answer = answer.unwrap_or_else(|error| {
            tracing::error!("{error:#}");
            of(StatusCode::INTERNAL_SERVER_ERROR, String::new())
        });
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    // A client that hangs up is none of its business.
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let _ = connection.await;
}

fn answer(
    command: &BackupRestoreCommand,
    counts: &Mutex<Counts>,
    request: &Request<Incoming>,
) -> Result<Response<Full<Bytes>>> {
    record(command, request)?;
    Ok(match request.uri().path() {
        "/metrics" => {
            let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            of(StatusCode::OK, counts.page())
        }
        "/snapshot/latest" => match fs::read_to_string(command.directory.join(LATEST)) {
            Ok(answer) => of(StatusCode::OK, answer),
            // So it answers where it does not lead, or no store is configured.
            Err(_) => of(StatusCode::METHOD_NOT_ALLOWED, String::new()),
        },
        _ => of(StatusCode::OK, String::new()),
    })
}

fn of(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
}

fn record(command: &BackupRestoreCommand, request: &Request<Incoming>) -> Result<()> {
    fs::create_dir_all(&command.directory)?;
    let path = command.directory.join(format!("{}.requests", command.pod));
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let mut file = file.with_context(|| format!("cannot record in {}", path.display()))?;
    let line = format!("{} {}\n", request.method(), request.uri());
    Ok(file.write_all(line.as_bytes())?)
}
