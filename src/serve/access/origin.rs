//! Cross-origin requests (CORS), and the host names that requests may use.
//!
//! A browser sends a page's request to any address that it can reach, even on the same machine, and only sometimes
//! sends a preflight first. So the server refuses a request of any method that names a foreign origin, unless that
//! origin is configured. The page could not read the answer anyway. A request without origin information comes from no
//! browser, or changes nothing.
//!
//! A page can have the server's own origin and still be hostile: the owner of a name can resolve it to this machine
//! (DNS rebinding). Without authentication the server therefore also refuses requests for unknown host names.

use crate::serve::App;
use crate::serve::cluster::is_forwarded;
use crate::serve::http::problem::Problem;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The header in which browsers report a request's origin.
pub const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The methods and headers that a page of a configured origin may use and read.
const METHODS: &str = "GET, POST, PUT, PATCH, DELETE";
const REQUEST_HEADERS: &str = "authorization, content-type, last-event-id, producer-id, producer-epoch, producer-seq, range, x-request-id, x-run-id, x-proscenium-client, \
     cache-control, if-none-match, traceparent, tracestate, sentry-trace, baggage, x-requested-with, x-csrf-token, x-copilotcloud-public-api-key";
const EXPOSED_HEADERS: &str = "accept-ranges, content-range, etag, retry-after, stream-closed, stream-cursor, stream-next-offset, stream-up-to-date, www-authenticate, x-request-id, x-workflow-run-id, \
     x-workflow-stream-tail-index";
/// How long a browser may cache a preflight, in seconds.
const PREFLIGHT_MAX_AGE_SECS: &str = "600";

/// Other origins whose pages may send requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins {
    allowed: Vec<HeaderValue>,
    /// Headers that their pages may send, besides [`REQUEST_HEADERS`].
    headers: Vec<HeaderName>,
    /// Those of the origins whose pages may show the page in a frame.
    embedders: Vec<HeaderValue>,
}

impl Origins {
    /// Parses origins such as `scheme://host` or `scheme://host:port`.
    ///
    /// # Errors
    /// The first invalid origin.
    pub fn new<'o>(origins: impl IntoIterator<Item = &'o str>) -> Result<Self, String> {
        Ok(Self { allowed: origins.into_iter().map(parse_origin).collect::<Result<_, _>>()?, ..Self::default() })
    }

    /// Adds origins whose pages may also show the page in a frame.
    ///
    /// # Errors
    /// The first invalid origin.
    pub fn with_embedders<'o>(mut self, embedders: impl IntoIterator<Item = &'o str>) -> Result<Self, String> {
        self.embedders = embedders.into_iter().map(parse_origin).collect::<Result<_, _>>()?;
        self.allowed.extend_from_slice(&self.embedders);
        Ok(self)
    }

    /// The origins whose pages may show the page in a frame.
    #[must_use]
    pub fn embedders(&self) -> &[HeaderValue] {
        &self.embedders
    }

    /// Adds headers that pages of these origins may send.
    #[must_use]
    pub fn with_headers(mut self, headers: &[HeaderName]) -> Self {
        self.headers.extend_from_slice(headers);
        self
    }

    fn contains(&self, origin: &HeaderValue) -> bool {
        self.allowed.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(origin.as_bytes()))
    }

    /// Returns whether one of the origins has this host.
    fn contains_host(&self, name: &str) -> bool {
        let hosts = self.allowed.iter().filter_map(|known| Some(host_name(known.to_str().ok()?.split_once("://")?.1)));
        hosts.into_iter().any(|host| host.eq_ignore_ascii_case(name))
    }
}

/// The host names that requests may use on a server without authentication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    /// Any name.
    Any,
    /// The names that lead only to this machine, this name, and those of the configured origins.
    Own(Option<Box<str>>),
}

impl Default for Hosts {
    fn default() -> Self {
        Self::Own(None)
    }
}

impl Hosts {
    /// The machine's own names, and the host of `listen` (`HOST:PORT`).
    #[must_use]
    pub fn of_listen(listen: &str) -> Self {
        Self::Own(Some(host_name(listen).into()))
    }
}

/// The host of `host` or `host:port`.
fn host_name(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => authority,
    }
}

