//! Authorization: the only place that decides which client may do what.
//!
//! Every way into the server asks here, and no handler answers without an [`Authorization`].
//!
//! ```text
//! principal (token, ticket or anonymous) × verb × run, session or agent × audience  ─▶  Authorization, or 401, or 403
//! ```
//! Without keys every client is anonymous and may do everything: one branch. With keys
//!
//! * a token covers a run by its id, or by the session that the run's log names, and a session by its id or by its owner;
//! * a resource that the token does not cover answers 403, in the same words whether it exists or not;
//! * an audience wider than the token's is refused, never silently narrowed;
//! * an authorization ends with its token: code that keeps something open holds an [`OpenAccess`] and checks it.
//!
//! The table of [`operations`](crate::serve::contract::operations) names the rule of each address. For a resource named
//! in a body or a message, the handler calls [`authorize`].

use super::counted_stream::StreamName;
use super::quota::QuotaSlot;
use super::requested_run::requested_in_thread;
use crate::auth::links::{LinkMoment, LinkTarget, OpenedLink};
use crate::auth::rights::{Rights, Verb};
use crate::auth::tickets::Purpose;
use crate::auth::{EndReason, Grant, GrantWatch, TokenError};
use crate::control::{LogPredicate, Requester};
use crate::feed::SessionPredicate;
use crate::ingest::{BeginOwner, WriteScope, WriteTarget};
use crate::log::commit::{Log, Logs, Summary, Tail};
use crate::log::erased::ErasureTarget;
use crate::log::{LogId, StoreError};
use crate::model::decided_by::{Decider, Via, person};
use crate::model::{AgentId, Audience, Epoch, OwnerId, RunId, SessionId, SessionOwner};
use crate::serve::App;
use crate::serve::cluster::no_leader;
use crate::serve::contract::access_rule::AccessRule;
use crate::serve::http::body::discard;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, decoded_segment, id_of, path_id, segment};
use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode, Uri, header};
use std::sync::Arc;

