//! The rows of etcd-druid's protection of components that have in-process tests.

use quorumgate::quorum::Actor;
use serde_json::{Value, json};

use crate::admission::door::{Door, fixture, with};
use crate::manifests::documents;

fn words(list: &Value) -> Vec<&str> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect()
}

#[test]
fn d1_d2_nobody_is_asked_about_connections_leases_or_creations() {
    let configurations = documents("manifests/base/webhooks.yaml");
    let mut rules = 0;
    for configuration in &configurations {
        let validates = configuration["kind"] == "ValidatingWebhookConfiguration";
        let hooks = configuration["webhooks"].as_array().unwrap();
        for rule in hooks
            .iter()
            .flat_map(|hook| hook["rules"].as_array().unwrap())
        {
            rules += 1;
            let resources = words(&rule["resources"]);
            for operation in words(&rule["operations"]) {
                assert_ne!(operation, "CONNECT", "{rule}");
                assert_ne!(operation, "*", "{rule}");
                if validates && operation == "CREATE" {
                    assert_eq!(resources, ["pods/eviction"], "{rule}");
                }
            }
            for resource in resources {
                let of = resource.split('/').next().unwrap();
                let guarded = [
                    "pods",
                    "statefulsets",
                    "persistentvolumeclaims",
                    "persistentvolumes",
                ];
                assert!(guarded.contains(&of), "{resource} in {rule}");
            }
        }
    }
    assert!(rules >= 7, "{rules} rules");
}

#[tokio::test]
async fn d6_an_operator_or_an_administrator_is_a_stranger() {
    let door = Door::open();
    for (user, group) in [
        (
            "system:serviceaccount:garden:etcd-druid",
            "system:serviceaccounts",
        ),
        (
            "system:serviceaccount:kube-system:statefulset-controller",
            "system:serviceaccounts",
        ),
        (
            "system:serviceaccount:kube-system:generic-garbage-collector",
            "system:serviceaccounts",
        ),
        ("kubernetes-admin", "system:masters"),
    ] {
        let asker = json!({"username": user, "groups": [group, "system:authenticated"]});
        for (path, review) in [
            ("/validate/pods", "pod-delete"),
            ("/validate/evictions", "eviction"),
        ] {
            door.post(
                path,
                &with(fixture(review), "/request/userInfo", asker.clone()),
            )
            .await;
            let question = door.questions().pop().unwrap();
            assert_eq!(question.asker.actor, Actor::Stranger, "{user}");
        }
    }
}
