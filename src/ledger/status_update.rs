//! The findings of a judgement about the cluster, which are written together with its grant.

use std::collections::BTreeSet;
use std::ops::Range;

use jiff::{SignedDuration, Timestamp};

use super::page::Page;
use super::wire;
use crate::api::{
    AnnouncementStatus, DefragmentationStatus, EtcdDirectories, Membership, OwnerStatus,
    QuorumDisruptionBudgetStatus, RecordedDelete, RecordedDeletes, RecoveryPhase, RecoveryStatus,
    ReplacementStatus, ScaleOutStatus, StatefulSetStatus,
};
use crate::quorum::{
    ClusterId, ExpectedVoters, LeaderMove, LogEnd, MemberId, Ordinal, PodName, Tolerance, Trust,
    TrustEvent, VolumeRecords, WentBack,
};

/// The findings of a look at the cluster. For a finding that is `None` the budget stays as it is.
#[derive(Debug, Clone, Default)]
pub struct StatusUpdate {
    /// The expected voters, with the voters seen now.
    pub expected: Option<ExpectedVoters>,
    /// The etcd cluster id that the members agree on.
    pub cluster_id: Option<ClusterId>,
    /// Whether the cluster is known to have worked at some time. Nothing takes that back.
    pub formed: bool,
    /// The StatefulSet.
    pub stateful_set: Option<SetFound>,
    /// The UIDs of the StatefulSets whose recorded deletes may still take pods. The records of all
    /// others are dropped.
    pub unfinished_deletes: Option<BTreeSet<String>>,
    /// A StatefulSet that is not being deleted. A delete of it that was admitted an hour ago came
    /// to nothing, and so did a scale-in of ordinals that it has. Their records are dropped.
    pub standing: Option<StandingSet>,
    /// The ordinals whose pods exist. The record of a scale-in that took none of them is dropped,
    /// so that it lets no later pods go.
    pub ordinals_here: Option<BTreeSet<Ordinal>>,
    /// The directories of etcd.
    pub directories: Option<EtcdDirectories>,
    /// The one who changes etcd's member list, by the contents of the members' pods.
    pub membership: Option<Membership>,
    /// The label selector of the members' pods.
    pub selector: Option<String>,
    /// Whether the ledger is trusted. An untrusted ledger stays as it is recorded.
    pub trust: Option<Trust>,
    /// Whether the grace of the recorded scale-out has passed.
    pub scale_out_settled: bool,
    /// The number of members that the cluster can still lose with the grants that are written.
    pub tolerance: Option<Tolerance>,
    /// The move of leadership that begins after this write.
    pub leader_move: Option<LeaderMove>,
    /// The defragmentation that begins after this write.
    pub defragmentation: Option<DefragmentationStatus>,
    /// The replacement that begins after this write.
    pub replacement: Option<ReplacementStatus>,
    /// The recovery from a loss of quorum, or that none is on record any more.
    pub recovery: Option<Option<RecoveryStatus>>,
    /// The volumes of the members.
    pub volumes: Option<VolumeRecords>,
    /// The end of the cluster's log.
    pub log_end: Option<LogEnd>,
    /// The announcement on the budget, or that there is none.
    pub announced: Option<Option<Announced>>,
    /// Whether nobody announces a new cluster any more, so that the next announcement counts again.
    pub no_bootstrap: bool,
    /// A loss of data, and when it was found.
    pub lost: Option<(WentBack, Timestamp)>,
    /// Members that were found to have begun without their data, and when.
    pub refilled: Vec<(PodName, MemberId, Timestamp)>,
}

/// A StatefulSet that is not being deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingSet {
    /// UID of the StatefulSet.
    pub uid: String,
    /// The ordinals for which it has pods.
    pub kept: Range<u32>,
    /// The time at which it was seen.
    pub now: Timestamp,
}

/// The StatefulSet of a cluster, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetFound {
    /// The StatefulSet is there.
    Here(SetSeen),
    /// The StatefulSet is gone, and left its pods.
    Orphaned,
}

