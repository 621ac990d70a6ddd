//! The members that a drain of nodes meets, and the order in which it works best.

use std::collections::{BTreeMap, BTreeSet};

use comfy_table::Cell;

use crate::ask::Answer;
use crate::show::{Paint, Tone, cell, table};

/// A member's pod on one of the nodes, and the answer to an eviction of it now.
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

/// Where pods may go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ground {
    /// The nodes that take new pods.
    pub(super) open: BTreeSet<String>,
    /// The clusters no two of whose members may be on one node, with the node of each member's pod.
    pub(super) homes: BTreeMap<String, BTreeMap<String, String>>,
}

/// The nodes in the order in which they are best drained, with what is met there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    nodes: Vec<(String, Vec<Met>)>,
    ground: Ground,
}

/// The outcome of an eviction during a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// The eviction passes at once.
    Goes,
    /// The eviction passes when an earlier one of the same cluster is done.
    GoesInTurn,
    /// The eviction passes, and no node is left for the next pod while these stay cordoned.
    LacksNode,
    /// The eviction waits for an earlier pod of the same cluster that has no node.
    WaitsForNode,
    /// The eviction waits until something outside the drain is repaired.
    Waits,
    /// The drain gives up.
    Stops,
}

impl Fate {
    fn from_answer(answer: &Answer) -> Self {
        match answer {
            Answer::Allowed { .. } | Answer::NoPod => Self::Goes,
            Answer::Denied { code: 429, .. } | Answer::DeniedByOthers { code: 429, .. } => {
                Self::Waits
            }
            Answer::Denied { .. }
            | Answer::DeniedByOthers { .. }
            | Answer::GateUnreachable { .. }
            | Answer::NoRight { .. } => Self::Stops,
        }
    }

    fn words(self) -> (&'static str, Tone) {
        match self {
            Self::Goes => ("evicted at once", Tone::Good),
            Self::GoesInTurn => ("evicted in turn", Tone::Good),
            Self::LacksNode => ("evicted, then Pending", Tone::Uneasy),
            Self::WaitsForNode | Self::Waits => ("waits", Tone::Uneasy),
            Self::Stops => ("stops the drain", Tone::Bad),
        }
    }
}

impl Plan {
    /// Nodes come first whose members do not serve, then those of followers, those of leaders last:
    /// a leader that is drained early is often replaced by one that is drained next. Of equals the
    /// order that was given stays.
    pub(super) fn new(nodes: &[String], met: &[Met], ground: Ground) -> Self {
        let on = |node: &String| met.iter().filter(|m| m.node == *node).cloned().collect();
        let mut nodes: Vec<(String, Vec<Met>)> =
            nodes.iter().map(|node| (node.clone(), on(node))).collect();
        nodes.sort_by_key(|(_, met)| {
            let leaders = met.iter().filter(|m| m.leads).count();
            let serving = met.iter().filter(|m| m.serves).count();
            (leaders, serving)
        });
        Self { nodes, ground }
    }

