//! A guarded cluster, as its budget tells it.

use comfy_table::Cell;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use quorumgate_api::{
    DataPlace, Enforcement, GrantStatus, MemberRole, MemberStatus, QuorumDisruptionBudget,
    QuorumDisruptionBudgetStatus, Updater, condition, names,
};
use quorumgate_api::{OverrideState, standing};
use serde::Serialize;

use crate::show::{Paint, Tone, cell, table};

/// A guarded cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cluster {
    pub(crate) namespace: String,
    /// The name of the StatefulSet, which is the budget's, too.
    pub(crate) name: String,
    pub(crate) enforcement: Enforcement,
    pub(crate) quorum: Quorum,
    /// Voters that the majority is computed from.
    pub(crate) voters: Option<i32>,
    /// Voters that serve and have no open grant.
    pub(crate) serving: Option<i32>,
    /// Voters that have to serve.
    pub(crate) majority: Option<i32>,
    /// Members that may be deleted now.
    pub(crate) disruptions_allowed: Option<i32>,
    pub(crate) leader: Option<String>,
    pub(crate) members: Vec<Member>,
    pub(crate) rollout: Rollout,
    /// The override of all its pods, by the budget's annotations.
    pub(crate) overridden: Option<Override>,
    /// Conditions that are not as they should be.
    pub(crate) problems: Vec<Problem>,
}

/// Whether the voters that serve make a majority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Quorum {
    Held,
    Lost,
    /// The gate has not said so yet, or cannot see it.
    Unknown,
}

/// A member of etcd, or a pod that is to become one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) pod: Option<String>,
    /// Member id in etcd, hexadecimal.
    pub(crate) id: Option<String>,
    pub(crate) role: MemberRole,
    pub(crate) leads: bool,
    pub(crate) serving: bool,
    pub(crate) state: MemberState,
    /// The revision of its pod.
    pub(crate) revision: Option<String>,
    /// Where it has its data. Absent for a member without a pod of the StatefulSet.
    pub(crate) data: Option<DataPlace>,
    /// Why it does not serve, in words.
    pub(crate) message: Option<String>,
    /// The open permissions to disrupt it.
    pub(crate) permitted: Vec<GrantKind>,
}

/// The state of a member in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum MemberState {
    Serving,
    NotServing,
    /// The member serves, and a permission to disrupt it is open.
    Leaving,
    /// A permission is open, and the gate does not see the member now.
    NotSeen,
}

/// An open permission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GrantKind {
    /// `Delete`, `Defragment` or `Replace`.
    pub(crate) reason: String,
    /// The user who asked.
    pub(crate) by: String,
    pub(crate) time: String,
    pub(crate) message: String,
}

/// An override of all pods of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Override {
    pub(crate) until: String,
    /// Why, as the user wrote it.
    pub(crate) message: Option<String>,
}

/// A rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rollout {
    pub(crate) state: RolloutState,
    /// Whether `spec.paused` keeps rollouts from beginning a step.
    pub(crate) paused: bool,
    /// Controller that replaces outdated pods.
    pub(crate) updated_by: Option<Updater>,
    /// Pods that have the revision, and pods that have to get it.
    pub(crate) updated: i32,
    pub(crate) targets: i32,
    /// The revision, of a rollout that was ever begun.
    pub(crate) revision: Option<String>,
    /// The reason why it waits.
    pub(crate) waits_for: Option<Waiting>,
    /// The last step.
    pub(crate) last_step: Option<Step>,
}

/// The reason why a rollout waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Waiting {
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) since: Option<Time>,
}

/// A step of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Step {
    /// `Delete`, `Evict` or `MoveLeader`.
    pub(crate) action: String,
    pub(crate) pod: String,
    pub(crate) message: String,
    pub(crate) time: Option<Time>,
}

impl Waiting {
    pub(crate) fn words(&self) -> String {
        match &self.since {
            Some(since) => format!("{} (since {})", self.message, ago(since)),
            None => self.message.clone(),
        }
    }
}

impl Step {
    pub(crate) fn words(&self) -> String {
        let at = self.time.as_ref().map(|at| format!(", {}", ago(at)));
        let (action, pod) = (&self.action, &self.pod);
        format!(
            "{action} {pod}: it {}{}",
            self.message,
            at.unwrap_or_default()
        )
    }
}

