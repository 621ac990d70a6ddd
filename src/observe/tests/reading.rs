use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Value, json};

use super::{budget_json, pod_json, set_json};
use crate::clock::{Clock, ClockHand};
use crate::fake_api::FakeApi;
use crate::fake_api::etcd::{BUDGET, NAMESPACE, SET};
use crate::ledger::Page;
use crate::observe::find::Find;
use crate::observe::{
    Ages, ClaimIdentity, ClusterLook, ClusterView, EarlyOr, ObserveError, Observer, PodData,
    PodLook,
};
use crate::quorum::evidence::{Round, Target, Unanswered};
use crate::quorum::pod::{Node, Pod};
use crate::quorum::{
    ClusterRef, Difference, EvictionBudget, ExpectedVoters, Grace, Kind, PodName, Snapshot,
    Teardown, Trust,
};

const OWNER: &str = "/apis/druid.gardener.cloud/v1alpha1/namespaces/db/etcds/etcd";
const SETTLE: Duration = Duration::from_secs(120);

/// A cluster of three on three Ready nodes, and its observer.
struct Site {
    api: FakeApi,
    observer: Observer,
    hand: ClockHand,
}

impl Site {
    fn new() -> Self {
        let api = FakeApi::default();
        api.put(
            NAMESPACE,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "db"}}),
        );
        let (clock, hand) = Clock::frozen("2026-01-01T12:00:00Z".parse::<Timestamp>().unwrap());
        let observer = api.observer(&clock, SETTLE);
        let site = Self {
            api,
            observer,
            hand,
        };
        site.put_budget(&json!({}));
        site.put_set(&json!({}));
        for ordinal in 0..3 {
            site.put_pod(ordinal, &json!({}));
            site.put_node(&format!("node-{ordinal}"), "True");
        }
        site
    }

    fn put_budget(&self, change: &Value) {
        self.api.put(BUDGET, budget_json(change));
    }

    fn put_set(&self, change: &Value) {
        self.api.put(SET, set_json(change));
    }

    fn put_pod(&self, ordinal: u32, change: &Value) {
        let path = format!("{NAMESPACE}/pods/etcd-{ordinal}");
        self.api.put(&path, pod_json(ordinal, change));
    }

    fn put_node(&self, name: &str, ready: &str) {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        self.api.put(&format!("/api/v1/nodes/{name}"), node);
    }

    /// Gives the StatefulSet an owner of a kind that the API server knows.
    fn put_owner(&self, change: &Value) {
        let kinds = json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "druid.gardener.cloud/v1alpha1",
            "resources": [{"name": "etcds", "singularName": "etcd", "namespaced": true, "kind": "Etcd", "verbs": ["get"]}],
        });
        self.api.put("/apis/druid.gardener.cloud/v1alpha1", kinds);
        let mut owner = json!({
            "apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd", "metadata": {"name": "etcd", "uid": "o1"},
        });
        json_patch::merge(&mut owner, change);
        self.api.put(OWNER, owner);
        self.put_set(&json!({"metadata": {"ownerReferences": [owner_of_set()]}}));
    }

    async fn page(&self) -> Page {
        let cluster = ClusterRef::new("db", "etcd");
        self.observer
            .ledger()
            .read(&cluster)
            .await
            .unwrap()
            .unwrap()
    }

    async fn look(&self) -> (Page, ClusterView) {
        self.look_for(Kind::Delete).await
    }

    async fn look_for(&self, kind: Kind) -> (Page, ClusterView) {
        let page = self.page().await;
        let view = self
            .observer
            .view(&page, Some(&target()), kind, Find::Listed)
            .await
            .unwrap();
        (page, view)
    }

    /// Has the budget record what is seen.
    async fn record(&self) {
        let (page, view) = Box::pin(self.look()).await;
        let ledger = self.observer.ledger();
        let recorded = Box::pin(ledger.update(&page, view.status_update(None)));
        recorded.await.unwrap();
    }

    async fn teardown(&self) -> Option<Teardown> {
        let (page, view) = self.look().await;
        view.circumstances(&page, Some(&target())).teardown
    }
}

fn owner_of_set() -> Value {
    json!({
        "apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd", "name": "etcd", "uid": "o1", "controller": true,
    })
}

fn target() -> PodName {
    "etcd-0".into()
}

#[tokio::test]
async fn a_cluster_is_seen_with_its_pods_and_their_nodes() {
    let site = Site::new();
    site.put_node("node-1", "Unknown");
    site.api.remove("/api/v1/nodes/node-2");
    let (page, mut view) = site.look().await;
    let all = ["etcd-0", "etcd-1", "etcd-2"].map(PodName::from);
    site.observer.read_nodes(&mut view, &all).await;
    let observation = view.observation(&page, Some(&target()), Round::default(), Ages::default());
    let nodes: Vec<_> = observation.pods.iter().map(|pod| pod.node).collect();
    assert_eq!(nodes, [Node::Ready, Node::NotReady, Node::Gone]);
    assert_eq!(observation.replicas, 3);
    assert_eq!(observation.update_revision.as_deref(), Some("etcd-2"));
    assert_eq!(observation.proceed_without_quorum, None);
    assert_eq!(view.endpoints().len(), 3);
    assert_eq!(observation.circumstances.teardown, None);
}

#[tokio::test]
async fn the_budget_says_which_revision_goes_on_without_quorum_and_is_heard_where_there_is_no_other_way()
 {
    let site = Site::new();
    let annotated = json!({"quorumgate.io/proceed-without-quorum": "etcd-2"});
    site.put_budget(&json!({"metadata": {"annotations": annotated}}));
    let (page, view) = site.look().await;
    let observation = view.observation(&page, None, Round::default(), Ages::default());
    assert_eq!(observation.proceed_without_quorum, None);

    let with = |urls| json!([{"name": "etcd", "args": ["--listen-peer-urls", urls]}]);
    let secure = with("https://0.0.0.0:2380");
    site.put_set(&json!({"spec": {"template": {"spec": {"containers": secure}}}}));
    let plain = with("http://0.0.0.0:2380");
    site.put_pod(0, &json!({"spec": {"containers": plain}}));
    let (page, view) = site.look().await;
    let observation = view.observation(&page, None, Round::default(), Ages::default());
    assert_eq!(
        observation.proceed_without_quorum.as_deref(),
        Some("etcd-2")
    );
}

