//! JSON answers.

use super::request::Query;
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header;
use serde_json::Value;

/// Echoes the query's `activation`, so that a client can recognise a late answer.
pub(in crate::serve) fn echo(query: &Query, mut answer: Value) -> Value {
    if let Some(activation) = query.get("activation") {
        answer["activation"] = activation.into();
    }
    answer
}

/// A JSON answer that no cache may store.
pub(in crate::serve) fn no_store_json(answer: Value) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], Json(answer)).into_response()
}
