//! The manifests, compared with the behaviour of the process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Parser as _;
use quorumgate::admission::Hook;
use quorumgate::admission::review::{Operation, Resource};
use quorumgate::api::{Enforcement, QuorumDisruptionBudget, call_path};
use quorumgate::cli::{CertificateSource, Cli, Command};
use serde_json::{Value, json};
use strum::IntoEnumIterator as _;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every document of a YAML file.
pub(crate) fn documents(path: &str) -> Vec<Value> {
    let path = root().join(path);
    serde_saphyr::from_multiple(&read(&path))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn yaml_files(directory: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(directory)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names
        .filter(|name| {
            std::path::Path::new(name)
                .extension()
                .is_some_and(|e| e == "yaml")
        })
        .collect();
    names.sort();
    names
}

const DIRECTORIES: [&str; 12] = [
    "manifests/base",
    "manifests/on-delete",
    "manifests/openshift",
    "manifests/etcd-members",
    "manifests/network-policy",
    "manifests/cert-manager",
    "manifests/files",
    "manifests/selector",
    "manifests/examples",
    "manifests/examples/tls",
    "certs/cert-manager",
    "certs/files",
];

#[test]
fn every_manifest_is_an_object_with_kind_and_name() {
    for directory in DIRECTORIES {
        for file in yaml_files(directory) {
            let path = format!("{directory}/{file}");
            let documents = documents(&path);
            assert!(!documents.is_empty(), "{path} is empty");
            for document in documents {
                assert!(document["kind"].is_string(), "{path}: no kind");
                assert!(document["apiVersion"].is_string(), "{path}: no apiVersion");
                let named = document["metadata"]["name"].is_string();
                assert!(named || file == "kustomization.yaml", "{path}: no name");
            }
        }
    }
}

#[test]
fn a_kustomization_names_every_file_beside_it() {
    for directory in [
        "manifests/base",
        "manifests/etcd-members",
        "manifests/network-policy",
        "manifests/examples",
        "manifests/examples/tls",
        "certs/cert-manager",
    ] {
        let listed = &documents(&format!("{directory}/kustomization.yaml"))[0]["resources"];
        let listed: BTreeSet<&str> = texts(listed).collect();
        let files = yaml_files(directory);
        let files: BTreeSet<&str> = files.iter().map(String::as_str).collect();
        let mut expected = files;
        expected.remove("kustomization.yaml");
        assert_eq!(listed, expected, "{directory}");
    }
}

#[test]
fn the_definitions_are_those_of_this_version() {
    for (file, generated) in [
        ("manifests/base/crds.yaml", quorumgate::api::crds_yaml()),
        (
            "manifests/etcd-members/crd.yaml",
            quorumgate::api::etcd_members_crd_yaml(),
        ),
    ] {
        assert!(
            read(&root().join(file)) == generated.unwrap(),
            "{file} is out of date: run `make crds`"
        );
    }
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

#[test]
fn the_example_budget_is_one() {
    let example = documents("manifests/examples/budget.yaml").remove(0);
    let budget: QuorumDisruptionBudget = serde_json::from_value(example.clone()).unwrap();
    assert_eq!(serde_json::to_value(&budget.spec).unwrap(), example["spec"]);
    let policy = budget.spec.policy().unwrap();
    assert_eq!(policy.scale_out_grace.as_secs(), 600);
    let set = &documents("manifests/examples/statefulset.yaml")[1];
    assert_eq!(set["metadata"]["name"], example["metadata"]["name"]);
    // Both examples describe one cluster, which serves without TLS.
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    let served = texts(&container["args"]).find(|a| a.starts_with("--listen-client-urls="));
    assert!(served.unwrap().contains("http://"));
    assert_eq!(budget.spec.members.tls, None);
    let namespace = &documents("manifests/examples/namespace.yaml")[0];
    for object in [&example, set] {
        assert_eq!(
            object["metadata"]["namespace"],
            namespace["metadata"]["name"]
        );
    }
    assert!(read(&root().join("docs/enrol.md")).contains("(../manifests/examples)"));
    assert_eq!(set["metadata"]["labels"]["quorumgate.io/enroll"], "true");
}

/// A webhook of a configuration, with the kind of that configuration.
struct Registered {
    kind: String,
    hook: Value,
}

fn registered() -> Vec<Registered> {
    let always = documents("manifests/base/webhooks.yaml");
    let with_a_feature = documents("manifests/on-delete/webhooks.yaml");
    let mut found = Vec::new();
    for configuration in always.into_iter().chain(with_a_feature) {
        assert_eq!(configuration["metadata"]["name"], "quorumgate");
        let kind = configuration["kind"].as_str().unwrap().to_owned();
        for hook in configuration["webhooks"].as_array().unwrap() {
            let (kind, hook) = (kind.clone(), hook.clone());
            found.push(Registered { kind, hook });
        }
    }
    found
}

impl Registered {
    /// The path of the webhook without a word: by its name, since the gate writes it.
    fn path(&self) -> String {
        let name = self.hook["name"].as_str().unwrap();
        match self.kind.as_str() {
            "ValidatingWebhookConfiguration" => call_path::validating(name),
            _ => call_path::mutating(name),
        }
    }
}

fn of_path(path: &str) -> Registered {
    let mut found = registered()
        .into_iter()
        .filter(|registered| registered.path() == path);
    let only = found
        .next()
        .unwrap_or_else(|| panic!("no webhook for {path}"));
    assert!(found.next().is_none(), "several webhooks for {path}");
    only
}

#[test]
fn every_path_that_is_served_is_registered_once_and_no_other() {
    let served: BTreeSet<String> = Hook::iter().map(|hook| hook.path().to_owned()).collect();
    let hooks = registered();
    let paths: Vec<String> = hooks.iter().map(Registered::path).collect();
    assert_eq!(paths.iter().cloned().collect::<BTreeSet<_>>(), served);
    assert_eq!(paths.len(), served.len());
}

/// A server that answers such a webhook may rewrite the object.
#[test]
fn mutating_webhooks_are_installed_only_where_their_feature_is_on() {
    let paths = |file: &str| -> Vec<String> {
        let configurations = documents(file).into_iter();
        let mutating = configurations.filter(|c| c["kind"] == "MutatingWebhookConfiguration");
        let hooks = mutating.flat_map(|c| c["webhooks"].as_array().unwrap().clone());
        let path = |hook: Value| call_path::mutating(hook["name"].as_str().unwrap());
        hooks.map(path).collect()
    };
    let always = paths("manifests/base/webhooks.yaml");
    assert_eq!(
        always,
        [Hook::MutateEvictions.path(), Hook::MutatePods.path()]
    );
    let with_the_feature = paths("manifests/on-delete/webhooks.yaml");
    assert_eq!(with_the_feature, [Hook::MutateStatefulSets.path()]);
    let component = &documents("manifests/on-delete/kustomization.yaml")[0];
    assert_eq!(component["patches"][0]["path"], "webhooks.yaml");
    let arguments = component["patches"][1]["patch"].as_str().unwrap();
    assert!(arguments.contains("--feature-gates=QuorumAwareUpdatesWithOnDelete=true"));
}

#[test]
fn each_webhook_is_sent_exactly_the_requests_that_its_path_answers() {
    let resources = [
        ("", "pods", ""),
        ("", "pods", "eviction"),
        ("", "pods", "resize"),
        ("", "pods", "status"),
        ("", "pods", "ephemeralcontainers"),
        ("apps", "statefulsets", ""),
        ("apps", "statefulsets", "scale"),
        ("", "persistentvolumeclaims", ""),
        ("", "persistentvolumeclaims", "status"),
        ("", "persistentvolumes", ""),
        ("", "persistentvolumes", "status"),
    ];
    let operations = [
        ("CREATE", Operation::Create),
        ("UPDATE", Operation::Update),
        ("DELETE", Operation::Delete),
    ];
    for hook in Hook::iter() {
        let registered = of_path(hook.path());
        for (group, resource, subresource) in resources {
            for (word, operation) in operations {
                let asked = Resource {
                    group: group.into(),
                    resource: resource.into(),
                };
                let sent = is_sent(&registered.hook, group, resource, subresource, word);
                let answered = hook.is_for(&asked, subresource, operation);
                assert_eq!(
                    sent,
                    answered,
                    "{} {word} {resource}/{subresource}",
                    hook.path()
                );
            }
        }
    }
}

fn is_sent(hook: &Value, group: &str, resource: &str, subresource: &str, word: &str) -> bool {
    let full = if subresource.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}/{subresource}")
    };
    let rules = hook["rules"].as_array().unwrap();
    // The API server has no DELETE of a status.
    if subresource == "status" && word == "DELETE" {
        return false;
    }
    rules.iter().any(|rule| {
        assert_eq!(rule["apiVersions"], json!(["v1"]));
        let of_no_namespace = texts(&rule["resources"]).any(|r| r == "persistentvolumes");
        let scope = if of_no_namespace {
            "Cluster"
        } else {
            "Namespaced"
        };
        assert_eq!(rule["scope"], scope);
        texts(&rule["apiGroups"]).any(|g| g == group)
            && texts(&rule["resources"]).any(|r| r == full)
            && texts(&rule["operations"]).any(|o| o == word)
    })
}

