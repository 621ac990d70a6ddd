//! The reasons why a rollout waits.

use std::time::Duration;

use super::desired::{Generation, Obstacle};
use super::max_unavailable::Unavailability;
use super::preflight::Finding;
use super::rollout_state::Progress;
use super::state::{Absent, State};
use crate::quorum::{PodName, Reason, Teardown, list};

/// The reason why no step is possible now, with its numbers. `Display` is a sentence for people.
#[derive(
    Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames, derive_more::Display,
)]
pub enum WaitingOn {
    /// The StatefulSet is not enrolled, or its budget does not exist yet.
    #[display("the StatefulSet has no QuorumDisruptionBudget yet")]
    Enrolment,
    /// The cluster is being torn down, so nothing is rolled out any more.
    #[display("the cluster is being torn down")]
    Teardown(Teardown),
    /// The StatefulSet controller has not read the latest specification, so the update revision may
    /// be out of date.
    #[display("the StatefulSet controller has read generation {} of {}", _0.observed, _0.desired)]
    Observation(Generation),
    /// The StatefulSet asks for more replicas than steps are planned for.
    #[display(
        "the StatefulSet asks for {replicas} replicas, and nothing is rolled out to more than {most}; scale it to the size of its cluster"
    )]
    TooManyReplicas {
        /// The replicas that it asks for.
        replicas: u32,
        /// The most replicas for which steps are planned.
        most: u32,
    },
    /// The update revision has not been computed yet.
    #[display("the StatefulSet controller has not computed the update revision yet")]
    Revision,
    /// The budget says `paused`.
    #[display("the rollout is paused, with {} of {} pods updated", _0.updated, _0.targets)]
    Paused(Progress),
    /// The template shows faults, and no person has let this revision go on with them.
    #[display(
        "the preflight found: {}; correct the template, or kubectl rollout undo on the StatefulSet; to continue all the same, \
                 annotate the budget with quorumgate.io/proceed: {revision}",
        findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    )]
    Preflight {
        /// The faults, at least one.
        findings: Vec<Finding>,
        /// The update revision, as the annotation has to name it.
        revision: String,
    },
    /// The members cannot be replaced one by one, and the owner has not let this revision go on
    /// without quorum.
    #[display(
        "this change cannot be rolled one by one: {obstacle}; to go back, restore the owner's spec and run kubectl rollout undo \
                 on the StatefulSet; to accept the outage, annotate the budget with \
                 quorumgate.io/proceed-without-quorum: {revision}"
    )]
    Obstacle {
        /// The change that keeps updated and outdated members apart.
        obstacle: Obstacle,
        /// The update revision, as the annotation has to name it.
        revision: String,
    },
    /// Step 2: quorum is lost and may come back by itself, so members that are alive stay for the
    /// grace period (rule 13).
    #[display("quorum is lost ({serving} of {voters} voters serve) and may come back by itself; {pod} is alive and stays until it has \
                 been lost for {} s ({} s so far)", grace.as_secs(), lost_for.as_secs())]
    QuorumLost {
        /// The member that would go.
        pod: PodName,
        /// The time for which quorum has been lost, as far as that is confirmed.
        lost_for: Duration,
        /// The grace period.
        grace: Duration,
        /// The number of voters that count.
        voters: u32,
        /// The number of voters that serve.
        serving: u32,
    },
    /// Step 2: under `OrderedReady` the pod would not be created again before a lower one is ready.
    #[display("{pod} would not be created again before {} is ready (OrderedReady){}", lower.pod, unless_serving(lower))]
    LowerOrdinal {
        /// The pod that would go.
        pod: PodName,
        /// The lower member.
        lower: Absent,
    },
    /// Step 3: an updated member has not served for the progress deadline. The rollout goes on when
    /// that member serves, and starts over when the template changes.
    #[display("{member}, for {} s; after {} s the rollout holds, until it serves or the template changes", waited.as_secs(), deadline.as_secs())]
    Overdue {
        /// The member.
        member: Absent,
        /// The time for which the member has not served.
        waited: Duration,
        /// The progress deadline.
        deadline: Duration,
    },
    /// Step 3: a learner catches up.
    #[display("{pod} is a learner and catches up{}{}", behind(*lag), stuck(*stuck_for, *deadline))]
    Learner {
        /// The learner's pod.
        pod: PodName,
        /// The number of raft entries that the learner is behind, if it is known.
        lag: Option<u64>,
        /// The time for which the learner has made no progress.
        stuck_for: Duration,
        /// The time without progress after which the rollout no longer waits for the learner.
        deadline: Duration,
    },
    /// Step 3: a scale-out. New members join before old ones restart.
    #[display(
        "new members join first, {voters} of {replicas} are voters: {}",
        list(members)
    )]
    Joining {
        /// The members that have yet to become voters.
        members: Vec<Absent>,
        /// The present number of voters.
        voters: u32,
        /// The intended number of voters.
        replicas: u32,
    },
    /// Step 3: pods that the StatefulSet controller has to create.
    #[display("{} ({out})", list(pods))]
    MissingPods {
        /// The missing pods.
        pods: Vec<Absent>,
        /// The unavailable members.
        out: Unavailability,
    },
    /// Step 3: pods that are terminating or have a grant.
    #[display("{} may be on the way out ({out})", list(pods))]
    InFlight {
        /// The pods.
        pods: Vec<PodName>,
        /// The unavailable members.
        out: Unavailability,
    },
    /// Step 3: outdated members of which nobody knows whether they serve.
    #[display("{} ({out})", list(members))]
    Evidence {
        /// The members.
        members: Vec<Absent>,
        /// The unavailable members.
        out: Unavailability,
    },
    /// Step 3: updated members that do not serve yet.
    #[display("{} ({out})", list(members))]
    UpdatedMembers {
        /// The members.
        members: Vec<Absent>,
        /// The unavailable members.
        out: Unavailability,
    },
    /// Step 3: updated members that serve and whose pods are not Ready, so that no Service leads to
    /// them. The rollout goes on when the pods are Ready, and starts over when the template
    /// changes.
    #[display("not Ready, though serving: {} ({out})", list(pods))]
    Unready {
        /// The pods.
        pods: Vec<PodName>,
        /// The unavailable members, these included.
        out: Unavailability,
        /// Whether etcd's container has been running for the progress deadline in one of them.
        overdue: bool,
    },
    /// The rollout has not begun, and there is no recent backup.
    #[display(
        "no serving member is replaced without a recent backup: {because} (spec.rollout.requireRecentBackup)"
    )]
    Backup {
        /// The knowledge of the backups.
        because: String,
    },
    /// The window of the rollout is closed.
    #[display(
        "the window in which serving members are replaced is closed; it is open {window} (spec.rollout.window)"
    )]
    OutsideWindow {
        /// The window in words.
        window: String,
    },
    /// As many rollouts of other clusters are under way as may be at one time.
    #[display(
        "{most} rollouts of other clusters are under way, and no more may be at one time (--max-rollouts)"
    )]
    RolloutLimit {
        /// The most rollouts that may be at one time.
        most: usize,
        /// The pause until the rollout asks again for its turn.
        again: Duration,
    },
    /// Step 3: an updated member has served for less than the soak time.
    #[display("{pod} has served for {} s with its update, and the next member waits until that is {} s", served_for.as_secs(), soak.as_secs())]
    Soaking {
        /// The pod.
        pod: PodName,
        /// The time for which its member has served.
        served_for: Duration,
        /// The soak time.
        soak: Duration,
    },
    /// Step 4: this member leads, and leadership moved a moment ago.
    #[display("{leader} leads again; leadership was moved a moment ago and is left alone for {} s", remaining.as_secs())]
    Leadership {
        /// The leader.
        leader: PodName,
        /// The time until leadership may move again.
        remaining: Duration,
    },
    /// The decision on the next pod would be a refusal.
    #[display("{pod} cannot be deleted now: {reason}")]
    Permission {
        /// The pod.
        pod: PodName,
        /// The reason of the refusal.
        reason: Reason,
    },
    /// A step had permission and could not be carried out.
    #[display("{pod} could not be taken: {because}")]
    Failed {
        /// The pod.
        pod: PodName,
        /// The API server's error.
        because: String,
    },
}

