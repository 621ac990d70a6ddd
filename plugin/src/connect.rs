//! The connection to the API server, as its user.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use quorumgate_api::QuorumDisruptionBudget;

use crate::cli::Connection;

/// The API server, and the namespace that the user works in.
pub(crate) struct Kubernetes {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// Whether the user named that namespace.
    pub(crate) named: bool,
    /// The flags by which `kubectl` finds the same cluster as the same user.
    pub(crate) kubectl: Vec<String>,
    /// The time limit of a request.
    pub(crate) limit: Option<Duration>,
}

impl Connection {
    /// Connects.
    pub(crate) async fn open(&self) -> Result<Kubernetes> {
        // The error says that one was installed already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let config = self.config().await?;
        let given = self.namespace.clone();
        let namespace = given.unwrap_or_else(|| config.default_namespace.clone());
        Ok(Kubernetes {
            client: Client::try_from(config)?,
            namespace,
            named: self.namespace.is_some(),
            kubectl: self.flags(),
            limit: self.limit(),
        })
    }

    fn limit(&self) -> Option<Duration> {
        self.request_timeout.filter(|limit| !limit.is_zero())
    }

    async fn config(&self) -> Result<Config> {
        let mut config = self.found().await?;
        // A refusal is an answer. The client would ask again for a minute.
        config.default_retry = false;
        if let Some(server) = &self.server {
            config.cluster_url = address(server)?;
        }
        if let Some(limit) = self.limit() {
            config.connect_timeout = Some(limit);
            config.read_timeout = Some(limit);
            config.write_timeout = Some(limit);
        }
        if let Some(file) = &self.certificate_authority {
            config.root_cert = None;
            config.root_cert_file = Some(file.clone());
        }
        if let Some(name) = &self.tls_server_name {
            config.tls_server_name = Some(name.clone());
        }
        if self.insecure_skip_tls_verify {
            config.accept_invalid_certs = true;
        }
        let user = &mut config.auth_info;
        if let Some(token) = &self.token {
            user.token = Some(token.clone().into());
            (user.token_file, user.exec, user.auth_provider) = (None, None, None);
            (user.username, user.password) = (None, None);
        }
        if let Some((certificate, key)) = self
            .client_certificate
            .as_ref()
            .zip(self.client_key.as_ref())
        {
            user.client_certificate = Some(text(certificate));
            user.client_key = Some(text(key));
            (user.client_certificate_data, user.client_key_data) = (None, None);
        }
        if let Some(name) = &self.as_user {
            user.impersonate = Some(name.clone());
            user.impersonate_groups = Some(self.as_group.clone());
            user.impersonate_uid.clone_from(&self.as_uid);
        }
        Ok(config)
    }

    /// The kubeconfig's choice. Without a kubeconfig: that address, or a pod's service account.
    async fn found(&self) -> Result<Config> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
        };
        let chosen = [&self.context, &self.cluster, &self.user];
        let by_default = self.kubeconfig.is_none() && chosen.iter().all(|name| name.is_none());
        let found = match self.kubeconfig() {
            Ok(read) => Config::from_custom_kubeconfig(read, &options).await,
            Err(error) => Err(error),
        };
        let error = match found {
            Ok(config) => return Ok(config),
            Err(error) => error,
        };
        if by_default && let Some(server) = &self.server {
            return Ok(Config::new(address(server)?));
        }
        if by_default && let Ok(config) = Config::incluster() {
            return Ok(config);
        }
        Err(error).context(NO_CLUSTER)
    }

    /// The kubeconfig that counts.
    pub(crate) fn kubeconfig(&self) -> Result<Kubeconfig, kube::config::KubeconfigError> {
        match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        }
    }

    /// The same flags, for kubectl. A namespace is left out: what runs kubectl concerns nodes.
    fn flags(&self) -> Vec<String> {
        let Self {
            namespace: _,
            context,
            kubeconfig,
            cluster,
            user,
            as_user,
            as_group,
            as_uid,
            request_timeout,
            server,
            token,
            certificate_authority,
            client_certificate,
            client_key,
            tls_server_name,
            insecure_skip_tls_verify,
        } = self;
        let file = |file: &Option<std::path::PathBuf>| file.as_deref().map(text);
        let one = [
            ("kubeconfig", file(kubeconfig)),
            ("context", context.clone()),
            ("cluster", cluster.clone()),
            ("user", user.clone()),
            ("as", as_user.clone()),
            ("as-uid", as_uid.clone()),
            ("server", server.clone()),
            ("token", token.clone()),
            ("certificate-authority", file(certificate_authority)),
            ("client-certificate", file(client_certificate)),
            ("client-key", file(client_key)),
            ("tls-server-name", tls_server_name.clone()),
            (
                "request-timeout",
                request_timeout.map(|limit| format!("{}ms", limit.as_millis())),
            ),
            (
                "insecure-skip-tls-verify",
                insecure_skip_tls_verify.then(|| "true".to_owned()),
            ),
        ];
        let groups = as_group
            .iter()
            .map(|group| ("as-group", Some(group.clone())));
        let all = one.into_iter().chain(groups);
        all.filter_map(|(name, value)| Some(format!("--{name}={}", value?)))
            .collect()
    }
}

