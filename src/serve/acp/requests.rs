//! The methods of the protocol.

use super::connection::{Connection, Job, PROMPTS_MAX, Terms};
use super::prompt::{self, Prompt};
use super::rpc::{INVALID_PARAMS, INVALID_REQUEST, Incoming, METHOD_NOT_FOUND, NOT_FOUND, RpcError, meta, parse, text};
use super::session::{OpenSession, Start, open, view_of};
use crate::auth::rights::Verb;
use crate::control::claim_session;
use crate::encode::acp::{AcpOptions, Position};
use crate::ingest::{Quota, ServerAppend, WriterView};
use crate::log::LogId;
use crate::model::decided_by::Via;
use crate::model::id::IdError;
use crate::model::{AgentId, Audience, Draft, EventType, RunId, SessionId};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, Principal, Resource, authorize, authorize_also};
use crate::serve::api::controls::{control_problem, submit};
use crate::serve::api::erase::{Below, erase_session};
use crate::serve::api::session_list::SessionList;
use crate::serve::api::sessions::no_such_session;
use crate::serve::clients::requests::{SEND_BYTES_MAX, send_id, stop, wait_until_claimed};
use crate::serve::clients::threads::Thread;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, quoted};
use crate::source::kind_of;
use futures_util::FutureExt;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tokio_tungstenite::tungstenite::Error;

/// The version of the protocol.
const VERSION: u64 = 1;
/// Sessions of one page of `session/list`.
const PAGE: usize = 50;
/// The longest `cwd`, in bytes.
const CWD_BYTES_MAX: usize = 4096;
/// What `session/list` says of a session whose directory no client named.
const NO_CWD: &str = "/";
/// The method of signing in: with the token that the connection has.
const AUTH_METHOD: &str = "token";

type Params = Map<String, Value>;

impl Connection {
    /// Handles a message of the client.
    pub(super) async fn handle(&mut self, message: &str) -> Result<(), Error> {
        match parse(message, self.app.limits.depth_max) {
            Ok(Incoming::Request { id, method, params }) => match self.request(&id, &method, params) {
                Ok(Some(result)) => self.answer(&id, Ok(result)).await,
                Ok(None) => Ok(()),
                Err(error) => self.answer(&id, Err(error)).await,
            },
            Ok(Incoming::Notification { method, params }) => {
                self.notified(&method, &params);
                Ok(())
            }
            Ok(Incoming::Response { id, outcome }) => {
                self.take_answer(&id, outcome);
                Ok(())
            }
            Err((id, error)) => self.answer(&id, Err(error)).await,
        }
    }

    /// Handles a request. `None`: the answer follows.
    fn request(&mut self, id: &Value, method: &str, params: Params) -> Result<Option<Value>, RpcError> {
        let is_known = METHODS.contains(&method);
        if is_known && self.client.is_none() && method != "initialize" {
            let detail = format!("{method} came before initialize. Send initialize first.");
            return Err(RpcError::new(INVALID_REQUEST, detail));
        }
        match method {
            "initialize" => self.initialize(&params).map(Some),
            "authenticate" => authenticate(&params).map(Some),
            "session/new" => self.new_session(id, &params).map(|()| None),
            "session/load" => self.reopen(id, &params, Start::Load).map(|()| None),
            "session/resume" => self.resume(id, &params).map(|()| None),
            "session/list" => self.list(id, &params).map(|()| None),
            "session/close" => self.close(id, &params).map(|()| None),
            "session/delete" => self.delete(id, &params).map(|()| None),
            "session/prompt" => self.prompt(id, &params).map(|()| None),
            _ => {
                let detail = format!("The method {} is not served. The methods are {}.", quoted(method), METHODS.join(", "));
                Err(RpcError::new(METHOD_NOT_FOUND, detail))
            }
        }
    }

    fn notified(&mut self, method: &str, params: &Params) {
        match method {
            "session/cancel" => {
                if let Ok(session) = session_of(params) {
                    self.cancel(&session);
                }
            }
            "$/cancel_request" => {
                let Some(id) = params.get("requestId") else { return };
                let of = |open: &OpenSession| open.prompts.iter().any(|prompt| prompt.id == *id);
                let session = self.sessions.iter().find(|(_, open)| of(open)).map(|(session, _)| session.clone());
                if let Some(session) = session {
                    self.cancel(&session);
                }
            }
            _ => tracing::debug!(method, "an ACP notification is unknown, and ignored"),
        }
    }

