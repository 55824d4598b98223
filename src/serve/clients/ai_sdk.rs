//! The Vercel AI SDK over HTTP: `POST /ai-sdk/{agent}` submits, regenerates and decides; `GET …/{chat}/stream` resumes; and what the
//! SDK leaves to the application: `GET …/{chat}` is what a chat begins with, `POST …/{chat}/stop` asks for a run's end.
//!
//! The SDK names no runs. A run is named here by what is asked: the chat, and the message that it answers. So the same request
//! asks for it once. One run is one assistant's message, whose id is the run's, at every replay.

use super::asked::{self, Decision, Submitted};
use super::threads::{Joined, Thread};
use super::{Awaiting, Begun, Ids, Opening, Talk, ag_ui, body, shown};
use crate::auth::rights::Verb;
use crate::encode::ai_sdk::{AiSdk, Options, messages};
use crate::encode::frames::Shown;
use crate::encode::{Dialect, Until};
use crate::feed::From;
use crate::log::LogId;
use crate::model::{ActionId, AgentId, Audience, RunId, SessionId};
use crate::serve::App;
use crate::serve::access::{Pass, Target, allow, further};
use crate::serve::hydrate::{echo, live};
use crate::serve::problem::Problem;
use crate::serve::request::{Query, segment};
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{Request, StatusCode, Uri, header};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The protocol's name, for the agent that gets messages in it.
const PROTOCOL: &str = "ai-sdk";

/// What the SDK's own server says of its streams.
const STREAM: &[(&str, &str)] = &[("x-vercel-ai-ui-message-stream", "v1")];

/// The SDK's major versions that are spoken; the first unless the client says.
const VERSIONS: [u8; 3] = [5, 6, 7];

fn version(query: &Query) -> Result<u8, Problem> {
    let Some(text) = query.get("version") else { return Ok(VERSIONS[0]) };
    text.parse().ok().filter(|version| VERSIONS.contains(version)).ok_or_else(|| {
        let detail = format!("version is {text:?}; it must be the client's major version: 5, 6 or 7");
        Problem::bad_request("bad_query", detail).with("member", "version").with("expected", VERSIONS.as_slice())
    })
}

fn dialect(run: &RunId, version: u8) -> Box<dyn Dialect> {
    Box::new(AiSdk::new(Options { message: run.to_string(), version, until: Until::Pause }))
}

/// `POST /ai-sdk/{agent}`
pub async fn post(State(app): State<Arc<App>>, pass: Pass, request: Request<Body>) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let agent: AgentId = segment("agentId", &head.uri, 2)?;
    let query = Query::of(&head.uri);
    let (audience, version) = (query.audience()?, version(&query)?);
    let mut body = body::object(&app, &head.headers, body).await?;
    let chat: SessionId = body::id(&body, "id")?;
    let said = body::objects(&body, "messages")?;
    let trigger = body::text(&body, "trigger")?.unwrap_or("submit-message").to_owned();
    let about = body::text(&body, "messageId")?.map(str::to_owned);

    let who = pass.who().clone();
    let pass = further(&app, pass, Verb::Control, Target::Thread(&chat), Some(audience)).await?;
    let pass = further(&app, pass, Verb::Read, Target::Thread(&chat), Some(audience)).await?;
    let thread = Thread::find(&app, &chat).await?;

    let decided = decide(&app, &thread, &said, about.as_deref(), audience).await?;
    if let Some(last) = decided.last() {
        let dialect = dialect(&last.run, version);
        let coming = {
            let (app, named) = (app.clone(), last.run.clone());
            Box::pin(async move {
                let of_run: Vec<_> = decided.iter().filter(|decision| decision.run == named).cloned().collect();
                let run = asked::decided(&app, decided, named, audience).await?;
                // The client goes on with the message that it has.
                let from = asked::before(&app, &run, &of_run).await?.map_or(From::Start, From::After);
                let begun = ag_ui::ready(&app, &who, &chat, run, audience, false).await?;
                Ok(Begun { from, earlier: None, ..begun })
            })
        };
        let awaiting = Awaiting { coming, audience, ids: Ids::Last, meanwhile: None, dialect };
        return Ok(Talk::after(&app, pass, awaiting).await?.respond(STREAM));
    }

    let goes_on = match (trigger.as_str(), thread.joined(audience)) {
        ("regenerate-message", Some(Joined::Sent(run))) => Some(run.clone()),
        ("regenerate-message", _) => thread.active(audience).map(|part| part.run.clone()),
        _ => None,
    };
    let run = goes_on.clone().unwrap_or_else(|| named(&chat, &trigger, about.as_deref(), &said, thread.run_count));
    let tail = app.logs.log(&LogId::Run(run.clone())).await?.tail();
    if tail.epoch.is_none() && goes_on.is_none() {
        let known = known(&app, &thread, audience, version).await?;
        let news = asked::news(&said, &known);
        for member in ["id", "messages"] {
            body.shift_remove(member);
        }
        let told = json!({ "protocol": PROTOCOL, "threadId": chat, "runId": run, "trigger": trigger, "messages": news });
        asked::send(&app, &chat, &run, &agent, asked::value_of(body, told), audience).await?;
    }
    let talk = match tail.epoch {
        Some(_) => whole(&app, &pass, run, audience, version).await?,
        None => awaited(&app, pass, &chat, run, audience, version).await?,
    };
    Ok(talk.respond(STREAM))
}

