//! What a log keeps of the controls that were asked of it: one state entry each, and a line in its summary while it is open.
//!
//! A [`ControlRecord`] is saved in the commit of the envelope that tells of its change, so a control and its story cannot part.
//! Its value is kept only until the control is closed, guarded, and is in no envelope: what somebody typed is for the runtime
//! that takes it. What is open stands in [`Summary::controls`](super::run::Summary), in the order in which it was asked for, so
//! that a server which starts finds every line without reading a log.

use super::{LogId, StoreError};
use crate::model::{ActionId, AgentId, Audience, Control, ControlId, Draft, EventType, Ids, Phase, Scope};
use crate::source::ledger::RunState;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The key of a control's state entry is this and its id.
pub const CONTROL: &str = "c:";

/// Controls of one log that wait for their owner, or are with it; one more is refused.
pub const OPEN_CONTROLS_MAX: usize = 64;

/// Closed controls that a log remembers, so that a repeated request finds its answer. Beyond it the oldest is forgotten; its
/// envelopes stay.
pub const CLOSED_CONTROLS_MAX: usize = 256;

/// Pending actions of one log of which it is remembered who asks; those of more are answered by the run's own agent.
pub const ASKING_MAX: usize = 256;

/// How a control stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ControlState {
    /// It waits, or somebody has it and has not answered.
    Open,
    /// Its owner took it.
    Acked,
    /// Its owner refused it.
    Nacked,
    /// Nobody took it in time, or there is nothing left to decide.
    Expired,
}

/// One control, as it is kept beside its log. Times are milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlRecord {
    pub id: ControlId,
    pub control: Control,
    /// What it is about: ids by their members' names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub targets: BTreeMap<String, String>,
    /// Who takes it.
    pub agent: AgentId,
    /// Who may know of it.
    pub audience: Audience,
    /// Its place among all controls of the server.
    pub number: u64,
    /// The run's attempt without which it means nothing; `None` for what outlives its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_attempt: Option<u32>,
    /// Whether it asks for the end of the run's attempt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stops_run: bool,
    pub made_at: i64,
    pub expires_at: i64,
    /// How often it was handed over.
    pub attempt: u32,
    pub state: ControlState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Guarded; gone once the control is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Whether the guard took something out of the value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
    /// The hash of what was asked, guarded: the same id with another request is another control.
    pub print: String,
}

impl ControlRecord {
    /// The record in a log's state entry.
    ///
    /// # Errors
    /// `Unreadable`, for what no control was saved as.
    pub fn read(log: &LogId, entry: &[u8], saved: &[u8]) -> Result<Self, StoreError> {
        serde_json::from_slice(saved).map_err(|error| StoreError::unreadable(log, entry, &error))
    }

    /// The ids that it is about.
    #[must_use]
    pub fn ids(&self) -> Ids {
        let mut ids = Ids::default();
        for (member, id) in &self.targets {
            // Checked when it was asked; what cannot be read back names nothing.
            let _ = ids.set(member, id);
        }
        ids
    }

    /// What the log's summary says of it.
    #[must_use]
    pub fn open(&self) -> OpenControl {
        OpenControl {
            id: self.id.clone(),
            agent: self.agent.clone(),
            number: self.number,
            expires_at: self.expires_at,
            attempt: self.attempt,
            action: self.decides().then(|| self.ids().action).flatten(),
            of_attempt: self.of_attempt,
        }
    }

    /// Whether it is an answer to its action.
    #[must_use]
    pub fn decides(&self) -> bool {
        self.targets.contains_key("actionId")
    }

    /// The same, closed: nobody needs its value any more.
    #[must_use]
    pub fn closed(mut self, state: ControlState, reason: Option<&str>) -> Self {
        (self.state, self.value) = (state, None);
        self.reason = reason.map(str::to_owned);
        self
    }