/// The state of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum RolloutState {
    /// Every pod is up to date.
    Complete,
    /// The rollout acts, or waits for what passes by itself.
    Progressing,
    /// The rollout waits.
    Waiting,
    /// `spec.paused` holds it.
    Paused,
    /// Nothing is known of one.
    None,
}

/// A condition that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Problem {
    pub(crate) condition: String,
    /// `False` or `Unknown`.
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Cluster {
    /// The cluster of a budget.
    pub(crate) fn from_budget(budget: &QuorumDisruptionBudget) -> Self {
        let nothing = QuorumDisruptionBudgetStatus::default();
        let status = budget.status.as_ref().unwrap_or(&nothing);
        let found = budget.cluster();
        let healthy = status.conditions.iter();
        let healthy = healthy
            .clone()
            .find(|c| c.type_ == condition::QUORUM_HEALTHY);
        let leader = status.leader.as_deref();
        Self {
            namespace: found.namespace.clone(),
            name: found.name.clone(),
            enforcement: budget.spec.enforcement,
            quorum: match healthy.map(|condition| condition.status.as_str()) {
                Some("True") => Quorum::Held,
                Some("False") => Quorum::Lost,
                _ => Quorum::Unknown,
            },
            voters: status.voters,
            serving: status.current_healthy,
            majority: status.desired_healthy,
            disruptions_allowed: status.disruptions_allowed,
            leader: status.leader.clone(),
            members: members(status, leader),
            rollout: Rollout::from_status(budget, status),
            overridden: overridden(budget),
            problems: problems(&status.conditions),
        }
    }

    /// The cluster of a pod.
    pub(crate) fn has_pod(&self, namespace: &str, pod: &str) -> bool {
        let by_name = || self.members.iter().any(|m| m.pod.as_deref() == Some(pod));
        self.namespace == namespace && by_name()
    }

    /// Whether nothing about it needs a look.
    pub(crate) fn is_well(&self) -> bool {
        self.quorum == Quorum::Held
            && self.problems.is_empty()
            && self.overridden.is_none()
            && !self.rollout.paused
            && self
                .members
                .iter()
                .all(|m| m.serving && m.permitted.is_empty())
            && matches!(
                self.rollout.state,
                RolloutState::Complete | RolloutState::None
            )
    }

    /// The row of [`overview`].
    fn row(&self, columns: Columns) -> Vec<Cell> {
        let number = |number: Option<i32>| number.map_or("?".to_owned(), |n| n.to_string());
        let serving = format!(
            "{} of {}, {} needed",
            number(self.serving),
            number(self.voters),
            number(self.majority)
        );
        let serving_tone = match self.quorum {
            Quorum::Lost => Tone::Bad,
            Quorum::Held if self.serving == self.voters => Tone::Good,
            Quorum::Held | Quorum::Unknown => Tone::Uneasy,
        };
        let allowed = self.disruptions_allowed.unwrap_or_default() > 0;
        let gate_tone = match (self.enforcement, self.problems.is_empty()) {
            (Enforcement::Enforce, true) => Tone::Good,
            (Enforcement::Warn, true) => Tone::Uneasy,
            (_, false) => Tone::Bad,
        };
        let namespace = columns
            .namespace
            .then(|| cell(&self.namespace, Tone::Plain));
        let rest = [
            cell(&self.name, Tone::Plain),
            cell(serving, serving_tone),
            cell(
                number(self.disruptions_allowed),
                if allowed { Tone::Plain } else { Tone::Uneasy },
            ),
            cell(self.leader.as_deref().unwrap_or("none"), Tone::Plain),
            cell(self.rollout.short(), self.rollout.tone()),
            cell(self.gate(), gate_tone),
        ];
        let wide = columns.wide.then(|| self.wide());
        let wide = wide.into_iter().flatten();
        namespace.into_iter().chain(rest).chain(wide).collect()
    }

    /// The columns of `-o wide`.
    fn wide(&self) -> [Cell; 4] {
        let names = |which: fn(&Member) -> bool| {
            let which = self.members.iter().filter(|member| which(member));
            listed(which.map(|member| member.name.as_str()))
        };
        let problems = self.problems.iter().map(|p| p.condition.as_str());
        let until = self.overridden.as_ref().map(|by| by.until.as_str());
        [
            cell(names(|member| !member.serving), Tone::Plain),
            cell(names(|member| !member.permitted.is_empty()), Tone::Plain),
            cell(listed(problems), Tone::Plain),
            cell(listed(until.into_iter()), Tone::Plain),
        ]
    }

    /// The gate's part, in a word or two.
    fn gate(&self) -> String {
        let problem = |kind: &str| self.problems.iter().find(|p| p.condition == kind);
        if let Some(inactive) = problem(condition::GATE_ACTIVE) {
            return format!("not in force; {}", inactive.reason);
        }
        let does = match self.enforcement {
            Enforcement::Enforce => "enforces",
            Enforcement::Warn => "only warns",
        };
        let broken = problem(condition::LEDGER_TRUSTED).or(problem(condition::EVIDENCE_LIVE));
        match broken {
            Some(problem) => format!("{does}; {}", problem.reason),
            None => does.to_owned(),
        }
    }

    /// The members, a line each.
    pub(crate) fn member_table(&self, paint: Paint) -> String {
        let rows = self.members.iter().map(Member::row).collect();
        table(
            &["  MEMBER", "ROLE", "SERVES", "DATA", "MESSAGE"],
            rows,
            paint,
        )
    }

    /// Everything that a line in the overview leaves out.
    pub(crate) fn details(&self, paint: Paint) -> String {
        let mut told = self.member_table(paint);
        if let Some(overridden) = &self.overridden {
            told += &format!("  {}\n", overridden.words());
        }
        if self.rollout.paused {
            told += "  rollouts are paused (spec.paused)\n";
        }
        if let Some(waits_for) = &self.rollout.waits_for {
            told += &format!("  the rollout waits: {}\n", waits_for.words());
        }
        for problem in &self.problems {
            let Problem {
                condition,
                status,
                reason,
                message,
            } = problem;
            told += &format!("  {condition} is {status} ({reason}): {message}\n");
        }
        told
    }
}

