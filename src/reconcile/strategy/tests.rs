use super::*;
use crate::api::names;
use crate::clock::Clock;
use crate::fake_api::FakeApi;
use crate::reconcile::watches::cached;

const PATH: &str = "/apis/apps/v1/namespaces/ns/statefulsets/etcd";
const BUDGET: &str = "/apis/quorumgate.io/v1alpha1/namespaces/ns/quorumdisruptionbudgets/etcd";
const ON: Features = Features {
    on_delete: true,
    etcd_members: false,
};
const OFF: Features = Features {
    on_delete: false,
    etcd_members: false,
};

fn repairer(server: &FakeApi, features: Features) -> Repairer {
    Repairer {
        client: server.client(),
        ledger: Ledger::new(server.client(), Clock::system()),
        features,
        bounds: Bounds {
            named: Vec::new(),
            own: "quorumgate".into(),
            most: 100,
        },
    }
}

fn cluster() -> ClusterRef {
    ClusterRef::new("ns", "etcd")
}

fn wish() -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2, "maxUnavailable": "30%", "novel": true}})
}

fn set(strategy: Value, enrolled: bool, memory: Option<&str>) -> Value {
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "etcd", "namespace": "ns", "uid": "u", "labels": {}, "annotations": {"mine": "1"}},
        "spec": {"serviceName": "etcd", "selector": {}, "template": {}, "replicas": 3},
    });
    set["spec"]["updateStrategy"] = strategy;
    if enrolled {
        set["metadata"]["labels"][names::ENROLL] = json!(names::TRUE);
    }
    if let Some(memory) = memory {
        set["metadata"]["annotations"][PREVIOUS_UPDATE_STRATEGY] = json!(memory);
    }
    set
}

fn on_delete() -> Value {
    json!({"type": "OnDelete"})
}

/// The stored strategy and the stored annotation.
fn stored(server: &FakeApi) -> (Value, Value) {
    let set = server.get(PATH).unwrap();
    let annotations = &set["metadata"]["annotations"];
    assert_eq!(annotations["mine"], "1");
    assert_eq!(set["spec"]["replicas"], 3);
    (
        set["spec"]["updateStrategy"].clone(),
        annotations[PREVIOUS_UPDATE_STRATEGY].clone(),
    )
}

fn patches(server: &FakeApi) -> usize {
    let requests = server.take_requests();
    requests.iter().filter(|r| r.starts_with("PATCH")).count()
}

#[tokio::test]
async fn switched_on_and_off_again_everything_is_as_it_was() {
    let server = FakeApi::default();
    server.put(PATH, set(wish(), true, None));
    let before = stored(&server);
    repairer(&server, ON)
        .bring_in_line(&cluster())
        .await
        .unwrap();
    let (strategy, memory) = stored(&server);
    assert_eq!(strategy, on_delete());
    let memory: Value = serde_json::from_str(memory.as_str().unwrap()).unwrap();
    assert_eq!(memory, wish());
    repairer(&server, OFF)
        .bring_in_line(&cluster())
        .await
        .unwrap();
    assert_eq!(stored(&server), before);
}

#[tokio::test]
async fn a_strategy_that_is_right_is_not_written() {
    let server = FakeApi::default();
    let memory = wish().to_string();
    for (features, set) in [
        (ON, set(on_delete(), true, Some(&memory))),
        (ON, set(on_delete(), true, None)),
        (ON, set(wish(), false, None)),
        (OFF, set(wish(), true, None)),
        (OFF, set(on_delete(), true, None)),
    ] {
        server.put(PATH, set);
        let repairer = repairer(&server, features);
        repairer.bring_in_line(&cluster()).await.unwrap();
        assert_eq!(patches(&server), 0);
    }
}

#[tokio::test]
async fn the_webhook_makes_the_change_where_it_is_asked() {
    let server = FakeApi::default();
    server.put(PATH, set(wish(), true, None));
    server.mutate(|next, _| {
        let live = next["spec"]["updateStrategy"].clone();
        let sight = SetStrategy {
            strategy: Some(&live),
            memory: None,
        };
        let change = sight.on_delete(None).unwrap();
        json_patch::merge(next, &change.merge_patch(Some(&live)));
    });
    repairer(&server, ON)
        .bring_in_line(&cluster())
        .await
        .unwrap();
    assert_eq!(stored(&server).0, on_delete());
    assert_eq!(patches(&server), 1, "it also wrote itself");
}

#[tokio::test]
async fn a_budget_enrols_and_where_nothing_does_any_more_the_strategy_comes_back() {
    let server = FakeApi::default();
    server.put(PATH, set(wish(), false, None));
    server.put(
        BUDGET,
        json!({
            "apiVersion": "quorumgate.io/v1alpha1", "kind": "QuorumDisruptionBudget",
            "metadata": {"name": "etcd", "namespace": "ns"}, "spec": {"statefulSetName": "etcd"},
        }),
    );
    let repairer = repairer(&server, ON);
    repairer.bring_in_line(&cluster()).await.unwrap();
    assert_eq!(stored(&server).0, on_delete());
    server.remove(BUDGET);
    repairer.bring_in_line(&cluster()).await.unwrap();
    assert_eq!(stored(&server), (wish(), Value::Null));
}

