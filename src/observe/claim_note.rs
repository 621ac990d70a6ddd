//! The note on a member's claim: whose data the claim has.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::names::HOLDS;
use crate::quorum::HeldData;

/// The text of the annotation: whose data the claim has, and since when the cluster is guarded. A
/// claim of it that is younger and has no note was never a serving member's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimNote {
    /// The member whose data the claim has.
    pub held: HeldData,
    /// The creation of the cluster's first budget.
    pub since: Timestamp,
}

impl ClaimNote {
    /// The note in the metadata of a claim. One that nobody can read is none, and neither is one
    /// that was copied from another claim.
    pub fn read(metadata: &ObjectMeta) -> Option<Self> {
        let text = metadata.annotations.as_ref()?.get(HOLDS)?;
        let (note, claim) = text.rsplit_once(" on ")?;
        let is_own = metadata.uid.as_deref() == Some(claim);
        note.parse().ok().filter(|_| is_own)
    }

    /// The text of the note on the claim with this UID.
    pub fn on(&self, claim: &str) -> String {
        format!("{self} on {claim}")
    }
}

impl fmt::Display for ClaimNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HeldData { cluster, member } = self.held;
        let since = self.since.strftime("%Y-%m-%dT%H:%M:%SZ");
        write!(f, "member {member} of cluster {cluster} since {since}")
    }
}

impl FromStr for ClaimNote {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let ["member", member, "of", "cluster", cluster, "since", since] = words[..] else {
            return Err(());
        };
        Ok(Self {
            held: HeldData {
                cluster: cluster.parse().map_err(drop)?,
                member: member.parse().map_err(drop)?,
            },
            since: since.parse().map_err(drop)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::{ClusterId, MemberId};

    /// Tools that restore a claim, or make another one like it, copy its annotations.
    #[test]
    fn a_note_that_was_copied_to_another_claim_is_none() {
        let note = ClaimNote {
            held: HeldData {
                cluster: ClusterId(0xef37),
                member: MemberId(0x8211),
            },
            since: "2026-11-28T10:00:00Z".parse().unwrap(),
        };
        let on = |uid: &str| ObjectMeta {
            annotations: Some([(HOLDS.to_owned(), note.on("c0"))].into()),
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        };
        assert_eq!(ClaimNote::read(&on("c0")), Some(note));
        assert_eq!(ClaimNote::read(&on("c1")), None);
    }
}
