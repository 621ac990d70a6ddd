//! The parts of the ledger, to and from a budget's status. A part that is not understood is an
//! error, so nothing is dropped on the way.

use std::collections::BTreeMap;

use crate::api::{
    CauseStatus, GrantStatus, LeaderMoveStatus, QuorumDisruptionBudget,
    QuorumDisruptionBudgetStatus, VolumeStatus, cause_kind,
};
use crate::quorum::{
    Cause, ExpectedVoters, Grant, GrantKind, Grants, LeaderMove, PodName, PodUid, TrustRecord,
    Volume, VolumeRecord, VolumeRecords,
};

/// The version of the ledger that this release reads and writes. It has to be raised whenever a
/// verdict comes to rest on a new field of the status. An older release drops that field, and this
/// must not look as if the field had never been there.
const SCHEMA: i64 = 3;

/// Drops the replacements, and the permissions for them: one in the old cluster would go on with a
/// member of the new one, and its permission would keep that member.
pub(super) fn drop_replacements(status: &mut QuorumDisruptionBudgetStatus) {
    status.replacements.clear();
    for grant in &mut status.grants {
        grant
            .causes
            .retain(|cause| cause.kind != cause_kind::REPLACE);
    }
    status.grants.retain(|grant| !grant.causes.is_empty());
}

/// The version of ledgers that name none.
const FIRST_SCHEMA: i64 = 1;

/// Whether this release knows every field of a status on which verdicts rest. A write replaces the
/// whole status, so a release that does not know a field would drop it.
///
/// # Errors
/// The first field that is not known, for people.
pub(super) fn is_understood(status: &QuorumDisruptionBudgetStatus) -> Result<(), String> {
    let version = status.ledger.schema_version.unwrap_or(FIRST_SCHEMA);
    if version > SCHEMA {
        return Err(format!(
            "its ledger is of schema version {version}, this release knows {SCHEMA}: a newer release of the gate wrote it, and this one writes nothing to it; install the newer one again"
        ));
    }
    let unknown = status.unknown.keys().map(|field| format!("status.{field}"));
    let in_ledger = status.ledger.unknown.keys();
    let in_ledger = in_ledger.map(|field| format!("status.ledger.{field}"));
    let in_records = status.recorded_deletes.unknown.keys();
    let in_records = in_records.map(|field| format!("status.recordedDeletes.{field}"));
    match unknown.chain(in_ledger).chain(in_records).next() {
        None => Ok(()),
        Some(field) => Err(format!(
            "it has a field {field} that this release does not know, so it writes nothing to it; a newer release of the gate is needed"
        )),
    }
}

/// Puts the version of the ledger into a status.
pub(super) fn write_schema(status: &mut QuorumDisruptionBudgetStatus) {
    status.ledger.schema_version = Some(SCHEMA);
}

/// The grants in a status.
///
/// # Errors
/// The part that is not understood, for people.
pub(super) fn read_grants(status: &QuorumDisruptionBudgetStatus) -> Result<Grants, String> {
    let mut entries = BTreeMap::new();
    for grant in &status.grants {
        let (member, grant) = read_grant(grant)?;
        if entries.insert(member.clone(), grant).is_some() {
            return Err(format!("{member} has two entries in status.grants"));
        }
    }
    let last_seq = natural("status.ledger.lastSeq", status.ledger.last_seq)?;
    Ok(Grants::recorded(entries, last_seq))
}

/// Puts the grants into a status, in place of those that it held.
pub(super) fn write_grants(
    grants: &Grants,
    status: &mut QuorumDisruptionBudgetStatus,
) -> Result<(), String> {
    let entries: Result<Vec<_>, _> = grants
        .iter()
        .map(|(member, grant)| write_grant(member, grant))
        .collect();
    status.grants = entries?;
    status.ledger.last_seq = integer(grants.last_seq())?;
    Ok(())
}

