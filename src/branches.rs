//! Branches: a session goes on from a point of another one, or of itself.
//!
//! ```text
//!   POST …/branches, regenerate, edit ─▶ point checked ─▶ own log of the branch ─▶ head of the root, for clients that keep
//!                                                                                  their id
//! ```
//! The log is not copied: readers fold the ancestors up to the point ([`lineage`](crate::feed::lineage)). The agent of the
//! branch gets its own state at the point, or the messages up to it ([`Fork`]).

use crate::control::{self, ControlError, Requester};
use crate::environment::Environment;
use crate::feed::Feed;
use crate::feed::lineage::FrozenLog;
use crate::ingest::{BeginOwner, Ingest, Quota, ServerAppend, WriterView};
use crate::log::agent_memory::Remembered;
use crate::log::commit::Logs;
use crate::log::{Limit, LogId, StoreError};
use crate::model::branch::{BranchOrigin, BranchPoint, FORK, Fork, HEAD, PARENT, branch_id};
use crate::model::decided_by::{Decider, UPDATED_BY, written_by};
use crate::model::{AgentId, Audience, Draft, EventType, RunId, Sequence, SessionId};
use crate::projection::activity_set::Activity;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Branches of one tree.
pub const BRANCHES_MAX: usize = 1024;
/// Branches of branches of one session.
pub const BRANCH_DEPTH_MAX: usize = 64;
/// The rows that are read to find a point.
const ONE_ROW: Limit = Limit { rows: 1, bytes: 0 };

/// Why a branch is refused.
#[derive(Debug, thiserror::Error)]
pub enum BranchError {
    #[error("Session {0} does not exist. Branch from a session that does.")]
    NoSuchSession(SessionId),
    #[error(
        "Session {session} has no run {run} before a point at sequence {sequence} that you can see. Read its events for the points."
    )]
    NoSuchPoint { session: SessionId, run: RunId, sequence: Sequence },
    #[error("Session {session} has no message {message} that you can see. Read its messages again.")]
    NoSuchMessage { session: SessionId, message: String },
    #[error("Session {0} exists. Choose another sessionId for the branch, or omit it.")]
    Exists(SessionId),
    #[error("The id of session {0} is too long to name a branch after it. Send a sessionId for the branch.")]
    IdTooLong(SessionId),
    #[error("The session has {BRANCHES_MAX} branches, or is {BRANCH_DEPTH_MAX} branches deep, the limit. Delete some of them.")]
    TooMany,
    #[error("Session {head} is not of the same tree as session {of}. Send the id of one of its branches, or null.")]
    NoSuchHead { of: SessionId, head: SessionId },
    /// Its requester may not begin the session.
    #[error(transparent)]
    Refused(#[from] ControlError),
}

impl From<StoreError> for BranchError {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.into())
    }
}

/// An agent's last run before the point at which a branch leaves, as its connector sees it.
#[derive(Debug, Clone)]
pub struct LeftTurn {
    pub run: RunId,
    /// What the connector remembers of the run.
    pub memory: Remembered,
    /// Whether the run has ended, and the branch has all that was said in it.
    pub is_at_end: bool,
    /// Whether the run's session has no later run of the agent.
    pub is_newest: bool,
    /// Whether the branch has no later run, of any agent.
    pub is_last: bool,
}

/// Says what a connected agent knows in a branch, by its last run before the point. `None`: it has none.
pub type ForkOf = Box<dyn Fn(Option<&LeftTurn>) -> Fork + Send + Sync>;

/// What people and agents say to each other, in the activities of a run.
const SAID: [&str; 4] = ["message", "reasoning", "tool-call-progress", "action"];

/// The branches of one server.
pub struct Branches {
    environment: Environment,
    logs: Arc<Logs>,
    ingest: Arc<Ingest>,
    feed: Arc<Feed>,
    /// The protocols of the connected agents.
    connected: Mutex<HashMap<AgentId, (&'static str, ForkOf)>>,
}

/// A branch to begin.
pub struct NewBranch<'b> {
    /// The session from which it goes on.
    pub session: &'b SessionId,
    pub run: RunId,
    /// The last sequence of the run that it has; 0: it leaves before the run.
    pub sequence: Sequence,
    /// The id that it is to have. `None`: the server names it.
    pub id: Option<SessionId>,
    /// What names the branch if the server does: the same name means the same branch.
    pub name: Option<String>,
}

