//! The facts that the components of one control plane share: binaries, files, ports, identities.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::ports::Ports;
use crate::builder;
use crate::kubeconfig::{self, Proof, kubeconfig};
use crate::paths::{Cache, State};
use crate::pki::{self, Authority, Request, Usage};
use crate::versions::Release;

/// The address range for Services. Nothing routes it.
pub(super) const SERVICE_RANGE: &str = "10.96.0.0/16";
const KUBERNETES_SERVICE: &str = "10.96.0.1";
/// The issuer of service account tokens, as their `iss` claim says.
pub(super) const TOKEN_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const AUTHORITY_NAME: &str = "quorumgate test bed";

/// The files, ports and binaries of one control plane.
pub(super) struct Layout {
    pub(super) state: State,
    pub(super) ports: Ports,
    pub(super) kubernetes: PathBuf,
    pub(super) etcd: PathBuf,
}

/// The certificate authority of a state. Created if it does not exist.
pub fn authority(state: &State) -> Result<Authority> {
    Authority::load_or_create(&state.pki(), AUTHORITY_NAME)
}

impl Layout {
    /// Builds, chooses and issues all missing parts. Blocks.
    pub(super) fn prepare(
        cache: &Cache,
        state: &State,
        kubernetes: &Release,
        etcd: &Release,
    ) -> Result<Self> {
        let binaries = builder::ensure_built(cache, kubernetes)?;
        let etcd = builder::ensure_built(cache, etcd)?;
        for directory in [
            state.root(),
            &state.run(),
            &state.logs(),
            &state.nodes(),
            &state.sandboxes(),
        ] {
            fs::create_dir_all(directory)
                .with_context(|| format!("cannot create {}", directory.display()))?;
        }
        let ports = Ports::load_or_choose(&ports_file(state))?;
        let layout = Self {
            state: state.clone(),
            ports,
            kubernetes: binaries,
            etcd,
        };
        layout.issue_credentials()?;
        Ok(layout)
    }

    /// The layout that was prepared before. `None` if a part is missing. Changes nothing.
    pub(super) fn find(
        cache: &Cache,
        state: &State,
        kubernetes: &Release,
        etcd: &Release,
    ) -> Option<Self> {
        let is_built = builder::is_built(cache, kubernetes) && builder::is_built(cache, etcd);
        let ports = Ports::load(&ports_file(state)).filter(|_| is_built)?;
        let (kubernetes, etcd) = (cache.binaries(kubernetes), cache.binaries(etcd));
        Some(Self {
            state: state.clone(),
            ports,
            kubernetes,
            etcd,
        })
    }

    /// The certificate authority's own certificate.
    pub(super) fn authority_file(&self) -> PathBuf {
        self.state.pki().join("ca.crt")
    }

    /// A file of the certificate authority's directory.
    pub(super) fn pki_file(&self, name: &str) -> PathBuf {
        self.state.pki().join(name)
    }

    fn issue_credentials(&self) -> Result<()> {
        let authority = authority(&self.state)?;
        pki::service_account_keys(&self.state.pki())?;
        let api_names = [
            "127.0.0.1",
            KUBERNETES_SERVICE,
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
        ];
        self.issue_server(&authority, "kube-apiserver", &api_names)?;
        self.issue_server(
            &authority,
            "kube-controller-manager",
            &["127.0.0.1", "localhost"],
        )?;
        self.issue_server(&authority, "kube-scheduler", &["127.0.0.1", "localhost"])?;
        self.issue_user(&authority, "system:kube-controller-manager", None)?;
        self.issue_user(&authority, "system:kube-scheduler", None)?;
        self.issue_user(&authority, "admin", Some("system:masters"))
    }

    fn issue_server(&self, authority: &Authority, name: &str, names: &[&str]) -> Result<()> {
        // The certificate is written last. So if it exists, its key exists too.
        if self.pki_file(&format!("{name}.crt")).exists() {
            return Ok(());
        }
        let request = Request::new(name, Usage::Server).names(names.iter().copied());
        authority
            .issue(&request)?
            .write(&self.state.pki(), name)
            .map(drop)
    }

    fn issue_user(&self, authority: &Authority, user: &str, group: Option<&str>) -> Result<()> {
        let path = self.state.kubeconfig(user);
        if path.exists() {
            return Ok(());
        }
        let mut request = Request::new(user, Usage::Client);
        request.organisation = group.map(String::from);
        let credential = authority.issue(&request)?;
        let config = kubeconfig(
            &api_url(self.ports),
            authority.certificate(),
            &Proof::Certificate(&credential),
        );
        kubeconfig::write(&config, &path)
    }
}

/// The file that records the ports of a state.
pub(super) fn ports_file(state: &State) -> PathBuf {
    state.root().join("ports.json")
}

/// The URL of the Kubernetes API.
pub(super) fn api_url(ports: Ports) -> String {
    format!("https://127.0.0.1:{}", ports.api_server)
}

/// The flag `--name=path`.
pub(super) fn path_flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}
