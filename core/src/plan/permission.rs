//! The check that a step would be allowed. The planner proposes only steps that
//! [`decide()`](crate::quorum::decide()) would allow now.

use super::desired::PodManagement;
use super::ordinal_state::OrdinalState;
use super::rollout_state::RolloutState;
use super::step::{Action, disruption};
use super::waiting::WaitingOn;
use crate::quorum::{
    Allowance, Basis, Disruption, Grants, PodName, Reason, TargetPod, Verdict, decide,
};

impl RolloutState<'_> {
    /// The pod to take, or the reason why it may not go while these grants are open.
    pub(super) fn may_take(
        &self,
        ordinal_state: &OrdinalState<'_>,
        grants: &Grants,
        action: Action,
    ) -> Result<TargetPod, Box<WaitingOn>> {
        let Some(target) = ordinal_state.target() else {
            return Err(self.waiting().into());
        };
        if let Some(lower) = self.blocking(ordinal_state, grants) {
            return Err(Box::new(WaitingOn::LowerOrdinal {
                pod: target.name,
                lower: lower.absent(),
            }));
        }
        match self.judge(grants, &disruption(target.clone(), action.departure())) {
            Verdict::Allow(_) => Ok(target),
            Verdict::Wait(reason) | Verdict::Deny(reason) => {
                Err(self.refused(&target.name, reason).into())
            }
        }
    }

    /// The decision on a step. The owner's permission to proceed without quorum is ignored unless
    /// an obstacle requires it.
    fn judge(&self, grants: &Grants, disruption: &Disruption) -> Verdict {
        let verdict = decide(self.snapshot, grants, disruption);
        let outage = Verdict::Allow(Allowance::Grant(Basis::Proceed));
        if verdict == outage && self.obstacle().is_none() {
            let mut without = self.snapshot.clone();
            without.proceed_without_quorum = None;
            return decide(&without, grants, disruption);
        }
        verdict
    }

    /// A lower ordinal that keeps the StatefulSet controller from creating this pod again
    /// (`OrderedReady`).
    fn blocking<'s>(
        &'s self,
        ordinal_state: &OrdinalState<'_>,
        grants: &Grants,
    ) -> Option<&'s OrdinalState<'s>> {
        if self.desired.management == PodManagement::Parallel {
            return None;
        }
        self.slots.iter().find(|lower| {
            let ready = lower.pod.is_some_and(|pod| pod.ready && !pod.terminating);
            lower.ordinal < ordinal_state.ordinal && (!ready || grants.holds(&lower.name))
        })
    }

    fn refused(&self, pod: &PodName, reason: Reason) -> WaitingOn {
        let pod = pod.clone();
        let Reason::QuorumLost(count) = reason else {
            return WaitingOn::Permission { pod, reason };
        };
        WaitingOn::QuorumLost {
            pod,
            lost_for: self.snapshot.quorum_lost_for.unwrap_or_default(),
            grace: self.snapshot.policy.quorum_loss_grace,
            voters: count.voters,
            serving: count.serving,
        }
    }
}
