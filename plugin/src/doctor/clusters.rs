//! The checks of each guarded cluster.

use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use quorumgate_api::Enforcement;
use quorumgate_api::names::{GATED, TRUE};

use super::finding::{Finding, Status};
use super::runbook::alert_about;
use crate::ask::{Answer, By, ask};
use crate::cluster::{Cluster, Quorum};
use crate::connect::{Kubernetes, MayNotRead};
use crate::remedy::of_condition;
use crate::status::chosen;

/// How many clusters are asked at one time.
const AT_ONCE: usize = 8;

/// The checks of the clusters of the namespace that the user named, or of all.
pub(super) async fn checks(of: &Kubernetes) -> Vec<Finding> {
    const CHECK: &str = "GuardedClusters";
    let clusters = match chosen(of).await {
        Err(error) => {
            let (status, reason) = if error.is::<MayNotRead>() {
                (Status::Skip, "Forbidden")
            } else {
                (Status::Fail, "Unreadable")
            };
            let message = format!("{error:#}");
            return vec![Finding::new(status, CHECK, "clusters", message).reason(reason)];
        }
        Ok(clusters) if clusters.is_empty() => {
            let finding = Finding::new(Status::Warn, CHECK, "clusters", "none is guarded")
                .reason("None")
                .fix("kubectl label statefulset NAME quorumgate.io/enroll=true");
            return vec![finding];
        }
        Ok(clusters) => clusters,
    };
    let each = stream::iter(&clusters).map(|found| cluster(of, found));
    let found: Vec<Vec<Finding>> = each.buffered(AT_ONCE).collect().await;
    found.into_iter().flatten().collect()
}

async fn cluster(of: &Kubernetes, cluster: &Cluster) -> Vec<Finding> {
    let mut found = of_budget(cluster);
    found.extend(gated(of, cluster).await);
    found.extend(answers(of, cluster).await);
    if found.is_empty() {
        let serving = cluster.serving.unwrap_or_default();
        let message = format!("{serving} voters serve, and the gate answers");
        found.push(Finding::new(Status::Ok, "Cluster", name(cluster), message));
    }
    found
}

fn name(cluster: &Cluster) -> String {
    format!("cluster {}/{}", cluster.namespace, cluster.name)
}

/// The findings of the budget's own conditions.
fn of_budget(cluster: &Cluster) -> Vec<Finding> {
    let mut found = Vec::new();
    for problem in &cluster.problems {
        let status = match problem.status.as_str() {
            "Unknown" => Status::Warn,
            _ => Status::Fail,
        };
        let (condition, reason) = (problem.condition.as_str(), problem.reason.as_str());
        let message = format!(
            "{condition} is {} ({reason}): {}",
            problem.status, problem.message
        );
        let mut finding = Finding::new(status, condition, name(cluster), message).reason(reason);
        finding.fix = of_condition(condition, reason);
        if let Some(alert) = alert_about(condition) {
            finding = finding.runbook(alert);
        }
        found.push(finding);
    }
    if cluster.quorum == Quorum::Unknown && cluster.problems.is_empty() {
        let message = "the gate has not observed it yet";
        let finding = Finding::new(Status::Fail, "Observed", name(cluster), message)
            .reason("NotYet")
            .fix("wait a minute; then check that a replica of the gate is ready and leads")
            .runbook("QuorumgateNoLeader");
        found.push(finding);
    }
    if cluster.enforcement == Enforcement::Warn {
        let message = "denials are only warnings (spec.enforcement: Warn)";
        let finding = Finding::new(Status::Warn, "Enforcement", name(cluster), message)
            .reason("Warn")
            .fix(format!(
                "kubectl -n {} patch qdb {} --type merge -p '{{\"spec\":{{\"enforcement\":\"Enforce\"}}}}'",
                cluster.namespace, cluster.name
            ))
            .runbook("QuorumgateWarnMode");
        found.push(finding);
    }
    found
}

