//! Traces by OTLP, off unless a collector is given.
//!
//! Each admission request is a span, with a span in it for each step and for each question to the
//! Kubernetes API or to a member. The span continues the trace that the API server names in the
//! request's `traceparent` (W3C Trace Context). The gate names no trace in its own requests,
//! because an API server follows nobody's trace but an administrator's.
//!
//! The spans have a target of their own and the level `TRACE`, which the log's default filter
//! leaves out. Without a collector nobody is interested in them, and none is made.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderMap;
use opentelemetry::KeyValue;
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig};
use opentelemetry_otlp::{
    ExporterBuildError, SpanExporter, WithExportConfig as _, WithTonicConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Level, Span, Subscriber, enabled};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;

/// The target of all spans that are traced.
pub const TRACED: &str = "quorumgate::traced";

/// The name under which the collector knows this program.
const SERVICE: &str = "quorumgate";

/// How long the last spans may take on their way to the collector, at the end of the process.
const LAST_SPANS: Duration = Duration::from_secs(3);

/// The collector that takes the traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collector {
    /// The URL. `http` is plain; `https` needs `authorities`.
    pub endpoint: String,
    /// The PEM file of the authorities that sign its certificate.
    pub authorities: Option<PathBuf>,
}

/// Why no traces can be sent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL cannot be used.
    #[error("{0:?} is no URL of a collector, such as http://collector:4317: {1}")]
    Endpoint(String, #[source] ExporterBuildError),
    /// The collector is to be called by TLS, and there is nothing to know it by.
    #[error("{0} is called by TLS: name the authorities of its certificate by --otlp-ca")]
    NoAuthorities(String),
    /// There are authorities, and no TLS.
    #[error("--otlp-ca is given, and {0} is not called by TLS: it has to begin with https://")]
    NoTls(String),
    /// The file of the authorities cannot be read.
    #[error("cannot read {0}")]
    Authorities(PathBuf, #[source] io::Error),
}

/// The traces on their way to the collector. Spans that the collector does not take in time are
/// dropped, and a log line says so.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Sends traces to `collector` from now on. `instance` names this replica. Has to be called in
    /// a Tokio runtime.
    ///
    /// # Errors
    ///
    /// When the URL or the authorities cannot be used. A collector that does not answer is no
    /// error: it may come later.
    pub fn to(collector: &Collector, instance: &str) -> Result<Self, Error> {
        let Collector {
            endpoint,
            authorities,
        } = collector;
        let by_tls = endpoint.starts_with("https://");
        let mut exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint);
        match authorities {
            None if by_tls => return Err(Error::NoAuthorities(endpoint.clone())),
            Some(_) if !by_tls => return Err(Error::NoTls(endpoint.clone())),
            None => {}
            Some(file) => {
                let pem = std::fs::read(file);
                let pem = pem.map_err(|error| Error::Authorities(file.clone(), error))?;
                let authorities = Certificate::from_pem(pem);
                exporter =
                    exporter.with_tls_config(ClientTlsConfig::new().ca_certificate(authorities));
            }
        }
        let exporter = exporter.build();
        let exporter = exporter.map_err(|error| Error::Endpoint(endpoint.clone(), error))?;
        let resource = Resource::builder()
            .with_service_name(SERVICE)
            .with_attributes([
                KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
                KeyValue::new("service.instance.id", instance.to_owned()),
            ])
            .build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource)
            .build();
        Ok(Self(provider))
    }

    /// Hands the spans of [`TRACED`] to the collector, and nothing else.
    pub(super) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer(SERVICE))
            .with_location(false)
            .with_target(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(Targets::new().with_target(TRACED, LevelFilter::TRACE))
    }

    /// Sends the last spans, if the collector takes them in time.
    pub async fn end(self) {
        let last = move || self.0.shutdown_with_timeout(LAST_SPANS);
        let sent = tokio::task::spawn_blocking(last).await;
        if let Ok(Err(error)) = sent {
            tracing::warn!(%error, "last traces not sent");
        }
    }
}

/// Makes a span for a step of the admission request that is being traced. Without one the span is
/// disabled, so the work that the process begins by itself is not traced. Takes a name and fields
/// like [`tracing::trace_span`].
macro_rules! step {
    ($($name_and_fields:tt)+) => {
        if $crate::telemetry::traces::in_a_trace() {
            tracing::trace_span!(target: $crate::telemetry::traces::TRACED, $($name_and_fields)+)
        } else {
            tracing::Span::none()
        }
    };
}
pub(crate) use step;

/// Whether the caller is in a span of an admission request that is being traced.
pub(crate) fn in_a_trace() -> bool {
    enabled!(target: TRACED, Level::TRACE) && !Span::current().is_disabled()
}

/// Lets `span` continue the trace that a request's headers name, if they name one.
pub fn continue_trace(span: &Span, headers: &HeaderMap) {
    if span.is_disabled() {
        return;
    }
    let caller = TraceContextPropagator::new().extract(&Read(headers));
    // It fails where nobody takes the span but the log.
    let _ = span.set_parent(caller);
}

struct Read<'a>(&'a HeaderMap);

impl Extractor for Read<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TraceContextExt as _;
    use tracing::subscriber::with_default;
    use tracing::{trace_span, warn_span};
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    fn to(endpoint: &str, authorities: Option<&str>) -> Result<Traces, Error> {
        let collector = Collector {
            endpoint: endpoint.to_owned(),
            authorities: authorities.map(PathBuf::from),
        };
        Traces::to(&collector, "one")
    }

    fn why(endpoint: &str, authorities: Option<&str>) -> String {
        to(endpoint, authorities).unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_collector_that_cannot_be_called_is_refused_with_what_to_do() {
        crate::install_crypto_provider();
        let refused = why("collector 4317", None);
        assert!(
            refused.contains("such as http://collector:4317"),
            "{refused}"
        );
        let refused = why("https://collector:4317", None);
        assert!(refused.contains("--otlp-ca"), "{refused}");
        let refused = why("http://collector:4317", Some("ca.pem"));
        assert!(refused.contains("https://"), "{refused}");
        let refused = why("https://collector:4317", Some("/no/such/file"));
        assert!(refused.contains("/no/such/file"), "{refused}");
        to("http://127.0.0.1:9", None).unwrap().end().await;
    }

    #[test]
    fn without_a_trace_there_are_no_steps() {
        assert!(step!("a step").is_disabled());
        let log_alone = tracing_subscriber::registry().with(LevelFilter::INFO);
        with_default(log_alone, || {
            assert!(trace_span!(target: TRACED, "admission").is_disabled());
            let _other = warn_span!("other").entered();
            assert!(step!("a step").is_disabled());
        });
    }

    #[tokio::test]
    async fn a_span_continues_the_trace_of_its_caller() {
        let traces = to("http://127.0.0.1:9", None).unwrap();
        let subscriber = tracing_subscriber::registry().with(traces.layer());
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let mut headers = HeaderMap::new();
        let caller = format!("00-{trace}-b7ad6b7169203331-01");
        headers.insert("traceparent", caller.parse().unwrap());
        with_default(subscriber, || {
            let span = trace_span!(target: TRACED, "admission");
            continue_trace(&span, &headers);
            let _inside = span.enter();
            let step = step!("a step");
            let context = step.context().span().span_context().clone();
            assert_eq!(context.trace_id().to_string(), trace);
            assert!(context.is_sampled());
        });
    }
}
