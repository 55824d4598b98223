//! Problem documents (RFC 9457): every error that a client gets, over any transport.
//!
//! The sentence says what happened, the value, the limit and the remedy; `code` is stable and is what programs branch on.

use super::kinds::find;
use crate::log::StoreError;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};

/// How one says who one is: the `WWW-Authenticate` of every 401.
pub const CHALLENGE: &str = "Bearer";

/// One error, ready to be told.
#[derive(Debug, Clone)]
pub struct Problem {
    pub status: StatusCode,
    pub code: &'static str,
    pub detail: String,
    /// Further members: `index`, `line`, `member`, `limit`, `expected`, `accepted` …
    pub members: Map<String, Value>,
}

impl Problem {
    /// A problem with the status and the code of a row of [`kinds`](super::kinds), and this sentence.
    #[must_use]
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        debug_assert!(find(status, code).is_some(), "{status} {code} is in no row of src/serve/kinds.rs");
        Self { status, code, detail: detail.into(), members: Map::new() }
    }

    /// 400 with this code and sentence.
    #[must_use]
    pub fn bad_request(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, detail)
    }

    /// 404: there is no such thing, or none that this reader may know of.
    #[must_use]
    pub fn not_found(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, detail)
    }

    /// Adds a member.
    #[must_use]
    pub fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.members.insert(member.into(), value.into());
        self
    }

    /// Says when to come back, in seconds: as `retryAfter`, and over HTTP in the header of that name.
    #[must_use]
    pub fn retry_after(self, seconds: u64) -> Self {
        self.with("retryAfter", seconds.max(1))
    }

    /// When to come back, in seconds, where that is known.
    #[must_use]
    pub fn comes_back(&self) -> Option<u64> {
        self.members.get("retryAfter").and_then(Value::as_u64)
    }

    /// The document.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut document = json!({
            "type": format!("urn:proscenium:problem:{}", self.code),
            "title": self.code.replace('_', " "),
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
        });
        if let Value::Object(map) = &mut document {
            map.extend(self.members.clone());
        }
        document
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.to_json().to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        // A cache that kept an error would go on telling it after the remedy (Electric's clients once looped on a cached 409).
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.comes_back() {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
        }
        // For whoever logs and counts it.
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        if let StoreError::TooManyLogs { limit, .. } = error {
            return Self::new(StatusCode::UNPROCESSABLE_ENTITY, "session_too_large", error.to_string()).with("limit", limit);
        }
        tracing::error!(%error, "the store could not answer");
        let code = if error.is_of_one_log() { "stored_state_unreadable" } else { "store_failed" };
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, code, error.to_string())
    }
}
