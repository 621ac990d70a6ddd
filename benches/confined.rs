//! A replica in a process of its own, with a memory limit.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use http::{Response, StatusCode};
use kube::Client;
use kube::client::Body;
use quorumgate::serve::{self, ServeLimits, Shutdown, Transport, admin};
use quorumgate::telemetry::metrics::Metrics;
use tokio::net::TcpListener;

use crate::gate::{self, Gate, Tls};
use crate::resident::Resident;

/// The argument that makes this program a replica.
pub(crate) const REPLICA: &str = "replica";

/// A replica and its addresses.
pub(crate) struct Confined {
    process: Child,
    cgroup: Option<PathBuf>,
    pub(crate) webhooks: SocketAddr,
    pub(crate) pages: SocketAddr,
    /// The authority of its certificate, in PEM.
    pub(crate) authority: String,
}

impl Confined {
    /// Starts a replica with a limit in MiB.
    pub(crate) async fn start(limit: u32) -> Result<Self> {
        let cgroup = cgroup(limit);
        let program = std::env::current_exe()?;
        let mut command = match &cgroup {
            Some(cgroup) => {
                let mut shell = Command::new("sh");
                let enter = r#"echo $$ > "$0/cgroup.procs" && exec "$@""#;
                shell.args(["-c", enter]).arg(cgroup).arg(program);
                shell
            }
            None => Command::new(program),
        };
        let mut process = command.arg(REPLICA).stdout(Stdio::piped()).spawn()?;
        let out = process.stdout.take().context("no output")?;
        let said = tokio::task::spawn_blocking(move || {
            let mut lines = BufReader::new(out).lines();
            let mut line = || {
                lines
                    .next()
                    .context("the replica did not start")?
                    .context("no line")
            };
            let (webhooks, pages, authority) = (line()?, line()?, line()?);
            anyhow::Ok((webhooks, pages, authority))
        });
        let (webhooks, pages, authority) = said.await??;
        Ok(Self {
            process,
            cgroup,
            webhooks: webhooks.parse()?,
            pages: pages.parse()?,
            authority: fs::read_to_string(authority)?,
        })
    }

    /// The most memory that it had, in KiB, as its cgroup counts it, or else its resident set.
    pub(crate) fn memory(&self) -> Result<Resident> {
        let mut memory = Resident::read(&self.process.id().to_string())?;
        if let Some(cgroup) = &self.cgroup {
            for file in ["memory.max_usage_in_bytes", "memory.peak"] {
                if let Ok(bytes) = fs::read_to_string(cgroup.join(file)) {
                    memory.most = bytes.trim().parse::<f64>()? / 1024.0;
                }
            }
        }
        Ok(memory)
    }

    /// Whether the process is still the one that was started.
    pub(crate) fn lives(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    /// The kind of limit, in words.
    pub(crate) fn confinement(&self) -> &'static str {
        if self.cgroup.is_some() {
            "in a cgroup"
        } else {
            "without a cgroup"
        }
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(cgroup) = &self.cgroup {
            let _ = fs::remove_dir(cgroup);
        }
    }
}

/// A memory cgroup of either version, if one can be made. Without swap, since memory beyond the
/// limit would go there.
fn cgroup(limit: u32) -> Option<PathBuf> {
    let bytes = (u64::from(limit) * 1024 * 1024).to_string();
    let name = format!("quorumgate-bench-{}", std::process::id());
    [
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ("/sys/fs/cgroup", "memory.max"),
    ]
    .iter()
    .find_map(|(root, file)| {
        let cgroup = Path::new(root).join(&name);
        fs::create_dir(&cgroup).ok()?;
        if fs::write(cgroup.join(file), &bytes).is_ok() {
            let _ = fs::write(cgroup.join("memory.swap.max"), "0");
            return Some(cgroup);
        }
        let _ = fs::remove_dir(&cgroup);
        None
    })
}

/// Runs the replica. Prints its addresses and its authority, and serves for ever.
pub(crate) async fn serve() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let _log = gate::log_to(&directory)?;
    let tls = Tls::new(&directory)?;
    let authority = directory.path().join("authority");
    fs::write(&authority, &tls.authority)?;
    let client = knows_nothing();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let pages = listener.local_addr()?;
    let (live, ready) = (admin::Checks::new(), admin::Checks::new());
    let router = admin::router(live, ready, Arc::new(Metrics::new()));
    tokio::spawn(serve::serve(
        listener,
        Transport::Plain,
        router,
        Shutdown::default(),
        ServeLimits::default().for_pages(),
    ));
    let webhooks = Gate::over(&client).listen(&tls).await?;
    let said = format!("{webhooks}\n{pages}\n{}\n", authority.display());
    std::io::stdout().write_all(said.as_bytes())?;
    std::future::pending().await
}

/// A client for an API server without any object.
fn knows_nothing() -> Client {
    let service = tower::service_fn(|_request: http::Request<Body>| {
        let nothing = br#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404}"#;
        let mut answer = Response::new(Body::from(nothing.to_vec()));
        *answer.status_mut() = StatusCode::NOT_FOUND;
        std::future::ready(Ok::<_, kube::Error>(answer))
    });
    Client::new(service, "default")
}
