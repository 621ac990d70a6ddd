//! Ways to ask the members of a cluster: where they listen, and by which certificates.
//!
//! A budget may name a way. Otherwise candidates are *gathered*, the likeliest first, from etcd's
//! settings and from what its pods mount ([`gather`], pure). What the settings refer to is *read*
//! ([`read`]), and the candidates are *tried* side by side ([`trial`]), in the background alone.
//! The one by which members answer is recorded in the budget, and every replica asks by it. Until
//! one is recorded, verdicts use the first candidate that needs no reading.
//!
//! A way says how members are asked, and nothing of what they answer: a wrong one costs evidence,
//! and makes none.

mod advice;
mod found;
mod gather;
mod read;
mod trial;

pub use advice::advice;
pub(super) use read::referred;
pub use trial::{FailedWay, Trial};

use k8s_openapi::api::core::v1::PodSpec;

use super::contents::{Contents, Object, Place};
use crate::api::{
    AuthSpec, AuthoritySource, IdentitySource, MembersSpec, PortSource, Scheme, SourceKind,
    TlsSpec, Way,
};
use crate::ledger::Page;

/// The certificates and the user that a way needs, by the objects that have them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Credentials {
    pub(super) authority: Option<AuthoritySource>,
    pub(super) identity: Option<IdentitySource>,
    pub(super) user: Option<UserSource>,
    /// The reason, for people, why no member can be asked: members serve TLS, and no authority for
    /// it was found.
    pub(super) problem: Option<String>,
}

/// The places of user and password.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct UserSource {
    pub(super) name: Place,
    pub(super) password: Place,
}

/// The way in which the members of this budget are asked: the recorded one, or else the first
/// candidate by `pod`, the template of the StatefulSet or a pod. What the budget names comes
/// before both.
pub(super) fn in_use(page: &Page, pod: Option<&PodSpec>) -> Way {
    let members = &page.budget().spec.members;
    let recorded = page.status().and_then(|status| status.way.as_deref());
    let is_of_container =
        |way: &&Way| members.container.is_none() || members.container == way.container;
    match recorded.filter(is_of_container) {
        Some(way) => as_named(way.clone(), members),
        None => first_guess(members, pod),
    }
}

/// The first candidate without anything read.
fn first_guess(members: &MembersSpec, pod: Option<&PodSpec>) -> Way {
    let contents = Contents::default();
    let mut candidates = gather::gather(&gather::Known {
        members,
        pod: pod.unwrap_or(&PodSpec::default()),
        contents: &contents,
        services: &[],
    });
    candidates.swap_remove(0)
}

/// The way with what the budget names now.
fn as_named(mut way: Way, members: &MembersSpec) -> Way {
    if let Some(port) = port_named(members) {
        way.port = port;
        way.port_from = PortSource::Budget;
    }
    if let Some(tls) = &members.tls {
        way.scheme = Scheme::Https;
        if let Some(authority) = authority_named(tls) {
            way.authority = Some(authority);
        }
        if let Some(identity) = identity_named(tls) {
            way.identity = Some(identity);
        }
    }
    way
}

fn port_named(members: &MembersSpec) -> Option<u16> {
    let port = members
        .client_port
        .and_then(|port| u16::try_from(port).ok());
    port.filter(|port| *port > 0)
}

fn authority_named(tls: &TlsSpec) -> Option<AuthoritySource> {
    let named = |kind, name: &str, key: &Option<String>| AuthoritySource {
        kind,
        name: name.to_owned(),
        key: Some(key.clone().unwrap_or_else(|| "ca.crt".into())),
    };
    let secret = tls.ca_secret.as_ref();
    let secret = secret.map(|of| named(SourceKind::Secret, &of.name, &of.key));
    let map = tls.ca_config_map.as_ref();
    secret.or_else(|| map.map(|of| named(SourceKind::ConfigMap, &of.name, &of.key)))
}

fn identity_named(tls: &TlsSpec) -> Option<IdentitySource> {
    let client = tls.client_secret.as_ref()?;
    let or = |key: &Option<String>, usual: &str| key.clone().unwrap_or_else(|| usual.into());
    Some(IdentitySource {
        secret: client.name.clone(),
        cert_key: or(&client.cert_key, "tls.crt"),
        key_secret: None,
        key_key: or(&client.key_key, "tls.key"),
    })
}

fn user_named(auth: &AuthSpec) -> UserSource {
    let secret = &auth.secret;
    let place = |key: &Option<String>, usual: &str| {
        let object = Object::secret(&secret.name);
        Place::new(object, key.as_deref().unwrap_or(usual))
    };
    UserSource {
        name: place(&secret.username_key, "username"),
        password: place(&secret.password_key, "password"),
    }
}

/// The sources of a way, and of the user that is sent by it, for people.
pub fn words(way: &Way, members: &MembersSpec) -> String {
    let user = members.auth.as_ref().map(|auth| &auth.secret.name);
    let user = user.map(|name| format!("; user and password from Secret {name}"));
    format!("{}{}", way.source, user.unwrap_or_default())
}

/// The credentials that this way needs. `None` if it needs none.
pub(super) fn credentials(way: &Way, members: &MembersSpec) -> Option<Credentials> {
    let user = members.auth.as_ref().map(user_named);
    let credentials = match way.scheme {
        Scheme::Http => Credentials {
            user,
            ..Credentials::default()
        },
        Scheme::Https => Credentials {
            authority: way.authority.clone(),
            identity: way.identity.clone(),
            user,
            problem: way.authority.is_none().then(|| way.source.clone()),
        },
    };
    (credentials != Credentials::default()).then_some(credentials)
}

/// The authority behind the volume of this name, by etcd-druid's convention. `None` as key means
/// any certificate of an authority in it.
pub(super) fn authority_in(pod: &PodSpec, volume: &str) -> Option<AuthoritySource> {
    let mut volumes = pod.volumes.iter().flatten();
    let found = volumes.find(|found| found.name == volume)?;
    let object = super::mounts::objects(found).into_iter().next()?;
    let mounts = pod.containers.iter().flat_map(|container| {
        let mounts = container.volume_mounts.iter().flatten();
        mounts.map(move |mount| (container, mount))
    });
    let key = mounts
        .filter(|(_, mount)| mount.name == volume)
        .find_map(|(container, mount)| {
            let directory = format!("{}/", mount.mount_path.trim_end_matches('/'));
            let words = container.command.iter().chain(&container.args).flatten();
            words.into_iter().find_map(|word| {
                let (_, file) = word.split_once(&directory)?;
                let path = format!("{directory}{file}");
                let place = super::mounts::behind(&path, container, pod).ok()?;
                let plain = !file.contains([' ', ',', '"', '\'']);
                plain.then_some(place.key)
            })
        });
    Some(AuthoritySource {
        kind: object.kind,
        name: object.name,
        key,
    })
}

#[cfg(test)]
mod tests;
