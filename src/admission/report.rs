//! What is left of every answer: a log line, a metric, and an Event on the object where it was refused.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;

use crate::judge::{Asker, DryRun};
use crate::telemetry::events::{Notice, Notices, Severity};
use crate::telemetry::metrics::{Metrics, Phase};

use super::hook::Hook;
use super::objection::{Code, Objection};
use super::ruling::Ruling;

/// The object a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subject {
    /// Its API group; empty for the core group.
    pub group: &'static str,
    /// Its plural name.
    pub resource: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its incarnation, where the request showed it.
    pub uid: Option<String>,
}

impl Subject {
    /// A pod.
    pub(super) fn pod(namespace: &str, name: &str, uid: Option<&str>) -> Self {
        Self {
            group: "",
            resource: "pods",
            kind: "Pod",
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.map(str::to_owned),
        }
    }

    /// A StatefulSet.
    pub(super) fn stateful_set(namespace: &str, name: &str, uid: Option<&str>) -> Self {
        Self {
            group: "apps",
            resource: "statefulsets",
            kind: "StatefulSet",
            ..Self::pod(namespace, name, uid)
        }
    }

    fn reference(&self) -> ObjectReference {
        let version = if self.group.is_empty() {
            "v1"
        } else {
            "apps/v1"
        };
        ObjectReference {
            api_version: Some(version.to_owned()),
            kind: Some(self.kind.to_owned()),
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            uid: self.uid.clone(),
            ..ObjectReference::default()
        }
    }
}

/// One answered request.
#[derive(Debug)]
pub(super) struct Report<'a> {
    /// The webhook.
    pub hook: Hook,
    /// The review's uid.
    pub review: &'a str,
    /// The object.
    pub subject: &'a Subject,
    /// Who asked.
    pub asker: &'a Asker,
    /// Whether it was a dry run, which leaves no Event.
    pub dry_run: DryRun,
    /// The decision.
    pub ruling: &'a Ruling,
    /// From the request's arrival.
    pub took: Duration,
}

impl Report<'_> {
    /// Leaves the log line, the metric and the Event.
    pub(super) fn file(&self, metrics: &Metrics, notices: &dyn Notices) {
        metrics.decided(
            self.hook.slug(),
            self.ruling.verdict(),
            self.ruling.reason(),
        );
        metrics.took(Phase::Total, self.took);
        self.log();
        if let (Some(objection), DryRun::No) = (self.ruling.objection(), self.dry_run)
            && objection.code != Code::NotFound
        {
            notices.notify(self.notice(objection));
        }
    }

    fn log(&self) {
        let cluster = self.ruling.cluster.as_ref().map(tracing::field::display);
        let objection = self.ruling.objection();
        let message = objection.map_or("", |objection| objection.message.as_str());
        tracing::info!(
            hook = self.hook.slug(),
            verdict = self.ruling.verdict(),
            reason = self.ruling.reason(),
            namespace = self.subject.namespace,
            name = self.subject.name,
            uid = self.subject.uid,
            cluster,
            headroom = self.ruling.headroom,
            user = self.asker.name,
            dry_run = self.dry_run == DryRun::Yes,
            review = self.review,
            milliseconds = self.took.as_secs_f64() * 1000.0,
            detail = message,
            "decided"
        );
    }

    fn notice(&self, objection: &Objection) -> Notice {
        Notice {
            regarding: self.subject.reference(),
            severity: Severity::Warning,
            reason: camel_case(objection.slug),
            action: match self.hook {
                Hook::Pods => "Delete",
                Hook::Evictions | Hook::MutateEvictions => "Evict",
                Hook::StatefulSets | Hook::MutateStatefulSets => "Change",
                Hook::Restarts => "Restart",
                Hook::MutatePods => "Create",
            },
            note: match &self.ruling.outcome {
                Ok(_) => format!(
                    "allowed to {} by enforcement: Warn, otherwise refused: {}",
                    self.asker.name, objection.message
                ),
                Err(_) => format!("refused to {}: {}", self.asker.name, objection.message),
            },
        }
    }
}

fn camel_case(slug: &str) -> String {
    slug.split('-')
        .flat_map(|word| {
            let mut letters = word.chars();
            letters
                .next()
                .map(|first| first.to_ascii_uppercase())
                .into_iter()
                .chain(letters)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_an_event_is_the_slug_in_camel_case() {
        assert_eq!(camel_case("no-headroom"), "NoHeadroom");
        assert_eq!(camel_case("at-most-once"), "AtMostOnce");
    }
}
