//! Each Secret and each ConfigMap that pods of this node refer to, watched by name, once, while it
//! is in use.
//!
//! Node authorization lets a node read only objects that its pods name, and only one object per
//! request. So there is one watch per object, as with the kubelet.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::retry::Retry;

/// The known state of an object.
#[derive(Clone, Debug, Default)]
pub(super) enum Lookup<K> {
    /// The API server has not answered yet.
    #[default]
    Unknown,
    /// The object does not exist.
    Absent,
    /// The object's current state.
    Present(Arc<K>),
}

/// The watch of one object, which ends with its last user.
#[derive(Debug)]
pub(super) struct Subscription<K> {
    receiver: watch::Receiver<Lookup<K>>,
    task: AbortHandle,
}

impl<K> Subscription<K> {
    /// Follows the object.
    pub(super) fn follow(&self) -> watch::Receiver<Lookup<K>> {
        self.receiver.clone()
    }
}

impl<K: Clone> Subscription<K> {
    /// The object's state, once the API server has answered.
    pub(super) async fn known(&self) -> Lookup<K> {
        let mut receiver = self.receiver.clone();
        match receiver
            .wait_for(|lookup| !matches!(lookup, Lookup::Unknown))
            .await
        {
            Ok(lookup) => lookup.clone(),
            Err(_ended) => Lookup::Unknown,
        }
    }
}

impl<K> Drop for Subscription<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Shared<K> = Mutex<HashMap<(String, String), Weak<Subscription<K>>>>;

/// The watches of this node.
pub(super) struct Objects {
    client: Client,
    secrets: Shared<Secret>,
    config_maps: Shared<ConfigMap>,
}

impl Objects {
    /// No watches yet.
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            secrets: Mutex::default(),
            config_maps: Mutex::default(),
        }
    }

    /// A Secret.
    pub(super) fn secret(&self, namespace: &str, name: &str) -> Arc<Subscription<Secret>> {
        subscribe(&self.client, &self.secrets, namespace, name)
    }

    /// A ConfigMap.
    pub(super) fn config_map(&self, namespace: &str, name: &str) -> Arc<Subscription<ConfigMap>> {
        subscribe(&self.client, &self.config_maps, namespace, name)
    }
}

fn subscribe<K>(
    client: &Client,
    shared: &Shared<K>,
    namespace: &str,
    name: &str,
) -> Arc<Subscription<K>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + Debug
        + Send
        + Sync
        + 'static,
{
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (namespace.to_owned(), name.to_owned());
    if let Some(found) = shared.get(&key).and_then(Weak::upgrade) {
        return found;
    }
    shared.retain(|_, weak| weak.strong_count() > 0);
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let (sender, receiver) = watch::channel(Lookup::Unknown);
    let task = tokio::spawn(follow(api, name.to_owned(), sender)).abort_handle();
    let subscription = Arc::new(Subscription { receiver, task });
    shared.insert(key, Arc::downgrade(&subscription));
    subscription
}

async fn follow<K>(api: Api<K>, name: String, sender: watch::Sender<Lookup<K>>)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut stream = watcher::watch_object(api, &name)
        .backoff(Retry::default())
        .boxed();
    while let Some(event) = stream.next().await {
        match event {
            Ok(object) => {
                let lookup = object.map_or(Lookup::Absent, |o| Lookup::Present(Arc::new(o)));
                sender.send_replace(lookup);
            }
            Err(error) => tracing::debug!(%name, %error, "watch"),
        }
    }
}
