//! Memory under attack. 4,000 connections of unknown clients, from one address and from fifty, are
//! silent, trickle, or send 4 MiB each. Their target is one replica with a limit of 256 MiB, which
//! an API server calls meanwhile.
//!
//! The replica is a process in a memory cgroup of its own: the shipped listeners, webhooks, judge
//! and log over an API server without any object. If no cgroup can be made, the title says so, and
//! the most memory that the process ever had is compared with the limit. The clients share the
//! machine's processors, and come back after they were turned away. The benchmark fails if a target
//! is missed.

mod caller;
mod confined;
mod gate;
mod resident;
mod siege;
mod spread;
mod table;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use mimalloc::MiMalloc;
use tokio::runtime::Runtime;

use confined::Confined;
use siege::{Siege, Stranger};
use spread::Spread;
use table::Table;

/// The allocator of the shipped binary.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The replica's memory limit in MiB.
const LIMIT: u32 = 256;
/// The time limit of an API server's call in milliseconds.
const DEADLINE: f64 = 5000.0;
const STRANGERS: u16 = 4000;
const ROUND: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    quorumgate::install_crypto_provider();
    if std::env::args().any(|argument| argument == confined::REPLICA) {
        return Runtime::new()?.block_on(confined::serve());
    }
    Runtime::new()?.block_on(measure())
}

async fn measure() -> Result<()> {
    let start = Instant::now();
    let replica = Confined::start(LIMIT).await?;
    let mut rows = Vec::new();
    let mut missed = Vec::new();
    for stranger in [Stranger::Silent, Stranger::Trickles, Stranger::SendsMuch] {
        for addresses in [1_u8, 50] {
            let siege = Siege {
                stranger,
                addresses,
                strangers: STRANGERS,
                lasts: ROUND,
            };
            let seen = siege.lay(&replica).await?;
            let what = format!("{stranger} from {addresses}");
            if seen.failed > 0 || seen.slowest() > DEADLINE {
                missed.push(format!(
                    "{what}: {} of {} calls failed",
                    seen.failed,
                    seen.calls()
                ));
            }
            if seen.unready > 0 {
                missed.push(format!("{what}: not ready {} times", seen.unready));
            }
            if seen.turned_away < usize::from(STRANGERS) {
                missed.push(format!("{what}: only {} strangers came", seen.turned_away));
            }
            rows.push((what, seen));
        }
    }
    let memory = replica.memory()?;
    let confinement = replica.confinement();
    if !replica.lives() || memory.most > f64::from(LIMIT) * 1024.0 {
        missed.push("the replica did not live with its memory".to_owned());
    }
    let title = format!(
        "Strangers: {STRANGERS} connections against one replica of {LIMIT} MiB {confinement} ({:.0} s)",
        start.elapsed().as_secs_f64()
    );
    let mut table = Table::new(title)
        .row(
            "most memory of the replica, MiB",
            Spread::once(memory.most / 1024.0),
            ..=f64::from(LIMIT),
        )
        .row(
            "its resident set in the end, MiB",
            Spread::once(memory.now / 1024.0),
            ..,
        );
    for (what, seen) in &rows {
        table = table
            .row(
                &format!("{what}: p99 of calls, ms"),
                Spread::once(seen.p99()),
                ..=DEADLINE,
            )
            .row(
                &format!("{what}: calls and looks that failed"),
                Spread::once(f64::from(seen.failed + seen.unready)),
                ..=0.0,
            );
    }
    table.print()?;
    ensure!(missed.is_empty(), "{}", missed.join("; "));
    Ok(())
}
