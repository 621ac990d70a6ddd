//! The update strategy that a StatefulSet should have. Pure.
//!
//! While the gate keeps `OnDelete`, an annotation holds the strategy that the owner last asked for,
//! and is updated when the owner asks for another. The annotation is the only state: neither
//! revisions nor pods matter here, so switching the feature in the middle of a rollout loses
//! nothing and repeats nothing. A StatefulSet without the annotation has its owner's strategy,
//! whatever that is.
//!
//! **Closing the books.** Below Kubernetes 1.37 the StatefulSet controller never advances
//! `status.currentRevision` under `OnDelete`, and operators that compare it with `updateRevision`
//! (etcd-druid) never call their cluster updated. After a rollout the gate therefore sets
//! `RollingUpdate` until both are equal. Nothing is outdated then, so the controller deletes
//! nothing. A mark in the annotation says that this `RollingUpdate` is the gate's and not the
//! owner's.

use serde_json::{Map, Value, json};

use crate::api::names::PREVIOUS_UPDATE_STRATEGY;

/// The strategy under which the StatefulSet controller never replaces outdated pods (DEP-07).
pub const ON_DELETE: &str = "OnDelete";

/// The strategy of a StatefulSet that names none.
pub const ROLLING_UPDATE: &str = "RollingUpdate";
/// The field that holds the parameters of `RollingUpdate`.
const PARAMETERS: &str = "rollingUpdate";
/// The mark in the annotation beside the owner's strategy: the gate set the current strategy to
/// close the books.
const CLOSING: &str = "closingBooks";

/// The change that the leading replica wants, encoded in the field manager under which it writes
/// the unchanged StatefulSet back. The webhook then makes the change, whatever the feature flags of
/// the replica that answers it: during an update of the gate these may differ from the leader's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
pub enum LeaderCommand {
    /// Asks for [`SetStrategy::on_delete`].
    #[strum(serialize = "quorumgate-keeps-on-delete")]
    Keep,
    /// Asks for [`SetStrategy::give_back`].
    #[strum(serialize = "quorumgate-gives-strategy-back")]
    GiveBack,
    /// Asks for [`SetStrategy::close_books`].
    #[strum(serialize = "quorumgate-closes-books")]
    CloseBooks,
}

/// The parts of a StatefulSet that its strategy depends on.
#[derive(Debug, Clone, Copy, Default)]
pub struct SetStrategy<'a> {
    /// `spec.updateStrategy`.
    pub strategy: Option<&'a Value>,
    /// The annotation [`PREVIOUS_UPDATE_STRATEGY`].
    pub memory: Option<&'a str>,
}

/// The change that a StatefulSet needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The new `spec.updateStrategy`, if another is needed.
    pub strategy: Option<Value>,
    /// The change to the annotation.
    pub memory: AnnotationChange,
}

/// The change to the annotation [`PREVIOUS_UPDATE_STRATEGY`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnnotationChange {
    /// The annotation stays as it is.
    Stays,
    /// The annotation gets this value.
    Says(String),
    /// The annotation is removed.
    Goes,
}

