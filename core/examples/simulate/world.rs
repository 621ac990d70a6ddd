//! A cluster in virtual time: pods, processes, and whether etcd has a quorum and a leader.

use crate::incidents::{MINUTE, Ms, SECOND};

// The times of a pod are those of the measured rollouts (docs/evidence.md, "Rollouts"): three
// members one after the other in 6 to 8 s. Volumes that move to another node take ten times as long
// and more, for which there is a factor.

/// The time that etcd needs to end when its pod is deleted.
const STOP: (Ms, Ms) = (100, 500);
/// The grace period of the pod, after which a process that hangs is killed.
const GRACE: Ms = 30 * SECOND;
/// The time until a new pod is created and bound to a node.
const RESCHEDULE: (Ms, Ms) = (100, 400);
/// The time until its process listens.
const START: (Ms, Ms) = (400, 1_000);
/// The time until the member has caught up.
const CATCH_UP: (Ms, Ms) = (100, 300);
/// The time until a new leader is elected after one was lost.
const ELECTION: (Ms, Ms) = (1_200, 2_500);
/// The time until a readiness probe shows that a member serves.
const READY_AFTER: Ms = 500;
/// The time until it shows that a member does not: a few failures in a row.
const UNREADY_AFTER: Ms = 10 * SECOND;
/// The time until the node controller notices that a node is lost.
pub(crate) const NODE_GRACE: Ms = 40 * SECOND;
/// For ever.
pub(crate) const NEVER: Ms = Ms::MAX;

/// A pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pod {
    /// It will be created then.
    Absent { until: Ms },
    /// It exists.
    Here,
    /// It is being deleted, and gone then.
    Terminating { until: Ms },
}

/// The image of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Image {
    /// etcd starts and serves.
    Good,
    /// etcd does not start.
    Bad,
    /// etcd serves for so long, and then ends whenever it is started.
    FailsAfter { after: Ms },
}

/// A member and its pod.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) pod: Pod,
    /// The number of the pod's incarnation.
    pub(crate) incarnation: u64,
    pub(crate) revision: u32,
    /// The process listens from then on, and serves from then on, but for faults.
    pub(crate) listens_from: Ms,
    serves_from: Ms,
    /// The image fails then.
    fails_from: Ms,
    pub(crate) crashed_until: Ms,
    pub(crate) hung_until: Ms,
    pub(crate) cut_until: Ms,
    pub(crate) lost_until: Ms,
    pub(crate) lost_since: Ms,
    /// What the pod's condition Ready says, and when that changes.
    pub(crate) ready: bool,
    ready_changes: Ms,
    /// Whether the member takes part in a quorum with a leader, and since when that is so.
    pub(crate) takes_part: bool,
    pub(crate) since: Ms,
}

/// A cluster.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) now: Ms,
    pub(crate) members: Vec<Member>,
    /// The revision that pods are created with, and its image.
    pub(crate) revision: u32,
    image: Image,
    pub(crate) leader: Option<usize>,
    elected_at: Ms,
    elections: u64,
    seed: u64,
    /// How many times as long everything of a pod takes.
    slowness: u64,
}

impl World {
    /// A cluster in which every member serves.
    pub(crate) fn new(members: usize, seed: u64, slowness: u64) -> Self {
        let member = Member {
            pod: Pod::Here,
            incarnation: 0,
            revision: 0,
            listens_from: 0,
            serves_from: 0,
            fails_from: NEVER,
            crashed_until: 0,
            hung_until: 0,
            cut_until: 0,
            lost_until: 0,
            lost_since: 0,
            ready: true,
            ready_changes: NEVER,
            takes_part: true,
            since: 0,
        };
        Self {
            now: 0,
            members: vec![member; members],
            revision: 0,
            image: Image::Good,
            leader: Some(0),
            elected_at: NEVER,
            elections: 0,
            seed,
            slowness,
        }
    }

    pub(crate) fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// Whether somebody can write.
    pub(crate) fn can_write(&self) -> bool {
        self.leader.is_some()
    }

    /// The members that could take part in a quorum.
    pub(crate) fn able(&self) -> usize {
        let able = self
            .members
            .iter()
            .filter(|member| member.is_able(self.now));
        able.count()
    }

    /// Whether the others would go on without the member, by what is true now.
    pub(crate) fn can_spare(&self, member: usize) -> bool {
        let is_able = self
            .members
            .get(member)
            .is_some_and(|m| m.is_able(self.now));
        let left = self.able() - usize::from(is_able);
        !is_able || (self.can_write() && left >= self.majority())
    }

    /// Whether every pod has the revision and every member takes part.
    pub(crate) fn is_whole(&self) -> bool {
        let mut members = self.members.iter();
        members.all(|m| m.pod == Pod::Here && m.revision == self.revision && m.takes_part)
    }

    /// Changes the template of the pods.
    pub(crate) fn set_template(&mut self, image: Image) {
        self.revision += 1;
        self.image = image;
    }

    /// The image of the present template.
    pub(crate) fn image(&self) -> Image {
        self.image
    }

    /// Whether the image of a member has failed.
    pub(crate) fn has_failed(&self) -> bool {
        let mut members = self.members.iter();
        members.any(|member| member.crashed_until == NEVER)
    }

    /// Deletes a pod. The leader hands over as etcd does when it is told to end.
    pub(crate) fn delete(&mut self, index: usize) {
        let now = self.now;
        let stop = self.of_pod(STOP, index, 0);
        let Some(member) = self.members.get_mut(index) else {
            return;
        };
        if member.pod != Pod::Here {
            return;
        }
        let stop = if member.hung_until > now { GRACE } else { stop };
        // The kubelet of a lost node ends nothing until the node is back.
        let until = now.max(member.lost_until).saturating_add(stop);
        member.pod = Pod::Terminating { until };
        if self.leader == Some(index) {
            self.leader = None;
            if self.able() >= self.majority() {
                self.leader = self.next_leader();
            }
        }
        self.settle();
    }

