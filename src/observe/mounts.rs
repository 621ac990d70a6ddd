//! The Secret or ConfigMap, and the key in it, behind a path in a container.

use k8s_openapi::api::core::v1::{
    Container, KeyToPath, PodSpec, ProjectedVolumeSource, Volume, VolumeMount,
};

use super::contents::{Object, Place};

/// The key behind `path`. The error says for people why there is none.
pub(super) fn behind(path: &str, container: &Container, pod: &PodSpec) -> Result<Place, String> {
    let Some((mount, rest)) = mount_over(path, container) else {
        return Err(format!(
            "{path} is on no volume of container {}",
            container.name
        ));
    };
    let volume = volume_of(mount, pod).ok_or_else(|| {
        format!(
            "{path} is on volume {}, which is no Secret and no ConfigMap",
            mount.name
        )
    })?;
    let file = within_volume(mount, rest);
    in_volume(volume, &file).map_err(|why| format!("{path} is on volume {}, {why}", volume.name))
}

/// The innermost mount over `path`, if there is one.
pub(super) fn mount_of<'a>(path: &str, container: &'a Container) -> Option<&'a VolumeMount> {
    mount_over(path, container).map(|(mount, _)| mount)
}

/// The mount over `path`, and the part of `path` below the mount. Of nested mounts, the innermost
/// is visible.
fn mount_over<'a, 'p>(
    path: &'p str,
    container: &'a Container,
) -> Option<(&'a VolumeMount, &'p str)> {
    let mounts = container.volume_mounts.iter().flatten();
    let mut over = mounts.filter_map(|mount| Some((mount, inside(path, &mount.mount_path)?)));
    let first = over.next();
    over.fold(first, |best, other| match best {
        Some((mount, _)) if mount.mount_path.len() >= other.0.mount_path.len() => best,
        _ => Some(other),
    })
}

fn volume_of<'a>(mount: &VolumeMount, pod: &'a PodSpec) -> Option<&'a Volume> {
    let mut volumes = pod.volumes.iter().flatten();
    volumes.find(|volume| volume.name == mount.name)
}

/// The part of `path` below `directory`, which is empty if both are the same.
fn inside<'p>(path: &'p str, directory: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(directory.trim_end_matches('/'))?;
    match rest.strip_prefix('/') {
        Some(below) => Some(below),
        None => rest.is_empty().then_some(""),
    }
}

/// The fields of a pod that stay the same when it is made anew under its name.
const LASTING: [&str; 5] = [
    "metadata.name",
    "metadata.namespace",
    "spec.serviceAccountName",
    "metadata.labels['statefulset.kubernetes.io/pod-name']",
    "metadata.labels['apps.kubernetes.io/pod-index']",
];

/// The fields that each new pod has anew.
const NEW: [&str; 3] = ["metadata.uid", "status.podIP", "status.podIPs"];
/// The fields that are those of the node.
const OF_NODE: [&str; 3] = ["spec.nodeName", "status.hostIP", "status.hostIPs"];

/// The thing by whose fields a text changes from pod to pod, although these have one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Changes {
    /// The node: on the same one, the text is the same.
    WithNode,
    /// Perhaps, as an annotation does: most are of the template, and some are not.
    Perhaps,
    /// The pod: each has another text.
    WithPod,
}

/// The thing by which the text changes, where a variable in it is a field of the pod. `None` if the
/// next pod of the name has the same text.
pub(super) fn changes(text: &str, container: &Container) -> Option<Changes> {
    let variables = container.env.iter().flatten();
    let changes = variables.filter_map(|variable| {
        let field = variable.value_from.as_ref()?.field_ref.as_ref()?;
        let field = field.field_path.as_str();
        let is_used = text.contains(&format!("$({})", variable.name));
        let by = match field {
            _ if !is_used || LASTING.contains(&field) => return None,
            _ if NEW.contains(&field) => Changes::WithPod,
            _ if OF_NODE.contains(&field) => Changes::WithNode,
            _ => Changes::Perhaps,
        };
        Some(by)
    });
    changes.max()
}

/// The directory on its volume behind `path` in a container of a pod, as its mount says it.
pub(super) fn directory_of(path: &str, container: &Container) -> Option<String> {
    let (mount, rest) = mount_over(path, container)?;
    let own = within_volume(mount, rest);
    Some(match mount.sub_path_expr.as_deref().unwrap_or_default() {
        "" => own,
        expression => format!("{}/{own}", expression.trim_end_matches('/')),
    })
}

fn within_volume(mount: &VolumeMount, rest: &str) -> String {
    match (mount.sub_path.as_deref().unwrap_or_default(), rest) {
        ("", rest) => rest.to_owned(),
        (sub, "") => sub.to_owned(),
        (sub, rest) => format!("{}/{rest}", sub.trim_end_matches('/')),
    }
}

fn in_volume(volume: &Volume, file: &str) -> Result<Place, String> {
    let projected = volume.projected.as_ref();
    match (whole(volume), projected) {
        (Some((object, items)), _) => {
            let place = in_object(&object, items, file);
            place.ok_or_else(|| format!("where {object} has no file {file}"))
        }
        (None, Some(projected)) => in_projected(projected, file),
        (None, None) => Err("which is no Secret and no ConfigMap".to_owned()),
    }
}

/// The object of a volume that has no other, and its files.
fn whole(volume: &Volume) -> Option<(Object, Option<&[KeyToPath]>)> {
    if let Some(secret) = &volume.secret {
        let name = secret.secret_name.as_deref()?;
        return Some((Object::secret(name), secret.items.as_deref()));
    }
    let map = volume.config_map.as_ref()?;
    Some((Object::config_map(&map.name), map.items.as_deref()))
}