impl<'a> SetStrategy<'a> {
    /// The type of the strategy; `RollingUpdate` where none is named.
    pub fn kind(&self) -> &'a str {
        self.strategy
            .and_then(|strategy| strategy.get("type")?.as_str())
            .unwrap_or(ROLLING_UPDATE)
    }

    /// The change that sets `OnDelete` and stores the owner's strategy in the annotation; `None` if
    /// nothing has to change. `before` is the annotation of the stored object where `self` is about
    /// to replace it: many operators drop annotations that they do not know.
    pub fn on_delete(&self, before: Option<&str>) -> Option<Change> {
        if let Some(wish) = self.wish(before) {
            return Some(Change {
                memory: self.remember(&wish),
                strategy: Some(json!({"type": ON_DELETE})),
            });
        }
        if let Some(memory) = self.memory
            && let Some(owners) = read(memory)
        {
            // `OnDelete` is back already, written by a client that kept the mark in the annotation.
            return is_closing(memory).then(|| Change {
                strategy: None,
                memory: AnnotationChange::Says(owners.to_string()),
            });
        }
        // An annotation that cannot be parsed counts as missing; the stored one may be readable.
        let before = before.and_then(read)?;
        Some(Change {
            strategy: None,
            memory: self.remember(&before),
        })
    }

    /// The change that closes the books: `RollingUpdate`, so that the StatefulSet controller
    /// advances `status.currentRevision`. `before` is as for [`Self::on_delete`]. The partition of
    /// 0 is written out: without it that controller recreates a lost pod with the old revision.
    pub fn close_books(&self, before: Option<&str>) -> Option<Change> {
        if self.kind() != ON_DELETE {
            return None;
        }
        let memory = self.memory.or(before).and_then(read);
        let mut owners = memory.unwrap_or_else(|| json!({"type": ON_DELETE}));
        if let Some(fields) = owners.as_object_mut() {
            fields.insert(CLOSING.into(), true.into());
        }
        Some(Change {
            strategy: Some(json!({"type": ROLLING_UPDATE, PARAMETERS: {"partition": 0}})),
            memory: AnnotationChange::Says(owners.to_string()),
        })
    }

    /// The owner's strategy while the books are closed; `None` if they are not, or if the owner has
    /// written another strategy meanwhile.
    pub fn owners_while_closing(&self, before: Option<&str>) -> Option<Value> {
        let memory = self.memory.or(before).filter(|memory| is_closing(memory))?;
        let parameters = self.strategy.and_then(|strategy| strategy.get(PARAMETERS));
        let mut parameters = parameters.and_then(Value::as_object).into_iter().flatten();
        let by_default = parameters.all(|(name, value)| match name.as_str() {
            "partition" => *value == json!(0),
            "maxUnavailable" => *value == json!(1),
            _ => false,
        });
        (self.kind() == ROLLING_UPDATE && by_default)
            .then(|| read(memory))
            .flatten()
    }

    /// The strategy that the owner asks for; `None` if it is `OnDelete`.
    fn wish(&self, before: Option<&str>) -> Option<Value> {
        if let Some(owners) = self.owners_while_closing(before) {
            return Some(owners);
        }
        if self.kind() != ON_DELETE {
            let wish = self.strategy.cloned();
            return Some(wish.unwrap_or_else(|| json!({"type": ROLLING_UPDATE})));
        }
        // An owner who writes only the parameters means those of the strategy that the gate has
        // replaced: `OnDelete` has no parameters.
        self.memory.or(before)?;
        let parameters = self.strategy?.get(PARAMETERS).filter(|p| !p.is_null())?;
        Some(json!({"type": ROLLING_UPDATE, PARAMETERS: parameters}))
    }

    /// The change that gives the owner's strategy back where the gate had replaced it; `None` if
    /// nothing has to change. `before` is as for [`Self::on_delete`].
    pub fn give_back(&self, before: Option<&str>) -> Option<Change> {
        let memory = self.memory.or(before)?;
        // Another strategy was written by the owner after the annotation, and stays.
        let is_ours = self.kind() == ON_DELETE || self.owners_while_closing(before).is_some();
        let strategy = is_ours
            .then(|| read(memory).unwrap_or_else(|| json!({"type": ROLLING_UPDATE})))
            .filter(|previous| Some(previous) != self.strategy);
        let memory = match self.memory {
            Some(_) => AnnotationChange::Goes,
            None => AnnotationChange::Stays,
        };
        (strategy.is_some() || memory != AnnotationChange::Stays)
            .then_some(Change { strategy, memory })
    }

    /// The change that `order` asks for.
    pub fn obey(&self, order: LeaderCommand, before: Option<&str>) -> Option<Change> {
        match order {
            LeaderCommand::Keep => self.on_delete(before),
            LeaderCommand::GiveBack => self.give_back(before),
            LeaderCommand::CloseBooks => self.close_books(before),
        }
    }

    fn remember(&self, wish: &Value) -> AnnotationChange {
        let memory = self.memory.filter(|memory| !is_closing(memory));
        match memory.and_then(read) {
            Some(known) if known == *wish => AnnotationChange::Stays,
            _ => AnnotationChange::Says(wish.to_string()),
        }
    }
}

impl Change {
    /// The change as a JSON merge patch. `live` is the strategy that the StatefulSet has now.
    pub fn merge_patch(&self, live: Option<&Value>) -> Value {
        let mut annotations = Map::new();
        match &self.memory {
            AnnotationChange::Stays => {}
            AnnotationChange::Says(text) => {
                annotations.insert(PREVIOUS_UPDATE_STRATEGY.into(), json!(text));
            }
            AnnotationChange::Goes => {
                annotations.insert(PREVIOUS_UPDATE_STRATEGY.into(), Value::Null);
            }
        }
        let mut spec = Map::new();
        if let Some(strategy) = &self.strategy {
            // A merge keeps every field that the patch does not name, so the old fields are set to
            // null.
            let known = live.and_then(Value::as_object);
            let gone = known.into_iter().flat_map(Map::keys);
            let mut whole: Map<String, Value> =
                gone.map(|field| (field.clone(), Value::Null)).collect();
            whole.extend(strategy.as_object().cloned().unwrap_or_default());
            spec.insert("updateStrategy".into(), whole.into());
        }
        json!({"metadata": {"annotations": annotations}, "spec": spec})
    }
}

/// The owner's strategy in the annotation, without the mark; `None` if the text is no strategy.
pub fn read(text: &str) -> Option<Value> {
    let mut strategy: Value = serde_json::from_str(text).ok()?;
    strategy.as_object_mut()?.remove(CLOSING);
    strategy.get("type")?.as_str().is_some().then_some(strategy)
}

/// Whether the annotation carries the mark of closing the books.
fn is_closing(text: &str) -> bool {
    let strategy: Option<Value> = serde_json::from_str(text).ok();
    strategy.is_some_and(|strategy| strategy.get(CLOSING) == Some(&json!(true)))
}

#[cfg(test)]
mod tests;
