//! What Ethos' events mean.

mod calls;
mod pushes;
mod text;
mod turn;

use super::event::{Event, Kind, audience_of, parse};
use crate::bounded::{Bounded, Calls, PENDING_MAX, keyed};
use crate::digest::TextDigest;
use crate::members::{carry_all, diagnostic, id_from, next_id};
use crate::turn::TurnState;
use crate::{Drafts, Fact, Parser, Runtime};
use calls::{BilledCall, Call};
use proscenium_model::{ActionId, Audience, Draft, EventType, Ids, MessageId, PartId, Scope, ToolCallId, TurnId};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The most stored result digests of the last batch of calls; they identify text that a tool returned.
pub(super) const RESULTS_MAX: usize = 32;

/// The most turns without an end that started while another turn was open.
pub(super) const CONCURRENT_TURNS_MAX: usize = 8;

/// A pending action. Its answer names only the action.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Pending {
    action: ActionId,
    call: Option<ToolCallId>,
}

keyed! { Pending: ActionId = action; Call: ToolCallId = id; }

/// The state of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Ethos {
    #[serde(rename = "life")]
    turn_state: TurnState,
    /// Ethos' trace id of the turn, if any.
    trace: Option<String>,
    /// The trace ids of turns that started while this turn was open.
    ///
    /// While the list is not empty, events do not identify their turn.
    #[serde(rename = "rivals")]
    concurrent_turns: Vec<Option<String>>,
    /// Whether the turn requested a credential. Its `done` is then no end.
    wants_credential: bool,
    /// The rule that halted the turn. Its `done` is then no success.
    halted: Option<String>,
    /// The message of the open turn.
    message: Option<MessageId>,
    /// The message of the last ended turn; that turn's plan belongs to it.
    last_message: Option<MessageId>,
    /// The part that text continues. `None` after a tool call: text then starts a new part.
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
    /// The call that the previous event ended. A cost event directly after it is the call's cost.
    just_ended: Option<BilledCall>,
    pending: Bounded<Pending, PENDING_MAX>,
}

impl Runtime for Ethos {
    type Event = Event;
    const PARSE: Parser<Event> = parse;

    fn apply(&mut self, Event { widest_audience, has_address, content }: Event, given: &Ids, out: Drafts<'_>) {
        let mut handler = EventHandler { given, out, widest_audience, just_ended: self.just_ended.take(), memory: self };
        let (kind, fact) = match content {
            Ok(known) => known,
            Err(draft) => return handler.push(*draft),
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

/// Takes the event's audience, or returns `absent` if it has none.
///
/// An unknown audience is internal, and the member stays to be carried.
fn take_audience(fact: &mut Fact, absent: Audience) -> Audience {
    let audience = audience_of(fact, absent);
    if audience.is_some() {
        fact.shift_remove("audience");
    }
    audience.unwrap_or(Audience::Internal)
}

/// Builds an action's id from a name; hashes a name that is too long.
fn action_id(kind: &str, name: &str) -> ActionId {
    ActionId::new(&format!("{kind}:{name}")).unwrap_or_else(|_| id_from(&format!("{kind}:{:x}", Sha256::digest(name))))
}

impl Ethos {
    /// Adds the turn's current ids to the draft. The request's ids override Ethos' own.
    fn about(&self, mut draft: Draft, given: &Ids) -> Draft {
        draft.ids.fill_from(given);
        if self.is_interleaved() {
            draft.set("interleaved", (draft.event_type != EventType::DiagnosticChanged).then_some(true));
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
        if self.turn_state == TurnState::Paused {
            self.turn_state = TurnState::Open;
        }
    }

    /// Returns the message of the turn. Ethos sends no id, so the adapter generates one.
    fn message(&mut self) -> MessageId {
        self.message.get_or_insert_with(|| next_id("ethos-message", &mut self.messages_made)).clone()
    }
}

/// Handles one event: borrows the memory and appends the drafts.
struct EventHandler<'a> {
    memory: &'a mut Ethos,
    given: &'a Ids,
    out: Drafts<'a>,
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
