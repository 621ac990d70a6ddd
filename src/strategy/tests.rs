use super::*;

const PARTITIONED: &str =
    r#"{"rollingUpdate":{"maxUnavailable":"30%","partition":2},"type":"RollingUpdate"}"#;

fn partitioned() -> Value {
    serde_json::from_str(PARTITIONED).unwrap()
}

fn on_delete() -> Value {
    json!({"type": "OnDelete"})
}

fn sight<'a>(strategy: &'a Value, memory: Option<&'a str>) -> SetStrategy<'a> {
    SetStrategy {
        strategy: Some(strategy),
        memory,
    }
}

fn says(text: &str) -> AnnotationChange {
    AnnotationChange::Says(text.to_owned())
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "it is compared with what may be nothing"
)]
fn change(strategy: Option<Value>, memory: AnnotationChange) -> Option<Change> {
    Some(Change { strategy, memory })
}

#[test]
fn on_delete_is_set_and_what_was_there_is_remembered() {
    let now = partitioned();
    assert_eq!(
        sight(&now, None).on_delete(None),
        change(Some(on_delete()), says(PARTITIONED))
    );
    assert_eq!(
        SetStrategy::default().on_delete(None),
        change(Some(on_delete()), says(r#"{"type":"RollingUpdate"}"#))
    );
}

#[test]
fn the_memory_follows_what_the_owner_asks_for() {
    let (now, earlier) = (partitioned(), r#"{"type":"RollingUpdate"}"#);
    for (memory, before) in [
        (Some(earlier), Some(earlier)),
        (None, Some(earlier)),
        (Some(earlier), None),
    ] {
        assert_eq!(
            sight(&now, memory).on_delete(before),
            change(Some(on_delete()), says(PARTITIONED))
        );
    }
    let spelled_otherwise =
        r#"{"type": "RollingUpdate", "rollingUpdate": {"partition": 2, "maxUnavailable": "30%"}}"#;
    assert_eq!(
        sight(&now, Some(spelled_otherwise)).on_delete(None),
        change(Some(on_delete()), AnnotationChange::Stays)
    );
}

#[test]
fn a_memory_that_is_dropped_or_broken_is_carried_over() {
    let now = on_delete();
    for lost in [None, Some("{"), Some("{}"), Some(r#"{"type":1}"#), Some("")] {
        assert_eq!(
            sight(&now, lost).on_delete(Some(PARTITIONED)),
            change(None, says(PARTITIONED)),
            "{lost:?}"
        );
    }
}

#[test]
fn what_is_kept_is_not_touched_again() {
    let now = on_delete();
    let kept = sight(&now, Some(PARTITIONED));
    assert_eq!(kept.on_delete(Some(PARTITIONED)), None);
    assert_eq!(kept.on_delete(None), None);
}

#[test]
fn an_owners_own_on_delete_is_never_changed() {
    let now = on_delete();
    let own = sight(&now, None);
    assert_eq!(own.on_delete(None), None);
    assert_eq!(own.give_back(None), None);
    let declared = sight(&now, Some(r#"{"type":"OnDelete"}"#));
    assert_eq!(declared.on_delete(None), None);
    assert_eq!(
        declared.give_back(None),
        change(None, AnnotationChange::Goes)
    );
}

#[test]
fn what_was_there_comes_back_with_its_parameters_and_the_memory_goes() {
    let now = on_delete();
    assert_eq!(
        sight(&now, Some(PARTITIONED)).give_back(None),
        change(Some(partitioned()), AnnotationChange::Goes)
    );
    assert_eq!(
        sight(&now, None).give_back(Some(PARTITIONED)),
        change(Some(partitioned()), AnnotationChange::Stays)
    );
    assert_eq!(
        sight(&now, Some("what?")).give_back(None),
        change(
            Some(json!({"type": "RollingUpdate"})),
            AnnotationChange::Goes
        )
    );
}

#[test]
fn what_the_owner_has_asked_for_since_is_newer_than_the_memory() {
    let now = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}});
    assert_eq!(
        sight(&now, Some(PARTITIONED)).give_back(None),
        change(None, AnnotationChange::Goes)
    );
    assert_eq!(sight(&now, None).give_back(Some(PARTITIONED)), None);
}

#[test]
fn a_merge_patch_replaces_the_whole_strategy() {
    let mut set = json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"replicas": 3, "updateStrategy": partitioned()}});
    let before = set.clone();
    let live = set["spec"]["updateStrategy"].clone();
    let keep = sight(&live, None).on_delete(None).unwrap();
    json_patch::merge(&mut set, &keep.merge_patch(Some(&live)));
    assert_eq!(
        set,
        json!({
            "metadata": {"annotations": {"a": "b", PREVIOUS_UPDATE_STRATEGY: PARTITIONED}},
            "spec": {"replicas": 3, "updateStrategy": {"type": "OnDelete"}},
        })
    );
    let live = set["spec"]["updateStrategy"].clone();
    let back = sight(&live, Some(PARTITIONED)).give_back(None).unwrap();
    json_patch::merge(&mut set, &back.merge_patch(Some(&live)));
    assert_eq!(set, before);
}