    /// The envelope that tells of it.
    #[must_use]
    pub fn changed(&self, change: Change, is_run: bool) -> Draft {
        let (status, phase) = match change {
            Change::Submitted => ("submitted", Phase::Submitted),
            Change::Claimed => ("claimed", Phase::Routing),
            Change::Acked => ("acked", Phase::Accepted),
            Change::Nacked | Change::Requeued => ("nacked", Phase::Failed),
            Change::Expired => ("expired", Phase::Cancelled),
        };
        let mut draft = Draft::new(EventType::ControlChanged).with("status", status).with("controlId", self.id.as_str());
        if self.attempt > 0 {
            draft = draft.with("attempt", self.attempt);
        }
        if change == Change::Requeued {
            draft = draft.with("requeued", true);
        }
        // Of one that is with somebody again, it is no news why it came back.
        let reason = self.reason.as_deref().filter(|_| !matches!(change, Change::Submitted | Change::Claimed));
        draft.payload.extend(reason.map(|reason| ("reason".to_owned(), reason.into())));
        (draft.phase, draft.ids, draft.audience) = (phase, self.ids(), self.audience);
        draft.control = Some(self.control.clone());
        if !is_run {
            draft.scope = Scope::Session;
        }
        draft
    }
}

/// What became of a control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Submitted,
    Claimed,
    Acked,
    Nacked,
    /// Refused, and in the line again.
    Requeued,
    Expired,
}

/// A control that is open, as its log's summary has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenControl {
    pub id: ControlId,
    pub agent: AgentId,
    pub number: u64,
    pub expires_at: i64,
    pub attempt: u32,
    /// The action that it decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<ActionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_attempt: Option<u32>,
}

impl OpenControl {
    /// Why it means nothing any more, as the run now stands.
    #[must_use]
    pub fn pointless(&self, run: &RunState) -> Option<&'static str> {
        if self.action.as_ref().is_some_and(|action| !run.pending.contains(action.as_str())) {
            return Some("action_resolved");
        }
        // A run that shows no start is in its first attempt.
        self.of_attempt.filter(|of| run.status.is_end() || run.attempt.max(1) != (*of).max(1)).map(|_| "run_ended")
    }
}

/// An action that waits, and who asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AskedAction {
    pub action: ActionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// The action type, as far as the seed names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Box<str>>,
    /// In milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
    /// Options by their ids, and whether choosing one allows what is asked; at most [`OPTIONS_MAX`] of those that say so.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<Box<str>, bool>,
}

/// Options of one action that are remembered, so that no control contradicts the choice that it carries.
pub const OPTIONS_MAX: usize = 8;
/// The longest id of such an option, in bytes.
const OPTION_BYTES_MAX: usize = 64;

/// The longest name of an action's kind that is remembered, in bytes.
const KIND_BYTES_MAX: usize = 64;

impl AskedAction {
    /// What a fact says of the action that it asks for; `None` for one that asks for none.
    #[must_use]
    pub fn of(draft: &Draft) -> Option<Self> {
        let action = draft.ids.action.clone().filter(|_| draft.class == EventType::ActionRequired)?;
        let said = |member: &str| draft.said(member).and_then(Value::as_str);
        let expires = said("expiresAt").and_then(|text| text.parse::<jiff::Timestamp>().ok());
        Some(Self {
            action,
            agent: draft.ids.agent.clone(),
            kind: said("kind").filter(|kind| kind.len() <= KIND_BYTES_MAX).map(Into::into),
            expires_at: expires.map(jiff::Timestamp::as_millisecond),
            options: draft.said("options").and_then(Value::as_array).map(|options| verdicts(options)).unwrap_or_default(),
        })
    }
}

/// The options whose kind says what choosing them means: `allow_…` or `reject_…`.
fn verdicts(options: &[Value]) -> BTreeMap<Box<str>, bool> {
    let verdict = |option: &Value| {
        let text = |member: &str| option.get(member).and_then(Value::as_str);
        let id = text("optionId").filter(|id| id.len() <= OPTION_BYTES_MAX)?;
        let allows = match text("kind")?.split('_').next() {
            Some("allow") => true,
            Some("reject") => false,
            _ => return None,
        };
        Some((Box::from(id), allows))
    };
    options.iter().filter_map(verdict).take(OPTIONS_MAX).collect()
}