/// Columns of [`overview`] that are not always shown.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Columns {
    pub(crate) namespace: bool,
    pub(crate) wide: bool,
}

/// A table of clusters, a line each.
pub(crate) fn overview(clusters: &[Cluster], columns: Columns, paint: Paint) -> String {
    let mut headings = vec!["CLUSTER", "SERVING", "ALLOWED", "LEADER", "ROLLOUT", "GATE"];
    if columns.namespace {
        headings.insert(0, "NAMESPACE");
    }
    if columns.wide {
        headings.extend(["NOT SERVING", "PERMITTED", "CONDITIONS", "OVERRIDDEN UNTIL"]);
    }
    let rows = clusters.iter().map(|cluster| cluster.row(columns));
    table(&headings, rows.collect(), paint)
}

/// Names in one cell, as kubectl lists them.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    if names.is_empty() {
        "<none>".to_owned()
    } else {
        names.join(",")
    }
}

impl Override {
    fn words(&self) -> String {
        let why = self.message.as_ref().map(|why| format!(" ({why})"));
        let (until, why) = (&self.until, why.unwrap_or_default());
        format!("overridden until {until}{why}: every pod may be deleted, whatever the gate finds")
    }
}

impl Member {
    fn row(&self) -> Vec<Cell> {
        let role = match (self.role, self.leads) {
            (MemberRole::Voter, true) => "leader",
            (MemberRole::Voter, false) => "voter",
            (MemberRole::Learner, _) => "learner",
        };
        let (serves, tone) = match self.state {
            MemberState::Serving => ("yes", Tone::Good),
            MemberState::Leaving => ("leaving", Tone::Uneasy),
            MemberState::NotServing | MemberState::NotSeen => ("no", Tone::Bad),
        };
        let (data, data_tone) = match self.data {
            Some(DataPlace::Claim) => ("claim", Tone::Plain),
            Some(DataPlace::SharedClaim) => ("shared claim", Tone::Uneasy),
            Some(DataPlace::Node) => ("node", Tone::Uneasy),
            Some(DataPlace::Pod) => ("pod", Tone::Uneasy),
            Some(DataPlace::Unknown) => ("unknown", Tone::Uneasy),
            None => ("", Tone::Plain),
        };
        let permitted = self.permitted.iter().map(|permitted| &permitted.message);
        let why = self.message.iter().chain(permitted);
        let why = why.map(String::as_str).collect::<Vec<_>>().join("; ");
        vec![
            cell(format!("  {}", self.name), Tone::Plain),
            cell(role, Tone::Plain),
            cell(serves, tone),
            cell(data, data_tone),
            cell(why, Tone::Plain),
        ]
    }
}

