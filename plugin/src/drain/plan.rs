//! What a drain of nodes meets, and the order in which it works best.

use std::collections::BTreeMap;

use comfy_table::Cell;

use crate::ask::Answer;
use crate::show::{Paint, Tone, cell, table};

/// A member's pod on one of the nodes, and what an eviction of it would be told now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Met {
    pub(super) node: String,
    /// Namespace and name.
    pub(super) cluster: String,
    pub(super) pod: String,
    pub(super) answer: Answer,
    pub(super) serves: bool,
    pub(super) leads: bool,
}

/// The nodes in the order in which they are best drained, with what is met there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    nodes: Vec<(String, Vec<Met>)>,
}

/// What becomes of an eviction during a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// It passes at once.
    Goes,
    /// It passes when an earlier one of the same cluster is done.
    GoesInTurn,
    /// It waits until something outside the drain is mended.
    Waits,
    /// The drain gives up.
    Stops,
}

impl Fate {
    fn of(answer: &Answer) -> Self {
        match answer {
            Answer::Yes { .. } | Answer::NoPod => Self::Goes,
            Answer::No { code: 429, .. } | Answer::Other { code: 429, .. } => Self::Waits,
            Answer::No { .. }
            | Answer::Other { .. }
            | Answer::Unreachable { .. }
            | Answer::NotYours { .. } => Self::Stops,
        }
    }

    fn words(self) -> (&'static str, Tone) {
        match self {
            Self::Goes => ("goes at once", Tone::Good),
            Self::GoesInTurn => ("goes in its turn", Tone::Good),
            Self::Waits => ("waits", Tone::Uneasy),
            Self::Stops => ("stops the drain", Tone::Bad),
        }
    }
}

impl Plan {
    /// Nodes come first whose members do not serve, then those of followers, those of leaders last:
    /// a leader that is drained early is often replaced by one that is drained next. Of equals the
    /// order that was given stays.
    pub(super) fn new(nodes: &[String], met: &[Met]) -> Self {
        let on = |node: &String| met.iter().filter(|m| m.node == *node).cloned().collect();
        let mut nodes: Vec<(String, Vec<Met>)> =
            nodes.iter().map(|node| (node.clone(), on(node))).collect();
        nodes.sort_by_key(|(_, met)| {
            let leaders = met.iter().filter(|m| m.leads).count();
            let serving = met.iter().filter(|m| m.serves).count();
            (leaders, serving)
        });
        Self { nodes }
    }

    pub(super) fn order(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|(node, _)| node.as_str())
    }

    /// Whether a drain in this order ends without anything being mended before.
    pub(super) fn passes(&self) -> bool {
        self.fates().all(|(_, fate)| fate < Fate::Waits)
    }

    /// Each answer holds for now. Of a cluster with several members on these nodes one goes, and
    /// the next goes when its successor serves.
    fn fates(&self) -> impl Iterator<Item = (&Met, Fate)> {
        let mut gone: BTreeMap<&str, bool> = BTreeMap::new();
        let all = self.nodes.iter().flat_map(|(_, met)| met);
        all.map(move |met| {
            let before = gone.entry(&met.cluster).or_default();
            let fate = Fate::of(&met.answer);
            let in_turn = fate == Fate::Goes && met.serves && *before;
            *before |= fate == Fate::Goes && met.serves;
            (met, if in_turn { Fate::GoesInTurn } else { fate })
        })
    }

    /// The table of everything that is met, in order.
    pub(super) fn picture(&self, paint: Paint) -> String {
        let rows: Vec<Vec<Cell>> = self
            .fates()
            .map(|(met, fate)| {
                let (words, tone) = fate.words();
                let is = match (met.serves, met.leads) {
                    (true, true) => "leads",
                    (true, false) => "serves",
                    (false, _) => "down",
                };
                vec![
                    cell(&met.node, Tone::Plain),
                    cell(&met.cluster, Tone::Plain),
                    cell(&met.pod, Tone::Plain),
                    cell(is, Tone::Plain),
                    cell(words, tone),
                    cell(why(&met.answer), Tone::Plain),
                ]
            })
            .collect();
        if rows.is_empty() {
            return "No member of a guarded etcd cluster is on these nodes.\n".to_owned();
        }
        table(
            &["NODE", "CLUSTER", "POD", "IS", "THEN", "WHY"],
            rows,
            paint,
        )
    }

    /// What to do, in words.
    pub(super) fn advice(&self) -> String {
        let order: Vec<_> = self.order().collect();
        let mut told = String::new();
        if self.fates().any(|(_, fate)| fate == Fate::GoesInTurn) {
            told += "\nMembers of one cluster go one after the other: the drain repeats an eviction every 5 s until the member before serves again.\n";
        }
        if self.fates().any(|(_, fate)| fate == Fate::Waits) {
            told += "\nWhat waits does so until what its reason names is mended. Mend that first: kubectl quorum explain POD --eviction\n";
        }
        if self.fates().any(|(_, fate)| fate == Fate::Stops) {
            told += "\nkubectl drain gives up at what stops it. Do first what its reason says.\n";
        }
        told += "\nOne after the other, in this order:\n";
        for node in order {
            told += &format!("  kubectl drain {node} --ignore-daemonsets --delete-emptydir-data\n");
        }
        told
    }
}

