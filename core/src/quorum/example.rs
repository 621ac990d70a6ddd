//! An example cluster, for tests and for the examples in this documentation.

use super::evidence::{ListedMember, Probe, Round, Status, Target};
use super::expected_voters::ExpectedVoters;
use super::id::{ClusterId, ClusterRef, MemberId, Ordinal};
use super::pod::{Containers, Node, Pod};
use super::snapshot::Observation;

/// A cluster in which every member serves.
///
/// The voters are `<set>-0`, `<set>-1` and so on, with the UIDs `uid-0`, `uid-1` and so on and the
/// member ids 1, 2 and so on. The first one leads in term 2. The namespace is `ns`.
pub fn healthy(set: &str, voters: u32) -> Observation {
    let list: Vec<ListedMember> = (0..voters).map(|n| listed(set, n)).collect();
    Observation {
        expected: ExpectedVoters {
            voters,
            replicas: voters,
        },
        pods: (0..voters).map(|n| pod(set, n)).collect(),
        round: Round {
            probes: (0..voters).map(|n| probe(n, &list)).collect(),
        },
        ..Observation::before_any_look(ClusterRef::new("ns", set), voters)
    }
}

fn listed(set: &str, n: u32) -> ListedMember {
    ListedMember {
        id: id(n),
        name: format!("{set}-{n}"),
        learner: false,
        peer_urls: vec![format!("https://{set}-{n}:2380")],
        client_urls: vec![format!("https://{set}-{n}:2379")],
    }
}

fn pod(set: &str, n: u32) -> Pod {
    Pod {
        name: format!("{set}-{n}").as_str().into(),
        uid: format!("uid-{n}").as_str().into(),
        ordinal: Some(Ordinal(n)),
        terminating: false,
        has_address: true,
        node: Node::Ready,
        containers: Containers::Running,
        etcd_ready: true,
        up_for: None,
        ready_for: None,
        etcd_age: None,
        sidecar_failing: false,
        ready: true,
        revision: None,
        lease_role: None,
        recorded_id: Some(id(n)),
    }
}

fn id(n: u32) -> MemberId {
    MemberId(u64::from(n) + 1)
}

fn probe(n: u32, list: &[ListedMember]) -> Probe {
    Probe {
        target: Target::Pod(format!("uid-{n}").as_str().into()),
        status: Ok(Status {
            cluster_id: ClusterId(1),
            member_id: id(n),
            leader: Some(MemberId(1)),
            term: 2,
            raft_index: 10,
            applied_index: 10,
            learner: false,
            alarms: Vec::new(),
            db_size: 0,
            db_size_in_use: 0,
            revision: 0,
            db_size_quota: None,
            version: "3.6.16".into(),
        }),
        read: Ok(()),
        members: Ok(list.to_vec()),
    }
}

/// A cluster of which the last member has no pod. The names and URLs of its members lead to no pod.
#[cfg(test)]
pub(super) fn without_last_pod_and_names(set: &str, voters: u32) -> Observation {
    let mut observation = healthy(set, voters);
    observation.pods.pop();
    observation.round.probes.pop();
    for probe in &mut observation.round.probes {
        let listed = probe.members.iter_mut().flatten();
        for (n, member) in listed.enumerate() {
            member.name = format!("m{n}");
            member.peer_urls = vec![format!("http://10.0.0.{n}:2380")];
        }
    }
    observation
}
