//! The report on defragmentations: the condition `Defragmented`.

use tracing::info;

use super::gather::{Gathered, Open};
use crate::api::{DefragmentationStatus, condition};
use crate::ledger::LedgerError;
use crate::plan::defragmentation::{Disarm, Facts, LastRun, Mode, Next, Refusal, due, next};
use crate::quorum::PodName;
use crate::reconcile::Run;
use crate::reconcile::condition::{self as conditions, Said};
use crate::reconcile::look::Look;

/// The state to report.
pub(super) enum Story<'a> {
    /// A permission is open. The second part says whether this process waits for its own call.
    Running(&'a Open, bool),
    /// Nothing runs.
    Resting(&'a Next, &'a Disarm),
}

/// Writes the condition if its status, its reason or its words changed. A cluster in which nothing
/// was ever due has no such condition.
pub(super) async fn show(
    run: &Run,
    look: &Look,
    gathered: &Gathered,
    story: &Story<'_>,
) -> Result<(), LedgerError> {
    let cluster = &look.page.cluster;
    // Whoever is judging a disruption would lose the race for the ledger to this write.
    if run.ledger().turnstile().pending(cluster) > 0 {
        return Ok(());
    }
    let runs = matches!(story, Story::Running(..));
    if gathered.facts.settings.mode == Mode::Off && !runs {
        let forget = run.ledger().write_status(&look.page, |status| {
            let conditions = &mut status.conditions;
            conditions.retain(|c| c.type_ != condition::DEFRAGMENTED);
        });
        return forget.await.map(drop);
    }
    let said = said(look, gathered, story);
    let status = look.page.status();
    let had_cause = status.is_some_and(|status| !status.defragmentations.is_empty());
    let kind = condition::DEFRAGMENTED;
    if conditions::write(run, &look.page, kind, &said, had_cause).await? {
        let (_, reason, message) = said;
        info!(%cluster, reason, message, "defragmentation");
    }
    Ok(())
}

fn said(look: &Look, gathered: &Gathered, story: &Story<'_>) -> Said {
    let facts = &gathered.facts;
    let (reason, mut message) = match story {
        Story::Running(Open { pod, .. }, true) => {
            ("Running", format!("{pod} is being defragmented"))
        }
        Story::Running(Open { pod, holder, .. }, false) => (
            "Running",
            format!(
                "{pod} was permitted to be defragmented by {holder}; the permission ends when the member serves and nothing is in flight, or by its age"
            ),
        ),
        Story::Resting(_, Disarm::NothingToReclaim { member, percent }) => (
            "NothingToReclaim",
            format!(
                "a NOSPACE alarm stands, and {member} uses {percent} % of its quota: delete data and compact, or raise the quota"
            ),
        ),
        Story::Resting(Next::Wait { pod, due, because }, _) => {
            let mut text = format!("{pod} is due: {due}. It waits: {because}");
            if *because == Refusal::ReportOnly {
                text.push_str(&otherwise(look, facts));
            }
            (reason_of(because), text)
        }
        Story::Resting(_, Disarm::ReportOnly) => (
            "ReportOnly",
            "NOSPACE alarms stand although there is room: they are disarmed with spec.defragmentation.mode Auto, or when the annotation quorumgate.io/defragment asks for a run".to_owned(),
        ),
        Story::Resting(_, Disarm::Unknown { member }) => (
            "QuotaUnknown",
            format!("a NOSPACE alarm stands, and the size or the quota of {member} is not known"),
        ),
        Story::Resting(_, Disarm::AfterDefragmentation { member }) => (
            "NoSpace",
            format!(
                "a NOSPACE alarm stands, and {member} has 90 % of its quota or more; less is in use, and too little of it can be freed for a run by itself"
            ),
        ),
        Story::Resting(Next::Nothing | Next::Watch { .. } | Next::Act(_), _) => {
            let Some(failed) = failed(look, facts) else {
                return ("True", "NothingDue", "no member is due".to_owned());
            };
            (
                "Failed",
                format!(
                    "the defragmentation of {} failed: {}. It is not tried again by itself for 24 hours; a new value of the annotation quorumgate.io/defragment asks for it",
                    failed.member,
                    failed.error.as_deref().unwrap_or_default()
                ),
            )
        }
    };
    let members = look.snapshot.members.iter();
    let all = members.filter(|member| due(&look.snapshot, member, facts).is_some());
    let all: Vec<&str> = all.map(|member| member.name.as_str()).collect();
    if all.len() > 1 {
        message = format!("{message}. Due are {}", all.join(", "));
    }
    for (pod, why) in &gathered.unread {
        message = format!("{message}. Whether {pod} is defragmenting is not known ({why})");
    }
    ("False", reason, message)
}

/// A run that failed, was the latest of its member, and keeps the next one waiting.
fn failed<'l>(look: &'l Look, facts: &Facts) -> Option<&'l DefragmentationStatus> {
    let runs = &look.page.status()?.defragmentations;
    runs.iter().find(|run| {
        let own = facts.members.get(&PodName::new(&run.member));
        let last = own.and_then(|own| own.last.as_ref());
        run.error.is_some() && last.is_some_and(LastRun::rests)
    })
}

/// The step that would follow if the mode were Auto.
fn otherwise(look: &Look, facts: &Facts) -> String {
    let mut facts = facts.after_a_while();
    facts.settings.mode = Mode::Auto;
    match next(&look.snapshot, &look.page.grants, &facts) {
        Next::Act(_) => ". Nothing else holds it back".to_owned(),
        Next::Wait { because, .. } => format!(". What else holds it back: {because}"),
        Next::Nothing | Next::Watch { .. } => String::new(),
    }
}

/// The reason of the condition while a member that is due waits.
fn reason_of(because: &Refusal) -> &'static str {
    match because {
        Refusal::ReportOnly => "ReportOnly",
        Refusal::Hindered(_) => "Hindered",
        Refusal::OtherSchedule { .. } => "OtherSchedule",
        Refusal::Window => "OutsideWindow",
        Refusal::NotAllServing { .. } | Refusal::ServingTooShort { .. } => "NotAllServing",
        Refusal::Learner { .. } => "Learner",
        Refusal::Corrupt { .. } => "Corrupt",
        Refusal::Lag { .. } => "Behind",
        Refusal::InFlight { .. } => "InFlight",
        Refusal::VersionUnknown => "VersionUnknown",
        Refusal::Unsteady { .. } => "Unsteady",
        Refusal::RoomUnknown => "RoomUnknown",
        Refusal::NoRoom { .. } => "NoRoom",
        Refusal::Liveness { .. } => "LivenessTooShort",
        Refusal::Timeout { .. } => "TooLong",
        Refusal::NoHeir => "NoHeir",
        Refusal::OtherHolder { .. } => "OtherHolder",
    }
}
