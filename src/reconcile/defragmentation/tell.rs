//! The report on defragmentations: the condition `Defragmented`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use tracing::info;

use super::gather::Gathered;
use super::is_shown;
use crate::api::condition;
use crate::ledger::LedgerError;
use crate::plan::defragmentation::{Disarm, Facts, Mode, Next, Refusal, due, next};
use crate::quorum::PodName;
use crate::reconcile::Run;
use crate::reconcile::condition::put;
use crate::reconcile::look::Look;

/// The state to report.
pub(super) enum Story<'a> {
    /// The member that defragments, and why its permission does not settle yet.
    Running(&'a PodName, &'a Refusal),
    /// Nothing runs.
    Resting(&'a Next, &'a Disarm),
}

/// Writes the condition if its status or reason changed, or its words while nothing runs. A cluster
/// in which nothing was ever due has no such condition.
pub(super) async fn show(
    run: &Run,
    look: &Look,
    gathered: &Gathered,
    story: &Story<'_>,
) -> Result<(), LedgerError> {
    let shown = look.page.status().and_then(|status| {
        let mut conditions = status.conditions.iter();
        conditions.find(|c| c.type_ == condition::DEFRAGMENTED)
    });
    if gathered.facts.settings.mode == Mode::Off && shown.is_some() {
        let forget = run.ledger().write_status(&look.page, |status| {
            let conditions = &mut status.conditions;
            conditions.retain(|c| c.type_ != condition::DEFRAGMENTED);
        });
        return forget.await.map(drop);
    }
    let (is, reason, message) = said(look, gathered, story);
    let known = shown.is_some_and(|shown| {
        shown.status == is && shown.reason == reason && shown.message == message
    });
    if known || is == "True" && !is_shown(&look.page) {
        return Ok(());
    }
    let generation = look.page.budget().metadata.generation;
    let condition = Condition {
        type_: condition::DEFRAGMENTED.into(),
        status: is.into(),
        reason: reason.into(),
        message: message.clone(),
        last_transition_time: Time(run.clock.now()),
        observed_generation: generation,
    };
    let is_news = shown.is_none_or(|shown| shown.reason != reason);
    let written = run.ledger().write_status(&look.page, |status| {
        put(&mut status.conditions, condition);
    });
    written.await?;
    if is_news {
        info!(cluster = %look.page.cluster, reason, message, "defragmentation");
    }
    Ok(())
}

fn said(
    look: &Look,
    gathered: &Gathered,
    story: &Story<'_>,
) -> (&'static str, &'static str, String) {
    let facts = &gathered.facts;
    let (reason, mut message) = match story {
        Story::Running(pod, because) => {
            ("Running", format!("{pod} is being defragmented: {because}"))
        }
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
        Story::Resting(Next::Act(step), _) => (
            "NotCarriedOut",
            format!(
                "{step}. This release only reports: neither spec.defragmentation.mode Auto nor the annotation makes it defragment"
            ),
        ),
        Story::Resting(_, Disarm::Disarm(_)) => (
            "NotCarriedOut",
            "NOSPACE alarms stand although there is room, and this release disarms none: disarm them by hand".to_owned(),
        ),
        Story::Resting(Next::Nothing | Next::Watch { .. }, _) => {
            return ("True", "NothingDue", "no member is due".to_owned());
        }
    };
    let members = look.snapshot.members.iter();
    let all = members.filter(|member| due(member, facts).is_some());
    let all: Vec<&str> = all.map(|member| member.name.as_str()).collect();
    if all.len() > 1 {
        message = format!("{message}. Due are {}", all.join(", "));
    }
    for (pod, why) in &gathered.unread {
        message = format!("{message}. Whether {pod} is defragmenting is not known ({why})");
    }
    ("False", reason, message)
}

/// The step that would follow if the mode were Auto.
fn otherwise(look: &Look, facts: &Facts) -> String {
    let mut facts = facts.clone();
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
