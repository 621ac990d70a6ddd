//! A year of one cluster under one policy.

use crate::incidents::{HOUR, Incident, MINUTE, Ms, SECOND, YEAR};
use crate::policy::{By, Kind, Policy};
use crate::world::{DRAIN_TIMEOUT, Image, NEVER, Pod, World};

/// The time between two attempts of `kubectl drain`.
const DRAIN_AGAIN: Ms = 5 * SECOND;
/// The time between two looks of whoever rolls out.
const LOOK: Ms = 200;
/// The time of an outage after which a person looks and acts, and acts again.
const RESCUE: Ms = HOUR;
/// An outage that people notice is longer than an election.
const NOTICED: Ms = 10 * SECOND;

/// What happened in a year, or in the years of several clusters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) years: u64,
    /// The time in which fewer members than the majority took part.
    pub(crate) no_majority: Ms,
    /// The time in which nobody could write, elections included.
    pub(crate) no_writes: Ms,
    /// The outages longer than [`NOTICED`].
    pub(crate) outages: u64,
    /// The times of the rollouts of good images that ended.
    pub(crate) rollouts: Vec<Ms>,
    /// The rollouts of good images that another one overtook, or the end of the year.
    pub(crate) unfinished: u64,
    /// The times of the drains of all nodes that ended, and how many gave a node up.
    pub(crate) drains: Vec<Ms>,
    pub(crate) drains_given_up: u64,
    /// The requests of people, autoscalers and drains, their first attempts only; those refused;
    /// and those refused that would have done no harm.
    pub(crate) asked: u64,
    pub(crate) refused: u64,
    pub(crate) refused_harmless: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.years += other.years;
        self.no_majority += other.no_majority;
        self.no_writes += other.no_writes;
        self.outages += other.outages;
        self.rollouts.extend(&other.rollouts);
        self.unfinished += other.unfinished;
        self.drains.extend(&other.drains);
        self.drains_given_up += other.drains_given_up;
        self.asked += other.asked;
        self.refused += other.refused;
        self.refused_harmless += other.refused_harmless;
    }
}

/// A drain of all nodes.
struct Drain {
    began: Ms,
    /// The member whose node is being drained, and since when.
    member: usize,
    since: Ms,
    /// Whether its pod was permitted to go.
    goes: bool,
    next: Ms,
    gave_up: bool,
}

struct Year<'a> {
    world: World,
    policy: Policy,
    incidents: std::iter::Peekable<std::slice::Iter<'a, (Ms, Incident)>>,
    drains: Vec<Drain>,
    /// The beginning of the rollout of a good image.
    rollout: Option<Ms>,
    take_back: Ms,
    /// The next look at the rollout, and its last step.
    look: Ms,
    acted: Ms,
    outage: Option<Ms>,
    rescue: Ms,
    tally: Tally,
}

/// Lives through a year.
pub(crate) fn live(
    kind: Kind,
    members: usize,
    (seed, slowness): (u64, u64),
    incidents: &[(Ms, Incident)],
) -> Tally {
    let mut year = Year {
        world: World::new(members, seed, slowness),
        policy: Policy::new(kind, members),
        incidents: incidents.iter().peekable(),
        drains: Vec::new(),
        rollout: None,
        take_back: NEVER,
        look: NEVER,
        acted: 0,
        outage: None,
        rescue: NEVER,
        tally: Tally {
            years: 1,
            ..Tally::default()
        },
    };
    while year.world.now < YEAR {
        year.step();
    }
    year.tally.unfinished += u64::from(year.rollout.is_some());
    year.tally
}

