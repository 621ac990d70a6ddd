//! A relay in front of a member, which counts connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    /// The tasks of the relay. Dropping them closes every connection.
    _task: JoinSet<()>,
}

impl Relay {
    pub(crate) async fn to(member: String) -> Result<Self> {
        Self::at(SocketAddr::from(([127, 0, 0, 1], 0)), member).await
    }

    /// Starts a relay at an address of the caller's choice.
    pub(crate) async fn at(address: SocketAddr, member: String) -> Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let accepted = Arc::new(AtomicUsize::new(0));
        let mut task = JoinSet::new();
        task.spawn(serve(listener, member, Arc::clone(&accepted)));
        Ok(Self {
            address,
            accepted,
            _task: task,
        })
    }

    /// The number of connections so far.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

async fn serve(listener: TcpListener, member: String, accepted: Arc<AtomicUsize>) {
    let mut connections = JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        accepted.fetch_add(1, Ordering::SeqCst);
        let member = member.clone();
        connections.spawn(async move {
            if let Ok(mut member) = TcpStream::connect(member).await {
                // Either side may close the connection at any time.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut member).await;
            }
        });
    }
}
