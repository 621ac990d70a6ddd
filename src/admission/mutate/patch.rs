//! A patch of one field.

use json_patch::jsonptr::{PointerBuf, Token};
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::Value;

/// The patch that sets one field, or inserts an item into a list. The object above it has to exist.
pub(super) fn set<'a, T: Into<Token<'a>>>(
    path: impl IntoIterator<Item = T>,
    value: Value,
) -> Patch {
    let path = PointerBuf::from_tokens(path);
    Patch(vec![PatchOperation::Add(AddOperation { path, value })])
}

/// The patch that takes one field away, which has to exist.
pub(super) fn remove<'a, T: Into<Token<'a>>>(path: impl IntoIterator<Item = T>) -> Patch {
    let path = PointerBuf::from_tokens(path);
    Patch(vec![PatchOperation::Remove(RemoveOperation { path })])
}

/// The patch that replaces one field or one item of a list.
pub(super) fn replace<'a, T: Into<Token<'a>>>(
    path: impl IntoIterator<Item = T>,
    value: Value,
) -> Patch {
    let path = PointerBuf::from_tokens(path);
    Patch(vec![PatchOperation::Replace(ReplaceOperation {
        path,
        value,
    })])
}