/// A StatefulSet as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetSeen {
    /// UID of the StatefulSet.
    pub uid: String,
    /// The owners that it names.
    pub owners: Vec<(OwnerStatus, OwnerSeen)>,
    /// The announcement on it.
    pub announced: Option<Announced>,
}

/// An announcement, and the time at which it was written, if that is known.
pub type Announced = (String, Option<Timestamp>);

/// The record of an announcement. One that stays is as old as it was.
fn first_seen(
    announced: Option<Announced>,
    known: Option<Box<AnnouncementStatus>>,
) -> Option<Box<AnnouncementStatus>> {
    let (value, written) = announced?;
    known.filter(|known| known.value == value).or_else(|| {
        let since = written?.to_string();
        Some(Box::new(AnnouncementStatus { value, since }))
    })
}

/// An owner of a StatefulSet as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerSeen {
    /// The owner exists.
    Alive,
    /// The owner is gone or going.
    Gone,
    /// The owner could not be read.
    Unread,
}

impl SetSeen {
    /// The record after it, with the owners whose deletion is believed.
    fn after(self, before: Option<&StatefulSetStatus>) -> StatefulSetStatus {
        let before = before.filter(|before| before.uid == self.uid);
        let is_known = |owner: &OwnerStatus| before.is_some_and(|before| before.knows(owner));
        let owners = self.owners.into_iter().filter(|(owner, seen)| match seen {
            OwnerSeen::Alive => true,
            OwnerSeen::Gone => is_known(owner),
            OwnerSeen::Unread => before.is_none() || is_known(owner),
        });
        let known = before.and_then(|before| before.announcement.clone());
        StatefulSetStatus {
            owners: owners.map(|(owner, _)| owner).collect(),
            announcement: first_seen(self.announced, known),
            orphaned: false,
            uid: self.uid,
        }
    }
}

impl StandingSet {
    /// Drops the records of what was admitted an hour ago and came to nothing.
    fn forget(&self, recorded: &mut RecordedDeletes) {
        let is_old = |time: &str| {
            let at: Option<Timestamp> = time.parse().ok();
            at.is_some_and(|at| self.now.duration_since(at) > FORGOTTEN)
        };
        let came_to_nothing =
            |delete: &RecordedDelete| delete.uid == self.uid && is_old(&delete.time);
        recorded
            .stateful_sets
            .retain(|delete| !came_to_nothing(delete));
        let kept = &self.kept;
        let hibernation = &mut recorded.hibernation;
        hibernation.take_if(|hibernation| !kept.is_empty() && came_to_nothing(hibernation));
        recorded.scale_in.take_if(|scale_in| {
            let is_kept = |left: &Range<u32>| kept.start <= left.start && left.end <= kept.end;
            let is_its = scale_in.stateful_set_uid == self.uid;
            is_its && is_old(&scale_in.time) && scale_in.taken().iter().all(is_kept)
        });
    }
}

impl Page {
    /// The status with the findings of a look.
    pub fn status_after(&self, update: StatusUpdate) -> QuorumDisruptionBudgetStatus {
        let (_, mut status) = self.draft();
        update.apply(self, &mut status);
        status
    }
}

/// The age from which the record of an admitted delete is dropped while its StatefulSet stands. The
/// clocks of replicas may differ by minutes.
const FORGOTTEN: SignedDuration = SignedDuration::from_hours(1);

