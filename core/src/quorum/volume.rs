//! The volumes of the members, and whether a member has the volume that was recorded for it.
//!
//! The identity of a member is in its volume. A member with another volume may come back silently
//! under its old identity, or form an empty cluster (measured on etcd 3.4 to 3.7; etcd issue
//! 12227). Where the data is in the pod itself, such as in an `emptyDir`, the pod is the volume.

use super::id::{ClusterId, MemberId, PodName};
use std::collections::BTreeMap;

/// The claim and the volume of a member. By default nothing is known of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Volume {
    /// The UID of the `PersistentVolumeClaim`.
    pub claim_uid: String,
    /// The id of the bound volume: the handle of its driver, or else the name and the UID of the
    /// `PersistentVolume`. `None` while the claim is not bound.
    pub volume_id: Option<String>,
    /// The directory of the data on the volume. `None` where nobody can tell.
    pub directory: Option<String>,
}

/// The beginning of the id of a volume that is a pod.
const POD: &str = "pod/";
/// The beginning of the id of a volume that is a directory of a node.
const NODE: &str = "node/";

impl Volume {
    /// The pod as a volume, for a member whose data is in its pod.
    pub fn in_pod(uid: &str) -> Self {
        Self {
            claim_uid: String::new(),
            volume_id: Some(format!("{POD}{uid}")),
            directory: None,
        }
    }

    /// Whether the volume is a pod, so that the data goes with the pod.
    pub fn is_in_pod(&self) -> bool {
        let id = self.volume_id.as_deref();
        id.is_some_and(|id| id.starts_with(POD))
    }

    /// A directory of a node as a volume.
    pub fn on_node(node: &str, path: &str) -> Self {
        Self {
            claim_uid: String::new(),
            volume_id: Some(format!("{NODE}{node}/{}", path.trim_start_matches('/'))),
            directory: None,
        }
    }

    /// The node, if the volume is a directory of one.
    pub fn node(&self) -> Option<&str> {
        let rest = self.volume_id.as_deref()?.strip_prefix(NODE)?;
        rest.split_once('/').map(|(node, _)| node)
    }

    /// Whether the claim with this UID is that of the volume, or one of two.
    pub fn is_on_claim(&self, uid: &str) -> bool {
        self.claim_uid.split(' ').any(|own| own == uid)
    }

    /// Two volumes as one, for a member that needs both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let both = |one: &Option<String>, other: &Option<String>| {
            let both = one.as_ref().zip(other.as_ref());
            both.map(|(one, other)| format!("{one} {other}"))
        };
        Self {
            claim_uid: format!("{} {}", self.claim_uid, other.claim_uid),
            volume_id: both(&self.volume_id, &other.volume_id),
            directory: both(&self.directory, &other.directory),
        }
    }

    /// Whether both have the same data: it is on the volume, whichever claim is bound to it.
    pub fn is_same_as(&self, other: &Self) -> bool {
        let on_same_volume = match (&self.volume_id, &other.volume_id) {
            (Some(own), Some(other)) => own == other,
            _ => self.claim_uid == other.claim_uid,
        };
        on_same_volume && !self.is_elsewhere_than(other)
    }

    /// Whether both are known to be in different directories.
    fn is_elsewhere_than(&self, other: &Self) -> bool {
        let both = self.directory.as_ref().zip(other.directory.as_ref());
        both.is_some_and(|(own, other)| own != other)
    }

    /// Whether both are the same bound volume, and not known to be different directories of it.
    pub(super) fn shares_data_with(&self, other: &Self) -> bool {
        self.volume_id.is_some()
            && self.volume_id == other.volume_id
            && !self.is_elsewhere_than(other)
    }
}

/// The comparison of a member's volume with the one on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeFinding {
    /// Nothing is recorded or nothing was seen.
    Unknown,
    /// The member has the volume that was recorded for it.
    AsRecorded,
    /// The member has another volume.
    Wrong {
        /// The volume that the member has.
        volume: Volume,
        /// The kind of difference.
        difference: Difference,
    },
}