/// The resource that a verb applies to.
#[derive(Debug, Clone, Copy)]
pub enum Resource<'a> {
    /// No single resource, or several that the handler authorizes one by one.
    Unspecified,
    Run(&'a RunId),
    Session(&'a SessionId),
    /// A conversation of an existing client: a session, or a run without a session.
    Thread(&'a SessionId),
    /// A run, or a run that was requested in a session and not written yet.
    ///
    /// The code that waits for it authorizes again once the run exists.
    RequestedRun(&'a RunId),
    /// A conversation, or a requested run where no conversation has the id.
    ThreadOrRun(&'a SessionId),
    Agent(&'a AgentId),
}

/// The client of a request: the holder of a token, or anonymous on a server without keys.
#[derive(Debug, Clone, Default)]
pub struct Principal(Option<Arc<Grant>>);

impl Principal {
    /// The anonymous principal of a server without keys.
    #[must_use]
    pub const fn anonymous() -> Self {
        Self(None)
    }

    /// Whether it is the one of a server without keys.
    #[must_use]
    pub const fn is_anonymous(&self) -> bool {
        self.0.is_none()
    }

    /// The holder of this grant.
    #[must_use]
    pub const fn authenticated(grant: Arc<Grant>) -> Self {
        Self(Some(grant))
    }

    /// The grant. `None`: anonymous.
    #[must_use]
    pub const fn grant(&self) -> Option<&Arc<Grant>> {
        self.0.as_ref()
    }

    /// Verifies a token.
    ///
    /// # Errors
    /// 401 for an invalid token.
    pub async fn from_token(app: &App, token: &str) -> Result<Self, Problem> {
        let Some(authenticator) = &app.authenticator else { return Ok(Self::anonymous()) };
        let grant = authenticator.authenticate(token).await.map_err(|error| unauthenticated(&error))?;
        // Only sockets get tokens without an address, and no message of theirs is bound to a moment.
        match grant.link().is_some_and(|link| link.terms.at.is_some()) {
            true => Err(no_address_at_moment()),
            false => Ok(Self::authenticated(grant)),
        }
    }

    /// Verifies the credentials of a request: the user that a proxy names, a bearer token, or a ticket for this purpose.
    ///
    /// `None`: it has neither.
    ///
    /// # Errors
    /// 401 for invalid credentials.
    pub async fn from_request(
        app: &App,
        uri: &Uri,
        headers: &HeaderMap,
        ticket: Option<Purpose>,
    ) -> Result<Option<Self>, Problem> {
        let Some(authenticator) = &app.authenticator else { return Ok(Some(Self::anonymous())) };
        if let Some(proxied) = authenticator.proxied(headers) {
            return proxied.map(|grant| Some(Self::authenticated(grant))).map_err(|error| unauthenticated(&error));
        }
        let mut credentials = headers.get_all(header::AUTHORIZATION).iter();
        let verified = match (credentials.next(), credentials.next(), ticket) {
            (Some(bearer), None, _) => match bearer_token(bearer.as_bytes()) {
                Ok(token) => authenticator.authenticate(token).await,
                Err(error) => Err(error),
            },
            (Some(_), Some(_), _) => Err(TokenError::Malformed),
            (None, _, None) => return Ok(None),
            (None, _, Some(purpose)) => {
                let query = Query::from_uri_unchecked(uri);
                let Some(ticket) = query.get("ticket") else { return Ok(None) };
                let resumes = headers.get("last-event-id").is_some_and(|id| !id.is_empty())
                    || query.get("last_event_id").is_some_and(|id| !id.is_empty());
                authenticator.redeem(ticket, purpose, resumes).await
            }
        };
        verified.map(|grant| Some(Self::authenticated(grant))).map_err(|error| unauthenticated(&error))
    }

    /// Counts one more open connection of the token's `sub`. `None`: anonymous.
    ///
    /// # Errors
    /// 429 at the limit.
    pub fn connection_slot(&self, app: &App) -> Result<Option<QuotaSlot<Box<str>>>, Problem> {
        self.0.as_ref().map(|grant| app.token_connections.acquire(grant.subject.clone())).transpose()
    }

    /// Reports the end of the token. `None`: anonymous.
    #[must_use]
    pub fn watch(&self) -> Option<GrantWatch> {
        self.0.as_ref().map(|grant| grant.watch())
    }
}

/// The token of an `Authorization` header.
fn bearer_token(value: &[u8]) -> Result<&str, TokenError> {
    let text = std::str::from_utf8(value).map_err(|_| TokenError::Malformed)?.trim();
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token.trim()),
        _ => Err(TokenError::Missing),
    }
}

/// Proof that a principal may do what it asked for. Only this module creates one.
#[derive(Debug, Clone)]
pub struct Authorization {
    principal: Principal,
    reach: Option<Reach>,
    bindings: Vec<Binding>,
}

/// What a token covers among the logs of the server.
#[derive(Clone)]
struct Reach {
    grant: Arc<Grant>,
    logs: Arc<Logs>,
}

impl std::fmt::Debug for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.grant.fmt(f)
    }
}

impl Reach {
    fn has_session(&self, session: &SessionId) -> bool {
        let rights = &self.grant.rights;
        match rights.owners.is_empty() {
            true => rights.has_session(session, SessionOwner::Unowned),
            false => self.logs.sessions().with_owner(session, |owner| rights.has_session(session, owner)),
        }
    }
}

/// What was true when an authorization was given, and must still be.
#[derive(Clone)]
enum Binding {
    /// The token covers the run by its session. The binding holds for the epoch that was checked.
    Run(Arc<Log>, Option<Epoch>),
    /// The token covers the session by its owner, or because it does not exist.
    Session(Reach, SessionId),
}

impl std::fmt::Debug for Binding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Run(log, epoch) => write!(f, "{} of {epoch:?}", log.id),
            Self::Session(_, session) => write!(f, "session {session}"),
        }
    }
}

impl Binding {
    /// 403 if a run has another epoch than the one that was checked, or a session another owner: it may belong to others now.
    ///
    /// `erased_counts`: an erased run also fails, because another epoch may have existed in between.
    fn check(bindings: &[Self], erased_counts: bool) -> Result<(), Problem> {
        let lost = |bound: &Self| match bound {
            Self::Run(log, epoch) => {
                let now = log.tail().epoch;
                (if now.is_none() { erased_counts } else { now != *epoch }).then(|| log.id.clone())
            }
            Self::Session(reach, session) => (!reach.has_session(session)).then(|| LogId::Session(session.clone())),
        };
        bindings.iter().find_map(lost).map_or(Ok(()), |lost| Err(no_right_to(&lost)))
    }
}

impl Authorization {
    const fn unrestricted() -> Self {
        Self { principal: Principal::anonymous(), reach: None, bindings: Vec::new() }
    }

    fn new(app: &App, principal: Principal, bindings: Vec<Binding>) -> Self {
        let reach = principal.0.clone().map(|grant| Reach { grant, logs: app.logs.clone() });
        Self { principal, reach, bindings }
    }

