//! Live changes: translates each change into events new to the reader, in snapshot order.

use super::attribution::{self, Attribution};
use super::call::{self, JsonCompactor, NotRetained};
use super::events::{self, Bracket};
use super::items::{self, Body, Item, MessageKey, PartKind, SortKey};
use super::sent::{ClientCopy, SentMessage, SentSurface, result_digest};
use super::{AgUi, ClientRun};
use crate::Flow;
use crate::frames::{ActivityView, Delta, Frame};
use crate::sent_text::SentText;
use proscenium_projection::change::{ContentOperation, MemberPlace, Within};
use proscenium_projection::members::{MemberType, PARTS, TEXT, TextStatus, TypedContent};
use proscenium_projection::message::{self, part};
use proscenium_projection::operations;
use proscenium_projection::tool_call::{self, INPUT, INPUT_TEXT};
use proscenium_projection::{ACTION_KIND, agent, run, state, surface};
use serde_json::{Value, json};
use std::sync::Arc;

/// The sort key of an update to a known message: it precedes new messages.
const KNOWN: SortKey = (0, 0, 0, 0);

/// One update that the client has to receive.
enum Update {
    Item(Box<Item>),
    /// Append to a text.
    Append(MessageKey, String),
    /// Replace a text.
    Whole(MessageKey, String),
    /// Set whether the text may grow.
    Live(MessageKey, bool),
    Call(Box<str>, Operations),
    Patch(MessageKey, Operations),
    State(Value),
    StatePatch(Operations),
    Agent(Box<str>),
}

type Operations = Arc<[ContentOperation]>;
type Updates = Vec<(SortKey, Update)>;

impl AgUi {
    /// Translates the batch of frames.
    pub(super) fn translate_batch(&mut self, events: &mut Vec<Value>) -> Flow {
        if self.batch.is_empty() || self.is_joining {
            return Flow::Continue;
        }
        let batch = std::mem::take(&mut self.batch);
        let before = batch.iter().any(|frame| kind(frame) == run::KIND).then(|| self.run.clone());
        let Ok(mut updates) = self.updates(batch) else { return self.restart() };
        updates.sort_by_key(|(order, _)| *order);
        for (_, update) in updates {
            if self.send(update, events).is_err() {
                return self.restart();
            }
        }
        let Some(before) = before else { return Flow::Continue };
        let was_open = self.client != ClientRun::Ended;
        let flow = self.check_attempt(&before, events);
        if flow == Flow::Continue && was_open {
            self.open_run(events);
        }
        flow
    }

    fn updates(&mut self, batch: Vec<Frame>) -> Result<Updates, NotRetained> {
        let had_no_agent = self.run.agent().is_none();
        for frame in &batch {
            match frame {
                Frame::ActivitySnapshot(activity) if *activity.kind == *run::KIND => self.run.load(&activity.content),
                Frame::ActivityDelta(delta) if *delta.kind == *run::KIND => self.run.apply(&delta.operations),
                _ => {}
            }
        }
        if had_no_agent && self.run.agent().is_some_and(|own| self.agents.contains(own)) {
            // The run's agent was unknown, and its messages were attributed to a teammate.
            return Err(NotRetained);
        }
        let mut updates = Vec::new();
        for frame in batch {
            match frame {
                Frame::ActivitySnapshot(activity) => self.add_snapshot(&activity, &mut updates),
                Frame::ActivityDelta(delta) => self.add_delta(delta, &mut updates)?,
                _ => {}
            }
        }
        Ok(updates)
    }

    /// Adds the updates of an activity's snapshot.
    fn add_snapshot(&mut self, activity: &ActivityView, updates: &mut Updates) {
        let own = self.run.agent().map(str::to_owned);
        if activity.run.is_some() && self.log_run.is_none() {
            self.log_run.clone_from(&activity.run);
        }
        match &*activity.kind {
            state::KIND => {
                updates.extend(activity.content.read(state::STATE).map(|state| (KNOWN, Update::State(state.clone()))));
            }
            ACTION_KIND => self.run.load_action(activity),
            agent::KIND if own.as_deref() != Some(&*activity.id) => {
                self.agents.load(activity);
                updates.push((KNOWN, Update::Agent(activity.id.clone())));
            }
            _ => {}
        }
        let agent = attribution::teammate(activity, own.as_deref());
        self.agents.record(agent.as_deref());
        updates.extend(agent.clone().map(|agent| (KNOWN, Update::Agent(agent))));
        let place = self.sent.record_activity(activity, agent);
        let items = items::items(activity, own.as_deref(), 0, place);
        updates.extend(items.into_iter().map(|item| (item.order, Update::Item(Box::new(item)))));
    }

