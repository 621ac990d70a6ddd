//! Paper members, which consist of an address only.

use std::net::Ipv4Addr;

/// The number of members of each cluster.
pub(crate) const MEMBERS: u32 = 3;
/// The first address, 127.64.0.0. Each cluster has four addresses.
pub(crate) const FIRST_ADDRESS: u32 = 0x7f40_0000;

/// A paper member.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    pub(crate) cluster: u32,
    pub(crate) ordinal: u32,
}

impl Member {
    /// The address of its pod.
    pub(crate) fn address(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(FIRST_ADDRESS + self.cluster * 4 + self.ordinal)
    }
}

/// The number of clusters in a namespace. A read of one cluster's pods makes the API server scan
/// those of all of them.
pub(crate) const TOGETHER: u32 = 10;

/// The namespace of a cluster.
pub(crate) fn namespace_of(cluster: u32) -> String {
    format!("paper-{:04}", cluster / TOGETHER)
}

/// The name of a cluster's StatefulSet.
pub(crate) fn cluster_name(cluster: u32) -> String {
    format!("etcd-{cluster:04}")
}