/// The budget's record of the trust of its ledger.
pub fn trust_record(budget: &QuorumDisruptionBudget) -> TrustRecord {
    let ledger = budget.status.as_ref().map(|status| status.ledger.clone());
    let ledger = ledger.unwrap_or_default();
    TrustRecord {
        budget: budget.metadata.uid.clone().unwrap_or_default(),
        only_warns: budget.only_warns(),
        trusted_in: ledger.budget_uid.filter(|_| ledger.trusted),
        epoch: ledger.epoch,
        suspended: ledger.suspended,
        in_force_by: ledger.in_force_by,
        because: ledger.untrusted_because,
    }
}

/// Puts the record of trust into a status. An untrusted ledger keeps the UID of the budget in which
/// it was trusted last. Nobody reads that UID before the ledger is trusted again.
pub(super) fn write_trust(record: TrustRecord, status: &mut QuorumDisruptionBudgetStatus) {
    let TrustRecord {
        budget: _,
        only_warns: _,
        trusted_in,
        epoch,
        suspended,
        in_force_by,
        because,
    } = record;
    let ledger = &mut status.ledger;
    ledger.trusted = trusted_in.is_some();
    ledger.budget_uid = trusted_in.or(ledger.budget_uid.take());
    ledger.epoch = epoch;
    ledger.suspended = suspended;
    ledger.in_force_by = in_force_by;
    ledger.untrusted_because = because;
}

/// The expected voters in a status; none if nothing was recorded.
pub(super) fn read_expected(
    status: &QuorumDisruptionBudgetStatus,
) -> Result<ExpectedVoters, String> {
    let count = |what: &str, number: Option<i32>| {
        u32::try_from(number.unwrap_or_default()).map_err(|_| format!("{what} is negative"))
    };
    Ok(ExpectedVoters {
        voters: count("status.expectedMembers", status.expected_members)?,
        replicas: count("status.observedReplicas", status.observed_replicas)?,
    })
}

/// Puts the expected voters into a status.
pub(super) fn write_expected(expected: ExpectedVoters, status: &mut QuorumDisruptionBudgetStatus) {
    let count = |number: u32| Some(i32::try_from(number).unwrap_or(i32::MAX));
    status.expected_members = count(expected.voters);
    status.observed_replicas = count(expected.replicas);
}

/// The move of leadership in a status. One that makes no sense is left out: only the pause after it
/// is lost.
pub(super) fn read_leader_move(status: &QuorumDisruptionBudgetStatus) -> Option<LeaderMove> {
    let LeaderMoveStatus { from, to, term } = status.leader_move.as_deref()?;
    Some(LeaderMove {
        from: from.parse().ok()?,
        to: to.parse().ok()?,
        term: u64::try_from(*term).ok()?,
    })
}

/// Puts a move of leadership into a status, in place of the earlier one.
pub(super) fn write_leader_move(begun: LeaderMove, status: &mut QuorumDisruptionBudgetStatus) {
    status.leader_move = Some(Box::new(LeaderMoveStatus {
        from: begun.from.to_string(),
        to: begun.to.to_string(),
        term: i64::try_from(begun.term).unwrap_or(i64::MAX),
    }));
}

/// The volumes of the members in a status. A record whose member id is no number is left out: its
/// member is recorded anew when it serves.
pub(super) fn read_volumes(status: &QuorumDisruptionBudgetStatus) -> VolumeRecords {
    let records = status.volumes.iter().filter_map(|entry| {
        let record = VolumeRecord {
            id: entry.member_id.parse().ok()?,
            pod: PodUid::new(&entry.pod_uid),
            volume: Volume {
                claim_uid: entry.claim_uid.clone(),
                volume_id: entry.volume_id.clone(),
                directory: entry.directory.clone(),
            },
        };
        Some((PodName::new(&entry.member), record))
    });
    records.collect()
}

/// Puts the volumes of the members into a status, in place of those that it held.
pub(super) fn write_volumes(records: VolumeRecords, status: &mut QuorumDisruptionBudgetStatus) {
    let entry = |(member, record): (PodName, VolumeRecord)| VolumeStatus {
        member: member.to_string(),
        member_id: record.id.to_string(),
        pod_uid: record.pod.to_string(),
        claim_uid: record.volume.claim_uid,
        volume_id: record.volume.volume_id,
        directory: record.volume.directory,
    };
    status.volumes = records.into_iter().map(entry).collect();
}

