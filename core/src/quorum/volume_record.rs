//! The record of the volume on which each member last served, and when the record may change.
//!
//! The record is what a volume is compared with ([`super::volume_finding`]), so a volume that was
//! swapped or emptied must not get into it before its member serves there. A member is recorded
//! anew in three cases: it was never recorded; it serves under the id on record; or it serves under
//! another id and etcd has removed the one on record, as after a replacement.

use std::collections::BTreeMap;

use super::condition::Condition;
use super::evidence::ListedMember;
use super::grants::Grants;
use super::id::{MemberId, PodName, PodUid};
use super::snapshot::{Member, MemberPod, Snapshot};
use super::volume::Volume;

/// The volume on which a member last served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRecord {
    /// The id of the member.
    pub id: MemberId,
    /// The incarnation of its pod.
    pub pod: PodUid,
    /// The claim and the volume.
    pub volume: Volume,
}

/// The records of all members, by the names of their pods. They outlive pods and entries of etcd's
/// list.
pub type VolumeRecords = BTreeMap<PodName, VolumeRecord>;

/// The members of this cluster whose data the claims of pods have, by what is written on the
/// claims, with their volumes.
pub type HeldVolumes = BTreeMap<PodName, (MemberId, Volume)>;

/// The pods whose volumes have to be read: the members in them serve and are not recorded as they
/// are. The volume of a pod stays the same as long as the pod does.
pub fn unrecorded_volumes(
    snapshot: &Snapshot,
    grants: &Grants,
    records: &VolumeRecords,
) -> Vec<PodName> {
    let serving = snapshot.members.iter().filter_map(|member| {
        let (id, pod) = takes_part(member, grants)?;
        let known = records.get(&pod.name);
        let same = known.is_some_and(|record| record.id == id && record.pod == pod.uid);
        (!same).then(|| pod.name.clone())
    });
    serving.collect()
}

/// The records after a look at the cluster: `list` is etcd's confirmed member list, and `read` are
/// the bound volumes of pods, read after the look.
///
/// A record is dropped when its member was removed from etcd and has no pod: whatever starts in its
/// place cannot come back under its identity. A record that is missing is taken from the pod's
/// claim (`held`): that of a member which does not serve, and whose record ended with a budget or
/// with the member's removal.
pub fn record_volumes(
    snapshot: &Snapshot,
    grants: &Grants,
    list: Option<&[ListedMember]>,
    records: &VolumeRecords,
    (read, held): (&BTreeMap<PodName, Volume>, &HeldVolumes),
) -> VolumeRecords {
    let mut after = records.clone();
    let Some(list) = list else {
        return after;
    };
    let is_listed = |id: MemberId| list.iter().any(|listed| listed.id == id);
    after.retain(|pod, record| {
        is_listed(record.id) || snapshot.pod(pod).is_some() || grants.holds(pod)
    });
    for member in &snapshot.members {
        let Some((id, pod)) = takes_part(member, grants) else {
            continue;
        };
        let name = &pod.name;
        let Some(volume) = read.get(name).filter(|volume| volume.volume_id.is_some()) else {
            continue;
        };
        let own = after.get(name);
        let may_change = own.is_none_or(|own| own.id == id || !is_listed(own.id));
        // A member whose data is on the volume of another one is not where it belongs.
        let is_of_another = after.iter().any(|(other, record)| {
            let same = volume.shares_data_with(&record.volume);
            other != name && (record.id == id || same && is_listed(record.id))
        });
        if may_change && !is_of_another && is_listed(id) {
            let record = VolumeRecord {
                id,
                pod: pod.uid.clone(),
                volume: volume.clone(),
            };
            after.insert(name.clone(), record);
        }
    }
    for (name, (id, volume)) in held {
        let is_of_another = after
            .values()
            .any(|record| record.id == *id || volume.shares_data_with(&record.volume));
        if snapshot.pod(name).is_some() && !after.contains_key(name) && !is_of_another {
            let record = VolumeRecord {
                id: *id,
                // Nobody saw it serve in this one.
                pod: PodUid::new(""),
                volume: volume.clone(),
            };
            after.insert(name.clone(), record);
        }
    }
    after
}

