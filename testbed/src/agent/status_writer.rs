//! The publisher of a pod's status. The latest status wins, only changes are sent, and fields that
//! another writer overwrote are restored.
//!
//! Each pod has a task for it, so that the pod goes on while the API server is away.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::retry::Retry;
use super::status::CONDITIONS;

/// The shortest pause before overwritten fields are restored.
const RESTORE_DELAY: Duration = Duration::from_millis(300);

/// The worker's handle.
#[derive(Debug)]
pub(super) struct StatusWriter {
    wanted: watch::Sender<Wanted>,
    published: watch::Receiver<u64>,
}

#[derive(Clone, Debug, Default)]
struct Wanted {
    /// A number that rises with every change, so that the worker can wait for a change to be
    /// published.
    number: u64,
    status: PodStatus,
}

impl StatusWriter {
    /// Starts the task, which ends with this handle or when the pod object is gone.
    pub(super) fn start(api: Api<Pod>, pod: watch::Receiver<Arc<Pod>>) -> Self {
        let (wanted, follow) = watch::channel(Wanted::default());
        let (done, published) = watch::channel(0);
        tokio::spawn(publish(api, pod, follow, done));
        Self { wanted, published }
    }

    /// Requests this status. Returns at once.
    pub(super) fn set(&self, status: PodStatus) {
        self.wanted.send_if_modified(|wanted| {
            let changed = wanted.number == 0 || wanted.status != status;
            if changed {
                *wanted = Wanted {
                    number: wanted.number + 1,
                    status,
                };
            }
            changed
        });
    }

    /// Waits until the last requested status was accepted, or the pod object is gone.
    pub(super) async fn flush(&self) {
        let number = self.wanted.borrow().number;
        // An error means that the task has ended because the object is gone.
        let mut published = self.published.clone();
        let _gone = published.wait_for(|done| *done >= number).await;
    }
}

async fn publish(
    api: Api<Pod>,
    mut pod: watch::Receiver<Arc<Pod>>,
    mut wanted: watch::Receiver<Wanted>,
    done: watch::Sender<u64>,
) {
    let mut sent = 0;
    let mut answered_version = 0;
    let mut retry = Retry::default();
    loop {
        let restore = tokio::select! {
            changed = wanted.changed() => match changed {
                Ok(()) => false,
                Err(_worker_gone) => return,
            },
            Ok(()) = pod.changed() => true,
        };
        if restore && !overwritten(&pod.borrow_and_update(), answered_version, &wanted.borrow()) {
            continue;
        }
        if restore {
            tokio::time::sleep(RESTORE_DELAY).await;
        }
        loop {
            let latest = wanted.borrow_and_update().clone();
            if latest.number == sent && !restore {
                break;
            }
            let current = pod.borrow().clone();
            let name = current.metadata.name.clone().unwrap_or_default();
            let patch = Patch::Strategic(patch(&current, &latest.status));
            match api
                .patch_status(&name, &PatchParams::default(), &patch)
                .await
            {
                Ok(answer) => {
                    sent = latest.number;
                    answered_version = version(&answer);
                    retry = Retry::default();
                    done.send_replace(sent);
                    break;
                }
                Err(kube::Error::Api(error)) if matches!(error.code, 404 | 409) => return,
                Err(error) => {
                    tracing::debug!(%name, %error, "status");
                    retry.wait().await;
                }
            }
        }
    }
}

/// The patch. Its UID makes it a conflict for any other incarnation, and lists of addresses are
/// replaced as a whole.
fn patch(pod: &Pod, status: &PodStatus) -> Value {
    let mut status = json!(status);
    for list in ["podIPs", "hostIPs"] {
        if let Some(Value::Array(items)) = status.get_mut(list) {
            items.insert(0, json!({"$patch": "replace"}));
        }
    }
    json!({"metadata": {"uid": pod.metadata.uid}, "status": status})
}

/// Whether an object that is newer than the last write lacks that write.
fn overwritten(pod: &Pod, answered_version: u64, wanted: &Wanted) -> bool {
    wanted.number > 0
        && version(pod) > answered_version
        && pod
            .status
            .as_ref()
            .is_none_or(|found| owned(found) != owned(&wanted.status))
}

/// The fields that no other client has a reason to write.
fn owned(status: &PodStatus) -> (Option<&str>, Option<&str>, Vec<(&str, &str)>) {
    let mut conditions: Vec<_> = status
        .conditions
        .iter()
        .flatten()
        .filter(|c| CONDITIONS.contains(&c.type_.as_str()))
        .map(|c| (c.type_.as_str(), c.status.as_str()))
        .collect();
    conditions.sort_unstable();
    (
        status.phase.as_deref(),
        status.pod_ip.as_deref(),
        conditions,
    )
}

fn version(pod: &Pod) -> u64 {
    pod.metadata
        .resource_version
        .as_deref()
        .and_then(|v| v.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(version: &str, ready: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"uid": "u", "resourceVersion": version},
            "status": {"phase": "Running", "podIPs": [{"ip": "127.64.0.9"}],
                "conditions": [{"type": "Ready", "status": ready}]}
        }))
        .unwrap()
    }

    #[test]
    fn a_condition_that_somebody_else_changed_is_put_back_but_old_news_is_not_news() {
        let wanted = Wanted {
            number: 1,
            status: pod("5", "True").status.unwrap(),
        };
        assert!(!overwritten(&pod("7", "True"), 6, &wanted));
        assert!(overwritten(&pod("7", "False"), 6, &wanted));
        assert!(!overwritten(&pod("6", "False"), 6, &wanted));
    }

    #[test]
    fn address_lists_are_replaced_and_the_uid_is_a_precondition() {
        let pod = pod("5", "True");
        let patch = patch(&pod, pod.status.as_ref().unwrap());
        assert_eq!(patch["metadata"]["uid"], "u");
        assert_eq!(patch["status"]["podIPs"][0]["$patch"], "replace");
        assert_eq!(patch["status"]["podIPs"][1]["ip"], "127.64.0.9");
    }
}