    /// The client as the maker of controls in its own sessions, by this face.
    #[must_use]
    pub fn requester(&self, audience: Audience, via: Via) -> Requester {
        let (decider, owner, scope) = (self.decider(via), self.owner_of_new(), self.write_scope());
        Requester { audience, has_session: true, decider, owner, scope }
    }

    /// The person behind the request, by this face.
    #[must_use]
    pub fn decider(&self, via: Via) -> Decider {
        self.principal.0.as_ref().map_or(Decider::anonymous(via), |grant| Decider {
            sub: Some(person(&grant.subject)),
            name: grant.name.as_deref().map(person),
            via: if grant.link().is_some() { Via::Link } else { via },
            on_behalf_of: None,
        })
    }

    /// The `sub` of the token, as the server stores it. `None`: anonymous.
    #[must_use]
    pub fn subject(&self) -> Option<Box<str>> {
        self.principal.0.as_ref().map(|grant| person(&grant.subject))
    }

    /// Whose a session is that the client begins.
    #[must_use]
    pub fn owner_of_new(&self) -> BeginOwner {
        let owner = self.rights().and_then(|rights| rights.owner.clone());
        BeginOwner { owner, is_requested: false, created_by: self.subject() }
    }

    /// Whose a session is that a request begins. The request may name an owner that the token covers.
    ///
    /// # Errors
    /// 400 for a name that is none, 403 for an owner that the token does not cover.
    pub fn requested_owner(&self, query: &Query) -> Result<BeginOwner, Problem> {
        let Some(named) = query.get("owner") else { return Ok(self.owner_of_new()) };
        let owner: OwnerId = id_of("owner", named)?;
        if named.contains('*') {
            let detail = format!("The query's owner is {named:?}. An owner's name has no `*`.");
            return Err(Problem::bad_request("bad_id", detail).with("member", "owner"));
        }
        match self.rights() {
            Some(rights) if !rights.owners.contains(named) => {
                let detail = format!("The token does not cover owner {named}: its owners do not name it.");
                Err(forbidden("owner", detail))
            }
            _ => Ok(BeginOwner { owner: Some(owner), is_requested: true, created_by: self.subject() }),
        }
    }

