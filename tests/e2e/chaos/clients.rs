//! Clients that repeat a refused request.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::time::sleep;

use super::stage::Stage;
use crate::asking::By;

/// The time after which a client gives up.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pause before a client asks again.
const AGAIN: Duration = Duration::from_millis(1500);

/// Asks for this incarnation of the member until the request is accepted or the incarnation is
/// gone.
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
            stage.world.ask_for_this(by, member, &uid).await
        };
        match answer {
            Ok(()) => return Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                bail!("another client was faster: {}", status.message)
            }
            Err(error) if begun.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => sleep(AGAIN).await,
        }
    }
}
