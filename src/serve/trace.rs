//! Every request has an id, and leaves one line in the log.
//!
//! The id is the client's `x-request-id`, or else one that is made up; it comes back in the answer's header and in a problem's
//! `requestId`. The line stands under the target `proscenium::access`: at `debug` for what went well, `info` for what the
//! client did wrong, `warn` for what the server could not do. It names the route and not the address: no query, and so no
//! ticket, is ever logged.
//!
//! With the feature `otlp` it is also a span of a trace, where somebody collects those.

use super::App;
use super::problem::Problem;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tracing::Instrument;

/// The header that brings an id and takes it back.
pub const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// The longest id that is taken from a client, in bytes.
const ID_BYTES_MAX: usize = 128;

/// Makes ids up: one draw of randomness a server, one count a request.
#[derive(Debug)]
pub struct Ids {
    server: u32,
    next: AtomicU64,
}

impl Ids {
    /// Ids that begin with these bits.
    #[must_use]
    pub const fn new(server: u32) -> Self {
        Self { server, next: AtomicU64::new(1) }
    }

    /// The id of a request: its own, if that can stand in a log, or a new one.
    #[must_use]
    pub fn of(&self, headers: &HeaderMap) -> HeaderValue {
        if let Some(given) = headers.get(&HEADER).filter(|given| is_sane(given.as_bytes())) {
            return given.clone();
        }
        let made_up = format!("{:08x}-{:x}", self.server, self.next.fetch_add(1, Ordering::Relaxed));
        HeaderValue::from_str(&made_up).expect("hexadecimal digits can stand in a header")
    }
}

/// Whether it can stand in a header, a log and a shell as it is.
fn is_sane(id: &[u8]) -> bool {
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(byte))
}

/// The id as text; it was checked, or made up.
#[must_use]
pub fn text(id: &HeaderValue) -> &str {
    id.to_str().unwrap_or_default()
}

/// The run that a path names, as it stands there.
#[must_use]
pub fn run_of(path: &str) -> Option<&str> {
    let run = path.strip_prefix("/v1/runs/")?.split('/').next()?;
    (!run.is_empty() && run.len() <= 3 * crate::model::id::ID_BYTES_MAX).then_some(run)
}

/// What is said of one request.
pub struct Told<'r> {
    id: &'r HeaderValue,
    method: &'r str,
    route: Option<&'r str>,
    run: Option<&'r str>,
    begun: Instant,
    #[cfg(feature = "otlp")]
    span: tracing::Span,
}

impl<'r> Told<'r> {
    /// A request that begins now. Its `route` is the address as the router has it, with names in braces; it has none where no
    /// address was meant.
    #[cfg_attr(not(feature = "otlp"), expect(unused_variables, reason = "they say to which trace it belongs"))]
    pub fn new(id: &'r HeaderValue, method: &'r str, route: Option<&'r str>, run: Option<&'r str>, headers: &HeaderMap) -> Self {
        Self {
            id,
            method,
            route,
            run,
            begun: Instant::now(),
            #[cfg(feature = "otlp")]
            span: super::otlp::request(text(id), method, route, run, headers),
        }
    }

    /// Work for the request, as what its span of a trace is about.
    #[cfg(feature = "otlp")]
    pub fn traced<F: Future>(&self, work: F) -> tracing::instrument::Instrumented<F> {
        work.instrument(self.span.clone())
    }

    /// Work for the request.
    #[cfg(not(feature = "otlp"))]
    pub fn traced<F: Future>(&self, work: F) -> F {
        work
    }

    /// Writes the line, and counts the request.
    pub fn answered(self, app: &App, status: StatusCode, code: Option<&'static str>) {
        let Self { method, run, .. } = self;
        let route = self.route.unwrap_or("none");
        super::routes::hold(method, route, status, code);
        #[cfg(feature = "otlp")]
        super::otlp::answered(&self.span, status, code);
        app.meters.requests.add(1);
        if let Some(code) = code {
            app.meters.problems.add(code);
        }
        let (id, status, micros) = (text(self.id), status.as_u16(), self.begun.elapsed().as_micros() as u64);
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

/// A step of a request's work, as a span inside the request's.
#[cfg(feature = "otlp")]
pub fn step<F: Future>(name: &'static str, work: F) -> tracing::instrument::Instrumented<F> {
    work.instrument(super::otlp::step(name))
}

/// A step of a request's work.
#[cfg(not(feature = "otlp"))]
pub fn step<F: Future>(_name: &'static str, work: F) -> F {
    work
}

/// The same for what hyper carries.
pub async fn layer(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let id = app.ids.of(request.headers());
    let method = request.method().clone();
    let path = request.extensions().get::<MatchedPath>().cloned();
    let route = path.as_ref().map(MatchedPath::as_str);
    let uri = request.uri().clone();
    let run = run_of(uri.path());
    let told = Told::new(&id, method.as_str(), route, run, request.headers());
    let span = tracing::info_span!("request", id = text(&id), run);
    let mut response = told.traced(next.run(request).instrument(span)).await;
    let problem = response.extensions_mut().remove::<Problem>();
    let code = problem.as_ref().map(|problem| problem.code);
    if let Some(problem) = problem {
        // Written anew, with the id in it; what else was put on the answer stays.
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
    told.answered(&app, response.status(), code);
    response.headers_mut().insert(HEADER, id);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sane_id_is_taken_and_any_other_is_made_up() {
        let ids = Ids::new(0xab);
        let of = |given: &[u8]| {
            let headers = HeaderMap::from_iter([(HEADER, HeaderValue::from_bytes(given).unwrap())]);
            text(&ids.of(&headers)).to_owned()
        };
        assert_eq!(of(b"01J-trace.7:a/b+c=@x_y"), "01J-trace.7:a/b+c=@x_y");
        assert_eq!(of(b""), "000000ab-1");
        assert_eq!(of(b"two words"), "000000ab-2");
        assert_eq!(of("\u{e4}".as_bytes()), "000000ab-3");
        assert_eq!(of(&[b'x'; 129]), "000000ab-4");
        assert_eq!(of(&[b'x'; 128]).len(), 128);
        assert_eq!(text(&ids.of(&HeaderMap::new())), "000000ab-5");
    }

    #[test]
    fn a_run_is_named_as_its_address_has_it() {
        for (path, run) in [
            ("/v1/runs/r1/facts", Some("r1")),
            ("/v1/runs/a%2Fb", Some("a%2Fb")),
            ("/v1/runs", None),
            ("/v1/runs/", None),
            ("/v1/sessions/s/stream", None),
        ] {
            assert_eq!(run_of(path), run, "{path}");
        }
    }
}