/// The difference between a member's volume and the one on record. `Display` completes the
/// sentence "the member has …".
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, derive_more::Display)]
pub enum Difference {
    /// The volume is another member's.
    #[display("the volume of {with}")]
    Swapped {
        /// The pod of the member whose volume it is.
        with: PodName,
    },
    /// The claim is a new one, so its volume is empty.
    #[display("a new claim, whose volume is empty")]
    NewClaim,
    /// The data was in an earlier pod, so it begins empty.
    #[display("a new pod, in which its data begins empty")]
    NewPod,
    /// The claim, or an object that the settings come from, could not be read.
    #[display("a claim or settings that could not be read")]
    Unseen,
    /// The data directory is another one, on the same volume or in the pod, so it is empty. The
    /// data is where it was.
    #[display("another directory, in which its data is not")]
    OtherDirectory,
    /// The claim has the data of a member of another cluster.
    #[display("a claim with the data of another cluster")]
    OtherCluster,
    /// The volume may be the member's, and etcd would begin a cluster of its own with it.
    #[display("--force-new-cluster in its settings, by which it would leave the others")]
    OwnCluster,
    /// The volume may be the member's, while another one starts alone, with what that has.
    #[display("data that the cluster gives up for that of another member")]
    GivenUp,
    /// The claim is the same and is bound to a volume that is nobody's.
    #[display("a volume that was never a member's")]
    Foreign,
}

impl Difference {
    /// The stable identifier of the difference, for metrics and status.
    pub fn slug(&self) -> &'static str {
        self.into()
    }
}

/// Compares the volume that `member` has with the volumes on record.
///
/// ```
/// use quorumgate_core::quorum::{Difference, Volume, VolumeFinding, volume_finding};
///
/// let volume = |claim: &str, id: &str| Volume {
///     claim_uid: claim.into(),
///     volume_id: Some(id.into()),
///     directory: None,
/// };
/// let recorded = [("etcd-0".into(), volume("c0", "v0")), ("etcd-1".into(), volume("c1", "v1"))];
/// let find = |present| volume_finding(&recorded.clone().into(), &"etcd-0".into(), Some(&present));
/// assert_eq!(find(volume("c0", "v0")), VolumeFinding::AsRecorded);
///
/// let VolumeFinding::Wrong { difference, .. } = find(volume("c0", "v1")) else { panic!() };
/// assert_eq!(difference, Difference::Swapped { with: "etcd-1".into() });
/// ```
pub fn volume_finding(
    recorded: &BTreeMap<PodName, Volume>,
    member: &PodName,
    present: Option<&Volume>,
) -> VolumeFinding {
    let Some(present) = present else {
        return VolumeFinding::Unknown;
    };
    let owner = recorded
        .iter()
        .find(|(name, volume)| *name != member && present.shares_data_with(volume));
    let own = recorded.get(member);
    let difference = match (own, owner) {
        (Some(own), _) if own.is_same_as(present) => return VolumeFinding::AsRecorded,
        (_, Some((with, _))) => Difference::Swapped { with: with.clone() },
        (Some(own), None) if present.is_in_pod() && own.is_in_pod() => Difference::NewPod,
        (Some(_), None) if present.is_in_pod() => Difference::OtherDirectory,
        (Some(own), None) if own.volume_id.is_some() && own.volume_id == present.volume_id => {
            Difference::OtherDirectory
        }
        (Some(own), None) if own.claim_uid != present.claim_uid => Difference::NewClaim,
        (Some(_), None) => Difference::Foreign,
        (None, None) => return VolumeFinding::Unknown,
    };
    VolumeFinding::Wrong {
        volume: present.clone(),
        difference,
    }
}

/// The member whose data a claim has, by the annotation that the gate writes on it. The annotation
/// outlives the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldData {
    /// The cluster of the member.
    pub cluster: ClusterId,
    /// The id of the member.
    pub member: MemberId,
}

