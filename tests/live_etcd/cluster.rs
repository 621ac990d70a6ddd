//! A cluster of real etcd processes: its description, its start, its endpoints and its faults.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use quorumgate::clock::Clock;
use quorumgate::etcd::{Connections, Endpoint, Prober, TlsIdentity};
use quorumgate::quorum::evidence::{Probe, Round, Status, Target};
use quorumgate::quorum::{MemberId, PodUid};
use quorumgate_testbed::eventually;
use quorumgate_testbed::pki::{Authority, Credential, Request, Usage};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::member::Member;
use crate::version::Version;

/// The time limit of rounds whose time is not measured. It is far more than an answer takes, even
/// on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The time limit for changes that happen by themselves.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// The description of a cluster.
pub(crate) struct Builder {
    version: Version,
    members: usize,
    /// The address of every member. `None`: an IPv4 address for each.
    address: Option<IpAddr>,
    tls: Tls,
    first_quota: Option<u64>,
    election_timeout: Duration,
}

/// Whether clients and peers use TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    Mutual,
    None,
}

impl Builder {
    /// A cluster of three members with mutual TLS.
    pub(crate) fn new(version: Version) -> Self {
        Self {
            version,
            members: 3,
            address: None,
            tls: Tls::Mutual,
            first_quota: None,
            election_timeout: Duration::from_secs(1),
        }
    }

    pub(crate) fn members(self, members: usize) -> Self {
        Self { members, ..self }
    }

    /// A cluster of one member at this address.
    pub(crate) fn at(self, address: IpAddr) -> Self {
        Self {
            members: 1,
            address: Some(address),
            ..self
        }
    }

    pub(crate) fn without_tls(self) -> Self {
        let tls = Tls::None;
        Self { tls, ..self }
    }

    /// Gives the first member, and no other, a space quota in bytes.
    pub(crate) fn quota_of_the_first(self, quota: u64) -> Self {
        let first_quota = Some(quota);
        Self {
            first_quota,
            ..self
        }
    }

    /// Sets the time without contact after which a leader gives up and followers vote. The default
    /// is 1 s.
    pub(crate) fn election_timeout(self, election_timeout: Duration) -> Self {
        Self {
            election_timeout,
            ..self
        }
    }

    /// Starts the cluster, and returns when every member serves.
    pub(crate) async fn start(self) -> Result<Cluster> {
        let directory = scratch_directory()?;
        let members = (0..self.members).map(|ordinal| match self.address {
            Some(address) => Member::at(address, directory.path(), ordinal),
            None => Member::new(directory.path(), ordinal),
        });
        let mut cluster = Cluster {
            binary: self.version.binary()?,
            version: self.version,
            tls: self.tls,
            first_quota: self.first_quota,
            election_timeout: self.election_timeout,
            authority: Authority::new("etcd-ca")?,
            members: members.collect::<Result<_>>()?,
            directory,
        };
        for ordinal in 0..self.members {
            cluster.start(ordinal, "new")?;
        }
        cluster.serves().await?;
        Ok(cluster)
    }
}

/// A running cluster. Dropping it ends its processes and deletes its files.
pub(crate) struct Cluster {
    pub(crate) members: Vec<Member>,
    pub(crate) authority: Authority,
    version: Version,
    binary: PathBuf,
    tls: Tls,
    first_quota: Option<u64>,
    election_timeout: Duration,
    directory: TempDir,
}

impl Cluster {
    /// The gate's endpoints of all members, as a user of this name.
    pub(crate) fn endpoints_as(&self, user: &str) -> Result<Vec<Endpoint>> {
        let tls = match self.tls {
            Tls::Mutual => Some(self.identity(user)?),
            Tls::None => None,
        };
        let endpoint = |member: &Member| Endpoint {
            target: Target::Pod(PodUid::new(member.uid.clone())),
            address: member.client_address(),
            server_names: vec![member.server_name()],
            tls: tls.clone(),
        };
        Ok(self.members.iter().map(endpoint).collect())
    }