    /// Checks that the token covers everything of an owner.
    ///
    /// # Errors
    /// 403.
    pub fn check_owner(&self, owner: &OwnerId) -> Result<(), Problem> {
        match self.restricted() {
            Some(reach) if !reach.grant.rights.owners.contains(owner.as_str()) => {
                let detail = format!("The token does not cover owner {owner}: its owners do not name it.");
                Err(forbidden("owner", detail))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the token may read as this audience.
    ///
    /// # Errors
    /// 403.
    pub fn check_audience(&self, audience: Audience) -> Result<(), Problem> {
        match self.rights() {
            Some(rights) if rights.audience < audience => {
                let (audience, own) = (audience.as_str(), rights.audience.as_str());
                let detail = format!("This needs the audience {audience}, which is wider than the token's, {own}.");
                Err(forbidden(format!("audience:{audience}"), detail))
            }
            _ => Ok(()),
        }
    }

    /// The principal that was authorized.
    #[must_use]
    pub const fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The share link whose token the client has.
    #[must_use]
    pub fn link(&self) -> Option<&OpenedLink> {
        self.principal.0.as_ref()?.link()
    }

    /// The moment after which the client may read nothing. `None`: the present.
    #[must_use]
    pub fn moment(&self) -> Option<LinkMoment> {
        self.link()?.terms.at
    }

    fn rights(&self) -> Option<&Rights> {
        self.principal.0.as_ref().map(|grant| &grant.rights)
    }

    /// The reach of a token that does not cover everything.
    fn restricted(&self) -> Option<&Reach> {
        self.reach.as_ref().filter(|reach| !reach.grant.rights.is_unrestricted())
    }

    /// What the token covers, one by one. `None`: all sessions, or owners by a pattern.
    #[must_use]
    pub fn enumerated(&self) -> Option<Enumerated> {
        let Reach { grant, logs } = self.restricted()?;
        let (owners, mut patterns) = grant.rights.owners.listed();
        if grant.rights.owners.names_all() || grant.rights.sessions.names_all() || patterns.next().is_some() {
            return None;
        }
        let (sessions, patterns) = grant.rights.sessions.listed();
        let with_branches = |session: SessionId| {
            let branches = logs.sessions().branches_below(&session);
            std::iter::once(session).chain(branches)
        };
        let (runs, mut run_patterns) = grant.rights.runs.listed();
        let has_all_runs = !grant.rights.runs.names_all() && run_patterns.next().is_none();
        Some(Enumerated {
            owners: owners.filter_map(|owner| owner.parse().ok()).collect(),
            sessions: sessions
                .filter_map(|id| id.parse().ok())
                .chain(patterns.flat_map(|prefix| logs.sessions().beginning_with(prefix)))
                .flat_map(with_branches)
                .filter(|session| grant.rights.names_session(session))
                .collect(),
            runs: has_all_runs.then(|| runs.filter_map(|run| run.parse().ok()).collect()),
        })
    }

    /// Returns whether the verb is permitted on any resource.
    #[must_use]
    pub fn can(&self, verb: Verb) -> bool {
        self.rights().is_none_or(|rights| rights.can(verb))
    }

    /// Returns whether every run and session is covered.
    #[must_use]
    pub fn is_unrestricted(&self) -> bool {
        self.rights().is_none_or(Rights::is_unrestricted)
    }

    /// Returns whether a session is covered.
    #[must_use]
    pub fn has_session(&self, session: &SessionId) -> bool {
        self.restricted().is_none_or(|reach| reach.has_session(session))
    }

    /// Returns whether an agent is covered.
    #[must_use]
    pub fn has_agent(&self, agent: &AgentId) -> bool {
        self.rights().is_none_or(|rights| rights.has_agent(agent.as_str()))
    }

    /// Returns whether a run with this summary is covered.
    #[must_use]
    pub fn has_run(&self, run: &RunId, summary: &Summary) -> bool {
        self.covers_run(run, summary.session_id.as_ref(), summary.extension.owner.as_ref())
    }

    /// Returns whether a run is covered that is of this session and this owner.
    #[must_use]
    pub fn covers_run(&self, run: &RunId, session: Option<&SessionId>, owner: Option<&OwnerId>) -> bool {
        self.rights().is_none_or(|rights| rights.has_run(run, session, owner))
    }

    /// Returns whether a log is covered. `session` is the session of a run, `owner` whose the log is.
    #[must_use]
    pub fn has_log(&self, log: &LogId, session: Option<&SessionId>, owner: Option<&OwnerId>) -> bool {
        self.rights().is_none_or(|rights| rights.has_log(log, session, owner))
    }

    /// The filter of the sessions that may be followed. `None`: all.
    #[must_use]
    pub fn session_filter(&self) -> Option<SessionPredicate> {
        let reach = self.restricted()?.clone();
        Some(Arc::new(move |session| reach.has_session(session)))
    }

    /// The sessions, and the runs without one, whose controls the client may claim. `None`: all those of its agents.
    #[must_use]
    pub fn claim_filter(&self) -> Option<LogPredicate> {
        let reach = self.restricted().filter(|reach| !reach.grant.rights.owners.is_empty())?.clone();
        Some(Arc::new(move |log| match log {
            LogId::Session(session) => reach.has_session(session),
            LogId::Run(run) => reach.grant.rights.has_run(run, None, None),
        }))
    }

    /// The scope that writes are restricted to. `None`: unrestricted.
    #[must_use]
    pub fn write_scope(&self) -> Option<WriteScope> {
        let grant = self.restricted()?.grant.clone();
        Some(WriteScope::new(move |what| match what {
            WriteTarget::Run(run, session, owner) => grant.rights.has_run(run, session, owner),
            WriteTarget::Session(session, owner) => grant.rights.has_session(session, owner),
        }))
    }

    /// Converts it for a resource that stays open. The result reports the end of the token.
    #[must_use]
    pub fn into_open_access(self) -> OpenAccess {
        self.open_access(None)
    }

    /// Converts it for a new connection, which counts against the limit of the token's `sub`.
    ///
    /// # Errors
    /// 429 at the limit.
    pub fn open_counted(self, app: &App) -> Result<OpenAccess, Problem> {
        let slot = self.principal.connection_slot(app)?;
        Ok(self.open_access(slot))
    }

    fn open_access(self, slot: Option<QuotaSlot<Box<str>>>) -> OpenAccess {
        let Self { principal: Principal(grant), bindings, .. } = self;
        OpenAccess(grant.map(|grant| Box::new(OpenState { watch: grant.watch(), _grant: grant, bindings, _slot: slot })))
    }

    /// Checks that what was just read is what was authorized.
    ///
    /// # Errors
    /// 403 if a run has another epoch than the one that was checked, or a session another owner.
    pub fn check_read(&self) -> Result<(), Problem> {
        Binding::check(&self.bindings, true)
    }

    /// Combines two authorizations of one principal.
    fn merge(mut self, other: Self) -> Self {
        self.bindings.extend(other.bindings);
        self
    }
}

/// What a token covers. Each may be unknown to the server.
pub struct Enumerated {
    pub owners: Vec<OwnerId>,
    pub sessions: Vec<SessionId>,
    /// `None`: runs by a pattern.
    pub runs: Option<Vec<RunId>>,
}

/// The authorization of an open resource. Empty for an anonymous principal.
#[derive(Debug, Default)]
pub struct OpenAccess(Option<Box<OpenState>>);

#[derive(Debug)]
struct OpenState {
    watch: GrantWatch,
    /// Keeps the grant alive: a ticket counts as open while its grant lives.
    _grant: Arc<Grant>,
    bindings: Vec<Binding>,
    _slot: Option<QuotaSlot<Box<str>>>,
}

impl OpenAccess {
    /// Waits until the token ends, and returns the problem. Cancel safe.
    pub async fn ended(&mut self) -> Problem {
        match &mut self.0 {
            None => std::future::pending().await,
            Some(open) => unauthenticated(&TokenError::Ended(open.watch.ended().await)),
        }
    }

    /// Checks that data just read may still be sent.
    ///
    /// A run that the token covered by its session may have been erased and rewritten in another session, and a session that
    /// it covered by its owner may have been erased and begun by others.
    ///
    /// # Errors
    /// 403.
    pub fn check(&self) -> Result<(), Problem> {
        self.0.as_ref().map_or(Ok(()), |open| Binding::check(&open.bindings, false))
    }

    /// Returns why the token ended, for code that polls. `None`: it is valid.
    #[must_use]
    pub fn end_reason(&self) -> Option<EndReason> {
        self.0.as_ref().and_then(|open| open.watch.end_reason())
    }
}

/// `retryAfter` while the server has no keys, in seconds.
const KEYS_RETRY_AFTER_SECS: u64 = 5;

/// Builds the problem of a rejected or ended token: 401, or 503 where nothing can be said of it yet.
#[must_use]
pub fn unauthenticated(error: &TokenError) -> Problem {
    let problem = Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", error.to_string());
    match error {
        TokenError::Unrecorded => no_leader(&error.to_string()),
        TokenError::NoKeys => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "keys_unavailable", error.to_string())
            .with_retry_after(KEYS_RETRY_AFTER_SECS),
        TokenError::Ended(end) => problem.with("reason", EndReason::as_str(*end)),
        _ => problem,
    }
}

/// 403 that names what a token lacks.
pub(in crate::serve) fn forbidden(missing: impl Into<String>, detail: String) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).with("missing", missing.into())
}

