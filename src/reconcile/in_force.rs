//! Whether the gate is in force in a namespace: whether the API server asks it. The namespace's
//! label and the two webhook configurations decide that.

use std::sync::LazyLock;

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhookConfiguration, RuleWithOperations,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::ResourceExt as _;
use kube::core::{Selector, SelectorExt as _};
use serde_json::Value;

use crate::api::call_path::{self, split};
use crate::api::names;

/// Whether the webhooks select a namespace.
pub(super) fn is_gated(namespace: &Namespace) -> bool {
    namespace.labels().get(names::GATED).map(String::as_str) == Some(names::TRUE)
}

/// Why the API server does not ask the gate.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub(super) enum OutOfForce {
    /// The namespace does not exist, or has no label.
    #[display("the namespace has no label {}=true", names::GATED)]
    NotGated,
    /// A webhook configuration is missing.
    #[display("the gate's {_0} is missing")]
    NoConfiguration(&'static str),
    /// A configuration has no webhook that asks on this path and refuses if nobody answers.
    #[display("no webhook asks the gate on {_0} with failurePolicy Fail for what it guards")]
    NoHook(&'static str),
    /// The webhook on this path does not select the namespace.
    #[display("the webhook on {_0} does not select the namespace")]
    NotSelected(&'static str),
    /// The webhook on this path has a condition that the gate does not ship. Nobody can tell which
    /// requests pass it.
    #[display(
        "the webhook on {path} has a matchCondition that this version of the gate does not know ({condition}), so requests may pass without asking it; apply the webhook configurations of this version"
    )]
    Narrowed {
        /// The path of the webhook.
        path: &'static str,
        /// The name of the condition.
        condition: String,
    },
}

impl OutOfForce {
    /// The reason in the spelling of conditions.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::NotGated => "NamespaceNotGated",
            Self::NoConfiguration(_) => "NoWebhookConfiguration",
            Self::NoHook(_) => "WebhookMissing",
            Self::NotSelected(_) => "NamespaceNotSelected",
            Self::Narrowed { .. } => "WebhookNarrowed",
        }
    }
}

/// The requests that the gate has to be asked about, so that the promise holds.
struct Needed {
    path: &'static str,
    operation: &'static str,
    group: &'static str,
    resource: &'static str,
}

const fn needed(
    path: &'static str,
    operation: &'static str,
    group: &'static str,
    resource: &'static str,
) -> Needed {
    Needed {
        path,
        operation,
        group,
        resource,
    }
}

const VALIDATING: [Needed; 10] = [
    needed("/validate/pods", "DELETE", "", "pods"),
    needed("/validate/evictions", "CREATE", "", "pods/eviction"),
    needed("/validate/restarts", "UPDATE", "", "pods"),
    needed("/validate/restarts", "UPDATE", "", "pods/resize"),
    needed("/validate/statefulsets", "DELETE", "apps", "statefulsets"),
    needed("/validate/statefulsets", "UPDATE", "apps", "statefulsets"),
    needed(
        "/validate/statefulsets",
        "UPDATE",
        "apps",
        "statefulsets/scale",
    ),
    needed("/validate/claims", "DELETE", "", "persistentvolumeclaims"),
    needed("/validate/claims", "UPDATE", "", "persistentvolumeclaims"),
    needed(
        "/validate/claims",
        "UPDATE",
        "",
        "persistentvolumeclaims/status",
    ),
];

const MUTATING: [Needed; 1] = [needed("/mutate/evictions", "CREATE", "", "pods/eviction")];

/// The fields of a webhook, of either configuration, that decide whether the gate is in force.
struct Hook<'a> {
    client: &'a WebhookClientConfig,
    failure_policy: Option<&'a str>,
    rules: &'a [RuleWithOperations],
    namespaces: Option<&'a LabelSelector>,
    objects: Option<&'a LabelSelector>,
    conditions: &'a [MatchCondition],
}

