//! Pages of other origins: which of them may ask, and what their browsers are told (CORS).
//!
//! A browser sends what any page's script asks for to any address that it can reach, a server on the same machine included, and
//! only sometimes asks first. So a request that says that it comes from another origin than the one that it asks is refused,
//! unless that origin is on the list: whatever its method, for whoever could not read the answer needs none. What says nothing
//! of an origin comes from no browser, or changes nothing.

use super::App;
use super::problem::Problem;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use std::sync::Arc;

/// What browsers say of where a request comes from.
pub const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What a page of another origin may send and read.
const METHODS: &str = "GET, POST, DELETE";
const REQUEST_HEADERS: &str =
    "authorization, content-type, last-event-id, producer-id, producer-epoch, producer-seq, range, x-request-id, x-run-id";
const ANSWER_HEADERS: &str = "accept-ranges, content-range, retry-after, www-authenticate, x-request-id";
/// How long a browser may remember what it was told, in seconds.
const REMEMBERED: &str = "600";

/// The origins whose pages may ask, besides our own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins(Vec<HeaderValue>);

impl Origins {
    /// These, as `scheme://host` or `scheme://host:port`.
    ///
    /// # Errors
    /// What is none.
    pub fn new<'o>(origins: impl IntoIterator<Item = &'o str>) -> Result<Self, String> {
        origins.into_iter().map(origin).collect::<Result<_, _>>().map(Self)
    }

    fn have(&self, origin: &HeaderValue) -> bool {
        self.0.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(origin.as_bytes()))
    }
}

/// An origin as a browser writes it.
///
/// # Errors
/// Why it is none.
pub fn origin(text: &str) -> Result<HeaderValue, String> {
    let bad = || format!("{text:?} is no origin; give scheme://host or scheme://host:port, such as https://app.example");
    let (scheme, host) = text.strip_suffix('/').unwrap_or(text).split_once("://").ok_or_else(bad)?;
    let is_host = !host.is_empty() && !host.contains(['/', '?', '#', '@', '*', ' ', ',']);
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    if !is_scheme || !is_host {
        return Err(bad());
    }
    HeaderValue::from_str(&format!("{scheme}://{host}").to_ascii_lowercase()).map_err(|_| bad())
}

/// From where a request comes.
enum From<'r> {
    /// Our own page, no page at all, or a page that only leads here.
    Here,
    /// A page that is on the list.
    Friend(&'r HeaderValue),
    Elsewhere(String),
}

impl<'r> From<'r> {
    fn of(origins: &Origins, method: &Method, uri: &Uri, headers: &'r HeaderMap) -> Self {
        if let Some(origin) = headers.get(header::ORIGIN) {
            // HTTP/2 has the host in the address.
            let host = headers.get(header::HOST).map_or_else(
                || uri.authority().map_or(&b""[..], |authority| authority.as_str().as_bytes()),
                HeaderValue::as_bytes,
            );
            let said = origin.to_str().unwrap_or_default();
            return if said.split_once("://").is_some_and(|(_, from)| from.as_bytes().eq_ignore_ascii_case(host)) {
                Self::Here
            } else if origins.have(origin) {
                Self::Friend(origin)
            } else {
                Self::Elsewhere(said.to_owned())
            };
        }
        match headers.get(FETCH_SITE).map(HeaderValue::as_bytes) {
            None | Some(b"same-origin" | b"none") => Self::Here,
            // Somebody followed a link, or a page shows what it cannot read.
            Some(_) if method.is_safe() => Self::Here,
            Some(site) => Self::Elsewhere(String::from_utf8_lossy(site).into_owned()),
        }
    }
}

fn foreign(from: &str) -> Problem {
    let detail = format!(
        "a page of another origin asks ({from:?}); serve it from this address, let it in with --cors-origin, or, behind a proxy, hand Host on"
    );
    Problem::new(StatusCode::FORBIDDEN, "foreign_origin", detail)
}

/// What stands before everything that hyper carries. Nothing that says where it comes from stays on sockets of our own.
pub async fn check(State(app): State<Arc<App>>, request: Request<Body>, next: Next) -> Response {
    let friend = match From::of(&app.origins, request.method(), request.uri(), request.headers()) {
        From::Here => None,
        From::Friend(origin) => Some(origin.clone()),
        From::Elsewhere(from) => return varying(&app, foreign(&from).into_response()),
    };
    let is_question = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
        && friend.is_some();
    let mut response = match is_question {
        true => {
            let told = [
                (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
                (header::ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS),
                (header::ACCESS_CONTROL_MAX_AGE, REMEMBERED),
            ];
            (StatusCode::NO_CONTENT, told).into_response()
        }
        false => next.run(request).await,
    };
    if let Some(origin) = friend {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(ANSWER_HEADERS));
    }
    varying(&app, response)
}

/// Where answers differ by origin, caches have to know.
fn varying(app: &App, mut response: Response) -> Response {
    if !app.origins.0.is_empty() {
        response.headers_mut().append(header::VARY, HeaderValue::from_static("Origin"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_scheme_and_a_host_and_nothing_else() {
        for (text, written) in [
            ("https://app.example", "https://app.example"),
            ("HTTPS://App.Example/", "https://app.example"),
            ("http://localhost:5173", "http://localhost:5173"),
            ("http://[::1]:80", "http://[::1]:80"),
            ("chrome-extension://abc", "chrome-extension://abc"),
        ] {
            assert_eq!(origin(text).unwrap(), written);
        }
        for text in
            ["*", "null", "app.example", "https://", "https://*.example", "https://a/b", "https://a,https://b", "://a", ""]
        {
            assert!(origin(text).is_err(), "{text}");
        }
    }
}
