//! Kept connections to members, since handshakes are most of the cost of a call.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use etcd_client::Client;
use tokio::sync::Mutex;

use super::Dialer;

/// A connection per address, opened at its first use.
pub struct Connections {
    dialer: Dialer,
    patience: Duration,
    clients: Mutex<HashMap<IpAddr, Client>>,
}

impl Connections {
    /// No connections yet. `patience` is the time limit of calls.
    pub fn new(dialer: Dialer, patience: Duration) -> Self {
        Self {
            dialer,
            patience,
            clients: Mutex::default(),
        }
    }

    /// The connection to the member at this address.
    pub async fn to(&self, address: IpAddr) -> Result<Client> {
        let mut clients = self.clients.lock().await;
        if let Some(client) = clients.get(&address) {
            return Ok(client.clone());
        }
        let client = self.dialer.dial(address, self.patience).await?;
        clients.insert(address, client.clone());
        Ok(client)
    }
}