    /// The time of the next change that comes by itself.
    pub(crate) fn next_change(&self) -> Ms {
        let of_members = self.members.iter().flat_map(|member| {
            let pod = match member.pod {
                Pod::Absent { until } | Pod::Terminating { until } => until,
                Pod::Here => NEVER,
            };
            [
                pod,
                member.listens_from,
                member.serves_from,
                member.fails_from,
                member.crashed_until,
                member.hung_until,
                member.cut_until,
                member.lost_until,
                member.ready_changes,
            ]
        });
        let all = of_members.chain([self.elected_at]);
        all.filter(|at| *at > self.now).min().unwrap_or(NEVER)
    }

    /// Goes on to a time, which is no later than the next change.
    pub(crate) fn go_on_to(&mut self, now: Ms) {
        self.now = now;
        for index in 0..self.members.len() {
            self.move_pod(index);
        }
        self.settle();
    }

    fn move_pod(&mut self, index: usize) {
        let now = self.now;
        let (reschedule, start, catch_up) = (
            self.of_pod(RESCHEDULE, index, 1),
            self.of_pod(START, index, 2),
            self.of_pod(CATCH_UP, index, 3),
        );
        let (revision, image) = (self.revision, self.image);
        let Some(member) = self.members.get_mut(index) else {
            return;
        };
        match member.pod {
            Pod::Terminating { until } if until <= now => {
                member.pod = Pod::Absent {
                    until: now + reschedule,
                };
                member.ready = false;
                member.ready_changes = NEVER;
            }
            Pod::Absent { until } if until <= now => {
                member.pod = Pod::Here;
                member.incarnation += 1;
                member.revision = revision;
                member.listens_from = now + start;
                member.serves_from = now + start + catch_up;
                member.crashed_until = if image == Image::Bad { NEVER } else { 0 };
                member.fails_from = match image {
                    Image::FailsAfter { after } => member.serves_from + after,
                    Image::Good | Image::Bad => NEVER,
                };
                (member.hung_until, member.lost_until) = (0, 0);
            }
            Pod::Absent { .. } | Pod::Here | Pod::Terminating { .. } => {}
        }
        if member.fails_from <= now {
            (member.fails_from, member.crashed_until) = (NEVER, NEVER);
        }
    }

    /// Draws the conclusions of the present state: leader, who takes part, and readiness.
    pub(crate) fn settle(&mut self) {
        let now = self.now;
        let is_able = |world: &Self, index: usize| {
            let member = world.members.get(index);
            member.is_some_and(|member| member.is_able(now))
        };
        let has_majority = self.able() >= self.majority();
        if self
            .leader
            .is_some_and(|leader| !has_majority || !is_able(self, leader))
        {
            self.leader = None;
        }
        if !has_majority {
            self.elected_at = NEVER;
        } else if self.leader.is_none() && self.elected_at == NEVER {
            self.elections += 1;
            let salt = usize::try_from(self.elections).unwrap_or_default();
            self.elected_at = now + self.between(ELECTION, salt, 4);
        } else if self.elected_at <= now || self.leader.is_some() {
            self.leader = self.leader.or_else(|| self.next_leader());
            self.elected_at = NEVER;
        }
        let can_write = self.can_write();
        for member in &mut self.members {
            let takes_part = can_write && member.is_able(now);
            if takes_part != member.takes_part {
                member.takes_part = takes_part;
                member.since = now;
            }
            if member.ready_changes <= now {
                member.ready = !member.ready;
                member.ready_changes = NEVER;
            }
            if member.pod == Pod::Here && member.ready != takes_part {
                if member.ready_changes == NEVER {
                    let after = match (takes_part, member.lost_until > now) {
                        (true, _) => READY_AFTER,
                        (false, true) => NODE_GRACE,
                        (false, false) => UNREADY_AFTER,
                    };
                    member.ready_changes = now + after;
                }
            } else {
                member.ready_changes = NEVER;
            }
        }
    }

    fn next_leader(&self) -> Option<usize> {
        let mut members = self.members.iter();
        members.position(|member| member.is_able(self.now))
    }

    fn of_pod(&self, bounds: (Ms, Ms), index: usize, salt: u64) -> Ms {
        self.between(bounds, index, salt) * self.slowness
    }

    /// A duration between two, which depends on the seed, the member and its incarnation alone.
    fn between(&self, (least, most): (Ms, Ms), index: usize, salt: u64) -> Ms {
        let incarnation = self
            .members
            .get(index)
            .map_or(0, |member| member.incarnation);
        let seed = [index as u64, incarnation, salt];
        let seed = seed.iter().fold(self.seed, |seed, part| {
            (seed ^ part)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(29)
        });
        fastrand::Rng::with_seed(seed).u64(least..=most)
    }
}

impl Member {
    /// Whether the member's process could take part in a quorum.
    fn is_able(&self, now: Ms) -> bool {
        let faults = [
            self.serves_from,
            self.crashed_until,
            self.hung_until,
            self.cut_until,
            self.lost_until,
        ];
        self.pod == Pod::Here && faults.iter().all(|until| *until <= now)
    }

    /// Whether the pod exists and stays.
    pub(crate) fn stays(&self) -> bool {
        self.pod == Pod::Here
    }

    /// Whether the node is known to be lost.
    pub(crate) fn is_node_unready(&self, now: Ms) -> bool {
        self.lost_until > now && self.lost_since + NODE_GRACE <= now
    }
}

/// The longest time that a drain tries to evict one pod.
pub(crate) const DRAIN_TIMEOUT: Ms = 60 * MINUTE;
