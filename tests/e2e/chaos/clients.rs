//! Clients that take a no for a "not yet".

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use kube::api::{DeleteParams, EvictParams, Preconditions};
use tokio::time::sleep;

use super::stage::Stage;
use crate::asking::By;

/// How long somebody goes on asking.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause before somebody asks again.
const AGAIN: Duration = Duration::from_millis(1500);

/// Asks for this incarnation of the member until it may go, or is gone.
pub(super) async fn ask_until_it_goes(
    stage: &Stage,
    cluster: usize,
    by: By,
    member: &str,
) -> Result<()> {
    let cluster = stage.cluster(cluster)?;
    let uid = cluster.etcd.pod_uid(member).await?;
    let begun = Instant::now();
    loop {
        let answer = {
            let _unrest = cluster.unrest.read().await;
            ask(stage, by, member, &uid).await
        };
        match answer {
            Ok(()) => return Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                bail!("somebody was quicker: {}", status.message)
            }
            Err(error) if begun.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => sleep(AGAIN).await,
        }
    }
}

async fn ask(stage: &Stage, by: By, member: &str, uid: &str) -> Result<(), kube::Error> {
    let this = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let pods = stage.world.pods();
    match by {
        By::Delete => pods.delete(member, &this).await.map(drop),
        By::Eviction => {
            let eviction = EvictParams {
                delete_options: Some(this),
                ..EvictParams::default()
            };
            pods.evict(member, &eviction).await.map(drop)
        }
    }
}
