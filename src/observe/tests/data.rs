//! The places of members' data, by the specs of their pods.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Value, json};

use crate::api::{EtcdDirectories, RecordedEtcd};
use crate::clock::Clock;
use crate::fake_api::FakeApi;
use crate::observe::bound_node::bound_node;
use crate::observe::bound_to;
use crate::observe::data_on::{DataOn, data_directory, data_on, keeps_data_in_pods};

/// etcd with these arguments and a volume of this source over `/data`, and the spec changed.
fn spec(args: &[&str], volume: impl Into<Value>, change: &Value) -> PodSpec {
    let mut source = json!({"name": "data"});
    json_patch::merge(&mut source, &volume.into());
    let mut spec = json!({
        "containers": [{
            "name": "etcd", "command": ["etcd"], "args": args,
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }],
        "volumes": [source],
    });
    json_patch::merge(&mut spec, change);
    serde_json::from_value(spec).unwrap()
}

fn claim(name: &str) -> Value {
    json!({"persistentVolumeClaim": {"claimName": name}})
}

fn host() -> Value {
    json!({"hostPath": {"path": "/var/lib/etcd"}})
}

fn on(spec: &PodSpec) -> DataOn {
    data_on(spec, RecordedEtcd::default(), None, &"etcd-0".into())
}

const HOSTNAME: &str = "kubernetes.io/hostname";
const DATA: &[&str] = &["--data-dir=/data/etcd"];

#[test]
fn data_is_on_the_volume_over_the_data_directory() {
    let none = json!({});
    let claims = |names: &[&str]| DataOn::Claims(names.iter().map(|&n| n.to_owned()).collect());
    assert_eq!(on(&spec(DATA, claim("c"), &none)), claims(&["c"]));
    assert_eq!(on(&spec(DATA, json!({"emptyDir": {}}), &none)), DataOn::Pod);
    let ephemeral = json!({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}});
    assert_eq!(on(&spec(DATA, ephemeral, &none)), DataOn::Pod);
    let unbound = DataOn::Node {
        path: "/var/lib/etcd".into(),
        bound: false,
    };
    assert_eq!(on(&spec(DATA, host(), &none)), unbound);
    assert_eq!(
        on(&spec(&["--data-dir=/elsewhere"], claim("c"), &none)),
        DataOn::Pod
    );
    // The only claim there is, where nothing says which directory is etcd's.
    for untold in [&[][..], &["--data-dir=$(DIR)"], &["--data-dir=relative"]] {
        assert_eq!(
            on(&spec(untold, claim("c"), &none)),
            claims(&["c"]),
            "{untold:?}"
        );
    }
}

#[test]
fn where_no_directory_is_told_and_there_is_no_claim_data_is_in_the_pod_or_on_its_node() {
    let none = json!({});
    assert_eq!(on(&spec(&[], json!({"emptyDir": {}}), &none)), DataOn::Pod);
    let settings = json!({"configMap": {"name": "settings"}});
    assert_eq!(on(&spec(&[], settings, &none)), DataOn::Pod);
    assert!(matches!(on(&spec(&[], host(), &none)), DataOn::Node { .. }));
    let clock = json!({"hostPath": {"path": "/etc/localtime", "type": "File"}});
    assert_eq!(on(&spec(&[], clock, &none)), DataOn::Pod);
    let network = json!({"nfs": {"server": "files", "path": "/etcd"}});
    assert_eq!(on(&spec(&[], network, &none)), DataOn::Unknown);
}

#[test]
fn a_write_ahead_log_elsewhere_is_data_too_and_the_place_that_is_lost_first_decides() {
    let args = &["--data-dir=/data", "--wal-dir=/wal"];
    let with_wal = |data: Value, wal: Value| {
        let mut source = json!({"name": "wal"});
        json_patch::merge(&mut source, &wal);
        let mut data_source = json!({"name": "data"});
        json_patch::merge(&mut data_source, &data);
        let volumes = json!({
            "containers": [{
                "name": "etcd", "command": ["etcd"], "args": args,
                "volumeMounts": [
                    {"name": "data", "mountPath": "/data"}, {"name": "wal", "mountPath": "/wal"},
                ],
            }],
            "volumes": [data_source, source],
        });
        on(&serde_json::from_value(volumes).unwrap())
    };
    let empty = || json!({"emptyDir": {}});
    let both = DataOn::Claims(vec!["c".into(), "w".into()]);
    assert_eq!(with_wal(claim("c"), claim("w")), both);
    assert!(both.may_be("c") && both.may_be("w") && !both.may_be("x"));
    assert_eq!(
        with_wal(claim("c"), claim("c")),
        DataOn::Claims(vec!["c".into()])
    );
    assert_eq!(with_wal(claim("c"), empty()), DataOn::Pod);
    assert_eq!(with_wal(empty(), claim("w")), DataOn::Pod);
    assert!(matches!(with_wal(claim("c"), host()), DataOn::Node { .. }));
}

