//! `kubectl quorum override`: lets pods go against the gate's verdict.

use anyhow::{Result, anyhow, bail};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource};
use quorumgate::api::QuorumDisruptionBudget;
use quorumgate::api::names::{OVERRIDE_REASON, OVERRIDE_UNTIL};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::End;
use crate::ask::{By, ask};
use crate::cli;
use crate::cluster::Cluster;
use crate::confirm::confirm;
use crate::connect::{Kubernetes, budget, failed};
use crate::explain::verdict;
use crate::show::{Paint, print};

/// What is overridden.
enum Target {
    Pod(String),
    Cluster(Box<QuorumDisruptionBudget>),
}

pub(crate) async fn run(of: &Kubernetes, options: &cli::Override) -> Result<End> {
    let target = target(of, &options.target).await?;
    let until = Timestamp::now() + jiff::SignedDuration::try_from(options.lasts)?;
    let until = format!("{until:.0}");
    let what = match &target {
        Target::Pod(pod) => {
            let answer = ask(of, &of.namespace, pod, By::Delete).await?;
            let told = verdict(&format!("{}/{pod}", of.namespace), &answer, None);
            format!(
                "{told}Until {until} every delete and eviction of {pod} passes, whatever the rest of its cluster does. If its member is needed, the cluster cannot be written to until it is back."
            )
        }
        Target::Cluster(budget) => {
            let cluster = Cluster::of(budget);
            format!(
                "{}\nUntil {until} every delete and eviction of every pod of {} passes, also of all at once. If a majority goes, the cluster cannot be read or written until it is back.",
                cluster.details(Paint::Never),
                cluster.name
            )
        }
    };
    confirm(&what, &options.yes)?;
    let annotations = json!({
        OVERRIDE_UNTIL: until,
        OVERRIDE_REASON: options.reason,
    });
    let name = match &target {
        Target::Pod(pod) => {
            annotate::<Pod>(of, pod, &annotations).await?;
            format!("pod/{pod}")
        }
        Target::Cluster(budget) => {
            let name = budget.cluster().name;
            annotate::<QuorumDisruptionBudget>(of, &name, &annotations).await?;
            format!("qdb/{name}")
        }
    };
    print(&format!(
        "{name} is overridden until {until}. To end it before: kubectl -n {} annotate {name} {OVERRIDE_UNTIL}- {OVERRIDE_REASON}-\n",
        of.namespace
    ))?;
    Ok(End::Well)
}

async fn target(of: &Kubernetes, given: &str) -> Result<Target> {
    let cluster = |budget| Target::Cluster(Box::new(budget));
    if let Some(name) = given.strip_prefix("pod/") {
        return Ok(Target::Pod(name.to_owned()));
    }
    if let Some(name) = given.strip_prefix("qdb/") {
        return Ok(cluster(budget(of, name).await?));
    }
    if given.contains('/') {
        bail!("give pod/NAME, or qdb/NAME for every pod of a cluster");
    }
    let pods = Api::<Pod>::namespaced(of.client.clone(), &of.namespace);
    let pod = pods.get_opt(given).await;
    if pod.map_err(|error| failed("the pod", error))?.is_some() {
        return Ok(Target::Pod(given.to_owned()));
    }
    let found = budget(of, given).await;
    found.map(cluster).map_err(|error| {
        anyhow!(
            "there is no pod {given} in the namespace {}, and {error:#}",
            of.namespace
        )
    })
}

/// Sets annotations on an object of the user's namespace.
pub(crate) async fn annotate<K>(
    of: &Kubernetes,
    name: &str,
    annotations: &serde_json::Value,
) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    change::<K>(of, name, &json!({"metadata": {"annotations": annotations}})).await
}

/// Changes an object of the user's namespace.
pub(crate) async fn change<K>(of: &Kubernetes, name: &str, patch: &serde_json::Value) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api = Api::<K>::namespaced(of.client.clone(), &of.namespace);
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