/// The webhooks of a configuration. The two kinds have the same fields, and no type in common.
macro_rules! hooks {
    ($configuration:ident) => {{
        let hooks = $configuration.webhooks.iter().flatten();
        let hooks = hooks.map(|hook| Hook {
            client: &hook.client_config,
            failure_policy: hook.failure_policy.as_deref(),
            rules: hook.rules.as_deref().unwrap_or_default(),
            namespaces: hook.namespace_selector.as_ref(),
            objects: hook.object_selector.as_ref(),
            conditions: hook.match_conditions.as_deref().unwrap_or_default(),
        });
        hooks.collect::<Vec<_>>()
    }};
}

/// The conditions with which the webhooks are shipped, by path and expression. Any other condition
/// may keep the API server from asking.
static SHIPPED: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let manifest = include_str!("../../manifests/base/webhooks.yaml");
    let documents: Vec<Value> = serde_saphyr::from_multiple(manifest).unwrap_or_default();
    let hooks = documents.iter().filter_map(|one| {
        let kind = one.get("kind")?.as_str()?;
        let hooks = one.get("webhooks")?.as_array()?.iter();
        Some(hooks.map(move |hook| (kind, hook)))
    });
    let conditions = hooks.flatten().filter_map(|(kind, hook)| {
        let name = hook.get("name")?.as_str()?;
        let path = if kind.starts_with("Validating") {
            call_path::validating(name)
        } else {
            call_path::mutating(name)
        };
        let conditions = hook.get("matchConditions")?.as_array()?.iter();
        Some(conditions.map(move |condition| (path.clone(), condition)))
    });
    conditions
        .flatten()
        .filter_map(|(path, condition)| {
            let expression = condition.get("expression")?.as_str()?;
            Some((path, expression.to_owned()))
        })
        .collect()
});

/// Whether two expressions differ in nothing but line breaks and indentation.
fn same(expression: &str, other: &str) -> bool {
    let words = expression.split_ascii_whitespace();
    words.eq(other.split_ascii_whitespace())
}

impl Hook<'_> {
    /// The path without its word.
    fn path(&self) -> &str {
        let service = self.client.service.as_ref();
        let of_url = || {
            let url = self.client.url.as_deref()?;
            let (_, rest) = url.split_once("://")?;
            let at = rest.find('/')?;
            rest.get(at..)
        };
        let path = service.and_then(|s| s.path.as_deref()).or_else(of_url);
        let path = path.map_or("", |path| path.split('?').next().unwrap_or(path));
        split(path).0
    }

    fn covers(&self, needed: &Needed) -> bool {
        let fails_closed = self.failure_policy.is_none_or(|policy| policy == "Fail");
        let says = |list: Option<&Vec<String>>, what: &str| {
            list.is_some_and(|list| list.iter().any(|item| item == what || item == "*"))
        };
        fails_closed
            && !self.picks_objects()
            && self.path() == needed.path
            && self.rules.iter().any(|rule| {
                says(rule.api_groups.as_ref(), needed.group)
                    && says(rule.api_versions.as_ref(), "v1")
                    && says(rule.operations.as_ref(), needed.operation)
                    && says(rule.resources.as_ref(), needed.resource)
                    && rule.scope.as_deref() != Some("Cluster")
            })
    }

    /// The name of a condition with which this webhook is not shipped, if it has one.
    fn narrowed_by(&self) -> Option<String> {
        let mut unknown = self.conditions.iter();
        let unknown = unknown.find(|condition| {
            !SHIPPED.iter().any(|(path, expression)| {
                path == self.path() && same(expression, &condition.expression)
            })
        });
        unknown.map(|condition| condition.name.clone())
    }

    /// Whether labels of the object decide if it asks. An Eviction does not have its pod's labels,
    /// and the labels of a pod can be changed.
    fn picks_objects(&self) -> bool {
        self.objects.is_some_and(|objects| {
            objects.match_labels.as_ref().is_some_and(|l| !l.is_empty())
                || objects
                    .match_expressions
                    .as_ref()
                    .is_some_and(|e| !e.is_empty())
        })
    }

    fn selects(&self, namespace: &Namespace) -> bool {
        let Some(selector) = self.namespaces else {
            return true;
        };
        Selector::try_from(selector.clone())
            .is_ok_and(|selector| selector.matches(namespace.labels()))
    }
}

