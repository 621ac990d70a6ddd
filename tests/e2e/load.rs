//! Calls of the gate that have to succeed, one after another, while something else happens.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;

use crate::world::World;

/// Calls of the gate in a loop, with a record of the first failure.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
    failure: Arc<Mutex<Option<String>>>,
    callers: Vec<tokio::task::JoinHandle<Result<()>>>,
}

impl Load {
    pub(crate) fn start(world: &World, callers: usize) -> Self {
        let (stop, calls) = (Arc::default(), Arc::default());
        let failure: Arc<Mutex<Option<String>>> = Arc::default();
        let caller = |_| {
            let (stop, calls) = (Arc::clone(&stop), Arc::clone(&calls));
            let (pods, failure) = (world.pods(), Arc::clone(&failure));
            tokio::spawn(async move {
                let ended = call_until(stop, calls, pods).await;
                if let (Err(error), Ok(mut told)) = (&ended, failure.lock()) {
                    *told = Some(format!("{error:#}"));
                }
                ended
            })
        };
        let callers = (0..callers).map(caller).collect();
        Self {
            stop,
            calls,
            failure,
            callers,
        }
    }

    /// The number of answered calls so far. Fails where a call has failed.
    pub(crate) fn calls(&self) -> Result<usize> {
        let failure = self.failure.lock().ok().and_then(|told| told.clone());
        ensure!(failure.is_none(), "a call failed: {failure:?}");
        Ok(self.calls.load(Ordering::Relaxed))
    }

    /// Stops the loop. Returns the number of answered calls, or the failure of one.
    pub(crate) async fn stop(self) -> Result<usize> {
        self.stop.store(true, Ordering::Relaxed);
        for caller in self.callers {
            caller.await??;
        }
        Ok(self.calls.load(Ordering::Relaxed))
    }
}

async fn call_until(stop: Arc<AtomicBool>, calls: Arc<AtomicUsize>, pods: Api<Pod>) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        delete_for_show(&pods).await?;
        calls.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Deletes a pod in a dry run. Fails where the gate could not be asked.
async fn delete_for_show(pods: &Api<Pod>) -> Result<()> {
    let dry = DeleteParams {
        dry_run: true,
        ..DeleteParams::default()
    };
    match pods.delete("etcd-0", &dry).await {
        // The gate has answered: on a busy machine a member may be too slow for a permission.
        Err(kube::Error::Api(status)) if status.code == 429 => Ok(()),
        answer => Ok(answer.map(drop)?),
    }
}
