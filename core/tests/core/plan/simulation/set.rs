//! The parts of the simulation that need no driver: pods terminate and are created, members start,
//! join and are promoted, and grants settle.

use std::time::Duration;

use quorumgate_core::quorum::{
    Cause, CauseState, GrantKind, Incarnation, PodName, Settlement, settlement,
};

use super::member::{Ailment, Phase, Pod};
use super::{Cluster, TICK};
use crate::world::{self, Listed};

/// The ticks that a pod takes until its containers have started.
const START: u32 = 1;

const SETTLE: Duration = Duration::from_secs(120);

/// The ticks until a learner has caught up.
const CATCH_UP: u32 = 2;

impl Cluster {
    pub(super) fn live(&mut self) {
        self.end_pods();
        self.start_pods();
        self.create_pods();
        self.elect();
        self.join();
        self.settle();
        self.watch();
    }

    /// Ends terminating pods, except on a silent node. A failure of the process ends with the pod,
    /// and the loss of a node with that node.
    fn end_pods(&mut self) {
        for member in &mut self.members {
            let ends = member.is_terminating() && member.ailment != Some(Ailment::NodeLost);
            if ends {
                member.pod = None;
                let process = matches!(
                    member.ailment,
                    Some(Ailment::Crashes | Ailment::Hangs | Ailment::NodeGone)
                );
                member.ailment = member.ailment.filter(|_| !process);
            }
        }
    }

    fn start_pods(&mut self) {
        for member in &mut self.members {
            if let Some(pod) = &mut member.pod {
                pod.phase = match pod.phase {
                    Phase::Starting(0) => Phase::Running,
                    Phase::Starting(left) => Phase::Starting(left - 1),
                    stays => stays,
                };
            }
        }
    }

    /// The StatefulSet controller. With `OrderedReady` it creates no pod above one that is not
    /// ready.
    fn create_pods(&mut self) {
        for n in 0..self.members.len() {
            if self.members[n].pod.is_none() {
                self.incarnations += 1;
                self.members[n].pod = Some(Pod {
                    incarnation: self.incarnations,
                    revision: self.target,
                    phase: Phase::Starting(START),
                    joined: false,
                });
            }
            if self.is_ordered() && !self.serves(&self.members[n]) {
                break;
            }
        }
    }

    /// Lets running members take part while there is a quorum. New members are added as learners
    /// and promoted, one at a time.
    fn join(&mut self) {
        let quorum = self.has_quorum();
        let revisions = self.revisions.clone();
        let mut learners = self
            .members
            .iter()
            .filter(|m| m.listed == Listed::Learner)
            .count();
        for member in &mut self.members {
            let well = quorum && member.runs(&revisions) && member.ailment.is_none();
            if !well {
                continue;
            }
            match member.listed {
                Listed::No if learners == 0 => {
                    member.listed = Listed::Learner;
                    member.learning = 0;
                    learners += 1;
                }
                Listed::Learner if member.learning >= CATCH_UP => member.listed = Listed::Voter,
                Listed::Learner => member.learning += 1,
                Listed::Voter | Listed::Unstarted | Listed::No => {}
            }
            if let Some(pod) = &mut member.pod
                && member.listed != Listed::No
            {
                pod.joined = true;
            }
        }
        let stuck = self.members.iter().any(|m| {
            m.listed == Listed::Learner && !(quorum && m.runs(&revisions) && m.ailment.is_none())
        });
        self.learner_stuck_for = if stuck {
            self.learner_stuck_for + TICK
        } else {
            Duration::ZERO
        };
    }

    /// Settles grants whose pods are gone, and grants whose pods still stand after the settle time.
    fn settle(&mut self) {
        let open: Vec<(PodName, Cause)> = self
            .grants
            .iter()
            .flat_map(|(pod, grant)| {
                grant
                    .causes
                    .iter()
                    .map(|cause| (pod.clone(), cause.clone()))
            })
            .collect();
        for (name, cause) in open {
            let seen = *self.seen.entry(cause.seq).or_insert(self.now);
            let incarnation = CauseState::Incarnation(self.look(&cause));
            if settlement(&cause, incarnation, TICK * (self.now - seen), SETTLE) != Settlement::Keep
                && let Some(next) = self.grants.settle(&name, cause.seq)
            {
                self.grants = next;
            }
        }
    }

    fn look(&self, cause: &Cause) -> Incarnation {
        let GrantKind::Delete { uid, .. } = &cause.what else {
            panic!("only deletes are granted here")
        };
        let present = self.members.iter().find(|member| {
            let name = world::name(member.ordinal);
            let pod = member.pod.as_ref();
            pod.is_some_and(|pod| format!("{name}-{}", pod.incarnation) == uid.as_str())
        });
        match present {
            None => Incarnation::Gone,
            Some(member) if member.is_terminating() => Incarnation::Terminating,
            Some(_) => Incarnation::Stands,
        }
    }
}
