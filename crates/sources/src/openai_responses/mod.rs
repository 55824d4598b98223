//! The source `openai-responses`: stream events of the Responses API, alone or wrapped by the OpenAI Agents SDK.
//!
//! `type` is the discriminator. A response is one call of the model; a run is a chain of them. Only the events about a
//! whole response name it, so the adapter tracks the open response and its items.
//!
//! * A text exists up to five times: as deltas, and whole in four events. The deltas are the text; the first whole one
//!   reconciles them.
//! * Ids of items are no keys: the Agents SDK repeats one id for all, and other servers change them. The place of an item
//!   in its response is its key.
//! * The result of a function call is not on the raw stream: the caller runs the tool. An open call keeps the run open,
//!   until the reader of the stream reports its end: then the client has to supply the result.
//! * An approval request ends its response, and makes the end a pause.
//! * The instructions, tools and encrypted contents of a response are internal; the raw chain of thought is for operators.
//! * The adapter never rejects an unknown event type or member, and its memory never holds a body.
//!
//! | module | contents |
//! | --- | --- |
//! | `event` | the event types of the three forms, and the parser |
//! | `response` | starts, pauses and ends of responses and of the run |
//! | `items` | items and their places in a response |
//! | `text` | messages, refusals and reasoning |
//! | `calls` | calls, their inputs and results, and approvals |
//! | `agents` | the Agents SDK: agents, handoffs, and items that repeat raw events |

mod agents;
mod calls;
mod event;
mod items;
mod response;
mod text;

use super::bounded::{Bounded, CALLS_OPEN_MAX, Calls, PENDING_MAX};
use super::turn::TurnState;
use super::{ActionAnswer, Drafts, Fact, Parser, Runtime, SourceKind};
use calls::{Call, Pending};
use event::{Event, Kind, Raw};
use items::Item;
use proscenium_model::{AgentId, Draft, EventType, Ids, ThreadId, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The source `openai-responses`.
pub const SOURCE: SourceKind = SourceKind::of::<OpenAiResponses>("openai-responses");

pub use event::STREAM_ENDED;

/// The state of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "the flags are independent: different events set each of them")]
struct OpenAiResponses {
    turn_state: TurnState,
    /// The number of responses. It distinguishes the items of responses with one id.
    responses: u64,
    /// The id of the current response.
    response: Option<String>,
    /// Whether the current response has ended.
    response_is_over: bool,
    /// Whether the current response names the one before it.
    continues: bool,
    /// The last number of an event of the current response.
    sequence: Option<u64>,
    /// Whether the model refused in the current response.
    has_refused: bool,
    form: StreamForm,
    thread: Option<ThreadId>,
    /// The agent that runs, by the Agents SDK.
    agent: Option<AgentId>,
    /// The items of the current response, in order.
    items: Bounded<Item, { items::ITEMS_MAX }>,
    has_forgotten_items: bool,
    calls: Calls<Call>,
    /// Calls of this run that have ended. Another run may use their ids again.
    ended: Bounded<ToolCallId, CALLS_OPEN_MAX>,
    pending: Bounded<Pending, PENDING_MAX>,
    calls_made: u64,
    actions_made: u64,
    evidence_made: u64,
    /// Further ids of calls, and the calls.
    other_names: Bounded<(ToolCallId, ToolCallId), { items::ITEMS_MAX }>,
}

/// The form of the facts so far. As stored, the first two are a flag of earlier builds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StreamForm {
    #[default]
    Unknown,
    /// Raw events alone.
    Raw,
    /// The Agents SDK, with raw events: its items only repeat them.
    AgentsSdk,
    /// The Agents SDK, without raw events.
    AgentsSdkItems,
}

impl StreamForm {
    /// The form with one more event.
    const fn with(self, event: &Event) -> Self {
        let (is_raw, is_of_sdk) = match event {
            Event::Raw(raw) => (true, raw.is_wrapped),
            Event::Item(item) => (false, item.name.is_some()),
            Event::Agent(_) => (false, true),
            Event::StreamEnded(_) | Event::Diagnostic(_) => (false, false),
        };
        match (is_raw || self.has_raw(), is_of_sdk || self.is_of_agents_sdk()) {
            (false, false) => Self::Unknown,
            (true, false) => Self::Raw,
            (true, true) => Self::AgentsSdk,
            (false, true) => Self::AgentsSdkItems,
        }
    }