#[tokio::test]
async fn hints_only_choose_the_first_requests() {
    let site = Site::new();
    let (page, view) = site.look().await;
    assert!(view.confirms(&site.observer.likely_endpoints(&page.cluster)));

    site.put_pod(1, &json!({"metadata": {"uid": "u9"}}));
    let likely = site.observer.likely_endpoints(&page.cluster);
    let (_, view) = site.look().await;
    assert!(
        !view.confirms(&likely),
        "an answer of the old incarnation would not count"
    );
}

#[tokio::test]
async fn every_look_reads_everything_again() {
    let site = Site::new();
    site.look().await;
    site.api.take_requests();
    site.look().await;
    let requests = site.api.take_requests();
    for what in ["/pods?", "/statefulsets/etcd", "/namespaces/db "] {
        let asked = requests
            .iter()
            .filter(|r| format!("{r} ").contains(what))
            .count();
        assert_eq!(asked, 1, "{what} in {requests:?}");
    }
    let node = requests.iter().find(|r| r.contains("/nodes/"));
    assert_eq!(node, None, "before any member has been asked");
}

#[tokio::test]
async fn a_node_is_read_where_its_member_is_silent_or_its_pod_is_to_go_by_force() {
    let site = Site::new();
    site.put_node("node-1", "Unknown");
    let page = site.page().await;
    let now = || site.observer.clock().instant();
    // Nobody listens at the addresses of the pods.
    let look = site.observer.look(&page, now()).await.unwrap();
    let of = |pod: &str| look.view.pod_facts(&page, &pod.into()).unwrap().node;
    assert_eq!([of("etcd-0"), of("etcd-1")], [Node::Ready, Node::NotReady]);

    for (kind, grace, grace_of_pod, reads) in [
        (Kind::Delete, Grace::Forced, 30, true),
        (Kind::Delete, Grace::Graceful, 0, false),
        (Kind::Evict, Grace::Graceful, 0, true),
        (Kind::Evict, Grace::Graceful, 30, false),
    ] {
        let spec = json!({"spec": {"terminationGracePeriodSeconds": grace_of_pod}});
        site.put_pod(0, &spec);
        site.api.take_requests();
        let asked = (&target(), kind, grace);
        let early = |view: &ClusterView, pod: &Pod| {
            let read = view.pod_facts(&page, &pod.name).unwrap().node;
            assert_eq!(read == Node::Ready, reads, "{kind:?} {grace:?}");
            assert_eq!(pod.node, read);
            Some(())
        };
        let looked = site.observer.look_for(&page, asked, now(), early);
        let looked = Box::pin(looked).await;
        assert!(matches!(looked, Ok(PodLook::Early(..))), "{looked:?}");
        let requests = site.api.take_requests();
        let nodes = requests.iter().filter(|r| r.contains("/nodes/")).count();
        assert_eq!(nodes, usize::from(reads), "{kind:?} {grace:?} {requests:?}");
    }
}

#[tokio::test]
async fn a_recreated_stateful_set_with_another_selector_is_looked_up_by_that() {
    let site = Site::new();
    site.look().await;
    site.put_set(&json!({"metadata": {"uid": "set-2"}, "spec": {"selector": {"matchLabels": {"app": "new"}}}}));
    for ordinal in 0..2 {
        site.put_pod(ordinal, &json!({"metadata": {"labels": {"app": "new"}}}));
    }
    site.api.take_requests();
    let (_, view) = site.look().await;
    assert_eq!(names(&view), ["etcd-0", "etcd-1", "etcd-2"]);
    let requests = site.api.take_requests();
    let by_the_new = |request: &&String| request.contains("labelSelector=app%3Dnew");
    assert!(requests.iter().any(|r| by_the_new(&r)), "{requests:?}");
}

fn names(view: &ClusterView) -> Vec<String> {
    let names = view.pods().iter().map(crate::observe::belonging::name);
    names.map(|name| name.to_string()).collect()
}

fn foreign() -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true})
}

#[tokio::test]
async fn pods_with_other_names_are_left_out_and_orphans_are_not() {
    let site = Site::new();
    site.put_pod(2, &json!({"metadata": {"ownerReferences": null}}));
    for name in ["etcd-compactor-0", "etcd-x7k2p"] {
        let job = json!({"metadata": {"name": name, "ownerReferences": [foreign()]}});
        let path = format!("{NAMESPACE}/pods/{name}");
        site.api.put(&path, pod_json(7, &job));
    }
    let (_, view) = site.look().await;
    assert_eq!(names(&view), ["etcd-0", "etcd-1", "etcd-2"]);
}

#[tokio::test]
async fn a_member_is_found_by_its_name_whatever_its_labels_and_owners_say() {
    for ordinal in [0, 1] {
        let site = Site::new();
        site.look().await;
        let changed = json!({"metadata": {"labels": null, "ownerReferences": [foreign()]}});
        site.put_pod(ordinal, &changed);
        let (_, view) = site.look().await;
        assert_eq!(names(&view), ["etcd-0", "etcd-1", "etcd-2"]);
    }
}

#[tokio::test]
async fn a_member_beyond_the_replicas_is_found_by_its_grant_or_by_the_record_of_it() {
    let recorded = [
        json!({"grants": [{"member": "etcd-5", "causes": [{"kind": "Delete", "seq": 1, "uid": "u5", "by": "x", "time": "2026-01-01T00:00:00Z"}]}]}),
        json!({"members": [{"name": "etcd-5", "role": "Voter", "serving": true}]}),
        json!({"members": [{"name": "m5", "pod": "etcd-5", "role": "Voter", "serving": true}]}),
    ];
    for status in recorded {
        let site = Site::new();
        site.put_pod(
            5,
            &json!({"metadata": {"labels": null, "ownerReferences": null}}),
        );
        site.put_budget(&json!({"status": status}));
        let (_, view) = site.look().await;
        assert_eq!(names(&view), ["etcd-0", "etcd-1", "etcd-2", "etcd-5"]);
    }
}

