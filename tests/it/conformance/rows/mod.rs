//! The rows, grouped by the project whose tests, or by the people whose reports, they come from.

mod disruption_budgets;
mod druid;
mod kruise;
mod openshift;
mod ours;
mod sequences;
mod strimzi;

use super::row::Row;

/// The rows of one peer, or of one kind of question.
pub(crate) struct Group {
    pub(crate) letter: char,
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    /// The number in the id of the first row.
    pub(crate) first: usize,
    pub(crate) size: usize,
    pub(crate) rows: &'static [Row],
}

pub(crate) fn groups() -> [Group; 7] {
    [
        Group {
            letter: 'S',
            title: "Strimzi Drain Cleaner",
            about: "A validating webhook for evictions of Kafka and ZooKeeper pods, which marks the pod for its operator and refuses.",
            first: 1,
            size: 17,
            rows: strimzi::ROWS,
        },
        Group {
            letter: 'K',
            title: "OpenKruise PodUnavailableBudget",
            about: "A webhook for evictions, deletes and updates that counts pods in a budget of its own.",
            first: 1,
            size: 8,
            rows: kruise::ROWS,
        },
        Group {
            letter: 'P',
            title: "Kubernetes: the Eviction API, PodDisruptionBudgets, kubectl drain",
            about: "They go on as before, behind the gate. Rows about the API server alone are asked of a real one with the gate in front of it.",
            first: 1,
            size: 26,
            rows: disruption_budgets::ROWS,
        },
        Group {
            letter: 'O',
            title: "OpenShift cluster-etcd-operator",
            about: "It decides when an etcd on the control plane may be scaled or its machine may go.",
            first: 1,
            size: 6,
            rows: openshift::ROWS,
        },
        Group {
            letter: 'D',
            title: "etcd-druid: protection of an etcd's components",
            about: "A webhook that keeps everybody but its operator away from an Etcd's objects.",
            first: 1,
            size: 9,
            rows: druid::ROWS,
        },
        Group {
            letter: 'Q',
            title: "Sequences",
            about: "Events that people reported from their clusters, in the order in which they happened. An answer says where no test goes through all of it.",
            first: 17,
            size: 25,
            rows: sequences::ROWS,
        },
        Group {
            letter: 'N',
            title: "What no peer tests",
            about: "Questions that the peers leave open, and at which some of them fail.",
            first: 1,
            size: 24,
            rows: ours::ROWS,
        },
    ]
}
