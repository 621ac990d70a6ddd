//! `kubectl quorum doctor`: checks the installation, and what the gate needs to see.

mod before;
mod clusters;
mod finding;
mod installation;
mod runbook;

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use crate::End;
use crate::cli;
use crate::connect::Kubernetes;
use crate::show::{Paint, complain, print, print_as};
use crate::version::Versions;
use finding::{Finding, Status, picture};

/// The pause between two rounds of checks.
const AGAIN: Duration = Duration::from_secs(2);

/// All findings, for programs.
#[derive(Serialize)]
struct Findings<'a> {
    /// The worst one.
    status: Status,
    findings: &'a [Finding],
}

pub(crate) async fn run(of: &Kubernetes, options: &cli::Doctor, paint: Paint) -> Result<End> {
    let ends = options.wait.map(|wait| Instant::now() + wait);
    let (found, status) = loop {
        let found = checks(of, options).await;
        let status = worst(&found);
        let is_over = ends.is_none_or(|ends| Instant::now() + AGAIN >= ends);
        if status != Status::Fail || is_over {
            break (found, status);
        }
        let failed = found.iter().filter(|found| found.status == Status::Fail);
        complain(&format!("Waiting: {} checks fail", failed.count()));
        tokio::time::sleep(AGAIN).await;
    };
    match options.output {
        Some(form) => print_as(
            form,
            &Findings {
                status,
                findings: &found,
            },
        )?,
        None => print(&picture(&found, paint))?,
    }
    Ok(if status == Status::Fail {
        End::No
    } else {
        End::Well
    })
}

fn worst(found: &[Finding]) -> Status {
    let all = found.iter().map(|finding| finding.status);
    all.max().unwrap_or(Status::Ok)
}

async fn checks(of: &Kubernetes, options: &cli::Doctor) -> Vec<Finding> {
    if options.pre {
        return before::checks(&of.client, &options.gate).await;
    }
    let mut found = installation::checks(&of.client, &options.gate).await;
    found.extend(clusters::checks(of).await);
    found
}

/// The findings as text, for a report.
pub(crate) async fn text(of: &Kubernetes, gate: &cli::Gate) -> String {
    let options = cli::Doctor {
        gate: gate.clone(),
        pre: false,
        wait: None,
        output: None,
    };
    picture(&checks(of, &options).await, Paint::Never)
}

/// Whether this version of Kubernetes is supported.
fn kubernetes(versions: &Versions) -> Finding {
    const CHECK: &str = "KubernetesVersion";
    const OBJECT: &str = "Kubernetes";
    match &versions.kubernetes {
        Err(error) => Finding::unread(CHECK, OBJECT, error),
        Ok(version) => match versions.kubernetes_skew() {
            None => Finding::new(Status::Ok, CHECK, OBJECT, version.git_version.clone()),
            Some(message) => Finding::new(Status::Warn, CHECK, OBJECT, message)
                .reason("NotTested")
                .fix("use a supported version of Kubernetes"),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::connect::tests::{api_server, list};

    #[test]
    fn the_worst_finding_decides() {
        let found = |all: &[Status]| {
            let new = |status: &Status| Finding::new(*status, "Check", "it", "");
            worst(&all.iter().map(new).collect::<Vec<_>>())
        };
        assert_eq!(found(&[]), Status::Ok);
        assert_eq!(found(&[Status::Ok, Status::Skip]), Status::Skip);
        assert_eq!(found(&[Status::Warn, Status::Skip]), Status::Warn);
        assert_eq!(found(&[Status::Fail, Status::Ok]), Status::Fail);
    }

    #[tokio::test]
    async fn a_doctor_that_waits_gives_up_when_its_time_is_over() {
        let (of, asked) = api_server(&[(
            "/apis/quorumgate.io/v1alpha1/quorumdisruptionbudgets",
            list(
                "QuorumDisruptionBudget",
                &[json!({"metadata": {"namespace": "db",
                "name": "etcd"}, "spec": {"statefulSetName": "etcd"}})],
            ),
        )]);
        let rounds = async |wait: Option<Duration>| {
            asked.lock().unwrap().clear();
            let options = cli::Doctor {
                gate: cli::Gate::default(),
                pre: false,
                wait,
                output: None,
            };
            assert_eq!(run(&of, &options, Paint::Never).await.unwrap(), End::No);
            let asked = asked.lock().unwrap();
            asked
                .iter()
                .filter(|line| line.contains("/version"))
                .count()
        };
        assert_eq!(rounds(None).await, 1);
        assert_eq!(rounds(Some(Duration::from_millis(2100))).await, 2);
    }
}
