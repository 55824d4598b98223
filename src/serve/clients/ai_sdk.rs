//! The Vercel AI SDK over HTTP: `POST /ai-sdk/{agent}` submits, regenerates and decides; `GET …/{chat}/stream` resumes; and what the
//! SDK leaves to the application: `GET …/{chat}` is what a chat begins with, `POST …/{chat}/stop` asks for a run's end.
//!
//! The SDK names no runs. A run is named here by what is asked: the chat, and the message that it answers. So the same request
//! asks for it once. One run is one assistant's message, whose id is the run's, at every replay.

use super::asked::{self, Decision, Submitted};
use super::threads::{Asked, Joined, Thread};
use super::view::{AI_SDK, ai_sdk_version};
use super::{Awaiting, Begun, Ids, Opening, Talk, ag_ui, body, shown};
use crate::auth::rights::Verb;
use crate::encode::ai_sdk::{AiSdk, Options, messages};
use crate::encode::{Dialect, Until};
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
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The protocol's name, for the agent that gets messages in it.
const PROTOCOL: &str = "ai-sdk";

fn dialect(run: &RunId, version: u8) -> Box<dyn Dialect> {
    Box::new(AiSdk::new(Options { message: run.to_string(), version, until: Until::Pause }))
}

/// `POST /ai-sdk/{agent}`
pub async fn post(State(app): State<Arc<App>>, pass: Pass, request: Request<Body>) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let agent: AgentId = segment("agentId", &head.uri, 2)?;
    let query = Query::of(&head.uri);
    let (audience, version) = (query.audience()?, ai_sdk_version(&query)?);
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
                let actions: Vec<_> = decided.iter().map(|decision| decision.action.clone()).collect();
                let run = asked::decided(&app, decided, named, audience).await?;
                // The client goes on with the message that it has.
                let after = asked::paused_at(&app, &run, &actions).await?;
                let begun = ag_ui::ready(&app, &who, &chat, run, audience, false).await?;
                Ok(Begun { after, earlier: None, ..begun })
            })
        };
        let awaiting = Awaiting { coming, audience, ids: Ids::Last, meanwhile: None, dialect };
        return Ok(Talk::after(&app, pass, awaiting).await?.respond(AI_SDK));
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
        let mut news = asked::news(&said, &known);
        // It is known, and what its calls have come to at the client is not.
        news.extend(said.last().filter(|last| is_assistant(last) && !news.contains(last)).cloned());
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
    Ok(talk.respond(AI_SDK))
}

/// All of a run that is written, by what it has come to, and on.
async fn whole(app: &Arc<App>, pass: &Pass, run: RunId, audience: Audience, version: u8) -> Result<Talk, Problem> {
    let pass = allow(app, pass.who(), Verb::Read, Target::Run(&run), Some(audience)).await?;
    let dialect = dialect(&run, version);
    let opening = Opening { run, audience, after: None, replay: false, ids: Ids::Last, earlier: Vec::new(), dialect };
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

fn is_assistant(message: &Value) -> bool {
    message["role"] == "assistant"
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
    let named = || {
        said.iter()
            .rev()
            .find(|message| about.is_some_and(|about| message["id"] == about))
            .filter(|message| is_assistant(message))
    };
    let Some(message) = said.last().filter(|message| is_assistant(message)).or_else(named) else { return Ok(Vec::new()) };
    let parts = message["parts"].as_array().map_or(&[][..], Vec::as_slice);
    if !parts.iter().any(is_decided) {
        return Ok(Vec::new());
    }
    let asks = thread.asked(app, audience).await?;
    let mut submitted = Vec::new();
    for part in parts {
        let Some(decision) = decision(&asks, part) else { continue };
        let Some(ask) = asks.get(decision.action.as_str()) else { continue };
        let by = [thread.id.as_str(), PROTOCOL, &message.to_string()];
        let decided = asked::decide(app, ask, &decision, &by, audience).await?;
        // A call's output stays in the message for ever: it answers what waits for it, and once.
        if ask.is_pending || part["state"] == "approval-responded" || asked::was_decided(app, &decided).await? {
            submitted.push(decided);
        }
    }
    Ok(submitted)
}

/// Whether a part of a message is a call of which the client may have decided something.
fn is_decided(part: &Value) -> bool {
    let is_call = part["type"].as_str().is_some_and(|kind| kind.starts_with("tool-") || kind == "dynamic-tool");
    is_call && matches!(part["state"].as_str(), Some("approval-responded" | "output-available" | "output-error"))
}

/// What a part of a message decides of what was asked, if anything.
fn decision(asks: &HashMap<Box<str>, Asked>, part: &Value) -> Option<Decision> {
    let state = part["state"].as_str().filter(|_| is_decided(part))?;
    let (action, value) = match state {
        "approval-responded" => {
            let approval = &part["approval"];
            let mut value = json!({ "approved": approval["approved"].as_bool()? });
            if !approval["reason"].is_null() {
                value["reason"] = approval["reason"].clone();
            }
            (approval["id"].as_str()?, value)
        }
        _ => {
            let call = part["toolCallId"].as_str()?;
            let of_call = asks.iter().filter(|(_, asked)| asked.call.as_deref() == Some(call));
            let (action, _) = of_call.max_by_key(|(_, asked)| asked.is_pending)?;
            let value = match state {
                "output-available" => part["output"].clone(),
                _ => json!({ "error": part["errorText"] }),
            };
            (&**action, value)
        }
    };
    let is_output = state != "approval-responded";
    Some(Decision { action: ActionId::new(action).ok()?, is_answered: true, is_output, value: Some(value) })
}

/// `GET /ai-sdk/{agent}/{chat}/stream`: what goes on, from its beginning. 204 when nothing does: whatever has been said can be
/// read by then.
pub async fn stream(State(app): State<Arc<App>>, pass: Pass, uri: Uri) -> Result<Response, Problem> {
    segment::<AgentId>("agentId", &uri, 2)?;
    let (chat, query) = (segment::<SessionId>("chatId", &uri, 3)?, Query::of(&uri));
    let (audience, version) = (query.audience()?, ai_sdk_version(&query)?);
    let thread = Thread::find(&app, &chat).await?;
    let talk = match (thread.active(audience), thread.sent.first()) {
        (Some(part), _) => whole(&app, &pass, part.run.clone(), audience, version).await?,
        (None, Some(run)) => awaited(&app, pass, &chat, run.clone(), audience, version).await?,
        (None, None) => return Ok(([(header::CACHE_CONTROL, "no-store")], StatusCode::NO_CONTENT).into_response()),
    };
    Ok(talk.respond(AI_SDK))
}

/// `GET /ai-sdk/{agent}/{chat}`: what a chat begins with. Of a run that goes on there is what it answers: its own message comes
/// with the stream.
pub async fn chat(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, Problem> {
    segment::<AgentId>("agentId", &uri, 2)?;
    let (chat, query) = (segment::<SessionId>("chatId", &uri, 3)?, Query::of(&uri));
    let (audience, version) = (query.audience()?, ai_sdk_version(&query)?);
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