#[tokio::test]
async fn where_many_pods_are_missing_the_namespace_is_looked_through_once() {
    let site = Site::new();
    site.put_set(&json!({"spec": {"replicas": i32::MAX}}));
    site.put_pod(
        40,
        &json!({"metadata": {"labels": null, "ownerReferences": null}}),
    );
    site.api.take_requests();
    let (_, view) = site.look().await;
    assert_eq!(names(&view), ["etcd-0", "etcd-1", "etcd-2", "etcd-40"]);
    let requests = site.api.take_requests();
    assert!(requests.len() < 20, "{requests:?}");
}

#[tokio::test]
async fn a_pod_without_address_and_secrets_that_cannot_be_used_are_answers_too() {
    let site = Site::new();
    site.put_pod(1, &json!({"status": {"podIP": null}}));
    let (page, view) = site.look().await;
    let round = view
        .observation(&page, None, Round::default(), Ages::default())
        .round;
    assert_eq!(round.probes.len(), 1);
    assert_eq!(round.probes[0].target, Target::Pod("u1".into()));
    assert_eq!(round.probes[0].status, Err(Unanswered::NoAddress));

    site.put_budget(&json!({"spec": {"members": {"tls": {"caSecret": {"name": "ca"}}}}}));
    let (page, view) = site.look().await;
    assert!(view.endpoints().is_empty());
    let round = view
        .observation(&page, None, Round::default(), Ages::default())
        .round;
    let why = Unanswered::Tls("Secret ca does not exist".into());
    assert!(
        round
            .probes
            .iter()
            .all(|probe| probe.status == Err(why.clone())),
        "{round:?}"
    );
    assert_eq!(round.probes.len(), 3);
}

#[tokio::test]
async fn a_certificate_authority_is_read_again_when_its_secret_changes() {
    let site = Site::new();
    site.put_budget(&json!({"spec": {"members": {"tls": {"caSecret": {"name": "ca"}}}}}));
    let secret = |pem: &str| {
        let data = {
            use k8s_openapi::ByteString;
            serde_json::to_value(ByteString(pem.as_bytes().to_vec())).unwrap()
        };
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ca"}, "data": {"ca.crt": data}});
        site.api.put(&format!("{NAMESPACE}/secrets/ca"), secret);
    };
    let authority = || {
        rcgen::generate_simple_self_signed(["ca".to_owned()])
            .unwrap()
            .cert
            .pem()
    };
    let print = |view: &ClusterView| *view.endpoints()[0].tls.as_ref().unwrap().fingerprint();
    secret(&authority());
    let first = print(&site.look().await.1);
    assert_eq!(print(&site.look().await.1), first);
    secret(&authority());
    site.hand.advance(Duration::from_secs(10));
    assert_ne!(print(&site.look().await.1), first);
}

#[tokio::test]
async fn voters_without_a_pod_are_asked_too_until_they_have_one() {
    let site = Site::new();
    let external = |name: &str| json!({"name": name, "memberID": "f1", "role": "Voter", "serving": false, "clientURLs": ["http://far:2379"]});
    let members = json!([
        external("far"),
        external("etcd-1"),
        external("shoot-etcd-2")
    ]);
    site.put_budget(&json!({"status": {"members": members}}));
    let (_, view) = site.look().await;
    let addresses: Vec<_> = view
        .endpoints()
        .iter()
        .map(|e| e.address.as_str())
        .collect();
    assert_eq!(
        addresses,
        [
            "10.0.0.0:2379",
            "10.0.0.1:2379",
            "10.0.0.2:2379",
            "far:2379"
        ]
    );
}

#[tokio::test]
async fn of_many_voters_without_a_pod_only_some_are_asked() {
    let site = Site::new();
    let external = |n: usize| {
        json!({
            "name": format!("far-{n}"), "memberID": format!("f{n}"), "role": "Voter", "serving": false,
            "clientURLs": [format!("http://far:{n}")],
        })
    };
    let members: Vec<_> = (1..100).map(external).collect();
    site.put_budget(&json!({"status": {"members": members}}));
    let (_, view) = site.look().await;
    assert_eq!(view.endpoints().len(), 3 + 16);
}

#[tokio::test]
async fn with_readiness_as_evidence_nobody_is_asked_and_leases_are_read() {
    let site = Site::new();
    site.put_budget(&json!({"spec": {"members": {"evidence": "Readiness"}}}));
    site.api.put(
        "/apis/coordination.k8s.io/v1/namespaces/db/leases/etcd-0",
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "etcd-0"},
            "spec": {"holderIdentity": "a1:Leader"},
        }),
    );
    let (page, view) = site.look().await;
    assert!(view.endpoints().is_empty());
    let leader = view.pod_facts(&page, &target()).unwrap().lease_role;
    assert_eq!(leader, Some(crate::quorum::pod::LeaseRole::Leader));
}

#[tokio::test]
async fn disruption_budgets_are_read_for_evictions_only() {
    let site = Site::new();
    site.api.put(
        "/apis/policy/v1/namespaces/db/poddisruptionbudgets/pdb",
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "pdb"},
            "spec": {"selector": {}},
        }),
    );
    let said = |(page, view): (Page, ClusterView)| {
        view.circumstances(&page, Some(&target())).disruption_budget
    };
    assert_eq!(said(site.look().await), EvictionBudget::Permits);
    let refused = EvictionBudget::Refuses { name: "pdb".into() };
    assert_eq!(said(site.look_for(Kind::Evict).await), refused);
}

