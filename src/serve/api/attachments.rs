//! Attachments over HTTP: a file for a message that is sent afterwards.

use super::controls::{control_problem, via};
use crate::attachments::{
    ATTACHMENT_BYTES_MAX, ATTACHMENT_NAME_CHARS_MAX, AttachmentError, Upload, is_attachment_name, media_type_of,
};
use crate::control::Requester;
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

/// The media type of an upload, without parameters.
fn media_type(headers: &HeaderMap) -> Result<Box<str>, Problem> {
    let stated = headers.get(header::CONTENT_TYPE).map_or("", |given| given.to_str().unwrap_or_default());
    media_type_of(stated).ok_or_else(|| {
        let detail = format!("The body has type {}. Send the file's media type, such as image/png.", quoted(stated));
        Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail)
    })
}

/// The name of the file, as the query has it.
fn file_name(query: &Query) -> Result<Option<Box<str>>, Problem> {
    let Some(name) = query.get("name").filter(|name| !name.is_empty()) else { return Ok(None) };
    if !is_attachment_name(name) {
        let limit = ATTACHMENT_NAME_CHARS_MAX;
        let detail = format!("The query's name must have at most {limit} characters, and no control characters.");
        return Err(Problem::bad_request("bad_query", detail).with("member", "name").with("limit", limit));
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
    answer["href"] = add(&app, &session, Upload { media_type, name, body }, &by).await?.into();
    Ok((StatusCode::CREATED, no_store_json(answer)).into_response())
}

/// Adds a file to a session, and returns its address.
///
/// # Errors
/// 429 at the limit of attachments, or why the requester may not add to the session.
pub async fn add(app: &App, session: &SessionId, upload: Upload, by: &Requester) -> Result<String, Problem> {
    match app.attachments.add(session, upload, by).await {
        Ok(id) => Ok(format!("{BLOB_PATH}{id}")),
        Err(error @ AttachmentError::TooMany(limit)) => {
            let detail = error.to_string();
            Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_attachments", detail).with("limit", limit))
        }
        Err(AttachmentError::Refused(refusal)) => Err(control_problem(refusal)),
    }
}