/// All of a run that is written, by what it has come to, and on.
async fn whole(app: &Arc<App>, pass: &Pass, run: RunId, audience: Audience, version: u8) -> Result<Talk, Problem> {
    let pass = allow(app, pass.who(), Verb::Read, Target::Run(&run), Some(audience)).await?;
    let dialect = dialect(&run, version);
    let opening = Opening { run, audience, from: From::Start, replay: false, ids: Ids::Last, earlier: Vec::new(), dialect };
    Talk::open(app, pass, opening).await
}

/// The same of one that somebody asked for, once it is written.
async fn awaited(
    app: &Arc<App>,
    pass: Pass,
    chat: &SessionId,
    run: RunId,
    audience: Audience,
    version: u8,
) -> Result<Talk, Problem> {
    let (dialect, who) = (dialect(&run, version), pass.who().clone());
    let coming = {
        let (app, chat) = (app.clone(), chat.clone());
        Box::pin(async move {
            let run = asked::begun(&app, chat.clone(), run).await?;
            let begun = ag_ui::ready(&app, &who, &chat, run, audience, true).await?;
            Ok(Begun { earlier: None, ..begun })
        })
    };
    Talk::after(app, pass, Awaiting { coming, audience, ids: Ids::Last, meanwhile: None, dialect }).await
}

/// The name of the run that a request asks for. Who asks once more for what was answered already asks for another one.
fn named(chat: &SessionId, trigger: &str, about: Option<&str>, said: &[Value], runs: usize) -> RunId {
    let last = said.last().map(Value::to_string).unwrap_or_default();
    let times = if trigger == "submit-message" { String::new() } else { runs.to_string() };
    let name = asked::name_of(&[PROTOCOL, chat.as_str(), trigger, about.unwrap_or_default(), &last, &times]);
    RunId::new(&name).expect("a short name is an id")
}

/// The ids of the chat's messages, as the client and the log know them.
async fn known(app: &App, thread: &Thread, audience: Audience, version: u8) -> Result<BTreeSet<String>, Problem> {
    let mut known = BTreeSet::new();
    for part in &thread.runs {
        let shown = shown(app, &part.run, audience, None).await?;
        known.extend(asked::known_ids(&shown, &messages(&shown, part.run.as_str(), version)));
    }
    Ok(known)
}

/// Hands on what the client has decided: what the message that it goes on with says of approvals, and of calls that waited for
/// it.
async fn decide(
    app: &App,
    thread: &Thread,
    said: &[Value],
    about: Option<&str>,
    audience: Audience,
) -> Result<Vec<Submitted>, Problem> {
    let is_assistant = |message: &&Value| message["role"] == "assistant";
    let named = || said.iter().rev().find(|message| about.is_some_and(|about| message["id"] == about)).filter(is_assistant);
    let Some(message) = said.last().filter(is_assistant).or_else(named) else { return Ok(Vec::new()) };
    let mut submitted = Vec::new();
    for part in message["parts"].as_array().into_iter().flatten() {
        let Some(decision) = decision(app, thread, part, audience).await? else { continue };
        if let Some(asks) = thread.asks(app, decision.action.as_str(), audience).await? {
            let by = [thread.id.as_str(), PROTOCOL];
            submitted.push(asked::decide(app, &asks, &decision, &by, audience).await?);
        }
    }
    Ok(submitted)
}

