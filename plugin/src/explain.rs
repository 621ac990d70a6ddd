//! `kubectl quorum explain`: whether a pod may be deleted now, and if not, why.

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use quorumgate_api::idle_containers;
use serde::Serialize;

use crate::End;
use crate::ask::{Answer, By, ask};
use crate::cli;
use crate::cluster::Cluster;
use crate::connect::{Kubernetes, words};
use crate::remedy::remedy;
use crate::show::{Paint, print, print_as};
use crate::status::here;

/// An explanation, for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation<'a> {
    namespace: &'a str,
    pod: &'a str,
    #[serde(flatten)]
    answer: &'a Answer,
    #[serde(rename = "do")]
    remedy: Option<String>,
    /// The node's words about containers that do not run.
    containers: &'a [String],
    cluster: Option<&'a Cluster>,
}

pub(crate) async fn run(of: &Kubernetes, options: &cli::Explain, paint: Paint) -> Result<End> {
    let by = if options.eviction {
        By::Eviction
    } else {
        By::Delete
    };
    let (namespace, pod) = (of.namespace.as_str(), options.pod.as_str());
    let pod = pod.strip_prefix("pod/").unwrap_or(pod);
    let answer = ask(of, namespace, pod, by).await?;
    if answer == Answer::NoPod {
        bail!("there is no pod {pod} in the namespace {namespace}");
    }
    let clusters = here(of).await?;
    let cluster = clusters
        .iter()
        .find(|cluster| cluster.has_pod(namespace, pod));
    let end = end(&answer);
    let containers = containers(of, namespace, pod).await;
    if let Some(form) = options.output {
        let explanation = Explanation {
            namespace,
            pod,
            answer: &answer,
            remedy: what_to_do(&answer),
            containers: &containers,
            cluster,
        };
        print_as(form, &explanation)?;
        return Ok(end);
    }
    let mut told = verdict(&format!("{namespace}/{pod}"), &answer, cluster);
    for words in unsaid(&containers, pod, cluster) {
        told += &format!("  pod   {words}\n");
    }
    if let Some(cluster) = cluster {
        told += &format!(
            "\n{}/{}, as the gate last saw it\n",
            cluster.namespace, cluster.name
        );
        told += &cluster.details(paint);
    }
    print(&told)?;
    Ok(end)
}

/// The node's present words about the pod's containers that do not run.
async fn containers(of: &Kubernetes, namespace: &str, name: &str) -> Vec<String> {
    let pods: Api<Pod> = Api::namespaced(of.client.clone(), namespace);
    match pods.get_opt(name).await {
        Ok(pod) => pod.as_ref().map(idle_containers).unwrap_or_default(),
        Err(error) => vec![format!("its containers cannot be read: {}", words(&error))],
    }
}

/// The words that the line of the pod's member does not have already.
fn unsaid<'a>(
    containers: &'a [String],
    pod: &str,
    cluster: Option<&Cluster>,
) -> impl Iterator<Item = &'a String> {
    let mut members = cluster.into_iter().flat_map(|cluster| &cluster.members);
    let member = members.find(|member| member.pod.as_deref() == Some(pod));
    let said = member.and_then(|member| member.message.clone());
    let said = said.unwrap_or_default();
    containers
        .iter()
        .filter(move |words| !said.contains(*words))
}

fn end(answer: &Answer) -> End {
    match answer {
        Answer::Allowed { .. } => End::Well,
        Answer::NoRight { .. } | Answer::NoPod => End::Unknown,
        // The API server does not know the user, or failed.
        Answer::DeniedByOthers { code, .. } if *code == 401 || *code >= 500 => End::Unknown,
        Answer::Denied { .. } | Answer::DeniedByOthers { .. } | Answer::GateUnreachable { .. } => {
            End::No
        }
    }
}

fn what_to_do(answer: &Answer) -> Option<String> {
    match answer {
        Answer::Denied {
            reason, message, ..
        } => remedy(reason, message),
        Answer::GateUnreachable { .. } => {
            Some("find out why the gate cannot be reached: kubectl quorum doctor".into())
        }
        Answer::NoRight { .. } => {
            Some("ask somebody who may delete the pod; below is what the gate last saw".into())
        }
        Answer::Allowed { .. } | Answer::DeniedByOthers { .. } | Answer::NoPod => None,
    }
}

