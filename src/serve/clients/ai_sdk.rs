//! The Vercel AI SDK over HTTP.
//!
//! `POST /ai-sdk/{agent}` submits, regenerates and decides. `GET …/{chat}/stream` resumes. The SDK leaves the rest to
//! the application: `GET …/{chat}` loads a chat, and `POST …/{chat}/stop` stops its run.
//!
//! The SDK names no runs. This module derives a run's id from the chat and the message that it answers, so a repeated
//! request requests one run. One run is one assistant message, whose id is the run's id in every replay.

use super::bodies::BodyReader;
use super::requests::{self, Decision, SubmittedDecision};
use super::threads::{AskedAction, JoinTarget, Thread};
use super::view::{AI_SDK, ai_sdk_version};
use super::{DialectStream, PendingOpening, Started, StreamOpening, ag_ui, apart, body, shown_activities};
use crate::auth::rights::Verb;
use crate::control::Requester;
use crate::encode::Until;
use crate::encode::ai_sdk::{AiSdk, AiSdkOptions, messages as ui_messages};
use crate::encode::translator::{IdPosition, PlainDialect};
use crate::log::LogId;
use crate::model::decided_by::Via;
use crate::model::version::split_version;
use crate::model::{ActionId, AgentId, Audience, RunId, SessionId};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, Resource, authorize, authorize_also};
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, segment};
use crate::serve::http::response::{echo, no_store_json};
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{Request, StatusCode, Uri, header};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The protocol's name in the messages to the agent.
const PROTOCOL: &str = "ai-sdk";

fn dialect(run: &RunId, version: u8) -> Box<dyn PlainDialect> {
    Box::new(AiSdk::new(AiSdkOptions { message: run.to_string(), version, until: Until::Pause }))
}

/// `POST /ai-sdk/{agent}`
pub async fn post(
    State(app): State<Arc<App>>,
    authorization: Authorization,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let agent: AgentId = segment("agentId", &head.uri, 2)?;
    let query = Query::from_uri(&head.uri);
    let (audience, version) = (query.audience()?, ai_sdk_version(&query)?);
    let mut body = body::object(&app, &head.headers, body).await?;
    let chat: SessionId = body::id(&body, "id")?;
    let messages_sent = body::take_objects(&mut body, "messages")?;
    let trigger = body::text(&body, "trigger")?.unwrap_or("submit-message").to_owned();
    let about = body::text(&body, "messageId")?.map(str::to_owned);

    let principal = authorization.principal().clone();
    let authorization = authorize_also(&app, authorization, Verb::Control, Resource::Thread(&chat), Some(audience)).await?;
    let authorization = authorize_also(&app, authorization, Verb::Read, Resource::Thread(&chat), Some(audience)).await?;
    let thread = Thread::find(&app, &chat).await?;
    let by = authorization.requester(audience, Via::AiSdk);

    let decided = decide(&app, &thread, &messages_sent, about.as_deref(), &by).await?;
    if let Some(last) = decided.last() {
        let dialect = dialect(&last.run, version);
        let start = {
            let (app, run) = (app.clone(), last.run.clone());
            Box::pin(async move {
                let actions: Vec<_> = decided.iter().map(|decision| decision.action.clone()).collect();
                let run = requests::wait_until_resumed(&app, decided, run, audience).await?;
                // The client keeps the message that it has.
                let after = requests::paused_at(&app, &run, &actions).await?;
                let started = ag_ui::prepare(&app, &principal, &chat, run, audience, false).await?;
                Ok(Started { after, earlier: None, ..started })
            })
        };
        let opening = PendingOpening { start, audience, ids: IdPosition::Last, meanwhile: None, dialect };
        return Ok(DialectStream::after(&app, authorization, opening).await?.respond(AI_SDK));
    }

    let active_run = match (trigger.as_str(), thread.join_target(audience)) {
        ("regenerate-message", Some(JoinTarget::Requested(run))) => Some(run.clone()),
        ("regenerate-message", _) => thread.active(audience).map(|part| part.run.clone()),
        _ => None,
    };
    let run =
        active_run.clone().unwrap_or_else(|| run_id_of(&chat, &trigger, about.as_deref(), &messages_sent, thread.run_count));
    let tail = app.logs.log(&LogId::Run(run.clone())).await?.tail();
    if tail.epoch.is_none() && active_run.is_none() {
        let known = known_message_ids(&app, &thread, audience, version).await?;
        let (thread, requested) = (chat.clone(), run.clone());
        let value = move || {
            let mut new_messages = requests::new_messages(&messages_sent, &known);
            // The message is known, but the outputs of its client-side calls are not.
            let last = messages_sent.last().filter(|last| is_assistant(last) && new_messages.last() != Some(last));
            new_messages.extend(last.cloned());
            body.shift_remove("id");
            let sent = json!({ "protocol": PROTOCOL, "threadId": thread, "runId": requested, "trigger": trigger });
            requests::value_of(body, sent, new_messages)
        };
        let value = apart(&app, value).await;
        requests::send(&app, &chat, &run, &agent, value, &by).await?;
    }
    let stream = match tail.epoch {
        Some(_) => open_run(&app, &authorization, run, audience, version).await?,
        None => open_requested_run(&app, authorization, &chat, run, audience, version).await?,
    };
    Ok(stream.respond(AI_SDK))
}

