//! The source `ethos`: the loop's `AgentEvent` and the events of Ethos' web server.
//!
//! `type` is the discriminator. One stream is one turn. Events do not name their turn, message or part: the order of
//! events determines them. So the adapter tracks the turn's state.
//!
//! * `done` is neither always the last event nor always a success. The first end holds. The adapter distinguishes a
//!   halt, a refusal and a turn that waits for a credential.
//! * The streamed chunks are the text. `done` repeats the text, or contains unstreamed text that a tool returned in
//!   place of the model.
//! * An event states its own audience. An unknown audience is internal.
//! * The adapter never rejects an unknown event type or member, and its memory never holds a body.
//!
//! | module | contents |
//! | --- | --- |
//! | `turn` | the lifecycle of a turn |
//! | `text` | text and reasoning of the model |
//! | `calls` | tool calls |
//! | `pushes` | events that the web server sends outside of the turn |

mod calls;
mod pushes;
mod text;
mod turn;

use super::digest::TextDigest;
use super::members::{carry_all, diagnostic, take_text, take_type, unknown_type};
use super::{Adapter, Fact, FactError, SourceKind};
use crate::model::{ActionId, Audience, Draft, EventType, Ids, MessageId, PartId, Scope, ToolCallId, TurnId};
use calls::{BilledCall, Call};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::str::FromStr;

/// The source `ethos`.
pub const SOURCE: SourceKind = SourceKind {
    name: "ethos",
    fresh: || Box::new(Ethos::default()),
    restore: |memory| Ok(Box::new(serde_json::from_slice::<Ethos>(memory)?)),
    answers: None,
};

/// The discriminator.
const TYPE: &str = "type";

/// The most open calls.
/// Beyond this limit the oldest counts as ended. Ethos' own limit is far lower.
const CALLS_OPEN_MAX: usize = 256;

/// The most ended calls that the adapter remembers.
const CALLS_ENDED_MAX: usize = 32;

/// The most stored result digests of the last batch of calls; they identify text that a tool returned.
const RESULTS_MAX: usize = 32;

/// The most pending actions.
/// Beyond this limit the answer to the oldest does not name its call.
const PENDING_MAX: usize = 64;

/// The most turns without an end that started while another turn was open.
const CONCURRENT_TURNS_MAX: usize = 8;

/// The length of a stored name (of a tool, a trace, a rule), in characters.
const NAME_CHARS_MAX: usize = 128;

/// A URL that contains the state of an OAuth exchange.
const AUTH_URL: &str = "authUrl";

/// Members for Ethos' own frontend that the server must not store.
///
/// They are that URL, and the user's pending message.
const DROPPED_MEMBERS: &[&str] = &[AUTH_URL, "pendingUserMessage"];

/// Events with an `audience` member.
///
/// On any other event, a future `audience` can narrow the event type table's audience but not widen it.
const EVENTS_WITH_AUDIENCE: &[&str] = &["tool_start", "tool_progress", "tool_end", "tool_approval_required"];

/// The lifecycle state of the turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TurnState {
    #[default]
    New,
    Open,
    /// The turn did not run: it waits for a credential.
    Parked,
    Ended,
}

/// A pending action.
/// Its answer names only the action.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Pending {
    action: ActionId,
    call: Option<ToolCallId>,
}