fn read_grant(entry: &GrantStatus) -> Result<(PodName, Grant), String> {
    let GrantStatus {
        member,
        causes,
        unknown,
    } = entry;
    if member.is_empty() {
        return Err("an entry of status.grants names no member".into());
    }
    nothing_unknown(member, unknown)?;
    let mut grant = Grant::default();
    for cause in causes {
        let cause = read_cause(member, cause)?;
        if grant.causes.iter().any(|c| c.what.same_kind(&cause.what)) {
            return Err(format!("the grant of {member} has two causes of one kind"));
        }
        grant.causes.push(cause);
    }
    if grant.causes.is_empty() {
        return Err(format!("the grant of {member} has no cause"));
    }
    Ok((PodName::new(member), grant))
}

fn read_cause(member: &str, entry: &CauseStatus) -> Result<Cause, String> {
    let CauseStatus {
        kind,
        uid,
        rollout,
        holder,
        timeout_seconds,
        seq,
        by,
        time,
        unknown,
    } = entry;
    nothing_unknown(member, unknown)?;
    let what = match (kind.as_str(), uid, rollout, holder, timeout_seconds) {
        (cause_kind::DELETE, Some(uid), rollout, None, None) => GrantKind::Delete {
            uid: PodUid::new(uid),
            rollout: rollout.unwrap_or_default(),
        },
        (cause_kind::DEFRAGMENT, None, None, Some(holder), Some(timeout)) => {
            GrantKind::Defragment {
                holder: holder.clone(),
                timeout_seconds: natural("timeoutSeconds", *timeout)?,
            }
        }
        (cause_kind::REPLACE, None, None, None, None) => GrantKind::Replace,
        _ => {
            return Err(format!(
                "the grant of {member} has a cause {kind:?} that this version does not understand"
            ));
        }
    };
    Ok(Cause {
        what,
        seq: natural("seq", *seq)?,
        by: by.clone(),
        at: time.clone(),
    })
}

fn write_grant(member: &PodName, grant: &Grant) -> Result<GrantStatus, String> {
    let causes: Result<Vec<_>, _> = grant.causes.iter().map(write_cause).collect();
    Ok(GrantStatus {
        member: member.to_string(),
        causes: causes?,
        unknown: BTreeMap::new(),
    })
}

fn write_cause(cause: &Cause) -> Result<CauseStatus, String> {
    let Cause { what, seq, by, at } = cause;
    let mut entry = CauseStatus {
        kind: String::new(),
        uid: None,
        rollout: None,
        holder: None,
        timeout_seconds: None,
        seq: integer(*seq)?,
        by: by.clone(),
        time: at.clone(),
        unknown: BTreeMap::new(),
    };
    match what {
        GrantKind::Delete { uid, rollout } => {
            entry.kind = cause_kind::DELETE.into();
            entry.uid = Some(uid.to_string());
            entry.rollout = rollout.then_some(true);
        }
        GrantKind::Defragment {
            holder,
            timeout_seconds,
        } => {
            entry.kind = cause_kind::DEFRAGMENT.into();
            entry.holder = Some(holder.clone());
            entry.timeout_seconds = Some(integer(*timeout_seconds)?);
        }
        GrantKind::Replace => entry.kind = cause_kind::REPLACE.into(),
    }
    Ok(entry)
}

fn nothing_unknown<V>(member: &str, unknown: &BTreeMap<String, V>) -> Result<(), String> {
    match unknown.keys().next() {
        None => Ok(()),
        Some(field) => Err(format!(
            "the grant of {member} has a field {field:?} that this version does not know"
        )),
    }
}

fn natural(what: &str, number: i64) -> Result<u64, String> {
    u64::try_from(number).map_err(|_| format!("{what} is negative"))
}

fn integer(number: u64) -> Result<i64, String> {
    i64::try_from(number).map_err(|_| format!("{number} does not fit into a status"))
}
