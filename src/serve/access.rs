//! The one place where it is decided who may what: every way in asks here, and nobody answers who has no [`Pass`].
//!
//! ```text
//! who asks (a token, a ticket, nobody) × verb × run, session or agent × audience  ─▶  a Pass, or 401, or 403
//! ```
//! Without keys nobody is asked, and whoever reaches the server may everything: one branch. With keys
//!
//! * a run is had by its own name, or by the session that its log says it belongs to;
//! * what is not had answers 403 whether it is there or not, in the same words;
//! * an audience that is wider than the token's is refused, never silently narrowed;
//! * a pass ends with its token: who has something open holds a [`Hold`], and asks it.
//!
//! An address says in the table of [`routes`](super::routes) what it takes; what is in a body or a message, the handler asks for
//! with [`allow`].

use super::App;
use super::clients::asked::thread_of;
use super::problem::Problem;
use super::request::{Query, id_of, path_id, segment};
use crate::auth::rights::{Rights, Scope, Verb};
use crate::auth::tickets::Purpose;
use crate::auth::{End, Grant, Lease, Refusal};
use crate::feed::several::Takes;
use crate::ingest::{Fence, Reach};
use crate::log::LogId;
use crate::log::run::{Log, Summary, Tail};
use crate::model::{AgentId, Audience, Epoch, RunId, SessionId};
use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode, Uri, header};
use std::sync::Arc;

/// What it takes to ask at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// Nothing: it says the same to everybody.
    Open,
    /// A token, whatever it allows.
    Token,
    /// This verb, on the run, session or agent that the address names. Of an address that names none of them the handler looks
    /// at what it gives.
    To(Verb),
    /// To read, live: a ticket will do.
    Watch,
    /// It is found out inside, message by message.
    Inside,
}

/// On what a verb is wanted.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// On nothing in particular, or on several things, each of which is asked for by itself.
    Several,
    Run(&'a RunId),
    Session(&'a SessionId),
    /// What a client that exists already calls a conversation: a session, or a run that is one by itself.
    Thread(&'a SessionId),
    /// A run; or one that was asked for in a session, and that nobody has written yet. Whoever waits for it asks again when it is
    /// there.
    Asked(&'a RunId),
    Agent(&'a AgentId),
}

/// Who asks: somebody with a token, or anybody, where nobody is asked.
#[derive(Debug, Clone, Default)]
pub struct Who(Option<Arc<Grant>>);

impl Who {
    /// Where nobody is asked.
    #[must_use]
    pub const fn anybody() -> Self {
        Self(None)
    }

    /// Whoever holds this.
    #[must_use]
    pub const fn holder(grant: Arc<Grant>) -> Self {
        Self(Some(grant))
    }

    /// What is held, where somebody was asked.
    #[must_use]
    pub const fn grant(&self) -> Option<&Arc<Grant>> {
        self.0.as_ref()
    }

    /// Whoever presents this token.
    ///
    /// # Errors
    /// 401.
    pub fn by_token(app: &App, token: &str) -> Result<Self, Problem> {
        let Some(authority) = &app.authority else { return Ok(Self::anybody()) };
        authority.verify(token).map(Self::holder).map_err(|refusal| unauthenticated(&refusal))
    }

    /// Whoever sends these headers, or comes with a ticket for this; `None` for who brings neither.
    ///
    /// # Errors
    /// 401 for what is brought and is not good.
    pub fn by_request(app: &App, uri: &Uri, headers: &HeaderMap, ticket: Option<Purpose>) -> Result<Option<Self>, Problem> {
        let Some(authority) = &app.authority else { return Ok(Some(Self::anybody())) };
        let mut credentials = headers.get_all(header::AUTHORIZATION).iter();
        let verified = match (credentials.next(), credentials.next(), ticket) {
            (Some(bearer), None, _) => bearer_of(bearer.as_bytes()).and_then(|token| authority.verify(token)),
            (Some(_), Some(_), _) => Err(Refusal::NoToken),
            (None, _, None) => return Ok(None),
            (None, _, Some(purpose)) => {
                let query = Query::of_any(uri);
                let Some(ticket) = query.get("ticket") else { return Ok(None) };
                let resumes = headers.get("last-event-id").is_some_and(|id| !id.is_empty())
                    || query.get("last_event_id").is_some_and(|id| !id.is_empty());
                authority.redeem(ticket, purpose, resumes)
            }
        };
        verified.map(|grant| Some(Self::holder(grant))).map_err(|refusal| unauthenticated(&refusal))
    }

    /// Tells when the token is over; `None` where nobody was asked.
    #[must_use]
    pub fn lease(&self) -> Option<Lease> {
        self.0.as_ref().map(|grant| grant.lease())
    }
}

/// The token in an `Authorization` header.
fn bearer_of(value: &[u8]) -> Result<&str, Refusal> {
    let text = std::str::from_utf8(value).map_err(|_| Refusal::NoToken)?.trim();
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token.trim()),
        _ => Err(Refusal::Missing),
    }
}

/// That somebody may what was asked for. Only this module makes one.
#[derive(Debug, Clone)]
pub struct Pass {
    who: Who,
    bounds: Vec<Bound>,
}

/// A run that is had by its session: for as long as this is the life of it that was looked at.
#[derive(Clone)]
struct Bound {
    log: Arc<Log>,
    epoch: Option<Epoch>,
}

impl std::fmt::Debug for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {:?}", self.log.id, self.epoch)
    }
}

