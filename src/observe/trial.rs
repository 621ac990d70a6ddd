//! The trial of the ways to ask the members, side by side.

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use super::belonging;
use super::endpoints::{self, SharedSettings};
use super::observer::Observer;
use super::view::ClusterView;
use super::ways::credentials::credentials;
use super::ways::gather::{Known, gather};
use super::ways::read;
use crate::api::Way;
use crate::etcd::Failure;
use crate::ledger::Page;
use crate::quorum::ClusterId;

/// Most ways that are tried at one time.
const MOST_WAYS: usize = 8;

/// Most members that are asked by each way.
const MOST_MEMBERS: usize = 5;

/// The time for all of them.
const LIMIT: Duration = Duration::from_secs(3);

/// The end of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// The way by which most members answered, and of equal ones the likeliest.
    pub found: Option<Way>,
    /// The way that led farthest where no member answered by any.
    pub failed: Option<FailedWay>,
    /// The number of ways that were tried.
    pub tried: usize,
}

/// A way by which no member answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedWay {
    /// The way.
    pub way: Way,
    /// The pod that was asked.
    pub pod: String,
    /// How that failed.
    pub why: WhyFailed,
    /// Whether members have answered by it before. It is no wrong one then.
    pub has_answered: bool,
}

/// How a way failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyFailed {
    /// The member was asked.
    Asked(Failure),
    /// The certificates could not be used, in words.
    Certificates(String),
    /// A member of another etcd cluster answered than the one on record.
    OtherCluster {
        /// The cluster id on record.
        recorded: ClusterId,
        /// The cluster id of the member.
        found: ClusterId,
    },
}

impl WhyFailed {
    /// How far the way led.
    fn progress(&self) -> u8 {
        match self {
            Self::OtherCluster { .. } => 7,
            Self::Asked(Failure::Tls(obstacle)) => 2 + obstacle.progress(),
            Self::Certificates(_) => 1,
            Self::Asked(Failure::Other(_)) => 0,
        }
    }
}

impl Observer {
    /// Tries the ways to ask the members of a cluster. Meant for the background: it takes up to
    /// four seconds. `None` where no pod has an address.
    pub async fn try_ways(&self, page: &Page, view: &ClusterView) -> Option<Trial> {
        let pods: Vec<&Pod> = view.pods().iter().filter(|pod| has_address(pod)).collect();
        let pods = pods.get(..MOST_MEMBERS.min(pods.len()))?;
        let spec = view
            .pod_template()
            .or_else(|| pods.first()?.spec.as_ref())?;
        let members = &page.budget().spec.members;
        let namespace = &page.cluster.namespace;
        let named = members.container.as_deref();
        let labels = pods.first()?.metadata.labels.clone().unwrap_or_default();
        let (contents, services) = tokio::join!(
            read::referred(self.client(), namespace, spec, named),
            read::services(self.client(), namespace, &labels),
        );
        let candidates = gather(&Known {
            members,
            pod: spec,
            contents: &contents,
            services: &services,
        });
        drop(contents);
        let deadline = self.clock().instant() + LIMIT;
        let trying = candidates.into_iter().take(MOST_WAYS).map(|way| {
            let pods = pods.to_vec();
            async move {
                let answers = self.try_way(page, view, &way, &pods, deadline).await;
                (way, answers)
            }
        });
        let tried = join_all(trying).await;
        let recorded = page.status().and_then(|status| status.way.as_deref());
        Some(end(tried, recorded))
    }

    async fn try_way(
        &self,
        page: &Page,
        view: &ClusterView,
        way: &Way,
        pods: &[&Pod],
        deadline: Instant,
    ) -> Vec<(String, Result<(), WhyFailed>)> {
        let members = &page.budget().spec.members;
        let wanted = credentials(way, members);
        let tls = match self.tls(&page.cluster, wanted.as_ref()).await {
            Ok(tls) => tls,
            Err(why) => {
                let pod = pods.first().map(|pod| belonging::name(pod).to_string());
                let failed = Err(WhyFailed::Certificates(why));
                return vec![(pod.unwrap_or_default(), failed)];
            }
        };
        let shared = SharedSettings {
            namespace: &page.cluster.namespace,
            service: view.service(),
            members,
            way,
            tls,
        };
        let asked = pods.iter().filter_map(|pod| {
            let endpoint = endpoints::of_pod(pod, &shared)?;
            Some((belonging::name(pod).to_string(), endpoint))
        });
        // Pods may run another etcd besides, whose word about this cluster is worth nothing.
        let begins_anew = self.announces_bootstrap(page.budget(), view.stateful_set());
        let recorded = page.cluster_id().filter(|_| !begins_anew);
        let asked = asked.map(|(pod, endpoint)| async move {
            let answer = self.prober().try_out(&endpoint, deadline).await;
            (pod, of_cluster(recorded, answer))
        });
        join_all(asked).await
    }
}

/// Whether an answer is one of the cluster on record.
fn of_cluster(
    recorded: Option<ClusterId>,
    answer: Result<Option<ClusterId>, Failure>,
) -> Result<(), WhyFailed> {
    match (recorded, answer.map_err(WhyFailed::Asked)?) {
        (Some(recorded), Some(found)) if recorded != found => {
            Err(WhyFailed::OtherCluster { recorded, found })
        }
        _ => Ok(()),
    }
}

