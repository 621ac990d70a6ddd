//! The results of the rollouts: a Markdown table with all of them, and the targets.

use std::io::{self, Write as _};
use std::time::Duration;

use anyhow::Result;

use crate::By;
use crate::condition::Condition;
use crate::promptness::Delay;
use crate::rolled::Rolled;
use crate::spread::Spread;
use crate::table::Table;

/// The target for the time of a rollout, as a multiple of its members' restarts.
const TIME: f64 = 1.15;
/// The target for the delay of a step, in milliseconds.
const DELAY: f64 = 250.0;
/// The target for the longest wait of a write, in seconds.
const GAP: f64 = 1.0;

const HEAD: &str = "\
| members | rolled out by | time, s | / the restarts | failed writes | longest gap, s | elections | no majority, s |
|---|---|---|---|---|---|---|---|";

/// The measurements so far.
#[derive(Default)]
pub(crate) struct Report {
    restarts: Vec<f64>,
    rollouts: Vec<(Condition, By, Rolled)>,
    late: Vec<Delay>,
}

impl Report {
    /// Adds the sum of the members' restarts in one round.
    pub(crate) fn restarts(&mut self, sum: Duration) {
        eprintln!("restarts: {sum:.1?}");
        self.restarts.push(sum.as_secs_f64());
    }

    /// Adds the delay of a step after a long wait.
    pub(crate) fn late(&mut self, delay: Delay) {
        eprintln!("after a long wait: {delay:.1?}");
        self.late.push(delay);
    }

    pub(crate) fn rolled(&mut self, condition: Condition, by: By, rolled: Rolled) {
        eprintln!("{}, by {}: {rolled:.1?}", condition.name(), by.name());
        self.rollouts.push((condition, by, rolled));
    }

    /// Writes the results to standard output.
    pub(crate) fn print(&self, took: Duration) -> Result<()> {
        self.print_costs()?;
        let title = format!("Rollouts of three members ({:.0} s)", took.as_secs_f64());
        let (healthy, ours) = (Condition::Healthy, By::Quorumgate);
        let gap = self.most(healthy, ours, |rolled| rolled.gap.as_secs_f64());
        let mut table = Table::new(title)
            .row(
                "the members' restarts, s",
                Spread::from_numbers(self.restarts.iter().copied()),
                ..,
            )
            .row(
                "all healthy, quorumgate / the restarts",
                self.ratio(healthy, ours),
                ..=TIME,
            )
            .row(
                "all healthy, quorumgate: longest gap of all rounds, s",
                gap,
                ..=GAP,
            )
            .row(
                "all healthy, quorumgate: from the moment it may to the next step, ms",
                self.delays(|delay| delay.begun),
                ..=DELAY,
            )
            .row(
                "until its pod goes, ms",
                self.delays(|delay| delay.gone),
                ..,
            )
            .row(
                "after 45 s of waiting: from the moment it may to the next step, ms",
                Spread::from_numbers(self.late.iter().map(|delay| millis(delay.begun))),
                ..=DELAY,
            );
        for condition in [Condition::Crashing, Condition::CutOff] {
            let what = format!(
                "{}, quorumgate: longest without a majority, s",
                condition.name()
            );
            let lost = self.most(condition, ours, |rolled| {
                rolled.without_majority.as_secs_f64()
            });
            table = table.row(&what, lost, ..=0.0);
        }
        Ok(table.print()?)
    }

    fn print_costs(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "\n{HEAD}")?;
        for condition in Condition::ALL {
            for by in [By::RollingUpdate, By::MaxUnavailable, By::Quorumgate] {
                let number = |cost: fn(&Rolled) -> f64| self.spread(condition, by, cost).median;
                writeln!(
                    out,
                    "| {} | {} | {:.1} | {:.2} | {:.0} | {:.1} | {:.0} | {:.1} |",
                    condition.name(),
                    by.name(),
                    number(|rolled| rolled.time.as_secs_f64()),
                    self.ratio(condition, by).median,
                    number(|rolled| count(rolled.failed as u64)),
                    number(|rolled| rolled.gap.as_secs_f64()),
                    number(|rolled| count(rolled.elections)),
                    number(|rolled| rolled.without_majority.as_secs_f64()),
                )?;
            }
        }
        out.flush()
    }
}

impl Report {
    fn rollouts(&self, condition: Condition, by: By) -> impl Iterator<Item = &Rolled> {
        let rollouts = self.rollouts.iter();
        rollouts.filter_map(move |(c, b, rolled)| (*c == condition && *b == by).then_some(rolled))
    }

    fn spread(&self, condition: Condition, by: By, cost: impl Fn(&Rolled) -> f64) -> Spread {
        Spread::from_numbers(self.rollouts(condition, by).map(cost))
    }

    fn most(&self, condition: Condition, by: By, cost: impl Fn(&Rolled) -> f64) -> Spread {
        Spread::once(self.spread(condition, by, cost).most)
    }

    /// The delays of all steps but the first, of the rollouts where they were measured.
    fn delays(&self, which: fn(&Delay) -> Duration) -> Spread {
        let rollouts = self.rollouts.iter();
        let delays = rollouts.flat_map(|(_, _, rolled)| &rolled.delays);
        Spread::from_numbers(delays.map(|delay| millis(which(delay))))
    }

    /// The time of a rollout as a multiple of the same round's restarts.
    fn ratio(&self, condition: Condition, by: By) -> Spread {
        let rounds = self.rollouts(condition, by).zip(&self.restarts);
        Spread::from_numbers(rounds.map(|(rolled, restarts)| rolled.time.as_secs_f64() / restarts))
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[expect(
    clippy::cast_precision_loss,
    reason = "it is printed, and far below 2^52"
)]
fn count(number: u64) -> f64 {
    number as f64
}
