//! The loop that keeps this replica's endpoint, and strikes those of lost peers.
//!
//! Every write is a compare-and-swap. Two replicas that do not reach each other must not strike each other at the same time and leave nobody, so
//! who strikes writes to its own slice first, at the version that showed it ready, and to the peer's after that, at the version of
//! the same look. Whoever looked before the first write cannot strike it any more; whoever looks after the second sees itself struck, and strikes
//! nobody. So the last strike of any number leaves its striker in.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::page::View;
use super::probe::Prober;
use super::rule::{Answer, Round, Rule, Verdict};
use super::slice::{self, Myself, Standing};
use crate::clock::Clock;
use crate::serve::admin::Checks;
use crate::telemetry::metrics::Metrics;

/// How often peers are asked and the slices are read.
const PERIOD: Duration = Duration::from_millis(500);
/// How long the API server may take for one of these calls. Slower is as good as not at all: what was seen is too old to act on.
const PATIENCE: Duration = Duration::from_millis(450);
/// A look older than this strikes nobody: this process, or the machine, was stopped in between.
const FRESH: Duration = Duration::from_secs(1);
/// How often the same trouble is told.
const AGAIN: Duration = Duration::from_secs(30);

/// Keeps the endpoint of one replica.
pub struct Keeper {
    me: Myself,
    slices: Api<EndpointSlice>,
    services: Api<Service>,
    prober: Prober,
    rule: Rule,
    peers: BTreeMap<String, SocketAddr>,
    ready: Arc<Checks>,
    view: View,
    leaving: CancellationToken,
    clock: Clock,
    metrics: Arc<Metrics>,
    told: Option<Instant>,
}

/// Who keeps the endpoints of the Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Replicas,
    Selector,
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("the Kubernetes API did not answer within {} ms", PATIENCE.as_millis())]
    Late,
}

impl Trouble {
    fn code(&self) -> Option<u16> {
        match self {
            Self::Api(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }
}

async fn in_time<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, Trouble> {
    match timeout(PATIENCE, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Trouble::Late),
    }
}

impl Keeper {
    /// A keeper for this replica, which is ready while `ready` holds and takes itself out when `leaving` is cancelled.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new(
        me: Myself,
        client: Client,
        ready: Arc<Checks>,
        leaving: CancellationToken,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> Result<Self, rustls::Error> {
        Ok(Self {
            slices: Api::namespaced(client.clone(), &me.namespace),
            services: Api::namespaced(client, &me.namespace),
            prober: Prober::new()?,
            rule: Rule::new(&me.pod),
            peers: BTreeMap::new(),
            ready,
            view: View::default(),
            leaving,
            clock,
            metrics,
            told: None,
            me,
        })
    }

    /// What peers are to be told.
    pub fn view(&self) -> View {
        self.view.clone()
    }

    /// Keeps the endpoint until `ending` is cancelled.
    pub async fn run(mut self, ending: CancellationToken) {
        let Some(way) = ending.run_until_cancelled(self.way()).await else {
            return;
        };
        self.metrics
            .reachability
            .kept_by_replicas(way == Way::Replicas);
        let service = self.me.service.clone();
        if way == Way::Selector {
            info!(
                service,
                "endpoints: the Service has a selector, so Kubernetes keeps them: a replica on a node that loses power is called until that node is NotReady"
            );
            return ending.cancelled().await;
        }
        info!(
            service,
            "endpoints: the Service has no selector, so the replicas keep them"
        );
        let mut rounds = interval(PERIOD);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let leaving = self.leaving.clone();
        let mut told_to_leave = false;
        loop {
            tokio::select! {
                () = ending.cancelled() => return,
                _ = rounds.tick() => {}
                () = leaving.cancelled(), if !told_to_leave => told_to_leave = true,
            }
            self.round().await;
        }
    }

