//! The test bed as a library: the shared control plane, and clients and kubeconfigs for any of its
//! users.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Client;
use kube::api::{Api, PostParams};
use kube::config::Kubeconfig;
use tokio::sync::OnceCell;

use crate::control_plane::audit::AuditLog;
use crate::control_plane::{self, Component, ControlPlane};
use crate::executable;
use crate::kubeconfig::{self, Proof};
use crate::kubectl::Invocation;
use crate::paths::State;
use crate::pki::{Authority, Request, Usage};
use crate::sandbox::{self, Sandbox};
use crate::versions::Release;

/// A running control plane. Cheap to clone.
#[derive(Clone)]
pub struct Bed(Arc<Inner>);

struct Inner {
    control_plane: ControlPlane,
    authority: Authority,
    client: Client,
    executable: OnceCell<PathBuf>,
}

impl Bed {
    /// The shared control plane, which is started if it does not run. Leftovers of tests that were
    /// killed are removed.
    pub async fn up() -> Result<Self> {
        Self::up_with(ControlPlane::from_env()?).await
    }

    /// A control plane for one test that restarts or reconfigures it.
    pub async fn up_with(control_plane: ControlPlane) -> Result<Self> {
        control_plane.up().await?;
        let bed = Self::attach(control_plane).await?;
        sandbox::sweep(&bed).await?;
        Ok(bed)
    }

    /// A control plane that runs already. Starts nothing.
    pub async fn attach(control_plane: ControlPlane) -> Result<Self> {
        let client = control_plane
            .client()
            .await
            .context("the control plane is not up; run `testbed up`")?;
        let authority = control_plane::authority(&control_plane.state)?;
        Ok(Self(Arc::new(Inner {
            control_plane,
            authority,
            client,
            executable: OnceCell::new(),
        })))
    }

    /// The control plane.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.0.control_plane
    }

    /// The state directory of the control plane.
    pub fn state(&self) -> &State {
        &self.0.control_plane.state
    }

    /// The Kubernetes release of the control plane.
    pub fn kubernetes(&self) -> &'static Release {
        self.0.control_plane.kubernetes
    }

    /// The authority for the API server's certificate and for client certificates.
    pub fn authority(&self) -> &Authority {
        &self.0.authority
    }

    /// The administrator's client. Requests that fail are not repeated.
    pub fn client(&self) -> Client {
        self.0.client.clone()
    }

    /// A client for any user and groups, with the rights that RBAC grants them.
    pub async fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client> {
        kubeconfig::client(self.user_kubeconfig(user, groups)?).await
    }

    /// The administrator's kubeconfig.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.state().admin_kubeconfig()
    }

    /// A kubeconfig file for any user and groups.
    ///
    /// With at most one group the user has a client certificate. With more groups the file lets the
    /// administrator impersonate the user.
    pub fn kubeconfig_as(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        self.write_kubeconfig(user, &self.user_kubeconfig(user, groups)?)
    }

    /// A kubeconfig file for an existing service account, with a token that is valid for a day.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        self.token_kubeconfig(namespace, name, None).await
    }

    /// A kubeconfig file with a token as an existing pod has it: the token names the pod, and ends
    /// with it.
    pub async fn pod_kubeconfig(&self, namespace: &str, pod: &str) -> Result<PathBuf> {
        let pods: Api<Pod> = Api::namespaced(self.client(), namespace);
        let pod = pods.get(pod).await?;
        let account = pod
            .spec
            .as_ref()
            .and_then(|s| s.service_account_name.clone());
        let account = account.context("a pod without a service account")?;
        self.token_kubeconfig(namespace, &account, Some(&pod)).await
    }

    async fn token_kubeconfig(
        &self,
        namespace: &str,
        name: &str,
        pod: Option<&Pod>,
    ) -> Result<PathBuf> {
        let bound = pod.map(|pod| BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        });
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(24 * 3600),
                bound_object_ref: bound,
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("no token for the service account {namespace}/{name}"))?;
        let token = answer
            .status
            .context("a token request was answered without a token")?
            .token;
        let config = self.kubeconfig(&Proof::Token(&token))?;
        let of_pod = pod.and_then(|pod| pod.metadata.name.as_deref());
        let of_pod = of_pod.map(|pod| format!(":{pod}")).unwrap_or_default();
        self.write_kubeconfig(
            &format!("system:serviceaccount:{namespace}:{name}{of_pod}"),
            &config,
        )
    }

    /// An invocation of `kubectl ARGS...` as the administrator.
    pub fn kubectl<A: AsRef<std::ffi::OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Invocation {
        let plane = self.control_plane();
        let kubectl = plane.cache.binaries(plane.kubernetes).join("kubectl");
        // kubectl caches its discovery here instead of in the home directory of the user who runs
        // the tests.
        let cache = self.state().root().join("kubectl-cache");
        Invocation::new(kubectl)
            .kubeconfig(&self.admin_kubeconfig())
            .env("KUBECACHEDIR", cache)
            .args(args)
    }

    /// Restarts the API server, and returns when it is ready.
    pub async fn restart_api_server(&self) -> Result<()> {
        self.control_plane().restart(Component::ApiServer).await
    }

    /// The requests to the API server from now on.
    pub fn audit_log(&self) -> AuditLog {
        AuditLog::from_now(&self.state().audit_log())
    }

    /// A new namespace, whose name is `name` with a random suffix.
    pub async fn sandbox(&self, name: &str) -> Result<Sandbox> {
        Sandbox::create(self, name).await
    }

    /// The `testbed` program, which also is the node agent.
    pub async fn executable(&self) -> Result<&Path> {
        self.0
            .executable
            .get_or_try_init(executable::find)
            .await
            .map(PathBuf::as_path)
    }

    fn user_kubeconfig(&self, user: &str, groups: &[&str]) -> Result<Kubeconfig> {
        if let [_, _, ..] = groups {
            let admin = self
                .authority()
                .issue(&Request::new("admin", Usage::Client).organisation("system:masters"))?;
            return self.kubeconfig(&Proof::Impersonation(&admin, user, groups));
        }
        let mut request = Request::new(user, Usage::Client);
        request.organisation = groups.first().map(|group| String::from(*group));
        self.kubeconfig(&Proof::Certificate(&self.authority().issue(&request)?))
    }

    fn kubeconfig(&self, proof: &Proof<'_>) -> Result<Kubeconfig> {
        let server = self.control_plane().api_url()?;
        Ok(kubeconfig::kubeconfig(
            &server,
            self.authority().certificate(),
            proof,
        ))
    }

    fn write_kubeconfig(&self, user: &str, config: &Kubeconfig) -> Result<PathBuf> {
        if user.contains('/') || user.starts_with('.') {
            bail!("{user:?} is not a user name that a file can be called");
        }
        let path = self.state().kubeconfig(user);
        kubeconfig::write(config, &path)?;
        Ok(path)
    }
}
