//! The checks before the installation.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use quorumgate_api::names::POD_WEBHOOK;

use super::finding::{Finding, Status};
use crate::cli;
use crate::discover::gate;
use crate::version;

/// The kinds that an installation always creates: group, plural, and whether it has a namespace.
const CREATED: [(&str, &str, bool); 17] = [
    ("", "serviceaccounts", true),
    ("", "services", true),
    ("", "resourcequotas", true),
    ("apps", "deployments", true),
    ("policy", "poddisruptionbudgets", true),
    ("rbac.authorization.k8s.io", "roles", true),
    ("rbac.authorization.k8s.io", "rolebindings", true),
    ("rbac.authorization.k8s.io", "clusterroles", false),
    ("rbac.authorization.k8s.io", "clusterrolebindings", false),
    ("apiextensions.k8s.io", "customresourcedefinitions", false),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", false),
    (
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
        false,
    ),
    (
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        false,
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        false,
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        false,
    ),
    (
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        false,
    ),
    ("batch", "jobs", true),
];

/// The nodes that the replicas of the gate are spread over.
const NODES: usize = 3;

pub(super) async fn checks(client: &Client, given: &cli::Gate) -> Vec<Finding> {
    let found = gate(client, given).await;
    let versions = version::read(client, &found.gate).await;
    vec![
        super::kubernetes(&versions),
        none_yet(&found),
        rights(client, &found.gate.namespace).await,
        webhooks(client).await,
        nodes(client).await,
    ]
}

/// Whether no gate is installed yet.
fn none_yet(found: &crate::discover::Found) -> Finding {
    const CHECK: &str = "NotInstalled";
    let object = "ValidatingWebhookConfigurations";
    if let Some(error) = &found.error {
        return Finding::unread(CHECK, object, error);
    }
    match found.configurations.first() {
        None => Finding::new(Status::Ok, CHECK, object, "no gate is installed yet"),
        Some(name) => Finding::new(
            Status::Fail,
            CHECK,
            object,
            format!("a gate is installed already ({name}), and a cluster has one"),
        )
        .reason("Installed")
        .fix("upgrade that one, or uninstall it first; to check it: kubectl quorum doctor"),
    }
}

/// Whether the user may create what an installation creates.
async fn rights(client: &Client, namespace: &str) -> Finding {
    const CHECK: &str = "Rights";
    const OBJECT: &str = "your rights";
    let api = Api::<SelfSubjectAccessReview>::all(client.clone());
    let mut missing = Vec::new();
    for (group, resource, has_namespace) in CREATED {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    group: Some(group.to_owned()),
                    resource: Some(resource.to_owned()),
                    verb: Some("create".to_owned()),
                    namespace: has_namespace.then(|| namespace.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        match api.create(&PostParams::default(), &review).await {
            Err(error) => return Finding::unread(CHECK, OBJECT, &error),
            Ok(answer) if answer.status.as_ref().is_some_and(|s| s.allowed) => {}
            Ok(_) => missing.push(resource),
        }
    }
    if missing.is_empty() {
        return Finding::new(
            Status::Ok,
            CHECK,
            OBJECT,
            format!("your user may create all that an installation creates in {namespace}"),
        );
    }
    let message = format!("your user may not create: {}", missing.join(", "));
    Finding::new(Status::Fail, CHECK, OBJECT, message)
        .reason("Missing")
        .fix("install as a user with the ClusterRole cluster-admin")
}

/// Whether other webhooks decide about deletes and evictions of pods.
async fn webhooks(client: &Client) -> Finding {
    const CHECK: &str = "OtherWebhooks";
    const OBJECT: &str = "webhooks of others";
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone());
    let all = ListParams::default();
    let (validating, mutating) = match (validating.list(&all).await, mutating.list(&all).await) {
        (Ok(validating), Ok(mutating)) => (validating, mutating),
        (Err(error), _) | (_, Err(error)) => return Finding::unread(CHECK, OBJECT, &error),
    };
    let of_validating = validating.iter().flat_map(|found| {
        let hooks = found.webhooks.iter().flatten();
        hooks.map(|h| (found.name_any(), &h.name, &h.rules, &h.failure_policy))
    });
    let of_mutating = mutating.iter().flat_map(|found| {
        let hooks = found.webhooks.iter().flatten();
        hooks.map(|h| (found.name_any(), &h.name, &h.rules, &h.failure_policy))
    });
    let others: Vec<String> = of_validating
        .chain(of_mutating)
        .filter(|(_, name, ..)| !name.ends_with(".quorumgate.io") && *name != POD_WEBHOOK)
        .filter(|(_, _, rules, _)| rules.iter().flatten().any(takes_pods_away))
        .map(|(configuration, name, _, policy)| {
            let policy = policy.as_deref().unwrap_or("Fail");
            format!("{configuration}/{name} (failurePolicy {policy})")
        })
        .collect();
    if others.is_empty() {
        return Finding::new(
            Status::Ok,
            CHECK,
            OBJECT,
            "none decides about deletes of pods",
        );
    }
    let message = format!(
        "also decide about deletes or evictions of pods: {}",
        others.join(", ")
    );
    Finding::new(Status::Warn, CHECK, OBJECT, message)
        .reason("PodDeletes")
        .fix("know what they deny: a delete needs the yes of each, and waits for the slowest")
}

