//! A writer that writes to the cluster all the time, through the API server's proxy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::cluster::{Cluster, PODS};

/// The time limit of one write. After it the next member is asked.
const ONE: Duration = Duration::from_secs(3);

/// The pause between two writes.
const PAUSE: Duration = Duration::from_millis(50);

/// The first part of the keys.
const PREFIX: &str = "try-";

/// The first key after all keys with that prefix.
const AFTER: &str = "try.";

/// The longest time without a write: an election, and the proxy's own timeout for an address that
/// is gone.
const GAP: Duration = Duration::from_secs(15);

/// The result of the writes.
struct Written {
    /// The keys whose writes were acknowledged.
    acknowledged: Vec<Value>,
    /// The longest time between two acknowledgements.
    longest_gap: Duration,
}

/// Writes until the work is done, and then reads all keys back.
///
/// # Errors
///
/// Fails if the work fails, if an acknowledged write is lost, or if no write was possible for
/// [`GAP`].
pub(crate) async fn while_writing(
    cluster: &Cluster,
    work: impl Future<Output = Result<()>>,
) -> Result<()> {
    let done = AtomicBool::new(false);
    let work = async {
        let outcome = work.await;
        done.store(true, Ordering::Relaxed);
        outcome
    };
    let (written, outcome) = tokio::join!(write(cluster, &done), work);
    outcome?;
    let written = written?;
    let stored = stored(cluster).await?;
    for key in &written.acknowledged {
        ensure!(
            stored.contains(key),
            "the write of {key} was acknowledged, and is lost"
        );
    }
    ensure!(!written.acknowledged.is_empty(), "nothing was written");
    let longest_gap = written.longest_gap;
    ensure!(
        longest_gap < GAP,
        "no write was acknowledged for {longest_gap:?}"
    );
    Ok(())
}

async fn write(cluster: &Cluster, done: &AtomicBool) -> Result<Written> {
    let mut acknowledged = Vec::new();
    let mut longest_gap = Duration::ZERO;
    let (mut last, mut number) = (Instant::now(), 0_u32);
    let mut members = PODS.iter().cycle();
    let mut member = PODS[0];
    while !done.load(Ordering::Relaxed) {
        number += 1;
        let key = base64(&format!("{PREFIX}{number:06}"))?;
        let body = json!({"key": key, "value": key}).to_string();
        let answer = timeout(ONE, cluster.post(member, 2379, "/v3/kv/put", body)).await;
        if matches!(answer, Ok(Ok(_))) {
            longest_gap = longest_gap.max(last.elapsed());
            last = Instant::now();
            acknowledged.push(key);
            sleep(PAUSE).await;
        } else {
            member = members.next().unwrap_or(&PODS[0]);
        }
    }
    longest_gap = longest_gap.max(last.elapsed());
    Ok(Written {
        acknowledged,
        longest_gap,
    })
}

/// Every stored key of the writer.
async fn stored(cluster: &Cluster) -> Result<Vec<Value>> {
    let (from, until) = (base64(PREFIX)?, base64(AFTER)?);
    let body = json!({"key": from, "range_end": until, "keys_only": true}).to_string();
    let answer = cluster.post(PODS[0], 2379, "/v3/kv/range", body).await?;
    let answer: Value = serde_json::from_str(&answer)?;
    let pairs = answer
        .get("kvs")
        .and_then(Value::as_array)
        .context("no keys")?;
    let keys = pairs.iter().filter_map(|pair| pair.get("key"));
    Ok(keys.cloned().collect())
}

/// The text as etcd's JSON encodes it.
fn base64(text: &str) -> Result<Value> {
    Ok(serde_json::to_value(ByteString(text.as_bytes().to_vec()))?)
}
