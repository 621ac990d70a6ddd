use std::collections::BTreeMap;
use std::sync::Mutex;

use super::*;
use crate::fake_api::FakeApi;
use crate::fake_api::etcd::{SET, pod_json, set_json};
use crate::reconcile::watches::cached;

const OWN: &str = "quorumgate";
const MOST: usize = 100;
const BUDGET: &str = "/apis/quorumgate.io/v1alpha1/namespaces/db/quorumdisruptionbudgets/etcd";

fn set(namespace: &str, name: &str, labels: &[(&str, &str)]) -> (ClusterRef, StatefulSetState) {
    let labels: BTreeMap<String, String> = owned(labels).collect();
    let cached = cached(json!({"metadata": {"labels": labels}}));
    (ClusterRef::new(namespace, name), cached.sight)
}

fn owned<'a>(labels: &'a [(&str, &str)]) -> impl Iterator<Item = (String, String)> + 'a {
    labels.iter().map(|(k, v)| ((*k).into(), (*v).into()))
}

fn namespace(name: &str, gated: bool) -> Arc<Namespace> {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.into());
    if gated {
        let labels = namespace.labels_mut();
        labels.insert(names::GATED.into(), names::TRUE.into());
    }
    Arc::new(namespace)
}

fn budget(namespace: &str, name: &str, by: Option<&str>) -> Arc<QuorumDisruptionBudget> {
    let mut budget = QuorumDisruptionBudget::with_defaults(&ClusterRef::new(namespace, name));
    if let Some(by) = by {
        let labels = budget.labels_mut();
        labels.insert(names::MANAGED_BY.into(), by.into());
    }
    Arc::new(budget)
}

fn pod(namespace: &str, name: &str) -> SlimPod {
    let meta = json!({"namespace": namespace, "name": name});
    serde_json::from_value(json!({"metadata": meta})).unwrap()
}

const ENROLLED: &[(&str, &str)] = &[(names::ENROLL, names::TRUE)];

#[derive(Default)]
struct Caches {
    sets: Vec<(ClusterRef, StatefulSetState)>,
    budgets: Vec<Arc<QuorumDisruptionBudget>>,
    pods: Vec<SlimPod>,
    namespaces: Vec<Arc<Namespace>>,
    named: Vec<String>,
}

impl Caches {
    fn work(&self) -> Work {
        Cached {
            sets: &self.sets,
            budgets: &self
                .budgets
                .iter()
                .map(|b| (b.cluster(), made_here(b)))
                .collect::<Vec<_>>(),
            with_pods: &|| self.pods.iter().filter_map(SlimPod::cluster).collect(),
            namespaces: &self.namespaces,
            bounds: &Bounds {
                named: self.named.clone(),
                own: OWN.into(),
                most: MOST,
            },
        }
        .work()
    }
}

fn clusters(names: &[(&str, &str)]) -> BTreeSet<ClusterRef> {
    let each = names.iter();
    each.map(|(ns, name)| ClusterRef::new(*ns, *name)).collect()
}

#[test]
fn an_enrolled_set_gets_a_label_on_its_namespace_and_a_budget() {
    let work = Caches {
        sets: vec![set("a", "etcd", ENROLLED), set("a", "web", &[])],
        namespaces: vec![namespace("a", false), namespace("b", false)],
        ..Caches::default()
    }
    .work();
    assert_eq!(work.label, BTreeSet::from(["a".to_owned()]));
    assert_eq!(work.create, clusters(&[("a", "etcd")]));
    assert_eq!(work.unlabel, BTreeSet::new());
}

#[test]
fn a_set_that_opts_out_is_not_enrolled_and_loses_the_budget_that_it_was_given() {
    let out = [
        (names::ENROLL, names::FALSE),
        (names::MANAGED_BY, names::MANAGED_BY_DRUID),
        (names::COMPONENT, names::COMPONENT_STATEFUL_SET),
    ];
    let work = Caches {
        sets: vec![
            set("a", "new", &out),
            set("a", "given", &out),
            set("a", "by-hand", &out),
            set("a", "stays", &out[1..]),
        ],
        budgets: vec![
            budget("a", "given", Some(MANAGER)),
            budget("a", "by-hand", None),
            budget("a", "stays", Some(MANAGER)),
        ],
        pods: vec![pod("a", "given-0")],
        namespaces: vec![namespace("a", true)],
        ..Caches::default()
    }
    .work();
    assert_eq!(work.create, BTreeSet::new());
    assert_eq!(work.abandoned, clusters(&[("a", "given")]));
}

#[test]
fn a_budget_written_by_hand_is_adopted_and_never_dismissed() {
    let work = Caches {
        sets: vec![set("a", "etcd", ENROLLED)],
        budgets: vec![budget("a", "etcd", None), budget("a", "early", None)],
        namespaces: vec![namespace("a", false)],
        ..Caches::default()
    }
    .work();
    assert_eq!(work.create, BTreeSet::new());
    assert_eq!(work.abandoned, BTreeSet::new());
    assert_eq!(work.label, BTreeSet::from(["a".to_owned()]));
}

