use std::time::Duration;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use super::*;
use quorumgate_core::quorum::{ClusterRef, EvidenceMode, Policy, SmallCluster};

fn spec(value: serde_json::Value) -> QuorumDisruptionBudgetSpec {
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_spec_that_says_nothing_means_the_defaults() {
    let spec = spec(json!({}));
    assert_eq!(spec.policy().unwrap(), Policy::default());
    assert_eq!(spec.rollout().unwrap().max_unavailable, Amount::Members(1));
    assert_eq!(spec.members.probe_timeout().unwrap(), None);
}

#[test]
fn a_budget_of_defaults_is_written_short() {
    let budget = QuorumDisruptionBudget::with_defaults(&ClusterRef::new("ns", "etcd-main"));
    assert_eq!(
        serde_json::to_value(&budget).unwrap(),
        json!({
            "apiVersion": "quorumgate.io/v1alpha1",
            "kind": "QuorumDisruptionBudget",
            "metadata": {"name": "etcd-main", "namespace": "ns"},
            "spec": {"enforcement": "Enforce"},
        }),
    );
}

#[test]
fn choices_become_policy() {
    let policy = spec(json!({
        "statefulSetName": "e",
        "members": {"evidence": "Readiness", "probeTimeout": "1.5s"},
        "rollout": {"progressDeadline": "1h30m", "quorumLossGracePeriod": "7s"},
        "policy": {"singleMember": "Never", "twoMembers": "Allow", "scaleOutGrace": "0s", "maxLag": 10},
    }))
    .policy()
    .unwrap();
    assert_eq!(
        policy,
        Policy {
            evidence: EvidenceMode::Readiness,
            single_member: SmallCluster::Never,
            two_members: SmallCluster::Allow,
            scale_out_grace: Duration::ZERO,
            quorum_loss_grace: Duration::from_secs(7),
            progress_deadline: Duration::from_secs(5400),
            lag_bound: 10,
        }
    );
}

#[test]
fn durations_are_read_like_go_reads_them() {
    for (text, milliseconds) in [
        ("400ms", 400),
        ("1.5s", 1500),
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        ("1m0.25s", 60_250),
        ("0s", 0),
    ] {
        let read = duration::parse(text).map(|d| d.as_millis());
        assert_eq!(read, Some(milliseconds), "{text}");
    }
    for bad in [
        "", "5", "s", "-1s", "1.s", ".5s", "1 s", "1d", "1s ", "1e3s", "1h-3m", "ms5",
    ] {
        assert_eq!(duration::parse(bad), None, "{bad:?}");
    }
}

#[test]
fn a_bad_field_is_named_with_what_would_be_right() {
    let spec = spec(json!({"statefulSetName": "e", "rollout": {"progressDeadline": "soon"}}));
    assert_eq!(
        spec.policy().unwrap_err().to_string(),
        "spec.rollout.progressDeadline: \"soon\" is not a duration like 500ms, 90s or 1h30m, from 10s to 24h",
    );
}

#[test]
fn an_amount_is_a_number_from_1_or_a_share_of_a_hundred() {
    let read = |value: IntOrString| Amount::read("spec.maxUnavailable", Some(&value));
    assert_eq!(read(IntOrString::Int(2)), Ok(Some(Amount::Members(2))));
    let share = |text: &str| read(IntOrString::String(text.into()));
    assert_eq!(share("34%"), Ok(Some(Amount::Percent(34))));
    for bad in ["0%", "101%", "+5%", "five", "5", "%", ""] {
        assert!(share(bad).is_err(), "{bad:?}");
    }
    assert!(read(IntOrString::Int(0)).is_err());
    assert!(read(IntOrString::Int(-1)).is_err());
}

#[test]
fn the_definition_is_the_same_each_time_and_says_what_it_refuses() {
    let yaml = crds_yaml().unwrap();
    assert_eq!(yaml, crds_yaml().unwrap());
    for expected in [
        "self.metadata.name == self.spec.statefulSetName",
        "spec.members.probeTimeout must be a duration",
        "- qdb",
        "x-kubernetes-list-map-keys",
        ".status.clusterID",
    ] {
        assert!(yaml.contains(expected), "{expected}\n{yaml}");
    }
    for unknown_to_kubernetes in [
        "uint",
        "additionalProperties: false",
        "preserve-unknown-fields",
    ] {
        assert!(!yaml.contains(unknown_to_kubernetes), "{yaml}");
    }
}

/// A name that is no name could mean something else in a URL.
#[test]
fn every_secret_and_config_map_of_a_budget_is_named_by_a_subdomain() {
    let schema = schema_of(&QuorumDisruptionBudget::crd());
    let spec = &schema["properties"]["spec"];
    let mut found = Vec::new();
    let mut check = |path: &str, schema: &Value| {
        let field = path.rsplit('.').next().unwrap_or_default();
        let field_name = field.to_lowercase();
        let names_one = field_name.ends_with("secret") || field_name.ends_with("configmap");
        if names_one && let Some(name) = schema.pointer("/properties/name") {
            assert_eq!(name["pattern"], dns::SUBDOMAIN, "{path}");
            assert_eq!(name["maxLength"], 253, "{path}");
            found.push(field.to_owned());
        }
    };
    each_field(spec, ".spec", &mut check);
    found.sort();
    assert_eq!(found, ["caConfigMap", "caSecret", "clientSecret", "secret"]);
    assert_eq!(
        spec["properties"]["statefulSetName"]["pattern"],
        dns::SUBDOMAIN
    );
}

/// Calls `check` with the path and the schema of each field, of lists too.
fn each_field(schema: &Value, path: &str, check: &mut impl FnMut(&str, &Value)) {
    for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{field}");
        check(&path, schema);
        each_field(schema, &path, check);
        each_field(&schema["items"], &path, check);
    }
}

