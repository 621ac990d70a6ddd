//! The checks of the installed gate.

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingWebhookConfiguration,
    WebhookClientConfig,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::{EndpointConditions, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ListParams;
use kube::{Api, Client};
use x509_parser::pem::Pem;

use super::finding::{Finding, Status};
use crate::cli;
use crate::cluster::ago;
use crate::discover::{Found, Gate, gate};
use crate::version::{self, Versions};

/// The fix where webhooks are missing.
const APPLY_AGAIN: &str = "apply the manifests of this release again: helm upgrade quorumgate CHART -n NAMESPACE --reset-then-reuse-values";

/// A caBundle that ends sooner than this gets a warning.
const SOON_DAYS: i64 = 14;

pub(super) async fn checks(client: &Client, given: &cli::Gate) -> Vec<Finding> {
    let found = gate(client, given).await;
    let versions = version::read(client, &found.gate).await;
    let gate = &found.gate;
    let mut findings = vec![super::kubernetes(&versions)];
    findings.push(installation(&found, given));
    findings.extend(skew(&versions));
    findings.extend(webhooks(client, gate, &found.configurations).await);
    findings.push(replicas(&versions, gate));
    findings.push(endpoints(client, gate).await);
    findings.push(leader(client, gate).await);
    findings.extend(policies(client, &versions, gate).await);
    findings
}

/// Which gate is checked.
fn installation(found: &Found, given: &cli::Gate) -> Finding {
    const CHECK: &str = "Installation";
    let Gate {
        namespace,
        name,
        release,
        ..
    } = &found.gate;
    let object = format!("gate {namespace}/{name}");
    if let Some(error) = &found.error {
        return Finding::unread(CHECK, "ValidatingWebhookConfigurations", error)
            .fix("name the gate: --gate-namespace, --gate, --webhook-configuration");
    }
    let chosen = given.webhook_configuration.is_some();
    match found.configurations.as_slice() {
        [] => Finding::new(
            Status::Fail,
            CHECK,
            object,
            "no webhook configuration asks a gate, so the API server asks none",
        )
        .reason("NotInstalled")
        .fix("install quorumgate; before that: kubectl quorum doctor --pre")
        .runbook("QuorumgateNotInForce"),
        [_, _, ..] if !chosen => Finding::new(
            Status::Fail,
            CHECK,
            object,
            format!(
                "several webhook configurations ask a gate: {}; two gates wait for each other's permissions",
                found.configurations.join(", ")
            ),
        )
        .reason("SeveralGates")
        .fix("uninstall all but one, or choose one: --webhook-configuration NAME"),
        _ => {
            let by = release.as_ref().map_or_else(
                || "installed without helm".to_owned(),
                |release| format!("installed by the helm release {release}"),
            );
            Finding::new(Status::Ok, CHECK, object, by)
        }
    }
}

/// Differences between versions.
fn skew(versions: &Versions) -> Option<Finding> {
    let message = versions.client_skew()?;
    let finding = Finding::new(Status::Warn, "VersionSkew", "kubectl quorum", message);
    Some(finding.fix("use the plugin of the gate's release"))
}

/// The two webhook configurations: whether they are there, and whether the authority in them is
/// valid.
async fn webhooks(client: &Client, gate: &Gate, all: &[String]) -> Vec<Finding> {
    let name = gate.configuration.as_str();
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone());
    let validating = validating.get_opt(name).await.map(|found| {
        let hooks = found?.webhooks?.into_iter();
        Some(hooks.map(|h| (h.name, h.client_config)).collect())
    });
    let mutating = mutating.get_opt(name).await.map(|found| {
        let hooks = found?.webhooks?.into_iter();
        Some(hooks.map(|h| (h.name, h.client_config)).collect())
    });
    let read = [
        ("ValidatingWebhookConfiguration", validating),
        ("MutatingWebhookConfiguration", mutating),
    ];
    let findings = read.into_iter().map(|(check, read)| match read {
        Err(error) => Finding::unread(check, format!("{check} {name}"), &error),
        Ok(None) => missing(check, name, all),
        Ok(Some(hooks)) => authority(check, name, hooks),
    });
    findings.collect()
}