/// Returns whether a host can only lead to this machine or its network.
///
/// Such a host is an IP address, a local name (RFC 6761), or a name without a dot. A browser that asks by address
/// resolved no name, so DNS rebinding cannot apply.
fn names_this_machine(name: &str) -> bool {
    const LOCAL: &str = ".localhost";
    let is_below = name.len().checked_sub(LOCAL.len()).and_then(|at| name.get(at..));
    let bracketed = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    // A name without a dot cannot be registered; only the operator of the local network assigns it.
    let is_given = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !name.is_empty() && name.bytes().all(is_given)
        || is_below.is_some_and(|end| end.eq_ignore_ascii_case(LOCAL))
        || name.parse::<Ipv4Addr>().is_ok()
        || bracketed.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

/// Checks the host name of a request. A request without one comes from no browser.
///
/// # Errors
/// 403 for an unknown name.
pub fn check_host(app: &App, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let own = match &app.hosts {
        Hosts::Own(own) if app.authenticator.is_none() => own.as_deref(),
        _ => return Ok(()),
    };
    let is_own = |authority: &[u8]| {
        let name = std::str::from_utf8(authority).map(host_name).unwrap_or_default();
        // A fully qualified name may end with a dot.
        let name = name.strip_suffix('.').unwrap_or(name);
        names_this_machine(name) || own.is_some_and(|own| own.eq_ignore_ascii_case(name)) || app.origins.contains_host(name)
    };
    // HTTP/2 sends the host in the target, and HTTP/1.1 may do so.
    let of_uri = uri.authority().map(|authority| authority.as_str().as_bytes());
    let mut hosts = headers.get_all(header::HOST).iter().map(HeaderValue::as_bytes).chain(of_uri);
    match hosts.find(|authority| !is_own(authority)) {
        None => Ok(()),
        Some(other) => Err(unknown_host(&String::from_utf8_lossy(other))),
    }
}

fn unknown_host(host: &str) -> Problem {
    let detail = format!(
        "The request is for host {host:?}, which is not a name of this server. Without authentication any web page could \
         resolve its own name to this server. Use localhost or the IP address, allow the name with --cors-origin \
         http://{host} or --listen, or require tokens with --auth-key."
    );
    Problem::new(StatusCode::FORBIDDEN, "unknown_host", detail).with("host", host)
}

/// Normalizes an origin to the form that browsers send.
///
/// # Errors
/// Why the text is not an origin.
pub fn parse_origin(text: &str) -> Result<HeaderValue, String> {
    let bad = || format!("{text:?} is not an origin; use scheme://host or scheme://host:port, such as https://app.example");
    let (scheme, host) = text.strip_suffix('/').unwrap_or(text).split_once("://").ok_or_else(bad)?;
    // A semicolon would begin another directive of the page's content policy.
    let is_host = !host.is_empty() && !host.contains(['/', '?', '#', '@', '*', ' ', ',', ';', '\'', '"']);
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    if !is_scheme || !is_host {
        return Err(bad());
    }
    HeaderValue::from_str(&format!("{scheme}://{host}").to_ascii_lowercase()).map_err(|_| bad())
}

/// The origin of a request.
enum RequestOrigin<'r> {
    /// This server's own page, no page, or a link from a page.
    SameOrigin,
    /// A page of a configured origin.
    Allowed(&'r HeaderValue),
    Foreign(String),
}

impl<'r> RequestOrigin<'r> {
    fn from_request(origins: &Origins, method: &Method, uri: &Uri, headers: &'r HeaderMap) -> Self {
        if let Some(origin) = headers.get(header::ORIGIN) {
            // HTTP/2 sends the host in the target.
            let host = headers.get(header::HOST).map_or_else(
                || uri.authority().map_or(&b""[..], |authority| authority.as_str().as_bytes()),
                HeaderValue::as_bytes,
            );
            let value = origin.to_str().unwrap_or_default();
            return if value.split_once("://").is_some_and(|(_, from)| from.as_bytes().eq_ignore_ascii_case(host)) {
                Self::SameOrigin
            } else if origins.contains(origin) {
                Self::Allowed(origin)
            } else {
                Self::Foreign(value.to_owned())
            };
        }
        match headers.get(FETCH_SITE).map(HeaderValue::as_bytes) {
            None | Some(b"same-origin" | b"none") => Self::SameOrigin,
            // The user followed a link, or a page embeds a resource that it cannot read.
            Some(_) if method.is_safe() => Self::SameOrigin,
            Some(site) => Self::Foreign(String::from_utf8_lossy(site).into_owned()),
        }
    }
}

fn foreign_origin(from: &str) -> Problem {
    let detail = format!(
        "The request comes from a page of another origin: {from:?}. Serve the page from this address, allow its origin with --cors-origin, or, behind a proxy, forward Host."
    );
    Problem::new(StatusCode::FORBIDDEN, "foreign_origin", detail)
}

/// Returns whether a request must name the origin of its page.
///
/// A proxy takes the user from a cookie, which browsers also send along with the requests of foreign pages. So a write
/// without an `Origin` is refused. Another node has checked what it forwards.
fn needs_origin(app: &App, method: &Method, headers: &HeaderMap) -> bool {
    app.authenticator.as_ref().is_some_and(|authenticator| authenticator.is_proxied(headers))
        && (!method.is_safe() || headers.contains_key(header::UPGRADE))
        && !headers.contains_key(header::ORIGIN)
        && !is_forwarded(headers)
}

/// Checks the host and the origin of a request, and returns the headers that its answer needs for them.
///
/// # Errors
/// 403 for an unknown host name or a foreign origin.
pub fn admit(app: &App, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<HeaderMap, Problem> {
    check_host(app, uri, headers)?;
    if needs_origin(app, method, headers) {
        let detail = "A request that writes or opens a WebSocket for a user of the proxy must have an Origin, as pages send it. \
                      Send the server's own origin, or use a token.";
        return Err(Problem::new(StatusCode::FORBIDDEN, "foreign_origin", detail));
    }
    let mut answer = vary(app);
    match RequestOrigin::from_request(&app.origins, method, uri, headers) {
        RequestOrigin::SameOrigin => {}
        RequestOrigin::Allowed(origin) => {
            answer.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            answer.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
            answer.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED_HEADERS));
        }
        RequestOrigin::Foreign(from) => return Err(foreign_origin(&from)),
    }
    Ok(answer)
}

