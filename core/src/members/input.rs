//! The facts of one observation of a member, from which its status follows.

use std::time::Duration;

use super::status::{LastDefragmentation, Snapshots};
use super::transition::UnixTime;
use crate::quorum::pod::{Containers, Pod};
use crate::quorum::{
    ClusterId, Condition, Member, MemberId, Membership, PodName, ProcessState, Role, Sizes,
    Snapshot, VolumeFinding, Why,
};

/// The facts of one observation of a member.
///
/// [`MemberInput::from_snapshot`] fills in what a [`Snapshot`] knows. The caller adds the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact as etcd or Kubernetes states it, and they do not exclude each other"
)]
pub struct MemberInput {
    /// The time of the observation.
    pub now: UnixTime,
    /// Whether the member is the only one of its cluster.
    pub single: bool,
    /// Whether the `EtcdMember` has the annotation
    /// [`CREATE_AS_LEARNER`](super::CREATE_AS_LEARNER). The caller fills it in.
    pub create_as_learner: bool,
    /// The member's place in etcd's member list.
    pub listing: Listing,
    /// Whether the member is a voter and serves.
    pub serves: bool,
    /// Whether the member leads.
    pub leads: bool,
    /// The member id.
    pub id: Option<MemberId>,
    /// The cluster id that the member answers with.
    pub cluster_id: Option<ClusterId>,
    /// The sizes of the database, if the member reported them.
    pub sizes: Option<Sizes>,
    /// Whether the recorded sizes are old. The caller fills it in.
    pub previous_sizes: PreviousSizes,
    /// The state of etcd's container.
    pub etcd: Etcd,
    /// The way in which the process before ended, if that was seen. The caller fills it in, from
    /// the container's last termination.
    pub exit: Option<Exit>,
    /// The result of the validation of the data, since etcd's container started.
    /// [`MemberInput::initialised`] fills it in.
    pub validation: Option<StageResult>,
    /// The latest restoration from the backup, since etcd's container started.
    /// [`MemberInput::initialised`] fills it in.
    pub restoration: Option<Restoration>,
    /// Whether the peer URLs use TLS. The caller fills it in, from the member's Lease or from the
    /// peer URLs in the member list.
    pub peer_tls: Option<bool>,
    /// The snapshots in the backup store. The caller fills it in for the leader only.
    pub snapshots: Option<Snapshots>,
    /// Whether the member has the volume that was recorded for it. The caller fills it in.
    pub volume: VolumeFinding,
    /// The restarts of etcd's container, as its kubelet counts them. The caller fills it in.
    pub restarts: u32,
    /// The latest defragmentation that the gate began or saw. The caller fills it in.
    pub defragmentation: Option<LastDefragmentation>,
}

/// The place of a member in etcd's member list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// The list has the member as a voter.
    Voter,
    /// The list has the member as a learner.
    Learner,
    /// A confirmed list does not have the member.
    No,
    /// No list that proves anything could be read.
    Unknown,
}

/// The state of etcd's container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Etcd {
    /// There is no pod, or etcd's container has not started in it.
    NotStarted,
    /// etcd's container was started.
    Started {
        /// The time of the start.
        since: Option<UnixTime>,
        /// Whether the container runs, is not ready, and nothing listens at the client port: the
        /// member initialises.
        initializes: bool,
    },
}

/// The way in which a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The process ended by itself or by SIGTERM or SIGINT.
    Clean,
    /// The process ended otherwise.
    Unclean,
}

impl Exit {
    /// The way in which a container ended, by its exit code: 0, 130 (SIGINT) and 143 (SIGTERM) are
    /// clean. etcd-wrapper draws the same line.
    pub fn of_code(code: i32) -> Self {
        if matches!(code, 0 | 130 | 143) {
            Self::Clean
        } else {
            Self::Unclean
        }
    }
}

/// The result of a part of the initialisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StageResult {
    /// The part succeeded.
    Succeeded,
    /// The part failed.
    Failed,
}

/// A restoration from the backup that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restoration {
    /// How it ended. A failed one is tried again by backup-restore itself.
    pub result: StageResult,
    /// The time that all attempts took together.
    pub took: Duration,
}

/// The counts of backup-restore, by its own metrics.
///
/// A validation counts as succeeded when it came to an end, also where it found bad data; it failed
/// if it could not be carried out (a wrong volume, a locked database). That the data was bad is
/// told by what backup-restore does next: it restores the only member, or any member of a cluster
/// that starts from a backup (`single_node`), and it removes the data and the membership of one of
/// several (`single_member`). (`pkg/initializer` of etcd-backup-restore, v0.43.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InitialisationCounts {
    /// Validations that came to an end.
    pub validated: u64,
    /// Validations that could not be carried out.
    pub not_validated: u64,
    /// Restorations from the backup that succeeded.
    pub restored: u64,
    /// Restorations from the backup that failed.
    pub not_restored: u64,
    /// Removals of the data and of the membership of one member of several that succeeded.
    pub given_up: u64,
    /// Removals that failed.
    pub not_given_up: u64,
    /// The time that all restorations from the backup took together.
    pub restoration_time: Duration,
}

