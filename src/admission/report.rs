//! The traces of an answer: a log line, a metric, and an Event on an object that was refused.

use std::time::Duration;

use strum::{IntoEnumIterator as _, VariantNames as _};

use super::hook::Hook;
use super::malformed::Problem;
use super::outcome::HandledReview;
use super::rejection::{Code, Rejection};
use crate::judge::DryRun;
use crate::quorum::{Reason, Waiver};
use crate::telemetry::events::{Notice, Notices, Severity};
use crate::telemetry::metrics::{Metrics, Phase};

/// The verdict on what would be refused, and is only reported.
const WARN: &str = "warn";

/// Leaves the log line, the metric and the Event of a request that was answered in the time `took`.
/// A dry run leaves no Event.
pub(super) fn report(
    hook: Hook,
    answered: &HandledReview,
    rejection: Option<&Rejection>,
    took: Duration,
    metrics: &Metrics,
    notices: &dyn Notices,
) {
    let verdict = verdict(answered, rejection);
    metrics.decided(hook.slug(), verdict, answered.outcome.reason());
    metrics.took(Phase::Total, took);
    log(hook, answered, rejection, took);
    if let (Some(rejection), DryRun::No) = (rejection, answered.about.dry_run)
        && rejection.code != Code::NotFound
    {
        notices.notify(notice(hook, answered, rejection));
    }
}

/// Shows at zero what has not happened yet: refusals of deletes and evictions, and requests that
/// get no decision.
pub(super) fn expect(metrics: &Metrics) {
    for hook in [Hook::Pods, Hook::Evictions] {
        for reason in Reason::VARIANTS {
            for verdict in [Code::Wait.into(), Code::Deny.into(), WARN] {
                metrics.expect_decision(hook.slug(), verdict, reason);
            }
        }
    }
    for hook in Hook::iter() {
        for problem in Problem::VARIANTS {
            metrics.expect_rejection(hook.slug(), problem);
        }
    }
}

/// `allow`, `warn` (allowed, and otherwise refused), `wait`, `deny` or `not-found`.
pub(super) fn verdict(answered: &HandledReview, rejection: Option<&Rejection>) -> &'static str {
    match rejection {
        None => "allow",
        Some(_) if answered.outcome.is_allowed() => WARN,
        Some(rejection) => rejection.code.into(),
    }
}

fn log(hook: Hook, answered: &HandledReview, rejection: Option<&Rejection>, took: Duration) {
    let answer = answered.outcome.answer();
    let cluster = answer.and_then(|answer| answer.cluster.as_ref());
    let message = rejection.map_or("", |rejection| rejection.message.as_str());
    macro_rules! decided {
        ($level:ident) => {
            tracing::$level!(
                hook = hook.slug(),
                verdict = verdict(answered, rejection),
                reason = answered.outcome.reason(),
                namespace = answered.about.subject.namespace,
                name = answered.about.subject.name,
                uid = answered.about.subject.uid,
                cluster = cluster.map(tracing::field::display),
                headroom = answer.and_then(|answer| answer.headroom),
                user = answered.about.asker.name,
                dry_run = answered.about.dry_run == DryRun::Yes,
                review = answered.about.review,
                milliseconds = took.as_secs_f64() * 1000.0,
                detail = message,
                "decided"
            )
        };
    }
    // Of pods that are nobody's there may be thousands in a second.
    if answered.outcome.reason() == Waiver::Foreign.slug() {
        decided!(debug);
    } else {
        decided!(info);
    }
}

fn notice(hook: Hook, answered: &HandledReview, rejection: &Rejection) -> Notice {
    let (asker, message) = (&answered.about.asker.name, &rejection.message);
    Notice {
        regarding: answered.about.subject.reference(),
        severity: Severity::Warning,
        reason: rejection.slug.into(),
        action: match hook {
            Hook::Pods | Hook::Claims | Hook::Volumes => "Delete",
            Hook::Evictions | Hook::MutateEvictions => "Evict",
            Hook::StatefulSets | Hook::MutateStatefulSets => "Change",
            Hook::Restarts => "Restart",
            Hook::MutatePods => "Create",
        },
        note: if answered.outcome.is_allowed() {
            format!("allowed to {asker} by enforcement: Warn, otherwise refused: {message}")
        } else {
            format!("refused to {asker}: {message}")
        },
    }
}
