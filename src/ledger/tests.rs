mod moves;
mod queue;
mod releases;
mod settling;
mod swap;
mod trust;
mod wiring;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Ledger, Page};
use crate::clock::{Clock, ClockHand};
use crate::fake_api::FakeApi;
use crate::fake_api::etcd::BUDGET;
use crate::quorum::{ClusterRef, GrantKind, Grants, PodName};

const SETTLE: Duration = Duration::from_secs(120);

/// A server with one budget of this status, a ledger on it, and the hand of the ledger's clock.
fn ledger_with(status: &Value) -> (FakeApi, Ledger, ClockHand) {
    let api = FakeApi::default();
    put_budget(&api, "uid-a", status);
    let (clock, hand) = Clock::frozen(Timestamp::UNIX_EPOCH);
    let ledger = Ledger::new(api.client(), clock);
    (api, ledger, hand)
}

fn put_budget(api: &FakeApi, uid: &str, status: &Value) {
    api.put(
        BUDGET,
        json!({
            "apiVersion": "quorumgate.io/v1alpha1",
            "kind": "QuorumDisruptionBudget",
            "metadata": {"name": "etcd", "namespace": "db", "uid": uid},
            "spec": {"statefulSetName": "etcd"},
            "status": status,
        }),
    );
}

fn cluster() -> ClusterRef {
    ClusterRef::new("db", "etcd")
}

async fn read(ledger: &Ledger) -> Page {
    ledger.read(&cluster()).await.unwrap().unwrap()
}

fn delete(uid: &str) -> GrantKind {
    GrantKind::Delete {
        uid: uid.into(),
        rollout: false,
    }
}

/// The grants with one more permission: to delete the incarnation `u<ordinal>` of
/// `etcd-<ordinal>`.
fn yes(grants: &Grants, ordinal: u32) -> Grants {
    let member = PodName::new(format!("etcd-{ordinal}"));
    let uid = format!("u{ordinal}");
    grants.issue(&member, delete(&uid), "ann".into(), "noon".into())
}
