//! The facts of a replacement that a look does not have.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::ListParams;
use tokio::time::Instant;

use super::record;
use super::survivors::{survivors, uncreated};
use crate::api::{RecoveryPhase, names};
use crate::causes::causes;
use crate::ledger::Page;
use crate::lists;
use crate::observe::{ClaimNote, MemberClaim, data_in_pods, finding, is_held, joining, membership};
use crate::plan::replacement::{ClaimFacts, CrashLoop, MembershipBy, Mode, ReplacementInput};
use crate::quorum::Serving;
use crate::quorum::evidence::ListedMember;
use crate::quorum::{
    Comparison, DataInPods, Member, MemberId, PodName, PodUid, Snapshot, VolumeFinding,
    confirmed_list, volume_finding,
};
use crate::reconcile::look::{Look, handover, mode, rolls_out, template_etcd, versions};
use crate::reconcile::run::Run;
use crate::reconcile::scale;

/// The facts, and what is to be told besides.
pub(in crate::reconcile) struct Input {
    pub(super) facts: ReplacementInput,
    /// The time of this look, by the monotonic clock and by that of the API servers.
    pub(super) now: Instant,
    pub(super) at: Timestamp,
    /// The claims of the members, by pod.
    pub(super) claims: BTreeMap<PodName, MemberClaim>,
    /// The notes on those claims.
    pub(super) notes: Vec<ClaimNote>,
    /// The pods that wait for the gate's scheduling gate.
    pub(super) held: Vec<(PodName, PodUid)>,
    /// The members whose data is left, so that no new cluster begins ([`survivors`]).
    pub(super) survivors: Vec<PodName>,
    /// Whether a new cluster is announced that has not begun.
    pub(super) bootstraps: bool,
    /// The pods that their StatefulSet does not create while one of lower ordinal waits.
    pub(super) uncreated: Vec<PodName>,
    /// The value of the annotation that names no member.
    pub(super) unknown_request: Option<String>,
    /// The reason why members cannot be made to join.
    pub(super) cannot_join: Option<String>,
}

/// The value of the annotation, unless it was served: a finished replacement is on record whose old
/// id it names.
pub(super) fn requested(page: &Page) -> Option<&str> {
    let annotations = page.budget().metadata.annotations.as_ref()?;
    let value = annotations.get(names::REPLACE)?.trim();
    let id: Option<MemberId> = value.parse().ok();
    let mut all = page.status().into_iter().flat_map(|s| &s.replacements);
    let is_served = all.any(|one| {
        let old = one.old_member_id.as_ref().and_then(|id| id.parse().ok());
        one.completion_time.is_some() && old == id && id.is_some()
    });
    (!value.is_empty() && !is_served).then_some(value)
}

/// Gathers the facts of this look. The error says for people what could not be read.
pub(super) async fn gather(
    run: &Run,
    look: &Look,
    leadership_stays: bool,
    data: Comparison,
    crash_loops: BTreeMap<PodUid, CrashLoop>,
) -> Result<Input, String> {
    let Look {
        page,
        view,
        snapshot,
        round,
    } = look;
    let set = view.stateful_set();
    let membership = membership(page.budget(), set);
    let records = page.volume_records();
    let claims = member_claims(run, look).await?;
    let list = confirmed_list(snapshot, round);
    let claim_facts = claim_facts(run, look, &claims, list.as_deref());
    let held = view.pods().iter().filter(|pod| is_held(pod));
    let held: Vec<(PodName, PodUid)> = held
        .filter_map(|pod| {
            let name = PodName::new(pod.metadata.name.clone()?);
            Some((name, PodUid::new(pod.metadata.uid.clone()?)))
        })
        .collect();
    let (leases_held, has_backup) = match membership {
        MembershipBy::Sidecar => leases(run, look).await?,
        MembershipBy::Gate | MembershipBy::Pod | MembershipBy::Owner => (BTreeSet::new(), false),
    };
    let asked = requested(page);
    let request = asked.and_then(|asked| member_of(asked, look));
    let recovered = page.open_recovery().map(|open| PodName::new(&open.member));
    let request = request.filter(|pod| Some(pod) != recovered.as_ref());
    let open = page.open_replacement().map(record::read).transpose()?;
    let recovering = page.open_recovery().map(|open| open.phase);
    let facts = ReplacementInput {
        mode: match recovering {
            Some(RecoveryPhase::Alone | RecoveryPhase::Again) => Mode::Off,
            Some(RecoveryPhase::Rejoining) => Mode::Rejoining,
            None => mode(page.budget()),
        },
        membership,
        replaces_in_pod: data_in_pods(page.budget(), set) == DataInPods::Replace,
        request: request.clone(),
        wanted: scale::wanted(look),
        recorded: records.iter().map(|(pod, r)| (pod.clone(), r.id)).collect(),
        rolling_out: rolls_out(page.budget(), set),
        handover: handover(run, look, leadership_stays),
        list,
        versions: versions(look),
        claims: claim_facts,
        held_pods: held.iter().map(|(_, uid)| uid.clone()).collect(),
        failing_pods: view.failing_pods(),
        crash_loops,
        replace_after: page
            .budget()
            .spec
            .replace_after()
            .map_err(|error| error.to_string())?,
        leases_held,
        has_backup,
        data,
        record: open,
    };
    let is_guarded = membership == MembershipBy::Gate && !records.is_empty();
    Ok(Input {
        now: run.clock.instant(),
        at: run.clock.now(),
        unknown_request: asked.filter(|_| request.is_none()).map(str::to_owned),
        cannot_join: cannot_join(look).filter(|_| is_guarded),
        survivors: survivors(look, &facts.claims),
        bootstraps: run.observer.bootstraps(page.budget(), set),
        uncreated: uncreated(look, &held),
        facts,
        notes: notes(&claims),
        claims,
        held,
    })
}

