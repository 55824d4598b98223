//! A run in another client's format.
//!
//! `GET /v1/runs/{run}/stream?format=…` requests nothing from the runtime.

use super::place::DialectCursor;
use super::{DialectStream, IdPosition, StreamOpening};
use crate::encode::ag_ui::{self, AgUi};
use crate::encode::ai_sdk::{self, AiSdk};
use crate::encode::{Begin, Dialect, Until};
use crate::log::LogId;
use crate::model::{Audience, RunId, SessionId, ThreadId};
use crate::serve::App;
use crate::serve::access::Authorization;
use crate::serve::problem::Problem;
use crate::serve::request::Query;
use axum::response::Response;
use http::StatusCode;
use std::sync::Arc;

/// The header that the AI SDK's own server sends with its streams.
pub(super) const AI_SDK: &[(&str, &str)] = &[("x-vercel-ai-ui-message-stream", "v1")];

/// The supported major versions of the AI SDK. The first is the default.
const AI_SDK_VERSIONS: [u8; 3] = [5, 6, 7];

/// Answers with a run in this format.
///
/// # Errors
/// 501 for an unknown format, 400 for parameters that do not fit the format, or the store's failure.
pub async fn get(
    app: &Arc<App>,
    authorization: Authorization,
    run: RunId,
    (query, place, audience): (&Query, Option<DialectCursor>, Audience),
    format: &str,
) -> Result<Response, Problem> {
    let replay = query.read_request()?.replay;
    let (dialect, headers): (Box<dyn Dialect>, &[_]) = match format {
        "ag-ui" => (Box::new(AgUi::new(ag_ui_options(app, &run, query, replay).await?)), &[]),
        "ai-sdk" => {
            let version = ai_sdk_version(query)?;
            let options = ai_sdk::Options { message: run.to_string(), version, until: Until::End };
            (Box::new(AiSdk::new(options)), AI_SDK)
        }
        _ => {
            let detail = format!("The format {format} is not supported. Use ag-ui or ai-sdk, or omit it.");
            return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, "not_served", detail).with("member", "format"));
        }
    };
    // The client saw the end, and the log went on: it joins as a new client does.
    let after = place.filter(|place| !place.cursor.knows_end);
    let opening = StreamOpening { run, audience, after, replay, ids: IdPosition::Last, earlier: Vec::new(), dialect };
    Ok(DialectStream::open(app, authorization, opening).await?.respond(headers))
}

/// The options of a viewer: the current state, then changes up to the run's end.
///
/// `until=pause` ends the stream at a pause instead.
async fn ag_ui_options(app: &App, run: &RunId, query: &Query, replay: bool) -> Result<ag_ui::Options, Problem> {
    let is_v1 = query.get("protocolVersion").is_some_and(|version| version.starts_with("1."));
    let until = match query.get("until") {
        None | Some("end") => Until::End,
        Some("pause") => Until::Pause,
        Some(other) => {
            let detail = format!("The query's until is {other:?}. It must be end or pause.");
            return Err(Problem::bad_request("bad_query", detail).with("member", "until"));
        }
    };
    let summary = app.logs.log(&LogId::Run(run.clone())).await?.tail().summary;
    let thread = summary.thread_id.as_ref().map(ThreadId::as_str).or(summary.session_id.as_ref().map(SessionId::as_str));
    Ok(ag_ui::Options {
        thread: thread.unwrap_or(run.as_str()).to_owned(),
        run: run.to_string(),
        begin: if replay { Begin::Replay } else { Begin::Snapshot },
        until,
        is_v1,
        subagents: is_v1 || query.is_set("subagents"),
        messages: Vec::new(),
    })
}

pub(super) fn ai_sdk_version(query: &Query) -> Result<u8, Problem> {
    let Some(text) = query.get("version") else { return Ok(AI_SDK_VERSIONS[0]) };
    text.parse().ok().filter(|version| AI_SDK_VERSIONS.contains(version)).ok_or_else(|| {
        let detail = format!("The query's version is {text:?}. It must be the client's major version: 5, 6 or 7.");
        Problem::bad_request("bad_query", detail).with("member", "version").with("expected", AI_SDK_VERSIONS.as_slice())
    })
}