impl Pass {
    const fn to_everything() -> Self {
        Self { who: Who::anybody(), bounds: Vec::new() }
    }

    /// Whose it is.
    #[must_use]
    pub const fn who(&self) -> &Who {
        &self.who
    }

    fn rights(&self) -> Option<&Rights> {
        self.who.0.as_ref().map(|grant| &grant.rights)
    }

    /// The sessions that are named, where not all are had.
    #[must_use]
    pub fn sessions(&self) -> Option<&[Box<str>]> {
        match self.rights() {
            Some(rights) if !rights.has_everything() => match &rights.sessions {
                Scope::All => Some(&[]),
                Scope::These(sessions) => Some(sessions),
            },
            _ => None,
        }
    }

    /// Whether the verb is had, on whatever.
    #[must_use]
    pub fn can(&self, verb: Verb) -> bool {
        self.rights().is_none_or(|rights| rights.can(verb))
    }

    /// Whether there is no run and no session that is not had.
    #[must_use]
    pub fn has_everything(&self) -> bool {
        self.rights().is_none_or(Rights::has_everything)
    }

    /// Whether an agent is had.
    #[must_use]
    pub fn has_agent(&self, agent: &AgentId) -> bool {
        self.rights().is_none_or(|rights| rights.has_agent(agent.as_str()))
    }

    /// Whether a session is had.
    #[must_use]
    pub fn has_session(&self, session: &SessionId) -> bool {
        self.rights().is_none_or(|rights| rights.has_session(session))
    }

    /// Whether a run is had of which this is known.
    #[must_use]
    pub fn has_run(&self, run: &RunId, summary: &Summary) -> bool {
        self.rights().is_none_or(|rights| rights.has_run(run, summary.session_id.as_ref()))
    }

    /// Which sessions may be followed, where not all may.
    #[must_use]
    pub fn takes(&self) -> Option<Takes> {
        let grant = self.who.0.clone().filter(|grant| !grant.rights.has_everything())?;
        Some(Arc::new(move |session| grant.rights.has_session(session)))
    }

    /// What facts are kept to, where not all runs are had.
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        let grant = self.who.0.clone().filter(|grant| !grant.rights.has_everything())?;
        Some(Fence::new(move |what| match what {
            Reach::Run(run, session) => grant.rights.has_run(run, session),
            Reach::Session(session) => grant.rights.sessions.has(session.as_str()),
        }))
    }

    /// The same for what is open: it tells when the pass is over.
    #[must_use]
    pub fn hold(self) -> Hold {
        let Self { who: Who(grant), bounds } = self;
        Hold(grant.map(|grant| Box::new(Held { lease: grant.lease(), _grant: grant, bounds })))
    }

    /// A pass for all that these are for; all are of one holder.
    fn and(mut self, other: Self) -> Self {
        self.bounds.extend(other.bounds);
        self
    }
}

/// A pass, while something is open under it. Where nobody was asked it is nothing.
#[derive(Debug, Default)]
pub struct Hold(Option<Box<Held>>);

#[derive(Debug)]
struct Held {
    lease: Lease,
    /// A ticket's stream is open for as long as somebody has this.
    _grant: Arc<Grant>,
    bounds: Vec<Bound>,
}

impl Hold {
    /// Waits until it is over, and says why. Dropping the future loses nothing.
    pub async fn over(&mut self) -> Problem {
        match &mut self.0 {
            None => std::future::pending().await,
            Some(held) => unauthenticated(&Refusal::Ended(held.lease.ended().await)),
        }
    }

    /// Whether what was just read may be handed over: a run that was had by its session, was erased and was written anew, may
    /// belong to another one by now.
    ///
    /// # Errors
    /// 403.
    pub fn check(&self) -> Result<(), Problem> {
        let Some(held) = &self.0 else { return Ok(()) };
        match held.bounds.iter().find(|bound| bound.log.tail().epoch.is_some_and(|now| bound.epoch != Some(now))) {
            Some(bound) => Err(not_had(&bound.log.id)),
            None => Ok(()),
        }
    }
}

