//! [`Snapshot::assemble`]: from an [`Observation`] to a [`Snapshot`].
//!
//! The steps: sort the answers, find what the answers agree on, choose the member list that counts,
//! match pods with members, and work out the condition of each member.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::agreement;
use super::answers::{Answers, MemberAnswer};
use super::condition::{self, Condition, Consensus};
use super::evidence::{ListedMember, Round, Status, Unanswered};
use super::expected_voters::count;
use super::id::{ClusterId, MemberId, PodName};
use super::log_end::{self, LogEnd};
use super::mapping::{Identity, Mapping};
use super::membership::{List, Membership};
use super::pod::{Containers, Node, Pod};
use super::policy::EvidenceMode;
use super::process::{self, ConnectionRefusal, ProcessState, Silence};
use super::readiness;
use super::snapshot::{Member, MemberPod, Observation, Role, Sizes, Snapshot};
use super::tolerance::is_lost;
use super::why::Why;

/// The age from which etcd's process is taken to go on, also where its pod is not Ready.
const LASTS_AFTER: Duration = Duration::from_secs(10);

impl Snapshot {
    /// Works out the state of a cluster from what was observed. The order of pods, probes and
    /// listed members makes no difference.
    pub fn assemble(observation: &Observation) -> Self {
        let mut snapshot = Self::blank(observation);
        match observation.policy.evidence {
            EvidenceMode::Live => {
                snapshot.take_in_answers(observation);
                snapshot.log_end = end_of_log(&snapshot, observation);
            }
            EvidenceMode::Readiness => readiness::take_in(&mut snapshot),
        }
        let went_back = log_end::went_back(snapshot.log_end, observation.recorded_log_end);
        snapshot.went_back = observation.recorded_loss.or(went_back);
        let is_refilled = |member: &&Member| {
            member
                .id
                .is_some_and(|id| observation.recorded_refills.contains(&id))
        };
        let refilled = snapshot.members.iter().filter(is_refilled);
        snapshot.refilled = refilled.map(|member| member.name.clone()).collect();
        snapshot
    }

    /// The pods whose nodes make a difference to the snapshot. The node of any other pod may be
    /// left unread: its member has given a status, which no report of a node contradicts.
    ///
    /// All nodes make a difference where pods alone are the evidence (`evidence: Readiness`), where
    /// a pod that is called ready may be the only sign that the cluster has formed, and where
    /// members name different clusters, so that some answers may not count.
    pub fn nodes_in_question(observation: &Observation) -> Vec<PodName> {
        let answers = Answers::sort(&observation.pods, &observation.round);
        let all = observation.policy.evidence == EvidenceMode::Readiness
            || !observation.formed
            || agreement::clusters(&answers).len() > 1;
        let is_heard = |pod: &Pod| {
            let answer = answers.of_pod(&pod.uid);
            answer.is_some_and(|answer| answer.heard().is_some())
        };
        let in_question = |pod: &&Pod| all || !is_heard(pod);
        let pods = observation.pods.iter().filter(in_question);
        pods.map(|pod| pod.name.clone()).collect()
    }

    /// The snapshot as far as the Kubernetes API and the budget determine it, without any answer of
    /// etcd.
    fn blank(observation: &Observation) -> Self {
        let o = observation.clone();
        let mut pods = o.pods;
        pods.sort_by(|a, b| (&a.name, &a.uid).cmp(&(&b.name, &b.uid)));
        let formed = o.formed || pods.iter().any(process::is_called_ready);
        Self {
            cluster: o.cluster,
            circumstances: o.circumstances,
            policy: o.policy,
            replicas: o.replicas,
            update_revision: o.update_revision,
            proceed_without_quorum: o.proceed_without_quorum,
            expected: o.expected.observe(0, o.replicas),
            formed,
            recorded_externals: o.recorded_externals,
            first_ordinal: o.first_ordinal,
            scaled_out_for: o.scaled_out_for,
            quorum_lost_for: o.quorum_lost_for,
            mute_for: o.mute_for,
            learners_stuck_for: o.learners_stuck_for.clone(),
            cluster_id: None,
            cluster_ids: Vec::new(),
            leader: None,
            term: None,
            membership: Membership::Unread,
            is_cluster_in_doubt: false,
            unproven_voters: 0,
            members: Vec::new(),
            accused: BTreeSet::new(),
            not_members: Vec::new(),
            pods,
            quorum_lost: false,
            is_mute: false,
            log_end: None,
            went_back: None,
            refilled: Vec::new(),
        }
    }

