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

use super::bounded::{Bounded, Calls, PENDING_MAX, keyed};
use super::digest::TextDigest;
use super::members::{Need, carry_all, diagnostic, known, malformed, name_of, next_id, take_type, unknown_type, unmet};
use super::{Fact, FactError, Runtime, SourceKind};
use crate::model::{ActionId, Audience, Draft, EventType, Ids, MessageId, PartId, Scope, ToolCallId, TurnId};
use calls::{BilledCall, Call};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The source `ethos`.
pub const SOURCE: SourceKind = SourceKind::of::<Ethos>("ethos");

/// The discriminator.
const TYPE: &str = "type";

/// The most stored result digests of the last batch of calls; they identify text that a tool returned.
const RESULTS_MAX: usize = 32;

/// The most turns without an end that started while another turn was open.
const CONCURRENT_TURNS_MAX: usize = 8;

/// A URL that contains the state of an OAuth exchange.
const AUTH_URL: &str = "authUrl";

/// Members for Ethos' own frontend that the server must not store.
///
/// They are that URL, and the user's pending message.
const DROPPED_MEMBERS: &[&str] = &[AUTH_URL, "pendingUserMessage"];

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

keyed! { Pending: ActionId = action; Call: ToolCallId = id; }

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
    results: Bounded<TextDigest, RESULTS_MAX>,
    messages_made: u64,
    parts_made: u64,
    thoughts_made: u64,
    plans_made: u64,
    reviews_made: u64,
    /// Generated compaction ids, by audience.
    ///
    /// A reader that counts visible ids must not learn of hidden ones.
    compactions_made: [u64; 3],
    calls: Calls<Call>,
    /// The call that the previous event ended.
    /// A cost event directly after it is the call's cost.
    just_ended: Option<BilledCall>,
    pending: Bounded<Pending, PENDING_MAX>,
}

/// The event types of the loop and of the web server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    RunStart,
    Done,
    Error,
    Halt,
    ContextMeta,
    Usage,
    CredentialRequired,
    DryRunSummary,
    EvaluatorsComplete,
    TextDelta,
    ThinkingDelta,
    ToolStart,
    ToolProgress,
    ToolEnd,
    ToolApprovalRequired,
    ToolApprovalResponse,
    #[serde(alias = "notification")]
    NotificationReceived,
    MessagePersisted,
    #[serde(rename = "tool.approval_required")]
    ApprovalRequired,
    #[serde(rename = "approval.resolved")]
    ApprovalResolved,
    #[serde(rename = "clarify.request")]
    ClarifyRequest,
    #[serde(rename = "clarify.resolved")]
    ClarifyResolved,
    #[serde(rename = "run.update")]
    JobUpdate,
    #[serde(rename = "cron.fired")]
    CronFired,
}

impl Kind {
    /// Returns the required members of an event.
    const fn needs(self) -> &'static [(&'static str, Need)] {
        use Need::{Flag, Id, List, Text};
        match self {
            Self::TextDelta => &[("text", Text)],
            Self::ThinkingDelta => &[("thinking", Text)],
            Self::ToolStart | Self::ToolApprovalRequired => &[("toolCallId", Id)],
            Self::ToolProgress => &[("toolName", Text)],
            Self::ToolEnd => &[("toolCallId", Id), ("ok", Flag)],
            Self::ToolApprovalResponse => &[("toolCallId", Id), ("approved", Flag)],
            Self::CredentialRequired => &[("pluginId", Text), ("credentialKey", Text)],
            Self::EvaluatorsComplete => &[("results", List)],
            Self::DryRunSummary => &[("plan", List)],
            Self::MessagePersisted => &[("messageId", Id)],
            Self::ApprovalResolved => &[("approvalId", Id)],
            Self::ClarifyRequest | Self::ClarifyResolved => &[("requestId", Id)],
            Self::JobUpdate | Self::CronFired => &[("jobId", Id)],
            _ => &[],
        }
    }

    /// Whether the event has an `audience` member.
    ///
    /// On any other event, a future `audience` can narrow the event type table's audience but not widen it.
    const fn has_audience(self) -> bool {
        matches!(self, Self::ToolStart | Self::ToolProgress | Self::ToolEnd | Self::ToolApprovalRequired)
    }
}

