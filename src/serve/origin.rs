//! Pages of other origins: which of them may ask, and what their browsers are told (CORS); and by which names we may be asked.
//!
//! A browser sends what any page's script asks for to any address that it can reach, a server on the same machine included, and
//! only sometimes asks first. So a request that says that it comes from another origin than the one that it asks is refused,
//! unless that origin is on the list: whatever its method, for whoever could not read the answer needs none. What says nothing
//! of an origin comes from no browser, or changes nothing.
//!
//! A page can be of our own origin and not be ours: whoever owns a name can let it lead to this machine (DNS rebinding). Where
//! nobody is asked who they are, a request for a name that is none of ours is refused, too.

use super::App;
use super::problem::Problem;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use std::net::{Ipv4Addr, Ipv6Addr};
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

    /// Whether one of them is of this host.
    fn have_host(&self, name: &str) -> bool {
        let hosts = self.0.iter().filter_map(|known| Some(name_of(known.to_str().ok()?.split_once("://")?.1)));
        hosts.into_iter().any(|host| host.eq_ignore_ascii_case(name))
    }
}

/// By which names the server may be asked for, where nobody is asked who they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    /// Any.
    Any,
    /// Those that every machine has for itself, this one, if it is given, and those of the origins that are let in.
    Own(Option<Box<str>>),
}

impl Default for Hosts {
    fn default() -> Self {
        Self::Own(None)
    }
}

impl Hosts {
    /// The server's own names, of which `listen`, given as `HOST:PORT`, may be one more.
    #[must_use]
    pub fn of_listen(listen: &str) -> Self {
        Self::Own(Some(name_of(listen).into()))
    }
}

/// The host in `host` or `host:port`.
fn name_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => authority,
    }
}

/// Whether a host is an address, a name that leads nowhere but to the machine itself (RFC 6761), or one without a dot. Of an address a browser knows
/// that it is asked by that and by no name.
fn is_of_machine(name: &str) -> bool {
    const LOCAL: &str = ".localhost";
    let is_below = name.len().checked_sub(LOCAL.len()).and_then(|at| name.get(at..));
    let bracketed = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    // No name without a dot is to be had from anybody: it is given in a network, by whoever runs that.
    let is_given = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !name.is_empty() && name.bytes().all(is_given)
        || is_below.is_some_and(|end| end.eq_ignore_ascii_case(LOCAL))
        || name.parse::<Ipv4Addr>().is_ok()
        || bracketed.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

/// Whether a request is for a name that this server may be asked by. One that says no name comes from no browser.
///
/// # Errors
/// 403 for a name that may be anybody's.
pub fn known(app: &App, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let own = match &app.hosts {
        Hosts::Own(own) if app.authority.is_none() => own.as_deref(),
        _ => return Ok(()),
    };
    let is_own = |authority: &[u8]| {
        let name = std::str::from_utf8(authority).map(name_of).unwrap_or_default();
        // A name may say that it is whole.
        let name = name.strip_suffix('.').unwrap_or(name);
        is_of_machine(name) || own.is_some_and(|own| own.eq_ignore_ascii_case(name)) || app.origins.have_host(name)
    };
    // HTTP/2 has it in the address, and so may HTTP/1.1.
    let of_uri = uri.authority().map(|authority| authority.as_str().as_bytes());
    let mut said = headers.get_all(header::HOST).iter().map(HeaderValue::as_bytes).chain(of_uri);
    match said.find(|authority| !is_own(authority)) {
        None => Ok(()),
        Some(other) => Err(unknown_host(&String::from_utf8_lossy(other))),
    }
}

fn unknown_host(host: &str) -> Problem {
    let detail = format!(
        "the request is for {host:?}, which is none of this server's own names, and nobody is asked who they are: any page can \
         have its name lead here. Ask for localhost or the address; let the name in with --cors-origin http://{host}, or listen \
         by it; or ask who is there with --auth-key"
    );
    Problem::new(StatusCode::FORBIDDEN, "unknown_host", detail).with("host", host)
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

/// What stands before everything that hyper carries. Nothing that says where it comes from, or asks by a name that is not ours,
/// stays on sockets of our own.
pub async fn check(State(app): State<Arc<App>>, request: Request<Body>, next: Next) -> Response {
    if let Err(problem) = known(&app, request.uri(), request.headers()) {
        return varying(&app, problem.into_response());
    }
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
    fn a_host_is_the_machine_s_own_if_it_can_lead_nowhere_else() {
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
            assert_eq!(is_of_machine(name_of(authority)), is_own, "{authority}");
        }
        let origins = Origins::new(["https://App.example:444"]).unwrap();
        assert!(origins.have_host("app.EXAMPLE") && !origins.have_host("example") && !origins.have_host("evil.app.example"));
        assert_eq!(Hosts::of_listen("box:8787"), Hosts::Own(Some("box".into())));
        assert_eq!(Hosts::of_listen("[::1]:0"), Hosts::Own(Some("[::1]".into())));
    }

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