#[test]
fn nothing_is_enrolled_in_kube_system_nor_in_the_gates_own_namespace() {
    let work = Caches {
        sets: vec![
            set("kube-system", "etcd", ENROLLED),
            set(OWN, "etcd", ENROLLED),
        ],
        budgets: vec![budget("kube-system", "other", None)],
        namespaces: vec![namespace("kube-system", false), namespace(OWN, false)],
        ..Caches::default()
    }
    .work();
    assert_eq!(work, Work::default());
}

#[test]
fn namespaces_that_were_not_named_are_left_alone() {
    let work = Caches {
        sets: vec![set("a", "etcd", ENROLLED), set("b", "etcd", ENROLLED)],
        namespaces: vec![
            namespace("a", false),
            namespace("b", false),
            namespace("c", true),
        ],
        named: vec!["a".into()],
        ..Caches::default()
    }
    .work();
    assert_eq!(work.create, clusters(&[("a", "etcd")]));
    assert_eq!(work.label, BTreeSet::from(["a".to_owned()]));
    assert_eq!(work.unlabel, BTreeSet::new());
}

#[test]
fn a_terminating_namespace_is_left_alone() {
    let mut going = (*namespace("a", false)).clone();
    going.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
        jiff::Timestamp::UNIX_EPOCH,
    ));
    let work = Caches {
        sets: vec![set("a", "etcd", ENROLLED)],
        namespaces: vec![Arc::new(going)],
        ..Caches::default()
    }
    .work();
    assert_eq!(work, Work::default());
}

#[test]
fn a_namespace_with_nothing_enrolled_gives_its_label_back() {
    let work = Caches {
        sets: vec![set("a", "web", &[])],
        namespaces: vec![namespace("a", true)],
        ..Caches::default()
    }
    .work();
    assert_eq!(work.unlabel, BTreeSet::from(["a".to_owned()]));
}

#[test]
fn a_budget_of_the_gates_making_is_abandoned_only_when_set_and_pods_are_gone() {
    let of_the_gate = || vec![budget("a", "etcd", Some(MANAGER))];
    let namespaces = || vec![namespace("a", true)];
    let with_set = Caches {
        sets: vec![set("a", "etcd", &[])],
        budgets: of_the_gate(),
        namespaces: namespaces(),
        ..Caches::default()
    };
    assert_eq!(with_set.work().abandoned, BTreeSet::new());
    let with_orphan = Caches {
        budgets: of_the_gate(),
        pods: vec![pod("a", "etcd-0")],
        namespaces: namespaces(),
        ..Caches::default()
    };
    assert_eq!(with_orphan.work().abandoned, BTreeSet::new());
    let alone = Caches {
        budgets: of_the_gate(),
        pods: vec![pod("a", "etcd-events-0")],
        namespaces: namespaces(),
        ..Caches::default()
    };
    assert_eq!(alone.work().abandoned, clusters(&[("a", "etcd")]));
}

#[tokio::test]
async fn a_namespace_is_given_back_only_when_the_api_server_says_that_it_holds_no_budget() {
    let api = FakeApi::default();
    let enrolment = everywhere(&api);
    assert!(enrolment.is_unguarded("db").await);
    let budget = budget("db", "etcd", None);
    api.put(BUDGET, serde_json::to_value(&*budget).unwrap());
    assert!(!enrolment.is_unguarded("db").await);
    api.remove(BUDGET);
    api.undefine("quorumdisruptionbudgets");
    assert!(!enrolment.is_unguarded("db").await);
}

fn everywhere(api: &FakeApi) -> Enrolment {
    let everywhere = Bounds {
        named: Vec::new(),
        own: OWN.into(),
        most: MOST,
    };
    Enrolment::new(
        api.client(),
        everywhere,
        Duration::ZERO,
        Enforcement::Enforce,
        Arc::new(Noted::default()),
    )
}

/// The notices that were sent.
#[derive(Default)]
struct Noted(Mutex<Vec<Notice>>);

impl Notices for Noted {
    fn notify(&self, notice: Notice) {
        self.0.lock().unwrap().push(notice);
    }
}

#[test]
fn a_namespace_enrols_up_to_its_bound_and_every_budget_counts() {
    let sets = ["c", "b", "a"].map(|name| set("many", name, ENROLLED));
    let by_hand = (0..MOST - 2).map(|number| budget("many", &format!("own-{number}"), None));
    let work = Caches {
        sets: sets
            .into_iter()
            .chain([set("few", "z", ENROLLED)])
            .collect(),
        budgets: by_hand.collect(),
        namespaces: vec![namespace("many", true), namespace("few", true)],
        ..Caches::default()
    }
    .work();
    assert_eq!(
        work.create,
        clusters(&[("few", "z"), ("many", "a"), ("many", "b")])
    );
    assert_eq!(work.beyond, clusters(&[("many", "c")]));
}

