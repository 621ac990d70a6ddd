use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use crate::api::QuorumDisruptionBudgetStatus;
use crate::ledger::wire;
use crate::quorum::{Cause, ExpectedVoters, Grant, GrantKind, Grants, PodName, PodUid};

fn permitted() -> impl Strategy<Value = Vec<GrantKind>> {
    let delete = ("[a-z0-9-]{1,8}", any::<bool>()).prop_map(|(uid, rollout)| GrantKind::Delete {
        uid: PodUid::new(uid),
        rollout,
    });
    let timeout = 0..=i64::MAX.unsigned_abs();
    let defragment =
        ("\\PC{0,8}", timeout).prop_map(|(holder, timeout_seconds)| GrantKind::Defragment {
            holder,
            timeout_seconds,
        });
    let one_of_each = (
        proptest::option::of(delete),
        proptest::option::of(defragment),
        proptest::option::of(Just(GrantKind::Replace)),
    );
    one_of_each
        .prop_map(|(a, b, c)| [a, b, c].into_iter().flatten().collect::<Vec<_>>())
        .prop_filter("a grant has a cause", |causes| !causes.is_empty())
        .prop_shuffle()
}

fn grant() -> impl Strategy<Value = Grant> {
    let rest = vec((0..=i64::MAX.unsigned_abs(), "\\PC{0,12}", "\\PC{0,12}"), 3);
    (permitted(), rest).prop_map(|(permitted, rest)| Grant {
        causes: permitted
            .into_iter()
            .zip(rest)
            .map(|(what, (seq, by, at))| Cause { what, seq, by, at })
            .collect(),
    })
}

fn grants() -> impl Strategy<Value = Grants> {
    let entries = btree_map("[a-z]{1,6}-[0-9]", grant(), 0..6);
    (entries, 0..=i64::MAX.unsigned_abs()).prop_map(|(entries, last_seq)| {
        let named = entries
            .into_iter()
            .map(|(name, grant)| (PodName::new(name), grant));
        Grants::recorded(named.collect::<BTreeMap<_, _>>(), last_seq)
    })
}

proptest! {
    #[test]
    fn grants_come_back_from_a_status_as_they_went_in(grants in grants()) {
        let mut status = QuorumDisruptionBudgetStatus::default();
        wire::write_grants(&grants, &mut status).unwrap();
        let sent = serde_json::to_string(&status).unwrap();
        let received = serde_json::from_str(&sent).unwrap();
        prop_assert_eq!(wire::read_grants(&received), Ok(grants));
    }

    #[test]
    fn expected_voters_come_back_from_a_status_as_they_went_in(voters in 0..1000_u32, replicas in 0..1000_u32) {
        let mut status = QuorumDisruptionBudgetStatus::default();
        let expected = ExpectedVoters { voters, replicas };
        wire::write_expected(expected, &mut status);
        prop_assert_eq!(wire::read_expected(&status), Ok(expected));
    }

    #[test]
    fn no_status_at_all_makes_the_reading_panic(json in any_json(3)) {
        if let Ok(status) = serde_json::from_value::<QuorumDisruptionBudgetStatus>(json) {
            let _ = wire::read_grants(&status);
            let _ = wire::read_expected(&status);
        }
    }
}

/// JSON that uses the names of a status in wrong places.
fn any_json(depth: u32) -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(serde_json::Value::from),
        "[a-zA-Z]{0,8}".prop_map(serde_json::Value::from),
        Just(serde_json::Value::Null),
    ];
    let name = prop_oneof![
        Just("grants"),
        Just("member"),
        Just("causes"),
        Just("kind"),
        Just("seq"),
        Just("by"),
        Just("at"),
        Just("ledger"),
        Just("lastSeq"),
        Just("expectedMembers"),
        Just("uid"),
    ];
    leaf.prop_recursive(depth, 64, 8, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(serde_json::Value::from),
            btree_map(name.clone().prop_map(str::to_owned), inner, 0..8)
                .prop_map(|fields| fields.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

#[test]
fn a_number_too_large_for_a_status_is_an_error() {
    let cause = Cause {
        what: GrantKind::Replace,
        seq: u64::MAX,
        by: String::new(),
        at: String::new(),
    };
    let grant = Grant {
        causes: vec![cause],
    };
    let grants = Grants::recorded(BTreeMap::from([("etcd-0".into(), grant)]), 0);
    let mut status = QuorumDisruptionBudgetStatus::default();
    assert!(wire::write_grants(&grants, &mut status).is_err());
}
