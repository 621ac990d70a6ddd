//! Certificates, users and passwords from Secrets and ConfigMaps, parsed once per content.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use tokio::time::Instant;

use super::contents::{Contents, Object, Place};
use super::ways::credentials::{Credentials, UserSource};
use crate::api::{AuthoritySource, IdentitySource, SourceKind};
use crate::causes::causes;
use crate::crypto::{self, Certificate};
use crate::etcd::{TlsIdentity, User};
use crate::named;

/// The time for which an identity is used without another look at its objects, while every member
/// answers by it.
const FRESH: Duration = Duration::from_secs(10);

/// The fields that name the objects, of the budget or else of a volume of the pods.
const AUTHORITY: &str = "the name in spec.tls.caSecret or caConfigMap";
const CLIENT: &str = "the name in spec.tls.clientSecret";
const USER: &str = "the name in spec.members.auth";

/// Reads client identities. An identity is parsed once, and kept while its objects are unchanged
/// and the identity is in use, which it is by the endpoints of a cluster's last reading. Whether
/// its Secrets are unchanged is seen after [`FRESH`], and at each use until all members have
/// answered. An outdated identity can only cost answers.
pub(super) struct Identities {
    client: Client,
    /// The identities of each namespace.
    parsed: Mutex<HashMap<String, HashMap<Credentials, Parsed>>>,
}

/// The resourceVersions of objects, which identify their content.
type Versions = BTreeMap<Object, Option<String>>;

struct Parsed {
    versions: Versions,
    identity: Weak<TlsIdentity>,
    read_at: Instant,
    /// Whether all members answered since: a look that began before a certificate was renewed must
    /// not make later ones use what it read.
    is_answered: bool,
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
        wanted: &Credentials,
        now: Instant,
    ) -> Result<Arc<TlsIdentity>, String> {
        if let Some(problem) = &wanted.problem {
            return Err(problem.clone());
        }
        if let Some(identity) = self.kept(namespace, wanted, |parsed| {
            parsed.is_answered && now < parsed.read_at + FRESH
        }) {
            return Ok(identity);
        }
        let objects = objects(wanted);
        let read = objects
            .iter()
            .map(|(object, field)| self.get(namespace, object, field));
        let (contents, versions): (Vec<Contents>, Vec<_>) =
            try_join_all(read).await?.into_iter().unzip();
        let contents = Contents::of_all(contents);
        let versions: Versions = objects.into_keys().zip(versions).collect();
        let identity = match self.kept(namespace, wanted, |parsed| parsed.versions == versions) {
            Some(unchanged) => unchanged,
            None => Arc::new(parse(wanted, &contents)?),
        };
        let parsed = Parsed {
            versions,
            identity: Arc::downgrade(&identity),
            read_at: now,
            is_answered: false,
        };
        let mut kept = self.lock();
        let here = kept.entry(namespace.to_owned()).or_default();
        here.retain(|_, parsed| parsed.identity.strong_count() > 0);
        here.insert(wanted.clone(), parsed);
        Ok(identity)
    }

    /// Takes note of whether all members of a cluster in a namespace answered. While they do not,
    /// its Secrets are read again before they are used.
    pub(super) fn note_answers(&self, namespace: &str, are_all: bool) {
        if let Some(here) = self.lock().get_mut(namespace) {
            for parsed in here.values_mut() {
                parsed.is_answered = are_all;
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
        wanted: &Credentials,
        is_usable: impl FnOnce(&Parsed) -> bool,
    ) -> Option<Arc<TlsIdentity>> {
        let kept = self.lock();
        let parsed = kept.get(namespace)?.get(wanted)?;
        parsed.identity.upgrade().filter(|_| is_usable(parsed))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, HashMap<Credentials, Parsed>>> {
        self.parsed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of identities that are kept.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.lock().values().map(HashMap::len).sum()
    }
}

/// The objects to read.
fn objects(wanted: &Credentials) -> BTreeMap<Object, &'static str> {
    let authority = wanted.authority.iter().map(object_of);
    let authority = authority.map(|object| (object, AUTHORITY));
    let identity = wanted.identity.iter();
    let identity =
        identity.flat_map(|of| [Object::secret(&of.secret), Object::secret(of.key_secret())]);
    let identity = identity.map(|object| (object, CLIENT));
    let user = wanted
        .user
        .iter()
        .flat_map(|user| [&user.name, &user.password]);
    let user = user.map(|place| (place.object.clone(), USER));
    authority.chain(identity).chain(user).collect()
}

fn object_of(authority: &AuthoritySource) -> Object {
    Object {
        kind: authority.kind,
        name: authority.name.clone(),
    }
}

/// The identity in the content of the objects.
fn parse(wanted: &Credentials, contents: &Contents) -> Result<TlsIdentity, String> {
    let user = wanted
        .user
        .as_ref()
        .map(|of| user(of, contents))
        .transpose()?;
    let Some(authority) = &wanted.authority else {
        let user = user.ok_or("neither certificates nor a user are named")?;
        return Ok(TlsIdentity::of_user(user));
    };
    let authorities = authorities(authority, contents)?;
    let pair = wanted.identity.as_ref();
    let pair = pair.map(|of| pair_of(of, contents)).transpose()?;
    let identity = TlsIdentity::parse(&authorities, pair).map_err(|error| causes(&error))?;
    Ok(match user {
        Some(user) => identity.with_user(user),
        None => identity,
    })
}

/// The certificates of the authority: those under its key, or else all in the object that may sign
/// others.
pub(super) fn authorities<'a>(
    of: &AuthoritySource,
    contents: &'a Contents,
) -> Result<Vec<&'a [u8]>, String> {
    let object = object_of(of);
    if let Some(key) = &of.key {
        return Ok(vec![needed(&Place::new(object, key), contents)?]);
    }
    let may_sign = |text: &str| {
        let certificates = crypto::certificates(text.as_bytes());
        let first = certificates
            .ok()
            .and_then(|all| Certificate::parse(all.first()?).ok());
        first.is_some_and(|first| first.may_sign)
    };
    let texts = contents.texts(&object).map(|(_, text)| text);
    let found: Vec<&[u8]> = texts
        .filter(|text| may_sign(text))
        .map(str::as_bytes)
        .collect();
    if found.is_empty() {
        return Err(format!("{object} has no certificate of an authority"));
    }
    Ok(found)
}

