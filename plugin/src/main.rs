//! `kubectl quorum`: shows the etcd clusters that quorumgate guards, and why a pod may or may not
//! go. The plugin has no rights but those of its user.
#![allow(
    clippy::format_push_string,
    reason = "what a command says is put together once"
)]

mod ask;
mod change;
mod cli;
mod cluster;
mod completion;
mod connect;
mod doctor;
mod drain;
mod explain;
mod overrides;
mod remedy;
mod replace;
mod rollout;
mod show;
mod status;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory as _, Parser as _};

use cli::{Cli, Command};

/// The end of a command that did what it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It is as the user wants it: exit code 0.
    Well,
    /// The answer is no: exit code 3.
    No,
    /// There is no answer, and what was said says why: exit code 1.
    Unknown,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli).await {
        Ok(End::Well) => ExitCode::SUCCESS,
        Ok(End::No) => ExitCode::from(3),
        Ok(End::Unknown) => ExitCode::FAILURE,
        Err(error) => {
            show::complain(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> Result<End> {
    let Cli {
        connection,
        color,
        command,
    } = cli;
    let paint = color.by_environment();
    match command {
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "kubectl-quorum", &mut script);
            show::print(&String::from_utf8(script)?)?;
        }
        Command::Complete { words } => show::print(&completion::answer(&words))?,
        Command::Man => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command().name("kubectl-quorum")).render(&mut page)?;
            show::print(&String::from_utf8(page)?)?;
        }
        Command::Status(options) => {
            return status::run(&connection.open().await?, &options, paint).await;
        }
        Command::Explain(options) => {
            return explain::run(&connection.open().await?, &options, paint).await;
        }
        Command::Drain(options) => {
            return drain::run(&connection.open().await?, &options, paint).await;
        }
        Command::Rollout { command } => {
            return rollout::run(&connection.open().await?, &command, paint).await;
        }
        Command::Override(options) => {
            return overrides::run(&connection.open().await?, &options).await;
        }
        Command::Replace(options) => {
            return replace::run(&connection.open().await?, &options).await;
        }
        Command::Doctor(options) => {
            return doctor::run(&connection.open().await?, &options, paint).await;
        }
    }
    Ok(End::Well)
}
