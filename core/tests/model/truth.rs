//! The truth about the cluster, whatever any replica sees of it, and how it changes by itself.

use crate::replacement::Replacer;
use crate::scenario::Scenario;
use crate::set::Set;
use crate::state::{At, By, Driver, Listed, Member, Out, Phase, Request, State};
use quorumgate_core::quorum::majority;

/// The voters in etcd's list.
pub(crate) fn voters(state: &State) -> Set {
    state.which(|m| m.listed == Listed::Voter)
}

/// The voters that are up and stay.
pub(crate) fn up(state: &State) -> Set {
    state.which(|m| m.listed == Listed::Voter && takes_part(*m))
}

/// Whether a member runs and stays. A voter that has yet to catch up acknowledges nothing.
pub(crate) fn takes_part(member: Member) -> bool {
    let lags = member.listed == Listed::Voter && member.behind;
    matches!(member.phase, Phase::Up | Phase::Booting) && !lags
}

/// The majority of the expected voters. Voters from the beginning still count after they are
/// removed.
pub(crate) fn needed(state: &State, scenario: &Scenario) -> u32 {
    majority(voters(state).count().max(u32::from(scenario.voters)))
}

/// Whether the running members make a quorum in etcd. A terminating one is among them until it
/// ends.
pub(crate) fn is_quorate(state: &State) -> bool {
    let goes = |m: &Member| m.phase == Phase::Ending && !m.behind;
    let running = |m: &Member| m.listed == Listed::Voter && (takes_part(*m) || goes(m));
    state.which(running).count() >= majority(voters(state).count())
}

/// The voters that prove that they take part.
pub(crate) fn serving(state: &State) -> Set {
    if is_quorate(state) {
        state.which(|m| m.listed == Listed::Voter && m.phase == Phase::Up && !m.behind)
    } else {
        Set::NONE
    }
}

/// The voters that run and stay, and would take part as soon as there is a quorum. A terminating
/// one completes nothing that lasts.
pub(crate) fn able(state: &State) -> Set {
    state.which(|m| {
        m.listed == Listed::Voter
            && !m.behind
            && matches!(
                m.phase,
                Phase::Up | Phase::Booting | Phase::Hung | Phase::Busy | Phase::Cut
            )
    })
}

/// The number of members that are out by something that asked nobody. The member that is being
/// replaced is not among them.
pub(crate) fn failed(state: &State) -> u32 {
    let record = state.budget.and_then(|budget| budget.record);
    let failed =
        state.which(|m| !takes_part(*m) && m.out == Out::NotByUs && m.listed != Listed::No);
    record
        .map_or(failed, |record| failed.without(usize::from(record.target)))
        .count()
}

impl State {
    /// Makes a member fail by itself.
    pub(crate) fn fail(&mut self, n: usize, phase: Phase) {
        self.members[n].phase = phase;
        self.members[n].out = Out::NotByUs;
        self.touch(n);
        if self.members[n].listed == Listed::Voter {
            self.reckon_with_failure_of(n);
        }
    }

    /// Makes a member count as on its way out by something that no permission is to blame for.
    /// Every later permission has to reckon with that, even if the member is a learner that may be
    /// promoted on its way.
    pub(crate) fn reckon_with_failure_of(&mut self, n: usize) {
        self.each_excuse(|excused| *excused = excused.with(n));
    }

    /// Makes a member take part again, or take part as a learner, and its pod say so.
    pub(crate) fn come_up(&mut self, n: usize) {
        self.take_part(n, Phase::Up);
        self.touch(n);
    }

    /// Makes a member take part again before anyone can see that.
    pub(crate) fn boot(&mut self, n: usize) {
        self.take_part(n, Phase::Booting);
    }

    fn take_part(&mut self, n: usize, phase: Phase) {
        self.members[n].phase = phase;
        self.members[n].out = Out::NotByUs;
        self.unstarted = self.unstarted.without(n);
        if self.members[n].listed == Listed::Voter && !self.goes_unasked(n) {
            self.each_excuse(|excused| *excused = excused.without(n));
        }
        self.is_back(n);
    }

    /// Takes note that a member which the gate removed may be back among the voters.
    pub(crate) fn is_back(&mut self, n: usize) {
        let member = self.members[n];
        if member.listed == Listed::Voter && takes_part(member) {
            self.removed = self
                .removed
                .filter(|(removed, _)| usize::from(*removed) != n);
        }
    }

