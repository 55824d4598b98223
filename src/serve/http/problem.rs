//! Problem documents (RFC 9457): every error that a client gets, over any transport.
//!
//! The detail states what is wrong, the value, the limit and the remedy. `code` is stable, and programs branch on it.

use crate::log::StoreError;
use crate::serve::contract::kinds::find;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};

/// The `WWW-Authenticate` header of every 401.
pub const CHALLENGE: &str = "Bearer";

/// `Retry-After` of a stopping server, in seconds: another server may take over by then.
const STOPPING_RETRY_AFTER_SECS: u64 = 1;

/// One error response.
#[derive(Debug, Clone)]
pub struct Problem {
    pub status: StatusCode,
    pub code: &'static str,
    pub detail: String,
    /// Further members: `index`, `line`, `member`, `limit`, `expected`, `accepted` …
    pub members: Map<String, Value>,
}

impl Problem {
    /// Creates a problem. Its status and code must be a row of [`kinds`](crate::serve::contract::kinds).
    #[must_use]
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        debug_assert!(find(status, code).is_some(), "{status} {code} has no row in src/serve/contract/kinds.rs");
        Self { status, code, detail: detail.into(), members: Map::new() }
    }

    /// Creates a 400.
    #[must_use]
    pub fn bad_request(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, detail)
    }

    /// Creates a 404: the resource does not exist, or not for this client.
    #[must_use]
    pub fn not_found(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, detail)
    }

    /// Creates the 503 of a stopping server.
    #[must_use]
    pub fn stopping() -> Self {
        let detail = "The server is stopping. Use another server, or retry later.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", detail).with_retry_after(STOPPING_RETRY_AFTER_SECS)
    }

    /// Adds a member.
    #[must_use]
    pub fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.members.insert(member.into(), value.into());
        self
    }

    /// Sets when to retry, in seconds: as `retryAfter`, and over HTTP in the header of that name.
    #[must_use]
    pub fn with_retry_after(self, seconds: u64) -> Self {
        self.with("retryAfter", seconds.max(1))
    }

    /// When to retry, in seconds, if known.
    #[must_use]
    pub fn retry_after_secs(&self) -> Option<u64> {
        self.members.get("retryAfter").and_then(Value::as_u64)
    }

    /// Whether object storage does not give the object of an archived run.
    #[must_use]
    pub fn is_of_archive(&self) -> bool {
        self.code == "archive_unavailable"
    }

    /// The JSON document.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut document = json!({
            "type": format!("/docs/reference/problems#{}", self.code),
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
        // A cached error would outlive its cause (Electric's clients once looped on a cached 409).
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after_secs() {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
        }
        // For the middleware that logs and counts it.
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        if let StoreError::TooManyLogs { limit, .. } = error {
            return Self::new(StatusCode::UNPROCESSABLE_ENTITY, "session_too_large", error.to_string()).with("limit", limit);
        }
        if matches!(error, StoreError::NotLeader | StoreError::Unconfirmed) {
            return Self::new(StatusCode::SERVICE_UNAVAILABLE, "no_leader", error.to_string()).with_retry_after(1);
        }
        if matches!(error, StoreError::Erased { .. }) {
            return Self::new(StatusCode::GONE, "erased", error.to_string());
        }
        if matches!(error, StoreError::Archived { .. }) {
            tracing::warn!(%error, "an archived run cannot be read");
            return Self::new(StatusCode::SERVICE_UNAVAILABLE, "archive_unavailable", error.to_string()).with_retry_after(5);
        }
        tracing::error!(%error, "the store failed to answer");
        let code = if error.affects_one_log() { "stored_state_unreadable" } else { "store_failed" };
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, code, error.to_string())
    }
}