/// 403 for a run or session that the token does not cover. The text does not reveal whether it exists.
fn no_right_to(log: &LogId) -> Problem {
    match log {
        LogId::Run(run) => forbidden(
            "run",
            format!(
                "The token does not cover run {run}: it names neither the run, nor a session that contains it, nor its owner."
            ),
        ),
        LogId::Session(session) => forbidden(
            "session",
            format!("The token does not cover session {session}: it names neither the session nor its owner."),
        ),
    }
}

/// Decides whether a principal may use a verb on a resource, and read it as an audience.
///
/// For publishing to a run that the token does not name, [`Authorization::write_scope`] decides: only the ingest knows
/// the session that the run is, or will be, in.
///
/// # Errors
/// 401, 403, or the store's failure.
pub async fn authorize(
    app: &App,
    principal: &Principal,
    verb: Verb,
    resource: Resource<'_>,
    audience: Option<Audience>,
) -> Result<Authorization, Problem> {
    let (Some(grant), Some(authenticator)) = (&principal.0, &app.authenticator) else {
        check_not_erased(app, None, verb, resource).await?;
        return Ok(Authorization::unrestricted());
    };
    authenticator.ensure_valid(grant).map_err(|error| unauthenticated(&error))?;
    let rights = &grant.rights;
    if !rights.can(verb) {
        let verb = verb.as_str();
        let detail = match Verb::ALL.iter().any(|verb| rights.can(*verb)) {
            true => format!("The token does not permit {verb}. Use a token whose proscenium.can names it."),
            false => "The token permits nothing: it has no proscenium claim that does, and no --auth-claim mapping applies to its claims.".into(),
        };
        return Err(forbidden(verb, detail));
    }
    if let Some(audience) = audience.filter(|audience| *audience > rights.audience) {
        let (audience, own) = (audience.as_str(), rights.audience.as_str());
        let detail = format!("The audience {audience} is wider than the token's, {own}. Ask for {own}, or use another token.");
        return Err(forbidden(format!("audience:{audience}"), detail));
    }
    // A link ends with what it leads to.
    let bindings = match grant.link() {
        Some(link) => bindings_of_link(app, link).await?,
        None => Vec::new(),
    };
    check_not_erased(app, Some(rights), verb, resource).await?;
    let mut authorization = Authorization::new(app, principal.clone(), bindings);
    match resource {
        Resource::Unspecified => {}
        Resource::Session(session) | Resource::Thread(session) if authorization.has_session(session) => {
            let reach = authorization.restricted().filter(|reach| !reach.grant.rights.names_session(session)).cloned();
            authorization.bindings.extend(reach.map(|reach| Binding::Session(reach, session.clone())));
        }
        Resource::Session(session) => return Err(no_right_to(&LogId::Session(session.clone()))),
        Resource::Thread(session) => match standalone_run(app, rights, session).await? {
            Some(bound) => authorization.bindings.push(bound),
            None => return Err(no_right_to(&LogId::Session(session.clone()))),
        },
        Resource::ThreadOrRun(id) => {
            let run = RunId::new(id.as_str()).expect("runs and sessions share one id syntax");
            let is_run = app.logs.sessions().created_order(id).is_none();
            let of_run = match is_run {
                true => Box::pin(authorize(app, principal, verb, Resource::RequestedRun(&run), audience)).await.ok(),
                false => None,
            };
            // A refusal says the same of a run as of a session.
            return match of_run {
                Some(authorization) => Ok(authorization),
                None => Box::pin(authorize(app, principal, verb, Resource::Thread(id), audience)).await,
            };
        }
        Resource::Agent(agent) if rights.has_agent(agent.as_str()) => {}
        Resource::Agent(agent) => {
            return Err(forbidden("agent", format!("The token does not cover agent {agent}: it does not name it.")));
        }
        Resource::Run(run) | Resource::RequestedRun(run) if rights.has_run(run, None, None) => {}
        Resource::RequestedRun(run)
            if requested_in_thread(app, run).is_some_and(|session| authorization.has_session(&session)) => {}
        Resource::Run(run) | Resource::RequestedRun(run) => {
            let id = LogId::Run(run.clone());
            let log = app.logs.log(&id).await?;
            let tail = log.tail();
            match tail.summary.session_id {
                _ if authorization.has_run(run, &tail.summary) => authorization.bindings.push(Binding::Run(log, tail.epoch)),
                None if verb == Verb::Publish => {}
                _ => return Err(no_right_to(&id)),
            }
        }
    }
    Ok(authorization)
}

