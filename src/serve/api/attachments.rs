//! Attachments over HTTP: a file for a message that is sent afterwards.

use super::controls::{control_problem, via};
use crate::attachments::{ATTACHMENT_BYTES_MAX, AttachmentError, Upload};
use crate::model::SessionId;
use crate::projection::envelope_view::BLOB_PATH;
use crate::serve::App;
use crate::serve::access::authorization::Authorization;
use crate::serve::http::body::{BodyDeadline, read_bytes};
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, path_id, quoted};
use crate::serve::http::response::no_store_json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use data_encoding::HEXLOWER;
use http::{HeaderMap, StatusCode, header};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The media type of a file that states none.
const UNKNOWN_TYPE: &str = "application/octet-stream";
/// The longest name of a file, in characters.
const NAME_CHARS_MAX: usize = 255;

/// The media type of an upload, without parameters.
fn media_type(headers: &HeaderMap) -> Result<Box<str>, Problem> {
    let Some(given) = headers.get(header::CONTENT_TYPE) else { return Ok(UNKNOWN_TYPE.into()) };
    let text = given.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_token =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte));
    match text.split_once('/') {
        _ if text.is_empty() => Ok(UNKNOWN_TYPE.into()),
        Some((kind, subtype)) if is_token(kind) && is_token(subtype) => Ok(text.into()),
        _ => {
            let detail = format!("The body has type {}. Send the file's media type, such as image/png.", quoted(&text));
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail))
        }
    }
}

/// The name of the file, as the query has it.
fn file_name(query: &Query) -> Result<Option<Box<str>>, Problem> {
    let Some(name) = query.get("name").filter(|name| !name.is_empty()) else { return Ok(None) };
    if name.chars().any(char::is_control) || name.chars().count() > NAME_CHARS_MAX {
        let detail = format!("The query's name must have at most {NAME_CHARS_MAX} characters, and no control characters.");
        return Err(Problem::bad_request("bad_query", detail).with("member", "name").with("limit", NAME_CHARS_MAX));
    }
    Ok(Some(name.into()))
}

/// `POST /v1/sessions/{session}/attachments`: adds a file, which a message then names.
pub async fn post(State(app): State<Arc<App>>, authorization: Authorization, request: Request) -> Result<Response, Problem> {
    app.disk.check_space()?;
    let session: SessionId = path_id("sessionId", request.uri())?;
    let query = Query::from_uri(request.uri());
    let (media_type, name) = (media_type(request.headers())?, file_name(&query)?);
    let mut by = authorization.requester(query.audience()?, via(request.headers()));
    by.owner = authorization.requested_owner(&query)?;
    let body = read_bytes(request.into_body(), ATTACHMENT_BYTES_MAX, &BodyDeadline::new(app.limits.body_time_max)).await?;
    if body.is_empty() {
        let detail = "The body is empty. Send the bytes of the file.";
        return Err(Problem::bad_request("empty_body", detail).with("expected", "the bytes of a file"));
    }
    let (bytes, sha256) = (body.len(), HEXLOWER.encode(&Sha256::digest(&body)));
    let mut answer = json!({ "mediaType": media_type, "bytes": bytes, "sha256": sha256 });
    if let Some(name) = &name {
        answer["name"] = (**name).into();
    }
    let added = app.attachments.add(&session, Upload { media_type, name, body }, &by).await;
    let id = added.map_err(|error| match error {
        AttachmentError::TooMany(limit) => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_attachments", error.to_string()).with("limit", limit)
        }
        AttachmentError::Refused(refusal) => control_problem(refusal),
    })?;
    answer["href"] = format!("{BLOB_PATH}{id}").into();
    Ok((StatusCode::CREATED, no_store_json(answer)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_media_type_is_two_tokens() {
        let of = |text: &'static str| {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(text))]);
            media_type(&headers).map_err(|problem| problem.status)
        };
        assert_eq!(of("Image/PNG; charset=x").as_deref(), Ok("image/png"));
        assert_eq!(of("application/vnd.ms-excel").as_deref(), Ok("application/vnd.ms-excel"));
        assert_eq!(of("").as_deref(), Ok(UNKNOWN_TYPE));
        for refused in ["png", "image/", "/png", "image/png/x", "text/html\" x", "te xt/plain"] {
            assert_eq!(of(refused), Err(StatusCode::UNSUPPORTED_MEDIA_TYPE), "{refused}");
        }
    }
}