fn missing(check: &str, name: &str, all: &[String]) -> Finding {
    let other = all.iter().find(|other| *other != name);
    let message = match other {
        Some(other) => format!("is missing, and {other} is there"),
        None => "is missing, so the API server does not ask the gate".to_owned(),
    };
    let finding = Finding::new(Status::Fail, check, format!("{check} {name}"), message);
    let finding = finding.reason("Missing").runbook("QuorumgateNotInForce");
    match other {
        Some(other) => finding.fix(format!("--webhook-configuration={other}")),
        None => finding.fix(APPLY_AGAIN),
    }
}

fn authority(check: &str, name: &str, hooks: Vec<(String, WebhookClientConfig)>) -> Finding {
    let new = |status, message: String| {
        let finding = Finding::new(status, check, format!("{check} {name}"), message);
        finding.runbook("QuorumgateCertificateEnds")
    };
    let mut ends = Vec::new();
    for (hook, config) in hooks {
        let bundle = config.ca_bundle.unwrap_or_default().0;
        let Some(end) = last_end(&bundle) else {
            return new(
                Status::Fail,
                format!("{hook} has no authority (caBundle), so the API server trusts no gate"),
            )
            .reason("NoAuthority")
            .fix("read the gate's log: a replica writes the caBundle, or cert-manager does");
        };
        ends.push((end, hook));
    }
    let Some((end, hook)) = ends.into_iter().min() else {
        return new(Status::Fail, "has no webhooks".to_owned())
            .reason("NoWebhooks")
            .fix(APPLY_AGAIN);
    };
    let days = (end - Timestamp::now().as_second()) / 86_400;
    let renew = "renew the certificate: cert-manager or the gate does, unless you made it";
    match days {
        ..0 => new(
            Status::Fail,
            format!("the authority (caBundle) of {hook} has expired"),
        )
        .reason("Expired")
        .fix(renew),
        0..SOON_DAYS => new(
            Status::Warn,
            format!("the authority (caBundle) of {hook} expires in {days} days"),
        )
        .reason("ExpiresSoon")
        .fix(renew),
        _ => new(
            Status::Ok,
            format!("its authority (caBundle) is valid for {days} days"),
        ),
    }
}

/// When the last of the authorities ends, in seconds since 1970. Older ones stay in a bundle until
/// they end.
fn last_end(bundle: &[u8]) -> Option<i64> {
    let each = Pem::iter_from_buffer(bundle).filter_map(Result::ok);
    each.filter_map(|pem| Some(pem.parse_x509().ok()?.validity().not_after.timestamp()))
        .max()
}

fn replicas(versions: &Versions, gate: &Gate) -> Finding {
    const CHECK: &str = "Replicas";
    let object = format!("Deployment {}/{}", gate.namespace, gate.name);
    let deployment = match &versions.deployment {
        Err(error) => return Finding::unread(CHECK, object, error),
        Ok(None) => {
            return Finding::new(Status::Fail, CHECK, object, "there is no such Deployment")
                .reason("Missing")
                .fix("name it if it is elsewhere: --gate-namespace, --gate");
        }
        Ok(Some(deployment)) => deployment,
    };
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let wanted = wanted.unwrap_or(1);
    let ready = deployment.status.as_ref().and_then(|s| s.ready_replicas);
    let ready = ready.unwrap_or(0);
    let (status, reason) = match ready {
        0 => (Status::Fail, "NoneReady"),
        _ if ready < wanted => (Status::Warn, "SomeNotReady"),
        _ => (Status::Ok, "AllReady"),
    };
    let message = format!("{ready} of {wanted} replicas are ready");
    let pods = format!("kubectl -n {} get pods", gate.namespace);
    Finding::new(status, CHECK, object, message)
        .reason(reason)
        .fix(format!("find out why: {pods}, then describe and logs"))
        .runbook("QuorumgateCallsFail")
}

