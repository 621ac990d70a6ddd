//! The match between pods and members, and the proof that a pod is no member.
//!
//! A pod is matched by its own answer. Without an answer it is matched by the budget's record, or
//! else by its name.

use std::collections::{BTreeMap, BTreeSet};

use super::answers::{Answers, MemberAnswer};
use super::evidence::ListedMember;
use super::id::{ClusterId, MemberId, PodUid};
use super::membership::List;
use super::pod::Pod;

/// The member that a pod is, and how that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    /// The pod answered with this id just now.
    Answered(MemberId),
    /// The budget recorded this id for the pod, and no other pod answers with it.
    Recorded(MemberId),
    /// The member list names an entry like the pod, and no other pod claims it. This is a hint and
    /// no proof.
    Named(MemberId),
    /// The member is not known.
    Unidentified,
}

impl Identity {
    /// The member's id, however it is known.
    pub(super) fn id(self) -> Option<MemberId> {
        match self {
            Self::Answered(id) | Self::Recorded(id) | Self::Named(id) => Some(id),
            Self::Unidentified => None,
        }
    }

    fn claim(self) -> Option<MemberId> {
        match self {
            Self::Answered(id) | Self::Recorded(id) => Some(id),
            Self::Named(_) | Self::Unidentified => None,
        }
    }
}

/// The identities of all pods of a cluster.
#[derive(Debug)]
pub(super) struct Mapping {
    of: BTreeMap<PodUid, Identity>,
}

impl Mapping {
    /// Matches `pods` with members. `cluster` is the cluster id that the answers agree on.
    pub(super) fn draw(
        pods: &[Pod],
        answers: &Answers<'_>,
        cluster: Option<ClusterId>,
        list: Option<&List<'_>>,
    ) -> Self {
        let mut of: BTreeMap<PodUid, Identity> = pods
            .iter()
            .map(|pod| (pod.uid.clone(), by_answer(pod, answers, cluster)))
            .collect();
        let heard: BTreeSet<MemberId> = answers.heard().map(|h| h.status.member_id).collect();
        assign(pods, &mut of, Identity::Recorded, |pod| {
            let id = pod.recorded_id?;
            let listed = list.is_none_or(|list| list.entry(id).is_some());
            (listed && !heard.contains(&id)).then_some(id)
        });
        let claimed: BTreeSet<MemberId> = of.values().filter_map(|i| i.claim()).collect();
        assign(pods, &mut of, Identity::Named, |pod| {
            let id = named(pod, list?)?;
            (!claimed.contains(&id)).then_some(id)
        });
        Self { of }
    }

    /// The identity of a pod.
    pub(super) fn identity(&self, uid: &PodUid) -> Identity {
        self.of.get(uid).copied().unwrap_or(Identity::Unidentified)
    }

    /// The members that have a pod.
    pub(super) fn with_pod(&self) -> BTreeSet<MemberId> {
        self.of
            .values()
            .filter_map(|identity| identity.id())
            .collect()
    }

    /// Whether a confirmed `list` proves that the pod is not a member: the pod answered with an id
    /// that the list does not have, or every id in the list belongs to another pod.
    ///
    /// A recorded id that is missing from the list proves nothing. The pod may have joined again
    /// under another id, which is listed and which no other pod answers with.
    pub(super) fn proves_no_member(&self, pod: &Pod, list: &List<'_>) -> bool {
        match self.identity(&pod.uid) {
            Identity::Answered(id) => list.entry(id).is_none(),
            Identity::Recorded(_) | Identity::Named(_) | Identity::Unidentified => {
                let others: BTreeSet<MemberId> = self
                    .of
                    .iter()
                    .filter(|(uid, _)| **uid != pod.uid)
                    .filter_map(|(_, identity)| identity.claim())
                    .collect();
                !list.members.is_empty() && list.members.iter().all(|m| others.contains(&m.id))
            }
        }
    }
}

fn by_answer(pod: &Pod, answers: &Answers<'_>, cluster: Option<ClusterId>) -> Identity {
    match answers.of_pod(&pod.uid).and_then(MemberAnswer::heard) {
        Some(heard) if cluster.is_none_or(|agreed| agreed == heard.status.cluster_id) => {
            Identity::Answered(heard.status.member_id)
        }
        _ => Identity::Unidentified,
    }
}

/// Gives each unidentified pod the identity that `find` returns, unless two pods would get the same
/// one.
fn assign(
    pods: &[Pod],
    of: &mut BTreeMap<PodUid, Identity>,
    identity: impl Fn(MemberId) -> Identity,
    find: impl Fn(&Pod) -> Option<MemberId>,
) {
    let mut found: BTreeMap<MemberId, Vec<&PodUid>> = BTreeMap::new();
    for pod in pods {
        if of.get(&pod.uid) == Some(&Identity::Unidentified)
            && let Some(id) = find(pod)
        {
            found.entry(id).or_default().push(&pod.uid);
        }
    }
    for (id, uids) in found {
        if let [uid] = uids.as_slice() {
            of.insert((*uid).clone(), identity(id));
        }
    }
}

/// The only listed member that has the pod's name, or else the only one that has it with a prefix.
/// A member that never started has no name; its peer URL has to lead to the pod.
fn named(pod: &Pod, list: &List<'_>) -> Option<MemberId> {
    let exactly = |listed: &ListedMember| {
        if listed.name.is_empty() {
            listed.peer_urls.iter().any(|url| leads_to(url, pod))
        } else {
            listed.name == pod.name.as_str()
        }
    };
    only(list, exactly).or_else(|| {
        let prefixed = |listed: &ListedMember| pod.name.names(&listed.name);
        only(list, prefixed)
    })
}

fn only(list: &List<'_>, is_meant: impl Fn(&ListedMember) -> bool) -> Option<MemberId> {
    let mut meant = list.members.iter().filter(|listed| is_meant(listed));
    match (meant.next(), meant.next()) {
        (Some(only), None) => Some(only.id),
        _ => None,
    }
}

/// Whether the host of a URL begins with the pod's name, as the pod's DNS name does.
fn leads_to(url: &str, pod: &Pod) -> bool {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    host.strip_prefix(pod.name.as_str())
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', ':', '/']))
}
