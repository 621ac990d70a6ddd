//! The places of the members' data, the directories of etcd, and the volumes on record: the
//! leader's report says on which volume each member serves.
//!
//! What may change the record, and when, is the core's to say ([`crate::quorum::record_volumes`]).

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource as _};
use serde_json::json;
use tokio::time::Instant;
use tracing::{info, warn};

use super::look::Look;
use super::run::Run;
use crate::api::{DataPlace, EtcdDirectories, names};
use crate::causes::causes;
use crate::observe::{ClaimNote, InitialState, guarded_since, membership};
use crate::plan::replacement::MembershipBy;
use crate::quorum::{
    ClusterId, HeldData, HeldVolumes, Member, MemberId, PodName, VolumeRecord, VolumeRecords,
    confirmed_list, record_volumes, unrecorded_volumes,
};
use crate::telemetry::events::{Notice, Severity};

/// The places of the members' data, by pod.
pub(super) fn places(look: &Look) -> BTreeMap<PodName, DataPlace> {
    let members = look.snapshot.members.iter();
    look.view.data_places(members.filter_map(Member::pod_name))
}

/// The effect of a start without data in the pods of members on record. `None` where the gate does
/// not set it in new pods.
pub(super) fn initial_states(run: &Run, look: &Look) -> Option<BTreeMap<PodName, InitialState>> {
    let Look { page, view, .. } = look;
    let (budget, set) = (page.budget(), view.stateful_set());
    let is_set_by_gate = membership(budget, set) == MembershipBy::Gate
        && page.cluster_id().is_some()
        && !budget.only_warns()
        && !run.observer.bootstraps(budget, set);
    let records = page.volume_records();
    let mut states = view.initial_states();
    states.retain(|pod, _| records.contains_key(pod));
    is_set_by_gate.then_some(states)
}

/// The pause between two readings of what names etcd's directories.
const READ_AGAIN: Duration = Duration::from_secs(60);
/// The pause after one in which an object could not be read.
const LATE: Duration = Duration::from_secs(5);

/// The directories of etcd as they were last read, where other objects than its container name
/// them.
#[derive(Debug, Default)]
pub(super) struct Directories {
    /// The generation of the StatefulSet, and when it is due to be read again.
    read: Option<(Option<i64>, Instant)>,
    /// The first directories, until they are on record: the write may lose to another.
    first: Option<EtcdDirectories>,
}

impl Directories {
    /// The directories, if they are due to be read.
    pub(super) async fn read(&mut self, run: &Run, look: &Look) -> Option<EtcdDirectories> {
        if !look.view.may_be_told_directories() {
            return None;
        }
        let set = look.view.stateful_set();
        let generation = set.and_then(|set| set.metadata.generation);
        let now = run.clock.instant();
        let status = look.page.status();
        let known = status.and_then(|status| status.directories.clone());
        if known.is_some() {
            self.first = None;
        }
        let is_due = self
            .read
            .is_none_or(|(of, due)| of != generation || now >= due);
        if !is_due {
            return self.first.clone();
        }
        let told = run.observer.told(&look.view).await;
        let again = if told.is_late { LATE } else { READ_AGAIN };
        self.read = Some((generation, now + again));
        if told.is_late {
            return self.first.clone();
        }
        if known.is_none() {
            self.first.clone_from(&told.directories);
        }
        let mut found = told.directories?;
        // A directory that the template states is no other object's, and the record of that which
        // members run with stays.
        if let Some(known) = &known
            && look.view.states_data_directory()
        {
            found.data.clone_from(&known.data);
        }
        let members_run = !look.page.volume_records().is_empty();
        match known.filter(|known| *known != found && members_run) {
            None => Some(found),
            // Members run with what was there when they started, and have their data there.
            Some(known) => {
                let (known, found) = (all_of(&known), all_of(&found));
                warn!(cluster = %look.page.cluster, known, found, "etcd's settings name another directory than members run with");
                run.events.notify(Notice {
                    regarding: look.page.budget().object_ref(&()),
                    severity: Severity::Warning,
                    reason: "DirectoryChanged".to_owned(),
                    action: "Observe",
                    note: format!(
                        "what etcd's settings refer to puts its data in {found} now, and the members have theirs \
                         in {known}. A container that restarts begins empty there, and new pods wait. Put it back"
                    ),
                });
                None
            }
        }
    }
}

