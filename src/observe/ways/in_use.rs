//! The way that is in use: the recorded one, or the likeliest.

use k8s_openapi::api::core::v1::PodSpec;

use super::gather::{Known, gather};
use super::named::{authority_named, identity_named, port_named};
use crate::api::{MembersSpec, PortSource, Scheme, Way};
use crate::ledger::Page;
use crate::observe::contents::Contents;

/// The way in which the members of this budget are asked: the recorded one, or else the first
/// candidate by `pod`, the template of the StatefulSet or a pod. What the budget names comes
/// before both.
pub(in crate::observe) fn in_use(page: &Page, pod: Option<&PodSpec>) -> Way {
    let members = &page.budget().spec.members;
    let recorded = page.status().and_then(|status| status.way.as_deref());
    let is_of_container =
        |way: &&Way| members.container.is_none() || members.container == way.container;
    match recorded.filter(is_of_container) {
        Some(way) => as_named(way.clone(), members),
        None => first_guess(members, pod),
    }
}

/// The first candidate without anything read.
pub(super) fn first_guess(members: &MembersSpec, pod: Option<&PodSpec>) -> Way {
    let contents = Contents::default();
    let mut candidates = gather(&Known {
        members,
        pod: pod.unwrap_or(&PodSpec::default()),
        contents: &contents,
        services: &[],
    });
    candidates.swap_remove(0)
}

/// The way with what the budget names now.
fn as_named(mut way: Way, members: &MembersSpec) -> Way {
    if let Some(port) = port_named(members) {
        way.port = port;
        way.port_from = PortSource::Budget;
    }
    if let Some(tls) = &members.tls {
        way.scheme = Scheme::Https;
        if let Some(authority) = authority_named(tls) {
            way.authority = Some(authority);
        }
        if let Some(identity) = identity_named(tls) {
            way.identity = Some(identity);
        }
    }
    way
}

/// The sources of a way, and of the user that is sent by it, for people.
pub fn words(way: &Way, members: &MembersSpec) -> String {
    let user = members.auth.as_ref().map(|auth| &auth.secret.name);
    let user = user.map(|name| format!("; user and password from Secret {name}"));
    format!("{}{}", way.source, user.unwrap_or_default())
}