impl StatusUpdate {
    /// Puts the findings into a status.
    pub(super) fn apply(self, page: &Page, status: &mut QuorumDisruptionBudgetStatus) {
        let Self {
            expected,
            cluster_id,
            formed,
            stateful_set,
            unfinished_deletes,
            standing,
            ordinals_here,
            directories,
            membership,
            selector,
            trust,
            scale_out_settled,
            tolerance,
            leader_move,
            defragmentation,
            replacement,
            recovery,
            volumes,
            log_end,
            announced,
            no_bootstrap,
            lost,
            refilled,
        } = self;
        if let Some(announced) = announced {
            status.announcement = first_seen(announced, status.announcement.take());
        }
        if no_bootstrap && status.cluster_id.is_some() {
            status.begins_anew.clear();
        }
        super::log_end::write(page, log_end, lost, status);
        super::log_end::write_refills(page, refilled, status);
        if let Some(begun) = replacement {
            let all = &mut status.replacements;
            all.retain(|known| known.member != begun.member);
            all.push(begun);
        }
        if let Some(volumes) = volumes {
            wire::write_volumes(volumes, status);
        }
        if let Some(begun) = defragmentation {
            let runs = &mut status.defragmentations;
            runs.retain(|run| run.member != begun.member);
            runs.push(begun);
        }
        if let Some(begun) = leader_move {
            wire::write_leader_move(begun, status);
        }
        if let Some(tolerance) = tolerance {
            write_tolerance(&tolerance, status);
        }
        if let Some(seen) = expected {
            // The record is written before the API server stores the 0. So it ends when the
            // replicas come back, and not while they have yet to go.
            if seen.replicas > 0 && status.observed_replicas == Some(0) {
                status.recorded_deletes.hibernation = None;
            }
            note_scale_out(page.expected, seen, status);
            wire::write_expected(seen, status);
        }
        if let (true, Some(grown)) = (scale_out_settled, &mut status.scale_out) {
            grown.settled = true;
        }
        if let Some(id) = cluster_id {
            status.cluster_id = Some(id.to_string());
        }
        status.formed |= formed;
        match (stateful_set, &mut status.stateful_set) {
            (Some(SetFound::Here(seen)), known) => *known = Some(seen.after(known.as_ref())),
            (Some(SetFound::Orphaned), Some(gone)) => gone.orphaned = true,
            (Some(SetFound::Orphaned) | None, _) => {}
        }
        if let Some(unfinished) = unfinished_deletes {
            let recorded = &mut status.recorded_deletes.stateful_sets;
            recorded.retain(|set| unfinished.contains(&set.uid));
        }
        if let Some(set) = standing {
            set.forget(&mut status.recorded_deletes);
        }
        if let Some(here) = ordinals_here {
            let recorded = &mut status.recorded_deletes.scale_in;
            recorded.take_if(|scale_in| !here.iter().any(|ordinal| scale_in.took(*ordinal)));
        }
        if directories.is_some() {
            status.directories = directories;
        }
        if membership.is_some() && (status.membership.is_none() || status.volumes.is_empty()) {
            status.membership = membership;
        }
        if selector.is_some() {
            status.selector = selector;
        }
        if trust == Some(Trust::Trusted) {
            wire::write_trust(page.trust_after(&[TrustEvent::Watched]), status);
        }
        if let Some(recovery) = recovery {
            write_recovery(recovery, status);
        }
    }
}

/// Puts how far a recovery is into a status. With its beginning, what only the other members had is
/// given up: their votes, the end of the log, and what was being done to them.
fn write_recovery(recovery: Option<RecoveryStatus>, status: &mut QuorumDisruptionBudgetStatus) {
    if recovery.as_ref().map(|recovery| recovery.phase) == Some(RecoveryPhase::Alone) {
        wire::drop_replacements(status);
        status.expected_members = Some(1);
        status.scale_out = None;
        status.log_end = None;
        status.data_loss = None;
        status.refills.clear();
    }
    status.recovery = recovery.map(Box::new);
}

/// Puts the numbers that people and planners read into a status.
pub fn write_tolerance(tolerance: &Tolerance, status: &mut QuorumDisruptionBudgetStatus) {
    let number = |count: u32| Some(i32::try_from(count).unwrap_or(i32::MAX));
    status.voters = number(tolerance.voters);
    status.current_healthy = number(tolerance.serving);
    status.desired_healthy = number(tolerance.majority);
    status.disruptions_allowed = number(tolerance.disruptions_allowed());
}

/// Records a scale-out. The first look at a StatefulSet is no scale-out, and a scale-in ends one.
fn note_scale_out(
    before: ExpectedVoters,
    now: ExpectedVoters,
    status: &mut QuorumDisruptionBudgetStatus,
) {
    if before.replicas == 0 || now.replicas < before.replicas {
        status.scale_out = None;
    } else if now.replicas > before.replicas {
        status.scale_out = Some(ScaleOutStatus {
            to: i32::try_from(now.replicas).unwrap_or(i32::MAX),
            settled: false,
        });
    }
}