/// 401.
#[must_use]
pub fn unauthenticated(refusal: &Refusal) -> Problem {
    let problem = Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", refusal.to_string());
    match refusal {
        Refusal::Ended(end) => problem.with("reason", End::as_str(*end)),
        _ => problem,
    }
}

fn forbidden(missing: impl Into<String>, detail: String) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).with("missing", missing.into())
}

/// 403 for a run or session that is not had: it says nothing of whether there is one.
fn not_had(log: &LogId) -> Problem {
    match log {
        LogId::Run(run) => forbidden(
            "run",
            format!("the token gives no right to run {run}: it does not name it, and names no session that it is known to be in"),
        ),
        LogId::Session(session) => {
            forbidden("session", format!("the token gives no right to session {session}: it does not name it"))
        }
    }
}

/// The one decision: whether whoever asks may do this to that, and see it as this audience.
///
/// Where a run is to be published to that is not had by its name, the last word is [`Pass::fence`]'s: only there is it known
/// in which session the run is, or will be.
///
/// # Errors
/// 401, 403; or the store's failure.
pub async fn allow(app: &App, who: &Who, verb: Verb, target: Target<'_>, wanted: Option<Audience>) -> Result<Pass, Problem> {
    let (Some(grant), Some(authority)) = (&who.0, &app.authority) else { return Ok(Pass::to_everything()) };
    authority.stands(grant).map_err(|refusal| unauthenticated(&refusal))?;
    let rights = &grant.rights;
    if !rights.can(verb) {
        let verb = verb.as_str();
        return Err(forbidden(verb, format!("the token gives no right to {verb}; its proscenium.can has to name it")));
    }
    if let Some(wanted) = wanted.filter(|wanted| *wanted > rights.audience) {
        let (wanted, own) = (wanted.as_str(), rights.audience.as_str());
        let detail = format!("audience is {wanted}, and the token is for {own}; ask for what it is for, or for another token");
        return Err(forbidden(format!("audience:{wanted}"), detail));
    }
    let mut bounds = Vec::new();
    match target {
        Target::Several => {}
        Target::Session(session) | Target::Thread(session) if rights.has_session(session) => {}
        Target::Session(session) => return Err(not_had(&LogId::Session(session.clone()))),
        Target::Thread(session) => match alone(app, rights, session).await? {
            Some(bound) => bounds.push(bound),
            None => return Err(not_had(&LogId::Session(session.clone()))),
        },
        Target::Agent(agent) if rights.has_agent(agent.as_str()) => {}
        Target::Agent(agent) => {
            return Err(forbidden("agent", format!("the token gives no right to agent {agent}: it does not name it")));
        }
        Target::Run(run) | Target::Asked(run) if rights.has_run(run, None) => {}
        Target::Asked(run) if thread_of(app, run).is_some_and(|session| rights.has_session(&session)) => {}
        Target::Run(run) | Target::Asked(run) => {
            let id = LogId::Run(run.clone());
            let log = app.logs.log(&id).await?;
            let tail = log.tail();
            let session = tail.summary.session_id.as_ref();
            match session {
                Some(_) if rights.has_run(run, session) => bounds.push(Bound { log, epoch: tail.epoch }),
                None if verb == Verb::Publish => {}
                _ => return Err(not_had(&id)),
            }
        }
    }
    Ok(Pass { who: who.clone(), bounds })
}

/// The run that is a thread by itself, under this id, where it is had by its own name.
async fn alone(app: &App, rights: &Rights, thread: &SessionId) -> Result<Option<Bound>, Problem> {
    let run = RunId::new(thread.as_str()).expect("all ids obey one rule");
    if app.logs.sessions().place_of(thread).is_some() || !rights.has_run(&run, None) {
        return Ok(None);
    }
    let log = app.logs.log(&LogId::Run(run)).await?;
    let Tail { epoch, summary, .. } = log.tail();
    Ok((epoch.is_some() && summary.session_id.is_none()).then_some(Bound { log, epoch }))
}

/// [`allow`] for each of several runs.
///
/// # Errors
/// The first that is not allowed.
pub async fn allow_all(app: &App, pass: Pass, verb: Verb, runs: &[RunId]) -> Result<Pass, Problem> {
    if pass.has_everything() {
        return Ok(pass);
    }
    let mut all = pass;
    for run in runs {
        let one = allow(app, &all.who, verb, Target::Run(run), None).await?;
        all = all.and(one);
    }
    Ok(all)
}