/// The claim lasts, and the directory on it does not.
#[test]
fn a_directory_that_is_named_after_its_pod_or_by_another_object_is_told_apart() {
    let spec = |expression: &str, variable: Value| -> PodSpec {
        let spec = json!({
            "containers": [{
                "name": "etcd", "command": ["etcd", "--data-dir=/data/etcd"],
                "env": [{"name": "V", "valueFrom": variable}],
                "volumeMounts": [{"name": "data", "mountPath": "/data", "subPathExpr": expression}],
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}],
        });
        serde_json::from_value(spec).unwrap()
    };
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    for changing in ["metadata.uid", "status.podIP"] {
        let place = on(&spec("etcd/$(V)", field(changing)));
        assert_eq!(place, DataOn::Pod, "{changing}");
    }
    // The next pod may find the directory again, with the data of a member that was removed.
    let in_doubt = DataOn::AnyOf(vec!["c".to_owned()]);
    for perhaps in ["spec.nodeName", "metadata.annotations['gen']"] {
        let place = on(&spec("etcd/$(V)", field(perhaps)));
        assert_eq!(place, in_doubt, "{perhaps}");
    }
    let mut on_node = spec("$(V)", field("spec.nodeName"));
    let host = json!([{"name": "data", "hostPath": {"path": "/var/lib/etcd"}}]);
    on_node.volumes = serde_json::from_value(host).unwrap();
    let place = on(&on_node);
    assert!(matches!(place, DataOn::Node { .. }), "{place:?}");
    let claims = DataOn::Claims(vec!["c".to_owned()]);
    let of_pod = spec("$(V)", field("metadata.name"));
    assert_eq!(on(&of_pod), claims);
    let directory = |spec: &PodSpec, etcd| data_directory(spec, etcd, &"etcd-1".into());
    let own = directory(&of_pod, RecordedEtcd::default());
    assert_eq!(own.as_deref(), Some("etcd-1/etcd"));

    let by_map = spec(
        "$(V)",
        json!({"configMapKeyRef": {"name": "sub", "key": "dir"}}),
    );
    assert_eq!(on(&by_map), claims);
    assert_eq!(directory(&by_map, RecordedEtcd::default()), None);
    for value in ["one", "two"] {
        let told = EtcdDirectories {
            data: "/data/etcd".to_owned(),
            wal: None,
            variables: [("V".to_owned(), value.to_owned())].into(),
        };
        let etcd = RecordedEtcd {
            container: None,
            directories: Some(&told),
        };
        let found = data_directory(&by_map, etcd, &"etcd-1".into());
        assert_eq!(found, Some(format!("{value}/etcd")));
    }
}

/// A mount below the data directory hides the data that is there.
#[test]
fn a_mount_below_the_data_directory_is_where_that_part_of_the_data_is() {
    let with = |at: &str, source: Value, sub_path: &str| {
        let mut more = source;
        more["name"] = json!("more");
        let spec = json!({
            "containers": [{
                "name": "etcd", "command": ["etcd", "--data-dir=/data/etcd"],
                "volumeMounts": [
                    {"name": "data", "mountPath": "/data"},
                    {"name": "more", "mountPath": at, "subPath": sub_path},
                ],
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}, more],
        });
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let directory = data_directory(&spec, RecordedEtcd::default(), &"etcd-0".into());
        (on(&spec), directory)
    };
    let empty = json!({"emptyDir": {}});
    for hidden in [
        "/data/etcd/member",
        "/data/etcd/member/wal",
        "/data/etcd/member/snap",
    ] {
        assert_eq!(with(hidden, empty.clone(), "").0, DataOn::Pod, "{hidden}");
    }
    let claims = |names: &[&str]| DataOn::Claims(names.iter().map(|n| (*n).to_owned()).collect());
    let wal = with("/data/etcd/member/wal", claim("w"), "");
    assert_eq!(wal, (claims(&["c", "w"]), Some("etcd ".to_owned())));
    let (place, directory) = with("/data/etcd/member", claim("c"), "other");
    assert_eq!(place, claims(&["c"]));
    assert_ne!(directory.as_deref(), Some("etcd"), "the same volume");
    let beside = with("/data/other", empty, "");
    assert_eq!(beside, (claims(&["c"]), Some("etcd".to_owned())));
}

#[test]
fn directories_that_other_objects_name_count_where_the_container_says_nothing() {
    let volumes = json!({
        "containers": [{
            "name": "etcd", "command": ["etcd"], "args": ["--config-file=/etc/etcd/etcd.yaml"],
            "volumeMounts": [
                {"name": "data", "mountPath": "/data"}, {"name": "backup", "mountPath": "/backup"},
            ],
        }],
        "volumes": [
            {"name": "data", "emptyDir": {}},
            {"name": "backup", "persistentVolumeClaim": {"claimName": "b"}},
        ],
    });
    let spec: PodSpec = serde_json::from_value(volumes).unwrap();
    assert_eq!(on(&spec), DataOn::Claims(vec!["b".into()]), "a guess");
    let told = EtcdDirectories {
        data: "/data/etcd".into(),
        wal: None,
        variables: BTreeMap::new(),
    };
    let etcd = RecordedEtcd {
        container: None,
        directories: Some(&told),
    };
    assert_eq!(data_on(&spec, etcd, None, &"etcd-0".into()), DataOn::Pod);
    let set: StatefulSet = serde_json::from_value(json!({"metadata": {"name": "etcd"}, "spec": {
        "selector": {}, "serviceName": "etcd", "template": {"spec": spec},
    }}))
    .unwrap();
    assert!(keeps_data_in_pods(&set, etcd));
    assert!(!keeps_data_in_pods(&set, RecordedEtcd::default()));
}

