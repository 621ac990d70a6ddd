//! What happens next, as the seed has it.

use std::time::Duration;

use fastrand::Rng;

use super::hung::{Hang, How, When};
use super::operation::{Certificates, Operation};
use super::relabelled::{Afterwards, End, Lost};
use super::stage::Stage;
use super::strangers::Stranger;
use crate::asking::By;

/// Chooses what happens to one cluster, or to what all share. It looks at nothing that a race may change.
pub(super) struct Chooser {
    chance: Rng,
    /// `None`: what is shared.
    cluster: Option<Size>,
    number: usize,
}

/// A cluster, and how many members it is to have by what was chosen so far.
struct Size {
    cluster: usize,
    members: u32,
}

/// How many members a cluster has, and how many where it was made to grow.
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

    pub(super) fn of_what_is_shared(chance: Rng) -> Self {
        Self {
            chance,
            cluster: None,
            number: 0,
        }
    }

    /// Between 0 and 1.
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

/// Most ask for a member to go, and most of those go on asking until it may; a fault is over after some seconds.
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
    match chance.u32(..232) {
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
        _ => {
            size.members = if members == SIZES[0] {
                SIZES[1]
            } else {
                SIZES[0]
            };
            Operation::Scale(cluster, size.members)
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

/// Often for longer than the gate takes a member for one that only is slow.
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
            // Replicas run where the seed says; at least one stays.
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
