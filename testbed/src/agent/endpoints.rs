//! The names of a namespace's Services, kept current from its EndpointSlices while a pod of this node lives there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures::StreamExt;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::hosts::ServiceNames;
use super::retry::Retry;

/// One namespace's names; the watch ends with its last user.
#[derive(Debug)]
pub struct NamespaceNames {
    receiver: watch::Receiver<ServiceNames>,
    task: AbortHandle,
}

impl NamespaceNames {
    /// Follows the names.
    pub fn follow(&self) -> watch::Receiver<ServiceNames> {
        self.receiver.clone()
    }
}

impl Drop for NamespaceNames {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The namespaces that pods of this node live in.
pub struct Endpoints {
    client: Client,
    shared: Mutex<HashMap<String, Weak<NamespaceNames>>>,
}

impl Endpoints {
    /// Nothing watched yet.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            shared: Mutex::default(),
        }
    }

    /// The names of a namespace.
    pub fn namespace(&self, namespace: &str) -> Arc<NamespaceNames> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = shared.get(namespace).and_then(Weak::upgrade) {
            return found;
        }
        shared.retain(|_, weak| weak.strong_count() > 0);
        let (sender, receiver) = watch::channel(ServiceNames::default());
        let api = Api::namespaced(self.client.clone(), namespace);
        let task = tokio::spawn(follow(api, sender)).abort_handle();
        let names = Arc::new(NamespaceNames { receiver, task });
        shared.insert(namespace.to_owned(), Arc::downgrade(&names));
        names
    }

    /// The namespaces in use, with their names, as they are now.
    pub fn current(&self) -> HashMap<String, ServiceNames> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = shared
            .iter()
            .filter_map(|(ns, weak)| Some((ns.clone(), weak.upgrade()?)));
        alive
            .map(|(ns, names)| (ns, names.receiver.borrow().clone()))
            .collect()
    }
}

async fn follow(api: Api<EndpointSlice>, sender: watch::Sender<ServiceNames>) {
    let mut slices: HashMap<String, EndpointSlice> = HashMap::new();
    let mut stream = watcher(api, watcher::Config::default())
        .backoff(Retry::default())
        .boxed();
    let mut listing = None::<HashMap<String, EndpointSlice>>;
    while let Some(event) = stream.next().await {
        match event {
            Ok(watcher::Event::Init) => listing = Some(HashMap::new()),
            Ok(watcher::Event::InitApply(slice)) => {
                listing
                    .get_or_insert_default()
                    .insert(slice.name_any(), slice);
                continue;
            }
            Ok(watcher::Event::InitDone) => slices = listing.take().unwrap_or_default(),
            Ok(watcher::Event::Apply(slice)) => {
                slices.insert(slice.name_any(), slice);
            }
            Ok(watcher::Event::Delete(slice)) => {
                slices.remove(&slice.name_any());
            }
            Err(error) => {
                tracing::debug!(%error, "watch of endpoint slices");
                continue;
            }
        }
        if listing.is_none() {
            let names = ServiceNames::from_slices(slices.values());
            sender.send_if_modified(|old| {
                let changed = *old != names;
                *old = names;
                changed
            });
        }
    }
}