    fn take_in_answers(&mut self, observation: &Observation) {
        let pods = self.pods.clone();
        let answers = Answers::sort(&pods, &observation.round);
        let externals = self.recorded_externals;
        let replicas = self.replicas.saturating_add(externals);
        let agreed = agreement::cluster(&answers).map(|agreed| agreed.on);
        let is_recorded = agreed.is_some() && agreed == observation.recorded_cluster;
        let is_another = agreed.is_some() && observation.recorded_cluster.is_some() && !is_recorded;
        // At most `spec.replicas` voters are expected, which may leave external voters out. Those
        // are added to the pods: a pod that started a cluster of its own must not look like the
        // majority. After a scale-in none may be expected yet, and `spec.replicas` takes their
        // place.
        let expected = match self.expected.voters {
            0 if externals > 0 => self.replicas,
            expected => expected,
        };
        let here = expected.min(count(pods.len()));
        let known = self.expected.voters.max(here.saturating_add(externals));
        // Members of another cluster than the recorded one have to be the majority of all that the
        // StatefulSet asks for, also where no voters are expected yet.
        let known = if is_another {
            known.max(replicas)
        } else {
            known
        };
        let was = self.expected.voters;
        let consensus = Consensus::find(&answers, self.policy.lag_bound, was, |list| {
            list.map_or(replicas, List::voters).max(known)
        });
        let mapping = Mapping::draw(
            &pods,
            &answers,
            consensus.cluster.map(|agreed| agreed.on),
            consensus.list.as_ref(),
        );
        self.cluster_id = consensus.cluster.map(|agreed| agreed.on);
        self.cluster_ids = agreement::clusters(&answers);
        self.leader = consensus.leadership.map(|agreed| agreed.on.0);
        self.term = consensus.leadership.map(|agreed| agreed.on.1);
        self.membership = List::membership(consensus.list.as_ref());
        let names_externals = listed_externals(&mapping, &consensus) >= externals;
        let is_first = observation.recorded_cluster.is_none() && names_externals;
        let is_proven = is_recorded || is_first || consensus.is_backed();
        self.is_cluster_in_doubt = self.cluster_id.is_some() && !is_proven;
        if consensus.list.is_some() && self.is_cluster_in_doubt {
            self.unproven_voters = known;
        }
        if let Membership::Confirmed { voters } = self.membership {
            self.expected = self.expected.observe(voters, self.replicas);
        }
        self.accused = consensus.accused();
        self.not_members = proven_non_members(&pods, &mapping, &consensus);
        let sources = MemberSources {
            set: &observation.cluster.name,
            recorded_pods: &observation.recorded_pods,
            answers: &answers,
            mapping: &mapping,
            consensus: &consensus,
            has_worked: self.formed || self.expected.voters > 0,
            recorded_cluster: observation.recorded_cluster,
        };
        self.members = sources.members(&pods, &self.not_members);
        self.quorum_lost = is_lost(&self.members, self.electorate(&self.members));
        self.is_mute = self.are_all_mute() && observation.recorded_cluster.is_some();
        if self.proves_quorum() {
            // A voter that serves proves a quorum, so the time watched until now does not count.
            self.quorum_lost_for = None;
        }
    }
}

