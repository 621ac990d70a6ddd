//! Memory for requests, in bytes. A body takes room as it arrives, and more room while it is read.
//!
//! The first [`FREE`] bytes of a body are free, because nearly every review is that short and the
//! number of connections is bounded. So large bodies take nothing from short ones. All other bytes
//! come out of one room, and return to it when the request is answered. A review takes many times
//! the memory of its text while it is read, so only a few large ones are read at a time.

use axum::body::Body;
use http_body_util::BodyExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::malformed::Problem;

/// The bytes of each body that are free.
pub(super) const FREE: usize = 32 * 1024;

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

/// A body that has arrived, and the room that it takes until its request is answered.
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

    /// Takes in a whole body. It is refused at once if its declared or its real length exceeds the
    /// limit, or if there is no room.
    pub(super) async fn take_in(&self, mut body: Body) -> Result<Arrived<'_>, Problem> {
        let too_large = || Problem::TooLarge(self.longest);
        let hint = http_body::Body::size_hint(&body);
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

impl Readable<'_> {
    /// Reads the body. Its text is freed afterwards.
    pub(super) fn read<T>(self, read: impl FnOnce(&[u8]) -> T) -> T {
        read(&self.bytes)
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}