fn address(server: &str) -> Result<http::Uri> {
    server
        .parse()
        .with_context(|| format!("--server={server} is not an address"))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

const NO_CLUSTER: &str =
    "no Kubernetes cluster: set KUBECONFIG, or give --kubeconfig and --context";

/// The user has no right to read something.
#[derive(Debug)]
pub(crate) struct MayNotRead(String);

impl std::fmt::Display for MayNotRead {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.0)
    }
}

impl std::error::Error for MayNotRead {}

/// The error for the user after a failed read of `what`.
pub(crate) fn failed(what: &str, error: kube::Error) -> anyhow::Error {
    let kube::Error::Api(status) = &error else {
        return anyhow::Error::new(error).context(format!("cannot ask the API server for {what}"));
    };
    match status.code {
        // Where a kind does not exist, the answer names no object.
        404 if what == BUDGETS || status.details.as_ref().is_none_or(|d| d.name.is_empty()) => {
            anyhow!("this cluster has no {what}: install quorumgate, or choose another --context")
        }
        403 => anyhow::Error::new(MayNotRead(format!(
            "your user may not read {what}: {}",
            status.message.trim_end()
        ))),
        401 => anyhow!("the API server does not accept your user: log in again"),
        _ => anyhow!("cannot read {what}: {}", status.message.trim_end()),
    }
}

/// The words of an error, without the API server's whole answer.
pub(crate) fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.trim_end().to_owned(),
        other => other.to_string(),
    }
}

/// The name of budgets in messages.
pub(crate) const BUDGETS: &str = "QuorumDisruptionBudgets";

/// The budget of a cluster.
pub(crate) async fn budget(of: &Kubernetes, name: &str) -> Result<QuorumDisruptionBudget> {
    let api = kube::Api::<QuorumDisruptionBudget>::namespaced(of.client.clone(), &of.namespace);
    match api.get_opt(name).await {
        Ok(Some(budget)) => Ok(budget),
        // Whether the kind is missing or the object, only a list tells.
        Ok(None) => {
            let all = api.list(&kube::api::ListParams::default()).await;
            let all = all.map_err(|error| failed(BUDGETS, error))?;
            let names: Vec<_> = all.iter().filter_map(|b| b.metadata.name.clone()).collect();
            let namespace = &of.namespace;
            Err(match names.as_slice() {
                [] => {
                    anyhow!("no cluster is guarded in the namespace {namespace}: set --namespace")
                }
                names => anyhow!(
                    "no cluster {name} is guarded in the namespace {namespace}; there are: {}",
                    names.join(", ")
                ),
            })
        }
        Err(error) => Err(failed(BUDGETS, error)),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Mutex};

    use clap::Parser as _;
    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::Cli;

    /// An API server that has these objects, by the path at which they are read, and the requests
    /// that it got.
    pub(crate) fn api_server(objects: &[(&str, Value)]) -> (Kubernetes, Arc<Mutex<Vec<String>>>) {
        let objects: BTreeMap<String, Value> = objects
            .iter()
            .map(|(path, object)| ((*path).to_owned(), object.clone()))
            .collect();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            log.lock()
                .unwrap()
                .push(format!("{} {}", request.method(), request.uri()));
            let (code, body) = match objects.get(&path) {
                Some(Value::String(text)) => (200, text.clone()),
                Some(object) if object["kind"] == "Status" => {
                    let code = object["code"].as_u64().unwrap();
                    (u16::try_from(code).unwrap(), object.to_string())
                }
                Some(object) => (200, object.to_string()),
                None => (404, missing().to_string()),
            };
            let mut response = Response::new(Body::from(body.into_bytes()));
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            async { Ok::<_, Infallible>(response) }
        });
        let of = Kubernetes {
            client: Client::new(service, "default"),
            namespace: "db".to_owned(),
            named: false,
            kubectl: Vec::new(),
            limit: None,
        };
        (of, asked)
    }

    fn missing() -> Value {
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
            "code": 404, "message": "not found", "details": {"name": "it"}})
    }

    /// A refusal of the API server.
    pub(crate) fn forbidden() -> Value {
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
            "code": 403, "message": "user jane may not", "details": {"name": "it"}})
    }

    /// A list of objects.
    pub(crate) fn list(kind: &str, items: &[Value]) -> Value {
        json!({"kind": format!("{kind}List"), "apiVersion": "v1", "metadata": {}, "items": items})
    }

    const KUBECONFIG: &str = r"
