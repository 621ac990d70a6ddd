//! Takes the serving certificate from its Secret, on every replica.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tracing::{info, warn};

use super::held::{CERTIFICATE, KEY, field, words};
use crate::clock::monotonic_now;
use crate::named;
use crate::serve::call_paths::CallPaths;
use crate::serve::certificate::{Certificate, POLL};

/// The pause between two reads of the Secret while there is nothing to serve.
const POLL_AT_FIRST: Duration = Duration::from_millis(500);
/// The time limit of a read.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads the Secret for ever, has the certificate serve what it holds, and calls admitted by the
/// paths that belong to it. One that holds nothing of use changes nothing.
pub async fn follow(
    certificate: Arc<Certificate>,
    paths: Arc<CallPaths>,
    client: Client,
    namespace: String,
    name: String,
) {
    let secrets: Api<Secret> = Api::namespaced(client, &namespace);
    let mut told = false;
    loop {
        match tokio::time::timeout(PATIENCE, named::get_opt(&secrets, named::OF_OBJECT, &name))
            .await
        {
            Ok(Ok(Some(secret))) => {
                let data = secret.data.unwrap_or_default();
                paths.offer(words(&data), monotonic_now());
                let pair = [CERTIFICATE, KEY].map(|key| field(&data, key).to_vec());
                Arc::clone(&certificate).offer(pair).await;
            }
            Ok(Ok(None)) => {
                if !certificate.is_there() && !told {
                    info!(secret = %name, "waits for the first serving certificate");
                }
                told = true;
            }
            Ok(Err(error)) => warn!(%error, "cannot read the serving certificate"),
            Err(_) => warn!("cannot read the serving certificate in time"),
        }
        let pause = if certificate.is_there() {
            POLL
        } else {
            POLL_AT_FIRST
        };
        tokio::time::sleep(pause).await;
    }
}
