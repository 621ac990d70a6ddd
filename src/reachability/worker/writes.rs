//! The writes of a worker.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, PostParams};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::EndpointWorker;
use crate::reachability::call::{CallError, in_time};
use crate::reachability::leftover::{self, Cleanup, EndpointWriter};
use crate::reachability::rule::{EndpointState, Verdict};
use crate::reachability::slice::{self, OwnState};

/// The age above which a read is not acted upon: the process or the machine was stopped in between.
pub(super) const FRESH: Duration = Duration::from_secs(1);

impl EndpointWorker {
    /// Writes what a round decided.
    pub(super) async fn act(
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
            self.strike(own, &lost, begun).await?;
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
    pub(super) async fn strike(
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