/// The directories in words.
fn all_of(directories: &EtcdDirectories) -> String {
    let wal = directories.wal.iter();
    let wal = wal.map(|wal| format!(" (write-ahead log: {wal})"));
    std::iter::once(directories.data.clone())
        .chain(wal)
        .collect()
}

/// The part of the pods that adds their members to etcd, as read for a generation of the
/// StatefulSet.
#[derive(Debug, Default)]
pub(super) struct Joins {
    read: Option<(Option<i64>, Option<String>)>,
}

impl Joins {
    /// The part, read once for each generation. The error names what could not be read, which is
    /// tried again at the next look.
    pub(super) async fn read(&mut self, run: &Run, look: &Look) -> Result<Option<String>, String> {
        let generation = look.view.stateful_set();
        let generation = generation.and_then(|set| set.metadata.generation);
        if let Some((_, by)) = self.read.as_ref().filter(|(of, _)| *of == generation) {
            return Ok(by.clone());
        }
        let by = run.observer.joins_by(&look.view).await?;
        self.read = Some((generation, by.clone()));
        Ok(by)
    }
}

/// The notes on the claims, as this replica last wrote or found them.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// The hash of the records and of the cluster's id.
    of: Option<u64>,
}

impl Notes {
    /// Notes on each member's claim whose data it has, where the record has changed or this replica
    /// has not looked yet. A shared claim gets no note.
    pub(super) async fn write(&mut self, run: &Run, look: &Look) {
        let page = &look.page;
        let records = page.volume_records();
        let (Some(cluster), false) = (page.cluster_id(), records.is_empty()) else {
            return;
        };
        let mut hasher = DefaultHasher::new();
        cluster.hash(&mut hasher);
        for (pod, record) in &records {
            (pod, record.id, &record.volume.claim_uid).hash(&mut hasher);
        }
        let of = hasher.finish();
        if self.of == Some(of) {
            return;
        }
        match write_notes(run, look, cluster, &records).await {
            Ok(true) => self.of = Some(of),
            Ok(false) => {}
            Err(error) => {
                let because = causes(&error);
                warn!(cluster = %look.page.cluster, because, "cannot annotate a member's claim");
            }
        }
    }
}

/// Writes the notes that are missing or differ. Returns whether every claim was read.
async fn write_notes(
    run: &Run,
    look: &Look,
    cluster: ClusterId,
    records: &VolumeRecords,
) -> kube::Result<bool> {
    let page = &look.page;
    let named = records.keys().filter_map(|pod| {
        let claim = look.view.data_claim(pod)?;
        Some((pod.clone(), claim))
    });
    let named: Vec<(PodName, String)> = named.collect();
    let all = named.len();
    let found = run.observer.claims_metadata(&page.cluster, named).await;
    let notes: Vec<ClaimNote> = found
        .iter()
        .filter_map(|(_, m)| ClaimNote::read(m))
        .collect();
    let begun = page.budget().metadata.creation_timestamp.as_ref();
    let since = guarded_since(&notes, cluster).or(begun.map(|at| at.0));
    let Some(since) = since else {
        return Ok(true);
    };
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(run.client.clone(), &page.cluster.namespace);
    for (pod, metadata) in &found {
        let (Some(name), Some(uid)) = (&metadata.name, &metadata.uid) else {
            continue;
        };
        let record = &records[pod];
        let pods = look.snapshot.pods.iter().map(|pod| &pod.name);
        let mut others = pods.filter(|other| *other != pod);
        let is_shared = others.any(|other| look.view.data_claim(other).as_ref() == Some(name));
        let member = record.id;
        let note = ClaimNote {
            held: HeldData { cluster, member },
            since,
        };
        let is_noted = ClaimNote::read(metadata) == Some(note);
        if is_noted || is_shared || !record.volume.is_on_claim(uid) {
            continue;
        }
        let change = json!({"metadata": {
            "uid": uid,
            "annotations": {names::HOLDS: note.on(uid)},
        }});
        let (params, change) = (PatchParams::default(), Patch::Merge(&change));
        claims.patch_metadata(name, &params, &change).await?;
        info!(cluster = %page.cluster, claim = name, %member, "claim annotated with its member");
    }
    Ok(found.len() == all)
}

