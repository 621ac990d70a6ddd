//! The composition root: builds every part once, connects the parts, and ends them in order.

mod bounded;
mod check;
mod counted;
mod dated;
mod descriptors;
mod end;
mod fitted;
mod kubernetes;
mod listen;
mod print;
mod uninstall;

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube::Client;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use end::End;
use listen::listen;
use print::print;

use crate::admission::mutate::evictions::ApiServer;
use crate::admission::{self, Admission};
use crate::api::{crds_yaml, etcd_members_crd_yaml};
use crate::certificates::{self, Keeper, Objects, Signals};
use crate::cli::{self, CertificateSource, Cli, Command};
use crate::clock::Clock;
use crate::etcd::{Admin, Connections, Prober};
use crate::features::Features;
use crate::judge::{Afterwards, Judge, JudgeDeps};
use crate::ledger::Ledger;
use crate::observe::{Observer, Sources};
use crate::reachability::{self, EndpointWorker, PeerPage};
use crate::reconcile::{self, Settings};
use crate::serve::call_paths::CallPaths;
use crate::serve::certificate::{self, Certificate, Files};
use crate::serve::{self, ServeLimits, Shutdown, Transport, admin};
use crate::supervise::Supervisor;
use crate::telemetry::events::{Events, Notices};
use crate::telemetry::logs;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::traces::Traces;

/// The shortest settle time that is safe: an API server may finish a request up to 60 s after it
/// asked the webhook. With a shorter settle time the ledger may release a grant whose request is
/// still on its way; the program warns then.
const SAFE_SETTLE_TIME: Duration = Duration::from_secs(60);

/// Runs the command of the command line.
///
/// # Errors
///
/// Why the command could not start or had to end, with what to do about it where that is
/// known.
pub fn main(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Crds {
            etcd_members: false,
        } => print(&crds_yaml()?),
        Command::Crds { etcd_members: true } => print(&etcd_members_crd_yaml()?),
        Command::Version => print(concat!("quorumgate ", env!("CARGO_PKG_VERSION"), "\n")),
        Command::Run(options) => to_its_end(run(*options)),
        Command::Check(options) => to_its_end(check::run(options)),
        Command::Uninstall(options) => to_its_end(uninstall::run(options)),
    }
}

