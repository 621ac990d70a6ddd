//! The replica that drives a replacement is killed before each of its steps, and another one goes
//! on from there.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kube::Api;
use kube::api::DeleteParams;
use quorumgate_testbed::control_plane::audit::AuditLog;
use quorumgate_testbed::etcd_cluster::EtcdVersion;
use quorumgate_testbed::writer::Writer;
use quorumgate_testbed::{Sandbox, eventually};
use serde_json::{Value, json};

use super::{
    REPLACED, finished, gates, is_whole_without, nothing_is_lost, protected, replacement, request,
};
use crate::other_hook::OtherHook;
use crate::rollouts::kills::driver;
use crate::world::{SOON, World};

/// Every step of the replacement of a leader, in order, by its name in logs and metrics.
const STEPS: [&str; 10] = [
    "Grant",
    "MoveLeader",
    "RemoveMember",
    "AddLearner",
    "DeleteClaim",
    "DeletePod",
    "Release",
    "RecordVolume",
    "Promote",
    "Settle",
];

/// Whether a replacement is under way, by a budget in a webhook's condition.
macro_rules! open {
    ($budget:literal) => {
        concat!(
            $budget,
            ".?status.?replacements.orValue([]).exists(r, !has(r.completionTime))"
        )
    };
}

/// Whether a pod waits for the gate's scheduling gate.
macro_rules! waits {
    ($pod:literal) => {
        concat!(
            $pod,
            ".spec.?schedulingGates.orValue([]).exists(g, g.name == 'quorumgate.io/identity')"
        )
    };
}

/// The writes with which the steps begin, and the conditions by which they are known. The two other
/// steps are changes in etcd alone. It takes no new member for some seconds after a removal. The
/// promotion cannot be held: it comes right after the record of the volume.
const WRITES: [(&str, &str, &str); 8] = [
    (
        "Grant",
        STATUS,
        concat!(open!("object"), " && !", open!("oldObject")),
    ),
    (
        "MoveLeader",
        STATUS,
        concat!(
            open!("oldObject"),
            " && object.status.?leaderMove != oldObject.status.?leaderMove"
        ),
    ),
    (
        "RemoveMember",
        STATUS,
        concat!(
            open!("oldObject"),
            " && object.status.ledger.lastSeq > oldObject.status.ledger.lastSeq"
        ),
    ),
    ("DeleteClaim", CLAIMS, "true"),
    ("DeletePod", DELETES, "true"),
    (
        "Release",
        UPDATES,
        concat!(waits!("oldObject"), " && !", waits!("object")),
    ),
    (
        "RecordVolume",
        STATUS,
        concat!(
            open!("oldObject"),
            " && ",
            open!("object"),
            " && object.status.?volumes != oldObject.status.?volumes"
        ),
    ),
    (
        "Settle",
        STATUS,
        concat!(open!("oldObject"), " && !", open!("object")),
    ),
];

const STATUS: &str = "UPDATE quorumgate.io v1alpha1 quorumdisruptionbudgets/status";
const CLAIMS: &str = "DELETE core v1 persistentvolumeclaims";
const DELETES: &str = "DELETE core v1 pods";
const UPDATES: &str = "UPDATE core v1 pods";
const PROBE: &str = "DELETE core v1 configmaps";

#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_goes_on_when_the_gate_is_killed_before_each_step() -> Result<()> {
    goes_on_before_each_step(EtcdVersion::V3_6, "replace-killed").await
}

/// Holds the replacement of the leader before each step, kills the replica that drives there, and
/// lets the next one make the step.
pub(crate) async fn goes_on_before_each_step(version: EtcdVersion, name: &str) -> Result<()> {
    let world = protected(name, version, "Manual").await?;
    let writer = Writer::start(&world.etcd).await?;
    let member = world.etcd.leader().await?;
    let old = Old::read(&world, &member).await?;
    let mut held = Held::all(&world).await?;
    request(&world, &format!("{:x}", old.id)).await?;
    let mut killed = Vec::new();
    for step in STEPS {
        held.reached(&world, &old, step).await?;
        let leader = driver(&world).await?;
        world.gate.replica(leader).kill().await?;
        let next = old.next_step(&world).await?;
        ensure!(is_held_before(step, next), "{next} is next, not {step}");
        killed.push(step);
        world.gate.replica(leader).restart().await?;
        held.let_go(step).await?;
    }
    ensure!(killed == STEPS, "killed before {killed:?}");

    finished(&world, &member).await?;
    is_whole_without(&world, old.id).await?;
    // The request is spent.
    let new = world.etcd.member(&member).await?.id;
    let seq = world.last_seq().await?;
    request(&world, &format!("{:016X}", old.id).to_lowercase()).await?;
    let leader = driver(&world).await?;
    world.gate.replica(leader).restart().await?;
    driver(&world).await?;
    world.whole().await?;
    ensure!(world.last_seq().await? == seq, "something was permitted");
    let now = world.etcd.member(&member).await?.id;
    ensure!(now == new, "replaced again");
    nothing_is_lost(writer, &world.etcd).await?;
    world.close().await
}

/// Whether the replacement waits before `step` where `next` has not had its effect yet. A promotion
/// may come before anybody is killed.
fn is_held_before(step: &str, next: &str) -> bool {
    next == step || (step, next) == ("Promote", "Settle")
}

/// The member as it was before its replacement.
struct Old {
    pod: String,
    id: u64,
    pod_uid: String,
    claim_uid: String,
}