impl Snapshot {
    /// Whether every member that counts runs in a pod here, accepted a connection, answered
    /// nothing, and is not ready.
    fn are_all_mute(&self) -> bool {
        let counted = self.electorate(&self.members);
        let is_mute = |pod: &Pod| {
            let member = self.member(&pod.name);
            let runs = pod.node == Node::Ready && pod.containers == Containers::Running;
            let mute = Condition::Unknown(Why::Silent(Unanswered::Mute));
            runs && !pod.etcd_ready && member.is_some_and(|member| member.condition == mute)
        };
        counted > 0 && count(self.pods.len()) == counted && self.pods.iter().all(is_mute)
    }
}

/// The number of voters in the member list that counts which are in no pod.
fn listed_externals(mapping: &Mapping, consensus: &Consensus<'_>) -> u32 {
    let with_pod = mapping.with_pod();
    let listed = consensus.list.iter().flat_map(|list| list.members);
    let voters = listed.filter(|listed| !listed.learner);
    count(voters.filter(|voter| !with_pod.contains(&voter.id)).count())
}

/// The pods that are proven not to be members.
///
/// A member list is a proof only if a majority of the known voters belongs to the cluster of that
/// list. Otherwise the list may come from a member that started a cluster of its own: such a list
/// names nobody else.
fn proven_non_members(pods: &[Pod], mapping: &Mapping, consensus: &Consensus<'_>) -> Vec<PodName> {
    let list = consensus.confirmed_list();
    let Some(list) = list.filter(|_| consensus.is_backed()) else {
        return Vec::new();
    };
    pods.iter()
        .filter(|pod| mapping.proves_no_member(pod, list))
        .map(|pod| pod.name.clone())
        .collect()
}

/// The data from which the members are built.
struct MemberSources<'a, 'b> {
    set: &'b str,
    recorded_pods: &'b BTreeMap<MemberId, PodName>,
    answers: &'b Answers<'a>,
    mapping: &'b Mapping,
    consensus: &'b Consensus<'a>,
    /// Whether the cluster is known to have worked once.
    has_worked: bool,
    recorded_cluster: Option<ClusterId>,
}

impl MemberSources<'_, '_> {
    fn members(&self, pods: &[Pod], not_members: &[PodName]) -> Vec<Member> {
        let excluded: BTreeSet<&PodName> = not_members.iter().collect();
        let here: Vec<Member> = pods
            .iter()
            .filter(|pod| !excluded.contains(&pod.name))
            .map(|pod| self.with_pod(pod))
            .collect();
        let doubtful = here
            .iter()
            .any(|member| member.id.is_none() && member.process == ProcessState::Alive);
        here.into_iter().chain(self.elsewhere(doubtful)).collect()
    }

    fn with_pod(&self, pod: &Pod) -> Member {
        let silent = MemberAnswer::Silent(Unanswered::NotAsked);
        let answer = self.answers.of_pod(&pod.uid).unwrap_or(&silent);
        let identity = self.mapping.identity(&pod.uid);
        let id = identity.id();
        let status = answer.heard().map(|heard| heard.status);
        let role = self.role(identity, status);
        let condition = if pod.terminating {
            Condition::Failing(Why::Terminating)
        } else if let MemberAnswer::Silent(Unanswered::Refused) = answer
            && let Some(doubt) = self.doubt_of_refusal(pod)
        {
            Condition::Unknown(doubt)
        } else {
            let condition = as_role(role, condition::of_answer(answer, self.consensus));
            if condition == Condition::Serving && is_starting_still(pod) {
                Condition::Unknown(Why::JustStarted)
            } else {
                condition
            }
        };
        Member {
            id,
            name: pod.name.to_string(),
            leader: id.is_some() && id == self.consensus.leadership.map(|agreed| agreed.on.0),
            role,
            process: self.process(pod, answer),
            leaderless: self.is_leaderless(status),
            lag: id.and_then(|id| self.consensus.lag(id)),
            sizes: status.map(sizes),
            alarms: id.map(|id| self.consensus.alarms(id)).unwrap_or_default(),
            condition,
            pod_name: Some(pod.name.clone()),
            pod: Some(MemberPod::new(pod)),
        }
    }