    /// Adds the updates of an activity's change.
    fn add_delta(&mut self, Delta { kind, id, operations, .. }: Delta, updates: &mut Updates) -> Result<(), NotRetained> {
        let (call, reasoning) = (MessageKey::Call(id.clone()), MessageKey::Reasoning(id.clone()));
        match &*kind {
            run::KIND => {}
            state::KIND => updates.push((KNOWN, Update::StatePatch(operations))),
            message::KIND if self.sent.activity(&kind, &id).is_some_and(|place| place.message.is_some()) => {
                return self.add_message_delta(&id, &operations, updates);
            }
            "reasoning" if self.sent.messages.contains_key(&reasoning) => {
                let of_text = operations.iter().filter_map(|operation| {
                    let at = operation.place().filter(|at| at.within == Within::Content)?;
                    text_update(&reasoning, operation, at)
                });
                updates.extend(of_text.map(|update| (KNOWN, update)));
            }
            tool_call::KIND if self.sent.messages.contains_key(&call) => updates.push((KNOWN, Update::Call(id, operations))),
            _ => {
                match &*kind {
                    ACTION_KIND => self.run.apply_to_action(&id, &operations),
                    agent::KIND if self.run.agent() != Some(&*id) => {
                        self.agents.apply(&id, &operations);
                        updates.push((KNOWN, Update::Agent(id.clone())));
                    }
                    _ => {}
                }
                updates.push((KNOWN, Update::Patch(MessageKey::Activity(kind, id), operations)));
            }
        }
        Ok(())
    }

    /// Adds the updates of a message's change: new parts, and changes of existing ones.
    fn add_message_delta(&mut self, id: &str, operations: &[ContentOperation], updates: &mut Updates) -> Result<(), NotRetained> {
        let run = self.log_run.clone();
        let Some(place) = self.sent.activity_mut(message::KIND, id) else { return Ok(()) };
        let (number, agent, Some(message)) = (place.position, &place.agent, &mut place.message) else { return Ok(()) };
        let known = message.parts.len();
        // An update of a part that this change adds follows the part.
        let mut new = Vec::new();
        for operation in operations {
            let Some(at) = operation.place() else {
                if operations::path(operation).starts_with("/parts") {
                    return Err(NotRetained);
                }
                continue;
            };
            match (operation, at.within) {
                (ContentOperation::Push(_, part), Within::Content) if at.is(PARTS) => {
                    let part = part.as_object().ok_or(NotRetained)?;
                    let sub = u32::try_from(message.parts.len()).unwrap_or(u32::MAX);
                    let order = (0, part.read(part::OPENED).unwrap_or_default().0, number, sub);
                    let (key, of) = message.add(id, part);
                    let item = Item {
                        key,
                        order,
                        is_history: matches!(of, PartKind::Call | PartKind::Result),
                        run: run.clone(),
                        agent: agent.clone(),
                        body: items::part_body(id, &message.role, part, of),
                    };
                    new.push(order);
                    updates.push((order, Update::Item(Box::new(item))));
                }
                (_, Within::Item(list, nth)) if list == PARTS.name() => {
                    let (key, of) = message.parts.get(nth).cloned().ok_or(NotRetained)?;
                    let order = nth.checked_sub(known).map_or(KNOWN, |nth| new[nth]);
                    updates.extend(part_update(key, of, operation, at)?.map(|update| (order, update)));
                }
                (_, Within::Content) if at.is(PARTS) => return Err(NotRetained),
                (_, Within::Content | Within::Item(..) | Within::Member(_)) => {}
            }
        }
        Ok(())
    }

