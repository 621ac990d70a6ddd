//! A connection to a member: TCP, TLS with the member's name, HTTP/2, and etcd's client on top.
//!
//! The client library's own channel is not used, for three reasons. A failed attempt is a typed
//! error here; "refused" is evidence, a timeout is not. A broken connection is known to be broken.
//! And nothing reconnects or backs off by itself, so a member that came back is reached by the next
//! round.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions};
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::Timestamp;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service};

use super::endpoint::Endpoint;
use super::external::{ExternalDialer, Outbound};
use super::failure::{self, CallFailure, Failure};
use super::fault::{Fault, FaultStream};
use super::obstacle::Obstacle;
use super::read_after_hangup::ReadAfterHangup;
use super::tls::{TlsIdentity, User};
use crate::causes::causes;
use crate::quorum::evidence::{Target, Unanswered};

/// The time after which the kernel gives up a silent peer. Idle connections send TCP keepalives,
/// and sent bytes have to be acknowledged. HTTP/2 pings are no alternative, since etcd closes
/// connections that ping without a call.
const SILENCE: Duration = Duration::from_secs(10);

/// The longest answer in bytes that is read. Any process that runs in a member's pod can send
/// answers, and a parsed answer takes about a hundred times its bytes in memory. The longest
/// accepted member list has half a KiB for each member.
const LONGEST_ANSWER: u32 = 64 * 1024;

/// Most bytes that wait in a connection to be read (the HTTP/2 connection window).
const MOST_WAITING: u32 = 4 * LONGEST_ANSWER;

/// The first byte of an alert in TLS.
const TLS_ALERT: u8 = 21;

/// An open connection. Dropping it closes it at once.
pub(super) struct Connection {
    requests: SendRequest<Body>,
    origin: Origin,
    fault: Fault,
    driver: AbortHandle,
    user: Option<User>,
    /// etcd's client with the token of the user, once there is one.
    authenticated: Mutex<Option<Client>>,
}

/// The scheme and the authority that each request has to name.
#[derive(Debug, Clone)]
struct Origin {
    scheme: Scheme,
    authority: Authority,
}

impl Connection {
    /// Opens a connection to `endpoint`. Has no time limit of its own. `accepted` is set once a pod
    /// has accepted it.
    pub(super) async fn open(
        endpoint: &Endpoint,
        dialer: &ExternalDialer,
        now: Timestamp,
        accepted: &AtomicBool,
    ) -> Result<Self, Failure> {
        let origin = Origin::from_endpoint(endpoint)?;
        if let Some(tls) = &endpoint.tls {
            tls.check_validity(now)?;
        }
        let (stream, _place) = match endpoint.target {
            Target::Pod(_) => {
                let stream = TcpStream::connect(&endpoint.address).await;
                let stream = stream.map_err(|error| failure::from_io(&error))?;
                accepted.store(true, Ordering::Relaxed);
                (stream, None)
            }
            Target::External(_) => {
                let Outbound { stream, place } = dialer.connect(&endpoint.address).await?;
                (stream, Some(place))
            }
        };
        tune(&stream).map_err(|error| failure::from_io(&error))?;
        let identity = endpoint.tls.as_deref();
        let peer = stream
            .peer_addr()
            .map_err(|error| failure::from_io(&error))?;
        let tls = identity.and_then(|of| of.config(&endpoint.server_names, peer.ip()));
        let mut connection = match tls {
            None => Self::over(ReadAfterHangup(stream), origin).await?,
            Some(tls) => {
                let name = endpoint.server_names.first();
                let name = name.and_then(|name| ServerName::try_from(name.clone()).ok());
                let name = name.unwrap_or_else(|| ServerName::from(peer.ip()));
                Self::over(shake_hands(stream, name, tls).await?, origin).await?
            }
        };
        connection.user = identity.and_then(TlsIdentity::user).cloned();
        Ok(connection)
    }

    async fn over<S>(stream: S, origin: Origin) -> Result<Self, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let fault = Fault::default();
        let stream = TokioIo::new(FaultStream::new(stream, fault.clone()));
        let (requests, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(LONGEST_ANSWER)
            .initial_connection_window_size(MOST_WAITING)
            .handshake(stream)
            .await
            .map_err(|error| {
                fault
                    .get()
                    .unwrap_or_else(|| Unanswered::Other(causes(&error)).into())
            })?;
        // The result is dropped: the fault and the calls that failed know how the connection ended.
        #[allow(clippy::disallowed_methods, reason = "`is_closed` misses it")]
        let driver = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        Ok(Self {
            requests,
            origin,
            fault,
            driver,
            user: None,
            authenticated: Mutex::default(),
        })
    }

