use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::pod;
use crate::api::MembersSpec;
use crate::fake_api::FakeApi;
use crate::observe::Transport;
use crate::observe::access::{Access, CaRef, ClientRef, TlsSecrets, access};
use crate::observe::mounts::SecretKey;
use crate::observe::secrets::{Identities, authority};

fn asked(members: &Value, spec: &Value) -> Access {
    let members: MembersSpec = serde_json::from_value(members.clone()).unwrap();
    let pod = pod(&json!({"spec": spec}));
    access(&members, pod.spec.as_ref())
}

fn of_pod(spec: &Value) -> Access {
    asked(&json!({}), spec)
}

fn of_volumes(volumes: &Value, containers: &Value) -> Option<TlsSecrets> {
    of_pod(&json!({"volumes": volumes, "containers": containers})).secrets
}

fn key(secret: &str, key: &str) -> SecretKey {
    let (secret, key) = (secret.to_owned(), key.to_owned());
    SecretKey { secret, key }
}

fn pair(secret: &str) -> ClientRef {
    ClientRef {
        certificate: key(secret, "tls.crt"),
        key: key(secret, "tls.key"),
    }
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
    let ca = found.ca.unwrap();
    assert_eq!(ca.secret, "ca-etcd");
    assert_eq!(ca.keys, ["ca.crt", "bundle.crt"]);
    assert_eq!(found.client, Some(pair("etcd-client")));
}

#[test]
fn the_key_of_the_authority_is_the_file_that_a_container_is_told_to_use() {
    let containers = json!([{
        "name": "etcd",
        "args": ["start-etcd", "--etcd-ca=/var/etcd/ssl/ca/our-ca.pem", "--cert=/var/etcd/ssl/client/tls.crt"],
        "volumeMounts": [{"name": "etcd-ca", "mountPath": "/var/etcd/ssl/ca/"}],
    }]);
    let found = of_volumes(&druid_volumes(), &containers).unwrap();
    assert_eq!(
        found.ca.unwrap().keys,
        ["our-ca.pem", "ca.crt", "bundle.crt"]
    );
}

#[test]
fn without_a_volume_or_a_setting_for_it_there_is_no_tls() {
    let config_map = json!([{"name": "etcd-ca", "configMap": {"name": "ca"}}]);
    for volumes in [json!([]), config_map] {
        let spec = json!({"volumes": volumes, "containers": [{"name": "etcd"}]});
        let found = of_pod(&spec);
        assert_eq!(found.transport, Transport::Plaintext);
        assert_eq!(found.secrets, None);
        assert!(found.told.contains("no --cert-file"), "{}", found.told);
    }
}

#[test]
fn members_that_are_told_to_serve_in_plaintext_are_asked_so_whatever_volumes_there_are() {
    let args = ["--listen-client-urls=http://0.0.0.0:2379,http://[::]:2379"];
    let containers = json!([{"name": "etcd", "args": args}]);
    let found = of_pod(&json!({"volumes": druid_volumes(), "containers": containers}));
    assert_eq!(found.transport, Transport::Plaintext);
    assert!(found.told.contains(args[0]), "{}", found.told);
}

/// A pod with certificates at `/pki/…`, each in a Secret of its own.
fn pki(container: &Value, client_volume: bool) -> Value {
    let mut volumes = vec![
        json!({"name": "a", "secret": {"secretName": "authority", "items": [{"key": "root.pem", "path": "ca.pem"}]}}),
        json!({"name": "b", "projected": {"sources": [{"secret": {"name": "serving"}}]}}),
    ];
    if client_volume {
        volumes.push(json!({"name": "c", "secret": {"secretName": "our-clients"}}));
    }
    let mut etcd = json!({"name": "etcd", "volumeMounts": [
        {"name": "a", "mountPath": "/pki/ca"}, {"name": "b", "mountPath": "/pki/server"},
    ]});
    json_patch::merge(&mut etcd, container);
    json!({"volumes": volumes, "containers": [{"name": "sidecar"}, etcd]})
}

