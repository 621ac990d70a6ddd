//! Whether a delete takes a pod's object away at once, or lets its kubelet end the containers first.
//!
//! The options of a review arrive already defaulted by the API server: 0 there may be the caller's `--force`, the pod's own
//! `terminationGracePeriodSeconds`, or what the API server makes of a pod that is unscheduled or has a final phase. Who meant
//! it makes no difference to a second incarnation that starts beside the first, so what counts is the effect: the object goes at
//! once. Only a pod without a node is exempt: nothing runs there. A final phase exempts nothing, because pod GC writes `Failed` on pods
//! that still run; whether this one may is for the rules to say, from its node and its containers. In a collection delete
//! the options are as the caller sent them, so the defaults are worked out here.

use crate::quorum::Grace;

use super::pods::Pod;
use super::review::Options;

/// The grace that a delete with these options gives this pod.
pub(super) fn of_delete(options: &Options, pod: &Pod) -> Grace {
    if pod.node().is_none() {
        return Grace::Graceful;
    }
    let defaulted = || {
        if pod.has_final_phase() {
            Some(0)
        } else {
            pod.own_grace_seconds()
        }
    };
    of_seconds(options.grace_period_seconds.or_else(defaulted))
}

/// The grace that an eviction asks for. Its review shows no pod, so only an explicit 0 is known to be one.
pub(super) fn of_eviction(options: &Options) -> Grace {
    of_seconds(options.grace_period_seconds)
}

fn of_seconds(seconds: Option<i64>) -> Grace {
    if seconds == Some(0) {
        Grace::Forced
    } else {
        Grace::Graceful
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn grace(options: serde_json::Value, pod: serde_json::Value) -> Grace {
        of_delete(
            &serde_json::from_value(options).unwrap(),
            &serde_json::from_value(pod).unwrap(),
        )
    }

    #[test]
    fn grace_0_of_a_scheduled_pod_is_forced_whoever_meant_it() {
        let running = json!({"spec": {"nodeName": "a", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Running"}});
        let failed = json!({"spec": {"nodeName": "a"}, "status": {"phase": "Failed"}});
        let at_once = json!({"spec": {"nodeName": "a", "terminationGracePeriodSeconds": 0}});
        assert_eq!(
            grace(json!({"gracePeriodSeconds": 0}), running.clone()),
            Grace::Forced
        );
        assert_eq!(
            grace(json!({"gracePeriodSeconds": 30}), running.clone()),
            Grace::Graceful
        );
        assert_eq!(
            grace(json!({"gracePeriodSeconds": 0}), failed.clone()),
            Grace::Forced
        );
        // A collection delete: nothing is defaulted.
        assert_eq!(grace(json!({}), running), Grace::Graceful);
        assert_eq!(grace(json!({}), failed), Grace::Forced);
        assert_eq!(grace(json!({}), at_once), Grace::Forced);
    }

    #[test]
    fn an_unscheduled_pod_is_never_forced() {
        let pending = json!({"spec": {}, "status": {"phase": "Pending"}});
        assert_eq!(
            grace(json!({"gracePeriodSeconds": 0}), pending.clone()),
            Grace::Graceful
        );
        let empty = json!({"spec": {"nodeName": ""}});
        assert_eq!(
            grace(json!({"gracePeriodSeconds": 0}), empty),
            Grace::Graceful
        );
    }
}
