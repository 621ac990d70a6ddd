//! Certificates, users and passwords from Secrets, parsed once per content.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::time::Instant;

use super::access::{CaRef, ClientRef, TlsSecrets, UserRef};
use super::mounts::SecretKey;
use crate::causes::causes;
use crate::etcd::{TlsIdentity, User};

/// The time for which an identity is used without another look at its Secrets, while every member
/// answers by it.
const FRESH: Duration = Duration::from_secs(10);

/// Reads client identities from Secrets. An identity is parsed once, and kept while its Secrets are
/// unchanged and the identity is in use, which it is by the endpoints of a cluster's last reading.
/// Whether its Secrets are unchanged is seen after [`FRESH`], and at once where some member has not
/// answered. An outdated identity can only cost answers.
pub(super) struct Identities {
    client: Client,
    /// The identities of each namespace.
    parsed: Mutex<HashMap<String, HashMap<TlsSecrets, Parsed>>>,
}

/// Secrets by name.
type Found = BTreeMap<String, Secret>;
/// The resourceVersions of Secrets, which identify their content.
type Versions = BTreeMap<String, Option<String>>;

struct Parsed {
    versions: Versions,
    identity: Weak<TlsIdentity>,
    /// The time until which the Secrets need not be read again.
    fresh_until: Instant,
}

impl Identities {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            parsed: Mutex::default(),
        }
    }

    /// The identity in the Secrets, which was read at `now` or not long before. The error says for
    /// people why there is none.
    pub(super) async fn read(
        &self,
        namespace: &str,
        secrets: &TlsSecrets,
        now: Instant,
    ) -> Result<Arc<TlsIdentity>, String> {
        if let Some(problem) = &secrets.problem {
            return Err(problem.clone());
        }
        if let Some(identity) = self.kept(namespace, secrets, |parsed| now < parsed.fresh_until) {
            return Ok(identity);
        }
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let read = names(secrets).into_iter().map(|name| async {
            let secret = get(&api, &name).await?;
            Ok::<_, String>((name, secret))
        });
        let found: Found = try_join_all(read).await?.into_iter().collect();
        let version = |(name, secret): (&String, &Secret)| {
            (name.clone(), secret.metadata.resource_version.clone())
        };
        let versions: Versions = found.iter().map(version).collect();
        let identity = match self.kept(namespace, secrets, |parsed| parsed.versions == versions) {
            Some(unchanged) => unchanged,
            None => Arc::new(parse(secrets, &found)?),
        };
        let parsed = Parsed {
            versions,
            identity: Arc::downgrade(&identity),
            fresh_until: now + FRESH,
        };
        let mut kept = self.lock();
        let here = kept.entry(namespace.to_owned()).or_default();
        here.retain(|_, parsed| parsed.identity.strong_count() > 0);
        here.insert(secrets.clone(), parsed);
        Ok(identity)
    }

    /// Has the Secrets of a namespace read again before they are used.
    pub(super) fn doubt(&self, namespace: &str, now: Instant) {
        if let Some(here) = self.lock().get_mut(namespace) {
            for parsed in here.values_mut() {
                parsed.fresh_until = now;
            }
        }
    }

    /// Drops the identities of a namespace. Whoever still needs one reads it again.
    pub(super) fn forget(&self, namespace: &str) {
        self.lock().remove(namespace);
    }

    fn kept(
        &self,
        namespace: &str,
        secrets: &TlsSecrets,
        is_usable: impl FnOnce(&Parsed) -> bool,
    ) -> Option<Arc<TlsIdentity>> {
        let kept = self.lock();
        let parsed = kept.get(namespace)?.get(secrets)?;
        parsed.identity.upgrade().filter(|_| is_usable(parsed))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, HashMap<TlsSecrets, Parsed>>> {
        self.parsed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of identities that are kept.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.lock().values().map(HashMap::len).sum()
    }
}

/// The names of the Secrets to read. The Secret with the additional authority is that of the
/// serving certificate, so it exists.
fn names(secrets: &TlsSecrets) -> BTreeSet<String> {
    let TlsSecrets {
        ca,
        also,
        client,
        user,
        problem: _,
    } = secrets;
    let ca = ca.iter().map(|ca| &ca.secret);
    let keys = also
        .iter()
        .chain(client.iter().flat_map(|c| [&c.certificate, &c.key]))
        .chain(user.iter().flat_map(|u| [&u.name, &u.password]));
    ca.chain(keys.map(|key| &key.secret)).cloned().collect()
}

/// The identity in the content of the Secrets.
fn parse(secrets: &TlsSecrets, found: &Found) -> Result<TlsIdentity, String> {
    let user = secrets
        .user
        .as_ref()
        .map(|of| user(of, found))
        .transpose()?;
    let Some(ca) = &secrets.ca else {
        let user = user.ok_or("neither certificates nor a user are named")?;
        return Ok(TlsIdentity::of_user(user));
    };
    let secret = found.get(&ca.secret);
    let secret = secret.ok_or_else(|| format!("Secret {} was not read", ca.secret))?;
    let mut authorities = vec![authority(ca, secret)?];
    authorities.extend(secrets.also.as_ref().and_then(|also| value(found, also)));
    let pair = secrets
        .client
        .as_ref()
        .map(|of| pair(of, found))
        .transpose()?;
    let identity = TlsIdentity::parse(&authorities, pair).map_err(|error| causes(&error))?;
    Ok(match user {
        Some(user) => identity.with_user(user),
        None => identity,
    })
}

/// The authority: the first of its likely keys that exists, or else the only key that exists.
pub(super) fn authority<'a>(of: &CaRef, secret: &'a Secret) -> Result<&'a [u8], String> {
    let data = secret.data.as_ref();
    let likely = of.keys.iter().find_map(|key| data?.get(key));
    let mut all = secret.data.iter().flatten();
    let only = match (all.next(), all.next()) {
        (Some((_, only)), None) => Some(only),
        _ => None,
    };
    likely
        .or(only)
        .map(|found| found.0.as_slice())
        .ok_or_else(|| format!("Secret {} has no key {}", of.secret, of.keys.join(" or ")))
}

fn pair<'a>(of: &ClientRef, found: &'a Found) -> Result<(&'a [u8], &'a [u8]), String> {
    Ok((needed(found, &of.certificate)?, needed(found, &of.key)?))
}

fn user(of: &UserRef, found: &Found) -> Result<User, String> {
    let text = |key: &SecretKey| {
        let text = String::from_utf8(needed(found, key)?.to_vec());
        // Editors and `echo` leave a line end behind.
        let text = text.map(|text| text.trim_end_matches(['\r', '\n']).to_owned());
        let SecretKey { secret, key } = key;
        text.map_err(|_| format!("key {key} of Secret {secret} is no text"))
    };
    Ok(User::new(text(&of.name)?, text(&of.password)?))
}

fn needed<'a>(found: &'a Found, key: &SecretKey) -> Result<&'a [u8], String> {
    let SecretKey { secret, key: name } = key;
    value(found, key).ok_or_else(|| format!("Secret {secret} has no key {name}"))
}

fn value<'a>(found: &'a Found, key: &SecretKey) -> Option<&'a [u8]> {
    let secret = found.get(&key.secret)?;
    Some(secret.data.as_ref()?.get(&key.key)?.0.as_slice())
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