#[test]
fn every_webhook_has_the_fields_that_the_design_of_admission_asks_for() {
    for hook in Hook::iter() {
        let Registered { kind, hook: found } = of_path(hook.path());
        let path = hook.path();
        let (kind_wanted, failure_policy, side_effects) = match hook {
            Hook::Pods | Hook::Evictions | Hook::StatefulSets | Hook::Claims | Hook::Restarts => {
                ("ValidatingWebhookConfiguration", "Fail", "NoneOnDryRun")
            }
            // A volume is in no namespace, so a gate that is down would hold back everybody's.
            Hook::Volumes => ("ValidatingWebhookConfiguration", "Ignore", "NoneOnDryRun"),
            Hook::MutateEvictions => ("MutatingWebhookConfiguration", "Fail", "None"),
            Hook::MutatePods | Hook::MutateStatefulSets => {
                ("MutatingWebhookConfiguration", "Ignore", "None")
            }
        };
        assert_eq!(kind, kind_wanted, "{path}");
        assert_eq!(found["failurePolicy"], failure_policy, "{path}");
        assert_eq!(found["sideEffects"], side_effects, "{path}");
        // These webhooks are only a shortcut for a later repair, so they must not delay an operator
        // for long.
        let timeout = if hook == Hook::MutateStatefulSets {
            2
        } else {
            5
        };
        assert_eq!(found["timeoutSeconds"], timeout, "{path}");
        assert_eq!(found["matchPolicy"], "Equivalent", "{path}");
        assert_eq!(found["admissionReviewVersions"], json!(["v1"]), "{path}");
        // For a subresource the selector would be matched against the Eviction, and would never
        // match.
        assert!(found.get("objectSelector").is_none(), "{path}");
        let gated = json!({
            "matchLabels": { "quorumgate.io/gated": "true" },
            "matchExpressions": [{
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": ["kube-system", "quorumgate"],
            }],
        });
        let selected = (hook != Hook::Volumes).then_some(&gated);
        assert_eq!(found.get("namespaceSelector"), selected, "{path}");
        let service = &found["clientConfig"]["service"];
        assert_eq!(service["name"], "quorumgate", "{path}");
        assert_eq!(service["namespace"], "quorumgate", "{path}");
        assert_eq!(service["port"], 443, "{path}");
    }
}