/// Whether the rule is about deletes or evictions of pods.
fn takes_pods_away(rule: &RuleWithOperations) -> bool {
    let has = |of: &Option<Vec<String>>, words: &[&str]| {
        let mut all = of.iter().flatten();
        all.any(|word| words.contains(&word.as_str()))
    };
    let deletes =
        has(&rule.resources, &["pods", "*", "*/*"]) && has(&rule.operations, &["DELETE", "*"]);
    let evicts = has(
        &rule.resources,
        &["pods/eviction", "pods/*", "*/*", "*/eviction"],
    ) && has(&rule.operations, &["CREATE", "*"]);
    has(&rule.api_groups, &["", "*"]) && (deletes || evicts)
}

/// Whether there are nodes for all replicas.
async fn nodes(client: &Client) -> Finding {
    const CHECK: &str = "Nodes";
    let nodes = match Api::<Node>::all(client.clone())
        .list(&ListParams::default())
        .await
    {
        Err(error) => return Finding::unread(CHECK, "nodes", &error),
        Ok(nodes) => nodes,
    };
    let open = nodes
        .iter()
        .filter(|node| crate::drain::is_open(node))
        .count();
    let message = format!("{open} nodes take pods");
    if open >= NODES {
        return Finding::new(Status::Ok, CHECK, "nodes", message);
    }
    let message = format!("{message}, and the gate has {NODES} replicas, each on its own node");
    Finding::new(Status::Warn, CHECK, "nodes", message)
        .reason("Few")
        .fix("add nodes, or lower `replicas` of the chart: with one replica deletes fail while it restarts")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::connect::tests::{api_server, list};
    use crate::discover::tests::{VALIDATING, configuration};

    const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

    async fn found(hooks: &[Value], nodes: usize, allowed: bool) -> Vec<(String, Status)> {
        let node = json!({"metadata": {"name": "a"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let (of, _) = api_server(&[
            (VALIDATING, list("ValidatingWebhookConfiguration", hooks)),
            (MUTATING, list("MutatingWebhookConfiguration", &[])),
            ("/api/v1/nodes", list("Node", &vec![node; nodes])),
            (REVIEWS, json!({"spec": {}, "status": {"allowed": allowed}})),
        ]);
        let found = checks(&of.client, &cli::Gate::default()).await;
        let found = found.into_iter().skip(1);
        found.map(|found| (found.check, found.status)).collect()
    }

    #[tokio::test]
    async fn a_cluster_is_ready_for_the_gate_or_says_what_is_in_its_way() {
        let is = |checks: [(&str, Status); 4]| checks.map(|(c, s)| (c.to_owned(), s)).to_vec();
        assert_eq!(
            found(&[], 3, true).await,
            is([
                ("NotInstalled", Status::Ok),
                ("Rights", Status::Ok),
                ("OtherWebhooks", Status::Ok),
                ("Nodes", Status::Ok),
            ])
        );
        let hooks = [
            configuration("ours", POD_WEBHOOK),
            configuration("theirs", "pods.example.org"),
        ];
        assert_eq!(
            found(&hooks, 1, false).await,
            is([
                ("NotInstalled", Status::Fail),
                ("Rights", Status::Fail),
                ("OtherWebhooks", Status::Warn),
                ("Nodes", Status::Warn),
            ])
        );
    }

    #[test]
    fn rules_about_deletes_and_evictions_of_pods_are_found() {
        let rule = |resource: &str, operation: &str| RuleWithOperations {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec![resource.to_owned()]),
            operations: Some(vec![operation.to_owned()]),
            ..RuleWithOperations::default()
        };
        for (resource, operation, expected) in [
            ("pods", "DELETE", true),
            ("pods", "*", true),
            ("*", "DELETE", true),
            ("pods", "CREATE", false),
            ("pods/eviction", "CREATE", true),
            ("pods/*", "CREATE", true),
            ("services", "DELETE", false),
        ] {
            let rule = rule(resource, operation);
            assert_eq!(takes_pods_away(&rule), expected, "{resource} {operation}");
        }
    }

    /// The kinds that are created only by a value of the chart.
    const BY_CHOICE: [&str; 6] = [
        "Certificate",
        "ConfigMap",
        "Issuer",
        "NetworkPolicy",
        "PodMonitor",
        "PrometheusRule",
    ];

    #[test]
    fn the_rights_are_those_for_all_kinds_of_the_chart() {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../charts/quorumgate/templates"
        );
        let mut kinds = Vec::new();
        for file in std::fs::read_dir(folder).unwrap() {
            let file = file.unwrap().path();
            if file.extension().is_some_and(|kind| kind == "yaml") {
                let text = std::fs::read_to_string(file).unwrap();
                let found = text.lines().filter_map(|line| line.strip_prefix("kind: "));
                kinds.extend(found.map(str::to_owned));
            }
        }
        assert!(kinds.len() > 20, "{kinds:?}");
        kinds.push("CustomResourceDefinition".to_owned());
        for kind in kinds
            .iter()
            .filter(|kind| !BY_CHOICE.contains(&kind.as_str()))
        {
            let plural = match kind.to_lowercase() {
                policy if policy.ends_with("policy") => policy.replace("policy", "policies"),
                other => other + "s",
            };
            let is_known = CREATED.iter().any(|(_, resource, _)| *resource == plural);
            assert!(is_known, "{plural}");
        }
    }
}
