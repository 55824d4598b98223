//! What is known of a log without reading it.

use crate::log::control::{AskedAction, OpenControl};
use crate::log::{Listed, Loaded, LogId, META, StoreError};
use crate::model::{AgentId, Audience, Sequence, SessionId, ThreadId};
use crate::source::ledger::RunState;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// What is known of a log without reading it: saved with every append, shown in lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<ThreadId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_session_id: Option<SessionId>,
    /// The run's own agent: that of its first start that names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// How the run stands, by all that is known.
    pub run: RunState,
    /// The same by what users and what operators saw, where that is something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_for_user: Option<Box<RunState>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_for_dashboard: Option<Box<RunState>>,
    /// RFC 3339 UTC, as all times here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_activity: Option<Box<str>>,
    pub last_sequence: Sequence,
    /// What users are shown in lists.
    #[serde(default, skip_serializing_if = "Shown::is_nothing")]
    pub shown: Shown,
    /// Per audience: the last sequence that it sees, and how many it sees.
    pub seen_last: [Sequence; 3],
    pub seen_count: [u64; 3],
    #[serde(default, skip_serializing_if = "Compacted::is_never")]
    pub compacted: Compacted,
    /// Who asks, of the actions that wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asking: Vec<AskedAction>,
    /// The controls that are open, in the order in which they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controls: Vec<OpenControl>,
}

impl Summary {
    /// The summary of a log, by its entry [`META`].
    ///
    /// # Errors
    /// `Unreadable`, for what no summary was saved as.
    pub fn read(log: &LogId, meta: &[u8]) -> Result<Self, StoreError> {
        serde_json::from_slice(meta).map_err(|error| StoreError::unreadable(log, META, &error))
    }

    /// The summary of a log in a list. One that cannot be read is named in the server's log, and the list leaves it out.
    #[must_use]
    pub fn listed(listed: &Listed) -> Option<Self> {
        let read = Self::read(&listed.log, &listed.meta);
        read.inspect_err(|error| tracing::error!(%error, "a list leaves a log out")).ok()
    }

    /// How the run stands, by what this audience saw of it.
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

/// What compaction has made of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Compacted {
    /// How often rows were taken away. What was made of the rows at one number says nothing of what they come to at another,
    /// except at the tail.
    pub times: u64,
    /// Where the log ended the last time: of what lies before there is less than there was; from there on all.
    pub through: Sequence,
    /// Where the log ended when it was last looked through to its end.
    pub considered: Sequence,
}

impl Compacted {
    fn is_never(&self) -> bool {
        *self == Self::default()
    }
}

/// What a list shows of a log: only what every audience may see goes in here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Box<str>>,
    /// The beginning of the newest message, and which message that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<(Box<str>, Box<str>)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "count")]
    pub unread: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<bool>,
}

/// A number of things, as sources give it: a number, or a flag for one or none.
#[must_use]
pub fn count_of(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_bool().map(u64::from))
}

/// Stores of before the count kept a flag.
fn count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Ok(count_of(&Value::deserialize(from)?))
}

/// The longest title and preview, in characters.
pub const SHOWN_CHARS_MAX: usize = 160;

impl Shown {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// A log with this title.
    pub fn title(&mut self, title: &str) {
        self.title = Some(title.chars().take(SHOWN_CHARS_MAX).collect());
    }

    /// More text of a message; of another message than before it is the beginning.
    pub fn preview(&mut self, message: &str, chunk: &str) {
        if self.preview.as_ref().is_some_and(|(of, text)| **of == *message && text.len() >= SHOWN_CHARS_MAX) {
            return;
        }
        let known = self.preview.take_if(|(of, _)| **of == *message);
        let known = known.map(|(_, text)| String::from(text)).unwrap_or_default();
        let room = SHOWN_CHARS_MAX.saturating_sub(known.chars().count());
        let text = known + &chunk.chars().take(room).collect::<String>();
        self.preview = Some((message.into(), text.into()));
    }
}

/// The summary that was saved with a log.
///
/// # Errors
/// `Unreadable`, also when it is missing.
pub fn summary_of(log: &LogId, loaded: &Loaded) -> Result<Summary, StoreError> {
    let meta = loaded.state.iter().find(|(key, _)| key == META);
    let (_, meta) = meta.ok_or_else(|| StoreError::unreadable(log, META, &"it is missing"))?;
    Summary::read(log, meta)
}