#[test]
fn conditions_that_must_hold_while_the_gate_is_down_stand_in_the_api_server() {
    let conditions = |path: &str| -> BTreeSet<String> {
        let hook = of_path(path).hook;
        let conditions = hook["matchConditions"].as_array().cloned();
        let names = conditions.into_iter().flatten().map(|condition| {
            let expression = condition["expression"].as_str().unwrap();
            assert!(!expression.is_empty());
            condition["name"].as_str().unwrap().to_owned()
        });
        names.collect()
    };
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let pods: BTreeSet<String> = named(&[
        "deleted-or-failed-by-pod-gc",
        "pod-of-a-statefulset",
        "not-the-namespace-controller",
        "not-finished",
        "not-terminating-or-forced",
    ]);
    assert_eq!(conditions("/validate/pods"), pods);
    let ordinal: BTreeSet<String> = named(&["name-ends-in-an-ordinal"]);
    assert_eq!(conditions("/validate/evictions"), ordinal);
    assert_eq!(conditions("/mutate/evictions"), ordinal);
    let sets: BTreeSet<String> =
        named(&["not-the-namespace-controller", "delete-or-ordinals-leave"]);
    assert_eq!(conditions("/validate/statefulsets"), sets);
    let claims: BTreeSet<String> = named(&[
        "not-the-namespace-controller",
        "not-the-protection-controller",
        "delete-or-end-of-protection",
    ]);
    assert_eq!(conditions("/validate/claims"), claims);
    let volumes: BTreeSet<String> =
        named(&["not-the-controllers-of-volumes", "taken-from-its-claim"]);
    assert_eq!(conditions("/validate/volumes"), volumes);
    let restarts: BTreeSet<String> = named(&[
        "pod-of-a-statefulset",
        "not-finished",
        "not-terminating",
        "resize-image-deadline-or-start",
    ]);
    assert_eq!(conditions("/validate/restarts"), restarts);
    let of_a_set: BTreeSet<String> = named(&["pod-of-a-statefulset"]);
    assert_eq!(conditions("/mutate/pods"), of_a_set);
    let strategies: BTreeSet<String> =
        named(&["not-terminating", "strategy-to-keep-or-to-give-back"]);
    assert_eq!(conditions("/mutate/statefulsets"), strategies);
}

