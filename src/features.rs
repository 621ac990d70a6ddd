//! Feature gates, given as `--feature-gates=Name=true,Other=false` like those of Kubernetes' own
//! programs.

use std::collections::BTreeMap;
use std::fmt;

use strum::IntoEnumIterator as _;

/// A feature, off by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::EnumIter)]
pub enum Feature {
    /// Enrolled StatefulSets get the update strategy `OnDelete`, and the gate rolls them out.
    OnDelete,
    /// The gate keeps an `EtcdMember` (DEP-04) for each member of an enrolled cluster.
    EtcdMembers,
}

impl Feature {
    /// The name of the feature in `--feature-gates`, logs and metrics.
    fn name(self) -> &'static str {
        match self {
            Self::OnDelete => "QuorumAwareUpdatesWithOnDelete",
            Self::EtcdMembers => "EtcdMembers",
        }
    }

    /// A second name that `--feature-gates` accepts, if there is one.
    fn alias(self) -> Option<&'static str> {
        match self {
            Self::OnDelete => Some("UpdateStrategyOnDelete"),
            Self::EtcdMembers => None,
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::iter().find(|feature| feature.name() == name || feature.alias() == Some(name))
    }
}

/// The features, and whether they are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// `QuorumAwareUpdatesWithOnDelete` (DEP-07): enrolled StatefulSets keep the update strategy
    /// `OnDelete`, and the gate rolls them out. While it is off, StatefulSets that the gate had
    /// changed get their own strategy back.
    pub on_delete: bool,
    /// `EtcdMembers` (DEP-04): the gate keeps an `EtcdMember` for each member. While it is off, the
    /// gate neither reads nor writes any.
    pub etcd_members: bool,
}

impl Features {
    /// The features after several lists of switches.
    ///
    /// # Errors
    ///
    /// When two lists contradict each other.
    pub fn from_switches(lists: &[Switches]) -> Result<Self, BadFeature> {
        let mut said = BTreeMap::new();
        for (feature, on) in lists.iter().flat_map(|switches| &switches.0) {
            if *said.entry(*feature).or_insert(*on) != *on {
                return Err(BadFeature::Contradiction(*feature));
            }
        }
        let on = |feature| said.get(&feature).copied().unwrap_or_default();
        Ok(Self {
            on_delete: on(Feature::OnDelete),
            etcd_members: on(Feature::EtcdMembers),
        })
    }

    /// The name of every feature, and whether it is on.
    pub fn all(self) -> impl Iterator<Item = (&'static str, bool)> {
        let Self {
            on_delete,
            etcd_members,
        } = self;
        Feature::iter().map(move |feature| match feature {
            Feature::OnDelete => (feature.name(), on_delete),
            Feature::EtcdMembers => (feature.name(), etcd_members),
        })
    }
}

/// A list of switches: `Name=true,Other=false`. It may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switches(Vec<(Feature, bool)>);

/// Why a list of switches cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadFeature {
    /// No feature has this name.
    Unknown(String),
    /// The feature has no value.
    NoValue(String),
    /// The value is neither true nor false.
    BadValue {
        /// The name that was given.
        name: String,
        /// The value that was given.
        value: String,
    },
    /// The feature is switched both on and off.
    Contradiction(Feature),
}

impl std::error::Error for BadFeature {}

impl fmt::Display for BadFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "there is no feature {name:?}")?,
            Self::NoValue(name) => {
                write!(f, "{name} has to be given as {name}=true or {name}=false")?;
            }
            Self::BadValue { name, value } => {
                write!(f, "{name} can be true or false, not {value:?}")?;
            }
            Self::Contradiction(feature) => write!(
                f,
                "{}{} is said to be both true and false",
                feature.name(),
                also(feature.alias(), " (also called ", ")")
            )?,
        }
        f.write_str("; the features are:")?;
        for feature in Feature::iter() {
            let alias = also(feature.alias(), "; also called ", "");
            write!(f, " {}=true|false (default false{alias})", feature.name())?;
        }
        Ok(())
    }
}

/// A second name with the words around it. Empty without a second name.
fn also(alias: Option<&str>, before: &str, after: &str) -> String {
    alias.map_or_else(String::new, |alias| format!("{before}{alias}{after}"))
}

