//! The report on a cluster in its budget's status. Pure: made from a snapshot and the open grants.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition as Shown, Time};

use crate::api::names::{ACCEPT_DATA_LOSS, REPLACE};
use crate::api::{
    AppliedStatus, DataPlace, HeldStatus, MemberRole, MemberStatus, QuorumDisruptionBudgetStatus,
    Scheme, Way, condition,
};
use crate::ledger::{read_log_end, write_tolerance};
use crate::observe::{InitialState, name_a_user};
use crate::quorum::evidence::{AlarmKind, Round, Unanswered};
use crate::quorum::{
    ClusterRef, Condition, EvidenceMode, Grants, Member, MemberId, Membership, PodName, Role,
    Snapshot, Tolerance, Trust, Why,
};

use super::condition::{find, put};
use super::in_force::OutOfForce;

/// The reason of a condition that shows a label that is missing.
const NOT_LABELLED: &str = "NotLabelled";

/// The most copies of a cluster that a text names.
const MOST_COPIES: usize = 3;

/// The facts for a report.
pub(super) struct ReportFacts<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) round: &'a Round,
    pub(super) grants: &'a Grants,
    pub(super) trust: Trust,
    /// Why the ledger last lost its trust, if the budget says so.
    pub(super) untrusted_because: Option<&'a str>,
    /// Whether the API server asks the gate.
    pub(super) force: &'a Result<String, OutOfForce>,
    /// The way in which the members were asked.
    pub(super) way: &'a Way,
    /// The sources of the way, for people.
    pub(super) told: &'a str,
    /// Advice, where no member could be asked by any way.
    pub(super) advice: Option<&'a str>,
    /// The cluster, where its budget names no user of etcd.
    pub(super) without_user: Option<&'a ClusterRef>,
    /// Whether the StatefulSet has the label that enrols it, where the gate made the budget because
    /// of that. `None` where the label does not matter.
    pub(super) labelled: Option<bool>,
    /// The places of the members' data, by pod.
    pub(super) places: &'a BTreeMap<PodName, DataPlace>,
    /// Other clusters whose budgets report the same cluster id.
    pub(super) same_etcd: &'a [ClusterRef],
    /// The ends of the log as the members had applied it, by pod, with the ids of those members.
    pub(super) applied: &'a BTreeMap<PodName, (MemberId, AppliedStatus)>,
    /// The effect of a start without data, by pod, where the gate sets that in new pods.
    pub(super) initial_states: &'a BTreeMap<PodName, InitialState>,
    /// The words of nodes about containers that do not run, by pod.
    pub(super) troubles: &'a BTreeMap<PodName, String>,
    pub(super) generation: Option<i64>,
    pub(super) now: &'a Time,
}

/// The urgency of writing a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// Nothing changed.
    None,
    /// Only numbers and texts changed.
    Numbers,
    /// A condition, the leader, or the mapping of pods to members changed.
    Now,
}

