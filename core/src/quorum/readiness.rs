//! The members by `evidence: Readiness`, for clusters whose etcd cannot be asked (DEP-07's rule).
//! Such evidence is weaker and up to 30 s behind. It is that of etcd's container: a sidecar that is
//! not ready keeps the pod from being Ready, and nothing from being written.
//!
//! Every pod counts as a voter. Quorum is never called lost while a node is not Ready, because the
//! last report of such a node is out of date.

use super::condition::Condition;
use super::expected_voters::{count, majority};
use super::pod::{LeaseRole, Node, Pod};
use super::process::{self, ProcessState, Silence};
use super::snapshot::{Member, MemberPod, Role, Snapshot};
use super::why::Why;

/// Builds the members from the snapshot's pods.
pub(super) fn take_in(snapshot: &mut Snapshot) {
    let leader = sole_leader(&snapshot.pods);
    let members: Vec<Member> = snapshot
        .pods
        .iter()
        .map(|pod| member(pod, leader.is_some_and(|l| l.uid == pod.uid)))
        .collect();
    snapshot.quorum_lost = is_lost(&snapshot.pods, &members, snapshot.electorate(&members));
    snapshot.leader = leader.and_then(|pod| pod.recorded_id);
    snapshot.members = members;
}

fn member(pod: &Pod, leader: bool) -> Member {
    let condition = condition(pod);
    let process = match condition {
        Condition::Serving => ProcessState::Alive,
        // There is no endpoint to try, so the kubelet's report is taken alone.
        Condition::Learning | Condition::Failing(_) | Condition::Unknown(_) => {
            process::of_silent(pod, Silence::NoAddress)
        }
    };
    Member {
        id: pod.recorded_id,
        name: pod.name.to_string(),
        pod_name: Some(pod.name.clone()),
        pod: Some(MemberPod::new(pod)),
        role: Role::Voter,
        leader,
        condition,
        process,
        leaderless: false,
        lag: None,
        sizes: None,
        alarms: Vec::new(),
    }
}

fn condition(pod: &Pod) -> Condition {
    match pod.node {
        _ if pod.terminating => Condition::Failing(Why::Terminating),
        Node::Ready if pod.etcd_ready => Condition::Serving,
        Node::Ready | Node::Unscheduled => Condition::Failing(Why::NotReady),
        Node::NotReady | Node::OutOfService | Node::Gone | Node::Unread => {
            Condition::Unknown(Why::NodeNotReady)
        }
    }
}

/// The pod whose Lease names it leader, if there is exactly one such pod.
fn sole_leader(pods: &[Pod]) -> Option<&Pod> {
    let mut leaders = pods
        .iter()
        .filter(|pod| pod.lease_role == Some(LeaseRole::Leader));
    leaders.next().filter(|_| leaders.next().is_none())
}

fn is_lost(pods: &[Pod], members: &[Member], voters: u32) -> bool {
    let nodes_ready = pods
        .iter()
        .all(|pod| matches!(pod.node, Node::Ready | Node::Unscheduled));
    let failing = members
        .iter()
        .filter(|member| matches!(member.condition, Condition::Failing(_)))
        .count();
    nodes_ready && voters.saturating_sub(count(failing)) < majority(voters)
}
