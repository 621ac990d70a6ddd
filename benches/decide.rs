//! The cost of a decision by itself: assembling a snapshot and deciding, for clusters of three,
//! five and nine members.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use quorumgate::quorum::{
    Actor, Disruption, Grace, Grants, Kind, Snapshot, TargetPod, decide, example,
};

fn eviction() -> Disruption {
    Disruption {
        target: TargetPod {
            name: "etcd-main-1".into(),
            uid: "uid-1".into(),
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
        let observation = example::healthy("etcd-main", voters);
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
