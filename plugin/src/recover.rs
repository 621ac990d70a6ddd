//! `kubectl quorum recover`: what the survivors of a lost quorum have, and the request to start one
//! of them alone.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use comfy_table::Cell;
use jiff::Timestamp;
use quorumgate_api::names::RECOVER;
use quorumgate_api::{MemberStatus, QuorumDisruptionBudget};
use serde_json::json;

use crate::End;
use crate::change::{annotate, confirm};
use crate::cli;
use crate::connect::{Kubernetes, budget};
use crate::show::{Paint, print, table};

pub(crate) async fn run(of: &Kubernetes, options: &cli::Recover, paint: Paint) -> Result<End> {
    let name = options.name.as_str();
    let budget = budget(of, name).await?;
    let survivors = Survivors::of(&budget);
    let Some(id) = &options.member_id else {
        print(&survivors.told(&of.namespace, name, paint))?;
        return Ok(End::Well);
    };
    let chosen = survivors.with_id(id)?;
    match &options.snapshot {
        Some(file) => check(file)?,
        None if options.without_snapshot => {}
        None => bail!(
            "save the data of {} first, and name the file: --snapshot=FILE. To go on without, add --without-snapshot:\n{}",
            chosen.name,
            saving(&of.namespace, &chosen.name)
        ),
    }
    let warning = survivors.warning(chosen);
    confirm(&warning, &options.yes)?;
    let request = format!("{id}@{}", Timestamp::now());
    annotate::<QuorumDisruptionBudget>(of, name, &json!({ RECOVER: request })).await?;
    let namespace = &of.namespace;
    print(&format!(
        "Asked the gate to start {} alone. The condition Recovered says how far it is: \
         kubectl -n {namespace} wait qdb {name} --for=condition=Recovered --timeout=30m\n",
        chosen.name
    ))?;
    Ok(End::Well)
}

/// The members of a cluster without a quorum.
struct Survivors {
    members: Vec<MemberStatus>,
    /// The last raft index that the leader is known to have committed.
    reached: Option<i64>,
    /// The gate's word on why it does not begin, or how far it is.
    said: Option<String>,
}

impl Survivors {
    fn of(budget: &QuorumDisruptionBudget) -> Self {
        let status = budget.status.clone().unwrap_or_default();
        let conditions = status.conditions.into_iter();
        let mut recovered = conditions.filter(|one| one.type_ == "Recovered");
        Self {
            members: status.members,
            reached: status.log_end.map(|end| end.raft_index),
            said: recovered.next().map(|one| one.message),
        }
    }

    /// The member with the most: by its revision, and then by what it has applied.
    fn best(&self) -> Option<&MemberStatus> {
        let with = |member: &&MemberStatus| {
            member
                .holds
                .as_ref()
                .map(|holds| (holds.revision, holds.raft_index))
        };
        self.members
            .iter()
            .filter(|m| with(m).is_some())
            .max_by_key(with)
    }

    fn with_id(&self, id: &str) -> Result<&MemberStatus> {
        let is_it = |member: &&MemberStatus| {
            let own = member.member_id.as_deref();
            own.is_some_and(|own| own.eq_ignore_ascii_case(id))
        };
        let found = self.members.iter().find(is_it);
        let found = found.with_context(|| format!("no member has the id {id}"))?;
        if found.serving {
            bail!("{} serves, so the quorum is not lost", found.name);
        }
        Ok(found)
    }

    fn table(&self, paint: Paint) -> String {
        let text = |number: Option<i64>| number.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let rows = self.members.iter().map(|member| {
            let holds = member.holds.as_ref();
            vec![
                member.name.clone(),
                member.member_id.clone().unwrap_or_else(|| "-".to_owned()),
                text(holds.map(|holds| holds.revision)),
                text(holds.map(|holds| holds.raft_index)),
                holds.map_or_else(|| "-".to_owned(), |holds| holds.cluster_id.clone()),
                text(member.db_size_bytes.filter(|_| holds.is_some())),
                member.why.clone().unwrap_or_default(),
            ]
            .into_iter()
            .map(Cell::new)
            .collect()
        });
        table(
            &[
                "MEMBER",
                "ID",
                "REVISION",
                "RAFT INDEX",
                "CLUSTER",
                "BYTES",
                "MESSAGE",
            ],
            rows.collect(),
            paint,
        )
    }

    /// The loss to expect with this member, in revisions and in raft entries.
    fn lacks(&self, chosen: &MemberStatus) -> String {
        let Some(holds) = &chosen.holds else {
            return format!(
                "Nobody knows what {} has, since it does not answer.",
                chosen.name
            );
        };
        let most = self.best().and_then(|best| best.holds.as_ref());
        let behind = most.map_or(0, |most| most.revision - holds.revision);
        let mut told = match behind {
            1.. => format!(
                "{} lacks {behind} revisions of another survivor. ",
                chosen.name
            ),
            _ => format!(
                "No survivor that answers has a higher revision than {}. ",
                chosen.name
            ),
        };
        let missing = self.reached.map_or(0, |reached| reached - holds.raft_index);
        let silent = self.members.iter();
        let silent = silent.filter(|m| m.holds.is_none() && m.name != chosen.name);
        let silent: Vec<&str> = silent.map(|member| member.name.as_str()).collect();
        if !silent.is_empty() {
            let _ = write!(
                told,
                "Nobody knows what these have: {}. ",
                silent.join(", ")
            );
        }
        let _ = if missing > 0 {
            write!(
                told,
                "At least {missing} raft entries that the leader had committed are in none of its data: each may be one revision."
            )
        } else {
            write!(
                told,
                "What the leader committed after its last report, some seconds before the loss, may be missing."
            )
        };
        told
    }

