//! The page at `/` and its modules, embedded in the binary.
//!
//! Files in folders are served by their path, such as the client library for other pages (`/assets/client/index.js`). The
//! page names its own files with a version before the path (`/assets/4f…/app.js`): a browser keeps those for good, and a
//! new build has other addresses. Those are bundled by `build.rs`; other pages import the client library as it is written.

use crate::serve::App;
use crate::serve::access::sign_in::provider_origins;
use crate::serve::http::problem::Problem;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use std::collections::BTreeSet;
use std::sync::Arc;

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// Scripts and styles load only from this server, whichever text a payload contains.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What the browser enforces for a document, and not for its scripts and styles.
pub(super) const DOCUMENT_HEADERS: [(HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// For an address with the version: the file never changes.
const KEEP: &str = "public, max-age=31536000, immutable";
/// For other addresses: the browser asks with the entity tag whether the file has changed.
const ASK: &str = "no-cache";

/// `GET /`
pub async fn index(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, Problem> {
    let mut response = file("index.html", ASK, &headers)?;
    let embedders = app.origins.embedders();
    // A second policy beside the first would only narrow it.
    if let Ok(policy) = HeaderValue::try_from(policy(&provider_origins(&app), embedders)) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
        if !embedders.is_empty() {
            // It cannot name origins. Browsers prefer `frame-ancestors`; what looks only at this header would refuse the frame.
            response.headers_mut().remove(header::X_FRAME_OPTIONS);
        }
    }
    Ok(response)
}

/// The content policy of the page: it also connects to these identity providers, and pages of these origins may frame it.
fn policy(providers: &BTreeSet<String>, embedders: &[HeaderValue]) -> String {
    let connect = providers.iter().fold("connect-src 'self'".to_owned(), |all, origin| format!("{all} {origin}"));
    let policy = POLICY.replace("connect-src 'self'", &connect);
    if embedders.is_empty() {
        return policy;
    }
    let known = embedders.iter().filter_map(|origin| origin.to_str().ok());
    policy.replace("frame-ancestors 'none'", &known.fold("frame-ancestors".to_owned(), |all, origin| format!("{all} {origin}")))
}

/// `GET /embed.js`: the elements for other pages. A page of another origin needs `--embed-origin` or `--cors-origin`.
pub async fn elements(headers: HeaderMap) -> Result<Response, Problem> {
    file("embed.js", ASK, &headers)
}

/// `GET /push-worker.js`: the service worker of Web Push. From here it covers the whole page.
pub async fn push_worker(headers: HeaderMap) -> Result<Response, Problem> {
    file("push-worker.js", ASK, &headers)
}

/// `GET /assets/{*file}`
pub async fn asset(uri: Uri, headers: HeaderMap) -> Result<Response, Problem> {
    let name = uri.path().trim_start_matches("/assets/");
    match name.strip_prefix(PAGE_VERSION).and_then(|rest| rest.strip_prefix('/')) {
        Some(name) => file(name, KEEP, &headers),
        None if name.starts_with("client/") => file(&format!("library/{name}"), ASK, &headers),
        None => file(name, ASK, &headers),
    }
}

fn file(name: &str, caching: &'static str, headers: &HeaderMap) -> Result<Response, Problem> {
    let found = PAGE.binary_search_by_key(&name, |(name, ..)| name);
    let (_, bodies) =
        found.map(|at| PAGE[at]).map_err(|_| Problem::not_found("no_such_asset", format!("The page has no file {name}.")))?;
    let kind = match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        // The licences of the modules in `vendor`.
        Some("txt") => "text/plain; charset=utf-8",
        _ => "text/javascript; charset=utf-8",
    };
    let [plain, gzip, brotli] = bodies;
    // RFC 9110, section 8.8.3.3: the entity tags of two encodings differ.
    let (body, tag, encoding) = match best_coding(headers) {
        Some(Coding::Brotli) => (brotli, format!("\"{PAGE_VERSION}-br\""), Some(HeaderValue::from_static("br"))),
        Some(Coding::Gzip) => (gzip, format!("\"{PAGE_VERSION}-gzip\""), Some(HeaderValue::from_static("gzip"))),
        None => (plain, format!("\"{PAGE_VERSION}\""), None),
    };
    let is_known = is_known(headers, &tag);
    let fields = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (header::CACHE_CONTROL, caching),
        (header::VARY, "accept-encoding"),
        (header::ETAG, &tag),
    ];
    let mut response = match is_known {
        true => (StatusCode::NOT_MODIFIED, fields).into_response(),
        false => ([(header::CONTENT_TYPE, kind)], fields, body).into_response(),
    };
    if let Some(encoding) = encoding.filter(|_| !is_known) {
        response.headers_mut().insert(header::CONTENT_ENCODING, encoding);
    }
    if name == "index.html" {
        response.headers_mut().extend(DOCUMENT_HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    }
    Ok(response)
}

/// Whether the client has the body with this entity tag.
pub(super) fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
    known.flat_map(|tags| tags.split(',')).map(str::trim).any(|one| one == "*" || one.trim_start_matches("W/") == tag)
}

/// The codings in which a file is stored, with the larger body first.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Coding {
    Gzip,
    Brotli,
}

/// Returns the coding to send: of those that the client weights highest, the one with the smallest body.
///
/// `None` if it accepts none. A coding that it does not name has the weight of `*` (RFC 9110, section 12.5.3).
fn best_coding(headers: &HeaderMap) -> Option<Coding> {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let (mut gzip, mut brotli, mut other) = (None, None, 0.0);
    for coding in values.flat_map(|value| value.split(',')) {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let weight: f32 = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse().ok()).unwrap_or(0.0);
        match name.trim() {
            name if name.eq_ignore_ascii_case("gzip") => gzip = Some(weight),
            name if name.eq_ignore_ascii_case("br") => brotli = Some(weight),
            "*" => other = weight,
            _ => {}
        }
    }
    let weights = [(gzip.unwrap_or(other), Coding::Gzip), (brotli.unwrap_or(other), Coding::Brotli)];
    let accepted = weights.into_iter().filter(|(weight, _)| *weight > 0.0);
    accepted.reduce(|best, one| if one >= best { one } else { best }).map(|(_, coding)| coding)
}
