//! Connections that are kept open: at most one per target.
//!
//! A connection belongs to one incarnation of a pod, one address, one list of names and one content
//! of the certificates. When any of these differs, the connection is dropped and a new one is
//! opened. Connections that were not used for [`IDLE`] are dropped too, since their member may be
//! gone from Kubernetes. When there are too many, those go first that were not used for longest.
//! Whoever looks at each of many clusters in turn uses them in passing, and drops at once what
//! nobody will use before it is dropped anyway.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::connection::Connection;
use super::endpoint::Endpoint;
use super::external::ExternalDialer;
use super::failure::Failure;
use crate::clock::Clock;
use crate::quorum::evidence::{Target, Unanswered};

/// How long an unused connection is kept.
const IDLE: Duration = Duration::from_secs(60);

/// Most connections that are kept: those of 333 clusters of three. Each takes a file
/// descriptor and tens of KiB.
const MOST: usize = 1_000;

/// The open connections of this process to etcd members. Cheap to clone; clones share the
/// connections.
#[derive(Debug, Clone)]
pub struct Connections {
    clock: Clock,
    dialer: ExternalDialer,
    kept: Arc<Mutex<Kept>>,
    /// Whether this handle uses connections in passing.
    in_passing: bool,
}

#[derive(Debug)]
struct Kept {
    entries: HashMap<Target, Entry>,
    swept: Instant,
    most: usize,
}

#[derive(Debug)]
struct Entry {
    route: Route,
    connection: Arc<Connection>,
    used: Instant,
    /// Whether nobody has used it but in passing.
    in_passing: bool,
}

/// Everything that a connection depends on.
#[derive(Debug, PartialEq, Eq)]
struct Route {
    address: String,
    server_names: Vec<String>,
    fingerprint: Option<[u8; 32]>,
}

/// A connection, and whether it was opened for this use.
pub(super) struct Held {
    pub(super) connection: Arc<Connection>,
    pub(super) age: Age,
}

/// Whether a connection was opened for this use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    /// Opened for this use: its failure is the member's failure.
    Fresh,
    /// Kept from an earlier use: it may have broken unnoticed.
    Kept,
}

impl Connections {
    /// A pool without connections.
    pub fn new(clock: Clock) -> Self {
        Self::at_most(MOST, clock)
    }

    /// A pool of at most `most` connections, and never more than the usual limit; for a process
    /// that may open few files.
    pub fn at_most(most: usize, clock: Clock) -> Self {
        let kept = Kept {
            entries: HashMap::new(),
            swept: clock.instant(),
            most: most.min(MOST),
        };
        Self {
            clock,
            dialer: ExternalDialer::new(),
            kept: Arc::new(Mutex::new(kept)),
            in_passing: false,
        }
    }

    /// The same connections for somebody who may not use them again soon, see [`Self::leave`].
    pub(super) fn in_passing(&self) -> Self {
        Self {
            in_passing: true,
            ..self.clone()
        }
    }

    /// Drops the connections to these endpoints that were used in passing only, if the next use
    /// comes so late that they would be dropped before. A connection takes tens of KiB.
    pub(super) fn leave(&self, endpoints: &[Endpoint], next_use: Duration) {
        if next_use < IDLE {
            return;
        }
        let mut kept = self.kept();
        for endpoint in endpoints {
            let entry = kept.entries.get(&endpoint.target);
            if entry.is_some_and(|entry| entry.in_passing) {
                kept.entries.remove(&endpoint.target);
            }
        }
    }

    /// The number of connections that are kept.
    pub fn count(&self) -> usize {
        self.kept().entries.len()
    }

    /// A connection to `endpoint`: the kept one, or a new one. Has no time limit of its own.
    pub(super) async fn get(&self, endpoint: &Endpoint) -> Result<Held, Unanswered> {
        self.get_noting(endpoint, &AtomicBool::default()).await
    }

    /// As [`Self::get`]. Sets `accepted` once a pod has accepted a new connection, which may never
    /// come to be of use.
    pub(super) async fn get_noting(
        &self,
        endpoint: &Endpoint,
        accepted: &AtomicBool,
    ) -> Result<Held, Unanswered> {
        let route = Route::from_endpoint(endpoint);
        if let Some(connection) = self.find(&endpoint.target, &route) {
            return Ok(Held {
                connection,
                age: Age::Kept,
            });
        }
        let connection = self.open(endpoint, accepted).await;
        let connection = Arc::new(connection.map_err(Unanswered::from)?);
        let entry = Entry {
            route,
            connection: Arc::clone(&connection),
            used: self.clock.instant(),
            in_passing: self.in_passing,
        };
        self.kept().insert(endpoint.target.clone(), entry);
        Ok(Held {
            connection,
            age: Age::Fresh,
        })
    }

    /// A connection that is not kept.
    pub(super) async fn open(
        &self,
        endpoint: &Endpoint,
        accepted: &AtomicBool,
    ) -> Result<Connection, Failure> {
        Connection::open(endpoint, &self.dialer, self.clock.now(), accepted).await
    }

    /// Drops the connection to a target after a failure that may lie in the connection.
    pub(super) fn forget(&self, target: &Target) {
        self.kept().entries.remove(target);
    }

    fn find(&self, target: &Target, route: &Route) -> Option<Arc<Connection>> {
        let now = self.clock.instant();
        let mut kept = self.kept();
        kept.sweep(now);
        let entry = kept.entries.get_mut(target)?;
        if entry.route != *route || entry.connection.is_closed() {
            kept.entries.remove(target);
            return None;
        }
        entry.used = now;
        entry.in_passing &= self.in_passing;
        Some(Arc::clone(&entry.connection))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn insert(&mut self, target: Target, entry: Entry) {
        if self.entries.len() >= self.most {
            self.make_room();
        }
        self.entries.insert(target, entry);
    }

    /// Drops the quarter that was not used for longest, so that this scan is rare. A call that uses
    /// such a connection now keeps it until the call ends.
    fn make_room(&mut self) {
        let mut used: Vec<Instant> = self.entries.values().map(|entry| entry.used).collect();
        if let Some(last) = used.len().checked_sub(1) {
            let (_, oldest, _) = used.select_nth_unstable(last / 4);
            self.entries.retain(|_, entry| entry.used > *oldest);
        }
    }

    fn sweep(&mut self, now: Instant) {
        if now.saturating_duration_since(self.swept) < IDLE / 4 {
            return;
        }
        self.swept = now;
        self.entries.retain(|_, entry| {
            now.saturating_duration_since(entry.used) < IDLE && !entry.connection.is_closed()
        });
    }
}

impl Route {
    fn from_endpoint(endpoint: &Endpoint) -> Self {
        Self {
            address: endpoint.address.clone(),
            server_names: endpoint.server_names.clone(),
            fingerprint: endpoint.tls.as_ref().map(|tls| *tls.fingerprint()),
        }
    }
}