#[tokio::test]
async fn a_missing_definition_says_nothing_about_enrolment() {
    let server = FakeApi::default();
    server.put(PATH, set(on_delete(), false, Some(&wish().to_string())));
    server.undefine("quorumdisruptionbudgets");
    let problem = repairer(&server, ON)
        .bring_in_line(&cluster())
        .await
        .unwrap_err();
    assert!(matches!(problem, RepairError::Ledger(_)), "{problem}");
    assert_eq!(stored(&server).0, on_delete());
    // With the feature off `OnDelete` is not kept on any StatefulSet.
    repairer(&server, OFF)
        .bring_in_line(&cluster())
        .await
        .unwrap();
    assert_eq!(stored(&server), (wish(), Value::Null));
}

#[tokio::test]
async fn a_write_in_between_wins_and_is_judged_anew() {
    let server = FakeApi::default();
    server.put(PATH, set(wish(), true, None));
    let repairer = repairer(&server, ON);
    let read: DynamicObject = serde_json::from_value(server.get(PATH).unwrap()).unwrap();
    let newer = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
    server.put(PATH, set(newer.clone(), true, None));
    let change = sight(&read).obey(LeaderCommand::Keep, None).unwrap();
    let stale = at_version(&read, change.merge_patch(None));
    let kind = ApiResource::erase::<StatefulSet>(&());
    let sets: Api<DynamicObject> = Api::namespaced_with(repairer.client.clone(), "ns", &kind);
    let refused = sets
        .patch("etcd", &PatchParams::default(), &Patch::Merge(&stale))
        .await;
    assert!(matches!(refused, Err(Error::Api(status)) if status.is_conflict()));

    repairer.bring_in_line(&cluster()).await.unwrap();
    let (strategy, memory) = stored(&server);
    assert_eq!(strategy, on_delete());
    let memory: Value = serde_json::from_str(memory.as_str().unwrap()).unwrap();
    assert_eq!(memory, newer);
}

fn cluster_of(set: &Value) -> ClusterRef {
    let part = |name: &str| set["metadata"][name].as_str().unwrap();
    ClusterRef::new(part("namespace"), part("name"))
}

