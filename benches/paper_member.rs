//! Members that are nothing but an address.

use std::net::Ipv4Addr;

/// Members of each cluster.
pub(crate) const MEMBERS: u32 = 3;
/// Where their addresses begin: 127.64.0.0. There are four to a cluster.
pub(crate) const FIRST_ADDRESS: u32 = 0x7f40_0000;

/// One member.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    pub(crate) cluster: u32,
    pub(crate) ordinal: u32,
}

impl Member {
    /// Its pod's address.
    pub(crate) fn address(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(FIRST_ADDRESS + self.cluster * 4 + self.ordinal)
    }
}

/// Clusters that share a namespace. Whoever reads the pods of one makes the API server look at those of all of them.
pub(crate) const TOGETHER: u32 = 10;

/// The namespace of a cluster.
pub(crate) fn namespace_of(cluster: u32) -> String {
    format!("paper-{:04}", cluster / TOGETHER)
}

/// What a cluster's StatefulSet is called.
pub(crate) fn cluster_name(cluster: u32) -> String {
    format!("etcd-{cluster:04}")
}