/// Parses a list of switches.
///
/// # Errors
///
/// When a feature is unknown, or a value is missing or neither true nor false.
pub fn switches(text: &str) -> Result<Switches, BadFeature> {
    text.split(',')
        .map(str::trim)
        .filter(|switch| !switch.is_empty())
        .map(switch)
        .collect::<Result<_, _>>()
        .map(Switches)
}

fn switch(text: &str) -> Result<(Feature, bool), BadFeature> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (text, None),
    };
    let feature = Feature::named(name).ok_or_else(|| BadFeature::Unknown(name.to_owned()))?;
    let value = value.ok_or_else(|| BadFeature::NoValue(name.to_owned()))?;
    match value {
        // The spellings of true and false that Go, and so every program of Kubernetes, accepts.
        "true" | "True" | "TRUE" | "t" | "T" | "1" => Ok((feature, true)),
        "false" | "False" | "FALSE" | "f" | "F" | "0" => Ok((feature, false)),
        _ => Err(BadFeature::BadValue {
            name: name.to_owned(),
            value: value.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(lists: &[&str]) -> Result<Features, String> {
        let lists: Result<Vec<_>, _> = lists.iter().map(|list| switches(list)).collect();
        let features = lists.and_then(|lists| Features::from_switches(&lists));
        features.map_err(|error| error.to_string())
    }

    #[test]
    fn everything_is_off_unless_it_is_switched_on() {
        for nothing in [&[] as &[&str], &[""], &[" , "]] {
            assert_eq!(features(nothing), Ok(Features::default()));
        }
    }

    #[test]
    fn either_name_switches_and_values_are_read_as_kubernetes_reads_them() {
        for (list, on_delete) in [
            ("QuorumAwareUpdatesWithOnDelete=true", true),
            ("UpdateStrategyOnDelete=true", true),
            (" UpdateStrategyOnDelete = T ,", true),
            ("QuorumAwareUpdatesWithOnDelete=1", true),
            ("QuorumAwareUpdatesWithOnDelete=False", false),
            ("QuorumAwareUpdatesWithOnDelete=0", false),
        ] {
            assert_eq!(
                features(&[list]),
                Ok(Features {
                    on_delete,
                    etcd_members: false
                }),
                "{list}"
            );
        }
    }

    #[test]
    fn a_list_that_cannot_be_meant_is_refused_with_the_features_there_are() {
        for (list, said) in [
            ("OnDelete=true", r#"there is no feature "OnDelete""#),
            ("quorumawareupdateswithondelete=true", "there is no feature"),
            ("=true", r#"there is no feature """#),
            (
                "UpdateStrategyOnDelete",
                "given as UpdateStrategyOnDelete=true or",
            ),
            ("UpdateStrategyOnDelete=", r#"can be true or false, not """#),
            (
                "UpdateStrategyOnDelete=yes",
                r#"can be true or false, not "yes""#,
            ),
        ] {
            let error = features(&[list]).unwrap_err();
            assert!(error.contains(said), "{error}");
            assert!(
                error.contains("QuorumAwareUpdatesWithOnDelete=true|false"),
                "{error}"
            );
        }
    }

    #[test]
    fn both_names_may_be_given_when_they_agree() {
        let both = "QuorumAwareUpdatesWithOnDelete=true,UpdateStrategyOnDelete=true";
        assert_eq!(
            features(&[both]),
            Ok(Features {
                on_delete: true,
                etcd_members: false
            })
        );
        for differing in [
            &["QuorumAwareUpdatesWithOnDelete=true,UpdateStrategyOnDelete=false"] as &[&str],
            &[
                "QuorumAwareUpdatesWithOnDelete=false",
                "UpdateStrategyOnDelete=true",
            ],
        ] {
            let error = features(differing).unwrap_err();
            assert!(error.contains("both true and false"), "{error}");
        }
    }

    #[test]
    fn every_feature_is_shown_by_its_first_name() {
        let shown: Vec<_> = Features {
            on_delete: true,
            etcd_members: false,
        }
        .all()
        .collect();
        assert_eq!(
            shown,
            [
                ("QuorumAwareUpdatesWithOnDelete", true),
                ("EtcdMembers", false)
            ]
        );
    }

    #[test]
    fn a_feature_without_a_second_name_is_switched_by_its_name() {
        assert!(features(&["EtcdMembers=true"]).unwrap().etcd_members);
        let error = features(&["EtcdMembers=true,EtcdMembers=false"]).unwrap_err();
        assert!(
            error.starts_with("EtcdMembers is said to be both"),
            "{error}"
        );
    }
}
