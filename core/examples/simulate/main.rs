//! Years of etcd clusters in virtual time, under everything that may guard and roll them out:
//! the same crashes, hangs, partitions, lost nodes, drains, autoscalers, deletes and rollouts under
//! each policy. The gate's side is the shipped decision, grants and planner.
//!
//! `cargo run --release -p quorumgate-core --example simulate -- --write` writes the table and the picture into
//! docs/evidence.md and docs/simulation.svg. docs/evidence.md says what is simplified.

mod gate;
mod incidents;
mod late;
mod policy;
mod report;
mod world;
mod year;

use std::process::ExitCode;

use clap::Parser;
use strum::IntoEnumIterator as _;

use policy::Kind;
use year::Tally;

/// Simulates years of etcd clusters.
#[derive(Parser)]
struct Args {
    /// Clusters of each size. Each lives for a year under each policy. A thousand of each size take
    /// a quarter of an hour on two cores.
    #[arg(long, default_value_t = 1_000)]
    clusters: u64,
    /// Members of a cluster.
    #[arg(long, value_delimiter = ',', default_value = "3,5,7")]
    sizes: Vec<usize>,
    /// The same seed gives the same years.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many times as long everything of a pod takes as in the measured rollouts: 10 is usual
    /// where volumes move to another node. Every size is simulated for each.
    #[arg(long, value_delimiter = ',', default_value = "1,10")]
    slowness: Vec<u64>,
    /// Writes docs/evidence.md and docs/simulation.svg.
    #[arg(long)]
    write: bool,
}

/// The years of all clusters of one size under each policy.
struct Outcome {
    members: usize,
    slowness: u64,
    tallies: Vec<(Kind, Tally)>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let outcomes: Vec<_> = args
        .sizes
        .iter()
        .flat_map(|members| args.slowness.iter().map(|slowness| (*members, *slowness)))
        .map(|size| simulate(size, args.clusters, args.seed))
        .collect();
    let fleets = late::CHOICES.map(|choice| fleets(choice, args.seed));
    match report::publish(&outcomes, &fleets, (args.clusters, args.seed), args.write) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("simulate: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Rolls out an image that fails late, and a good one, to fleets with these settings.
fn fleets(choice: late::Choice, seed: u64) -> (late::Choice, [late::Outcome; 2]) {
    let mut all = [late::Outcome::default(); 2];
    let [bad, good] = &mut all;
    for fleet in 0..late::FLEETS {
        let seed = seed.wrapping_mul(1_000_003).wrapping_add(fleet);
        bad.add(late::bad(choice, seed));
        good.add(late::good(choice, seed));
    }
    (choice, all)
}

/// Simulates a year of each cluster under each policy, on every processor.
fn simulate((members, slowness): (usize, u64), clusters: u64, seed: u64) -> Outcome {
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let of_worker = |worker: u64| {
        let mut tallies: Vec<(Kind, Tally)> = Kind::iter().map(|k| (k, Tally::default())).collect();
        for cluster in (worker..clusters).step_by(usize::try_from(workers).unwrap_or(1)) {
            let seed = seed.wrapping_mul(1_000_003).wrapping_add(cluster);
            let incidents = incidents::of_a_year(&mut fastrand::Rng::with_seed(seed), members);
            for (kind, tally) in &mut tallies {
                tally.add(&year::live(*kind, members, (seed, slowness), &incidents));
            }
        }
        tallies
    };
    let tallies = std::thread::scope(|scope| {
        let of_worker = &of_worker;
        let workers: Vec<_> = (0..workers)
            .map(|w| scope.spawn(move || of_worker(w)))
            .collect();
        let mut all: Vec<(Kind, Tally)> = Vec::new();
        for tallies in workers.into_iter().filter_map(|worker| worker.join().ok()) {
            if all.is_empty() {
                all = tallies;
                continue;
            }
            for ((_, all), (_, more)) in all.iter_mut().zip(&tallies) {
                all.add(more);
            }
        }
        all
    });
    Outcome {
        members,
        slowness,
        tallies,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_years_and_another_one_others() {
        let of = |seed| simulate((3, 1), 1, seed).tallies;
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }

    #[test]
    fn without_a_guard_more_is_lost_than_by_faults_alone_and_the_gate_adds_nothing() {
        let outcome = simulate((3, 10), 6, 1);
        let lost = |of: Kind| {
            let found = outcome.tallies.iter().find(|(kind, _)| *kind == of);
            found.unwrap().1.no_majority
        };
        let alone = lost(Kind::FaultsAlone);
        assert!(
            lost(Kind::NoGuard) > alone + 60_000,
            "{} {alone}",
            lost(Kind::NoGuard)
        );
        assert!(
            lost(Kind::Gate) < lost(Kind::Budget),
            "{} {}",
            lost(Kind::Gate),
            lost(Kind::Budget)
        );
    }
}