    fn told(&self, namespace: &str, name: &str, paint: Paint) -> String {
        let mut told = self.table(paint);
        if let Some(said) = &self.said {
            told += &format!("\nThe gate: {said}\n");
        }
        let Some(best) = self.best() else {
            return told
                + "\nNo member says what it has: quorum is not lost, or nobody answers. A member that was started without a quorum may answer nothing: choose one by its id, and copy member/snap/db from its volume first.\n";
        };
        let id = best.member_id.as_deref().unwrap_or_default();
        told += &format!(
            "\n{}\n\nSave its data first:\n\n{}\n\nThen have the gate start it alone:\n\n    kubectl quorum recover {name} -n {namespace} --member-id={id} --snapshot=survivor.db\n",
            self.lacks(best),
            saving(namespace, &best.name),
        );
        told
    }

    fn warning(&self, chosen: &MemberStatus) -> String {
        format!(
            "{}\n{} starts alone, with what it has. {}\nThe others are removed from etcd, and their volumes are deleted with their data. They join again with empty volumes.",
            self.table(Paint::Never),
            chosen.name,
            self.lacks(chosen),
        )
    }
}

/// The commands that save a member's data.
fn saving(namespace: &str, pod: &str) -> String {
    format!(
        "    kubectl -n {namespace} port-forward pod/{pod} 12379:2379      # in a second terminal\n    etcdctl --endpoints=127.0.0.1:12379 endpoint status -w table    # its id has to be that of the member\n    etcdctl --endpoints=127.0.0.1:12379 snapshot save survivor.db"
    )
}

/// The length of the hash at the end of a snapshot, and that of a page of the database.
const HASH: usize = 32;
const PAGE: usize = 512;

/// Checks that a file is a whole snapshot, by the hash that etcd puts at its end.
fn check(file: &Path) -> Result<()> {
    let shown = file.display();
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {shown}"))?;
    let whole = bytes.len().checked_sub(HASH).filter(|length| *length > 0);
    let Some((data, hash)) = whole.map(|length| bytes.split_at(length)) else {
        bail!("{shown} is no snapshot: it is too short");
    };
    if data.len() % PAGE != 0 {
        bail!(
            "{shown} is no snapshot of `etcdctl snapshot save`: it has no hash at its end. A copy of member/snap/db has none either: go on with --without-snapshot, and keep the copy"
        );
    }
    let found = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, data);
    if found.as_ref() != hash {
        bail!("{shown} is damaged: its hash is another one. Save it again");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use quorumgate_api::{HeldStatus, MemberRole};

    use super::*;

    fn member(name: &str, id: &str, holds: Option<(i64, i64)>) -> MemberStatus {
        let status =
            json!({"name": name, "memberID": id, "role": MemberRole::Voter, "serving": false});
        MemberStatus {
            holds: holds.map(|(revision, raft_index)| HeldStatus {
                cluster_id: "cdf818194e3a8c32".to_owned(),
                raft_index,
                revision,
            }),
            ..serde_json::from_value(status).unwrap()
        }
    }

    fn survivors() -> Survivors {
        Survivors {
            members: vec![
                member("etcd-0", "a0", None),
                member("etcd-1", "b1", Some((90, 95))),
                member("etcd-2", "c2", Some((100, 107))),
            ],
            reached: Some(110),
            said: None,
        }
    }

    #[test]
    fn the_survivors_are_listed_and_the_one_with_most_is_offered() {
        let told = survivors().told("db", "etcd", Paint::Never);
        for part in [
            "--member-id=c2",
            "pod/etcd-2 12379:2379",
            "No survivor that answers has a higher revision than etcd-2",
            "Nobody knows what these have: etcd-0",
            "At least 3 raft entries",
        ] {
            assert!(told.contains(part), "{told}");
        }
        let nobody = Survivors {
            members: vec![member("etcd-0", "a0", None)],
            ..survivors()
        };
        let told = nobody.told("db", "etcd", Paint::Never);
        assert!(told.contains("No member says what it has"), "{told}");
    }

    #[test]
    fn what_may_be_lost_with_a_member_is_said_before_it_starts_alone() {
        let all = survivors();
        let warning = all.warning(all.with_id("B1").unwrap());
        assert!(warning.contains("etcd-1 lacks 10 revisions"), "{warning}");
        assert!(warning.contains("At least 15 raft entries"), "{warning}");
        let warning = all.warning(all.with_id("a0").unwrap());
        assert!(
            warning.contains("Nobody knows what etcd-0 has"),
            "{warning}"
        );
        let error = all.with_id("ff").unwrap_err().to_string();
        assert!(error.contains("no member has the id ff"), "{error}");
    }

    #[test]
    fn a_snapshot_is_whole_or_it_is_said_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("survivor.db");
        let checked = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            check(&file).map_err(|error| error.to_string())
        };
        let data = vec![7; 2 * PAGE];
        let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &data);
        let whole = [&data[..], hash.as_ref()].concat();
        assert_eq!(checked(&whole), Ok(()));
        let mut damaged = whole.clone();
        damaged[3] = 0;
        assert!(checked(&damaged).unwrap_err().contains("damaged"));
        assert!(checked(&data).unwrap_err().contains("no hash"));
        assert!(checked(b"").unwrap_err().contains("too short"));
        let missing = check(&folder.path().join("none")).unwrap_err().to_string();
        assert!(missing.contains("cannot read"), "{missing}");
    }
}
