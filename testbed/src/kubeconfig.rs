//! Kubeconfig files for the users of the test bed, and clients made from them.

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

/// The only cluster, user and context of every kubeconfig written here.
const NAME: &str = "testbed";

/// How a user proves who it is.
pub enum Proof<'a> {
    /// By a client certificate.
    Certificate(&'a Credential),
    /// By a client certificate that may impersonate, as somebody else with these groups.
    Impersonation(&'a Credential, &'a str, &'a [&'a str]),
    /// By a bearer token.
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

/// Writes a kubeconfig in one step, so that nobody ever reads half of it.
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
/// It never repeats a request by itself: a test wants to see each answer as the API server gave it.
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

/// Chooses the one TLS implementation of this process. Whoever chose before us keeps their choice.
pub fn install_crypto() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    });
}
