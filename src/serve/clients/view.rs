//! Streams in the server's own format, and of one run in another client's (`?format=…`).
//!
//! It requests nothing from the runtime.

use super::{DialectStream, StreamOpening};
use crate::encode::ag_ui::{AgUi, AgUiOptions};
use crate::encode::ai_sdk::{self, AiSdk, AiSdkOptions};
use crate::encode::dialect_cursor::DialectCursor;
use crate::encode::translator::{IdPosition, PlainDialect};
use crate::encode::{Begin, Until};
use crate::feed::StartAt;
use crate::log::LogId;
use crate::model::{RunId, SessionId, ThreadId};
use crate::serve::App;
use crate::serve::access::authorization::Authorization;
use crate::serve::api::stream::{self, Stream, start_param};
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, cursor, path_id};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, Uri, header};
use std::sync::Arc;

/// The header that the AI SDK's own server sends with its streams.
pub(super) const AI_SDK: &[(&str, &str)] = &[("x-vercel-ai-ui-message-stream", "v1")];

/// A stream as a client asked to see it.
pub enum RunStream {
    /// The client has received everything up to the end: 204, after which `EventSource` does not reconnect.
    Ended,
    Native(Box<Stream>),
    /// In another client's format, with the headers of that format.
    InFormat(Box<DialectStream>, &'static [(&'static str, &'static str)]),
}

/// Opens the stream that a request names, in the server's own format or in a client's.
///
/// # Errors
/// The [`Problem`] to answer with.
pub async fn open(app: &Arc<App>, authorization: Authorization, uri: &Uri, headers: &HeaderMap) -> Result<RunStream, Problem> {
    let query = Query::from_uri(uri);
    match query.get("format").filter(|_| uri.path().starts_with("/v1/runs/")) {
        None => Ok(stream::open(app, authorization, uri, headers).await?.map_or(RunStream::Ended, RunStream::Native)),
        Some(format) => open_in_format(app, authorization, uri, headers, &query, format).await,
    }
}

/// A stream on a connection that hyper carries.
pub async fn get(
    State(app): State<Arc<App>>,
    authorization: Authorization,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    Ok(match open(&app, authorization, &uri, &headers).await? {
        RunStream::Ended => ([(header::CACHE_CONTROL, "no-store")], StatusCode::NO_CONTENT).into_response(),
        RunStream::Native(stream) => stream.respond(),
        RunStream::InFormat(stream, further) => stream.respond(further),
    })
}

/// The format of another client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    AgUi,
    AiSdk,
}

impl Format {
    /// Reads the query's `format`.
    ///
    /// # Errors
    /// 501 for any other name.
    pub fn read(name: &str) -> Result<Self, Problem> {
        match name {
            "ag-ui" => Ok(Self::AgUi),
            "ai-sdk" => Ok(Self::AiSdk),
            _ => {
                let detail = format!("The format {name} is not supported. Use ag-ui or ai-sdk, or omit it.");
                Err(Problem::new(StatusCode::NOT_IMPLEMENTED, "not_served", detail).with("member", "format"))
            }
        }
    }

    /// The translation of a run for a viewer.
    ///
    /// # Errors
    /// 400 for parameters that do not fit the format, or the store's failure.
    pub async fn dialect(
        self,
        app: &App,
        run: &RunId,
        query: &Query,
        (begin, until): (Begin, Until),
    ) -> Result<Box<dyn PlainDialect>, Problem> {
        if self == Self::AiSdk {
            let version = ai_sdk_version(query)?;
            return Ok(Box::new(AiSdk::new(AiSdkOptions { message: run.to_string(), version, begin, until })));
        }
        let is_v1 = query.get("protocolVersion").is_some_and(|version| version.starts_with("1."));
        let summary = app.logs.log(&LogId::Run(run.clone())).await?.tail().summary;
        let thread = summary.thread_id.as_ref().map(ThreadId::as_str).or(summary.session_id.as_ref().map(SessionId::as_str));
        Ok(Box::new(AgUi::new(AgUiOptions {
            thread: thread.unwrap_or(run.as_str()).to_owned(),
            run: run.to_string(),
            begin,
            until,
            is_v1,
            subagents: is_v1 || query.is_set("subagents"),
            messages: Vec::new(),
        })))
    }
}

/// Opens the stream of a run in this format.
///
/// # Errors
/// 501 for an unknown format, 400 for parameters that do not fit the format, or the store's failure.
async fn open_in_format(
    app: &Arc<App>,
    authorization: Authorization,
    uri: &Uri,
    headers: &HeaderMap,
    query: &Query,
    format: &str,
) -> Result<RunStream, Problem> {
    let format = Format::read(format)?;
    let run = path_id::<RunId>("runId", uri)?;
    let start: Option<DialectCursor> = match start_param(query, headers) {
        Some("now") => {
            let detail = "A stream with a format cannot start at after=now, because its client cannot continue without the earlier events. Omit after, or send a cursor.";
            return Err(Problem::bad_request("bad_query", detail).with("member", "after"));
        }
        Some(text) if !["", "start"].contains(&text) => Some(cursor("after", text)?),
        _ => None,
    };
    let read_request = query.read_request()?;
    let replay = read_request.replay;
    if let Some(DialectCursor { cursor, .. }) = start {
        let reader = app.feed.read(&LogId::Run(run.clone()), read_request, StartAt::After(cursor)).await?;
        if reader.has_seen_end() {
            return Ok(RunStream::Ended);
        }
    }
    let audience = query.audience()?;
    let (begin, headers) = match format {
        Format::AgUi => (if replay { Begin::Replay } else { Begin::Snapshot }, &[][..]),
        Format::AiSdk => (Begin::Snapshot, AI_SDK),
    };
    let dialect = format.dialect(app, &run, query, (begin, until_param(query)?)).await?;
    // The client saw the end, and the log went on: it joins as a new client does.
    let after = start.filter(|start| !start.cursor.knows_end);
    let opening = StreamOpening { run, audience, after, replay, ids: IdPosition::Last, earlier: Vec::new(), dialect };
    Ok(RunStream::InFormat(Box::new(DialectStream::open(app, authorization, opening).await?), headers))
}

/// Where a viewer's stream ends: at the run's end, or with `until=pause` at a pause.
fn until_param(query: &Query) -> Result<Until, Problem> {
    match query.get("until") {
        None | Some("end") => Ok(Until::End),
        Some("pause") => Ok(Until::Pause),
        Some(other) => {
            let detail = format!("The query's until is {other:?}. It must be end or pause.");
            Err(Problem::bad_request("bad_query", detail).with("member", "until"))
        }
    }
}

pub(super) fn ai_sdk_version(query: &Query) -> Result<u8, Problem> {
    let Some(text) = query.get("version") else { return Ok(ai_sdk::VERSIONS[0]) };
    ai_sdk::supported_version(text).ok_or_else(|| {
        let detail = format!("The query's version is {text:?}. It must be the client's major version: 5, 6 or 7.");
        Problem::bad_request("bad_query", detail).with("member", "version").with("expected", ai_sdk::VERSIONS.as_slice())
    })
}
