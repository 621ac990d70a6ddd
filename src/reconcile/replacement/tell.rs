//! The report on replacements and on pods that are kept from starting: the condition
//! `DataProtected`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use tracing::info;

use super::gather::Gathered;
use crate::api::names::REPLACE;
use crate::api::{QuorumDisruptionBudgetStatus, condition};
use crate::ledger::LedgerError;
use crate::plan::replacement::{Mode, Next, Refusal, Step};
use crate::quorum::{PodName, VolumeFinding};
use crate::reconcile::Run;
use crate::reconcile::condition::put;
use crate::reconcile::look::Look;

/// Writes the condition if its status, its reason or its words changed. A cluster in which no
/// member was ever to be replaced has no such condition.
pub(super) async fn show(
    run: &Run,
    look: &Look,
    gathered: &Gathered,
    next: &Next,
) -> Result<(), LedgerError> {
    // A step needs the page as it is.
    if matches!(next, Next::Act(_)) {
        return Ok(());
    }
    write(run, look, said(look, gathered, next)).await
}

/// Writes the condition after `step` of a replacement had no effect, for the reason `because`. It
/// is tried again.
pub(super) async fn show_failed(
    run: &Run,
    look: &Look,
    step: &Step,
    because: &str,
) -> Result<(), LedgerError> {
    let text = format!("tried again: {step}. It failed: {because}.");
    write(run, look, ("False", "Replacing", text)).await
}

async fn write(
    run: &Run,
    look: &Look,
    (is, reason, message): (&'static str, &'static str, String),
) -> Result<(), LedgerError> {
    let cluster = &look.page.cluster;
    // Whoever is judging a disruption would lose the race for the ledger to this write.
    if run.ledger().turnstile().pending(cluster) > 0 {
        return Ok(());
    }
    let status = look.page.status();
    if !is_due(status, (is, reason, &message)) {
        return Ok(());
    }
    let is_news = status
        .and_then(shown)
        .is_none_or(|shown| shown.reason != reason);
    let condition = Condition {
        type_: condition::DATA_PROTECTED.into(),
        status: is.into(),
        reason: reason.into(),
        message: message.clone(),
        last_transition_time: Time(run.clock.now()),
        observed_generation: look.page.budget().metadata.generation,
    };
    let written = run.ledger().write_status(&look.page, |status| {
        put(&mut status.conditions, condition);
    });
    written.await?;
    if is_news {
        info!(%cluster, reason, message, "data of members");
    }
    Ok(())
}

fn shown(status: &QuorumDisruptionBudgetStatus) -> Option<&Condition> {
    let mut conditions = status.conditions.iter();
    conditions.find(|c| c.type_ == condition::DATA_PROTECTED)
}

/// Whether the condition has to be written. A cluster in which no member was ever to be replaced
/// needs none.
fn is_due(
    status: Option<&QuorumDisruptionBudgetStatus>,
    (is, reason, message): (&str, &str, &str),
) -> bool {
    match status.and_then(shown) {
        Some(shown) => shown.status != is || shown.reason != reason || shown.message != message,
        None => is != "True" || status.is_some_and(|status| !status.replacements.is_empty()),
    }
}

