//! The summary of a log: everything that the server knows without reading rows.

use crate::log::control::{DEFAULT_AGENT, OpenControl, PendingAction, PendingDetail, WaitTerms};
use crate::log::figures::{FIGURES, RunFigures};
use crate::log::{ListedLog, LoadedLog, LogId, META, StoreError};
use crate::model::branch::BranchOrigin;
use crate::model::stored;
use crate::model::{ActionId, AgentId, Audience, OwnerId, Sequence, SessionId, ThreadId};
use crate::source::ledger::RunState;
use crate::waits::WaitingAction;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The summary of a log. Every append saves it; lists show it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    #[serde(default)]
    pub session_id: Option<SessionId>,
    #[serde(default)]
    pub thread_id: Option<ThreadId>,
    #[serde(default)]
    pub parent_session_id: Option<SessionId>,
    /// The run's own agent, from its first start or acceptance that names one.
    #[serde(default)]
    pub agent: Option<AgentId>,
    /// The state of the run, by all envelopes.
    pub run: RunState,
    /// The state by the envelopes that users (and dashboards) see, where it differs.
    #[serde(default)]
    pub run_for_user: Option<Box<RunState>>,
    #[serde(default)]
    pub run_for_dashboard: Option<Box<RunState>>,
    /// RFC 3339 in UTC, like all times here.
    #[serde(default)]
    pub started_at: Option<Box<str>>,
    #[serde(default)]
    pub ended_at: Option<Box<str>>,
    #[serde(default)]
    pub last_activity: Option<Box<str>>,
    pub last_sequence: Sequence,
    /// The log's preview in lists, for users.
    #[serde(default)]
    #[serde(rename = "shown")]
    pub preview: Preview,
    /// Per audience: the last visible sequence, and the number of visible envelopes.
    pub seen_last: [Sequence; 3],
    pub seen_count: [u64; 3],
    #[serde(default)]
    pub compacted: CompactionState,
    /// The pending actions, with the agents that ask.
    #[serde(default)]
    #[serde(rename = "asking")]
    pub pending_actions: Vec<PendingAction>,
    /// The open controls, oldest first.
    #[serde(default)]
    pub controls: Vec<OpenControl>,
    /// The last stored field: the stored form of releases up to 0.2.0 lacks it.
    #[serde(default)]
    pub extension: SummaryExtension,
    /// The figures of a run, from a state entry of their own. `None`: an earlier version wrote the log, or it is no run's.
    #[serde(skip)]
    pub figures: Option<Arc<RunFigures>>,
}

/// The fields of a [`SummaryExtension`], one byte each by default, as [`stored::save_extended`] needs it.
const EXTENSION_FIELDS: usize = 15;

/// What a summary has that earlier releases did not store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SummaryExtension {
    /// More about each of [`Summary::pending_actions`].
    #[serde(default)]
    pub actions: BTreeMap<ActionId, PendingDetail>,
    /// The open controls that wait for the pending actions of their agent, by queue position.
    #[serde(default)]
    pub waiting: BTreeMap<u64, WaitTerms>,
    /// Per audience: the pending actions that have state entries of their own.
    #[serde(default)]
    pub unlisted: [u64; 3],
    /// Whose the log's session is, or the run, if it has no session.
    #[serde(default)]
    pub owner: Option<OwnerId>,
    /// The bytes of the log's envelopes and bodies, counted if it has an owner.
    #[serde(default)]
    pub bytes: u64,
    /// The queue positions of open approvals that are not handed out.
    #[serde(default)]
    pub held: BTreeSet<u64>,
    /// The title that a person gave the session. In the log of the session only.
    #[serde(default)]
    pub title: Option<Box<str>>,
    /// Whether a person archived the session. In the log of the session only.
    #[serde(default)]
    pub archived: bool,
    /// The `sub` of the token that began the session with this log.
    #[serde(default)]
    pub created_by: Option<Box<str>>,
    /// `None`: the log's last envelope is news to all audiences.
    #[serde(default)]
    pub news: Option<Box<News>>,
    /// What makes the session a branch. In the log of the session only.
    #[serde(default)]
    pub branch: Option<Box<BranchOrigin>>,
    /// The branch that existing clients of the session read and write. In the log of the session only.
    #[serde(default)]
    pub head: Option<SessionId>,
    /// How far the log is archived; see [`archive`](super::archive). After the first step no compaction examines the log.
    #[serde(default)]
    pub archived_through: Sequence,
}

