//! Kubeconfig files for users of the test bed, and clients for them.

use std::fs;
use std::path::Path;
use std::sync::Once;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use kube::config::{
    AuthInfo, Cluster, Config, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster,
    NamedContext,
};

use crate::pki::Credential;

/// The name of the only cluster, user and context in every kubeconfig of the test bed.
const NAME: &str = "testbed";

/// The credentials of a user.
pub enum Proof<'a> {
    /// A client certificate.
    Certificate(&'a Credential),
    /// A client certificate that may impersonate, with the user and the groups to impersonate.
    Impersonation(&'a Credential, &'a str, &'a [&'a str]),
    /// A bearer token.
    Token(&'a str),
}

/// The kubeconfig of one user.
pub fn kubeconfig(server: &str, authority: &str, proof: &Proof<'_>) -> Kubeconfig {
    Kubeconfig {
        api_version: Some("v1".into()),
        kind: Some("Config".into()),
        current_context: Some(NAME.into()),
        clusters: vec![NamedCluster {
            name: NAME.into(),
            cluster: Some(Cluster {
                server: Some(server.into()),
                certificate_authority_data: Some(STANDARD.encode(authority)),
                ..Cluster::default()
            }),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: NAME.into(),
            auth_info: Some(auth_info(proof)),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: NAME.into(),
            context: Some(Context {
                cluster: NAME.into(),
                user: Some(NAME.into()),
                ..Context::default()
            }),
            ..NamedContext::default()
        }],
        ..Kubeconfig::default()
    }
}

fn auth_info(proof: &Proof<'_>) -> AuthInfo {
    match proof {
        Proof::Token(token) => AuthInfo {
            token: Some(String::from(*token).into()),
            ..AuthInfo::default()
        },
        Proof::Certificate(credential) => AuthInfo {
            client_certificate_data: Some(STANDARD.encode(&credential.certificate)),
            client_key_data: Some(STANDARD.encode(&credential.key).into()),
            ..AuthInfo::default()
        },
        Proof::Impersonation(credential, user, groups) => AuthInfo {
            impersonate: Some(String::from(*user)),
            impersonate_groups: Some(groups.iter().copied().map(String::from).collect()),
            ..auth_info(&Proof::Certificate(credential))
        },
    }
}

/// Writes a kubeconfig in one step, so that no reader sees half of it.
pub fn write(kubeconfig: &Kubeconfig, path: &Path) -> Result<()> {
    let text = serde_saphyr::to_string(kubeconfig)?;
    let directory = path.parent().context("a kubeconfig needs a directory")?;
    fs::create_dir_all(directory)?;
    let file = tempfile::NamedTempFile::new_in(directory)?;
    fs::write(file.path(), text)?;
    file.persist(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

/// A client for a kubeconfig.
///
/// Requests that fail are not repeated, so that a test sees each answer of the API server.
pub async fn client(kubeconfig: Kubeconfig) -> Result<Client> {
    install_crypto();
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// A client for a kubeconfig file.
pub async fn client_from(path: &Path) -> Result<Client> {
    let kubeconfig =
        Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
    client(kubeconfig).await
}

/// Sets the TLS implementation of this process, unless one is set already.
pub fn install_crypto() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    });
}