/// The calls that the code makes, for each kind its API group, resource and verbs. `rbac.yaml` has
/// the reason of each verb.
const CALLS: &[(&str, &str, &str, &[&str])] = &[
    (
        "Pod",
        "",
        "pods",
        &["get", "list", "watch", "delete", "patch"],
    ),
    ("Pod", "", "pods/status", &["patch"]),
    ("Pod", "", "pods/eviction", &["create"]),
    ("Node", "", "nodes", &["get", "list", "watch"]),
    (
        "Namespace",
        "",
        "namespaces",
        &["get", "list", "watch", "patch"],
    ),
    ("Secret", "", "secrets", &["get"]),
    ("ConfigMap", "", "configmaps", &["get"]),
    ("Service", "", "services", &["list"]),
    (
        "PersistentVolumeClaim",
        "",
        "persistentvolumeclaims",
        &["get", "delete", "patch"],
    ),
    ("PersistentVolume", "", "persistentvolumes", &["get"]),
    (
        "StatefulSet",
        "apps",
        "statefulsets",
        &["get", "list", "watch", "patch"],
    ),
    ("Deployment", "apps", "deployments", &["list", "watch"]),
    ("ReplicaSet", "apps", "replicasets", &["list", "watch"]),
    ("DaemonSet", "apps", "daemonsets", &["list", "watch"]),
    (
        "PodDisruptionBudget",
        "policy",
        "poddisruptionbudgets",
        &["get", "list", "watch", "create", "update", "delete"],
    ),
    ("Lease", "coordination.k8s.io", "leases", &["get", "list"]),
    (
        "EtcdMember",
        "quorumgate.io",
        "etcdmembers",
        &["list", "create", "delete", "patch"],
    ),
    (
        "EtcdMember",
        "quorumgate.io",
        "etcdmembers/status",
        &["update"],
    ),
    (
        "QuorumDisruptionBudget",
        "quorumgate.io",
        "quorumdisruptionbudgets",
        &["get", "list", "watch", "create", "delete"],
    ),
    (
        "QuorumDisruptionBudget",
        "quorumgate.io",
        "quorumdisruptionbudgets/status",
        &["get", "update"],
    ),
    (
        "ValidatingWebhookConfiguration",
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        &["get", "list", "watch"],
    ),
    (
        "MutatingWebhookConfiguration",
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        &["get", "list", "watch"],
    ),
    ("Event", "events.k8s.io", "events", &["create", "patch"]),
];

#[test]
fn the_cluster_role_grants_what_is_called_and_nothing_else() {
    let mut granted: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    let optional = documents("manifests/etcd-members/rbac.yaml").remove(0);
    let secrets = rbac("ClusterRole", "quorumgate-secrets");
    let roles = [rbac("ClusterRole", "quorumgate"), secrets, optional];
    for rule in roles
        .iter()
        .flat_map(|role| role["rules"].as_array().unwrap())
    {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                let key = (group.to_owned(), resource.to_owned());
                let verbs = granted.entry(key).or_default();
                verbs.extend(texts(&rule["verbs"]).map(str::to_owned));
            }
        }
    }
    let called: BTreeMap<(String, String), BTreeSet<String>> = CALLS
        .iter()
        .map(|(_, group, resource, verbs)| {
            let verbs = verbs.iter().map(|verb| (*verb).to_owned()).collect();
            (((*group).to_owned(), (*resource).to_owned()), verbs)
        })
        .collect();
    assert_eq!(granted, called);
}

/// Resources that RBAC alone limits enough: Leases by name in the gate's own namespace, the ledger,
/// which the gate has to write, and a right that `OpenShift` asks for beside the one to create.
const HELD_BY_RBAC: [&str; 3] = [
    "leases",
    "quorumdisruptionbudgets/status",
    "endpointslices/restricted",
];