/// The answer in words.
pub(crate) fn verdict(pod: &str, answer: &Answer, cluster: Option<&Cluster>) -> String {
    let mut told = match answer {
        Answer::Allowed { warnings } if warnings.is_empty() => match cluster {
            Some(cluster) if cluster.disruptions_allowed.is_some_and(|n| n > 0) => {
                format!("{pod} may be deleted now.\n")
            }
            Some(_) => {
                format!(
                    "{pod} may be deleted now: its member is not needed, or an override allows it.\n"
                )
            }
            None => {
                format!("{pod} may be deleted now. It is no member of a guarded etcd cluster.\n")
            }
        },
        Answer::Allowed { warnings } => {
            format!(
                "{pod} may be deleted now, with a warning:\n  {}\n",
                warnings.join("\n  ")
            )
        }
        Answer::Denied {
            code: 429,
            message,
            reason,
            ..
        } => {
            format!(
                "{pod} cannot be deleted now; the same request may pass later.\n  why   {message}\n  rule  {reason}\n"
            )
        }
        Answer::Denied {
            message, reason, ..
        } => {
            format!(
                "{pod} cannot be deleted this way; repeating the request does not help.\n  why   {message}\n  rule  {reason}\n"
            )
        }
        Answer::DeniedByOthers { code, message } => {
            format!(
                "{pod} cannot be deleted now, and the refusal is not the gate's ({code}):\n  {message}\n"
            )
        }
        Answer::GateUnreachable { message } => {
            format!(
                "{pod} cannot be deleted now: the gate did not answer the API server.\n  {message}\n"
            )
        }
        Answer::NoRight { message } => {
            format!("It is not known whether {pod} may be deleted.\n  {message}\n")
        }
        Answer::NoPod => format!("There is no pod {pod}.\n"),
    };
    if let Answer::Denied { causes, .. } = answer {
        for cause in causes {
            told += &format!("  with  {}\n", cause.message);
        }
    }
    if let Some(remedy) = what_to_do(answer) {
        told += &format!("  do    {remedy}\n");
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::Cause;
    use crate::cluster::tests::degraded;

    #[test]
    fn an_answer_that_is_not_known_is_no_refusal() {
        let message = String::new;
        for (answer, expected) in [
            (Answer::NoRight { message: message() }, End::Unknown),
            (
                Answer::DeniedByOthers {
                    code: 401,
                    message: message(),
                },
                End::Unknown,
            ),
            (
                Answer::DeniedByOthers {
                    code: 500,
                    message: message(),
                },
                End::Unknown,
            ),
            (
                Answer::DeniedByOthers {
                    code: 429,
                    message: message(),
                },
                End::No,
            ),
            (Answer::GateUnreachable { message: message() }, End::No),
            (
                Answer::Allowed {
                    warnings: Vec::new(),
                },
                End::Well,
            ),
        ] {
            assert_eq!(end(&answer), expected, "{answer:?}");
        }
    }

    #[test]
    fn a_container_that_does_not_run_is_told_once() {
        let mut cluster = degraded();
        let etcd = "container etcd: ImagePullBackOff, no such image".to_owned();
        let sidecar = "container backup: CrashLoopBackOff".to_owned();
        let containers = [etcd.clone(), sidecar.clone()];
        let told = |cluster: Option<&Cluster>| -> Vec<String> {
            unsaid(&containers, "etcd-2", cluster).cloned().collect()
        };
        assert_eq!(told(None), containers, "no cluster has the pod");
        assert_eq!(told(Some(&cluster)), containers, "the gate has yet to look");
        cluster.members[2].message = Some(format!("it refused the connection; {etcd}"));
        assert_eq!(told(Some(&cluster)), [sidecar]);
    }

    #[test]
    fn a_refusal_is_explained_by_its_reason_its_members_and_its_remedy() {
        let answer = Answer::Denied {
            code: 429,
            reason: "NoHeadroom".into(),
            message: "pod db/etcd-0 cannot be deleted now: etcd-0 is needed: not serving: etcd-2"
                .into(),
            causes: vec![Cause {
                reason: "MemberNotServing".into(),
                message: "etcd-2 (dead: it refused the connection)".into(),
            }],
        };
        let told = verdict("db/etcd-0", &answer, Some(&degraded()));
        let lines: Vec<_> = told.lines().collect();
        assert_eq!(
            lines[0],
            "db/etcd-0 cannot be deleted now; the same request may pass later."
        );
        assert_eq!(
            lines[1],
            "  why   pod db/etcd-0 cannot be deleted now: etcd-0 is needed: not serving: etcd-2"
        );
        assert_eq!(lines[3], "  with  etcd-2 (dead: it refused the connection)");
        assert!(
            lines[4].starts_with(r#"  do    fix those "not serving""#),
            "{told}"
        );
    }
}