fn to_its_end(work: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let ended = runtime.block_on(work);
    // A file read that hangs on its volume must not delay the end of the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

/// Prints an error with all its causes to standard error.
pub fn print_error(error: &anyhow::Error) {
    let _ = writeln!(std::io::stderr(), "quorumgate: {error:#}");
}

/// The parts that the webhooks and the loops share.
struct Parts {
    client: Client,
    clock: Clock,
    metrics: Arc<Metrics>,
    observer: Arc<Observer>,
    judge: Judge,
    events: Arc<dyn Notices>,
    features: Features,
}

async fn run(options: cli::Run) -> Result<()> {
    let features = Features::from_switches(&options.feature_gates).context("--feature-gates")?;
    crate::install_crypto_provider();
    let identity = options.identity();
    let traces = match options.collector() {
        Some(collector) => Some(Traces::to(&collector, &identity).context("no traces")?),
        None => None,
    };
    let log = logs::start(options.log_format, &options.log, traces.as_ref())?;
    let clock = Clock::system();
    let metrics = Arc::new(Metrics::new());
    let dropped = log.dropped();
    metrics.watch_log(move || u64::try_from(dropped.dropped_lines()).unwrap_or(u64::MAX));
    let certificate = certificate(&options, &clock, &metrics)?;
    let client = kubernetes::connect(&clock, &metrics).await?;
    let own_username = kubernetes::own_username(&client, options.any_username).await?;
    if options.settle_time < SAFE_SETTLE_TIME {
        warn!(
            settle_time = ?options.settle_time,
            "settle time is shorter than the life of a request: grants may end while they are in use"
        );
    }
    let (events, writer) = Events::new(client.clone(), identity.clone(), Arc::clone(&metrics));
    for (name, on) in features.all() {
        metrics.feature(name, on);
        info!(feature = name, on, "feature");
    }
    let (supervisor, unexpected_ends) = Supervisor::new();
    let parts = Parts::new(
        client,
        clock,
        metrics,
        Arc::new(events),
        features,
        &supervisor,
        &options,
    );

    let webhooks = listen(options.listen, "webhooks")?;
    let pages = listen(options.admin_listen, "health and metrics")?;
    let shutdown = Shutdown::default();
    let ending = CancellationToken::new();
    let (synced, has_synced) = watch::channel(false);

    supervisor.spawn_endless("writer of Events", ending.clone(), writer.run());
    let paths = Arc::new(match options.certificate() {
        CertificateSource::Files(_) => CallPaths::default(),
        CertificateSource::Own { .. } => CallPaths::offered(),
    });
    let told = parts.keep_certificate(&options, &certificate, &paths, &supervisor, &ending);
    let loops = reconcile::run(
        parts.loops(&options, identity, own_username.clone(), told),
        synced,
        supervisor.clone(),
        ending.clone(),
    );
    supervisor.spawn("dispatch", ending.clone(), loops);
    let limits = ServeLimits {
        drain: options.drain_time,
        ..ServeLimits::default()
    };
    let transport = Transport::Tls(Arc::new(Arc::clone(&certificate).server_config()?));
    let ready = Arc::new(readiness(&certificate, has_synced, &shutdown));
    let view = parts.keep_endpoint(&options, &ready, &shutdown, &supervisor, &ending)?;
    let router = admission::router(parts.admission(own_username, &options));
    let router = paths.guard(router);
    let router = reachability::beside(router, Arc::clone(&ready), view);
    let server = serve::serve(webhooks, transport, router, shutdown.clone(), limits);
    supervisor.spawn("webhooks", shutdown.closing.clone(), server);
    let router = admin::router(admin::Checks::new(), ready, Arc::clone(&parts.metrics));
    let until_the_end = Shutdown {
        leaving: ending.clone(),
        closing: ending.clone(),
    };
    let server = serve::serve(
        pages,
        Transport::Plain,
        router,
        until_the_end,
        limits.for_pages(),
    );
    supervisor.spawn("health and metrics", ending.clone(), server);
    info!(webhooks = %options.listen, admin = %options.admin_listen, version = env!("CARGO_PKG_VERSION"), "quorumgate runs");

    let end = End {
        supervisor,
        unexpected_ends,
        shutdown,
        ending,
        leave_time: options.leave_time,
        drain_time: options.drain_time,
    };
    let ended = end.after(end::termination()).await;
    if let Some(traces) = traces {
        traces.end().await;
    }
    ended
}

/// The certificate to serve: that of the files, or one that is still to be made.
fn certificate(
    options: &cli::Run,
    clock: &Clock,
    metrics: &Arc<Metrics>,
) -> Result<Arc<Certificate>> {
    let (clock, metrics) = (clock.clone(), Arc::clone(metrics));
    let certificate = match options.certificate() {
        CertificateSource::Files(files) => {
            Certificate::open(files, clock, metrics).context("no serving certificate")?
        }
        CertificateSource::Own { names, wishes } => {
            if let Some(problem) = wishes.problem() {
                bail!("--certificate-lifetime and --authority-lifetime: {problem}");
            }
            let files = Files::in_secret(&names.serving, options.callers());
            Certificate::awaited(files, clock, metrics)
        }
    };
    Ok(Arc::new(certificate))
}

/// The signals of the loops to whoever looks after the certificates.
#[derive(Default)]
struct LoopSignals {
    leads: watch::Sender<bool>,
    configurations: Arc<Notify>,
}

/// The readiness conditions: the watches have synced, the certificate is valid, and the process has
/// not been asked to end.
fn readiness(
    certificate: &Arc<Certificate>,
    synced: watch::Receiver<bool>,
    shutdown: &Shutdown,
) -> admin::Checks {
    let certificate = Arc::clone(certificate);
    let leaving = shutdown.leaving.clone();
    let said = |holds: bool, otherwise: &str| {
        if holds {
            Ok(())
        } else {
            Err(otherwise.to_owned())
        }
    };
    admin::Checks::new()
        .with("watches", move || {
            said(*synced.borrow(), "they have not listed everything yet")
        })
        .with("certificate", move || certificate.validity())
        .with("staying", move || {
            said(!leaving.is_cancelled(), "the process is ending")
        })
}

impl Parts {
    fn new(
        client: Client,
        clock: Clock,
        metrics: Arc<Metrics>,
        events: Arc<dyn Notices>,
        features: Features,
        supervisor: &Supervisor,
        options: &cli::Run,
    ) -> Self {
        // Members get half of the file descriptors, so that callers can always connect.
        let connections = Connections::at_most(descriptors::take_all() / 2, clock.clone());
        let admin = Admin::new(connections.clone());
        let observer = Arc::new(Observer::new(Sources {
            client: client.clone(),
            ledger: Ledger::new(client.clone(), clock.clone()),
            prober: Prober::new(connections, clock.clone()),
            probe_timeout: options.probe_timeout,
            settle_time: options.settle_time,
            clock: clock.clone(),
            metrics: Arc::clone(&metrics),
        }));
        let judge = {
            let (supervisor, counting) = (supervisor.clone(), Arc::clone(&metrics));
            Judge::new(JudgeDeps {
                observer: Arc::clone(&observer),
                admin,
                clock: clock.clone(),
                metrics: Arc::clone(&metrics),
                enforcement: options.default_enforcement,
                spawn: Box::new(move |work: Afterwards| {
                    let metrics = Arc::clone(&counting);
                    let task = "what outlives an answer";
                    supervisor.work(task, work, move |how, rest| {
                        error!(task, %how, begins_again_after = ?rest, "task ended unexpectedly (please report)");
                        metrics.duty_broke(task);
                    });
                }),
            })
        };
        Self {
            client,
            clock,
            metrics,
            observer,
            judge,
            events,
            features,
        }
    }

    /// Starts what keeps the serving certificate up to date, whether it comes from files or is the
    /// gate's own. Returns what the loops tell it.
    fn keep_certificate(
        &self,
        options: &cli::Run,
        certificate: &Arc<Certificate>,
        paths: &Arc<CallPaths>,
        supervisor: &Supervisor,
        ending: &CancellationToken,
    ) -> LoopSignals {
        let told = LoopSignals::default();
        let certificate = Arc::clone(certificate);
        let task = "watch of the certificate";
        match options.certificate() {
            CertificateSource::Files(_) => {
                let watch = certificate.watch(certificate::POLL, ending.clone());
                supervisor.spawn(task, ending.clone(), watch);
            }
            CertificateSource::Own { names, wishes } => {
                let (client, namespace) = (&self.client, &options.lease_namespace);
                let serving = names.serving.clone();
                let (paths, api) = (Arc::clone(paths), client.clone());
                let served = Arc::clone(&certificate);
                let follow = certificates::follow(served, paths, api, namespace.clone(), serving);
                supervisor.spawn_endless(task, ending.clone(), follow);
                let configuration = options.webhook_configuration.clone();
                let objects = Objects::new(client.clone(), namespace, names, configuration);
                let signals = Signals {
                    leading: told.leads.subscribe(),
                    configurations: Arc::clone(&told.configurations),
                };
                let (clock, metrics) = (self.clock.clone(), Arc::clone(&self.metrics));
                let events = Arc::clone(&self.events);
                let keeper = Keeper::new(
                    objects,
                    wishes,
                    clock,
                    metrics,
                    signals,
                    certificate,
                    events,
                );
                supervisor.spawn_endless("keeper of certificates", ending.clone(), keeper.run());
            }
        }
        told
    }

    /// Starts to maintain this replica's endpoint in the Service, where the options name the
    /// Service and the pod. Returns what other replicas are told when they ask.
    fn keep_endpoint(
        &self,
        options: &cli::Run,
        ready: &Arc<admin::Checks>,
        shutdown: &Shutdown,
        supervisor: &Supervisor,
        ending: &CancellationToken,
    ) -> Result<PeerPage> {
        let Some(myself) = options.myself() else {
            info!("endpoints: no --service is given, so this replica keeps none");
            return Ok(PeerPage::default());
        };
        let worker = EndpointWorker::new(
            myself,
            self.client.clone(),
            Arc::clone(ready),
            shutdown.leaving.clone(),
            self.clock.clone(),
            Arc::clone(&self.metrics),
        )
        .context("cannot ask other replicas by TLS")?;
        let view = worker.view();
        let keeping = worker.run(ending.clone());
        supervisor.spawn("worker of the endpoint", ending.clone(), keeping);
        Ok(view)
    }

    fn admission(&self, own_username: String, options: &cli::Run) -> Admission {
        Admission {
            judge: Arc::new(self.judge.clone()),
            incarnations: Arc::new(ApiServer(self.client.clone())),
            enrolment: Arc::clone(&self.observer) as _,
            notices: Arc::clone(&self.events),
            metrics: Arc::clone(&self.metrics),
            own_username,
            features: self.features,
            limits: admission::Limits {
                body_bytes: options.max_body_bytes,
                judgements: options.max_judgements,
                changes: (options.max_judgements / 4).max(1),
                ..admission::Limits::default()
            },
        }
    }

    fn loops(
        &self,
        options: &cli::Run,
        identity: String,
        own_username: String,
        told: LoopSignals,
    ) -> reconcile::Context {
        reconcile::Context {
            client: self.client.clone(),
            observer: Arc::clone(&self.observer),
            judge: self.judge.clone(),
            own_username,
            clock: self.clock.clone(),
            metrics: Arc::clone(&self.metrics),
            events: Arc::clone(&self.events),
            leads: told.leads,
            configurations: told.configurations,
            settings: Settings {
                namespaces: options.namespaces.clone(),
                webhook_configuration: options.webhook_configuration.clone(),
                lease_namespace: options.lease_namespace.clone(),
                lease_name: options.lease_name.clone(),
                identity,
                settle_time: options.settle_time,
                enforcement: options.default_enforcement,
                most_clusters: options.max_clusters_per_namespace,
                most_rollouts: options.max_rollouts,
                features: self.features,
            },
        }
    }
}