impl Branches {
    /// The branches that the logs of the server have.
    #[must_use]
    pub fn new(environment: Environment, logs: Arc<Logs>, ingest: Arc<Ingest>, feed: Arc<Feed>) -> Self {
        Self { environment, logs, ingest, feed, connected: Mutex::default() }
    }

    /// Notes what a connected agent knows in branches, by the name of its protocol.
    pub fn connect(&self, agent: AgentId, protocol: &'static str, fork_of: ForkOf) {
        self.connected.lock().insert(agent, (protocol, fork_of));
    }

    /// Begins a branch, durably. One that was begun before in the same way is the same branch.
    ///
    /// # Errors
    /// [`BranchError`] for a point that its requester cannot see, and for a session that it may not begin.
    pub async fn begin(&self, new: NewBranch<'_>, by: &Requester) -> Result<SessionId, BranchError> {
        let sessions = self.logs.sessions();
        if sessions.created_order(new.session).is_none() {
            return Err(BranchError::NoSuchSession(new.session.clone()));
        }
        let parent = self.point(new.session, &new.run, new.sequence, by.audience).await?;
        let root = sessions.root_of(&parent.session_id);
        let id = match new.id {
            Some(id) => id,
            None => {
                let name = new.name.unwrap_or_else(|| uuid::Uuid::from_u128((self.environment.random)()).simple().to_string());
                branch_id(&root, &name).ok_or_else(|| BranchError::IdTooLong(root.clone()))?
            }
        };
        let depth =
            std::iter::successors(sessions.origin_of(new.session), |origin| sessions.origin_of(&origin.parent.session_id));
        let is_known = sessions.origin_of(&id).is_some_and(|known| known.parent == parent);
        if !is_known
            && (sessions.branches_below(&root).len() >= BRANCHES_MAX || depth.take(BRANCH_DEPTH_MAX).count() >= BRANCH_DEPTH_MAX)
        {
            return Err(BranchError::TooMany);
        }
        let fork = self.fork_at(&parent).await?;
        let origin = BranchOrigin { parent, fork };
        // A branch has the owner of the session that it leaves, and not that of its requester.
        let owner = BeginOwner { owner: sessions.owner_of(&origin.parent.session_id), is_requested: false, ..by.owner.clone() };
        let by = Requester { owner: owner.clone(), ..by.clone() };
        let _claim = match is_known {
            true => None,
            false => Some(control::claim_session(&self.logs, &self.ingest, &id, &by, &[Quota::Bytes])?),
        };
        let now = (self.environment.now)();
        let logs = self.logs.clone();
        let open = |view: &WriterView<'_>| {
            let known = view.summary.extension.branch.as_deref();
            if known.is_some_and(|known| known.parent == origin.parent) {
                return (true, ServerAppend::default());
            }
            if view.is_written || logs.sessions().created_order(&id).is_some() {
                return (false, ServerAppend::default());
            }
            let drafts = vec![opened(&origin, &by.decider, now)];
            (true, ServerAppend { drafts, owner: owner.clone(), ..ServerAppend::default() })
        };
        if !self.ingest.append_as_server(&LogId::Session(id.clone()), open).await? {
            return Err(BranchError::Exists(id));
        }
        Ok(id)
    }

    /// Makes `head` what the existing clients that know the session `of` read and write. `None`: the session itself.
    ///
    /// # Errors
    /// [`BranchError::NoSuchHead`] for a session of another tree, or the store's failure.
    pub async fn set_head(&self, of: &SessionId, head: Option<&SessionId>, by: &Decider) -> Result<(), BranchError> {
        let sessions = self.logs.sessions();
        let head = head.filter(|head| *head != of);
        if let Some(head) = head
            && (sessions.created_order(head).is_none() || sessions.root_of(head) != sessions.root_of(of))
        {
            return Err(BranchError::NoSuchHead { of: of.clone(), head: head.clone() });
        }
        let (now, logs) = ((self.environment.now)(), self.logs.clone());
        let change = |view: &WriterView<'_>| {
            let exists = logs.sessions().created_order(of).is_some();
            let is_so = view.summary.extension.head.as_ref() == head;
            let mut draft = Draft::new(EventType::SessionUpdated);
            draft.payload.insert(HEAD, head.map_or(Value::Null, |head| head.as_str().into()));
            draft.payload.insert(UPDATED_BY, written_by(by, now));
            let drafts = if exists && !is_so { vec![draft] } else { Vec::new() };
            (exists, ServerAppend { drafts, ..ServerAppend::default() })
        };
        match self.ingest.append_as_server(&LogId::Session(of.clone()), change).await? {
            true => Ok(()),
            false => Err(BranchError::NoSuchSession(of.clone())),
        }
    }

    /// The point after a message: the message is the last thing that the branch has.
    ///
    /// # Errors
    /// [`BranchError::NoSuchMessage`] for a message that the audience cannot see, or the store's failure.
    pub async fn after_message(
        &self,
        session: &SessionId,
        message: &str,
        audience: Audience,
    ) -> Result<(RunId, Sequence), BranchError> {
        let (logs, _) = self.logs.sessions().logs_of(session, usize::MAX).unwrap_or_default();
        for (_, log) in logs {
            if let LogId::Run(run) = &log
                && let Some(view) = self.feed.activities(&log, audience, None).await?
                && let Some(sequence) = last_of(view.activities(), message)
            {
                return Ok((run.clone(), sequence));
            }
        }
        for frozen in self.feed.frozen_logs(session, usize::MAX).await?.into_iter().rev() {
            if let LogId::Run(run) = &frozen.log
                && let Some(sequence) = last_of(&self.feed.frozen_activities(&frozen, audience).await?, message)
            {
                return Ok((run.clone(), sequence));
            }
        }
        Err(BranchError::NoSuchMessage { session: session.clone(), message: message.to_owned() })
    }

    /// The branches that have a part of a run.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn needing(&self, run: &RunId) -> Result<Vec<SessionId>, StoreError> {
        let log = LogId::Run(run.clone());
        // A run whose state is unreadable can be erased: no branch can read it.
        let Ok(tail) = self.logs.log(&log).await.map(|log| log.tail()) else { return Ok(Vec::new()) };
        let Some(session) = tail.summary.session_id.clone() else { return Ok(Vec::new()) };
        let mut needing = Vec::new();
        for branch in self.logs.sessions().branches_below(&session) {
            if self.feed.frozen_logs(&branch, usize::MAX).await?.iter().any(|frozen| frozen.log == log) {
                needing.push(branch);
            }
        }
        Ok(needing)
    }

    /// Checks a point that a requester names: the run is of the session or of its ancestors, and has a row there that the
    /// audience sees.
    async fn point(
        &self,
        session: &SessionId,
        run: &RunId,
        sequence: Sequence,
        audience: Audience,
    ) -> Result<BranchPoint, BranchError> {
        let unseen = || BranchError::NoSuchPoint { session: session.clone(), run: run.clone(), sequence };
        let log = LogId::Run(run.clone());
        let tail = self.logs.log(&log).await?.tail();
        let (Some(epoch), Some(of)) = (tail.epoch, tail.summary.session_id.clone()) else { return Err(unseen()) };
        let until = match of == *session {
            true => Some(tail.last),
            false => {
                self.feed.frozen_logs(session, usize::MAX).await?.into_iter().find(|frozen| frozen.log == log).map(|it| it.until)
            }
        };
        if until.is_none_or(|until| sequence > until) || tail.summary.seen_last[audience.index()] == Sequence::NONE {
            return Err(unseen());
        }
        if sequence > Sequence::NONE {
            let rows = self.feed.rows(&log, epoch, Sequence(sequence.0 - 1), ONE_ROW).await?;
            let is_seen = rows.first().is_some_and(|row| row.sequence() == sequence && row.view(audience).is_some());
            if !is_seen {
                return Err(unseen());
            }
        }
        let mut point = BranchPoint { session_id: of, run_id: run.clone(), sequence };
        // A branch that leaves before all that another branch adds is its sibling.
        while let Some(origin) = self.logs.sessions().origin_of(&point.session_id).filter(|_| self.is_before_all(&point)) {
            point = origin.parent;
        }
        Ok(point)
    }

    /// Whether a point is before the first run of its session.
    fn is_before_all(&self, point: &BranchPoint) -> bool {
        let first = self.logs.sessions().runs_of(&point.session_id).into_iter().next();
        point.sequence == Sequence::NONE && first.as_ref() == Some(&point.run_id)
    }

    /// What the agent of a branch that leaves at this point knows.
    async fn fork_at(&self, parent: &BranchPoint) -> Result<Fork, StoreError> {
        let left = self.logs.log(&LogId::Run(parent.run_id.clone())).await?.tail().summary.agent.clone();
        let Some(agent) = left else { return Ok(Fork::None) };
        let protocol = self.connected.lock().get(&agent).map(|(protocol, _)| *protocol);
        let Some(protocol) = protocol else { return Ok(Fork::None) };
        let left = self.left_turn_of(self.feed.frozen_logs_at(parent).await?, &agent, protocol).await?;
        Ok(self.connected.lock().get(&agent).map_or(Fork::None, |(_, fork_of)| fork_of(left.as_ref())))
    }

    /// The last turn of an agent in what a branch has of its ancestors. `None`: it has none.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn left_turn(&self, branch: &SessionId, agent: &AgentId, protocol: &str) -> Result<Option<LeftTurn>, StoreError> {
        self.left_turn_of(self.feed.frozen_logs(branch, usize::MAX).await?, agent, protocol).await
    }

    async fn left_turn_of(
        &self,
        frozen: Vec<FrozenLog>,
        agent: &AgentId,
        protocol: &str,
    ) -> Result<Option<LeftTurn>, StoreError> {
        let mut is_last = true;
        for frozen in frozen.into_iter().rev() {
            let LogId::Run(run) = &frozen.log else { continue };
            let tail = self.logs.log(&frozen.log).await?.tail();
            let memory = |view: &WriterView<'_>| view.agent_memory(agent, protocol).map(|memory| memory.values.clone());
            let is_of_agent = tail.summary.agent.as_ref() == Some(agent);
            let memory = if is_of_agent { self.ingest.read(&frozen.log, memory).await? } else { None };
            let Some(memory) = memory else {
                is_last = false;
                continue;
            };
            let is_at_end = tail.summary.run.status.is_end() && !self.goes_on(&frozen).await?;
            let is_newest = self.is_newest(&frozen, tail.summary.session_id.as_ref(), agent).await?;
            return Ok(Some(LeftTurn { run: run.clone(), memory, is_at_end, is_newest, is_last }));
        }
        Ok(None)
    }

    /// Whether something was said in a run after the part of it that a branch has.
    async fn goes_on(&self, frozen: &FrozenLog) -> Result<bool, StoreError> {
        let whole = self.feed.activities(&frozen.log, Audience::Internal, None).await?;
        let said = |activity: &Activity| SAID.contains(&&*activity.kind) && activity.sequence > frozen.until;
        Ok(whole.is_some_and(|whole| whole.activities().iter().any(said)))
    }

    /// Whether the session of a run has no later run of this agent.
    async fn is_newest(&self, of: &FrozenLog, session: Option<&SessionId>, agent: &AgentId) -> Result<bool, StoreError> {
        let logs = session.and_then(|session| self.logs.sessions().logs_of(session, usize::MAX));
        for (created, log) in logs.into_iter().flat_map(|(logs, _)| logs) {
            let is_later = created > of.created && matches!(log, LogId::Run(_));
            if is_later && self.logs.log(&log).await?.tail().summary.agent.as_ref() == Some(agent) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The fact with which a branch begins.
fn opened(origin: &BranchOrigin, by: &Decider, now: jiff::Timestamp) -> Draft {
    let mut draft = Draft::new(EventType::SessionOpened);
    draft.payload.insert(PARENT, json!(origin.parent));
    draft.payload.insert(FORK, origin.fork.as_str().into());
    draft.payload.insert(UPDATED_BY, written_by(by, now));
    draft
}

/// The envelope that last changed a message.
fn last_of(activities: &[Activity], message: &str) -> Option<Sequence> {
    let found = activities.iter().find(|activity| &*activity.kind == "message" && &*activity.id == message);
    found.map(|activity| activity.sequence)
}
