//! Asking the gate whether a pod may be deleted, by a request that is never carried out: a
//! server-side dry run goes through the same webhooks as the request itself.

use anyhow::{Context as _, Result};
use http::{Response, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use kube::Resource as _;
use kube::api::{DeleteParams, PostParams};
use kube::client::Body;
use kube::core::response::StatusCause;
use kube::core::{Request, Status};
use serde::Serialize;
use serde_json::json;

use crate::connect::Kubernetes;

/// How it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Delete,
    Eviction,
}

/// The answer to a dry run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all_fields = "camelCase")]
pub(crate) enum Answer {
    /// The pod may be deleted now.
    Allowed {
        /// Warnings of the API server. Under `enforcement: Warn` this is the refusal.
        warnings: Vec<String>,
    },
    /// The gate refuses.
    Denied {
        /// 429: the same request may pass later. 403: it does not help to ask again.
        code: u16,
        /// The stable identifier of the reason.
        reason: String,
        message: String,
        /// The causes behind the reason: a member each.
        causes: Vec<Cause>,
    },
    /// Something else refuses: another webhook, a PodDisruptionBudget, the API server.
    DeniedByOthers { code: u16, message: String },
    /// The API server could not reach the gate.
    GateUnreachable { message: String },
    /// The user has no right to do this.
    NoRight { message: String },
    /// There is no such pod.
    NoPod,
}

/// A cause of a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Cause {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// The words before the gate's own, for a delete and for an eviction.
const OUR_WEBHOOKS: [&str; 2] = [
    r#"admission webhook "pods.quorumgate.io" denied the request: "#,
    r#"admission webhook "evictions.quorumgate.io" denied the request: "#,
];

/// Asks whether the pod may be deleted.
pub(crate) async fn ask(of: &Kubernetes, namespace: &str, pod: &str, by: By) -> Result<Answer> {
    let pods = Request::new(Pod::url_path(&(), Some(namespace)));
    let request = match by {
        By::Delete => {
            let never = DeleteParams {
                dry_run: true,
                ..DeleteParams::default()
            };
            pods.delete(pod, &never)?
        }
        By::Eviction => {
            let never = PostParams {
                dry_run: true,
                ..PostParams::default()
            };
            let eviction = json!({
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": pod, "namespace": namespace},
                "deleteOptions": {"dryRun": ["All"]},
            });
            pods.create_subresource("eviction", pod, &never, serde_json::to_vec(&eviction)?)?
        }
    };
    let response = of.client.send(request.map(Body::from)).await;
    let response = response.context("cannot ask the API server")?;
    let warnings = warnings(&response);
    let code = response.status();
    let body = response.into_body().collect_bytes().await?;
    if code.is_success() {
        return Ok(Answer::Allowed { warnings });
    }
    let status = serde_json::from_slice(&body).unwrap_or_else(|_| Status {
        message: String::from_utf8_lossy(&body).into_owned(),
        ..Status::default()
    });
    Ok(Answer::new(code, status))
}

impl Answer {
    fn new(code: StatusCode, status: Status) -> Self {
        let message = status.message.trim_end().to_owned();
        let mut ours = OUR_WEBHOOKS.iter();
        if let Some(said) = ours.find_map(|ours| message.strip_prefix(ours)) {
            let causes = status.details.map(|details| details.causes);
            let causes = causes.unwrap_or_default();
            return Self::Denied {
                code: code.as_u16(),
                reason: causes.first().map(|c| c.reason.clone()).unwrap_or_default(),
                message: said.to_owned(),
                causes: causes
                    .into_iter()
                    .skip(1)
                    .map(
                        |StatusCause {
                             reason, message, ..
                         }| Cause { reason, message },
                    )
                    .collect(),
            };
        }
        if message.contains("failed calling webhook") {
            return Self::GateUnreachable { message };
        }
        match code {
            StatusCode::NOT_FOUND => Self::NoPod,
            StatusCode::FORBIDDEN if !message.starts_with("admission webhook") => {
                Self::NoRight { message }
            }
            _ => Self::DeniedByOthers {
                code: code.as_u16(),
                message,
            },
        }
    }
}

