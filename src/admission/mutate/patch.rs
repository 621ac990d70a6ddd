//! A patch of one field.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation};
use serde_json::Value;

/// The patch that sets one field. The object above the field has to exist.
pub(super) fn set<'a>(path: impl IntoIterator<Item = &'a str>, value: Value) -> Patch {
    let path = PointerBuf::from_tokens(path);
    Patch(vec![PatchOperation::Add(AddOperation { path, value })])
}
