//! Reading of request bodies: their media type, deadline, size and depth.

use super::problem::Problem;
use crate::model::json::without_mark;
use crate::serve::{App, BODY_BYTES_PER_SEC_MIN};
use axum::body::Body;
use axum::extract::Request;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Map, Value};
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of a refused body that the server discards.
///
/// The client then reads the answer before the connection closes.
const DISCARD_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Returns whether the body is NDJSON. A body without a type is one JSON document.
///
/// # Errors
/// 415 for any other type.
pub fn is_lines(headers: &HeaderMap) -> Result<bool, Problem> {
    let Some(media_type) = headers.get(header::CONTENT_TYPE) else { return Ok(false) };
    let media_type = media_type.to_str().unwrap_or("").split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    match media_type.as_str() {
        "" | "application/json" | "text/json" => Ok(false),
        "application/x-ndjson" | "application/ndjson" | "application/jsonl" | "application/x-jsonlines" => Ok(true),
        other if other.ends_with("+json") => Ok(false),
        other => {
            let detail = format!(
                "The body has type {other:?}. Send application/json (a fact or an array) or application/x-ndjson (a fact per line)."
            );
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail))
        }
    }
}

/// The deadline of a JSON body.
///
/// Without it, a client that sends a byte now and then holds a connection and its memory forever.
pub struct BodyDeadline {
    started: Instant,
    grace: Duration,
}

impl BodyDeadline {
    /// Starts the deadline now.
    #[must_use]
    pub fn new(grace: Duration) -> Self {
        Self { started: Instant::now(), grace }
    }

    /// Awaits `reading`, for a body of which `bytes` have arrived.
    ///
    /// # Errors
    /// 408 after the deadline.
    pub async fn apply<T>(&self, bytes: usize, reading: impl Future<Output = T>) -> Result<T, Problem> {
        let until = self.started + self.grace + Duration::from_millis(bytes as u64 * 1000 / BODY_BYTES_PER_SEC_MIN);
        tokio::time::timeout_at(until, reading).await.map_err(|_| {
            let detail = format!(
                "{bytes} bytes of the body arrived in {:.1?}. The limit is {:?} plus a second for each {BODY_BYTES_PER_SEC_MIN} bytes. \
                 Nothing was accepted. Send it faster, or as application/x-ndjson, which has no deadline.",
                self.started.elapsed(),
                self.grace
            );
            Problem::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", detail)
        })
    }
}

/// Reads a text of at most `limit` bytes, without a byte order mark before it.
///
/// # Errors
/// As [`read_bytes`].
pub async fn read_body(body: Body, limit: usize, deadline: &BodyDeadline) -> Result<Bytes, Problem> {
    let text = read_bytes(body, limit, deadline).await?;
    Ok(text.slice_ref(without_mark(&text)))
}

/// Reads a whole body of at most `limit` bytes.
///
/// # Errors
/// 408 after the deadline, 413 for a longer body, 400 for one that is cut off.
pub async fn read_bytes(mut body: Body, limit: usize, deadline: &BodyDeadline) -> Result<Bytes, Problem> {
    let mut parts: Vec<Bytes> = Vec::new();
    let mut bytes = 0;
    while let Some(frame) = deadline.apply(bytes, body.frame()).await? {
        let Ok(data) = frame.map_err(body_cut_off)?.into_data() else { continue };
        bytes += data.len();
        if bytes > limit {
            discard(body).await;
            return Err(body_too_large(limit));
        }
        parts.push(data);
    }
    Ok(if parts.len() == 1 { parts.remove(0) } else { parts.concat().into() })
}

/// Reads a body that is one JSON object of at most `limit` bytes.
///
/// # Errors
/// 400 for other JSON, and what [`read_body`] refuses.
pub async fn read_object(app: &App, request: Request, limit: usize) -> Result<Map<String, Value>, Problem> {
    let body = read_body(request.into_body(), limit, &BodyDeadline::new(app.limits.body_time_max)).await?;
    serde_json::from_slice(&body).map_err(|error| {
        Problem::bad_request("not_json", format!("The body is not a JSON object: {error}.")).with("expected", "one JSON object")
    })
}

/// Rejects JSON that nests deeper than `limit`, before a parser walks it.
///
/// The array around a body's facts does not count, so that the error can name the fact's index.
pub fn check_depth(text: &[u8], limit: usize) -> Result<(), Problem> {
    // JSON nests at most as deep as it has opening brackets. Most bodies end here.
    if memchr::memchr2_iter(b'{', b'[', text).nth(limit).is_none() {
        return Ok(());
    }
    let enclosing_depth = usize::from(text.trim_ascii_start().starts_with(b"["));
    let (mut depth, mut index, mut in_string, mut escaped) = (0usize, 0u64, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > limit + enclosing_depth {
                    return Err(too_deep(limit, index));
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == enclosing_depth => index += 1,
            _ => {}
        }
    }
    Ok(())
}

/// Reads and discards the rest of a body for a while.
///
/// Otherwise a client that still sends would see a broken connection instead of the answer.
pub async fn discard(mut body: Body) {
    let reading = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, Bytes::len);
            if bytes > DISCARD_BYTES_MAX {
                return;
            }
        }
    };
    // The answer goes out even if the client never finishes.
    let _ = tokio::time::timeout(Duration::from_secs(2), reading).await;
}

pub(in crate::serve) fn too_deep(limit: usize, index: u64) -> Problem {
    let detail = format!("The JSON nests deeper than the limit of {limit} levels. Flatten it, or send the inner part as text.");
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "too_deep", detail);
    problem.with("limit", limit).with("index", index)
}

pub(in crate::serve) fn body_too_large(limit: usize) -> Problem {
    let remedy = "Send it in parts, or as application/x-ndjson, which has no limit.";
    let detail = format!("The body is larger than {limit} bytes, the limit for a JSON body. {remedy}");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail).with("limit", limit)
}

pub(in crate::serve) fn body_cut_off(error: axum::Error) -> Problem {
    Problem::bad_request("body_cut_off", format!("The body ended early: {error}. Send it again."))
}