impl ReportFacts<'_> {
    /// Writes the report into a status. Grants, ledger and the other fields that verdicts depend on
    /// are not touched.
    pub(super) fn show(&self, status: &mut QuorumDisruptionBudgetStatus) {
        let tolerance = self.snapshot.tolerance(self.grants);
        let leader = self.snapshot.members.iter().find(|member| member.leader);
        status.observed_generation = self.generation;
        write_tolerance(&tolerance, status);
        status.leader = leader.map(|member| member.name.clone());
        status.updated_members = self.updated();
        let seen = self.snapshot.members.iter();
        let seen = seen.map(|member| self.member(member, &status.members));
        status.members = seen.chain(self.unlisted(&status.members)).collect();
        for (kind, is, reason, message) in [
            self.quorum_healthy(&tolerance),
            self.cluster_id_consistent(),
            self.asked_by_tls(),
            self.evidence_live(),
            self.ledger_trusted(),
            self.gate_active(),
            self.all_members_updated(),
            self.alarms_clear(),
            self.data_intact(status),
        ] {
            self.set(&mut status.conditions, kind, is, reason, message);
        }
        let was_shown = find(&status.conditions, condition::ENROLLED).is_some();
        if let Some((kind, is, reason, message)) = self.enrolled()
            && (was_shown || reason == NOT_LABELLED)
        {
            self.set(&mut status.conditions, kind, is, reason, message);
        }
        if let Some((kind, is, reason, message)) = self.initial_state_set() {
            self.set(&mut status.conditions, kind, is, reason, message);
        } else {
            let kind = condition::INITIAL_STATE_SET;
            status.conditions.retain(|shown| shown.type_ != kind);
        }
        let (kind, is, reason, message) = self.ready(&status.conditions);
        self.set(&mut status.conditions, kind, is, &reason, message);
        // A condition that this look leaves as it is holds for the budget as it is now, too:
        // `kubectl wait` ignores one of an earlier generation.
        for shown in &mut status.conditions {
            shown.observed_generation = self.generation;
        }
    }

    /// The summary of the other conditions, for tools that look at one only. A choice of the owner
    /// is not held against the cluster: evidence from readiness, and a ledger that is not trusted
    /// because refusals are only reported.
    fn ready(&self, conditions: &[Shown]) -> (&'static str, Is, String, String) {
        let only_warns = self.trust == (Trust::Untrusted { remaining: None }) && self.force.is_ok();
        let is_chosen = |shown: &Shown| {
            shown.reason == "Readiness" || (shown.type_ == condition::LEDGER_TRUSTED && only_warns)
        };
        let parts = SUMMED_UP.iter().filter_map(|kind| find(conditions, kind));
        let failing = parts.filter(|shown| shown.status != "True" && !is_chosen(shown));
        // What is known to be wrong is told before what is not known.
        let first = failing.min_by_key(|shown| shown.status != "False");
        let (is, reason, message) = match first {
            None => (
                Is::True,
                "Guarded".to_owned(),
                "the cluster is healthy and guarded".to_owned(),
            ),
            Some(shown) => (
                if shown.status == "False" {
                    Is::False
                } else {
                    Is::Unknown
                },
                shown.reason.clone(),
                format!("{} is {}: {}", shown.type_, shown.status, shown.message),
            ),
        };
        (condition::READY, is, reason, message)
    }

    /// The verdict on what only members can say, where the budget has none of them asked.
    fn unasked(&self, kind: &'static str) -> Option<Verdict> {
        let text = "the budget asks for evidence from readiness: no member is asked";
        (self.snapshot.policy.evidence == EvidenceMode::Readiness)
            .then(|| (kind, Is::Unknown, "Readiness", text.to_owned()))
    }

    /// Whether the leader has everything that is known to be committed, and no member began without
    /// its data.
    fn data_intact(&self, status: &QuorumDisruptionBudgetStatus) -> Verdict {
        let (loss, refills) = (status.data_loss.as_ref(), &status.refills);
        let on_record = read_log_end(status);
        let kind = condition::DATA_INTACT;
        let ClusterRef { namespace, name } = &self.snapshot.cluster;
        let accept = |found: &Time| {
            let found = found.0.strftime("%Y-%m-%dT%H:%M:%SZ");
            format!(
                "kubectl -n {namespace} annotate --overwrite qdb {name} {ACCEPT_DATA_LOSS}={found}"
            )
        };
        let Some(went_back) = self.snapshot.went_back else {
            let latest = refills.iter().max_by_key(|refill| refill.detection_time.0);
            if let Some(latest) = latest {
                let (member, id) = (&latest.member, &latest.member_id);
                let all: Vec<&str> = refills.iter().map(|one| one.member.as_str()).collect();
                let text = format!(
                    "{} began without its data and serves under its old id, so a write that it had \
                     acknowledged just before may be lost. Find out what emptied it, then replace \
                     it: kubectl -n {namespace} annotate --overwrite qdb {name} {REPLACE}={id} \
                     ({member}). Or accept the loss: {}. No other member goes meanwhile",
                    all.join(", "),
                    accept(&latest.detection_time)
                );
                return (kind, Is::False, "Refilled", text);
            }
            if self.snapshot.log_end.is_some() {
                let text = on_record.map_or_else(
                    || "the leader answers, and no entry is on record yet".to_owned(),
                    |end| {
                        format!(
                            "the leader has entry {}, the last on record; of up to {} later ones \
                             nobody would know that they are lost",
                            end.index,
                            end.step()
                        )
                    },
                );
                return (kind, Is::True, "NothingLost", text);
            }
            if let Some(unasked) = self.unasked(kind) {
                return unasked;
            }
            let text = "no leader serves that could be asked";
            return (kind, Is::Unknown, "NoLeader", text.into());
        };
        let accept = loss.map_or_else(String::new, |loss| {
            let accept = accept(&loss.detection_time);
            format!("; find out why and restore it, or accept the loss: {accept}")
        });
        let text = format!("data is lost: {went_back}; no member goes{accept}");
        (kind, Is::False, "DataLost", text)
    }

    /// The alarms that members report, whatever is done about them.
    fn alarms_clear(&self) -> Verdict {
        let kind = condition::ALARMS_CLEAR;
        if let Some(unasked) = self.unasked(kind) {
            return unasked;
        }
        let members = self.snapshot.members.iter();
        let named = |alarm: AlarmKind| {
            let members = members.clone();
            let members = members.filter(move |member| member.alarms.contains(&alarm));
            members
                .map(|member| member.name.as_str())
                .collect::<Vec<_>>()
        };
        let (corrupt, full) = (named(AlarmKind::Corrupt), named(AlarmKind::NoSpace));
        if !self.snapshot.accused.is_empty() {
            let whose = if corrupt.is_empty() {
                "etcd names no member".to_owned()
            } else {
                corrupt.join(", ")
            };
            let text = format!(
                "alarm CORRUPT: the data of a member differs from that of the others ({whose})"
            );
            return (kind, Is::False, "Corrupt", text);
        }
        if !full.is_empty() {
            let text = format!(
                "alarm NOSPACE: the database of {} is at its quota, and etcd refuses writes until it is defragmented and the alarm is disarmed",
                full.join(", ")
            );
            return (kind, Is::False, "NoSpace", text);
        }
        if self.snapshot.cluster_ids.is_empty() {
            let text = "no member said whether there are alarms";
            return (kind, Is::Unknown, "NoEvidence", text.into());
        }
        (
            kind,
            Is::True,
            "NoAlarm",
            "no alarm stands against a member".into(),
        )
    }

    /// Whether the StatefulSet has the label that enrols it. `None` if that does not matter.
    fn enrolled(&self) -> Option<Verdict> {
        let ClusterRef { namespace, name } = &self.snapshot.cluster;
        Some(if self.labelled? {
            let text = "the StatefulSet has the label that enrols it".to_owned();
            (condition::ENROLLED, Is::True, "Labelled", text)
        } else {
            let text = format!(
                "the StatefulSet has no label quorumgate.io/enroll, so nothing guards its members \
                 once this budget is deleted; add the label: kubectl -n {namespace} label \
                 statefulset {name} quorumgate.io/enroll=true"
            );
            (condition::ENROLLED, Is::False, NOT_LABELLED, text)
        })
    }

    /// Whether each member joins at a start without data. `None` where the gate does not see to it.
    ///
    /// etcd reads the setting only where there is no data. So it matters when the data of a member
    /// is lost while its pod stays, and the webhook for new pods does not reach such a pod.
    fn initial_state_set(&self) -> Option<Verdict> {
        let kind = condition::INITIAL_STATE_SET;
        let ClusterRef { namespace, name } = &self.snapshot.cluster;
        let of = |wanted: InitialState| {
            let pods = self.initial_states.iter();
            let pods = pods.filter(move |(_, state)| **state == wanted);
            let pods: Vec<&str> = pods.map(|(pod, _)| pod.as_str()).collect();
            (!pods.is_empty()).then(|| pods.join(", "))
        };
        let unread = of(InitialState::Unread).map(|pods| {
            format!("a script, a file or another object sets initial-cluster-state of {pods}")
        });
        Some(match (of(InitialState::New), unread) {
            (Some(pods), unread) => {
                let unread = unread.map_or_else(String::new, |text| format!("; {text}"));
                let text = format!(
                    "initial-cluster-state of {pods} is new: without its data such a member starts a cluster, and joins none. The gate sets existing when it sees a pod created: kubectl -n {namespace} rollout restart statefulset {name}{unread}"
                );
                (kind, Is::False, "StartsAnew", text)
            }
            (None, Some(text)) => (kind, Is::Unknown, "Unread", text),
            (None, None) => {
                let pods = of(InitialState::Existing)?;
                let text = format!("initial-cluster-state of {pods} is existing");
                (kind, Is::True, "Existing", text)
            }
        })
    }

    fn updated(&self) -> Option<i32> {
        let update = self.snapshot.update_revision.as_deref()?;
        let pods = self.snapshot.pods.iter();
        let updated = pods.filter(|pod| pod.revision.as_deref() == Some(update));
        i32::try_from(updated.count()).ok()
    }

    /// The recorded external members, if no member gives a list, or none that is proven. No other
    /// source has them and their addresses.
    fn unlisted<'s>(
        &self,
        before: &'s [MemberStatus],
    ) -> impl Iterator<Item = MemberStatus> + use<'s> {
        let live = self.snapshot.policy.evidence == EvidenceMode::Live;
        let unread = self.snapshot.membership == Membership::Unread;
        let why = if unread {
            "no member gives a list of the members"
        } else {
            "the members that answer do not list it, and may have started a cluster of their own"
        };
        let doubtful = live && (unread || self.snapshot.unproven_voters > 0);
        let set = self.snapshot.cluster.name.clone();
        let kept = move |member: &&MemberStatus| doubtful && member.is_external_to(&set);
        before.iter().filter(kept).map(|member| MemberStatus {
            serving: false,
            why: Some(why.into()),
            ..member.clone()
        })
    }

    /// The report on a member. Its id is the recorded one if the member does not answer now.
    fn member(&self, member: &Member, before: &[MemberStatus]) -> MemberStatus {
        let pod = member.pod.as_ref();
        let uid = pod.map(|pod| pod.uid.to_string());
        let known = || {
            let same_uid = |m: &&MemberStatus| uid.is_some() && m.pod_uid == uid;
            let same_name = |m: &&MemberStatus| m.name == member.name;
            let earlier = before.iter();
            let by_uid = earlier.clone().find(same_uid);
            by_uid.or_else(|| earlier.clone().find(same_name))
        };
        let id = member.id.map(|id| id.to_string());
        let id = id.or_else(|| known()?.member_id.clone());
        // The member of a pod may be another than a moment ago.
        let seen = member.pod_name().and_then(|pod| self.applied.get(pod));
        let seen = seen.filter(|(of, _)| id == Some(of.to_string()));
        let applied = seen.map(|(_, applied)| applied.clone());
        let recorded = || {
            known()
                .filter(|known| known.member_id == id)?
                .applied
                .clone()
        };
        let sizes = member.sizes;
        let bytes = |bytes: u64| i64::try_from(bytes).ok();
        MemberStatus {
            name: member.name.clone(),
            pod: member.pod_name().map(ToString::to_string),
            pod_uid: uid.clone(),
            member_id: id.clone(),
            role: match member.role {
                Role::Voter => MemberRole::Voter,
                Role::Learner => MemberRole::Learner,
            },
            serving: member.condition == Condition::Serving,
            why: self.why(member),
            revision: pod.and_then(|pod| pod.revision.clone()),
            lag: member.lag.and_then(bytes),
            db_size_bytes: sizes.and_then(|sizes| bytes(sizes.db)),
            db_size_in_use_bytes: sizes.and_then(|sizes| bytes(sizes.in_use)),
            db_size_quota_bytes: sizes.and_then(|sizes| bytes(sizes.quota?)),
            data: member
                .pod_name()
                .and_then(|pod| self.places.get(pod).copied()),
            applied: applied.or_else(recorded),
            holds: self.holds(member),
            alarms: member.alarms.iter().map(ToString::to_string).collect(),
            client_urls: if member.pod_name().is_some() {
                Vec::new()
            } else {
                self.client_urls(member)
            },
        }
    }

    /// The data of a member that answers without a leader: nothing is written then, so it stays.
    fn holds(&self, member: &Member) -> Option<HeldStatus> {
        let is_lost = member.leaderless && !self.snapshot.proves_quorum();
        let id = member.id.filter(|_| is_lost)?;
        let answers = self
            .round
            .probes
            .iter()
            .filter_map(|p| p.status.as_ref().ok());
        let mut own = answers.filter(|status| status.member_id == id);
        own.next().map(|status| HeldStatus {
            cluster_id: status.cluster_id.to_string(),
            raft_index: i64::try_from(status.applied_index).unwrap_or(i64::MAX),
            revision: i64::try_from(status.revision).unwrap_or(i64::MAX),
        })
    }

    /// The client URLs of a member without a pod, from the lists of members that answered.
    fn client_urls(&self, member: &Member) -> Vec<String> {
        let lists = self.round.probes.iter().flat_map(|p| p.members.iter());
        let mut listed = lists.flatten();
        let found = listed.find(|l| Some(l.id) == member.id && !l.client_urls.is_empty());
        found.map(|l| l.client_urls.clone()).unwrap_or_default()
    }

    /// Why the member does not serve, with what its node says where a container does not run.
    fn why(&self, member: &Member) -> Option<String> {
        let why = member.condition.why()?;
        let trouble = member.pod_name().and_then(|pod| self.troubles.get(pod));
        Some(match trouble {
            Some(trouble) => format!("{why}; {trouble}"),
            None => why.to_string(),
        })
    }

    fn not_serving(&self, member: &Member) -> Option<String> {
        Some(format!("{} ({})", member.name, self.why(member)?))
    }

    fn quorum_healthy(&self, tolerance: &Tolerance) -> Verdict {
        let Tolerance {
            voters,
            serving,
            majority,
            needed: _,
            in_flight,
            is_withheld: _,
        } = tolerance;
        let mut text = format!(
            "{serving} of {voters} voters serve without an open permission to go, {majority} are needed"
        );
        if !in_flight.is_empty() {
            let names: Vec<&str> = in_flight.iter().map(PodName::as_str).collect();
            text.push_str("; may be on their way: ");
            text.push_str(&names.join(", "));
        }
        let members = self.snapshot.members.iter();
        let voters = || members.clone().filter(|m| m.role == Role::Voter);
        let idle: Vec<String> = voters().filter_map(|m| self.not_serving(m)).collect();
        if !idle.is_empty() {
            text.push_str("; not serving: ");
            text.push_str(&idle.join(", "));
        }
        let nobody_answered = !voters().any(|m| !matches!(m.condition, Condition::Unknown(_)));
        // Those that refuse by a way that is not proven may serve all the same.
        let doubted = voters().filter(|m| {
            let why = m.condition.why();
            matches!(why, Some(Why::RefusesAsAllDo | Why::RefusesThoughReady))
        });
        let doubted = u32::try_from(doubted.count()).unwrap_or(u32::MAX);
        let may_be_sound = nobody_answered || serving.saturating_add(doubted) >= *majority;
        let (is, reason) = if self.snapshot.quorum_lost {
            (Is::False, "QuorumLost")
        } else if tolerance.headroom() < 0 && may_be_sound {
            (Is::Unknown, "NoEvidence")
        } else if tolerance.headroom() < 0 {
            (Is::False, "BelowMajority")
        } else if tolerance.headroom() == 0 {
            (Is::True, "NoHeadroom")
        } else if !idle.is_empty() || !in_flight.is_empty() {
            (Is::True, "SomeNotServing")
        } else {
            (Is::True, "AllServing")
        };
        (condition::QUORUM_HEALTHY, is, reason, text)
    }

    /// The words about copies of the cluster, which count for nothing here.
    fn copies(&self) -> String {
        let others = self.same_etcd.iter().take(MOST_COPIES);
        let others: Vec<String> = others.map(ToString::to_string).collect();
        if others.is_empty() {
            return String::new();
        }
        let others = others.join(", ");
        format!("; so do those of {others}, a copy, and none of them counts here")
    }

    fn cluster_id_consistent(&self) -> Verdict {
        let ids = &self.snapshot.cluster_ids;
        let unasked = self.unasked(condition::CLUSTER_ID_CONSISTENT);
        if let Some(unasked) = unasked.filter(|_| self.snapshot.circumstances.shared_with.is_none())
        {
            return unasked;
        }
        let (is, reason, text) = match (&self.snapshot.circumstances.shared_with, ids.as_slice()) {
            (Some(other), _) => (
                Is::False,
                "SharedCluster",
                format!("the budget {other} reports the same etcd cluster id"),
            ),
            (None, []) => (
                Is::Unknown,
                "NoEvidence",
                "no member said which etcd cluster it belongs to".into(),
            ),
            (None, [id]) if self.snapshot.is_cluster_in_doubt => (
                Is::False,
                "SeveralClusterIDs",
                format!(
                    "the members that answer belong to the etcd cluster {id}, which is not the recorded one, and no majority confirms it"
                ),
            ),
            (None, [id]) => (
                Is::True,
                "OneClusterID",
                format!(
                    "every member that answered belongs to the etcd cluster {id}{}",
                    self.copies()
                ),
            ),
            (None, several) => {
                let ids: Vec<String> = several.iter().map(ToString::to_string).collect();
                let text = format!(
                    "the members belong to several etcd clusters: {}",
                    ids.join(", ")
                );
                (Is::False, "SeveralClusterIDs", text)
            }
        };
        (condition::CLUSTER_ID_CONSISTENT, is, reason, text)
    }

    fn asked_by_tls(&self) -> Verdict {
        let kind = condition::MEMBERS_ASKED_BY_TLS;
        let told = self.told;
        if let Some(unasked) = self.unasked(kind) {
            return unasked;
        }
        match (self.way.scheme, &self.way.authority) {
            (Scheme::Https, Some(_)) => (kind, Is::True, "Found", told.to_owned()),
            (Scheme::Http, _) => {
                let text = format!("members are asked in plaintext: {told}");
                (kind, Is::False, "Plaintext", text)
            }
            (Scheme::Https, None) => {
                let text = format!("no member can be asked: {told}");
                (kind, Is::Unknown, "NotFound", text)
            }
        }
    }

    fn evidence_live(&self) -> Verdict {
        let kind = condition::EVIDENCE_LIVE;
        if self.snapshot.policy.evidence == EvidenceMode::Readiness {
            let text = "the budget asks for evidence from readiness, which is weaker and lags behind by up to 30 s";
            return (kind, Is::False, "Readiness", text.into());
        }
        let members = self.snapshot.members.iter();
        let silent = members.filter_map(|m| match m.condition.why()? {
            Why::Silent(why) | Why::Unconfirmed(why) => Some((m, why)),
            _ => None,
        });
        let mut hindered = Vec::new();
        let mut first = None;
        for (member, why) in silent {
            if !matches!(why, Unanswered::Tls(_) | Unanswered::Denied(_)) {
                continue;
            }
            first = first.or(Some(why));
            hindered.push(format!("{}: {why}", member.name));
        }
        let answered = self.round.probes.iter().filter(|p| p.status.is_ok());
        let answered = answered.count();
        let reason: Option<&str> = first.map(Into::into);
        if let (0, Some(advice)) = (answered, self.advice) {
            let text = format!("no member answered by any way; {advice}");
            return (kind, Is::False, reason.unwrap_or("NoAnswer"), text);
        }
        if let Some(reason) = reason {
            let is_denied = matches!(first, Some(Unanswered::Denied(_)));
            let fix = self.without_user.filter(|_| is_denied).map(name_a_user);
            let fix = fix.map_or_else(String::new, |fix| format!("; to fix it, {fix}"));
            let text = format!("{}; asked by: {}{fix}", hindered.join("; "), self.told);
            return (kind, Is::False, reason, text);
        }
        match answered {
            0 => {
                let text = format!("no member answered; asked by: {}", self.told);
                (kind, Is::False, "NoAnswer", text)
            }
            some => (
                kind,
                Is::True,
                "Answered",
                format!("{some} of {} endpoints answered", self.round.probes.len()),
            ),
        }
    }

    fn ledger_trusted(&self) -> Verdict {
        let kind = condition::LEDGER_TRUSTED;
        let because = self
            .untrusted_because
            .unwrap_or("the budget is new, or the API server did not ask the gate for a while");
        match self.trust {
            Trust::Trusted => (
                kind,
                Is::True,
                "Watched",
                "every open permission is known".into(),
            ),
            Trust::Untrusted { remaining: Some(_) } => (
                kind,
                Is::False,
                "Untrusted",
                format!(
                    "{because}: permissions given elsewhere may still be open, so only members that are dead for good may be deleted until a settle time has passed"
                ),
            ),
            // Under `Warn` everything passes, so nothing is said of who may go.
            Trust::Untrusted { remaining: None } => (
                kind,
                Is::False,
                "Untrusted",
                format!(
                    "{because}: as long as that lasts, and for a settle time after it, the ledger may lack permissions that are open"
                ),
            ),
        }
    }

    fn gate_active(&self) -> Verdict {
        let kind = condition::GATE_ACTIVE;
        match self.force {
            Ok(_) => (
                kind,
                Is::True,
                "InForce",
                "the API server asks the gate about this cluster's pods".into(),
            ),
            Err(why) => (kind, Is::False, why.reason(), why.to_string()),
        }
    }

    fn all_members_updated(&self) -> Verdict {
        let kind = condition::ALL_MEMBERS_UPDATED;
        let wanted = self.snapshot.replicas;
        let here = self.snapshot.pods.len();
        match self.updated().and_then(|n| u32::try_from(n).ok()) {
            None => (
                kind,
                Is::Unknown,
                "NoRevision",
                "the StatefulSet names no update revision".into(),
            ),
            // Pods beyond the replicas are on their way out.
            Some(updated) if updated >= wanted && usize::try_from(updated) == Ok(here) => (
                kind,
                Is::True,
                "Updated",
                "every pod has the update revision".into(),
            ),
            Some(updated) => (
                kind,
                Is::False,
                "Outdated",
                format!(
                    "{updated} of {wanted} pods have the update revision{}",
                    self.outside_ordinals()
                ),
            ),
        }
    }

    /// The pods before which the StatefulSet's controller updates no other, with the way on.
    fn outside_ordinals(&self) -> String {
        let pods = self.snapshot.pods.iter().map(|pod| &pod.name);
        let outside: Vec<&str> = pods
            .filter(|pod| self.snapshot.is_outside_ordinals(pod))
            .map(PodName::as_str)
            .collect();
        if outside.is_empty() {
            return String::new();
        }
        format!("; {}: {OUTSIDE_ORDINALS}", outside.join(", "))
    }

    fn set(&self, conditions: &mut Vec<Shown>, kind: &str, is: Is, reason: &str, message: String) {
        let shown = Shown {
            type_: kind.to_owned(),
            status: is.text().to_owned(),
            reason: reason.to_owned(),
            message,
            last_transition_time: self.now.clone(),
            observed_generation: self.generation,
        };
        put(conditions, shown);
    }
}