    /// Whether the connection has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.requests.is_closed() || self.driver.is_finished()
    }

    /// etcd's client over this connection, with the user's token if there is one. Sends nothing to
    /// the member.
    pub(super) async fn client(&self) -> Result<Client, Unanswered> {
        if let Some(authenticated) = self.authenticated.lock().await.as_ref() {
            return Ok(authenticated.clone());
        }
        Client::from_channel(self.channel(), None)
            .await
            .map_err(|error| CallFailure::from_error(&error).into())
    }

    /// etcd's client with a token for the user; `None` where no user is configured. Meant for
    /// callers that were refused without a token: authentication is a raft proposal and costs etcd
    /// time, so a token is requested only when it is needed. The client renews an expired token by
    /// itself. `stale` says that the present token was refused too.
    pub(super) async fn authenticated(&self, stale: bool) -> Option<Result<Client, CallFailure>> {
        let user = self.user.as_ref()?;
        let mut authenticated = self.authenticated.lock().await;
        if let Some(client) = authenticated.as_ref().filter(|_| !stale) {
            return Some(Ok(client.clone()));
        }
        *authenticated = None;
        let options = ConnectOptions::new()
            .with_user(user.name(), user.password())
            .with_auto_token_refresh(true);
        let client = Client::from_channel(self.channel(), Some(options)).await;
        Some(match client {
            Ok(client) => {
                *authenticated = Some(client.clone());
                Ok(client)
            }
            Err(error) => Err(CallFailure::from_error(&error)),
        })
    }

    fn channel(&self) -> Channel {
        Channel::Custom(BoxCloneSyncService::new(Requests {
            requests: self.requests.clone(),
            origin: self.origin.clone(),
        }))
    }

    /// Why a call failed: the error of the connection if it broke, else the failure itself.
    pub(super) fn explain(&self, failure: CallFailure) -> Unanswered {
        self.cause(failure).into()
    }

    /// Like [`Self::explain`], for a caller that tells the obstacles of TLS apart.
    pub(super) fn cause(&self, failure: CallFailure) -> Failure {
        if !matches!(failure, CallFailure::Transport(_)) {
            return Failure::Other(failure.into());
        }
        if self.origin.scheme == Scheme::HTTP && self.fault.first_byte() == Some(TLS_ALERT) {
            return Obstacle::ServesTls.into();
        }
        let fault = self.fault.get();
        fault.unwrap_or_else(|| Failure::Other(failure.into()))
    }

    /// Whether the peer of a plaintext connection has said nothing at all. Servers of TLS hang up
    /// on a client that asks in plaintext.
    pub(super) fn is_unheard(&self) -> bool {
        self.origin.scheme == Scheme::HTTP && self.fault.first_byte().is_none()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("origin", &self.origin)
            .field("user", &self.user)
            .field("fault", &self.fault)
            .finish_non_exhaustive()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Origin {
    fn from_endpoint(endpoint: &Endpoint) -> Result<Self, Unanswered> {
        let scheme = match &endpoint.tls {
            Some(identity) if identity.uses_tls() => Scheme::HTTPS,
            Some(_) | None => Scheme::HTTP,
        };
        let authority = endpoint
            .address
            .parse()
            .map_err(|_| Unanswered::Other(format!("{:?} is no address", endpoint.address)))?;
        Ok(Self { scheme, authority })
    }
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(SILENCE / 2)
        .with_interval(SILENCE / 4)
        .with_retries(2);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(SILENCE))?;
    Ok(())
}

async fn shake_hands(
    stream: TcpStream,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static, Failure> {
    TlsConnector::from(tls)
        .connect(name, ReadAfterHangup(stream))
        .await
        .map_err(|error| failure::from_handshake(&error))
}

/// Whether something at the address answers a client of TLS as a server of TLS does. Nothing is
/// sent besides the greeting.
pub(super) async fn serves_tls(address: &str) -> bool {
    let Ok(stream) = TcpStream::connect(address).await else {
        return false;
    };
    let (Ok(peer), Ok(tls)) = (stream.peer_addr(), TlsIdentity::of_nobody()) else {
        return false;
    };
    match shake_hands(stream, ServerName::from(peer.ip()), tls).await {
        Ok(_) => true,
        Err(Failure::Tls(obstacle)) => matches!(
            obstacle,
            Obstacle::Issuer { .. } | Obstacle::Names { .. } | Obstacle::Expired { .. }
        ),
        Err(Failure::Other(_)) => false,
    }
}

/// The HTTP/2 connection as the tower service that etcd's client wants.
#[derive(Clone)]
struct Requests {
    requests: SendRequest<Body>,
    origin: Origin,
}

impl Service<Request<Body>> for Requests {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.requests.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme = Some(self.origin.scheme.clone());
        parts.authority = Some(self.origin.authority.clone());
        match Uri::from_parts(parts) {
            Ok(uri) => *request.uri_mut() = uri,
            Err(error) => return Box::pin(async move { Err(error.into()) }),
        }
        let response = self.requests.send_request(request);
        Box::pin(async move { whole(response.await?).await })
    }
}

/// Reads the whole body of an answer, up to [`LONGEST_ANSWER`]. Each call has exactly one answer.
/// etcd's client gets it only when it is complete, so the parsed form, which takes far more memory,
/// exists only for a moment.
async fn whole(answer: Response<Incoming>) -> Result<Response<Body>, BoxError> {
    let (head, body) = answer.into_parts();
    let most = usize::try_from(LONGEST_ANSWER)?;
    match Limited::new(body, most).collect().await {
        Ok(body) => Ok(Response::from_parts(head, Body::new(body))),
        Err(error) if error.is::<LengthLimitError>() => Err(TooLong.into()),
        Err(error) => Err(error),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("its answer is longer than {LONGEST_ANSWER} bytes")]
struct TooLong;