/// Whether the API server asks the gate about the namespace.
async fn gated(of: &Kubernetes, cluster: &Cluster) -> Option<Finding> {
    let namespaces = Api::<Namespace>::all(of.client.clone());
    // Who may not read it learns it from the dry run below.
    let namespace = namespaces.get_opt(&cluster.namespace).await.ok()??;
    let labels = namespace.metadata.labels.unwrap_or_default();
    if labels.get(GATED).is_some_and(|value| value == TRUE) {
        return None;
    }
    let message = format!("the namespace has no label {GATED}={TRUE}");
    let finding = Finding::new(Status::Fail, "NamespaceGated", name(cluster), message)
        .reason("NoLabel")
        .fix(format!(
            "the gate sets it; if it does not: kubectl label namespace {} {GATED}={TRUE}",
            cluster.namespace
        ));
    Some(finding.runbook("QuorumgateNotInForce"))
}

/// Whether the API server reaches the gate, asked about one of the cluster's pods.
async fn answers(of: &Kubernetes, cluster: &Cluster) -> Option<Finding> {
    const CHECK: &str = "GateAnswers";
    let mut pods = cluster
        .members
        .iter()
        .filter_map(|member| member.pod.as_deref());
    let pod = pods.next()?;
    let new = |status, message: String| Finding::new(status, CHECK, name(cluster), message);
    Some(match ask(of, &cluster.namespace, pod, By::Delete).await {
        Ok(Answer::Allowed { .. } | Answer::Denied { .. } | Answer::NoPod) => return None,
        Ok(Answer::GateUnreachable { message }) => new(
            Status::Fail,
            format!("the API server cannot reach the gate: {message}"),
        )
        .reason("Unreachable")
        .fix("check the gate's replicas, its endpoints, and network policies on its port")
        .runbook("QuorumgateCallsFail"),
        Ok(Answer::NoRight { .. }) => new(
            Status::Skip,
            format!("your user may not delete {pod}, so the gate was not asked"),
        )
        .reason("Forbidden"),
        Ok(Answer::DeniedByOthers { message, .. }) => new(
            Status::Warn,
            format!("another webhook or the API server denies deletes of {pod}: {message}"),
        )
        .reason("DeniedByOthers"),
        Err(error) => new(Status::Fail, format!("{error:#}")).reason("NoAnswer"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::Problem;
    use crate::cluster::tests::{degraded, degraded_budget};
    use crate::connect::tests::{api_server, forbidden, list};

    #[test]
    fn the_patch_that_lets_members_be_asked_is_printed_as_the_budget_says_it() {
        let command = "kubectl -n db patch qdb etcd --type merge -p '{}'";
        let mut cluster = degraded();
        cluster.problems = vec![Problem {
            condition: "EvidenceLive".to_owned(),
            status: "False".to_owned(),
            reason: "TLSFailed".to_owned(),
            message: format!("etcd-0: its certificate is for a; to fix it, run: {command}"),
        }];
        let found = of_budget(&cluster);
        assert!(found[0].message.ends_with(command), "{found:?}");
    }

    #[test]
    fn what_a_budget_says_is_found_with_its_fix_and_its_runbook() {
        let found = of_budget(&degraded());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].status, Status::Fail);
        assert_eq!(found[0].object, "cluster db/etcd");
        assert_eq!(found[0].check, "GateActive");
        assert_eq!(found[0].reason.as_deref(), Some("NotAsked"));
        let runbook = found[0].runbook.as_deref().unwrap_or_default();
        assert!(runbook.ends_with("#quorumgatenotinforce"), "{runbook}");
    }

    #[tokio::test]
    async fn a_gate_that_cannot_be_reached_or_asked_is_told_apart() {
        let answer = |code: u16, message: &str| {
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                "reason": "InternalError", "message": message})
        };
        let unreachable = answer(500, "Internal error occurred: failed calling webhook");
        for (answer, status, reason) in [
            (unreachable, Status::Fail, "Unreachable"),
            (forbidden(), Status::Skip, "Forbidden"),
        ] {
            let (of, _) = api_server(&[
                (
                    "/apis/quorumgate.io/v1alpha1/quorumdisruptionbudgets",
                    list("QuorumDisruptionBudget", &[degraded_budget()]),
                ),
                ("/api/v1/namespaces/db/pods/etcd-0", answer),
                ("/api/v1/namespaces/db", json!({"metadata": {"name": "db"}})),
            ]);
            let found = checks(&of).await;
            let of_check = |check| found.iter().find(|found| found.check == check);
            let answers = of_check("GateAnswers").unwrap();
            assert_eq!(answers.status, status, "{answers:?}");
            assert_eq!(answers.reason.as_deref(), Some(reason));
            assert!(of_check("NamespaceGated").is_some(), "{found:?}");
        }
    }
}
