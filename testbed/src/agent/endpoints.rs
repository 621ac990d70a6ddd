//! The names of a namespace's Services, derived from its Services and pods as long as a pod of this
//! node is in the namespace.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::hosts::ServiceNames;
use super::retry::Retry;

/// The names of one namespace. The watch ends with its last user.
#[derive(Debug)]
pub(super) struct NamespaceNames {
    receiver: watch::Receiver<ServiceNames>,
    task: AbortHandle,
}

impl NamespaceNames {
    /// Follows the names.
    pub(super) fn follow(&self) -> watch::Receiver<ServiceNames> {
        self.receiver.clone()
    }
}

impl Drop for NamespaceNames {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The namespaces of this node's pods.
pub(super) struct Endpoints {
    client: Client,
    shared: Mutex<HashMap<String, Weak<NamespaceNames>>>,
}

impl Endpoints {
    /// No namespaces yet.
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            shared: Mutex::default(),
        }
    }

    /// The names of a namespace.
    pub(super) fn namespace(&self, namespace: &str) -> Arc<NamespaceNames> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = shared.get(namespace).and_then(Weak::upgrade) {
            return found;
        }
        shared.retain(|_, weak| weak.strong_count() > 0);
        let (sender, receiver) = watch::channel(ServiceNames::default());
        let services = Api::namespaced(self.client.clone(), namespace);
        let pods = Api::namespaced(self.client.clone(), namespace);
        let task = tokio::spawn(follow(services, pods, sender)).abort_handle();
        let names = Arc::new(NamespaceNames { receiver, task });
        shared.insert(namespace.to_owned(), Arc::downgrade(&names));
        names
    }

    /// The names of all namespaces in use, as they are now.
    pub(super) fn current(&self) -> HashMap<String, ServiceNames> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = shared
            .iter()
            .filter_map(|(ns, weak)| Some((ns.clone(), weak.upgrade()?)));
        alive
            .map(|(ns, names)| (ns, names.receiver.borrow().clone()))
            .collect()
    }
}

async fn follow(services: Api<Service>, pods: Api<Pod>, sender: watch::Sender<ServiceNames>) {
    let watch = watcher::Config::default;
    let mut service_events = watcher(services, watch()).backoff(Retry::default()).boxed();
    let mut pod_events = watcher(pods, watch()).backoff(Retry::default()).boxed();
    let (mut services, mut pods) = (Objects::default(), Objects::default());
    loop {
        tokio::select! {
            Some(event) = service_events.next() => services.apply(event),
            Some(event) = pod_events.next() => pods.apply(event),
            else => return,
        }
        if services.listing.is_some() || pods.listing.is_some() {
            continue;
        }
        let names = ServiceNames::new(services.known.values(), &pods.known.values());
        sender.send_if_modified(|old| {
            let changed = *old != names;
            *old = names;
            changed
        });
    }
}

/// The objects of one kind.
struct Objects<K> {
    known: HashMap<String, K>,
    /// The list that is being received. The known objects stay until the list is complete.
    listing: Option<HashMap<String, K>>,
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        // No object is known before the first list.
        Self {
            known: HashMap::new(),
            listing: Some(HashMap::new()),
        }
    }
}

impl<K: ResourceExt> Objects<K> {
    fn apply(&mut self, event: watcher::Result<watcher::Event<K>>) {
        match event {
            Ok(watcher::Event::Init) => self.listing = Some(HashMap::new()),
            Ok(watcher::Event::InitApply(object)) => {
                self.listing
                    .get_or_insert_default()
                    .insert(object.name_any(), object);
            }
            Ok(watcher::Event::InitDone) => {
                self.known = self.listing.take().unwrap_or_default();
            }
            Ok(watcher::Event::Apply(object)) => {
                self.known.insert(object.name_any(), object);
            }
            Ok(watcher::Event::Delete(object)) => {
                self.known.remove(&object.name_any());
            }
            Err(error) => tracing::debug!(%error, "watch of Services and their pods"),
        }
    }
}
