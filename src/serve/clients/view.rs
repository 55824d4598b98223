//! A run in the words of a client that exists already: `GET /v1/runs/{run}/stream?format=…`. Nothing is asked of the runtime.

use super::place::Place;
use super::{Ids, Opening, Talk};
use crate::encode::ag_ui::{self, AgUi};
use crate::encode::ai_sdk::{self, AiSdk};
use crate::encode::{Begin, Dialect, Until};
use crate::log::LogId;
use crate::model::{Audience, RunId, SessionId, ThreadId};
use crate::serve::App;
use crate::serve::access::Pass;
use crate::serve::problem::Problem;
use crate::serve::request::Query;
use axum::response::Response;
use http::StatusCode;
use std::sync::Arc;

/// What the AI SDK's own server says of its streams.
pub(super) const AI_SDK: &[(&str, &str)] = &[("x-vercel-ai-ui-message-stream", "v1")];

/// The major versions of the AI SDK that are spoken; the first unless the client says which it has.
const AI_SDK_VERSIONS: [u8; 3] = [5, 6, 7];

/// Answers with a run in this format.
///
/// # Errors
/// 501 for a format that is not served, 400 for what makes no sense with one, the store's.
pub async fn get(
    app: &Arc<App>,
    pass: Pass,
    run: RunId,
    (query, place, audience): (&Query, Option<Place>, Audience),
    format: &str,
) -> Result<Response, Problem> {
    let replay = query.wanted()?.replay;
    let (dialect, headers): (Box<dyn Dialect>, &[_]) = match format {
        "ag-ui" => (Box::new(AgUi::new(ag_ui_options(app, &run, query, replay).await?)), &[]),
        "ai-sdk" => {
            let version = ai_sdk_version(query)?;
            let options = ai_sdk::Options { message: run.to_string(), version, until: Until::End };
            (Box::new(AiSdk::new(options)), AI_SDK)
        }
        _ => {
            let detail = format!("format={format} is not served; ask for ag-ui, ai-sdk, or no format");
            return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, "not_served", detail).with("member", "format"));
        }
    };
    // It was told the end, and something came after it: that is told as whoever joins is told.
    let after = place.filter(|place| !place.cursor.knows_end);
    let opening = Opening { run, audience, after, replay, ids: Ids::Last, earlier: Vec::new(), dialect };
    Ok(Talk::open(app, pass, opening).await?.respond(headers))
}

/// Who looks on is shown what there is, and then what comes, up to the run's end; or up to a pause, where it asks for that.
async fn ag_ui_options(app: &App, run: &RunId, query: &Query, replay: bool) -> Result<ag_ui::Options, Problem> {
    let is_v1 = query.get("protocolVersion").is_some_and(|version| version.starts_with("1."));
    let until = match query.get("until") {
        None | Some("end") => Until::End,
        Some("pause") => Until::Pause,
        Some(other) => {
            let detail = format!("until is {other:?}; it must be end or pause");
            return Err(Problem::bad_request("bad_query", detail).with("member", "until"));
        }
    };
    let summary = app.logs.log(&LogId::Run(run.clone())).await?.tail().summary;
    let thread = summary.thread_id.as_ref().map(ThreadId::as_str).or(summary.session_id.as_ref().map(SessionId::as_str));
    Ok(ag_ui::Options {
        thread: thread.unwrap_or(run.as_str()).to_owned(),
        run: run.to_string(),
        begin: if replay { Begin::Told } else { Begin::Shown },
        until,
        is_v1,
        subagents: is_v1 || query.is_set("subagents"),
        messages: Vec::new(),
    })
}

pub(super) fn ai_sdk_version(query: &Query) -> Result<u8, Problem> {
    let Some(text) = query.get("version") else { return Ok(AI_SDK_VERSIONS[0]) };
    text.parse().ok().filter(|version| AI_SDK_VERSIONS.contains(version)).ok_or_else(|| {
        let detail = format!("version is {text:?}; it must be the client's major version: 5, 6 or 7");
        Problem::bad_request("bad_query", detail).with("member", "version").with("expected", AI_SDK_VERSIONS.as_slice())
    })
}