/// The warnings of a response: `299 - "text"`.
fn warnings<B>(response: &Response<B>) -> Vec<String> {
    let all = response.headers().get_all(http::header::WARNING).iter();
    all.filter_map(|value| {
        let text = value.to_str().ok()?;
        let (_, quoted) = text.split_once('"')?;
        let (words, _) = quoted.rsplit_once('"')?;
        Some(words.replace("\\\"", "\"").replace("\\\\", "\\"))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use kube::core::response::StatusDetails;

    use super::*;

    fn said(message: &str) -> Status {
        Status {
            message: message.to_owned(),
            ..Status::default()
        }
    }

    #[test]
    fn the_gates_refusal_is_told_from_everybody_elses() {
        let cause = |reason: &str, message: &str| StatusCause {
            reason: reason.to_owned(),
            message: message.to_owned(),
            field: String::new(),
        };
        let details = StatusDetails {
            causes: vec![
                cause("NoHeadroom", "pod db/etcd-0 cannot be deleted now: …"),
                cause("MemberNotServing", "etcd-2 (dead)"),
            ],
            name: "etcd-0".into(),
            group: String::new(),
            kind: "pods".into(),
            uid: String::new(),
            retry_after_seconds: 0,
        };
        let expected = Answer::Denied {
            code: 429,
            reason: "NoHeadroom".into(),
            message: "pod db/etcd-0 cannot be deleted now: …".into(),
            causes: vec![Cause {
                reason: "MemberNotServing".into(),
                message: "etcd-2 (dead)".into(),
            }],
        };
        let shown = serde_json::to_value(&expected).unwrap();
        assert_eq!(shown["verdict"], "Denied");
        assert_eq!(shown["reason"], "NoHeadroom");
        assert_eq!(shown["causes"][0]["reason"], "MemberNotServing");
        for ours in OUR_WEBHOOKS {
            let refusal = Status {
                details: Some(details.clone()),
                ..said(&format!("{ours}pod db/etcd-0 cannot be deleted now: …"))
            };
            assert_eq!(
                Answer::new(StatusCode::TOO_MANY_REQUESTS, refusal),
                expected
            );
        }

        let rights = said(r#"pods "etcd-0" is forbidden: User "jane" cannot delete resource"#);
        let answer = Answer::new(StatusCode::FORBIDDEN, rights);
        assert!(matches!(answer, Answer::NoRight { .. }), "{answer:?}");
        let other = said(r#"admission webhook "x.example.org" denied the request: no"#);
        let answer = Answer::new(StatusCode::FORBIDDEN, other);
        assert!(
            matches!(answer, Answer::DeniedByOthers { code: 403, .. }),
            "{answer:?}"
        );
        let budget = said("Cannot evict pod as it would violate the pod's disruption budget.");
        let answer = Answer::new(StatusCode::TOO_MANY_REQUESTS, budget);
        assert!(
            matches!(answer, Answer::DeniedByOthers { code: 429, .. }),
            "{answer:?}"
        );
        let failed =
            said(r#"Internal error occurred: failed calling webhook "pods.quorumgate.io""#);
        let answer = Answer::new(StatusCode::INTERNAL_SERVER_ERROR, failed);
        assert!(
            matches!(answer, Answer::GateUnreachable { .. }),
            "{answer:?}"
        );
        let gone = Answer::new(StatusCode::NOT_FOUND, said(r#"pods "x" not found"#));
        assert_eq!(gone, Answer::NoPod);
    }

    #[test]
    fn warnings_are_read_from_the_headers() {
        let response = Response::builder()
            .header("warning", r#"299 - "allowed by enforcement: Warn, \"so\"""#)
            .body(())
            .unwrap();
        assert_eq!(
            warnings(&response),
            [r#"allowed by enforcement: Warn, "so""#]
        );
    }
}
