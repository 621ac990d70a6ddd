//! The scenes of the demo.

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults;

use crate::rollout;
use crate::stage::{PATIENCE, Stage};
use crate::voice::{command, output, say, scene};

/// Plays all scenes.
pub(crate) async fn play(keep: bool) -> Result<()> {
    scene("Setting up");
    let stage = Stage::set().await?;
    introduction(&stage).await?;
    two_at_once(&stage).await?;
    drain_every_node(&stage).await?;
    dead_member(&stage).await?;
    rollout::one_member_broken(&stage).await?;
    ending(stage, keep).await
}

async fn introduction(stage: &Stage) -> Result<()> {
    scene("A new budget is not trusted yet");
    say(
        "The gate found the cluster by its label and made a budget for it. It cannot know what was permitted before, so it waits one settle time: 10 s here, two minutes by default.",
    );
    stage.trusted().await?;
    stage.whole().await?;
    stage.kubectl("get qdb").await?;
    stage.kubectl("get pods -o wide").await?;
    Ok(())
}

async fn two_at_once(stage: &Stage) -> Result<()> {
    scene("Two deletes at the same moment");
    say(
        "Three voters, two are needed. Both replicas of the gate are asked at once; only one of them can say yes.",
    );
    stage.etcd.move_leader("etcd-2").await?;
    stage.whole().await?;
    command("kubectl delete pod etcd-0 & kubectl delete pod etcd-1 &");
    let pods: Api<Pod> = stage.sandbox.api();
    let parameters = DeleteParams::default();
    let (first, second) = tokio::join!(
        pods.delete("etcd-0", &parameters),
        pods.delete("etcd-1", &parameters)
    );
    let mut refused = 0;
    for (pod, answer) in [("etcd-0", first), ("etcd-1", second)] {
        match answer {
            Ok(_) => output(&format!("pod \"{pod}\" deleted")),
            Err(kube::Error::Api(status)) if status.code == 429 => {
                refused += 1;
                output(&format!(
                    "Error from server ({}): {}",
                    status.reason, status.message
                ));
            }
            Err(other) => return Err(other.into()),
        }
    }
    ensure!(
        refused == 1,
        "{refused} of the two deletes were refused, not one"
    );
    stage.kubectl("get qdb").await?;
    say(
        "The permission stands in the budget until the pod is gone; then its successor serves, and there is headroom again.",
    );
    stage.whole().await?;
    stage.kubectl("get qdb").await?;
    Ok(())
}

async fn drain_every_node(stage: &Stage) -> Result<()> {
    scene("Draining every node, one after another");
    for node in stage.sandbox.nodes() {
        let name = node.name();
        let drained = stage
            .kubectl(&format!(
                "drain {name} --ignore-daemonsets --delete-emptydir-data --timeout=120s"
            ))
            .await?;
        ensure!(drained.succeeded(), "the drain of {name} did not finish");
        stage
            .kubectl(&format!("uncordon {name}"))
            .await?
            .success()?;
    }
    stage.whole().await?;
    stage.kubectl("get qdb").await?;
    say(&format!(
        "Meanwhile a writer put a key every 100 ms: {} acknowledged, longest gap {} ms.",
        stage.writer.acknowledged(),
        stage.writer.longest_gap().as_millis()
    ));
    Ok(())
}

async fn dead_member(stage: &Stage) -> Result<()> {
    scene("One member is broken");
    stage.all_ready().await?;
    say("etcd-2 is killed and kept from starting. Now every other member is needed.");
    let broken = faults::crash_loop(&stage.sandbox, "etcd-2")?;
    eventually(PATIENCE, "etcd-2 is in CrashLoopBackOff", || async {
        let said = stage
            .quietly("get pod etcd-2 --no-headers")
            .await?
            .success()?;
        ensure!(said.contains("CrashLoopBackOff"), "{said}");
        Ok(())
    })
    .await?;
    stage.kubectl("get pods").await?;
    say("A healthy member must stay:");
    let refused = stage.kubectl("delete pod etcd-0 --wait=false").await?;
    ensure!(
        !refused.succeeded(),
        "a healthy member could be deleted while another was broken"
    );
    say("The broken one costs nothing and may be deleted at any time:");
    let allowed = stage.kubectl("delete pod etcd-2 --wait=false").await?;
    ensure!(
        allowed.succeeded(),
        "the broken member could not be deleted"
    );
    broken.mend();
    stage.whole().await?;
    stage.kubectl("get qdb").await?;
    Ok(())
}

async fn ending(stage: Stage, keep: bool) -> Result<()> {
    scene("What the writer saw");
    let Stage {
        sandbox,
        etcd,
        writer,
        gate,
    } = stage;
    let report = writer.stop().await?;
    report.assert_nothing_lost(&etcd).await?;
    say(&format!(
        "{} writes acknowledged, {} failed and tried again, longest gap {} ms. Every acknowledged write is still there.",
        report.acknowledged.len(),
        report.failures.len(),
        report.longest_gap.as_millis()
    ));
    if keep {
        let kubeconfig = sandbox.bed().admin_kubeconfig();
        scene("Try it yourself");
        command(&format!("export KUBECONFIG={}", kubeconfig.display()));
        command(&format!("kubectl -n {} get qdb -w", sandbox.namespace()));
        command(&format!(
            "kubectl -n {} delete pod etcd-0 etcd-1",
            sandbox.namespace()
        ));
        let node = sandbox.nodes().first().map_or("NODE", |node| node.name());
        command(&format!("kubectl drain {node} --ignore-daemonsets"));
        command(&format!("kubectl uncordon {node}"));
        say(
            "With the plugin, which was built beside the gate (`doctor` misses the Deployment, because the replicas are processes here):",
        );
        command(&format!(
            "export PATH={}:$PATH",
            crate::stage::built()?.display()
        ));
        command(&format!("kubectl quorum status -n {}", sandbox.namespace()));
        command(&format!(
            "kubectl quorum explain etcd-0 -n {}",
            sandbox.namespace()
        ));
        say("Press Ctrl-C to delete the namespace.");
        tokio::signal::ctrl_c().await?;
    }
    scene("Deleting the namespace: a teardown is never held back");
    let namespace = sandbox.namespace().to_owned();
    command(&format!("kubectl delete namespace {namespace}"));
    let deletion = sandbox.bed().kubectl(["delete", "namespace", &namespace]);
    output(deletion.timeout(PATIENCE).await?.success()?.trim_end());
    gate.close().await?;
    sandbox.close().await?;
    say(
        "The control plane still runs, for the next time: `scripts/testbed down` stops it. `make demo ARGS=--keep` leaves all running.",
    );
    if report.acknowledged.is_empty() {
        bail!("the writer never got a write through");
    }
    Ok(())
}
