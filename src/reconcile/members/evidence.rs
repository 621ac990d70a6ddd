//! Facts of a member that its cluster's snapshot does not have: the container's history, the member
//! list's peer URLs, and the Leases of etcd-backup-restore.

use k8s_openapi::api::coordination::v1::Lease;

use super::super::look::Look;
use crate::members::{Exit, Facts, Snapshots, Stored};
use crate::observe::etcd_history;
use crate::quorum::{MemberId, PodName};

/// The annotation of etcd-backup-restore on the Lease of a member.
const TLS_ENABLED: &str = "member.etcd.gardener.cloud/tls-enabled";

/// Adds to `facts` what Leases, member list and pod say. `owner` is the name of the cluster's
/// owner, after which the snapshot Leases are named.
pub(super) fn add(facts: &mut Facts, look: &Look, leases: &[Lease], pod: &PodName, owner: &str) {
    if let Some(object) = look.world.pod(pod) {
        let (exit, restarts) = etcd_history(object);
        facts.exit = exit.map(Exit::of_code);
        facts.restarts = restarts;
    }
    let told = lease(leases, pod.as_str()).and_then(|lease| {
        let annotations = lease.metadata.annotations.as_ref()?;
        annotations.get(TLS_ENABLED)?.parse().ok()
    });
    facts.peer_tls = told.or_else(|| by_urls(look, facts.id?));
    if facts.leads {
        let stored = |kind: &str| revision(leases, &format!("{owner}-{kind}-snap"));
        let (last_full, last_delta) = (stored("full"), stored("delta"));
        facts.snapshots = (last_full.is_some() || last_delta.is_some()).then_some(Snapshots {
            last_full,
            last_delta,
            accumulated_delta_size: None,
        });
    }
}

fn lease<'l>(leases: &'l [Lease], name: &str) -> Option<&'l Lease> {
    let named = |lease: &&Lease| lease.metadata.name.as_deref() == Some(name);
    leases.iter().find(named)
}

/// The snapshot that a snapshot Lease tells of. The Lease holds the revision and nothing else; its
/// renewal is not the time of the snapshot.
fn revision(leases: &[Lease], name: &str) -> Option<Stored> {
    let holder = lease(leases, name)?.spec.as_ref()?.holder_identity.as_ref();
    Some(Stored {
        end_revision: Some(holder?.parse().ok()?),
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
