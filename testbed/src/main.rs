//! The `testbed` program: a local Kubernetes without containers, for people.

use std::process::ExitCode;

use clap::Parser as _;
use quorumgate_testbed::cli::Cli;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("testbed: {error:#}");
            ExitCode::FAILURE
        }
    }
}
