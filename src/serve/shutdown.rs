//! The shutdown of a listener, in two steps.

use tokio_util::sync::CancellationToken;

/// The two steps of shutting down, each begun by cancelling its token.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    /// Begins the first step: the process is not ready, and each answer closes its connection.
    pub leaving: CancellationToken,
    /// Begins the second step: no new connections are accepted, and idle ones end.
    pub closing: CancellationToken,
}

impl Shutdown {
    /// Child tokens for one connection, which polls them whenever bytes arrive. With tokens of its
    /// own the connection shares no lock and no cache line with connections on other processors.
    pub(super) fn child(&self) -> Self {
        Self {
            leaving: self.leaving.child_token(),
            closing: self.closing.child_token(),
        }
    }
}