fn why(answer: &Answer) -> &str {
    match answer {
        Answer::Yes { warnings } => warnings.first().map_or("", String::as_str),
        // The pod is named before already.
        Answer::No { message, .. } => message.split_once(": ").map_or(message, |(_, why)| why),
        Answer::Other { message, .. }
        | Answer::Unreachable { message }
        | Answer::NotYours { message } => message,
        Answer::NoPod => "it has gone meanwhile",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(node: &str, pod: &str, serves: bool, leads: bool, answer: Answer) -> Met {
        Met {
            node: node.to_owned(),
            cluster: "db/etcd".to_owned(),
            pod: pod.to_owned(),
            answer,
            serves,
            leads,
        }
    }

    fn yes() -> Answer {
        Answer::Yes {
            warnings: Vec::new(),
        }
    }

    fn no(code: u16) -> Answer {
        Answer::No {
            code,
            reason: "no-headroom".into(),
            message: "it has to stay".into(),
            causes: Vec::new(),
        }
    }

    fn nodes() -> Vec<String> {
        ["a", "b", "c"].map(str::to_owned).to_vec()
    }

    #[test]
    fn dead_members_go_first_and_leaders_last() {
        let plan = Plan::new(
            &nodes(),
            &[
                met("a", "etcd-0", true, true, yes()),
                met("b", "etcd-1", true, false, yes()),
                met("c", "etcd-2", false, false, yes()),
            ],
        );
        assert_eq!(plan.order().collect::<Vec<_>>(), ["c", "b", "a"]);
    }

    #[test]
    fn of_one_cluster_one_goes_after_the_other() {
        let plan = Plan::new(
            &nodes(),
            &[
                met("a", "etcd-0", true, false, yes()),
                met("b", "etcd-1", true, false, yes()),
            ],
        );
        let fates: Vec<_> = plan.fates().map(|(_, fate)| fate).collect();
        assert_eq!(fates, [Fate::Goes, Fate::GoesInTurn]);
        assert!(plan.passes());
        assert!(plan.advice().contains("one after the other"));
    }

    #[test]
    fn a_refusal_that_may_pass_waits_and_one_that_may_not_stops_the_drain() {
        for (code, fate) in [(429, Fate::Waits), (403, Fate::Stops)] {
            let met = vec![met("a", "etcd-0", true, false, no(code))];
            let plan = Plan::new(&nodes()[..1], &met);
            assert_eq!(plan.fates().next().unwrap().1, fate);
            assert!(!plan.passes());
            assert!(plan.picture(Paint::Never).contains("it has to stay"));
        }
    }

    #[test]
    fn nodes_without_members_have_nothing_to_wait_for() {
        let plan = Plan::new(&nodes(), &[]);
        assert!(plan.passes());
        assert!(plan.picture(Paint::Never).starts_with("No member"));
    }
}
