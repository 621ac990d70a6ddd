//! Symmetry: states that differ only in which member, request or settler is which count as one
//! state.

use crate::replacement;
use crate::scenario::Scenario;
use crate::set::Set;
use crate::state::{At, MEMBERS, Out, Reporter, Request, Settler, State};

/// The state that represents all states like this one. Where a rollout runs, the members have an
/// order, which is kept.
pub(crate) fn representative(state: &State, scenario: &Scenario) -> State {
    let mut like = *state;
    if !scenario.rollout {
        // The member that comes and goes by scaling is like no other.
        let order = order(state, scenario.replicas());
        if order.windows(2).any(|pair| pair[0] > pair[1]) {
            like = permuted(state, &order);
        }
    }
    like.requests
        .sort_unstable_by_key(|request| (request.is_none(), *request));
    like.settlers.sort_unstable();
    like
}

/// The members, sorted by their traits.
fn order(state: &State, members: usize) -> [usize; MEMBERS] {
    let mut order = [0, 1, 2, 3, 4];
    let mut traits = [0; MEMBERS];
    for (n, traits) in traits.iter_mut().enumerate().take(members) {
        *traits = traits_of(state, n);
    }
    order[..members].sort_by_key(|n| traits[*n]);
    order
}

/// The traits of a member as a number, without naming another member.
fn traits_of(state: &State, n: usize) -> u64 {
    let member = &state.members[n];
    let mut traits = member.phase as u64 * 3 + member.listed as u64;
    let mut also = |number: u64, of: u64| traits = traits * of + number;
    match member.out {
        Out::NotByUs => also(0, 8),
        Out::Taken(excused) => also(1 + u64::from(excused.count()), 8),
    }
    if let Some(budget) = &state.budget {
        let grant = &budget.grants[n];
        let delete = grant.delete.map_or(0, |cause| {
            1 + u64::from(cause.stands) + 2 * u64::from(cause.rollout) + 4 * u64::from(cause.age)
        });
        also(delete, 32);
        also(grant.replace.map_or(0, |age| 1 + u64::from(age)), 4);
        also(grant.defragment.map_or(0, |age| 1 + u64::from(age)), 8);
    }
    let mut asked = 0;
    let mut excused = 0;
    for request in state.requests.iter().flatten() {
        if usize::from(request.target) == n {
            asked += stage(request);
        }
        match &request.at {
            At::Called | At::Page | At::Unasked => {}
            At::Looking { look, .. } | At::Half { look, .. } => excused += look[n] as u64,
            At::Decided(permit) | At::Again(permit) | At::Answered(permit) => {
                excused += u64::from(permit.excused.has(n));
            }
        }
    }
    also(asked, 256);
    also(excused, 64);
    also(
        state.settlers.iter().filter(|s| is_due(**s, n)).count() as u64,
        8,
    );
    let is_new = u64::from(member.renewed) + 2 * u64::from(member.behind);
    also(8 * is_new + member.volume as u64, 32);
    also(u64::from(state.holders.has(n)), 2);
    also(u64::from(replacement::concerns(state, n)), 2);
    also(
        state
            .defragmentation
            .map_or(0, |run| u64::from(usize::from(run.target) == n)),
        2,
    );
    traits
}

fn stage(request: &Request) -> u64 {
    let at = match request.at {
        At::Called => 1,
        At::Page => 2,
        At::Decided(_) => 3,
        At::Again(_) => 4,
        At::Answered(_) => 5,
        At::Looking { .. } => 6,
        At::Unasked => 7,
        // The stages of a half share a number with others. They differ in what was seen.
        At::Half { .. } => 0,
    };
    at + 8 * u64::from(request.age) + 32 * u64::from(request.stands)
}

fn is_due(settler: Settler, n: usize) -> bool {
    match settler {
        Settler::Idle | Settler::Page => false,
        Settler::Due(deletes, defragmentations) => deletes.or(defragmentations).has(n),
        Settler::LookedFirst(gone) => gone.has(n),
    }
}

/// The same state with the members in another order.
fn permuted(state: &State, order: &[usize; MEMBERS]) -> State {
    let mut place = [0; MEMBERS];
    for (now, before) in order.iter().enumerate() {
        place[*before] = now;
    }
    let moved = |set: Set| Set::new(set.iter().map(|n| place[n]));
    let mut like = *state;
    for (now, before) in order.iter().enumerate() {
        like.members[now] = state.members[*before];
        if let Out::Taken(excused) = &mut like.members[now].out {
            *excused = moved(*excused);
        }
    }
    if let (Some(budget), Some(old)) = (&mut like.budget, &state.budget) {
        for (now, before) in order.iter().enumerate() {
            budget.grants[now] = old.grants[*before];
        }
    }
    for request in like.requests.iter_mut().flatten() {
        request.target = u8::try_from(place[usize::from(request.target)]).unwrap();
        if let At::Looking {
            seen,
            excused,
            look,
        } = &mut request.at
        {
            (*seen, *excused) = (moved(*seen), moved(*excused));
            *look = order.map(|before| look[before]);
        }
        if let At::Half {
            look,
            replaced,
            excused,
            ..
        } = &mut request.at
        {
            (*replaced, *excused) = (moved(*replaced), moved(*excused));
            *look = order.map(|before| look[before]);
        }
        if let Some(permit) = request.permit() {
            permit.excused = moved(permit.excused);
            permit.look = permit.look.permuted(order);
        }
    }
    for settler in &mut like.settlers {
        match settler {
            Settler::Idle | Settler::Page => {}
            Settler::Due(deletes, defragmentations) => {
                (*deletes, *defragmentations) = (moved(*deletes), moved(*defragmentations));
            }
            Settler::LookedFirst(gone) => *gone = moved(*gone),
        }
    }
    if let Reporter::Page(Some(stale))
    | Reporter::Seen {
        stale: Some(stale), ..
    } = &mut like.reporter
    {
        *stale = order.map(|before| stale[before]);
    }
    let renamed = |n: u8| u8::try_from(place[usize::from(n)]).unwrap();
    like.unstarted = moved(like.unstarted);
    like.holders = moved(like.holders);
    like.asked = like.asked.map(renamed);
    like.removed = like
        .removed
        .map(|(n, excused)| (renamed(n), moved(excused)));
    replacement::permute(&mut like, renamed, moved);
    if let Some(run) = &mut like.defragmentation {
        run.target = u8::try_from(place[usize::from(run.target)]).unwrap();
        run.excused = moved(run.excused);
    }
    like
}
