//! The demo: a real control plane, three real etcd members, two replicas of the gate, and
//! everything that usually goes wrong. `make demo` builds what is missing and runs it;
//! `make demo ARGS=--keep` leaves it running.

#![expect(
    clippy::large_futures,
    reason = "the demo is one future that runs once"
)]

mod rollout;
mod scenes;
mod stage;
mod voice;

use std::process::ExitCode;

use clap::Parser;

/// Shows the gate at work on a local control plane.
#[derive(Parser)]
struct Args {
    /// Leave everything running at the end.
    #[arg(long)]
    keep: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            voice::failure(&error.into());
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(scenes::play(args.keep)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            voice::failure(&error);
            ExitCode::FAILURE
        }
    }
}
