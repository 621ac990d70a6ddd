//! A change of the template while a member is broken: with the gate, and with the StatefulSet
//! controller alone.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use quorumgate::api::{QuorumDisruptionBudget, RolloutStatus};
use quorumgate_testbed::etcd_cluster::{EtcdCluster, Shape};
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults;
use quorumgate_testbed::writer::Writer;
use tokio::time::sleep;

use crate::stage::{PATIENCE, Stage};
use crate::voice::{output, say, scene};

/// The pause between two looks at the pods and at the budget.
const LOOK: Duration = Duration::from_millis(50);

/// The effect of a rollout on a writer.
struct Outcome {
    /// The pods in the order in which they went. Those that went between two looks are together.
    order: Vec<Vec<String>>,
    /// The duration; `None` if the rollout did not finish.
    took: Option<Duration>,
    longest_gap: Duration,
    failed_writes: usize,
}

/// The time limit for the StatefulSet controller. It needs six to ten seconds, or never finishes:
/// it may delete the broken member as outdated each time after it has created it.
const STUCK: Duration = Duration::from_secs(45);

/// A patch that changes an annotation of the template.
const CHANGE: &str = r#"{"spec":{"template":{"metadata":{"annotations":{"demo":"changed"}}}}}"#;

pub(crate) async fn one_member_broken(stage: &Stage) -> Result<()> {
    scene("The template changes while a member is broken");
    say(
        "etcd-0 is dead, and the new template would mend it. The gate keeps the StatefulSet at OnDelete and replaces the pods itself: the broken member first, a follower next, the leader last, after it has handed over.",
    );
    stage.etcd.move_leader("etcd-2").await?;
    stage
        .kubectl("get statefulset etcd -o jsonpath={.spec.updateStrategy}")
        .await?;
    let ours = rollout(stage, &stage.etcd, PATIENCE, story(stage)).await?;
    ensure!(
        ours.took.is_some(),
        "only {:?} were replaced in time",
        ours.order
    );
    ensure!(
        ours.order == [["etcd-0"], ["etcd-1"], ["etcd-2"]],
        "they went in this order: {:?}",
        ours.order
    );
    stage.whole().await?;
    stage.kubectl("get qdb").await?;
    let theirs = without_the_gate(stage).await?;
    compare(&[("RollingUpdate", &theirs), ("quorumgate", &ours)]);
    let last = theirs.order.last().into_iter().flatten();
    if theirs.took.is_some() && last.eq(["plain-0"]) {
        say(
            "The StatefulSet controller came to the broken member last, and took those that serve before.",
        );
    }
    if theirs.took.is_none() {
        say(&format!(
            "In {} s the StatefulSet controller got no further than that: it may delete the broken member as often as it makes it.",
            STUCK.as_secs()
        ));
    }
    Ok(())
}

/// The same members, fault and change, with the StatefulSet controller alone.
async fn without_the_gate(stage: &Stage) -> Result<Outcome> {
    scene("The same without the gate");
    say(
        "A cluster of the same make beside it, not enrolled: plain-0 is dead, and the StatefulSet controller's RollingUpdate goes by ordinals and knows nothing of members.",
    );
    let plain = EtcdCluster::builder("plain")
        .shape(Shape::Foreign)
        .apply(&stage.sandbox)
        .await?;
    plain.quorate(PATIENCE).await?;
    plain.move_leader("plain-2").await?;
    rollout(stage, &plain, STUCK, async { Ok(()) }).await
}

fn compare(outcomes: &[(&str, &Outcome)]) {
    output(&format!(
        "{:<15} {:>9} {:>22} {:>14}   {}",
        "", "took", "nobody could write for", "failed writes", "order"
    ));
    for (name, outcome) in outcomes {
        output(&format!(
            "{name:<15} {:>9} {:>19} ms {:>14}   {}",
            took(outcome.took),
            outcome.longest_gap.as_millis(),
            outcome.failed_writes,
            order(&outcome.order)
        ));
    }
}

fn order(pods: &[Vec<String>]) -> String {
    let steps = pods.iter().map(|together| together.join(" with "));
    steps.collect::<Vec<_>>().join(", ")
}

fn took(time: Option<Duration>) -> String {
    time.map_or("not done".to_owned(), |time| {
        format!("{:.1} s", time.as_secs_f64())
    })
}

