//! Facts of a member that its cluster's snapshot does not have: the container's history, the member
//! list's peer URLs, the Leases of etcd-backup-restore, and the latest defragmentation by the gate.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::DefragmentationStatus;
use crate::members::{
    Exit, LastDefragmentation, MemberInput, RunStatus, Snapshots, Stored, UnixTime,
};
use crate::observe::etcd_history;
use crate::quorum::{Cause, GrantKind, Grants, MemberId, PodName};
use crate::reconcile::look::Look;

/// The annotation of etcd-backup-restore on the Lease of a member.
const TLS_ENABLED: &str = "member.etcd.gardener.cloud/tls-enabled";

/// Adds to `facts` what Leases, member list and pod say. `owner` is the name of the cluster's
/// owner, after which the snapshot Leases are named.
pub(super) fn add(
    facts: &mut MemberInput,
    look: &Look,
    leases: &[Lease],
    pod: &PodName,
    owner: &str,
) {
    if let Some(object) = look.view.pod(pod) {
        let (exit, restarts) = etcd_history(object, look.view.etcd_container());
        facts.exit = exit.map(Exit::of_code);
        facts.restarts = restarts;
    }
    // A Lease is named like the member, which may have a prefix before the name of its pod.
    let member = look.snapshot.member(pod).map(|member| member.name.as_str());
    let names = member.into_iter().chain([pod.as_str()]);
    let told = names
        .filter_map(|name| lease(leases, name))
        .find_map(|lease| {
            let annotations = lease.metadata.annotations.as_ref()?;
            annotations.get(TLS_ENABLED)?.parse().ok()
        });
    let runs = look.page.status().map(|status| &status.defragmentations);
    let mut runs = runs.into_iter().flatten();
    let last = runs.find(|run| run.member == pod.as_str());
    facts.defragmentation = last.map(|last| defragmentation(last, pod, &look.page.grants));
    facts.peer_tls = told.or_else(|| by_urls(look, facts.id?));
    if facts.leads {
        facts.snapshots = snapshots(leases, owner);
    }
}

/// The snapshots that the snapshot Leases tell of. `None` if there are no such Leases, or nothing
/// is in them yet.
fn snapshots(leases: &[Lease], owner: &str) -> Option<Snapshots> {
    let stored = |kind: &str| revision(leases, &format!("{owner}-{kind}-snap"));
    let (last_full, last_delta) = (stored("full"), stored("delta"));
    (last_full.is_some() || last_delta.is_some()).then_some(Snapshots {
        last_full,
        last_delta,
        accumulated_delta_size: None,
    })
}

/// A run on record. It is under way while its grant is open, and has failed where nobody saw its
/// end.
fn defragmentation(
    last: &DefragmentationStatus,
    pod: &PodName,
    grants: &Grants,
) -> LastDefragmentation {
    let is_run = |cause: &Cause| matches!(cause.what, GrantKind::Defragment { .. });
    let causes = grants.get(pod).map(|grant| grant.causes.as_slice());
    let is_open = causes.unwrap_or_default().iter().any(is_run);
    let size = |bytes: i64| u64::try_from(bytes).ok();
    let time = |at: &Time| UnixTime(at.0.as_second());
    LastDefragmentation {
        start_time: time(&last.start_time),
        end_time: last.completion_time.as_ref().map(time),
        status: match (&last.completion_time, &last.error) {
            (Some(_), None) => Some(RunStatus::Succeeded),
            (Some(_), Some(_)) => Some(RunStatus::Failed),
            (None, _) => (!is_open).then_some(RunStatus::Failed),
        },
        reason: Some(last.reason.clone()),
        message: last.error.clone(),
        initial_db_size: size(last.size_before_bytes),
        final_db_size: last.size_after_bytes.and_then(size),
    }
}

fn lease<'l>(leases: &'l [Lease], name: &str) -> Option<&'l Lease> {
    let named = |lease: &&Lease| lease.metadata.name.as_deref() == Some(name);
    leases.iter().find(named)
}

/// The snapshot that a snapshot Lease tells of. The Lease holds the revision and nothing else; its
/// renewal is not the time of the snapshot. The revision 0 says that there is no such snapshot.
fn revision(leases: &[Lease], name: &str) -> Option<Stored> {
    let holder = lease(leases, name)?.spec.as_ref()?.holder_identity.as_ref();
    let revision: u64 = holder?.parse().ok()?;
    (revision > 0).then(|| Stored {
        end_revision: Some(revision),
        ..Stored::default()
    })
}

/// Whether the member's peer URLs use TLS, by the lists of the members that answered. `None` if the
/// lists do not have it, or mix both.
fn by_urls(look: &Look, id: MemberId) -> Option<bool> {
    let lists = look
        .round
        .probes
        .iter()
        .filter(|probe| probe.read.is_ok())
        .flat_map(|probe| probe.members.iter().flatten());
    let urls = &lists.into_iter().find(|listed| listed.id == id)?.peer_urls;
    let secure = |url: &String| url.starts_with("https://");
    let all = !urls.is_empty() && urls.iter().all(secure);
    (all || !urls.iter().any(secure) && !urls.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn status(finished: bool, error: Option<&str>, open: bool) -> Option<RunStatus> {
        let at = |second| Time(Timestamp::from_second(second).unwrap());
        let last = DefragmentationStatus {
            member: "etcd-1".into(),
            reason: "Reclaim".into(),
            start_time: at(5),
            completion_time: finished.then(|| at(9)),
            took_milliseconds: None,
            size_before_bytes: 90,
            size_after_bytes: finished.then_some(40),
            request: None,
            error: error.map(str::to_owned),
        };
        let what = GrantKind::Defragment {
            holder: "gate".into(),
            timeout_seconds: 9,
        };
        let pod = PodName::new("etcd-1");
        let none = Grants::default();
        let grants = none.issue(&pod, what, "gate".into(), String::new());
        let shown = defragmentation(&last, &pod, if open { &grants } else { &none });
        assert_eq!(shown.start_time, UnixTime(5));
        assert_eq!(shown.initial_db_size, Some(90));
        assert_eq!(shown.end_time, finished.then_some(UnixTime(9)));
        shown.status
    }

    fn snapshot_lease(name: &str, holder: &str) -> Lease {
        let lease =
            serde_json::json!({"metadata": {"name": name}, "spec": {"holderIdentity": holder}});
        serde_json::from_value(lease).unwrap()
    }

    #[test]
    fn a_snapshot_lease_tells_the_revision_and_0_says_that_there_is_none() {
        let leases = [
            snapshot_lease("etcd-full-snap", "7"),
            snapshot_lease("etcd-delta-snap", "0"),
        ];
        let told = snapshots(&leases, "etcd").unwrap();
        assert_eq!(told.last_full.unwrap().end_revision, Some(7));
        assert_eq!(told.last_delta, None);
        assert_eq!(snapshots(&leases, "other"), None);
    }

    #[test]
    fn a_run_is_under_way_while_its_grant_is_open_and_has_failed_where_nobody_saw_its_end() {
        assert_eq!(status(false, None, true), None);
        assert_eq!(status(false, None, false), Some(RunStatus::Failed));
        assert_eq!(status(true, None, false), Some(RunStatus::Succeeded));
        assert_eq!(
            status(true, Some("no room"), false),
            Some(RunStatus::Failed)
        );
    }
}