fn members(status: &QuorumDisruptionBudgetStatus, leader: Option<&str>) -> Vec<Member> {
    let told = |member: &MemberStatus| Member {
        name: member.name.clone(),
        pod: member.pod.clone(),
        id: member.member_id.clone(),
        role: member.role,
        leads: leader == Some(member.name.as_str()),
        serving: member.serving,
        state: if member.serving {
            MemberState::Serving
        } else {
            MemberState::NotServing
        },
        revision: member.revision.clone(),
        data: member.data,
        message: member.why.clone(),
        permitted: Vec::new(),
    };
    let mut members: Vec<_> = status.members.iter().map(told).collect();
    for GrantStatus {
        member: pod,
        causes,
        ..
    } in &status.grants
    {
        let permitted = causes.iter().map(|cause| {
            let what = match cause.kind.as_str() {
                "Delete" => "to be deleted",
                "Defragment" => "to be defragmented",
                "Replace" => "to be replaced",
                other => other,
            };
            let since = cause.time.parse::<Timestamp>();
            let since = since.map_or_else(|_| cause.time.clone(), |at| ago(&Time(at)));
            GrantKind {
                reason: cause.kind.clone(),
                by: cause.by.clone(),
                time: cause.time.clone(),
                message: format!("permitted {what}, asked by {}, {since}", cause.by),
            }
        });
        let of_pod = |m: &&mut Member| m.pod.as_ref() == Some(pod);
        if let Some(member) = members.iter_mut().find(of_pod) {
            member.permitted = permitted.collect();
            if member.serving && !member.permitted.is_empty() {
                member.state = MemberState::Leaving;
            }
        } else {
            members.push(Member {
                name: pod.clone(),
                pod: Some(pod.clone()),
                id: None,
                role: MemberRole::Voter,
                leads: false,
                serving: false,
                state: MemberState::NotSeen,
                revision: None,
                data: None,
                message: Some("the gate does not see it now".to_owned()),
                permitted: permitted.collect(),
            });
        }
    }
    members
}

/// The override by the budget's annotations, if it is valid now.
fn overridden(budget: &QuorumDisruptionBudget) -> Option<Override> {
    let annotations = budget.metadata.annotations.as_ref();
    let OverrideState::Valid(until) = standing(annotations, Timestamp::now()) else {
        return None;
    };
    let why = annotations.and_then(|all| all.get(names::OVERRIDE_REASON));
    Some(Override {
        until: until.clone(),
        message: why.cloned(),
    })
}

/// The conditions of a budget are all true where everything is well. A rollout has its own place.
fn problems(conditions: &[Condition]) -> Vec<Problem> {
    let of_rollouts = [condition::ALL_MEMBERS_UPDATED, condition::PROGRESSING];
    // Members without TLS are the owner's choice, and a defragmentation that is due is no problem.
    // The first pods of every cluster start anew. The summary repeats what another condition says.
    let choices = [
        condition::MEMBERS_ASKED_BY_TLS,
        condition::DEFRAGMENTED,
        condition::INITIAL_STATE_SET,
        condition::READY,
    ];
    let is_problem = |c: &&Condition| {
        let elsewhere = of_rollouts
            .iter()
            .chain(&choices)
            .any(|kind| *kind == c.type_);
        c.status != "True" && !elsewhere
    };
    let bad = conditions.iter().filter(is_problem);
    bad.map(|condition| Problem {
        condition: condition.type_.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
    })
    .collect()
}