/// Streams an existing run: its current state, then changes.
async fn open_run(
    app: &Arc<App>,
    authorization: &Authorization,
    run: RunId,
    audience: Audience,
    version: u8,
) -> Result<DialectStream, Problem> {
    let authorization = authorize(app, authorization.principal(), Verb::Read, Resource::Run(&run), Some(audience)).await?;
    let dialect = dialect(&run, version);
    let opening =
        StreamOpening { run, audience, after: None, replay: false, ids: IdPosition::Last, earlier: Vec::new(), dialect };
    DialectStream::open(app, authorization, opening).await
}

/// Streams a requested run once it exists.
async fn open_requested_run(
    app: &Arc<App>,
    authorization: Authorization,
    chat: &SessionId,
    run: RunId,
    audience: Audience,
    version: u8,
) -> Result<DialectStream, Problem> {
    let (dialect, principal) = (dialect(&run, version), authorization.principal().clone());
    let start = {
        let (app, chat) = (app.clone(), chat.clone());
        Box::pin(async move {
            let run = requests::wait_until_written(&app, chat.clone(), run).await?;
            let started = ag_ui::prepare(&app, &principal, &chat, run, audience, true).await?;
            Ok(Started { earlier: None, ..started })
        })
    };
    DialectStream::after(app, authorization, PendingOpening { start, audience, ids: IdPosition::Last, meanwhile: None, dialect })
        .await
}

/// The id of the run that a request asks for. Regenerating an answered message yields another id.
fn run_id_of(chat: &SessionId, trigger: &str, about: Option<&str>, messages_sent: &[Value], runs: usize) -> RunId {
    let last = messages_sent.last().map(Value::to_string).unwrap_or_default();
    let times = if trigger == "submit-message" { String::new() } else { runs.to_string() };
    let name = requests::hashed_id(&[PROTOCOL, chat.as_str(), trigger, about.unwrap_or_default(), &last, &times]);
    RunId::new(&name).expect("a short name is an id")
}

/// The ids of the chat's messages, as the client and the log know them.
async fn known_message_ids(app: &App, thread: &Thread, audience: Audience, version: u8) -> Result<BTreeSet<String>, Problem> {
    let mut known = BTreeSet::new();
    for part in &thread.runs {
        let (shown, run) = (shown_activities(app, &part.run, audience, None).await?, part.run.clone());
        known.extend(apart(app, move || requests::known_ids(&shown, &ui_messages(&shown, run.as_str(), version))).await);
    }
    Ok(known)
}

fn is_assistant(message: &Value) -> bool {
    message["role"] == "assistant"
}

/// Submits the client's decisions.
///
/// They are the approvals, and the outputs of client-side calls, in the message that it continues.
async fn decide(
    app: &App,
    thread: &Thread,
    messages_sent: &[Value],
    about: Option<&str>,
    by: &Requester,
) -> Result<Vec<SubmittedDecision>, Problem> {
    let named = || {
        messages_sent
            .iter()
            .rev()
            .find(|message| about.is_some_and(|about| message["id"] == about))
            .filter(|message| is_assistant(message))
    };
    let Some(message) = messages_sent.last().filter(|message| is_assistant(message)).or_else(named) else {
        return Ok(Vec::new());
    };
    let parts = message["parts"].as_array().map_or(&[][..], Vec::as_slice);
    if !parts.iter().any(is_decided) {
        return Ok(Vec::new());
    }
    // The message is that of one run: a part answers what this run asked, also if other runs use the same id.
    let run = message["id"].as_str().and_then(|id| RunId::new(id).ok());
    let actions_asked = thread.asked(app, run.as_ref(), by.audience).await?;
    let by_call = asked_by_call(&actions_asked);
    let sent = requests::hashed_id(&[&message.to_string()]);
    let request = [thread.id.as_str(), PROTOCOL, &sent];
    let (mut submitted, mut known, mut decided_before) = (Vec::new(), HashMap::new(), HashSet::new());
    for part in parts {
        let Some(decision) = decision(&by_call, part) else { continue };
        // The first part about an action decides.
        let Some(ask) = actions_asked.get(decision.action.as_str()).filter(|_| decided_before.insert(decision.action.clone()))
        else {
            continue;
        };
        let decided = requests::decide(app, ask, &decision, &request, by).await?;
        // A call's output stays in the message forever, so it must count only once.
        let counts = ask.is_pending || part["state"] == "approval-responded" || {
            if !known.contains_key(&decided.run) {
                known.insert(decided.run.clone(), requests::submitted_controls(app, &decided.run).await?);
            }
            known[&decided.run].contains(&decided.control)
        };
        if counts {
            submitted.push(decided);
        }
    }
    Ok(submitted)
}

