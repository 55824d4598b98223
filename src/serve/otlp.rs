//! Requests as spans of traces, for a collector (feature `otlp`).
//!
//! What leaves the process is what is named here and nothing else: [`TARGET`] marks these spans, and whoever exports takes no
//! others. A span says a route and not an address: no query, no token, no ticket, no body. A trace that a client began goes on
//! (W3C Trace Context). Nothing here knows a collector; where nobody collects, nothing is made.

use http::{HeaderMap, HeaderName, Method, StatusCode};
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// What marks the spans that leave.
pub const TARGET: &str = "proscenium::otlp";

/// The methods that may be said by name; a client may send any word.
const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::PATCH];

/// The span of a request: its route as the router has it, if it has any.
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
        // It fails where the span is not exported after all.
        let _ = span.set_parent(parent);
    }
    span
}

/// How the request was answered.
pub(super) fn answered(span: &Span, status: StatusCode, code: Option<&str>) {
    // A number without a sign would be told as text: OpenTelemetry has none.
    span.record("http.response.status_code", i64::from(status.as_u16()));
    if let Some(code) = code {
        span.record("proscenium.code", code);
    }
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

/// A step of a request's work.
pub(super) fn step(name: &'static str) -> Span {
    tracing::info_span!(target: TARGET, "step", otel.name = name)
}

/// A request's headers, as a propagator reads them.
struct Carrier<'h>(&'h HeaderMap);

impl Extractor for Carrier<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}
