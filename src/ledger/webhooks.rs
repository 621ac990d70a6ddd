//! By which webhook configurations the API server asks the gate, and which earlier ones are the same without a gap.
//!
//! A configuration may be changed so that the API server asks nobody, and back again: it has its UID still, and only its generation tells. A new
//! certificate authority in it is one more generation as well, and no outage. So a replica that saw each generation since the one
//! that a ledger was last in force by, every one of them in force, takes them for the same. Whoever missed one does not.

use std::collections::VecDeque;

/// As many generations are remembered: far more than there are between two writings of a ledger.
const MOST: usize = 16;

/// The configurations in force now, last, and those before them since the watch last missed one. Each is `UID@generation` of both, with a comma.
#[derive(Debug, Default)]
pub(super) struct Lineage(VecDeque<String>);

impl Lineage {
    /// Takes note of what is in force now, or that nothing is.
    pub(super) fn see(&mut self, now: Option<String>) {
        let Some(now) = now else {
            self.0.clear();
            return;
        };
        match self.0.back() {
            Some(last) if *last == now => return,
            Some(last) if follows(last, &now) => {}
            _ => self.0.clear(),
        }
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back(now);
    }

    /// Whether the gate has been in force without a gap since these were written down.
    pub(super) fn holds(&self, recorded: &str) -> bool {
        self.0.iter().any(|known| are_the_same(recorded, known))
    }
}

/// Whether what was written down is what is known. The release before wrote no generations.
pub(super) fn are_the_same(recorded: &str, known: &str) -> bool {
    recorded == known
        || (!recorded.contains('@')
            && parts(recorded)
                .map(|(uid, _)| uid)
                .eq(parts(known).map(|(uid, _)| uid)))
}

/// Whether the second is at most one change of each configuration away from the first.
fn follows(last: &str, now: &str) -> bool {
    let next = |((uid, last), (same, now)): (One<'_>, One<'_>)| {
        uid == same && (now == last || now == last.and_then(|last| last.checked_add(1)))
    };
    parts(last).count() == parts(now).count() && parts(last).zip(parts(now)).all(next)
}

/// The UID and the generation of one.
type One<'a> = (&'a str, Option<i64>);

fn parts(identity: &str) -> impl Iterator<Item = One<'_>> {
    identity.split(',').map(|one| match one.split_once('@') {
        Some((uid, generation)) => (uid, generation.parse().ok()),
        None => (one, None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lineage(seen: &[Option<&str>]) -> Lineage {
        let mut lineage = Lineage::default();
        for now in seen {
            lineage.see(now.map(str::to_owned));
        }
        lineage
    }

    #[test]
    fn generations_that_were_all_seen_in_force_are_the_same_and_others_are_not() {
        let seen = [Some("v@5,m@3"), Some("v@6,m@3"), Some("v@6,m@4")];
        let steady = lineage(&seen);
        for earlier in seen.into_iter().flatten() {
            assert!(steady.holds(earlier), "{earlier}");
        }
        for other in ["v@4,m@3", "v@5,m@4", "w@6,m@4", "v@6"] {
            assert!(!steady.holds(other), "{other}");
        }
        assert!(steady.holds("v,m"), "the release before");
        assert!(!steady.holds("w,m"));
        for gap in [
            [Some("v@5,m@3"), Some("v@7,m@3")],
            [Some("v@5,m@3"), Some("w@5,m@3")],
            [Some("v@5,m@3"), None],
        ] {
            assert!(!lineage(&gap).holds("v@5,m@3"), "{gap:?}");
        }
        let out = lineage(&[Some("v@5,m@3"), None, Some("v@6,m@3")]);
        assert!(!out.holds("v@5,m@3"), "it was out of force");
        assert!(out.holds("v@6,m@3"));
    }

    #[test]
    fn so_many_are_remembered() {
        let mut lineage = Lineage::default();
        for generation in 1..100 {
            lineage.see(Some(format!("v@{generation},m@1")));
        }
        assert_eq!(lineage.0.len(), MOST);
        assert!(lineage.holds("v@99,m@1") && !lineage.holds("v@1,m@1"));
    }
}