#[tokio::test]
async fn disruption_budgets_are_read_by_name_where_a_watch_knows_all_names() {
    let site = Site::new();
    let path = "/apis/policy/v1/namespaces/db/poddisruptionbudgets/pdb";
    let put = |allowed: u32| {
        let pdb = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "pdb"},
            "spec": {"selector": {}}, "status": {"disruptionsAllowed": allowed},
        });
        site.api.put(path, pdb);
    };
    let names = site.observer.disruption_budget_names();
    for name in ["pdb", "gone"] {
        names.index().note("db".to_owned(), name.to_owned(), true);
    }
    names.are_complete();
    for (allowed, expected) in [
        (0, EvictionBudget::Refuses { name: "pdb".into() }),
        (1, EvictionBudget::Permits),
    ] {
        put(allowed);
        site.api.take_requests();
        let (page, view) = site.look_for(Kind::Evict).await;
        let found = view.circumstances(&page, Some(&target())).disruption_budget;
        assert_eq!(found, expected);
        let requests = site.api.take_requests();
        let lists = |request: &String| request.contains("/poddisruptionbudgets?");
        assert!(!requests.iter().any(lists), "{requests:?}");
    }
}

impl Site {
    /// Looks at the cluster for a delete of the target, with members that do not answer. `all_here`
    /// says whether each member had a pod at the look before.
    async fn look_after(&self, all_here: bool) -> (ClusterLook, Vec<String>) {
        let page = self.page().await;
        let memory = self.observer.memory();
        memory.keep_all_here(&page.cluster, all_here);
        self.api.take_requests();
        let target = target();
        let asked = (&target, Kind::Delete, Grace::Graceful);
        let now = self.observer.clock().instant();
        let looked = self.observer.look_unless(&page, asked, now, |_| None::<()>);
        let Ok(EarlyOr::Full(look)) = Box::pin(looked).await else {
            panic!("a full look");
        };
        assert_eq!(memory.find(&page.cluster), Find::Listed, "none answered");
        (*look, self.api.take_requests())
    }
}

fn lists_of_pods(requests: &[String]) -> usize {
    let lists = requests.iter().filter(|request| request.contains("/pods?"));
    lists.count()
}

#[tokio::test]
async fn pods_are_read_by_name_where_each_member_had_one_at_the_last_look() {
    let site = Site::new();
    let page = site.page().await;
    site.observer.memory().keep_all_here(&page.cluster, true);
    let target = target();
    let asked = (&target, Kind::Delete, Grace::Graceful);
    let now = site.observer.clock().instant();
    let early = |view: &ClusterView| Some(names(view));
    site.api.take_requests();
    let looked = site.observer.look_unless(&page, asked, now, early);
    let Ok(EarlyOr::Early(view, names)) = Box::pin(looked).await else {
        panic!("an early answer");
    };
    assert_eq!(names, ["etcd-0", "etcd-1", "etcd-2"]);
    assert!(view.may_lack_pods());
    let requests = site.api.take_requests();
    assert_eq!(lists_of_pods(&requests), 0, "{requests:?}");
    let update = view.status_update(None);
    assert_eq!(update.unfinished_deletes, None, "any older pod counts");
}

#[tokio::test]
async fn where_a_member_may_have_no_pod_among_those_read_by_name_all_are_listed() {
    let site = Site::new();
    let (look, requests) = site.look_after(true).await;
    assert_eq!(names(&look.view), ["etcd-0", "etcd-1", "etcd-2"]);
    assert_eq!(lists_of_pods(&requests), 1, "{requests:?}");
    assert!(look.view.may_lack_pods(), "it was not begun again");

    let (look, requests) = site.look_after(false).await;
    assert_eq!(lists_of_pods(&requests), 1, "{requests:?}");
    assert!(!look.view.may_lack_pods());

    // A pod that neither the StatefulSet nor the ledger expects may run a member.
    site.put_pod(7, &json!({}));
    let (look, _) = site.look_after(true).await;
    assert_eq!(names(&look.view), ["etcd-0", "etcd-1", "etcd-2", "etcd-7"]);
    assert_eq!(look.snapshot.pods.len(), 4);
    assert!(!look.view.may_lack_pods());
}

#[tokio::test]
async fn pods_of_another_stateful_set_or_of_none_are_listed() {
    let site = Site::new();
    for set in [Some("set-2"), None] {
        match set {
            Some(uid) => site.put_set(&json!({"metadata": {"uid": uid}})),
            None => site.api.remove(SET),
        }
        let (look, requests) = site.look_after(true).await;
        assert_eq!(lists_of_pods(&requests), 1, "{requests:?}");
        assert!(!look.view.may_lack_pods());
    }
}

#[tokio::test]
async fn rule_3_a_terminating_namespace_is_seen() {
    let site = Site::new();
    site.api.put(
        NAMESPACE,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "db", "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    );
    assert_eq!(site.teardown().await, Some(Teardown::Namespace));
}

#[tokio::test]
async fn rule_3_an_owner_is_found_by_its_kind_and_uid() {
    let site = Site::new();
    site.put_owner(&json!({}));
    assert_eq!(site.teardown().await, None);
    site.record().await;
    site.put_owner(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    assert_eq!(site.teardown().await, Some(Teardown::Owner));
    let orphaning = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["orphan"]}});
    site.put_owner(&orphaning);
    assert_eq!(site.teardown().await, None);
    site.put_owner(&json!({"metadata": {"uid": "o2"}}));
    assert_eq!(
        site.teardown().await,
        Some(Teardown::Owner),
        "a namesake is not the owner"
    );
    site.api.remove(OWNER);
    assert_eq!(site.teardown().await, Some(Teardown::Owner));
}

#[tokio::test]
async fn rule_3_an_owner_that_was_never_seen_takes_nothing_along() {
    let site = Site::new();
    site.record().await;
    site.put_owner(&json!({}));
    site.api.remove(OWNER);
    site.record().await;
    assert_eq!(site.teardown().await, None, "it was never there");
    site.put_owner(&json!({}));
    site.record().await;
    site.api.remove(OWNER);
    site.record().await;
    assert_eq!(site.teardown().await, Some(Teardown::Owner));
    // The record ends with the reference, so that a former owner takes nothing along.
    site.put_set(&json!({}));
    site.record().await;
    site.put_set(&json!({"metadata": {"ownerReferences": [owner_of_set()]}}));
    assert_eq!(site.teardown().await, None, "it was let go before it went");
}