    fn initialize(&mut self, params: &Params) -> Result<Value, RpcError> {
        match params.get("protocolVersion") {
            Some(version) if version.is_u64() => {}
            other => {
                let what = other.map_or("missing", kind_of);
                let detail = format!("protocolVersion is {what}. It must be a number; this server speaks {VERSION}.");
                return Err(RpcError::params("protocolVersion", detail));
            }
        }
        let elicitation = params.get("clientCapabilities").and_then(|can| can.get("elicitation"));
        let can = |what: &str| elicitation.and_then(|can| can.get(what)).is_some_and(Value::is_object);
        self.client = Some(AcpOptions { form: can("form"), url: can("url"), decides: false });
        // A text or a link reaches every agent, also as an embedded resource.
        let image = self.terms.agent.as_ref().is_none_or(|agent| self.app.takes_images(agent));
        Ok(json!({
            "protocolVersion": VERSION,
            "agentCapabilities": {
                "loadSession": true,
                "promptCapabilities": { "image": image, "audio": false, "embeddedContext": true },
                "mcpCapabilities": { "http": false, "sse": false },
                "sessionCapabilities": { "list": {}, "resume": {}, "close": {}, "delete": {} },
            },
            "agentInfo": { "name": "proscenium", "title": "Proscenium", "version": env!("CARGO_PKG_VERSION") },
            "authMethods": [{
                "id": AUTH_METHOD, "name": "Token", "description": "The token of the connection: --token or PROSCENIUM_TOKEN.",
            }],
        }))
    }

    fn job(&self, job: impl Future<Output = Job> + Send + 'static) {
        self.jobs.push(job.boxed());
    }

    // ── sessions ──

    fn new_session(&mut self, id: &Value, params: &Params) -> Result<(), RpcError> {
        let cwd = cwd_of(params)?.to_owned();
        self.check_room()?;
        let session = match meta(params, "sessionId").and_then(Value::as_str) {
            Some(named) => {
                named.parse().map_err(|error: IdError| RpcError::params("_meta.proscenium.sessionId", error.to_string()))?
            }
            None => self.terms.session.clone().unwrap_or_else(|| SessionId::new(&random_id(&self.app)).expect("a UUID is an id")),
        };
        let (app, id, options) = (self.app.clone(), id.clone(), self.client.unwrap_or_default());
        let (principal, audience) = (self.terms.principal.clone(), self.terms.audience);
        let begin = Beginning::new(&self.terms);
        self.job(async move {
            let opened = async {
                begin.begin(&app, &session, cwd).await?;
                let opening = open(&app, &principal, &session, audience, Start::Now, options).await?;
                Ok((opening, json!({ "sessionId": session })))
            };
            Job::Opened(id, session.clone(), Box::new(opened.await))
        });
        Ok(())
    }

    fn resume(&mut self, id: &Value, params: &Params) -> Result<(), RpcError> {
        const CURSOR: &str = "_meta.proscenium.cursor";
        let start = match meta(params, "cursor") {
            None | Some(Value::Null) => Start::Now,
            Some(Value::String(cursor)) => {
                let wrong = |why| RpcError::params(CURSOR, format!("{CURSOR} is {}: {why}.", quoted(cursor)));
                Start::After(Box::new(cursor.parse::<Position>().map_err(wrong)?))
            }
            Some(other) => {
                return Err(RpcError::params(CURSOR, format!("{CURSOR} is {}. It must be text.", kind_of(other))));
            }
        };
        self.reopen(id, params, start)
    }

    /// Opens a session that exists.
    fn reopen(&mut self, id: &Value, params: &Params, start: Start) -> Result<(), RpcError> {
        let session = session_of(params)?;
        check_servers(params)?;
        if !self.sessions.contains_key(&session) {
            self.check_room()?;
        }
        let (app, id, options) = (self.app.clone(), id.clone(), self.client.unwrap_or_default());
        let (principal, audience) = (self.terms.principal.clone(), self.terms.audience);
        self.job(async move {
            let opening = open(&app, &principal, &session, audience, start, options).await;
            Job::Opened(id, session, Box::new(opening.map(|opening| (opening, json!({})))))
        });
        Ok(())
    }

    fn check_room(&self) -> Result<(), RpcError> {
        let limit = self.app.limits.subscriptions_max;
        if self.sessions.len() < limit {
            return Ok(());
        }
        let detail = format!("This connection has {limit} sessions open, its limit. Close some, or open another connection.");
        Err(RpcError::new(INVALID_REQUEST, detail).with(json!({ "code": "too_many_subscriptions", "limit": limit })))
    }

