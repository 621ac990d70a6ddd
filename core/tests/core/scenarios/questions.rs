//! The questions of a scenario, and the form of the answers.

use quorumgate_core::quorum::{
    Actor, Allowance, Basis, Disruption, Grace, InPlace, Kind, PodUid, Snapshot, TargetPod,
    Verdict, decide, leader_to_move,
};

use super::facts::Setting;

/// The answer to a question. The error says what is not understood in it.
pub(super) fn answer(setting: &Setting, question: &str) -> Result<String, String> {
    let snapshot = Snapshot::assemble(&setting.world.observation());
    if question == "show" {
        return Ok(show(setting, &snapshot));
    }
    let disruption = disruption(setting, question)?;
    let verdict = decide(&snapshot, &setting.grants, &disruption);
    let mut written = write(&verdict);
    if matches!(verdict, Verdict::Allow(Allowance::Grant(_)))
        && let Some(next) = leader_to_move(&snapshot, &setting.grants, &disruption)
    {
        let to = snapshot.members.iter().find(|m| m.id == Some(next));
        written.push_str("; leadership moves to ");
        written.push_str(to.map_or("nobody", |m| &m.name));
    }
    Ok(written)
}

fn disruption(setting: &Setting, question: &str) -> Result<Disruption, String> {
    let words: Vec<&str> = question.split_whitespace().collect();
    let (kind, actor, grace, who, precondition) = match words.as_slice() {
        ["delete", who] => (Kind::Delete, Actor::Stranger, Grace::Graceful, who, None),
        ["evict", who] => (Kind::Evict, Actor::Stranger, Grace::Graceful, who, None),
        ["force", who] => (Kind::Delete, Actor::Stranger, Grace::Forced, who, None),
        ["evict", who, "by", "force"] => (Kind::Evict, Actor::Stranger, Grace::Forced, who, None),
        ["kubelet", "finishes", who] | ["pod", "gc", "removes", who] => {
            (Kind::Delete, Actor::NodeOrPodGc, Grace::Forced, who, None)
        }
        ["delete", who, "with", "the", "uid", uid] => (
            Kind::Delete,
            Actor::Stranger,
            Grace::Graceful,
            who,
            Some(PodUid::new(*uid)),
        ),
        ["update", "the", "image", "of", who] => {
            let kind = Kind::Restart(InPlace::Image);
            (kind, Actor::Stranger, Grace::Graceful, who, None)
        }
        ["roll", who] => (Kind::RolloutStep, Actor::Gate, Grace::Graceful, who, None),
        ["defragment", who] => (Kind::Defragment, Actor::Gate, Grace::Graceful, who, None),
        ["replace", who] => (Kind::Replace, Actor::Gate, Grace::Graceful, who, None),
        _ => return Err(format!("not an action: {question}")),
    };
    if setting.world.index(who).is_none() {
        return Err(format!("nobody is called {who}"));
    }
    Ok(Disruption {
        target: TargetPod {
            name: (*who).into(),
            uid: format!("{who}-1").as_str().into(),
        },
        kind,
        actor,
        grace,
        precondition,
    })
}

fn write(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Allow(Allowance::Waived(waiver)) => {
            format!("Allow without a grant: {}", waiver.slug())
        }
        Verdict::Allow(Allowance::Grant(basis)) => {
            format!("Allow with a grant: {}", based(*basis))
        }
        Verdict::Wait(reason) => format!("Wait {}: {reason}", reason.slug()),
        Verdict::Deny(reason) => format!("Deny {}: {reason}", reason.slug()),
    }
}

fn based(basis: Basis) -> String {
    let slug = basis.slug();
    match basis {
        Basis::Majority { others, majority } => {
            format!("{slug}, {others} others serve and {majority} are needed")
        }
        _ => slug.into(),
    }
}

fn show(setting: &Setting, snapshot: &Snapshot) -> String {
    let tolerance = snapshot.tolerance(&setting.grants);
    let mut lines = vec![format!(
        "{} of {} voters serve, {} are needed, {} may go{}",
        tolerance.serving,
        tolerance.voters,
        tolerance.majority,
        tolerance.disruptions_allowed(),
        if snapshot.quorum_lost {
            ", quorum is lost"
        } else {
            ""
        },
    )];
    for member in &snapshot.members {
        let why = member.condition.why();
        let condition = match why {
            Some(why) => format!("{}: {why}", kind(&member.condition)),
            None => kind(&member.condition).into(),
        };
        let leads = if member.leader { ", leader" } else { "" };
        lines.push(format!(
            "{} is a {}{leads}, {}, {condition}",
            member.name, member.role, member.process
        ));
    }
    for pod in &snapshot.not_members {
        lines.push(format!("{pod} is not a member"));
    }
    if let [one, rest @ ..] = snapshot.cluster_ids.as_slice()
        && !rest.is_empty()
    {
        let rest: Vec<String> = rest.iter().map(ToString::to_string).collect();
        lines.push(format!(
            "they speak of the clusters {one} and {}",
            rest.join(" and ")
        ));
    }
    lines.join("\n")
}

fn kind(condition: &quorumgate_core::quorum::Condition) -> &'static str {
    use quorumgate_core::quorum::Condition::{Failing, Learning, Serving, Unknown};
    match condition {
        Serving => "Serving",
        Learning => "Learning",
        Failing(_) => "Failing",
        Unknown(_) => "Unknown",
    }
}
