//! The loop that writes this replica's endpoint and strikes the endpoints of lost peers.
//!
//! Two replicas that do not reach each other must not strike each other at the same time: the
//! Service would be left without an endpoint. So every write is a compare-and-swap on the
//! resourceVersion, and a strike takes two writes. The striking replica first writes to its own
//! slice, at the version at which it saw its own endpoint ready, and then to the peer's slice, at
//! the version of the same read. A peer that read the slices before the first write can no longer
//! strike this replica, since the version changed. A peer that reads them after the second write
//! sees itself struck, and strikes nobody. So of any number of replicas that strike each other, the
//! last one stays in the Service.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::call::{CallError, in_time};
use super::leftover::{self, Cleanup, EndpointWriter};
use super::page::PeerPage;
use super::probe::Prober;
use super::rule::{EndpointState, PeerAnswer, Round, Rule, Verdict};
use super::slice::{self, Myself, OwnState, SliceWriter};
use crate::clock::{Clock, monotonic_now};
use crate::lists;
use crate::named;
use crate::serve::admin::Checks;
use crate::telemetry::metrics::Metrics;

/// The interval of rounds. A round probes the peers and reads the slices.
const PERIOD: Duration = Duration::from_millis(500);
/// How often the Service is read, to see whether it has a selector.
const ASKED: Duration = Duration::from_secs(2);
/// How long after a change of the selector leftovers are taken out. By then every replica has seen
/// the change, and none writes what another one takes out.
const SETTLED: Duration = Duration::from_secs(5);
/// The age above which a read is not acted upon: the process or the machine was stopped in between.
const FRESH: Duration = Duration::from_secs(1);
/// The time for which a repeated problem is not logged again.
const AGAIN: Duration = Duration::from_secs(30);

/// Maintains the endpoint of one replica.
pub struct EndpointWorker {
    me: Myself,
    slices: Api<EndpointSlice>,
    services: Api<Service>,
    endpoints: Api<Endpoints>,
    prober: Prober,
    rule: Rule,
    /// The peers to probe in the next round: address by pod name.
    peers: BTreeMap<String, SocketAddr>,
    /// The writer of the endpoints, and since when it is known; `None` before the Service was read.
    writer: Option<(EndpointWriter, Instant)>,
    asked: Option<Instant>,
    ready: Arc<Checks>,
    view: PeerPage,
    leaving: CancellationToken,
    clock: Clock,
    metrics: Arc<Metrics>,
    told: Option<Instant>,
}

