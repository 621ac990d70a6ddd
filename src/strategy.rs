//! Which update strategy a StatefulSet is to have: pure, from what it has and what it was seen with.
//!
//! While the gate keeps `OnDelete`, an annotation remembers what the owner last asked for, and follows when that changes. It is the only
//! memory there is: neither revisions nor pods matter here, so a switch in the middle of a rollout loses nothing and repeats nothing.
//! A StatefulSet without the annotation is its owner's, whatever its strategy.
//!
//! **Closing the books.** Before Kubernetes 1.37 the StatefulSet controller never advances `status.currentRevision` under `OnDelete`, and
//! operators that compare it with `updateRevision` never call their cluster updated. After a rollout the gate therefore sets `RollingUpdate`
//! until both are equal. Nothing is outdated then, so nothing is deleted. The annotation says that this strategy is not the owner's.

use serde_json::{Map, Value, json};

use crate::api::names::PREVIOUS_UPDATE_STRATEGY;

/// The strategy under which nobody but the gate replaces outdated pods.
pub const ON_DELETE: &str = "OnDelete";

/// The strategy of a StatefulSet that names none.
pub const ROLLING_UPDATE: &str = "RollingUpdate";
/// The field with its parameters.
const PARAMETERS: &str = "rollingUpdate";
/// Beside the owner's strategy in the annotation: the strategy that stands is the gate's, who closes the books.
const CLOSING: &str = "closingBooks";

/// What the gate's leader wants of a StatefulSet that it writes back as it is, by the name under which it writes (the field manager). Replicas
/// with other features, which may answer the webhook while the gate is rolled out, do as they are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
pub enum Order {
    /// [`Sight::keep`].
    #[strum(serialize = "quorumgate-keeps-on-delete")]
    Keep,
    /// [`Sight::give_back`].
    #[strum(serialize = "quorumgate-gives-strategy-back")]
    GiveBack,
    /// [`Sight::close_books`].
    #[strum(serialize = "quorumgate-closes-books")]
    CloseBooks,
}

/// What of a StatefulSet matters here.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sight<'a> {
    /// `spec.updateStrategy`.
    pub strategy: Option<&'a Value>,
    /// The annotation [`PREVIOUS_UPDATE_STRATEGY`].
    pub memory: Option<&'a str>,
}

/// What is to be changed in a StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The new `spec.updateStrategy`, where another is due.
    pub strategy: Option<Value>,
    /// What becomes of the annotation.
    pub memory: Memory,
}

/// What becomes of the annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Memory {
    /// It stays as it is.
    Stays,
    /// It says this.
    Says(String),
    /// It goes.
    Goes,
}

impl<'a> Sight<'a> {
    /// The type of the strategy.
    pub fn kind(&self) -> &'a str {
        self.strategy
            .and_then(|strategy| strategy.get("type")?.as_str())
            .unwrap_or(ROLLING_UPDATE)
    }

    /// What keeps `OnDelete` on it, and remembers what its owner asked for. `before` is the annotation of the stored object, where this is
    /// one that would replace it: many operators write back only the annotations they know.
    pub fn keep(&self, before: Option<&str>) -> Option<Change> {
        if let Some(wish) = self.wish(before) {
            return Some(Change {
                memory: self.remember(&wish),
                strategy: Some(json!({"type": ON_DELETE})),
            });
        }
        if let Some(memory) = self.memory
            && let Some(owners) = read(memory)
        {
            // The strategy is back, and whoever wrote it left the mark.
            return is_closing(memory).then(|| Change {
                strategy: None,
                memory: Memory::Says(owners.to_string()),
            });
        }
        // One that cannot be read any more is no memory; the one before may be.
        let before = before.and_then(read)?;
        Some(Change {
            strategy: None,
            memory: self.remember(&before),
        })
    }

    /// What has the StatefulSet controller advance `status.currentRevision`. `before` as for [`Self::keep`]. The partition is written out:
    /// without it that controller would create a pod that is lost meanwhile with the old revision.
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
            memory: Memory::Says(owners.to_string()),
        })
    }

    /// The owner's strategy, where the one that stands is the gate's, who closes the books. An owner may write another meanwhile.
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

    /// What its owner asks for, where that is not `OnDelete`.
    fn wish(&self, before: Option<&str>) -> Option<Value> {
        if let Some(owners) = self.owners_while_closing(before) {
            return Some(owners);
        }
        if self.kind() != ON_DELETE {
            let wish = self.strategy.cloned();
            return Some(wish.unwrap_or_else(|| json!({"type": ROLLING_UPDATE})));
        }
        // Whoever writes the parameters alone means those of the strategy that the gate keeps away; `OnDelete` has none.
        self.memory.or(before)?;
        let parameters = self.strategy?.get(PARAMETERS).filter(|p| !p.is_null())?;
        Some(json!({"type": ROLLING_UPDATE, PARAMETERS: parameters}))
    }

    /// What gives it back the strategy it had, where the gate had changed it. `before` as for [`Self::keep`].
    pub fn give_back(&self, before: Option<&str>) -> Option<Change> {
        let memory = self.memory.or(before)?;
        // What the owner has asked for since then is newer than any memory.
        let is_ours = self.kind() == ON_DELETE || self.owners_while_closing(before).is_some();
        let strategy = is_ours
            .then(|| read(memory).unwrap_or_else(|| json!({"type": ROLLING_UPDATE})))
            .filter(|previous| Some(previous) != self.strategy);
        let memory = match self.memory {
            Some(_) => Memory::Goes,
            None => Memory::Stays,
        };
        (strategy.is_some() || memory != Memory::Stays).then_some(Change { strategy, memory })
    }

    /// What carries out an order.
    pub fn obey(&self, order: Order, before: Option<&str>) -> Option<Change> {
        match order {
            Order::Keep => self.keep(before),
            Order::GiveBack => self.give_back(before),
            Order::CloseBooks => self.close_books(before),
        }
    }

    fn remember(&self, wish: &Value) -> Memory {
        let memory = self.memory.filter(|memory| !is_closing(memory));
        match memory.and_then(read) {
            Some(known) if known == *wish => Memory::Stays,
            _ => Memory::Says(wish.to_string()),
        }
    }
}

impl Change {
    /// As a JSON merge patch of a StatefulSet with this strategy.
    pub fn merge_patch(&self, live: Option<&Value>) -> Value {
        let mut annotations = Map::new();
        match &self.memory {
            Memory::Stays => {}
            Memory::Says(text) => {
                annotations.insert(PREVIOUS_UPDATE_STRATEGY.into(), json!(text));
            }
            Memory::Goes => {
                annotations.insert(PREVIOUS_UPDATE_STRATEGY.into(), Value::Null);
            }
        }
        let mut spec = Map::new();
        if let Some(strategy) = &self.strategy {
            // A merge keeps whatever is not named.
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

/// A strategy as the annotation has it; `None` where it has none.
fn read(text: &str) -> Option<Value> {
    let mut strategy: Value = serde_json::from_str(text).ok()?;
    strategy.as_object_mut()?.remove(CLOSING);
    strategy.get("type")?.as_str().is_some().then_some(strategy)
}

/// Whether the annotation says that the books are being closed.
fn is_closing(text: &str) -> bool {
    let strategy: Option<Value> = serde_json::from_str(text).ok();
    strategy.is_some_and(|strategy| strategy.get(CLOSING) == Some(&json!(true)))
}

#[cfg(test)]
mod tests;
