//! Copies of objects, by namespace and name. Each watch feeds a part of one.
//!
//! There may be tens of thousands of objects, so a copy holds what is asked of it and nothing else.
//! The stores of the kube crate hold whole objects, and the metadata of each twice.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kube::ResourceExt;
use tokio::sync::watch;

use crate::quorum::ClusterRef;

/// The namespace and the name of an object, of which neither has a slash. The namespace is empty
/// where the kind has none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::reconcile) struct Place(Box<str>);

impl Place {
    fn new(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// The place of an object.
    pub(super) fn from_object(object: &impl ResourceExt) -> Self {
        let namespace = object.meta().namespace.as_deref().unwrap_or_default();
        Self::new(namespace, &object.name_any())
    }

    /// The namespace and the name.
    fn parts(&self) -> (&str, &str) {
        self.0.split_once('/').unwrap_or_default()
    }

    /// The namespace.
    pub(in crate::reconcile) fn namespace(&self) -> &str {
        self.parts().0
    }

    /// The name.
    pub(in crate::reconcile) fn name(&self) -> &str {
        self.parts().1
    }

    /// The cluster whose StatefulSet or budget is here.
    pub(in crate::reconcile) fn cluster(&self) -> ClusterRef {
        let (namespace, name) = self.parts();
        ClusterRef::new(namespace, name)
    }
}

/// The copies of one kind, in one part per watch.
#[derive(Debug)]
pub(in crate::reconcile) struct Cache<V>(Vec<Part<V>>);

impl<V> Clone for Cache<V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The copies that one watch feeds.
#[derive(Debug)]
pub(super) struct Part<V> {
    kept: Arc<RwLock<HashMap<Place, Arc<V>>>>,
    /// Whether the watch has listed what there is.
    listed: watch::Receiver<bool>,
}

impl<V> Clone for Part<V> {
    fn clone(&self) -> Self {
        Self {
            kept: Arc::clone(&self.kept),
            listed: self.listed.clone(),
        }
    }
}

impl<V> Part<V> {
    fn read(&self) -> RwLockReadGuard<'_, HashMap<Place, Arc<V>>> {
        self.kept.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writing end of a part.
pub(super) struct Feed<V> {
    kept: Arc<RwLock<HashMap<Place, Arc<V>>>>,
    /// The objects of a list that has not ended. The copies are those of before until then.
    list: HashMap<Place, Arc<V>>,
    listed: watch::Sender<bool>,
}

/// A part without copies, and its writing end.
pub(super) fn part<V>() -> (Part<V>, Feed<V>) {
    let (sender, listed) = watch::channel(false);
    let kept = Arc::default();
    let part = Part {
        kept: Arc::clone(&kept),
        listed,
    };
    let feed = Feed {
        kept,
        list: HashMap::new(),
        listed: sender,
    };
    (part, feed)
}

impl<V> Feed<V> {
    fn write(&self) -> RwLockWriteGuard<'_, HashMap<Place, Arc<V>>> {
        self.kept.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a list of all objects.
    pub(super) fn begin_list(&mut self) {
        self.list.clear();
    }

    /// Takes in an object of the list.
    pub(super) fn list(&mut self, place: Place, object: V) {
        self.list.insert(place, Arc::new(object));
    }

    /// Ends the list: the objects that are not in it are gone.
    pub(super) fn end_list(&mut self) {
        let list = std::mem::take(&mut self.list);
        *self.write() = list;
        self.listed.send_replace(true);
    }

    /// Takes in an object that was created or changed.
    pub(super) fn put(&self, place: Place, object: V) {
        self.write().insert(place, Arc::new(object));
    }

    /// Removes an object that was deleted.
    pub(super) fn remove(&self, place: &Place) {
        self.write().remove(place);
    }
}

/// The end of a watch that has not listed what there is.
#[derive(Debug, thiserror::Error)]
#[error("a watch ended before it had listed what there is")]
pub(in crate::reconcile) struct NeverListed;

impl<V> Cache<V> {
    /// A cache of these parts.
    pub(super) fn new(parts: impl IntoIterator<Item = Part<V>>) -> Self {
        Self(parts.into_iter().collect())
    }

    /// Returns once every watch has listed what there is.
    pub(super) async fn listed(&self) -> Result<(), NeverListed> {
        for part in &self.0 {
            let mut listed = part.listed.clone();
            let listed = listed.wait_for(|listed| *listed).await;
            listed.map(drop).map_err(|_| NeverListed)?;
        }
        Ok(())
    }