/// The objects of a projected volume, each with its files.
fn parts(
    projected: &ProjectedVolumeSource,
) -> impl Iterator<Item = (Object, Option<&[KeyToPath]>)> {
    projected.sources.iter().flatten().filter_map(|source| {
        if let Some(secret) = &source.secret {
            return Some((Object::secret(&secret.name), secret.items.as_deref()));
        }
        let map = source.config_map.as_ref()?;
        Some((Object::config_map(&map.name), map.items.as_deref()))
    })
}

/// The Secrets and ConfigMaps of a volume. The one that Kubernetes adds to each pod has a token and
/// the authority of the API server, which is none of etcd's.
pub(super) fn objects(volume: &Volume) -> Vec<Object> {
    let projected = volume.projected.as_ref();
    let sources = projected
        .into_iter()
        .flat_map(|p| p.sources.iter().flatten());
    if sources
        .clone()
        .any(|source| source.service_account_token.is_some())
    {
        return Vec::new();
    }
    let parts = projected.into_iter().flat_map(parts);
    let all = whole(volume).into_iter().chain(parts);
    all.map(|(object, _)| object).collect()
}

/// The place of a file of an object. With `items` only the listed keys exist, each at its own path.
fn in_object(object: &Object, items: Option<&[KeyToPath]>, file: &str) -> Option<Place> {
    let key = match items {
        Some(items) if !items.is_empty() => {
            let item = items.iter().find(|item| item.path == file)?;
            &item.key
        }
        _ => Some(file).filter(|file| !file.is_empty() && !file.contains('/'))?,
    };
    Some(Place::new(object.clone(), key))
}

/// The place of a file of a projected volume. It is unknown among several objects without `items`.
fn in_projected(projected: &ProjectedVolumeSource, file: &str) -> Result<Place, String> {
    let found: Vec<_> = parts(projected)
        .filter_map(|(object, items)| {
            let has_items = items.is_some_and(|items| !items.is_empty());
            Some((has_items, in_object(&object, items, file)?))
        })
        .collect();
    let by_item = found.iter().find(|(has_items, _)| *has_items);
    match (by_item, found.as_slice()) {
        (Some((_, named)), _) | (None, [(_, named)]) => Ok(named.clone()),
        (None, []) => Err(format!("where nothing has a file {file}")),
        (None, several) => {
            let names: Vec<String> = several.iter().map(|(_, p)| p.object.to_string()).collect();
            Err(format!(
                "where {file} may be of any of {}",
                names.join(", ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn found(path: &str, mounts: &Value, volumes: &Value) -> Result<(String, String), String> {
        let pod: PodSpec = serde_json::from_value(json!({
            "containers": [{"name": "etcd", "volumeMounts": mounts}], "volumes": volumes,
        }))
        .unwrap();
        behind(path, &pod.containers[0], &pod).map(|found| (found.object.name, found.key))
    }

    fn key(secret: &str, key: &str) -> (String, String) {
        (secret.to_owned(), key.to_owned())
    }

    #[test]
    fn a_path_leads_through_its_mount_to_a_key() {
        let volumes = json!([
            {"name": "whole", "secret": {"secretName": "s"}},
            {"name": "items", "secret": {"secretName": "i", "items": [{"key": "tls.crt", "path": "certs/server.pem"}]}},
            {"name": "other", "emptyDir": {}},
        ]);
        let mounts = json!([
            {"name": "other", "mountPath": "/etc"},
            {"name": "whole", "mountPath": "/etc/tls/"},
            {"name": "items", "mountPath": "/items"},
            {"name": "whole", "mountPath": "/one.crt", "subPath": "tls.crt"},
        ]);
        let found = |path| found(path, &mounts, &volumes);
        assert_eq!(found("/etc/tls/tls.crt"), Ok(key("s", "tls.crt")));
        assert_eq!(found("/one.crt"), Ok(key("s", "tls.crt")));
        assert_eq!(found("/items/certs/server.pem"), Ok(key("i", "tls.crt")));
        for (path, why) in [
            ("/etc/tlsx/tls.crt", "which is no Secret and no ConfigMap"),
            ("/items/tls.crt", "has no file tls.crt"),
            ("/elsewhere/tls.crt", "on no volume of container etcd"),
        ] {
            let error = found(path).unwrap_err();
            assert!(error.contains(path) && error.contains(why), "{error}");
        }
    }

    #[test]
    fn of_projected_objects_the_one_that_names_the_file_counts() {
        let mounts = json!([{"name": "p", "mountPath": "/tls"}]);
        let named = json!({"secret": {"name": "a", "items": [{"key": "ca", "path": "ca.crt"}]}});
        let whole = |name: &str| json!({"secret": {"name": name}});
        let config = json!({"configMap": {"name": "c"}});
        let found = |sources: Value| {
            let volumes = json!([{"name": "p", "projected": {"sources": sources}}]);
            found("/tls/ca.crt", &mounts, &volumes)
        };
        assert_eq!(found(json!([whole("w"), named])), Ok(key("a", "ca")));
        assert_eq!(found(json!([whole("w")])), Ok(key("w", "ca.crt")));
        assert_eq!(found(json!([config])), Ok(key("c", "ca.crt")));
        let error = found(json!([config, whole("w")])).unwrap_err();
        assert!(error.contains("any of ConfigMap c, Secret w"), "{error}");
        let error = found(json!([])).unwrap_err();
        assert!(error.contains("nothing has a file"), "{error}");
    }
}
