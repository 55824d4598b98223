//! The Vercel AI SDK over HTTP.
//!
//! `POST /ai-sdk/{agent}` submits, regenerates and decides. `GET …/{chat}/stream` resumes. The SDK leaves the rest to
//! the application: `GET /ai-sdk/{agent}` lists chats, `GET …/{chat}` loads one, and `POST …/{chat}/stop` stops its run.
//!
//! The stream that answers a `POST` is one that the client may count, and resume by its count: see [`counted`].
//!
//! The SDK names no runs. This module derives a run's id from the chat and the message that it answers, so a repeated
//! request requests one run. One run is one assistant message, whose id is the run's id in every replay.

use super::ai_sdk_streams::{dialect, open_requested_run, open_run};
use super::bodies::BodyReader;
use super::branching::{Leave, branch_off, take_head};
use super::requests::{self, Decision, SubmittedDecision};
use super::threads::{AskedAction, JoinTarget, Thread};
use super::view::{AI_SDK, ai_sdk_version};
use super::{DialectStream, PendingOpening, Start, Started, ag_ui, apart, body, counted};
use crate::auth::rights::Verb;
use crate::control::Requester;
use crate::encode::Begin;
use crate::encode::ai_sdk::messages as ui_messages;
use crate::encode::translator::IdPosition;
use crate::log::LogId;
use crate::model::decided_by::Via;
use crate::model::version::split_version;
use crate::model::{ActionId, AgentId, Audience, RunId, SessionId};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, Resource, authorize_also};
use crate::serve::access::counted_stream::StreamForm;
use crate::serve::api::session_list::SessionList;
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
        let run = last.run.clone();
        let actions: Vec<_> = decided.iter().map(|decision| decision.action.clone()).collect();
        // The client keeps the message that it has.
        let after = requests::paused_at(&app, &run, &actions).await?;
        let begin = begin_of(&app, &run).await?;
        let (dialect, form) = (dialect(&run, version, begin), StreamForm { version, audience, after });
        let start = {
            let (app, run, session) = (app.clone(), run.clone(), thread.id);
            Box::pin(async move {
                let run = requests::wait_until_resumed(&app, decided, run, audience).await?;
                let started = ag_ui::prepare(&app, &principal, &session, run, audience, false).await?;
                Ok(Start::Run(Started { after, earlier: None, ..started }))
            })
        };
        let opening = PendingOpening { start, audience, ids: IdPosition::Last, meanwhile: None, dialect };
        let stream = DialectStream::after(&app, authorization, opening).await?;
        return Ok(counted::with_name(&app, &query, &run, form, stream.respond(AI_SDK)));
    }

    let active_run = match (trigger.as_str(), thread.join_target(audience)) {
        ("regenerate-message", Some(JoinTarget::Requested(run))) => Some(run.clone()),
        ("regenerate-message", _) => thread.active(audience).map(|part| part.run.clone()),
        _ => None,
    };
    let run =
        active_run.clone().unwrap_or_else(|| run_id_of(&chat, &trigger, about.as_deref(), &messages_sent, thread.run_count));
    let tail = app.logs.log(&LogId::Run(run.clone())).await?.tail();
    let mut thread = thread;
    if tail.epoch.is_none() && active_run.is_none() {
        if let Some(leave) = leave(&app, &thread, &trigger, about.as_deref(), &messages_sent, audience).await? {
            thread = branch_off(&app, thread, leave, &run, &by).await?;
        }
        let known = known_message_ids(&app, &thread, audience, version).await?;
        // The agent knows a branch by its own id.
        let (session, requested) = (thread.id.clone(), run.clone());
        let value = move || {
            let mut new_messages = requests::new_messages(&messages_sent, &known);
            // The message is known, but the outputs of its client-side calls are not.
            let last = messages_sent.last().filter(|last| is_assistant(last) && new_messages.last() != Some(last));
            new_messages.extend(last.cloned());
            body.shift_remove("id");
            let sent = json!({ "protocol": PROTOCOL, "threadId": session, "runId": requested, "trigger": trigger });
            requests::value_of(body, sent, new_messages)
        };
        let value = apart(&app, value).await;
        requests::send(&app, &thread.id, &run, &agent, value, &by).await?;
        take_head(&app, &thread, &by).await?;
    }
    let dialect = dialect(&run, version, begin_of(&app, &run).await?);
    let stream = match tail.epoch {
        Some(_) => open_run(&app, &authorization, run.clone(), audience, dialect).await?,
        None => open_requested_run(&app, authorization, &thread.id, run.clone(), audience, dialect).await?,
    };
    let form = StreamForm { version, audience, after: None };
    Ok(counted::with_name(&app, &query, &run, form, stream.respond(AI_SDK)))
}