#[tokio::test]
async fn a_cluster_beyond_the_bound_is_told_once_while_it_is() {
    let noted = Arc::new(Noted::default());
    let mut enrolment = everywhere(&FakeApi::default());
    enrolment.events = noted.clone();
    let beyond = || clusters(&[("db", "etcd")]);
    for beyond in [beyond(), beyond(), BTreeSet::new(), beyond()] {
        enrolment.report(beyond);
    }
    let notices = noted.0.lock().unwrap();
    assert_eq!(notices.len(), 2);
    assert_eq!(notices[0].regarding.name.as_deref(), Some("etcd"));
    let option = "--max-clusters-per-namespace";
    assert!(notices[0].note.contains(option), "{}", notices[0].note);
}

/// Whether a budget was deleted because nothing is left to guard.
async fn deleted(api: &FakeApi, cluster: &ClusterRef) -> bool {
    let clusters = std::slice::from_ref(cluster);
    let deleted = everywhere(api).delete_unused("db", clusters).await;
    deleted.unwrap() == [cluster]
}

/// With `edit` in one namespace, anybody can abandon many clusters beside many pods.
#[tokio::test]
async fn many_abandoned_budgets_go_few_at_a_time_and_the_pods_beside_them_are_listed_once() {
    let api = FakeApi::default();
    let names: Vec<String> = (0..30).map(|number| format!("etcd-{number:02}")).collect();
    for name in &names {
        let budget = budget("db", name, Some(MANAGER));
        let path = BUDGET.replace("/etcd", &format!("/{name}"));
        api.put(&path, serde_json::to_value(&*budget).unwrap());
    }
    let mut enrolment = everywhere(&api);
    enrolment.settle_time = Duration::from_secs(120);
    let abandoned = || {
        let clusters = names
            .iter()
            .map(|name| ClusterRef::new("db", name.as_str()));
        let other = ClusterRef::new("other", "etcd");
        clusters.chain([other]).collect::<BTreeSet<_>>()
    };
    let now = Instant::now();
    enrolment.dismiss(abandoned(), now).await;
    assert_eq!(api.take_requests(), Vec::<String>::new(), "too early");
    let later = now + enrolment.settle_time;
    enrolment.dismiss(abandoned(), later).await;
    let requests = api.take_requests();
    let count = |what: &str| {
        requests
            .iter()
            .filter(|request| request.contains(what))
            .count()
    };
    assert_eq!(count("/pods"), 1, "{requests:?}");
    assert_eq!(count("DELETE"), DISMISSED_AT_ONCE);
    assert_eq!(
        enrolment.next(later),
        Some(Duration::ZERO),
        "the others follow"
    );
}

/// The remaining pod belongs to the StatefulSet, was orphaned by it (and lost its labels), belongs
/// to another StatefulSet, was adopted by a StatefulSet of another kind, or was created by one.
#[tokio::test]
async fn a_budget_goes_only_when_the_api_server_shows_no_pod_of_its_set() {
    let cluster = ClusterRef::new("db", "etcd");
    let owner = |group: &str| json!([{"apiVersion": format!("{group}/v1"), "kind": "StatefulSet", "name": "etcd", "uid": "1", "controller": true}]);
    for (pod, owners, goes) in [
        ("member", owner("apps"), false),
        ("etcd-0", json!(null), false),
        ("etcd-events-0", json!(null), true),
        ("etcd-0", owner("apps.kruise.io"), false),
        ("member", owner("apps.kruise.io"), true),
    ] {
        let api = FakeApi::default();
        let budget = budget("db", "etcd", Some(MANAGER));
        api.put(BUDGET, serde_json::to_value(&*budget).unwrap());
        let metadata = json!({"namespace": "db", "name": pod, "ownerReferences": owners});
        api.put(
            &format!("/api/v1/namespaces/db/pods/{pod}"),
            json!({"metadata": metadata, "spec": {}}),
        );
        let gone = deleted(&api, &cluster).await;
        assert_eq!(
            (gone, api.get(BUDGET).is_none()),
            (goes, goes),
            "{pod} of {owners}"
        );
    }
}

/// A pod that waits for its member to be replaced is let start by the gate alone.
#[tokio::test]
async fn a_budget_stays_while_a_pod_is_held_although_its_set_opted_out() {
    let cluster = ClusterRef::new("db", "etcd");
    let api = FakeApi::default();
    let budget = budget("db", "etcd", Some(MANAGER));
    api.put(BUDGET, serde_json::to_value(&*budget).unwrap());
    let out = json!({"metadata": {"labels": {"quorumgate.io/enroll": "false"}}});
    api.put(SET, set_json(&out));
    let held = json!({"spec": {
        "nodeName": "", "schedulingGates": [{"name": "quorumgate.io/identity"}],
    }});
    let path = "/api/v1/namespaces/db/pods/etcd-0";
    api.put(path, pod_json(0, &held));
    let gone = deleted(&api, &cluster).await;
    assert!(!gone && api.get(BUDGET).is_some());
    let free = json!({"spec": {"nodeName": "", "schedulingGates": null}});
    api.put(path, pod_json(0, &free));
    let gone = deleted(&api, &cluster).await;
    assert!(gone && api.get(BUDGET).is_none());
}
