//! Traces: a request that the API server traces is followed through the gate, to the members and
//! into the ledger.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use quorumgate_testbed::eventually;
use tokio::task::JoinHandle;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::asking::By;
use crate::world::{SOON, World};

/// The most requests to the API server that a permission to delete a member takes while all members
/// serve: the budget; three pods, the StatefulSet, the namespace, the member's claim, and, every
/// ten seconds, the Secrets of the authority and of the client certificate; the write of the grant.
const MOST_FOR_A_DELETE: usize = 10;

/// The same for an eviction: the `PodDisruptionBudget` as well.
const MOST_FOR_AN_EVICTION: usize = MOST_FOR_A_DELETE + 1;

/// The time in which all spans of a request arrive. Both exporters send every five seconds.
const ARRIVAL: Duration = Duration::from_secs(30);

/// A span, as the collector got it.
#[derive(Clone, Debug)]
struct Span {
    service: String,
    trace: Vec<u8>,
    id: Vec<u8>,
    parent: Vec<u8>,
    name: String,
    attributes: Vec<KeyValue>,
}

impl Span {
    fn attribute(&self, key: &str) -> &str {
        text(&self.attributes, key)
    }
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> &'a str {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.as_ref()) {
        Some(AnyValue {
            value: Some(Value::StringValue(text)),
        }) => text,
        _ => "",
    }
}

/// The spans that have arrived.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<Span>>>);

impl Spans {
    fn all(&self) -> Vec<Span> {
        let spans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spans.clone()
    }

    fn forget(&self) {
        let mut spans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spans.clear();
    }
}