impl EndpointWorker {
    /// A worker for the replica `me`. Its endpoint is ready while `ready` holds, and is taken out
    /// when `leaving` is cancelled.
    ///
    /// # Errors
    ///
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
            services: Api::namespaced(client.clone(), &me.namespace),
            endpoints: Api::namespaced(client, &me.namespace),
            prober: Prober::new()?,
            rule: Rule::new(&me.pod),
            peers: BTreeMap::new(),
            writer: None,
            asked: None,
            ready,
            view: PeerPage::default(),
            leaving,
            clock,
            metrics,
            told: None,
            me,
        })
    }

    /// The page that this replica shows its peers.
    pub fn view(&self) -> PeerPage {
        self.view.clone()
    }

    /// Runs rounds until `ending` is cancelled.
    pub async fn run(mut self, ending: CancellationToken) {
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

    async fn round(&mut self) {
        let begun = monotonic_now();
        let is_to_ask = self.asked.is_none_or(|asked| begun - asked >= ASKED);
        let by_selector = self
            .writer
            .is_some_and(|(writer, _)| writer == EndpointWriter::Selector);
        if by_selector && !is_to_ask {
            return;
        }
        let of_service = format!("{}={}", slice::SERVICE, self.me.service);
        let listing = ListParams::default().labels(&of_service).match_any();
        let asked = self.peers.iter().map(|(name, address)| {
            let (prober, name) = (self.prober.clone(), name.clone());
            async move { (name, prober.ask(*address).await) }
        });
        let service = async {
            let asked = is_to_ask.then(|| {
                in_time(named::get(
                    &self.services,
                    named::OF_OBJECT,
                    &self.me.service,
                ))
            });
            futures::future::OptionFuture::from(asked).await
        };
        let listed = in_time(lists::kept(&self.slices, &listing, |_| true));
        let (listed, service, answers) = tokio::join!(listed, service, join_all(asked));
        match service {
            Some(Ok(service)) => self.found(EndpointWriter::from_service(&service), begun),
            Some(Err(error)) => self.report(&error, "who keeps the endpoints of the Service"),
            None => {}
        }
        let Some((writer, since)) = self.writer else {
            return;
        };
        let listed = match listed {
            Ok(listed) => listed,
            // An installation whose Service has a selector need not let replicas read the slices.
            Err(error) if writer == EndpointWriter::Selector && error.code() == Some(403) => return,
            Err(error) => {
                self.rule.api_unreachable();
                return self.report(&error, "the endpoints of the Service");
            }
        };
        let is_settled = since.elapsed() >= SETTLED;
        let done = match writer {
            EndpointWriter::Selector if is_settled => self.withdraw(&listed, begun).await,
            EndpointWriter::Selector => return,
            EndpointWriter::Replicas => {
                self.view.reached_api(begun);
                let verdict = self.judge(&listed, answers.into_iter().collect());
                self.act(&listed, verdict, begun, is_settled).await
            }
        };
        if let Err(error) = done
            && error.code() != Some(409)
        {
            self.report(&error, "the endpoints of the Service");
        }
    }

    /// Notes who writes the endpoints, as the Service says.
    fn found(&mut self, writer: EndpointWriter, now: Instant) {
        self.asked = Some(now);
        if self.writer.is_some_and(|(known, _)| known == writer) {
            return;
        }
        self.writer = Some((writer, now));
        let by_replicas = writer == EndpointWriter::Replicas;
        self.metrics.reachability.kept_by_replicas(by_replicas);
        let service = &self.me.service;
        if by_replicas {
            info!(
                service,
                "endpoints: the Service has no selector, so the replicas keep them"
            );
        } else {
            info!(
                service,
                "endpoints: the Service has a selector, so Kubernetes keeps them: a replica on a node that loses power is called until that node is NotReady"
            );
            self.rule = Rule::new(&self.me.pod);
            self.peers.clear();
            self.metrics.reachability.keep_peers(self.peers.keys());
            self.view.asks_nobody();
        }
    }

    fn judge(
        &mut self,
        listed: &[EndpointSlice],
        answers: BTreeMap<String, PeerAnswer>,
    ) -> Verdict {
        for (peer, answer) in &answers {
            let answers = matches!(answer, PeerAnswer::Ready(_) | PeerAnswer::Mute);
            self.metrics.reachability.peer(peer, answers);
        }
        let mut places = BTreeMap::new();
        self.peers.clear();
        for slice in listed {
            let (name, place) = (slice.name_any(), slice::place(slice));
            let Some(place) = place.filter(|_| slice::writer_of(slice) == SliceWriter::Replica)
            else {
                continue;
            };
            if name != self.me.pod {
                let endpoint = slice.endpoints.first();
                let Some(address) = endpoint.and_then(|e| slice::address(slice, e)) else {
                    continue;
                };
                self.peers.insert(name.clone(), address);
            }
            places.insert(name, place);
        }
        for address in leftover::addresses_left_over(listed) {
            places.insert(address.to_string(), EndpointState::Leftover);
            self.peers.insert(address.to_string(), address);
        }
        let verdict = self.rule.judge(&Round {
            ready: self.ready.check().is_ok(),
            listed: places,
            answers,
        });
        self.view.reaches(self.rule.reaches());
        self.metrics.reachability.keep_peers(self.peers.keys());
        verdict
    }

    /// Counts a problem, and logs it unless one was logged lately.
    fn report(&mut self, error: &CallError, what: &str) {
        self.metrics.reachability.round_failed();
        if self.told.is_some_and(|told| told.elapsed() < AGAIN) {
            return;
        }
        self.told = Some(monotonic_now());
        let namespace = &self.me.namespace;
        if error.code() == Some(403) {
            error!(
                error = %error,
                namespace,
                service = self.me.service,
                what,
                "cannot read the Service or write the EndpointSlice, so no API server calls this replica; apply the Role quorumgate-endpoints, or manifests/selector for a Service with a selector"
            );
        } else {
            warn!(error = %error, namespace, service = self.me.service, what, "cannot look after the endpoints");
        }
    }
}

impl EndpointWorker {
    /// Writes what a round decided.
    async fn act(
        &self,
        listed: &[EndpointSlice],
        verdict: Verdict,
        begun: Instant,
        is_settled: bool,
    ) -> Result<(), CallError> {
        let find = |name: &str| listed.iter().find(|slice| slice.name_any() == name);
        let standing = match (self.leaving.is_cancelled(), verdict.place) {
            (true, _) => OwnState::Leaving,
            (false, EndpointState::In) => OwnState::In,
            (false, EndpointState::Knocks) => OwnState::Knocking,
            (false, _) => OwnState::Out,
        };
        let own = match find(&self.me.pod) {
            Some(own) if self.me.is_current(own, standing) => own,
            own => return self.write_own(own, standing).await,
        };
        let lost = verdict.strike.iter().filter_map(|name| find(name));
        let lost: Vec<&EndpointSlice> = lost.collect();
        if !lost.is_empty() {
            self.mark_unready(own, &lost, begun).await?;
        }
        // As with strikes, only a replica whose own endpoint is ready takes out leftovers.
        if standing == OwnState::In && is_settled {
            let left_over = verdict.strike.iter().filter_map(|name| name.parse().ok());
            self.clean_up(
                EndpointWriter::Replicas,
                listed,
                &left_over.collect(),
                begun,
            )
            .await?;
        }
        Ok(())
    }

