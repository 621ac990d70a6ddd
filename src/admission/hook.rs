//! The webhooks: the path of each, and the requests that it answers.

use serde::Deserialize;

use super::checked::null_is_default;

/// A resource of the API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Resource {
    /// The API group; empty for the core group.
    #[serde(default, deserialize_with = "null_is_default")]
    pub group: String,
    /// The plural name.
    pub resource: String,
}

/// An operation on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// The object is created.
    Create,
    /// The object is changed.
    Update,
    /// The object is deleted.
    Delete,
    /// A client connects to the object.
    Connect,
}

/// A webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::EnumIter, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Hook {
    /// May this pod be deleted, or be called failed?
    Pods,
    /// May this pod be evicted?
    Evictions,
    /// May this StatefulSet be deleted, or scaled in?
    #[strum(serialize = "statefulsets")]
    StatefulSets,
    /// May this claim be deleted, or lose its protection?
    Claims,
    /// May this volume be deleted, or taken from its claim?
    Volumes,
    /// May this pod be changed while it runs?
    Restarts,
    /// Ties an eviction to the incarnation that is judged.
    MutateEvictions,
    /// Keeps the update strategy of enrolled StatefulSets.
    #[strum(serialize = "mutate-statefulsets")]
    MutateStatefulSets,
    /// Tells cluster-autoscaler to leave the members alone.
    MutatePods,
}

impl Hook {
    /// Whether the webhook may change the request.
    pub(super) fn changes(self) -> bool {
        matches!(
            self,
            Self::MutateEvictions | Self::MutateStatefulSets | Self::MutatePods
        )
    }

    /// The path to which the API server posts the reviews.
    pub fn path(self) -> &'static str {
        match self {
            Self::Pods => "/validate/pods",
            Self::Evictions => "/validate/evictions",
            Self::StatefulSets => "/validate/statefulsets",
            Self::Claims => "/validate/claims",
            Self::Volumes => "/validate/volumes",
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

    /// Whether this webhook answers such a review. Others arrive only by a wrong webhook
    /// configuration.
    pub fn is_for(self, resource: &Resource, subresource: &str, operation: Operation) -> bool {
        let asked = (
            resource.group.as_str(),
            resource.resource.as_str(),
            subresource,
            operation,
        );
        match self {
            Self::Pods => matches!(
                asked,
                ("", "pods", "", Operation::Delete) | ("", "pods", "status", Operation::Update)
            ),
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
            Self::Claims => is_change(asked, "persistentvolumeclaims"),
            Self::Volumes => is_change(asked, "persistentvolumes"),
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

    /// The requests that [`Self::is_for`] accepts, in words.
    pub fn expects(self) -> &'static str {
        match self {
            Self::Pods => "DELETE of pods, or UPDATE of pods/status",
            Self::Evictions | Self::MutateEvictions => "CREATE of pods/eviction",
            Self::StatefulSets => {
                "DELETE or UPDATE of statefulsets.apps, or UPDATE of statefulsets.apps/scale"
            }
            Self::Claims => {
                "DELETE or UPDATE of persistentvolumeclaims, or UPDATE of persistentvolumeclaims/status"
            }
            Self::Volumes => {
                "DELETE or UPDATE of persistentvolumes, or UPDATE of persistentvolumes/status"
            }
            Self::Restarts => "UPDATE of pods or of pods/resize",
            Self::MutateStatefulSets => "CREATE or UPDATE of statefulsets.apps",
            Self::MutatePods => "CREATE of pods",
        }
    }
}

/// Whether the request deletes or updates an object of this resource of the core group, or updates
/// its status.
fn is_change(
    (group, resource, subresource, operation): (&str, &str, &str, Operation),
    of: &str,
) -> bool {
    let changes = matches!(
        (subresource, operation),
        ("", Operation::Delete | Operation::Update) | ("status", Operation::Update)
    );
    (group, resource) == ("", of) && changes
}
