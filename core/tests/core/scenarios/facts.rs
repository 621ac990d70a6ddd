//! The facts of a scenario: sentences of the form `<member> <what is true of the member>`, and a
//! few about the whole cluster.

use std::time::Duration;

use quorumgate_core::quorum::evidence::{AlarmKind, Unanswered};
use quorumgate_core::quorum::pod::{Containers, Node};
use quorumgate_core::quorum::{
    ClusterId, ClusterRef, EvictionBudget, EvidenceMode, GrantKind, Grants, Intent, MemberId,
    OutsideOrdinals, Override, OverrideOn, Scope, SmallCluster, Teardown, Trust,
};

use crate::world::{Answers, Inhabitant, Known, Listed, Names, World};

/// The facts of one scenario.
pub(super) struct Setting {
    pub(super) world: World,
    pub(super) grants: Grants,
}

impl Setting {
    /// Reads the first fact: the number of voters.
    pub(super) fn begin(fact: &str) -> Result<Self, String> {
        let voters = match fact.split_once(' ') {
            Some((number, "voters" | "voter")) => number.parse().ok(),
            _ => None,
        };
        Ok(Self {
            world: World::new(voters.ok_or("the number of voters comes first")?),
            grants: Grants::default(),
        })
    }

    pub(super) fn state(&mut self, fact: &str) -> Result<(), String> {
        let words: Vec<&str> = fact.split_whitespace().collect();
        let known = match words.as_slice() {
            ["all", rest @ ..] => self.of_everyone(rest),
            [who, rest @ ..] if who.len() == 1 => self.of_member(who, rest),
            words => self.of_cluster(words),
        };
        known.ok_or_else(|| format!("not a fact: {fact}"))
    }

    fn of_everyone(&mut self, words: &[&str]) -> Option<()> {
        let names: Vec<String> = self.world.members.iter().map(|m| m.name.clone()).collect();
        names.iter().try_for_each(|who| self.of_member(who, words))
    }

    fn of_member(&mut self, who: &str, words: &[&str]) -> Option<()> {
        if words == ["granted"] {
            self.index(who)?;
            let uid = format!("{who}-1").as_str().into();
            let what = GrantKind::Delete {
                uid,
                rollout: false,
            };
            self.grants = self
                .grants
                .issue(&who.into(), what, "somebody".into(), String::new());
            return Some(());
        }
        if matches!(words, ["leads"]) {
            self.world.leader = self.id(who)?;
            return Some(());
        }
        if let ["knows", "only", others @ ..] = words {
            let old = others
                .iter()
                .map(|other| self.id(other))
                .collect::<Option<_>>()?;
            self.member(who)?.list = Known::Old(old);
            return Some(());
        }
        if let ["follows", other, "in", "term", term] = words {
            let names = Names::Another(self.id(other)?, term.parse().ok()?);
            self.member(who)?.names = names;
            return Some(());
        }
        if let ["answers", "as", other] = words {
            let answers = Answers::As(self.id(other)?);
            self.member(who)?.answers = answers;
            return Some(());
        }
        if let ["was", "recorded", "as", other] = words {
            let id = self.id(other);
            self.member(who)?.pod_mut(|pod| pod.recorded_id = id);
            return Some(());
        }
        // A fact about a member beyond the voters creates its pod.
        self.world.grow_to(who);
        let member = self.member(who)?;
        of_etcd(member, words).or_else(|| of_pod(member, words))
    }

    fn index(&self, who: &str) -> Option<usize> {
        self.world.index(who)
    }

    fn id(&self, who: &str) -> Option<MemberId> {
        Some(self.world.members.get(self.index(who)?)?.id)
    }

    fn member(&mut self, who: &str) -> Option<&mut Inhabitant> {
        let index = self.index(who)?;
        self.world.members.get_mut(index)
    }

