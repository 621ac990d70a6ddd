//! The means to ask a cluster's members: TLS with its Secrets, and a user with a password. They
//! come from the budget, or else from etcd-druid's volumes, or else from etcd's own flags and
//! variables and the mounts behind them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::containers::which_is_etcd;
use super::mounts::{SecretKey, behind};
use super::settings::Settings;
use crate::api::{AuthSpec, MembersSpec, TlsSpec};

/// The volume with the certificate authority, by etcd-druid's convention.
const CA_VOLUME: &str = "etcd-ca";
/// The volume with the client certificate, by etcd-druid's convention.
const CLIENT_VOLUME: &str = "etcd-client-tls";

/// Secrets and keys in them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct TlsSecrets {
    /// The trusted authority. `None` without TLS.
    pub(super) ca: Option<CaRef>,
    /// An additional trusted authority, if its key exists.
    pub(super) also: Option<SecretKey>,
    pub(super) client: Option<ClientRef>,
    pub(super) user: Option<UserRef>,
    /// The reason, for people, why no member can be asked: members serve TLS, and the Secrets for
    /// it were not found.
    pub(super) problem: Option<String>,
}

/// The place of the certificate authority.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct CaRef {
    pub(super) secret: String,
    /// The possible keys, the likeliest first.
    pub(super) keys: Vec<String>,
}

/// The places of the client certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ClientRef {
    pub(super) certificate: SecretKey,
    pub(super) key: SecretKey,
}

/// The places of user and password.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct UserRef {
    pub(super) name: SecretKey,
    pub(super) password: SecretKey,
}

/// The transport to members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TLS.
    Tls,
    /// Plaintext.
    Plaintext,
    /// None: members serve TLS, and the Secrets for it were not found.
    Missing,
}

/// The transport to members, and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The transport.
    pub transport: Transport,
    /// The source, for people.
    pub told: String,
    /// The Secrets to read.
    pub(super) secrets: Option<TlsSecrets>,
}

#[cfg(test)]
impl Access {
    /// An arbitrary access, for tests of its description.
    pub(crate) fn made_up(transport: Transport, told: &str) -> Self {
        let told = told.to_owned();
        Self {
            transport,
            told,
            secrets: None,
        }
    }
}

/// The access to the members of a cluster, whose budget has `members` and whose pods are like
/// `pod`.
pub(super) fn access(members: &MembersSpec, pod: Option<&PodSpec>) -> Access {
    let mut access = match (&members.tls, pod) {
        (Some(named), _) => as_named(named),
        (None, Some(pod)) => as_the_pod_says(pod),
        (None, None) => plaintext("there is neither a StatefulSet nor a pod to tell"),
    };
    if let Some(auth) = &members.auth {
        let user = of_user(auth);
        let _ = write!(
            access.told,
            "; user and password from Secret {}",
            user.name.secret
        );
        access.secrets.get_or_insert_default().user = Some(user);
    }
    access
}

fn plaintext(why: impl Into<String>) -> Access {
    Access {
        transport: Transport::Plaintext,
        told: why.into(),
        secrets: None,
    }
}

fn tls(secrets: TlsSecrets, told: String) -> Access {
    Access {
        transport: Transport::Tls,
        told,
        secrets: Some(secrets),
    }
}

fn missing(why: &str) -> Access {
    let told = format!("{why}; name the Secrets in spec.members.tls");
    let secrets = TlsSecrets {
        problem: Some(told.clone()),
        ..TlsSecrets::default()
    };
    Access {
        transport: Transport::Missing,
        told,
        secrets: Some(secrets),
    }
}

fn of_user(auth: &AuthSpec) -> UserRef {
    let secret = &auth.secret;
    let key = |key: &Option<String>, usual: &str| SecretKey {
        secret: secret.name.clone(),
        key: key.clone().unwrap_or_else(|| usual.into()),
    };
    UserRef {
        name: key(&secret.username_key, "username"),
        password: key(&secret.password_key, "password"),
    }
}

