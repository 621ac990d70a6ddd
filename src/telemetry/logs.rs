//! The log: one line per event on standard error, as JSON for machines or text for people.
//!
//! A thread of its own writes the lines, so that no answer waits for whoever reads them: a container runtime that is slow to take a
//! line would otherwise hold up the API server.

use std::io::{self, BufWriter, IsTerminal as _, Write};

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// What is logged without a filter: this product's own lines and other people's warnings.
pub const DEFAULT_FILTER: &str = "warn,quorumgate=info";

/// The name of the thread that writes.
pub const THREAD: &str = "log";

/// Lines that may wait to be written. Beyond that, whoever has something to say waits: nothing is lost.
const WAITING_LINES: usize = 65_536;

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

/// Writes what still waits when it is dropped.
#[derive(Debug)]
#[must_use = "nothing is logged once this is dropped"]
pub struct Logging(#[expect(dead_code, reason = "only its drop matters")] WorkerGuard);

/// Logs to standard error from now on, filtered by directives like `info` or `warn,quorumgate=debug`.
pub fn start(format: LogFormat, filter: &str) -> Result<Logging, Error> {
    let colours = io::stderr().is_terminal();
    start_writing(io::stderr(), colours, format, filter)
}

/// The same to anything that can be written to, with or without colours.
pub fn start_writing(
    to: impl Write + Send + 'static,
    colours: bool,
    format: LogFormat,
    filter: &str,
) -> Result<Logging, Error> {
    let directives = EnvFilter::builder()
        .parse(filter)
        .map_err(|error| Error::Filter(filter.to_owned(), error))?;
    let (lines, guard) = NonBlockingBuilder::default()
        .lossy(false)
        .buffered_lines_limit(WAITING_LINES)
        .thread_name(THREAD)
        // Flushed as soon as no line waits.
        .finish(BufWriter::new(to));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(directives)
        .with_ansi(colours)
        .with_writer(lines);
    match format {
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
        LogFormat::Text => lines.try_init(),
    }
    .map_err(Error::Twice)?;
    Ok(Logging(guard))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_cannot_be_read_is_named() {
        let error = start(LogFormat::Text, "quorumgate=loud").unwrap_err();
        assert!(error.to_string().contains("quorumgate=loud"), "{error}");
    }
}
