//! When leadership may be moved: one move at a time per cluster, and the next when the new leader has led for a while.
//!
//! A move is recorded in the budget before it begins, by the compare-and-swap that records the grant: of two replicas that want to move
//! leadership at once, one loses the race and then finds the other's move. Ages are those of the asking replica's own monotonic clock
//! since it first saw something, so neither clocks that differ nor a restart make a pause shorter.

use std::time::Duration;

use super::disruption::Disruption;
use super::grants::Grants;
use super::id::MemberId;
use super::leader::heirs;
use super::snapshot::{Member, Snapshot};
use super::verdict::Basis;

/// How long a new leader leads before leadership is moved again: each move costs writers a round trip or two.
const REST: Duration = Duration::from_secs(5);

/// The longest a transfer takes after it was recorded, with a margin: the write's answer, and the second in which etcd has to carry it out.
const TRANSFER: Duration = Duration::from_secs(2);

/// After so long a move is over, whatever became of it: somebody who leads is not kept because of a leader that comes and goes.
const OVER_AFTER: Duration = Duration::from_secs(60);

/// A move of leadership that was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaderMove {
    /// The member that led.
    pub from: MemberId,
    /// The member that was to lead instead.
    pub to: MemberId,
    /// The raft term in which the first one led; 0 where it is not known.
    pub term: u64,
}

/// A recorded move, with what one replica saw of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenMove {
    /// The move.
    pub begun: LeaderMove,
    /// For how long it has been seen in the budget.
    pub recorded_for: Duration,
    /// For how long the present leader has been seen to lead, in its present term.
    pub leads_for: Duration,
}

/// What becomes of leadership when a member is permitted to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Succession {
    /// It does not lead, or nobody could take over.
    Unneeded,
    /// This move begins with the permission.
    Move(LeaderMove),
    /// It leads since a moment ago, and can wait for so long.
    Wait(Duration),
    /// It leads since a moment ago, and does not wait: it goes as leader.
    NotNow,
}

/// What becomes of leadership when the target of an allowed disruption goes.
///
/// Only a healthy member that the others can spare is kept waiting. What an override, a policy for a small cluster or a repair lets go is
/// urgent or as bad later.
pub fn succession(
    snapshot: &Snapshot,
    grants: &Grants,
    disruption: &Disruption,
    basis: Basis,
    open: Option<&OpenMove>,
) -> Succession {
    let heirs = heirs(snapshot, grants, disruption);
    let (Some(&best), Some(from)) = (heirs.first(), snapshot.leader) else {
        return Succession::Unneeded;
    };
    let target = snapshot.member(&disruption.target.name);
    let serves = target.is_some_and(Member::serves_quorum);
    match (rests(snapshot, open), basis) {
        (Some(remaining), Basis::Majority { .. }) if serves => Succession::Wait(remaining),
        (Some(_), _) => Succession::NotNow,
        (None, _) => {
            // A move that has not taken effect yet may be under way from another replica: another heir would break it off.
            let under_way = open.filter(|open| open.waits_to_take_effect(snapshot));
            let heir = under_way.map(|open| open.begun.to);
            Succession::Move(LeaderMove {
                from,
                to: heir.filter(|heir| heirs.contains(heir)).unwrap_or(best),
                term: snapshot.term.unwrap_or_default(),
            })
        }
    }
}

/// For how long leadership is still left alone; `None` where it may be moved.
pub fn rests(snapshot: &Snapshot, open: Option<&OpenMove>) -> Option<Duration> {
    let open = open.filter(|open| !open.waits_to_take_effect(snapshot))?;
    let left = [
        REST.saturating_sub(open.leads_for),
        OVER_AFTER.saturating_sub(open.recorded_for),
    ];
    // A term has one leader: who leads in the term after the one that ended has led since the transfer.
    let by_transfer = open.took_effect(snapshot);
    let since = (REST + TRANSFER).saturating_sub(open.recorded_for);
    let left = left.into_iter().chain(by_transfer.then_some(since)).min()?;
    (!left.is_zero()).then_some(left)
}

impl OpenMove {
    /// Whether the old leader leads as it did when the move was recorded: the move is under way, or etcd refused it, or nobody asked for
    /// it in the end. Asking for it again is the same move.
    fn waits_to_take_effect(&self, snapshot: &Snapshot) -> bool {
        let LeaderMove { from, term, .. } = self.begun;
        snapshot.leader == Some(from) && snapshot.term.unwrap_or_default() == term
    }

    /// Whether the new leader leads by this move.
    fn took_effect(&self, snapshot: &Snapshot) -> bool {
        let LeaderMove { to, term, .. } = self.begun;
        let next = snapshot
            .term
            .is_none_or(|now| now == term.saturating_add(1));
        snapshot.leader == Some(to) && next
    }
}

#[cfg(test)]
mod tests;
