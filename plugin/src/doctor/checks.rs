//! The single checks.

use futures::StreamExt as _;
use futures::stream;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client};
use quorumgate::api::Enforcement;
use quorumgate::api::names::{GATED, POD_WEBHOOK, TRUE};
use x509_parser::pem::Pem;

use super::{Finding, State};
use crate::ask::{Answer, By, ask};
use crate::cli;
use crate::cluster::{Cluster, Quorum, ago};
use crate::connect::{Kubernetes, MayNotRead};
use crate::status::{everywhere, here};

/// The Kubernetes versions that are supported: 1.33 to 1.37.
const MINORS: std::ops::RangeInclusive<u32> = 33..=37;

/// A caBundle that ends sooner than this needs a look.
const SOON_DAYS: i64 = 14;

/// How many clusters are asked at one time.
const AT_ONCE: usize = 8;

/// The checks of what is installed once.
pub(super) async fn installation(of: &Kubernetes, options: &cli::Doctor) -> Vec<Finding> {
    let client = &of.client;
    let mut found = vec![version(client).await];
    found.extend(webhooks(client, &options.webhook_configuration).await);
    found.push(replicas(client, options).await);
    found.push(endpoints(client, options).await);
    found.push(leader(client, options).await);
    found
}

async fn version(client: &Client) -> Finding {
    let what = "Kubernetes";
    match client.apiserver_version().await {
        Err(error) => Finding::unread(what, &error),
        Ok(version) => {
            let minor = version.minor.trim_end_matches('+').parse().unwrap_or(0);
            let supported = version.major == "1" && MINORS.contains(&minor);
            let says = if supported {
                version.git_version
            } else {
                format!(
                    "{} is not tested with quorumgate: 1.33 to 1.37 are",
                    version.git_version
                )
            };
            let state = if supported {
                State::Well
            } else {
                State::Uneasy
            };
            Finding::new(what, state, says)
        }
    }
}

/// The two webhook configurations: whether they are there, and whether the authority in them is
/// valid.
async fn webhooks(client: &Client, name: &str) -> Vec<Finding> {
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
    let others = match &validating {
        Ok(None) => other_names(client).await,
        Ok(Some(_)) | Err(_) => Vec::new(),
    };
    let told = [
        (format!("ValidatingWebhookConfiguration {name}"), validating),
        (format!("MutatingWebhookConfiguration {name}"), mutating),
    ];
    told.into_iter()
        .map(|(what, read)| match read {
            Err(error) => Finding::unread(&what, &error),
            Ok(None) => Finding::new(what, State::Bad, missing(&others)),
            Ok(Some(hooks)) => hooks_are_well(what, hooks),
        })
        .collect()
}

/// The webhook configurations of the gate under whatever name.
async fn other_names(client: &Client) -> Vec<String> {
    let all = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    let Ok(all) = all.list(&ListParams::default()).await else {
        return Vec::new();
    };
    let asks_gate = |found: &&ValidatingWebhookConfiguration| {
        let mut hooks = found.webhooks.iter().flatten();
        hooks.any(|hook| hook.name == POD_WEBHOOK)
    };
    let ours = all.items.iter().filter(asks_gate);
    ours.filter_map(|found| found.metadata.name.clone())
        .collect()
}

fn missing(others: &[String]) -> String {
    match others {
        [] => "is missing: the API server does not ask the gate; install it again".to_owned(),
        [other, ..] => format!(
            "is missing, and {other} is there: say --webhook-configuration={other}, and --gate and --gate-namespace as the gate is called there"
        ),
    }
}