/// Per audience, the last envelope that is news, and when it came. What a person does to a session is no news.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct News {
    /// [`Sequence::NONE`] for an audience without any.
    pub last: [Sequence; 3],
    /// In milliseconds since 1970.
    pub at: [i64; 3],
}

impl News {
    /// When this audience last got news. `None`: it has none.
    #[must_use]
    pub fn time(&self, audience: Audience) -> Option<jiff::Timestamp> {
        let at = self.at[audience.index()];
        jiff::Timestamp::from_millisecond(at).ok().filter(|_| at > 0)
    }
}

/// The prefix of the keys of pending actions that the summary does not list. A value has a bit for each audience.
pub const PENDING_KEY_PREFIX: &str = "w:";

impl Summary {
    /// Reads the summary from the entry [`META`] of a log.
    ///
    /// # Errors
    /// `Unreadable` for bytes that are not a summary.
    pub fn read(log: &LogId, meta: &[u8]) -> Result<Self, StoreError> {
        let restored = stored::restore_extended(meta, EXTENSION_FIELDS);
        let mut summary: Self = restored.map_err(|error| StoreError::unreadable(log, META, &error))?;
        for asked in &mut summary.pending_actions {
            let detail = summary.extension.actions.get(&asked.action).filter(|detail| !detail.options.is_empty());
            if let Some(detail) = detail {
                asked.options.clone_from(&detail.options);
            }
        }
        let counts = std::mem::take(&mut summary.extension.unlisted);
        for (run, count) in summary.runs_mut().into_iter().zip(counts) {
            if let Some(run) = run {
                run.pending.set_unread(usize::try_from(count).unwrap_or(usize::MAX));
            }
        }
        Ok(summary)
    }

    /// Encodes the summary for the entry [`META`]. Pending actions beyond the listed ones have entries of their own.
    #[must_use]
    pub fn save(&self) -> Bytes {
        let unlisted = Audience::ALL.map(|audience| self.run_for(audience).pending.unlisted() as u64);
        if unlisted == [0; 3] {
            return self.encode().into();
        }
        let mut listed = self.clone();
        listed.extension.unlisted = unlisted;
        for run in listed.runs_mut().into_iter().flatten() {
            run.pending = run.pending.listed_only();
        }
        listed.encode().into()
    }

    fn encode(&self) -> Vec<u8> {
        stored::save_extended(self, EXTENSION_FIELDS, self.extension != SummaryExtension::default())
    }

