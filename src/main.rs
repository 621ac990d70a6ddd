//! The program.

use std::process::ExitCode;

use clap::Parser as _;
use mimalloc::MiMalloc;
use quorumgate::{app, cli::Cli};

/// The image is linked against musl, whose allocator is slow when several threads allocate.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    match app::main(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            app::print_error(&error);
            ExitCode::FAILURE
        }
    }
}
