//! The surroundings of a change of a StatefulSet itself, read uncached.

use k8s_openapi::api::apps::v1::StatefulSet;

use super::teardown::Owner;
use super::{ObserveError, Observer, belonging, is_enrolled, owner};
use crate::ledger::LedgerError;
use crate::quorum::ClusterRef;

/// A StatefulSet, its namespace and its owner.
#[derive(Debug)]
pub struct SetSurroundings {
    /// The stored StatefulSet. `None` if it is gone.
    pub set: Option<StatefulSet>,
    /// Whether the namespace is terminating or gone.
    pub namespace_terminating: bool,
    /// The object that controls the StatefulSet.
    pub owner: SetOwner,
}

/// The object that controls a StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetOwner {
    /// There is none.
    None,
    /// The owner exists, or is being deleted without its dependents.
    Lives {
        /// The kind and the name.
        owner: String,
        /// Whether the owner itself asks for no members.
        asks_for_none: bool,
    },
    /// The owner is gone, or is being deleted with its dependents.
    Goes,
    /// The owner could not be read.
    Unknown {
        /// The kind and the name.
        owner: String,
        /// The reason.
        why: String,
    },
}

impl Observer {
    /// Reads a StatefulSet, its namespace and its owner.
    pub async fn set_surroundings(
        &self,
        cluster: &ClusterRef,
    ) -> Result<SetSurroundings, ObserveError> {
        let (set, namespace_terminating) =
            tokio::try_join!(self.set(cluster), self.namespace_terminating(cluster))?;
        let controller = set
            .as_ref()
            .and_then(|s| belonging::controller(&s.metadata));
        let owner = match controller.map(owner::recorded) {
            None => SetOwner::None,
            Some(reference) => {
                let name = format!("{} {}", reference.kind, reference.name);
                let owners = self.owner_states();
                match owners.look(&cluster.namespace, &reference).await {
                    Ok(Owner::None) => SetOwner::None,
                    Ok(Owner::Lives) => SetOwner::Lives {
                        asks_for_none: owners.asks_for_none(&cluster.namespace, &reference).await,
                        owner: name,
                    },
                    Ok(Owner::Goes) => SetOwner::Goes,
                    Ok(Owner::Unknown) => SetOwner::Unknown {
                        owner: name,
                        why: "its state is unknown".to_owned(),
                    },
                    Err(why) => SetOwner::Unknown { owner: name, why },
                }
            }
        };
        Ok(SetSurroundings {
            set,
            namespace_terminating,
            owner,
        })
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
