//! The report on replacements and on pods that are kept from starting: the condition
//! `DataProtected`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource as _};
use serde_json::json;
use tracing::{info, warn};

use super::gather::Gathered;
use crate::api::names::{HELD, IDENTITY, REPLACE};
use crate::api::{DataPlace, condition};
use crate::causes::causes;
use crate::ledger::LedgerError;
use crate::plan::replacement::{ClaimFacts, Mode, Next, Proof, Refusal, Step};
use crate::quorum::{ClaimState, PodName, PodUid, VolumeFinding};
use crate::reconcile::Run;
use crate::reconcile::condition::{self as conditions, Said};
use crate::reconcile::look::Look;
use crate::reconcile::volumes::places;
use crate::telemetry::events::{Notice, Severity};

/// Tells each pod that waits for the gate's scheduling gate why: by an Event, of which a repeated
/// one is written once a minute at most, and by a condition.
pub(super) async fn tell_held(run: &Run, look: &Look, gathered: &Gathered) {
    for (pod, uid) in &gathered.held {
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
        let note = format!(
            "the scheduling gate {IDENTITY} holds {pod}, because {why}. {pod} starts when its \
             member is replaced ({REPLACE} on the budget), when it has its volume again, or \
             with all others as a new cluster (quorumgate.io/intent: bootstrap)"
        );
        if !says(object, &note) {
            let cluster = &look.page.cluster;
            let told = say_held(run, &cluster.namespace, (pod, uid), Some(&note)).await;
            if let Err(error) = told {
                let because = causes(&error);
                warn!(%cluster, %pod, because, "cannot write the pod's condition");
            }
        }
        run.events.notify(Notice {
            regarding: object.object_ref(&()),
            severity: Severity::Warning,
            reason: KEPT.to_owned(),
            action: "Hold",
            note,
        });
    }
}

/// Whether the pod's condition says this.
fn says(pod: &Pod, note: &str) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    let mut conditions = conditions.unwrap_or_default().iter();
    conditions.any(|c| c.type_ == HELD && c.message.as_deref() == Some(note))
}

/// The reason of the Event and of the condition.
const KEPT: &str = "KeptFromStarting";

/// Writes the condition of a pod that waits, with the words why. `None`: it waits no more.
pub(super) async fn say_held(
    run: &Run,
    namespace: &str,
    (pod, uid): (&PodName, &PodUid),
    why: Option<&str>,
) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(run.client.clone(), namespace);
    let change = json!({
        "metadata": {"uid": uid.as_str()},
        "status": {"conditions": [{
            "type": HELD,
            "status": if why.is_some() { "True" } else { "False" },
            "reason": if why.is_some() { KEPT } else { "Released" },
            "message": why.unwrap_or_default(),
            "lastTransitionTime": run.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }]},
    });
    let (params, change) = (PatchParams::default(), Patch::Strategic(&change));
    pods.patch_status(pod.as_str(), &params, &change)
        .await
        .map(drop)
}

/// Writes the condition if its status, its reason or its words changed.
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
    let kind = condition::DATA_PROTECTED;
    if conditions::write(run, &look.page, kind, &said, true).await? {
        let (_, reason, message) = said;
        info!(%cluster, reason, message, "data of members");
    }
    Ok(())
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
        } if facts.mode != Mode::Off || !held.is_empty() || *proof == Some(Proof::CrashLoop) => {
            let why = proof
                .as_ref()
                .map_or_else(|| "somebody asked for it".to_owned(), ToString::to_string);
            let record = look.page.volume_records().get(pod).map(|record| record.id);
            let id = look.snapshot.member(pod).and_then(|m| m.id).or(record);
            let own = match (because, id) {
                (Refusal::NotRequested, Some(id)) => {
                    let cluster = &look.page.cluster;
                    let (namespace, name) = (&cluster.namespace, &cluster.name);
                    format!(" kubectl -n {namespace} annotate qdb {name} {REPLACE}={id}.")
                }
                _ => String::new(),
            };
            let text = format!("{pod} is to be replaced: {why}. It waits: {because}.{own}{more}");
            let reason = match (proof, because) {
                (Some(Proof::CrashLoop), Refusal::Off | Refusal::NotRequested) => "CrashLoop",
                _ => reason_of(because),
            };
            ("False", reason, text)
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
            let text = format!("none of {members} members has to be replaced");
            let elsewhere = elsewhere(&places(look));
            let reason = if elsewhere.is_empty() {
                "NothingToReplace"
            } else {
                "NotOnOwnClaims"
            };
            ("True", reason, format!("{text}{elsewhere}"))
        }
    }
}

/// The words about members whose data is not on claims of their own, and what that means for each.
fn elsewhere(places: &BTreeMap<PodName, DataPlace>) -> String {
    let of = |place: DataPlace| {
        let pods = places.iter().filter(|(_, own)| **own == place);
        let pods: Vec<&str> = pods.map(|(pod, _)| pod.as_str()).collect();
        (!pods.is_empty()).then(|| {
            let meaning = match place {
                DataPlace::Claim => return String::new(),
                DataPlace::SharedClaim => "one volume that is lost takes all of it",
                DataPlace::Node => {
                    "the next pod of each is bound to that node, and a node that is lost takes it"
                }
                DataPlace::Pod => "it goes with the pod",
                DataPlace::Unknown => "name etcd's data directory by --data-dir",
            };
            format!("; the data of {} is {place}: {meaning}", pods.join(", "))
        })
    };
    [
        DataPlace::SharedClaim,
        DataPlace::Node,
        DataPlace::Pod,
        DataPlace::Unknown,
    ]
    .into_iter()
    .filter_map(of)
    .collect()
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
        Refusal::MayRecover { .. } => "CrashLoop",
        Refusal::Owner => "Owner",
        Refusal::OnNode => "OnNode",
        Refusal::SharedClaim => "SharedClaim",
        Refusal::NoSuchMember => "NoSuchMember",
        Refusal::NoList => "NoList",
        Refusal::TooFewVoters { .. } => "TooFewVoters",
        Refusal::SeveralRemoved { .. } => "SeveralRemoved",
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
    use super::*;

    #[test]
    fn what_is_on_no_claim_of_its_own_is_told_with_what_that_means() {
        let places = |all: &[DataPlace]| {
            let named = all.iter().enumerate();
            named
                .map(|(n, place)| (PodName::new(format!("etcd-{n}")), *place))
                .collect()
        };
        assert_eq!(elsewhere(&places(&[DataPlace::Claim; 3])), "");
        let told = elsewhere(&places(&[
            DataPlace::Pod,
            DataPlace::Claim,
            DataPlace::Node,
            DataPlace::Pod,
        ]));
        assert_eq!(
            told,
            "; the data of etcd-2 is in a directory of its node: the next pod of each is bound to \
             that node, and a node that is lost takes it; the data of etcd-0, etcd-3 is in its pod: it goes with the pod"
        );
    }
}