async fn endpoints(client: &Client, gate: &Gate) -> Finding {
    const CHECK: &str = "Endpoints";
    let object = format!("EndpointSlices of {}/{}", gate.namespace, gate.name);
    let api = Api::<EndpointSlice>::namespaced(client.clone(), &gate.namespace);
    let of_service = format!("kubernetes.io/service-name={}", gate.name);
    let slices = match api.list(&ListParams::default().labels(&of_service)).await {
        Err(error) => return Finding::unread(CHECK, object, &error),
        Ok(slices) => slices,
    };
    let all: Vec<_> = slices
        .into_iter()
        .flat_map(|slice| slice.endpoints)
        .collect();
    let is_ready = |conditions: &Option<EndpointConditions>| {
        conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
    };
    let ready = all
        .iter()
        .filter(|endpoint| is_ready(&endpoint.conditions))
        .count();
    let (status, reason) = match ready {
        0 => (Status::Fail, "NoneReady"),
        _ if ready < all.len() => (Status::Warn, "SomeNotReady"),
        _ => (Status::Ok, "AllReady"),
    };
    let message = format!("{ready} of {} endpoints are ready", all.len());
    Finding::new(status, CHECK, object, message)
        .reason(reason)
        .fix("find out which replica the others took out, and why: its log says so")
        .runbook("QuorumgateReplicaStruck")
}

async fn leader(client: &Client, gate: &Gate) -> Finding {
    const CHECK: &str = "Leader";
    let object = format!("Lease {}/{}", gate.namespace, gate.name);
    let api = Api::<Lease>::namespaced(client.clone(), &gate.namespace);
    let lease = match api.get_opt(&gate.name).await {
        Err(error) => return Finding::unread(CHECK, object, &error),
        Ok(lease) => lease.and_then(|lease| lease.spec).unwrap_or_default(),
    };
    let failed = |object: String, message: String| {
        Finding::new(Status::Fail, CHECK, object, message)
            .fix("read the logs of the replicas for errors of the Lease")
            .runbook("QuorumgateNoLeader")
    };
    let Some((holder, renewed)) = lease.holder_identity.zip(lease.renew_time) else {
        let message = "no replica leads: nothing is observed, and no rollout continues";
        return failed(object, message.to_owned()).reason("None");
    };
    let age = Timestamp::now().duration_since(renewed.0).as_secs();
    let lasts = i64::from(lease.lease_duration_seconds.unwrap_or(15));
    let message = format!("{holder} leads, renewed {}", ago(&Time(renewed.0)));
    if age > 2 * lasts {
        return failed(object, message).reason("Expired");
    }
    Finding::new(Status::Ok, CHECK, object, message)
}