#[tokio::test]
async fn rule_3_an_owner_that_cannot_be_asked_proves_nothing() {
    let site = Site::new();
    site.put_owner(&json!({}));
    site.look().await;
    site.api.undefine("druid.gardener.cloud");
    assert_eq!(site.teardown().await, None);
}

#[tokio::test]
async fn rule_3_a_stateful_set_that_is_gone_is_judged_by_what_was_recorded_of_it() {
    let site = Site::new();
    site.put_owner(&json!({}));
    let recorded = |owner: Value| {
        site.put_budget(&json!({"status": {"statefulSet": {"uid": "set-1", "owners": owner}}}));
    };
    site.api.remove(SET);
    recorded(json!([owner_of_set()]));
    assert_eq!(site.teardown().await, None, "its owner lives");
    site.hand.advance(SETTLE);
    assert_eq!(
        site.teardown().await,
        Some(Teardown::StatefulSet),
        "gone for a settle time"
    );
    recorded(json!([]));
    assert_eq!(
        site.teardown().await,
        Some(Teardown::StatefulSet),
        "it had no owner"
    );
}

/// A StatefulSet that is created again adopts orphaned pods, so its pods may be older than itself.
#[tokio::test]
async fn a_recorded_delete_is_forgotten_once_its_pods_are_gone_and_another_set_stands() {
    let site = Site::new();
    let recorded = ["set-0", "set-1", "set-2"].map(|uid| json!({"uid": uid, "by": "", "time": ""}));
    site.put_budget(&json!({"status": {"recordedDeletes": {"statefulSets": recorded}}}));
    let left = async || -> Vec<String> {
        let (page, view) = Box::pin(site.look()).await;
        let ledger = site.observer.ledger();
        let after = Box::pin(ledger.update(&page, view.status_update(None))).await;
        let page = after.unwrap().unwrap_or(page);
        let sets = &page.status().unwrap().recorded_deletes.stateful_sets;
        sets.iter().map(|set| set.uid.clone()).collect()
    };
    site.api.remove(SET);
    assert_eq!(left().await, ["set-0", "set-1", "set-2"], "nobody can tell");
    site.put_set(
        &json!({"metadata": {"uid": "set-2", "creationTimestamp": "2026-01-01T00:01:00Z"}}),
    );
    assert_eq!(left().await, ["set-1", "set-2"], "its pods are still there");
    assert_eq!(site.teardown().await, Some(Teardown::StatefulSet));
    let adopted = json!({"metadata": {"ownerReferences": [super::owner_of_pods("set-2")]}});
    for ordinal in 0..2 {
        site.put_pod(ordinal, &adopted);
    }
    site.put_pod(
        2,
        &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:02:00Z"}}),
    );
    assert_eq!(left().await, ["set-2"], "the last one terminates");
    site.put_pod(0, &json!({}));
    assert_eq!(site.teardown().await, None, "it was set-1's once");
}

/// A client that may change a pod can make it refer to another owner every time, with a UID of any
/// length.
#[tokio::test]
async fn owners_that_pods_make_up_are_not_remembered() {
    let site = Site::new();
    site.put_budget(&json!({"status": {"statefulSet": {"uid": "set-1"}}}));
    let refer_to = |uid: &str| {
        let owners = json!({"metadata": {"ownerReferences": [super::owner_of_pods(uid)]}});
        site.put_pod(0, &owners);
    };
    for made_up in 0..50 {
        refer_to(&format!("{made_up}{}", "0".repeat(1000)));
        assert_eq!(site.teardown().await, None);
    }
    assert_eq!(site.observer.ledger().seen().sets_without_budget(), 0);
    site.hand.advance(SETTLE);
    assert_eq!(site.teardown().await, None);
}

#[tokio::test]
async fn without_a_stateful_set_the_recorded_replicas_count() {
    let site = Site::new();
    site.put_budget(
        &json!({"status": {"observedReplicas": 5, "expectedMembers": 5, "selector": "app=etcd"}}),
    );
    site.api.remove(SET);
    let (page, view) = site.look().await;
    assert_eq!(view.replicas(&page), 5);
    assert_eq!(view.pods().len(), 3);
    let update = view.status_update(None);
    assert_eq!(update.expected, None);
    site.put_budget(&json!({"status": null}));
    let (page, view) = site.look().await;
    assert_eq!(
        view.replicas(&page),
        3,
        "nothing recorded: as many as there are pods"
    );
}

#[tokio::test]
async fn rule_8_another_budget_of_the_same_etcd_cluster_is_seen() {
    let site = Site::new();
    site.put_budget(&json!({"status": {"clusterID": "c1"}}));
    let other = budget_json(&json!({
        "metadata": {"name": "copy", "namespace": "other"}, "spec": {"statefulSetName": "copy"}, "status": {"clusterID": "c1"},
    }));
    site.api.put(
        "/apis/quorumgate.io/v1alpha1/namespaces/other/quorumdisruptionbudgets/copy",
        other,
    );
    // No member answers, so nobody knows whether all of them have pods here.
    let page = site.page().await;
    let now = site.observer.clock().instant();
    let look = site.observer.look(&page, now).await.unwrap();
    let copy = Some(ClusterRef::new("other", "copy"));
    assert_eq!(look.snapshot.circumstances.shared_with, copy);
    assert_eq!(look.view.circumstances(&page, None).shared_with, copy);
}