    fn send(&mut self, update: Update, events: &mut Vec<Value>) -> Result<(), NotRetained> {
        match update {
            Update::Item(item) if self.sent.omitted.contains_key(&item.key) => {}
            Update::Item(item) if self.sent.messages.contains_key(&item.key) => {
                if !item.is_history {
                    self.complete_message(*item, events)?;
                }
            }
            Update::Item(item) => self.begin_message(&item, events)?,
            Update::Append(key, chunk) => {
                if let Some(digest) = self.sent.messages.get_mut(&key).and_then(SentMessage::digest_mut) {
                    digest.push(&chunk);
                    let is_live = self.is_live(&key);
                    self.append(&key, &chunk, is_live, events);
                }
            }
            Update::Whole(key, text) => {
                if let Some(digest) = self.sent.messages.get_mut(&key).and_then(SentMessage::digest_mut) {
                    let rest = digest.rest(&text).ok_or(NotRetained)?;
                    digest.push(rest);
                    let is_live = self.is_live(&key);
                    self.append(&key, rest, is_live, events);
                }
            }
            Update::Live(key, is_live) => self.append(&key, "", is_live, events),
            Update::Call(id, operations) => self.apply_to_call(&id, &operations, events)?,
            Update::Patch(key, operations) => self.send_patch(&key, &operations, events)?,
            Update::State(state) => {
                self.open_run(events);
                events.push(json!({ "type": "STATE_SNAPSHOT", "snapshot": state }));
            }
            Update::StatePatch(operations) => {
                self.open_run(events);
                let delta: Vec<_> = operations.iter().map(relative_to_state).collect();
                events.push(json!({ "type": "STATE_DELTA", "delta": delta }));
            }
            Update::Agent(agent) => {
                if self.attribution == Attribution::Subagent {
                    self.open_run(events);
                    self.agents.update_status(&agent, events);
                }
            }
        }
        Ok(())
    }

    fn is_live(&self, key: &MessageKey) -> bool {
        self.live.iter().any(|(live, _)| live == key)
    }

    /// Begins a message that this stream has not sent yet.
    fn begin_message(&mut self, item: &Item, events: &mut Vec<Value>) -> Result<(), NotRetained> {
        let id = self.sent.assign_id(item);
        let text = match &item.body {
            Body::Text { text, .. } | Body::Reasoning { text, .. } => Some(text),
            Body::Call { arguments, .. } => Some(arguments),
            Body::Result { .. } | Body::Activity { .. } => None,
        };
        let had = self.sent.client.copy_of(&id, item);
        self.sent.messages.insert(item.key.clone(), SentMessage::of(&id, item, true));
        let rest = match (had, text) {
            (Some(ClientCopy::NonText), _) => return Ok(()),
            (Some(ClientCopy::Text(digest)), Some(text)) => {
                let rest = digest.rest(text).ok_or(NotRetained)?;
                if rest.is_empty() && !item.is_live() {
                    return Ok(());
                }
                rest
            }
            (_, text) => text.map_or("", String::as_str),
        };
        self.open_run(events);
        if self.attribution == Attribution::Subagent {
            self.agents.announce(item.agent.as_deref(), events);
        }
        events.extend(events::begin(&id, item, self.attribution));
        let Some(bracket) = Bracket::of(&id, item) else { return Ok(()) };
        if !rest.is_empty() {
            events.push(bracket.content(rest));
        }
        match item.is_live() {
            true => self.live.push((item.key.clone(), bracket)),
            false => events.extend(bracket.end()),
        }
        Ok(())
    }

