//! The report on replacements and on pods that are kept from starting: the condition
//! `DataProtected`.

use std::collections::BTreeMap;

use kube::Resource as _;
use tracing::info;

use super::gather::Gathered;
use crate::api::names::{IDENTITY, REPLACE};
use crate::api::{QuorumDisruptionBudgetStatus, condition};
use crate::ledger::LedgerError;
use crate::plan::replacement::{ClaimFacts, Mode, Next, Refusal, Step};
use crate::quorum::{ClaimState, PodName, VolumeFinding};
use crate::reconcile::Run;
use crate::reconcile::condition::{self as conditions, Said};
use crate::reconcile::look::Look;
use crate::telemetry::events::{Notice, Severity};

/// Records an Event on each pod that waits for the gate's scheduling gate. A repeated Event is
/// written once a minute at most.
pub(super) fn announce_held(run: &Run, look: &Look, gathered: &Gathered) {
    for (pod, _) in &gathered.held {
        let Some(object) = look.world.pod(pod) else {
            continue;
        };
        let volume = gathered.facts.claims.get(pod).map(|claim| &claim.volume);
        let why = match volume {
            Some(VolumeFinding::Wrong { difference, .. }) => format!("it has {difference}"),
            Some(VolumeFinding::Unknown | VolumeFinding::AsRecorded) | None => {
                "the data of its member is not known to be on its volume".to_owned()
            }
        };
        run.events.notify(Notice {
            regarding: object.object_ref(&()),
            severity: Severity::Warning,
            reason: "KeptFromStarting".to_owned(),
            action: "Hold",
            note: format!(
                "the scheduling gate {IDENTITY} holds {pod}, because {why}. {pod} starts when its \
                 member is replaced ({REPLACE} on the budget), when it has its volume again, or \
                 with all others as a new cluster (quorumgate.io/intent: bootstrap)"
            ),
        });
    }
}

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

async fn write(run: &Run, look: &Look, said: Said) -> Result<(), LedgerError> {
    let cluster = &look.page.cluster;
    // Whoever is judging a disruption would lose the race for the ledger to this write.
    if run.ledger().turnstile().pending(cluster) > 0 {
        return Ok(());
    }
    let had_cause = look.page.status().is_some_and(had_cause);
    let kind = condition::DATA_PROTECTED;
    if conditions::write(run, &look.page, kind, &said, had_cause).await? {
        let (_, reason, message) = said;
        info!(%cluster, reason, message, "data of members");
    }
    Ok(())
}

/// Whether a member was ever replaced, also where nothing was waited for.
fn had_cause(status: &QuorumDisruptionBudgetStatus) -> bool {
    !status.replacements.is_empty()
}

fn said(look: &Look, gathered: &Gathered, next: &Next) -> Said {
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
            if let Some(text) = terminating(&facts.claims) {
                return ("False", "ClaimTerminating", text);
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

/// The words about claims that terminate under their members. `None` if none does.
fn terminating(claims: &BTreeMap<PodName, ClaimFacts>) -> Option<String> {
    let terminates = |claim: &ClaimFacts| {
        matches!(
            claim.state,
            ClaimState::Here {
                terminating: true,
                ..
            }
        )
    };
    let pods = claims.iter().filter(|(_, claim)| terminates(claim));
    let pods: Vec<&str> = pods.map(|(pod, _)| pod.as_str()).collect();
    (!pods.is_empty()).then(|| {
        format!(
            "the claims of {} are being deleted, and the data of each goes with its pod. Leave the \
             finalizer kubernetes.io/pvc-protection. Replace one member after another: annotate \
             the budget with {REPLACE} and the member's id.",
            pods.join(", ")
        )
    })
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

    #[test]
    fn a_replacement_that_has_ended_is_a_cause_of_the_condition() {
        let status = |replacements: Value| {
            serde_json::from_value(json!({"replacements": replacements})).unwrap()
        };
        assert!(!had_cause(&status(json!([]))));
        let replaced = json!([{
            "member": "etcd-0", "reason": "volume-lost",
            "started": "2026-01-01T00:00:00Z", "finished": "2026-01-01T00:00:09Z",
        }]);
        assert!(had_cause(&status(replaced)));
    }
}
