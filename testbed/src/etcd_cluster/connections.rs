//! Connections to members that are kept: handshakes are what costs most of a question.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use etcd_client::Client;
use tokio::sync::Mutex;

use super::Dialer;

/// One connection per address, made when it is first asked for.
pub struct Connections {
    dialer: Dialer,
    patience: Duration,
    clients: Mutex<HashMap<IpAddr, Client>>,
}

impl Connections {
    /// None yet. A connection may take as long as `patience` to be made.
    pub fn new(dialer: Dialer, patience: Duration) -> Self {
        Self {
            dialer,
            patience,
            clients: Mutex::default(),
        }
    }

    /// The one to the member at this address.
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
