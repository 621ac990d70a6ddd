//! Changes that a person asks for: the yes to what may cost a quorum, and the write.

use std::io::{IsTerminal as _, Write as _};

use anyhow::{Result, bail};
use k8s_openapi::NamespaceResourceScope;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::cli::Yes;
use crate::connect::Kubernetes;
use crate::show::complain;

/// Shows what is about to happen, and asks, unless the answer was given before.
pub(crate) fn confirm(what: &str, given: &Yes) -> Result<()> {
    complain(what);
    if given.yes {
        return Ok(());
    }
    let input = std::io::stdin();
    if !input.is_terminal() {
        bail!("nothing was done: there is no terminal to ask for confirmation; add --yes");
    }
    let mut out = std::io::stderr();
    write!(out, "Type yes to continue: ")?;
    out.flush()?;
    let mut answer = String::new();
    input.read_line(&mut answer)?;
    match answer.trim() {
        "yes" | "y" => Ok(()),
        other => bail!("nothing was done: you typed {other:?}, and not yes"),
    }
}

/// An object in a namespace.
pub(crate) trait Namespaced:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + DeserializeOwned
    + std::fmt::Debug
{
}

impl<K> Namespaced for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
{
}

/// Sets annotations on an object of the user's namespace.
pub(crate) async fn annotate<K: Namespaced>(
    of: &Kubernetes,
    name: &str,
    annotations: &serde_json::Value,
) -> Result<()> {
    change::<K>(of, name, &json!({"metadata": {"annotations": annotations}})).await
}

/// Changes an object of the user's namespace.
pub(crate) async fn change<K: Namespaced>(
    of: &Kubernetes,
    name: &str,
    patch: &serde_json::Value,
) -> Result<()> {
    change_in::<K>(of, &of.namespace, name, patch).await
}

/// Changes an object of this namespace.
pub(crate) async fn change_in<K: Namespaced>(
    of: &Kubernetes,
    namespace: &str,
    name: &str,
    patch: &serde_json::Value,
) -> Result<()> {
    let api = Api::<K>::namespaced(of.client.clone(), namespace);
    let by = PatchParams {
        field_manager: Some("kubectl-quorum".to_owned()),
        ..PatchParams::default()
    };
    match api.patch(name, &by, &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => bail!("{name} was not changed: {}", status.message),
        Err(error) => Err(error.into()),
    }
}