fn hooks_are_well(what: String, hooks: Vec<(String, WebhookClientConfig)>) -> Finding {
    let mut ends = Vec::new();
    for (name, config) in hooks {
        let bundle = config.ca_bundle.unwrap_or_default().0;
        let Some(end) = last_end(&bundle) else {
            let says = format!(
                "{name} has no authority (caBundle), so the API server trusts nobody to be the gate: see docs/failure-modes.md"
            );
            return Finding::new(what, State::Bad, says);
        };
        ends.push((end, name));
    }
    let Some((end, name)) = ends.into_iter().min() else {
        return Finding::new(what, State::Bad, "has no webhooks: install it again");
    };
    let days = (end - Timestamp::now().as_second()) / 86_400;
    match days {
        ..0 => Finding::new(
            what,
            State::Bad,
            format!("the authority of {name} has ended"),
        ),
        0..SOON_DAYS => Finding::new(
            what,
            State::Uneasy,
            format!("the authority of {name} ends in {days} days"),
        ),
        _ => Finding::new(
            what,
            State::Well,
            format!("is there; its authority is valid for {days} days"),
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

async fn replicas(client: &Client, options: &cli::Doctor) -> Finding {
    let what = format!("replicas of {}/{}", options.gate_namespace, options.gate);
    let api = Api::<Deployment>::namespaced(client.clone(), &options.gate_namespace);
    let deployment = match api.get_opt(&options.gate).await {
        Err(error) => return Finding::unread(&what, &error),
        Ok(None) => {
            let says =
                "there is no such Deployment: say --gate-namespace and --gate if it is elsewhere";
            return Finding::new(what, State::Bad, says);
        }
        Ok(Some(deployment)) => deployment,
    };
    let wanted = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = deployment
        .status
        .and_then(|status| status.ready_replicas)
        .unwrap_or(0);
    let says = format!("{ready} of {wanted} are ready");
    let state = match ready {
        0 => State::Bad,
        _ if ready < wanted => State::Uneasy,
        _ => State::Well,
    };
    Finding::new(what, state, says)
}

async fn endpoints(client: &Client, options: &cli::Doctor) -> Finding {
    let what = format!("endpoints of {}/{}", options.gate_namespace, options.gate);
    let api = Api::<EndpointSlice>::namespaced(client.clone(), &options.gate_namespace);
    let of_service = format!("kubernetes.io/service-name={}", options.gate);
    let slices = match api.list(&ListParams::default().labels(&of_service)).await {
        Err(error) => return Finding::unread(&what, &error),
        Ok(slices) => slices,
    };
    let all: Vec<_> = slices
        .into_iter()
        .flat_map(|slice| slice.endpoints)
        .collect();
    let is_ready = |conditions: &Option<_>| {
        let ready = |c: &k8s_openapi::api::discovery::v1::EndpointConditions| c.ready;
        conditions.as_ref().and_then(ready) != Some(false)
    };
    let ready = all
        .iter()
        .filter(|endpoint| is_ready(&endpoint.conditions))
        .count();
    let says = format!("{ready} of {} are called", all.len());
    let state = match ready {
        0 => State::Bad,
        _ if ready < all.len() => State::Uneasy,
        _ => State::Well,
    };
    Finding::new(what, state, says)
}

async fn leader(client: &Client, options: &cli::Doctor) -> Finding {
    let what = format!(
        "leader by the Lease {}/{}",
        options.gate_namespace, options.gate
    );
    let api = Api::<Lease>::namespaced(client.clone(), &options.gate_namespace);
    let lease = match api.get_opt(&options.gate).await {
        Err(error) => return Finding::unread(&what, &error),
        Ok(lease) => lease.and_then(|lease| lease.spec).unwrap_or_default(),
    };
    let Some((holder, renewed)) = lease.holder_identity.zip(lease.renew_time) else {
        let says = "nobody leads: nothing is observed, and no rollout goes on";
        return Finding::new(what, State::Bad, says);
    };
    let age = Timestamp::now().duration_since(renewed.0).as_secs();
    let renewed = ago(&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
        renewed.0,
    ));
    let lasts = i64::from(lease.lease_duration_seconds.unwrap_or(15));
    let state = if age > 2 * lasts {
        State::Bad
    } else {
        State::Well
    };
    Finding::new(what, state, format!("{holder}, renewed {renewed}"))
}

/// The checks of each guarded cluster: of the namespace that the user named, or of all.
pub(super) async fn clusters(of: &Kubernetes) -> Vec<Finding> {
    let clusters = if of.named {
        here(of).await
    } else {
        everywhere(of).await
    };
    let clusters = match clusters {
        Err(error) => {
            let state = if error.is::<MayNotRead>() {
                State::Unseen
            } else {
                State::Bad
            };
            return vec![Finding::new(
                "guarded clusters",
                state,
                format!("{error:#}"),
            )];
        }
        Ok(clusters) if clusters.is_empty() => {
            let says = "none: kubectl label statefulset NAME quorumgate.io/enroll=true";
            return vec![Finding::new("guarded clusters", State::Uneasy, says)];
        }
        Ok(clusters) => clusters,
    };
    let each = stream::iter(&clusters).map(|found| cluster(of, found));
    let found: Vec<Vec<Finding>> = each.buffered(AT_ONCE).collect().await;
    found.into_iter().flatten().collect()
}

async fn cluster(of: &Kubernetes, cluster: &Cluster) -> Vec<Finding> {
    let mut found = of_budget(cluster);
    found.extend(gated(of, cluster).await);
    found.extend(answers(of, cluster).await);
    if found.is_empty() {
        let says = format!(
            "{} voters serve, and the gate answers",
            cluster.serving.unwrap_or_default()
        );
        found.push(Finding::new(name(cluster), State::Well, says));
    }
    found
}

fn name(cluster: &Cluster) -> String {
    format!("cluster {}/{}", cluster.namespace, cluster.name)
}

/// What the budget itself says.
fn of_budget(cluster: &Cluster) -> Vec<Finding> {
    let mut found = Vec::new();
    for problem in &cluster.problems {
        let state = match problem.status.as_str() {
            "Unknown" => State::Uneasy,
            _ => State::Bad,
        };
        let says = format!(
            "{} ({}): {}",
            problem.condition, problem.reason, problem.message
        );
        found.push(Finding::new(name(cluster), state, says));
    }
    if cluster.quorum == Quorum::Unknown && cluster.problems.is_empty() {
        let says = "the gate has not said yet how it is: is a replica of it ready?";
        found.push(Finding::new(name(cluster), State::Bad, says));
    }
    if cluster.enforcement == Enforcement::Warn {
        let says = "refusals are only reported (spec.enforcement is Warn)";
        found.push(Finding::new(name(cluster), State::Uneasy, says));
    }
    found
}

/// Whether the API server asks the gate about the namespace.
async fn gated(of: &Kubernetes, cluster: &Cluster) -> Option<Finding> {
    let namespaces = Api::<Namespace>::all(of.client.clone());
    // Who may not read it is told by the dry run below.
    let namespace = namespaces.get_opt(&cluster.namespace).await.ok()??;
    let labels = namespace.metadata.labels.unwrap_or_default();
    let gated = labels.get(GATED).is_some_and(|value| value == TRUE);
    (!gated).then(|| {
        let says = format!("the namespace lacks the label {GATED}={TRUE}, which the gate should set: it is not asked about its pods");
        Finding::new(name(cluster), State::Bad, says)
    })
}

/// Whether the gate answers about one of the pods. Any answer of its own will do.
async fn answers(of: &Kubernetes, cluster: &Cluster) -> Option<Finding> {
    let pod = cluster
        .members
        .iter()
        .find_map(|member| member.pod.as_deref())?;
    let (state, says) = match ask(of, &cluster.namespace, pod, By::Delete).await {
        Ok(Answer::Yes { .. } | Answer::No { .. } | Answer::NoPod) => return None,
        Ok(Answer::Unreachable { message }) => (
            State::Bad,
            format!("the API server cannot reach the gate: {message}"),
        ),
        Ok(Answer::NotYours { .. }) => {
            let says = format!(
                "your user may not delete {pod}, so whether the gate answers was not tried"
            );
            (State::Unseen, says)
        }
        Ok(Answer::Other { message, .. }) => (State::Uneasy, message),
        Err(error) => (State::Bad, format!("{error:#}")),
    };
    Some(Finding::new(name(cluster), state, says))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;
    use crate::cluster::Problem;
    use crate::cluster::tests::degraded;

    fn hook(bundle: &[u8]) -> Vec<(String, WebhookClientConfig)> {
        let config = WebhookClientConfig {
            ca_bundle: Some(ByteString(bundle.to_vec())),
            ..WebhookClientConfig::default()
        };
        vec![("pods.quorumgate.io".to_owned(), config)]
    }

    /// A certificate that ends on `day`.
    fn authority(year: i32) -> Vec<u8> {
        let mut made = rcgen::CertificateParams::default();
        made.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        made.self_signed(&key).unwrap().pem().into_bytes()
    }

    #[test]
    fn an_authority_that_is_missing_or_has_ended_is_to_be_mended() {
        let state = |bundle: &[u8]| hooks_are_well("it".into(), hook(bundle)).state;
        assert_eq!(state(b""), State::Bad);
        assert_eq!(state(b"no certificate"), State::Bad);
        assert_eq!(state(&authority(2020)), State::Bad);
        assert_eq!(state(&authority(2090)), State::Well);
        // The old one stays in the bundle until it ends.
        let both = [authority(2020), authority(2090)].concat();
        assert_eq!(state(&both), State::Well);
        let none = hooks_are_well("it".into(), Vec::new());
        assert_eq!(none.state, State::Bad);
    }

    #[test]
    fn the_patch_that_lets_members_be_asked_is_printed_as_the_budget_says_it() {
        let command = "kubectl -n db patch qdb etcd --type merge -p '{}'";
        let mut cluster = degraded();
        cluster.problems = vec![Problem {
            condition: "EvidenceLive".to_owned(),
            status: "False".to_owned(),
            reason: "TLSFailed".to_owned(),
            message: format!("etcd-0: its certificate is for a; to fix it, run: {command}"),
        }];
        let found = of_budget(&cluster);
        assert!(found[0].says.ends_with(command), "{found:?}");
    }

    #[test]
    fn what_a_budget_says_is_found() {
        let found = of_budget(&degraded());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].state, State::Bad);
        assert_eq!(found[0].what, "cluster db/etcd");
        assert!(found[0].says.contains("GateActive (NotAsked)"), "{found:?}");
    }
}
