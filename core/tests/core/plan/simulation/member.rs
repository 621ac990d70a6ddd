//! A member of the simulated cluster.

use quorumgate_core::quorum::evidence::Unanswered;
use quorumgate_core::quorum::pod::{Containers, Node};

use super::revision;
use crate::world::{Answers, Inhabitant, Known, Listed};

/// A failure of a member. It lasts until the member recovers. A failure of the process ends with
/// the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Ailment {
    /// The process ends again and again.
    Crashes,
    /// The process is stopped and answers nothing.
    Hangs,
    /// The member is cut off from its peers.
    CutOff,
    /// The node fell silent, and its processes do not run.
    NodeLost,
    /// The Node object is gone.
    NodeGone,
}

#[derive(Debug, Clone)]
pub(in super::super) struct Member {
    pub(in super::super) ordinal: usize,
    pub(super) listed: Listed,
    pub(in super::super) pod: Option<Pod>,
    pub(super) ailment: Option<Ailment>,
    /// The number of ticks since the member became a learner.
    pub(super) learning: u32,
}

#[derive(Debug, Clone)]
pub(in super::super) struct Pod {
    pub(in super::super) incarnation: u32,
    pub(in super::super) revision: usize,
    pub(super) phase: Phase,
    /// Whether this incarnation has ever been part of a quorum. Before that etcd answers nobody.
    pub(super) joined: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The number of ticks until it has started.
    Starting(u32),
    Running,
    Terminating,
}

impl Member {
    pub(super) fn serving(ordinal: usize, revision: usize) -> Self {
        Self {
            listed: Listed::Voter,
            pod: Some(Pod {
                incarnation: 1,
                revision,
                phase: Phase::Running,
                joined: true,
            }),
            ..Self::new(ordinal)
        }
    }

    /// A member that is to join.
    pub(super) fn new(ordinal: usize) -> Self {
        Self {
            ordinal,
            listed: Listed::No,
            pod: None,
            ailment: None,
            learning: 0,
        }
    }

    pub(super) fn is_voter(&self) -> bool {
        self.listed == Listed::Voter
    }

    pub(super) fn fall(&mut self, ailment: Ailment) {
        self.ailment = Some(ailment);
    }

    pub(super) fn recover(&mut self) {
        if let (Some(pod), Some(Ailment::Crashes | Ailment::NodeLost)) =
            (&mut self.pod, self.ailment)
        {
            pod.joined = false;
        }
        self.ailment = None;
    }

    /// Whether the process runs, in a pod that is not terminating.
    pub(super) fn runs(&self, revisions: &[bool]) -> bool {
        let up = !matches!(
            self.ailment,
            Some(Ailment::Crashes | Ailment::NodeLost | Ailment::NodeGone)
        );
        up && self
            .pod
            .as_ref()
            .is_some_and(|pod| pod.phase == Phase::Running && revisions[pod.revision])
    }

    pub(super) fn is_terminating(&self) -> bool {
        self.pod
            .as_ref()
            .is_some_and(|pod| pod.phase == Phase::Terminating)
    }

    /// Shows the member as a perfect observer sees it.
    pub(super) fn show(&self, inhabitant: &mut Inhabitant, quorum: bool, revisions: &[bool]) {
        inhabitant.listed = self.listed;
        let Some(pod) = &self.pod else {
            inhabitant.pod = None;
            return inhabitant.silent(Unanswered::Deadline);
        };
        let ready = self.runs(revisions) && self.ailment.is_none() && quorum && self.is_voter();
        let uid = format!("{}-{}", inhabitant.name, pod.incarnation);
        let listed = self.listed != Listed::No;
        inhabitant.pod_mut(|shown| {
            shown.uid = uid.as_str().into();
            shown.revision = Some(revision(pod.revision));
            shown.terminating = pod.phase == Phase::Terminating;
            shown.ready = ready;
            shown.etcd_ready = ready;
            shown.recorded_id = shown.recorded_id.filter(|_| listed);
        });
        match (self.ailment, pod.phase) {
            (Some(Ailment::NodeLost), _) => {
                inhabitant.silent(Unanswered::Deadline);
                inhabitant.pod_mut(|shown| shown.node = Node::NotReady);
            }
            (Some(Ailment::NodeGone), _) => {
                inhabitant.silent(Unanswered::Deadline);
                inhabitant.pod_mut(|shown| shown.node = Node::Gone);
            }
            (_, Phase::Starting(_)) => {
                inhabitant.silent(Unanswered::NoAddress);
                inhabitant.pod_mut(|shown| {
                    shown.has_address = false;
                    shown.containers = Containers::Creating;
                });
            }
            (_, Phase::Terminating) => inhabitant.silent(Unanswered::Refused),
            (_, Phase::Running) if !self.runs(revisions) => inhabitant.crashed(),
            (Some(Ailment::CutOff), Phase::Running) if pod.joined => inhabitant.leaderless(),
            // A member that was cut off before it ever joined answers nobody, like one that hangs.
            (Some(_), Phase::Running) => inhabitant.silent(Unanswered::Deadline),
            (None, Phase::Running) => self.show_running(inhabitant, quorum, pod.joined),
        }
    }

    fn show_running(&self, inhabitant: &mut Inhabitant, quorum: bool, joined: bool) {
        match self.listed {
            Listed::No => inhabitant.silent(Unanswered::Refused),
            Listed::Learner if quorum => {
                inhabitant.read = Err(Unanswered::Learner);
                inhabitant.list = Known::Nothing(Unanswered::Learner);
            }
            Listed::Voter if quorum => inhabitant.answers = Answers::Itself,
            Listed::Voter | Listed::Learner | Listed::Unstarted if joined => {
                inhabitant.leaderless();
            }
            Listed::Voter | Listed::Learner | Listed::Unstarted => {
                inhabitant.silent(Unanswered::Deadline);
            }
        }
    }
}
