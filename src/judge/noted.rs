//! What a hearing has found out so far, for the answer that has to be given when its time runs out.

use std::sync::{Mutex, PoisonError};

use crate::quorum::ClusterRef;

/// Notes of one hearing.
#[derive(Debug, Default)]
pub(super) struct Noted(Mutex<Notes>);

#[derive(Debug, Default)]
struct Notes {
    cluster: Option<ClusterRef>,
    doing: &'static str,
    overridden: bool,
    only_warns: bool,
    warnings: Vec<String>,
}

impl Noted {
    /// What is being done now: completes the sentence "there was no time left while …".
    pub(super) fn doing(&self, what: &'static str) {
        self.with(|notes| notes.doing = what);
    }

    /// The cluster that the question is about.
    pub(super) fn about(&self, cluster: &ClusterRef) {
        self.with(|notes| notes.cluster = Some(cluster.clone()));
    }

    /// Whether the pod goes by a valid override, whatever the ledger says.
    pub(super) fn overridden(&self, overridden: bool) {
        self.with(|notes| notes.overridden = overridden);
    }

    /// Whether the cluster's refusals are only reported.
    pub(super) fn only_warning(&self, only_warns: bool) {
        self.with(|notes| notes.only_warns = only_warns);
    }

    pub(super) fn only_warns(&self) -> bool {
        self.with(|notes| notes.only_warns)
    }

    /// Something the asker should know.
    pub(super) fn warn(&self, warning: String) {
        self.with(|notes| {
            if !notes.warnings.contains(&warning) {
                notes.warnings.push(warning);
            }
        });
    }

    pub(super) fn cluster(&self) -> Option<ClusterRef> {
        self.with(|notes| notes.cluster.clone())
    }

    pub(super) fn what(&self) -> &'static str {
        self.with(|notes| notes.doing)
    }

    pub(super) fn is_overridden(&self) -> bool {
        self.with(|notes| notes.overridden)
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        self.with(|notes| notes.warnings.clone())
    }

    fn with<T>(&self, note: impl FnOnce(&mut Notes) -> T) -> T {
        note(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