impl Year<'_> {
    fn step(&mut self) {
        let incident = self.incidents.peek().map_or(NEVER, |(at, _)| *at);
        let drains = self.drains.iter().map(|drain| drain.next);
        let own = [
            incident,
            self.take_back,
            self.rescue,
            self.look,
            self.world.next_change(),
        ];
        let next = drains.chain(own).min().unwrap_or(NEVER);
        let next = next.clamp(self.world.now, YEAR);
        self.count(next - self.world.now);
        self.world.go_on_to(next);
        while let Some((_, incident)) = self.incidents.next_if(|(at, _)| *at <= next) {
            self.happens(incident);
        }
        if self.take_back <= next {
            self.take_back = NEVER;
            self.change_template(false);
        }
        if self.rescue <= next {
            self.rescue = next + RESCUE;
            self.come_to_the_rescue();
        }
        self.go_on_draining();
        self.go_on_rolling_out();
        self.world.settle();
        self.notice();
    }

    /// Counts the time until the next change.
    fn count(&mut self, passes: Ms) {
        if self.world.able() < self.world.majority() {
            self.tally.no_majority += passes;
        }
        if !self.world.can_write() {
            self.tally.no_writes += passes;
        }
    }

    fn notice(&mut self) {
        let now = self.world.now;
        match (self.world.can_write(), self.outage) {
            (false, None) => {
                self.outage = Some(now);
                self.rescue = now + RESCUE;
            }
            (true, Some(began)) => {
                self.outage = None;
                self.rescue = NEVER;
                self.tally.outages += u64::from(now - began > NOTICED);
            }
            (true, None) | (false, Some(_)) => {}
        }
    }

    /// A person deletes every outdated pod that is not Ready, since whoever rolls out may wait for
    /// ever: without a quorum no readiness probe passes.
    fn come_to_the_rescue(&mut self) {
        for index in 0..self.world.members.len() {
            let member = self.world.members.get(index);
            if member.is_some_and(|m| !m.ready && m.revision != self.world.revision) {
                self.ask(index, By::Delete, false);
            }
        }
    }

    fn happens(&mut self, incident: &Incident) {
        let now = self.world.now;
        match incident {
            Incident::Crash { member, lasts } => self.fault(*member, |m| {
                m.crashed_until = m.crashed_until.max(now + lasts);
            }),
            Incident::Hang { member, lasts } => self.fault(*member, |m| {
                m.hung_until = m.hung_until.max(now + lasts);
            }),
            Incident::CutOff { member, lasts } => self.fault(*member, |m| {
                m.cut_until = m.cut_until.max(now + lasts);
            }),
            Incident::NodeLost { member, lasts } => self.fault(*member, |m| {
                m.lost_since = if m.lost_until > now {
                    m.lost_since
                } else {
                    now
                };
                m.lost_until = m.lost_until.max(now + lasts);
            }),
            Incident::Evict { member } => {
                self.ask(*member, By::Eviction, true);
            }
            Incident::Delete { members } => {
                for member in members {
                    self.ask(*member, By::Delete, true);
                }
            }
            Incident::Drain => self.drains.push(Drain {
                began: now,
                member: 0,
                since: now,
                goes: false,
                next: now,
                gave_up: false,
            }),
            Incident::Rollout { bad_for } => {
                self.change_template(bad_for.is_some());
                self.take_back = bad_for.map_or(NEVER, |lasts| now + lasts);
            }
        }
        self.world.settle();
    }

    fn fault(&mut self, member: usize, strike: impl FnOnce(&mut crate::world::Member)) {
        if let Some(member) = self.world.members.get_mut(member) {
            strike(member);
        }
    }

    /// Asks for a pod. Returns whether it goes.
    fn ask(&mut self, member: usize, by: By, first: bool) -> bool {
        let is_here = |m: &crate::world::Member| m.pod == Pod::Here;
        if !self.world.members.get(member).is_some_and(is_here) {
            return true;
        }
        let goes = self.policy.lets_go(&self.world, member, by);
        if first {
            self.tally.asked += 1;
            self.tally.refused += u64::from(!goes);
            let harmless = !goes && self.world.can_spare(member);
            self.tally.refused_harmless += u64::from(harmless);
        }
        if goes {
            self.world.delete(member);
        }
        goes
    }

    fn go_on_draining(&mut self) {
        let now = self.world.now;
        for mut drain in std::mem::take(&mut self.drains) {
            if drain.next > now {
                self.drains.push(drain);
                continue;
            }
            drain.next = now + DRAIN_AGAIN;
            let pod = self
                .world
                .members
                .get(drain.member)
                .map(|member| member.pod);
            if !drain.goes {
                let first = drain.since == now;
                drain.goes = self.ask(drain.member, By::Eviction, first);
                drain.gave_up |= !drain.goes && now - drain.since >= DRAIN_TIMEOUT;
                let pod = self
                    .world
                    .members
                    .get(drain.member)
                    .map(|member| member.pod);
                if let Some(Pod::Terminating { until }) = pod.filter(|_| drain.goes) {
                    drain.next = until;
                }
            }
            let is_gone = drain.goes && !matches!(pod, Some(Pod::Here));
            if is_gone || now - drain.since >= DRAIN_TIMEOUT {
                drain.member += 1;
                (drain.since, drain.next, drain.goes) = (now + SECOND, now + SECOND, false);
            }
            if drain.member < self.world.members.len() {
                self.drains.push(drain);
            } else if drain.gave_up {
                self.tally.drains_given_up += 1;
            } else {
                self.tally.drains.push(now - drain.began);
            }
        }
    }

    fn change_template(&mut self, bad: bool) {
        self.tally.unfinished += u64::from(self.rollout.is_some());
        self.world
            .set_template(if bad { Image::Bad } else { Image::Good });
        let began = self.world.now;
        self.rollout = (!bad).then_some(began);
        (self.look, self.acted) = (began, began);
    }

    fn go_on_rolling_out(&mut self) {
        let now = self.world.now;
        if self.look > now {
            return;
        }
        if self.world.is_whole() {
            if let Some(began) = self.rollout.take() {
                self.tally.rollouts.push(now - began);
            }
            self.look = NEVER;
            return;
        }
        // Where nothing has changed for long, nothing changes soon but what wakes by itself.
        let since = self.world.members.iter().map(|member| member.since).max();
        let changed = since.unwrap_or_default().max(self.acted);
        let still = (now - changed) / 10;
        self.look = now + still.clamp(LOOK, MINUTE);
        for member in self.policy.steps(&self.world) {
            self.acted = now;
            self.world.delete(member);
        }
    }
}