    pub(super) fn order(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|(node, _)| node.as_str())
    }

    /// Whether a drain in this order ends without a repair before it.
    pub(super) fn passes(&self) -> bool {
        self.fates().all(|(_, fate)| fate < Fate::WaitsForNode)
    }

    /// Whether a member waits for one that finds no node, as long as no node is uncordoned between
    /// two drains.
    pub(super) fn runs_out_of_nodes(&self) -> bool {
        self.fates().any(|(_, fate)| fate == Fate::WaitsForNode)
    }

    /// Whether a drain in this order cannot end: a member waits for one that finds no node, or
    /// `kubectl drain` gives up.
    pub(super) fn never_ends(&self) -> bool {
        self.fates()
            .any(|(_, fate)| matches!(fate, Fate::WaitsForNode | Fate::Stops))
    }

    /// Each answer holds for now. Of a cluster with several members on these nodes one goes, and
    /// the next goes when its successor serves.
    fn fates(&self) -> impl Iterator<Item = (&Met, Fate)> {
        let mut gone: BTreeSet<&str> = BTreeSet::new();
        let mut ground = self.ground.clone();
        let mut homeless: BTreeSet<&str> = BTreeSet::new();
        let each = self.nodes.iter().map(|(node, met)| (node, met.as_slice()));
        let all = each.flat_map(|(node, met)| met.iter().map(move |met| (node, met)));
        all.map(move |(node, met)| {
            ground.open.remove(node);
            let cluster = met.cluster.as_str();
            let fate = match Fate::from_answer(&met.answer) {
                Fate::Goes if homeless.contains(cluster) => Fate::WaitsForNode,
                Fate::Goes if !ground.moves(met, &self.nodes) => {
                    homeless.insert(cluster);
                    Fate::LacksNode
                }
                Fate::Goes if met.serves && !gone.insert(cluster) => Fate::GoesInTurn,
                fate => fate,
            };
            (met, fate)
        })
    }

    /// The table of everything that is met, in order.
    pub(super) fn picture(&self, paint: Paint) -> String {
        let rows: Vec<Vec<Cell>> = self
            .fates()
            .map(|(met, fate)| {
                let (words, tone) = fate.words();
                let is = match (met.serves, met.leads) {
                    (true, true) => "leader",
                    (true, false) => "serving",
                    (false, _) => "down",
                };
                vec![
                    cell(&met.node, Tone::Plain),
                    cell(&met.cluster, Tone::Plain),
                    cell(&met.pod, Tone::Plain),
                    cell(is, Tone::Plain),
                    cell(words, tone),
                    cell(why(fate, &met.answer), Tone::Plain),
                ]
            })
            .collect();
        if rows.is_empty() {
            return "No member of a guarded etcd cluster is on these nodes.\n".to_owned();
        }
        table(
            &["NODE", "CLUSTER", "POD", "MEMBER", "EVICTION", "MESSAGE"],
            rows,
            paint,
        )
    }

    /// The advice, in words.
    pub(super) fn advice(&self, more: &[String]) -> String {
        let order: Vec<_> = self.order().collect();
        let more = [&[String::new()], more].concat().join(" ");
        let mut told = String::new();
        if self.fates().any(|(_, fate)| fate == Fate::GoesInTurn) {
            told += "\nMembers of one cluster are evicted one after the other: the drain retries an eviction every 5 s until the member before serves again.\n";
        }
        if self.fates().any(|(_, fate)| fate == Fate::LacksNode) {
            told += "\nA node stays cordoned after its drain. A member without a node starts again when a node is uncordoned, and the next member waits for that.\n";
        }
        if self.fates().any(|(_, fate)| fate == Fate::Waits) {
            told += "\nAn eviction that waits is refused until its reason is fixed. Fix that first: kubectl quorum explain POD --eviction\n";
        }
        if self.fates().any(|(_, fate)| fate == Fate::Stops) {
            told +=
                "\nkubectl drain gives up at an eviction that stops it. Fix its reason first.\n";
        }
        told += "\nDrain one node after the other, in this order:\n";
        for node in order {
            told += &format!("  kubectl drain {node} --ignore-daemonsets{more}\n");
            if self.runs_out_of_nodes() {
                told += &format!("  kubectl uncordon {node}    # when the work on it is done\n");
            }
        }
        told
    }
}

impl Ground {
    /// Moves the member's pod to a node that is open and has no other member, best to one that is
    /// not drained as well. Returns whether there is such a node.
    fn moves(&mut self, met: &Met, drained: &[(String, Vec<Met>)]) -> bool {
        let mut anywhere = BTreeMap::new();
        let homes = self.homes.get_mut(&met.cluster).unwrap_or(&mut anywhere);
        homes.remove(&met.pod);
        let taken: BTreeSet<&String> = homes.values().collect();
        let free = self.open.iter().filter(|node| !taken.contains(node));
        let stays = |node: &&String| !drained.iter().any(|(other, _)| other == *node);
        let Some(node) = free.clone().find(stays).or_else(|| free.clone().next()) else {
            return false;
        };
        let node = node.clone();
        homes.insert(met.pod.clone(), node);
        true
    }
}

