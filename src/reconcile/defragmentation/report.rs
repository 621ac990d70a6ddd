//! The report on defragmentations: the condition `Defragmented`.

use super::gather::{Input, Open};
use super::step::Wait;
use crate::api::{DefragmentationStatus, condition};
use crate::plan::defragmentation::{
    DefragmentationInput, Disarm, LastRun, Mode, Next, Refusal, due, next,
};
use crate::quorum::PodName;
use crate::reconcile::condition::{self as conditions, ConditionText};
use crate::reconcile::look::Look;
use crate::reconcile::operation::{OperationContext, Report};

/// The report. A cluster in which nothing was ever due has no such condition.
pub(super) fn report(context: &OperationContext<'_>, input: &Input, wait: &Wait) -> Option<Report> {
    let runs = matches!(wait, Wait::Running(_));
    if matches!(wait, Wait::Serving) {
        return None;
    }
    if input.facts.settings.mode == Mode::Off && !runs {
        return Some(Box::new(|status| {
            let conditions = &mut status.conditions;
            conditions.retain(|c| c.type_ != condition::DEFRAGMENTED);
        }));
    }
    let said = said(context.look, input, wait);
    let status = context.look.page.status();
    let had_cause = status.is_some_and(|status| !status.defragmentations.is_empty());
    Some(conditions::report(
        context,
        condition::DEFRAGMENTED,
        said,
        had_cause,
    ))
}

fn said(look: &Look, input: &Input, wait: &Wait) -> ConditionText {
    let facts = &input.facts;
    let (reason, mut message) = match wait {
        Wait::Running(is_called) => match &input.open {
            Some(Open { pod, holder, .. }) if !is_called => (
                "Running",
                format!(
                    "{pod} was permitted to be defragmented by {holder}; the permission ends when the member serves and nothing is in flight, or by its age"
                ),
            ),
            open => {
                let pod = open.as_ref().map_or("a member", |open| open.pod.as_str());
                ("Running", format!("{pod} is being defragmented"))
            }
        },
        Wait::Resting(_, Disarm::NothingToReclaim { member, percent }) => (
            "NothingToReclaim",
            format!(
                "a NOSPACE alarm stands, and {member} uses {percent} % of its quota: delete data and compact, or raise the quota"
            ),
        ),
        Wait::Resting(Next::Wait { pod, due, because }, _) => {
            let mut text = format!("{pod} is due: {due}. It waits: {because}");
            if *because == Refusal::ReportOnly {
                text.push_str(&otherwise(look, facts));
            }
            (reason_of(because), text)
        }
        Wait::Resting(_, Disarm::ReportOnly) => (
            "ReportOnly",
            "NOSPACE alarms stand although there is room: they are disarmed with spec.defragmentation.mode Auto, or when the annotation quorumgate.io/defragment asks for a run".to_owned(),
        ),
        Wait::Resting(_, Disarm::Unknown { member }) => (
            "QuotaUnknown",
            format!("a NOSPACE alarm stands, and the size or the quota of {member} is not known"),
        ),
        Wait::Resting(_, Disarm::AfterDefragmentation { member }) => (
            "NoSpace",
            format!(
                "a NOSPACE alarm stands, and {member} has 90 % of its quota or more; less is in use, and too little of it can be freed for a run by itself"
            ),
        ),
        Wait::Resting(Next::Nothing | Next::Watch { .. } | Next::Act(_), _) | Wait::Serving => {
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
    for (pod, why) in &input.unread {
        message = format!("{message}. Whether {pod} is defragmenting is not known ({why})");
    }
    ("False", reason, message)
}

/// A run that failed, was the latest of its member, and keeps the next one waiting.
fn failed<'l>(look: &'l Look, facts: &DefragmentationInput) -> Option<&'l DefragmentationStatus> {
    let runs = &look.page.status()?.defragmentations;
    runs.iter().find(|run| {
        let own = facts.members.get(&PodName::new(&run.member));
        let last = own.and_then(|own| own.last.as_ref());
        run.error.is_some() && last.is_some_and(LastRun::rests)
    })
}

/// The step that would follow if the mode were Auto.
fn otherwise(look: &Look, facts: &DefragmentationInput) -> String {
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
        Refusal::Hindered(_) => "Hindered",
        Refusal::ServingTooShort { .. } => "NotAllServing",
        because => because.slug(),
    }
}