    /// The reason not to believe that nothing listens in a pod which refused the connection, if
    /// there is one.
    ///
    /// All pods are asked by the same way: the same port, the same certificates, the same network
    /// policies. Where another one answers, the way works, so the process itself refuses. Where
    /// nobody answers, the way may be at fault: an earlier answer proves nothing, because a policy
    /// may be newer. A cluster that never worked is repaired all the same: it has no quorum to
    /// lose.
    fn doubt_of_refusal(&self, pod: &Pod) -> Option<Why> {
        if process::is_called_ready(pod) {
            return Some(Why::RefusesThoughReady);
        }
        let is_believed =
            !self.has_worked || process::is_called_down(pod) || self.another_answers(pod);
        (!is_believed).then_some(Why::RefusesAsAllDo)
    }

    /// Whether another pod gave a status of this cluster.
    fn another_answers(&self, pod: &Pod) -> bool {
        let agreed = self.consensus.cluster.map(|agreed| agreed.on);
        let recorded = self
            .recorded_cluster
            .filter(|_| !self.consensus.is_backed());
        let cluster = recorded.or(agreed);
        self.answers
            .by_pods()
            .filter(|(uid, _)| **uid != pod.uid)
            .any(|(_, heard)| Some(heard.status.cluster_id) == cluster)
    }

    /// The listed members without a pod. `doubtful` says that some pod could not be matched with a
    /// member: an answer from a client URL may be the answer of that pod, and does not count then.
    fn elsewhere(&self, doubtful: bool) -> Vec<Member> {
        let with_pod = self.mapping.with_pod();
        let mut listed: Vec<&ListedMember> = self
            .consensus
            .list
            .iter()
            .flat_map(|list| list.members)
            .filter(|listed| !with_pod.contains(&listed.id))
            .collect();
        listed.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
        listed
            .into_iter()
            .map(|listed| self.without_pod(listed, doubtful))
            .collect()
    }

    /// A listed member without a pod.
    ///
    /// A member that belongs in a pod of this StatefulSet serves in that pod or not at all. An
    /// answer from its client URL comes from a pod that is going away, or from another member.
    fn without_pod(&self, listed: &ListedMember, doubtful: bool) -> Member {
        let pod_name = self.belongs_in(listed);
        let answer = self.answers.of_external(listed.id);
        let status = answer
            .and_then(MemberAnswer::heard)
            .map(|heard| heard.status);
        let role = self.role(Identity::Answered(listed.id), status);
        let unstarted = listed.name.is_empty() && listed.client_urls.is_empty();
        let condition = match answer.map(|answer| condition::of_answer(answer, self.consensus)) {
            Some(Condition::Serving) if pod_name.is_some() => Condition::Unknown(Why::NoPod),
            Some(Condition::Serving) if doubtful => Condition::Unknown(Why::MayBeAPod),
            // No other member is asked by this way, so nothing ever proves it.
            Some(Condition::Failing(Why::Silent(Unanswered::Refused))) => {
                Condition::Unknown(Why::RefusesAsAllDo)
            }
            Some(condition) => as_role(role, condition),
            None if unstarted && self.consensus.confirmed_list().is_some() => {
                Condition::Failing(Why::Unstarted)
            }
            None if pod_name.is_some() => Condition::Unknown(Why::NoPod),
            None => Condition::Unknown(Why::Elsewhere),
        };
        Member {
            id: Some(listed.id),
            name: if listed.name.is_empty() {
                format!("member {}", listed.id)
            } else {
                listed.name.clone()
            },
            pod_name,
            pod: None,
            role,
            leader: Some(listed.id) == self.consensus.leadership.map(|agreed| agreed.on.0),
            condition,
            process: ProcessState::Elsewhere,
            leaderless: !doubtful && self.is_leaderless(status),
            lag: self.consensus.lag(listed.id),
            sizes: status.map(sizes),
            alarms: self.consensus.alarms(listed.id),
        }
    }

