//! The exploration of a scenario, and the report about it.

use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Path};

use crate::action::Action;
use crate::properties::TAKEN;
use crate::scenario::Scenario;
use crate::state::State;

/// The extent and the result of a run.
pub(crate) struct Exploration {
    pub(crate) states: usize,
    /// The most actions in a row.
    pub(crate) depth: usize,
    /// Whether every reachable state was seen.
    pub(crate) complete: bool,
    /// Whether any permission was given and used.
    pub(crate) lively: bool,
    /// The property that was broken, and the actions that led there.
    pub(crate) broken: Option<(&'static str, Path<State, Action>)>,
    /// The number of steps after which the run was cut off.
    bound: usize,
    took: Duration,
}

/// Explores a scenario breadth first, until a property is broken, everything was seen, or `steps`
/// steps were taken.
///
/// The exploration uses one thread. So its result is the same each time, and is the shortest way to
/// the failure. cargo runs several scenarios at once.
pub(crate) fn explore(scenario: Scenario, steps: usize) -> Exploration {
    explored(scenario, steps, HasDiscoveries::AnyFailures)
}

/// The most states in which an error has to show. Beyond that it counts as not noticed.
const MOST_UNTIL_BROKEN: usize = 10_000_000;

/// Explores as [`explore`] does, until this very property is broken. Other properties may break on
/// the way.
pub(crate) fn explore_until_broken(scenario: Scenario, property: &'static str) -> Exploration {
    explored(
        scenario,
        MOST_UNTIL_BROKEN,
        HasDiscoveries::AnyOf([property].into()),
    )
}

fn explored(scenario: Scenario, steps: usize, until: HasDiscoveries) -> Exploration {
    let start = Instant::now();
    let checker = scenario
        .checker()
        .threads(1)
        .finish_when(until.clone())
        .target_state_count(steps)
        .spawn_bfs()
        .join();
    let took = start.elapsed();
    let mut found = checker.discoveries();
    let lively = found.remove(TAKEN).is_some();
    if let HasDiscoveries::AnyOf(wanted) = until {
        found.retain(|property, _| wanted.contains(property));
    }
    let broken = found.into_iter().next();
    Exploration {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        complete: broken.is_none() && checker.state_count() < steps,
        lively,
        broken,
        bound: steps,
        took,
    }
}

impl Exploration {
    /// A line for people about the run.
    pub(crate) fn describe(&self, scenario: &Scenario) -> String {
        let states = if self.complete {
            format!("to its end, all {} states", self.states)
        } else {
            let (bound, states) = (self.bound, self.states);
            format!("for {bound} steps, the first {states} states")
        };
        format!(
            "{:<20} {} members, {} replicas, {} deletes at once: explored {states}, {} steps deep, in {:.1} s",
            scenario.name,
            scenario.members(),
            scenario.gates,
            scenario.requests,
            self.depth,
            self.took.as_secs_f64(),
        )
    }

    /// The actions that broke the property.
    pub(crate) fn story(&self) -> String {
        let Some((property, path)) = &self.broken else {
            return "nothing was broken".into();
        };
        let mut story = vec![format!("broken: {property}")];
        for (state, action) in path.clone().into_vec() {
            story.push(format!("{state:?}"));
            story.extend(action.map(|action| format!("-- {action:?}")));
        }
        story.join("\n")
    }
}