/// The template names the data directory, and the variables of a ConfigMap may name the log's.
#[test]
fn a_log_directory_of_another_object_counts_beside_the_stated_data_directory() {
    let spec = |env_from: Value| -> PodSpec {
        serde_json::from_value(json!({
            "containers": [{
                "name": "etcd", "command": ["etcd", "--data-dir=/data/etcd"],
                "envFrom": env_from,
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}],
        }))
        .unwrap()
    };
    let by_map = spec(json!([{"configMapRef": {"name": "settings"}}]));
    let told = |data: &str, wal: Option<&str>| EtcdDirectories {
        data: data.to_owned(),
        wal: wal.map(str::to_owned),
        variables: BTreeMap::new(),
    };
    let places = |spec: &PodSpec, told: &EtcdDirectories| {
        let etcd = RecordedEtcd {
            container: None,
            directories: Some(told),
        };
        let pod = "etcd-0".into();
        (
            data_on(spec, etcd, None, &pod),
            data_directory(spec, etcd, &pod),
        )
    };
    let claims = DataOn::Claims(vec!["c".to_owned()]);
    assert_eq!(on(&by_map), claims);
    let unread = data_directory(&by_map, RecordedEtcd::default(), &"etcd-0".into());
    assert_eq!(unread.as_deref(), Some("etcd"), "until the map was read");
    let in_pod = told("/data/etcd", Some("/tmp/log"));
    assert_eq!(places(&by_map, &in_pod).0, DataOn::Pod);
    let beside = told("/data/etcd", Some("/data/log"));
    let on_claim = (claims, Some("etcd log".to_owned()));
    assert_eq!(places(&by_map, &beside), on_claim);

    // A record of another template, or of objects that the template does not refer to any more.
    let stated = (on_claim.0, Some("etcd".to_owned()));
    assert_eq!(places(&by_map, &told("/tmp/old", None)), stated);
    assert_eq!(places(&spec(json!([])), &in_pod), stated);
}

/// The object may name the directory of the log.
#[tokio::test]
async fn an_object_that_cannot_be_read_tells_no_directories() {
    let api = FakeApi::default();
    let (clock, _) = Clock::frozen(Timestamp::UNIX_EPOCH);
    let observer = api.observer(&clock, Duration::from_secs(120));
    let from = json!([{"configMapRef": {"name": "settings"}}]);
    let envs = json!({"containers": [{
        "name": "etcd", "command": ["etcd", "--data-dir=/data/etcd"], "envFrom": from,
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }]});
    let spec = spec(&[], claim("c"), &envs);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "db"}, "data": {"ETCD_WAL_DIR": "/tmp/log"}});
    api.put("/api/v1/namespaces/db/configmaps/settings", map);
    let told = async || observer.told_in("db", &spec, None).await.directories;
    let found = told().await.unwrap();
    assert_eq!(
        (found.data.as_str(), found.wal.as_deref()),
        ("/data/etcd", Some("/tmp/log"))
    );
    api.forbid("configmaps");
    assert_eq!(told().await, None);
}

#[test]
fn a_pod_is_bound_to_a_node_by_its_own_words_and_by_the_gates() {
    let is_bound = |change: Value| match on(&spec(DATA, host(), &change)) {
        DataOn::Node { bound, .. } => bound,
        other => panic!("{other:?}"),
    };
    let expression = |key: &str, values: Value| {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}],
        }}}})
    };
    assert!(is_bound(json!({"nodeSelector": {HOSTNAME: "n1"}})));
    assert!(is_bound(expression(HOSTNAME, json!(["n1"]))));
    assert!(!is_bound(expression(HOSTNAME, json!(["n1", "n2"]))));
    assert!(!is_bound(expression("zone", json!(["a"]))));
    assert!(!is_bound(
        json!({"nodeSelector": {"zone": "a"}, "nodeName": "n1"})
    ));

    for before in [
        json!({}),
        expression("zone", json!(["a"])),
        expression(HOSTNAME, json!(["n1", "n2"])),
    ] {
        let mut pod = spec(DATA, host(), &before);
        assert_eq!(bound_node(&pod), None);
        pod.affinity = Some(bound_to(&pod, "n1"));
        assert_eq!(bound_node(&pod), Some("n1"), "{before}");
        let after = serde_json::to_value(&pod).unwrap();
        assert!(is_bound(after), "{before}");
    }
}
