//! The driver of the simulation, and the promises that each of its steps has to keep.

use std::collections::BTreeSet;

use quorumgate_core::plan::{Action, Because, Next, Step, next_step};
use quorumgate_core::quorum::{
    Actor, Condition, Disruption, Grace, GrantKind, Kind, PodName, Snapshot, TargetPod, Verdict,
    decide, majority,
};

use super::member::Phase;
use super::{Cluster, Member, count};
use crate::world;

impl Cluster {
    /// Runs one cycle: carries out the planner's answer.
    pub(super) fn drive(&mut self, snapshot: &Snapshot) {
        let next = next_step(snapshot, &self.grants, &self.desired);
        assert_eq!(
            next,
            next_step(snapshot, &self.grants, &self.desired),
            "equal arguments, equal answers"
        );
        let Next::Act(steps) = next else {
            return;
        };
        for step in steps {
            if let Action::MoveLeader { to, .. } = step.action {
                self.leader = (0..self.members.len()).find(|n| world::id(*n) == to);
                let led = self.leader.map(|n| self.serves(&self.members[n]));
                assert_eq!(
                    led,
                    Some(true),
                    "leadership moves to a member that serves: {step}"
                );
            }
            let verdict = decide(snapshot, &self.grants, &step.disruption());
            assert!(matches!(verdict, Verdict::Allow(_)), "{step}: {verdict:?}");
            self.never_on_unknown_evidence(snapshot, &step);
            self.never_beyond_max_unavailable(&step);
            let quorate = self.has_quorum();
            let served = self.serves(self.member(&step.pod.name));
            self.grant(&step.pod, true);
            self.never_beyond_headroom(served, &step);
            if std::mem::take(&mut self.driver_dies) {
                return;
            }
            self.delete(&step);
            let small = self.voters() <= 2;
            assert!(
                !quorate || small || self.has_quorum(),
                "{step} broke the quorum"
            );
        }
    }

    /// Evicts a pod for a person who accepts a refusal.
    pub(super) fn drain(&mut self, n: usize) {
        let snapshot = self.observe();
        let name: PodName = world::name(n).as_str().into();
        let Some(pod) = snapshot.pod(&name).filter(|pod| !pod.terminating) else {
            return;
        };
        let target = TargetPod {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        };
        let disruption = Disruption {
            target: target.clone(),
            kind: Kind::Evict,
            actor: Actor::Stranger,
            grace: Grace::Graceful,
            precondition: None,
        };
        if let Verdict::Allow(_) = decide(&snapshot, &self.grants, &disruption) {
            self.grant(&target, false);
            self.terminate(&name);
        }
    }

    fn grant(&mut self, target: &TargetPod, rollout: bool) {
        let what = GrantKind::Delete {
            uid: target.uid.clone(),
            rollout,
        };
        let issued = self
            .grants
            .issue(&target.name, what, "somebody".into(), String::new());
        self.grants = issued;
    }

    fn delete(&mut self, step: &Step) {
        let name = step.pod.name.clone();
        let pod = self.member(&name).pod.as_ref().unwrap();
        assert_eq!(step.pod.uid.as_str(), format!("{name}-{}", pod.incarnation));
        assert_ne!(pod.revision, self.target, "only outdated pods go: {step}");
        assert_ne!(pod.phase, Phase::Terminating, "it goes already: {step}");
        self.terminate(&name);
        self.steps += 1;
        self.order.push(name.to_string());
        let out = count(self.members.iter().filter(|m| !self.serves(m)));
        self.most_out = self.most_out.max(out);
    }

    fn terminate(&mut self, name: &PodName) {
        let member = self
            .members
            .iter_mut()
            .find(|m| world::name(m.ordinal) == name.as_str());
        if let Some(pod) = member.and_then(|m| m.pod.as_mut()) {
            pod.phase = Phase::Terminating;
        }
        self.elect();
    }

    fn member(&self, name: &PodName) -> &Member {
        self.members
            .iter()
            .find(|m| world::name(m.ordinal) == name.as_str())
            .unwrap()
    }

    fn never_on_unknown_evidence(&self, snapshot: &Snapshot, step: &Step) {
        if let Some(member) = snapshot.member(&step.pod.name) {
            let known =
                !matches!(member.condition, Condition::Unknown(_)) || member.process.is_down();
            // A member that hangs may be restarted while the others make the majority without it.
            let others = snapshot.serving(&self.grants, Some(&step.pod.name));
            let spared = others >= majority(snapshot.voters(&self.grants, Some(&step.pod.name)));
            let by_policy = self.voters() <= 2;
            assert!(
                known || spared || by_policy,
                "{step} on {:?}",
                member.condition
            );
        }
        assert_eq!(
            matches!(step.because, Because::NonServing(_)),
            !self.serves(self.member(&step.pod.name)),
            "{step}"
        );
    }

    /// Asserts that no serving member goes while as many as may be are out, whether by the rollout,
    /// by drains or by failures.
    fn never_beyond_max_unavailable(&self, step: &Step) {
        if !self.serves(self.member(&step.pod.name)) {
            return;
        }
        let granted: BTreeSet<&str> = self.grants.iter().map(|(pod, _)| pod.as_str()).collect();
        let out = self.members.iter().filter(|other| {
            let name = world::name(other.ordinal);
            let gone = !self.serves(other) || granted.contains(name.as_str());
            name != step.pod.name.as_str() && gone
        });
        let replicas = u32::try_from(self.members.len()).unwrap();
        let limit = self
            .desired
            .max_unavailable
            .limit(replicas, self.desired.partition);
        assert!(count(out) < limit, "{step} beyond {limit}");
    }

    /// Asserts that after a step the serving members without a grant make a majority, unless the
    /// member that went did not serve.
    fn never_beyond_headroom(&self, served: bool, step: &Step) {
        let left = self.members.iter().filter(|m| {
            self.serves(m) && !self.grants.holds(&world::name(m.ordinal).as_str().into())
        });
        let needed = majority(self.voters());
        let small = self.voters() <= 2;
        assert!(
            !served || small || count(left) >= needed,
            "{step} beyond headroom"
        );
    }
}