impl InitialisationCounts {
    /// Whether attempts to bring a member back from bad data failed, and none succeeded.
    pub fn fails(&self) -> bool {
        let failed = self.not_restored > 0 || self.not_given_up > 0;
        failed && self.restored == 0 && self.given_up == 0
    }

    /// The counts since `earlier`. `None` if the counts began anew in between.
    pub fn since(self, earlier: &Self) -> Option<Self> {
        Some(Self {
            validated: self.validated.checked_sub(earlier.validated)?,
            not_validated: self.not_validated.checked_sub(earlier.not_validated)?,
            restored: self.restored.checked_sub(earlier.restored)?,
            not_restored: self.not_restored.checked_sub(earlier.not_restored)?,
            given_up: self.given_up.checked_sub(earlier.given_up)?,
            not_given_up: self.not_given_up.checked_sub(earlier.not_given_up)?,
            restoration_time: self
                .restoration_time
                .checked_sub(earlier.restoration_time)?,
        })
    }
}

/// The age of the recorded sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreviousSizes {
    /// The caller wrote them so long ago, by its own monotonic clock.
    WrittenFor(Duration),
    /// The caller has not written them.
    NotMine,
}

impl MemberInput {
    /// The facts that `snapshot` has about the member in the pod `member`.
    pub fn from_snapshot(snapshot: &Snapshot, member: &PodName, now: UnixTime) -> Self {
        let seen = snapshot.member(member);
        let pod = snapshot.pod(member);
        let answered = seen.filter(|seen| seen.sizes.is_some());
        Self {
            now,
            single: snapshot.replicas <= 1 && snapshot.members.len() <= 1,
            create_as_learner: false,
            listing: Listing::from_snapshot(snapshot, member),
            serves: seen.is_some_and(Member::serves_quorum),
            leads: seen.is_some_and(|seen| seen.leader && seen.serves_quorum()),
            id: answered.and_then(|seen| seen.id),
            cluster_id: answered.and_then(|seen| cluster_id(snapshot, seen)),
            sizes: answered.and_then(|seen| seen.sizes),
            previous_sizes: PreviousSizes::NotMine,
            etcd: Etcd::new(pod, seen, now),
            exit: None,
            validation: None,
            restoration: None,
            peer_tls: None,
            snapshots: None,
            volume: VolumeFinding::Unknown,
            restarts: 0,
            defragmentation: None,
        }
    }

    /// Takes over what backup-restore has counted since etcd's container started.
    ///
    /// The restoration of a member of several from the backup, in a cluster that starts from one,
    /// is no failed validation: DEP-04 has the state `Restoration` for the only member alone.
    pub fn initialised(&mut self, counts: &InitialisationCounts) {
        let from_backup = counts.restored > 0 || counts.not_restored > 0;
        let given_up = counts.given_up > 0 || counts.not_given_up > 0;
        self.validation = if given_up || self.single && from_backup {
            Some(StageResult::Failed)
        } else {
            (counts.validated > 0).then_some(StageResult::Succeeded)
        };
        self.restoration = from_backup.then_some(Restoration {
            result: if counts.restored > 0 {
                StageResult::Succeeded
            } else {
                StageResult::Failed
            },
            took: counts.restoration_time,
        });
    }
}

impl Listing {
    /// The place of the member in the pod `member` in the list that `snapshot` is built from.
    pub fn from_snapshot(snapshot: &Snapshot, member: &PodName) -> Self {
        if snapshot.not_members.contains(member) {
            return Self::No;
        }
        let is_confirmed = matches!(snapshot.membership, Membership::Confirmed { .. });
        let of_this_name = |seen: &&Member| seen.pod_name() == Some(member);
        match snapshot.members.iter().find(of_this_name) {
            Some(seen) if seen.role == Role::Learner => Self::Learner,
            Some(seen) if seen.serves_quorum() => Self::Voter,
            Some(seen) if seen.condition.why() == Some(&Why::JustStarted) => Self::Voter,
            // Without an answer the id is that of the list or of the record, which the list has.
            Some(seen) if is_confirmed && seen.id.is_some() && seen.sizes.is_none() => Self::Voter,
            None if is_confirmed => Self::No,
            Some(_) | None => Self::Unknown,
        }
    }
}