    /// Completes a message of which the reader has a part.
    fn complete_message(&mut self, item: Item, events: &mut Vec<Value>) -> Result<(), NotRetained> {
        let record = self.sent.messages.get_mut(&item.key).expect("the caller has checked that the key is present");
        let is_live = item.is_live();
        let rest = match (record, item.body) {
            (SentMessage::Text { digest, .. }, Body::Text { text, .. })
            | (SentMessage::Reasoning { digest, .. }, Body::Reasoning { text, .. }) => advance(digest, &text)?,
            (
                SentMessage::Call { digest, compactor, call_state, is_current, .. },
                Body::Call { name, arguments, compactor: new_compactor, call_state: new_state, .. },
            ) => {
                let has_begun_again = call::has_ended(call_state.members()) && !call::has_ended(new_state.members());
                if has_begun_again || call::name(call_state.members()) != name {
                    return Err(NotRetained);
                }
                (*compactor, *call_state, *is_current) = (new_compactor, new_state, true);
                advance(digest, &arguments)?
            }
            (SentMessage::Result(digest), Body::Result { result, .. }) => {
                return if *digest == result_digest(&result.content, &result.metadata) { Ok(()) } else { Err(NotRetained) };
            }
            (SentMessage::Activity { id, kind, surface }, Body::Activity { kind: now, content }) => {
                if surface.is_some() {
                    if surface::is_partial(&content) {
                        return Err(NotRetained);
                    }
                    *surface = Some(SentSurface::of(&content));
                }
                kind.clone_from(&now);
                let mut event = events::activity(id, &now, &content);
                self.attribution.mark(&mut event, item.agent.as_deref());
                self.open_run(events);
                events.push(event);
                return Ok(());
            }
            _ => return Err(NotRetained),
        };
        self.append(&item.key, &rest, is_live, events);
        Ok(())
    }

    /// Appends to a text, ends it, or reopens it.
    fn append(&mut self, key: &MessageKey, more: &str, is_live: bool, events: &mut Vec<Value>) {
        let was = self.live.iter().position(|(live, _)| live == key);
        if more.is_empty() && was.is_some() == is_live {
            return;
        }
        let Some(bracket) = self.sent.messages.get(key).and_then(SentMessage::bracket) else { return };
        self.open_run(events);
        if was.is_none() {
            events.extend(self.sent.messages.get(key).into_iter().flat_map(SentMessage::reopen));
        }
        if !more.is_empty() {
            events.push(bracket.content(more));
        }
        match (was, is_live) {
            (None, true) => self.live.push((key.clone(), bracket)),
            (Some(at), false) => {
                events.extend(bracket.end());
                self.live.remove(at);
            }
            (None, false) => events.extend(bracket.end()),
            (Some(_), true) => {}
        }
    }

    fn send_patch(&mut self, key: &MessageKey, patch: &[ContentOperation], events: &mut Vec<Value>) -> Result<(), NotRetained> {
        let Some(SentMessage::Activity { id, kind, surface }) = self.sent.messages.get_mut(key) else { return Ok(()) };
        let event = match surface {
            None => json!({ "type": "ACTIVITY_DELTA", "messageId": id, "activityType": kind, "patch": patch }),
            Some(SentSurface { state: Some(state), .. }) => {
                let state = surface::changed(state, patch).ok_or(NotRetained)?;
                *surface = Some(SentSurface::of(&state));
                events::activity(id, kind, &state)
            }
            Some(SentSurface { id: surface, state: None }) => {
                let messages = surface::appended(surface, patch).ok_or(NotRetained)?;
                if messages.is_empty() {
                    return Ok(());
                }
                events::append_to_surface(id, messages)
            }
        };
        self.open_run(events);
        events.push(event);
        Ok(())
    }

