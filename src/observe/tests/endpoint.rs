use std::sync::Arc;

use serde_json::{Value, json};

use super::pod;
use crate::api::{MemberStatus, MembersSpec};
use crate::etcd::Endpoint;
use crate::etcd::TlsIdentity;
use crate::observe::endpoints::{SharedSettings, of_external, of_pod, same};
use crate::quorum::MemberId;
use crate::quorum::evidence::Target;

/// A trusted authority, without a client certificate.
fn trust() -> Arc<TlsIdentity> {
    let authority = rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap();
    let pem = authority.cert.pem();
    Arc::new(TlsIdentity::parse(&[pem.as_bytes()], None).unwrap())
}

fn shared(members: &MembersSpec) -> SharedSettings<'_> {
    SharedSettings {
        namespace: "db",
        service: Some("governing"),
        members,
        tls: None,
    }
}

fn endpoint(change: &Value, members: &MembersSpec) -> Option<Endpoint> {
    of_pod(&pod(change), &shared(members))
}

#[test]
fn a_member_is_asked_at_its_pods_address_by_its_dns_name() {
    let endpoint = endpoint(&json!({}), &MembersSpec::default()).unwrap();
    assert_eq!(endpoint.target, Target::Pod("u0".into()));
    assert_eq!(endpoint.address, "10.0.0.0:2379");
    assert_eq!(
        endpoint.server_name.as_deref(),
        Some("etcd-0.etcd-peer.db.svc")
    );
}

#[test]
fn the_port_is_the_budgets_or_the_one_named_client() {
    let named = json!({"spec": {"containers": [{"name": "etcd", "ports": [
        {"name": "peer", "containerPort": 2380}, {"name": "client", "containerPort": 4001},
    ]}]}});
    let defaults = MembersSpec::default();
    assert_eq!(
        endpoint(&named, &defaults).unwrap().address,
        "10.0.0.0:4001"
    );
    let chosen = MembersSpec {
        client_port: Some(9999),
        ..defaults
    };
    assert_eq!(endpoint(&named, &chosen).unwrap().address, "10.0.0.0:9999");
}

#[test]
fn the_port_that_etcd_is_told_to_listen_on_comes_before_a_name() {
    let told = |told: Value| {
        let mut etcd =
            json!({"name": "etcd", "ports": [{"name": "client", "containerPort": 4001}]});
        json_patch::merge(&mut etcd, &told);
        let pod = json!({"spec": {"containers": [etcd]}});
        endpoint(&pod, &MembersSpec::default()).unwrap().address
    };
    for listens in [
        json!({"args": ["--listen-client-urls=http://127.0.0.1:2379,http://0.0.0.0:5001"]}),
        json!({"env": [{"name": "ETCD_LISTEN_CLIENT_URLS", "value": "https://[::]:5001/"}]}),
    ] {
        assert_eq!(told(listens), "10.0.0.0:5001");
    }
    for says_nothing in [
        json!({"args": ["--listen-client-urls=unix://localhost:m1,http://$(HOST):$(PORT)"]}),
        json!({"args": ["--config-file=/etcd.yaml", "--listen-client-urls=http://0.0.0.0:5001"]}),
    ] {
        assert_eq!(told(says_nothing), "10.0.0.0:4001");
    }
}

#[test]
fn an_address_of_six_bytes_and_more_stands_in_brackets() {
    let v6 = json!({"status": {"podIP": "fd00::1"}});
    assert_eq!(
        endpoint(&v6, &MembersSpec::default()).unwrap().address,
        "[fd00::1]:2379"
    );
}

#[test]
fn a_pod_without_address_cannot_be_asked() {
    for ip in [Value::Null, json!("")] {
        assert!(endpoint(&json!({"status": {"podIP": ip}}), &MembersSpec::default()).is_none());
    }
}

#[test]
fn the_server_name_is_the_budgets_or_of_the_governing_service() {
    let defaults = MembersSpec::default();
    let plain = json!({"spec": {"subdomain": null}});
    let name = endpoint(&plain, &defaults).unwrap().server_name;
    assert_eq!(name.as_deref(), Some("etcd-0.governing.db.svc"));
    let chosen = MembersSpec {
        server_name: Some("etcd.local".into()),
        ..defaults
    };
    assert_eq!(
        endpoint(&plain, &chosen).unwrap().server_name.as_deref(),
        Some("etcd.local")
    );
}

#[test]
fn a_voter_without_a_pod_is_asked_at_its_client_url() {
    let member = |url: &str| -> MemberStatus {
        serde_json::from_value(json!({
            "name": "far", "memberID": "f1", "role": "Voter", "serving": false, "clientURLs": [url],
        }))
        .unwrap()
    };
    let defaults = MembersSpec::default();
    let asked = of_external(&member("http://far.example:2379/"), &shared(&defaults)).unwrap();
    assert_eq!(asked.target, Target::External(MemberId(0xf1)));
    assert_eq!(asked.address, "far.example:2379");
    for bad in [
        "https://needs-tls:2379",
        "unix:///etcd.sock",
        "far:2379",
        "http://",
    ] {
        assert!(
            of_external(&member(bad), &shared(&defaults)).is_none(),
            "{bad}"
        );
    }
}

#[test]
fn a_voter_elsewhere_is_asked_under_the_name_that_its_url_says() {
    let member: MemberStatus = serde_json::from_value(json!({
        "name": "far", "memberID": "f1", "role": "Voter", "serving": false, "clientURLs": ["https://far.example"],
    }))
    .unwrap();
    let (defaults, tls) = (MembersSpec::default(), Some(trust()));
    let asked = of_external(
        &member,
        &SharedSettings {
            tls,
            ..shared(&defaults)
        },
    )
    .unwrap();
    assert_eq!(asked.address, "far.example:2379");
    assert_eq!(asked.server_name.as_deref(), Some("far.example"));
    let named = MembersSpec {
        server_name: Some("etcd.internal".into()),
        ..MembersSpec::default()
    };
    let asked = of_external(
        &member,
        &SharedSettings {
            tls: Some(trust()),
            ..shared(&named)
        },
    )
    .unwrap();
    assert_eq!(asked.server_name.as_deref(), Some("etcd.internal"));
}

#[test]
fn answers_count_only_for_the_same_pods_at_the_same_addresses() {
    let defaults = MembersSpec::default();
    let one = endpoint(&json!({}), &defaults).unwrap();
    assert!(same(std::slice::from_ref(&one), std::slice::from_ref(&one)));
    assert!(!same(std::slice::from_ref(&one), &[]));
    let recreated = endpoint(&json!({"metadata": {"uid": "u9"}}), &defaults).unwrap();
    assert!(!same(std::slice::from_ref(&one), &[recreated]));
    let moved = endpoint(&json!({"status": {"podIP": "10.0.0.9"}}), &defaults).unwrap();
    assert!(!same(&[one], &[moved]));
}
