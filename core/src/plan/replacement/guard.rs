//! The identity guard: how a pod of a running cluster may start.
//!
//! A member that comes up with an empty volume may form an empty cluster under the old cluster id,
//! or diverge silently (measured). etcd ignores `initial-cluster-state` where there is data. So
//! `existing` harms nobody, and keeps a member without data from starting a cluster. It does not
//! keep such a member from coming back under its old identity: for that the pod has to wait.

use super::membership_by::MembershipBy;
use crate::quorum::evidence::ListedMember;
use crate::quorum::{Difference, Member, MemberId, PodName, Snapshot, VolumeFinding};

/// The facts about a pod that is created, or that waits for the gate's scheduling gate.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// The name of the StatefulSet.
    pub set: &'a str,
    /// The name of the pod.
    pub pod: &'a PodName,
    /// The one who changes etcd's member list.
    pub membership: MembershipBy,
    /// Whether a cluster id is on record, so that the cluster is not new.
    pub is_formed: bool,
    /// Whether the owner wants a fresh start (`quorumgate.io/intent: bootstrap`).
    pub bootstrap: bool,
    /// The member id on record for the pod's name.
    pub recorded_id: Option<MemberId>,
    /// Whether the pod has the claim that was recorded for its member.
    pub volume: &'a VolumeFinding,
    /// etcd's member list, if an up-to-date one could be read.
    pub list: Option<&'a [ListedMember]>,
    /// Whether every member of that list which has ever started is in another pod
    /// ([`all_are_elsewhere`]).
    pub others_only: bool,
}

/// The decision about the start of a pod that is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// Whether `initial-cluster-state` is set to `existing`.
    pub existing: bool,
    /// The reason for a scheduling gate. `None` means that the pod gets none.
    pub hold: Option<Hold>,
}

/// The reason why a pod waits. `Display` completes the sentence "the pod waits: …".
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
#[display(
    "it has {difference}, and would come back under its old identity without its data; its old id has to be removed from etcd and a learner to be added first"
)]
pub struct Hold {
    /// The difference of the volume.
    pub difference: Difference,
}

/// Decides how a pod starts that is created.
///
/// In a cluster that is to begin anew, a pod without its member's volume waits too: whether any
/// member still serves is for the leader to find out ([`may_start`]).
///
/// ```
/// use quorumgate_core::plan::replacement::{MembershipBy, Start, guard};
/// use quorumgate_core::quorum::{Difference, MemberId, Volume, VolumeFinding};
///
/// let emptied = VolumeFinding::Wrong {
///     volume: Volume { claim_uid: "new".into(), volume_id: None, directory: None },
///     difference: Difference::NewClaim,
/// };
/// let start = Start {
///     set: "etcd",
///     pod: &"etcd-2".into(),
///     membership: MembershipBy::Gate,
///     is_formed: true,
///     bootstrap: false,
///     recorded_id: Some(MemberId(3)),
///     volume: &emptied,
///     list: None,
///     others_only: false,
/// };
/// assert!(guard(&start).existing && guard(&start).hold.is_some());
/// let as_recorded = Start { volume: &VolumeFinding::AsRecorded, ..start };
/// assert!(guard(&as_recorded).existing && guard(&as_recorded).hold.is_none());
/// ```
pub fn guard(start: &Start<'_>) -> Guard {
    if start.membership != MembershipBy::Gate || !start.is_formed {
        return Guard {
            existing: false,
            hold: None,
        };
    }
    let hold = match start.volume {
        VolumeFinding::Unknown | VolumeFinding::AsRecorded => None,
        VolumeFinding::Wrong { difference, .. } => (!may_join(start)).then(|| Hold {
            difference: difference.clone(),
        }),
    };
    Guard {
        existing: !start.bootstrap,
        hold,
    }
}

