//! Request ids and the access log.
//!
//! The id is the client's `x-request-id`, or a generated one. The server returns it in the response header and in a
//! problem's `requestId`. Each request writes one log line under the target `proscenium::access`: `debug` for success,
//! `info` for client errors, `warn` for server errors. The line names the route, not the URL, so no query and no ticket
//! is ever logged.
//!
//! With the feature `otlp` each request is also a trace span, if a collector is configured.

use crate::serve::App;
use crate::serve::contract::operations::assert_described;
use crate::serve::http::problem::Problem;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::Instant;
use tracing::Instrument;

/// The request id header, in requests and responses.
pub const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// Maximum length of a client's id, in bytes.
const ID_BYTES_MAX: usize = 128;

/// Generates ids from one random number per server and one counter value per request.
#[derive(Debug)]
pub struct RequestIds {
    /// The random number, in hexadecimal digits, and a hyphen.
    server: Box<str>,
    next: AtomicU64,
}

impl RequestIds {
    /// Creates a generator. Its ids begin with these bits.
    #[must_use]
    pub fn new(server: u32) -> Self {
        Self { server: format!("{server:08x}-").into(), next: AtomicU64::new(1) }
    }

    /// Returns the client's id if it is safe to log, else a generated one.
    #[must_use]
    pub fn for_request(&self, headers: &HeaderMap) -> HeaderValue {
        if let Some(given) = headers.get(&HEADER).filter(|given| is_safe_id(given.as_bytes())) {
            return given.clone();
        }
        let mut number = itoa::Buffer::new();
        let generated = [&*self.server, number.format(self.next.fetch_add(1, Ordering::Relaxed))].concat();
        HeaderValue::try_from(generated).expect("digits are valid in a header")
    }
}

/// Returns whether an id is safe in a header, a log and a shell.
fn is_safe_id(id: &[u8]) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte))
}

/// The id as text; it was checked or generated.
#[must_use]
pub fn text(id: &HeaderValue) -> &str {
    id.to_str().unwrap_or_default()
}

/// The run that a path names, still percent-encoded.
#[must_use]
pub fn run_in_path(path: &str) -> Option<&str> {
    let run = path.strip_prefix("/v1/runs/")?.split('/').next()?;
    (!run.is_empty() && run.len() <= 3 * crate::model::id::ID_BYTES_MAX).then_some(run)
}

/// The log record of one request.
pub struct RequestRecord<'r> {
    id: &'r HeaderValue,
    method: &'r str,
    route: Option<&'r str>,
    run: Option<&'r str>,
    started: Instant,
    #[cfg(feature = "otlp")]
    span: tracing::Span,
}

impl<'r> RequestRecord<'r> {
    /// Starts a record. `route` is the router's path template; `None` if no address matched.
    #[cfg_attr(not(feature = "otlp"), expect(unused_variables, reason = "the headers carry the trace context"))]
    pub fn new(id: &'r HeaderValue, method: &'r str, route: Option<&'r str>, run: Option<&'r str>, headers: &HeaderMap) -> Self {
        Self {
            id,
            method,
            route,
            run,
            started: Instant::now(),
            #[cfg(feature = "otlp")]
            span: super::otlp::request(text(id), method, route, run, headers),
        }
    }

    /// Runs work inside the request's trace span.
    #[cfg(feature = "otlp")]
    pub fn traced<F: Future>(&self, work: F) -> tracing::instrument::Instrumented<F> {
        work.instrument(self.span.clone())
    }

    /// Runs work for the request.
    #[cfg(not(feature = "otlp"))]
    pub fn traced<F: Future>(&self, work: F) -> F {
        work
    }

    /// Writes the log line, and counts the request.
    pub fn answered(self, app: &App, status: StatusCode, code: Option<&'static str>) {
        let Self { method, run, .. } = self;
        let route = self.route.unwrap_or("none");
        assert_described(method, route, status, code);
        #[cfg(feature = "otlp")]
        super::otlp::answered(&self.span, status, code);
        app.meters.requests.add(1);
        app.meters.request_times.observe(self.started.elapsed());
        if let Some(code) = code {
            app.meters.problems.add(code);
        }
        let (id, status, micros) = (text(self.id), status.as_u16(), self.started.elapsed().as_micros() as u64);
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(target: "proscenium::access", request = id, method, route, run, status, code, micros, "answered")
            };
        }
        match status {
            500.. => line!(warn),
            400.. => line!(info),
            _ => line!(debug),
        }
    }
}

/// Runs a step of a request inside its own span.
#[cfg(feature = "otlp")]
pub fn in_span<F: Future>(name: &'static str, work: F) -> tracing::instrument::Instrumented<F> {
    work.instrument(super::otlp::step(name))
}

/// Runs a step of a request.
#[cfg(not(feature = "otlp"))]
pub fn in_span<F: Future>(_name: &'static str, work: F) -> F {
    work
}

/// The middleware that records every request on a hyper connection.
pub async fn layer(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let id = app.request_ids.for_request(request.headers());
    let method = request.method().clone();
    let path = request.extensions().get::<MatchedPath>().cloned();
    let route = path.as_ref().map(MatchedPath::as_str);
    let uri = request.uri().clone();
    let run = run_in_path(uri.path());
    let record = RequestRecord::new(&id, method.as_str(), route, run, request.headers());
    let span = tracing::info_span!("request", id = text(&id), run);
    let mut response = record.traced(next.run(request).instrument(span)).await;
    let problem = response.extensions_mut().remove::<Problem>();
    let code = problem.as_ref().map(|problem| problem.code);
    if let Some(problem) = problem {
        // The problem is written again with the id in it. The other response headers stay.
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        response = problem.with("requestId", text(&id)).into_response();
        *response.status_mut() = status;
        for (name, value) in &headers {
            if name != http::header::CONTENT_LENGTH {
                response.headers_mut().insert(name, value.clone());
            }
        }
        response.extensions_mut().remove::<Problem>();
    }
    record.answered(&app, response.status(), code);
    response.headers_mut().insert(HEADER, id);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_safe_id_is_kept_and_any_other_is_replaced() {
        let ids = RequestIds::new(0xab);
        let of = |given: &[u8]| {
            let headers = HeaderMap::from_iter([(HEADER, HeaderValue::from_bytes(given).unwrap())]);
            text(&ids.for_request(&headers)).to_owned()
        };
        assert_eq!(of(b"01J-trace.7:a/b+c=@x_y"), "01J-trace.7:a/b+c=@x_y");
        assert_eq!(of(b""), "000000ab-1");
        assert_eq!(of(b"two words"), "000000ab-2");
        assert_eq!(of("\u{e4}".as_bytes()), "000000ab-3");
        assert_eq!(of(&[b'x'; 129]), "000000ab-4");
        assert_eq!(of(&[b'x'; 128]).len(), 128);
        assert_eq!(text(&ids.for_request(&HeaderMap::new())), "000000ab-5");
    }

    #[test]
    fn a_run_is_taken_from_its_path_without_decoding() {
        for (path, run) in [
            ("/v1/runs/r1/facts", Some("r1")),
            ("/v1/runs/a%2Fb", Some("a%2Fb")),
            ("/v1/runs", None),
            ("/v1/runs/", None),
            ("/v1/sessions/s/stream", None),
        ] {
            assert_eq!(run_in_path(path), run, "{path}");
        }
    }
}
