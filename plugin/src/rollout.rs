//! `kubectl quorum rollout`: watches a rollout, pauses it, resumes it.

use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::ListParams;
use kube::runtime::WatchStreamExt as _;
use kube::{Api, ResourceExt as _};
use quorumgate_api::names::{PROCEED, PROCEED_WITHOUT_QUORUM};
use quorumgate_api::{QuorumDisruptionBudget, Updater};
use serde_json::json;
use tokio::time::timeout;

use crate::End;
use crate::change::{annotate, change, change_in, confirm};
use crate::cli;
use crate::cluster::{Cluster, Member, Rollout, RolloutState};
use crate::connect::{Kubernetes, budget, failed};
use crate::show::{Paint, print};
use crate::status::{api, watch};

pub(crate) async fn run(of: &Kubernetes, command: &cli::Rollout, paint: Paint) -> Result<End> {
    match command {
        cli::Rollout::Status { cluster, wait } => status(of, &cluster.name, wait, paint).await,
        cli::Rollout::Pause(clusters) => pause(of, clusters, true).await,
        cli::Rollout::Resume(clusters) => pause(of, clusters, false).await,
        cli::Rollout::Proceed { cluster, yes } => proceed(of, &cluster.name, yes).await,
    }
}

/// How often a rollout is read again without a change of the budget, since only the StatefulSet may
/// have changed.
const AGAIN: Duration = Duration::from_secs(5);

async fn status(of: &Kubernetes, name: &str, wait: &cli::Wait, paint: Paint) -> Result<End> {
    if !wait.watch {
        let seen = look(of, name).await?;
        print(&(seen.words() + &seen.cluster.member_table(paint)))?;
        return Ok(if seen.is_complete() {
            End::Well
        } else {
            End::No
        });
    }
    let api = Api::<QuorumDisruptionBudget>::namespaced(of.client.clone(), &of.namespace);
    let mut changes = pin!(watch(of, api, None).default_backoff());
    let limit = Some(wait.timeout).filter(|limit| !limit.is_zero());
    let ends = limit.map(|limit| Instant::now() + limit);
    let mut said = String::new();
    loop {
        let seen = look(of, name).await?;
        if seen.is_complete() {
            print(&seen.words())?;
            return Ok(End::Well);
        }
        let progress = seen.progress(name);
        if progress != said {
            print(&format!("{progress}\n"))?;
            said = progress;
        }
        let until = ends.map_or(AGAIN, |ends| {
            AGAIN.min(ends.saturating_duration_since(Instant::now()))
        });
        if until.is_zero() {
            bail!(
                "the rollout of {name} is not complete after {:?}",
                wait.timeout
            );
        }
        // Errors of the watch are repeated by the next look.
        let _ = timeout(until, changes.next()).await;
    }
}

/// A rollout as the budget has it, and whether that is about the StatefulSet's present template.
struct Seen {
    cluster: Cluster,
    /// The revision that the gate has yet to see.
    unseen: Option<String>,
}

async fn look(of: &Kubernetes, name: &str) -> Result<Seen> {
    let cluster = Cluster::from_budget(&budget(of, name).await?);
    let sets = Api::<StatefulSet>::namespaced(of.client.clone(), &of.namespace);
    let set = match sets.get_opt(name).await {
        Ok(set) => set,
        // Then the budget alone has to do.
        Err(kube::Error::Api(status)) if status.code == 403 => None,
        Err(error) => return Err(failed("StatefulSets", error)),
    };
    let unseen = set.and_then(|set| unseen(&set, &cluster));
    Ok(Seen { cluster, unseen })
}

/// The present revision of the StatefulSet, if the budget is still about another one.
fn unseen(set: &StatefulSet, cluster: &Cluster) -> Option<String> {
    let status = set.status.as_ref()?;
    if status.observed_generation < set.metadata.generation {
        return Some("the new template".to_owned());
    }
    let update = status.update_revision.as_ref()?;
    let has_it = |member: &Member| member.revision.as_ref().is_none_or(|has| has == update);
    let is_seen =
        cluster.rollout.revision.as_ref() == Some(update) || cluster.members.iter().all(has_it);
    (!is_seen).then(|| update.clone())
}

impl Seen {
    fn is_complete(&self) -> bool {
        let state = self.cluster.rollout.state;
        self.unseen.is_none() && matches!(state, RolloutState::Complete | RolloutState::None)
    }

    fn words(&self) -> String {
        match &self.unseen {
            Some(revision) => format!("The gate has yet to see {revision}.\n"),
            None => words(&self.cluster.rollout),
        }
    }

