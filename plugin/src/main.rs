//! `kubectl quorum`: shows the etcd clusters that quorumgate guards, and explains why a pod may not
//! be deleted. The plugin has no rights but those of its user.
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
mod discover;
mod doctor;
mod drain;
mod explain;
mod man;
mod overrides;
mod recover;
mod remedy;
mod replace;
mod report;
mod rollout;
mod scale;
mod show;
mod status;
mod version;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser as _;

use cli::{Cli, Command};

/// The end of a command that did what it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The result is as the user wants it: exit code 0.
    Well,
    /// The answer is no: exit code 3.
    No,
    /// There is no answer, and what was said says why: exit code 1.
    Unknown,
}

fn main() -> ExitCode {
    match completion::answer_shell().and_then(|done| if done { Ok(End::Well) } else { begin() }) {
        Ok(End::Well) => ExitCode::SUCCESS,
        Ok(End::No) => ExitCode::from(3),
        Ok(End::Unknown) => ExitCode::FAILURE,
        Err(error) => {
            show::complain(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn begin() -> Result<End> {
    let cli = Cli::parse();
    // Completion has a runtime of its own.
    if let Command::Complete { words } = &cli.command {
        show::print(&completion::answer_kubectl(words))?;
        return Ok(End::Well);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(cli))
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
            show::print(&completion::script(shell)?)?;
            Ok(End::Well)
        }
        Command::Complete { .. } => Ok(End::Well),
        Command::Man { directory } => man::run(directory.as_deref()),
        Command::Status(options) => status::run(&connection.open().await?, &options, paint).await,
        Command::Explain(options) => explain::run(&connection.open().await?, &options, paint).await,
        Command::Drain(options) => drain::run(&connection.open().await?, &options, paint).await,
        Command::Rollout { command } => {
            rollout::run(&connection.open().await?, &command, paint).await
        }
        Command::Override(options) => overrides::run(&connection.open().await?, &options).await,
        Command::Replace(options) => replace::run(&connection.open().await?, &options).await,
        Command::Scale(options) => scale::run(&connection.open().await?, &options).await,
        Command::Recover(options) => recover::run(&connection.open().await?, &options, paint).await,
        Command::Doctor(options) => doctor::run(&connection.open().await?, &options, paint).await,
        Command::Report(options) => report::run(&connection.open().await?, &options).await,
        Command::Version(options) => version::run(&connection, &options).await,
    }
}