/// The adapter.
/// All its fields are memory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Ethos {
    #[serde(rename = "life")]
    turn_state: TurnState,
    /// The number of turns that started, or that Ethos refused after another turn had ended.
    attempt: u64,
    /// Ethos' trace id of the turn, if any.
    trace: Option<String>,
    /// The trace ids of turns that started while this turn was open.
    ///
    /// While the list is not empty, events do not identify their turn.
    #[serde(rename = "rivals")]
    concurrent_turns: Vec<Option<String>>,
    /// Whether the turn requested a credential.
    /// Its `done` is then no end.
    wants_credential: bool,
    /// The rule that halted the turn.
    /// Its `done` is then no success.
    halted: Option<String>,
    /// The message of the open turn.
    message: Option<MessageId>,
    /// The message of the last ended turn; that turn's plan belongs to it.
    last_message: Option<MessageId>,
    /// The part that text continues.
    /// `None` after a tool call: text then starts a new part.
    text: Option<PartId>,
    /// The part that thinking continues.
    thought: Option<PartId>,
    /// The digest of the turn's streamed text.
    streamed: TextDigest,
    /// Whether `streamed` lacks chunks whose turn was ambiguous.
    has_gap: bool,
    /// Whether a tool call ended after the last text chunk.
    ends_with_tools: bool,
    /// The digests of the results of the last batch of calls.
    results: VecDeque<TextDigest>,
    messages_made: u64,
    parts_made: u64,
    thoughts_made: u64,
    plans_made: u64,
    reviews_made: u64,
    /// Generated compaction ids, by audience.
    ///
    /// A reader that counts visible ids must not learn of hidden ones.
    compactions_made: [u64; 3],
    calls: Vec<Call>,
    ended_calls: VecDeque<ToolCallId>,
    /// The call that the previous event ended.
    /// A cost event directly after it is the call's cost.
    just_ended: Option<BilledCall>,
    pending: Vec<Pending>,
}

/// The required type of a required member.
#[derive(Debug, Clone, Copy)]
enum Need {
    Text,
    /// Text that is a valid id.
    Id,
    Flag,
    List,
}

impl Need {
    fn is_met(self, value: Option<&Value>) -> bool {
        match (self, value) {
            (Self::Text, Some(Value::String(_))) | (Self::Flag, Some(Value::Bool(_))) | (Self::List, Some(Value::Array(_))) => {
                true
            }
            (Self::Id, Some(Value::String(text))) => ToolCallId::new(text).is_ok(),
            _ => false,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Id => "text that can be an id",
            Self::Flag => "a boolean",
            Self::List => "an array",
        }
    }
}

/// Returns the required members of an event.
fn required(event_type: &str) -> &'static [(&'static str, Need)] {
    use Need::{Flag, Id, List, Text};
    match event_type {
        "text_delta" => &[("text", Text)],
        "thinking_delta" => &[("thinking", Text)],
        "tool_start" | "tool_approval_required" => &[("toolCallId", Id)],
        "tool_progress" => &[("toolName", Text)],
        "tool_end" => &[("toolCallId", Id), ("ok", Flag)],
        "tool_approval_response" => &[("toolCallId", Id), ("approved", Flag)],
        "credential_required" => &[("pluginId", Text), ("credentialKey", Text)],
        "evaluators_complete" => &[("results", List)],
        "dry_run_summary" => &[("plan", List)],
        "message_persisted" => &[("messageId", Id)],
        "approval.resolved" => &[("approvalId", Id)],
        "clarify.request" | "clarify.resolved" => &[("requestId", Id)],
        "run.update" | "cron.fired" => &[("jobId", Id)],
        _ => &[],
    }
}