impl Etcd {
    fn new(pod: Option<&Pod>, member: Option<&Member>, now: UnixTime) -> Self {
        let Some(pod) = pod.filter(|pod| pod.containers == Containers::Running) else {
            return Self::NotStarted;
        };
        let up_for = |up: Duration| i64::try_from(up.as_secs()).unwrap_or(i64::MAX);
        Self::Started {
            since: pod
                .up_for
                .map(|up| UnixTime(now.0.saturating_sub(up_for(up)))),
            initializes: member.is_some_and(looks_as_if_it_starts),
        }
    }
}

/// Whether a member looks as if it does not listen yet. For a decision that is not enough where no
/// member answers; a report may say so.
fn looks_as_if_it_starts(member: &Member) -> bool {
    let refuses = Condition::Unknown(Why::RefusesAsAllDo);
    member.process == ProcessState::Starting || member.condition == refuses
}

/// The cluster id that a member answered with.
fn cluster_id(snapshot: &Snapshot, member: &Member) -> Option<ClusterId> {
    match &member.condition {
        Condition::Failing(Why::OtherCluster { own, .. })
        | Condition::Unknown(Why::ClusterDisputed { own }) => Some(*own),
        Condition::Serving
        | Condition::Learning
        | Condition::Failing(_)
        | Condition::Unknown(_) => snapshot.cluster_id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::evidence::{ListedMember, Probe, Unanswered};
    use crate::quorum::{Observation, example};

    fn input(observation: &Observation, member: &str) -> MemberInput {
        let snapshot = Snapshot::assemble(observation);
        MemberInput::from_snapshot(&snapshot, &member.into(), UnixTime(1_000))
    }

    fn listing(observation: &Observation) -> Listing {
        input(observation, "etcd-2").listing
    }

    /// Ends the answers of a member.
    fn silence(observation: &mut Observation, n: usize) {
        let probe = &mut observation.round.probes[n];
        *probe = Probe::unanswered(probe.target.clone(), Unanswered::Refused);
    }

    /// Changes the entry of the third member in the lists of all members.
    fn relist(observation: &mut Observation, change: impl Fn(&mut Vec<ListedMember>)) {
        for probe in &mut observation.round.probes {
            change(probe.members.as_mut().unwrap());
        }
    }

    #[test]
    fn a_cluster_is_single_if_one_is_wanted_and_one_is_there() {
        let three = example::healthy("etcd", 3);
        let mut shrinking = three.clone();
        shrinking.replicas = 1;
        let mut growing = example::healthy("etcd", 1);
        growing.replicas = 3;
        let one = example::healthy("etcd", 1);
        let found = [&three, &shrinking, &growing, &one].map(|seen| input(seen, "etcd-0").single);
        assert_eq!(found, [false, false, false, true]);
    }

    #[test]
    fn also_what_failed_shows_that_the_data_was_not_valid() {
        let result = |single: bool, counts: InitialisationCounts| {
            let mut input = input(&example::healthy("etcd", 3), "etcd-0");
            input.single = single;
            input.initialised(&counts);
            input.validation
        };
        let counts = InitialisationCounts {
            validated: 1,
            not_validated: 0,
            restored: 0,
            not_restored: 0,
            given_up: 0,
            not_given_up: 0,
            restoration_time: Duration::ZERO,
        };
        for (restored, not_restored) in [(1, 0), (0, 1)] {
            let from_backup = InitialisationCounts {
                restored,
                not_restored,
                ..counts
            };
            assert_eq!(result(true, from_backup), Some(StageResult::Failed));
            assert_eq!(result(false, from_backup), Some(StageResult::Succeeded));
        }
        for (given_up, not_given_up) in [(1, 0), (0, 1)] {
            let gone = InitialisationCounts {
                given_up,
                not_given_up,
                ..counts
            };
            assert_eq!(result(false, gone), Some(StageResult::Failed));
        }
        assert_eq!(result(false, counts), Some(StageResult::Succeeded));
    }

    #[test]
    fn one_leads_and_each_voter_serves_under_the_cluster_id() {
        let cluster = example::healthy("etcd", 3);
        for (member, leads) in [("etcd-0", true), ("etcd-1", false)] {
            let input = input(&cluster, member);
            assert_eq!((input.serves, input.leads), (true, leads));
            assert_eq!(input.cluster_id, Some(ClusterId(1)));
            assert_eq!(input.listing, Listing::Voter);
        }
    }

    #[test]
    fn a_member_of_another_cluster_has_the_id_of_that_one() {
        let mut cluster = example::healthy("etcd", 3);
        let probe = &mut cluster.round.probes[2];
        probe.status.as_mut().unwrap().cluster_id = ClusterId(9);
        let other = input(&cluster, "etcd-2");
        assert_eq!(other.cluster_id, Some(ClusterId(9)));
        assert_eq!(other.listing, Listing::Unknown, "it does not serve");
    }

    #[test]
    fn a_learner_and_a_removed_member_are_told_by_the_list() {
        let mut cluster = example::healthy("etcd", 3);
        relist(&mut cluster, |list| list[2].learner = true);
        cluster.round.probes[2].status.as_mut().unwrap().learner = true;
        assert_eq!(listing(&cluster), Listing::Learner);
        relist(&mut cluster, |list| drop(list.pop()));
        silence(&mut cluster, 2);
        assert_eq!(listing(&cluster), Listing::No);
    }

    #[test]
    fn a_member_that_does_not_answer_is_a_voter_by_a_confirmed_list_only() {
        let mut cluster = example::healthy("etcd", 3);
        silence(&mut cluster, 2);
        assert_eq!(listing(&cluster), Listing::Voter);
        silence(&mut cluster, 1);
        cluster.round.probes[0].read = Err(Unanswered::Deadline);
        assert_eq!(listing(&cluster), Listing::Unknown);
    }

    fn initialised(single: bool, counts: InitialisationCounts) -> MemberInput {
        let members = if single { 1 } else { 3 };
        let mut input = input(&example::healthy("etcd", members), "etcd-0");
        input.initialised(&counts);
        input
    }

    #[test]
    fn a_validation_that_came_to_an_end_says_nothing_bad_of_the_data() {
        let counts = InitialisationCounts {
            validated: 1,
            ..InitialisationCounts::default()
        };
        let input = initialised(true, counts);
        assert_eq!(input.validation, Some(StageResult::Succeeded));
        assert_eq!(input.restoration, None);
    }

    #[test]
    fn a_validation_that_could_not_be_carried_out_is_no_failed_one() {
        let counts = InitialisationCounts {
            not_validated: 3,
            ..InitialisationCounts::default()
        };
        let input = initialised(true, counts);
        assert_eq!((input.validation, input.restoration), (None, None));
    }

    #[test]
    fn a_restoration_shows_that_the_data_of_the_only_member_was_bad() {
        let took = Duration::from_secs(7);
        let mut counts = InitialisationCounts {
            validated: 1,
            not_restored: 1,
            restoration_time: took,
            ..InitialisationCounts::default()
        };
        let failed = initialised(true, counts);
        assert_eq!(failed.validation, Some(StageResult::Failed));
        let result = StageResult::Failed;
        assert_eq!(failed.restoration, Some(Restoration { result, took }));
        counts.restored = 1;
        let result = StageResult::Succeeded;
        let restored = initialised(true, counts);
        assert_eq!(restored.restoration, Some(Restoration { result, took }));
        // One of several is restored where the cluster starts from a backup.
        let of_several = initialised(false, counts);
        assert_eq!(of_several.validation, Some(StageResult::Succeeded));
        assert_eq!(of_several.restoration, Some(Restoration { result, took }));
    }

    #[test]
    fn data_that_was_given_up_is_a_failed_validation_and_no_restoration_from_the_backup() {
        let counts = InitialisationCounts {
            validated: 1,
            given_up: 1,
            ..InitialisationCounts::default()
        };
        let input = initialised(false, counts);
        assert_eq!(input.validation, Some(StageResult::Failed));
        assert_eq!(input.restoration, None);
    }

    #[test]
    fn counts_that_began_anew_are_not_compared() {
        let counts = |validated, restored| InitialisationCounts {
            validated,
            restored,
            ..InitialisationCounts::default()
        };
        assert_eq!(counts(5, 1).since(&counts(3, 1)), Some(counts(2, 0)));
        assert_eq!(counts(1, 0).since(&counts(3, 0)), None);
    }

    #[test]
    fn a_member_initialises_while_its_container_runs_and_does_not_listen() {
        let mut cluster = example::healthy("etcd", 3);
        silence(&mut cluster, 2);
        cluster.pods[2].etcd_ready = false;
        let initializes = |member| match input(&cluster, member).etcd {
            Etcd::Started { initializes, .. } => initializes,
            Etcd::NotStarted => panic!("its container runs"),
        };
        assert!(initializes("etcd-2") && !initializes("etcd-1"));
        // All start at once, after a restore.
        for n in 0..3 {
            silence(&mut cluster, n);
            cluster.pods[n].etcd_ready = false;
        }
        let all = ["etcd-0", "etcd-1", "etcd-2"];
        let initializes = |member| {
            matches!(
                input(&cluster, member).etcd,
                Etcd::Started {
                    initializes: true,
                    ..
                }
            )
        };
        assert!(all.into_iter().all(initializes));
    }

    #[test]
    fn a_member_that_has_just_started_is_the_voter_that_it_says() {
        let mut cluster = example::healthy("etcd", 3);
        cluster.pods[2].ready = false;
        assert_eq!(listing(&cluster), Listing::Voter);
    }
}
