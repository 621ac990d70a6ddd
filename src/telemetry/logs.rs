//! The log: one line per event on standard error, as JSON for machines or text for people.
//!
//! A thread of its own writes the lines, those that wait together, so that no answer waits for whoever reads the log. When too many wait they are
//! dropped, and counted.

mod json;

use std::io::{self, BufWriter, IsTerminal as _, Write};

use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use json::JsonLines;

/// How many lines wait at most. A line has some hundred bytes, and a few thousand at most.
const MOST_WAITING: usize = 4096;

/// What is written together, bytes.
const TOGETHER: usize = 64 * 1024;

/// What is logged without a filter: this product's own lines and other people's warnings.
pub const DEFAULT_FILTER: &str = "warn,quorumgate=info";

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people at a terminal.
    Text,
}

/// Why logging could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter is not one.
    #[error("the log filter `{0}` cannot be read")]
    Filter(String, #[source] ParseError),
    /// Something logs already.
    #[error("logging was set up twice")]
    Twice(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The log while the program runs. What still waits is written when it is dropped.
#[must_use]
pub struct Log {
    /// Ends the thread, once it has written what waits.
    _writer: WorkerGuard,
    dropped: Dropped,
}

/// The lines that nobody will read, because too many waited.
pub type Dropped = tracing_appender::non_blocking::ErrorCounter;

impl Log {
    /// Counts the lines that were dropped.
    pub fn dropped(&self) -> Dropped {
        self.dropped.clone()
    }
}

/// Logs to standard error from now on, filtered by directives like `info` or `warn,quorumgate=debug`.
pub fn start(format: LogFormat, filter: &str) -> Result<Log, Error> {
    let colours = io::stderr().is_terminal();
    start_writing(io::stderr(), colours, format, filter)
}

/// The same to anything that can be written to, with or without colours.
pub fn start_writing(
    to: impl Write + Send + 'static,
    colours: bool,
    format: LogFormat,
    filter: &str,
) -> Result<Log, Error> {
    let directives = EnvFilter::builder()
        .parse(filter)
        .map_err(|error| Error::Filter(filter.to_owned(), error))?;
    let (writer, log) = start_thread(to);
    let lines = tracing_subscriber::fmt()
        .with_env_filter(directives)
        .with_ansi(colours)
        .with_writer(writer);
    match format {
        LogFormat::Json => lines.json().event_format(JsonLines::new()).try_init(),
        LogFormat::Text => lines.try_init(),
    }
    .map_err(Error::Twice)?;
    Ok(log)
}

fn start_thread(to: impl Write + Send + 'static) -> (NonBlocking, Log) {
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(MOST_WAITING)
        .thread_name("log")
        .finish(BufWriter::with_capacity(TOGETHER, to));
    let log = Log {
        dropped: writer.error_counter(),
        _writer: guard,
    };
    (writer, log)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
    use std::time::Duration;

    use tracing::subscriber::with_default;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    /// Each write as one message, while nobody holds the gate.
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

    /// Logs only their messages.
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
        let error = start(LogFormat::Text, "quorumgate=loud").err().unwrap();
        assert!(error.to_string().contains("quorumgate=loud"), "{error}");
    }
}