/// The id and the pod of a voter that serves or of a learner that answers, and whose data nobody is
/// permitted to replace. A learner may be restarted before it is promoted.
fn takes_part<'a>(member: &'a Member, grants: &Grants) -> Option<(MemberId, &'a MemberPod)> {
    let pod = member.pod.as_ref().filter(|pod| !pod.terminating)?;
    let proves = member.serves_quorum() || member.condition == Condition::Learning;
    let stays = proves && !grants.permit_replacement(&pod.name);
    Some((member.id?, pod)).filter(|_| stays)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::evidence::{Probe, Unanswered};
    use crate::quorum::{GrantKind, Observation, confirmed_list, example};

    fn volume(n: &str) -> Volume {
        Volume {
            claim_uid: format!("c{n}"),
            volume_id: Some(format!("v{n}")),
            directory: None,
        }
    }

    /// A cluster of three, and the volumes of its pods.
    struct World {
        observation: Observation,
        grants: Grants,
        volumes: BTreeMap<PodName, Volume>,
        held: HeldVolumes,
        records: VolumeRecords,
    }

    impl World {
        fn recorded() -> Self {
            let mut world = Self {
                observation: example::healthy("etcd", 3),
                grants: Grants::default(),
                volumes: (0..3)
                    .map(|n| (PodName::new(format!("etcd-{n}")), volume(&n.to_string())))
                    .collect(),
                held: HeldVolumes::new(),
                records: VolumeRecords::new(),
            };
            assert_eq!(world.due().len(), 3);
            world.look();
            assert_eq!(world.due(), [] as [PodName; 0]);
            world
        }

        fn due(&self) -> Vec<PodName> {
            let snapshot = Snapshot::assemble(&self.observation);
            unrecorded_volumes(&snapshot, &self.grants, &self.records)
        }

        fn look(&mut self) {
            let snapshot = Snapshot::assemble(&self.observation);
            let list = confirmed_list(&snapshot, &self.observation.round);
            let (grants, records) = (&self.grants, &self.records);
            let list = list.as_deref();
            let read = (&self.volumes, &self.held);
            self.records = record_volumes(&snapshot, grants, list, records, read);
        }

        fn volume_of(&self, pod: &str) -> &Volume {
            &self.records[&PodName::new(pod)].volume
        }

        fn silence(&mut self, n: usize) {
            let probe = &mut self.observation.round.probes[n];
            *probe = Probe::unanswered(probe.target.clone(), Unanswered::Refused);
        }

        /// Gives the member in `etcd-<n>` another id, in its answers and in the list.
        fn renew(&mut self, n: usize, id: MemberId) {
            let probes = &mut self.observation.round.probes;
            let status = probes[n].status.as_mut().unwrap();
            let old = std::mem::replace(&mut status.member_id, id);
            for probe in probes {
                for listed in probe.members.iter_mut().flatten() {
                    if listed.id == old {
                        listed.id = id;
                    }
                }
            }
        }
    }

    #[test]
    fn a_volume_that_was_emptied_is_recorded_only_when_its_member_serves_on_it() {
        let mut world = World::recorded();
        world.volumes.insert("etcd-2".into(), volume("9"));
        world.silence(2);
        world.look();
        assert_eq!(world.volume_of("etcd-2"), &volume("2"));
        let served = World::recorded().observation;
        world.observation = served;
        world.look();
        assert_eq!(world.volume_of("etcd-2"), &volume("9"));
    }

    #[test]
    fn while_a_replacement_is_permitted_the_record_stays() {
        let mut world = World::recorded();
        world.volumes.insert("etcd-2".into(), volume("9"));
        let (by, at) = (String::from("kubectl"), String::new());
        world.grants = Grants::default().issue(&"etcd-2".into(), GrantKind::Replace, by, at);
        world.renew(2, MemberId(99));
        assert_eq!(world.due(), [] as [PodName; 0]);
        world.look();
        assert_eq!(world.volume_of("etcd-2"), &volume("2"));
    }

    #[test]
    fn a_new_id_is_recorded_once_the_old_one_was_removed() {
        let mut world = World::recorded();
        world.volumes.insert("etcd-2".into(), volume("9"));
        world.renew(2, MemberId(99));
        assert_eq!(world.due(), [PodName::new("etcd-2")]);
        world.look();
        assert_eq!(world.volume_of("etcd-2"), &volume("9"));
    }

    #[test]
    fn the_volume_of_a_learner_is_recorded_because_it_may_restart_before_its_promotion() {
        let mut world = World::recorded();
        world.volumes.insert("etcd-2".into(), volume("9"));
        world.renew(2, MemberId(99));
        let probes = &mut world.observation.round.probes;
        let learner = probes[2].status.as_mut().unwrap();
        learner.learner = true;
        probes[2].read = Err(Unanswered::Learner);
        for probe in probes {
            for listed in probe.members.iter_mut().flatten() {
                listed.learner |= listed.id == MemberId(99);
            }
        }
        world.look();
        assert_eq!(world.volume_of("etcd-2"), &volume("9"));
    }

    #[test]
    fn members_whose_volumes_were_swapped_keep_their_records() {
        let mut world = World::recorded();
        let before = world.records.clone();
        world.volumes.insert("etcd-1".into(), volume("2"));
        world.volumes.insert("etcd-2".into(), volume("1"));
        let probes = &mut world.observation.round.probes;
        let ids: Vec<MemberId> = probes
            .iter()
            .map(|probe| probe.status.as_ref().unwrap().member_id)
            .collect();
        probes[1].status.as_mut().unwrap().member_id = ids[2];
        probes[2].status.as_mut().unwrap().member_id = ids[1];
        world.look();
        assert_eq!(world.records, before);
    }

    #[test]
    fn a_record_ends_with_the_member_and_its_pod_and_not_without_a_list() {
        let mut world = World::recorded();
        let pod = world.observation.pods.pop().unwrap();
        world.observation.round.probes.pop();
        for n in 0..2 {
            world.silence(n);
        }
        world.look();
        assert_eq!(world.records.len(), 3, "nobody gives a list");
        world.observation = World::recorded().observation;
        world.observation.pods.pop();
        world.observation.round.probes.pop();
        world.look();
        assert_eq!(world.records.len(), 3, "etcd lists {}", pod.name);
        for probe in &mut world.observation.round.probes {
            probe.members.as_mut().unwrap().pop();
        }
        world.observation.replicas = 2;
        world.look();
        assert_eq!(world.records.len(), 2);
    }

    #[test]
    fn a_record_outlives_its_member_while_its_pod_stands_or_a_permission_is_open() {
        let unlisted = || {
            let mut world = World::recorded();
            for probe in &mut world.observation.round.probes {
                probe.members.as_mut().unwrap().pop();
            }
            world
        };
        let mut with_its_pod = unlisted();
        with_its_pod.look();
        assert_eq!(with_its_pod.records.len(), 3);
        let mut permitted = unlisted();
        permitted.observation.pods.pop();
        permitted.observation.round.probes.pop();
        let (by, at) = (String::from("kubectl"), String::new());
        permitted.grants = Grants::default().issue(&"etcd-2".into(), GrantKind::Replace, by, at);
        permitted.look();
        assert_eq!(permitted.records.len(), 3);
    }

    #[test]
    fn a_claim_says_whose_data_it_has_where_nothing_is_on_record() {
        let mut world = World::recorded();
        let pod = PodName::new("etcd-2");
        let id = world.records[&pod].id;
        world.silence(2);
        world.records.remove(&pod);
        world.look();
        assert!(!world.records.contains_key(&pod), "nothing tells its id");
        world.held.insert(pod.clone(), (id, volume("2")));
        world.look();
        assert_eq!(world.records[&pod].id, id);

        let other = world.records[&PodName::new("etcd-1")].id;
        world.records.remove(&pod);
        world.held.insert(pod.clone(), (other, volume("2")));
        world.look();
        assert!(!world.records.contains_key(&pod), "the id is another's");
        world.held.insert(pod.clone(), (id, volume("1")));
        world.look();
        assert!(!world.records.contains_key(&pod), "the volume is another's");
    }

    #[test]
    fn under_the_id_of_another_member_nothing_is_recorded() {
        let mut world = World::recorded();
        world.records.remove(&PodName::new("etcd-1"));
        world.volumes.insert("etcd-1".into(), volume("9"));
        let probes = &mut world.observation.round.probes;
        let other = probes[2].status.as_ref().unwrap().member_id;
        probes[1].status.as_mut().unwrap().member_id = other;
        world.silence(2);
        world.look();
        assert!(!world.records.contains_key(&PodName::new("etcd-1")));
    }
}