fn why(fate: Fate, answer: &Answer) -> &str {
    match fate {
        Fate::LacksNode => return "no other node takes it while these are cordoned",
        Fate::WaitsForNode => return "until the member before it has a node",
        Fate::Goes | Fate::GoesInTurn | Fate::Waits | Fate::Stops => {}
    }
    match answer {
        Answer::Allowed { warnings } => warnings.first().map_or("", String::as_str),
        // The pod is named before already.
        Answer::Denied { message, .. } => message.split_once(": ").map_or(message, |(_, why)| why),
        Answer::DeniedByOthers { message, .. }
        | Answer::GateUnreachable { message }
        | Answer::NoRight { message } => message,
        Answer::NoPod => "already deleted",
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
        Answer::Allowed {
            warnings: Vec::new(),
        }
    }

    fn no(code: u16) -> Answer {
        Answer::Denied {
            code,
            reason: "NoHeadroom".into(),
            message: "it is needed".into(),
            causes: Vec::new(),
        }
    }

    fn nodes() -> Vec<String> {
        ["a", "b", "c"].map(str::to_owned).to_vec()
    }

    fn plan(nodes: &[String], met: &[Met]) -> Plan {
        let open = ["a", "b", "c", "d"].map(str::to_owned).into();
        let homes = BTreeMap::new();
        Plan::new(nodes, met, Ground { open, homes })
    }

    fn fates(plan: &Plan) -> Vec<Fate> {
        plan.fates().map(|(_, fate)| fate).collect()
    }

    #[test]
    fn members_that_may_not_share_a_node_run_out_of_nodes() {
        let met = [
            met("a", "etcd-0", true, false, yes()),
            met("b", "etcd-1", true, false, yes()),
        ];
        let homes = ["a", "b", "c"].map(str::to_owned);
        let homes = ["etcd-0", "etcd-1", "etcd-2"]
            .map(str::to_owned)
            .into_iter()
            .zip(homes);
        let homes = BTreeMap::from([("db/etcd".to_owned(), homes.collect())]);
        let on = |open: &[&str]| {
            let open = open.iter().map(|node| (*node).to_owned()).collect();
            let homes = homes.clone();
            Plan::new(&nodes()[..2], &met, Ground { open, homes })
        };
        // etcd-1 goes to the node that etcd-0 left, which is cordoned.
        let three = on(&["a", "b", "c"]);
        assert_eq!(fates(&three), [Fate::LacksNode, Fate::WaitsForNode]);
        assert!(three.runs_out_of_nodes() && !three.passes());
        let advice = three.advice(&["--delete-emptydir-data".to_owned()]);
        assert!(
            advice.contains(
                "kubectl drain a --ignore-daemonsets --delete-emptydir-data\n  kubectl uncordon a"
            ),
            "{advice}"
        );
        let four = on(&["a", "b", "c", "d"]);
        assert_eq!(fates(&four), [Fate::Goes, Fate::LacksNode]);
        assert!(
            !four.runs_out_of_nodes() && four.passes(),
            "the last one waits for nobody"
        );
        let five = on(&["a", "b", "c", "d", "e"]);
        assert_eq!(fates(&five), [Fate::Goes, Fate::GoesInTurn]);
        assert!(!five.advice(&[]).contains("uncordon"));
    }

    #[test]
    fn dead_members_go_first_and_leaders_last() {
        let plan = plan(
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
        let plan = plan(
            &nodes(),
            &[
                met("a", "etcd-0", true, false, yes()),
                met("b", "etcd-1", true, false, yes()),
            ],
        );
        assert_eq!(fates(&plan), [Fate::Goes, Fate::GoesInTurn]);
        assert!(plan.passes());
        assert!(plan.advice(&[]).contains("one after the other"));
    }

    #[test]
    fn a_refusal_that_may_pass_waits_and_one_that_may_not_stops_the_drain() {
        for (code, fate) in [(429, Fate::Waits), (403, Fate::Stops)] {
            let met = vec![met("a", "etcd-0", true, false, no(code))];
            let plan = plan(&nodes()[..1], &met);
            assert_eq!(plan.fates().next().unwrap().1, fate);
            assert!(!plan.passes());
            assert!(plan.picture(Paint::Never).contains("it is needed"));
        }
    }

    #[test]
    fn nodes_without_members_have_nothing_to_wait_for() {
        let plan = plan(&nodes(), &[]);
        assert!(plan.passes());
        assert!(plan.picture(Paint::Never).starts_with("No member"));
    }
}
