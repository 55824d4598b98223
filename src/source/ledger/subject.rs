//! Subjects of a log: the state of a subject in one byte, and the subject of a draft.

use crate::model::audience::Audience;
use crate::model::{Draft, EventType, MessageId, ToolCallId};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The activity type of seed 002's progress of a tool call.
const PROGRESS: &str = "tool-call-progress";

/// The longest key of a subject, in bytes: three ids and their separators.
/// The ledger hashes longer keys.
pub(super) const SUBJECT_KEY_BYTES_MAX: usize = 800;

/// The ledger's state of one subject.
///
/// A subject is a message, part, call, action, agent, activity, review or compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subject {
    /// The audience of the first envelope.
    ///
    /// For a call: the audience of its `tool.started`, and before the start the widest audience of its envelopes. For a
    /// whole message: the widest audience of its parts.
    pub start: Audience,
    /// For a whole message: the narrowest audience of its parts.
    /// Otherwise equal to `start`.
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

impl Subject {
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

/// Hashes a key that is too long.
/// Names in payloads have no length limit, but the server stores these keys.
pub(super) fn bounded(key: String) -> String {
    if key.len() <= SUBJECT_KEY_BYTES_MAX {
        return key;
    }
    let kind = key.split(':').next().unwrap_or_default();
    format!("{kind}:{:x}", Sha256::digest(&key))
}

/// Returns the activity type that the source gave the draft, if its event type can have one.
fn activity_of(draft: &Draft) -> Option<&str> {
    use EventType as E;
    let can_be = matches!(draft.event_type, E::ToolProgress | E::StateSnapshot | E::StateDelta);
    draft.member("activityType").filter(|_| can_be).and_then(Value::as_str)
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

/// Returns the key of the activity, or of the state (`state:`), that a draft replaces or patches.
pub(super) fn change_of(draft: &Draft) -> Option<(String, ActivityChange)> {
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
        return Some((format!("activity:{activity}/{}", of.unwrap_or_default()), change));
    }
    match draft.event_type {
        EventType::StateSnapshot if draft.member("state").is_some() => Some(("state:".into(), ActivityChange::Snapshot)),
        EventType::StateDelta if says("patch") => Some(("state:".into(), ActivityChange::Patch)),
        _ => None,
    }
}

/// Returns the subject of a draft, as `kind:id`.
/// `None`: it has none (runs, sessions, state, diagnostics …).
pub(super) fn subject_of(draft: &Draft) -> Option<String> {
    use EventType as E;
    let ids = &draft.ids;
    match activity_of(draft) {
        // A progress report belongs to the call itself.
        Some(PROGRESS) => return reported_call(draft).map(|id| format!("tool:{id}")),
        Some(activity) => {
            let message = ids.message.as_ref().map(MessageId::as_str);
            let of = ids.tool_call.as_ref().map(ToolCallId::as_str).or(message).unwrap_or_default();
            return Some(format!("activity:{activity}/{of}"));
        }
        None => {}
    }
    let by_payload = |members: &[&str]| {
        members.iter().find_map(|member| match draft.member(member)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) if !number.is_f64() => Some(number.to_string()),
            _ => None,
        })
    };
    match draft.event_type {
        E::ToolStarted | E::ToolArgs | E::ToolProgress | E::ToolOutputDelta | E::ToolResult | E::ToolFailed => {
            ids.tool_call.as_ref().map(|id| format!("tool:{id}"))
        }
        E::ActionRequired | E::ActionResolved => ids.action.as_ref().map(|id| format!("action:{id}")),
        E::TextDelta | E::TextFinal | E::ReasoningDelta | E::ReasoningSummary | E::PlanDelta | E::PlanFinal => match &ids.part {
            Some(part) => whole_message(draft).map(|message| format!("{message}/{part}")),
            None => whole_message(draft),
        },
        E::AgentSpawned | E::AgentChanged | E::AgentCompleted => ids.agent.as_ref().map(|id| format!("agent:{id}")),
        E::ReviewRequested | E::ReviewCompleted => by_payload(&["reviewId"])
            .or_else(|| ids.evidence.as_ref().map(|id| id.as_str().to_owned()))
            .map(|id| format!("review:{id}")),
        E::ContextCompactionStarted | E::ContextCompactionCompleted => {
            // Without an id the compaction belongs to the agent: a teammate's memory is not the run's.
            let agent = || draft.ids.agent.as_ref().map(|id| format!("@{id}"));
            Some(format!("compaction:{}", by_payload(&["compactionId", "id"]).or_else(agent).unwrap_or_default()))
        }
        _ => None,
    }
}

/// Returns the message, reasoning or plan of the draft's part, as `kind:id`.
pub(super) fn whole_message(draft: &Draft) -> Option<String> {
    use EventType as E;
    let kind = match draft.event_type {
        E::TextDelta | E::TextFinal => "text",
        E::ReasoningDelta | E::ReasoningSummary => "reasoning",
        E::PlanDelta | E::PlanFinal => "plan",
        _ => return None,
    };
    let message = draft.ids.message.as_ref()?;
    Some(match &draft.ids.agent {
        Some(agent) => format!("{kind}:{agent}/{message}"),
        None => format!("{kind}:{message}"),
    })
}
