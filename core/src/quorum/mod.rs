//! The state of an etcd cluster, and the decision whether a member may be taken out.
//!
//! The way from facts to a decision:
//!
//! 1. The caller reads the Kubernetes API and asks every member. The result is an [`Observation`].
//! 2. [`Snapshot::assemble`] works out the members: the role of each, and whether it serves.
//! 3. [`decide()`] judges one [`Disruption`] by the snapshot and by the open [`Grants`].
//!
//! A member *serves* if it has just proved that it takes part in quorum. The *voters that count*
//! are the voters of which a majority has to serve: those that etcd lists, but never fewer than the
//! cluster is known to have had ([`ExpectedVoters`]), so that losing members does not lower the
//! majority.
//!
//! A *grant* is a recorded permission to take one member out. The *ledger* is the list of all open
//! grants; it is kept in the status of the cluster's budget (`QuorumDisruptionBudget`).
//!
//! A change of a StatefulSet that takes members without a disruption of each is decided in
//! [`stateful_set`].
//!
//! The invariant: the serving voters without a grant make a majority of the voters that count. They
//! fall below it only through failures, through repairs of a lost quorum, and through what the
//! owner accepts (a teardown, an override, the policy of a small cluster, a revision that goes on
//! without quorum). [`decide()`] keeps the invariant for one disruption. The ledger keeps it for
//! any number of disruptions at once.
//!
//! [`decide_claim`] judges the delete of a member's `PersistentVolumeClaim` by the same facts.
//!
//! The numbers of rules (rule 1 to rule 17) are those of docs/rules.md.

mod agreement;
mod answers;
mod assemble;
mod circumstances;
mod claims;
mod comparison;
mod condition;
mod decide;
mod disruption;
pub mod evidence;
pub mod example;
mod expected_voters;
mod grants;
mod id;
mod intent;
mod leader;
mod log_end;
mod mapping;
mod membership;
pub mod pod;
mod policy;
mod process;
mod readiness;
mod refill;
mod serving;
mod settlement;
mod snapshot;
pub mod stateful_set;
mod succession;
mod tolerance;
mod trust;
mod verdict;
mod volume;
mod volume_record;
mod why;

pub use assemble::confirmed_list;
pub use circumstances::{
    Circumstances, EvictionBudget, OutsideOrdinals, Override, OverrideOn, Scope, Switch, Teardown,
};

pub use claims::{
    ClaimDeletion, ClaimState, DataInPods, decide_claim, decide_claim_early,
    decide_with_data_in_pod, decide_with_terminating_claim, progress_of_claim, progress_of_claims,
    replacement_of, takes_data,
};
pub use comparison::{Comparison, DataHash};
pub use condition::Condition;
pub use decide::{decide, decide_early, decide_without_ledger};
pub use disruption::{Actor, Disruption, Grace, InPlace, Kind, TargetPod};
pub use expected_voters::{ExpectedVoters, majority};
pub use grants::{Cause, Grant, GrantKind, Grants};
pub(crate) use id::list;
pub use id::{ClusterId, ClusterRef, MemberId, Ordinal, PodName, PodUid};
pub use intent::Intent;
pub use leader::leader_to_move;
pub use log_end::{LogEnd, WentBack};
pub use membership::Membership;
pub use policy::{EvidenceMode, Policy, SmallCluster};
pub use process::ProcessState;
pub use refill::Work;
pub use serving::Serving;
pub use settlement::{
    CauseState, DefragmentationProgress, Incarnation, PodRead, ReplacementProgress, Settlement,
    settlement,
};
pub use snapshot::{Member, MemberPod, Observation, Role, Sizes, Snapshot};
pub use succession::{LeaderMove, OpenMove, Succession, rests, succession};
pub use tolerance::Tolerance;
pub use trust::{Trust, TrustEvent, TrustRecord, TrustWatch, WebhookHistory};
pub use verdict::{
    Allowance, Basis, Count, DataTaken, NamedOwner, NotServing, Reason, TeardownBy, Unannounced,
    Verdict, Waiver,
};
pub use volume::{Difference, HeldData, Volume, VolumeFinding, unrecorded_finding, volume_finding};
pub use volume_record::{
    HeldVolumes, VolumeRecord, VolumeRecords, record_volumes, unrecorded_volumes,
};
pub use why::Why;