/// Where a request leaves the chat: it regenerates an answer, or edits a message of the user.
async fn leave(
    app: &App,
    thread: &Thread,
    trigger: &str,
    about: Option<&str>,
    messages_sent: &[Value],
    audience: Audience,
) -> Result<Option<Leave>, Problem> {
    if trigger == "regenerate-message" {
        return Ok(Leave::before_run(thread, about));
    }
    let last = messages_sent.last().filter(|last| last["role"] == "user");
    let Some((id, last)) = last.and_then(|last| Some((last["id"].as_str()?, last))) else { return Ok(None) };
    let texts = last["parts"].as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
    Leave::before_edited(app, thread, id, &texts.collect::<Vec<_>>().join("\n"), audience).await
}

/// How the answer to a request begins: such that the client may count it, unless the log lacks changes.
async fn begin_of(app: &App, run: &RunId) -> Result<Begin, Problem> {
    Ok(if counted::is_compacted(app, run).await? { Begin::Snapshot } else { Begin::Replay })
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
        let (shown, run) = (part.shown().activities(app, audience).await?, part.run.clone());
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
/// 204 if none is active: the chat then has every message. With `startIndex`, see [`counted::resume`].
pub async fn stream(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    segment::<AgentId>("agentId", &uri, 2)?;
    let query = Query::from_uri(&uri);
    if let Some(start) = query.get("startIndex") {
        return counted::resume(&app, authorization, &uri, start).await;
    }
    let chat: SessionId = segment("chatId", &uri, 3)?;
    let (audience, version) = (query.audience()?, ai_sdk_version(&query)?);
    let thread = Thread::find(&app, &chat).await?;
    let joins = |run: &RunId| (run.clone(), dialect(run, version, Begin::Snapshot));
    let stream = match (thread.active(audience), thread.requested.first().map(joins)) {
        (Some(part), _) => {
            let (run, dialect) = joins(&part.run);
            open_run(&app, &authorization, run, audience, dialect).await?
        }
        (None, Some((run, dialect))) => open_requested_run(&app, authorization, &thread.id, run, audience, dialect).await?,
        (None, None) => return Ok(([(header::CACHE_CONTROL, "no-store")], StatusCode::NO_CONTENT).into_response()),
    };
    Ok(stream.respond(AI_SDK))
}

/// `GET /ai-sdk/{agent}`: the chats of an agent that the client may read, with the newest activity first.
pub async fn chats(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let (agent, query) = (segment::<AgentId>("agentId", &uri, 2)?, Query::from_uri(&uri));
    let limit = query.page_size()?;
    let list = SessionList::of_agent(authorization, query.audience()?, Some(agent), Some(false));
    let (page, next) = list.page_at(&app, query.get("cursor"), limit).await?;
    let chats = page.into_iter().map(|(chat, entry)| {
        let mut listed = json!({ "id": chat });
        for (member, of_entry) in [("title", "title"), ("updatedAt", "lastActivity")] {
            if let Some(value) = entry.get(of_entry) {
                listed[member] = value.clone();
            }
        }
        listed
    });
    let answer = json!({ "chats": chats.collect::<Vec<_>>(), "nextCursor": next });
    Ok(no_store_json(echo(&query, answer)))
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
        let (shown, run) = (part.shown().activities(&app, audience).await?, part.run.clone());
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
