//! The table and the picture.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::Outcome;
use crate::incidents::{MINUTE, Ms, SECOND};
use crate::late;
use crate::policy::Kind;
use crate::year::Tally;

/// The lines in docs/evidence.md between which the tables stand.
const BEGIN: &str =
    "<!-- tables: cargo run --release -p quorumgate-core --example simulate -- --write -->\n";
const FLEETS: &str = "<!-- fleets: the same command -->\n";
const END: &str = "<!-- end of tables -->";

/// The text with these tables after the line `begin`.
fn with_tables(text: &str, begin: &str, tables: &str) -> Result<String> {
    let (before, rest) = text.split_once(begin).context("no place for tables")?;
    let (_, after) = rest.split_once(END).context("no end of the tables")?;
    Ok(format!("{before}{begin}\n{tables}\n{END}{after}"))
}

/// Prints the tables, and writes them with the picture into the documents.
pub(crate) fn publish(
    outcomes: &[Outcome],
    fleets: &[(late::Choice, [late::Outcome; 2])],
    (clusters, seed): (u64, u64),
    write: bool,
) -> Result<()> {
    let mut tables = format!(
        "{clusters} clusters of each size for a year each, seed {seed}. Times are per cluster and year unless a row says otherwise.\n"
    );
    for outcome in outcomes {
        write!(tables, "\n{}", table(outcome))?;
    }
    let late = of_fleets(fleets);
    print(&format!("{tables}\n{late}"));
    if write {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let page = docs.join("evidence.md");
        let text = std::fs::read_to_string(&page).context("docs/evidence.md")?;
        let text = with_tables(&text, BEGIN, &tables)?;
        let text = with_tables(&text, FLEETS, &late)?;
        std::fs::write(&page, text)?;
        std::fs::write(docs.join("simulation.svg"), picture(outcomes))?;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the program exists to print")]
fn print(text: &str) {
    print!("{text}");
}

fn table(outcome: &Outcome) -> String {
    let mut table = format!(
        "| {} members, pods {} | no majority, min | of that beyond the faults | nobody can write, min | outages over 10 s | a rollout, s (p95) | unfinished rollouts | a drain of all nodes, s (p95) | drains given up | refused, of {} asked | refused without need |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
        outcome.members,
        pods(outcome),
        outcome
            .tallies
            .first()
            .map_or(0, |(_, tally)| tally.asked / tally.years.max(1)),
    );
    let alone = faults_alone(outcome);
    for (kind, tally) in &outcome.tallies {
        let none = "–".to_owned();
        let rests = *kind == Kind::FaultsAlone;
        let or_none = |text: String| if rests { none.clone() } else { text };
        let beyond = minutes(tally.no_majority, tally) - alone;
        let cells = [
            kind.to_string(),
            format!("{:.2}", minutes(tally.no_majority, tally)),
            or_none(format!("{beyond:.2}")),
            format!("{:.2}", minutes(tally.no_writes, tally)),
            format!("{:.2}", each(tally.outages, tally.years)),
            or_none(spread(&tally.rollouts)),
            or_none(format!("{:.3}", each(tally.unfinished, tally.years))),
            or_none(spread(&tally.drains)),
            or_none(format!("{:.3}", each(tally.drains_given_up, tally.years))),
            or_none(format!("{:.1}", each(tally.refused, tally.years))),
            or_none(format!("{:.1}", each(tally.refused_harmless, tally.years))),
        ];
        let _ = writeln!(table, "| {} |", cells.join(" | "));
    }
    table
}

/// The table of an image that fails late.
fn of_fleets(fleets: &[(late::Choice, [late::Outcome; 2])]) -> String {
    let mut table = format!(
        "{} fleets of {} clusters, of three members each.\n\n| soak, min | rollouts at one time | clusters that lost the majority | minutes without it, all clusters together | a good rollout of the fleet, min |\n|---|---|---|---|---|\n",
        late::FLEETS,
        late::CLUSTERS,
    );
    for (choice, [bad, good]) in fleets {
        let fleets = late::FLEETS;
        let _ = writeln!(
            table,
            "| {} | {} | {:.1} | {:.1} | {:.1} |",
            choice.soak / MINUTE,
            choice.at_once,
            each(bad.lost, fleets),
            each(bad.no_majority, fleets * MINUTE),
            each(good.took, fleets * MINUTE),
        );
    }
    table
}

fn pods(outcome: &Outcome) -> String {
    match outcome.slowness {
        1 => "as fast as measured".to_owned(),
        slowness => format!("{slowness} times slower"),
    }
}

fn faults_alone(outcome: &Outcome) -> f64 {
    let mut tallies = outcome.tallies.iter();
    let alone = tallies.find(|(kind, _)| *kind == Kind::FaultsAlone);
    alone.map_or(0.0, |(_, tally)| minutes(tally.no_majority, tally))
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn minutes(time: Ms, tally: &Tally) -> f64 {
    time as f64 / MINUTE as f64 / tally.years.max(1) as f64
}

/// The median and the 95th percentile, in seconds.
#[expect(clippy::cast_precision_loss, reason = "for people")]
fn spread(times: &[Ms]) -> String {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = |percent: usize| {
        let time = times.get(times.len().saturating_sub(1) * percent / 100);
        time.copied().unwrap_or_default() as f64 / SECOND as f64
    };
    format!("{:.0} ({:.0})", at(50), at(95))
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn each(count: u64, of: u64) -> f64 {
    count as f64 / of.max(1) as f64
}

/// A bar for each policy and size: the minutes without a majority, on a logarithmic scale.
fn picture(outcomes: &[Outcome]) -> String {
    const ROW: usize = 22;
    const LEFT: f64 = 250.0;
    const WIDE: f64 = 420.0;
    let (least, most) = (0.01_f64, 100.0_f64);
    let length = |value: f64| {
        let part = (value.max(least) / least).ln() / (most / least).ln();
        part.clamp(0.0, 1.0) * WIDE
    };
    let mut bars = String::new();
    let mut y = 50;
    for outcome in outcomes {
        let heading = format!("{} members, pods {}", outcome.members, pods(outcome));
        let _ = writeln!(
            bars,
            r#"<text x="10" y="{y}" font-weight="bold">{heading}</text>"#
        );
        for (kind, tally) in &outcome.tallies {
            y += ROW;
            let value = minutes(tally.no_majority, tally);
            let colour = match kind {
                Kind::Gate => "#2a7f3f",
                Kind::FaultsAlone => "#9aa0a6",
                _ => "#c25b2c",
            };
            let (text_y, end) = (y + 4, LEFT + length(value) + 6.0);
            let _ = writeln!(
                bars,
                r#"<text x="{}" y="{text_y}" text-anchor="end">{kind}</text><rect x="{LEFT}" y="{}" width="{:.1}" height="14" fill="{colour}"/><text x="{end:.1}" y="{text_y}">{value:.2}</text>"#,
                LEFT - 8.0,
                y - 8,
                length(value),
            );
        }
        y += ROW + 18;
    }
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 740 {y}" font-family="sans-serif" font-size="13" role="img">
<title>Minutes without a majority in a year of a cluster, by policy</title>
<rect width="740" height="{y}" fill="#ffffff"/>
<text x="10" y="22" font-size="15">Minutes without a majority in a year of a cluster (logarithmic)</text>
{bars}</svg>
"##
    )
}