impl WaitingOn {
    /// The stable identifier of the reason, for metrics and status.
    pub fn slug(&self) -> &'static str {
        self.into()
    }

    /// The time until the wait ends, if it ends by time alone.
    pub fn remaining(&self) -> Option<Duration> {
        match self {
            Self::QuorumLost {
                lost_for, grace, ..
            } => Some(grace.saturating_sub(*lost_for)),
            Self::Learner {
                stuck_for,
                deadline,
                ..
            } => Some(deadline.saturating_sub(*stuck_for)),
            Self::Soaking {
                served_for, soak, ..
            } => Some(soak.saturating_sub(*served_for)),
            Self::Leadership { remaining, .. } => Some(*remaining),
            Self::Enrolment
            | Self::Teardown(_)
            | Self::Observation(_)
            | Self::TooManyReplicas { .. }
            | Self::Revision
            | Self::Paused(_)
            | Self::Preflight { .. }
            | Self::Obstacle { .. }
            | Self::Backup { .. }
            | Self::OutsideWindow { .. }
            | Self::RolloutLimit { .. }
            | Self::LowerOrdinal { .. }
            | Self::Overdue { .. }
            | Self::Joining { .. }
            | Self::MissingPods { .. }
            | Self::InFlight { .. }
            | Self::Evidence { .. }
            | Self::UpdatedMembers { .. }
            | Self::Unready { .. }
            | Self::Permission { .. }
            | Self::Failed { .. } => None,
        }
    }

    /// Whether other rollouts may take the place of one that waits for this: it waits for a person
    /// or for others, and no member is out for it. By the identifier, since the status of another
    /// cluster has no more.
    pub fn gives_way(slug: &str) -> bool {
        const GIVE_WAY: [&str; 9] = [
            "Enrolment",
            "Teardown",
            "TooManyReplicas",
            "Paused",
            "Preflight",
            "Obstacle",
            "Backup",
            "OutsideWindow",
            "RolloutLimit",
        ];
        GIVE_WAY.contains(&slug)
    }

    /// Whether the rollout makes no progress until a person does something, as far as that can be
    /// told.
    pub fn is_stuck(&self) -> bool {
        matches!(
            self,
            Self::TooManyReplicas { .. }
                | Self::Overdue { .. }
                | Self::Preflight { .. }
                | Self::Obstacle { .. }
                | Self::Failed { .. }
                | Self::Unready { overdue: true, .. }
        )
    }
}

