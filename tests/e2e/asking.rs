//! The two ways to ask for a member (delete and eviction), and the checks of the answer.

use anyhow::{Result, bail, ensure};
use kube::api::{DeleteParams, EvictParams, PostParams, Preconditions};
use kube::core::Status;
use quorumgate_testbed::eventually;
use serde_json::{Value, json};

use crate::world::{SOON, World};

/// How a request asks for a pod to go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    /// A delete, as `kubectl delete pod --wait=false` sends.
    Delete,
    /// An eviction, as `kubectl drain` sends.
    Eviction,
}

impl By {
    pub(crate) const BOTH: [Self; 2] = [Self::Delete, Self::Eviction];
}

impl World {
    pub(crate) async fn delete(&self, pod: &str) -> Result<(), kube::Error> {
        self.pods()
            .delete(pod, &DeleteParams::default())
            .await
            .map(drop)
    }

    /// Deletes a pod with a grace period of 0 s, as `kubectl delete pod --force` does.
    pub(crate) async fn force(&self, pod: &str) -> Result<(), kube::Error> {
        let now = DeleteParams::default().grace_period(0);
        self.pods().delete(pod, &now).await.map(drop)
    }

    pub(crate) async fn evict(&self, pod: &str) -> Result<(), kube::Error> {
        self.pods()
            .evict(pod, &EvictParams::default())
            .await
            .map(drop)
    }

    pub(crate) async fn ask(&self, by: By, pod: &str) -> Result<(), kube::Error> {
        match by {
            By::Delete => self.delete(pod).await,
            By::Eviction => self.evict(pod).await,
        }
    }

    /// Asks for one incarnation of a pod. Another pod of the same name is not meant.
    pub(crate) async fn ask_for_this(
        &self,
        by: By,
        pod: &str,
        uid: &str,
    ) -> Result<(), kube::Error> {
        match by {
            By::Delete => {
                let this = Preconditions {
                    uid: Some(uid.to_owned()),
                    ..Preconditions::default()
                };
                let delete = DeleteParams::default().preconditions(this);
                self.pods().delete(pod, &delete).await.map(drop)
            }
            By::Eviction => {
                let this = eviction(pod, &json!({"preconditions": {"uid": uid}}));
                let answer: Result<Status, _> = self
                    .pods()
                    .create_subresource("eviction", pod, &PostParams::default(), &this)
                    .await;
                answer.map(drop)
            }
        }
    }

    /// Asks for a pod, and fails unless the gate permits that.
    pub(crate) async fn lets_go(&self, by: By, pod: &str) -> Result<()> {
        Ok(self.judged(by, pod, |_| false).await??)
    }

    /// Asks for a pod in both ways, and fails unless the gate refuses each time for a reason that
    /// mentions all of `parts`.
    ///
    /// An eviction may be refused by the companion `PodDisruptionBudget` instead.
    pub(crate) async fn has_to_wait(&self, pod: &str, parts: &[&str]) -> Result<()> {
        self.has_to_wait_by(By::Delete, pod, parts).await?;
        let companion = format!("PodDisruptionBudget quorumgate-{}", self.etcd.name());
        let mentions = |message: &str| {
            message.contains(&companion) || parts.iter().all(|part| message.contains(part))
        };
        let (code, message) = refusal(self.judged(By::Eviction, pod, mentions).await?)?;
        ensure!(code == 429, "eviction of {pod}: {code}: {message}");
        ensure!(
            mentions(&message),
            "the refused eviction of {pod} mentions neither {companion} nor all of {parts:?}: {message}"
        );
        Ok(())
    }

    /// Asks for a pod in one way, and fails unless the gate refuses for a reason that mentions all
    /// of `parts`.
    pub(crate) async fn has_to_wait_by(&self, by: By, pod: &str, parts: &[&str]) -> Result<()> {
        let mentions = |message: &str| parts.iter().all(|part| message.contains(part));
        let (code, message) = refusal(self.judged(by, pod, mentions).await?)?;
        ensure!(code == 429, "{by:?} of {pod}: {code}: {message}");
        ensure!(
            mentions(&message),
            "{by:?} of {pod} is refused without a word of {parts:?}: {message}"
        );
        Ok(())
    }

    /// The gate's answer. A refusal that holds for a moment only (see [`is_for_a_moment`]) is asked
    /// again, as drains do. The first cause of such a refusal is a machine that stalls for half a
    /// second, the second is a test that asks quickly. A refusal with an `expected` message is
    /// returned at once.
    pub(crate) async fn judged(
        &self,
        by: By,
        pod: &str,
        expected: impl Fn(&str) -> bool,
    ) -> Result<Result<(), kube::Error>> {
        let what = format!("{by:?} of {pod} is judged");
        eventually(SOON, what, async || match self.ask(by, pod).await {
            Err(kube::Error::Api(refusal))
                if is_for_a_moment(&refusal) && !expected(&refusal.message) =>
            {
                Err(refusal)
            }
            judged => Ok(judged),
        })
        .await
    }
}

/// An Eviction with these deleteOptions. `EvictParams` of kube would lose them: it writes them
/// under a name that the API server does not know.
pub(crate) fn eviction(pod: &str, options: &Value) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": pod}, "deleteOptions": options,
    })
}

/// Whether one cause of the refusal is a member that did not answer in time, or a leader that has
/// just been elected; or the gate itself had no time left for an answer, on a starved machine.
fn is_for_a_moment(refusal: &Status) -> bool {
    let late = ["context deadline exceeded", "there was no time left"];
    if late.iter().any(|words| refusal.message.contains(words)) {
        return true;
    }
    let mut causes = refusal.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| {
        let slow = cause.reason.starts_with("member-") && cause.message.contains("in time");
        slow || cause.reason == "LeadershipMoved"
    })
}

/// The code and the message of the API server's refusal. Fails if the request was accepted.
pub(crate) fn refusal<T>(answer: Result<T, kube::Error>) -> Result<(u16, String)> {
    match answer {
        Ok(_) => bail!("it was allowed"),
        Err(kube::Error::Api(status)) => Ok((status.code, status.message)),
        Err(other) => Err(other.into()),
    }
}