    fn list(&mut self, id: &Value, params: &Params) -> Result<(), RpcError> {
        let cursor = params.get("cursor").filter(|cursor| !cursor.is_null());
        let cursor = match cursor {
            None => None,
            Some(Value::String(cursor)) => Some(cursor.clone()),
            Some(other) => return Err(RpcError::params("cursor", format!("cursor is {}. It must be text.", kind_of(other)))),
        };
        let cwd = params.get("cwd").and_then(Value::as_str).map(str::to_owned);
        let (app, id, agent) = (self.app.clone(), id.clone(), self.terms.agent.clone());
        let (principal, audience) = (self.terms.principal.clone(), self.terms.audience);
        self.job(async move {
            let listed = async {
                let authorization = authorize(&app, &principal, Verb::Read, Resource::Unspecified, Some(audience)).await?;
                let list = SessionList::of_agent(authorization, audience, agent, Some(false));
                let (page, next) = list.page_at(&app, cursor.as_deref(), PAGE).await?;
                let mut sessions = Vec::with_capacity(page.len());
                for (session, entry) in page {
                    let directory = directory_of(&app, &session, audience).await?;
                    if cwd.as_ref().is_none_or(|cwd| *cwd == directory) {
                        sessions.push(json!({
                            "sessionId": session, "cwd": directory, "title": entry["title"], "updatedAt": entry["lastActivity"],
                        }));
                    }
                }
                Ok(json!({ "sessions": sessions, "nextCursor": next }))
            };
            Job::Answered(id, listed.await)
        });
        Ok(())
    }

    /// Closes a session for this client. Its own turns are interrupted, and those of others go on.
    fn close(&mut self, id: &Value, params: &Params) -> Result<(), RpcError> {
        let session = self.open_session(params)?;
        if self.sessions.get(&session).is_some_and(|open| !open.prompts.is_empty()) {
            self.cancel(&session);
        }
        for prompt in self.close_session(&session) {
            let result = prompt::stop("cancelled", prompt.turn.as_deref());
            self.job(async move { Job::Answered(prompt.id, Ok(result)) });
        }
        let id = id.clone();
        self.job(async move { Job::Answered(id, Ok(json!({}))) });
        Ok(())
    }

    fn delete(&mut self, id: &Value, params: &Params) -> Result<(), RpcError> {
        let session = session_of(params)?;
        let (app, id, principal) = (self.app.clone(), id.clone(), self.terms.principal.clone());
        self.job(async move {
            let deleted = async {
                let authorization = authorize(&app, &principal, Verb::Erase, Resource::Session(&session), None).await?;
                let below = Below { children: Some(true), branches: false };
                erase_session(&app, &authorization, session, below, Via::Acp).await?;
                Ok(json!({}))
            };
            Job::Answered(id, deleted.await)
        });
        Ok(())
    }

    // ── turns ──

    fn prompt(&mut self, id: &Value, params: &Params) -> Result<(), RpcError> {
        let session = self.open_session(params)?;
        if self.open_prompts() >= PROMPTS_MAX {
            let detail =
                format!("This connection has {PROMPTS_MAX} prompts without an answer, its limit. Wait for one, or cancel it.");
            return Err(RpcError::new(INVALID_REQUEST, detail).with(json!({ "limit": PROMPTS_MAX })));
        }
        let (content, said) = prompt::content(params.get("prompt"))?;
        let supersede = meta(params, "supersede") == Some(&Value::Bool(true));
        let (number, random) = (self.take_number(), random_id(&self.app));
        let run = RunId::new(&random).expect("a UUID is an id");
        let Some(open) = self.sessions.get_mut(&session) else { return Ok(()) };
        let before = open.runs.values().map(|run| (run.run.clone(), run.attempt)).collect();
        let id = id.clone();
        let prompt = Prompt { id, number, run: run.clone(), before, is_claimed: false, turn: None, is_cancelled: false };
        open.prompts.push(prompt);
        open.acp.expect_prompt(said);
        let value = json!({ "runId": run, "messages": [{ "id": format!("{random}-user"), "role": "user", "content": content }] });
        let asked = Asking { run, value, supersede, agent: self.terms.agent.clone(), audience: self.terms.audience };
        let (app, begin) = (self.app.clone(), Beginning::new(&self.terms));
        self.job(async move {
            let submitted = begin.ask(&app, &session, asked).await;
            Job::Submitted(session, number, submitted)
        });
        Ok(())
    }

