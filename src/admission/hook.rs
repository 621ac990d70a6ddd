//! The webhooks: their paths, and the requests each of them is for.

use super::review::{Operation, Resource};

/// One webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::EnumIter, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Hook {
    /// May this pod be deleted?
    Pods,
    /// May this pod be evicted?
    Evictions,
    /// May this StatefulSet be deleted, or scaled in?
    #[strum(serialize = "statefulsets")]
    StatefulSets,
    /// May this pod be changed while it runs?
    Restarts,
    /// Ties an eviction to the incarnation that is judged.
    MutateEvictions,
    /// Keeps the update strategy of enrolled StatefulSets.
    #[strum(serialize = "mutate-statefulsets")]
    MutateStatefulSets,
    /// Tells cluster-autoscaler to leave members to those who ask.
    MutatePods,
}

impl Hook {
    /// Where the API server posts its reviews.
    pub fn path(self) -> &'static str {
        match self {
            Self::Pods => "/validate/pods",
            Self::Evictions => "/validate/evictions",
            Self::StatefulSets => "/validate/statefulsets",
            Self::Restarts => "/validate/restarts",
            Self::MutateEvictions => "/mutate/evictions",
            Self::MutateStatefulSets => "/mutate/statefulsets",
            Self::MutatePods => "/mutate/pods",
        }
    }

    /// The word for logs and metrics.
    pub fn slug(self) -> &'static str {
        self.into()
    }

    /// Whether a review is one this webhook answers. Anything else reached it by a wrong webhook configuration.
    pub fn is_for(self, resource: &Resource, subresource: &str, operation: Operation) -> bool {
        let asked = (
            resource.group.as_str(),
            resource.resource.as_str(),
            subresource,
            operation,
        );
        match self {
            Self::Pods => asked == ("", "pods", "", Operation::Delete),
            Self::Evictions | Self::MutateEvictions => {
                asked == ("", "pods", "eviction", Operation::Create)
            }
            Self::StatefulSets => matches!(
                asked,
                (
                    "apps",
                    "statefulsets",
                    "",
                    Operation::Delete | Operation::Update
                ) | ("apps", "statefulsets", "scale", Operation::Update)
            ),
            Self::Restarts => {
                matches!(asked, ("", "pods", "" | "resize", Operation::Update))
            }
            Self::MutateStatefulSets => matches!(
                asked,
                (
                    "apps",
                    "statefulsets",
                    "",
                    Operation::Create | Operation::Update
                )
            ),
            Self::MutatePods => asked == ("", "pods", "", Operation::Create),
        }
    }

    /// What [`Self::is_for`] accepts, in words.
    pub fn expects(self) -> &'static str {
        match self {
            Self::Pods => "DELETE of pods",
            Self::Evictions | Self::MutateEvictions => "CREATE of pods/eviction",
            Self::StatefulSets => {
                "DELETE or UPDATE of statefulsets.apps, or UPDATE of statefulsets.apps/scale"
            }
            Self::Restarts => "UPDATE of pods or of pods/resize",
            Self::MutateStatefulSets => "CREATE or UPDATE of statefulsets.apps",
            Self::MutatePods => "CREATE of pods",
        }
    }
}
