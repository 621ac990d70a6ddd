//! Members whose data was altered behind etcd's back. etcd's own check raises the alarm, and the
//! member that differs from the others is replaced, whomever the alarm names.

use anyhow::{Result, ensure};
use etcd_client::{AlarmAction, AlarmOptions, AlarmType, CompactionOptions, GetOptions};
use quorumgate_testbed::etcd_cluster::{DataCheck, EtcdClusterBuilder, EtcdVersion};
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults::{Altered, PodFaults};
use serde_json::json;

use super::{finished, is_whole_without, protected, protected_with, request, wish, write_some};
use crate::defragmentation::one_by_one::all_have_the_same;
use crate::world::{SOON, World};

const KEY: &str = "told";
const RIGHT: &str = "the value that was acknowledged";
const WRONG: &str = "the value that nobody has given";
const OTHER: &str = "the value that is another's one";

/// The member whose data is altered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Leader,
    Follower,
}

/// A follower differs from the leader: the periodic check names it.
#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_follower_is_replaced_and_of_two_none_is_on_etcd_3_7() -> Result<()> {
    let (version, check) = (EtcdVersion::V3_7, DataCheck::Periodic);
    let world = is_replaced("corrupt-3-7", version, check, Which::Follower).await?;
    wish(&world, &json!({"replace": "Off"})).await?;
    let seq = world.last_seq().await?;
    alter(&world, "etcd-0", WRONG, Altered::GoesOn).await?;
    alter(&world, "etcd-1", OTHER, Altered::GoesOn).await?;
    alarmed(&world).await?;
    wish(&world, &json!({"replace": "Auto"})).await?;
    is_held_for_want_of_proof(&world, seq).await?;
    world.close().await
}

/// From etcd 3.6 on the check after a compaction names the member that differs from a majority,
/// also where that is the leader.
#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_leader_hands_over_and_is_replaced_on_etcd_3_6() -> Result<()> {
    let (version, check) = (EtcdVersion::V3_6, DataCheck::AfterCompaction);
    let world = is_replaced("corrupt-3-6", version, check, Which::Leader).await?;
    world.close().await
}

/// etcd 3.5 raises the alarm against no member.
#[tokio::test(flavor = "multi_thread")]
async fn a_corrupt_member_is_replaced_although_etcd_3_5_names_none() -> Result<()> {
    let (version, check) = (EtcdVersion::V3_5, DataCheck::Periodic);
    let world = is_replaced("corrupt-3-5", version, check, Which::Leader).await?;
    world.close().await
}

/// Alters the data of a member, and checks that it is replaced, and that nothing is lost or wrong.
async fn is_replaced(
    name: &str,
    version: EtcdVersion,
    check: DataCheck,
    which: Which,
) -> Result<World> {
    let choose = |etcd| EtcdClusterBuilder::data_check(etcd, check).version(version);
    let world = protected_with(name, "Auto", choose).await?;
    let mut client = world.etcd.connect().await?;
    client.put(KEY, RIGHT, None).await?;
    let before = write_some(&world.etcd).await?;
    let pod = match which {
        Which::Leader => world.etcd.leader().await?,
        Which::Follower => world.etcd.followers().await?.remove(0),
    };
    let id = world.etcd.member(&pod).await?.id;
    let then = match which {
        Which::Leader => Altered::GoesOn,
        Which::Follower => Altered::Restarts,
    };
    alter(&world, &pod, WRONG, then).await?;
    if check == DataCheck::AfterCompaction {
        compact(&world).await?;
    }
    let accused = alarmed(&world).await?;
    let named = if version < EtcdVersion::V3_6 { 0 } else { id };
    ensure!(accused == [named], "{accused:x?}, and {id:x} is altered");

    let replacement = finished(&world, &pod).await?;
    ensure!(replacement.reason == "Corrupt", "{replacement:?}");
    is_whole_without(&world, id).await?;
    let alarms = world.etcd.alarms().await?;
    ensure!(alarms.is_empty(), "{alarms:?} stand");
    for pod in world.etcd.pod_names() {
        let told = value(&world, &pod).await?;
        ensure!(told == RIGHT, "{pod} says {told:?}");
    }
    let after = write_some(&world.etcd).await?;
    after.assert_nothing_lost(&world.etcd).await?;
    before.assert_nothing_lost(&world.etcd).await?;
    all_have_the_same(&world).await?;
    Ok(world)
}

/// etcd's periodic check takes the leader's data for right: where that is the wrong one, it accuses
/// a follower. A new member in the place of that follower would be filled with the wrong data.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_accused_by_mistake_is_not_replaced() -> Result<()> {
    let world = protected("corrupt-mistaken", EtcdVersion::V3_7, "Auto").await?;
    let mut client = world.etcd.connect().await?;
    client.put(KEY, RIGHT, None).await?;
    let leader = world.etcd.leader().await?;
    let other = world.etcd.followers().await?.remove(0);
    let id = world.etcd.member(&other).await?.id;
    let seq = world.last_seq().await?;
    alter(&world, &leader, WRONG, Altered::GoesOn).await?;
    accuse(&world, id).await?;
    world
        .reported("DataProtected", |c| {
            c.reason == "Mistaken" && c.message.contains(&leader) && c.message.contains(&other)
        })
        .await?;
    // Not even where a person asks for it.
    request(&world, &format!("{id:x}")).await?;
    world
        .reported("DataProtected", |c| c.reason == "OtherDiffers")
        .await?;
    ensure!(world.last_seq().await? == seq, "something was permitted");

    // What the message says to do. The next check accuses the right one.
    request(&world, "").await?;
    world.etcd.move_leader(&other).await?;
    world.etcd.disarm().await?;
    let wrong = world.etcd.member(&leader).await?.id;
    accuse(&world, wrong).await?;
    finished(&world, &leader).await?;
    is_whole_without(&world, wrong).await?;
    for pod in world.etcd.pod_names() {
        let told = value(&world, &pod).await?;
        ensure!(told == RIGHT, "{pod} says {told:?}");
    }
    world.close().await
}