    fn apply_to_call(&mut self, id: &str, operations: &[ContentOperation], events: &mut Vec<Value>) -> Result<(), NotRetained> {
        let key = MessageKey::Call(id.into());
        let agent = self.sent.activity(tool_call::KIND, id).and_then(|place| place.agent.clone());
        let Some(SentMessage::Call { digest, compactor, call_state, .. }) = self.sent.messages.get_mut(&key) else {
            return Ok(());
        };
        let (name, had_ended) = (call::name(call_state.members()).to_owned(), call::has_ended(call_state.members()));
        let change = call_state.apply(operations)?;
        if name != call::name(call_state.members()) {
            return Err(NotRetained);
        }
        let more = match change.value_of(INPUT) {
            Some(input) => {
                // As of a reader that joins now.
                *compactor = JsonCompactor::default();
                advance(digest, &input.to_string())?
            }
            // The arguments are complete.
            None if call_state.members().has(INPUT) => String::new(),
            None if change.removes_input || change.value_of(INPUT_TEXT).is_some() && !digest.is_empty() => {
                return Err(NotRetained);
            }
            None => {
                let begun = call::chunks(change.value_of(INPUT_TEXT));
                let chunks = begun.chain(change.arguments.iter().map(String::as_str));
                let more = chunks.map(|chunk| compactor.push(chunk)).collect::<String>();
                digest.push(&more);
                more
            }
        };
        let call_state = call_state.clone();
        self.append(&key, &more, call::is_live(call_state.members()), events);
        let made =
            |key: MessageKey, body: Body| Item { key, order: KNOWN, is_history: false, run: None, agent: agent.clone(), body };
        let progress = MessageKey::Progress(id.into());
        if self.sent.messages.contains_key(&progress) {
            if !change.report.is_empty() {
                self.send_patch(&progress, &change.report, events)?;
            }
        } else if call_state.is_reported() && !self.sent.omitted.contains_key(&progress) {
            let body = Body::Activity { kind: tool_call::KIND.into(), content: change.first_report(&call_state)? };
            let item = Item { run: self.log_run.clone(), ..made(progress, body) };
            self.begin_message(&item, events)?;
        }
        if change.affects_result {
            let result = call::result_of(|member| call_state.get(&change, member))?;
            let key = MessageKey::Result(id.into());
            match (result, self.sent.messages.get(&key)) {
                (Some(result), None) => {
                    let body = Body::Result { call: id.into(), result, id: None };
                    let item = Item { run: self.log_run.clone(), ..made(key, body) };
                    self.begin_message(&item, events)?;
                }
                (Some(result), Some(SentMessage::Result(digest)))
                    if *digest == result_digest(&result.content, &result.metadata) => {}
                (None, _) if !had_ended => {}
                _ => return Err(NotRetained),
            }
        }
        Ok(())
    }
}

/// Advances the digest to this text and returns the new part.
fn advance(digest: &mut SentText, whole: &str) -> Result<String, NotRetained> {
    let rest = digest.rest(whole).ok_or(NotRetained)?.to_owned();
    digest.push(&rest);
    Ok(rest)
}

/// The update of a text by an operation on it, at this place within it; `None` if the text is not concerned.
fn text_update(key: &MessageKey, operation: &ContentOperation, at: &MemberPlace) -> Option<Update> {
    use ContentOperation as Op;
    Some(match operation {
        Op::Push(_, Value::String(chunk)) if at.member == TEXT.name() => Update::Append(key.clone(), chunk.clone()),
        Op::Add(_, text) | Op::Replace(_, text) if at.member == TEXT.name() => {
            Update::Whole(key.clone(), items::joined(Some(text)))
        }
        Op::Add(_, status) | Op::Replace(_, status) if at.member == part::STATUS.name() => {
            Update::Live(key.clone(), TextStatus::read(status) == Some(TextStatus::Streaming))
        }
        _ => return None,
    })
}

/// The update of a message part, by an operation on it.
fn part_update(
    key: MessageKey,
    of: PartKind,
    operation: &ContentOperation,
    at: &MemberPlace,
) -> Result<Option<Update>, NotRetained> {
    match of {
        _ if at.member == part::KIND.name() => Err(NotRetained),
        PartKind::Call | PartKind::Result if at.member == TEXT.name() => Err(NotRetained),
        PartKind::Call | PartKind::Result => Ok(None),
        PartKind::Text | PartKind::Reasoning => Ok(text_update(&key, operation, at)),
        PartKind::Other => {
            let own = operation.clone().moved_to(MemberPlace { within: Within::Content, member: at.member.clone() });
            Ok(Some(Update::Patch(key, Arc::new([own]))))
        }
    }
}

fn kind(frame: &Frame) -> &str {
    match frame {
        Frame::ActivitySnapshot(activity) => &activity.kind,
        Frame::ActivityDelta(delta) => &delta.kind,
        _ => "",
    }
}

/// An operation on the state activity's content, as an operation on the state itself.
fn relative_to_state(operation: &ContentOperation) -> Value {
    let mut op = json!(operation);
    for member in ["path", "from"] {
        if let Some(Value::String(path)) = op.get_mut(member) {
            *path = path.strip_prefix("/state").unwrap_or(path).to_owned();
        }
    }
    op
}
