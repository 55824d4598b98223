//! Exports traces to an OTLP collector (feature `otlp`).
//!
//! Only the spans of [`TARGET`] are exported. A separate thread sends them in batches, so a slow or absent collector
//! delays no response. The queue holds 2048 spans; the exporter drops further spans and logs their number.
//! OpenTelemetry's standard variables also apply, such as `OTEL_TRACES_SAMPLER`, `OTEL_EXPORTER_OTLP_HEADERS`,
//! `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_BSP_…`.

use super::log_output::LogOutput;
use crate::{Failure, capture_library_logs, log_filter, log_to_stderr};
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use proscenium::config::{Config, LogFormat};
use proscenium::meter::Counter;
use proscenium::serve::telemetry::otlp::TARGET;
use proscenium_reporter::trust;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;

/// The time limit for sending one batch to the collector.
const EXPORT_TIME_MAX: Duration = Duration::from_secs(10);
/// The time limit for sending the last spans at shutdown.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(2);

/// The running exporter. Dropping it sends the queued spans.
pub struct Traces(SdkTracerProvider);

impl Drop for Traces {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown_with_timeout(FLUSH_TIME_MAX) {
            tracing::warn!(%error, "the last spans did not reach the collector");
        }
    }
}

/// Starts logging, and tracing if a collector is configured. Also returns the count of lines that could not be written.
///
/// The caller must call this, and drop the returned value, outside any async runtime: the exporter blocks.
pub fn start(config: &Config) -> Result<(Arc<Counter>, Option<Traces>), Failure> {
    let Some(collector) = &config.otlp_endpoint else {
        return Ok((log_to_stderr(&config.log, config.log_format)?, None));
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
    let output = LogOutput::default();
    let lost_lines = output.lost_lines.clone();
    let lines = tracing_subscriber::fmt::layer().with_writer(move || output.clone()).log_internal_errors(false);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match config.log_format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing::subscriber::set_global_default(Registry::default().with(lines.with_filter(filter)).with(spans))?;
    capture_library_logs()?;
    Ok((lost_lines, Some(traces)))
}

fn provider(collector: &str) -> Result<SdkTracerProvider, Failure> {
    // The exporter's own thread uses this blocking client, so it does not need the server's runtime.
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