fn as_named(spec: &TlsSpec) -> Access {
    let TlsSpec {
        ca_secret,
        client_secret,
    } = spec;
    let or = |key: &Option<String>, default: &str| key.clone().unwrap_or_else(|| default.into());
    let mut told = format!(
        "the budget names Secret {} for the authority",
        ca_secret.name
    );
    if let Some(client) = client_secret {
        let _ = write!(
            told,
            " and Secret {} for the client certificate",
            client.name
        );
    }
    let secrets = TlsSecrets {
        ca: Some(CaRef {
            secret: ca_secret.name.clone(),
            keys: vec![or(&ca_secret.key, "ca.crt")],
        }),
        client: client_secret.as_ref().map(|client| {
            let key = |key| SecretKey {
                secret: client.name.clone(),
                key,
            };
            ClientRef {
                certificate: key(or(&client.cert_key, "tls.crt")),
                key: key(or(&client.key_key, "tls.key")),
            }
        }),
        ..TlsSecrets::default()
    };
    tls(secrets, told)
}

fn as_the_pod_says(pod: &PodSpec) -> Access {
    let names = pod
        .containers
        .iter()
        .map(|container| container.name.as_str());
    let etcd = which_is_etcd(names);
    let etcd = pod
        .containers
        .iter()
        .find(|c| Some(c.name.as_str()) == etcd);
    let Some(container) = etcd.or_else(|| serves_tls(pod)) else {
        let told = "which container is etcd's cannot be told: none of several is called etcd";
        return by_convention(pod).unwrap_or_else(|| plaintext(told));
    };
    let settings = Settings::of(container);
    let file = settings.file();
    if file.is_none()
        && let Some(urls) = settings.get("listen-client-urls")
        && urls.value.split(',').all(|url| url.starts_with("http://"))
    {
        return plaintext(format!(
            "container {} is told {}",
            container.name, urls.told_by
        ));
    }
    if let Some(found) = by_convention(pod) {
        return found;
    }
    match file {
        Some(file) => plaintext(format!(
            "container {} has its settings in a file ({}), which the gate does not read, and there is no volume {CA_VOLUME}; where it serves TLS, name the Secrets in spec.members.tls",
            container.name, file.told_by
        )),
        None => by_settings(&settings, container, pod),
    }
}

/// The container whose settings have a serving certificate.
fn serves_tls(pod: &PodSpec) -> Option<&Container> {
    let mut containers = pod.containers.iter();
    containers.find(|container| Settings::of(container).get("cert-file").is_some())
}

fn by_settings(settings: &Settings<'_>, container: &Container, pod: &PodSpec) -> Access {
    let Some(serving) = settings.get("cert-file") else {
        let by_https = settings.get("listen-client-urls");
        let by_https = by_https.filter(|urls| urls.value.contains("https://"));
        return match by_https {
            Some(urls) => missing(&format!(
                "container {} is told {}, and of no --cert-file",
                container.name, urls.told_by
            )),
            None => plaintext(format!(
                "container {} is told of no certificate, by no --cert-file and no ETCD_CERT_FILE",
                container.name
            )),
        };
    };
    let at = |path: &str| behind(path, container, pod);
    let trusted = settings.get("trusted-ca-file");
    let certificate = match at(&serving.value) {
        Ok(certificate) => certificate,
        Err(why) => return missing(&format!("{}: {why}", serving.told_by)),
    };
    let beside = SecretKey {
        secret: certificate.secret.clone(),
        key: "ca.crt".into(),
    };
    let mut told = format!("{}: ", serving.told_by);
    // The authority that etcd trusts for clients mostly issued etcd's own certificate too. So did
    // an authority in the same Secret as that certificate.
    let (authority, also) = match &trusted {
        None => (beside, None),
        Some(trusted) => match at(&trusted.value) {
            Ok(authority) => {
                let _ = write!(told, "{}: ", trusted.told_by);
                (authority, Some(beside))
            }
            Err(why) => return missing(&format!("{}: {why}", trusted.told_by)),
        },
    };
    let _ = write!(
        told,
        "the authority is {} of Secret {}",
        authority.key, authority.secret
    );
    let also = also.filter(|also| *also != authority);
    let client = if trusted.is_some() || settings.is_on("client-cert-auth") {
        let client = match client(settings, certificate, container, pod) {
            Ok(client) => client,
            Err(why) => return missing(&why),
        };
        let _ = write!(
            told,
            ", the client certificate {} of Secret {}",
            client.certificate.key, client.certificate.secret
        );
        Some(client)
    } else {
        told.push_str(", and no client certificate is asked for");
        None
    };
    let secrets = TlsSecrets {
        ca: Some(CaRef {
            secret: authority.secret,
            keys: vec![authority.key],
        }),
        also,
        client,
        ..TlsSecrets::default()
    };
    tls(secrets, told)
}

