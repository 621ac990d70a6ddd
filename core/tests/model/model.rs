//! The model: the next states after each action.

use stateright::{Model, Property};

use crate::action::Action;
use crate::mutations::Mutation;
use crate::properties;
use crate::replacement::Replacer;
use crate::scenario::{LIFE, Scenario};
use crate::set::Set;
use crate::state::{
    At, Budget, By, Driver, Expected, Force, Guard, Listed, MEMBERS, Member, Out, Phase, REPLICAS,
    REQUESTS, Reporter, Request, Settler, Stage, State, Volume,
};
use crate::symmetry::representative;
use crate::trust::Event;
use crate::{
    defragmentation, driver, halves, outage, replacement, replica, reporter, scaling, settler,
    volumes,
};

impl Model for Scenario {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let member = |n: usize| Member {
            listed: match n {
                n if n < usize::from(self.voters) => Listed::Voter,
                n if n < self.replicas() => Listed::Learner,
                _ => Listed::No,
            },
            phase: match n {
                n if n < self.replicas() => Phase::Up,
                n if n < self.members() => Phase::Missing,
                _ => Phase::Absent,
            },
            outdated: self.rollout && n < self.members(),
            out: Out::NotByUs,
            volume: Volume::Own,
            renewed: false,
            behind: false,
        };
        vec![State {
            members: std::array::from_fn::<Member, MEMBERS, _>(member),
            replicas: u8::try_from(self.replicas()).unwrap(),
            joins_as: Listed::No,
            scales_in: false,
            unstarted: Set::NONE,
            budget: Some(Budget::new(
                Expected {
                    voters: self.voters,
                    replicas: u8::try_from(self.replicas()).unwrap(),
                    growing: false,
                },
                None,
            )),
            requests: [None; REQUESTS],
            settlers: [Settler::Idle; REPLICAS],
            reporter: Reporter::Idle,
            force: Force::In,
            is_rejected: false,
            outage_ago: None,
            unwritten: false,
            guard: Guard::Idle,
            driver: Driver::Idle,
            replacer: Replacer::Idle,
            removal: None,
            call: None,
            asked: None,
            removed: None,
            holders: Set::new(0..usize::from(self.voters)),
            in_pods: self.in_pods,
            defragmentation: None,
            unfounded: false,
            outvoted: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // A broken state stays broken, so there is nothing to learn from the states after it.
        if !properties::keeps_the_majority(self, state) {
            return;
        }
        for slot in 0..self.requests {
            self.request_actions(state, slot, actions);
        }
        self.settler_actions(state, actions);
        reporter::actions(self, state, actions);
        outage::actions(self, state, actions);
        scaling::actions(self, state, actions);
        driver::actions(self, state, actions);
        replacement::actions(self, state, actions);
        volumes::actions(self, state, actions);
        defragmentation::actions(self, state, actions);
        for (n, member) in state.members() {
            self.member_actions(state, n, *member, actions);
        }
        if self.rejections {
            actions.push(if state.is_rejected {
                Action::LetThrough
            } else {
                Action::Rejected
            });
        }
        if self.recreation {
            actions.push(if state.budget.is_some() {
                Action::BudgetDeleted
            } else {
                Action::BudgetCreated
            });
        }
        if state
            .requests
            .iter()
            .flatten()
            .all(|request| request.age < LIFE)
            && self.is_in_time(state)
            && defragmentation::is_in_time(state)
            && replacement::is_in_time(state)
        {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = *before;
        self.happen(&mut state, action);
        let next = representative(&state, self);
        (next != *before).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

impl Scenario {
    #[expect(clippy::too_many_lines, reason = "each action has a line")]
    fn happen(&self, state: &mut State, action: Action) {
        match action {
            Action::Delete(n) => {
                let slot = state.free_slot(self.requests).unwrap();
                state.requests[slot] = Some(Request {
                    target: u8::try_from(n).unwrap(),
                    stands: true,
                    age: 0,
                    by: By::Stranger,
                    at: At::Called,
                });
            }
            Action::Lose(slot) => state.requests[slot] = None,
            Action::CallAgain(slot) => {
                if let Some(request) = &mut state.requests[slot] {
                    request.at = At::Called;
                }
            }
            Action::Read(slot) => replica::read(state, slot, self),
            Action::Look(slot, hidden) => replica::look_and_decide(state, slot, hidden, self),
            Action::LookAt(slot, n) => replica::look_at(state, slot, n, self),
            Action::LookAtHalf(slot, half) => halves::look_first(state, slot, half),
            Action::LookAtOtherHalf(slot) => halves::look_second(state, slot, self),
            Action::DecideAgain(slot) => replica::decide_again(state, slot, self),
            Action::Record(slot) => replica::record(state, slot, self),
            Action::Execute(slot) => execute(state, slot, self),
            Action::SettlerReads(n) => settler::read(state, n, self),
            Action::SettlerLooks(n) if state.settlers[n] == Settler::Idle => {
                settler::look_first(state, n);
            }
            Action::SettlerLooks(n) => settler::look_at_pods(state, n, self),
            Action::SettlerWrites(n) => settler::write(state, n, self),
            Action::SettlerCrashes(n) => state.settlers[n] = Settler::Idle,
            Action::ReporterReads => reporter::read(state, self),
            Action::ReporterLooks(hidden) => reporter::look_around(state, hidden, self),
            Action::ReporterWrites => reporter::write(state, self),
            Action::ReporterCrashes => state.reporter = Reporter::Idle,
            Action::DriverReads => state.driver = Driver::Page,
            Action::DriverPlans(hidden) => driver::plan(state, hidden, self),
            Action::DriverGoesOn => driver::go_on(state, self),
            Action::DriverCrashes => state.driver = Driver::Idle,
            Action::TemplateChanges => {
                for member in state
                    .members
                    .iter_mut()
                    .filter(|m| m.phase != Phase::Absent)
                {
                    member.outdated = true;
                }
            }
            Action::ReplacementAsked(n) => state.asked = Some(u8::try_from(n).unwrap()),
            Action::ReplacerPlans => replacement::plan(state, self),
            Action::ReplacerJudges => replacement::judge(state, self),
            Action::ReplacerWrites => replacement::write(state, self),
            Action::ReplacerCrashes => state.replacer = Replacer::Idle,
            Action::RemovalTakesEffect => replacement::remove(state),
            Action::RemovalLost => state.removal = None,
            Action::CallTakesEffect => replacement::carry_out(state, self),
            Action::CallLost => state.call = None,
            Action::VolumeFails(n) => volumes::fail(state, n),
            Action::VolumeGone(n) => volumes::vanish(state, n),
            Action::Written(holders) => state.holders = holders,
            Action::Replicated(n) => volumes::replicate(state, n),
            Action::Defragment(n) => defragmentation::ask(state, n, self),
            Action::DefragmentationRenews => defragmentation::renew(state, self),
            Action::DefragmentationBegins => defragmentation::begin(state),
            Action::DefragmentationSettles => defragmentation::end(state, self),
            Action::DefragmentationCrashes => state.defragmentation = None,
            Action::Ends(n) => state.end(n),
            Action::Created(n) => {
                state.members[n].outdated = false;
                volumes::create(state, n, self);
            }
            Action::Runs(n) => {
                state.members[n].phase = Phase::Initialising;
                state.touch(n);
            }
            Action::Rejected => state.is_rejected = true,
            Action::LetThrough => state.is_rejected = false,
            Action::Boots(n) => state.boot(n),
            Action::Starts(n) | Action::Recovers(n) => volumes::start(state, n),
            Action::Fails(n, phase) => state.fail(n, phase),
            Action::Bypassed(n) => state.fail(n, Phase::Ending),
            Action::Removed(n) => {
                state.fail(n, Phase::Crashed);
                state.members[n].listed = Listed::No;
            }
            Action::Joins(n) => {
                state.members[n].listed = Listed::Learner;
                state.come_up(n);
            }
            Action::ScaleOut(joins_as) => scaling::scale_out(state, joins_as),
            Action::Added(n) => scaling::add(state, n),
            Action::MemberRemoved(n) => scaling::remove(state, n),
            Action::ScaleIn { announced } => scaling::ask_to_scale_in(state, announced, self),
            Action::ScaledIn => scaling::scale_in(state),
            Action::ScaleInLost => state.scales_in = false,
            Action::Promoted(n) => state.promote(n),
            Action::BudgetDeleted => {
                state.budget = None;
                state.lose_races(self.mutation);
            }
            Action::BudgetCreated => {
                let trusted = self.mutation == Mutation::RecreatedBudgetStartsTrusted;
                state.budget = Some(Budget::new(Expected::default(), (!trusted).then_some(0)));
            }
            Action::OutOfForce(why) => outage::begin(state, why),
            Action::InForce => outage::end(state),
            Action::DeleteUnasked(n) => outage::delete(state, n, self),
            Action::GuardReads => outage::read(state),
            Action::GuardLooks => outage::look(state),
            Action::GuardWrites => outage::write(state, self),
            Action::GuardCrashes => state.guard.lose_race(&mut state.unwritten),
            Action::Tick => self.tick(state),
        }
    }

    /// Whether time may pass. An outage is written down within a settle time, so no ledger is
    /// trusted before that.
    fn is_in_time(&self, state: &State) -> bool {
        let overdue = |age: u8| age + self.pace >= self.settle_time;
        let Some(budget) = &state.budget else {
            return true;
        };
        let is_unwritten =
            state.unwritten || state.guard.knows_of_an_outage() || state.force == Force::Unlabelled;
        let ages = [state.outage_ago, budget.trust.untrusted_for];
        budget.trust.suspended || !is_unwritten || !ages.into_iter().flatten().any(overdue)
    }

    pub(crate) fn tick(&self, state: &mut State) {
        for request in state.requests.iter_mut().flatten() {
            if request.by != By::Driver {
                request.age += 1;
            }
        }
        if let Some(Stage::Renewed { age }) =
            state.defragmentation.as_mut().map(|run| &mut run.stage)
        {
            *age += 1;
        }
        if let Some(removal) = &mut state.removal {
            removal.age += 1;
        }
        state.outage_ago = state
            .outage_ago
            .map(|age| age + self.pace)
            .filter(|age| *age < self.settle_time);
        let Some(budget) = &mut state.budget else {
            return;
        };
        let older = |age: u8| (age + self.pace).min(self.settle_time);
        for cause in budget
            .grants
            .iter_mut()
            .filter_map(|grant| grant.delete.as_mut())
        {
            // The settler will remove the cause because its pod is gone.
            if cause.stands {
                cause.age = older(cause.age);
            }
        }
        for age in budget
            .grants
            .iter_mut()
            .filter_map(|grant| grant.defragment.as_mut())
        {
            *age = older(*age);
        }
        for age in budget
            .grants
            .iter_mut()
            .filter_map(|grant| grant.replace.as_mut())
        {
            *age = older(*age);
        }
        // A scale-out has ended by then.
        budget.expected.growing = false;
        if budget.trust.suspended || budget.trust.by_others {
            // The time begins anew when that ends.
            return;
        }
        if let Some(age) = &mut budget.trust.untrusted_for {
            *age = older(*age);
        }
        if budget.trust.untrusted_for == Some(self.settle_time) {
            // From now on the ledger is trusted, by whichever replica records that.
            budget.trust = budget.trust.after(Event::Watched);
        }
    }
}

/// Lets the delete take effect, if its preconditions hold.
pub(crate) fn execute(state: &mut State, slot: usize, scenario: &Scenario) {
    let Some(request) = state.requests[slot].take() else {
        return;
    };
    let permit = match request.at {
        At::Answered(permit) if !permit.announced => permit,
        At::Answered(_) | At::Unasked => return state.take_unasked(usize::from(request.target)),
        _ => return,
    };
    let untouched = request.by != By::Step { untouched: false }
        || scenario.mutation == Mutation::StepWithoutAFence;
    if request.stands && untouched {
        let excused = (!permit.harmless).then_some(permit.excused);
        state.delete(usize::from(request.target), excused);
    }
}