#[test]
fn every_right_to_write_is_held_by_a_policy_that_the_documents_name() {
    let mut objects = documents("manifests/base/admission-policy.yaml");
    objects.extend(documents("manifests/etcd-members/admission-policy.yaml"));
    let security = read(&root().join("docs/security.md"));
    let of_kind = |kind: &str| -> BTreeMap<String, Value> {
        let found = objects.iter().filter(|object| object["kind"] == kind);
        let named = found.map(|o| (o["metadata"]["name"].as_str().unwrap().to_owned(), o));
        named.map(|(name, o)| (name, o["spec"].clone())).collect()
    };
    let policies = of_kind("ValidatingAdmissionPolicy");
    let bindings = of_kind("ValidatingAdmissionPolicyBinding");
    assert_eq!(
        policies.keys().collect::<Vec<_>>(),
        bindings.keys().collect::<Vec<_>>()
    );
    let mut held = BTreeSet::new();
    for (name, policy) in &policies {
        assert_eq!(bindings[name]["policyName"], json!(name));
        assert_eq!(bindings[name]["validationActions"], json!(["Deny"]));
        assert_eq!(policy["failurePolicy"], "Fail", "{name}");
        let of_the_account =
            "request.userInfo.username == 'system:serviceaccount:quorumgate:quorumgate'";
        let conditions = policy["matchConditions"].as_array().unwrap();
        assert_eq!(conditions.len(), 1, "{name}");
        assert_eq!(conditions[0]["expression"], of_the_account, "{name}");
        assert!(
            security.contains(&format!("`{name}`")),
            "docs/security.md does not name {name}"
        );
        for rule in policy["matchConstraints"]["resourceRules"]
            .as_array()
            .unwrap()
        {
            let operations: BTreeSet<&str> = texts(&rule["operations"]).collect();
            assert!(
                operations.is_superset(&BTreeSet::from(["CREATE", "UPDATE", "DELETE"])),
                "{name}"
            );
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    held.insert((group.to_owned(), resource.to_owned()));
                }
            }
        }
    }
    let is_held = |group: &str, resource: &str| {
        let parts = resource.split_once('/').map(|(of, _)| format!("{of}/*"));
        let names = [Some(resource.to_owned()), parts].into_iter().flatten();
        let mut held_as = names.map(|name| held.contains(&(group.to_owned(), name)));
        held_as.any(|held| held) || HELD_BY_RBAC.contains(&resource)
    };
    let mut written = BTreeSet::new();
    for rule in rules_of_the_account() {
        let reads = ["get", "list", "watch"];
        if texts(&rule["verbs"]).all(|verb| reads.contains(&verb)) {
            continue;
        }
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                assert!(
                    is_held(group, resource),
                    "no policy holds what is written of {group}/{resource}"
                );
                written.insert(resource.to_owned());
            }
        }
    }
    assert!(written.contains("pods/eviction") && written.contains("endpointslices"));
}

/// The API server looks for parameters before it looks at the conditions of a policy. A binding
/// that denies what has none would hold back what everybody writes, in namespaces without replicas
/// and everywhere while there are none.
#[test]
fn no_policy_denies_others_for_want_of_a_parameter() {
    let mut with_parameters = 0;
    for binding in documents("manifests/base/admission-policy.yaml") {
        let Some(parameters) = binding["spec"].get("paramRef") else {
            continue;
        };
        let name = &binding["metadata"]["name"];
        assert_eq!(parameters["parameterNotFoundAction"], "Allow", "{name}");
        let bound = &binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"];
        let own = json!([{
            "key": "kubernetes.io/metadata.name", "operator": "In", "values": ["quorumgate"],
        }]);
        assert_eq!(*bound, own, "{name}");
        with_parameters += 1;
    }
    assert_eq!(with_parameters, 1);
}

/// The rules of every role of the gate's service account, cluster-wide or not.
fn rules_of_the_account() -> Vec<Value> {
    let mut rules = Vec::new();
    for directory in ["manifests/base", "manifests/etcd-members"] {
        for file in yaml_files(directory) {
            for document in documents(&format!("{directory}/{file}")) {
                let is_role = ["Role", "ClusterRole"].contains(&document["kind"].as_str().unwrap());
                if is_role {
                    rules.extend(document["rules"].as_array().cloned().unwrap_or_default());
                }
            }
        }
    }
    rules
}

fn rbac(kind: &str, name: &str) -> Value {
    let documents = documents("manifests/base/rbac.yaml");
    let mut found = documents
        .into_iter()
        .filter(|document| document["kind"] == kind && document["metadata"]["name"] == name);
    found.next().unwrap_or_else(|| panic!("no {kind} {name}"))
}

#[test]
fn the_lease_is_the_only_thing_written_by_the_namespaced_role() {
    let role = rbac("Role", "quorumgate");
    let rules = role["rules"].as_array().unwrap();
    assert_eq!(
        rules[0],
        json!({
            "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"],
        })
    );
    assert_eq!(
        rules[1],
        json!({
            "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
            "resourceNames": ["quorumgate"], "verbs": ["get", "update"],
        })
    );
    assert_eq!(rules.len(), 2);
}