fn pair_of<'a>(
    of: &IdentitySource,
    contents: &'a Contents,
) -> Result<(&'a [u8], &'a [u8]), String> {
    let certificate = Place::new(Object::secret(&of.secret), &of.cert_key);
    let key = Place::new(Object::secret(of.key_secret()), &of.key_key);
    Ok((needed(&certificate, contents)?, needed(&key, contents)?))
}

fn user(of: &UserSource, contents: &Contents) -> Result<User, String> {
    let text = |place: &Place| {
        let text = String::from_utf8(needed(place, contents)?.to_vec());
        // Editors and `echo` leave a line end behind.
        let text = text.map(|text| text.trim_end_matches(['\r', '\n']).to_owned());
        text.map_err(|_| format!("key {} of {} is no text", place.key, place.object))
    };
    Ok(User::new(text(&of.name)?, text(&of.password)?))
}

fn needed<'a>(place: &Place, contents: &'a Contents) -> Result<&'a [u8], String> {
    let value = contents.get(place);
    value.ok_or_else(|| format!("{} has no key {}", place.object, place.key))
}

impl Identities {
    /// Reads an object, with its resourceVersion.
    async fn get(
        &self,
        namespace: &str,
        object: &Object,
        field: &str,
    ) -> Result<(Contents, Option<String>), String> {
        let client = self.client.clone();
        let mut contents = Contents::default();
        let name = &object.name;
        let unread = |error: kube::Error| match error {
            kube::Error::Api(status) => format!("{object} could not be read: {}", status.message),
            error => format!("{object} could not be read: {}", causes(&error)),
        };
        let missing = || format!("{object} does not exist");
        let version = match object.kind {
            SourceKind::Secret => {
                let secrets: Api<Secret> = Api::namespaced(client, namespace);
                let secret = named::get_opt(&secrets, field, name)
                    .await
                    .map_err(unread)?;
                let secret = secret.ok_or_else(missing)?;
                let version = secret.metadata.resource_version.clone();
                contents.add_secret(name, secret);
                version
            }
            SourceKind::ConfigMap => {
                let maps: Api<ConfigMap> = Api::namespaced(client, namespace);
                let map = named::get_opt(&maps, field, name).await.map_err(unread)?;
                let map = map.ok_or_else(missing)?;
                let version = map.metadata.resource_version.clone();
                contents.add_config_map(name, map);
                version
            }
        };
        Ok((contents, version))
    }
}
