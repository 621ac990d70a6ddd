//! A simulated cluster and the rollout of its StatefulSet.
//!
//! Members start, crash, hang and are cut off. A StatefulSet controller creates missing pods. A
//! driver carries the planner's steps out as the real one does: `decide` judges each step, which
//! takes its grant before the pod goes. Time passes in ticks of one minute. The assertions on every
//! step are in `driver.rs`.

mod driver;
mod member;
mod set;

use std::collections::BTreeMap;
use std::time::Duration;

use quorumgate_core::plan::{Desired, Next, PodManagement, next_step};
use quorumgate_core::quorum::{Grants, Snapshot, majority};

use crate::world::{self, World};
pub(super) use member::{Ailment, Member};

/// An event in one tick.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    Nothing,
    /// The member falls ill.
    Falls(usize, Ailment),
    /// The member recovers.
    Recovers(usize),
    /// The template changes to a revision that works.
    Changes,
    /// The template changes to a revision whose members crash.
    Breaks,
    /// The template changes back to the revision before.
    RollsBack,
    /// A person evicts a member and waits for the answer.
    Drains(usize),
    /// The driver is killed between its next grant and the delete.
    KillsDriver,
    /// The StatefulSet gets one more replica together with a change of the template, as etcd-druid
    /// does it.
    ScalesOut,
}

#[derive(Debug, Clone)]
pub(super) struct Cluster {
    pub(super) members: Vec<Member>,
    pub(super) desired: Desired,
    pub(super) grants: Grants,
    /// The revisions of the template so far, and whether each works. The last one is the update
    /// revision.
    revisions: Vec<bool>,
    target: usize,
    leader: Option<usize>,
    expected: u32,
    incarnations: u32,
    lost_for: Option<Duration>,
    scaled_out_for: Option<Duration>,
    learner_stuck_for: Duration,
    driver_dies: bool,
    /// The tick in which the settler first saw each grant, by the grant's sequence number.
    seen: BTreeMap<u64, u32>,
    now: u32,
    /// The number of pods that the driver took.
    pub(super) steps: usize,
    /// The most members that were out at once, illness not counted.
    pub(super) most_out: u32,
    /// The order in which the driver took pods.
    pub(super) order: Vec<String>,
}

const TICK: Duration = Duration::from_secs(60);

impl Cluster {
    /// A cluster whose members all serve at the first revision, with a second one to roll to.
    pub(super) fn new(members: usize, desired: Desired) -> Self {
        Self {
            members: (0..members).map(|n| Member::serving(n, 0)).collect(),
            desired,
            grants: Grants::default(),
            revisions: vec![true, true],
            target: 1,
            leader: Some(0),
            expected: u32::try_from(members).unwrap(),
            incarnations: 1,
            lost_for: None,
            scaled_out_for: None,
            learner_stuck_for: Duration::ZERO,
            driver_dies: false,
            seen: BTreeMap::new(),
            now: 0,
            steps: 0,
            most_out: 0,
            order: Vec::new(),
        }
    }

    /// Lets one minute pass: the event, the StatefulSet controller, the members, and one cycle of
    /// the driver.
    pub(super) fn tick(&mut self, event: Event) {
        self.now += 1;
        self.happen(event);
        self.live();
        let snapshot = self.observe();
        self.drive(&snapshot);
        self.elect();
    }

    fn happen(&mut self, event: Event) {
        let count = self.members.len();
        match event {
            Event::Falls(n, ailment) => self.members[n % count].fall(ailment),
            Event::Recovers(n) => self.members[n % count].recover(),
            Event::Changes => self.change(true),
            Event::Breaks => self.change(false),
            Event::RollsBack => self.target = self.target.saturating_sub(1),
            Event::Drains(n) => self.drain(n % count),
            Event::KillsDriver => self.driver_dies = true,
            Event::ScalesOut if count < 7 => {
                self.members.push(Member::new(count));
                self.scaled_out_for = Some(Duration::ZERO);
                self.change(true);
            }
            Event::Nothing | Event::ScalesOut => {}
        }
        self.elect();
    }