impl Rollout {
    fn from_status(budget: &QuorumDisruptionBudget, status: &QuorumDisruptionBudgetStatus) -> Self {
        let updated_by = status.update_strategy.as_ref().map(|by| by.updated_by);
        let all_updated = status.conditions.iter();
        let all_updated = all_updated
            .clone()
            .find(|c| c.type_ == condition::ALL_MEMBERS_UPDATED);
        let done = all_updated.is_some_and(|condition| condition.status == "True");
        let paused = budget.spec.paused == Some(true);
        let progress = status.rollout.as_deref();
        let waiting = progress.and_then(|progress| progress.waiting_on.as_ref());
        let state = match progress {
            _ if done => RolloutState::Complete,
            Some(progress) if progress.completion_time.is_some() => RolloutState::Complete,
            Some(_) if paused => RolloutState::Paused,
            Some(_) if waiting.is_some() => RolloutState::Waiting,
            Some(_) => RolloutState::Progressing,
            None => RolloutState::None,
        };
        let open = !matches!(state, RolloutState::Complete | RolloutState::None);
        Self {
            state,
            paused,
            updated_by,
            updated: progress.map_or(0, |progress| progress.updated),
            targets: progress.map_or(0, |progress| progress.targets),
            revision: progress.and_then(|progress| progress.target.clone()),
            waits_for: waiting.filter(|_| open).map(|waiting| Waiting {
                reason: waiting.reason.clone(),
                message: waiting.message.clone(),
                since: waiting.start_time.clone(),
            }),
            last_step: progress
                .and_then(|p| p.last_step.as_ref())
                .map(|step| Step {
                    action: step.action.clone(),
                    pod: step.pod.clone(),
                    message: step.because.clone(),
                    time: step.time.clone(),
                }),
        }
    }

    fn short(&self) -> String {
        let of = format!("{} of {}", self.updated, self.targets);
        match self.state {
            RolloutState::Complete if self.paused => "up to date, paused".to_owned(),
            RolloutState::Complete => "up to date".to_owned(),
            RolloutState::None if self.paused => "none, paused".to_owned(),
            RolloutState::None => "none".to_owned(),
            RolloutState::Progressing => of,
            RolloutState::Waiting => format!("{of}, waits"),
            RolloutState::Paused => format!("{of}, paused"),
        }
    }

    fn tone(&self) -> Tone {
        match self.state {
            RolloutState::Complete | RolloutState::None if self.paused => Tone::Uneasy,
            RolloutState::Complete | RolloutState::None => Tone::Plain,
            RolloutState::Progressing => Tone::Good,
            RolloutState::Waiting | RolloutState::Paused => Tone::Uneasy,
        }
    }
}

