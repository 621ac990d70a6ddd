//! The signals that ask the process to end.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM or SIGINT, and returns its name.
pub(super) async fn termination() -> Result<&'static str> {
    let listen = |kind| signal(kind).context("cannot listen for signals");
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    Ok(tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    })
}
