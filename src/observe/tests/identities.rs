use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde_json::json;
use tokio::time::Instant;

use crate::api::{AuthoritySource, MembersSpec, SourceKind};
use crate::fake_api::FakeApi;
use crate::observe::contents::Contents;
use crate::observe::identities::{Identities, authorities};
use crate::observe::ways::credentials::{Credentials, credentials};

/// Needs the user in this Secret, and nothing else.
fn of_user(secret: &str) -> Credentials {
    let members = json!({"auth": {"secret": {"name": secret}}});
    let members: MembersSpec = serde_json::from_value(members).unwrap();
    let way = json!({"scheme": "http", "port": 2379, "portFrom": "Default", "source": ""});
    credentials(&serde_json::from_value(way).unwrap(), &members).unwrap()
}

fn authority() -> String {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().pem()
}

#[test]
fn the_authority_is_under_its_key_or_is_every_certificate_that_may_sign() {
    let leaf = rcgen::generate_simple_self_signed(["etcd".to_owned()]).unwrap();
    let (one, leaf) = (authority(), leaf.cert.pem());
    let data = json!({"roots.pem": one, "leaf.pem": leaf, "note": "none"});
    let mut contents = Contents::default();
    let map = json!({"data": data});
    contents.add_config_map("m", serde_json::from_value(map).unwrap());
    let read = |key: Option<&str>| {
        let source = AuthoritySource {
            kind: SourceKind::ConfigMap,
            name: "m".to_owned(),
            key: key.map(str::to_owned),
        };
        let found = authorities(&source, &contents)?;
        Ok::<_, String>(found.concat())
    };
    assert_eq!(read(None), Ok(one.into_bytes()));
    assert_eq!(read(Some("leaf.pem")), Ok(leaf.into_bytes()));
    let missing = "ConfigMap m has no key ca.crt".to_owned();
    assert_eq!(read(Some("ca.crt")), Err(missing));
}

#[tokio::test]
async fn an_identity_that_nobody_uses_any_more_is_dropped() {
    let api = FakeApi::default();
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
async fn secrets_are_read_again_after_ten_seconds_and_until_all_members_have_answered() {
    let api = FakeApi::default();
    let secrets = of_user("user");
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
    // A look that began before a renewal ends after it: what it read is not kept.
    let outdated = read(at(0)).await.unwrap();
    put("YQ==");
    let first = read(at(0)).await.unwrap();
    assert!(!Arc::ptr_eq(&outdated, &first), "the renewal was not seen");

    identities.note_answers("db", true);
    put("Yw==");
    assert!(Arc::ptr_eq(&first, &read(at(9)).await.unwrap()));
    let second = read(at(10)).await.unwrap();
    assert!(!Arc::ptr_eq(&first, &second), "it has another password");

    identities.note_answers("db", true);
    put("ZA==");
    identities.note_answers("web", false);
    assert!(Arc::ptr_eq(&second, &read(at(11)).await.unwrap()));
    identities.note_answers("db", false);
    let third = read(at(11)).await.unwrap();
    assert!(!Arc::ptr_eq(&second, &third));

    identities.note_answers("db", true);
    api.remove("/api/v1/namespaces/db/secrets/user");
    assert!(Arc::ptr_eq(&third, &read(at(20)).await.unwrap()));
    let gone = read(at(21)).await.unwrap_err();
    assert_eq!(gone, "Secret user does not exist");
}
