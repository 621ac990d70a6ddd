//! The gate inside this process: the shipped judge, webhooks and listener, assembled as
//! `quorumgate run` does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use kube::Client;
use quorumgate::admission::mutate::evictions::ApiServer;
use quorumgate::admission::{Admission, Limits, router};
use quorumgate::api::Enforcement;
use quorumgate::clock::Clock;
use quorumgate::etcd::{Admin, Connections, Prober};
use quorumgate::features::Features;
use quorumgate::judge::{Afterwards, Judge, JudgeDeps};
use quorumgate::ledger::Ledger;
use quorumgate::observe::{Observer, Sources};
use quorumgate::serve::certificate::{Certificate, Files};
use quorumgate::serve::{ServeLimits, Shutdown, Transport, serve};
use quorumgate::telemetry::events::Events;
use quorumgate::telemetry::logs::{self, DEFAULT_FILTER, Log, LogFormat};
use quorumgate::telemetry::metrics::Metrics;
use quorumgate_testbed::pki::{Authority, Request, Usage};
use rustls::ServerConfig;
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::caller::SERVER_NAME;

/// The parts of the gate that the webhooks use.
pub(crate) struct Gate {
    client: Client,
    clock: Clock,
    connections: Connections,
    pub(crate) observer: Arc<Observer>,
    metrics: Arc<Metrics>,
}

impl Gate {
    /// A gate that reads and writes through this client.
    pub(crate) fn over(client: &Client) -> Self {
        let clock = Clock::system();
        let connections = Connections::new(clock.clone());
        let metrics = Arc::new(Metrics::new());
        let observer = Observer::new(Sources {
            client: client.clone(),
            ledger: Ledger::new(client.clone(), clock.clone()),
            prober: Prober::new(connections.clone(), clock.clone()),
            probe_timeout: Duration::from_millis(400),
            settle_time: Duration::from_secs(120),
            clock: clock.clone(),
            metrics: Arc::clone(&metrics),
        });
        Self {
            client: client.clone(),
            observer: Arc::new(observer),
            connections,
            clock,
            metrics,
        }
    }

    /// Serves the webhooks for as long as the runtime lives.
    pub(crate) async fn listen(&self, tls: &Tls) -> Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(serve(
            listener,
            Transport::Tls(Arc::clone(&tls.config)),
            router(self.admission()),
            Shutdown::default(),
            // The benchmarks measure load, and under load connections are kept.
            ServeLimits {
                keep_alive_above: 0,
                ..ServeLimits::default()
            },
        ));
        Ok(address)
    }

    fn admission(&self) -> Admission {
        let metrics = Arc::clone(&self.metrics);
        let judge = Arc::new(self.judge());
        let (events, writer) =
            Events::new(self.client.clone(), "bench".into(), Arc::clone(&metrics));
        tokio::spawn(writer.run());
        Admission {
            judge,
            incarnations: Arc::new(ApiServer(self.client.clone())),
            enrolment: Arc::clone(&self.observer) as _,
            notices: Arc::new(events),
            metrics,
            own_username: "system:serviceaccount:quorumgate:quorumgate".into(),
            features: Features::default(),
            limits: Limits::default(),
        }
    }

    fn judge(&self) -> Judge {
        Judge::new(JudgeDeps {
            observer: Arc::clone(&self.observer),
            admin: Admin::new(self.connections.clone()),
            clock: self.clock.clone(),
            metrics: Arc::clone(&self.metrics),
            enforcement: Enforcement::Enforce,
            spawn: Box::new(|mut work: Afterwards| drop(tokio::spawn(work()))),
        })
    }
}

/// The TLS settings of the gate, with a certificate of a new authority.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) config: Arc<ServerConfig>,
    /// The authority, in PEM.
    pub(crate) authority: String,
}

impl Tls {
    pub(crate) fn new(directory: &TempDir) -> Result<Self> {
        let authority = Authority::new("bench")?;
        let request = Request::new(SERVER_NAME, Usage::Server).names([SERVER_NAME]);
        let (certificate, key) = authority
            .issue(&request)?
            .write(directory.path(), "serving")?;
        let files = Files {
            certificate,
            key,
            callers: None,
        };
        let certificate = Certificate::open(files, Clock::system(), Arc::new(Metrics::new()))?;
        Ok(Self {
            config: Arc::new(Arc::new(certificate).server_config()?),
            authority: authority.certificate().to_owned(),
        })
    }
}

/// Logs as the gate does by default, to a file instead of standard error.
pub(crate) fn log_to(directory: &TempDir) -> Result<Log> {
    let file = std::fs::File::create(directory.path().join("log"))?;
    Ok(logs::start_writing(
        file,
        false,
        (LogFormat::Json, DEFAULT_FILTER),
        None,
    )?)
}