    /// The gate's endpoints of all members.
    pub(crate) fn endpoints(&self) -> Result<Vec<Endpoint>> {
        self.endpoints_as("quorumgate")
    }

    /// A new client certificate from this cluster's authority.
    pub(crate) fn identity(&self, user: &str) -> Result<Arc<TlsIdentity>> {
        let credential = self.issue(user)?;
        identity(self.authority.certificate(), Some(&credential))
    }

    pub(crate) fn issue(&self, user: &str) -> Result<Credential> {
        self.authority.issue(&Request::new(user, Usage::Client))
    }

    /// etcd's client as user `root`, for calls that the gate never makes.
    pub(crate) async fn client(&self, ordinal: usize) -> Result<Client> {
        let member = self.member(ordinal)?;
        let url = format!("{}://{}", self.scheme(), member.client_address());
        let mut options = ConnectOptions::new().with_timeout(PATIENCE);
        if self.tls == Tls::Mutual {
            let Credential { certificate, key } = self.issue("root")?;
            let tls = TlsOptions::new()
                .domain_name(member.server_name())
                .ca_certificate(Certificate::from_pem(self.authority.certificate()))
                .identity(Identity::from_pem(certificate, key));
            options = options.with_tls(tls);
        }
        Ok(Client::connect([url], Some(options)).await?)
    }

    pub(crate) fn member(&self, ordinal: usize) -> Result<&Member> {
        self.members.get(ordinal).context("no such member")
    }

    pub(crate) fn member_mut(&mut self, ordinal: usize) -> Result<&mut Member> {
        self.members.get_mut(ordinal).context("no such member")
    }

    /// Starts a member that does not run. `state` is `new` or `existing`, and counts only for a
    /// member without data.
    pub(crate) fn start(&mut self, ordinal: usize, state: &str) -> Result<()> {
        let mut arguments = self.arguments(ordinal, state)?;
        if let Some(quota) = self.first_quota.filter(|_| ordinal == 0) {
            arguments.push(format!("--quota-backend-bytes={quota}"));
        }
        let (binary, scheme) = (self.binary.clone(), self.scheme());
        self.member_mut(ordinal)?.start(&binary, scheme, &arguments)
    }

    /// Adds a member here. etcd does not know it yet, and it does not run.
    pub(crate) fn add(&mut self) -> Result<&Member> {
        let member = Member::new(self.directory.path(), self.members.len())?;
        self.members.push(member);
        self.members.last().context("it was added just now")
    }

