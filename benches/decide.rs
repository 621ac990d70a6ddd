//! What a decision costs by itself: assembling a snapshot and deciding, for clusters of three, five and nine members.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use quorumgate::quorum::evidence::{ListedMember, Probe, Round, Status, Target};
use quorumgate::quorum::pod::{Containers, Node, Pod};
use quorumgate::quorum::{
    Actor, ClusterId, ClusterRef, Disruption, Grace, Grants, Kind, Latch, MemberId, Observation,
    Ordinal, Snapshot, TargetPod, decide,
};

fn pod(ordinal: u32) -> Pod {
    let name = format!("etcd-main-{ordinal}");
    Pod {
        uid: format!("uid-of-{name}").as_str().into(),
        name: name.as_str().into(),
        ordinal: Some(Ordinal(ordinal)),
        terminating: false,
        has_address: true,
        node: Node::Ready,
        containers: Containers::Running,
        etcd_ready: true,
        up_for: None,
        sidecar_failing: false,
        ready: true,
        revision: Some("etcd-main-5d8f7c9b6".into()),
        lease_role: None,
        recorded_id: Some(id(ordinal)),
    }
}

fn id(ordinal: u32) -> MemberId {
    MemberId(0x8e9e_05c5_2164_0000 + u64::from(ordinal))
}

fn probe(pod: &Pod, ordinal: u32, members: &[ListedMember]) -> Probe {
    Probe {
        target: Target::Pod(pod.uid.clone()),
        status: Ok(Status {
            cluster_id: ClusterId(0xc1),
            member_id: id(ordinal),
            leader: Some(id(0)),
            term: 7,
            raft_index: 1_000_000,
            applied_index: 1_000_000,
            learner: false,
            alarms: Vec::new(),
            db_size: 1 << 30,
            db_size_in_use: 1 << 29,
            db_size_quota: Some(1 << 33),
            version: "3.6.16".into(),
        }),
        read: Ok(()),
        members: Ok(members.to_vec()),
    }
}

fn observation(voters: u32) -> Observation {
    let pods: Vec<Pod> = (0..voters).map(pod).collect();
    let members: Vec<ListedMember> = (0..voters)
        .map(|ordinal| ListedMember {
            id: id(ordinal),
            name: format!("etcd-main-{ordinal}"),
            learner: false,
            peer_urls: vec![format!(
                "https://etcd-main-{ordinal}.etcd-main-peer.ns.svc:2380"
            )],
            client_urls: vec![format!(
                "https://etcd-main-{ordinal}.etcd-main-peer.ns.svc:2379"
            )],
        })
        .collect();
    Observation {
        latch: Latch {
            voters,
            replicas: voters,
        },
        round: Round {
            probes: pods
                .iter()
                .zip(0..)
                .map(|(pod, ordinal)| probe(pod, ordinal, &members))
                .collect(),
        },
        pods,
        ..Observation::before_any_look(ClusterRef::new("ns", "etcd-main"), voters)
    }
}

fn eviction() -> Disruption {
    Disruption {
        target: TargetPod {
            name: "etcd-main-1".into(),
            uid: "uid-of-etcd-main-1".into(),
        },
        kind: Kind::Evict,
        actor: Actor::Stranger,
        grace: Grace::Graceful,
        precondition: None,
    }
}

fn decisions(c: &mut Criterion) {
    let mut group = c.benchmark_group("decide");
    for voters in [3, 5, 9] {
        let observation = observation(voters);
        let snapshot = Snapshot::assemble(&observation);
        let grants = Grants::default();
        let disruption = eviction();
        group.bench_with_input(
            BenchmarkId::new("assemble", voters),
            &observation,
            |b, o| {
                b.iter(|| Snapshot::assemble(black_box(o)));
            },
        );
        group.bench_with_input(BenchmarkId::new("decide", voters), &snapshot, |b, s| {
            b.iter(|| decide(black_box(s), &grants, &disruption));
        });
    }
    group.finish();
}

criterion_group!(benches, decisions);
criterion_main!(benches);
