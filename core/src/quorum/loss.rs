//! Whether quorum is lost. Only positive evidence counts.
//!
//! Without a quorum every etcd process gives up its leader within an election timeout. So a voter
//! that names a leader, or that could not be asked, may still be part of a quorum.

use super::condition::Condition;
use super::process::ProcessState;
use super::snapshot::{Member, Role};
use super::tolerance::majority;
use super::why::Why;

/// Whether quorum is lost: fewer than a majority of voters would be left without the dead ones and
/// without those that answered and know no leader.
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
