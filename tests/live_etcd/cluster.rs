//! A cluster of real etcd processes: how to describe it, start it, reach it and break it.

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

/// Far more than an answer takes, even on a busy machine: for rounds in which no time is measured.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How long anything that comes about by itself may take.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// What a cluster looks like.
pub(crate) struct Builder {
    version: Version,
    members: usize,
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
    /// Three members with mutual TLS.
    pub(crate) fn new(version: Version) -> Self {
        Self {
            version,
            members: 3,
            tls: Tls::Mutual,
            first_quota: None,
            election_timeout: Duration::from_secs(1),
        }
    }

    pub(crate) fn members(self, members: usize) -> Self {
        Self { members, ..self }
    }

    pub(crate) fn without_tls(self) -> Self {
        let tls = Tls::None;
        Self { tls, ..self }
    }

    /// Only the first member has a space quota, in bytes.
    pub(crate) fn quota_of_the_first(self, quota: u64) -> Self {
        let first_quota = Some(quota);
        Self {
            first_quota,
            ..self
        }
    }

    /// After what time without word from a majority a leader gives up, and without word from a leader its followers vote (1 s).
    pub(crate) fn election_timeout(self, election_timeout: Duration) -> Self {
        Self {
            election_timeout,
            ..self
        }
    }

    /// Starts it, and returns when every member serves.
    pub(crate) async fn start(self) -> Result<Cluster> {
        let directory = scratch_directory()?;
        let members = (0..self.members).map(|ordinal| Member::new(directory.path(), ordinal));
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

/// A running cluster. Its processes and files go with it.
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
    /// How the gate reaches every member, as a user of this name.
    pub(crate) fn endpoints_as(&self, user: &str) -> Result<Vec<Endpoint>> {
        let tls = match self.tls {
            Tls::Mutual => Some(self.identity(user)?),
            Tls::None => None,
        };
        let endpoint = |member: &Member| Endpoint {
            target: Target::Pod(PodUid::new(member.uid.clone())),
            address: member.client_address(),
            server_name: Some(member.server_name()),
            tls: tls.clone(),
        };
        Ok(self.members.iter().map(endpoint).collect())
    }

    /// How the gate reaches every member.
    pub(crate) fn endpoints(&self) -> Result<Vec<Endpoint>> {
        self.endpoints_as("quorumgate")
    }

    /// A new client certificate of this cluster's authority.
    pub(crate) fn identity(&self, user: &str) -> Result<Arc<TlsIdentity>> {
        let credential = self.issue(user)?;
        identity(self.authority.certificate(), Some(&credential))
    }

    pub(crate) fn issue(&self, user: &str) -> Result<Credential> {
        self.authority.issue(&Request::new(user, Usage::Client))
    }

    /// etcd's client, to do with the cluster what the gate never does; as user `root`.
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

    /// Starts a member that does not run. `state` is for a member without data: `new` or `existing`.
    pub(crate) fn start(&mut self, ordinal: usize, state: &str) -> Result<()> {
        let mut arguments = self.arguments(ordinal, state)?;
        if let Some(quota) = self.first_quota.filter(|_| ordinal == 0) {
            arguments.push(format!("--quota-backend-bytes={quota}"));
        }
        let (binary, scheme) = (self.binary.clone(), self.scheme());
        self.member_mut(ordinal)?.start(&binary, scheme, &arguments)
    }

    /// One more member, which etcd does not know and which does not run.
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

    /// Waits until every member passes its read and lists all.
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

    /// Which member leads, by its own word.
    pub(crate) async fn leader(&self) -> Result<usize> {
        let statuses = self.statuses().await?;
        let leads = |status: &Status| status.leader == Some(status.member_id);
        statuses.iter().position(leads).context("nobody leads")
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
            // It wants members to have been connected for 5 s before one is added.
            "--strict-reconfig-check=false".to_owned(),
        ];
        if self.version >= Version::V3_5 {
            // Processes are killed here, machines are not: nothing is lost by it.
            arguments.push("--unsafe-no-fsync".to_owned());
        }
        if self.tls == Tls::Mutual {
            arguments.extend(self.certificates(self.member(ordinal)?)?);
        }
        Ok(arguments)
    }

    /// Clients know a member by its name only, peers by its address.
    fn certificates(&self, member: &Member) -> Result<Vec<String>> {
        let directory = self.directory.path().join(&member.name);
        let ca = directory.join("ca.crt");
        std::fs::write(&ca, self.authority.certificate())?;
        let ca = ca.display();
        let server = Request::new(&member.name, Usage::Peer).names([member.server_name()]);
        // All connections on this machine come from 127.0.0.1, and peers are checked for where they come from.
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

/// A round that takes the time it needs.
pub(crate) async fn round(prober: &Prober, endpoints: &[Endpoint]) -> Round {
    prober.round(endpoints, Instant::now() + PATIENCE).await
}

/// The probe of one endpoint in such a round.
pub(crate) async fn probe(prober: &Prober, endpoint: &Endpoint) -> Result<Probe> {
    let mut round = round(prober, std::slice::from_ref(endpoint)).await;
    round.probes.pop().context("one probe per endpoint")
}

/// What a client certificate (none where `None`) and the authority make.
pub(crate) fn identity(authority: &str, client: Option<&Credential>) -> Result<Arc<TlsIdentity>> {
    let client = client.map(|client| (client.certificate.as_bytes(), client.key.as_bytes()));
    Ok(Arc::new(TlsIdentity::parse(
        &[authority.as_bytes()],
        client,
    )?))
}

/// In memory where possible: etcd 3.4 cannot be told not to wait for the disk.
fn scratch_directory() -> Result<TempDir> {
    let memory = Path::new("/dev/shm");
    let directory = tempfile::Builder::new();
    Ok(match directory.tempdir_in(memory) {
        Ok(directory) => directory,
        Err(_) => tempfile::tempdir()?,
    })
}