    /// The name of the pod that a listed member belongs in. It follows from the member's name, from
    /// its peer URL if the member has never started, or from the budget's record.
    fn belongs_in(&self, listed: &ListedMember) -> Option<PodName> {
        let urls = || {
            let mut urls = listed.peer_urls.iter().filter(|_| listed.name.is_empty());
            urls.find_map(|url| PodName::of_url(self.set, url))
        };
        PodName::of_member(self.set, &listed.name)
            .or_else(urls)
            .or_else(|| self.recorded_pods.get(&listed.id).cloned())
    }

    /// The role of a member. A member is a learner only if the member list says so, and if that
    /// list is confirmed or the member itself says so too. Every other member counts as a voter.
    fn role(&self, identity: Identity, status: Option<&Status>) -> Role {
        let listed = identity.id().and_then(|id| {
            let list = self.consensus.list.as_ref()?;
            list.entry(id).map(|entry| (entry.learner, list.confirmed))
        });
        match listed {
            Some((true, confirmed)) if confirmed || status.is_some_and(|own| own.learner) => {
                Role::Learner
            }
            _ => Role::Voter,
        }
    }

    /// The state of a member's process. A member that answers is alive, whatever the Kubernetes API
    /// says. An answer from another cluster does not count, because it came from a reused address.
    fn process(&self, pod: &Pod, answer: &MemberAnswer<'_>) -> ProcessState {
        match answer {
            MemberAnswer::Heard(heard) if !self.is_foreign(heard.status) => ProcessState::Alive,
            MemberAnswer::Heard(_) | MemberAnswer::Shared { .. } => {
                process::of_silent(pod, Silence::Unproven)
            }
            MemberAnswer::Silent(unanswered) => {
                let refusal = match self.doubt_of_refusal(pod) {
                    Some(_) => ConnectionRefusal::Doubted,
                    None => ConnectionRefusal::Believed,
                };
                process::of_silent(pod, Silence::new(unanswered, pod, refusal))
            }
        }
    }

    fn is_leaderless(&self, status: Option<&Status>) -> bool {
        status.is_some_and(|own| own.leader.is_none() && !self.is_foreign(own))
    }

    fn is_foreign(&self, status: &Status) -> bool {
        let agreed = self.consensus.cluster.map(|agreed| agreed.on);
        self.consensus.is_backed() && agreed != Some(status.cluster_id)
    }
}

/// Whether etcd may be ended and run again by a script that starts it in phases. Then the member
/// would serve now, and not a moment later.
fn is_starting_still(pod: &Pod) -> bool {
    !pod.ready && pod.etcd_age.is_none_or(|age| age < LASTS_AFTER)
}

/// Makes a condition fit the role in the member list: a voter cannot be Learning, and a learner
/// cannot be Serving.
fn as_role(role: Role, condition: Condition) -> Condition {
    match (role, condition) {
        (Role::Voter, Condition::Learning) => Condition::Unknown(Why::NoMemberList),
        (Role::Learner, Condition::Serving) => Condition::Learning,
        (_, condition) => condition,
    }
}

fn sizes(status: &Status) -> Sizes {
    Sizes {
        db: status.db_size,
        in_use: status.db_size_in_use,
        quota: status.db_size_quota,
    }
}

/// etcd's member list, from a voter whose linearizable read passed before, where some voter serves:
/// the list that `snapshot`, which was made from `round`, goes by.
pub fn confirmed_list(snapshot: &Snapshot, round: &Round) -> Option<Vec<ListedMember>> {
    let cluster = snapshot.cluster_id.filter(|_| snapshot.proves_quorum())?;
    let answers = Answers::sort(&snapshot.pods, round);
    let list = List::choose(&answers, cluster)?;
    let list = list.backed(&answers, cluster, snapshot.expected.voters);
    list.confirmed.then(|| list.members.to_vec())
}

