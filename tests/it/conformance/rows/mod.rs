//! The rows, grouped by the project whose tests they come from.

mod disruption_budgets;
mod druid;
mod kruise;
mod openshift;
mod ours;
mod strimzi;

use super::row::Row;

/// The rows of one peer.
pub(crate) struct Group {
    pub(crate) letter: char,
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    pub(crate) size: usize,
    pub(crate) rows: &'static [Row],
}

pub(crate) fn groups() -> [Group; 6] {
    [
        Group {
            letter: 'S',
            title: "Strimzi Drain Cleaner",
            about: "A validating webhook for evictions of Kafka and ZooKeeper pods, which marks the pod for its operator and refuses.",
            size: 17,
            rows: strimzi::ROWS,
        },
        Group {
            letter: 'K',
            title: "OpenKruise PodUnavailableBudget",
            about: "A webhook for evictions, deletes and updates that counts pods in a budget of its own.",
            size: 8,
            rows: kruise::ROWS,
        },
        Group {
            letter: 'P',
            title: "Kubernetes: the Eviction API, PodDisruptionBudgets, kubectl drain",
            about: "They go on as before, behind the gate. Rows about the API server alone are asked of a real one with the gate in front of it.",
            size: 26,
            rows: disruption_budgets::ROWS,
        },
        Group {
            letter: 'O',
            title: "OpenShift cluster-etcd-operator",
            about: "It decides when an etcd on the control plane may be scaled or its machine may go.",
            size: 6,
            rows: openshift::ROWS,
        },
        Group {
            letter: 'D',
            title: "etcd-druid: protection of an etcd's components",
            about: "A webhook that keeps everybody but its operator away from an Etcd's objects.",
            size: 9,
            rows: druid::ROWS,
        },
        Group {
            letter: 'N',
            title: "What no peer tests",
            about: "Questions that the peers leave open, and at which some of them fail.",
            size: 24,
            rows: ours::ROWS,
        },
    ]
}