/// Changes the template while the first member is dead. Watches until every pod was replaced and
/// the cluster is quorate again, at most for `limit`.
async fn rollout(
    stage: &Stage,
    etcd: &EtcdCluster,
    limit: Duration,
    meanwhile: impl Future<Output = Result<()>>,
) -> Result<Outcome> {
    let first = format!("{}-0", etcd.name());
    let broken = faults::crash_loop(&stage.sandbox, &first)?;
    eventually(PATIENCE, "it is in CrashLoopBackOff", || async {
        let said = stage
            .quietly(&format!("get pod {first}"))
            .await?
            .success()?;
        ensure!(said.contains("CrashLoopBackOff"), "{said}");
        Ok(())
    })
    .await?;
    let writer = Writer::start(etcd).await?;
    let before = standing(etcd).await?;
    let start = Instant::now();
    stage
        .kubectl(&format!(
            "patch statefulset {} --patch {CHANGE}",
            etcd.name()
        ))
        .await?
        .success()?;
    let replaced = async {
        let mut order: Vec<Vec<String>> = Vec::new();
        let mut left = before.clone();
        let mut broken = Some(broken);
        while !left.is_empty() && start.elapsed() < limit {
            sleep(LOOK).await;
            let now = standing(etcd).await?;
            let went = left.extract_if(.., |pod, uid| now.get(pod) != Some(uid));
            let went: Vec<_> = went.map(|(pod, _)| pod).collect();
            if !went.is_empty() {
                order.push(went);
            }
            if now.contains_key(&first) && !left.contains_key(&first) {
                // The new template repairs the member.
                drop(broken.take());
            }
        }
        anyhow::Ok(order)
    };
    let (order, ()) = tokio::try_join!(replaced, meanwhile)?;
    let took = if order.iter().flatten().count() == before.len() {
        etcd.quorate(PATIENCE).await?;
        Some(start.elapsed())
    } else {
        None
    };
    let report = writer.stop().await?;
    report.assert_nothing_lost(etcd).await?;
    Ok(Outcome {
        order,
        took,
        longest_gap: report.longest_gap,
        failed_writes: report.failures.len(),
    })
}

/// The incarnations that do not terminate.
async fn standing(etcd: &EtcdCluster) -> Result<BTreeMap<String, String>> {
    let pods = etcd.pods().await?.into_iter();
    let standing = pods.filter(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(standing
        .filter_map(|pod| Some((pod.name_any(), pod.uid()?)))
        .collect())
}

/// Prints the budget's report on the rollout until it is complete: a line for every step, and one
/// for every pod that is up to date.
async fn story(stage: &Stage) -> Result<()> {
    let budgets = stage.sandbox.api::<QuorumDisruptionBudget>();
    let start = Instant::now();
    let (mut last_step, mut last_count) = (String::new(), String::new());
    let tell = |line: String, told: &mut String| {
        if line != *told {
            output(&format!("{:>5.1} s  {line}", start.elapsed().as_secs_f64()));
            *told = line;
        }
    };
    loop {
        let status = budgets.get(stage.etcd.name()).await?.status;
        let status = status.context("no status yet")?;
        let rollout = status.rollout.as_deref();
        if let Some((rollout, step)) = rollout.and_then(|r| Some((r, step(r)?))) {
            tell(step, &mut last_step);
            let leader = status.leader.as_deref().unwrap_or("nobody");
            let (updated, targets) = (rollout.updated, rollout.targets);
            if updated > 0 {
                let count =
                    format!("         {updated} of {targets} are up to date, {leader} leads");
                tell(count, &mut last_count);
            }
            if rollout.completion_time.is_some() {
                return Ok(());
            }
        }
        ensure!(start.elapsed() < PATIENCE, "it got no further: {last_step}");
        sleep(LOOK).await;
    }
}

/// The latest step.
fn step(rollout: &RolloutStatus) -> Option<String> {
    let step = rollout.last_step.as_ref()?;
    let (pod, because) = (&step.pod, &step.because);
    Some(match step.action.as_str() {
        "MoveLeader" => format!("move leadership from {pod}, then delete it: it {because}"),
        action => format!("{} {pod}: it {because}", action.to_lowercase()),
    })
}