#[test]
fn certificates_are_written_by_name_only() {
    let [role, binding, cluster_role, cluster_binding] =
        documents("manifests/base/certificates.yaml")
            .try_into()
            .unwrap();
    assert_eq!(
        (&role["kind"], &role["metadata"]["namespace"]),
        (&json!("Role"), &json!("quorumgate"))
    );
    assert_eq!(
        role["rules"],
        json!([
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
            {
                "apiGroups": [""], "resources": ["secrets"],
                "resourceNames": ["quorumgate-authority", "quorumgate-serving"],
                "verbs": ["get", "update"],
            },
        ])
    );
    assert_eq!(
        cluster_role["rules"],
        json!([{
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"],
            "resourceNames": ["quorumgate"], "verbs": ["patch"],
        }])
    );
    for (binding, role) in [(binding, role), (cluster_binding, cluster_role)] {
        assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
    }
}

#[test]
fn endpoints_are_read_and_written_in_the_own_namespace_only() {
    let documents = documents("manifests/base/endpoints.yaml");
    let role = &documents[0];
    assert_eq!(
        (&role["kind"], &role["metadata"]["namespace"]),
        (&json!("Role"), &json!("quorumgate"))
    );
    assert_eq!(
        role["rules"],
        json!([
            {
                "apiGroups": [""], "resources": ["services"], "resourceNames": ["quorumgate"],
                "verbs": ["get"],
            },
            {
                "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"],
                "verbs": ["list", "create", "update"],
            },
            {
                "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices/restricted"],
                "verbs": ["create"],
            },
            {
                "apiGroups": [""], "resources": ["endpoints"], "resourceNames": ["quorumgate"],
                "verbs": ["delete"],
            },
        ])
    );
    assert_eq!(documents[1]["roleRef"]["name"], role["metadata"]["name"]);
}

/// The text of every source file, without test files.
fn sources() -> Vec<String> {
    let mut texts = Vec::new();
    let mut pending = vec![root().join("src")];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).unwrap();
            pending.extend(entries.map(|entry| entry.unwrap().path()));
        } else if path.file_name().is_some_and(|name| name != "tests.rs") {
            texts.push(read(&path));
        }
    }
    texts
}

#[test]
fn every_subresource_that_the_code_creates_is_in_the_table_of_calls() {
    let mut created = BTreeSet::new();
    for text in sources() {
        let calls = text.split(".create_subresource").skip(1);
        created.extend(calls.map(|after| after.split('"').nth(1).unwrap().to_owned()));
    }
    assert_eq!(created, BTreeSet::from(["eviction".to_owned()]));
    for name in created {
        let granted = CALLS.iter().any(|(_, _, resource, verbs)| {
            resource.ends_with(&format!("/{name}")) && verbs.contains(&"create")
        });
        assert!(granted, "nobody may create {name}");
    }
}

#[test]
fn every_kind_that_the_code_reads_or_writes_is_in_the_table_of_calls() {
    let known = CALLS.iter().map(|(kind, ..)| *kind);
    // Kinds in the gate's own namespace.
    let known: BTreeSet<&str> = known
        .chain(["Service", "EndpointSlice", "Endpoints"])
        .collect();
    let mut used = BTreeSet::new();
    for text in sources() {
        let text = text.replace("Api::<", "Api<");
        used.extend(text.split("Api<").skip(1).map(|after| {
            let kind = after.chars().take_while(|c| c.is_alphanumeric());
            let kind: String = kind.collect();
            // `quorum` has a Pod and a Node too, so the Kubernetes types are imported as PodObject
            // and NodeObject. A SlimPod is a pod with only a few of its fields.
            let kind = kind.trim_end_matches("Object");
            kind.trim_start_matches("Slim").to_owned()
        }));
    }
    // A DynamicObject is the owner of a StatefulSet, for which there is a role of its own. `K` is a
    // type parameter, which the callers name, also behind PartialObjectMeta. Every account may
    // create a SelfSubjectReview.
    let elsewhere = ["Dynamic", "K", "PartialObjectMeta", "SelfSubjectReview"];
    let unknown: Vec<&String> = used
        .iter()
        .filter(|kind| !known.contains(kind.as_str()) && !elsewhere.contains(&kind.as_str()))
        .collect();
    assert!(unknown.is_empty(), "not in the table of calls: {unknown:?}");
    assert!(used.len() > 5, "the scan found only {used:?}");
}