/// 410 for what was erased lately; 403, as before its erasure, for those whom it was not for.
///
/// A repeated erasure waits for the one under way. A run that was erased alone may begin again: by facts, or by a client
/// that names it.
async fn check_not_erased(app: &App, rights: Option<&Rights>, verb: Verb, resource: Resource<'_>) -> Result<(), Problem> {
    let begins = match resource {
        Resource::RequestedRun(_) => matches!(verb, Verb::Publish | Verb::Control),
        _ => verb == Verb::Publish,
    };
    let log = match resource {
        Resource::Run(run) | Resource::RequestedRun(run) => LogId::Run(run.clone()),
        Resource::Session(session) | Resource::Thread(session) | Resource::ThreadOrRun(session) => {
            LogId::Session(session.clone())
        }
        Resource::Unspecified | Resource::Agent(_) => return Ok(()),
    };
    let Some(record) = app.logs.server_state().erased().get(&log) else { return Ok(()) };
    if record.is_reusable && (begins || app.logs.log(&log).await?.tail().epoch.is_some()) {
        return Ok(());
    }
    let is_covered = rights.is_none_or(|rights| match &log {
        LogId::Run(run) => rights.has_run(run, record.session.as_ref(), record.owner.as_ref()),
        LogId::Session(session) => rights.has_session(session, SessionOwner::of(record.owner.as_ref())),
    });
    let is_under_way = || match &log {
        LogId::Session(session) => ErasureTarget::Session(session.clone()).is_being_erased(app.logs.server_state()),
        LogId::Run(_) => false,
    };
    match is_covered {
        true if verb == Verb::Erase && is_under_way() => Ok(()),
        true => Err(StoreError::Erased { log: log.to_string() }.into()),
        false => Err(no_right_to(&log)),
    }
}

/// What must stay true while a share link is open. The link ends with what it leads to.
async fn bindings_of_link(app: &App, link: &OpenedLink) -> Result<Vec<Binding>, Problem> {
    if !app.links.is_there(&link.terms.target).await? {
        return Err(unauthenticated(&TokenError::Ended(EndReason::LinkEnded)));
    }
    Ok(match &link.terms.target {
        LinkTarget::Run(run, epoch) => {
            let log = app.logs.log(&LogId::Run(run.clone())).await?;
            vec![Binding::Run(log, Some(Epoch::from_random(*epoch)))]
        }
        LinkTarget::Session(..) => Vec::new(),
    })
}