    /// Whether a delete is on its way that counted as a failure when it passed.
    fn goes_unasked(&self, n: usize) -> bool {
        let passed = |request: &Request| match request.at {
            At::Unasked => true,
            At::Answered(permit) => permit.announced,
            _ => false,
        };
        let mut requests = self.requests.iter().flatten();
        requests.any(|request| usize::from(request.target) == n && passed(request))
    }

    /// Makes a learner a voter, even if it is terminating.
    pub(crate) fn promote(&mut self, n: usize) {
        self.members[n].listed = Listed::Voter;
        let is_going = self.members[n].phase == Phase::Ending;
        let by_nobody = is_going && self.members[n].out == Out::NotByUs;
        if !by_nobody && !self.goes_unasked(n) {
            self.each_excuse(|excused| *excused = excused.without(n));
        }
        self.is_back(n);
    }

    /// Lets a delete take effect. `excused` are the members that have failed since the look of its
    /// permission; `None` if the permission is to blame for nothing.
    pub(crate) fn delete(&mut self, n: usize, excused: Option<Set>) {
        let member = &mut self.members[n];
        if takes_part(*member) {
            match excused {
                None => self.fail(n, Phase::Ending),
                Some(excused) => {
                    member.phase = Phase::Ending;
                    member.out = Out::Taken(excused);
                    self.touch(n);
                }
            }
        } else if member.phase != Phase::Ending {
            self.end(n);
        }
    }

    /// Lets a delete take effect that asked nobody. It counts as a failure since it passed.
    pub(crate) fn take_unasked(&mut self, n: usize) {
        let member = &mut self.members[n];
        if takes_part(*member) {
            member.phase = Phase::Ending;
            member.out = Out::NotByUs;
            self.touch(n);
        } else if member.phase != Phase::Ending {
            self.end(n);
        }
    }

    /// Lets a pod go. Its incarnation never comes back.
    pub(crate) fn end(&mut self, n: usize) {
        self.members[n].phase = Phase::Missing;
        self.touch(n);
        self.lose_pod(n);
        if let Driver::Cycle(rest) = &mut self.driver {
            *rest = rest.until(n);
            if rest.is_empty() {
                self.driver = Driver::Idle;
            }
        }
        if let Some(cause) = self
            .budget
            .as_mut()
            .and_then(|b| b.grants[n].delete.as_mut())
        {
            cause.stands = false;
            cause.age = 0;
        }
        for request in self.requests.iter_mut().flatten() {
            if let At::Half { replaced, .. } = &mut request.at {
                *replaced = replaced.with(n);
            }
        }
        for slot in &mut self.requests {
            if let Some(request) = slot.as_mut().filter(|r| usize::from(r.target) == n) {
                request.stands = false;
                // The request can only find that its pod is gone, unless it is about to write.
                if !matches!(request.at, At::Decided(_) | At::Again(_)) {
                    *slot = None;
                }
            }
        }
    }

    /// Changes the object of a pod, so that its resourceVersion is another.
    pub(crate) fn touch(&mut self, n: usize) {
        for request in self.requests.iter_mut().flatten() {
            if usize::from(request.target) == n
                && let By::Step { untouched } = &mut request.by
            {
                *untouched = false;
            }
        }
    }

    pub(crate) fn each_excuse(&mut self, change: impl Fn(&mut Set)) {
        for member in &mut self.members {
            if let Out::Taken(excused) = &mut member.out {
                change(excused);
            }
        }
        for request in self.requests.iter_mut().flatten() {
            if let At::Looking { seen, excused, .. } = &mut request.at {
                change(excused);
                // A member that has yet to be looked at will be seen as it is then.
                *excused = excused.and(*seen);
            }
            if let At::Half { excused, .. } = &mut request.at {
                change(excused);
            }
            if let Some(permit) = request.permit() {
                change(&mut permit.excused);
            }
        }
        if let Replacer::Decided { excused, .. } = &mut self.replacer {
            change(excused);
        }
        if let Some((_, excused)) = &mut self.removed {
            change(excused);
        }
        if let Some(removal) = &mut self.removal {
            change(&mut removal.excused);
        }
        if let Some(call) = &mut self.call {
            change(&mut call.excused);
        }
        if let Some(run) = &mut self.defragmentation {
            change(&mut run.excused);
        }
    }
}