/// The records after this look, and the members that serve under their old ids on other volumes.
/// `None` if they stay as they are. A claim that cannot be read is recorded at a later look.
pub(super) async fn recorded(
    run: &Run,
    look: &Look,
) -> Option<(VolumeRecords, Vec<(PodName, MemberId)>)> {
    let Look {
        page,
        view,
        snapshot,
        round,
    } = look;
    let cluster = &page.cluster;
    let records = page.volume_records();
    let mut read = BTreeMap::new();
    let unrecorded = unrecorded_volumes(snapshot, &page.grants, &records);
    // The directories may be known later than the volume: other objects may name them.
    let without_directory = records.iter().filter(|(pod, record)| {
        let is_same_pod = snapshot.pod(pod).is_some_and(|own| own.uid == record.pod);
        let found = view.data_directory(pod);
        let adds = found.is_some_and(|found| match &record.volume.directory {
            None => true,
            Some(own) => is_same_pod && found.starts_with(&format!("{own} ")),
        });
        adds && !unrecorded.contains(pod)
    });
    let due = without_directory.map(|(pod, _)| pod.clone());
    for pod in due.chain(unrecorded.iter().cloned()) {
        match run.observer.member_claim(cluster, view, &pod).await {
            Ok(claim) => read.extend(claim.and_then(|c| c.volume).map(|volume| (pod, volume))),
            Err(because) => {
                warn!(%cluster, %pod, because, "cannot record the member's volume yet");
            }
        }
    }
    let list = confirmed_list(snapshot, round);
    let mut held = HeldVolumes::new();
    let untold = snapshot.pods.iter().map(|pod| &pod.name);
    let untold = untold.filter(|pod| !records.contains_key(*pod) && !unrecorded.contains(pod));
    // Without a list nothing is recorded.
    for pod in untold.filter(|_| list.is_some()) {
        let claim = run.observer.member_claim(cluster, view, pod).await;
        let Ok(Some(claim)) = claim else {
            continue;
        };
        let note = claim.note.map(|note| note.held);
        let note = note.filter(|held| page.cluster_id() == Some(held.cluster));
        held.extend(
            note.zip(claim.volume)
                .map(|(held, volume)| (pod.clone(), (held.member, volume))),
        );
    }
    let read = (&read, &held);
    let mut after = record_volumes(snapshot, &page.grants, list.as_deref(), &records, read);
    if page.open_recovery().is_some() {
        // By its record a member is known that has yet to join again.
        for (pod, record) in &records {
            after.entry(pod.clone()).or_insert_with(|| record.clone());
        }
    }
    let mut moved = Vec::new();
    for (pod, record) in &after {
        let before = records.get(pod);
        if before.is_some_and(|before| !before.volume.is_same_as(&record.volume)) {
            let (id, volume) = (record.id, &record.volume.volume_id);
            info!(%cluster, %pod, member = %id, ?volume, "member serves on another volume");
            let of_another_pod = |before: &VolumeRecord| {
                before.id == id && before.pod != record.pod && !before.volume.is_in_pod()
            };
            if before.is_some_and(of_another_pod) {
                moved.push((pod.clone(), id));
            }
        }
    }
    (after != records).then_some((after, moved))
}
