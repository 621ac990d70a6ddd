//! `testbed`: a local Kubernetes without containers, for a person.

use std::process::ExitCode;

use clap::Parser as _;
use quorumgate_testbed::cli::Cli;
use quorumgate_testbed::kubeconfig;

#[tokio::main]
async fn main() -> ExitCode {
    kubeconfig::install_crypto();
    match Cli::parse().run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("testbed: {error:#}");
            ExitCode::FAILURE
        }
    }
}
