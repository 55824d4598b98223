//! Requests as trace spans, for a collector (feature `otlp`).
//!
//! Only the attributes in this file leave the process: [`TARGET`] marks these spans, and the exporter takes no others.
//! A span has a route, not a URL: no query, token, ticket or body. A client's trace continues (W3C Trace Context). This
//! module knows no collector; without one, it creates no spans.

use http::{HeaderMap, HeaderName, Method, StatusCode};
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The target of exported spans.
pub const TARGET: &str = "proscenium::otlp";

/// Methods reported by name. A client may send any word, so others become `_OTHER`.
const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::PATCH];

/// Creates a request's span. `route` is the router's path template, if any.
pub(super) fn request(id: &str, method: &str, route: Option<&str>, run: Option<&str>, headers: &HeaderMap) -> Span {
    let method = if METHODS.iter().any(|known| known == method) { method } else { "_OTHER" };
    let name = format_args!("{method}{}{}", if route.is_some() { " " } else { "" }, route.unwrap_or_default());
    let span = tracing::info_span!(
        target: TARGET,
        "request",
        otel.name = %name,
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = route,
        http.response.status_code = Empty,
        proscenium.request = id,
        proscenium.run = run.filter(|_| route.is_some()),
        proscenium.code = Empty,
    );
    if !span.is_disabled() && headers.contains_key("traceparent") {
        let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), &Carrier(headers));
        // It fails if the span is not exported.
        let _ = span.set_parent(parent);
    }
    span
}

/// Records how the server answered.
pub(super) fn answered(span: &Span, status: StatusCode, code: Option<&str>) {
    // An unsigned number would become text: OpenTelemetry has none.
    span.record("http.response.status_code", i64::from(status.as_u16()));
    if let Some(code) = code {
        span.record("proscenium.code", code);
    }
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

/// Creates the span of a step of a request.
pub(super) fn step(name: &'static str) -> Span {
    tracing::info_span!(target: TARGET, "step", otel.name = name)
}

/// Adapts a request's headers for a propagator.
struct Carrier<'h>(&'h HeaderMap);

impl Extractor for Carrier<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}
