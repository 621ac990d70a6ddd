//! The places of the members' data, the directories of etcd, and the volumes on record: the
//! leader's report says on which volume each member serves.
//!
//! What may change the record, and when, is the core's to say ([`crate::quorum::record_volumes`]).

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use super::Run;
use super::look::Look;
use crate::api::{DataPlace, EtcdDirectories};
use crate::quorum::{
    Member, PodName, VolumeRecords, confirmed_list, record_volumes, unrecorded_volumes,
};

/// The places of the members' data, by pod.
pub(super) fn places(look: &Look) -> BTreeMap<PodName, DataPlace> {
    let members = look.snapshot.members.iter();
    look.world.data_places(members.filter_map(Member::pod_name))
}

/// The pause between two readings of what names etcd's directories.
const READ_AGAIN: Duration = Duration::from_secs(60);

/// When etcd's directories were last read, where other objects than its container name them.
#[derive(Debug, Default)]
pub(super) struct Directories {
    /// The generation of the StatefulSet, and the time.
    read: Option<(Option<i64>, Instant)>,
}

impl Directories {
    /// The directories, if they are due to be read.
    pub(super) async fn read(&mut self, run: &Run, look: &Look) -> Option<EtcdDirectories> {
        if !look.world.may_be_told_directories() {
            return None;
        }
        let set = look.world.stateful_set();
        let generation = set.and_then(|set| set.metadata.generation);
        let now = run.clock.instant();
        let is_due = self.read.is_none_or(|(of, at)| {
            of != generation || now.saturating_duration_since(at) >= READ_AGAIN
        });
        if !is_due {
            return None;
        }
        self.read = Some((generation, now));
        run.observer.directories(&look.world).await
    }
}

/// The records after this look. `None` if they stay as they are. A claim that cannot be read is
/// recorded at a later look.
pub(super) async fn recorded(run: &Run, look: &Look) -> Option<VolumeRecords> {
    let Look {
        page,
        world,
        snapshot,
        round,
    } = look;
    let cluster = &page.cluster;
    let records = page.volume_records();
    let mut read = BTreeMap::new();
    let unrecorded = unrecorded_volumes(snapshot, &page.grants, &records);
    // The directory may be known later than the volume.
    let without_directory = records.iter().filter(|(pod, record)| {
        let unknown = record.volume.directory.is_none() && !unrecorded.contains(pod);
        unknown && world.data_directory(pod).is_some()
    });
    let due = without_directory.map(|(pod, _)| pod.clone());
    for pod in due.chain(unrecorded.iter().cloned()) {
        match run.observer.member_claim(cluster, world, &pod).await {
            Ok(claim) => read.extend(claim.and_then(|c| c.volume).map(|volume| (pod, volume))),
            Err(because) => {
                warn!(%cluster, %pod, because, "its volume is not recorded yet");
            }
        }
    }
    let list = confirmed_list(snapshot, round);
    let after = record_volumes(snapshot, &page.grants, list.as_deref(), &records, &read);
    for (pod, record) in &after {
        let before = records.get(pod);
        if before.is_some_and(|before| before.volume != record.volume) {
            let (id, volume) = (record.id, &record.volume.volume_id);
            info!(%cluster, %pod, member = %id, ?volume, "it serves on another volume");
        }
    }
    (after != records).then_some(after)
}
