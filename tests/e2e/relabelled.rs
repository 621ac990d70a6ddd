//! A member's pod that nobody owns any more, because somebody changed its labels, runs the same member as before.

use anyhow::{Result, ensure};
use quorumgate_testbed::eventually;

use crate::asking::By;
use crate::world::{SOON, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_the_label_that_its_set_selects_is_gated_as_before() -> Result<()> {
    stays_gated("relabelled", &["app-"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_any_label_of_its_set_is_gated_as_before() -> Result<()> {
    stays_gated(
        "unlabelled",
        &["app-", "statefulset.kubernetes.io/pod-name-"],
    )
    .await
}

async fn stays_gated(name: &str, labels: &[&str]) -> Result<()> {
    let world = World::new(name).await?;
    let mut relabel = vec!["label", "pod", "etcd-0"];
    relabel.extend(labels);
    world.kubectl(&relabel).await?.success()?;
    eventually(SOON, "its StatefulSet has let go of etcd-0", || async {
        let owners = world.etcd.pod("etcd-0").await?.metadata.owner_references;
        ensure!(owners.is_none(), "{owners:?}");
        Ok(())
    })
    .await?;

    let broken = world.crash("etcd-2").await?;
    world.has_to_wait("etcd-0", &["etcd-0", "etcd-2"]).await?;
    broken.mend();
    world.etcd.serves("etcd-2", SOON).await?;
    eventually(SOON, "etcd-2 is Ready", || async {
        ensure!(world.etcd.is_ready("etcd-2").await?, "not yet");
        anyhow::Ok(())
    })
    .await?;

    let uid = world.etcd.pod_uid("etcd-0").await?;
    world.lets_go(By::Delete, "etcd-0").await?;
    world.has_to_wait("etcd-1", &["etcd-0"]).await?;
    eventually(SOON, "etcd-0 is gone", || async {
        let now = world.pods().get_opt("etcd-0").await?;
        let now = now.and_then(|pod| pod.metadata.uid);
        ensure!(now.as_ref() != Some(&uid), "it is still there");
        Ok(())
    })
    .await?;
    // Its set has tried in vain to make a pod of this name, less and less often, and does not see the end of one it does not own.
    let look_again = [
        "annotate",
        "statefulset",
        "etcd",
        "testbed.quorumgate.io/look=again",
    ];
    world.kubectl(&look_again).await?.success()?;
    world.replaced("etcd-0", &uid).await?;
    world.whole().await?;
    world.close().await
}