/// What a part of a message decides, if anything.
async fn decision(app: &App, thread: &Thread, part: &Value, audience: Audience) -> Result<Option<Decision>, Problem> {
    let is_tool = part["type"].as_str().is_some_and(|kind| kind.starts_with("tool-") || kind == "dynamic-tool");
    let approval = &part["approval"];
    let action = |id: &str| ActionId::new(id).ok();
    Ok(match part["state"].as_str().filter(|_| is_tool) {
        Some("approval-responded") => approval["id"].as_str().and_then(action).map(|action| {
            let mut value = json!({ "approved": approval["approved"] });
            if !approval["reason"].is_null() {
                value["reason"] = approval["reason"].clone();
            }
            Decision { action, is_answered: true, value: Some(value) }
        }),
        Some(state @ ("output-available" | "output-error")) => {
            let Some(call) = part["toolCallId"].as_str() else { return Ok(None) };
            let Some(action) = waits_for(app, thread, call, audience).await?.and_then(|id| action(&id)) else { return Ok(None) };
            let value = match state {
                "output-available" => part["output"].clone(),
                _ => json!({ "error": part["errorText"] }),
            };
            Some(Decision { action, is_answered: true, value: Some(value) })
        }
        _ => None,
    })
}

/// The action by which somebody waits for what a call comes to at the client.
async fn waits_for(app: &App, thread: &Thread, call: &str, audience: Audience) -> Result<Option<String>, Problem> {
    let of_call = |shown: &&Shown| &*shown.kind == "action" && shown.text("toolCallId") == Some(call);
    for part in thread.runs.iter().rev().filter(|part| !part.stands(audience).pending.is_empty()) {
        let shown = shown(app, &part.run, audience, None).await?;
        let pending = shown.iter().filter(of_call).find(|shown| shown.text("status") == Some("pending"));
        if let Some(action) = pending {
            return Ok(Some(action.id.to_string()));
        }
    }
    Ok(None)
}

/// `GET /ai-sdk/{agent}/{chat}/stream`: what goes on, from its beginning. 204 when nothing does: whatever has been said can be
/// read by then.
pub async fn stream(State(app): State<Arc<App>>, pass: Pass, uri: Uri) -> Result<Response, Problem> {
    segment::<AgentId>("agentId", &uri, 2)?;
    let (chat, query) = (segment::<SessionId>("chatId", &uri, 3)?, Query::of(&uri));
    let (audience, version) = (query.audience()?, version(&query)?);
    let thread = Thread::find(&app, &chat).await?;
    let talk = match (thread.active(audience), thread.sent.first()) {
        (Some(part), _) => whole(&app, &pass, part.run.clone(), audience, version).await?,
        (None, Some(run)) => awaited(&app, pass, &chat, run.clone(), audience, version).await?,
        (None, None) => return Ok(([(header::CACHE_CONTROL, "no-store")], StatusCode::NO_CONTENT).into_response()),
    };
    Ok(talk.respond(STREAM))
}

/// `GET /ai-sdk/{agent}/{chat}`: what a chat begins with. Of a run that goes on there is what it answers: its own message comes
/// with the stream.
pub async fn chat(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    segment::<AgentId>("agentId", &uri, 2)?;
    let (chat, query) = (segment::<SessionId>("chatId", &uri, 3)?, Query::of(&uri));
    let (audience, version) = (query.audience()?, version(&query)?);
    let thread = Thread::find(&app, &chat).await?;
    let active = thread.active(audience).map(|part| &part.run);
    let mut all = Vec::new();
    for part in &thread.runs {
        let mut of_run = messages(&shown(&app, &part.run, audience, None).await?, part.run.as_str(), version);
        if active == Some(&part.run) {
            of_run.retain(|message| message["role"] != "assistant");
        }
        all.extend(of_run);
    }
    let active = active.or(thread.sent.first());
    let answer = json!({
        "id": chat,
        "messages": all,
        "activeRun": active.map(|run| json!({ "runId": run })),
        "truncated": thread.run_count > thread.runs.len(),
    });
    Ok(live(echo(&query, answer)))
}

/// `POST /ai-sdk/{agent}/{chat}/stop`: asks for the end of what goes on. That the client went away says nothing.
pub async fn stop(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    segment::<AgentId>("agentId", &uri, 2)?;
    let chat: SessionId = segment("chatId", &uri, 3)?;
    let audience = Query::of(&uri).audience()?;
    let thread = Thread::find(&app, &chat).await?;
    Ok(live(asked::stop(&app, &thread, None, audience).await?.to_json()))
}
