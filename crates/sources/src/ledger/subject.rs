//! Subjects of a log: what they are, the state of one in one byte, and the subject of a draft.

use crate::members::RuntimeId;
use crate::report::PROGRESS;
use proscenium_model::audience::Audience;
use proscenium_model::fact::ReviewFact;
use proscenium_model::{AgentId, Draft, EventType, MemberRef, MessageId, ToolCallId};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The longest stored key of a subject, in bytes: three ids and their separators.
/// The ledger hashes longer keys.
pub(super) const SUBJECT_KEY_BYTES_MAX: usize = 800;

/// The kind of a subject. Its name stands in stored keys and in violations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SubjectKind {
    Tool,
    Action,
    Text,
    Reasoning,
    Plan,
    Agent,
    Review,
    Compaction,
    Activity,
    State,
}

impl SubjectKind {
    pub const ALL: [Self; 10] = [
        Self::Tool,
        Self::Action,
        Self::Text,
        Self::Reasoning,
        Self::Plan,
        Self::Agent,
        Self::Review,
        Self::Compaction,
        Self::Activity,
        Self::State,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Action => "action",
            Self::Text => "text",
            Self::Reasoning => "reasoning",
            Self::Plan => "plan",
            Self::Agent => "agent",
            Self::Review => "review",
            Self::Compaction => "compaction",
            Self::Activity => "activity",
            Self::State => "state",
        }
    }
}

/// A thing that starts and ends: its kind, and its id among those of the kind.
///
/// A message is one of an agent, and a part one of a message, so their ids have the outer ids before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subject<'a> {
    pub kind: SubjectKind,
    pub id: &'a str,
    /// For a part: the length of its message's id, in bytes.
    message: Option<usize>,
}

impl<'a> Subject<'a> {
    pub const fn new(kind: SubjectKind, id: &'a str) -> Self {
        Self { kind, id, message: None }
    }

    /// Reads a stored key.
    pub fn of_key(key: &'a str) -> Option<Self> {
        let (name, id) = key.split_once(':')?;
        SubjectKind::ALL.into_iter().find(|kind| kind.name() == name).map(|kind| Self::new(kind, id))
    }

    /// The stored key.
    pub fn to_key(self) -> Box<str> {
        format!("{}:{}", self.kind.name(), self.id).into()
    }

    /// The message of a part.
    pub fn message(self) -> Option<Self> {
        self.message.map(|bytes| Self::new(self.kind, &self.id[..bytes]))
    }
}

/// The ledger's state of one subject.
///
/// A subject is a message, part, call, action, agent, activity, review or compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SubjectState {
    /// The audience of the first envelope.
    ///
    /// For a call: the audience of its `tool.started`, and before the start the widest audience of its envelopes. For a
    /// whole message: the widest audience of its parts.
    pub start: Audience,
    /// For a whole message: the narrowest audience of its parts. Otherwise equal to `start`.
    pub narrowest: Audience,
    pub sealed: bool,
    /// The narrowest audience that missed a change, for patched subjects and for restarted calls.
    ///
    /// Every wider audience missed the change too.
    pub missed: Option<Audience>,
    /// For a call: whether only envelopes before its start exist.
    /// Each envelope then keeps its own audience.
    pub unstarted: bool,
}

impl SubjectState {
    pub const fn new(start: Audience) -> Self {
        Self { start, narrowest: start, sealed: false, missed: None, unstarted: false }
    }

    pub const fn to_byte(self) -> u8 {
        let missed = match self.missed {
            None => 0,
            Some(audience) => audience as u8 + 1,
        };
        self.start as u8 | (self.sealed as u8) << 2 | (self.narrowest as u8) << 3 | missed << 5 | (self.unstarted as u8) << 7
    }

    pub fn from_byte(byte: u8) -> Option<Self> {
        let audience = |bits: u8| Audience::ALL.get(usize::from(bits & 3)).copied();
        let missed = match byte >> 5 & 3 {
            0 => None,
            more => audience(more - 1),
        };
        let (sealed, unstarted) = (byte & 4 != 0, byte & 128 != 0);
        Some(Self { start: audience(byte)?, narrowest: audience(byte >> 3)?, sealed, missed, unstarted })
    }
}

/// The effect of a draft on an activity or on the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ActivityChange {
    Snapshot,
    Patch,
}

/// Writes the subject's id into the buffer; hashes one that is too long.
/// Names in payloads have no length limit, but the server stores these keys.
#[expect(clippy::unnecessary_wraps, reason = "every caller returns an option")]
fn subject<'b>(buffer: &'b mut String, kind: SubjectKind, parts: &[&str]) -> Option<Subject<'b>> {
    buffer.clear();
    buffer.extend(parts.iter().copied());
    if kind.name().len() + 1 + buffer.len() > SUBJECT_KEY_BYTES_MAX {
        *buffer = format!("{:x}", Sha256::digest(Subject::new(kind, buffer).to_key().as_bytes()));
    }
    Some(Subject::new(kind, buffer))
}

/// Returns the activity type that the source gave the draft, if its event type can have one.
fn activity_of(draft: &Draft) -> Option<&str> {
    use EventType as E;
    let can_be = matches!(draft.event_type, E::ToolProgress | E::StateSnapshot | E::StateDelta);
    draft.member("activityType").filter(|_| can_be).and_then(MemberRef::text)
}