/// Whether the admission policies hold the account that the replicas use. `None` if the account is
/// not known.
async fn policies(client: &Client, versions: &Versions, gate: &Gate) -> Option<Finding> {
    const CHECK: &str = "AdmissionPolicies";
    let deployment = versions.deployment.as_ref().ok()?.as_ref()?;
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let account = pod.service_account_name.as_deref().unwrap_or("default");
    let user = format!("system:serviceaccount:{}:{account}", gate.namespace);
    let object = format!("account {user}");
    let new = |status, message: String| Finding::new(status, CHECK, object.as_str(), message);
    let all = Api::<ValidatingAdmissionPolicy>::all(client.clone());
    let all = match all.list(&ListParams::default()).await {
        Err(error) => return Some(Finding::unread(CHECK, object, &error)),
        Ok(all) => all,
    };
    let (mut own, mut others) = (0, Vec::new());
    for policy in all {
        let spec = policy.spec.unwrap_or_default();
        let mut conditions = spec.match_conditions.iter().flatten();
        let Some(of_a_gate) = conditions.find(|condition| condition.name == "the-gate") else {
            continue;
        };
        if of_a_gate.expression.contains(&format!("'{user}'")) {
            own += 1;
        } else {
            others.extend(policy.metadata.name);
        }
    }
    Some(match (own, others.as_slice()) {
        (0, []) => new(
            Status::Warn,
            "no ValidatingAdmissionPolicy limits what the account may change".to_owned(),
        )
        .reason("Missing")
        .fix(APPLY_AGAIN),
        (_, [_, ..]) => new(
            Status::Warn,
            format!("policies limit another account: {}", others.join(", ")),
        )
        .reason("OtherAccount")
        .fix("with kustomize: set `namespace` in manifests/base/kustomization.yaml, and in no overlay"),
        (own, []) => new(Status::Ok, format!("{own} admission policies limit it")),
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use quorumgate_api::names::POD_WEBHOOK;
    use serde_json::json;

    use super::*;
    use crate::connect::tests::{api_server, forbidden, list};
    use crate::discover::tests::{VALIDATING, configuration};

    fn hook(bundle: &[u8]) -> Vec<(String, WebhookClientConfig)> {
        let config = WebhookClientConfig {
            ca_bundle: Some(ByteString(bundle.to_vec())),
            ..WebhookClientConfig::default()
        };
        vec![("pods.quorumgate.io".to_owned(), config)]
    }

    /// A certificate that ends at the beginning of the year.
    fn ends_in(year: i32) -> Vec<u8> {
        let mut made = rcgen::CertificateParams::default();
        made.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        made.self_signed(&key).unwrap().pem().into_bytes()
    }

    #[test]
    fn an_authority_that_is_missing_or_has_expired_fails() {
        let check = |hooks| authority("ValidatingWebhookConfiguration", "it", hooks);
        let ended = |bundle: &[u8]| {
            let found = check(hook(bundle));
            (found.status, found.reason.unwrap_or_default())
        };
        assert_eq!(ended(b""), (Status::Fail, "NoAuthority".to_owned()));
        assert_eq!(ended(b"no certificate").0, Status::Fail);
        assert_eq!(ended(&ends_in(2020)), (Status::Fail, "Expired".to_owned()));
        assert_eq!(ended(&ends_in(2090)).0, Status::Ok);
        // The old one stays in the bundle until it ends.
        let both = [ends_in(2020), ends_in(2090)].concat();
        assert_eq!(ended(&both).0, Status::Ok);
        assert_eq!(check(Vec::new()).reason.as_deref(), Some("NoWebhooks"));
    }

    fn status_of<'a>(found: &'a [Finding], check: &str) -> &'a Finding {
        found
            .iter()
            .find(|found| found.check == check)
            .expect(check)
    }

    #[tokio::test]
    async fn a_renamed_gate_is_checked_where_it_is() {
        let ours = configuration("renamed", POD_WEBHOOK);
        let now = Timestamp::now();
        let (of, _) = api_server(&[
            (
                "/version",
                json!({"major": "1", "minor": "37", "gitVersion": "v1.37.1",
                "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "",
                "compiler": "", "platform": ""}),
            ),
            (
                VALIDATING,
                list(
                    "ValidatingWebhookConfiguration",
                    std::slice::from_ref(&ours),
                ),
            ),
            (&format!("{VALIDATING}/renamed"), ours),
            (
                "/apis/apps/v1/namespaces/gates/deployments/the-gate",
                json!({"metadata": {"name": "the-gate"},
                    "spec": {"replicas": 3, "selector": {},
                        "template": {"spec": {"containers": [
                            {"name": "quorumgate", "image": "x/quorumgate:9.9.9"}]}}},
                    "status": {"readyReplicas": 2}}),
            ),
            (
                "/apis/discovery.k8s.io/v1/namespaces/gates/endpointslices",
                list(
                    "EndpointSlice",
                    &[json!({"metadata": {"name": "a"}, "addressType": "IPv4",
                    "endpoints": [{"addresses": ["1.2.3.4"], "conditions": {"ready": true}}],
                    "ports": []})],
                ),
            ),
            (
                "/apis/coordination.k8s.io/v1/namespaces/gates/leases/the-gate",
                json!({"metadata": {"name": "the-gate"}, "spec": {"holderIdentity": "gate-a",
                    "leaseDurationSeconds": 15, "renewTime": format!("{now:.6}")}}),
            ),
        ]);
        let found = checks(&of.client, &cli::Gate::default()).await;
        assert_eq!(status_of(&found, "KubernetesVersion").status, Status::Ok);
        let installed = status_of(&found, "Installation");
        assert_eq!(installed.object, "gate gates/the-gate");
        assert!(installed.message.ends_with("gates/mine"), "{installed:?}");
        let replicas = status_of(&found, "Replicas");
        assert_eq!(replicas.reason.as_deref(), Some("SomeNotReady"));
        assert_eq!(status_of(&found, "Endpoints").status, Status::Ok);
        assert_eq!(status_of(&found, "Leader").status, Status::Ok);
        assert_eq!(status_of(&found, "VersionSkew").status, Status::Warn);
        let mutating = status_of(&found, "MutatingWebhookConfiguration");
        assert_eq!(mutating.reason.as_deref(), Some("Missing"));
    }

    #[tokio::test]
    async fn policies_that_hold_another_account_are_told() {
        let policy = |name: &str, user: &str| {
            let expression = format!("request.userInfo.username == '{user}'");
            json!({"metadata": {"name": name}, "spec": {
                "matchConditions": [{"name": "the-gate", "expression": expression}]}})
        };
        let foreign = json!({"metadata": {"name": "foreign"}, "spec": {}});
        let own = "system:serviceaccount:quorumgate:gate";
        let other = "system:serviceaccount:quorumgate:gate-of-others";
        for (all, status, reason) in [
            (vec![foreign.clone()], Status::Warn, Some("Missing")),
            (vec![foreign, policy("a", own)], Status::Ok, None),
            (
                vec![policy("a", own), policy("b", other)],
                Status::Warn,
                Some("OtherAccount"),
            ),
        ] {
            let (of, _) = api_server(&[
                (
                    "/apis/apps/v1/namespaces/quorumgate/deployments/quorumgate",
                    json!({"metadata": {"name": "quorumgate"}, "spec": {"selector": {},
                        "template": {"spec": {"serviceAccountName": "gate", "containers": []}}}}),
                ),
                (
                    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
                    list("ValidatingAdmissionPolicy", &all),
                ),
            ]);
            let found = checks(&of.client, &cli::Gate::default()).await;
            let finding = status_of(&found, "AdmissionPolicies");
            assert_eq!(
                (finding.status, finding.reason.as_deref()),
                (status, reason)
            );
        }
    }

    #[tokio::test]
    async fn what_a_user_may_not_read_is_skipped_and_not_failed() {
        let (of, _) = api_server(&[
            (VALIDATING, forbidden()),
            (&format!("{VALIDATING}/quorumgate"), forbidden()),
            (
                "/apis/apps/v1/namespaces/quorumgate/deployments/quorumgate",
                forbidden(),
            ),
        ]);
        let found = checks(&of.client, &cli::Gate::default()).await;
        for check in ["Installation", "ValidatingWebhookConfiguration", "Replicas"] {
            let finding = status_of(&found, check);
            assert_eq!(finding.status, Status::Skip, "{finding:?}");
            assert_eq!(finding.reason.as_deref(), Some("Forbidden"));
        }
    }

    #[tokio::test]
    async fn two_gates_and_none_fail() {
        let both = ["a", "b"].map(|name| configuration(name, POD_WEBHOOK));
        for (all, reason) in [(&both[..], "SeveralGates"), (&[], "NotInstalled")] {
            let all = list("ValidatingWebhookConfiguration", all);
            let (of, _) = api_server(&[(VALIDATING, all)]);
            let found = checks(&of.client, &cli::Gate::default()).await;
            let finding = status_of(&found, "Installation");
            assert_eq!(finding.reason.as_deref(), Some(reason));
            assert_eq!(finding.status, Status::Fail);
        }
    }
}
