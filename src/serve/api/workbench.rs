//! The page at `/` and its modules, embedded in the binary.
//!
//! Files in folders are served by their path, such as the client library for other pages (`/assets/client/index.js`).

use crate::serve::http::problem::Problem;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, Uri, header};
use rust_embed::RustEmbed;

#[derive(RustEmbed)]
#[folder = "web-demo/"]
#[include = "*.html"]
#[include = "*.css"]
#[include = "*.js"]
#[exclude = "node_modules/*"]
#[exclude = "tests/*"]
struct Assets;

/// Scripts and styles load only from this server, whichever text a payload contains.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `GET /`
pub async fn index() -> Result<Response, Problem> {
    file("index.html")
}

/// `GET /assets/{*file}`
pub async fn asset(uri: Uri) -> Result<Response, Problem> {
    file(uri.path().trim_start_matches("/assets/"))
}

fn file(name: &str) -> Result<Response, Problem> {
    let file = Assets::get(name).ok_or_else(|| Problem::not_found("no_such_asset", format!("The page has no file {name}.")))?;
    let kind = match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        _ => "text/javascript; charset=utf-8",
    };
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    Ok((headers, file.data).into_response())
}
