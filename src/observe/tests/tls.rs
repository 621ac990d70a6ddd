use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};

use super::pod;
use crate::api::TlsSpec;
use crate::observe::secrets::authority;
use crate::observe::volumes::{CaRef, ClientRef, TlsSecrets, tls_secrets};

fn of_volumes(volumes: &Value, containers: &Value) -> Option<TlsSecrets> {
    let pod = pod(&json!({"spec": {"volumes": volumes, "containers": containers}}));
    tls_secrets(None, pod.spec.as_ref())
}

fn druid_volumes() -> Value {
    json!([
        {"name": "etcd-ca", "secret": {"secretName": "ca-etcd"}},
        {"name": "etcd-client-tls", "secret": {"secretName": "etcd-client"}},
        {"name": "etcd-server-tls", "secret": {"secretName": "etcd-server"}},
    ])
}

#[test]
fn druids_volumes_name_the_secrets() {
    let found = of_volumes(&druid_volumes(), &json!([{"name": "etcd"}])).unwrap();
    assert_eq!(found.ca.secret, "ca-etcd");
    assert_eq!(found.ca.keys, ["ca.crt", "bundle.crt"]);
    assert_eq!(
        found.client,
        Some(ClientRef {
            secret: "etcd-client".into(),
            certificate: "tls.crt".into(),
            key: "tls.key".into()
        }),
    );
}

#[test]
fn the_key_of_the_authority_is_the_file_that_a_container_is_told_to_use() {
    let containers = json!([{
        "name": "etcd",
        "args": ["start-etcd", "--etcd-ca=/var/etcd/ssl/ca/our-ca.pem", "--cert=/var/etcd/ssl/client/tls.crt"],
        "volumeMounts": [{"name": "etcd-ca", "mountPath": "/var/etcd/ssl/ca/"}],
    }]);
    let found = of_volumes(&druid_volumes(), &containers).unwrap();
    assert_eq!(found.ca.keys, ["our-ca.pem", "ca.crt", "bundle.crt"]);
}

#[test]
fn without_a_volume_for_the_authority_there_is_no_tls() {
    assert_eq!(of_volumes(&json!([]), &json!([{"name": "etcd"}])), None);
    let config_map = json!([{"name": "etcd-ca", "configMap": {"name": "ca"}}]);
    assert_eq!(of_volumes(&config_map, &json!([{"name": "etcd"}])), None);
}

#[test]
fn what_the_budget_names_comes_before_the_volumes() {
    let named: TlsSpec = serde_json::from_value(json!({
        "caSecret": {"name": "mine", "key": "root.pem"}, "clientSecret": {"name": "me", "certKey": "c", "keyKey": "k"},
    }))
    .unwrap();
    let pod = pod(&json!({"spec": {"volumes": druid_volumes()}}));
    let found = tls_secrets(Some(&named), pod.spec.as_ref()).unwrap();
    assert_eq!(
        found.ca,
        CaRef {
            secret: "mine".into(),
            keys: vec!["root.pem".into()]
        }
    );
    assert_eq!(
        found.client,
        Some(ClientRef {
            secret: "me".into(),
            certificate: "c".into(),
            key: "k".into()
        }),
    );
}

#[test]
fn the_authority_is_under_a_likely_key_or_the_only_one() {
    let ca = CaRef {
        secret: "s".into(),
        keys: vec!["ca.crt".into(), "bundle.crt".into()],
    };
    let secret = |data: Value| serde_json::from_value::<Secret>(json!({"data": data})).unwrap();
    let read = |data: Value| authority(&ca, &secret(data)).map(<[u8]>::to_vec);
    assert_eq!(
        read(json!({"bundle.crt": "Yg==", "ca.crt": "YQ=="})),
        Ok(b"a".to_vec())
    );
    assert_eq!(
        read(json!({"bundle.crt": "Yg==", "ca.key": "YQ=="})),
        Ok(b"b".to_vec())
    );
    assert_eq!(read(json!({"odd": "Yw=="})), Ok(b"c".to_vec()));
    assert_eq!(
        read(json!({"odd": "Yw==", "other": "Yw=="})),
        Err("Secret s has no key ca.crt or bundle.crt".into()),
    );
}
