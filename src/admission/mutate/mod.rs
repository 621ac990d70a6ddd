//! The webhooks that change requests. What they change is worked out by pure functions; they never stand in the way of a
//! request by a decision of their own.

pub mod evictions;
pub mod pods;
pub(super) mod stateful_sets;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation};
use serde_json::Value;

/// A patch that sets one field; the object above it has to exist.
fn set<'a>(path: impl IntoIterator<Item = &'a str>, value: Value) -> Patch {
    let path = PointerBuf::from_tokens(path);
    Patch(vec![PatchOperation::Add(AddOperation { path, value })])
}