impl Old {
    async fn read(world: &World, pod: &str) -> Result<Self> {
        let (claim_uid, _) = claim(&world.sandbox, pod).await?.context("no claim")?;
        Ok(Self {
            pod: pod.to_owned(),
            id: world.etcd.member(pod).await?.id,
            pod_uid: world.etcd.pod_uid(pod).await?,
            claim_uid,
        })
    }

    /// The step that has not had its effect yet, by what etcd and the API server have.
    async fn next_step(&self, world: &World) -> Result<&'static str> {
        let Some(replacement) = replacement(world, &self.pod).await? else {
            return Ok("Grant");
        };
        let members = world.etcd.members().await?;
        if members.iter().any(|listed| listed.id == self.id) {
            let leads = world.etcd.leader().await? == self.pod;
            return Ok(if leads { "MoveLeader" } else { "RemoveMember" });
        }
        if members.len() == 2 {
            return Ok("AddLearner");
        }
        let claim = claim(&world.sandbox, &self.pod).await?;
        if claim.is_some_and(|(uid, terminates)| uid == self.claim_uid && !terminates) {
            return Ok("DeleteClaim");
        }
        let pod = world.pods().get(&self.pod).await?;
        if pod.metadata.uid.as_ref() == Some(&self.pod_uid) {
            let terminates = pod.metadata.deletion_timestamp.is_some();
            ensure!(!terminates, "the old pod terminates");
            return Ok("DeletePod");
        }
        if !gates(world, &self.pod).await?.is_empty() {
            return Ok("Release");
        }
        if let Some(learner) = members.iter().find(|listed| listed.is_learner) {
            let recorded = recorded(world, &self.pod).await?;
            let is_recorded = recorded == Some(learner.id);
            return Ok(if is_recorded {
                "Promote"
            } else {
                "RecordVolume"
            });
        }
        ensure!(replacement.completion_time.is_none(), "it is over");
        Ok("Settle")
    }
}

/// The holds that keep the gate from making its steps.
struct Held {
    hooks: BTreeMap<&'static str, OtherHook>,
    audit: AuditLog,
}

impl Held {
    /// Holds every step of a replacement.
    async fn all(world: &World) -> Result<Self> {
        let mut hooks = BTreeMap::new();
        for (step, write, condition) in WRITES {
            let hook = OtherHook::of_rule(world, &name(step), rule(write)?, condition).await?;
            hooks.insert(step, hook);
        }
        // The API server learns of webhooks in the order of their creation.
        let probe = OtherHook::of_rule(world, &name("probe"), rule(PROBE)?, "true").await?;
        let maps: Api<ConfigMap> = world.sandbox.api();
        let dry = DeleteParams {
            dry_run: true,
            ..DeleteParams::default()
        };
        eventually(SOON, "the webhooks are asked", || async {
            match maps.delete("kube-root-ca.crt", &dry).await {
                Ok(_) => bail!("nobody refuses"),
                Err(error) if error.to_string().contains(&name("probe")) => Ok(()),
                Err(error) => Err(error.into()),
            }
        })
        .await?;
        probe.remove().await?;
        Ok(Self {
            hooks,
            audit: world.bed().audit_log(),
        })
    }

    /// Waits until the gate has tried this step in vain, or could make it as far as it knows.
    async fn reached(&self, world: &World, old: &Old, step: &str) -> Result<()> {
        eventually(REPLACED, format!("{step} is next"), || async {
            let next = old.next_step(world).await?;
            ensure!(is_held_before(step, next), "it is {next}");
            if self.hooks.contains_key(step) {
                let events = self.audit.events(world.namespace())?;
                let mut messages = events.iter().map(|event| &event.response_status.message);
                let tried = messages.any(|message| message.contains(&name(step)));
                ensure!(tried, "nobody has tried it");
            }
            Ok(())
        })
        .await
    }

    async fn let_go(&mut self, step: &str) -> Result<()> {
        if let Some(hook) = self.hooks.remove(step) {
            hook.remove().await?;
        }
        Ok(())
    }
}

/// The name of the webhook that holds a step.
fn name(step: &str) -> String {
    format!("{}.example.com", step.to_lowercase())
}

fn rule(write: &str) -> Result<Value> {
    let mut words = write.split(' ');
    let mut word = || words.next().context("a word is missing");
    let (operation, group, version, resource) = (word()?, word()?, word()?, word()?);
    let group = if group == "core" { "" } else { group };
    Ok(json!({
        "operations": [operation], "apiGroups": [group], "apiVersions": [version],
        "resources": [resource],
    }))
}

/// The id of the member that is on record with the volume of this pod.
async fn recorded(world: &World, pod: &str) -> Result<Option<u64>> {
    let status = world.budget().await?.status.unwrap_or_default();
    let mut volumes = status.volumes.into_iter();
    let own = volumes.find(|volume| volume.member == pod);
    let id = own.map(|volume| u64::from_str_radix(&volume.member_id, 16));
    Ok(id.transpose()?)
}

/// The UID of a pod's claim, and whether it terminates.
async fn claim(sandbox: &Sandbox, pod: &str) -> Result<Option<(String, bool)>> {
    let claims: Api<PersistentVolumeClaim> = sandbox.api();
    let claim = claims.get_opt(&format!("data-{pod}")).await?;
    Ok(claim.and_then(|claim| {
        let terminates = claim.metadata.deletion_timestamp.is_some();
        Some((claim.metadata.uid?, terminates))
    }))
}
