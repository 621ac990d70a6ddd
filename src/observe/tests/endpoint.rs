use std::sync::Arc;

use serde_json::{Value, json};

use super::pod;
use crate::api::{MemberStatus, MembersSpec, PortSource, Scheme, Way};
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
        way: &WAY,
        tls: None,
    }
}

/// A way by etcd's own settings.
static WAY: Way = Way {
    scheme: Scheme::Http,
    port: 2379,
    port_from: PortSource::ClientUrl,
    container: None,
    authority: None,
    identity: None,
    server_names: Vec::new(),
    source: String::new(),
};

fn endpoint(change: &Value, members: &MembersSpec) -> Option<Endpoint> {
    of_pod(&pod(change), &shared(members))
}

#[test]
fn a_member_is_asked_at_its_pods_address_by_its_dns_name() {
    let endpoint = endpoint(&json!({}), &MembersSpec::default()).unwrap();
    assert_eq!(endpoint.target, Target::Pod("u0".into()));
    assert_eq!(endpoint.address, "10.0.0.0:2379");
    assert_eq!(endpoint.server_names[0], "etcd-0.etcd-peer.db.svc");
}

#[test]
fn a_pod_whose_settings_name_another_port_is_asked_there() {
    let port_of = |etcd: Value, way: &Way| {
        let mut whole = json!({"name": "etcd"});
        json_patch::merge(&mut whole, &etcd);
        let pod = pod(&json!({"spec": {"containers": [whole]}}));
        let members = MembersSpec::default();
        let shared = SharedSettings {
            way,
            ..shared(&members)
        };
        of_pod(&pod, &shared).unwrap().address
    };
    let listens = |urls: &str| json!({"args": [format!("--listen-client-urls={urls}")]});
    for (etcd, address) in [
        (
            listens("http://127.0.0.1:2379,http://0.0.0.0:5001"),
            "10.0.0.0:5001",
        ),
        (
            json!({"env": [{"name": "ETCD_LISTEN_CLIENT_URLS", "value": "http://[::]:5001/"}]}),
            "10.0.0.0:5001",
        ),
        (
            listens("http://0.0.0.0:5001,http://0.0.0.0:2379"),
            "10.0.0.0:2379",
        ),
        (listens("https://0.0.0.0:5001"), "10.0.0.0:2379"),
        (
            listens("unix://localhost:m1,http://$(HOST):$(PORT)"),
            "10.0.0.0:2379",
        ),
        (
            json!({"args": ["--config-file=/etcd.yaml", "--listen-client-urls=http://0.0.0.0:5001"]}),
            "10.0.0.0:2379",
        ),
    ] {
        assert_eq!(port_of(etcd.clone(), &WAY), address, "{etcd}");
    }
    let budget = Way {
        port_from: PortSource::Budget,
        ..WAY.clone()
    };
    assert_eq!(
        port_of(listens("http://0.0.0.0:5001"), &budget),
        "10.0.0.0:2379"
    );
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
fn a_member_may_have_the_names_of_its_pod_its_services_and_its_urls() {
    let plain = pod(&json!({"spec": {"subdomain": null}}));
    let members = MembersSpec {
        server_name: Some("{pod}.{service}.{namespace}.example.org".into()),
        ..MembersSpec::default()
    };
    let way = Way {
        server_names: [
            "etcd-client.{namespace}.svc",
            "{pod}.other.db.svc.k8s.example",
            "etcd.example.org",
            "x.db.svc-other",
        ]
        .map(str::to_owned)
        .to_vec(),
        ..WAY.clone()
    };
    let shared = SharedSettings {
        way: &way,
        ..shared(&members)
    };
    let names = of_pod(&plain, &shared).unwrap().server_names;
    let expected = [
        "etcd-0.governing.db.example.org",
        "etcd-0.governing.db.svc",
        "etcd-0.governing.db",
        "etcd-0.governing",
        "etcd-0",
        "governing.db.svc",
        "governing.db",
        "governing",
        "etcd-client.db.svc",
        "etcd-client.db",
        "etcd-client",
        "etcd-0.other.db.svc",
        "etcd-0.other.db",
        "etcd-0.other",
        "etcd.example.org",
        "x.db.svc-other",
    ];
    assert_eq!(names, expected);
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
    assert_eq!(asked.server_names, ["far.example"]);
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
    assert_eq!(asked.server_names, ["etcd.internal", "far.example"]);
    // Nobody knows the pod of a voter elsewhere.
    let of_pods = MembersSpec {
        server_name: Some("{pod}.etcd.internal".into()),
        ..MembersSpec::default()
    };
    let asked = of_external(
        &member,
        &SharedSettings {
            tls: Some(trust()),
            ..shared(&of_pods)
        },
    )
    .unwrap();
    assert_eq!(asked.server_names, ["far.example"]);
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
