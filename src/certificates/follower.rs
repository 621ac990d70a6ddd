//! Takes the serving certificate from its Secret, on every replica.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tracing::{info, warn};

use super::held::{CERTIFICATE, Data, KEY};
use crate::serve::certificate::{Certificate, POLL};

/// The pause between two reads of the Secret while there is nothing to serve.
const POLL_AT_FIRST: Duration = Duration::from_millis(500);
/// The time limit of a read.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads the Secret for ever, and has the certificate serve what it holds. One that holds nothing
/// of use changes nothing.
pub async fn follow(
    certificate: Arc<Certificate>,
    client: Client,
    namespace: String,
    name: String,
) {
    let secrets: Api<Secret> = Api::namespaced(client, &namespace);
    let mut told = false;
    loop {
        match tokio::time::timeout(PATIENCE, secrets.get_opt(&name)).await {
            Ok(Ok(Some(secret))) => {
                let data = secret.data.unwrap_or_default();
                let pair = (field(&data, CERTIFICATE), field(&data, KEY));
                Arc::clone(&certificate).offer(pair).await;
            }
            Ok(Ok(None)) => {
                if !certificate.is_there() && !told {
                    info!(secret = %name, "waits for the first serving certificate");
                }
                told = true;
            }
            Ok(Err(error)) => warn!(%error, "the serving certificate could not be read"),
            Err(_) => warn!("the serving certificate could not be read in time"),
        }
        let pause = if certificate.is_there() {
            POLL
        } else {
            POLL_AT_FIRST
        };
        tokio::time::sleep(pause).await;
    }
}

fn field(data: &Data, key: &str) -> Vec<u8> {
    data.get(key)
        .map(|bytes| bytes.0.clone())
        .unwrap_or_default()
}