/// How long ago a time was, roughly.
pub(crate) fn ago(time: &Time) -> String {
    let seconds = Timestamp::now().duration_since(time.0).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use jiff::SignedDuration;
    use serde_json::{Value, json};

    use super::*;

    /// A cluster of three, of which one is on its way and one does not serve.
    pub(crate) fn degraded() -> Cluster {
        Cluster::from_budget(&serde_json::from_value(degraded_budget()).unwrap())
    }

    /// The budget of that cluster.
    pub(crate) fn degraded_budget() -> Value {
        json!({
            "apiVersion": "quorumgate.io/v1alpha1",
            "kind": "QuorumDisruptionBudget",
            "metadata": {"namespace": "db", "name": "etcd"},
            "spec": {"statefulSetName": "etcd"},
            "status": {
                "voters": 3, "currentHealthy": 1, "desiredHealthy": 2, "disruptionsAllowed": 0,
                "leader": "etcd-0",
                "members": [
                    {"name": "etcd-0", "pod": "etcd-0", "role": "Voter", "serving": true, "data": "Claim"},
                    {"name": "etcd-1", "pod": "etcd-1", "role": "Voter", "serving": true, "data": "Pod"},
                    {"name": "etcd-2", "pod": "etcd-2", "role": "Voter", "serving": false,
                     "why": "it refused the connection"},
                ],
                "grants": [{"member": "etcd-1", "causes": [
                    {"kind": "Delete", "seq": 1, "by": "jane", "time": "2026-11-25T07:00:00Z"}]}],
                "rollout": {"target": "etcd-abc", "updated": 1, "targets": 3,
                    "waitingOn": {"reason": "UpdatedMembers", "message": "etcd-2 is not ready",
                        "startTime": "2026-11-25T07:00:00Z"},
                    "lastStep": {"pod": "etcd-0", "action": "MoveLeader", "because": "leads"}},
                "conditions": [
                    {"type": "QuorumHealthy", "status": "True", "reason": "Quorate",
                     "message": "", "lastTransitionTime": "2026-11-25T07:00:00Z"},
                    {"type": "GateActive", "status": "False", "reason": "NotAsked",
                     "message": "the namespace lost its label",
                     "lastTransitionTime": "2026-11-25T07:00:00Z"},
                ],
            },
        })
    }

    #[test]
    fn a_cluster_is_told_with_its_members_and_what_is_wrong() {
        let told = degraded();
        let line = overview(
            std::slice::from_ref(&told),
            Columns {
                namespace: true,
                wide: true,
            },
            Paint::Never,
        );
        let row = line.lines().nth(1).unwrap();
        for word in [
            "db",
            "etcd",
            "1 of 3, 2 needed",
            "etcd-0",
            "not in force; NotAsked  etcd-2       etcd-1     GateActive  <none>",
        ] {
            assert!(row.contains(word), "{word}: {row}");
        }
        let details = told.details(Paint::Never);
        for words in [
            "etcd-0  leader  yes      claim",
            "etcd-1  voter   leaving  pod    permitted to be deleted, asked by jane, ",
            "etcd-2  voter   no              it refused the connection",
            "GateActive is False (NotAsked): the namespace lost its label",
        ] {
            assert!(details.contains(words), "{words}: {details}");
        }
        assert!(!told.is_well());
    }

    #[test]
    fn programs_get_a_code_for_each_reason() {
        let shown = serde_json::to_value(degraded()).unwrap();
        let states = [0, 1, 2].map(|member| shown["members"][member]["state"].clone());
        assert_eq!(states, ["Serving", "Leaving", "NotServing"]);
        let permitted = &shown["members"][1]["permitted"][0];
        assert_eq!(permitted["reason"], "Delete");
        assert_eq!(permitted["by"], "jane");
        assert_eq!(shown["problems"][0]["reason"], "NotAsked");
        assert_eq!(shown["disruptionsAllowed"], 0);
        assert_eq!(shown["rollout"]["state"], "Waiting");
        assert_eq!(shown["rollout"]["waitsFor"]["reason"], "UpdatedMembers");
        assert_eq!(
            shown["rollout"]["waitsFor"]["since"],
            "2026-11-25T07:00:00Z"
        );
        assert_eq!(shown["rollout"]["lastStep"]["action"], "MoveLeader");
    }

    #[test]
    fn a_pause_and_an_override_are_shown_until_they_end() {
        let of = |until: &str| {
            let budget = json!({
                "metadata": {"namespace": "db", "name": "etcd", "annotations": {
                    "quorumgate.io/override-until": until, "quorumgate.io/override-reason": "its disk",
                }},
                "spec": {"statefulSetName": "etcd", "paused": true},
            });
            Cluster::from_budget(&serde_json::from_value(budget).unwrap())
        };
        let soon = Timestamp::now() + SignedDuration::from_hours(1);
        let told = of(&soon.to_string());
        assert_eq!(told.rollout.short(), "none, paused");
        let details = told.details(Paint::Never);
        assert!(
            details.contains(&format!("overridden until {soon} (its disk)")),
            "{details}"
        );
        assert!(details.contains("rollouts are paused"), "{details}");
        assert_eq!(of("2020-01-01T00:00:00Z").overridden, None);
        let too_far = of("2999-01-01T00:00:00Z").overridden;
        assert_eq!(too_far, None, "the gate ignores it");
    }

    #[test]
    fn a_budget_without_a_status_is_unknown_and_not_well() {
        let new = json!({
            "metadata": {"namespace": "db", "name": "etcd"},
            "spec": {"statefulSetName": "etcd"},
        });
        let told = Cluster::from_budget(&serde_json::from_value(new).unwrap());
        assert_eq!(told.quorum, Quorum::Unknown);
        assert!(!told.is_well());
        let line = overview(&[told], Columns::default(), Paint::Never);
        assert!(line.contains("? of ?, ? needed"), "{line}");
    }
}
