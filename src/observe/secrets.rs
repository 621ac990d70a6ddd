//! The certificates in Secrets, parsed once per content.

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{OptionFuture, try_join};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use super::volumes::{CaRef, ClientRef, TlsSecrets};
use crate::etcd::TlsIdentity;

/// Reads client TLS from Secrets. The Secrets are read each time; what was made of them is kept while they are the same.
pub(super) struct Identities {
    client: Client,
    parsed: Mutex<HashMap<(String, TlsSecrets), Parsed>>,
}

struct Parsed {
    versions: (Option<String>, Option<String>),
    identity: Arc<TlsIdentity>,
}

impl Identities {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            parsed: Mutex::default(),
        }
    }

    /// The identity that the Secrets hold now, or why there is none, for people.
    pub(super) async fn read(
        &self,
        namespace: &str,
        secrets: &TlsSecrets,
    ) -> Result<Arc<TlsIdentity>, String> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let client = secrets.client.as_ref();
        let client: OptionFuture<_> = client.map(|client| get(&api, &client.secret)).into();
        let (ca, client) = try_join(get(&api, &secrets.ca.secret), async {
            client.await.transpose()
        })
        .await?;
        let versions = (version(&ca), client.as_ref().and_then(version));
        let key = (namespace.to_owned(), secrets.clone());
        if let Some(identity) = self.kept(&key, &versions) {
            return Ok(identity);
        }
        let identity = Arc::new(parse(secrets, &ca, client.as_ref())?);
        let parsed = Parsed {
            versions,
            identity: Arc::clone(&identity),
        };
        let mut kept = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(key, parsed);
        Ok(identity)
    }

    fn kept(
        &self,
        key: &(String, TlsSecrets),
        versions: &(Option<String>, Option<String>),
    ) -> Option<Arc<TlsIdentity>> {
        let kept = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        let parsed = kept.get(key)?;
        (parsed.versions == *versions).then(|| Arc::clone(&parsed.identity))
    }
}

/// What the Secrets hold, as an identity.
fn parse(
    secrets: &TlsSecrets,
    ca: &Secret,
    client: Option<&Secret>,
) -> Result<TlsIdentity, String> {
    let authority = authority(&secrets.ca, ca)?;
    let pair = match (&secrets.client, client) {
        (Some(of), Some(secret)) => Some(pair(of, secret)?),
        _ => None,
    };
    TlsIdentity::parse(&[authority], pair).map_err(|error| {
        let cause = error.source().map(|cause| format!(": {cause}"));
        format!("{error}{}", cause.unwrap_or_default())
    })
}

/// The authority, under the first of its likely keys that is there, else under the only key there is.
pub(super) fn authority<'a>(of: &CaRef, secret: &'a Secret) -> Result<&'a [u8], String> {
    let likely = of.keys.iter().find_map(|key| value(secret, key));
    let mut all = secret.data.iter().flatten();
    let only = match (all.next(), all.next()) {
        (Some((_, only)), None) => Some(only.0.as_slice()),
        _ => None,
    };
    likely
        .or(only)
        .ok_or_else(|| format!("Secret {} has no key {}", of.secret, of.keys.join(" or ")))
}

fn pair<'a>(of: &ClientRef, secret: &'a Secret) -> Result<(&'a [u8], &'a [u8]), String> {
    let get = |key: &str| {
        value(secret, key).ok_or_else(|| format!("Secret {} has no key {key}", of.secret))
    };
    Ok((get(&of.certificate)?, get(&of.key)?))
}

fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    Some(secret.data.as_ref()?.get(key)?.0.as_slice())
}

fn version(secret: &Secret) -> Option<String> {
    secret.metadata.resource_version.clone()
}

async fn get(secrets: &Api<Secret>, name: &str) -> Result<Secret, String> {
    match secrets.get_opt(name).await {
        Ok(Some(secret)) => Ok(secret),
        Ok(None) => Err(format!("Secret {name} does not exist")),
        Err(kube::Error::Api(status)) => Err(format!(
            "Secret {name} could not be read: {}",
            status.message
        )),
        Err(error) => Err(format!("Secret {name} could not be read: {error}")),
    }
}