fn schema_of(definition: &impl serde::Serialize) -> Value {
    let definition = serde_json::to_value(definition).unwrap();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

#[test]
fn every_time_has_the_format_of_a_time() {
    let mut times = 0;
    let mut check = |path: &str, schema: &Value| {
        let field = path.rsplit('.').next().unwrap_or_default();
        let is_time = ["Time", "At"].iter().any(|end| field.ends_with(end))
            || ["time", "timestamp"].contains(&field);
        if is_time {
            times += 1;
            assert_eq!(schema["format"], "date-time", "{path}");
        }
    };
    for schema in [
        schema_of(&QuorumDisruptionBudget::crd()),
        schema_of(&etcd_member::EtcdMember::crd()),
    ] {
        each_field(&schema, "", &mut check);
    }
    assert!(times > 20, "{times}");
}

/// A default of one word is in the schema. Others depend on something, and are said in words.
#[test]
fn every_default_of_one_word_is_in_the_schema() {
    let one_word = regex::Regex::new(r"Default: `?([^ `]+?)`?\.(\s|$)").unwrap();
    let mut defaults = 0;
    let mut check = |path: &str, schema: &Value| {
        let said = schema["description"].as_str().unwrap_or_default();
        if let Some(said) = one_word.captures(said) {
            defaults += 1;
            let default = match &schema["default"] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            assert_eq!(default, said[1], "{path}");
        }
    };
    let schema = schema_of(&QuorumDisruptionBudget::crd());
    each_field(&schema["properties"]["spec"], ".spec", &mut check);
    assert!(defaults > 25, "{defaults}");
}

#[test]
fn what_a_newer_version_wrote_into_a_grant_survives() {
    let written = json!({
        "member": "etcd-0", "colour": "red",
        "causes": [{"kind": "Teleport", "seq": 7, "by": "x", "time": "y", "where": {"to": 1}}],
    });
    let read: GrantStatus = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), written);
}
