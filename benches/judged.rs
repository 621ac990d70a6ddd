//! The table of what clients saw of each way to defragment members, in Markdown.

use std::io::{self, Write as _};
use std::time::Duration;

use crate::clients::Seen;
use crate::spread::Spread;
use crate::ways::Way;

const HEAD: &str = "\
| way | took, s | writes: p50 / undisturbed | p99 / undisturbed | p99, ms | longest, s | reads: p50 / undisturbed | p99 / undisturbed | p99, ms | longest, s | renewals of leases late | leases lost | longest gap of a client that moves on, s | freed, MiB |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";

/// The cost of one way in one round.
#[derive(Debug)]
pub(crate) struct Judged {
    /// The time until all members were defragmented and the cluster quorate.
    pub(crate) took: Duration,
    pub(crate) seen: Seen,
    /// The longest time without a write of a client that tries the next member after 300 ms.
    pub(crate) gap: Duration,
    /// The bytes by which the members' databases shrank, together.
    pub(crate) freed: i64,
}

/// The measurements so far.
#[derive(Default)]
pub(crate) struct Report {
    undisturbed: Vec<Judged>,
    done: Vec<(Way, Judged)>,
}

impl Report {
    pub(crate) fn undisturbed(&mut self, judged: Judged) {
        eprintln!("undisturbed: {}", in_short(&judged));
        self.undisturbed.push(judged);
    }

    pub(crate) fn done(&mut self, way: Way, judged: Judged) {
        eprintln!("{}: {}", way.name(), in_short(&judged));
        self.done.push((way, judged));
    }

    /// Writes the table to standard output: medians over members and rounds, and the extremes.
    pub(crate) fn print(&self, took: Duration) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "\n{HEAD}")?;
        self.row(
            &mut out,
            "undisturbed",
            &self.undisturbed.iter().collect::<Vec<_>>(),
        )?;
        for way in Way::ALL {
            let rounds = self.done.iter().filter(|(done, _)| *done == way);
            let rounds: Vec<_> = rounds.map(|(_, judged)| judged).collect();
            self.row(&mut out, way.name(), &rounds)?;
        }
        writeln!(out, "\nAll in {:.0} s", took.as_secs_f64())?;
        out.flush()
    }

    fn row(&self, out: &mut impl io::Write, name: &str, rounds: &[&Judged]) -> io::Result<()> {
        let each =
            |number: fn(&Judged) -> f64| Spread::from_numbers(rounds.iter().map(|j| number(j)));
        write!(
            out,
            "| {name} | {}",
            shown(each(|j| j.took.as_secs_f64()), 1)
        )?;
        for calls in [writes, reads] {
            let base = |percent| {
                members(&self.undisturbed.iter().collect::<Vec<_>>(), calls, percent).median
            };
            for percent in [50, 99] {
                let here = members(rounds, calls, percent);
                write!(out, " | {}", shown(here.over(base(percent)), 1))?;
            }
            let milliseconds = members(rounds, calls, 99).over(0.001);
            write!(out, " | {}", shown(milliseconds, 0))?;
            let longest = Spread::once(members(rounds, calls, 100).most);
            write!(out, " | {}", shown(longest, 2))?;
        }
        writeln!(
            out,
            " | {} | {} | {} | {} |",
            shown(each(|j| count(j.seen.late)), 0),
            shown(each(|j| count(j.seen.lost)), 0),
            shown(each(|j| j.gap.as_secs_f64()), 2),
            shown(each(|j| mebibytes(j.freed)), 0),
        )
    }
}

fn writes(seen: &Seen) -> &[Vec<Duration>] {
    &seen.writes
}

fn reads(seen: &Seen) -> &[Vec<Duration>] {
    &seen.reads
}

/// A percentile in seconds of the calls through each member in each round.
fn members(rounds: &[&Judged], calls: fn(&Seen) -> &[Vec<Duration>], percent: usize) -> Spread {
    let clients = rounds.iter().flat_map(|judged| calls(&judged.seen));
    Spread::from_numbers(clients.map(|times| percentile(times, percent)))
}

fn percentile(times: &[Duration], percent: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = times.len() * percent / 100;
    let time = times.get(at).or(times.last());
    time.map_or(f64::NAN, Duration::as_secs_f64)
}

impl Spread {
    fn over(self, base: f64) -> Self {
        Self {
            median: self.median / base,
            least: self.least / base,
            most: self.most / base,
        }
    }
}

/// The median, and the extremes where they differ.
fn shown(spread: Spread, digits: usize) -> String {
    let number = |number: f64| format!("{number:.digits$}");
    let (median, least, most) = (
        number(spread.median),
        number(spread.least),
        number(spread.most),
    );
    if least == most {
        median
    } else {
        format!("{median} ({least} to {most})")
    }
}

fn in_short(judged: &Judged) -> String {
    let all = |calls: fn(&Seen) -> &[Vec<Duration>]| {
        let p99 = members(&[judged], calls, 99);
        let longest = members(&[judged], calls, 100);
        format!("p99 {}, longest {} s", shown(p99, 3), shown(longest, 2))
    };
    format!(
        "{:.1?}; writes {}; reads {}; renewals late {}, leases lost {}; gap {:.2?}; freed {:.0} MiB",
        judged.took,
        all(writes),
        all(reads),
        judged.seen.late,
        judged.seen.lost,
        judged.gap,
        mebibytes(judged.freed)
    )
}

#[expect(
    clippy::cast_precision_loss,
    reason = "it is printed, and far below 2^52"
)]
fn count(number: usize) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "it is printed, and far below 2^52"
)]
fn mebibytes(bytes: i64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