#[tokio::test]
async fn only_enrolled_or_changed_stateful_sets_are_due() {
    let server = FakeApi::default();
    let memory = wish().to_string();
    let mut terminating = set(wish(), true, None);
    terminating["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
    let mut own = set(wish(), true, None);
    own["metadata"]["namespace"] = json!("quorumgate");
    for (set, guarded, on, off) in [
        (set(wish(), true, None), false, true, false),
        (set(wish(), false, None), true, true, false),
        (set(wish(), false, None), false, false, false),
        (set(on_delete(), true, None), false, false, false),
        (set(on_delete(), true, Some(&memory)), true, false, true),
        (set(on_delete(), false, Some(&memory)), false, true, true),
        (set(wish(), true, Some(&memory)), false, true, true),
        (terminating, true, false, false),
        (own, true, false, false),
    ] {
        let cached = cached(set.clone());
        for (features, due) in [(ON, on), (OFF, off)] {
            let found = repairer(&server, features).is_due(&cluster_of(&set), &cached, guarded);
            assert_eq!(found, due, "{features:?} {set}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_strategy_that_is_changed_back_again_and_again_is_repaired_less_and_less_often() {
    let mut backoffs = Backoffs::default();
    let start = Instant::now();
    let mut repairs = 0;
    while start.elapsed() < Duration::from_secs(3600) {
        let (ready, wait) = backoffs.take(&[cluster()], Instant::now());
        repairs += ready.len();
        tokio::time::advance(wait.unwrap()).await;
    }
    assert!((60..=70).contains(&repairs), "{repairs} repairs in an hour");
    // A StatefulSet that needed no repair for a while is repaired at once again.
    tokio::time::advance(LONGEST_PAUSE * 2).await;
    assert_eq!(backoffs.take(&[cluster()], Instant::now()).0.len(), 1);
    let (ready, wait) = backoffs.take(&[cluster()], Instant::now());
    assert_eq!((ready.len(), wait), (0, Some(PAUSE)));
}

#[test]
fn a_budget_shows_whose_choice_the_strategy_is_and_who_updates() {
    let memory = wish().to_string();
    let show = |value, features| shown(&serde_json::from_value(value).unwrap(), features);
    let expected = |kind: &str, set_by, updated_by| UpdateStrategyStatus {
        kind: kind.into(),
        set_by,
        updated_by,
    };
    assert_eq!(
        show(set(on_delete(), true, Some(&memory)), ON),
        expected("OnDelete", StrategyChoice::Gate, Updater::Gate)
    );
    assert_eq!(
        show(set(on_delete(), true, None), ON),
        expected("OnDelete", StrategyChoice::Owner, Updater::Gate)
    );
    assert_eq!(
        show(set(on_delete(), true, None), OFF),
        expected("OnDelete", StrategyChoice::Owner, Updater::Nobody)
    );
    let by_ordinal = Updater::StatefulSetController;
    assert_eq!(
        show(set(wish(), true, None), OFF),
        expected("RollingUpdate", StrategyChoice::Owner, by_ordinal)
    );
}

mod books {
    use super::*;

    /// A StatefulSet of three with `current` as its current revision, and with this number of pods
    /// that are updated and Ready.
    fn after_a_rollout(strategy: Value, memory: Option<&str>, current: &str, ready: i32) -> Value {
        let mut set = set(strategy, true, memory);
        set["metadata"]["generation"] = json!(4);
        set["status"] = json!({
            "observedGeneration": 4, "replicas": 3, "updatedReplicas": 3, "readyReplicas": ready,
            "currentRevision": current, "updateRevision": "etcd-2",
        });
        set
    }

    fn budget(serving: bool) -> Value {
        json!({
            "apiVersion": "quorumgate.io/v1alpha1", "kind": "QuorumDisruptionBudget",
            "metadata": {"name": "etcd", "namespace": "ns", "uid": "b"},
            "spec": {"statefulSetName": "etcd"},
            "status": {"members": [{"name": "etcd-0", "role": "Voter", "serving": serving}]},
        })
    }

    async fn strategy_after(set: Value, budget: Value) -> Value {
        let server = FakeApi::default();
        server.put(PATH, set);
        server.put(BUDGET, budget);
        let repairer = repairer(&server, ON);
        let set = server.get(PATH).unwrap();
        let cluster = cluster_of(&set);
        if repairer.is_due(&cluster, &cached(set), true) {
            repairer.bring_in_line(&cluster).await.unwrap();
        } else {
            assert_eq!(patches(&server), 0);
        }
        server.get(PATH).unwrap()["spec"]["updateStrategy"].clone()
    }

    fn rolling() -> Value {
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
    }

    #[tokio::test]
    async fn they_are_closed_when_every_pod_is_updated_serves_and_is_ready() {
        let memory = wish().to_string();
        for memory in [None, Some(memory.as_str())] {
            let set = |ready| after_a_rollout(on_delete(), memory, "etcd-1", ready);
            assert_eq!(strategy_after(set(3), budget(true)).await, rolling());
            assert_eq!(strategy_after(set(2), budget(true)).await, on_delete());
            assert_eq!(strategy_after(set(3), budget(false)).await, on_delete());
        }
        let closed = after_a_rollout(on_delete(), None, "etcd-2", 3);
        assert_eq!(strategy_after(closed, budget(true)).await, on_delete());
        let mut unread = after_a_rollout(on_delete(), None, "etcd-1", 3);
        unread["metadata"]["generation"] = json!(5);
        assert_eq!(strategy_after(unread, budget(true)).await, on_delete());
    }

    #[tokio::test]
    async fn those_of_a_cluster_that_hibernates_are_closed_when_no_pod_is_left() {
        let hibernates = |pods: i32| {
            let mut set = after_a_rollout(on_delete(), None, "etcd-1", 0);
            set["spec"]["replicas"] = json!(0);
            set["status"]["replicas"] = json!(pods);
            set["status"]["updatedReplicas"] = json!(null);
            set
        };
        let closed = strategy_after(hibernates(0), budget(false)).await;
        assert_eq!(closed, rolling());
        let yet = strategy_after(hibernates(1), budget(false)).await;
        assert_eq!(yet, on_delete());
    }

    #[tokio::test]
    async fn whoever_comes_later_ends_what_was_begun() {
        let memory = json!({"type": "RollingUpdate", "closingBooks": true}).to_string();
        let set = |current, ready| after_a_rollout(rolling(), Some(&memory), current, ready);
        // The controller has not written it yet.
        assert_eq!(
            strategy_after(set("etcd-1", 3), budget(true)).await,
            rolling()
        );
        // The controller has written it, or the template has changed meanwhile, or a pod is gone.
        assert_eq!(
            strategy_after(set("etcd-2", 3), budget(true)).await,
            on_delete()
        );
        assert_eq!(
            strategy_after(set("etcd-1", 2), budget(true)).await,
            on_delete()
        );
        let mut changed = set("etcd-1", 3);
        changed["status"]["updatedReplicas"] = json!(0);
        assert_eq!(strategy_after(changed, budget(true)).await, on_delete());
    }

    #[tokio::test]
    async fn once_closed_the_owners_strategy_is_remembered_as_before() {
        let server = FakeApi::default();
        let memory = wish().to_string();
        server.put(
            PATH,
            after_a_rollout(on_delete(), Some(&memory), "etcd-1", 3),
        );
        server.put(BUDGET, budget(true));
        let repairer = repairer(&server, ON);
        repairer.bring_in_line(&cluster()).await.unwrap();
        let mut set = server.get(PATH).unwrap();
        set["status"]["currentRevision"] = json!("etcd-2");
        server.put(PATH, set);
        repairer.bring_in_line(&cluster()).await.unwrap();
        let (strategy, memory) = stored(&server);
        assert_eq!(strategy, on_delete());
        let memory: Value = serde_json::from_str(memory.as_str().unwrap()).unwrap();
        assert_eq!(memory, wish());
    }
}