/// The middleware of all requests on hyper.
///
/// On the crate's own sockets only requests for streams name an origin; [`admit`] sees each of them.
pub async fn check(State(app): State<Arc<App>>, request: Request<Body>, next: Next) -> Response {
    let admitted = admit(&app, request.method(), request.uri(), request.headers());
    let mut response = match &admitted {
        Err(problem) => problem.clone().into_response(),
        Ok(answer) => {
            let is_preflight = request.method() == Method::OPTIONS
                && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
                && answer.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN);
            let preflight = [
                (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
                (header::ACCESS_CONTROL_ALLOW_HEADERS, &*request_headers(&app)),
                (header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_MAX_AGE_SECS),
            ];
            if is_preflight { (StatusCode::NO_CONTENT, preflight).into_response() } else { next.run(request).await }
        }
    };
    for (name, value) in &admitted.unwrap_or_else(|_| vary(&app)) {
        response.headers_mut().append(name, value.clone());
    }
    response
}

/// The names of the headers that a page may send: those of the API and of common libraries, those for agents, and those
/// of the operator.
fn request_headers(app: &App) -> String {
    let own = std::iter::once(REQUEST_HEADERS);
    let further = app.controls.user_headers.names().chain(&app.origins.headers);
    own.chain(further.map(HeaderName::as_str)).collect::<Vec<_>>().join(", ")
}

/// `Vary: Origin`, if answers differ by origin.
fn vary(app: &App) -> HeaderMap {
    let differ = !app.origins.allowed.is_empty();
    differ.then(|| (header::VARY, HeaderValue::from_static("Origin"))).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_local_if_it_can_only_lead_to_this_machine() {
        for (authority, is_own) in [
            ("127.0.0.1:8787", true),
            ("127.0.0.1", true),
            ("192.168.1.7:80", true),
            ("[::1]:8787", true),
            ("[::1]", true),
            ("[fe80::1]:1", true),
            ("localhost", true),
            ("LocalHost:8787", true),
            ("app.localhost:1", true),
            ("localhost.evil.example", false),
            ("evil.example:8787", false),
            ("evillocalhost", true),
            ("127.0.0.1.evil.example", false),
            ("evil.example#127.0.0.1", false),
            ("me@127.0.0.1", false),
            ("[::1].evil.example", false),
            ("[evil]:1", false),
            ("::1", false),
            ("", false),
            (":8787", false),
            ("t", true),
        ] {
            assert_eq!(names_this_machine(host_name(authority)), is_own, "{authority}");
        }
        let origins = Origins::new(["https://App.example:444"]).unwrap();
        assert!(
            origins.contains_host("app.EXAMPLE")
                && !origins.contains_host("example")
                && !origins.contains_host("evil.app.example")
        );
        assert_eq!(Hosts::of_listen("box:8787"), Hosts::Own(Some("box".into())));
        assert_eq!(Hosts::of_listen("[::1]:0"), Hosts::Own(Some("[::1]".into())));
    }

    #[test]
    fn an_origin_is_only_a_scheme_and_a_host() {
        for (text, written) in [
            ("https://app.example", "https://app.example"),
            ("HTTPS://App.Example/", "https://app.example"),
            ("http://localhost:5173", "http://localhost:5173"),
            ("http://[::1]:80", "http://[::1]:80"),
            ("chrome-extension://abc", "chrome-extension://abc"),
        ] {
            assert_eq!(parse_origin(text).unwrap(), written);
        }
        for text in [
            "*",
            "null",
            "app.example",
            "https://",
            "https://*.example",
            "https://a/b",
            "https://a,https://b",
            "https://a;script-src",
            "://a",
            "",
        ] {
            assert!(parse_origin(text).is_err(), "{text}");
        }
    }
}
