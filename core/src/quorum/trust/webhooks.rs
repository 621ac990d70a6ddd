//! The webhook configurations by which the API server asks the gate, one after the other.

use std::collections::VecDeque;

/// The number of identities that are remembered: far more than there are between two writes of a
/// ledger.
const MOST: usize = 16;

/// The webhook configurations that one replica saw in force, without a gap.
///
/// The identity of the two configurations (validating and mutating) is `UID@generation` of both,
/// with a comma between them. A configuration may be changed so that the API server asks nobody,
/// and back again: only its generation tells. But a new certificate authority also makes a new
/// generation, and that is no outage. So a replica that saw every generation since a recorded one,
/// all of them in force, knows that there was no outage. A replica that missed one does not.
#[derive(Debug, Clone, Default)]
pub struct WebhookHistory {
    /// Whether the configurations are watched at all.
    watched: bool,
    /// The identities in force without a gap, the present one last.
    in_force: VecDeque<String>,
}

impl WebhookHistory {
    /// Notes the identity that is in force now; `None` if no configurations are in force.
    pub fn note(&mut self, now: Option<String>) {
        self.watched = true;
        let Some(now) = now else {
            self.in_force.clear();
            return;
        };
        match self.in_force.back() {
            Some(last) if *last == now => return,
            Some(last) if follows(last, &now) => {}
            _ => self.in_force.clear(),
        }
        if self.in_force.len() >= MOST {
            self.in_force.pop_front();
        }
        self.in_force.push_back(now);
    }

    /// Whether the gate may have been out of force since `recorded` was in force. False while
    /// nobody watches the configurations, because nothing is known then.
    pub(super) fn shows_gap_since(&self, recorded: &str) -> bool {
        self.watched && !self.reaches(recorded)
    }

    /// Whether the gate may have been out of force between `recorded` and `now`.
    pub(super) fn shows_gap_between(&self, recorded: &str, now: &str) -> bool {
        let without_a_gap = self.holds(recorded) && self.reaches(now);
        !are_the_same(recorded, now) && !without_a_gap
    }

    /// Whether the gate was in force without a gap up to `known`, in which somebody saw it in
    /// force. Another replica, or a read, may be one change ahead of this watch.
    fn reaches(&self, known: &str) -> bool {
        let is_next = |last: &String| follows(last, known);
        self.holds(known) || self.in_force.back().is_some_and(is_next)
    }

    fn holds(&self, recorded: &str) -> bool {
        let mut known = self.in_force.iter();
        known.any(|known| are_the_same(recorded, known))
    }
}

/// Whether the recorded identity is the known one. An early release recorded no generations.
fn are_the_same(recorded: &str, known: &str) -> bool {
    let uids = |identity| parts(identity).map(|(uid, _)| uid);
    recorded == known || (!recorded.contains('@') && uids(recorded).eq(uids(known)))
}

/// Whether `now` is at most one change of each configuration away from `last`.
fn follows(last: &str, now: &str) -> bool {
    let next = |((uid, last), (same, now)): (Part<'_>, Part<'_>)| {
        uid == same && (now == last || now == last.and_then(|last| last.checked_add(1)))
    };
    parts(last).count() == parts(now).count() && parts(last).zip(parts(now)).all(next)
}

/// The UID and the generation of one configuration.
type Part<'a> = (&'a str, Option<i64>);

fn parts(identity: &str) -> impl Iterator<Item = Part<'_>> {
    identity.split(',').map(|part| match part.split_once('@') {
        Some((uid, generation)) => (uid, generation.parse().ok()),
        None => (part, None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(seen: &[Option<&str>]) -> WebhookHistory {
        let mut history = WebhookHistory::default();
        for now in seen {
            history.note(now.map(str::to_owned));
        }
        history
    }

    #[test]
    fn generations_that_were_all_seen_in_force_are_the_same_and_others_are_not() {
        let seen = [Some("v@5,m@3"), Some("v@6,m@3"), Some("v@6,m@4")];
        let steady = history(&seen);
        for earlier in seen.into_iter().flatten() {
            assert!(steady.holds(earlier), "{earlier}");
        }
        for other in ["v@4,m@3", "v@5,m@4", "w@6,m@4", "v@6"] {
            assert!(!steady.holds(other), "{other}");
        }
        assert!(steady.holds("v,m"), "an early release");
        assert!(!steady.holds("w,m"));
        for gap in [
            [Some("v@5,m@3"), Some("v@7,m@3")],
            [Some("v@5,m@3"), Some("w@5,m@3")],
            [Some("v@5,m@3"), Some("v@5")],
            [Some("v@5,m@3"), None],
        ] {
            assert!(!history(&gap).holds("v@5,m@3"), "{gap:?}");
        }
        let out = history(&[Some("v@5,m@3"), None, Some("v@6,m@3")]);
        assert!(!out.holds("v@5,m@3"), "the gate was out of force");
        assert!(out.holds("v@6,m@3"));
    }

    #[test]
    fn so_many_are_remembered() {
        let mut history = WebhookHistory::default();
        for generation in 1..100 {
            history.note(Some(format!("v@{generation},m@1")));
        }
        assert_eq!(history.in_force.len(), MOST);
        assert!(history.holds("v@99,m@1") && !history.holds("v@1,m@1"));
        // What stays the same takes no further place.
        for _ in 0..100 {
            history.note(Some("v@99,m@1".to_owned()));
        }
        assert!(history.holds("v@98,m@1"));
    }

    #[test]
    fn a_gap_shows_only_to_somebody_who_watches() {
        assert!(!WebhookHistory::default().shows_gap_since("v@5,m@3"));
        assert!(history(&[None]).shows_gap_since("v@5,m@3"));
        let steady = history(&[Some("v@5,m@3"), Some("v@6,m@3")]);
        assert!(!steady.shows_gap_since("v@5,m@3"));
        assert!(steady.shows_gap_since("v@4,m@3"));
        // Another replica may have seen the next change first.
        assert!(!steady.shows_gap_since("v@7,m@3"));
        assert!(steady.shows_gap_since("v@8,m@3"));
        let out = history(&[Some("v@5,m@3"), None]);
        assert!(out.shows_gap_since("v@6,m@3"));
    }

    #[test]
    fn between_two_records_there_is_no_gap_if_both_were_seen_or_are_the_same() {
        let steady = history(&[Some("v@5,m@3"), Some("v@6,m@3")]);
        let unwatched = WebhookHistory::default();
        assert!(!steady.shows_gap_between("v@5,m@3", "v@6,m@3"));
        assert!(unwatched.shows_gap_between("v@5,m@3", "v@6,m@3"));
        assert!(!unwatched.shows_gap_between("v@5,m@3", "v@5,m@3"));
        assert!(!unwatched.shows_gap_between("v,m", "v@5,m@3"));
        assert!(steady.shows_gap_between("v@4,m@3", "v@6,m@3"));
        // A read may be one change ahead of the watch, and no more.
        assert!(!steady.shows_gap_between("v@6,m@3", "v@7,m@3"));
        assert!(!steady.shows_gap_between("v@5,m@3", "v@7,m@4"));
        assert!(steady.shows_gap_between("v@6,m@3", "v@8,m@3"));
        assert!(steady.shows_gap_between("v@6,m@3", "w@7,m@3"));
        assert!(steady.shows_gap_between("v@4,m@3", "v@7,m@3"));
    }
}