    /// Whether every watch has listed what there is.
    pub(in crate::reconcile) fn is_listed(&self) -> bool {
        self.0.iter().all(|part| *part.listed.borrow())
    }

    /// The object with that name.
    pub(in crate::reconcile) fn get(&self, namespace: &str, name: &str) -> Option<Arc<V>> {
        let place = Place::new(namespace, name);
        self.0
            .iter()
            .find_map(|part| part.read().get(&place).cloned())
    }

    /// The object with that name, of a kind without namespaces.
    pub(in crate::reconcile) fn named(&self, name: &str) -> Option<Arc<V>> {
        self.get("", name)
    }

    /// The object with the namespace and the name of a cluster.
    pub(in crate::reconcile) fn of_cluster(&self, cluster: &ClusterRef) -> Option<Arc<V>> {
        self.get(&cluster.namespace, &cluster.name)
    }

    /// Looks at each object, under the lock of the cache.
    pub(in crate::reconcile) fn each(&self, mut look: impl FnMut(&Place, &Arc<V>)) {
        for part in &self.0 {
            for (place, object) in part.read().iter() {
                look(place, object);
            }
        }
    }

    /// The values that `of` gives for all objects, under the lock of the cache.
    pub(in crate::reconcile) fn map<T>(&self, of: impl Fn(&Place, &Arc<V>) -> T) -> Vec<T> {
        let mut all = Vec::with_capacity(self.len());
        self.each(|place, object| all.push(of(place, object)));
        all
    }

    /// All objects.
    pub(in crate::reconcile) fn all(&self) -> Vec<Arc<V>> {
        self.map(|_, object| Arc::clone(object))
    }

    /// Any object.
    pub(in crate::reconcile) fn any(&self) -> Option<Arc<V>> {
        self.0
            .iter()
            .find_map(|part| part.read().values().next().cloned())
    }

    /// The number of objects.
    pub(in crate::reconcile) fn len(&self) -> usize {
        self.0.iter().map(|part| part.read().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn place(name: &str) -> Place {
        Place::new("ns", name)
    }

    #[test]
    fn a_place_has_its_namespace_and_its_name() {
        let place = Place::new("ns", "etcd-0");
        assert_eq!((place.namespace(), place.name()), ("ns", "etcd-0"));
        assert_eq!(place.cluster(), ClusterRef::new("ns", "etcd-0"));
        let of_no_namespace = Place::new("", "node");
        assert_eq!(
            (of_no_namespace.namespace(), of_no_namespace.name()),
            ("", "node")
        );
    }

    #[test]
    fn a_list_replaces_all_at_its_end_and_not_before() {
        let (part, mut feed) = part();
        let cache = Cache::new([part]);
        feed.put(place("old"), 1);
        feed.begin_list();
        feed.list(place("new"), 2);
        assert!(cache.get("ns", "old").is_some() && cache.get("ns", "new").is_none());
        assert!(cache.listed().now_or_never().is_none(), "not listed yet");
        feed.end_list();
        assert!(cache.get("ns", "old").is_none());
        assert_eq!(cache.get("ns", "new").as_deref(), Some(&2));
        assert!(cache.listed().now_or_never().unwrap().is_ok());
    }

    #[test]
    fn a_list_that_broke_off_leaves_nothing_behind() {
        let (part, mut feed) = part();
        let cache = Cache::new([part]);
        feed.begin_list();
        feed.list(place("gone-meanwhile"), 1);
        feed.begin_list();
        feed.end_list();
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn objects_come_change_and_go_each_in_its_part() {
        let (one, feed) = part();
        let (other, of_other) = part();
        let cache = Cache::new([one, other]);
        feed.put(place("a"), 1);
        of_other.put(Place::new("elsewhere", "a"), 2);
        feed.put(place("a"), 3);
        assert_eq!(cache.get("ns", "a").as_deref(), Some(&3));
        assert_eq!(cache.get("elsewhere", "a").as_deref(), Some(&2));
        assert_eq!(cache.len(), 2);
        feed.remove(&place("a"));
        of_other.remove(&place("a"));
        assert_eq!(cache.all(), [Arc::new(2)]);
        assert_eq!(cache.any(), Some(Arc::new(2)));
    }

    #[test]
    fn a_watch_that_ends_before_its_list_is_an_error() {
        let (part, feed) = part::<u8>();
        drop(feed);
        assert!(Cache::new([part]).listed().now_or_never().unwrap().is_err());
    }
}