#[test]
fn parameters_that_are_written_alone_are_the_owners_wish() {
    let now = json!({"type": "OnDelete", "rollingUpdate": {"partition": 2}});
    let wish = r#"{"rollingUpdate":{"partition":2},"type":"RollingUpdate"}"#;
    assert_eq!(
        sight(&now, Some(PARTITIONED)).on_delete(Some(PARTITIONED)),
        change(Some(on_delete()), says(wish))
    );
    // The gate replaced nothing here, so this is a mistake, which the API server will refuse.
    assert_eq!(sight(&now, None).on_delete(None), None);
}

/// The strategy while the books are closed, in the forms that the API server may complete it to.
fn closing() -> [Value; 3] {
    [
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": 1}}),
        json!({"type": "RollingUpdate"}),
    ]
}

/// The annotation with the owner's strategy while the books are closed.
fn marked(owners: &str) -> String {
    let change = sight(&on_delete(), Some(owners)).close_books(None).unwrap();
    assert_eq!(change.strategy, Some(closing()[0].clone()));
    match change.memory {
        AnnotationChange::Says(text) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn books_are_closed_under_rolling_update_and_the_owners_wish_is_kept() {
    let on_delete_itself = r#"{"type":"OnDelete"}"#;
    for owners in [PARTITIONED, on_delete_itself] {
        let memory = marked(owners);
        for stands in closing() {
            let sight = sight(&stands, Some(&memory));
            let owners: Value = serde_json::from_str(owners).unwrap();
            assert_eq!(sight.owners_while_closing(None), Some(owners.clone()));
            // Any writer in the meantime (of a new template, say) gets OnDelete back, and the
            // owner's strategy stays the same.
            let back = change(Some(on_delete()), says(&owners.to_string()));
            assert_eq!(sight.on_delete(None), back);
            let dropped = SetStrategy {
                memory: None,
                ..sight
            };
            assert_eq!(dropped.on_delete(Some(&memory)), back);
            assert_eq!(sight.close_books(None), None, "it is closing");
        }
    }
    // The owner chose OnDelete, so the gate had replaced nothing and there was no annotation yet.
    let own = sight(&on_delete(), None).close_books(None).unwrap();
    assert_eq!(own.memory, AnnotationChange::Says(marked(on_delete_itself)));
}

#[test]
fn what_an_owner_asks_for_while_the_books_are_closed_is_remembered() {
    let memory = marked(r#"{"type":"RollingUpdate"}"#);
    let now = partitioned();
    let sight = sight(&now, Some(&memory));
    assert_eq!(sight.owners_while_closing(None), None);
    assert_eq!(
        sight.on_delete(None),
        change(Some(on_delete()), says(PARTITIONED))
    );
    assert_eq!(sight.give_back(None), change(None, AnnotationChange::Goes));
}

#[test]
fn switched_off_while_the_books_are_closed_the_owner_gets_its_own_strategy_back() {
    let [stands, ..] = closing();
    for owners in [partitioned(), on_delete()] {
        let memory = marked(&owners.to_string());
        assert_eq!(
            sight(&stands, Some(&memory)).give_back(None),
            change(Some(owners), AnnotationChange::Goes)
        );
    }
}

#[test]
fn a_mark_that_was_left_behind_goes() {
    let memory = marked(PARTITIONED);
    assert_eq!(
        sight(&on_delete(), Some(&memory)).on_delete(None),
        change(None, says(PARTITIONED))
    );
}
