//! The log: one line per event on standard error, as JSON for machines or text for people.

mod json;
mod lines;

use std::io::{self, IsTerminal as _, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use json::JsonLines;
use lines::Lines;

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
    /// There is no thread to be had.
    #[error("the thread that writes the log cannot be started")]
    Thread(#[source] io::Error),
    /// Something logs already.
    #[error("logging was set up twice")]
    Twice(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The log while the program runs. What still waits is written when it is dropped.
#[must_use]
pub struct Log(Lines);

impl Drop for Log {
    fn drop(&mut self) {
        self.0.flush();
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
    let log = Log(Lines::to(to).map_err(Error::Thread)?);
    let lines = tracing_subscriber::fmt()
        .with_env_filter(directives)
        .with_ansi(colours)
        .with_writer(log.0.clone());
    match format {
        LogFormat::Json => lines.json().event_format(JsonLines::new()).try_init(),
        LogFormat::Text => lines.try_init(),
    }
    .map_err(Error::Twice)?;
    Ok(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_cannot_be_read_is_named() {
        let error = start(LogFormat::Text, "quorumgate=loud").err().unwrap();
        assert!(error.to_string().contains("quorumgate=loud"), "{error}");
    }
}