impl Adapter for Ethos {
    fn adapt(&mut self, mut fact: Fact, given: &Ids, out: &mut Vec<Draft>) -> Result<(), FactError> {
        let event_type = take_type(&mut fact, TYPE)?;
        let has_address = fact.contains_key(AUTH_URL);
        fact.retain(|member, _| !DROPPED_MEMBERS.contains(&member.as_str()));
        let widest_audience =
            if EVENTS_WITH_AUDIENCE.contains(&event_type.as_str()) { Audience::User } else { audience_of(&fact) };
        let mut handler = EventHandler { given, out, widest_audience, just_ended: self.just_ended.take(), memory: self };
        if let Some((member, need)) = required(&event_type).iter().find(|(member, need)| !need.is_met(fact.get(*member))) {
            handler.malformed(&event_type, fact, &format!("{member} as {}", need.name()));
            return Ok(());
        }
        match event_type.as_str() {
            "run_start" => handler.run_start(fact),
            "done" => handler.done(fact),
            "error" => handler.error(fact),
            "halt" => handler.halt(fact),
            "context_meta" => handler.context_meta(fact),
            "usage" => handler.usage(fact),
            "credential_required" => handler.credential_required(fact, has_address),
            "dry_run_summary" => handler.dry_run_summary(fact),
            "evaluators_complete" => handler.evaluators_complete(fact),
            "text_delta" => handler.text_delta(fact),
            "thinking_delta" => handler.thinking_delta(fact),
            "tool_start" => handler.tool_start(fact),
            "tool_progress" => handler.tool_progress(fact),
            "tool_end" => handler.tool_end(fact),
            "tool_approval_required" => handler.approval_announced(fact),
            "tool_approval_response" => handler.approval_response(fact),
            "notification_received" | "notification" => handler.notification(fact),
            "message_persisted" => handler.message_persisted(fact),
            "tool.approval_required" => handler.approval_required(fact),
            "approval.resolved" => handler.approval_resolved(fact),
            "clarify.request" => handler.clarify_request(fact),
            "clarify.resolved" => handler.clarify_resolved(fact),
            "run.update" => handler.job_update(fact),
            "cron.fired" => handler.cron_fired(fact),
            known if pushes::SERVER_EVENTS.contains(&known) => handler.push(diagnostic(known, known, fact)),
            unknown => handler.push(unknown_type(unknown, fact)),
        }
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("memory has only string keys")
    }
}

/// Truncates a name to the stored length.
fn name_of(text: &str) -> String {
    text.chars().take(NAME_CHARS_MAX).collect()
}

/// Reads Ethos' trace id of the event's turn.
fn trace_of(fact: &Fact) -> Option<String> {
    fact.get("traceId").and_then(Value::as_str).filter(|trace| !trace.is_empty()).map(name_of)
}

/// Reads the widest audience of the event.
/// An unknown audience is internal.
fn audience_of(fact: &Fact) -> Audience {
    match fact.get("audience") {
        None | Some(Value::Null) => Audience::User,
        Some(said) => said.as_str().and_then(Audience::parse).unwrap_or(Audience::Internal),
    }
}

/// Takes the event's audience, or returns `absent` if it has none.
///
/// An unknown audience is internal, and the member stays to be carried.
fn take_audience(fact: &mut Fact, absent: Audience) -> Audience {
    let audience = match fact.get("audience") {
        None | Some(Value::Null) => Some(absent),
        Some(said) => said.as_str().and_then(Audience::parse),
    };
    if audience.is_some() {
        fact.shift_remove("audience");
    }
    audience.unwrap_or(Audience::Internal)
}

/// Takes an id that [`required`] has already checked.
fn take_checked_id<T: FromStr>(fact: &mut Fact, member: &str) -> T {
    let text = take_text(fact, member).unwrap_or_default();
    text.parse().ok().expect("all id types have one format, and `required` has checked it")
}

/// Takes a member that is a number.
/// A value of any other type stays in the fact.
fn take_number(fact: &mut Fact, member: &str) -> Option<Value> {
    fact.get(member).filter(|value| value.is_number())?;
    fact.shift_remove(member)
}

/// Moves members unchanged into the payload, each under its new name.
/// It drops null values.
fn move_members(draft: &mut Draft, fact: &mut Fact, members: &[(&str, &str)]) {
    for (member, ours) in members {
        let value = fact.shift_remove(*member).filter(|value| !value.is_null());
        draft.payload.extend(value.map(|value| ((*ours).to_owned(), value)));
    }
}

/// Builds an action's id from a name; hashes a name that is too long.
fn action_id(kind: &str, name: &str) -> ActionId {
    let id = ActionId::new(&format!("{kind}:{name}"));
    id.or_else(|_| ActionId::new(&format!("{kind}:{:x}", Sha256::digest(name)))).expect("a hex digest is a valid id")
}

