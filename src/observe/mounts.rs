//! The Secret and the key behind a path in a container.

use k8s_openapi::api::core::v1::{
    Container, KeyToPath, PodSpec, ProjectedVolumeSource, Volume, VolumeMount,
};

/// A key in a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SecretKey {
    pub(super) secret: String,
    pub(super) key: String,
}

/// The key behind `path`. The error says for people why there is none.
pub(super) fn behind(
    path: &str,
    container: &Container,
    pod: &PodSpec,
) -> Result<SecretKey, String> {
    let Some((mount, rest)) = mount_over(path, container) else {
        return Err(format!(
            "{path} is on no volume of container {}",
            container.name
        ));
    };
    let volume = volume_of(mount, pod)
        .ok_or_else(|| format!("{path} is on volume {}, which is no Secret", mount.name))?;
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

fn within_volume(mount: &VolumeMount, rest: &str) -> String {
    match (mount.sub_path.as_deref().unwrap_or_default(), rest) {
        ("", rest) => rest.to_owned(),
        (sub, "") => sub.to_owned(),
        (sub, rest) => format!("{}/{rest}", sub.trim_end_matches('/')),
    }
}

fn in_volume(volume: &Volume, file: &str) -> Result<SecretKey, String> {
    if let Some(secret) = &volume.secret {
        let name = secret.secret_name.clone().unwrap_or_default();
        return in_secret(&name, secret.items.as_deref(), file)
            .ok_or_else(|| format!("where Secret {name} has no file {file}"));
    }
    match &volume.projected {
        Some(projected) => in_projected(projected, file),
        None => Err("which is no Secret".to_owned()),
    }
}

/// The key behind a file of a Secret volume. With `items` only the listed keys exist, each at its
/// own path.
fn in_secret(secret: &str, items: Option<&[KeyToPath]>, file: &str) -> Option<SecretKey> {
    let key = match items {
        Some(items) if !items.is_empty() => {
            let item = items.iter().find(|item| item.path == file)?;
            item.key.clone()
        }
        _ => Some(file)
            .filter(|file| !file.is_empty() && !file.contains('/'))?
            .to_owned(),
    };
    let secret = secret.to_owned();
    Some(SecretKey { secret, key })
}

/// The key behind a file of a projected volume. It is unknown among several Secrets without
/// `items`.
fn in_projected(projected: &ProjectedVolumeSource, file: &str) -> Result<SecretKey, String> {
    let secrets = projected
        .sources
        .iter()
        .flatten()
        .filter_map(|s| s.secret.as_ref());
    let secrets: Vec<_> = secrets
        .filter_map(|secret| {
            let has_items = secret.items.as_ref().is_some_and(|items| !items.is_empty());
            Some((
                has_items,
                in_secret(&secret.name, secret.items.as_deref(), file)?,
            ))
        })
        .collect();
    let by_item = secrets.iter().find(|(has_items, _)| *has_items);
    match (by_item, secrets.as_slice()) {
        (Some((_, named)), _) | (None, [(_, named)]) => Ok(named.clone()),
        (None, []) => Err(format!("where no Secret has a file {file}")),
        (None, several) => {
            let names: Vec<&str> = several.iter().map(|(_, k)| k.secret.as_str()).collect();
            Err(format!(
                "where {file} may be of any of the Secrets {}",
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
        behind(path, &pod.containers[0], &pod).map(|found| (found.secret, found.key))
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
            ("/etc/tlsx/tls.crt", "which is no Secret"),
            ("/items/tls.crt", "has no file tls.crt"),
            ("/elsewhere/tls.crt", "on no volume of container etcd"),
        ] {
            let error = found(path).unwrap_err();
            assert!(error.contains(path) && error.contains(why), "{error}");
        }
    }

    #[test]
    fn of_projected_secrets_the_one_that_names_the_file_counts_or_the_only_one() {
        let mounts = json!([{"name": "p", "mountPath": "/tls"}]);
        let named = json!({"secret": {"name": "a", "items": [{"key": "ca", "path": "ca.crt"}]}});
        let whole = |name: &str| json!({"secret": {"name": name}});
        let config = json!({"configMap": {"name": "c"}});
        let found = |sources: Value| {
            let volumes = json!([{"name": "p", "projected": {"sources": sources}}]);
            found("/tls/ca.crt", &mounts, &volumes)
        };
        assert_eq!(found(json!([whole("w"), named])), Ok(key("a", "ca")));
        assert_eq!(found(json!([config, whole("w")])), Ok(key("w", "ca.crt")));
        let error = found(json!([whole("v"), whole("w")])).unwrap_err();
        assert!(error.contains("any of the Secrets v, w"), "{error}");
        let error = found(json!([config])).unwrap_err();
        assert!(error.contains("no Secret has a file"), "{error}");
    }
}