    /// The progress as one line, which changes only with the rollout.
    fn progress(&self, name: &str) -> String {
        let Rollout {
            updated,
            targets,
            state,
            waits_for,
            ..
        } = &self.cluster.rollout;
        if let Some(revision) = &self.unseen {
            return format!("Waiting for the gate to see {revision} of {name}...");
        }
        let why = match (state, waits_for) {
            (RolloutState::Paused, _) => {
                format!("; paused, to continue: kubectl quorum rollout resume {name}")
            }
            (_, Some(waits_for)) => format!("; {}: {}", waits_for.reason, waits_for.message),
            (_, None) => String::new(),
        };
        format!("Waiting for the rollout of {name}: {updated} of {targets} pods are updated{why}")
    }
}

/// A rollout in words.
fn words(rollout: &Rollout) -> String {
    let Rollout {
        updated, targets, ..
    } = rollout;
    let revision = rollout.revision.as_deref().unwrap_or("its revision");
    let mut told = match rollout.state {
        RolloutState::Complete => "Every pod is up to date.\n".to_owned(),
        RolloutState::None => "There is no rollout.\n".to_owned(),
        RolloutState::Progressing => format!("{updated} of {targets} pods have {revision}.\n"),
        RolloutState::Paused => format!(
            "Paused: {updated} of {targets} pods have {revision}. To continue: kubectl quorum rollout resume\n"
        ),
        RolloutState::Waiting => {
            format!("Waiting: {updated} of {targets} pods have {revision}.\n")
        }
    };
    if let Some(waits_for) = &rollout.waits_for {
        told += &format!("  waits for  {}\n", waits_for.words());
    }
    if let Some(step) = &rollout.last_step {
        told += &format!("  last step  {}\n", step.words());
    }
    told += match rollout.updated_by {
        Some(Updater::Gate) => "  updated by the gate\n",
        Some(Updater::StatefulSetController) => {
            "  updated by the StatefulSet controller, in the order of ordinals\n"
        }
        Some(Updater::Nobody) => {
            "  updated by no controller: an outdated pod is replaced when it is deleted\n"
        }
        None => "",
    };
    told
}

async fn pause(of: &Kubernetes, clusters: &cli::Clusters, paused: bool) -> Result<End> {
    let patch = json!({"spec": {"paused": paused}});
    let Some(name) = &clusters.name else {
        return pause_all(of, clusters.all_namespaces, paused, &patch).await;
    };
    budget(of, name).await?;
    change::<QuorumDisruptionBudget>(of, name, &patch).await?;
    print(&if paused {
        format!(
            "Rollouts of {name} are paused: no new step starts. A step that has started is finished.\n"
        )
    } else {
        format!("Rollouts of {name} are not paused.\n")
    })?;
    Ok(End::Well)
}

/// Pauses or resumes every cluster that is not yet, and goes on after one that fails.
async fn pause_all(
    of: &Kubernetes,
    everywhere: bool,
    paused: bool,
    patch: &serde_json::Value,
) -> Result<End> {
    let all = api(of, everywhere).list(&ListParams::default()).await;
    let all = all.map_err(|error| failed("QuorumDisruptionBudgets", error))?;
    let (mut changed, mut failures) = (0, Vec::new());
    let differing = all
        .items
        .iter()
        .filter(|budget| budget.spec.paused.unwrap_or_default() != paused);
    for budget in differing {
        let namespace = budget.namespace().unwrap_or_default();
        let name = budget.name_any();
        match change_in::<QuorumDisruptionBudget>(of, &namespace, &name, patch).await {
            Ok(()) => changed += 1,
            Err(error) => failures.push(format!("{namespace}/{error}")),
        }
    }
    let already = all.items.len() - changed - failures.len();
    let state = if paused { "paused" } else { "not paused" };
    print(&format!(
        "Rollouts of {changed} clusters are {state} now; {already} were before.\n"
    ))?;
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(End::Well)
}

