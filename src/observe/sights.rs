//! The answers of the reconcile loop's watches about objects that nobody guards.
//!
//! A watch may be behind, so nothing here lets a member of a guarded cluster go: its budget is read
//! first. What passes between the label of a StatefulSet and its budget, no ledger holds. Therefore
//! a new budget is not trusted until such a request cannot be in use any more.

use std::fmt;

use crate::quorum::{ClusterRef, PodName};

/// The state of a StatefulSet, as far as it enrols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetSeen {
    /// There is no such StatefulSet.
    Missing,
    /// The labels enrol it, or a budget does.
    Enrolled,
    /// The labels keep it from being enrolled, whatever the labels of its pods are.
    OptedOut,
    /// The labels say nothing.
    Plain,
}

/// The answer of a watch about a namespace.
type OfNamespace = dyn Fn(&str) -> Option<bool> + Send + Sync;

/// The answer of a watch about a StatefulSet.
type OfSet = dyn Fn(&ClusterRef) -> Option<SetSeen> + Send + Sync;

/// The answer of a watch about a pod of a namespace.
type OfPod = dyn Fn(&str, &PodName) -> Option<bool> + Send + Sync;

/// The answers of watches. `None` where a watch cannot tell.
pub struct Sights {
    /// Whether a namespace is under the gate.
    pub is_gated: Box<OfNamespace>,
    /// The labels of a StatefulSet.
    pub set: Box<OfSet>,
    /// Whether a pod of a namespace has the labels of etcd-druid.
    pub is_druids: Box<OfPod>,
}

impl Sights {
    /// Whether a pod is nobody's whose cluster has no budget. `is_druids` says whether the pod has
    /// the labels of etcd-druid.
    pub(super) fn show_foreign(&self, cluster: &ClusterRef, is_druids: Option<bool>) -> bool {
        match (self.set)(cluster) {
            None | Some(SetSeen::Enrolled) => false,
            Some(SetSeen::OptedOut) => true,
            Some(SetSeen::Missing | SetSeen::Plain) => is_druids == Some(false),
        }
    }
}

impl fmt::Debug for Sights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sights").finish_non_exhaustive()
    }
}