/// The certificate that etcdctl would use in the container, or else that of the only volume whose
/// name mentions clients, or else etcd's own.
fn client(
    settings: &Settings<'_>,
    own: SecretKey,
    container: &Container,
    pod: &PodSpec,
) -> Result<ClientRef, String> {
    let at = |path: &str| behind(path, container, pod);
    if let (Some(certificate), Some(key)) =
        (settings.env("ETCDCTL_CERT"), settings.env("ETCDCTL_KEY"))
        && let (Ok(certificate), Ok(key)) = (at(&certificate.value), at(&key.value))
    {
        return Ok(ClientRef { certificate, key });
    }
    if let Some(secret) = clients_secret(pod, &own.secret) {
        return Ok(pair_in(&secret));
    }
    let key = settings.get("key-file");
    let key = key.ok_or("container etcd is told of a --cert-file, and of no --key-file")?;
    Ok(ClientRef {
        certificate: own,
        key: at(&key.value).map_err(|why| format!("{}: {why}", key.told_by))?,
    })
}

fn clients_secret(pod: &PodSpec, own: &str) -> Option<String> {
    let secrets = pod.volumes.iter().flatten().filter_map(|volume| {
        let secret = volume.secret.as_ref()?.secret_name.as_ref()?;
        let named = volume.name.contains("client") || secret.contains("client");
        (named && secret != own).then_some(secret)
    });
    let mut secrets = secrets.collect::<BTreeSet<_>>().into_iter();
    let only = secrets.next()?;
    secrets.next().is_none().then(|| only.clone())
}

/// Certificate and key with the key names of Secrets of type `kubernetes.io/tls`.
fn pair_in(secret: &str) -> ClientRef {
    let key = |key: &str| SecretKey {
        secret: secret.to_owned(),
        key: key.to_owned(),
    };
    ClientRef {
        certificate: key("tls.crt"),
        key: key("tls.key"),
    }
}

fn by_convention(pod: &PodSpec) -> Option<Access> {
    let ca = authority_in(pod, CA_VOLUME)?;
    let mut told = format!(
        "volume {CA_VOLUME}: the authority is in Secret {}",
        ca.secret
    );
    let client = secret_of(pod, CLIENT_VOLUME);
    if let Some(client) = &client {
        let _ = write!(
            told,
            "; volume {CLIENT_VOLUME}: the client certificate is in Secret {client}"
        );
    }
    let secrets = TlsSecrets {
        ca: Some(ca),
        client: client.as_deref().map(pair_in),
        ..TlsSecrets::default()
    };
    Some(tls(secrets, told))
}

/// The authority in the Secret of this volume.
pub(super) fn authority_in(pod: &PodSpec, volume: &str) -> Option<CaRef> {
    let secret = secret_of(pod, volume)?;
    let mut keys: Vec<String> = mounted_file(pod, volume).into_iter().collect();
    for usual in ["ca.crt", "bundle.crt"] {
        if !keys.iter().any(|key| key == usual) {
            keys.push(usual.to_owned());
        }
    }
    Some(CaRef { secret, keys })
}

fn secret_of(pod: &PodSpec, volume: &str) -> Option<String> {
    let mut volumes = pod.volumes.iter().flatten();
    let volume = volumes.find(|found| found.name == volume)?;
    volume.secret.as_ref()?.secret_name.clone()
}

/// The file of a volume that a container's settings name. A Secret of etcd-druid may have any key
/// for the authority.
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