    fn of_cluster(&mut self, words: &[&str]) -> Option<()> {
        let world = &mut self.world;
        let around = &mut world.circumstances;
        match words {
            ["replicas", number] => {
                world.replicas = number.parse().ok()?;
                world.expected_under = world.replicas;
            }
            ["replicas", number, "lowered", "from", before] => {
                world.replicas = number.parse().ok()?;
                world.expected_under = before.parse().ok()?;
            }
            ["expected", number] => world.expected = number.parse().ok()?,
            ["scaled", "out", since, "ago"] => world.scaled_out_for = Some(seconds(since)?),
            ["quorum", "lost", "for", since] => world.quorum_lost_for = Some(seconds(since)?),
            ["learner", "stuck", "for", since] => {
                world.learners_are_stuck_for(seconds(since)?);
            }
            ["evidence", "readiness"] => world.policy.evidence = EvidenceMode::Readiness,
            ["policy", "single", policy] => world.policy.single_member = small(policy)?,
            ["policy", "two", policy] => world.policy.two_members = small(policy)?,
            ["ledger", "untrusted", "for", left] => {
                around.ledger = Trust::Untrusted {
                    remaining: Some(seconds(left)?),
                };
            }
            ["ledger", "suspended"] => around.ledger = Trust::Untrusted { remaining: None },
            ["no", "budget"] => around.scope = Scope::NoLedger,
            ["template", "forces", "a", "new", "cluster"] => around.forces_new_cluster = true,
            ["ordinals", "leave", "the", "target", "out"] => {
                around.outside_ordinals = Some(OutsideOrdinals {
                    set: cluster("etcd"),
                    needs: Intent::ScaleIn,
                    ignored: None,
                });
            }
            ["no", "definition"] => around.scope = Scope::NoDefinition,
            ["not", "enrolled"] => around.scope = Scope::Foreign,
            ["override", "on", what] => {
                around.valid_override = Some(Override {
                    on: lifted_on(what)?,
                    until: "2026-11-21T12:00:00Z".into(),
                });
            }
            ["teardown", what] => around.teardown = Some(teardown(what)?),
            ["shared", "with", other] => around.shared_with = Some(cluster(other)),
            ["disruption", "budget", name, "refuses"] => {
                around.disruption_budget = EvictionBudget::Refuses {
                    name: (*name).into(),
                };
            }
            ["disruption", "budgets", one, "and", other, "select", "it"] => {
                around.disruption_budget = EvictionBudget::Several {
                    names: vec![(*one).into(), (*other).into()],
                };
            }
            _ => return None,
        }
        Some(())
    }
}

/// A fact about the answers of etcd.
fn of_etcd(member: &mut Inhabitant, words: &[&str]) -> Option<()> {
    match words {
        ["serves"] => {}
        ["hangs"] => member.silent(Unanswered::Deadline),
        ["defragments"] => member.silent(Unanswered::Defragmenting),
        ["refuses", "connections"] => member.silent(Unanswered::Refused),
        ["unasked"] => member.answers = Answers::Unasked,
        ["fails", "TLS"] => member.silent(Unanswered::Tls("certificate has expired".into())),
        ["denies", "status"] => member.silent(Unanswered::Denied("permission denied".into())),
        ["reads", "slowly"] => member.read = Err(Unanswered::Deadline),
        ["loses", "its", "leader"] => member.read = Err(Unanswered::NoLeader),
        ["lists", "nobody"] => member.list = Known::Nothing(Unanswered::Deadline),
        ["leaderless"] => member.leaderless(),
        ["lags", entries] => member.applied -= entries.parse::<u64>().ok()?,
        ["NOSPACE"] => member.alarm = Some(AlarmKind::NoSpace),
        ["CORRUPT"] => member.alarm = Some(AlarmKind::Corrupt),
        ["learner"] => {
            member.listed = Listed::Learner;
            member.read = Err(Unanswered::Learner);
            member.list = Known::Nothing(Unanswered::Learner);
        }
        ["promoted"] => {
            member.listed = Listed::Voter;
            member.promoted_unawares = true;
            member.read = Err(Unanswered::Learner);
            member.list = Known::Nothing(Unanswered::Learner);
        }
        ["unstarted"] => {
            member.listed = Listed::Unstarted;
            member.silent(Unanswered::Refused);
            member.pod_mut(|pod| {
                pod.recorded_id = None;
                pod.etcd_ready = false;
            });
        }
        ["removed"] => member.listed = Listed::No,
        ["unrecorded"] => member.pod_mut(|pod| pod.recorded_id = None),
        ["in", "another", "cluster"] => member.cluster = ClusterId(0xc2),
        _ => return None,
    }
    Some(())
}