#[tonic::async_trait]
impl TraceService for Spans {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut spans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for of_resource in request.into_inner().resource_spans {
            let resource = of_resource.resource.unwrap_or_default();
            let service = text(&resource.attributes, "service.name");
            let of_scopes = of_resource.scope_spans.into_iter();
            spans.extend(
                of_scopes
                    .flat_map(|of_scope| of_scope.spans)
                    .map(|span| Span {
                        service: service.to_owned(),
                        trace: span.trace_id,
                        id: span.span_id,
                        parent: span.parent_span_id,
                        name: span.name,
                        attributes: span.attributes,
                    }),
            );
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A collector on loopback.
struct Collector {
    port: u16,
    spans: Spans,
    server: JoinHandle<()>,
}

impl Collector {
    fn start() -> Result<Self> {
        let incoming = TcpIncoming::bind(([127, 0, 0, 1], 0).into())?;
        let port = incoming.local_addr()?.port();
        let spans = Spans::default();
        let service = TraceServiceServer::new(spans.clone());
        let serving = Server::builder()
            .add_service(service)
            .serve_with_incoming(incoming);
        let server = tokio::spawn(async {
            let _ = serving.await;
        });
        Ok(Self {
            port,
            spans,
            server,
        })
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_traced_from_the_api_server_to_the_write_of_the_grant() -> Result<()> {
    let collector = Collector::start()?;
    let builder = World::builder("traces").traced_at(collector.port);
    builder
        .on_a_plane_of_its_own(async |world| {
            for by in By::BOTH {
                is_traced(&world, &collector, by).await?;
            }
            world.close().await
        })
        .await
}

/// Asks for one pod after another, until a permission was given as it is when nothing comes in
/// between. Fails if every one was disturbed: by another write of the budget, after which all is
/// done again, or by a member that answers late, after which all pods are listed.
async fn is_traced(world: &World, collector: &Collector, by: By) -> Result<()> {
    let mut disturbed = Vec::new();
    for pod in ["etcd-1", "etcd-2", "etcd-0"].repeat(3) {
        // The permission that is looked at is the one of this attempt.
        collector.spans.forget();
        // The companion budget allows an eviction a moment after the cluster is whole.
        eventually(SOON, "the pod goes", || world.lets_go(by, pod)).await?;
        let trace = eventually(ARRIVAL, "the whole trace has arrived", async || {
            is_whole(&collector.spans.all(), by, pod)
        });
        let trace = trace.await;
        world.whole().await?;
        match trace {
            Ok(()) => return Ok(()),
            Err(why) => disturbed.push(format!("{pod}: {why:#}")),
        }
    }
    bail!("no {by:?} was traced as expected: {disturbed:#?}")
}

/// Fails unless the permission for this pod is one trace, with every step of the gate, and has one
/// write.
fn is_whole(spans: &[Span], by: By, pod: &str) -> Result<()> {
    let (hook, most) = match by {
        By::Delete => ("pods", MOST_FOR_A_DELETE),
        By::Eviction => ("evictions", MOST_FOR_AN_EVICTION),
    };
    let admission = answered(spans, hook, pod)?;
    ensure!(
        admission.attribute("cluster").ends_with("/etcd")
            && !admission.attribute("review").is_empty(),
        "{admission:?}"
    );
    let caller = spans.iter().find(|span| span.id == admission.parent);
    let caller = caller.context("the span of its caller is missing")?;
    ensure!(
        caller.service == "apiserver" && caller.trace == admission.trace,
        "called by {caller:?}"
    );
    let below = |top: &Span| below(spans, top);
    let step = |above: &Span, name: &str| {
        let found = below(above).into_iter().find(|span| span.name == name);
        found.with_context(|| format!("no {name:?} in {:?}", above.name))
    };
    let asked_for = |above: &Span, method: &str| {
        below(above).into_iter().any(|span| {
            span.name == "request to the API server"
                && span.attribute("http.request.method") == method
                && span.attribute("outcome") == "ok"
        })
    };
    step(admission, "turn at the ledger")?;
    let identified = step(admission, "cluster of the pod, and its ledger")?;
    ensure!(asked_for(&identified, "GET"), "the ledger was not read");
    let evidence = step(admission, "evidence and decision")?;
    let objects = step(&evidence, "Kubernetes objects")?;
    ensure!(asked_for(&objects, "GET"), "no object was read");
    step(&evidence, "members")?;
    // A replica that remembers no endpoints asks nobody at first, and then all.
    let asked = below(&evidence);
    let asked = asked.iter().filter(|span| span.name == "member");
    let answered = asked.filter(|member| member.attribute("answer") == "ok");
    let answered: BTreeSet<_> = answered
        .map(|member| member.attribute("server.address"))
        .collect();
    ensure!(answered.len() == 3, "members that answered: {answered:?}");
    let written = step(admission, "write to the ledger")?;
    ensure!(asked_for(&written, "PUT"), "the grant was not written");
    let steps = below(admission);
    let writes = steps
        .iter()
        .filter(|step| step.name == "write to the ledger");
    let writes = writes.count();
    ensure!(writes == 1, "{writes} writes of one grant");
    is_lean(&steps, most)
}

/// The span of a permission that this webhook gave.
fn answered<'a>(spans: &'a [Span], hook: &str, pod: &str) -> Result<&'a Span> {
    let mut spans = spans.iter();
    let answered = spans.find(|span| {
        span.service == "quorumgate"
            && span.name == "admission"
            && span.attribute("hook") == hook
            && span.attribute("name") == pod
            && span.attribute("verdict") == "allow"
    });
    answered.with_context(|| format!("no span of {hook} {pod}"))
}

/// The spans in a span.
fn below(spans: &[Span], top: &Span) -> Vec<Span> {
    let mut ids = BTreeSet::from([top.id.clone()]);
    let mut found = Vec::new();
    loop {
        let more = spans.iter().filter(|span| {
            span.trace == top.trace && ids.contains(&span.parent) && !ids.contains(&span.id)
        });
        let more: Vec<_> = more.cloned().collect();
        if more.is_empty() {
            return found;
        }
        ids.extend(more.iter().map(|span| span.id.clone()));
        found.extend(more);
    }
}

/// Fails if the steps of a permission have more requests to the API server than it takes, or one
/// that is about the whole cluster.
fn is_lean(steps: &[Span], most: usize) -> Result<()> {
    let requests = steps
        .iter()
        .filter(|span| span.name == "request to the API server")
        .map(|span| {
            let method = span.attribute("http.request.method");
            format!("{method} {}", span.attribute("url.path"))
        });
    let requests: Vec<String> = requests.collect();
    ensure!(requests.len() <= most, "{requests:#?}");
    let of_all = |request: &&String| !request.contains("/namespaces/");
    ensure!(!requests.iter().any(|r| of_all(&r)), "{requests:#?}");
    Ok(())
}
