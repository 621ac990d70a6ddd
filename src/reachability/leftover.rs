//! Leftover endpoints: those that remain in slices of the wrong writer after the Service got or
//! lost its selector.
//!
//! The selector decides who writes the endpoints, and may change at any time. When it goes,
//! Kubernetes leaves its slices behind with their last content; when it comes, the replicas leave
//! theirs. No address may stay in two slices: proxies would use the state of either, in no fixed
//! order. So an address that the right writer lists is removed from all other slices. An address of
//! which nobody answers is removed too. Setting it to not ready would not be enough, for the same
//! reason.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::slice::{self, SliceWriter};

/// The writer of the endpoints of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndpointWriter {
    /// The replicas, since the Service has no selector.
    Replicas,
    /// Kubernetes, by the Service's selector.
    Selector,
}

impl EndpointWriter {
    pub(super) fn from_service(service: &Service) -> Self {
        let spec = service.spec.as_ref();
        let selector = spec.and_then(|spec| spec.selector.as_ref());
        if selector.is_none_or(BTreeMap::is_empty) {
            Self::Replicas
        } else {
            Self::Selector
        }
    }

    /// Whether slices of `slice_writer` are those of the right writer.
    fn is_right(self, slice_writer: SliceWriter) -> bool {
        match self {
            Self::Replicas => slice_writer == SliceWriter::Replica,
            Self::Selector => slice_writer == SliceWriter::Other,
        }
    }
}

/// A write that removes leftovers.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cleanup {
    /// Replace the slice by this one, which has fewer endpoints.
    Slice(Box<EndpointSlice>),
    /// Delete the Endpoints object of the Service. The controller that mirrors it into slices would
    /// undo any other write.
    Endpoints,
}

/// The addresses that are ready in some slice, and that no replica's slice lists.
pub(super) fn addresses_left_over(listed: &[EndpointSlice]) -> BTreeSet<SocketAddr> {
    let kept = addresses(listed, |slice_writer| slice_writer == SliceWriter::Replica);
    let others = listed
        .iter()
        .filter(|slice| slice::writer_of(slice) != SliceWriter::Replica);
    let called = others.flat_map(|slice| {
        let called = slice.endpoints.iter().filter(|e| slice::is_called(e));
        called.filter_map(|endpoint| slice::address(slice, endpoint))
    });
    called.filter(|address| !kept.contains(address)).collect()
}

/// The writes that remove duplicate addresses and the addresses in `lost`.
pub(super) fn cleanups(
    writer: EndpointWriter,
    listed: &[EndpointSlice],
    lost: &BTreeSet<SocketAddr>,
) -> Vec<Cleanup> {
    let kept = addresses(listed, |slice_writer| writer.is_right(slice_writer));
    let goes = |address: &SocketAddr| kept.contains(address) || lost.contains(address);
    let mut changes = Vec::new();
    let mut mirrored = BTreeSet::new();
    for slice in listed {
        match slice::writer_of(slice) {
            slice_writer if writer.is_right(slice_writer) => {}
            SliceWriter::Mirror => mirrored.extend(addresses_of(slice)),
            _ => {
                let mut less = slice.clone();
                less.endpoints.retain(|endpoint| {
                    slice::address(slice, endpoint).is_none_or(|address| !goes(&address))
                });
                if less.endpoints.len() < slice.endpoints.len() {
                    changes.push(Cleanup::Slice(Box::new(less)));
                }
            }
        }
    }
    // Mirrored slices go as a whole. They stay while they are the only ones to list an address that
    // may be alive. With a selector, Kubernetes' own controller removes them.
    let elsewhere = addresses(listed, |slice_writer| slice_writer != SliceWriter::Mirror);
    let spared = |address: &SocketAddr| !goes(address) && !elsewhere.contains(address);
    if writer == EndpointWriter::Replicas
        && mirrored.iter().any(goes)
        && !mirrored.iter().any(spared)
    {
        changes.push(Cleanup::Endpoints);
    }
    changes
}

/// All addresses in the slices of the makers for which `of` holds.
fn addresses(listed: &[EndpointSlice], of: impl Fn(SliceWriter) -> bool) -> BTreeSet<SocketAddr> {
    let slices = listed.iter().filter(|slice| of(slice::writer_of(slice)));
    slices.flat_map(addresses_of).collect()
}

fn addresses_of(slice: &EndpointSlice) -> impl Iterator<Item = SocketAddr> {
    let endpoints = slice.endpoints.iter();
    endpoints.filter_map(|endpoint| slice::address(slice, endpoint))
}

#[cfg(test)]
mod tests;