    /// Who keeps the endpoints: asked until it is known.
    async fn way(&mut self) -> Way {
        loop {
            match in_time(self.services.get(&self.me.service)).await {
                Ok(service) => {
                    let selector = service.spec.and_then(|spec| spec.selector);
                    return if selector.unwrap_or_default().is_empty() {
                        Way::Replicas
                    } else {
                        Way::Selector
                    };
                }
                Err(trouble) => self.tell(&trouble, "who keeps the endpoints of the Service"),
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    async fn round(&mut self) {
        let begun = Instant::now();
        let of_service = format!("{}={}", slice::SERVICE, self.me.service);
        let listing = ListParams::default().labels(&of_service).match_any();
        let asked = self.peers.iter().map(|(name, address)| {
            let (prober, name) = (self.prober.clone(), name.clone());
            async move { (name, prober.ask(*address).await) }
        });
        let (listed, answers) = tokio::join!(in_time(self.slices.list(&listing)), join_all(asked));
        let listed = match listed {
            Ok(listed) => listed.items,
            Err(trouble) => {
                self.rule.blind();
                return self.tell(&trouble, "the endpoints of the Service");
            }
        };
        self.view.reached_api(begun);
        let answers: BTreeMap<String, Answer> = answers.into_iter().collect();
        let verdict = self.judge(&listed, answers);
        let done = self.act(&listed, verdict, begun).await;
        if let Err(trouble) = done
            && trouble.code() != Some(409)
        {
            self.tell(&trouble, "the endpoints of the Service");
        }
    }

    fn judge(&mut self, listed: &[EndpointSlice], answers: BTreeMap<String, Answer>) -> Verdict {
        let replicas = listed
            .iter()
            .filter_map(|slice| Some((slice.name_any(), slice::webhooks_of(slice)?)));
        self.peers = replicas.filter(|(name, _)| *name != self.me.pod).collect();
        for (peer, answer) in &answers {
            let answers = matches!(answer, Answer::Ready(_));
            self.metrics.reachability.peer(peer, answers);
        }
        let known = self.peers.keys().chain([&self.me.pod]);
        let is_in = |name: &String| {
            let mut slices = listed.iter();
            let slice = slices.find(|slice| slice.name_any() == *name)?;
            Some((name.clone(), slice::is_in(slice)))
        };
        let verdict = self.rule.judge(&Round {
            ready: self.ready.verdict().is_ok(),
            listed: known.filter_map(is_in).collect(),
            answers,
        });
        self.view.reaches(self.rule.reaches());
        self.metrics.reachability.keep_peers(self.peers.keys());
        verdict
    }

    async fn act(
        &self,
        listed: &[EndpointSlice],
        verdict: Verdict,
        begun: Instant,
    ) -> Result<(), Trouble> {
        let find = |name: &str| listed.iter().find(|slice| slice.name_any() == name);
        let standing = match (self.leaving.is_cancelled(), verdict.ready) {
            (true, _) => Standing::Leaving,
            (false, true) => Standing::In,
            (false, false) => Standing::Out,
        };
        let own = find(&self.me.pod);
        match own {
            Some(own) if self.me.is_said_by(own, standing) => {}
            own => return self.stand(own, standing).await,
        }
        let lost = verdict.strike.iter().filter_map(|name| find(name));
        let lost: Vec<&EndpointSlice> = lost.collect();
        if let (Some(own), false) = (own, lost.is_empty()) {
            self.strike(own, &lost, begun).await?;
        }
        Ok(())
    }

    /// Writes this replica's own slice.
    async fn stand(&self, own: Option<&EndpointSlice>, standing: Standing) -> Result<(), Trouble> {
        let mut slice = self.me.slice(standing);
        let params = PostParams::default();
        match own {
            None => in_time(self.slices.create(&params, &slice)).await?,
            Some(own) => {
                slice.metadata.resource_version = own.resource_version();
                slice.metadata.annotations = own.metadata.annotations.clone();
                in_time(self.slices.replace(&self.me.pod, &params, &slice)).await?
            }
        };
        let was = own.map(slice::is_in);
        let is = standing == Standing::In;
        self.metrics.reachability.own(is);
        if was != Some(is) {
            info!(
                ready = is,
                ?standing,
                was_ready = was,
                "this replica's endpoint changed"
            );
        }
        Ok(())
    }

    /// Takes the endpoints of lost peers out.
    async fn strike(
        &self,
        own: &EndpointSlice,
        lost: &[&EndpointSlice],
        begun: Instant,
    ) -> Result<(), Trouble> {
        let names: Vec<String> = lost.iter().map(|slice| slice.name_any()).collect();
        let mut mine = own.clone();
        let noted = format!("{} at {}", names.join(","), self.clock.now());
        mine.annotations_mut()
            .insert(slice::STRIKES.to_owned(), noted);
        let params = PostParams::default();
        in_time(self.slices.replace(&self.me.pod, &params, &mine)).await?;
        for slice in lost {
            if begun.elapsed() > FRESH {
                return Ok(());
            }
            let name = slice.name_any();
            let struck = slice::struck((*slice).clone());
            match in_time(self.slices.replace(&name, &params, &struck)).await {
                Ok(_) => {
                    self.metrics.reachability.struck(&name);
                    warn!(
                        peer = name,
                        "a replica does not answer: its endpoint was taken out of the Service until it is back"
                    );
                }
                // Somebody else struck it, or it is back.
                Err(trouble) if matches!(trouble.code(), Some(404 | 409)) => {}
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(())
    }

    /// Tells of trouble, but not twice a second.
    fn tell(&mut self, trouble: &Trouble, what: &str) {
        self.metrics.reachability.trouble();
        if self.told.is_some_and(|told| told.elapsed() < AGAIN) {
            return;
        }
        self.told = Some(Instant::now());
        let namespace = &self.me.namespace;
        if trouble.code() == Some(403) {
            error!(
                error = %trouble,
                namespace,
                service = self.me.service,
                "{what}: this replica may not read the Service or keep its EndpointSlice, so nobody is sent here; apply the Role quorumgate-endpoints, or manifests/selector for a Service with a selector"
            );
        } else {
            warn!(error = %trouble, namespace, service = self.me.service, "{what} could not be looked after");
        }
    }
}

#[cfg(test)]
mod tests;