fn unless_serving(lower: &Absent) -> String {
    if lower.state == State::Serving {
        String::new()
    } else {
        format!(", which {}", lower.state)
    }
}

fn behind(lag: Option<u64>) -> String {
    lag.map_or_else(String::new, |lag| format!(", {lag} entries behind"))
}

fn stuck(stuck_for: Duration, deadline: Duration) -> String {
    if stuck_for.is_zero() {
        return String::new();
    }
    let (stuck, deadline) = (stuck_for.as_secs(), deadline.as_secs());
    format!("; no progress for {stuck} of at most {deadline} s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gives_way_to_other_rollouts_is_named_by_identifiers_that_exist() {
        use strum::VariantNames as _;

        let all = WaitingOn::VARIANTS.iter();
        let give_way = all.filter(|slug| WaitingOn::gives_way(slug));
        assert_eq!(give_way.count(), 9);
    }

    #[test]
    fn a_learner_that_is_stuck_says_for_how_long() {
        let told = |stuck_for: u64| {
            let learner = WaitingOn::Learner {
                pod: "etcd-2".into(),
                lag: Some(7),
                stuck_for: Duration::from_secs(stuck_for),
                deadline: Duration::from_secs(600),
            };
            learner.to_string()
        };
        let catches_up = "etcd-2 is a learner and catches up, 7 entries behind";
        assert_eq!(told(0), catches_up);
        assert_eq!(
            told(30),
            format!("{catches_up}; no progress for 30 of at most 600 s")
        );
    }
}