impl Ethos {
    /// Adds the turn's current ids to the draft.
    /// The request's ids override Ethos' own.
    fn about(&self, mut draft: Draft, given: &Ids) -> Draft {
        draft.ids.fill_from(given);
        if self.is_interleaved() {
            if draft.event_type != EventType::DiagnosticChanged {
                draft.payload.insert("interleaved".into(), true.into());
            }
        } else if draft.ids.turn.is_none() && !matches!(draft.scope, Scope::Session | Scope::Task) {
            draft.ids.turn = self.trace.as_deref().and_then(|trace| TurnId::new(trace).ok());
        }
        draft
    }

    /// Whether several turns are open, so that events do not identify their turn.
    const fn is_interleaved(&self) -> bool {
        !self.concurrent_turns.is_empty()
    }

    /// Resumes a parked turn.
    fn resume(&mut self) {
        if self.turn_state == TurnState::Parked {
            self.turn_state = TurnState::Open;
        }
    }

    /// Returns the message of the turn.
    /// Ethos sends no id, so the adapter generates one.
    fn message(&mut self) -> MessageId {
        if self.message.is_none() {
            self.message = Some(self.new_message_id());
        }
        self.message.clone().expect("the lines above set the message")
    }

    // The prefix prevents collisions with ids that another source's adapter generates for the same run.
    fn new_message_id(&mut self) -> MessageId {
        self.messages_made += 1;
        MessageId::new(&format!("ethos-message-{}", self.messages_made)).expect("a short name with a number is a valid id")
    }

    fn new_part_id(&mut self) -> PartId {
        self.parts_made += 1;
        PartId::new(&format!("ethos-part-{}", self.parts_made)).expect("a short name with a number is a valid id")
    }

    /// Generates a part id for reasoning.
    /// It has its own counter because fewer readers see reasoning than text.
    fn new_thought_id(&mut self) -> PartId {
        self.thoughts_made += 1;
        PartId::new(&format!("ethos-thought-{}", self.thoughts_made)).expect("a short name with a number is a valid id")
    }

    fn await_answer(&mut self, action: &ActionId, call: Option<ToolCallId>) {
        self.pending.retain(|pending| pending.action != *action);
        if self.pending.len() == PENDING_MAX {
            self.pending.remove(0);
        }
        self.pending.push(Pending { action: action.clone(), call });
    }

    /// Removes the pending action and returns its call, if any.
    fn answered(&mut self, action: &ActionId) -> Option<ToolCallId> {
        let at = self.pending.iter().position(|pending| pending.action == *action)?;
        self.pending.remove(at).call
    }
}

/// Handles one event: borrows the memory and appends the drafts.
struct EventHandler<'a> {
    memory: &'a mut Ethos,
    given: &'a Ids,
    out: &'a mut Vec<Draft>,
    /// The widest audience of the event's drafts.
    widest_audience: Audience,
    /// The call that the previous event ended.
    just_ended: Option<BilledCall>,
}

impl EventHandler<'_> {
    fn push(&mut self, mut draft: Draft) {
        draft.audience = draft.audience.max(self.widest_audience);
        let draft = self.memory.about(draft, self.given);
        self.out.push(draft);
    }

    /// Keeps a malformed event as a diagnostic.
    fn malformed(&mut self, event_type: &str, fact: Fact, expected: &str) {
        self.push(diagnostic("malformed_event", event_type, fact).with("expected", expected));
    }

    /// Keeps an event with an ambiguous turn as a flagged diagnostic, so that two turns do not merge.
    fn set_aside(&mut self, event_type: &str, fact: Fact) {
        self.push(diagnostic("interleaved_run", event_type, fact));
    }

    /// Appends the draft with the remaining members of the event.
    fn push_carrying(&mut self, draft: Draft, rest: Fact) {
        self.push(carry_all(draft, rest));
    }
}

#[cfg(test)]
mod tests;