/// Reads the claims of all members, by pod. The error says for people what could not be read.
pub(in crate::reconcile) async fn member_claims(
    run: &Run,
    look: &Look,
) -> Result<BTreeMap<PodName, MemberClaim>, String> {
    let Look {
        page,
        view,
        snapshot,
        ..
    } = look;
    let records = page.volume_records();
    let members = snapshot.members.iter().filter_map(Member::pod_name);
    let pods: BTreeSet<&PodName> = members
        .chain(&snapshot.not_members)
        .chain(records.keys())
        .chain(snapshot.pods.iter().map(|pod| &pod.name))
        .collect();
    let mut claims = BTreeMap::new();
    for pod in pods {
        let read = run.observer.member_claim(&page.cluster, view, pod);
        if let Some(claim) = read.await? {
            claims.insert(pod.clone(), claim);
        }
    }
    Ok(claims)
}

/// The notes on these claims.
fn notes(claims: &BTreeMap<PodName, MemberClaim>) -> Vec<ClaimNote> {
    claims.values().filter_map(|claim| claim.note).collect()
}

/// The facts of the claims, by pod.
fn claim_facts(
    run: &Run,
    look: &Look,
    claims: &BTreeMap<PodName, MemberClaim>,
    list: Option<&[ListedMember]>,
) -> BTreeMap<PodName, ClaimFacts> {
    let notes = notes(claims);
    let Look {
        page,
        view,
        snapshot,
        ..
    } = look;
    let recorded = page.recorded_volumes();
    let some_serve = some_serve(snapshot);
    let found = |pod: &PodName, claim: &MemberClaim| {
        let is_held = view.pod(pod).is_some_and(is_held);
        if !is_held {
            return volume_finding(&recorded, pod, claim.volume.as_ref());
        }
        if recorded.contains_key(pod) {
            let found = volume_finding(&recorded, pod, claim.volume.as_ref());
            return view.start_finding(page, pod, found);
        }
        let found = view.start_finding(page, pod, finding(page, pod, Some(claim), &notes));
        let seen = (list, snapshot);
        let observer = &run.observer;
        // A member that etcd expects here has lost nothing.
        if observer.may_start(page, view, pod, &found, seen, some_serve) {
            VolumeFinding::Unknown
        } else {
            found
        }
    };
    let facts = claims.iter();
    let facts = facts.map(|(pod, claim)| (pod.clone(), facts_of(claim, found(pod, claim))));
    facts.collect()
}

/// The facts of a claim, with what was found out about its volume.
pub(in crate::reconcile) fn facts_of(claim: &MemberClaim, volume: VolumeFinding) -> ClaimFacts {
    ClaimFacts {
        state: claim.state.clone(),
        lost: claim.lost,
        volume,
        place: claim.place,
    }
}

/// Whether any member serves or may serve. External voters may have a quorum of their own.
pub(super) fn some_serve(snapshot: &Snapshot) -> bool {
    Serving::from_snapshot(snapshot) != Serving::Nobody || snapshot.proves_quorum()
}

/// The pod of the member with this id: a member that is seen, or one whose volume is on record.
fn member_of(asked: &str, look: &Look) -> Option<PodName> {
    let id: MemberId = asked.parse().ok()?;
    let mut members = look.snapshot.members.iter();
    let seen = members.find(|member| member.id == Some(id));
    let seen = seen.and_then(|member| member.pod_name().cloned());
    seen.or_else(|| {
        let mut records = look.page.volume_records().into_iter();
        records
            .find(|(_, record)| record.id == id)
            .map(|(pod, _)| pod)
    })
}

/// The reason why the members of the StatefulSet cannot be made to join a cluster.
fn cannot_join(look: &Look) -> Option<String> {
    template_etcd(look)?.and_then(joining).err()
}

/// The pods of members whose Lease has a holder, and whether there is a backup, as etcd-druid's
/// sidecar knows both.
async fn leases(run: &Run, look: &Look) -> Result<(BTreeSet<PodName>, bool), String> {
    let cluster = &look.page.cluster;
    let leases: Api<Lease> = Api::namespaced(run.client.clone(), &cluster.namespace);
    let mut held: BTreeSet<String> = BTreeSet::new();
    let every = ListParams::default();
    let all = lists::each(&leases, &every, |lease| {
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        let is_held = holder.is_some_and(|holder| !holder.is_empty() && holder != "0");
        held.extend(lease.metadata.name.filter(|_| is_held));
    });
    let all = all.await;
    all.map_err(|error| format!("could not list the Leases: {}", causes(&error)))?;
    let has_backup = held.contains(&format!("{}-full-snap", cluster.name));
    let of_member = |lease: String| PodName::of_member(&cluster.name, &lease);
    Ok((held.into_iter().filter_map(of_member).collect(), has_backup))
}