/// Names, peer URLs and token make the id, so a copy needs nothing of the cluster.
#[tokio::test]
async fn a_copy_of_a_cluster_in_another_namespace_counts_only_for_members_without_a_pod_here() {
    let member = |id: &str, pod: Option<&str>| json!({"name": id, "memberID": id, "pod": pod, "role": "Voter", "serving": true});
    let copy = |namespace: &str, members: Value| {
        let site = Site::new();
        let here = json!([member("a", Some("etcd-0")), member("b", None)]);
        site.put_budget(&json!({"status": {"clusterID": "c1", "members": here}}));
        let other = budget_json(&json!({
            "metadata": {"name": "copy", "namespace": namespace},
            "spec": {"statefulSetName": "copy"},
            "status": {"clusterID": "c1", "members": members},
        }));
        let path = format!(
            "/apis/quorumgate.io/v1alpha1/namespaces/{namespace}/quorumdisruptionbudgets/copy"
        );
        site.api.put(&path, other);
        site
    };
    for (namespace, members, counts) in [
        ("other", json!([member("a", Some("etcd-0"))]), false),
        ("other", json!([member("b", None)]), false),
        ("other", json!([member("b", Some("witness-0"))]), true),
        ("db", json!([member("a", Some("etcd-0"))]), true),
    ] {
        let site = copy(namespace, members.clone());
        let page = site.page().await;
        let now = site.observer.clock().instant();
        let look = site.observer.look(&page, now).await.unwrap();
        let shared = look.snapshot.circumstances.shared_with;
        assert_eq!(shared.is_some(), counts, "{namespace}: {members}");
    }
}

#[tokio::test]
async fn a_look_at_leisure_takes_what_a_cache_says_of_rule_8_and_asks_where_none_does() {
    let site = Site::new();
    site.put_budget(&json!({"status": {"clusterID": "c1"}}));
    let page = site.page().await;
    site.api.take_requests();
    let copy = ClusterRef::new("other", "copy");
    for (cached, shared, asks) in [
        (Some(vec![copy.clone()]), Some(copy), false),
        (Some(Vec::new()), None, false),
        (None, None, true),
    ] {
        let view = site.observer.world_at_leisure(&page, cached).await.unwrap();
        assert_eq!(view.circumstances(&page, None).shared_with, shared);
        let requests = site.api.take_requests();
        let asked = requests
            .iter()
            .any(|r| r.contains("quorumdisruptionbudgets"));
        assert_eq!(asked, asks, "{requests:?}");
    }
}

/// API servers set creation times by their own clocks, which need not agree. A grant in another
/// ledger may be open for a pod that looks younger than this ledger.
#[tokio::test]
async fn rule_9_a_new_ledger_is_untrusted_however_young_its_pods_look() {
    let site = Site::new();
    let untrusted = Trust::Untrusted {
        remaining: Some(SETTLE),
    };
    assert_eq!(site.look().await.1.trust(), untrusted);
    for ordinal in 0..3 {
        let created = json!({"metadata": {"creationTimestamp": "2036-01-01T00:00:21Z"}});
        site.put_pod(ordinal, &created);
    }
    assert_eq!(site.look().await.1.trust(), untrusted);
}

#[tokio::test]
async fn rule_15_a_scale_out_is_known_from_the_first_look_until_its_grace_has_passed() {
    let site = Site::new();
    let age = |page: &Page, view: &ClusterView| {
        view.observation(page, None, Round::default(), Ages::default())
            .scaled_out_for
    };
    site.put_budget(&json!({"status": {"observedReplicas": 3, "expectedMembers": 3}}));
    let (page, view) = site.look().await;
    assert_eq!(age(&page, &view), None);
    site.put_set(&json!({"spec": {"replicas": 5}}));
    let (page, view) = site.look().await;
    assert_eq!(
        age(&page, &view),
        Some(Duration::ZERO),
        "nobody recorded it yet"
    );
    let snapshot =
        Snapshot::assemble(&view.observation(&page, None, Round::default(), Ages::default()));
    let update = view.status_update(Some(&snapshot));
    assert_eq!(
        update
            .expected
            .map(|ExpectedVoters { replicas, .. }| replicas),
        Some(5)
    );
    site.observer
        .ledger()
        .update(&page, update)
        .await
        .unwrap()
        .unwrap();

    site.hand.advance(Duration::from_secs(60));
    let (page, view) = site.look().await;
    assert_eq!(age(&page, &view), Some(Duration::from_secs(60)));
    site.hand.advance(Duration::from_secs(540));
    let (page, view) = site.look().await;
    let update = view.status_update(None);
    assert!(update.scale_out_settled);
    site.observer
        .ledger()
        .update(&page, update)
        .await
        .unwrap()
        .unwrap();
    let (page, view) = site.look().await;
    assert_eq!(age(&page, &view), None, "for every replica");
}

#[tokio::test]
async fn a_spec_that_says_nonsense_is_an_error() {
    let site = Site::new();
    site.put_budget(&json!({"spec": {"policy": {"scaleOutGrace": "soon"}}}));
    let page = site.page().await;
    let view = site.observer.world_at_leisure(&page, None).await;
    assert!(matches!(view, Err(ObserveError::Spec(_))), "{view:?}");
}

fn claim(terminating: bool) -> Value {
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-etcd-0", "namespace": "db", "uid": "c0"},
    });
    if terminating {
        claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    claim
}

