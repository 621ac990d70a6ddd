//! Connections to members, by a pod's address with the server name of its member.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::spec::{Auth, PASSWORD, Tls};
use super::{EtcdCluster, objects};

/// The time limit for opening a connection. Members are on this machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The members' port for clients.
const CLIENT_PORT: u16 = 2379;

/// The identity and the settings for connections to any member of a cluster. Needs no further call
/// to the API server.
#[derive(Clone, Debug)]
pub struct Dialer {
    scheme: &'static str,
    tls: Option<TlsOptions>,
    password: Option<&'static str>,
}

impl Dialer {
    /// A client for the member at this address. The connection is opened by the first call.
    ///
    /// `timeout` is the limit for each call, which includes opening the connection.
    pub async fn dial(&self, address: IpAddr, timeout: Duration) -> Result<Client> {
        let mut options = ConnectOptions::new()
            .with_timeout(timeout)
            .with_connect_timeout(timeout.min(CONNECT_TIMEOUT));
        if let Some(tls) = &self.tls {
            options = options.with_tls(tls.clone());
        }
        let endpoint = format!(
            "{}://{}",
            self.scheme,
            SocketAddr::new(address, CLIENT_PORT)
        );
        if let Some(password) = self.password {
            let as_root = options.clone().with_user("root", password);
            // Before authentication is on, every login fails.
            if let Ok(client) = Client::connect([&endpoint], Some(as_root)).await {
                return Ok(client);
            }
        }
        Ok(Client::connect([endpoint], Some(options)).await?)
    }
}

impl EtcdCluster {
    /// A dialer for the test bed itself (etcd's user `root`), independent of the gate's
    /// certificate.
    pub async fn dialer(&self) -> Result<Dialer> {
        self.dialer_as(&objects::root_secret(&self.spec)).await
    }

    /// A dialer with the gate's certificate.
    pub async fn gate_dialer(&self) -> Result<Dialer> {
        self.dialer_as(&objects::client_secret(&self.spec)).await
    }

    /// The client URL of every pod that has an address, by pod name.
    pub async fn endpoints(&self) -> Result<BTreeMap<String, String>> {
        let scheme = self.spec.scheme();
        let url = |address| format!("{scheme}://{}", SocketAddr::new(address, CLIENT_PORT));
        let addresses = self.pod_ips().await?;
        Ok(addresses
            .into_iter()
            .map(|(pod, address)| (pod, url(address)))
            .collect())
    }

    /// The Secret with the certificate of etcd's user `root`, which the test bed uses. `None`
    /// without TLS.
    pub fn root_secret(&self) -> Option<String> {
        (self.spec.tls == Tls::Mutual).then(|| objects::root_secret(&self.spec))
    }

    /// A client for the member that is first to answer a linearizable read, and so has a quorum.
    ///
    /// # Errors
    ///
    /// Fails if no member has a quorum within a few seconds. The message has the answer of each.
    pub async fn connect(&self) -> Result<Client> {
        let dialer = self.dialer().await?;
        let mut refusals = Vec::new();
        for (pod, address) in self.pod_ips().await? {
            match first_read(&dialer, address).await {
                Ok(client) => return Ok(client),
                Err(error) => refusals.push(format!("{pod}: {error:#}")),
            }
        }
        bail!("no member of {self:?} has quorum: {}", refusals.join("; "))
    }

    /// A client for the member in one pod.
    pub async fn connect_to(&self, pod: &str) -> Result<Client> {
        self.dialer()
            .await?
            .dial(self.pod_ip(pod).await?, Duration::from_secs(2))
            .await
    }

    async fn dialer_as(&self, secret: &str) -> Result<Dialer> {
        let scheme = self.spec.scheme();
        let password = (self.spec.auth == Auth::Password).then_some(PASSWORD);
        if self.spec.tls == Tls::None {
            let tls = None;
            return Ok(Dialer {
                scheme,
                tls,
                password,
            });
        }
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        let data = secrets.get(secret).await?.data.unwrap_or_default();
        let entry = |key: &str| {
            data.get(key)
                .map(|bytes| &bytes.0)
                .with_context(|| format!("{secret} has no {key}"))
        };
        let identity = Identity::from_pem(entry(objects::CERTIFICATE)?, entry(objects::KEY)?);
        let authority = Certificate::from_pem(entry(objects::CA_CERTIFICATE)?);
        // The server name is the same for all members, because their certificate has a wildcard.
        let any_member = self.server_name(&self.spec.pod(0));
        let tls = TlsOptions::new()
            .identity(identity)
            .ca_certificate(authority)
            .domain_name(any_member);
        Ok(Dialer {
            scheme,
            tls: Some(tls),
            password,
        })
    }
}

async fn first_read(dialer: &Dialer, address: IpAddr) -> Result<Client> {
    let limit = Duration::from_secs(2);
    let mut client = dialer.dial(address, limit).await?;
    // The client's own timeout does not cover an address without a listener, where it tries again
    // and again.
    tokio::time::timeout(limit, client.get("testbed", None))
        .await
        .context("timed out")??;
    Ok(client)
}
