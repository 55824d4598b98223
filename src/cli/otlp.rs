//! Traces, sent to a collector (feature `otlp`).
//!
//! What is sent are the spans of [`TARGET`] and nothing else, in batches, by a thread of its own: a collector that is slow or gone
//! costs nobody an answer. Spans that wait are bounded (2048); more are dropped, and counted in the log. Beside what is said here
//! the variables hold that OpenTelemetry gives every program, such as `OTEL_TRACES_SAMPLER`, `OTEL_EXPORTER_OTLP_HEADERS`,
//! `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_BSP_…`.

use crate::{Failure, log_filter, log_to_stderr, capture_library_logs};
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use proscenium::config::{Config, LogFormat};
use proscenium::reporter::trust;
use proscenium::serve::otlp::TARGET;
use std::io::IsTerminal;
use std::time::Duration;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;

/// How long a collector may take for one batch.
const EXPORT_TIME_MAX: Duration = Duration::from_secs(10);
/// How long the end waits until what is left is sent.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(2);

/// A collector's side of the log. When it goes, what waits is sent.
pub struct Traces(SdkTracerProvider);

impl Drop for Traces {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown_with_timeout(FLUSH_TIME_MAX) {
            tracing::warn!(%error, "the last spans did not reach the collector");
        }
    }
}

/// Begins to log, and to trace if there is a collector. Must be called outside any runtime, and the value dropped outside, too.
pub fn begin(config: &Config) -> Result<Option<Traces>, Failure> {
    let Some(collector) = &config.otlp_endpoint else {
        log_to_stderr(&config.log, config.log_format)?;
        return Ok(None);
    };
    let filter = log_filter(&config.log)?;
    let traces = Traces(provider(collector)?);
    let spans = tracing_opentelemetry::layer()
        .with_tracer(traces.0.tracer(env!("CARGO_PKG_NAME")))
        .with_context_activation(false)
        .with_location(false)
        .with_target(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(Targets::new().with_target(TARGET, Level::INFO));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match config.log_format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing::subscriber::set_global_default(Registry::default().with(lines.with_filter(filter)).with(spans))?;
    capture_library_logs()?;
    Ok(Some(traces))
}

fn provider(collector: &str) -> Result<SdkTracerProvider, Failure> {
    // A client that blocks, in the exporter's own thread: the runtime that serves has no part in it.
    let client = reqwest::blocking::ClientBuilder::from(trust::client(collector, None)?).timeout(EXPORT_TIME_MAX).build()?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{collector}/v1/traces"))
        .with_timeout(EXPORT_TIME_MAX)
        .build()?;
    let resource = Resource::builder()
        .with_service_name(env!("CARGO_PKG_NAME"))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}
