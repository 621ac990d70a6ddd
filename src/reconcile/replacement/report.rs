//! The report on replacements and on pods that are kept from starting: the condition
//! `DataProtected`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource as _};
use serde_json::json;
use tracing::warn;

use super::super::report::OUTSIDE_ORDINALS;
use super::gather::Input;
use crate::api::DataPlace;
use crate::api::names::{ASKED, HELD, IDENTITY, REPLACE};
use crate::causes::causes;
use crate::observe::{MemberClaim, membership_in_doubt};
use crate::plan::replacement::{MembershipBy, Mode, Next, Proof, Refusal};
use crate::quorum::evidence::ListedMember;
use crate::quorum::{ClaimState, ClusterRef, Difference, PodName, PodUid, VolumeFinding};
use crate::reconcile::condition::ConditionText;
use crate::reconcile::look::Look;
use crate::reconcile::run::Run;
use crate::reconcile::volumes::places;
use crate::telemetry::events::{Notice, Severity};

/// Tells each pod that waits for the gate's scheduling gate why: by an Event, of which a repeated
/// one is written once a minute at most, and by a condition.
pub(super) async fn tell_held(run: &Run, look: &Look, input: &Input) {
    for (pod, uid) in &input.held {
        let Some(object) = look.view.pod(pod) else {
            continue;
        };
        let volume = input.facts.claims.get(pod).map(|claim| &claim.volume);
        let why = match volume {
            Some(VolumeFinding::Wrong { difference, .. }) => format!("it has {difference}"),
            Some(VolumeFinding::Unknown | VolumeFinding::AsRecorded) | None => {
                "the data of its member is not known to be on its volume".to_owned()
            }
        };
        let is_unseen = matches!(
            volume,
            Some(VolumeFinding::Wrong {
                difference: Difference::Unseen,
                ..
            })
        );
        let starts = if is_unseen {
            format!("{pod} starts when that can be read and its volume is the one on record")
        } else {
            format!(
                "{pod} starts when its member is replaced ({REPLACE} on the budget), or when it \
                 has its volume again{}",
                anew(look, input)
            )
        };
        let note = format!("the scheduling gate {IDENTITY} holds {pod}, because {why}. {starts}");
        if !says(object, &note) {
            let cluster = &look.page.cluster;
            let told = say_held(run, &cluster.namespace, (pod, uid), Some(&note)).await;
            if let Err(error) = told {
                let because = causes(&error);
                warn!(%cluster, %pod, because, "cannot write the pod's condition");
            }
        }
        run.events.notify(Notice {
            regarding: object.object_ref(&()),
            severity: Severity::Warning,
            reason: KEPT.to_owned(),
            action: "Hold",
            note,
        });
    }
}

/// The words about a new cluster, and about pods that are not created meanwhile.
fn anew(look: &Look, input: &Input) -> String {
    let ClusterRef { namespace, name } = &look.page.cluster;
    let text = match (input.survivors.is_empty(), input.bootstraps) {
        (true, _) => {
            ", or with all others as a new cluster (quorumgate.io/intent: bootstrap)".into()
        }
        (false, false) => String::new(),
        (false, true) => format!(
            ". The announcement bootstrap waits, because {} may have every write. Save a snapshot \
             of it. To give it up: kubectl -n {namespace} annotate sts {name} --overwrite \
             quorumgate.io/intent=delete, delete StatefulSet and claims, and apply them again",
            listed(&input.survivors)
        ),
    };
    if input.uncreated.is_empty() {
        return text;
    }
    format!(
        "{text}. Until then {} is not created, because spec.podManagementPolicy is OrderedReady: \
         kubectl -n {namespace} delete sts {name} --cascade=orphan, and apply it again with \
         podManagementPolicy: Parallel",
        listed(&input.uncreated)
    )
}

fn listed(pods: &[PodName]) -> String {
    let pods: Vec<&str> = pods.iter().map(PodName::as_str).collect();
    pods.join(", ")
}

