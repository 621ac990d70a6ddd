//! What happens to a cluster in a year, whoever guards it. The same seed gives the same incidents
//! under every policy.

use fastrand::Rng;

/// A time or a duration, in milliseconds.
pub(crate) type Ms = u64;

pub(crate) const SECOND: Ms = 1_000;
pub(crate) const MINUTE: Ms = 60 * SECOND;
pub(crate) const HOUR: Ms = 60 * MINUTE;
pub(crate) const YEAR: Ms = 365 * 24 * HOUR;

/// Something that happens to a cluster. Members are numbers, from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Incident {
    /// The process of a member ends, and its kubelet cannot start it for so long.
    Crash { member: usize, lasts: Ms },
    /// The process of a member hangs: it accepts connections and answers nothing.
    Hang { member: usize, lasts: Ms },
    /// A member is cut off from its peers.
    CutOff { member: usize, lasts: Ms },
    /// The node of a member is lost, and its pod with it.
    NodeLost { member: usize, lasts: Ms },
    /// Somebody evicts one pod and does not insist, as autoscalers do.
    Evict { member: usize },
    /// Somebody deletes pods by hand, all at the same moment.
    Delete { members: Vec<usize> },
    /// Every node is drained, one after the other, as for an update of the nodes.
    Drain,
    /// The template of the pods changes. Where the image is bad, the change is taken back after
    /// that time.
    Rollout { bad_for: Option<Ms> },
}

/// How often something happens, and for how long it lasts at the shortest and at the longest.
struct Rate {
    /// In a year.
    yearly: f64,
    shortest: Ms,
    longest: Ms,
}

impl Rate {
    const fn new(yearly: f64, shortest: Ms, longest: Ms) -> Self {
        Self {
            yearly,
            shortest,
            longest,
        }
    }
}

/// Of each member.
const CRASHES: Rate = Rate::new(12.0, 10 * SECOND, 10 * MINUTE);
/// Of each member.
const HANGS: Rate = Rate::new(2.0, MINUTE, 30 * MINUTE);
/// Of each member.
const CUTS: Rate = Rate::new(4.0, 30 * SECOND, 30 * MINUTE);
/// Of each member's node.
const LOSSES: Rate = Rate::new(0.5, 10 * MINUTE, 24 * HOUR);
/// Of each cluster, one in ten with a bad image that is taken back after so long.
const ROLLOUTS: Rate = Rate::new(12.0, 10 * MINUTE, 2 * HOUR);
/// Of each cluster.
const DRAINS: f64 = 12.0;
/// Of each cluster.
const EVICTIONS: f64 = 24.0;
/// Of each cluster, one in six of two pods at once.
const DELETES: f64 = 12.0;

/// The incidents of one year of a cluster, in order.
pub(crate) fn of_a_year(random: &mut Rng, members: usize) -> Vec<(Ms, Incident)> {
    let mut all = Vec::new();
    for member in 0..members {
        for (rate, make) in [
            (
                CRASHES,
                (|member, lasts| Incident::Crash { member, lasts }) as fn(usize, Ms) -> Incident,
            ),
            (HANGS, |member, lasts| Incident::Hang { member, lasts }),
            (CUTS, |member, lasts| Incident::CutOff { member, lasts }),
            (LOSSES, |member, lasts| Incident::NodeLost { member, lasts }),
        ] {
            for at in times(random, rate.yearly) {
                let lasts = lasting(random, &rate);
                all.push((at, make(member, lasts)));
                all.extend(reaction(random, members, at, lasts));
            }
        }
    }
    for at in times(random, ROLLOUTS.yearly) {
        let lasts = lasting(random, &ROLLOUTS);
        let bad_for = (random.u8(0..10) == 0).then_some(lasts);
        all.push((at, Incident::Rollout { bad_for }));
    }
    for at in times(random, DRAINS) {
        all.push((at, Incident::Drain));
    }
    for at in times(random, EVICTIONS) {
        let member = random.usize(0..members);
        all.push((at, Incident::Evict { member }));
    }
    for at in times(random, DELETES) {
        let first = random.usize(0..members);
        let second = (first + random.usize(1..members)) % members;
        let both = random.u8(0..6) == 0;
        let members = if both {
            vec![first, second]
        } else {
            vec![first]
        };
        all.push((at, Incident::Delete { members }));
    }
    all.sort_by_key(|(at, _)| *at);
    all
}

/// What somebody does about a fault of over two minutes while it lasts: in one of four cases a pod is
/// deleted, not always the right one, and in another one of four the template is changed.
fn reaction(random: &mut Rng, members: usize, at: Ms, lasts: Ms) -> Option<(Ms, Incident)> {
    if lasts <= 2 * MINUTE {
        return None;
    }
    let at = at + random.u64(MINUTE..lasts);
    let members = vec![random.usize(0..members)];
    match random.u8(0..4) {
        0 => Some((at, Incident::Delete { members })),
        1 => Some((at, Incident::Rollout { bad_for: None })),
        _ => None,
    }
}

/// The times of a Poisson process in a year.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a year in milliseconds fits, and nobody needs them exactly"
)]
fn times(random: &mut Rng, yearly: f64) -> Vec<Ms> {
    let mut times = Vec::new();
    let mut at = 0.0;
    loop {
        at += -(1.0 - random.f64()).ln() / yearly * YEAR as f64;
        if at >= YEAR as f64 {
            return times;
        }
        times.push(at as Ms);
    }
}

/// A duration between the bounds, short ones being as likely as long ones on a logarithmic scale.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "as above"
)]
fn lasting(random: &mut Rng, rate: &Rate) -> Ms {
    let (shortest, longest) = ((rate.shortest as f64).ln(), (rate.longest as f64).ln());
    (shortest + random.f64() * (longest - shortest)).exp() as Ms
}
