//! The steps of a replacement.

use super::input::{Proof, Record};
use super::refusal::Refusal;
use crate::quorum::{MemberId, PodName, PodUid};

/// The next thing that a replacement does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// No member has to be replaced.
    Nothing,
    /// A member has to be replaced or is being replaced, and nothing can be done now.
    Wait {
        /// The pod of the member.
        pod: PodName,
        /// The proof that its data is lost. `None` if a person asked.
        proof: Option<Proof>,
        /// The reason to wait.
        because: Refusal,
    },
    /// The gate carries out this step. After it everything is observed again.
    Act(Step),
}

/// A step of a replacement. Each is a single effect, which may have happened already. `Display` is
/// a sentence. The numbers are those of docs/data.md.
#[derive(
    Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames, derive_more::Display,
)]
pub enum Step {
    /// 1: take a grant of the kind [`GrantKind::Replace`](crate::quorum::GrantKind::Replace) and
    /// write the record, in one compare-and-swap at the ledger that this judgement read.
    #[display("replace {}: {}", record.member, reason(proof.as_ref()))]
    Grant {
        /// The record.
        record: Record,
        /// The proof. `None` if a person asked.
        proof: Option<Proof>,
    },
    /// 2: move leadership away from the member.
    #[display("move leadership from {pod} to member {to}")]
    MoveLeader {
        /// The pod of the member.
        pod: PodName,
        /// The member that takes over.
        to: MemberId,
    },
    /// 3: remove the old id from etcd.
    #[display("remove member {id} of {pod} from etcd")]
    RemoveMember {
        /// The pod of the member.
        pod: PodName,
        /// The old id.
        id: MemberId,
    },
    /// 4: add the member to etcd as a learner. For some seconds after the removal etcd refuses with
    /// "unhealthy cluster": the step is tried again.
    #[display("add {pod} as a learner at {}", peer_urls.join(", "))]
    AddLearner {
        /// The pod of the member.
        pod: PodName,
        /// The peer URLs.
        peer_urls: Vec<String>,
    },
    /// 5: delete the old claim, with its UID as a precondition. The claim goes before the pod:
    /// otherwise the StatefulSet controller would create the pod again on the old claim.
    #[display("delete the claim of {pod}")]
    DeleteClaim {
        /// The pod of the member.
        pod: PodName,
        /// The UID of the claim.
        uid: String,
    },
    /// 5: delete the old pod, with its UID as a precondition.
    #[display("delete {pod}")]
    DeletePod {
        /// The pod.
        pod: PodName,
        /// The UID of the pod.
        uid: PodUid,
    },
    /// 6: remove the gate's scheduling gate from the new pod: etcd expects the member.
    #[display("let {pod} be scheduled")]
    Release {
        /// The pod.
        pod: PodName,
        /// The UID of the pod.
        uid: PodUid,
    },
    /// 6: record the volume on which the new member runs. From then on its pod may be created again
    /// on that volume at any time: it is known to have the member's data.
    #[display("record the volume of member {id} of {pod}")]
    RecordVolume {
        /// The pod of the member.
        pod: PodName,
        /// The new id.
        id: MemberId,
    },
    /// Before 3 once more: write the present claim and pod into the record as those to give up.
    /// Either the new member has started once, and nobody can tell whether its data is on this
    /// claim, or it never came up on this claim.
    #[display("give up the new claim of {} as well", record.member)]
    Renew {
        /// The record with the claim and the pod.
        record: Record,
    },
    /// 6: promote the learner.
    #[display("promote member {id} of {pod}")]
    Promote {
        /// The pod of the member.
        pod: PodName,
        /// The new id.
        id: MemberId,
    },
    /// 7: settle the grant and record the end: the new voter serves.
    #[display("{pod} is replaced and serves")]
    Settle {
        /// The pod of the member.
        pod: PodName,
    },
    /// Settle the grant and drop the record: nothing has been changed, and nothing may be now.
    #[display("leave {pod} as it is: {because}")]
    Undo {
        /// The pod of the member.
        pod: PodName,
        /// The reason.
        because: Refusal,
    },
}

impl Step {
    /// The stable identifier of the step, for metrics and status.
    pub fn slug(&self) -> &'static str {
        self.into()
    }
}

fn reason(proof: Option<&Proof>) -> String {
    proof.map_or_else(|| "somebody asked for it".to_owned(), Proof::to_string)
}
