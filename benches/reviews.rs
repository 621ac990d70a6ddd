//! Reviews that differ only in their uids, as those of API servers do.

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::caller::post;

/// The length of a uid in bytes.
const UID_LENGTH: usize = 36;

/// A source of reviews: the same request with a new uid each.
#[derive(Clone)]
pub(crate) struct Reviews {
    request: Vec<u8>,
    /// The offset of the uid.
    at: usize,
    number: u64,
}

impl Reviews {
    /// Requests that post this review, which has a uid, to this path.
    pub(crate) fn new(path: &str, review: &Value) -> Result<Self> {
        let uid = review.pointer("/request/uid").and_then(Value::as_str);
        let uid = uid.context("no uid")?;
        let request = post(path, &serde_json::to_vec(review)?);
        let at = request
            .windows(uid.len())
            .position(|part| part == uid.as_bytes());
        Ok(Self {
            at: at.context("no uid")?,
            request,
            number: 0,
        })
    }

    /// The uid of the last review.
    pub(crate) fn uid(&self) -> Result<&str> {
        let uid = self.request.get(self.at..self.at + UID_LENGTH);
        Ok(std::str::from_utf8(uid.context("no uid")?)?)
    }

    /// The next review as an HTTP request.
    pub(crate) fn next(&mut self) -> &[u8] {
        self.number += 1;
        let digits = format!("{:012x}", self.number);
        let end = self.at + UID_LENGTH;
        if let Some(last) = self.request.get_mut(end - digits.len()..end) {
            last.copy_from_slice(digits.as_bytes());
        }
        &self.request
    }

    /// The length of a request in bytes.
    pub(crate) fn length(&self) -> usize {
        self.request.len()
    }
}
