//! The repository's manifests as data.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// The namespace of a real installation.
const INSTALLED_NAMESPACE: &str = "quorumgate";
/// The name of the gate's service account, in a real installation and here.
pub(super) const SERVICE_ACCOUNT: &str = "quorumgate";

/// Every object of `<manifests>/base/*.yaml`, for a gate that runs in this namespace.
///
/// Expressions that name the gate's user are rewritten. The caller chooses the namespaces of
/// objects.
pub(super) fn read(manifests: &Path, namespace: &str) -> Result<Vec<Value>> {
    read_directory(&manifests.join("base"), namespace)
}

/// The definitions and the other objects of a component, for a gate that runs in this namespace.
pub(super) fn read_component(
    manifests: &Path,
    name: &str,
    namespace: &str,
) -> Result<(Vec<Value>, Vec<Value>)> {
    let objects = read_directory(&manifests.join(name), namespace)?;
    let objects = objects.into_iter();
    Ok(objects.partition(|object| kind(object) == "CustomResourceDefinition"))
}

fn read_directory(base: &Path, namespace: &str) -> Result<Vec<Value>> {
    let mut files: Vec<PathBuf> = fs::read_dir(base)
        .with_context(|| format!("no manifests in {}", base.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.retain(|file| file.extension() == Some("yaml".as_ref()));
    files.sort();
    let mut objects = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file)?;
        let user = |of: &str| format!("system:serviceaccount:{of}:{SERVICE_ACCOUNT}");
        let text = text.replace(&user(INSTALLED_NAMESPACE), &user(namespace));
        objects.extend(parse(&text).with_context(|| format!("cannot read {}", file.display()))?);
    }
    Ok(objects)
}

/// The objects of a YAML stream.
pub(super) fn parse(text: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(documents
        .into_iter()
        .filter(|document| document.get("kind").is_some())
        .collect())
}

/// An object's kind.
pub(super) fn kind(object: &Value) -> &str {
    object
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Whether an object belongs to the gate's namespace. kustomize adds it to objects without a
/// namespace.
pub(super) fn is_at_home(object: &Value) -> bool {
    let namespace = object
        .pointer("/metadata/namespace")
        .and_then(Value::as_str);
    namespace.is_none_or(|namespace| namespace == INSTALLED_NAMESPACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_is_read_and_the_gate_s_user_is_rewritten() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().join("base");
        fs::create_dir(&base).unwrap();
        let text = "kind: A\nmetadata: {namespace: quorumgate}\n---\nkind: B\n\
            metadata: {namespace: kube-system}\nexpression: \"x == 'system:serviceaccount:quorumgate:quorumgate'\"\n";
        fs::write(base.join("all.yaml"), text).unwrap();
        fs::write(base.join("notes.txt"), "kind: C").unwrap();
        fs::write(base.join("empty.yaml"), "---\n# nothing\n").unwrap();
        let objects = read(directory.path(), "ns").unwrap();
        assert_eq!(objects.iter().map(kind).collect::<Vec<_>>(), ["A", "B"]);
        assert_eq!(
            objects.iter().map(is_at_home).collect::<Vec<_>>(),
            [true, false]
        );
        assert_eq!(
            objects[1]["expression"],
            "x == 'system:serviceaccount:ns:quorumgate'"
        );
    }
}