/// The action that asked for each call, by call id. A pending one wins.
fn asked_by_call(actions_asked: &HashMap<Box<str>, AskedAction>) -> HashMap<&str, &str> {
    let mut by_call = HashMap::new();
    for (action, asked) in actions_asked {
        let Some(call) = asked.call.as_deref() else { continue };
        if asked.is_pending || !by_call.contains_key(call) {
            by_call.insert(call, &**action);
        }
    }
    by_call
}

/// Returns whether a message part is a call with a decision of the client.
fn is_decided(part: &Value) -> bool {
    let is_call = part["type"].as_str().is_some_and(|kind| kind.starts_with("tool-") || kind == "dynamic-tool");
    is_call && matches!(part["state"].as_str(), Some("approval-responded" | "output-available" | "output-error"))
}

/// The decision in a message part, if any.
fn decision(asked_by_call: &HashMap<&str, &str>, part: &Value) -> Option<Decision> {
    let state = part["state"].as_str().filter(|_| is_decided(part))?;
    let (action, version, value) = match state {
        "approval-responded" => {
            let approval = &part["approval"];
            let mut value = json!({ "approved": approval["approved"].as_bool()? });
            if !approval["reason"].is_null() {
                value["reason"] = approval["reason"].clone();
            }
            let (action, version) = split_version(approval["id"].as_str()?);
            (action, Some(version), value)
        }
        _ => {
            let action = *asked_by_call.get(part["toolCallId"].as_str()?)?;
            let value = match state {
                "output-available" => part["output"].clone(),
                _ => json!({ "error": part["errorText"] }),
            };
            (action, None, value)
        }
    };
    let is_output = state != "approval-responded";
    Some(Decision { action: ActionId::new(action).ok()?, version, is_answered: true, is_output, value: Some(value) })
}

/// `GET /ai-sdk/{agent}/{chat}/stream`: the active run, from its start.
///
/// 204 if none is active: the chat then has every message.
pub async fn stream(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    segment::<AgentId>("agentId", &uri, 2)?;
    let (chat, query) = (segment::<SessionId>("chatId", &uri, 3)?, Query::from_uri(&uri));
    let (audience, version) = (query.audience()?, ai_sdk_version(&query)?);
    let thread = Thread::find(&app, &chat).await?;
    let stream = match (thread.active(audience), thread.requested.first()) {
        (Some(part), _) => open_run(&app, &authorization, part.run.clone(), audience, version).await?,
        (None, Some(run)) => open_requested_run(&app, authorization, &chat, run.clone(), audience, version).await?,
        (None, None) => return Ok(([(header::CACHE_CONTROL, "no-store")], StatusCode::NO_CONTENT).into_response()),
    };
    Ok(stream.respond(AI_SDK))
}

/// `GET /ai-sdk/{agent}/{chat}`: a chat's messages.
///
/// Of the active run only the user's are listed; the stream has the rest.
pub async fn chat(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    segment::<AgentId>("agentId", &uri, 2)?;
    let (chat, query) = (segment::<SessionId>("chatId", &uri, 3)?, Query::from_uri(&uri));
    let (audience, version) = (query.audience()?, ai_sdk_version(&query)?);
    let thread = Thread::find(&app, &chat).await?;
    let active = thread.active(audience).map(|part| &part.run);
    let mut all = Vec::new();
    for part in &thread.runs {
        let (shown, run) = (shown_activities(&app, &part.run, audience, None).await?, part.run.clone());
        let mut of_run = apart(&app, move || ui_messages(&shown, run.as_str(), version)).await;
        if active == Some(&part.run) {
            of_run.retain(|message| message["role"] != "assistant");
        }
        all.extend(of_run);
    }
    let active = active.or(thread.requested.first());
    let answer = json!({
        "id": chat,
        "messages": all,
        "activeRun": active.map(|run| json!({ "runId": run })),
        "truncated": thread.run_count > thread.runs.len(),
    });
    let runs = thread.runs.iter().map(|part| part.run.clone()).collect();
    Ok(BodyReader::new(&app, audience, runs).respond(echo(&query, answer)))
}

/// `POST /ai-sdk/{agent}/{chat}/stop`: requests a stop of the active run. A disconnect alone does not.
pub async fn stop(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    segment::<AgentId>("agentId", &uri, 2)?;
    let chat: SessionId = segment("chatId", &uri, 3)?;
    let by = authorization.requester(Query::from_uri(&uri).audience()?, Via::AiSdk);
    let thread = Thread::find(&app, &chat).await?;
    Ok(no_store_json(requests::stop(&app, &thread, None, &by).await?.to_json()))
}