/// The finding about a volume that is on record for no member, in the formed cluster with this id.
///
/// A claim says by itself what it has. One that says nothing is new if it was made while the gate
/// already guarded the cluster, because every member that serves has its claim annotated. An older
/// one may have the data of a member that did not serve since.
///
/// ```
/// use quorumgate_core::quorum::{
///     ClusterId, HeldData, MemberId, Volume, VolumeFinding, unrecorded_finding,
/// };
///
/// let volume = Volume { claim_uid: "c2".into(), volume_id: Some("v2".into()), directory: None };
/// let find = |held, is_new| unrecorded_finding(ClusterId(1), &volume, held, is_new);
/// let held = Some(HeldData { cluster: ClusterId(1), member: MemberId(3) });
/// assert_eq!(find(held, true), VolumeFinding::AsRecorded);
/// assert_eq!(find(None, false), VolumeFinding::Unknown);
/// assert!(matches!(find(None, true), VolumeFinding::Wrong { .. }));
/// ```
pub fn unrecorded_finding(
    cluster: ClusterId,
    present: &Volume,
    held: Option<HeldData>,
    is_new: bool,
) -> VolumeFinding {
    let difference = match held {
        Some(held) if held.cluster == cluster => return VolumeFinding::AsRecorded,
        Some(_) => Difference::OtherCluster,
        None if present.is_in_pod() => Difference::NewPod,
        None if is_new => Difference::NewClaim,
        None => return VolumeFinding::Unknown,
    };
    VolumeFinding::Wrong {
        volume: present.clone(),
        difference,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_with_the_data_of_another_cluster_and_a_new_pod_are_never_the_members() {
        let find =
            |present: &Volume, held| match unrecorded_finding(ClusterId(1), present, held, false) {
                VolumeFinding::Wrong { difference, .. } => Some(difference),
                VolumeFinding::Unknown | VolumeFinding::AsRecorded => None,
            };
        let other = HeldData {
            cluster: ClusterId(2),
            member: MemberId(3),
        };
        let found = find(&volume("c", "v"), Some(other));
        assert_eq!(found, Some(Difference::OtherCluster));
        let found = find(&Volume::in_pod("u"), None);
        assert_eq!(found, Some(Difference::NewPod));
        assert_eq!(find(&volume("c", "v"), None), None);
    }

    #[test]
    fn each_difference_has_a_word_of_its_own() {
        assert_eq!(Difference::Unseen.slug(), "Unseen");
        assert_eq!(Difference::Foreign.slug(), "Foreign");
    }

    #[test]
    fn the_directory_on_the_volume_tells_members_and_their_data_apart() {
        let within = |directory: &str| Volume {
            directory: Some(directory.into()),
            ..volume("c", "v")
        };
        let recorded = BTreeMap::from([
            ("etcd-0".into(), within("a")),
            ("etcd-1".into(), within("b")),
        ]);
        let find = |member: &str, present: &Volume| match volume_finding(
            &recorded,
            &member.into(),
            Some(present),
        ) {
            VolumeFinding::Wrong { difference, .. } => Some(difference),
            VolumeFinding::Unknown | VolumeFinding::AsRecorded => None,
        };
        assert_eq!(find("etcd-0", &within("a")), None);
        assert_eq!(find("etcd-1", &within("b")), None, "they share a claim");
        assert_eq!(find("etcd-0", &volume("c", "v")), None, "nobody can tell");
        assert_eq!(
            find("etcd-0", &within("c")),
            Some(Difference::OtherDirectory)
        );
        let with = "etcd-1".into();
        assert_eq!(
            find("etcd-0", &within("b")),
            Some(Difference::Swapped { with })
        );
    }

    #[test]
    fn a_directory_of_a_node_and_two_volumes_of_one_member_are_volumes_too() {
        let directory = Volume::on_node("n1", "/var/lib/etcd");
        assert_eq!(directory.node(), Some("n1"));
        assert_eq!(volume("c", "v").node(), None);
        let both = volume("c", "v").and(&volume("w", "x"));
        assert!(both.is_same_as(&volume("d", "v").and(&volume("y", "x"))));
        assert!(!both.is_same_as(&volume("c", "v").and(&volume("w", "z"))));
        assert!(!both.is_same_as(&volume("c", "v")));
        assert!(both.is_on_claim("c") && both.is_on_claim("w") && !both.is_on_claim("v"));
    }

    fn volume(claim: &str, id: &str) -> Volume {
        Volume {
            claim_uid: claim.into(),
            volume_id: Some(id.into()),
            directory: None,
        }
    }

    fn find(member: &str, present: Option<&Volume>) -> Option<Difference> {
        let recorded = BTreeMap::from([
            ("etcd-0".into(), volume("c0", "v0")),
            ("etcd-1".into(), volume("c1", "v1")),
        ]);
        match volume_finding(&recorded, &member.into(), present) {
            VolumeFinding::Wrong { difference, .. } => Some(difference),
            VolumeFinding::Unknown | VolumeFinding::AsRecorded => None,
        }
    }

    #[test]
    fn an_emptied_a_foreign_and_a_swapped_volume_are_told_apart() {
        assert_eq!(find("etcd-0", Some(&volume("c0", "v0"))), None);
        let emptied = volume("c9", "v9");
        assert_eq!(find("etcd-0", Some(&emptied)), Some(Difference::NewClaim));
        let foreign = volume("c0", "v9");
        assert_eq!(find("etcd-0", Some(&foreign)), Some(Difference::Foreign));
        let swapped = Difference::Swapped {
            with: "etcd-1".into(),
        };
        assert_eq!(find("etcd-0", Some(&volume("c0", "v1"))), Some(swapped));
    }

    #[test]
    fn a_new_claim_on_the_recorded_volume_has_the_data_of_the_member() {
        let again = volume("c9", "v0");
        assert_eq!(find("etcd-0", Some(&again)), None);
    }

    #[test]
    fn data_in_a_pod_is_that_of_no_other_pod() {
        let recorded = BTreeMap::from([("etcd-0".into(), Volume::in_pod("u0"))]);
        let find = |uid| volume_finding(&recorded, &"etcd-0".into(), Some(&Volume::in_pod(uid)));
        assert_eq!(find("u0"), VolumeFinding::AsRecorded);
        let VolumeFinding::Wrong { difference, volume } = find("u1") else {
            panic!("it is another pod");
        };
        assert_eq!((difference, volume.is_in_pod()), (Difference::NewPod, true));
    }

    /// A template with another data directory, or another mount, empties no volume.
    #[test]
    fn a_place_in_the_pod_is_no_loss_of_data_that_is_on_a_volume() {
        for own in [volume("c0", "v0"), Volume::on_node("node-1", "/var/etcd")] {
            let recorded = BTreeMap::from([("etcd-0".into(), own)]);
            let present = Volume::in_pod("u0");
            let found = volume_finding(&recorded, &"etcd-0".into(), Some(&present));
            let VolumeFinding::Wrong { difference, .. } = found else {
                panic!("its data is not there: {found:?}");
            };
            assert_eq!(difference, Difference::OtherDirectory);
        }
    }

    #[test]
    fn a_claim_that_is_not_bound_yet_is_known_by_its_uid() {
        let unbound = |claim: &str| Volume {
            volume_id: None,
            directory: None,
            ..volume(claim, "")
        };
        assert_eq!(find("etcd-0", Some(&unbound("c0"))), None);
        let new = find("etcd-0", Some(&unbound("c9")));
        assert_eq!(new, Some(Difference::NewClaim));
    }

    #[test]
    fn without_a_record_only_the_volume_of_another_member_is_wrong() {
        assert_eq!(find("etcd-2", Some(&volume("c2", "v2"))), None);
        assert!(find("etcd-2", Some(&volume("c2", "v1"))).is_some());
        assert_eq!(find("etcd-0", None), None);
    }
}