#[test]
fn the_deployment_survives_a_drain_and_ends_gracefully() {
    let deployment = &documents("manifests/base/deployment.yaml")[0];
    assert_eq!(deployment["spec"]["replicas"], 3);
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["priorityClassName"], "system-cluster-critical");
    // One node has all replicas, three have one each.
    let apart = &pod["topologySpreadConstraints"][0];
    assert_eq!(apart["topologyKey"], "kubernetes.io/hostname");
    assert_eq!(apart["maxSkew"], 1);
    assert_eq!(apart["whenUnsatisfiable"], "DoNotSchedule");
    assert_eq!(apart["nodeTaintsPolicy"], "Honor");
    assert_eq!(apart["labelSelector"], deployment["spec"]["selector"]);
    assert_eq!(pod.get("affinity"), None);
    let container = &pod["containers"][0];
    let security = &container["securityContext"];
    assert_eq!(security["readOnlyRootFilesystem"], true);
    assert_eq!(security["allowPrivilegeEscalation"], false);
    assert_eq!(security["capabilities"], json!({ "drop": ["ALL"] }));
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    // A replica takes its own endpoint out at once. One with a selector waits until Kubernetes has.
    assert_eq!(container.get("lifecycle"), None);
    let selector = &documents("manifests/selector/kustomization.yaml")[0];
    let patch = selector["patches"][2]["patch"].as_str().unwrap();
    let patch: Vec<Value> = serde_saphyr::from_str(patch).unwrap();
    let added = patch.iter().find(|one| one["op"] == "add").unwrap();
    assert_eq!(added["path"], "/spec/template/spec/containers/0/lifecycle");
    // The sleep, the longest call of an API server, and the time for connections to close.
    let sleep = added["value"]["preStop"]["sleep"]["seconds"].as_i64();
    let grace = pod["terminationGracePeriodSeconds"].as_i64();
    assert!(grace.unwrap() >= sleep.unwrap() + 5 + 10);
    let budget = &documents("manifests/base/pdb.yaml")[0]["spec"];
    assert_eq!(budget["maxUnavailable"], 1);
    assert_eq!(budget["selector"], deployment["spec"]["selector"]);
}

#[test]
fn the_deployment_runs_the_image_of_this_release() {
    let deployment = &documents("manifests/base/deployment.yaml")[0];
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let kustomization = &documents("manifests/base/kustomization.yaml")[0];
    let image = &kustomization["images"][0];
    assert_eq!(container["image"], image["name"]);
    assert_eq!(image["newName"], crate::release::image().as_str());
    assert_eq!(image["newTag"], env!("CARGO_PKG_VERSION"));
}

/// The memory that was measured after decisions with 1,000 clusters, in MiB. docs/evidence.md has
/// the same number.
const MEASURED: u64 = 137;

#[test]
fn the_deployment_asks_for_the_memory_that_a_thousand_clusters_take() {
    let benchmarks = read(&root().join("docs/evidence.md"));
    let row = benchmarks
        .lines()
        .find(|line| line.starts_with("| 1,000 |"));
    assert_eq!(
        row.unwrap().split(" | ").nth(4),
        Some(&*MEASURED.to_string())
    );
    let deployment = &documents("manifests/base/deployment.yaml")[0];
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let asked = &container["resources"]["requests"]["memory"];
    let mebibytes = asked.as_str().unwrap().strip_suffix("Mi").unwrap();
    assert!(mebibytes.parse::<u64>().unwrap() > MEASURED);
}