    fn change(&mut self, works: bool) {
        self.revisions.push(works);
        self.target = self.revisions.len() - 1;
    }

    /// Ends all failures for good, and makes the template work.
    pub(super) fn heal(&mut self) {
        self.members.iter_mut().for_each(Member::recover);
        self.change(true);
        self.driver_dies = false;
    }

    pub(super) fn is_settled(&self) -> bool {
        self.members.iter().all(|m| {
            m.pod
                .as_ref()
                .is_some_and(|pod| pod.revision == self.target)
        }) && self.members.iter().all(|m| self.serves(m))
    }

    pub(super) fn voters(&self) -> u32 {
        count(self.members.iter().filter(|m| m.is_voter()))
    }

    pub(super) fn has_quorum(&self) -> bool {
        let connected = self
            .members
            .iter()
            .filter(|m| m.is_voter() && self.is_connected(m));
        count(connected) >= majority(self.voters())
    }

    /// Whether the member runs and reaches the others.
    fn is_connected(&self, member: &Member) -> bool {
        member.runs(&self.revisions) && member.ailment.is_none()
    }

    pub(super) fn serves(&self, member: &Member) -> bool {
        member.is_voter() && self.is_connected(member) && self.has_quorum()
    }

    fn elect(&mut self) {
        let stays = self
            .leader
            .is_some_and(|leader| self.serves(&self.members[leader]));
        if !stays {
            self.leader = (0..self.members.len()).find(|n| self.serves(&self.members[*n]));
        }
    }

    /// The snapshot that a perfect observer takes.
    fn observe(&mut self) -> Snapshot {
        self.elect();
        let mut world = World::new(self.members.len());
        world.expected = self.expected;
        world.quorum_lost_for = self.lost_for;
        world.scaled_out_for = self.scaled_out_for;
        world.learners_are_stuck_for(self.learner_stuck_for);
        world.leader = world::id(self.leader.unwrap_or(0));
        let quorum = self.has_quorum();
        for (member, inhabitant) in self.members.iter().zip(&mut world.members) {
            member.show(inhabitant, quorum, &self.revisions);
        }
        let mut observation = world.observation();
        observation.update_revision = Some(revision(self.target));
        let snapshot = Snapshot::assemble(&observation);
        self.expected = snapshot.expected.voters;
        self.lost_for = snapshot
            .quorum_lost
            .then(|| self.lost_for.map_or(Duration::ZERO, |lost| lost + TICK));
        self.scaled_out_for = self.scaled_out_for.map(|age| age + TICK);
        snapshot
    }

    /// Records how long each target has been out, as a driver would watch it.
    fn watch(&mut self) {
        let serving: Vec<bool> = self.members.iter().map(|m| self.serves(m)).collect();
        let mut ages = BTreeMap::new();
        for (n, serves) in serving.into_iter().enumerate() {
            for name in [world::name(n), format!("etcd-{n}")] {
                if !serves {
                    let before = self.desired.out_for.get(&name.as_str().into());
                    let age = before.map_or(Duration::ZERO, |age| *age + TICK);
                    ages.insert(name.as_str().into(), age);
                }
            }
        }
        self.desired.out_for = ages;
    }

    /// The planner's answer now, in words.
    pub(super) fn says(&mut self) -> String {
        let snapshot = self.observe();
        match next_step(&snapshot, &self.grants, &self.desired) {
            Next::Done => "done".into(),
            Next::Act(steps) => format!("{steps:?}"),
            Next::Wait(waiting) => format!("{}: {waiting}", waiting.slug()),
        }
    }

    fn is_ordered(&self) -> bool {
        self.desired.management == PodManagement::OrderedReady
    }
}

fn count<T>(items: impl Iterator<Item = T>) -> u32 {
    u32::try_from(items.count()).unwrap()
}

fn revision(n: usize) -> String {
    format!("etcd-{n}")
}
