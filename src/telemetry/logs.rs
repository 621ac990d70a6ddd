//! The log: one line per event on standard error, as JSON for machines or text for people.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;

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

/// Logs to standard error from now on, filtered by directives like `info` or `warn,quorumgate=debug`.
pub fn start(format: LogFormat, filter: &str) -> Result<(), Error> {
    let colours = io::stderr().is_terminal();
    start_writing(io::stderr, colours, format, filter)
}

/// The same to anything that can be written to, with or without colours.
pub fn start_writing(
    to: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
    colours: bool,
    format: LogFormat,
    filter: &str,
) -> Result<(), Error> {
    let directives = EnvFilter::builder()
        .parse(filter)
        .map_err(|error| Error::Filter(filter.to_owned(), error))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(directives)
        .with_ansi(colours)
        .with_writer(to);
    match format {
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
        LogFormat::Text => lines.try_init(),
    }
    .map_err(Error::Twice)
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
