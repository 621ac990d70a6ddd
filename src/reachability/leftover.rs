//! Endpoints that somebody else keeps, or nobody any more: what a Service that gets a selector, or loses it, has too many of.
//!
//! Who keeps the endpoints is the Service's to say, and may change at any time. Kubernetes leaves its slices behind when the selector goes, with
//! whatever they said last; the replicas leave theirs when it comes. No address may stay in two slices: proxies take either word for it, in no
//! order. So an address that stands where it belongs is taken out of all other slices, and so is one of which nobody answers. It is taken
//! out, and not set to not ready, for the same reason.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::slice::{self, Maker};

/// Who keeps the endpoints of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The replicas, since it has no selector.
    Replicas,
    /// Kubernetes, by the selector.
    Selector,
}

impl Way {
    pub(super) fn of(service: &Service) -> Self {
        let spec = service.spec.as_ref();
        let selector = spec.and_then(|spec| spec.selector.as_ref());
        if selector.is_none_or(BTreeMap::is_empty) {
            Self::Replicas
        } else {
            Self::Selector
        }
    }

    /// Whether the slices of this maker say what counts.
    fn counts(self, maker: Maker) -> bool {
        match self {
            Self::Replicas => maker == Maker::Replica,
            Self::Selector => maker == Maker::Other,
        }
    }
}

/// What is to be written so that no address stands twice.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Tidying {
    /// A slice, with less than it has.
    Slice(Box<EndpointSlice>),
    /// The Endpoints of the Service are to be deleted: what mirrors them into slices would undo any other write.
    Endpoints,
}

/// Addresses that are called, and that no replica has a slice for.
pub(super) fn unkept(listed: &[EndpointSlice]) -> BTreeSet<SocketAddr> {
    let kept = addresses(listed, |maker| maker == Maker::Replica);
    let others = listed
        .iter()
        .filter(|slice| slice::maker(slice) != Maker::Replica);
    let called = others.flat_map(|slice| {
        let called = slice.endpoints.iter().filter(|e| slice::is_called(e));
        called.filter_map(|endpoint| slice::address(slice, endpoint))
    });
    called.filter(|address| !kept.contains(address)).collect()
}

/// What is to be written where these addresses are lost.
pub(super) fn tidied(
    way: Way,
    listed: &[EndpointSlice],
    lost: &BTreeSet<SocketAddr>,
) -> Vec<Tidying> {
    let kept = addresses(listed, |maker| way.counts(maker));
    let goes = |address: &SocketAddr| kept.contains(address) || lost.contains(address);
    let mut changes = Vec::new();
    let mut mirrored = BTreeSet::new();
    for slice in listed {
        match slice::maker(slice) {
            maker if way.counts(maker) => {}
            Maker::Mirror => mirrored.extend(addresses_of(slice)),
            _ => {
                let mut less = slice.clone();
                less.endpoints.retain(|endpoint| {
                    slice::address(slice, endpoint).is_none_or(|address| !goes(&address))
                });
                if less.endpoints.len() < slice.endpoints.len() {
                    changes.push(Tidying::Slice(Box::new(less)));
                }
            }
        }
    }
    // The mirror goes as a whole: not while somebody stands there only who may live. With a selector, its controller takes it away.
    let elsewhere = addresses(listed, |maker| maker != Maker::Mirror);
    let spared = |address: &SocketAddr| !goes(address) && !elsewhere.contains(address);
    if way == Way::Replicas && mirrored.iter().any(goes) && !mirrored.iter().any(spared) {
        changes.push(Tidying::Endpoints);
    }
    changes
}

/// All addresses in the slices of some makers.
fn addresses(listed: &[EndpointSlice], of: impl Fn(Maker) -> bool) -> BTreeSet<SocketAddr> {
    let slices = listed.iter().filter(|slice| of(slice::maker(slice)));
    slices.flat_map(addresses_of).collect()
}

fn addresses_of(slice: &EndpointSlice) -> impl Iterator<Item = SocketAddr> {
    let endpoints = slice.endpoints.iter();
    endpoints.filter_map(|endpoint| slice::address(slice, endpoint))
}

#[cfg(test)]
mod tests;
