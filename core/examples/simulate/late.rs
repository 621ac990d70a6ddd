//! An image that serves at first and fails after minutes, rolled out to a whole fleet at one time:
//! what a soak time and a limit on rollouts are worth.

use std::time::Duration;

use fastrand::Rng;

use crate::gate::Gate;
use crate::incidents::{HOUR, MINUTE, Ms, SECOND};
use crate::world::{Image, NEVER, World};

/// Clusters of three members that get the same template at one moment.
pub(crate) const CLUSTERS: usize = 50;
/// Fleets that meet such an image, each with another time after which it fails.
pub(crate) const FLEETS: u64 = 20;

/// The image fails after at least and at most so long.
const FAILS_AFTER: (Ms, Ms) = (2 * MINUTE, 30 * MINUTE);
/// The time from the first member that fails until a person takes the template back everywhere.
const TAKEN_BACK_AFTER: Ms = 15 * MINUTE;
/// The time between two looks at a cluster that rolls out.
const LOOK: Ms = 5 * SECOND;
/// A fleet that is not whole by then is given up.
const END: Ms = 48 * HOUR;

/// The settings that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    /// `spec.rollout.soak`.
    pub(crate) soak: Ms,
    /// `--max-rollouts`.
    pub(crate) at_once: usize,
}

/// The compared settings, from neither to both.
pub(crate) const CHOICES: [Choice; 5] = [
    Choice::new(0, CLUSTERS),
    Choice::new(0, 5),
    Choice::new(10, CLUSTERS),
    Choice::new(10, 5),
    Choice::new(30, 5),
];

impl Choice {
    const fn new(minutes: u64, at_once: usize) -> Self {
        let soak = minutes * MINUTE;
        Self { soak, at_once }
    }
}

/// What a rollout to a fleet came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The clusters that were without a majority at some time.
    pub(crate) lost: u64,
    /// The time without a majority, of all clusters together.
    pub(crate) no_majority: Ms,
    /// The time until every member of every cluster serves with the last template.
    pub(crate) took: Ms,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: Self) {
        self.lost += other.lost;
        self.no_majority += other.no_majority;
        self.took += other.took;
    }
}

/// A cluster of the fleet.
struct Cluster {
    world: World,
    gate: Gate,
    no_majority: Ms,
}

/// Rolls out an image that fails late, which is taken back.
pub(crate) fn bad(choice: Choice, seed: u64) -> Outcome {
    let mut chance = Rng::with_seed(seed);
    let (least, most) = FAILS_AFTER;
    let fails_after = chance.u64(least..=most);
    rollout(choice, seed, Some(fails_after))
}

/// Rolls out an image that is good.
pub(crate) fn good(choice: Choice, seed: u64) -> Outcome {
    rollout(choice, seed, None)
}

fn rollout(choice: Choice, seed: u64, fails_after: Option<Ms>) -> Outcome {
    let image = fails_after.map_or(Image::Good, |after| Image::FailsAfter { after });
    let soak = Duration::from_millis(choice.soak);
    let clusters = (0..CLUSTERS as u64).map(|n| {
        let mut world = World::new(3, seed.wrapping_mul(1_000).wrapping_add(n), 1);
        world.set_template(image);
        let gate = Gate::new(3).with_soak(soak);
        Cluster {
            world,
            gate,
            no_majority: 0,
        }
    });
    let mut fleet: Vec<Cluster> = clusters.collect();
    // The clusters whose rollouts go on, and those that wait, in order.
    let mut under_way: Vec<usize> = Vec::new();
    let mut waiting: Vec<usize> = (0..CLUSTERS).rev().collect();
    let (mut now, mut taken_back) = (0, NEVER);
    while now < END {
        under_way.retain(|n| fleet.get(*n).is_some_and(|c| !c.world.is_whole()));
        while under_way.len() < choice.at_once {
            let Some(next) = waiting.pop() else { break };
            under_way.push(next);
        }
        // A bad image that all have fails all the same.
        let is_over = fails_after.is_none() || is_good(&fleet);
        if under_way.is_empty() && waiting.is_empty() && is_over {
            break;
        }
        if taken_back <= now {
            taken_back = NEVER;
            for cluster in &mut fleet {
                cluster.world.set_template(Image::Good);
            }
            let all = (0..CLUSTERS).rev();
            waiting = all.filter(|n| !under_way.contains(n)).collect();
        }
        for n in &under_way {
            let Some(cluster) = fleet.get_mut(*n) else {
                continue;
            };
            for member in cluster.gate.steps(&cluster.world) {
                cluster.world.delete(member);
            }
        }
        now += LOOK;
        for cluster in &mut fleet {
            cluster.go_on_to(now);
        }
        let fails = fleet.iter().any(|cluster| cluster.world.has_failed());
        if fails && taken_back == NEVER && fails_after.is_some() && !is_good(&fleet) {
            taken_back = now + TAKEN_BACK_AFTER;
        }
    }
    Outcome {
        lost: fleet.iter().filter(|c| c.no_majority > 0).count() as u64,
        no_majority: fleet.iter().map(|cluster| cluster.no_majority).sum(),
        took: now,
    }
}

/// Whether the template was taken back.
fn is_good(fleet: &[Cluster]) -> bool {
    fleet
        .iter()
        .all(|cluster| cluster.world.image() == Image::Good)
}

impl Cluster {
    /// Goes on to a time, one change after another.
    fn go_on_to(&mut self, until: Ms) {
        while self.world.now < until {
            let next = self.world.next_change().min(until);
            if self.world.able() < self.world.majority() {
                self.no_majority += next - self.world.now;
            }
            self.world.go_on_to(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soak_time_keeps_the_majority_and_a_limit_most_clusters_from_a_bad_image() {
        let [neither, limited, soaked, both, _] = CHOICES.map(|choice| bad(choice, 3));
        assert_eq!(neither.lost, CLUSTERS as u64, "{neither:?}");
        assert!(limited.lost >= soaked.lost, "{limited:?} {soaked:?}");
        assert!(both.lost <= 5, "{both:?}");
    }

    #[test]
    fn a_good_image_reaches_every_cluster_and_costs_no_majority() {
        for choice in [CHOICES[0], CHOICES[3]] {
            let outcome = good(choice, 1);
            assert_eq!((outcome.lost, outcome.no_majority), (0, 0), "{choice:?}");
            assert!(outcome.took < END, "{outcome:?}");
        }
    }
}
