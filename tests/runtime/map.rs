//! The state of a run of Relay, and the drafts of its events.

use super::event::{Event, Kind, parse};
use crate::bounded::{Calls, keyed};
use crate::members::{carry_all, name_of, next_id, take_checked_id, take_text};
use crate::{Drafts, Fact, Parser, Runtime};
use proscenium_model::{Draft, EventType, Ids, MessageId, ToolCallId};
use serde::{Deserialize, Serialize};

/// What the facts so far say about the next one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Relay {
    /// The message that text continues.
    message: Option<MessageId>,
    messages_made: u64,
    calls: Calls<Call>,
}

/// A call without a result. A result does not name its tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Call {
    id: ToolCallId,
    tool: String,
}

keyed! { Call: ToolCallId = id; }

impl Runtime for Relay {
    type Event = Event;
    const PARSE: Parser<Event> = parse;

    fn apply(&mut self, event: Event, given: &Ids, mut out: Drafts<'_>) {
        let mut draft = match event {
            Event::Known(kind, members) => self.draft(kind, members),
            Event::Diagnostic(draft) => *draft,
        };
        draft.ids.fill_from(given);
        out.push(draft);
    }
}

impl Relay {
    fn draft(&mut self, kind: Kind, mut members: Fact) -> Draft {
        let draft = match kind {
            Kind::Begin => {
                *self = Self { messages_made: self.messages_made, ..Self::default() };
                Draft::new(EventType::RunStarted)
            }
            Kind::Say => {
                let message = self.message.get_or_insert_with(|| next_id("relay-message", &mut self.messages_made));
                let mut draft = Draft::new(EventType::TextDelta).with_text(take_text(&mut members, "text"));
                draft.ids.message = Some(message.clone());
                draft
            }
            Kind::Call => {
                let id: ToolCallId = take_checked_id(&mut members, "id");
                let tool = take_text(&mut members, "tool").unwrap_or_default();
                self.calls.start(Call { id: id.clone(), tool: name_of(&tool) });
                let draft = Draft::new(EventType::ToolStarted).with_tool_name(Some(tool)).with_call(id);
                draft.call(|call| call.input = members.shift_remove("args").map(Box::new))
            }
            Kind::Returned => {
                let id: ToolCallId = take_checked_id(&mut members, "id");
                let draft = Draft::new(EventType::ToolResult).with_tool_name(self.calls.end(&id).map(|call| call.tool));
                draft.with_call(id).call(|call| call.output = members.shift_remove("value").map(Box::new))
            }
            Kind::End => Draft::new(EventType::RunFinished),
        };
        carry_all(draft, members)
    }
}