/// Whether a pod that waits may start. Only positive grounds count: the pod has the volume that is
/// on record for its member, etcd expects a new member in it, the pod was never a member's, or the
/// cluster begins anew and no member serves. That nothing is on record, or that refusals are only
/// reported, is no such ground.
///
/// ```
/// use quorumgate_core::plan::replacement::{MembershipBy, Start, may_start};
/// use quorumgate_core::quorum::VolumeFinding;
///
/// // Its budget was deleted, so nothing is on record.
/// let held = Start {
///     set: "etcd",
///     pod: &"etcd-2".into(),
///     membership: MembershipBy::Gate,
///     is_formed: false,
///     bootstrap: false,
///     recorded_id: None,
///     volume: &VolumeFinding::Unknown,
///     list: None,
///     others_only: false,
/// };
/// assert!(!may_start(&held, true) && !may_start(&held, false));
/// let anew = Start { bootstrap: true, ..held };
/// assert!(may_start(&anew, false) && !may_start(&anew, true));
/// ```
pub fn may_start(start: &Start<'_>, some_serve: bool) -> bool {
    let has_its_data = *start.volume == VolumeFinding::AsRecorded;
    let begins_anew = start.bootstrap && !some_serve;
    has_its_data || may_join(start) || is_nobody(start) || begins_anew
}

/// Whether the pod cannot come back under an old identity: none is on record, it has no data, and
/// every member that ever started is in another pod. So is a pod of a scale-out, which etcd joins
/// once somebody adds its member.
fn is_nobody(start: &Start<'_>) -> bool {
    let is_empty = match start.volume {
        VolumeFinding::Unknown => true,
        VolumeFinding::AsRecorded => false,
        VolumeFinding::Wrong { difference, .. } => {
            matches!(difference, Difference::NewClaim | Difference::NewPod)
        }
    };
    is_empty && start.recorded_id.is_none() && start.others_only
}

/// Whether every member of the list that has ever started is in another pod than `pod`.
pub fn all_are_elsewhere(list: &[ListedMember], snapshot: &Snapshot, pod: &PodName) -> bool {
    list.iter().all(|listed| {
        let mut members = snapshot.members.iter();
        let member = members.find(|member| member.id == Some(listed.id));
        let of = member.and_then(Member::pod_name);
        listed.name.is_empty() || of.is_some_and(|of| of != pod)
    })
}

/// Whether etcd would begin a cluster of its own in this pod, whatever its data is.
fn leaves_the_others(start: &Start<'_>) -> bool {
    let VolumeFinding::Wrong { difference, .. } = start.volume else {
        return false;
    };
    *difference == Difference::OwnCluster
}

/// Whether etcd expects a new member in this pod, and does not list the old one any more.
fn may_join(start: &Start<'_>) -> bool {
    let Some(list) = start.list.filter(|_| !leaves_the_others(start)) else {
        return false;
    };
    // A member that has never started had no data to lose.
    let is_old =
        |listed: &ListedMember| Some(listed.id) == start.recorded_id && !listed.name.is_empty();
    expected_in(start.set, start.pod, list).is_some() && !list.iter().any(is_old)
}

/// The member that etcd expects in this pod: an entry that has never started leads to the pod, and
/// none that has.
pub fn expected_in(set: &str, pod: &PodName, list: &[ListedMember]) -> Option<MemberId> {
    let here = list.iter().filter(|listed| leads_to(set, pod, listed));
    let here: Vec<&ListedMember> = here.collect();
    let first = here.first()?.id;
    here.iter()
        .all(|listed| listed.name.is_empty())
        .then_some(first)
}

/// The members that a new one in this pod joins, in the words of `initial-cluster`: etcd starts
/// without data only where these are the members that it lists. `None` if it expects none there.
///
/// An entry without a name has never started, and etcd compares it by its peer URLs. The new
/// member's own name is that of another one, with its own pod in it; `None` if none is named so.
pub fn initial_cluster(set: &str, pod: &PodName, list: &[ListedMember]) -> Option<String> {
    let own = expected_in(set, pod, list)?;
    let like = named_like_the_others(set, pod, list)?;
    let name = |listed: &ListedMember| match (listed.id == own, listed.name.is_empty()) {
        (true, _) => like.clone(),
        (false, true) => listed.id.to_string(),
        (false, false) => listed.name.clone(),
    };
    let entries = list.iter().flat_map(|listed| {
        let name = name(listed);
        let urls = listed.peer_urls.iter();
        urls.map(move |url| format!("{name}={url}"))
    });
    Some(entries.collect::<Vec<String>>().join(","))
}

/// The name of a new member in this pod: that of another one, with its own pod in it. `None` if no
/// member at the address of a pod is named after that pod.
pub(in crate::plan) fn named_like_the_others(
    set: &str,
    pod: &PodName,
    list: &[ListedMember],
) -> Option<String> {
    list.iter().find_map(|other| {
        let theirs = PodName::of_member(set, &other.name)?;
        let is_there = leads_to(set, &theirs, other);
        is_there.then(|| other.name.replacen(theirs.as_str(), pod.as_str(), 1))
    })
}