/// Nothing but the alarm is against these members: their data is that of the others.
#[tokio::test(flavor = "multi_thread")]
async fn an_alarm_that_nothing_confirms_replaces_the_member_only_if_a_person_insists() -> Result<()>
{
    let world = protected("corrupt-alleged", EtcdVersion::V3_7, "Auto").await?;
    let before = write_some(&world.etcd).await?;
    let member = world.etcd.followers().await?.remove(0);
    let id = world.etcd.member(&member).await?.id;
    let seq = world.last_seq().await?;
    accuse(&world, id).await?;
    world
        .reported("DataProtected", |c| {
            c.reason == "NotShown" && c.message.contains("all voters have the same data")
        })
        .await?;
    ensure!(world.last_seq().await? == seq, "something was permitted");
    request(&world, &format!("{id:x}")).await?;
    let replacement = finished(&world, &member).await?;
    ensure!(replacement.reason == "Accused", "{replacement:?}");
    is_whole_without(&world, id).await?;
    ensure!(world.etcd.alarms().await?.is_empty(), "an alarm stands");
    before.assert_nothing_lost(&world.etcd).await?;

    let seq = world.last_seq().await?;
    for pod in ["etcd-0", "etcd-1"] {
        accuse(&world, world.etcd.member(pod).await?.id).await?;
    }
    is_held_for_want_of_proof(&world, seq).await?;
    world.close().await
}

/// Waits until the gate says that nobody knows whose data is right. Nothing was permitted since
/// `seq`.
async fn is_held_for_want_of_proof(world: &World, seq: i64) -> Result<()> {
    world
        .reported("DataProtected", |c| {
            c.status == "False" && c.message.contains("nobody knows whose data is right")
        })
        .await?;
    ensure!(world.last_seq().await? == seq, "something was permitted");
    Ok(())
}

/// Alters the value of [`KEY`] in a member. A member that was read between a write and its commit
/// answers from that buffer until the next write, so something else is written, too.
async fn alter(world: &World, pod: &str, value: &str, then: Altered) -> Result<()> {
    let member = PodFaults::find(&world.sandbox, pod).await?;
    // The value is in the database from the next commit on.
    eventually(SOON, format!("the data of {pod} is altered"), || async {
        member.alter_data(RIGHT.as_bytes(), value.as_bytes(), then)
    })
    .await?;
    let mut client = world.etcd.connect().await?;
    // Where etcd's check was faster, its alarm refuses every write.
    match client.put("another", "value", None).await {
        Err(error) if error.to_string().contains("corrupt cluster") => {}
        answer => drop(answer?),
    }
    eventually(SOON, format!("{pod} says so"), || async {
        let told = self::value(world, pod).await?;
        ensure!(told == value, "it says {told:?}");
        Ok(())
    })
    .await
}

/// The value of [`KEY`], as this member has it.
async fn value(world: &World, pod: &str) -> Result<String> {
    let mut member = world.etcd.connect_to(pod).await?;
    let options = GetOptions::new().with_serializable();
    let answer = member.get(KEY, Some(options)).await?;
    let values = answer.kvs().iter().map(|kv| kv.value_str());
    Ok(values.collect::<Result<Vec<_>, _>>()?.concat())
}

async fn compact(world: &World) -> Result<()> {
    let mut client = world.etcd.connect().await?;
    let put = client.put("last", "one", None).await?;
    let revision = put
        .header()
        .map_or(0, etcd_client::ResponseHeader::revision);
    let physical = CompactionOptions::new().with_physical();
    client.compact(revision, Some(physical)).await?;
    Ok(())
}

/// Waits for CORRUPT alarms, and returns the ids of the members that they accuse.
async fn alarmed(world: &World) -> Result<Vec<u64>> {
    eventually(SOON, "etcd raises an alarm", || async {
        let alarms = world.etcd.alarms().await?;
        ensure!(!alarms.is_empty(), "none stands");
        Ok(alarms.iter().map(|alarm| alarm.member_id).collect())
    })
    .await
}

/// Raises a CORRUPT alarm against a member, as etcd's own check does.
async fn accuse(world: &World, id: u64) -> Result<()> {
    let mut options = AlarmOptions::new();
    options.with_member(id);
    let mut client = world.etcd.connect().await?;
    let (action, kind) = (AlarmAction::Activate, AlarmType::Corrupt);
    client.alarm(action, kind, Some(options)).await?;
    Ok(())
}