#[test]
fn the_deployment_is_started_with_options_that_exist() {
    let deployment = &documents("manifests/base/deployment.yaml")[0];
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let arguments = std::iter::once("quorumgate").chain(texts(&container["args"]));
    // What the kubelet expands.
    let variable = "$(QUORUMGATE_LEASE_NAMESPACE)";
    let arguments = arguments.map(|argument| argument.replace(variable, "quorumgate"));
    // Environment variables from the downward API.
    let environment = container["env"].as_array().unwrap().iter();
    let from_the_pod = environment.map(|variable| {
        let name = variable["name"].as_str().unwrap();
        let (field, value) = match name {
            "QUORUMGATE_LEASE_NAMESPACE" => ("metadata.namespace", "--lease-namespace=quorumgate"),
            "QUORUMGATE_POD_NAME" => ("metadata.name", "--pod-name=gate-a"),
            "QUORUMGATE_POD_UID" => ("metadata.uid", "--pod-uid=u"),
            "QUORUMGATE_POD_IP" => ("status.podIP", "--pod-ip=10.0.0.7"),
            "QUORUMGATE_NODE_NAME" => ("spec.nodeName", "--node-name=node-1"),
            other => panic!("{other} is not known"),
        };
        assert_eq!(variable["valueFrom"]["fieldRef"]["fieldPath"], field);
        value
    });
    let arguments = arguments.chain(from_the_pod.map(str::to_owned));
    let cli = Cli::try_parse_from(arguments).unwrap_or_else(|error| panic!("{error}"));
    let Command::Run(run) = cli.command else {
        panic!("it does not run the gate");
    };
    assert_eq!(run.webhook_configuration, "quorumgate");
    assert_eq!(run.default_enforcement, Enforcement::Warn);
    assert_eq!(run.lease_namespace, "quorumgate");
    let myself = run.myself().expect("each replica keeps its own endpoint");
    let service = &documents("manifests/base/service.yaml")[0];
    assert_eq!(service["metadata"]["name"], *myself.service);
    assert_eq!(service["metadata"]["namespace"], *myself.namespace);
    let ports: BTreeMap<&str, u16> = container["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| {
            let number = u16::try_from(port["containerPort"].as_u64().unwrap()).unwrap();
            (port["name"].as_str().unwrap(), number)
        })
        .collect();
    assert_eq!(
        ports,
        BTreeMap::from([("webhooks", myself.webhooks), ("admin", myself.admin)])
    );
    let CertificateSource::Own { names, wishes } = run.certificate() else {
        panic!("it does not make its own certificates");
    };
    let service = "quorumgate.quorumgate.svc";
    assert_eq!(
        wishes.names,
        [service.to_owned(), format!("{service}.cluster.local")]
    );
    let role = &documents("manifests/base/certificates.yaml")[0]["rules"][1];
    assert_eq!(
        role["resourceNames"],
        json!([names.authority, names.serving])
    );
    assert_eq!(container.get("volumeMounts"), None);
}

#[test]
fn the_service_leads_to_the_ports_of_the_deployment() {
    let deployment = &documents("manifests/base/deployment.yaml")[0];
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let ports: BTreeSet<&str> = container["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| port["name"].as_str().unwrap())
        .collect();
    let service = &documents("manifests/base/service.yaml")[0];
    for port in service["spec"]["ports"].as_array().unwrap() {
        assert!(ports.contains(port["targetPort"].as_str().unwrap()));
    }
    // The replicas keep the Service's endpoints, unless the component adds the selector back.
    assert_eq!(service["spec"].get("selector"), None);
    let component = &documents("manifests/selector/kustomization.yaml")[0];
    let patch = component["patches"][0]["patch"].as_str().unwrap();
    let patch: Vec<Value> = serde_saphyr::from_str(patch).unwrap();
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    assert_eq!(
        (&patch[0]["path"], &patch[0]["value"]),
        (&json!("/spec/selector"), labels)
    );
}

/// A policy that selects other pods would leave the ports open, and one that forgets a port would
/// close it.
#[test]
fn the_network_policy_is_about_the_deployment_s_pods_and_lets_somebody_in_at_each_of_their_ports() {
    let policy = &documents("manifests/network-policy/networkpolicy.yaml")[0];
    let deployment = &documents("manifests/base/deployment.yaml")[0];
    for path in ["/metadata/namespace", "/metadata/name"] {
        assert_eq!(policy.pointer(path), deployment.pointer(path), "{path}");
    }
    let pods = &policy["spec"]["podSelector"];
    assert_eq!(pods, &deployment["spec"]["selector"]);
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]));
    let names = |list: &Value, key: &str| -> BTreeSet<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|one| one[key].as_str().unwrap().to_owned())
            .collect()
    };
    let containers = &deployment["spec"]["template"]["spec"]["containers"];
    let open = names(&containers[0]["ports"], "name");
    let rules = policy["spec"]["ingress"].as_array().unwrap();
    let mut admitted = BTreeSet::new();
    for rule in rules {
        assert!(!rule["from"].as_array().unwrap().is_empty());
        admitted.extend(names(&rule["ports"], "port"));
    }
    assert_eq!(admitted, open);
    let among_themselves = json!({"podSelector": pods});
    let webhooks = rules
        .iter()
        .find(|rule| rule["ports"][0]["port"] == "webhooks");
    let from = webhooks.unwrap()["from"].as_array().unwrap();
    assert!(
        from.contains(&among_themselves),
        "replicas look at each other"
    );
}
