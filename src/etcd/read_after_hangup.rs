//! A TCP stream on which the peer's last message is read although a write failed.
//!
//! With TLS 1.3 a peer refuses our certificate after our side of the handshake is done: it sends an
//! alert and hangs up while we already write. That write fails, and code that stops at the failed
//! write never reads the alert, although it has arrived. So a write to a peer that has hung up
//! counts as successful here; the next read returns the alert, and then the end.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A stream that hides failed writes (see the module).
pub(super) struct ReadAfterHangup(pub(super) TcpStream);

fn unless_hung_up<T>(polled: Poll<io::Result<T>>, pretended: T) -> Poll<io::Result<T>> {
    match polled {
        Poll::Ready(Err(error))
            if matches!(
                error.kind(),
                ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
            ) =>
        {
            Poll::Ready(Ok(pretended))
        }
        polled => polled,
    }
}

impl AsyncRead for ReadAfterHangup {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for ReadAfterHangup {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        unless_hung_up(
            Pin::new(&mut self.0).poll_write(context, bytes),
            bytes.len(),
        )
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        unless_hung_up(Pin::new(&mut self.0).poll_flush(context), ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A stream whose peer sent something and hung up without reading what we sent, so that the
    /// kernel resets the connection.
    async fn after_it_hung_up() -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (mut theirs, _) = listener.accept().await.unwrap();
        ours.write_all(b"unread").await.unwrap();
        theirs.readable().await.unwrap();
        theirs.write_all(b"bad certificate").await.unwrap();
        drop(theirs);
        ours
    }

    #[tokio::test]
    async fn what_the_peer_said_last_is_read_although_writing_failed() {
        let mut stream = ReadAfterHangup(after_it_hung_up().await);
        for _ in 0..3 {
            stream.write_all(b"more").await.unwrap();
        }
        let mut heard = [0; 15];
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"bad certificate");
        let end = stream.read(&mut heard).await;
        assert!(
            matches!(end, Ok(0) | Err(_)),
            "the end is reported: {end:?}"
        );
    }

    #[tokio::test]
    async fn a_bare_stream_reports_the_failed_write() {
        let mut stream = after_it_hung_up().await;
        let mut written = Ok(());
        for _ in 0..3 {
            written = written.and(stream.write_all(b"more").await);
        }
        assert!(written.is_err(), "or this module is not needed");
    }
}
