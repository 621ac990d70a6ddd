//! `kubectl quorum status`.

use std::pin::pin;

use anyhow::{Result, bail};
use futures::StreamExt as _;
use kube::Api;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use quorumgate_api::QuorumDisruptionBudget;

use crate::End;
use crate::cli::{self, Form, ListForm};
use crate::cluster::{Cluster, Columns, overview};
use crate::connect::{BUDGETS, Kubernetes, failed};
use crate::show::{Paint, clear, complain, print, text_as};

pub(crate) async fn run(of: &Kubernetes, options: &cli::Status, paint: Paint) -> Result<End> {
    let api = api(of, options.all_namespaces);
    let shown = async || shown(of, &clusters(&api, options).await?, options, paint);
    let mut before = shown().await?;
    print(&before)?;
    if !options.watch {
        return Ok(End::Well);
    }
    // Whatever changes, all is read again: that is cheap, and never shows half a change.
    let mut changes = pin!(watch(of, api.clone(), options.selector.as_deref()).default_backoff());
    while let Some(event) = changes.next().await {
        match event {
            Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => continue,
            Ok(_) => {}
            // It is asked again, less and less often.
            Err(error) => {
                complain(&format!("watch interrupted, starting it again: {error}"));
                continue;
            }
        }
        let now = shown().await?;
        if now != before {
            // Programs read one document after the other.
            if options.output.is_none_or(|form| form == ListForm::Wide) {
                clear()?;
            }
            print(&now)?;
            before = now;
        }
    }
    Ok(End::Well)
}

/// The changes of budgets. A watch without changes ends before the time limit of a request does.
pub(crate) fn watch(
    of: &Kubernetes,
    api: Api<QuorumDisruptionBudget>,
    selector: Option<&str>,
) -> impl futures::Stream<Item = watcher::Result<watcher::Event<QuorumDisruptionBudget>>> + Send + use<>
{
    let mut config = watcher::Config::default();
    if let Some(selector) = selector {
        config = config.labels(selector);
    }
    if let Some(limit) = of.limit {
        let seconds = limit.as_secs().saturating_sub(1).clamp(1, 290);
        config = config.timeout(u32::try_from(seconds).unwrap_or(1));
    }
    watcher(api, config)
}

/// The budgets of the user's namespace, or of all.
pub(crate) fn api(of: &Kubernetes, all: bool) -> Api<QuorumDisruptionBudget> {
    if all {
        Api::all(of.client.clone())
    } else {
        Api::namespaced(of.client.clone(), &of.namespace)
    }
}

/// Every guarded cluster of the whole of Kubernetes that the user may see.
pub(crate) async fn everywhere(of: &Kubernetes) -> Result<Vec<Cluster>> {
    read(&api(of, true), &ListParams::default()).await
}

/// The guarded clusters of the user's namespace.
pub(crate) async fn here(of: &Kubernetes) -> Result<Vec<Cluster>> {
    read(&api(of, false), &ListParams::default()).await
}

/// The guarded clusters of the namespace that the user named, or of all.
pub(crate) async fn chosen(of: &Kubernetes) -> Result<Vec<Cluster>> {
    if of.named {
        here(of).await
    } else {
        everywhere(of).await
    }
}

async fn read(api: &Api<QuorumDisruptionBudget>, which: &ListParams) -> Result<Vec<Cluster>> {
    let all = api.list(which).await;
    let all = all.map_err(|error| failed(BUDGETS, error))?;
    Ok(all.iter().map(Cluster::from_budget).collect())
}

async fn clusters(
    api: &Api<QuorumDisruptionBudget>,
    options: &cli::Status,
) -> Result<Vec<Cluster>> {
    let which = ListParams {
        label_selector: options.selector.clone(),
        ..ListParams::default()
    };
    let mut clusters = read(api, &which).await?;
    for wanted in &options.clusters {
        if !clusters.iter().any(|cluster| cluster.name == *wanted) {
            bail!("no cluster {wanted} is guarded there: see `kubectl quorum status -A`");
        }
    }
    if !options.clusters.is_empty() {
        clusters.retain(|cluster| options.clusters.contains(&cluster.name));
    }
    Ok(clusters)
}

