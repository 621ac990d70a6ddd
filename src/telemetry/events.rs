//! Kubernetes Events, queued without waiting and written by a task of their own.
//!
//! The handler of an admission request never waits for the API server here: an Event that does not
//! fit in the queue is dropped and counted. Repeated Events are written once a minute.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::metrics::Metrics;

use crate::clock::monotonic_now;

/// Most Events in the queue.
const QUEUE: usize = 512;

/// The time for which an Event is not repeated. `kubectl drain` retries every 5 s; one Event a
/// minute is enough.
const QUIET: Duration = Duration::from_secs(60);

/// Most different Events whose last time is remembered.
const REMEMBERED: usize = 4096;

/// Most Events that are written before the recorder forgets the earlier ones, whose repetitions
/// become new Events then. It would keep each for six minutes, and go through all of them for the
/// next: those of ten thousand clusters would take tens of megabytes after a start.
const COUNTED: usize = 256;

/// The longest note in bytes that the API server accepts.
const NOTE_BYTES: usize = 1024;

/// The time after which a write that got no answer is given up.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// An Event to be written: something that an operator should see on an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Notice {
    /// The object that the Event is about.
    pub regarding: ObjectReference,
    /// The type of the Event.
    pub severity: Severity,
    /// A CamelCase word for programs: why it happened.
    pub reason: String,
    /// A CamelCase word for programs: what was done or refused.
    pub action: &'static str,
    /// A sentence for people. More than 1024 bytes are cut off.
    pub note: String,
}

/// The type of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Something happened as it should.
    Normal,
    /// Something is wrong, and an operator may have to act.
    Warning,
}

/// Accepts notices without waiting.
pub trait Notices: Send + Sync + 'static {
    /// Queues a notice, or drops it where the queue is full.
    fn notify(&self, notice: Notice);
}

/// The sending end of the queue of notices.
#[derive(Debug, Clone)]
pub struct Events {
    queue: mpsc::Sender<Notice>,
    metrics: Arc<Metrics>,
}

impl Events {
    /// A queue, and the task that writes its notices. `instance` names this replica in each Event.
    /// The caller has to run [`Writer::run`].
    pub fn new(client: Client, instance: String, metrics: Arc<Metrics>) -> (Self, Writer) {
        let (queue, notices) = mpsc::channel(QUEUE);
        let reporter = Reporter {
            controller: "quorumgate".to_owned(),
            instance: Some(instance),
        };
        let writer = Writer {
            notices,
            recorder: Recorder::new(client.clone(), reporter.clone()),
            client,
            reporter,
            counted: 0,
            repetitions: Repetitions::default(),
            metrics: Arc::clone(&metrics),
        };
        (Self { queue, metrics }, writer)
    }
}

impl Notices for Events {
    fn notify(&self, notice: Notice) {
        if self.queue.try_send(notice).is_err() {
            self.metrics.event_dropped();
        }
    }
}

/// The task that writes notices to the API server, one after another.
pub struct Writer {
    notices: mpsc::Receiver<Notice>,
    client: Client,
    reporter: Reporter,
    recorder: Recorder,
    /// The number of Events that the recorder has written.
    counted: usize,
    repetitions: Repetitions,
    metrics: Arc<Metrics>,
}

impl Writer {
    /// Writes notices until every [`Events`] is dropped.
    pub async fn run(mut self) {
        while let Some(notice) = self.notices.recv().await {
            if self.repetitions.is_news(&notice, monotonic_now()) {
                self.write(notice).await;
            }
        }
    }

    async fn write(&mut self, notice: Notice) {
        if self.counted == COUNTED {
            self.recorder = Recorder::new(self.client.clone(), self.reporter.clone());
            self.counted = 0;
        }
        self.counted += 1;
        let Notice {
            regarding,
            severity,
            reason,
            action,
            note,
        } = notice;
        let event = Event {
            type_: match severity {
                Severity::Normal => EventType::Normal,
                Severity::Warning => EventType::Warning,
            },
            reason,
            note: Some(shortened(note, NOTE_BYTES)),
            action: action.to_owned(),
            secondary: None,
        };
        let publication = self.recorder.publish(&event, &regarding);
        match tokio::time::timeout(WRITE_TIMEOUT, publication).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                self.metrics.event_dropped();
                tracing::debug!(%error, object = ?regarding.name, event = event.reason, "cannot write an Event");
            }
            Err(_) => {
                self.metrics.event_dropped();
                tracing::debug!(object = ?regarding.name, event = event.reason, "cannot write an Event in time");
            }
        }
    }
}

/// When each different Event was last written.
#[derive(Debug, Default)]
struct Repetitions(HashMap<Said, Instant>);

/// The parts in which repeated notices are alike. The note is not one of them, since the numbers in
/// it change all the time.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Said {
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    severity: Severity,
    reason: String,
    action: &'static str,
}

impl Repetitions {
    fn is_news(&mut self, notice: &Notice, now: Instant) -> bool {
        let said = Said {
            kind: notice.regarding.kind.clone(),
            namespace: notice.regarding.namespace.clone(),
            name: notice.regarding.name.clone(),
            uid: notice.regarding.uid.clone(),
            severity: notice.severity,
            reason: notice.reason.clone(),
            action: notice.action,
        };
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, at| now.duration_since(*at) < QUIET);
        }
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        let quiet = self
            .0
            .get(&said)
            .is_some_and(|at| now.duration_since(*at) < QUIET);
        if !quiet {
            self.0.insert(said, now);
        }
        !quiet
    }
}

/// The text, cut at a character boundary where it is longer than `bytes`.
pub fn shortened(mut text: String, bytes: usize) -> String {
    const ELLIPSIS: &str = "…";
    if text.len() > bytes {
        let mut end = bytes.saturating_sub(ELLIPSIS.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(ELLIPSIS);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(name: &str, note: &str) -> Notice {
        Notice {
            regarding: ObjectReference {
                name: Some(name.to_owned()),
                ..ObjectReference::default()
            },
            severity: Severity::Warning,
            reason: "NoHeadroom".to_owned(),
            action: "Evict",
            note: note.to_owned(),
        }
    }

    #[test]
    fn a_repeated_notice_is_quiet_for_a_minute_whatever_its_numbers() {
        let mut repetitions = Repetitions::default();
        let start = Instant::now();
        assert!(repetitions.is_news(&notice("etcd-0", "2 of 3"), start));
        assert!(!repetitions.is_news(&notice("etcd-0", "1 of 3"), start + QUIET / 2));
        assert!(repetitions.is_news(&notice("etcd-1", "2 of 3"), start + QUIET / 2));
        assert!(repetitions.is_news(&notice("etcd-0", "2 of 3"), start + QUIET));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut repetitions = Repetitions::default();
        let now = Instant::now();
        for n in 0..2 * REMEMBERED {
            repetitions.is_news(&notice(&format!("etcd-{n}"), ""), now);
        }
        assert!(repetitions.0.len() <= REMEMBERED);
    }

    #[test]
    fn a_long_note_is_cut_at_the_edge_of_a_character() {
        assert_eq!(shortened("ab".to_owned(), 8), "ab");
        let cut = shortened("ü".repeat(600), 1024);
        assert!(cut.len() <= 1024 && cut.ends_with('…'), "{}", cut.len());
    }
}
