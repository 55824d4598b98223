//! Items: the places of a response's output.
//!
//! The key of an item is its place and kind, because ids repeat or change from event to event. A server that numbers no
//! places gives each item place 0: then an event belongs to the newest item of its kind.

use super::event::{Channel, FAKE_ID, call_of};
use super::{EventHandler, OpenAiResponses};
use crate::Fact;
use crate::members::{carry_all, name_of, next_id, take_text};
use proscenium_model::{Audience, Draft, EventType, MessageId, Persistence, Phase, Scope, Surface, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The most items of a response that the adapter tracks.
/// Beyond this limit it forgets the oldest.
pub(super) const ITEMS_MAX: usize = 256;

/// The most parts of an item that the adapter tracks. Further parts are not reconciled.
pub(super) const PARTS_MAX: usize = 64;

/// A part of a message, or of the model's reasoning.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Part {
    pub channel: Channel,
    pub index: u64,
    pub is_final: bool,
    /// The number of reported annotations.
    pub annotations: usize,
}

/// What an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ItemKind {
    Message,
    Reasoning,
    Call,
    /// The output of a call.
    Output,
    Approval,
    Answer,
    Compaction,
    Tools,
    Other,
}

impl ItemKind {
    fn of(item: &Map<String, Value>) -> Self {
        match item.get("type").and_then(Value::as_str).unwrap_or_default() {
            "message" => Self::Message,
            "reasoning" => Self::Reasoning,
            "compaction" => Self::Compaction,
            "mcp_list_tools" => Self::Tools,
            "mcp_approval_request" => Self::Approval,
            "mcp_approval_response" => Self::Answer,
            "function_call" | "program" => Self::Call,
            other if other.ends_with("_call") => Self::Call,
            other if other.ends_with("_output") => Self::Output,
            _ => Self::Other,
        }
    }
}

/// An item of the current response.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Item {
    pub kind: ItemKind,
    /// The place that the server gave the item.
    place: Option<u64>,
    /// The place among the items that the adapter knows.
    pub index: u64,
    /// The server's id.
    id: Option<String>,
    /// The call, of a call or an output.
    pub call: Option<ToolCallId>,
    pub is_done: bool,
    pub parts: Vec<Part>,
}

impl OpenAiResponses {
    /// Returns the message of an item.
    pub(super) fn message(&self, at: usize) -> MessageId {
        let name = format!("openai-responses-message-{}-{}", self.responses, self.items[at].index);
        MessageId::new(&name).expect("a short name with numbers is a valid id")
    }

    /// Finds the item of an event: by place and id, by place, by id where one has no place, or the newest of its kind.
    fn find_item(&self, kind: ItemKind, place: Option<u64>, id: Option<&str>) -> Option<usize> {
        let id = id.filter(|id| *id != FAKE_ID).map(name_of);
        let newest = |is_it: &dyn Fn(&Item) -> bool| self.items.iter().rposition(|item| item.kind == kind && is_it(item));
        let has_id = |item: &Item| id.is_some() && item.id == id;
        let by_both = newest(&|item| place.is_some() && item.place == place && has_id(item));
        let by_place = || newest(&|item| place.is_some() && item.place == place);
        let by_id = || newest(&|item| has_id(item) && (place.is_none() || item.place.is_none()));
        by_both.or_else(by_place).or_else(by_id).or_else(|| newest(&|_| place.is_none()))
    }
}

/// Takes the place and the id of an event's item.
fn take_place(fact: &mut Fact) -> (Option<u64>, Option<String>) {
    (fact.shift_remove("output_index").as_ref().and_then(Value::as_u64), take_text(fact, "item_id"))
}

