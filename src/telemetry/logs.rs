//! The log: one line per event on standard error, as JSON for machines or as text for people.
//!
//! A thread of its own writes the lines, so that no answer waits for the log's reader. After a
//! write the thread rests, and then writes the lines that have come meanwhile together: to wake it
//! for each line would cost the answers more than making the line. Lines that do not fit in the
//! queue are dropped and counted.

mod json;

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::thread;
use std::time::Duration;

use tracing::Subscriber;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};

use super::traces::Traces;
use json::JsonLines;

/// Most lines in the queue. A line has some hundred bytes, a few thousand at most.
const MOST_WAITING: usize = 4096;

/// Most bytes in one write.
const TOGETHER: usize = 64 * 1024;

/// The rest after a write: the longest that a line waits before it is taken up. A process that is
/// killed loses the lines of that time.
const REST: Duration = Duration::from_millis(10);

/// The filter when none is given: lines of this program from `info`, of its libraries from `warn`.
pub const DEFAULT_FILTER: &str = "warn,quorumgate=info";

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// A JSON object per line.
    Json,
    /// Text for people at a terminal.
    Text,
}

/// Why logging could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter cannot be parsed.
    #[error("the log filter `{0}` cannot be read")]
    Filter(String, #[source] ParseError),
    /// Logging was set up before in this process.
    #[error("logging was set up twice")]
    Twice(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The running log. Dropping it writes the lines that still wait.
#[must_use]
pub struct Log {
    /// Ends the thread once it has written the lines that wait.
    _writer: WorkerGuard,
    dropped: Dropped,
}

/// A counter of the lines that were dropped because the queue was full.
pub type Dropped = tracing_appender::non_blocking::ErrorCounter;

impl Log {
    /// The counter of dropped lines.
    pub fn dropped(&self) -> Dropped {
        self.dropped.clone()
    }
}

/// Starts logging to standard error, and sends the spans of the process to `traces`. `filter` is a
/// list of directives such as `info` or `warn,quorumgate=debug`.
pub fn start(format: LogFormat, filter: &str, traces: Option<&Traces>) -> Result<Log, Error> {
    let colours = io::stderr().is_terminal();
    start_writing(io::stderr(), colours, (format, filter), traces)
}

/// Starts logging to `to`, with or without colours, in this form and with this filter.
pub fn start_writing(
    to: impl Write + Send + 'static,
    colours: bool,
    (format, filter): (LogFormat, &str),
    traces: Option<&Traces>,
) -> Result<Log, Error> {
    let directives = EnvFilter::builder()
        .parse(filter)
        .map_err(|error| Error::Filter(filter.to_owned(), error))?;
    let (writer, log) = start_thread(to);
    let registry = tracing_subscriber::registry();
    match traces {
        // A filter for all is cheaper than one for the log alone.
        None => registry
            .with(lines(format, colours, writer))
            .with(directives)
            .try_init(),
        Some(traces) => registry
            .with(lines(format, colours, writer).with_filter(directives))
            .with(traces.layer())
            .try_init(),
    }
    .map_err(|error| Error::Twice(Box::new(error)))?;
    Ok(log)
}

fn lines<S>(
    format: LogFormat,
    colours: bool,
    writer: NonBlocking,
) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(colours)
        .with_writer(writer);
    match format {
        LogFormat::Json => lines.json().event_format(JsonLines::new()).boxed(),
        LogFormat::Text => lines.boxed(),
    }
}

fn start_thread(to: impl Write + Send + 'static) -> (NonBlocking, Log) {
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(MOST_WAITING)
        .thread_name("log")
        .finish(Resting(BufWriter::with_capacity(TOGETHER, to)));
    let log = Log {
        dropped: writer.error_counter(),
        _writer: guard,
    };
    (writer, log)
}

/// A writer that rests after each flush. The log's thread flushes when no line waits.
struct Resting<W: Write>(BufWriter<W>);

impl<W: Write> Write for Resting<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()?;
        thread::sleep(REST);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    use tracing::subscriber::with_default;

    use super::*;
    use crate::clock::monotonic_now;

    const SOON: Duration = Duration::from_secs(20);

    /// A writer that sends each write as one message, and blocks while a test holds the mutex.
    struct Writes(Sender<String>, Arc<Mutex<()>>);

    impl Write for Writes {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            drop(held(&self.1));
            let _ = self.0.send(String::from_utf8_lossy(text).into_owned());
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn held(gate: &Mutex<()>) -> MutexGuard<'_, ()> {
        gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn started() -> (NonBlocking, Log, Receiver<String>, Arc<Mutex<()>>) {
        let (sender, received) = channel();
        let gate = Arc::new(Mutex::new(()));
        let (writer, log) = start_thread(Writes(sender, Arc::clone(&gate)));
        (writer, log, received, gate)
    }

    /// Logs the messages of `what` alone, without time and level.
    fn log(writer: &NonBlocking, what: impl FnOnce()) {
        let bare = tracing_subscriber::fmt::format()
            .with_level(false)
            .with_target(false)
            .without_time();
        let subscriber = tracing_subscriber::fmt()
            .event_format(bare)
            .with_ansi(false)
            .with_writer(writer.clone());
        with_default(subscriber.finish(), what);
    }

    #[test]
    fn lines_that_nobody_flushes_are_written_all_the_same() {
        let (writer, _log, received, _) = started();
        for round in ["one", "two"] {
            log(&writer, || tracing::info!("{round}"));
            assert_eq!(received.recv_timeout(SOON).unwrap().trim(), round);
        }
    }

    #[test]
    fn after_a_write_the_thread_rests_so_that_lines_come_together() {
        let mut writer = Resting(BufWriter::new(Vec::new()));
        writer.write_all(b"line").unwrap();
        let before = monotonic_now();
        writer.flush().unwrap();
        assert!(before.elapsed() >= REST);
        assert_eq!(writer.0.get_ref(), b"line");
    }

    #[test]
    fn a_log_that_nobody_reads_holds_nobody_up_and_counts_what_is_lost() {
        let (writer, log_, received, gate) = started();
        let unread = held(&gate);
        let most = MOST_WAITING + TOGETHER;
        log(&writer, || {
            (0..most).for_each(|number| tracing::info!("{number}"));
        });
        let dropped = log_.dropped().dropped_lines();
        assert!(dropped > 0);
        drop(unread);
        drop((writer, log_));
        let written = received.iter().collect::<String>().lines().count();
        assert_eq!(written + dropped, most);
    }

    #[test]
    fn the_end_takes_all_lines_that_wait_along_in_order() {
        let (writer, log_, received, gate) = started();
        let unread = held(&gate);
        log(&writer, || {
            (0..100).for_each(|number| tracing::info!("{number}"));
        });
        drop(unread);
        drop((writer, log_));
        let written: String = received.iter().collect();
        let expected = (0..100).map(|number| number.to_string());
        assert!(written.lines().eq(expected), "{written}");
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_named() {
        let error = start(LogFormat::Text, "quorumgate=loud", None)
            .err()
            .unwrap();
        assert!(error.to_string().contains("quorumgate=loud"), "{error}");
    }
}