fn check(
    hooks: &[Hook<'_>],
    needed: &[Needed],
    namespace: Option<&Namespace>,
) -> Result<(), OutOfForce> {
    for needed in needed {
        let path = needed.path;
        let covering: Vec<_> = hooks.iter().filter(|hook| hook.covers(needed)).collect();
        if covering.is_empty() {
            return Err(OutOfForce::NoHook(path));
        }
        let selecting =
            |hook: &&Hook<'_>| namespace.is_none_or(|namespace| hook.selects(namespace));
        let mut selecting = covering.into_iter().filter(selecting).peekable();
        let Some(first) = selecting.peek() else {
            return Err(OutOfForce::NotSelected(path));
        };
        if let Some(condition) = first.narrowed_by()
            && selecting.all(|hook| hook.narrowed_by().is_some())
        {
            return Err(OutOfForce::Narrowed { path, condition });
        }
    }
    Ok(())
}

/// Whether the validating configuration asks all that it must, in `namespace` if that is given.
pub(super) fn validating(
    configuration: &ValidatingWebhookConfiguration,
    namespace: Option<&Namespace>,
) -> Result<(), OutOfForce> {
    check(&hooks!(configuration), &VALIDATING, namespace)
}

/// Whether the mutating configuration asks all that it must, in `namespace` if that is given.
pub(super) fn mutating(
    configuration: &MutatingWebhookConfiguration,
    namespace: Option<&Namespace>,
) -> Result<(), OutOfForce> {
    check(&hooks!(configuration), &MUTATING, namespace)
}

/// The objects that decide whether the API server asks the gate about a namespace.
pub(super) struct WebhookSetup<'a> {
    pub(super) namespace: Option<&'a Namespace>,
    pub(super) validating: Option<&'a ValidatingWebhookConfiguration>,
    pub(super) mutating: Option<&'a MutatingWebhookConfiguration>,
}

impl WebhookSetup<'_> {
    /// The identity of the webhook configurations by which the gate is in force: UIDs and
    /// generations. A recreated configuration has another identity.
    pub(super) fn in_force_by(&self) -> Result<String, OutOfForce> {
        let gated = |namespace: &&Namespace| is_gated(namespace);
        let namespace = self.namespace.filter(gated).ok_or(OutOfForce::NotGated)?;
        let by = self.validating.ok_or(OutOfForce::NoConfiguration(
            "ValidatingWebhookConfiguration",
        ))?;
        let and = self
            .mutating
            .ok_or(OutOfForce::NoConfiguration("MutatingWebhookConfiguration"))?;
        validating(by, Some(namespace))?;
        mutating(and, Some(namespace))?;
        Ok(identity(by, and).unwrap_or_default())
    }
}

/// The identity of two webhook configurations. It changes when one is recreated or changed.
fn identity(
    validating: &ValidatingWebhookConfiguration,
    mutating: &MutatingWebhookConfiguration,
) -> Option<String> {
    let one = |of: &ObjectMeta| {
        let uid = of.uid.as_deref()?;
        // The generation grows with every change of the webhooks.
        let generation = of.generation.map(|generation| format!("@{generation}"));
        Some(format!("{uid}{}", generation.unwrap_or_default()))
    };
    let (of, and) = (one(&validating.metadata)?, one(&mutating.metadata)?);
    Some(format!("{of},{and}"))
}

/// The identity of two webhook configurations that ask all that they must, in whatever namespace.
/// `None` if they do not.
pub(super) fn identity_in_force(
    by: &ValidatingWebhookConfiguration,
    and: &MutatingWebhookConfiguration,
) -> Option<String> {
    validating(by, None).ok()?;
    mutating(and, None).ok()?;
    identity(by, and)
}

#[cfg(test)]
mod tests;
