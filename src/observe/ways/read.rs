//! Reads what the settings and mounts of a cluster's pods refer to.

use std::collections::BTreeMap;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, PodSpec, Secret, Service};
use kube::api::ListParams;
use kube::{Api, Client};

use crate::api::SourceKind;
use crate::lists;
use crate::named;
use crate::observe::contents::{Contents, Lack, Object};
use crate::observe::etcd_container::EtcdContainer;
use crate::observe::mounts;
use crate::observe::read_limits::soon;

/// Most objects that are read for one cluster.
const MOST_OBJECTS: usize = 32;

/// The objects that may say how members are asked: those that variables of etcd's container come
/// from, and those that the pod mounts.
pub(super) fn objects(pod: &PodSpec, named: Option<&str>) -> Vec<Object> {
    let etcd = EtcdContainer::find(pod, named);
    let containers = || etcd.candidates().iter();
    let sources = containers().flat_map(|c| c.env_from.iter().flatten());
    let sources = sources.filter_map(|from| {
        let map = from
            .config_map_ref
            .as_ref()
            .map(|map| Object::config_map(&map.name));
        let secret = from.secret_ref.as_ref();
        map.or_else(|| secret.map(|secret| Object::secret(&secret.name)))
    });
    let variables = containers().flat_map(|c| c.env.iter().flatten());
    let variables = variables.filter_map(|variable| {
        let from = variable.value_from.as_ref()?;
        let map = from.config_map_key_ref.as_ref();
        let map = map.map(|map| Object::config_map(&map.name));
        let secret = from.secret_key_ref.as_ref();
        map.or_else(|| secret.map(|secret| Object::secret(&secret.name)))
    });
    // Volumes of etcd's own container come first, in case there are too many.
    let is_etcds = |volume: &str| {
        let mut mounts = containers().flat_map(|c| c.volume_mounts.iter().flatten());
        mounts.any(|mount| mount.name == volume)
    };
    let mut volumes: Vec<_> = pod.volumes.iter().flatten().collect();
    volumes.sort_by_key(|volume| !is_etcds(&volume.name));
    let mounted = volumes.into_iter().flat_map(mounts::objects);
    let mut all: Vec<Object> = Vec::new();
    for object in sources.chain(variables).chain(mounted) {
        if !all.contains(&object) && all.len() < MOST_OBJECTS {
            all.push(object);
        }
    }
    all
}

/// Reads the objects that a pod's settings and mounts refer to.
pub(in crate::observe) async fn referred(
    client: &Client,
    namespace: &str,
    pod: &PodSpec,
    named: Option<&str>,
) -> Contents {
    contents(client, namespace, &objects(pod, named)).await
}

/// Reads these objects, each within a second. One that cannot be read is left out, and its lack
/// noted.
async fn contents(client: &Client, namespace: &str, objects: &[Object]) -> Contents {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let read = objects.iter().map(|object| async {
        let mut contents = Contents::default();
        match object.kind {
            SourceKind::Secret => {
                let secret = named::get_opt(&secrets, "a Secret that the pod mounts", &object.name);
                match soon(secret).await {
                    Ok(Ok(Some(secret))) => contents.add_secret(&object.name, secret),
                    Ok(Ok(None)) => {}
                    Ok(Err(error)) => contents.lack_one(lack(&error)),
                    Err(_) => contents.lack_one(Lack::Late),
                }
            }
            SourceKind::ConfigMap => {
                let map = named::get_opt(&maps, "a ConfigMap that the pod mounts", &object.name);
                match soon(map).await {
                    Ok(Ok(Some(map))) => contents.add_config_map(&object.name, map),
                    Ok(Ok(None)) => {}
                    Ok(Err(error)) => contents.lack_one(lack(&error)),
                    Err(_) => contents.lack_one(Lack::Late),
                }
            }
        }
        contents
    });
    Contents::of_all(join_all(read).await)
}

/// The lack of an object whose reading ended like this. Bad names and what RBAC forbids stay as
/// they are.
fn lack(error: &kube::Error) -> Lack {
    match error {
        kube::Error::Api(status) if !status.is_forbidden() => Lack::Late,
        kube::Error::Api(_) | kube::Error::BuildRequest(_) => Lack::Forbidden,
        _ => Lack::Late,
    }
}

/// The Services of the namespace that select pods with these labels. None where they cannot be
/// read.
pub(in crate::observe) async fn services(
    client: &Client,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> Vec<String> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let selects = |service: &Service| {
        let selector = service
            .spec
            .as_ref()
            .and_then(|spec| spec.selector.as_ref());
        selector.is_some_and(|selector| {
            !selector.is_empty()
                && selector
                    .iter()
                    .all(|(key, value)| labels.get(key) == Some(value))
        })
    };
    let mut selecting = Vec::new();
    let every = ListParams::default();
    let listed = lists::each(&services, &every, |service| {
        if selects(&service) {
            selecting.extend(service.metadata.name);
        }
    });
    let listed = soon(listed).await;
    match listed {
        Ok(Ok(())) => selecting,
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}