/// The state of a pod that its StatefulSet would not create again.
pub(super) const OUTSIDE_ORDINALS: &str = "its StatefulSet keeps no pod for this ordinal; scale it back, or announce what you want (quorumgate.io/intent)";

/// The conditions that `Ready` sums up, the one that explains the others first.
const SUMMED_UP: [&str; 8] = [
    condition::GATE_ACTIVE,
    condition::EVIDENCE_LIVE,
    condition::CLUSTER_ID_CONSISTENT,
    condition::QUORUM_HEALTHY,
    condition::DATA_INTACT,
    condition::ALARMS_CLEAR,
    condition::DATA_PROTECTED,
    condition::LEDGER_TRUSTED,
];

/// A condition: its type, its status, its reason and its message.
type Verdict = (&'static str, Is, &'static str, String);

/// The status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    True,
    False,
    Unknown,
}

impl Is {
    fn text(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// The urgency of the difference between two reports.
pub(super) fn urgency(
    before: &QuorumDisruptionBudgetStatus,
    after: &QuorumDisruptionBudgetStatus,
) -> Urgency {
    if before == after {
        return Urgency::None;
    }
    if headline(before) == headline(after) {
        Urgency::Numbers
    } else {
        Urgency::Now
    }
}

/// The conditions of operations, whose words name the step that comes next.
const OF_OPERATIONS: [&str; 4] = [
    condition::DATA_PROTECTED,
    condition::DEFRAGMENTED,
    condition::SCALED,
    condition::RECOVERED,
];

/// Whether an operation writes this condition.
pub(super) fn is_of_operation(shown: &Shown) -> bool {
    OF_OPERATIONS.contains(&shown.type_.as_str()) || shown.type_ == condition::PROGRESSING
}

/// The part of a report that is not a number.
pub(super) fn headline(status: &QuorumDisruptionBudgetStatus) -> impl PartialEq + use<> {
    let words = |c: &Shown| {
        let says = OF_OPERATIONS.contains(&c.type_.as_str());
        says.then(|| c.message.clone())
    };
    let conditions: Vec<(String, String, String, Option<String>)> = status
        .conditions
        .iter()
        .map(|c| {
            (
                c.type_.clone(),
                c.status.clone(),
                c.reason.clone(),
                words(c),
            )
        })
        .collect();
    let members: Vec<(String, Option<String>, Option<String>)> = status
        .members
        .iter()
        .map(|m| (m.name.clone(), m.pod_uid.clone(), m.member_id.clone()))
        .collect();
    let generation = status.observed_generation;
    let strategy = status.update_strategy.clone();
    let way = status.way.clone();
    (
        conditions,
        members,
        status.leader.clone(),
        generation,
        strategy,
        way,
        status.joins_by.clone(),
        of_rollout(status),
    )
}

/// The report on a rollout without the words of a wait, which change all the time.
fn of_rollout(status: &QuorumDisruptionBudgetStatus) -> impl PartialEq + use<> {
    let mut rollout = status.rollout.clone();
    if let Some(waiting) = rollout.as_mut().and_then(|r| r.waiting_on.as_mut()) {
        waiting.message.clear();
    }
    rollout
}

/// The conditions that changed, with their new values. The summary only repeats what another says.
pub(super) fn turned<'a>(before: &[Shown], after: &'a [Shown]) -> Vec<&'a Shown> {
    let same = |now: &Shown| {
        let then = before.iter().find(|then| then.type_ == now.type_);
        then.is_some_and(|then| then.status == now.status && then.reason == now.reason)
    };
    let told = after.iter().filter(|now| now.type_ != condition::READY);
    told.filter(|now| !same(now)).collect()
}

#[cfg(test)]
mod tests;
