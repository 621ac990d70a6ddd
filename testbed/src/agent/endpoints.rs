//! The names of a namespace's Services, kept current from its Services and pods while a pod of this node lives there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
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
        let services = Api::namespaced(self.client.clone(), namespace);
        let pods = Api::namespaced(self.client.clone(), namespace);
        let task = tokio::spawn(follow(services, pods, sender)).abort_handle();
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

async fn follow(services: Api<Service>, pods: Api<Pod>, sender: watch::Sender<ServiceNames>) {
    let (mut services, mut pods) = (Listing::watch(services), Listing::watch(pods));
    loop {
        let changed = tokio::select! {
            changed = services.next() => changed,
            changed = pods.next() => changed,
        };
        if !changed {
            return;
        }
        if let (Some(services), Some(pods)) = (&services.objects, &pods.objects) {
            let names = ServiceNames::new(services.values(), pods.values());
            sender.send_if_modified(|old| {
                let changed = *old != names;
                *old = names;
                changed
            });
        }
    }
}

/// All objects of one kind in a namespace, as a watch tells of them.
struct Listing<K: Resource + Clone + 'static> {
    stream: BoxStream<'static, watcher::Result<watcher::Event<K>>>,
    /// What there is; none until it was listed for the first time.
    objects: Option<HashMap<String, K>>,
    relisting: HashMap<String, K>,
}

impl<K> Listing<K>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    fn watch(api: Api<K>) -> Self {
        let stream = watcher(api, watcher::Config::default()).backoff(Retry::default());
        Self {
            stream: stream.boxed(),
            objects: None,
            relisting: HashMap::new(),
        }
    }

    /// Waits for news; `false` when there will be none any more.
    async fn next(&mut self) -> bool {
        while let Some(event) = self.stream.next().await {
            match event {
                Ok(watcher::Event::Init) => self.relisting.clear(),
                Ok(watcher::Event::InitApply(object)) => {
                    self.relisting.insert(object.name_any(), object);
                }
                Ok(watcher::Event::InitDone) => {
                    self.objects = Some(std::mem::take(&mut self.relisting));
                    return true;
                }
                Ok(watcher::Event::Apply(object)) => {
                    self.objects
                        .get_or_insert_default()
                        .insert(object.name_any(), object);
                    return true;
                }
                Ok(watcher::Event::Delete(object)) => {
                    self.objects
                        .get_or_insert_default()
                        .remove(&object.name_any());
                    return true;
                }
                Err(error) => tracing::debug!(%error, "watch for names"),
            }
        }
        false
    }
}