const FILES: [(&str, &str); 3] = [
    ("trusted-ca-file", "/pki/ca/ca.pem"),
    ("cert-file", "/pki/server/tls.crt"),
    ("key-file", "/pki/server/tls.key"),
];

#[test]
fn flags_and_variables_lead_through_their_mounts_to_the_secrets() {
    let flags: Vec<String> = FILES.iter().map(|(f, p)| format!("--{f}={p}")).collect();
    let apart: Vec<String> = FILES
        .iter()
        .flat_map(|(f, p)| [format!("--{f}"), (*p).to_owned()])
        .collect();
    let variables = FILES.map(|(flag, path)| {
        let name = format!("ETCD_{}", flag.to_uppercase().replace('-', "_"));
        json!({"name": name, "value": path})
    });
    for container in [
        json!({"args": flags}),
        json!({"args": apart}),
        json!({"env": variables}),
    ] {
        let found = of_pod(&pki(&container, false));
        assert_eq!(found.transport, Transport::Tls, "{}", found.told);
        let secrets = found.secrets.unwrap();
        assert_eq!(
            secrets.ca,
            Some(CaRef {
                secret: "authority".into(),
                keys: vec!["root.pem".into()],
            })
        );
        assert_eq!(secrets.also, Some(key("serving", "ca.crt")));
        assert_eq!(secrets.client, Some(pair("serving")));
        for part in ["root.pem of Secret authority", "tls.crt of Secret serving"] {
            assert!(found.told.contains(part), "{}", found.told);
        }
        let with_clients = of_pod(&pki(&container, true)).secrets.unwrap();
        assert_eq!(with_clients.client, Some(pair("our-clients")));
    }
}

#[test]
fn the_certificate_for_etcdctl_comes_before_any_guess() {
    let mut env = vec![
        json!({"name": "ETCDCTL_CERT", "value": "/pki/me/one.crt"}),
        json!({"name": "ETCDCTL_KEY", "value": "/pki/me/one.key"}),
    ];
    env.extend(FILES.map(|(flag, path)| {
        let name = format!("ETCD_{}", flag.to_uppercase().replace('-', "_"));
        json!({"name": name, "value": path})
    }));
    let mut spec = pki(&json!({"env": env}), true);
    let mount = json!({"name": "c", "mountPath": "/pki/me"});
    let mounts = spec["containers"][1]["volumeMounts"].as_array_mut();
    mounts.unwrap().push(mount);
    let client = of_pod(&spec).secrets.unwrap().client.unwrap();
    assert_eq!(client.certificate, key("our-clients", "one.crt"));
    assert_eq!(client.key, key("our-clients", "one.key"));
}

#[test]
fn without_an_authority_for_clients_none_is_shown_and_that_beside_the_certificate_is_trusted() {
    let args =
        json!({"args": ["--cert-file=/pki/server/tls.crt", "--key-file=/pki/server/tls.key"]});
    let secrets = of_pod(&pki(&args, true)).secrets.unwrap();
    let ca = secrets.ca.unwrap();
    assert_eq!((ca.secret.as_str(), ca.keys.len()), ("serving", 1));
    assert_eq!((secrets.also, secrets.client), (None, None));
}

#[test]
fn tls_without_its_secrets_asks_nobody_and_names_what_was_tried() {
    for (container, words) in [
        (
            json!({"args": ["--cert-file=/elsewhere/tls.crt"]}),
            "--cert-file=/elsewhere/tls.crt",
        ),
        (
            json!({"args": ["--cert-file=/pki/server/tls.crt", "--trusted-ca-file=/pki/ca/other.pem"]}),
            "--trusted-ca-file=/pki/ca/other.pem",
        ),
        (
            json!({"args": ["--cert-file=/pki/server/tls.crt", "--client-cert-auth"]}),
            "--key-file",
        ),
        (
            json!({"args": ["--listen-client-urls=https://0.0.0.0:2379"]}),
            "--listen-client-urls=https://0.0.0.0:2379",
        ),
    ] {
        let found = of_pod(&pki(&container, false));
        assert_eq!(found.transport, Transport::Missing, "{container}");
        let problem = found.secrets.unwrap().problem.unwrap();
        for part in [words, "spec.members.tls"] {
            assert!(problem.contains(part), "{problem}");
        }
    }
}