async fn proceed(of: &Kubernetes, name: &str, yes: &cli::Yes) -> Result<End> {
    let cluster = Cluster::from_budget(&budget(of, name).await?);
    let sets = Api::<StatefulSet>::namespaced(of.client.clone(), &of.namespace);
    let set = sets.get(name).await;
    let set = set.map_err(|error| failed("StatefulSets", error))?;
    let status = set.status.unwrap_or_default();
    let Some(revision) = status.update_revision else {
        bail!("the StatefulSet {name} has no update revision yet");
    };
    if matches!(
        cluster.rollout.state,
        RolloutState::Complete | RolloutState::None
    ) {
        bail!("nothing is being rolled out in {name}");
    }
    if cluster.rollout.revision.as_deref() != Some(revision.as_str()) {
        bail!("the template of {name} has just changed: see kubectl quorum rollout status first");
    }
    let reason = cluster.rollout.waits_for.as_ref();
    let is_held_by_preflight = reason.is_some_and(|waiting| waiting.reason == "Preflight");
    let (annotation, means, done) = if is_held_by_preflight {
        (
            PROCEED,
            "is rolled out with what the preflight found",
            "all the same",
        )
    } else {
        (
            PROCEED_WITHOUT_QUORUM,
            "is rolled out member by member although old and new members form no quorum. Writes fail until a majority is updated. This applies only while old and new members cannot talk to each other",
            "without quorum",
        )
    };
    let told = words(&cluster.rollout);
    confirm(&format!("{told}\nThe revision {revision} {means}."), yes)?;
    annotate::<QuorumDisruptionBudget>(of, name, &json!({ annotation: revision })).await?;
    print(&format!("{name} may continue with {revision} {done}.\n"))?;
    Ok(End::Well)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::cluster::tests::degraded_budget;
    use crate::connect::tests::{api_server, list};

    const BUDGET: &str = "/apis/quorumgate.io/v1alpha1/namespaces/db/quorumdisruptionbudgets/etcd";
    const SET: &str = "/apis/apps/v1/namespaces/db/statefulsets/etcd";

    /// A budget whose rollout to `revision` is complete.
    fn updated_to(revision: &str) -> Value {
        let mut budget = degraded_budget();
        budget["status"]["rollout"] = json!({"target": revision, "updated": 3, "targets": 3,
            "completionTime": "2026-11-25T07:00:00Z"});
        for member in budget["status"]["members"].as_array_mut().unwrap() {
            member["revision"] = json!(revision);
        }
        budget
    }

    fn set(revision: &str, generation: i64) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "etcd", "namespace": "db", "generation": 2},
            "status": {"replicas": 3, "observedGeneration": generation,
                "updateRevision": revision}})
    }

    fn wait(watch: bool, limit: u64) -> cli::Wait {
        cli::Wait {
            watch,
            timeout: Duration::from_millis(limit),
        }
    }

    #[tokio::test]
    async fn a_template_that_the_gate_has_yet_to_see_is_not_complete() {
        let rows = [
            (set("new", 2), true),
            (set("newer", 2), false),
            (set("new", 1), false),
            (crate::connect::tests::forbidden(), true),
        ];
        for (set, complete) in rows {
            let (of, _) = api_server(&[(BUDGET, updated_to("new")), (SET, set.clone())]);
            let seen = look(&of, "etcd").await.unwrap();
            assert_eq!(seen.is_complete(), complete, "{set}");
        }
    }

    #[tokio::test]
    async fn a_status_waits_for_the_end_unless_it_is_not_to_watch() {
        let (of, _) = api_server(&[(BUDGET, degraded_budget())]);
        let at_once = status(&of, "etcd", &wait(false, 0), Paint::Never).await;
        assert_eq!(at_once.unwrap(), End::No);
        let limited = status(&of, "etcd", &wait(true, 50), Paint::Never).await;
        let error = limited.unwrap_err().to_string();
        assert!(error.contains("is not complete after 50ms"), "{error}");
        let (of, _) = api_server(&[(BUDGET, updated_to("new"))]);
        let complete = status(&of, "etcd", &wait(true, 0), Paint::Never).await;
        assert_eq!(complete.unwrap(), End::Well);
    }

    #[test]
    fn progress_names_what_the_rollout_waits_for() {
        let seen = Seen {
            cluster: crate::cluster::tests::degraded(),
            unseen: None,
        };
        assert_eq!(
            seen.progress("etcd"),
            "Waiting for the rollout of etcd: 1 of 3 pods are updated; UpdatedMembers: etcd-2 is not ready"
        );
    }

    #[tokio::test]
    async fn all_clusters_are_paused_and_what_was_paused_before_stays() {
        let mut paused = degraded_budget();
        paused["metadata"]["name"] = json!("other");
        paused["spec"]["paused"] = json!(true);
        let list = list("QuorumDisruptionBudget", &[degraded_budget(), paused]);
        let path = "/apis/quorumgate.io/v1alpha1/quorumdisruptionbudgets";
        let (of, asked) = api_server(&[(path, list), (BUDGET, degraded_budget())]);
        let all = cli::Clusters {
            name: None,
            all: true,
            all_namespaces: true,
        };
        pause(&of, &all, true).await.unwrap();
        let asked = asked.lock().unwrap();
        let changes: Vec<&String> = asked
            .iter()
            .filter(|asked| asked.starts_with("PATCH"))
            .collect();
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert!(changes[0].contains("/etcd"), "{changes:?}");
    }
}