/// Whether the pod's condition says this.
fn says(pod: &Pod, note: &str) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    let mut conditions = conditions.unwrap_or_default().iter();
    conditions.any(|c| c.type_ == HELD && c.message.as_deref() == Some(note))
}

/// The reason of the Event and of the condition.
const KEPT: &str = "KeptFromStarting";

/// Writes the condition of a pod that waits, with the words why. `None`: it waits no more.
pub(super) async fn say_held(
    run: &Run,
    namespace: &str,
    (pod, uid): (&PodName, &PodUid),
    why: Option<&str>,
) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(run.client.clone(), namespace);
    let change = json!({
        "metadata": {"uid": uid.as_str()},
        "status": {"conditions": [{
            "type": HELD,
            "status": if why.is_some() { "True" } else { "False" },
            "reason": if why.is_some() { KEPT } else { "Released" },
            "message": why.unwrap_or_default(),
            "lastTransitionTime": run.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }]},
    });
    let (params, change) = (PatchParams::default(), Patch::Strategic(&change));
    pods.patch_status(pod.as_str(), &params, &change)
        .await
        .map(drop)
}

/// The condition.
pub(super) fn said(look: &Look, input: &Input, next: &Next) -> ConditionText {
    let facts = &input.facts;
    let told = |(pod, _): &(PodName, _)| match facts.claims.get(pod).map(|c| &c.volume) {
        Some(VolumeFinding::Wrong { difference, .. }) => format!("{pod} (it has {difference})"),
        Some(VolumeFinding::Unknown | VolumeFinding::AsRecorded) | None => pod.to_string(),
    };
    let held: Vec<String> = input.held.iter().map(told).collect();
    let mut more = String::new();
    if !held.is_empty() {
        more = format!(
            " Kept from starting under an identity whose data they do not have: {}. They start when \
             their members are replaced, or when they have their volumes again{}.",
            held.join(", "),
            anew(look, input)
        );
    }
    let terminating = terminating(&input.claims);
    let is_guarded = facts.membership == MembershipBy::Gate && look.page.cluster_id().is_some();
    if let Some(guarded) = &look.page.budget().metadata.creation_timestamp
        && is_guarded
    {
        more.extend(unasked(look.view.pods(), guarded.0));
    }
    let unsaid = more.clone();
    if let Some((_, text)) = &terminating {
        more = format!("{more} The {text}");
    }
    match next {
        Next::Wait { pod, because, .. } if facts.record.is_some() => (
            "False",
            "Replacing",
            if look.snapshot.is_outside_ordinals(pod) {
                format!("{pod} is being replaced: {because}, and {OUTSIDE_ORDINALS}.{more}")
            } else {
                format!("{pod} is being replaced: {because}.{more}")
            },
        ),
        // What nobody is to mend is said only where pods wait for it.
        Next::Wait {
            pod,
            proof,
            because,
        } if facts.mode != Mode::Off || !held.is_empty() || *proof == Some(Proof::CrashLoop) => {
            let why = proof
                .as_ref()
                .map_or_else(|| "somebody asked for it".to_owned(), ToString::to_string);
            let record = look.page.volume_records().get(pod).map(|record| record.id);
            let id = look.snapshot.member(pod).and_then(|m| m.id).or(record);
            let own = match (because, id) {
                _ if !look.snapshot.proves_quorum() => {
                    let cluster = &look.page.cluster;
                    format!(
                        " Without a quorum nobody is replaced. If it is lost for good: kubectl quorum recover {} -n {}.",
                        cluster.name, cluster.namespace
                    )
                }
                (Refusal::NotRequested, Some(id)) => {
                    let cluster = &look.page.cluster;
                    let (namespace, name) = (&cluster.namespace, &cluster.name);
                    format!(" kubectl -n {namespace} annotate qdb {name} {REPLACE}={id}.")
                }
                _ => String::new(),
            };
            let text = format!("{pod} is to be replaced: {why}. It waits: {because}.{own}{more}");
            let reason = match (proof, because) {
                (Some(Proof::CrashLoop), Refusal::Off | Refusal::NotRequested) => "CrashLoop",
                _ => reason_of(because),
            };
            ("False", reason, text)
        }
        Next::Wait { .. } | Next::Nothing | Next::Act(_) => at_rest(
            look,
            input,
            !held.is_empty(),
            &more,
            terminating.map(|(reason, text)| (reason, format!("the {text}{unsaid}"))),
        ),
    }
}