    /// Waits until an agent takes a prompt that was submitted.
    pub(super) fn await_claim(&self, session: SessionId, number: u64, run: RunId) {
        let app = self.app.clone();
        self.job(async move {
            let control = send_id(&session, &run);
            let claimed = wait_until_claimed(&app, session.clone(), run, control).await;
            Job::Claimed(session, number, claimed.map_err(RpcError::from))
        });
    }

    /// Asks the agent to stop the turn of this client, else the active one.
    pub(super) fn cancel(&mut self, session: &SessionId) {
        let Some(open) = self.sessions.get_mut(session) else { return };
        for prompt in &mut open.prompts {
            prompt.is_cancelled = true;
        }
        let mut turns = open.prompts.iter().filter_map(|prompt| prompt.turn.as_deref());
        let named = turns.next_back().and_then(|run| RunId::new(run).ok());
        let untaken: Vec<RunId> =
            open.prompts.iter().filter(|prompt| prompt.turn.is_none()).map(|prompt| prompt.run.clone()).collect();
        let (app, session) = (self.app.clone(), session.clone());
        let (principal, audience) = (self.terms.principal.clone(), self.terms.audience);
        self.job(async move {
            let stopped = async {
                let authorization =
                    authorize(&app, &principal, Verb::Control, Resource::Session(&session), Some(audience)).await?;
                let log = LogId::Session(session.clone());
                let mut has_withdrawn = false;
                for run in untaken {
                    let control = send_id(&session, &run);
                    has_withdrawn |= app.controls.withdraw(&app.logs, &app.ingest, &log, &control).await?;
                }
                // What was not taken is none of the turns that are at work.
                if !has_withdrawn || named.is_some() {
                    let thread = Thread::of_session(&app, &session).await?;
                    stop(&app, &thread, named.as_ref(), &authorization.requester(audience, Via::Acp)).await?;
                }
                Ok::<_, Problem>(())
            };
            if let Err(problem) = stopped.await {
                tracing::debug!(code = problem.code, reason = problem.detail, "an ACP client could not cancel a turn");
            }
            Job::Done
        });
    }

    /// The open session that a request names.
    fn open_session(&self, params: &Params) -> Result<SessionId, RpcError> {
        let session = session_of(params)?;
        if self.sessions.contains_key(&session) {
            return Ok(session);
        }
        let detail =
            format!("Session {session} is not open on this connection. Send session/new, session/load or session/resume.");
        Err(RpcError::new(NOT_FOUND, detail).with(json!({ "member": "sessionId" })))
    }
}

/// The methods that the server answers.
const METHODS: &[&str] = &[
    "initialize",
    "authenticate",
    "session/new",
    "session/load",
    "session/resume",
    "session/list",
    "session/close",
    "session/delete",
    "session/prompt",
];

fn authenticate(params: &Params) -> Result<Value, RpcError> {
    match text(params, "methodId")? {
        AUTH_METHOD => Ok(json!({})),
        other => Err(RpcError::params("methodId", format!("methodId is {}. It must be {AUTH_METHOD}.", quoted(other)))),
    }
}

fn session_of(params: &Params) -> Result<SessionId, RpcError> {
    text(params, "sessionId")?.parse().map_err(|error: IdError| RpcError::params("sessionId", format!("sessionId: {error}.")))
}

fn cwd_of(params: &Params) -> Result<&str, RpcError> {
    check_servers(params)?;
    let cwd = text(params, "cwd")?;
    match cwd.len() {
        1..=CWD_BYTES_MAX => Ok(cwd),
        bytes => Err(RpcError::params("cwd", format!("cwd has {bytes} bytes. The limit is {CWD_BYTES_MAX}."))),
    }
}

/// Refuses servers of MCP: they name commands, and none of them reaches an agent.
fn check_servers(params: &Params) -> Result<(), RpcError> {
    match params.get("mcpServers") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Array(servers)) if servers.is_empty() => Ok(()),
        Some(Value::Array(servers)) => {
            let detail = format!(
                "mcpServers names {} servers. No agent would get them, and nothing of them is stored. Send an empty list, and \
                 give the agent its servers where it runs.",
                servers.len()
            );
            Err(RpcError::new(INVALID_PARAMS, detail).with(json!({ "member": "mcpServers", "limit": 0 })))
        }
        Some(other) => Err(RpcError::params("mcpServers", format!("mcpServers is {}. It must be a list.", kind_of(other)))),
    }
}

