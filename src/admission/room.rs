//! Memory for requests, in bytes. A body takes room as it arrives, and more room while it is read.
//!
//! The first [`FREE`] bytes of a body are free, because nearly every review is that short and the
//! number of connections is bounded. So large bodies take nothing from short ones. All other bytes
//! come out of one room, and return to it when the review has been read. A review takes many times
//! the memory of its text while it is read, so only a few large ones are read at a time.

use axum::body::{Body, Bytes};
use http_body_util::BodyExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::malformed::Problem;

/// The bytes of each body that are free.
pub(super) const FREE: usize = 32 * 1024;

/// The most bytes of a body that are read although it is refused.
const DISCARDED: usize = 32 * 1024 * 1024;

/// The most bytes of a body outside of its strings. Two objects of an API server have fewer, and
/// these take many times their length while they are read.
const STRUCTURE: usize = 4 * 1024 * 1024;

/// The bytes that one permit stands for.
const UNIT: usize = 1024;

/// The room of one process.
#[derive(Debug)]
pub(super) struct Room {
    /// The bytes of all bodies without their free ones.
    bodies: Semaphore,
    /// The bytes of the large bodies that are being read.
    reading: Semaphore,
    longest: usize,
}

/// A body that has arrived, and the room that it takes.
pub(super) struct Arrived<'a> {
    bytes: Vec<u8>,
    _room: Option<SemaphorePermit<'a>>,
}

/// A body that may be read now.
pub(super) struct Readable<'a> {
    bytes: Vec<u8>,
    _reading: Option<SemaphorePermit<'a>>,
}

impl Room {
    /// Room for `bytes` of large bodies at one time, none longer than `longest`.
    pub(super) fn new(bytes: usize, longest: usize) -> Self {
        let bytes = bytes.max(longest);
        Self {
            bodies: Semaphore::new(bytes / UNIT),
            reading: Semaphore::new(units(longest) as usize),
            longest,
        }
    }

    /// Takes in a whole body. It is refused if its declared or its real length exceeds the limit,
    /// or if there is no room. What is refused is read to its end ([`discard`]).
    pub(super) async fn take_in(&self, mut body: Body) -> Result<Arrived<'_>, Problem> {
        let arrived = self.arrive(&mut body).await;
        if arrived.is_err() {
            discard(body).await;
        }
        arrived
    }

    async fn arrive(&self, body: &mut Body) -> Result<Arrived<'_>, Problem> {
        let too_large = || Problem::TooLarge(self.longest);
        let hint = http_body::Body::size_hint(body);
        if hint.lower() > u64::try_from(self.longest).unwrap_or(u64::MAX) {
            return Err(too_large());
        }
        let declared = hint.exact().and_then(|exact| usize::try_from(exact).ok());
        let most = declared.unwrap_or(self.longest);
        let mut bytes = Vec::with_capacity(most.min(FREE));
        let mut room: Option<SemaphorePermit<'_>> = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Problem::Body(error.to_string()))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let needed = bytes.len() + data.len();
            if needed > self.longest {
                return Err(too_large());
            }
            if needed > bytes.capacity() {
                // At most twice the bytes that have arrived, so that a large declared length takes
                // no memory by itself.
                let capacity = (bytes.capacity() * 2).max(FREE).min(most).max(needed);
                let more = self.beyond_free(bytes.capacity(), capacity)?;
                match (&mut room, more) {
                    (Some(room), Some(more)) => room.merge(more),
                    (None, more) => room = more,
                    (Some(_), None) => {}
                }
                bytes.reserve_exact(capacity - bytes.len());
            }
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > STRUCTURE && outside_strings(&bytes) > STRUCTURE {
            return Err(too_large());
        }
        Ok(Arrived { bytes, _room: room })
    }

    fn beyond_free(&self, had: usize, has: usize) -> Result<Option<SemaphorePermit<'_>>, Problem> {
        let more = units(has.saturating_sub(FREE)) - units(had.saturating_sub(FREE));
        if more == 0 {
            return Ok(None);
        }
        let permit = self.bodies.try_acquire_many(more);
        permit.map(Some).map_err(|_| Problem::Overloaded)
    }

    /// Waits for a turn to read a body.
    pub(super) async fn turn(&self, arrived: &mut Arrived<'_>) -> Result<Readable<'_>, Problem> {
        let bytes = std::mem::take(&mut arrived.bytes);
        let reading = if bytes.len() > FREE {
            let turn = self.reading.acquire_many(units(bytes.len())).await;
            // The semaphore is never closed.
            Some(turn.map_err(|_| Problem::Overloaded)?)
        } else {
            None
        };
        Ok(Readable {
            bytes,
            _reading: reading,
        })
    }
}

/// Reads what is left of a body that is refused, as much as an API server may send. If the
/// connection closed while an API server writes, its error would quote the URL of the webhook, with
/// the secret word of its path, to whoever made the request.
pub(super) async fn discard(mut body: Body) {
    let mut left = DISCARDED;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(length) else {
            return;
        };
        left = rest;
    }
}

impl Readable<'_> {
    /// Reads the body. Its text is freed afterwards.
    pub(super) fn read<T>(self, read: impl FnOnce(&[u8]) -> T) -> T {
        read(&self.bytes)
    }
}

/// The bytes of a JSON text that are not inside of strings.
fn outside_strings(text: &[u8]) -> usize {
    let (mut outside, mut is_inside, mut is_escaped) = (0, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_inside => is_escaped = true,
            b'"' => {
                is_inside = !is_inside;
                outside += 1;
            }
            _ if is_inside => {}
            _ => outside += 1,
        }
    }
    outside
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_outside_of_strings_counts_as_structure() {
        for (text, outside) in [
            (r#"{"a":[1,2]}"#, 10),
            (r#"["\"]\\", ""]"#, 8),
            (r#""\u003c\u003c""#, 2),
            ("", 0),
        ] {
            assert_eq!(outside_strings(text.as_bytes()), outside, "{text}");
        }
    }

    #[tokio::test]
    async fn a_long_body_may_have_long_strings_and_no_more_structure_than_a_short_one() {
        let longest = 20 * 1024 * 1024;
        let room = Room::new(longest, longest);
        let long = format!("\"{}\"", r"\u003c".repeat(2 * 1024 * 1024));
        let arrived = room.take_in(Body::from(long)).await;
        assert!(arrived.is_ok());
        drop(arrived);
        let nested = "[],".repeat(3 * 1024 * 1024);
        let refused = room.take_in(Body::from(nested)).await;
        assert!(matches!(refused, Err(Problem::TooLarge(_))));
    }
}