fn said(look: &Look, gathered: &Gathered, next: &Next) -> (&'static str, &'static str, String) {
    let facts = &gathered.facts;
    let told = |(pod, _): &(PodName, _)| match facts.claims.get(pod).map(|c| &c.volume) {
        Some(VolumeFinding::Wrong { difference, .. }) => format!("{pod} (it has {difference})"),
        Some(VolumeFinding::Unknown | VolumeFinding::AsRecorded) | None => pod.to_string(),
    };
    let held: Vec<String> = gathered.held.iter().map(told).collect();
    let mut more = String::new();
    if !held.is_empty() {
        more = format!(
            " Kept from starting under an identity whose data they do not have: {}. They start when \
             their members are replaced, when they have their volumes again, or all of them as a new \
             cluster by quorumgate.io/intent: bootstrap.",
            held.join(", ")
        );
    }
    match next {
        Next::Wait { pod, because, .. } if facts.record.is_some() => (
            "False",
            "Replacing",
            format!("{pod} is being replaced: {because}.{more}"),
        ),
        // What nobody is to mend is said only where pods wait for it.
        Next::Wait {
            pod,
            proof,
            because,
        } if facts.mode != Mode::Off || !held.is_empty() => {
            let why = proof
                .as_ref()
                .map_or_else(|| "somebody asked for it".to_owned(), ToString::to_string);
            let text = format!("{pod} is to be replaced: {why}. It waits: {because}.{more}");
            ("False", reason_of(because), text)
        }
        Next::Wait { .. } | Next::Nothing | Next::Act(_) => {
            if let Some(asked) = &gathered.unknown_request {
                let text = format!(
                    "the annotation {REPLACE} asks for the member {asked:?}, and etcd has no member of this id.{more}"
                );
                return ("False", "NoSuchMember", text);
            }
            if !look.snapshot.accused.is_empty() && facts.mode != Mode::Off {
                let data = facts.data;
                let text = format!(
                    "no member is replaced: {}.{more}",
                    Refusal::NotShown { data }
                );
                return ("False", "NotShown", text);
            }
            if !held.is_empty() {
                return ("False", "KeptFromStarting", more.trim().to_owned());
            }
            if let Some(why) = &gathered.cannot_join {
                let text = format!(
                    "a member without data cannot be kept from starting a cluster of its own, because initial-cluster-state cannot be set: {why}"
                );
                return ("False", "StateNotSet", text);
            }
            let members = look.snapshot.members.len();
            (
                "True",
                "NothingToReplace",
                format!("none of {members} members has to be replaced"),
            )
        }
    }
}

/// The reason of the condition while a member that is to be replaced waits.
fn reason_of(because: &Refusal) -> &'static str {
    match because {
        Refusal::Hindered(_) => "Hindered",
        Refusal::Off => "Off",
        Refusal::NotRequested => "NotRequested",
        Refusal::Owner => "Owner",
        Refusal::NoSuchMember => "NoSuchMember",
        Refusal::NoList => "NoList",
        Refusal::TooFewVoters { .. } => "TooFewVoters",
        Refusal::NotAllServing { .. } => "NotAllServing",
        Refusal::Learner { .. } => "Learner",
        Refusal::Corrupt { .. } => "Corrupt",
        Refusal::OtherDiffers { .. } => "OtherDiffers",
        Refusal::Mistaken { .. } => "Mistaken",
        Refusal::NotShown { .. } => "NotShown",
        Refusal::VersionUnknown => "VersionUnknown",
        Refusal::NoTrace => "NoTrace",
        Refusal::PeerUrlsUnknown => "PeerURLsUnknown",
        Refusal::NoHeir => "NoHeir",
        Refusal::Recreation | Refusal::Joining { .. } => "Replacing",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(replacements: &Value, conditions: &Value) -> QuorumDisruptionBudgetStatus {
        let status = json!({"replacements": replacements, "conditions": conditions});
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn a_cluster_has_the_condition_once_a_member_was_to_be_replaced() {
        let (good, bad) = (
            ("True", "NothingToReplace", "none"),
            ("False", "NotAllServing", "some"),
        );
        let fresh = status(&json!([]), &json!([]));
        assert!(!is_due(None, good));
        assert!(!is_due(Some(&fresh), good));
        assert!(is_due(Some(&fresh), bad));
        // A replacement in which nothing was waited for.
        let replaced = json!([{
            "member": "etcd-0", "reason": "volume-lost",
            "started": "2026-01-01T00:00:00Z", "finished": "2026-01-01T00:00:09Z",
        }]);
        assert!(is_due(Some(&status(&replaced, &json!([]))), good));
    }

    #[test]
    fn a_condition_is_written_when_its_status_reason_or_words_change() {
        let shown = json!([{
            "type": condition::DATA_PROTECTED, "status": "False", "reason": "Replacing",
            "message": "etcd-0", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        let status = status(&json!([]), &shown);
        let is_outdated = |is, reason, words| is_due(Some(&status), (is, reason, words));
        assert!(!is_outdated("False", "Replacing", "etcd-0"));
        assert!(is_outdated("False", "Replacing", "etcd-1"));
        assert!(is_outdated("False", "Owner", "etcd-0"));
        assert!(is_outdated("True", "Replacing", "etcd-0"));
    }
}