apiVersion: v1
kind: Config
current-context: one
contexts:
- {name: one, context: {cluster: one, user: one, namespace: db}}
- {name: two, context: {cluster: two, user: two}}
clusters:
- {name: one, cluster: {server: 'https://one:6443'}}
- {name: two, cluster: {server: 'https://two:6443'}}
users:
- {name: one, user: {token: first}}
- {name: two, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: login, interactiveMode: Never}}}
";

    async fn config(flags: &[&str]) -> Config {
        static FILES: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("kubectl-quorum-{process}-{number}"));
        std::fs::write(&path, KUBECONFIG).unwrap();
        let file = format!("--kubeconfig={}", path.display());
        let line = ["q", "status", &file];
        let line = line.iter().chain(flags);
        let connection = Cli::try_parse_from(line).unwrap().connection;
        let config = connection.config().await.unwrap();
        std::fs::remove_file(&path).unwrap();
        config
    }

    #[tokio::test]
    async fn flags_choose_the_cluster_and_the_user_as_kubectls_do() {
        let first = config(&[]).await;
        assert_eq!(first.cluster_url, "https://one:6443");
        assert_eq!(first.default_namespace, "db");
        let mixed = config(&["--cluster=two"]).await;
        assert_eq!(mixed.cluster_url, "https://two:6443");
        assert!(mixed.auth_info.token.is_some(), "the user stays");
        let user = config(&["--user=two"]).await;
        assert!(user.auth_info.exec.is_some() && user.auth_info.token.is_none());
        let server = config(&["--server=https://three", "--request-timeout=7s"]).await;
        assert_eq!(server.cluster_url, "https://three");
        assert_eq!(server.read_timeout, Some(Duration::from_secs(7)));
        assert_eq!(config(&["--request-timeout=0"]).await.read_timeout, None);
    }

    #[tokio::test]
    async fn an_impersonated_user_and_a_token_take_the_place_of_the_kubeconfigs() {
        let as_jane = ["--as=jane", "--as-group=a", "--as-group=b", "--as-uid=7"];
        let jane = config(&as_jane).await.auth_info;
        assert_eq!(jane.impersonate.as_deref(), Some("jane"));
        assert_eq!(jane.impersonate_uid.as_deref(), Some("7"));
        let groups = ["a", "b"].map(str::to_owned).to_vec();
        assert_eq!(jane.impersonate_groups, Some(groups));
        let by_token = config(&["--context=two", "--token=mine"]).await.auth_info;
        assert!(by_token.token.is_some() && by_token.exec.is_none());
    }

    #[test]
    fn kubectl_is_run_with_the_same_flags() {
        let flags = [
            "--kubeconfig=k",
            "--context=x",
            "--as=jane",
            "--request-timeout=5000ms",
            "--insecure-skip-tls-verify=true",
            "--as-group=a",
            "--as-group=b",
        ];
        let given = flags.map(|flag| flag.trim_end_matches("=true"));
        let line = ["q", "drain", "node"].into_iter().chain(given);
        let connection = Cli::try_parse_from(line).unwrap().connection;
        assert_eq!(connection.flags(), flags);
    }
}
