//! The rules by which leadership moves before a leader goes: one move at a time per cluster, and
//! the next one only after the new leader has led for a while.
//!
//! A move is recorded in the budget before it begins, by the same compare-and-swap as the grant. Of
//! two replicas that want to move leadership at once, one loses the race and then finds the other's
//! move. Ages are measured by the asking replica's own monotonic clock since it first saw
//! something. So neither skewed clocks nor a restart can shorten a pause.

use std::time::Duration;

use super::disruption::Disruption;
use super::grants::Grants;
use super::id::MemberId;
use super::leader::heirs;
use super::snapshot::{Member, Snapshot};
use super::verdict::Basis;

/// The time that a new leader leads before leadership moves again. Each move costs writers a round
/// trip or two.
const REST: Duration = Duration::from_secs(5);

/// The longest time between the recording of a move and the change of leaders: the answer to the
/// write, and the second in which etcd has to carry out the transfer.
const TRANSFER: Duration = Duration::from_secs(2);

/// The age at which a recorded move no longer counts, whatever became of it. Without this bound a
/// leader that comes and goes would keep members from going for ever.
const OVER_AFTER: Duration = Duration::from_secs(60);

/// A move of leadership that a replica has recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaderMove {
    /// The member that led.
    pub from: MemberId,
    /// The member that is to lead.
    pub to: MemberId,
    /// The raft term in which `from` led; 0 if it is not known.
    pub term: u64,
}

/// A recorded move, and what one replica has seen of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenMove {
    /// The move.
    pub begun: LeaderMove,
    /// The time for which this replica has seen the move in the budget.
    pub recorded_for: Duration,
    /// The time for which this replica has seen the present leader lead in its present term.
    pub leads_for: Duration,
}

/// The fate of leadership when a member has permission to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Succession {
    /// The member does not lead, or no other member can take over.
    Unneeded,
    /// Leadership moves: this move is recorded with the grant.
    Move(LeaderMove),
    /// The member has led for a short time only, and waits for this long.
    Wait(Duration),
    /// The member has led for a short time only, and does not wait: it goes as leader.
    GoesAsLeader,
}

/// Decides what becomes of leadership when the target of an allowed disruption goes.
///
/// Only a healthy leader that the others can spare is kept waiting. Disruptions by an override, by
/// the policy of a small cluster, or as a repair do not wait: they are urgent, or would interrupt
/// writers as much later.
///
/// ```
/// use std::time::Duration;
/// use quorumgate_core::quorum::{
///     Actor, Basis, Disruption, Grace, Grants, Kind, LeaderMove, MemberId, OpenMove, Snapshot,
///     Succession, TargetPod, example, succession,
/// };
///
/// // The member in etcd-main-0 leads in term 2.
/// let cluster = Snapshot::assemble(&example::healthy("etcd-main", 3));
/// let drain = Disruption {
///     target: TargetPod { name: "etcd-main-0".into(), uid: "uid-0".into() },
///     kind: Kind::Evict,
///     actor: Actor::Stranger,
///     grace: Grace::Graceful,
///     precondition: None,
/// };
/// let basis = Basis::Majority { others: 2, majority: 2 };
/// let decide = |open| succession(&cluster, &Grants::default(), &drain, basis, open);
/// let moved = LeaderMove { from: MemberId(1), to: MemberId(2), term: 2 };
/// assert_eq!(decide(None), Succession::Move(moved));
///
/// // Leadership came to it two seconds ago: the new leader leads for five seconds first.
/// let before = OpenMove {
///     begun: LeaderMove { from: MemberId(2), to: MemberId(1), term: 1 },
///     recorded_for: Duration::from_secs(2),
///     leads_for: Duration::from_secs(2),
/// };
/// assert_eq!(decide(Some(&before)), Succession::Wait(Duration::from_secs(3)));
/// ```
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
        (Some(_), _) => Succession::GoesAsLeader,
        (None, _) => {
            // A recorded move that has not taken effect may be under way from another replica. A
            // move to another member would break it off.
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

/// The time for which leadership must not move yet. `None` if it may move now.
pub fn rests(snapshot: &Snapshot, open: Option<&OpenMove>) -> Option<Duration> {
    let open = open.filter(|open| !open.waits_to_take_effect(snapshot))?;
    let left = [
        REST.saturating_sub(open.leads_for),
        OVER_AFTER.saturating_sub(open.recorded_for),
    ];
    // A term has one leader. If the new leader leads in the term right after the recorded one, it
    // has led since the transfer.
    let by_transfer = open.took_effect(snapshot);
    let since = (REST + TRANSFER).saturating_sub(open.recorded_for);
    let left = left.into_iter().chain(by_transfer.then_some(since)).min()?;
    (!left.is_zero()).then_some(left)
}

impl OpenMove {
    /// Whether the old leader still leads in the recorded term. Then the move is under way, or etcd
    /// refused it, or nobody asked etcd for it in the end. Asking etcd again makes the same move.
    fn waits_to_take_effect(&self, snapshot: &Snapshot) -> bool {
        let LeaderMove { from, term, .. } = self.begun;
        snapshot.leader == Some(from) && snapshot.term.unwrap_or_default() == term
    }

    /// Whether the new leader leads because of this move.
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