    pub(crate) fn scheme(&self) -> &'static str {
        match self.tls {
            Tls::Mutual => "https",
            Tls::None => "http",
        }
    }

    /// Waits until every member answers its read and lists all members.
    pub(crate) async fn serves(&self) -> Result<()> {
        let endpoints = self.endpoints()?;
        let prober = prober();
        eventually(SOON, "every member serves", async || {
            let round = round(&prober, &endpoints).await;
            let serves = |probe: &Probe| {
                let listed = probe.members.as_ref().map_or(0, Vec::len);
                probe.status.is_ok() && probe.read.is_ok() && listed == endpoints.len()
            };
            ensure!(round.probes.iter().all(serves), "{round:#?}");
            Ok(())
        })
        .await
        .with_context(|| self.last_words())
    }

    /// The member that reports itself as the leader.
    pub(crate) async fn leader(&self) -> Result<usize> {
        let statuses = self.statuses().await?;
        let leads = |status: &Status| status.leader == Some(status.member_id);
        statuses.iter().position(leads).context("no member leads")
    }

    /// The ids of all members, in order.
    pub(crate) async fn ids(&self) -> Result<Vec<MemberId>> {
        Ok(self
            .statuses()
            .await?
            .iter()
            .map(|status| status.member_id)
            .collect())
    }

    async fn statuses(&self) -> Result<Vec<Status>> {
        let round = round(&prober(), &self.endpoints()?).await;
        let statuses = round.probes.into_iter().map(|probe| probe.status);
        Ok(statuses.collect::<Result<_, _>>()?)
    }

    fn arguments(&self, ordinal: usize, state: &str) -> Result<Vec<String>> {
        let scheme = self.scheme();
        let peers = self.members.iter();
        let peers = peers.map(|member| format!("{}={}", member.name, member.peer_url(scheme)));
        let mut arguments = vec![
            format!("--initial-cluster={}", peers.collect::<Vec<_>>().join(",")),
            format!("--initial-cluster-state={state}"),
            format!("--election-timeout={}", self.election_timeout.as_millis()),
            // The check would add a member only after all others have been connected for 5 s.
            "--strict-reconfig-check=false".to_owned(),
        ];
        if self.version >= Version::V3_5 {
            // The tests kill processes and not machines, so no data is lost without fsync.
            arguments.push("--unsafe-no-fsync".to_owned());
        }
        if self.tls == Tls::Mutual {
            arguments.extend(self.certificates(self.member(ordinal)?)?);
        }
        Ok(arguments)
    }

    /// Certificates for a member. The one for clients has its name only, the one for peers has its
    /// address.
    fn certificates(&self, member: &Member) -> Result<Vec<String>> {
        let directory = self.directory.path().join(&member.name);
        let ca = directory.join("ca.crt");
        std::fs::write(&ca, self.authority.certificate())?;
        let ca = ca.display();
        let server = Request::new(&member.name, Usage::Peer).names([member.server_name()]);
        // All connections on this machine come from 127.0.0.1, and etcd checks the source address
        // of peers.
        let addresses = [member.peer_address.to_string(), "127.0.0.1".to_owned()];
        let peer = Request::new(&member.name, Usage::Peer).names(addresses);
        let server = self.authority.issue(&server)?.write(&directory, "server")?;
        let peer = self.authority.issue(&peer)?.write(&directory, "peer")?;
        Ok(vec![
            format!("--trusted-ca-file={ca}"),
            format!("--cert-file={}", server.0.display()),
            format!("--key-file={}", server.1.display()),
            "--client-cert-auth".to_owned(),
            format!("--peer-trusted-ca-file={ca}"),
            format!("--peer-cert-file={}", peer.0.display()),
            format!("--peer-key-file={}", peer.1.display()),
            "--peer-client-cert-auth".to_owned(),
        ])
    }

    fn last_words(&self) -> String {
        let words = self.members.iter().map(Member::last_words);
        words.collect::<Vec<_>>().join("\n")
    }
}

/// A prober with connections of its own.
pub(crate) fn prober() -> Prober {
    let clock = Clock::system();
    Prober::new(Connections::new(clock.clone()), clock)
}

/// A round without a tight time limit.
pub(crate) async fn round(prober: &Prober, endpoints: &[Endpoint]) -> Round {
    prober.round(endpoints, Instant::now() + PATIENCE).await
}

/// The probe of one endpoint, without a tight time limit.
pub(crate) async fn probe(prober: &Prober, endpoint: &Endpoint) -> Result<Probe> {
    let mut round = round(prober, std::slice::from_ref(endpoint)).await;
    round.probes.pop().context("one probe per endpoint")
}

/// The TLS identity from an authority and a client certificate; without a client certificate where
/// `None`.
pub(crate) fn identity(authority: &str, client: Option<&Credential>) -> Result<Arc<TlsIdentity>> {
    let client = client.map(|client| (client.certificate.as_bytes(), client.key.as_bytes()));
    Ok(Arc::new(TlsIdentity::parse(
        &[authority.as_bytes()],
        client,
    )?))
}

/// A directory in memory where possible: etcd 3.4 has no option to skip fsync.
fn scratch_directory() -> Result<TempDir> {
    let memory = Path::new("/dev/shm");
    let directory = tempfile::Builder::new();
    Ok(match directory.tempdir_in(memory) {
        Ok(directory) => directory,
        Err(_) => tempfile::tempdir()?,
    })
}
