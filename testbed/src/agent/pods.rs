//! The pods that are bound to this node, each with its worker.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use nix::sys::signal::Signal;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Agent;
use super::container;
use super::layout::PodDir;
use super::process::{ended, signal_group};
use super::retry::Retry;
use super::termination;
use super::worker::Worker;

/// The time between `SIGTERM` and `SIGKILL` for containers whose pod is gone, as in a kubelet.
pub(super) const ORPHAN_GRACE: Duration = Duration::from_secs(1);

/// Follows the pods for ever.
pub(super) async fn follow(agent: Arc<Agent>) {
    let api: Api<Pod> = Api::all(agent.client.clone());
    let config = watcher::Config::default().fields(&format!("spec.nodeName={}", agent.node));
    let mut stream = watcher(api, config).backoff(Retry::default()).boxed();
    let mut pods = Pods {
        agent,
        workers: HashMap::new(),
        listed: None,
    };
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => pods.apply(event),
            Err(error) => tracing::debug!(%error, "watch of pods"),
        }
    }
}

struct Handle {
    pod: watch::Sender<Arc<Pod>>,
    gone: CancellationToken,
}

struct Pods {
    agent: Arc<Agent>,
    /// The workers by UID: a pod that was created again under its name is another pod.
    workers: HashMap<String, Handle>,
    /// The UIDs of a list that is being received.
    listed: Option<Vec<String>>,
}

impl Pods {
    fn apply(&mut self, event: watcher::Event<Pod>) {
        match event {
            watcher::Event::Init => self.listed = Some(Vec::new()),
            watcher::Event::InitApply(pod) => {
                self.listed
                    .get_or_insert_default()
                    .push(pod.uid().unwrap_or_default());
                self.update(pod);
            }
            watcher::Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                self.forget(|uid| !listed.iter().any(|l| l == uid));
                self.end_orphans();
            }
            watcher::Event::Apply(pod) => self.update(pod),
            watcher::Event::Delete(pod) => {
                // The last state of the object says how the pod was deleted.
                let uid = pod.uid().unwrap_or_default();
                if let Some(handle) = self.workers.get(&uid) {
                    handle.pod.send_replace(Arc::new(pod));
                }
                self.forget(|known| known == uid);
            }
        }
    }

    fn update(&mut self, pod: Pod) {
        let uid = pod.uid().unwrap_or_default();
        let pod = Arc::new(pod);
        if let Some(handle) = self.workers.get(&uid) {
            handle.pod.send_replace(pod);
            return;
        }
        let (sender, receiver) = watch::channel(pod);
        let gone = CancellationToken::new();
        tokio::spawn(Worker::run(self.agent.clone(), receiver, gone.clone()));
        self.workers.insert(uid, Handle { pod: sender, gone });
    }

    /// Notifies workers that their pod object is gone.
    fn forget(&mut self, gone: impl Fn(&str) -> bool) {
        self.workers.retain(|uid, handle| {
            let gone = gone(uid);
            if gone {
                handle.gone.cancel();
            }
            !gone
        });
    }

    /// Ends the containers that an earlier agent left of pods that were deleted since.
    fn end_orphans(&self) {
        for (dir, uid) in self.agent.dir.all_pods().unwrap_or_default() {
            if !self.workers.contains_key(&uid) {
                let agent = self.agent.clone();
                tokio::spawn(async move { end_orphan(&agent, dir).await });
            }
        }
    }
}

async fn end_orphan(agent: &Agent, dir: PodDir) {
    for container in dir.containers().unwrap_or_default() {
        let Ok(Some(run)) = container::running(&container) else {
            continue;
        };
        for (signal, limit) in [
            (Signal::SIGTERM, ORPHAN_GRACE),
            (Signal::SIGKILL, ORPHAN_GRACE * 5),
        ] {
            if let Err(error) = signal_group(run.process, signal) {
                tracing::warn!(%error, "orphan {}", container.name());
            }
            if tokio::time::timeout(limit, ended(run.process))
                .await
                .is_ok()
            {
                break;
            }
        }
    }
    termination::clean_up(&agent.dir, &dir);
}
