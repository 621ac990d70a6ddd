//! The program: reads the command line, and runs what it asks for.

use std::process::ExitCode;

use clap::Parser as _;
use quorumgate::{app, cli::Cli};

fn main() -> ExitCode {
    match app::main(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            app::lament(&error);
            ExitCode::FAILURE
        }
    }
}