/// Clusters in the form that the user wants.
fn shown(
    of: &Kubernetes,
    clusters: &[Cluster],
    options: &cli::Status,
    paint: Paint,
) -> Result<String> {
    match options.output {
        None | Some(ListForm::Wide) => Ok(picture(of, clusters, options, paint)),
        Some(ListForm::Name) => Ok(names(clusters)),
        Some(ListForm::Json) => text_as(Form::Json, &clusters),
        Some(ListForm::Yaml) => text_as(Form::Yaml, &clusters),
    }
}

/// The names of the budgets, as `kubectl get -o name` prints them.
fn names(clusters: &[Cluster]) -> String {
    let name =
        |cluster: &Cluster| format!("quorumdisruptionbudget.quorumgate.io/{}\n", cluster.name);
    clusters.iter().map(name).collect()
}

fn picture(of: &Kubernetes, clusters: &[Cluster], options: &cli::Status, paint: Paint) -> String {
    if clusters.is_empty() {
        return if options.all_namespaces {
            "No cluster is guarded. To enrol one: kubectl label statefulset NAME quorumgate.io/enroll=true\n".to_owned()
        } else {
            let namespace = &of.namespace;
            format!("No cluster is guarded in the namespace {namespace}. All namespaces: -A\n")
        };
    }
    let columns = Columns {
        namespace: options.all_namespaces,
        wide: options.output == Some(ListForm::Wide),
    };
    let mut told = overview(clusters, columns, paint);
    for cluster in clusters {
        if !cluster.is_well() || !options.clusters.is_empty() {
            told += &format!("\n{}/{}\n", cluster.namespace, cluster.name);
            told += &cluster.details(paint);
        }
    }
    told
}

/// The table of these clusters, with the members of those that are not healthy.
pub(crate) fn table_of(of: &Kubernetes, clusters: &[Cluster]) -> String {
    let options = cli::Status {
        clusters: Vec::new(),
        all_namespaces: true,
        selector: None,
        watch: false,
        output: Some(ListForm::Wide),
    };
    picture(of, clusters, &options, Paint::Never)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::tests::degraded_budget;
    use crate::connect::tests::{api_server, list};

    fn options(output: Option<ListForm>) -> cli::Status {
        cli::Status {
            clusters: Vec::new(),
            all_namespaces: false,
            selector: Some("team=a".to_owned()),
            watch: false,
            output,
        }
    }

    #[tokio::test]
    async fn budgets_are_chosen_by_labels_and_printed_in_each_form() {
        let path = "/apis/quorumgate.io/v1alpha1/namespaces/db/quorumdisruptionbudgets";
        let budgets = list("QuorumDisruptionBudget", &[degraded_budget()]);
        let (of, asked) = api_server(&[(path, budgets)]);
        let text = async |form: Option<ListForm>| {
            let options = options(form);
            let found = clusters(&api(&of, false), &options).await.unwrap();
            shown(&of, &found, &options, Paint::Never).unwrap()
        };
        let name = text(Some(ListForm::Name)).await;
        assert_eq!(name, "quorumdisruptionbudget.quorumgate.io/etcd\n");
        assert!(!text(None).await.contains("NOT SERVING"));
        assert!(text(Some(ListForm::Wide)).await.contains("NOT SERVING"));
        let shown = serde_json::from_str::<serde_json::Value>(&text(Some(ListForm::Json)).await);
        assert_eq!(
            shown.unwrap()[0]["members"][2]["state"],
            json!("NotServing")
        );
        assert!(
            text(Some(ListForm::Yaml))
                .await
                .contains("state: NotServing")
        );
        let asked = asked.lock().unwrap();
        assert!(asked[0].ends_with("labelSelector=team%3Da"), "{asked:?}");
    }
}
