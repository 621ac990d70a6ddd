//! The choice of the next operation, from the seed.

use std::time::Duration;

use fastrand::Rng;

use super::hung::{Hang, How, When};
use super::operation::{Certificates, Operation};
use super::relabelled::{Afterwards, End, Lost};
use super::stage::Stage;
use super::strangers::Stranger;
use crate::asking::By;

/// The choice of operations that concern one cluster or the shared parts. It depends on nothing
/// that a race may change.
pub(super) struct Chooser {
    chance: Rng,
    /// `None`: the shared parts.
    cluster: Option<Size>,
    number: usize,
}

/// A cluster, and the number of members that earlier choices gave it.
struct Size {
    cluster: usize,
    members: u32,
}

/// The number of members of a cluster before and after it grows.
pub(super) const SIZES: [u32; 2] = [3, 5];

impl Chooser {
    pub(super) fn of_cluster(cluster: usize, chance: Rng) -> Self {
        let members = SIZES[0];
        Self {
            chance,
            cluster: Some(Size { cluster, members }),
            number: 0,
        }
    }

    pub(super) fn of_the_shared_parts(chance: Rng) -> Self {
        Self {
            chance,
            cluster: None,
            number: 0,
        }
    }

    /// A number from 0 to 1.
    pub(super) fn fraction(&mut self) -> f64 {
        self.chance.f64()
    }

    pub(super) fn choose(&mut self, stage: &Stage) -> Operation {
        self.number += 1;
        match &mut self.cluster {
            Some(size) => concerning(size, &mut self.chance, self.number, stage),
            None => shared(&mut self.chance, stage),
        }
    }
}

/// Most operations ask for a member to go, and most of those ask again until it may. A fault ends
/// after some seconds.
fn concerning(size: &mut Size, chance: &mut Rng, number: usize, stage: &Stage) -> Operation {
    let Size { cluster, members } = *size;
    let name = stage
        .clusters
        .get(cluster)
        .map(|cluster| cluster.etcd.name());
    let name = name.unwrap_or_default();
    let ordinal = chance.u32(..members);
    let member = format!("{name}-{ordinal}");
    let by = way(chance);
    let length = Duration::from_millis(chance.u64(200..3500));
    match chance.u32(..294) {
        0..100 => Operation::AskUntilItGoes(cluster, by, member),
        100..118 => Operation::Ask(cluster, by, member),
        118..124 => Operation::Force(cluster, member),
        124..130 => Operation::DeleteAll(cluster),
        130..154 => Operation::ChangeTemplate(cluster, number),
        154..163 => Operation::Kill(cluster, member),
        163..171 => Operation::Freeze(cluster, member, length),
        171..179 => Operation::CutOff(cluster, member, length),
        179..191 => Operation::Rotate(certificates(cluster, chance)),
        191..208 => {
            let neighbour = format!("{name}-{}", (ordinal + 1) % members);
            let (lost, afterwards) = relabelled(neighbour, chance);
            Operation::Relabel(cluster, member, lost, afterwards)
        }
        208..223 => Operation::Hang(cluster, number, member, hang(chance)),
        223..231 => Operation::LoseVolume(cluster, member),
        231..239 => Operation::Replace(cluster, member),
        239..247 => Operation::Defragment(cluster, member),
        247..253 => {
            let neighbour = format!("{name}-{}", (ordinal + 1) % members);
            Operation::Swap(cluster, [member, neighbour], length)
        }
        253..258 => Operation::Estrange(cluster, member, length * 2),
        258..266 => Operation::DeleteClaim(cluster, member),
        266..271 => Operation::DeleteBudget(cluster),
        271..275 => Operation::MoveOrdinals(cluster),
        275..281 => Operation::Refuse(cluster, vec![member], length * 2),
        281..285 => {
            let all = (0..members).map(|ordinal| format!("{name}-{ordinal}"));
            Operation::Refuse(cluster, all.collect(), length * 2)
        }
        _ => {
            size.members = if members == SIZES[0] {
                SIZES[1]
            } else {
                SIZES[0]
            };
            if chance.bool() {
                Operation::Scale(cluster, size.members)
            } else {
                Operation::AskForMembers(cluster, size.members)
            }
        }
    }
}

fn way(chance: &mut Rng) -> By {
    if chance.bool() {
        By::Delete
    } else {
        By::Eviction
    }
}

fn relabelled(neighbour: String, chance: &mut Rng) -> (Lost, Afterwards) {
    let lost = match chance.u32(..3) {
        0 => Lost::Label,
        1 => Lost::Owner,
        _ => Lost::Labels,
    };
    let asked = chance.bool().then(|| (way(chance), neighbour));
    let end = if chance.bool() {
        End::GivenBack
    } else {
        End::Gone(way(chance))
    };
    let length = Duration::from_millis(chance.u64(200..8000));
    (lost, Afterwards { asked, length, end })
}

/// A hang, which often lasts longer than the gate waits for a member that is only slow.
fn hang(chance: &mut Rng) -> Hang {
    let how = if chance.bool() {
        How::Frozen
    } else {
        How::CutOff
    };
    let when = if chance.bool() {
        When::AtOnce
    } else {
        When::Midway
    };
    let length = Duration::from_millis(chance.u64(1000..14_000));
    Hang { how, when, length }
}

fn certificates(cluster: usize, chance: &mut Rng) -> Certificates {
    if chance.bool() {
        Certificates::Members(cluster)
    } else {
        Certificates::Client(cluster)
    }
}

fn shared(chance: &mut Rng, stage: &Stage) -> Operation {
    let nodes = stage.world.sandbox.nodes();
    let node = nodes.get(chance.usize(..nodes.len()));
    let node = node.map(|node| node.name().to_owned()).unwrap_or_default();
    let replica = chance.usize(..stage.replicas.len());
    let length = Duration::from_millis(chance.u64(200..4000));
    match chance.u32(..124) {
        0..18 => Operation::Drain(node),
        18..44 => Operation::DrainUntilDone(node),
        44..54 => Operation::PowerOff(node, length * 4),
        54..58 => Operation::LoseNode(node),
        58..68 => Operation::KillGate(replica, length),
        68..78 => Operation::FreezeGate(replica, length),
        78..88 => {
            let seconds = chance.i64(-300..=300);
            Operation::SetClock(replica, seconds, length * 4)
        }
        88..94 => Operation::Rotate(Certificates::Gate),
        94..107 => {
            // The seed chooses the replicas that run on the node; at least one replica runs
            // elsewhere.
            let mut replicas: Vec<usize> = (0..stage.replicas.len()).collect();
            chance.shuffle(&mut replicas);
            replicas.truncate(chance.usize(1..stage.replicas.len()));
            Operation::PowerOffWithGates(node, replicas, length * 4)
        }
        107..118 => {
            let stranger = chance.choice(Stranger::ALL).unwrap_or(Stranger::Silent);
            let count = chance.usize(150..400);
            Operation::Besiege(replica, stranger, count, length * 3)
        }
        _ => Operation::RestartApiServer,
    }
}
