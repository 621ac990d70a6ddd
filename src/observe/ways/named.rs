//! The parts of a way that the budget names, and the authority that a volume's name gives.

use k8s_openapi::api::core::v1::PodSpec;

use crate::api::{AuthoritySource, IdentitySource, MembersSpec, SourceKind, TlsSpec};
use crate::observe::mounts::{behind, objects};

pub(super) fn port_named(members: &MembersSpec) -> Option<u16> {
    let port = members
        .client_port
        .and_then(|port| u16::try_from(port).ok());
    port.filter(|port| *port > 0)
}

pub(super) fn authority_named(tls: &TlsSpec) -> Option<AuthoritySource> {
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

pub(super) fn identity_named(tls: &TlsSpec) -> Option<IdentitySource> {
    let client = tls.client_secret.as_ref()?;
    let or = |key: &Option<String>, usual: &str| key.clone().unwrap_or_else(|| usual.into());
    Some(IdentitySource {
        secret: client.name.clone(),
        cert_key: or(&client.cert_key, "tls.crt"),
        key_secret: None,
        key_key: or(&client.key_key, "tls.key"),
    })
}

/// The authority behind the volume of this name, by etcd-druid's convention. `None` as key means
/// any certificate of an authority in it.
pub(in crate::observe) fn authority_in(pod: &PodSpec, volume: &str) -> Option<AuthoritySource> {
    let mut volumes = pod.volumes.iter().flatten();
    let found = volumes.find(|found| found.name == volume)?;
    let object = objects(found).into_iter().next()?;
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
                let place = behind(&path, container, pod).ok()?;
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