/// A fact about the pod in the Kubernetes API.
fn of_pod(member: &mut Inhabitant, words: &[&str]) -> Option<()> {
    match words {
        ["crashed"] => member.crashed(),
        ["terminating"] => member.pod_mut(|pod| pod.terminating = true),
        ["pending"] => {
            member.silent(Unanswered::NoAddress);
            member.pod_mut(|pod| {
                pod.node = Node::Unscheduled;
                pod.has_address = false;
                pod.containers = Containers::Unreported;
                pod.ready = false;
                pod.etcd_ready = false;
            });
        }
        ["creating"] => {
            member.silent(Unanswered::NoAddress);
            member.pod_mut(|pod| {
                pod.has_address = false;
                pod.containers = Containers::Creating;
                pod.ready = false;
                pod.etcd_ready = false;
            });
        }
        ["terminated"] => {
            member.silent(Unanswered::Refused);
            member.pod_mut(|pod| pod.containers = Containers::AllTerminated { finished: false });
        }
        ["finished"] => {
            member.silent(Unanswered::Refused);
            member.pod_mut(|pod| pod.containers = Containers::AllTerminated { finished: true });
        }
        ["reported", "failed"] => member.pod_mut(|pod| {
            pod.containers = Containers::EtcdFailed {
                reason: "CrashLoopBackOff".into(),
            };
        }),
        ["unready"] => member.pod_mut(|pod| {
            pod.ready = false;
            pod.etcd_ready = false;
        }),
        ["just", "started"] => {
            member.pod_mut(|pod| pod.etcd_age = Some(Duration::from_secs(9)));
        }
        ["etcd", "unready"] => member.pod_mut(|pod| pod.etcd_ready = false),
        ["pod", "unready"] => member.pod_mut(|pod| pod.ready = false),
        ["node", "not", "ready"] => member.pod_mut(|pod| pod.node = Node::NotReady),
        ["node", "out", "of", "service"] => member.pod_mut(|pod| pod.node = Node::OutOfService),
        ["node", "gone"] => member.pod_mut(|pod| pod.node = Node::Gone),
        ["node", "unread"] => member.pod_mut(|pod| pod.node = Node::Unread),
        ["outdated"] => member.pod_mut(|pod| pod.revision = Some("old".into())),
        ["without", "pod"] => member.pod = None,
        _ => return None,
    }
    Some(())
}

fn seconds(text: &str) -> Option<Duration> {
    text.strip_suffix('s')?
        .parse()
        .ok()
        .map(Duration::from_secs)
}

fn small(text: &str) -> Option<SmallCluster> {
    Some(match text {
        "allow" => SmallCluster::Allow,
        "rollout" => SmallCluster::AllowRollout,
        "never" => SmallCluster::Never,
        _ => return None,
    })
}

fn lifted_on(text: &str) -> Option<OverrideOn> {
    Some(match text {
        "pod" => OverrideOn::Pod,
        "statefulset" => OverrideOn::StatefulSet,
        "budget" => OverrideOn::Budget,
        _ => return None,
    })
}

fn teardown(text: &str) -> Option<Teardown> {
    Some(match text {
        "namespace" => Teardown::Namespace,
        "statefulset" => Teardown::StatefulSet,
        "owner" => Teardown::Owner,
        "hibernation" => Teardown::Hibernation,
        "scale-in" => Teardown::ScaleIn,
        _ => return None,
    })
}

fn cluster(name: &str) -> ClusterRef {
    ClusterRef::new("ns", name)
}
