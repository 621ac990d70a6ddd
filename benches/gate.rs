//! The gate inside this process: the shipped judge, webhooks and listener, put together as `quorumgate run` does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use kube::Client;
use quorumgate::admission::mutate::evictions::ApiServer;
use quorumgate::admission::stateful_set::StatefulSetJudge;
use quorumgate::admission::{Admission, Limits, router};
use quorumgate::api::Enforcement;
use quorumgate::clock::Clock;
use quorumgate::etcd::{Admin, Connections, Prober};
use quorumgate::features::Features;
use quorumgate::judge::{Afterwards, Bench, Judge};
use quorumgate::ledger::Ledger;
use quorumgate::observe::{Ages, Observer};
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

/// What the webhooks stand on.
pub(crate) struct Gate {
    client: Client,
    clock: Clock,
    connections: Connections,
    pub(crate) observer: Arc<Observer>,
    pub(crate) prober: Prober,
}

impl Gate {
    /// A gate that reads and writes through this client.
    pub(crate) fn over(client: &Client) -> Self {
        let clock = Clock::system();
        let settle_time = Duration::from_secs(120);
        let ledger = Ledger::new(client.clone(), clock.clone());
        let observer = Observer::new(client.clone(), ledger, clock.clone(), settle_time);
        let connections = Connections::new(clock.clone());
        Self {
            client: client.clone(),
            observer: Arc::new(observer),
            prober: Prober::new(connections.clone(), clock.clone()),
            connections,
            clock,
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
            // What is measured is load, under which connections are kept.
            ServeLimits {
                keep_alive_above: 0,
                ..ServeLimits::default()
            },
        ));
        Ok(address)
    }

    fn admission(&self) -> Admission {
        let metrics = Arc::new(Metrics::new());
        let judge = Arc::new(self.judge(&metrics));
        let (events, writer) =
            Events::new(self.client.clone(), "bench".into(), Arc::clone(&metrics));
        tokio::spawn(writer.run());
        Admission {
            set_judge: Arc::new(StatefulSetJudge::new(
                Arc::clone(&self.observer),
                Arc::clone(&judge) as _,
                self.clock.clone(),
            )),
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

    fn judge(&self, metrics: &Arc<Metrics>) -> Judge {
        Judge::new(Bench {
            observer: Arc::clone(&self.observer),
            prober: self.prober.clone(),
            admin: Admin::new(self.connections.clone()),
            ages: Arc::new(|_| Ages::default()),
            clock: self.clock.clone(),
            metrics: Arc::clone(metrics),
            probe_timeout: Duration::from_millis(400),
            enforcement: Enforcement::Enforce,
            spawn: Box::new(|mut work: Afterwards| drop(tokio::spawn(work()))),
        })
    }
}

/// The TLS settings of the gate, with a certificate of an authority of their own.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) config: Arc<ServerConfig>,
    /// PEM.
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

/// Logs what the gate logs by default, in its default form, to a file in place of standard error.
pub(crate) fn log_to(directory: &TempDir) -> Result<Log> {
    let file = std::fs::File::create(directory.path().join("log"))?;
    Ok(logs::start_writing(
        file,
        false,
        LogFormat::Json,
        DEFAULT_FILTER,
    )?)
}
