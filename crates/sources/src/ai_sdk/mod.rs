//! The source `ai-sdk`: the UI message stream of the Vercel AI SDK (5, 6 and 7), as an agent's backend emits it.
//!
//! A fact is one chunk: the JSON of one SSE `data:` line. `type` is the discriminator. Chunks name neither their run nor
//! their message, and repeat their block ids. So the adapter tracks the open parts and calls of a run.
//!
//! * `finish` alone does not end a run: a pending approval or a client's tool makes it a pause.
//! * The first `error`, `abort` or `finish` ends the run. Later chunks are projected and leave it ended.
//! * A user's decision is not on the stream: the output or the denial of the waiting call shows it.
//! * A preliminary output replaces the one before it, and only the final output ends the call.
//! * Provider and tool metadata are internal; the metadata of a message is for operators.
//! * The adapter never rejects an unknown chunk type or member, and its memory never holds a body.
//!
//! | module | contents |
//! | --- | --- |
//! | `event` | the chunk types, and the parser |
//! | `turn` | starts, steps, pauses and ends |
//! | `text` | text and reasoning |
//! | `calls` | tool calls and approvals |
//! | `parts` | sources, files, data, metadata and steering messages |

mod calls;
mod event;
mod parts;
mod text;
mod turn;

use super::bounded::{Bounded, CALLS_OPEN_MAX, Calls, PENDING_MAX};
use super::members::next_id;
use super::turn::{Channel, TurnState};
use super::{Drafts, Parser, Runtime, SourceKind};
use calls::{Call, Pending};
use event::{Event, Kind, Known};
use proscenium_model::{Draft, Ids, MessageId, ToolCallId};
use serde::{Deserialize, Serialize};
use text::{Part, Stream};
use turn::Resumption;

/// The source `ai-sdk`.
pub const SOURCE: SourceKind = SourceKind::of::<AiSdk>("ai-sdk");

/// The state of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct AiSdk {
    turn_state: TurnState,
    /// The assistant's message that parts belong to.
    message: Option<MessageId>,
    messages_made: u64,
    /// The number of started steps of the attempt.
    steps: u64,
    /// How the run continues after a pause, until its model works again.
    resumption: Option<Resumption>,
    /// Open streams, the oldest first.
    streams: Bounded<Stream, { text::OPEN_MAX }>,
    parts_made: u64,
    /// The parts that the current step opened. A reset of the step empties them.
    step_parts: Bounded<Part, { text::STEP_PARTS_MAX }>,
    calls: Calls<Call>,
    /// Calls with an invalid input. AI SDK 5 and 6 report their failure twice.
    never_started: Bounded<ToolCallId, CALLS_OPEN_MAX>,
    pending: Bounded<Pending, PENDING_MAX>,
    actions_made: u64,
    artifacts_made: u64,
    evidence_made: u64,
    /// The number of data parts without an id.
    data_parts: u64,
    /// The highest reported token counts of the message, in the order of [`parts::TOKENS`].
    tokens: [u64; parts::TOKENS.len()],
}

/// A field that has no use since 0.3. The stored form of a state has no names, so the field keeps its place.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Unused(Option<u16>);

impl Runtime for AiSdk {
    type Event = Event;
    const PARSE: Parser<Event> = event::parse;

    fn apply(&mut self, event: Event, given: &Ids, out: Drafts<'_>) {
        let mut handler = EventHandler { memory: self, given, out };
        match event {
            Ok(known) => handler.event(*known),
            Err(draft) => handler.push(*draft),
        }
    }
}

impl AiSdk {
    /// Returns the assistant's message. The adapter generates an id if the backend sends none.
    fn message(&mut self) -> MessageId {
        self.message.get_or_insert_with(|| next_id("ai-sdk-message", &mut self.messages_made)).clone()
    }
}

/// Handles one event: borrows the memory and appends the drafts.
struct EventHandler<'a> {
    memory: &'a mut AiSdk,
    given: &'a Ids,
    out: Drafts<'a>,
}

impl EventHandler<'_> {
    fn push(&mut self, mut draft: Draft) {
        draft.ids.fill_from(self.given);
        self.out.push(draft);
    }

    fn event(&mut self, Known { kind, name, members: fact, delta, internals }: Known) {
        self.proceed(kind);
        match kind {
            Kind::Start => self.start(fact),
            Kind::StartStep => self.start_step(fact),
            Kind::FinishStep => self.finish_step(fact),
            Kind::ResetStep => self.reset_step(fact),
            Kind::TextStart => self.part_start(Channel::Text, fact),
            Kind::TextDelta => self.part_delta(Channel::Text, delta, fact),
            Kind::TextEnd => self.part_end(Channel::Text, &name, fact),
            Kind::ReasoningStart => self.part_start(Channel::Reasoning, fact),
            Kind::ReasoningDelta => self.part_delta(Channel::Reasoning, delta, fact),
            Kind::ReasoningEnd => self.part_end(Channel::Reasoning, &name, fact),
            Kind::ToolInputStart => self.tool_input_start(fact),
            Kind::ToolInputDelta => self.tool_input_delta(delta, fact),
            Kind::ToolInputAvailable => self.tool_input_available(fact),
            Kind::ToolInputError => self.tool_input_error(fact),
            Kind::ToolApprovalRequest => self.approval_request(fact),
            Kind::ToolApprovalResponse => self.approval_response(fact),
            Kind::ToolOutputAvailable => self.tool_output(fact),
            Kind::ToolOutputError => self.tool_output_error(fact),
            Kind::ToolOutputDenied => self.tool_output_denied(fact),
            Kind::SourceUrl | Kind::SourceDocument => self.source(&name, fact),
            Kind::File | Kind::ReasoningFile => self.file(&name, fact),
            Kind::Custom => self.custom(fact),
            Kind::Data => self.data(name, fact),
            Kind::MessageMetadata => self.message_metadata(&name, fact),
            Kind::SteeringMessage => self.steering_message(fact),
            Kind::Error => self.error(fact),
            Kind::Abort => self.abort(fact),
            Kind::Finish => self.finish(fact),
        }
        for draft in internals {
            self.push(draft);
        }
    }
}

#[cfg(test)]
mod tests;