#[test]
fn a_configuration_file_is_named_because_it_is_not_read() {
    let args = json!({"args": ["--config-file=/etc/etcd.yaml", "--cert-file=/pki/server/tls.crt"]});
    let found = of_pod(&pki(&args, false));
    assert_eq!(found.transport, Transport::Plaintext);
    assert!(
        found.told.contains("--config-file=/etc/etcd.yaml"),
        "{}",
        found.told
    );
}

#[test]
fn secrets_in_the_budget_come_before_the_volumes() {
    let named = json!({
        "tls": {"caSecret": {"name": "mine", "key": "root.pem"}, "clientSecret": {"name": "me", "certKey": "c", "keyKey": "k"}},
        "auth": {"secret": {"name": "user", "passwordKey": "p"}},
    });
    let found = asked(&named, &json!({"volumes": druid_volumes()}));
    let found = found.secrets.unwrap();
    assert_eq!(
        found.ca,
        Some(CaRef {
            secret: "mine".into(),
            keys: vec!["root.pem".into()]
        })
    );
    let client = found.client.unwrap();
    assert_eq!(
        (client.certificate, client.key),
        (key("me", "c"), key("me", "k"))
    );
    let user = found.user.unwrap();
    assert_eq!(
        (user.name, user.password),
        (key("user", "username"), key("user", "p"))
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

#[tokio::test]
async fn an_identity_that_nobody_uses_any_more_is_dropped() {
    let api = FakeApi::default();
    let of_user = |secret: &str| {
        let members = json!({"auth": {"secret": {"name": secret}}});
        asked(&members, &json!({"containers": [{"name": "etcd"}]}))
            .secrets
            .unwrap()
    };
    for name in ["one", "two"] {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "db"},
            "data": {"username": "YQ==", "password": "Yg=="},
        });
        api.put(&format!("/api/v1/namespaces/db/secrets/{name}"), secret);
    }
    let identities = Identities::new(api.client());
    let (one, two) = (of_user("one"), of_user("two"));
    let now = Instant::now();
    let first = identities.read("db", &one, now).await.unwrap();
    let later = now + Duration::from_secs(60);
    let again = identities.read("db", &one, later).await.unwrap();
    assert!(Arc::ptr_eq(&first, &again), "it was parsed twice");
    drop((first, again));
    let _two = identities.read("db", &two, now).await.unwrap();
    assert_eq!(identities.count(), 1);
}

#[tokio::test]
async fn secrets_are_read_again_after_ten_seconds_and_at_once_in_doubt() {
    let api = FakeApi::default();
    let members = json!({"auth": {"secret": {"name": "user"}}});
    let secrets = asked(&members, &json!({"containers": [{"name": "etcd"}]}));
    let secrets = secrets.secrets.unwrap();
    let put = |password: &str| {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "user", "namespace": "db"},
            "data": {"username": "YQ==", "password": password},
        });
        api.put("/api/v1/namespaces/db/secrets/user", secret);
    };
    put("Yg==");
    let identities = Identities::new(api.client());
    let begun = Instant::now();
    let at = |seconds| begun + Duration::from_secs(seconds);
    let read = |now| identities.read("db", &secrets, now);
    let first = read(at(0)).await.unwrap();
    put("Yw==");
    assert!(Arc::ptr_eq(&first, &read(at(9)).await.unwrap()));
    let second = read(at(10)).await.unwrap();
    assert!(!Arc::ptr_eq(&first, &second), "it has another password");

    put("ZA==");
    identities.doubt("web", at(11));
    assert!(Arc::ptr_eq(&second, &read(at(11)).await.unwrap()));
    identities.doubt("db", at(11));
    let third = read(at(11)).await.unwrap();
    assert!(!Arc::ptr_eq(&second, &third));

    api.remove("/api/v1/namespaces/db/secrets/user");
    assert!(Arc::ptr_eq(&third, &read(at(20)).await.unwrap()));
    let gone = read(at(21)).await.unwrap_err();
    assert_eq!(gone, "Secret user does not exist");
}