    /// Adds the pending actions that have state entries of their own: those of the summary before, as these entries
    /// change them.
    ///
    /// Returns whether they are as many as the summary counts.
    pub fn add_unlisted<'e>(&mut self, before: &Self, entries: impl Iterator<Item = (&'e [u8], Option<&'e Bytes>)>) -> bool {
        // A node of an earlier version, which leads while a cluster is upgraded, lists all and leaves the entries.
        if Audience::ALL.iter().all(|audience| self.run_for(*audience).pending.unlisted() == 0) {
            return true;
        }
        let mut others = Audience::ALL.map(|audience| before.run_for(audience).pending.others().clone());
        for (key, value) in entries {
            let Some(action) = key.strip_prefix(PENDING_KEY_PREFIX.as_bytes()) else { continue };
            let Ok(action) = std::str::from_utf8(action) else { return false };
            let bits = value.and_then(|value| value.first()).copied().unwrap_or_default();
            for (audience, of) in others.iter_mut().enumerate() {
                match bits >> audience & 1 {
                    0 => drop(of.remove(action)),
                    _ => drop(of.insert(action.into())),
                }
            }
        }
        let runs = self.runs_mut().into_iter().zip(others);
        runs.fold(true, |are_all, (run, others)| run.is_none_or(|run| run.pending.set_others(others)) && are_all)
    }

    /// The states of the run by audience, in the order of [`Audience::ALL`], that the summary stores.
    fn runs_mut(&mut self) -> [Option<&mut RunState>; 3] {
        [self.run_for_user.as_deref_mut(), self.run_for_dashboard.as_deref_mut(), Some(&mut self.run)]
    }

    /// Adds the figures that a state entry has: of these entries, else those of the summary before.
    ///
    /// # Errors
    /// `Unreadable` for an entry that has none.
    pub fn add_figures<'e>(
        &mut self,
        log: &LogId,
        before: Option<&Self>,
        mut entries: impl Iterator<Item = (&'e [u8], &'e [u8])>,
    ) -> Result<(), StoreError> {
        self.figures = match entries.find(|(key, value)| *key == FIGURES && !value.is_empty()) {
            Some((_, value)) => Some(Arc::new(RunFigures::read(log, value)?)),
            None => before.and_then(|before| before.figures.clone()),
        };
        Ok(())
    }

    /// Reads the summary of a listed log.
    ///
    /// Logs an unreadable summary and returns `None`, so that the list omits the log.
    #[must_use]
    pub fn from_listed(listed: &ListedLog) -> Option<Self> {
        let read = Self::read(&listed.log, &listed.meta).and_then(|mut summary| {
            summary.add_figures(&listed.log, None, std::iter::once((FIGURES, &listed.figures[..])))?;
            Ok(summary)
        });
        read.inspect_err(|error| tracing::error!(%error, "a list omits a log")).ok()
    }

    /// Where the log's pending actions hold back the messages to their agents: its session, or the log itself.
    #[must_use]
    pub fn scope(&self, log: &LogId) -> LogId {
        self.session_id.clone().map_or_else(|| log.clone(), LogId::Session)
    }

    /// The widest audience that sees this action as pending.
    #[must_use]
    pub fn audience_of_pending(&self, action: &ActionId) -> Audience {
        let sees = |audience: &Audience| self.run_for(*audience).pending.contains(action.as_str());
        Audience::ALL.into_iter().find(sees).unwrap_or(Audience::Internal)
    }

    /// The number of pending actions that this audience sees and that have no decision under way.
    #[must_use]
    pub fn unanswered(&self, audience: Audience) -> usize {
        let pending = &self.run_for(audience).pending;
        let decided =
            |(action, detail): &(&ActionId, &PendingDetail)| detail.control.is_some() && pending.contains(action.as_str());
        pending.len() - self.extension.actions.iter().filter(decided).count()
    }

    /// The agent that takes the decision about an action of this agent, or of the log's own.
    #[must_use]
    pub fn decider(&self, asker: Option<&AgentId>) -> AgentId {
        asker.or(self.agent.as_ref()).cloned().unwrap_or_else(|| AgentId::new(DEFAULT_AGENT).expect("a short name is an id"))
    }

    /// A pending action, as rules see it.
    #[must_use]
    pub fn waiting(&self, asked: &PendingAction) -> WaitingAction {
        let detail = self.extension.actions.get(&asked.action);
        let state = detail.and_then(|detail| detail.wait.as_deref()).cloned().unwrap_or_default();
        WaitingAction {
            agent: self.decider(asked.agent.as_ref()),
            kind: asked.kind.clone(),
            tool: state.tool,
            is_tool_unknown: state.is_tool_unknown,
            risk: state.risk,
            on_expiry: state.on_expiry,
            since: state.since.or_else(|| detail.map(|detail| detail.asked_at)).unwrap_or(i64::MAX),
            expires_at: asked.expires_at,
            steps: state.steps,
            is_decided: detail.is_some_and(|detail| detail.control.is_some()),
            approvals: state.approvals,
        }
    }

    /// The last envelope that is news, and when it came, per audience.
    #[must_use]
    pub fn news(&self) -> News {
        self.news_before(self.seen_last, self.last_sequence)
    }

    /// [`Self::news`] when the log ended at `last` and the audiences had seen `seen`.
    ///
    /// An earlier version stored no news. Where its last envelope is hidden from an audience, no time of it may show in
    /// lists. So its time is that of the run's end or start, which all audiences see.
    fn news_before(&self, seen: [Sequence; 3], last: Sequence) -> News {
        if let Some(news) = &self.extension.news {
            return (**news).clone();
        }
        let of = |time: &Option<Box<str>>| {
            let time = time.as_deref().and_then(|time| time.parse::<jiff::Timestamp>().ok());
            time.map_or(0, jiff::Timestamp::as_millisecond)
        };
        let now = of(&self.last_activity);
        let boundary = || of(if self.ended_at.is_some() { &self.ended_at } else { &self.started_at });
        let at = seen.map(|seen| match seen {
            Sequence::NONE => 0,
            seen if seen == last => now,
            _ => boundary(),
        });
        News { last: seen, at }
    }

    /// Notes what is news in an append: per audience, the last such envelope, of the time `now` in milliseconds.
    ///
    /// `seen` and `last` are [`Self::seen_last`] and [`Self::last_sequence`] before the append. [`Self::last_activity`] is
    /// still that of the append before.
    pub fn note_news(&mut self, newest: [Option<Sequence>; 3], seen: [Sequence; 3], last: Sequence, now: i64) {
        if newest.iter().all(|newest| *newest == Some(self.last_sequence)) {
            self.extension.news = None;
            return;
        }
        let mut news = self.news_before(seen, last);
        for (reader, newest) in newest.into_iter().enumerate() {
            if let Some(newest) = newest {
                (news.last[reader], news.at[reader]) = (newest, now);
            }
        }
        self.extension.news = Some(Box::new(news));
    }

    /// The state of the run, as this audience sees it.
    #[must_use]
    pub fn run_for(&self, audience: Audience) -> &RunState {
        let narrower = match audience {
            Audience::User => &self.run_for_user,
            Audience::Dashboard => &self.run_for_dashboard,
            Audience::Internal => &None,
        };
        narrower.as_deref().unwrap_or(&self.run)
    }
}