/// The condition while no member is replaced. `more`: the words on waiting pods. `leaving`: the
/// reason and the words where claims are being deleted.
fn at_rest(
    look: &Look,
    input: &Input,
    some_are_held: bool,
    more: &str,
    leaving: Option<(&'static str, String)>,
) -> ConditionText {
    let facts = &input.facts;
    if let Some(asked) = &input.unknown_request {
        let text = format!(
            "the annotation {REPLACE} asks for the member {asked:?}, and etcd has no member of this id.{more}"
        );
        return ("False", "NoSuchMember", text);
    }
    if !look.snapshot.accused.is_empty() && facts.mode != Mode::Off {
        let data = facts.data;
        let text = format!(
            "no member is replaced: {}.{more}",
            Refusal::NotShown { data }
        );
        return ("False", "NotShown", text);
    }
    if some_are_held {
        return ("False", "KeptFromStarting", more.trim().to_owned());
    }
    if let Some((reason, text)) = leaving {
        return ("False", reason, text);
    }
    let (budget, set) = (look.page.budget(), look.view.stateful_set());
    if let Some(doubt) = membership_in_doubt(budget, set) {
        let ClusterRef { namespace, name } = &look.page.cluster;
        let text = format!(
            "{doubt}, and the record counts until you say who changes etcd's member list: \
             kubectl -n {namespace} patch qdb {name} --type=merge -p \
             '{{\"spec\":{{\"dataProtection\":{{\"membership\":\"Gate\"}}}}}}' (or Pod).{more}"
        );
        return ("False", "MembershipUnclear", text);
    }
    if let Some(why) = &input.cannot_join {
        let text = format!(
            "a member without data cannot be kept from starting a cluster of its own, because initial-cluster-state cannot be set: {why}.{more}"
        );
        return ("False", "StateNotSet", text);
    }
    let members = look.snapshot.members.len();
    let joins_by = look.page.status().and_then(|s| s.joins_by.as_deref());
    let joins = joins_by.filter(|_| facts.membership == MembershipBy::Pod);
    let joins = joins.map_or_else(String::new, |by| {
        format!("; {by} adds members to etcd, so no pod is kept from starting")
    });
    let text = format!("none of {members} members has to be replaced{joins}");
    let elsewhere = elsewhere(&places(look));
    let by_address = by_address(facts.list.as_deref().unwrap_or_default(), look.view.pods());
    let reason = match (elsewhere.is_empty(), by_address.is_empty()) {
        (false, _) => "NotOnOwnClaims",
        (true, false) => "PeersByPodAddress",
        (true, true) => "NothingToReplace",
    };
    (
        "True",
        reason,
        format!("{text}{elsewhere}{by_address}.{more}"),
    )
}

/// The words about members whose peer URLs are addresses of their pods. The next pods have others.
fn by_address(list: &[ListedMember], pods: &[Pod]) -> String {
    let address = |pod: &Pod| {
        let on_host = pod.spec.as_ref().and_then(|spec| spec.host_network);
        let address = pod.status.as_ref()?.pod_ip.as_ref()?;
        let address: IpAddr = address.parse().ok()?;
        (on_host != Some(true)).then_some(address)
    };
    let addresses: Vec<IpAddr> = pods.iter().filter_map(address).collect();
    let is_of_pod = |url: &String| {
        let url: Option<http::Uri> = url.parse().ok();
        let host = url.as_ref().and_then(http::Uri::host);
        let host = host.and_then(|host| host.trim_matches(['[', ']']).parse().ok());
        host.is_some_and(|host: IpAddr| addresses.contains(&host))
    };
    let named = list
        .iter()
        .filter(|member| member.peer_urls.iter().any(is_of_pod));
    let named: Vec<&str> = named.map(|member| member.name.as_str()).collect();
    if named.is_empty() {
        return String::new();
    }
    format!(
        "; the peer URLs of {} are addresses of pods: if all pods go at one time, no member finds \
         another again",
        named.join(", ")
    )
}

/// The words about members whose data is not on claims of their own, and what that means for each.
fn elsewhere(places: &BTreeMap<PodName, DataPlace>) -> String {
    let of = |place: DataPlace| {
        let pods = places.iter().filter(|(_, own)| **own == place);
        let pods: Vec<&str> = pods.map(|(pod, _)| pod.as_str()).collect();
        (!pods.is_empty()).then(|| {
            let meaning = match place {
                DataPlace::Claim => return String::new(),
                DataPlace::SharedClaim => "one volume that is lost takes all of it",
                DataPlace::Node => {
                    "the next pod of each is bound to that node, and a node that is lost takes it"
                }
                DataPlace::Pod => "it goes with the pod",
                DataPlace::Unknown => "name etcd's data directory by --data-dir",
            };
            format!("; the data of {} is {place}: {meaning}", pods.join(", "))
        })
    };
    [
        DataPlace::SharedClaim,
        DataPlace::Node,
        DataPlace::Pod,
        DataPlace::Unknown,
    ]
    .into_iter()
    .filter_map(of)
    .collect()
}

/// The words about claims and volumes that terminate under their members, with the reason. `None`
/// if none does.
fn terminating(claims: &BTreeMap<PodName, MemberClaim>) -> Option<(&'static str, String)> {
    let of = |leaves: &dyn Fn(&MemberClaim) -> bool| {
        let pods = claims.iter().filter(|(_, claim)| leaves(claim));
        let pods: Vec<&str> = pods.map(|(pod, _)| pod.as_str()).collect();
        (!pods.is_empty()).then(|| pods.join(", "))
    };
    let advice = format!(
        "Replace one member after another: annotate the budget with {REPLACE} and the member's id."
    );
    let claims = of(&|claim| {
        matches!(
            claim.state,
            ClaimState::Here {
                terminating: true,
                ..
            }
        )
    });
    if let Some(pods) = claims {
        let text = format!(
            "claims of {pods} are being deleted, and the data of each goes with its pod. Leave \
             the finalizer kubernetes.io/pvc-protection. {advice}"
        );
        return Some(("ClaimTerminating", text));
    }
    of(&|claim| !claim.leaving.is_empty()).map(|pods| {
        let text = format!(
            "volumes of {pods} are being deleted, and each goes with its claim, whatever its \
             reclaim policy. Leave the finalizer kubernetes.io/pv-protection. {advice}"
        );
        ("VolumeTerminating", text)
    })
}

/// How long after its budget a pod may be created without the gate, which learns of the budget by
/// its watch.
const LEARNT: SignedDuration = SignedDuration::from_secs(60);

/// Whether the pod lacks the mark that the gate's webhook gives each new one.
pub(super) fn is_unmarked(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    !annotations.is_some_and(|all| all.contains_key(ASKED))
}

/// The words about pods that were created without the gate, whose webhook for new pods fails open.
/// `guarded`: the creation of the budget.
fn unasked(pods: &[Pod], guarded: Timestamp) -> Option<String> {
    let is_unasked = |pod: &&Pod| {
        let made = pod.metadata.creation_timestamp.as_ref();
        made.is_some_and(|made| made.0 > guarded + LEARNT) && is_unmarked(pod)
    };
    let pods = pods.iter().filter(is_unasked);
    let pods: Vec<&str> = pods.filter_map(|p| p.metadata.name.as_deref()).collect();
    (!pods.is_empty()).then(|| {
        format!(
            " The gate was not asked about {} in time when it was created, so nobody compared the \
             volume with the one on record before.",
            pods.join(", ")
        )
    })
}

/// The reason of the condition while a member that is to be replaced waits.
fn reason_of(because: &Refusal) -> &'static str {
    match because {
        Refusal::Hindered(_) => "Hindered",
        Refusal::MayRecover { .. } => "CrashLoop",
        Refusal::Recreation | Refusal::Joining { .. } => "Replacing",
        because => because.slug(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_no_claim_of_its_own_is_told_with_what_that_means() {
        let places = |all: &[DataPlace]| {
            let named = all.iter().enumerate();
            named
                .map(|(n, place)| (PodName::new(format!("etcd-{n}")), *place))
                .collect()
        };
        assert_eq!(elsewhere(&places(&[DataPlace::Claim; 3])), "");
        let told = elsewhere(&places(&[
            DataPlace::Pod,
            DataPlace::Claim,
            DataPlace::Node,
            DataPlace::Pod,
        ]));
        assert_eq!(
            told,
            "; the data of etcd-2 is in a directory of its node: the next pod of each is bound to \
             that node, and a node that is lost takes it; the data of etcd-0, etcd-3 is in its pod: it goes with the pod"
        );
    }

    fn pod(name: &str, made: &str, annotations: &serde_json::Value) -> Pod {
        let metadata = json!({"name": name, "creationTimestamp": made, "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn members_that_find_each_other_by_addresses_of_pods_are_named() {
        let pod = |address: &str, host: bool| {
            let pod = json!({"spec": {"hostNetwork": host, "containers": []}, "status": {"podIP": address}});
            serde_json::from_value::<Pod>(pod).unwrap()
        };
        let member = |name: &str, url: &str| ListedMember {
            id: crate::quorum::MemberId(1),
            name: name.to_owned(),
            learner: false,
            peer_urls: vec![url.to_owned()],
            client_urls: Vec::new(),
        };
        let list = [
            member("a", "http://10.0.0.7:2380"),
            member("b", "https://[fd00::8]:2380"),
            member("c", "https://etcd-2.etcd.db.svc:2380"),
        ];
        let pods = [pod("10.0.0.7", false), pod("fd00::8", false)];
        let told = by_address(&list, &pods);
        assert!(told.contains("peer URLs of a, b are addresses"), "{told}");
        // The address of a node stays.
        assert_eq!(by_address(&list, &[pod("10.0.0.7", true)]), "");
    }

    #[test]
    fn pods_that_the_gate_had_no_say_in_are_named() {
        let guarded = "2026-01-01T00:00:00Z".parse().unwrap();
        let marked = json!({ASKED: "true"});
        let pods = [
            pod("etcd-0", "2025-12-31T00:00:00Z", &json!({})),
            pod("etcd-1", "2026-01-01T00:05:00Z", &marked),
        ];
        assert_eq!(unasked(&pods, guarded), None);
        // The template may have the word for autoscalers.
        let of_template = json!({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"});
        let pods = [pod("etcd-2", "2026-01-01T00:05:00Z", &of_template)];
        let told = unasked(&pods, guarded).unwrap();
        assert!(told.contains("not asked about etcd-2"), "{told}");
    }

    #[test]
    fn a_claim_or_a_volume_that_terminates_is_said_with_what_to_do() {
        let mut claim = MemberClaim {
            name: "data-etcd-2".to_owned(),
            wal: None,
            state: ClaimState::Here {
                uid: "claim".to_owned(),
                terminating: false,
            },
            volume: None,
            lost: false,
            leaving: Vec::new(),
            place: crate::plan::replacement::Place::Claim,
            made: None,
            note: None,
        };
        let told = |claim: &MemberClaim| {
            let claims = BTreeMap::from([(PodName::new("etcd-2"), claim.clone())]);
            terminating(&claims)
        };
        assert_eq!(told(&claim), None);
        claim.leaving = vec!["pv-1".to_owned()];
        let (reason, text) = told(&claim).unwrap();
        assert_eq!(reason, "VolumeTerminating");
        assert!(
            text.contains("volumes of etcd-2") && text.contains(REPLACE),
            "{text}"
        );
        claim.state = ClaimState::Here {
            uid: "claim".to_owned(),
            terminating: true,
        };
        assert_eq!(told(&claim).unwrap().0, "ClaimTerminating");
    }
}