fn no_address_at_moment() -> Problem {
    let detail = "The link shows a run at one past moment. Its token reads the run, its events and its activities up to there, and nothing else.";
    forbidden("present", detail.into())
}

/// What the token of a share link needs at an address: an address that honours the link's moment, and, for its one
/// decision, no verb of its own.
fn verb_of_link(link: &OpenedLink, verb: Option<Verb>, uri: &Uri) -> Result<Option<Verb>, Problem> {
    let segments: Vec<&str> = uri.path().split('/').skip(1).collect();
    match *segments.as_slice() {
        ["v1", "me"] | ["v1", "runs", _] | ["v1", "runs", _, "events" | "activities"] => Ok(verb),
        _ if link.terms.at.is_some() => Err(no_address_at_moment()),
        // The handler submits nothing but that decision.
        ["v1", "runs" | "sessions", _, "controls"] if link.terms.may_decide && verb == Some(Verb::Control) => {
            Ok(Some(Verb::Read))
        }
        _ => Ok(verb),
    }
}

/// The run of this id that belongs to no session, if the token names it.
async fn standalone_run(app: &App, rights: &Rights, thread: &SessionId) -> Result<Option<Binding>, Problem> {
    let run = RunId::new(thread.as_str()).expect("runs and sessions share one id syntax");
    if app.logs.sessions().created_order(thread).is_some() || !rights.has_run(&run, None, None) {
        return Ok(None);
    }
    let log = app.logs.log(&LogId::Run(run)).await?;
    let Tail { epoch, summary, .. } = log.tail();
    Ok((epoch.is_some() && summary.session_id.is_none()).then_some(Binding::Run(log, epoch)))
}

/// Calls [`authorize`] for each of several runs.
///
/// # Errors
/// The error of the first run that is refused.
pub async fn authorize_runs(
    app: &App,
    authorization: Authorization,
    verb: Verb,
    runs: &[RunId],
) -> Result<Authorization, Problem> {
    if authorization.is_unrestricted() {
        return Ok(authorization);
    }
    let mut all = authorization;
    for run in runs {
        let one = authorize(app, &all.principal, verb, Resource::Run(run), None).await?;
        all = all.merge(one);
    }
    Ok(all)
}

/// A resource that a request's path or query names.
enum NamedResource {
    Run(RunId),
    Session(SessionId),
    Thread(SessionId),
    RequestedRun(RunId),
    ThreadOrRun(SessionId),
    Agent(AgentId),
}

impl NamedResource {
    /// The resources of a path, for a verb. Reading an agent's output requires no right to the agent.
    fn from_path(uri: &Uri, verb: Verb) -> Result<Vec<Self>, Problem> {
        let segments: Vec<&str> = uri.path().split('/').skip(1).collect();
        let asks = verb == Verb::Control;
        let agent = |nth| segment("agentId", uri, nth).map(Self::Agent);
        Ok(match *segments.as_slice() {
            ["v1", "runs", _, ..] => vec![Self::Run(path_id("runId", uri)?)],
            ["v1", "sessions", _, ..] => vec![Self::Session(path_id("sessionId", uri)?)],
            ["v1", "agents", _, ..] => vec![Self::Agent(path_id("agentId", uri)?)],
            ["ag-ui" | "ai-sdk", _] | ["a2a", _, ".well-known", _] if asks => vec![agent(2)?],
            ["ag-ui", _] => Self::from_query(uri)?,
            ["copilotkit", "agent", _, "stop", _] => vec![agent(3)?, Self::Thread(segment("threadId", uri, 5)?)],
            ["copilotkit", "agent", _, _] if asks => vec![agent(3)?],
            ["copilotkit", "threads", "clear" | "subscribe"] => Vec::new(),
            ["copilotkit", "threads", _, ..] => vec![Self::Thread(path_id("threadId", uri)?)],
            ["ai-sdk", _, _, "stop"] => vec![agent(2)?, Self::Thread(segment("chatId", uri, 3)?)],
            ["ai-sdk", _, _, "stream"] if Query::from_uri_unchecked(uri).get("startIndex").is_some() => {
                let text = decoded_segment("chatId", uri, 3)?;
                vec![match StreamName::parse(&text) {
                    Some(named) => Self::RequestedRun(named.run),
                    None => Self::ThreadOrRun(id_of("chatId", &text)?),
                }]
            }
            ["ai-sdk", _, _, ..] => vec![Self::Thread(segment("chatId", uri, 3)?)],
            _ => Vec::new(),
        })
    }

