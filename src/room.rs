//! Memory for what is read of other people's objects.
//!
//! Anybody may create objects of more than a mebibyte, and have many judgements read them at one
//! time. So each judgement and each look has an account, to which the bytes of what it reads are
//! charged until it ends. The first [`FREE`] bytes are free: the pods of a usual cluster take no
//! more. All other bytes come out of one room. A reader that finds no room gives up, as if the API
//! server did not answer, so that a crowd of large objects delays nobody with small ones.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The bytes of an account that are free.
const FREE: usize = 128 * 1024;

/// The most bytes of one account.
const MOST: usize = 8 * 1024 * 1024;

/// The bytes of all accounts without their free ones. An object takes up to three times the memory
/// of its JSON.
const ALL: usize = 24 * 1024 * 1024;

/// The bytes that one permit stands for.
const UNIT: usize = 1024;

/// The longest wait for room. Whoever waits may have what others wait for.
const PATIENCE: Duration = Duration::from_secs(1);

tokio::task_local! {
    static ACCOUNT: Account;
}

/// The room of all judgements, or of all looks.
#[derive(Debug)]
pub(crate) struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ALL / UNIT)))
    }
}

impl Room {
    /// Does work on an account of its own.
    pub(crate) async fn account<T>(&self, work: impl Future<Output = T>) -> T {
        let account = Account {
            room: Arc::clone(&self.0),
            charged: Mutex::default(),
        };
        ACCOUNT.scope(account, work).await
    }
}

#[derive(Debug)]
struct Account {
    room: Arc<Semaphore>,
    charged: Mutex<Charged>,
}

#[derive(Debug, Default)]
struct Charged {
    bytes: usize,
    /// The permits of what is beyond the free bytes.
    beyond: Option<OwnedSemaphorePermit>,
}

/// There is no room for what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRoom {
    /// The account would have more than its share.
    #[error("the objects that matter take more than {} MiB", MOST / 1024 / 1024)]
    TooMuch,
    /// Other accounts have it.
    #[error("too many large objects are being read; it may be tried again")]
    Taken,
}

/// Charges what was read to the account of this work, if it has one.
pub(crate) async fn charge(bytes: usize) -> Result<(), NoRoom> {
    let account = ACCOUNT.try_with(|account| {
        let room = Arc::clone(&account.room);
        (room, lock(&account.charged).add(bytes))
    });
    let Ok((room, permits)) = account else {
        return Ok(());
    };
    let permits = permits?;
    if permits == 0 {
        return Ok(());
    }
    let permit = timeout(PATIENCE, room.acquire_many_owned(permits)).await;
    // The semaphore is never closed.
    let permit = permit.ok().and_then(Result::ok);
    let charged = ACCOUNT.try_with(|account| lock(&account.charged).settle(bytes, permit));
    charged.unwrap_or(Ok(()))
}

impl Charged {
    /// Adds bytes, so that others of the same account reckon with them. Returns the permits that
    /// they need.
    fn add(&mut self, bytes: usize) -> Result<u32, NoRoom> {
        let after = self.bytes.saturating_add(bytes);
        if after > MOST {
            return Err(NoRoom::TooMuch);
        }
        let units = |bytes: usize| bytes.saturating_sub(FREE).div_ceil(UNIT);
        let permits = units(after) - units(self.bytes);
        self.bytes = after;
        u32::try_from(permits).map_err(|_| NoRoom::TooMuch)
    }

    /// Keeps the permit for bytes that were added, or takes them off again.
    fn settle(&mut self, bytes: usize, permit: Option<OwnedSemaphorePermit>) -> Result<(), NoRoom> {
        let Some(permit) = permit else {
            self.bytes = self.bytes.saturating_sub(bytes);
            return Err(NoRoom::Taken);
        };
        match &mut self.beyond {
            Some(beyond) => beyond.merge(permit),
            none => *none = Some(permit),
        }
        Ok(())
    }
}

fn lock(charged: &Mutex<Charged>) -> MutexGuard<'_, Charged> {
    charged.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Room {
        fn left(&self) -> usize {
            self.0.available_permits() * UNIT
        }
    }

    #[tokio::test]
    async fn what_is_small_takes_no_room_and_what_is_large_gives_it_back() {
        let room = Room::default();
        room.account(async {
            for _ in 0..4 {
                charge(FREE / 4).await.unwrap();
            }
            assert_eq!(room.left(), ALL);
            charge(10 * UNIT).await.unwrap();
            charge(1).await.unwrap();
            assert_eq!(room.left(), ALL - 11 * UNIT);
        })
        .await;
        assert_eq!(room.left(), ALL);
        charge(MOST + 1).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_has_a_share_of_the_room_and_waits_for_that_of_others_a_little() {
        let room = Room::default();
        let fill = || async {
            charge(MOST).await.unwrap();
            assert_eq!(charge(1).await, Err(NoRoom::TooMuch));
            std::future::pending::<()>().await;
        };
        let mut crowd: Vec<_> = (0..3).map(|_| Box::pin(room.account(fill()))).collect();
        for one in &mut crowd {
            assert!(futures::poll!(one).is_pending());
        }
        let late = room.account(async {
            charge(FREE).await.unwrap();
            (charge(MOST / 2).await, charge(1).await)
        });
        let crowded_out = (Err(NoRoom::Taken), Ok(()));
        assert_eq!(
            late.await,
            crowded_out,
            "the rest of the room is for small ones"
        );
        crowd.pop();
        let next = room.account(charge(MOST / 2));
        assert_eq!(next.await, Ok(()));
    }
}