/// Whether a peer URL of the entry leads to this pod.
pub(super) fn leads_to(set: &str, pod: &PodName, listed: &ListedMember) -> bool {
    let mut urls = listed.peer_urls.iter();
    urls.any(|url| PodName::of_url(set, url).as_ref() == Some(pod))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::Volume;

    fn listed(id: u64, name: &str, learner: bool) -> ListedMember {
        ListedMember {
            id: MemberId(id),
            name: name.into(),
            learner,
            peer_urls: vec!["https://etcd-2.etcd-peer.ns.svc:2380".into()],
            client_urls: Vec::new(),
        }
    }

    fn decide(list: Option<&[ListedMember]>, change: impl FnOnce(&mut Start<'_>)) -> (bool, bool) {
        let emptied = VolumeFinding::Wrong {
            volume: Volume {
                claim_uid: "new".into(),
                volume_id: None,
                directory: None,
            },
            difference: Difference::NewClaim,
        };
        let mut start = Start {
            set: "etcd",
            pod: &"etcd-2".into(),
            membership: MembershipBy::Gate,
            is_formed: true,
            bootstrap: false,
            recorded_id: Some(MemberId(3)),
            volume: &emptied,
            list,
            others_only: false,
        };
        change(&mut start);
        let guard = guard(&start);
        (guard.existing, guard.hold.is_some())
    }

    #[test]
    fn a_pod_of_a_formed_cluster_joins_it_and_a_new_cluster_starts_as_its_owner_wants() {
        assert_eq!(decide(None, |s| s.is_formed = false), (false, false));
        assert_eq!(decide(None, |s| s.bootstrap = true), (false, true));
        assert_eq!(
            decide(None, |s| s.volume = &VolumeFinding::AsRecorded),
            (true, false)
        );
    }

    /// The budget may be the one that held the pod or another one, and may leave the member list to
    /// others.
    #[test]
    fn a_pod_that_waits_starts_on_positive_grounds_only() {
        let added = [listed(4, "", true)];
        let both = [listed(3, "etcd-2", false), listed(4, "", true)];
        let wrong = VolumeFinding::Wrong {
            volume: Volume {
                claim_uid: "new".into(),
                volume_id: None,
                directory: None,
            },
            difference: Difference::NewClaim,
        };
        let pod = PodName::new("etcd-2");
        for membership in [
            MembershipBy::Gate,
            MembershipBy::Pod,
            MembershipBy::Sidecar,
            MembershipBy::Owner,
        ] {
            for (is_formed, recorded_id) in [(true, Some(MemberId(3))), (false, None)] {
                for volume in [&wrong, &VolumeFinding::Unknown, &VolumeFinding::AsRecorded] {
                    let start = |list, bootstrap| Start {
                        set: "etcd",
                        pod: &pod,
                        membership,
                        is_formed,
                        bootstrap,
                        recorded_id,
                        volume,
                        list,
                        others_only: false,
                    };
                    let has_data = *volume == VolumeFinding::AsRecorded;
                    for list in [None, Some(&both[..]), Some(&[])] {
                        assert_eq!(may_start(&start(list, false), false), has_data);
                        assert_eq!(may_start(&start(list, true), true), has_data);
                        assert!(may_start(&start(list, true), false));
                    }
                    assert!(may_start(&start(Some(&added), false), true));
                }
            }
        }
    }

    #[test]
    fn a_pod_that_was_never_a_members_starts_once_all_members_are_known_elsewhere() {
        use crate::quorum::example;
        let observation = example::healthy("etcd", 3);
        let snapshot = Snapshot::assemble(&observation);
        let mut list = observation.round.probes[0].members.clone().unwrap();
        let pod = PodName::new("etcd-3");
        let wrong = |difference| VolumeFinding::Wrong {
            volume: Volume::in_pod("u"),
            difference,
        };
        let starts = |pod: &PodName, volume: &VolumeFinding, list: &[ListedMember], id| {
            let start = Start {
                set: "etcd",
                pod,
                membership: MembershipBy::Gate,
                is_formed: true,
                bootstrap: false,
                recorded_id: id,
                volume,
                list: Some(list),
                others_only: all_are_elsewhere(list, &snapshot, pod),
            };
            may_start(&start, true)
        };
        let new = wrong(Difference::NewClaim);
        assert!(starts(&pod, &new, &list, None));
        assert!(starts(&pod, &wrong(Difference::NewPod), &list, None));
        assert!(!starts(&pod, &wrong(Difference::OtherCluster), &list, None));
        assert!(!starts(&pod, &new, &list, Some(MemberId(9))));
        assert!(!starts(&"etcd-2".into(), &new, &list, None));
        list.push(ListedMember {
            peer_urls: vec!["https://10.0.0.9:2380".into()],
            ..listed(77, "of-another-name", false)
        });
        assert!(!starts(&pod, &new, &list, None), "it may be this pod's");
        list.last_mut().unwrap().name.clear();
        assert!(starts(&pod, &new, &list, None), "it has never started");
    }

    #[test]
    fn a_new_member_joins_those_that_etcd_lists_and_itself() {
        let member = |id, name: &str, url: &str| ListedMember {
            peer_urls: vec![url.to_owned()],
            ..listed(id, name, false)
        };
        let url = |n| format!("https://etcd-{n}.etcd-peer:2380");
        let mut list = vec![
            member(1, "default-etcd-0", &url(0)),
            member(2, "external", "https://10.0.0.9:2380"),
            member(3, "", &url(2)),
        ];
        let pod = PodName::new("etcd-2");
        let said = initial_cluster("etcd", &pod, &list);
        let expected = "default-etcd-0=https://etcd-0.etcd-peer:2380,\
                        external=https://10.0.0.9:2380,default-etcd-2=https://etcd-2.etcd-peer:2380";
        assert_eq!(said.as_deref(), Some(expected));
        assert_eq!(initial_cluster("etcd", &"etcd-1".into(), &list), None);
        list[2].name = "default-etcd-2".into();
        assert_eq!(initial_cluster("etcd", &pod, &list), None, "it has started");
    }

    #[test]
    fn a_pod_that_would_leave_the_others_waits_although_etcd_expects_a_member_in_it() {
        let pod = PodName::new("etcd-2");
        let list = [listed(4, "", true)];
        let starts = |difference, bootstrap, some_serve| {
            let volume = VolumeFinding::Wrong {
                volume: Volume::default(),
                difference,
            };
            let start = Start {
                set: "etcd",
                pod: &pod,
                membership: MembershipBy::Gate,
                is_formed: true,
                bootstrap,
                recorded_id: Some(MemberId(3)),
                volume: &volume,
                list: Some(&list),
                others_only: false,
            };
            (guard(&start).hold.is_none(), may_start(&start, some_serve))
        };
        assert_eq!(starts(Difference::NewClaim, false, true), (true, true));
        assert_eq!(starts(Difference::OwnCluster, false, true), (false, false));
        assert_eq!(starts(Difference::OwnCluster, true, false), (false, true));
    }

    #[test]
    fn where_others_change_the_member_list_they_also_start_their_pods() {
        assert_eq!(
            decide(None, |s| s.membership = MembershipBy::Pod),
            (false, false)
        );
        assert_eq!(
            decide(None, |s| s.membership = MembershipBy::Owner),
            (false, false)
        );
    }

    #[test]
    fn a_pod_with_another_volume_waits_until_its_old_id_is_gone_and_a_learner_added() {
        assert_eq!(decide(None, |_| {}), (true, true), "no list proves nothing");
        let old = [listed(3, "etcd-2", false)];
        assert_eq!(decide(Some(&old), |_| {}), (true, true));
        assert_eq!(decide(Some(&[]), |_| {}), (true, true), "removed only");
        let added = [listed(4, "", true)];
        assert_eq!(decide(Some(&added), |_| {}), (true, false));
        let both = [listed(3, "etcd-2", false), listed(4, "", true)];
        assert_eq!(decide(Some(&both), |_| {}), (true, true));
        let never = [listed(3, "", true)];
        assert_eq!(decide(Some(&never), |_| {}), (true, false), "on record");
        let started = [listed(4, "etcd-2", true)];
        assert_eq!(decide(Some(&started), |_| {}), (true, true));
        let mut elsewhere = [listed(4, "", true)];
        elsewhere[0].peer_urls = vec!["https://etcd-3.etcd-peer.ns.svc:2380".into()];
        assert_eq!(decide(Some(&elsewhere), |_| {}), (true, true));
    }
}