fn using(claim: &str) -> Value {
    json!({"spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}})
}

fn templates(name: &str) -> Value {
    json!({"spec": {"volumeClaimTemplates": [{"metadata": {"name": name}}]}})
}

const CLAIM: &str = "/api/v1/namespaces/db/persistentvolumeclaims/data-etcd-0";

#[tokio::test]
async fn the_claims_of_the_pod_in_question_are_read_and_no_others() {
    let site = Site::new();
    for ordinal in 0..3 {
        site.put_pod(ordinal, &using(&format!("data-etcd-{ordinal}")));
    }
    let page = site.page().await;
    let data = |view: &ClusterView| view.data_of(&page, &target());
    let read = |requests: Vec<String>| -> Vec<String> {
        let claims = requests
            .into_iter()
            .filter(|r| r.contains("/persistentvolumeclaims"));
        claims.collect()
    };
    for (claim, expected) in [
        (Some(claim(false)), PodData::Stays),
        (Some(claim(true)), PodData::Goes),
        // A claim that is gone takes nothing with the pod.
        (None, PodData::Stays),
    ] {
        match claim {
            Some(claim) => site.api.put(CLAIM, claim),
            None => site.api.remove(CLAIM),
        }
        site.api.take_requests();
        let (_, view) = site.look().await;
        assert_eq!(data(&view), expected);
        assert_eq!(read(site.api.take_requests()), [format!("GET {CLAIM}")]);
    }
    site.api.forbid("persistentvolumeclaims");
    let (_, view) = site.look().await;
    let PodData::Unknown(why) = data(&view) else {
        panic!("{:?}", data(&view));
    };
    assert!(
        why.starts_with("could not read the claim data-etcd-0: "),
        "{why}"
    );
}

#[tokio::test]
async fn a_claim_that_a_pod_mounts_by_several_volumes_is_read_once() {
    let site = Site::new();
    let volume =
        |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": "data-etcd-0"}});
    site.put_pod(
        0,
        &json!({"spec": {"volumes": [volume("data"), volume("logs")]}}),
    );
    // The second look knows the claims by the first.
    for _ in 0..2 {
        site.api.take_requests();
        site.look().await;
        let requests = site.api.take_requests();
        let claims = requests
            .iter()
            .filter(|r| r.contains("/persistentvolumeclaims"));
        assert_eq!(claims.count(), 1, "{requests:#?}");
    }
}

/// A claim that the last look has found does not wait for the pods.
#[tokio::test(start_paused = true)]
async fn a_known_claim_is_read_side_by_side_with_everything_else() {
    let site = Site::new();
    site.put_pod(0, &using("data-etcd-0"));
    site.look().await;
    site.api.silence("GET /api/v1/namespaces/db/pods");
    site.api.take_requests();
    let looked = tokio::time::timeout(Duration::from_secs(1), site.look()).await;
    assert!(looked.is_err(), "the pods are never read");
    let requests = site.api.take_requests();
    assert!(requests.contains(&format!("GET {CLAIM}")), "{requests:#?}");
}

#[tokio::test]
async fn without_claims_none_is_read() {
    let site = Site::new();
    site.api.forbid("persistentvolumeclaims");
    let (page, view) = site.look().await;
    assert_eq!(view.data_of(&page, &target()), PodData::InPod);
    let requests = site.api.take_requests();
    assert!(
        !requests.iter().any(|r| r.contains("claims")),
        "{requests:#?}"
    );
}

async fn whose(site: &Site, claim: &str) -> String {
    named(site.observer.identify_claim("db", claim).await.unwrap())
}

fn named(claim: ClaimIdentity) -> String {
    let list = |pods: Vec<PodName>| {
        let names: Vec<String> = pods.iter().map(ToString::to_string).collect();
        names.join(", ")
    };
    match claim {
        ClaimIdentity::Foreign => "nobody".to_owned(),
        ClaimIdentity::Guarded(page, pods) => format!("{} of {}", list(pods), page.cluster.name),
        ClaimIdentity::Unrecorded(cluster, pods, error) => {
            let why = error.map_or("no budget".to_owned(), |error| error.to_string());
            format!("{} of {}: {why}", list(pods), cluster.name)
        }
    }
}

#[tokio::test]
async fn a_claim_belongs_to_all_members_that_have_their_data_on_it() {
    let site = Site::new();
    let mounting = |phase: &str| {
        let volume =
            |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        json!({
            "spec": {
                "containers": [{
                    "name": "etcd", "command": ["etcd", "--data-dir=/data/etcd"],
                    "volumeMounts": [
                        {"name": "shared", "mountPath": "/data", "subPathExpr": "$(POD_NAME)"},
                        {"name": "snapshots", "mountPath": "/snapshots"},
                    ],
                }],
                "volumes": [volume("shared"), volume("snapshots")],
            },
            "status": {"phase": phase},
        })
    };
    site.put_pod(0, &mounting("Running"));
    site.put_pod(1, &mounting("Failed"));
    site.put_pod(2, &using("data-etcd-2"));
    assert_eq!(whose(&site, "shared").await, "etcd-0, etcd-1 of etcd");
    assert_eq!(whose(&site, "snapshots").await, "nobody");
    // Kubernetes protects a claim for what runs, whatever is on the claim.
    let mut ended = mounting("Failed");
    ended["status"]["containerStatuses"] = json!([]);
    for (one, expected) in [
        (ended, "etcd-0 of etcd"),
        // The garbage collector of pods says so of a pod that its kubelet still runs.
        (mounting("Failed"), "etcd-0, etcd-1 of etcd"),
    ] {
        site.put_pod(1, &one);
        for claim in ["shared", "snapshots"] {
            let users = site.observer.identify_users("db", claim).await.unwrap();
            assert_eq!(named(users), expected, "{claim}");
        }
    }
}

#[tokio::test]
async fn a_claim_belongs_to_the_member_that_its_name_and_its_template_give() {
    let site = Site::new();
    site.put_set(&templates("data"));
    assert_eq!(whose(&site, "data-etcd-1").await, "etcd-1 of etcd");
    assert_eq!(whose(&site, "data-etcd-7").await, "etcd-7 of etcd");
    for other in ["data-etcd", "etcd-1", "data-main-1", "data-etcd-01"] {
        assert_eq!(whose(&site, other).await, "nobody", "{other}");
    }
    // Of another StatefulSet, whose own name ends like this one's.
    assert_eq!(whose(&site, "data-web-etcd-1").await, "nobody");
    // A pod may have been adopted, with claims of another template.
    site.put_pod(1, &using("wal-etcd-1"));
    assert_eq!(whose(&site, "wal-etcd-1").await, "etcd-1 of etcd");
    assert_eq!(whose(&site, "wal-etcd-2").await, "nobody");
    // The claims outlive the StatefulSet.
    site.api.remove(SET);
    assert_eq!(whose(&site, "data-etcd-2").await, "etcd-2 of etcd");
    let longer = json!({"metadata": {"name": "web-etcd", "uid": "web"}, "spec": {"statefulSetName": "web-etcd"}});
    let path = BUDGET.replace("/etcd", "/web-etcd");
    site.api.put(&path, budget_json(&longer));
    assert_eq!(
        whose(&site, "data-web-etcd-2").await,
        "web-etcd-2 of web-etcd"
    );
}

/// Pods, templates and names say where members have their data from now on, and the record says
/// where it is.
#[tokio::test]
async fn a_claim_with_data_on_record_is_its_members_whatever_pods_templates_and_names_say() {
    let recorded = |claim: &str| {
        let site = Site::new();
        site.put_budget(&json!({"status": {"volumes": [{
            "member": "etcd-2", "memberID": "3", "podUID": "p2", "claimUID": "c2", "volumeID": "v2",
        }]}}));
        let path = format!("{NAMESPACE}/persistentvolumeclaims/{claim}");
        let metadata = json!({"name": claim, "namespace": "db", "uid": "c2"});
        let kind = "PersistentVolumeClaim";
        site.api.put(
            &path,
            json!({"apiVersion": "v1", "kind": kind, "metadata": metadata}),
        );
        site
    };
    // The template mounts the claim no more, and the pod of the member exists.
    let site = recorded("data-etcd-2");
    let elsewhere = json!({"spec": {
        "containers": [{"name": "etcd", "command": ["etcd", "--data-dir=/tmp/etcd"]}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-etcd-2"}}],
    }});
    site.put_set(&templates("data"));
    site.put_pod(2, &elsewhere);
    assert_eq!(whose(&site, "data-etcd-2").await, "etcd-2 of etcd");
    // The StatefulSet was made anew with other names of claims.
    let site = recorded("data-etcd-2");
    site.put_set(&templates("data2"));
    assert_eq!(whose(&site, "data-etcd-2").await, "etcd-2 of etcd");
    // No StatefulSet gives a claim this name.
    let site = recorded("shared");
    assert_eq!(whose(&site, "shared").await, "etcd-2 of etcd");
    // Pods of another cluster mount it too.
    let site = recorded("data-etcd-2");
    let other = json!({"metadata": {"name": "a", "uid": "a"}, "spec": {"statefulSetName": "a"}});
    site.api
        .put(&BUDGET.replace("/etcd", "/a"), budget_json(&other));
    let mut stranger = elsewhere;
    stranger["metadata"] = json!({
        "name": "a-0", "uid": "a0",
        "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "a", "uid": "a",
            "controller": true,
        }],
    });
    site.api
        .put(&format!("{NAMESPACE}/pods/a-0"), pod_json(0, &stranger));
    assert_eq!(whose(&site, "data-etcd-2").await, "etcd-2 of etcd");
}

#[tokio::test]
async fn a_claim_of_a_cluster_without_a_usable_budget_is_known_as_such() {
    let site = Site::new();
    let mut enrolled = templates("data");
    enrolled["metadata"]["labels"] = json!({"quorumgate.io/enroll": "true"});
    site.put_set(&enrolled);
    site.put_budget(&json!({"status": {"ledger": {"schemaVersion": 999}}}));
    let unreadable = whose(&site, "data-etcd-1").await;
    assert!(
        unreadable.starts_with("etcd-1 of etcd: the budget db/etcd cannot be read"),
        "{unreadable}"
    );
    site.api.remove(BUDGET);
    assert_eq!(
        whose(&site, "data-etcd-1").await,
        "etcd-1 of etcd: no budget"
    );
    site.put_set(&templates("data"));
    assert_eq!(whose(&site, "data-etcd-1").await, "nobody");
    site.api.undefine("quorumdisruptionbudgets");
    let undefined = whose(&site, "data-etcd-1").await;
    assert!(undefined.contains("definition"), "{undefined}");
}

/// The object may name another directory by now, or force a new cluster. One that RBAC keeps from
/// the gate will never be read, and everything else holds no pod for that.
#[tokio::test(start_paused = true)]
async fn a_pod_waits_until_what_its_settings_come_from_was_read() {
    let site = Site::new();
    site.put_budget(&json!({"status": {"clusterID": "1", "volumes": [{
        "member": "etcd-2", "memberID": "3", "podUID": "p2", "claimUID": "c2", "volumeID": "v2/u2",
        "directory": "etcd",
    }]}}));
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {"volumeName": "v2"},
        "metadata": {"name": "data-etcd-2", "namespace": "db", "uid": "c2"},
    });
    let claim_path = format!("{NAMESPACE}/persistentvolumeclaims/data-etcd-2");
    site.api.put(&claim_path, claim);
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v2", "uid": "u2"},
    });
    site.api.put("/api/v1/persistentvolumes/v2", volume);
    let map_path = format!("{NAMESPACE}/configmaps/settings");
    let map = |data: Value| {
        let metadata = json!({"name": "settings", "namespace": "db"});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    };
    site.api.put(&map_path, map(json!({})));
    let spec: PodSpec = serde_json::from_value(json!({
        "containers": [{
            "name": "etcd", "command": ["etcd", "--data-dir=/data/etcd"],
            "envFrom": [{"configMapRef": {"name": "settings"}}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-etcd-2"}}],
    }))
    .unwrap();
    let held = async || {
        let (cluster, pod) = (ClusterRef::new("db", "etcd"), "etcd-2".into());
        let deadline = tokio::time::Instant::now() + Duration::from_secs(4);
        let start = site.observer.start_of(&cluster, &pod, &spec, deadline);
        let hold = start.await.unwrap().unwrap().guard.hold;
        hold.map(|hold| hold.difference)
    };
    assert_eq!(held().await, None);
    site.api
        .put(&map_path, map(json!({"ETCD_WAL_DIR": "/data/log"})));
    assert_eq!(held().await, Some(Difference::OtherDirectory));
    site.api.forbid("configmaps");
    assert_eq!(held().await, None);
    site.api.silence(&format!("GET {map_path}"));
    assert_eq!(held().await, Some(Difference::Unseen));
}
