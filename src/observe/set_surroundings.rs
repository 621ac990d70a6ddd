//! The surroundings of a change of a StatefulSet itself, read uncached.

use k8s_openapi::api::apps::v1::StatefulSet;

use super::enrolment::is_enrolled;
use super::error::ObserveError;
use super::observer::Observer;
use super::teardown::{self, Owner};
use super::{belonging, owner};
use crate::api::OwnerStatus;
use crate::ledger::{LedgerError, Page};
use crate::quorum::ClusterRef;

/// A StatefulSet, its namespace and its owner.
#[derive(Debug)]
pub struct SetSurroundings {
    /// The stored StatefulSet. `None` if it is gone.
    pub set: Option<StatefulSet>,
    /// Whether the namespace is terminating or gone.
    pub namespace_terminating: bool,
    /// The objects that own the StatefulSet.
    pub owner: SetOwner,
    /// Whether the budget has one of them on record, so that a deletion by the garbage collector is
    /// believed.
    pub is_owner_known: bool,
}

/// The objects that own a StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetOwner {
    /// There is none.
    None,
    /// An owner exists, or is being deleted without its dependents.
    Lives {
        /// The kind and the name.
        owner: String,
        /// Whether the owner controls the StatefulSet, is on record and asks for no members.
        asks_for_none: bool,
    },
    /// All owners are gone, or are being deleted with their dependents.
    Goes,
    /// All owners are gone, and none of them was ever seen.
    NeverSeen {
        /// The kind and the name of one.
        owner: String,
    },
    /// An owner could not be read.
    Unknown {
        /// The kind and the name.
        owner: String,
        /// The reason.
        why: String,
    },
}

impl Observer {
    /// Reads a StatefulSet, its namespace and its owners. `page` is its ledger, if there is one.
    pub async fn set_surroundings(
        &self,
        cluster: &ClusterRef,
        page: Option<&Page>,
    ) -> Result<SetSurroundings, ObserveError> {
        let (set, namespace_terminating) =
            tokio::try_join!(self.set(cluster), self.namespace_terminating(cluster))?;
        let owners = set.as_ref().map(|set| owner::named(&set.metadata));
        let owners = owners.unwrap_or_default();
        let uid = set.as_ref().and_then(|set| set.metadata.uid.as_deref());
        let record = teardown::recorded_set(page.and_then(Page::status), uid.unwrap_or_default());
        let is_owner_known = record.is_some_and(|set| owners.iter().any(|one| set.knows(one)));
        let controller = set
            .as_ref()
            .and_then(|set| belonging::controller(&set.metadata));
        let controller = controller.map(|owner| owner.uid.as_str());
        let may_ask = |owner: &OwnerStatus| {
            let is_known = record.is_some_and(|set| set.knows(owner));
            is_known && controller == Some(owner.uid.as_str())
        };
        let owner = self.owner(cluster, &owners, is_owner_known, may_ask);
        Ok(SetSurroundings {
            owner: owner.await,
            set,
            namespace_terminating,
            is_owner_known,
        })
    }

    /// The owners together. One that lives tells more than one that cannot be read, and that more
    /// than those that are gone. `may_ask`: whether an owner's own size counts.
    async fn owner(
        &self,
        cluster: &ClusterRef,
        owners: &[OwnerStatus],
        known: bool,
        may_ask: impl Fn(&OwnerStatus) -> bool,
    ) -> SetOwner {
        let mut found = SetOwner::None;
        for reference in owners {
            let owner = format!("{} {}", reference.kind, reference.name);
            let states = self.owner_states();
            let unknown = |why| SetOwner::Unknown {
                owner: owner.clone(),
                why,
            };
            match states.look(&cluster.namespace, reference).await {
                Ok(Owner::Lives) => {
                    let asks = states.asks_for_none(&cluster.namespace, reference);
                    return SetOwner::Lives {
                        asks_for_none: may_ask(reference) && asks.await,
                        owner,
                    };
                }
                Ok(Owner::None) => {}
                Ok(Owner::Goes) if matches!(found, SetOwner::Unknown { .. }) => {}
                Ok(Owner::Goes) if known => found = SetOwner::Goes,
                Ok(Owner::Goes) => found = SetOwner::NeverSeen { owner },
                Ok(Owner::Unknown) => found = unknown("its state is unknown".to_owned()),
                Err(why) => found = unknown(why),
            }
        }
        found
    }

    /// Whether the StatefulSet is guarded: it has a budget, or is enrolled and will have one.
    pub async fn is_guarded(&self, cluster: &ClusterRef) -> Result<bool, ObserveError> {
        match self.ledger().read(cluster).await {
            Ok(Some(_)) => return Ok(true),
            Ok(None) | Err(LedgerError::NoDefinition) => {}
            Err(error) => return Err(ObserveError::Ledger(error)),
        }
        let set = self.set(cluster).await?;
        Ok(set.as_ref().is_some_and(is_enrolled))
    }
}