    const fn has_raw(self) -> bool {
        matches!(self, Self::Raw | Self::AgentsSdk)
    }

    /// Whether the Agents SDK reports the run. It runs the tools itself.
    const fn is_of_agents_sdk(self) -> bool {
        matches!(self, Self::AgentsSdk | Self::AgentsSdkItems)
    }
}

impl Runtime for OpenAiResponses {
    type Event = Event;
    const PARSE: Parser<Event> = event::parse;

    const ADDED_FIELDS: usize = 1;

    fn has_added(&self) -> bool {
        !self.other_names.is_empty()
    }

    fn apply(&mut self, event: Event, given: &Ids, out: Drafts<'_>) {
        self.form = self.form.with(&event);
        let mut handler = EventHandler { memory: self, given, out };
        match event {
            Event::Raw(mut raw) => {
                let (from, timestamp) = (handler.out.len(), raw.timestamp.take());
                handler.raw(*raw);
                handler.out.set_time(from, timestamp.as_deref());
            }
            Event::Item(item) => handler.run_item(*item),
            Event::Agent(fact) => handler.agent_updated(fact),
            Event::StreamEnded(fact) => handler.stream_ended(fact),
            Event::Diagnostic(draft) => handler.push(*draft),
        }
    }

    fn answers(event: &Event) -> Vec<ActionAnswer> {
        match event {
            Event::Item(item) => calls::answer_of(&item.item).into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

/// Handles one event: borrows the memory and appends the drafts.
struct EventHandler<'a> {
    memory: &'a mut OpenAiResponses,
    given: &'a Ids,
    out: Drafts<'a>,
}

impl EventHandler<'_> {
    fn push(&mut self, mut draft: Draft) {
        draft.ids.fill_from(self.given);
        draft.ids.fill_from(&Ids { thread: self.memory.thread.clone(), ..Ids::default() });
        self.out.push(draft);
    }

    /// Appends a draft for internal readers. It has none of the members that the caller has taken.
    fn push_internal(&mut self, kind: &str, event_type: &str, rest: Fact) {
        if !rest.is_empty() {
            let draft = Draft::new(EventType::DiagnosticChanged).with("kind", kind).with("eventType", event_type);
            self.push(draft.with("event", Value::Object(rest)));
        }
    }

    fn raw(&mut self, Raw { kind, name, members: fact, sequence, .. }: Raw) {
        if kind != Kind::Created && self.is_repeated(sequence) {
            return;
        }
        if kind != Kind::Created {
            self.proceed();
        }
        match kind {
            Kind::Created => self.created(fact, sequence),
            Kind::Queued => self.response_status("preparing", fact),
            Kind::InProgress => self.response_status("acting", fact),
            Kind::Completed => self.completed(fact),
            Kind::Incomplete => self.incomplete(fact),
            Kind::Failed => self.failed(fact),
            Kind::Error => self.error(fact),
            Kind::ItemAdded => self.item_added(fact),
            Kind::ItemDone => self.item_event_done(fact),
            Kind::Delta(channel) => self.text_delta(channel, fact),
            Kind::Done(channel, member) => self.text_done(channel, member, fact),
            Kind::PartDone => self.part_done(fact),
            Kind::Annotation => self.annotation_added(fact),
            Kind::InputDelta => self.input_delta(fact),
            Kind::InputDone(member) => self.input_done(member, fact),
            Kind::ToolStatus => self.tool_status(&name, fact),
            Kind::ShellOutput => self.shell_output(fact),
            Kind::PartialImage => self.partial_image(fact),
            Kind::Compacting => self.compacting(fact),
            Kind::ListToolsFailed | Kind::SteerFailed => self.operators_diagnostic(&name, fact),
            Kind::Internal => self.push_internal("event", &name, fact),
            Kind::Announcement => {}
        }
    }
}

#[cfg(test)]
mod tests;
