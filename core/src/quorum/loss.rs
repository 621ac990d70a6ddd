//! Whether quorum is lost: only by positive evidence.
//!
//! Without a quorum every etcd process gives up its leader within an election timeout, so a voter that answers and names a leader, or
//! that cannot be asked, may still be part of one.

use super::condition::Condition;
use super::process::ProcessState;
use super::snapshot::{Member, Role};
use super::tolerance::majority;
use super::why::Why;

/// Whether the voters that answered and name no leader, together with the dead ones, leave fewer than a majority of others.
pub(super) fn is_lost(members: &[Member], voters: u32) -> bool {
    let without = members
        .iter()
        .filter(|member| member.role == Role::Voter && is_without_quorum(member))
        .count();
    let without = u32::try_from(without).unwrap_or(u32::MAX);
    voters.saturating_sub(without) < majority(voters)
}

fn is_without_quorum(member: &Member) -> bool {
    let dead = match member.process {
        ProcessState::Dead | ProcessState::DeadForGood => true,
        ProcessState::Starting | ProcessState::Alive | ProcessState::Elsewhere => false,
    };
    dead || member.leaderless || member.condition == Condition::Failing(Why::NoLeader)
}
