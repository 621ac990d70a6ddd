//! The contents of Secrets and ConfigMaps that were read: settings and certificates.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use crate::api::SourceKind;

/// A Secret or a ConfigMap of the cluster's namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Object {
    pub(super) kind: SourceKind,
    pub(super) name: String,
}

/// A key in a Secret or a ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) object: Object,
    pub(super) key: String,
}

/// The contents of objects that were read. They are dropped after use, for most Secrets hold more
/// than the gate looks for.
#[derive(Default)]
pub(super) struct Contents {
    read: BTreeMap<Object, BTreeMap<String, Vec<u8>>>,
    /// The objects that could not be read.
    lack: Lack,
}

/// Objects that may exist and could not be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lack {
    /// None.
    #[default]
    Nothing,
    /// Some, and no later reading will find them: the gate may not read them, or no object can have
    /// such a name.
    Forbidden,
    /// Some, and a later reading may find them.
    Late,
}

impl Object {
    pub(super) fn secret(name: &str) -> Self {
        Self {
            kind: SourceKind::Secret,
            name: name.to_owned(),
        }
    }

    pub(super) fn config_map(name: &str) -> Self {
        Self {
            kind: SourceKind::ConfigMap,
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.name)
    }
}

impl Place {
    pub(super) fn new(object: Object, key: &str) -> Self {
        Self {
            object,
            key: key.to_owned(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.key, self.object)
    }
}

impl Contents {
    pub(super) fn add_secret(&mut self, name: &str, secret: Secret) {
        let data = secret.data.unwrap_or_default().into_iter();
        let data = data.map(|(key, value)| (key, value.0)).collect();
        self.read.insert(Object::secret(name), data);
    }

    pub(super) fn add_config_map(&mut self, name: &str, map: ConfigMap) {
        let binary = map.binary_data.unwrap_or_default().into_iter();
        let binary = binary.map(|(key, value)| (key, value.0));
        let text = map.data.unwrap_or_default().into_iter();
        let text = text.map(|(key, value)| (key, value.into_bytes()));
        let data = binary.chain(text).collect();
        self.read.insert(Object::config_map(name), data);
    }

    /// Notes that an object could not be read.
    pub(super) fn lack_one(&mut self, lack: Lack) {
        self.lack = self.lack.max(lack);
    }

    /// Objects that may exist and could not be read.
    pub(super) fn lack(&self) -> Lack {
        self.lack
    }

    /// Everything in these.
    pub(super) fn of_all(all: impl IntoIterator<Item = Self>) -> Self {
        let mut whole = Self::default();
        for contents in all {
            whole.lack_one(contents.lack);
            whole.read.extend(contents.read);
        }
        whole
    }

    /// Whether the object was read.
    pub(super) fn has(&self, object: &Object) -> bool {
        self.read.contains_key(object)
    }

    pub(super) fn get(&self, place: &Place) -> Option<&[u8]> {
        let value = self.read.get(&place.object)?.get(&place.key)?;
        Some(value)
    }

    pub(super) fn text(&self, place: &Place) -> Option<&str> {
        std::str::from_utf8(self.get(place)?).ok()
    }

    /// The values of an object that are text.
    pub(super) fn texts(&self, object: &Object) -> impl Iterator<Item = (&str, &str)> {
        let values = self.read.get(object).into_iter().flatten();
        values.filter_map(|(key, value)| Some((key.as_str(), std::str::from_utf8(value).ok()?)))
    }

    /// Every value that was read.
    pub(super) fn all(&self) -> impl Iterator<Item = (Place, &[u8])> {
        self.read.iter().flat_map(|(object, values)| {
            let values = values.iter();
            values.map(|(key, value)| (Place::new(object.clone(), key), value.as_slice()))
        })
    }
}