    /// The thread or run that a query names. The run wins over the thread.
    fn from_query(uri: &Uri) -> Result<Vec<Self>, Problem> {
        let query = Query::from_uri_unchecked(uri);
        let run = query.get("runId").map(|run| id_of("runId", run).map(Self::RequestedRun));
        let thread = || query.get("threadId").map(|thread| id_of("threadId", thread).map(Self::Thread));
        run.or_else(thread).into_iter().collect()
    }

    const fn resource(&self) -> Resource<'_> {
        match self {
            Self::Run(run) => Resource::Run(run),
            Self::Session(session) => Resource::Session(session),
            Self::Thread(thread) => Resource::Thread(thread),
            Self::RequestedRun(run) => Resource::RequestedRun(run),
            Self::ThreadOrRun(id) => Resource::ThreadOrRun(id),
            Self::Agent(agent) => Resource::Agent(agent),
        }
    }
}

/// Authorizes a request by the rule of its address.
///
/// # Errors
/// 401, 403; 400 for an invalid id.
pub async fn authorize_request(app: &App, rule: AccessRule, uri: &Uri, headers: &HeaderMap) -> Result<Authorization, Problem> {
    match app.authenticator {
        None => {
            let verb = if let AccessRule::Requires(verb) = rule { verb } else { Verb::Read };
            // An address whose ids are invalid answers that itself.
            let named = NamedResource::from_path(uri, verb).unwrap_or_default();
            for named in &named {
                check_not_erased(app, None, verb, named.resource()).await?;
            }
            Ok(Authorization::unrestricted())
        }
        // Boxed, because callers move this future.
        Some(_) => Box::pin(authenticate_and_authorize(app, rule, uri, headers)).await,
    }
}

async fn authenticate_and_authorize(
    app: &App,
    rule: AccessRule,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Authorization, Problem> {
    let (verb, ticket) = match rule {
        AccessRule::Requires(verb) => (Some(verb), None),
        AccessRule::ReadStream => (Some(Verb::Read), Some(Purpose::Stream)),
        AccessRule::AnyToken | AccessRule::Public | AccessRule::InBand => (None, None),
    };
    let principal =
        Principal::from_request(app, uri, headers, ticket).await?.ok_or_else(|| unauthenticated(&TokenError::Missing))?;
    let verb = match principal.0.as_ref().and_then(|grant| grant.link()) {
        Some(link) => verb_of_link(link, verb, uri)?,
        None => verb,
    };
    let Some(verb) = verb else { return Ok(Authorization::new(app, principal, Vec::new())) };
    // The handler refuses an unknown audience.
    let audience = Query::from_uri_unchecked(uri).get("audience").and_then(Audience::parse);
    let named = NamedResource::from_path(uri, verb)?;
    let mut resources = named.iter().map(NamedResource::resource);
    let mut authorization = authorize(app, &principal, verb, resources.next().unwrap_or(Resource::Unspecified), audience).await?;
    for resource in resources {
        authorization = authorize_also(app, authorization, verb, resource, audience).await?;
    }
    Ok(authorization)
}

/// Authorizes a further verb and resource, and merges it into the authorization.
///
/// # Errors
/// As [`authorize`].
pub async fn authorize_also(
    app: &App,
    authorization: Authorization,
    verb: Verb,
    resource: Resource<'_>,
    audience: Option<Audience>,
) -> Result<Authorization, Problem> {
    let further = authorize(app, &authorization.principal, verb, resource, audience).await?;
    Ok(authorization.merge(further))
}

/// The middleware of every address that is not public.
pub async fn authorize_layer(
    State((app, rule)): State<(Arc<App>, AccessRule)>,
    mut request: Request<Body>,
    next: Next,
) -> Response {
    match authorize_request(&app, rule, request.uri(), request.headers()).await {
        Ok(authorization) => {
            let reads = request.method().is_safe().then(|| authorization.clone());
            request.extensions_mut().insert(authorization);
            let response = next.run(request).await;
            // The handler may have read a later epoch of the run than the one that was checked.
            match reads.map_or(Ok(()), |authorization| authorization.check_read()) {
                Ok(()) => response,
                Err(problem) => problem.into_response(),
            }
        }
        Err(problem) => {
            if !request.headers().contains_key(header::EXPECT) {
                discard(request.into_body()).await;
            }
            problem.into_response()
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Authorization {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get().cloned().ok_or_else(|| {
            tracing::error!("a handler needs an Authorization, and its address is public");
            Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal_error",
                "The server failed to answer. Its log has the details.",
            )
        })
    }
}