/// Returns the call of a progress report.
///
/// An activity of type `tool-call-progress` may name the call in its content. Awaken instead puts the call's id in
/// place of the message id.
fn reported_call(draft: &Draft) -> Option<&str> {
    let of = draft.ids.tool_call.as_ref().map(ToolCallId::as_str);
    let named = || draft.member("content").and_then(|content| content.get("call_id")).and_then(Value::as_str);
    of.or_else(|| named().filter(|id| ToolCallId::new(id).is_ok())).or_else(|| draft.ids.message.as_ref().map(MessageId::as_str))
}

/// Returns the call of a progress report that names it only in its content, or in place of the message.
pub(super) fn reported_progress(draft: &Draft) -> Option<ToolCallId> {
    reported_call(draft).filter(|_| activity_of(draft) == Some(PROGRESS)).and_then(ToolCallId::of)
}

/// Returns the activity, or the state (with an empty id), that a draft replaces or patches.
pub(super) fn change_of<'b>(draft: &Draft, buffer: &'b mut String) -> Option<(Subject<'b>, ActivityChange)> {
    let ids = &draft.ids;
    let says = |member: &str| draft.member(member).is_some_and(|value| !value.is_null());
    if let Some(activity) = activity_of(draft) {
        let change = match draft.member("content").or_else(|| draft.member("state")) {
            Some(_) => ActivityChange::Snapshot,
            None if says("patch") => ActivityChange::Patch,
            None => return None,
        };
        let of = match activity {
            PROGRESS => reported_call(draft),
            _ => ids.tool_call.as_ref().map(ToolCallId::as_str).or_else(|| ids.message.as_ref().map(MessageId::as_str)),
        };
        return Some((subject(buffer, SubjectKind::Activity, &[activity, "/", of.unwrap_or_default()])?, change));
    }
    let change = match draft.event_type {
        EventType::StateSnapshot if draft.member("state").is_some() => ActivityChange::Snapshot,
        EventType::StateDelta if says("patch") => ActivityChange::Patch,
        _ => return None,
    };
    Some((Subject::new(SubjectKind::State, ""), change))
}

/// Returns the subject of a draft. `None`: it has none (runs, sessions, state, diagnostics …).
///
/// The subject's id is written into the buffer, which the ledger uses for every draft.
pub(super) fn subject_of<'b>(draft: &Draft, buffer: &'b mut String) -> Option<Subject<'b>> {
    use EventType as E;
    let ids = &draft.ids;
    match activity_of(draft) {
        // A progress report belongs to the call itself.
        Some(PROGRESS) => return subject(buffer, SubjectKind::Tool, &[reported_call(draft)?]),
        Some(activity) => {
            let message = ids.message.as_ref().map(MessageId::as_str);
            let id = ids.tool_call.as_ref().map(ToolCallId::as_str).or(message).unwrap_or_default();
            return subject(buffer, SubjectKind::Activity, &[activity, "/", id]);
        }
        None => {}
    }
    let id_of = |member: MemberRef<'_>| match member {
        MemberRef::Text(text) => Some(text.to_owned()),
        MemberRef::Number(number) if !number.is_f64() => Some(number.to_string()),
        _ => None,
    };
    let agent = ids.agent.as_ref().map(AgentId::as_str);
    match draft.event_type {
        E::ToolStarted | E::ToolArgs | E::ToolProgress | E::ToolOutputDelta | E::ToolResult | E::ToolFailed => {
            subject(buffer, SubjectKind::Tool, &[ids.tool_call.as_ref()?.as_str()])
        }
        E::ActionRequired | E::ActionResolved => subject(buffer, SubjectKind::Action, &[ids.action.as_ref()?.as_str()]),
        E::TextDelta | E::TextFinal | E::ReasoningDelta | E::ReasoningSummary | E::PlanDelta | E::PlanFinal => {
            let kind = match draft.event_type {
                E::TextDelta | E::TextFinal => SubjectKind::Text,
                E::ReasoningDelta | E::ReasoningSummary => SubjectKind::Reasoning,
                _ => SubjectKind::Plan,
            };
            let message = ids.message.as_ref()?.as_str();
            let (agent, slash) = agent.map_or(("", ""), |agent| (agent, "/"));
            let Some(part) = &ids.part else { return subject(buffer, kind, &[agent, slash, message]) };
            let subject = subject(buffer, kind, &[agent, slash, message, "/", part.as_str()])?;
            Some(Subject { message: Some(agent.len() + slash.len() + message.len()), ..subject })
        }
        E::AgentSpawned | E::AgentChanged | E::AgentCompleted => subject(buffer, SubjectKind::Agent, &[agent?]),
        E::ReviewRequested | E::ReviewCompleted => {
            let evidence = || ids.evidence.as_ref().map(|id| id.as_str().to_owned());
            let fact = draft.fact::<ReviewFact>();
            let review = fact.review.as_deref().and_then(|id| id_of(id.into()));
            subject(buffer, SubjectKind::Review, &[&review.or_else(evidence)?])
        }
        // Without an id the compaction belongs to the agent: a teammate's memory is not the run's.
        E::ContextCompactionStarted | E::ContextCompactionCompleted => {
            let id = ["compactionId", "id"].iter().find_map(|member| id_of(draft.member(member)?));
            match (id, agent) {
                (Some(id), _) => subject(buffer, SubjectKind::Compaction, &[&id]),
                (None, Some(agent)) => subject(buffer, SubjectKind::Compaction, &["@", agent]),
                (None, None) => subject(buffer, SubjectKind::Compaction, &[]),
            }
        }
        _ => None,
    }
}
