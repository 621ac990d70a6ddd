//! The two ways to find the pods of a cluster.

/// How the pods of a cluster are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Find {
    /// By a list, which has pods too that nobody expects. The API server answers it from its cache,
    /// when that has caught up with etcd: about 100 ms after a write to anything.
    Listed,
    /// By the names of all pods that are, were or may become members, each read by itself in a few
    /// milliseconds. That is every pod that matters where each member of etcd turns out to have one
    /// of these.
    Named,
}