fn has_address(pod: &Pod) -> bool {
    crate::observe::pods::address(pod).is_some()
}

/// The answers by a way, each with its pod.
type Answers = Vec<(String, Result<(), WhyFailed>)>;

/// The end of a trial. Where members have answered by the recorded way, its failure is told: why
/// others fail says nothing.
fn end(tried: Vec<(Way, Answers)>, recorded: Option<&Way>) -> Trial {
    let number = tried.len();
    let answered = |answers: &Answers| answers.iter().filter(|(_, answer)| answer.is_ok()).count();
    let mut best: Option<(usize, &Way)> = None;
    for (way, answers) in &tried {
        let answered = answered(answers);
        if answered > best.map_or(0, |(most, _)| most) {
            best = Some((answered, way));
        }
    }
    if let Some((_, way)) = best {
        return Trial {
            found: Some(way.clone()),
            failed: None,
            tried: number,
        };
    }
    let mut failed: Option<FailedWay> = None;
    let is_tried = tried.iter().any(|(way, _)| Some(way) == recorded);
    let recorded = recorded.filter(|_| is_tried);
    let told = tried
        .into_iter()
        .filter(|(way, _)| recorded.is_none_or(|recorded| recorded == way));
    for (way, answers) in told {
        for (pod, answer) in answers {
            let Err(why) = answer else {
                continue;
            };
            let farthest = failed.as_ref().map(|failed| failed.why.progress());
            if farthest.is_none_or(|farthest| why.progress() > farthest) {
                failed = Some(FailedWay {
                    way: way.clone(),
                    pod,
                    why,
                    has_answered: recorded.is_some(),
                });
            }
        }
    }
    Trial {
        found: None,
        failed,
        tried: number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{PortSource, Scheme};
    use crate::etcd::Obstacle;
    use crate::quorum::evidence::Unanswered;

    fn way(port: u16) -> Way {
        Way {
            scheme: Scheme::Http,
            port,
            port_from: PortSource::Default,
            container: None,
            authority: None,
            identity: None,
            server_names: Vec::new(),
            source: String::new(),
        }
    }

    fn answers(all: &[Result<(), WhyFailed>]) -> Answers {
        let named = all.iter().cloned().enumerate();
        named
            .map(|(n, answer)| (format!("etcd-{n}"), answer))
            .collect()
    }

    fn refused() -> WhyFailed {
        WhyFailed::Asked(Unanswered::Refused.into())
    }

    #[test]
    fn the_way_by_which_most_members_answer_is_taken_or_the_likeliest() {
        let (yes, no) = (Ok(()), Err(refused()));
        let tried = vec![
            (way(1), answers(&[no.clone(), no.clone()])),
            (way(2), answers(&[yes.clone(), no.clone()])),
            (way(3), answers(&[yes.clone(), yes.clone()])),
            (way(4), answers(&[yes.clone(), yes])),
        ];
        assert_eq!(end(tried, None).found, Some(way(3)));
        assert_eq!(end(vec![(way(1), answers(&[no]))], None).found, None);
    }

    #[test]
    fn a_way_to_another_etcd_in_the_same_pods_is_none() {
        let (own, other) = (ClusterId(1), ClusterId(2));
        assert_eq!(of_cluster(Some(own), Ok(Some(own))), Ok(()));
        assert_eq!(
            of_cluster(None, Ok(Some(other))),
            Ok(()),
            "nothing is known"
        );
        // Whoever refuses the status is an etcd, and does not say which.
        assert_eq!(of_cluster(Some(own), Ok(None)), Ok(()));
        let (recorded, found) = (own, other);
        let not_ours = Err(WhyFailed::OtherCluster { recorded, found });
        assert_eq!(of_cluster(Some(own), Ok(Some(other))), not_ours);
        let tried = vec![
            (way(1), answers(&[not_ours.clone(), not_ours])),
            (way(2), answers(&[Err(refused()), Ok(())])),
        ];
        assert_eq!(end(tried, None).found, Some(way(2)));
    }

    #[test]
    fn of_ways_that_fail_the_one_that_led_farthest_is_told() {
        let names = WhyFailed::Asked(Failure::Tls(Obstacle::Names {
            asked: Vec::new(),
            found: Vec::new(),
        }));
        let missing = WhyFailed::Certificates("Secret ca does not exist".to_owned());
        let tried = vec![
            (way(1), answers(&[Err(refused())])),
            (way(2), answers(&[Err(missing)])),
            (way(3), answers(&[Err(refused()), Err(names.clone())])),
            (way(4), answers(&[Err(refused())])),
        ];
        let failed = end(tried.clone(), Some(&way(9))).failed.unwrap();
        assert_eq!((failed.way.port, failed.pod.as_str()), (3, "etcd-1"));
        assert_eq!(failed.why, names);
        // Members have answered by the first one, so the others are no ways at all.
        let failed = end(tried, Some(&way(1))).failed.unwrap();
        assert_eq!((failed.way.port, failed.has_answered), (1, true));
    }
}