/// The end of the log by the leader's own report, if the leader serves and the cluster is not in
/// doubt.
fn end_of_log(snapshot: &Snapshot, observation: &Observation) -> Option<LogEnd> {
    let cluster = snapshot
        .cluster_id
        .filter(|_| !snapshot.is_cluster_in_doubt)?;
    let mut members = snapshot.members.iter();
    let leads = members.find(|member| member.leader && member.condition == Condition::Serving)?;
    let statuses = observation.round.probes.iter();
    let mut statuses = statuses.filter_map(|probe| probe.status.as_ref().ok());
    let status = statuses
        .find(|status| Some(status.member_id) == leads.id && status.cluster_id == cluster)?;
    Some(LogEnd {
        cluster,
        index: status.raft_index,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::evidence::Probe;
    use crate::quorum::stateful_set::{Listed, Ordinals};
    use crate::quorum::{Actor, ClaimDeletion, Grants, Verdict, decide_claim, example};

    /// The pods of three members whose nodes are in question, after this change.
    fn in_question(change: impl FnOnce(&mut Observation)) -> Vec<PodName> {
        let mut observation = example::healthy("etcd", 3);
        observation.formed = true;
        change(&mut observation);
        Snapshot::nodes_in_question(&observation)
    }

    #[test]
    fn the_node_of_a_member_that_gave_its_status_is_not_in_question() {
        let silent = |o: &mut Observation| {
            let [_, probe, _] = o.round.probes.as_mut_slice() else {
                panic!("three members")
            };
            *probe = Probe::unanswered(probe.target.clone(), Unanswered::Deadline);
        };
        assert_eq!(in_question(|_| {}), []);
        assert_eq!(in_question(silent), [PodName::new("etcd-1")]);
    }

    /// A cluster of three of which only the first member answers, with this list of members.
    fn first_alone(mut observation: Observation, list: Vec<ListedMember>) -> Snapshot {
        let [first, others @ ..] = observation.round.probes.as_mut_slice() else {
            panic!("three members")
        };
        first.members = Ok(list);
        for probe in others {
            *probe = Probe::unanswered(probe.target.clone(), Unanswered::Deadline);
        }
        Snapshot::assemble(&observation)
    }

    fn listed(id: u64, name: &str, learner: bool) -> ListedMember {
        ListedMember {
            id: MemberId(id),
            name: name.to_owned(),
            learner,
            peer_urls: Vec::new(),
            client_urls: Vec::new(),
        }
    }

    #[test]
    fn a_list_with_the_external_voters_on_record_is_not_doubted() {
        let unproven = |external: Option<ListedMember>| {
            let mut observation = example::healthy("etcd", 3);
            observation.recorded_externals = 1;
            let own = (0..3).map(|n| listed(n + 1, &format!("etcd-{n}"), false));
            let list = own.chain(external).collect();
            first_alone(observation, list).unproven_voters
        };
        assert_eq!(unproven(None), 4);
        let learner = listed(9, "elsewhere", true);
        assert_eq!(unproven(Some(learner)), 4, "it is no voter");
        assert_eq!(unproven(Some(listed(9, "elsewhere", false))), 0);
    }

    #[test]
    fn while_no_voters_are_expected_the_replicas_count_only_beside_externals_on_record() {
        let alone = |externals| {
            let mut observation = example::healthy("etcd", 3);
            observation.expected.voters = 0;
            observation.recorded_externals = externals;
            let snapshot = first_alone(observation, vec![listed(1, "etcd-0", false)]);
            (snapshot.unproven_voters, snapshot.not_members.len())
        };
        assert_eq!(alone(0), (0, 2), "the list is that of a majority");
        assert_eq!(alone(1), (4, 0));
    }

    /// A member of the cluster on record that began a cluster of its own, beside a silent one and
    /// one without a pod.
    fn impostor(expected: u32) -> Observation {
        let mut o = example::healthy("etcd", 3);
        o.expected.voters = expected;
        o.formed = true;
        o.recorded_cluster = Some(ClusterId(1));
        o.recorded_pods = (0..3)
            .map(|n| (MemberId(n + 1), PodName::new(format!("etcd-{n}"))))
            .collect();
        o.pods.truncate(2);
        o.round.probes.truncate(2);
        let [own, silent] = o.round.probes.as_mut_slice() else {
            panic!("two are asked")
        };
        let status = own.status.as_mut().unwrap();
        status.cluster_id = ClusterId(99);
        (status.member_id, status.leader) = (MemberId(77), Some(MemberId(77)));
        own.members = Ok(vec![listed(77, "etcd-0", false)]);
        *silent = Probe::unanswered(silent.target.clone(), Unanswered::Deadline);
        o
    }

    #[test]
    fn a_cluster_of_its_own_proves_nobody_out_of_the_one_on_record() {
        for expected in [3, 0] {
            let snapshot = Snapshot::assemble(&impostor(expected));
            assert!(snapshot.is_cluster_in_doubt);
            assert!(!snapshot.has_proven_list());
            assert_eq!(snapshot.not_members, []);
            assert_eq!(
                snapshot.voters(&Grants::default(), None),
                3,
                "of {expected}"
            );
            for n in 0..3 {
                let name = PodName::new(format!("etcd-{n}"));
                assert!(!snapshot.is_no_member(&name), "{name}");
                let deletion = ClaimDeletion {
                    claim: format!("data-{name}"),
                    members: vec![name],
                    terminating: false,
                    other_uid: false,
                    collected: false,
                    waiting_pod: None,
                    disowned: None,
                    actor: Actor::Stranger,
                };
                let verdict = decide_claim(&snapshot, &Grants::default(), &deletion);
                assert!(!matches!(verdict, Verdict::Allow(_)), "{verdict:?}");
            }
            let ordinals = |count| Ordinals { start: None, count };
            let leaving = ordinals(3).leaving(ordinals(2), 0);
            let listed = Listed::among(&leaving, &snapshot);
            assert!(matches!(listed, Listed::Unknown { .. }), "{listed:?}");
        }
    }

    #[test]
    fn the_cluster_of_a_majority_takes_the_place_of_the_one_on_record() {
        let mut o = example::healthy("etcd", 3);
        o.recorded_cluster = Some(ClusterId(7));
        let doubted = |o: &Observation| Snapshot::assemble(o).is_cluster_in_doubt;
        assert!(!doubted(&o), "all three are in it");
        silence(&mut o, 2);
        assert!(!doubted(&o), "two of three are in it");
        silence(&mut o, 1);
        assert!(doubted(&o));
        o.recorded_cluster = None;
        assert!(!doubted(&o), "it is the first that is seen");
    }

    fn silence(observation: &mut Observation, n: usize) {
        let probe = &mut observation.round.probes[n];
        *probe = Probe::unanswered(probe.target.clone(), Unanswered::Deadline);
    }

    #[test]
    fn all_nodes_are_in_question_where_answers_are_not_all_that_counts() {
        let all = ["etcd-0", "etcd-1", "etcd-2"].map(PodName::new);
        assert_eq!(in_question(|o| o.formed = false), all);
        let by_readiness = |o: &mut Observation| o.policy.evidence = EvidenceMode::Readiness;
        assert_eq!(in_question(by_readiness), all);
        let of_another_cluster = |o: &mut Observation| {
            for probe in o.round.probes.iter_mut().skip(2) {
                if let Ok(status) = &mut probe.status {
                    status.cluster_id = ClusterId(7);
                }
            }
        };
        assert_eq!(in_question(of_another_cluster), all);
    }
}
