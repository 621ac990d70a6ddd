//! Which Secrets hold a cluster's client TLS, as its budget or its pods' volumes say.

use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::api::TlsSpec;

/// The volume with the certificate authority, by etcd-druid's convention.
const CA_VOLUME: &str = "etcd-ca";
/// The volume with the client certificate, by etcd-druid's convention.
const CLIENT_VOLUME: &str = "etcd-client-tls";

/// Secrets, and the keys in them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct TlsSecrets {
    pub(super) ca: CaRef,
    pub(super) client: Option<ClientRef>,
}

/// Where the certificate authority is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct CaRef {
    pub(super) secret: String,
    /// The keys it may be under, the likeliest first.
    pub(super) keys: Vec<String>,
}

/// Where the client certificate and its key are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ClientRef {
    pub(super) secret: String,
    pub(super) certificate: String,
    pub(super) key: String,
}

/// The Secrets that the budget names, else those of the pods' volumes. `None`: the members speak without TLS.
pub(super) fn tls_secrets(named: Option<&TlsSpec>, pod: Option<&PodSpec>) -> Option<TlsSecrets> {
    named.map(as_named).or_else(|| by_convention(pod?))
}

fn as_named(spec: &TlsSpec) -> TlsSecrets {
    let TlsSpec {
        ca_secret,
        client_secret,
    } = spec;
    let or = |key: &Option<String>, default: &str| key.clone().unwrap_or_else(|| default.into());
    TlsSecrets {
        ca: CaRef {
            secret: ca_secret.name.clone(),
            keys: vec![or(&ca_secret.key, "ca.crt")],
        },
        client: client_secret.as_ref().map(|client| ClientRef {
            secret: client.name.clone(),
            certificate: or(&client.cert_key, "tls.crt"),
            key: or(&client.key_key, "tls.key"),
        }),
    }
}

fn by_convention(pod: &PodSpec) -> Option<TlsSecrets> {
    let mut keys: Vec<String> = mounted_file(pod, CA_VOLUME).into_iter().collect();
    for usual in ["ca.crt", "bundle.crt"] {
        if !keys.iter().any(|key| key == usual) {
            keys.push(usual.to_owned());
        }
    }
    Some(TlsSecrets {
        ca: CaRef {
            secret: secret_of(pod, CA_VOLUME)?,
            keys,
        },
        client: secret_of(pod, CLIENT_VOLUME).map(|secret| ClientRef {
            secret,
            certificate: "tls.crt".into(),
            key: "tls.key".into(),
        }),
    })
}

fn secret_of(pod: &PodSpec, volume: &str) -> Option<String> {
    let mut volumes = pod.volumes.iter().flatten();
    let volume = volumes.find(|found| found.name == volume)?;
    volume.secret.as_ref()?.secret_name.clone()
}

/// The file of a volume that some container is told to use: a Secret of etcd-druid's may have any key for the authority.
fn mounted_file(pod: &PodSpec, volume: &str) -> Option<String> {
    pod.containers.iter().find_map(|container| {
        let mut mounts = container.volume_mounts.iter().flatten();
        let mount = mounts.find(|mount| mount.name == volume)?;
        let directory = format!("{}/", mount.mount_path.trim_end_matches('/'));
        words(container).find_map(|word| {
            let (_, file) = word.split_once(&directory)?;
            let plain = !file.is_empty() && !file.contains(['/', ' ', ',']);
            plain.then(|| file.to_owned())
        })
    })
}

fn words(container: &Container) -> impl Iterator<Item = &String> {
    let command = container.command.iter().flatten();
    command.chain(container.args.iter().flatten())
}