fn random_id(app: &App) -> String {
    uuid::Builder::from_random_bytes((app.environment.random)().to_be_bytes()).into_uuid().to_string()
}

/// The directory that a client named for a session.
async fn directory_of(app: &Arc<App>, session: &SessionId, audience: Audience) -> Result<String, RpcError> {
    if !app.logs.sessions().has_own_log(session) {
        return Ok(NO_CWD.into());
    }
    let log = LogId::Session(session.clone());
    let view = view_of(app, &log, audience, "session", session.as_str()).await?;
    let cwd = view.and_then(|view| view.text("cwd").map(str::to_owned));
    Ok(cwd.unwrap_or_else(|| NO_CWD.into()))
}

/// A message for an agent.
struct Asking {
    run: RunId,
    value: Value,
    supersede: bool,
    agent: Option<AgentId>,
    audience: Audience,
}

/// Who begins sessions, and adds to them.
struct Beginning {
    principal: Principal,
    agent: Option<AgentId>,
    audience: Audience,
    query: Query,
}

impl Beginning {
    fn new(terms: &Terms) -> Self {
        let (principal, agent) = (terms.principal.clone(), terms.agent.clone());
        Self { principal, agent, audience: terms.audience, query: terms.query.clone() }
    }

    async fn authorize(&self, app: &App, session: &SessionId) -> Result<Authorization, RpcError> {
        let authorization =
            authorize(app, &self.principal, Verb::Control, Resource::Session(session), Some(self.audience)).await?;
        Ok(match &self.agent {
            Some(agent) => authorize_also(app, authorization, Verb::Control, Resource::Agent(agent), None).await?,
            None => authorization,
        })
    }

    /// Begins a session: its first fact is where its client works. One that exists stays as it is.
    async fn begin(&self, app: &App, session: &SessionId, cwd: String) -> Result<(), RpcError> {
        let authorization = self.authorize(app, session).await?;
        if app.logs.sessions().created_order(session).is_some() {
            return Ok(());
        }
        app.disk.check_space()?;
        let mut requester = authorization.requester(self.audience, Via::Acp);
        requester.owner = authorization.requested_owner(&self.query)?;
        let claim = claim_session(&app.logs, &app.ingest, session, &requester, &[Quota::Bytes]).map_err(control_problem)?;
        let decide = |_: &WriterView<'_>| {
            let mut draft = Draft::new(EventType::SessionOpened);
            draft.payload.insert("cwd", cwd.as_str().into());
            // Under the lock of the writer: two clients may begin it at once.
            let is_new = app.logs.sessions().created_order(session).is_none();
            let drafts = is_new.then_some(draft).into_iter().collect();
            ((), ServerAppend { drafts, owner: requester.owner.clone(), ..ServerAppend::default() })
        };
        app.ingest.append_as_server(&LogId::Session(session.clone()), decide).await.map_err(Problem::from)?;
        drop(claim);
        Ok(())
    }

    /// Submits a message as the control `send`.
    async fn ask(&self, app: &App, session: &SessionId, asking: Asking) -> Result<(), RpcError> {
        let authorization = self.authorize(app, session).await?;
        if app.logs.sessions().created_order(session).is_none() {
            return Err(no_such_session(session).into());
        }
        app.disk.check_space()?;
        let bytes = asking.value.to_string().len();
        if bytes > SEND_BYTES_MAX {
            let detail = format!("prompt has {bytes} bytes. The limit is {SEND_BYTES_MAX}. Send a link to what is long.");
            return Err(RpcError::new(INVALID_PARAMS, detail).with(json!({ "member": "prompt", "limit": SEND_BYTES_MAX })));
        }
        let mut body = Map::from_iter([
            ("control".to_owned(), Value::from("send")),
            ("controlId".to_owned(), send_id(session, &asking.run).as_str().into()),
            ("value".to_owned(), asking.value),
        ]);
        body.extend(asking.agent.map(|agent| ("agentId".to_owned(), agent.as_str().into())));
        if asking.supersede {
            body.insert("supersede".into(), true.into());
        }
        let by = authorization.requester(asking.audience, Via::Acp);
        submit(app, &authorization, &LogId::Session(session.clone()), body, by).await?;
        Ok(())
    }
}
