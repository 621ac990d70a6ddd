//! Names and ids. Each has a type of its own, so that a pod's name is never taken for a member's.
//!
//! An *incarnation* of a pod is one pod object, known by its UID. A StatefulSet gives the same name
//! to every incarnation.

use std::fmt;

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
        pub struct $name(String);

        impl $name {
            /// Wraps a text without checking it.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }
    };
}

text_id! {
    /// The name of a pod. All incarnations of a pod share it, so grants are keyed by it.
    PodName
}

text_id! {
    /// The UID of one incarnation of a pod.
    PodUid
}

macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:x}", self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = std::num::ParseIntError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                u64::from_str_radix(text, 16).map(Self)
            }
        }
    };
}

hex_id! {
    /// The id that etcd gives a member. `Display` writes it in hexadecimal, as `etcdctl member
    /// list` does.
    MemberId
}

hex_id! {
    /// The id that etcd gives a cluster. `Display` writes it in hexadecimal.
    ClusterId
}

/// The namespace and name of a cluster's StatefulSet. The cluster's budget has the same namespace
/// and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
#[display("{namespace}/{name}")]
pub struct ClusterRef {
    /// The namespace.
    pub namespace: String,
    /// The name of the StatefulSet and of its `QuorumDisruptionBudget`.
    pub name: String,
}

impl ClusterRef {
    /// The cluster of the StatefulSet `name` in `namespace`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// The items in a sentence, with commas between them.
pub(crate) fn list<T: fmt::Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    items.join(", ")
}

/// The ordinal of a pod in its StatefulSet: the number at the end of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ordinal(pub u32);

impl PodName {
    /// Whether `member`, the name of a member or of a Lease, is the pod's name, perhaps with a
    /// prefix and a dash before it (etcd-druid's `memberNamePrefix`).
    pub fn names(&self, member: &str) -> bool {
        member
            .strip_suffix(self.as_str())
            .is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('-'))
    }

    /// Whether the StatefulSet `set` gives this name to a pod: the name of the set, a dash and an
    /// ordinal.
    pub fn is_given_by(&self, set: &str) -> bool {
        let of_set = |(prefix, _): (&str, &str)| prefix == set;
        self.as_str().rsplit_once('-').is_some_and(of_set) && Ordinal::from_pod(self).is_some()
    }

    /// The pod of the StatefulSet `set` that a member is named after. `None` if no pod of the set
    /// can have that name.
    pub fn of_member(set: &str, member: &str) -> Option<Self> {
        let (prefix, digits) = member.rsplit_once('-')?;
        prefix
            .ends_with(set)
            .then(|| Self(format!("{set}-{digits}")))
            .filter(|pod| pod.is_given_by(set) && pod.names(member))
    }

    /// The pod of the StatefulSet `set` whose name is the first label of the URL's host.
    pub fn of_url(set: &str, url: &str) -> Option<Self> {
        let host = url.split_once("://").map_or(url, |(_, rest)| rest);
        let first = host.split(['.', ':', '/']).next()?;
        Some(Self::new(first)).filter(|pod| pod.is_given_by(set))
    }
}

impl Ordinal {
    /// The ordinal in a pod's name. `None` if the name does not end in `-<number>`.
    pub fn from_pod(pod: &PodName) -> Option<Self> {
        let (_, digits) = pod.as_str().rsplit_once('-')?;
        let canonical = digits == "0" || !digits.starts_with('0');
        let numeric = digits.bytes().all(|b| b.is_ascii_digit());
        (canonical && numeric)
            .then(|| digits.parse().ok().map(Self))
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_named_after_its_pod_maybe_with_a_prefix() {
        let pod = PodName::from("etcd-0");
        assert!(pod.names("etcd-0"));
        assert!(pod.names("main-etcd-0"));
        assert!(!pod.names("mainetcd-0"));
        assert!(!pod.names("etcd-00"));
        assert!(!pod.names("etcd-1"));
    }

    #[test]
    fn a_member_may_have_the_name_of_a_pod_of_its_set_or_cannot() {
        let pod = |member| PodName::of_member("main", member);
        assert_eq!(pod("main-0"), Some("main-0".into()));
        assert_eq!(pod("virtual-main-12"), Some("main-12".into()));
        for other in [
            "main", "main-x", "main-01", "domain-0", "main-0-x", "m0", "",
        ] {
            assert_eq!(pod(other), None, "{other}");
        }
        let url = |url| PodName::of_url("main", url);
        assert_eq!(
            url("https://main-1.main-peer.ns.svc:2380"),
            Some("main-1".into())
        );
        assert_eq!(url("http://main-1:2380"), Some("main-1".into()));
        assert_eq!(url("http://10.0.0.1:2380"), None);
    }

    #[test]
    fn an_ordinal_is_the_number_a_name_ends_in() {
        assert_eq!(Ordinal::from_pod(&"etcd-main-2".into()), Some(Ordinal(2)));
        assert_eq!(Ordinal::from_pod(&"etcd-10".into()), Some(Ordinal(10)));
        for foreign in [
            "etcd",
            "etcd-",
            "etcd-x",
            "etcd-+1",
            "etcd-01",
            "etcd-99999999999",
        ] {
            assert_eq!(Ordinal::from_pod(&foreign.into()), None, "{foreign}");
        }
    }

    #[test]
    fn ids_are_written_and_read_in_hexadecimal() {
        assert_eq!(
            MemberId(0x8e9e_05c5_2164_694d).to_string(),
            "8e9e05c52164694d"
        );
        assert_eq!(
            "8e9e05c52164694d".parse(),
            Ok(MemberId(0x8e9e_05c5_2164_694d))
        );
    }
}