/// The compactions of a log so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionState {
    /// The number of compactions that removed rows.
    ///
    /// State that a reader derived from the rows at one count is not valid at another, except at the tail.
    pub times: u64,
    /// The log's tail at the last compaction. Rows before it may be missing; rows after it are complete.
    pub through: Sequence,
    /// The log's tail when compaction last examined the whole log.
    pub considered: Sequence,
}

/// The preview of a log in lists. It contains only data that every audience may see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    #[serde(default)]
    pub title: Option<Box<str>>,
    /// The id and the beginning of the newest message.
    #[serde(default)]
    #[serde(rename = "preview")]
    pub message: Option<(Box<str>, Box<str>)>,
    #[serde(default)]
    #[serde(deserialize_with = "count")]
    pub unread: Option<u64>,
    #[serde(default)]
    pub pinned: Option<bool>,
    #[serde(default)]
    pub stale: Option<bool>,
}

/// A count as sources send it: a number, or a flag for one or none.
#[must_use]
pub fn count_of(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_bool().map(u64::from))
}

// The JSON of older stores may have a flag instead of a count.
fn count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    match from.is_human_readable() {
        true => Ok(count_of(&Value::deserialize(from)?)),
        false => Option::deserialize(from),
    }
}

/// The longest title and preview text, in characters.
pub const PREVIEW_CHARS_MAX: usize = 160;
/// The longest title that a person gives a session, in characters.
pub const SESSION_TITLE_CHARS_MAX: usize = 160;

impl Preview {
    /// Sets the title.
    pub fn set_title(&mut self, title: &str) {
        self.title = Some(title.chars().take(PREVIEW_CHARS_MAX).collect());
    }

    /// Appends message text. A chunk of another message replaces the preview.
    pub fn append_message(&mut self, message: &str, chunk: &str) {
        if self.message.as_ref().is_some_and(|(of, text)| **of == *message && text.len() >= PREVIEW_CHARS_MAX) {
            return;
        }
        let known = self.message.take_if(|(of, _)| **of == *message);
        let known = known.map(|(_, text)| String::from(text)).unwrap_or_default();
        let room = PREVIEW_CHARS_MAX.saturating_sub(known.chars().count());
        let text = known + &chunk.chars().take(room).collect::<String>();
        self.message = Some((message.into(), text.into()));
    }
}

/// Reads the summary that was saved with a log.
///
/// # Errors
/// `Unreadable`, also when the summary is missing.
pub fn summary_of(log: &LogId, loaded: &LoadedLog) -> Result<Summary, StoreError> {
    let meta = loaded.state.iter().find(|(key, _)| key == META);
    let (_, meta) = meta.ok_or_else(|| StoreError::unreadable(log, META, &"it is missing"))?;
    let mut summary = Summary::read(log, meta)?;
    summary.add_figures(log, None, loaded.state.iter().map(|(key, value)| (&key[..], &value[..])))?;
    let entries = loaded.state.iter().map(|(key, value)| (&key[..], Some(value)));
    match summary.add_unlisted(&Summary::default(), entries) {
        true => Ok(summary),
        false => Err(StoreError::unreadable(log, META, &"it counts other pending actions than the log has")),
    }
}