/// A parsed fact.
struct Event {
    /// The widest audience of the event's drafts.
    widest_audience: Audience,
    content: Content,
}

enum Content {
    /// An event of a known type, without its type and its dropped members.
    Known { kind: Kind, has_address: bool, members: Fact },
    /// An event without a meaning for the turn, as its diagnostic.
    Diagnostic(Box<Draft>),
}

impl Runtime for Ethos {
    type Event = Event;

    fn parse(mut fact: Fact) -> Result<Event, FactError> {
        let event_type = take_type(&mut fact, TYPE)?;
        let has_address = fact.contains_key(AUTH_URL);
        fact.retain(|member, _| !DROPPED_MEMBERS.contains(&member.as_str()));
        let kind = known::<Kind>(&event_type);
        let widest_audience = if kind.is_some_and(Kind::has_audience) { Audience::User } else { audience_of(&fact) };
        let content = match (kind, kind.and_then(|kind| unmet(&fact, kind.needs()))) {
            (_, Some(expected)) => Content::Diagnostic(malformed(&event_type, fact, &expected).into()),
            (Some(kind), None) => Content::Known { kind, has_address, members: fact },
            (None, None) if pushes::SERVER_EVENTS.contains(&event_type.as_str()) => {
                Content::Diagnostic(diagnostic(&event_type, &event_type, fact).into())
            }
            (None, None) => Content::Diagnostic(unknown_type(&event_type, fact).into()),
        };
        Ok(Event { widest_audience, content })
    }

    fn apply(&mut self, Event { widest_audience, content }: Event, given: &Ids, out: &mut Vec<Draft>) {
        let mut handler = EventHandler { given, out, widest_audience, just_ended: self.just_ended.take(), memory: self };
        let (kind, has_address, fact) = match content {
            Content::Known { kind, has_address, members } => (kind, has_address, members),
            Content::Diagnostic(draft) => return handler.push(*draft),
        };
        match kind {
            Kind::RunStart => handler.run_start(fact),
            Kind::Done => handler.done(fact),
            Kind::Error => handler.error(fact),
            Kind::Halt => handler.halt(fact),
            Kind::ContextMeta => handler.context_meta(fact),
            Kind::Usage => handler.usage(fact),
            Kind::CredentialRequired => handler.credential_required(fact, has_address),
            Kind::DryRunSummary => handler.dry_run_summary(fact),
            Kind::EvaluatorsComplete => handler.evaluators_complete(fact),
            Kind::TextDelta => handler.text_delta(fact),
            Kind::ThinkingDelta => handler.thinking_delta(fact),
            Kind::ToolStart => handler.tool_start(fact),
            Kind::ToolProgress => handler.tool_progress(fact),
            Kind::ToolEnd => handler.tool_end(fact),
            Kind::ToolApprovalRequired => handler.approval_announced(fact),
            Kind::ToolApprovalResponse => handler.approval_response(fact),
            Kind::NotificationReceived => handler.notification(fact),
            Kind::MessagePersisted => handler.message_persisted(fact),
            Kind::ApprovalRequired => handler.approval_required(fact),
            Kind::ApprovalResolved => handler.approval_resolved(fact),
            Kind::ClarifyRequest => handler.clarify_request(fact),
            Kind::ClarifyResolved => handler.clarify_resolved(fact),
            Kind::JobUpdate => handler.job_update(fact),
            Kind::CronFired => handler.cron_fired(fact),
        }
    }
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
        self.message.get_or_insert_with(|| next_id("ethos-message", &mut self.messages_made)).clone()
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