    /// Takes out of the replicas' slices what Kubernetes lists by now.
    pub(super) async fn withdraw(
        &self,
        listed: &[EndpointSlice],
        begun: Instant,
    ) -> Result<(), CallError> {
        self.clean_up(EndpointWriter::Selector, listed, &BTreeSet::new(), begun)
            .await
    }

    /// Writes this replica's own slice.
    async fn write_own(
        &self,
        own: Option<&EndpointSlice>,
        standing: OwnState,
    ) -> Result<(), CallError> {
        let mut slice = self.me.slice(standing);
        let params = PostParams::default();
        if let Some(own) = own {
            slice.metadata.resource_version = own.resource_version();
            slice.metadata.annotations = own.metadata.annotations.clone();
        }
        let annotations = slice.annotations_mut();
        if standing == OwnState::Knocking {
            annotations.insert(slice::KNOCKS.to_owned(), self.clock.now().to_string());
        } else {
            annotations.remove(slice::KNOCKS);
        }
        match own {
            None => in_time(self.slices.create(&params, &slice)).await?,
            Some(_) => in_time(self.slices.replace(&self.me.pod, &params, &slice)).await?,
        };
        let was = own.map(|own| slice::place(own) == Some(EndpointState::In));
        let is = standing == OwnState::In;
        self.metrics.reachability.own(is);
        if was != Some(is) {
            info!(
                ready = is,
                ?standing,
                was_ready = was,
                "endpoint of this replica changed"
            );
        }
        Ok(())
    }

    /// Sets the endpoints of lost peers to not ready, and refuses peers that ask to return.
    pub(super) async fn mark_unready(
        &self,
        own: &EndpointSlice,
        lost: &[&EndpointSlice],
        begun: Instant,
    ) -> Result<(), CallError> {
        let is_in = |slice: &EndpointSlice| slice::place(slice) == Some(EndpointState::In);
        let names = lost.iter().filter(|slice| is_in(slice));
        let names: Vec<String> = names.map(|slice| slice.name_any()).collect();
        let params = PostParams::default();
        // A peer that asks to return is not ready, so refusing it cannot empty the Service and
        // needs no write to the own slice.
        if !names.is_empty() {
            let mut mine = own.clone();
            let noted = format!("{} at {}", names.join(","), self.clock.now());
            mine.annotations_mut()
                .insert(slice::STRIKES.to_owned(), noted);
            in_time(self.slices.replace(&self.me.pod, &params, &mine)).await?;
        }
        for slice in lost {
            if begun.elapsed() > FRESH {
                return Ok(());
            }
            let name = slice.name_any();
            let struck = slice::struck((*slice).clone());
            match in_time(self.slices.replace(&name, &params, &struck)).await {
                Ok(_) if is_in(slice) => {
                    self.metrics.reachability.struck(&name);
                    warn!(
                        peer = name,
                        "replica does not answer: endpoint removed until it is back"
                    );
                }
                Ok(_) => debug!(
                    peer = name,
                    "replica that does not answer asked to return: refused"
                ),
                // Another replica struck it first, or it is back.
                Err(error) if error.is_lost_race() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes out addresses that are listed twice, and lost addresses that have no replica's slice.
    async fn clean_up(
        &self,
        writer: EndpointWriter,
        listed: &[EndpointSlice],
        lost: &BTreeSet<SocketAddr>,
        begun: Instant,
    ) -> Result<(), CallError> {
        for change in leftover::cleanups(writer, listed, lost) {
            if begun.elapsed() > FRESH {
                return Ok(());
            }
            let (what, done) = match change {
                Cleanup::Slice(slice) => {
                    let (name, params) = (slice.name_any(), PostParams::default());
                    let written = in_time(self.slices.replace(&name, &params, &slice)).await;
                    (name, written.map(drop))
                }
                Cleanup::Endpoints => {
                    let (name, params) = (&self.me.service, DeleteParams::default());
                    let deleted = in_time(self.endpoints.delete(name, &params)).await;
                    (format!("endpoints/{name}"), deleted.map(drop))
                }
            };
            match done {
                Ok(()) => info!(what, ?lost, "stale endpoints removed"),
                Err(error) if error.is_lost_race() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
