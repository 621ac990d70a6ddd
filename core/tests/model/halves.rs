//! Looks whose Kubernetes half and etcd half are of different moments.
//!
//! A replica asks members at the addresses that it found the last time, while it is still reading
//! their pods. So either half may be the earlier one. If the pods were read first, a member whose
//! pod is gone by then does not answer at its address. If the answers came first, they count only
//! if the pods turn out to be the ones that were asked; otherwise the members are asked again.

use crate::appearance::{Appearance, Look, look};
use crate::mutations::Mutation;
use crate::replica::conclude;
use crate::scenario::Scenario;
use crate::set::Set;
use crate::state::{At, MEMBERS, Request, State};

/// A half of the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Half {
    /// The Kubernetes half: the pods as the API server shows them.
    Pods,
    /// The etcd half: the members' answers.
    Answers,
}

/// The result of a look, each half at its own moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Sight {
    pub(crate) pods: Look,
    pub(crate) answers: Look,
}

impl From<Look> for Sight {
    fn from(look: Look) -> Self {
        Self {
            pods: look,
            answers: look,
        }
    }
}

impl Sight {
    /// The members that appear like this in either half.
    pub(crate) fn which(&self, holds: impl Fn(Appearance) -> bool) -> Set {
        Set::new((0..MEMBERS).filter(|n| holds(self.pods[*n]) || holds(self.answers[*n])))
    }

    pub(crate) fn permuted(&self, order: &[usize; MEMBERS]) -> Self {
        Self {
            pods: order.map(|before| self.pods[before]),
            answers: order.map(|before| self.answers[before]),
        }
    }
}

/// Gathers the first half.
pub(crate) fn look_first(state: &mut State, slot: usize, half: Half) {
    let now = look(state, Set::NONE);
    if let Some(request) = &mut state.requests[slot] {
        request.at = At::Half {
            first: half,
            look: now,
            replaced: Set::NONE,
            excused: Set::NONE,
        };
    }
}

/// Gathers the second half, and decides.
pub(crate) fn look_second(state: &mut State, slot: usize, scenario: &Scenario) {
    let now = look(state, Set::NONE);
    let Some(Request {
        at:
            At::Half {
                first,
                look: before,
                replaced,
                excused,
            },
        ..
    }) = state.requests[slot]
    else {
        return;
    };
    let by_name = scenario.mutation == Mutation::AnswersCountByName;
    let is_confirmed = replaced.is_empty() && same_endpoints(before, now);
    let (sight, excused) = match first {
        Half::Pods => {
            let sight = Sight {
                pods: before,
                answers: answers(before, now, replaced),
            };
            // A member that failed and was seen to have failed is not excused. A member that still
            // answers may be terminating already.
            let answering = sight.answers.map(is_answering);
            let seen = Set::new((0..MEMBERS).filter(|n| answering[*n]));
            (sight, excused.and(seen))
        }
        Half::Answers if !(by_name || is_confirmed) => {
            return look_first(state, slot, Half::Pods);
        }
        Half::Answers => {
            let ending = Set::new((0..MEMBERS).filter(|n| now[*n] == Appearance::Ending));
            let sight = Sight {
                pods: now,
                answers: before,
            };
            (sight, excused.minus(ending).minus(replaced))
        }
    };
    conclude(state, slot, sight, None, scenario);
    if let Some(permit) = state.requests[slot].as_mut().and_then(Request::permit) {
        permit.excused = excused;
    }
}

/// The answers of members whose pods were read before.
fn answers(pods: Look, now: Look, replaced: Set) -> Look {
    std::array::from_fn(|n| match pods[n] {
        // A pod that is starting has no address yet, so it is not asked.
        Appearance::Starting => Appearance::Starting,
        // At a member's own URL the process answers that is there by now.
        Appearance::None | Appearance::Missing => now[n],
        _ if replaced.has(n) => Appearance::Silent,
        _ => now[n],
    })
}

/// Whether the same pods would be asked now.
fn same_endpoints(before: Look, now: Look) -> bool {
    let endpoint = |shown: Appearance| match shown {
        Appearance::None | Appearance::Starting => 0,
        Appearance::Missing => 1,
        _ => 2,
    };
    before.map(endpoint) == now.map(endpoint)
}

fn is_answering(shown: Appearance) -> bool {
    matches!(
        shown,
        Appearance::Answers | Appearance::Leaderless | Appearance::Ending
    )
}