impl EventHandler<'_> {
    /// Returns the index of the event's item. The event begins the item if it is unknown.
    pub(super) fn item_of(&mut self, kind: ItemKind, fact: &mut Fact) -> usize {
        let (place, id) = take_place(fact);
        self.memory.find_item(kind, place, id.as_deref()).unwrap_or_else(|| {
            let item = Map::from_iter(id.map(|id| ("id".to_owned(), Value::from(id))));
            self.add_item(kind, place, &item)
        })
    }

    /// Adds an item to the response, and returns its index.
    fn add_item(&mut self, kind: ItemKind, place: Option<u64>, item: &Map<String, Value>) -> usize {
        let next = self.memory.items.iter().map(|item| item.index.saturating_add(1)).max().unwrap_or(0);
        let is_free = |place: &u64| self.memory.items.iter().all(|item| item.index != *place);
        let index = place.filter(is_free).unwrap_or(next);
        let id = item.get("id").and_then(Value::as_str).map(name_of);
        let call = match kind {
            ItemKind::Call => {
                let call = call_of(item).unwrap_or_else(|| next_id("openai-responses-call", &mut self.memory.calls_made));
                // An item under the id of a call that has ended is another call.
                self.memory.ended.take(&call);
                Some(call)
            }
            ItemKind::Output => call_of(item),
            _ => None,
        };
        let item = Item { kind, place, index, id, call, is_done: false, parts: Vec::new() };
        self.memory.has_forgotten_items |= self.memory.items.push(item).is_some();
        self.memory.items.len() - 1
    }

    pub(super) fn item_added(&mut self, mut fact: Fact) {
        let Some(Value::Object(item)) = fact.shift_remove("item") else { return };
        let (place, _) = take_place(&mut fact);
        let kind = ItemKind::of(&item);
        let at = self.add_item(kind, place, &item);
        match kind {
            ItemKind::Call => self.ensure_started(at, &item),
            // The request is whole at once.
            ItemKind::Approval if item.get("arguments").is_some_and(|arguments| *arguments != "") => self.item_done(at, item),
            _ => {}
        }
        self.push_internal("item", "response.output_item.added", fact);
    }

    pub(super) fn item_event_done(&mut self, mut fact: Fact) {
        let Some(Value::Object(item)) = fact.shift_remove("item") else { return };
        let (place, _) = take_place(&mut fact);
        self.whole_item(place, item);
        self.push_internal("item", "response.output_item.done", fact);
    }

    /// Completes the item at a place with the whole one.
    pub(super) fn whole_item(&mut self, place: Option<u64>, item: Map<String, Value>) {
        let kind = ItemKind::of(&item);
        let id = item.get("id").and_then(Value::as_str);
        let known = self.memory.find_item(kind, place, id).filter(|_| place.is_some() || id.is_some_and(|id| id != FAKE_ID));
        let at = known.unwrap_or_else(|| self.add_item(kind, place, &item));
        self.item_done(at, item);
    }

    /// Completes what the response's last event has and no earlier event completed: servers leave out events.
    ///
    /// The n-th item of a kind is the n-th tracked one: ids and places may differ.
    pub(super) fn complete_items(&mut self, output: Vec<Value>) {
        if self.memory.has_forgotten_items {
            return;
        }
        let mut seen: Vec<ItemKind> = Vec::new();
        for item in output {
            let Value::Object(item) = item else { continue };
            let kind = ItemKind::of(&item);
            let n = seen.iter().filter(|seen| **seen == kind).count();
            seen.push(kind);
            let tracked = (0..).zip(self.memory.items.iter()).filter(|(_, tracked)| tracked.kind == kind).nth(n);
            let tracked = tracked.map(|(at, _)| at);
            let at = tracked.unwrap_or_else(|| self.add_item(kind, None, &item));
            self.item_done(at, item);
        }
    }

    /// Completes an item, once.
    fn item_done(&mut self, at: usize, mut item: Map<String, Value>) {
        if std::mem::replace(&mut self.memory.items[at].is_done, true) {
            return;
        }
        item.retain(|_, value| !value.is_null());
        match self.memory.items[at].kind {
            ItemKind::Message => self.message_done(at, &mut item),
            ItemKind::Reasoning => self.reasoning_done(at, &mut item),
            ItemKind::Call => self.call_done(at, &mut item),
            ItemKind::Output => self.output_done(&mut item),
            ItemKind::Approval => self.ask(&mut item),
            ItemKind::Answer => self.answered(&mut item),
            ItemKind::Compaction => self.push(self.compaction(EventType::ContextCompactionCompleted, at)),
            ItemKind::Tools => self.tools_listed(&mut item),
            ItemKind::Other => {}
        }
        let event_type = take_text(&mut item, "type").unwrap_or_default();
        for member in ["id", "status", "role"] {
            item.shift_remove(member);
        }
        self.push_internal("item", &event_type, item);
    }

    // ── compaction and tools ──

    pub(super) fn compacting(&mut self, mut fact: Fact) {
        let at = self.item_of(ItemKind::Compaction, &mut fact);
        let draft = self.compaction(EventType::ContextCompactionStarted, at);
        self.push(carry_all(draft, fact));
    }

    fn compaction(&self, class: EventType, at: usize) -> Draft {
        let id = format!("openai-responses-compaction-{}-{}", self.memory.responses, self.memory.items[at].index);
        Draft::new(class).with("compactionId", id)
    }

    fn tools_listed(&mut self, item: &mut Map<String, Value>) {
        let is_failed = item.contains_key("error");
        let class = if is_failed { EventType::DiagnosticChanged } else { EventType::ContextChanged };
        let mut draft = Draft::new(class).with("kind", "mcp_list_tools");
        draft.move_members(item, &[("server_label", "server"), ("tools", "tools"), ("error", "error")]);
        (draft.scope, draft.phase, draft.surface) = (Scope::Run, Phase::Preparing, Surface::Diagnostics);
        (draft.persistence, draft.audience) = (Persistence::DiagnosticsLog, Audience::Dashboard);
        self.push(draft);
    }
}