/// What a request's address names.
enum Named {
    Run(RunId),
    Session(SessionId),
    Thread(SessionId),
    Asked(RunId),
    Agent(AgentId),
}

impl Named {
    /// All that it names, as far as the verb is wanted on it: who reads what an agent has said asks nothing of the agent.
    fn by(uri: &Uri, verb: Verb) -> Result<Vec<Self>, Problem> {
        let segments: Vec<&str> = uri.path().split('/').skip(1).collect();
        let asks = verb == Verb::Control;
        let agent = |nth| segment("agentId", uri, nth).map(Self::Agent);
        Ok(match *segments.as_slice() {
            ["v1", "runs", _, ..] => vec![Self::Run(path_id("runId", uri)?)],
            ["v1", "sessions", _, ..] => vec![Self::Session(path_id("sessionId", uri)?)],
            ["v1", "agents", _, ..] => vec![Self::Agent(path_id("agentId", uri)?)],
            ["ag-ui", _] if asks => vec![agent(2)?],
            ["ag-ui", _] => Self::by_query(uri)?,
            ["copilotkit", "agent", _, "stop", _] => vec![agent(3)?, Self::Thread(segment("threadId", uri, 5)?)],
            ["copilotkit", "agent", _, _] if asks => vec![agent(3)?],
            ["ai-sdk", _] => vec![agent(2)?],
            ["ai-sdk", _, _, "stop"] => vec![agent(2)?, Self::Thread(segment("chatId", uri, 3)?)],
            ["ai-sdk", _, _, ..] => vec![Self::Thread(segment("chatId", uri, 3)?)],
            _ => Vec::new(),
        })
    }

    /// What the query names, of a thread that is to be read; a run, where both are there.
    fn by_query(uri: &Uri) -> Result<Vec<Self>, Problem> {
        let query = Query::of_any(uri);
        let run = query.get("runId").map(|run| id_of("runId", run).map(Self::Asked));
        let thread = || query.get("threadId").map(|thread| id_of("threadId", thread).map(Self::Thread));
        run.or_else(thread).into_iter().collect()
    }

    const fn target(&self) -> Target<'_> {
        match self {
            Self::Run(run) => Target::Run(run),
            Self::Session(session) => Target::Session(session),
            Self::Thread(thread) => Target::Thread(thread),
            Self::Asked(run) => Target::Asked(run),
            Self::Agent(agent) => Target::Agent(agent),
        }
    }
}

/// Lets a request in that is for an address of this right.
///
/// # Errors
/// 401, 403; 400 for an id that is none.
pub async fn enter(app: &App, right: Right, uri: &Uri, headers: &HeaderMap) -> Result<Pass, Problem> {
    if app.authority.is_none() {
        return Ok(Pass::to_everything());
    }
    let (verb, ticket) = match right {
        Right::To(verb) => (Some(verb), None),
        Right::Watch => (Some(Verb::Read), Some(Purpose::Stream)),
        Right::Token | Right::Open | Right::Inside => (None, None),
    };
    let who = Who::by_request(app, uri, headers, ticket)?.ok_or_else(|| unauthenticated(&Refusal::Missing))?;
    let Some(verb) = verb else { return Ok(Pass { who, bounds: Vec::new() }) };
    // One that nobody knows is refused by whoever reads it.
    let wanted = Query::of_any(uri).get("audience").and_then(Audience::parse);
    let named = Named::by(uri, verb)?;
    let mut targets = named.iter().map(Named::target);
    let mut pass = allow(app, &who, verb, targets.next().unwrap_or(Target::Several), wanted).await?;
    for target in targets {
        pass = further(app, pass, verb, target, wanted).await?;
    }
    Ok(pass)
}

/// Lets whoever has this pass do a further thing, beside what it is for.
///
/// # Errors
/// As [`allow`].
pub async fn further(app: &App, pass: Pass, verb: Verb, target: Target<'_>, wanted: Option<Audience>) -> Result<Pass, Problem> {
    let further = allow(app, &pass.who, verb, target, wanted).await?;
    Ok(pass.and(further))
}

/// What stands before every handler of an address that is not open.
pub async fn door(State((app, right)): State<(Arc<App>, Right)>, mut request: Request<Body>, next: Next) -> Response {
    match enter(&app, right, request.uri(), request.headers()).await {
        Ok(pass) => {
            request.extensions_mut().insert(pass);
            next.run(request).await
        }
        Err(problem) => {
            if !request.headers().contains_key(header::EXPECT) {
                super::facts::discard(request.into_body()).await;
            }
            problem.into_response()
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Pass {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get().cloned().ok_or_else(|| {
            tracing::error!("a handler needs a pass, and its address is open");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "the server made a mistake; its log says more")
        })
    }
}
