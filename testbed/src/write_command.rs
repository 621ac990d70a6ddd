//! `testbed write`: a [`Writer`] for people who watch it while they break things.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use tokio::time::{MissedTickBehavior, interval};

use crate::builder::print;
use crate::etcd_cluster::EtcdCluster;
use crate::member::ClusterArgs;
use crate::writer::{Report, Writer};

/// Write a key through any member every 100 ms, and tell how it goes; Ctrl-C ends it.
#[derive(Clone, Debug, Args)]
pub struct WriteCommand {
    /// Which cluster.
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Seconds to write for; without it, until Ctrl-C.
    #[arg(long)]
    seconds: Option<u64>,
}

impl WriteCommand {
    /// Writes, and then reads all keys back. The exit code is 1 if an acknowledged write was lost.
    pub async fn run(self, client: kube::Client) -> Result<ExitCode> {
        let Self {
            cluster: ClusterArgs { namespace, cluster },
            seconds,
        } = self;
        let cluster = EtcdCluster::find(client, &namespace, &cluster).await?;
        let writer = Writer::start(&cluster).await?;
        let end = async {
            match seconds {
                Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = tell_every_second(&writer) => {}
            () = end => {}
            interrupted = tokio::signal::ctrl_c() => interrupted?,
        }
        let report = writer.stop().await?;
        summarise(&report);
        match report.assert_nothing_lost(&cluster).await {
            Ok(()) => {
                print("every acknowledged write is there");
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => {
                print(&format!("{error:#}"));
                Ok(ExitCode::FAILURE)
            }
        }
    }
}

async fn tell_every_second(writer: &Writer) {
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (acknowledged, failures) = (writer.acknowledged(), writer.failures());
        let gap = writer.longest_gap();
        print(&format!(
            "{acknowledged} written, {failures} failed, longest gap {gap:.1?}"
        ));
    }
}

fn summarise(report: &Report) {
    for failure in report.failures.iter().rev().take(5).rev() {
        print(&format!(
            "failed through {}: {}",
            failure.address, failure.error
        ));
    }
    let (written, failed) = (report.acknowledged.len(), report.failures.len());
    let gap = report.longest_gap;
    print(&format!(
        "{written} writes acknowledged, {failed} failed, longest gap {gap:.1?}"
    ));
}
