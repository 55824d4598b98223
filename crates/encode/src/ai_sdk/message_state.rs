//! The sent state of a run's activities, and the chunks that bring the reader up to date.
//!
//! It holds lengths and hashes of texts, and bounded copies of contents that must be sent as a whole
//! ([`copy`](crate::content_copy)).

use super::call::{self, Approval, Call, Target};
use super::message_writer::{MessageWriter, hash};
use super::pieces::{
    PartForm, Piece, data_of, is_answer, is_run, is_streaming, metadata_of, part_form, part_id, part_kind, parts, pieces,
    teammate,
};
use super::text::{Channel, Text};
use crate::content_copy::{ContentCopy, CopyBudget, DEFERRED_BYTES_MIN, joined, json_bytes};
use crate::cow_map::CowMap;
use crate::frames::{ActivityView, Delta};
use proscenium_model::Sequence;
use proscenium_projection::change::{ContentOperation, MemberPlace, Within};
use proscenium_projection::members::{
    ACTION_STATUS, ActionStatus, MemberType, OUTPUT_CHANNELS, OUTPUT_TEXT, PARTS, TEXT, TextStatus, TypedContent,
};
use proscenium_projection::message::part;
use proscenium_projection::operations;
use proscenium_projection::tool_call::{INPUT_TEXT, LOADED, MESSAGE, PROGRESS, STATE, STATUS, TOTAL};
use proscenium_projection::{ACTION_KIND, run, thought};
use proscenium_sources::ledger::Status;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Whether a change of a call may be deferred.
fn may_wait(operation: &ContentOperation) -> bool {
    let is_of_channel = |at: &MemberPlace| at.within == Within::Member(OUTPUT_CHANNELS.name());
    let is_report = [PROGRESS, LOADED, TOTAL].iter().any(|member| operation.is_about(*member)) || operation.is_about(MESSAGE);
    is_report
        || matches!(operation, ContentOperation::Push(at, _) if at.is(OUTPUT_TEXT))
        || operation.place().is_some_and(is_of_channel)
}

/// The sent state of one part of a message.
#[derive(Debug, Clone, Default, PartialEq)]
enum MessagePart {
    /// Not sent yet.
    #[default]
    Unsent,
    Text(Text),
    /// A data part, with the hash of its sent content.
    Data(u64),
    /// Not sent as a part: the call's own activity covers it.
    Omitted,
}

/// The sent state of one activity.
#[derive(Debug, Clone, PartialEq)]
enum SentActivity {
    /// A message of the assistant or a teammate, part by part.
    Message {
        teammate: Option<Box<str>>,
        parts: Vec<Arc<MessagePart>>,
    },
    Thought(Text),
    /// See [`MessageState::calls`].
    Call,
    Data(Data),
    Run(ContentCopy),
    /// A user's or system message, which the client already has.
    Omitted,
}

/// An activity that is sent as a data part.
#[derive(Debug, Clone, Default, PartialEq)]
struct Data {
    opened: Sequence,
    copy: ContentCopy,
    sent: Option<u64>,
    /// The size of unsent changes, in bytes.
    unsent_bytes: usize,
}

/// The reader's message.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct MessageState {
    pub writer: MessageWriter,
    /// By type and id.
    activities: BTreeMap<Box<str>, CowMap<Box<str>, SentActivity>>,
    /// By the call's id: calls with an activity, and calls that so far have only an approval.
    calls: CowMap<Box<str>, Call>,
    budget: CopyBudget,
    /// Whether a change was missed because no copy was stored.
    pub has_missed_changes: bool,
    /// Whether missed changes must be sent at once, not at the end.
    pub must_resync_now: bool,
    /// Actions that wait for a decision.
    pub pending: BTreeSet<Box<str>>,
    /// The call of each action that is an approval.
    approvals: CowMap<Box<str>, Box<str>>,
    /// The status of the run, once it is known.
    pub status: Option<Status>,
    /// The sent metadata of the message.
    metadata: Map<String, Value>,
}

impl MessageState {
    pub fn new(version: u8) -> Self {
        Self { writer: MessageWriter::new(version), ..Self::default() }
    }

    /// Drops the sent state, as the reader drops its message.
    pub fn forget(&mut self) {
        let writer = std::mem::take(&mut self.writer);
        *self = Self { writer: MessageWriter { chunks: writer.chunks, ..MessageWriter::new(writer.version) }, ..Self::default() };
    }

    /// Whether no activity was sent yet.
    pub fn is_empty(&self) -> bool {
        self.activities.is_empty()
    }

    /// Brings the reader up to date with these activities.
    pub fn send(&mut self, activities: &[ActivityView]) {
        self.load_approvals(activities);
        for piece in pieces(activities) {
            match piece {
                Piece::Part(message, at) => self.send_part(message, at),
                Piece::Whole(activity) => self.send_activity(activity),
                Piece::Report(call) => {
                    let Self { calls, writer, .. } = self;
                    if let Some(known) = calls.get_mut(&call.id) {
                        known.send_report(&call.id, &call.content, writer);
                    }
                }
            }
        }
        for message in activities.iter().filter(|activity| parts(activity).is_some_and(Vec::is_empty)) {
            self.message(message);
        }
    }

    /// Loads the approvals of the shown calls first, so that each call is sent once.
    fn load_approvals(&mut self, activities: &[ActivityView]) {
        let of_kind = |kind: &'static str| activities.iter().filter(move |activity| &*activity.kind == kind);
        let mut requested: HashMap<&str, Vec<Approval>> = HashMap::new();
        for action in of_kind(ACTION_KIND) {
            if let Some((call, approval)) = Approval::of(&action.id, action.opened, &action.content, self.writer.version) {
                requested.entry(call).or_default().push(approval);
            }
        }
        for call in of_kind(call::KIND) {
            let Some(approvals) = requested.remove(&*call.id) else { continue };
            // An approval that precedes its call is sent at its own position.
            if approvals.iter().any(|approval| approval.opened <= call.opened) {
                continue;
            }
            let Some(last) = approvals.into_iter().max_by_key(|approval| approval.opened) else { continue };
            let known = self.calls.get_or_insert_with(call.id.clone(), Call::default);
            if known.approval.as_ref().is_none_or(|known| known.opened <= last.opened) {
                known.approval = Some(last);
            }
        }
    }

    /// The entry of a message; creates it if it is missing.
    fn message(&mut self, message: &ActivityView) -> (&mut SentActivity, &mut MessageWriter) {
        let new = match is_answer(message) {
            true => SentActivity::Message { teammate: teammate(message).map(Into::into), parts: Vec::new() },
            false => SentActivity::Omitted,
        };
        let of_kind = self.activities.entry(message.kind.clone()).or_default();
        (of_kind.get_or_insert_with(message.id.clone(), || new), &mut self.writer)
    }

    fn send_part(&mut self, message: &ActivityView, at: usize) {
        let Some(part) = parts(message).and_then(|parts| parts.get(at)) else { return };
        let (activity, writer) = self.message(message);
        let SentActivity::Message { teammate, parts } = activity else { return };
        if parts.len() <= at {
            parts.resize_with(at + 1, Arc::default);
        }
        update_part(Arc::make_mut(&mut parts[at]), &message.id, teammate.as_deref(), part, writer);
    }

    fn send_activity(&mut self, activity: &ActivityView) {
        match &*activity.kind {
            "reasoning" if activity.content.read(thought::MESSAGE_ID).is_some() => self.send_reasoning(activity),
            call::KIND => self.send_call(activity),
            run::KIND if is_run(activity) => self.send_run(activity),
            _ => self.send_data(activity),
        }
    }

    fn send_reasoning(&mut self, activity: &ActivityView) {
        let of_kind = self.activities.entry(activity.kind.clone()).or_default();
        let sent = of_kind.get_or_insert_with(activity.id.clone(), || {
            SentActivity::Thought(Text::begin(activity.id.to_string(), Channel::Reasoning, teammate(activity), &mut self.writer))
        });
        if let SentActivity::Thought(text) = sent {
            text.update(&joined(activity.content.get(TEXT.name())), &mut self.writer);
            text.is_streaming = activity.content.read(thought::STATUS) == Some(TextStatus::Streaming);
            text.close_if_complete(&mut self.writer);
        }
    }

    fn send_call(&mut self, activity: &ActivityView) {
        self.activities.entry(activity.kind.clone()).or_default().insert(activity.id.clone(), SentActivity::Call);
        let call = self.calls.get_or_insert_with(activity.id.clone(), Call::default);
        call.copy.store(&activity.content, &mut self.budget);
        call.update(&activity.id, &activity.content, &mut self.writer);
        self.free_copies();
    }

    /// Drops the copies of ended calls when the budget is nearly used up.
    fn free_copies(&mut self) {
        if self.budget.is_nearly_full() {
            let ended = self.calls.iter().filter(|(_, call)| call.has_ended() && call.copy.content().is_some());
            let ended: Vec<_> = ended.map(|(id, _)| id.clone()).collect();
            for id in ended {
                self.calls.get_mut(&id).into_iter().for_each(|call| call.copy.clear(&mut self.budget));
            }
        }
    }

    fn send_run(&mut self, activity: &ActivityView) {
        let Self { budget, .. } = self;
        let mut copy = ContentCopy::default();
        copy.store(&activity.content, budget);
        let of_kind = self.activities.entry(activity.kind.clone()).or_default();
        if let Some(SentActivity::Run(mut before)) = of_kind.insert(activity.id.clone(), SentActivity::Run(copy)) {
            before.clear(&mut self.budget);
        }
        self.update_run(&activity.id, &activity.content);
    }

    fn update_run(&mut self, id: &str, content: &Map<String, Value>) {
        self.status = content.read(run::STATUS);
        let mut metadata = metadata_of(id, content);
        metadata.retain(|member, value| self.metadata.get(member) != Some(value));
        if !metadata.is_empty() {
            self.metadata.extend(metadata.clone());
            self.writer.push(json!({ "type": "message-metadata", "messageMetadata": metadata }));
        }
    }

    /// The error message of the run, if it has one.
    pub fn error(&self) -> Option<String> {
        let runs = self.activities.get(run::KIND)?.values();
        let mut errors = runs.filter_map(|run| match run {
            SentActivity::Run(copy) => copy.content()?.read(run::ERROR),
            _ => None,
        });
        errors.next_back().and_then(|error| error.get("message").unwrap_or(error).as_str()).map(str::to_owned)
    }

    fn send_data(&mut self, activity: &ActivityView) {
        let Self { activities, budget, writer, .. } = self;
        let of_kind = activities.entry(activity.kind.clone()).or_default();
        let new = || SentActivity::Data(Data { opened: activity.opened, ..Data::default() });
        let SentActivity::Data(data) = of_kind.get_or_insert_with(activity.id.clone(), new) else {
            // Another activity has the same type and id: a source created one of them.
            return;
        };
        let is_new = data.sent.is_none();
        data.copy.store(&activity.content, budget);
        data.update(&activity.kind, &activity.id, &activity.content, writer);
        if *activity.kind == *ACTION_KIND {
            self.update_action(&activity.id, activity.opened, &activity.content, is_new);
        }
    }

    /// Applies an action beyond its data part: the pending decision, and the approval of its call.
    fn update_action(&mut self, id: &str, opened: Sequence, content: &Map<String, Value>, is_new: bool) {
        match content.read(ACTION_STATUS) {
            Some(ActionStatus::Pending) => drop(self.pending.insert(id.into())),
            _ => drop(self.pending.remove(id)),
        }
        let requested = Approval::of(id, opened, content, self.writer.version);
        let call_id = requested.as_ref().map(|(call, _)| *call);
        if self.approvals.get(id).is_some_and(|known| Some(&**known) != call_id) {
            self.withdraw_approval(id);
        }
        let Some((call_id, approval)) = requested else { return };
        let was_asked = self.approvals.insert(id.into(), call_id.into()).is_some();
        let call = self.calls.get_or_insert_with(call_id.into(), Call::default);
        // The part of the call may have to stand at the sequence of the first request.
        self.writer.needs_reset |= !is_new && !was_asked && self.writer.can_reset();
        match &call.approval {
            Some(known) if *known == approval => return,
            // A later request exists.
            Some(known) if known.opened > opened => return,
            _ => call.approval = Some(approval),
        }
        if call.is_sent {
            if call.copy.content().is_none() {
                self.has_missed_changes = true;
            }
            return call.update_from_copy(call_id, false, &mut self.writer);
        }
        let approval = call.approval.take();
        if let Some(approval) = &approval {
            call.send_changes(call_id, &Target::of_approval(content, approval), &mut self.writer);
        }
        call.approval = approval;
    }

    /// Withdraws the approval of a call that the action no longer concerns.
    fn withdraw_approval(&mut self, action: &str) {
        let Some(call_id) = self.approvals.remove(action) else { return };
        let Some(call) = self.calls.get_mut(&call_id) else { return };
        if call.approval.as_ref().is_some_and(|approval| *approval.action == *action) {
            // A client without `reset-step` keeps the sent approval in its part.
            self.writer.needs_reset |= self.writer.can_reset();
            call.approval.as_mut().expect("the condition has checked the approval").withdraw();
            call.update_from_copy(&call_id, false, &mut self.writer);
        }
    }

    /// Applies a delta.
    pub fn apply(&mut self, Delta { kind, id, operations, .. }: &Delta) {
        let Self { activities, calls, budget, writer, .. } = self;
        let Some(activity) = activities.get_mut(kind).and_then(|of_kind| of_kind.get_mut(id)) else {
            self.has_missed_changes = true;
            return;
        };
        let follows = match activity {
            SentActivity::Omitted => true,
            SentActivity::Message { teammate, parts } => change_message(id, teammate.as_deref(), parts, operations, writer),
            SentActivity::Thought(text) => {
                for operation in operations.iter() {
                    if let Some(at) = operation.place().filter(|at| at.within == Within::Content) {
                        change_text(text, operation, at, writer);
                    }
                }
                text.close_if_complete(writer);
                true
            }
            SentActivity::Call => {
                let call = calls.get_mut(id).expect("every sent call has an entry");
                let follows = change_call(id, call, operations, budget, writer);
                self.free_copies();
                follows
            }
            SentActivity::Run(copy) => {
                let follows = copy.apply(operations, budget);
                let copy = std::mem::take(copy);
                if let Some(content) = copy.content() {
                    self.update_run(id, content);
                } else if let Some(status) = operations.iter().rev().find_map(|op| op.sets(run::STATUS)) {
                    // The status decides how the stream continues, so it is read even without a copy.
                    self.status = Status::read(status);
                }
                if let Some(SentActivity::Run(place)) = self.activities.get_mut(kind).and_then(|of_kind| of_kind.get_mut(id)) {
                    *place = copy;
                }
                follows
            }
            SentActivity::Data(data) => {
                let follows = data.copy.apply(operations, budget);
                data.unsent_bytes += operations.iter().map(json_bytes).sum::<usize>();
                if !data.copy.should_defer(data.unsent_bytes) {
                    data.update_from_copy(kind, id, writer);
                }
                let opened = data.opened;
                let copy = std::mem::take(&mut data.copy);
                if let Some(content) = copy.content().filter(|_| **kind == *ACTION_KIND) {
                    self.update_action(id, opened, content, false);
                }
                if let Some(SentActivity::Data(data)) = self.activities.get_mut(kind).and_then(|of_kind| of_kind.get_mut(id)) {
                    data.copy = copy;
                }
                follows
            }
        };
        self.has_missed_changes |= !follows;
        // A state or status change must not wait for the end: a spinner would keep spinning, a question would stay
        // open.
        let is_turn = |op: &ContentOperation| op.is_about(STATE) || op.is_about(STATUS);
        self.must_resync_now |= !follows && matches!(&**kind, call::KIND | ACTION_KIND) && operations.iter().any(is_turn);
    }

    /// Sends the deferred changes.
    pub fn flush(&mut self) {
        let Self { activities, calls, writer, .. } = self;
        for (kind, of_kind) in activities {
            for (id, activity) in of_kind.iter_mut() {
                match activity {
                    SentActivity::Data(data) if data.unsent_bytes > 0 => data.update_from_copy(kind, id, writer),
                    _ => {}
                }
            }
        }
        for (id, call) in calls.iter_mut().filter(|(_, call)| call.unsent_bytes > 0) {
            call.update_from_copy(id, true, writer);
        }
    }

    fn for_each_text(&mut self, change: impl Fn(&mut Text, &mut MessageWriter)) {
        let Self { activities, writer, .. } = self;
        for activity in activities.values_mut().flat_map(CowMap::values_mut) {
            match activity {
                SentActivity::Thought(text) => change(text, writer),
                SentActivity::Message { parts, .. } => {
                    for part in parts {
                        if let MessagePart::Text(text) = Arc::make_mut(part) {
                            change(text, writer);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Closes every open text.
    pub fn close_texts(&mut self) {
        self.for_each_text(Text::close);
    }

    /// Marks deferred and missed changes as unsent, because the reader may lack them.
    pub fn invalidate(&mut self) {
        let Self { activities, calls, has_missed_changes, .. } = self;
        for activity in activities.values_mut().flat_map(CowMap::values_mut) {
            if let SentActivity::Data(data) = activity
                && (data.copy.content().is_none() || data.copy.bytes() >= DEFERRED_BYTES_MIN)
            {
                *has_missed_changes |= data.copy.content().is_none();
                (data.sent, data.unsent_bytes) = (data.sent.map(|sent| !sent), 1);
            }
        }
        for call in calls.values_mut().filter(|call| call.is_sent) {
            *has_missed_changes |= call.copy.content().is_none();
            if call.copy.content().is_none() || call.copy.bytes() >= DEFERRED_BYTES_MIN {
                call.invalidate();
            }
        }
    }

    /// Marks every text as closed: the response that contained them has ended.
    pub fn mark_closed(&mut self) {
        self.for_each_text(|text, _| text.mark_closed());
    }
}

impl Data {
    fn update(&mut self, kind: &str, id: &str, content: &Map<String, Value>, writer: &mut MessageWriter) {
        self.unsent_bytes = 0;
        let data = data_of(kind, content);
        let digest = hash(&data);
        if self.sent != Some(digest) {
            writer.data(kind, id, data.into_owned(), self.sent.is_none());
            self.sent = Some(digest);
        }
    }

    fn update_from_copy(&mut self, kind: &str, id: &str, writer: &mut MessageWriter) {
        let copy = std::mem::take(&mut self.copy);
        if let Some(content) = copy.content() {
            self.update(kind, id, content, writer);
        }
        self.copy = copy;
    }
}

/// Brings the reader's copy of a message part up to date.
fn update_part(slot: &mut MessagePart, message: &str, teammate: Option<&str>, part: &Value, writer: &mut MessageWriter) {
    if let MessagePart::Unsent = slot {
        *slot = match part_form(part) {
            PartForm::Text(channel) => MessagePart::Text(Text::begin(part_id(message, part), channel, teammate, writer)),
            PartForm::Omitted => MessagePart::Omitted,
            PartForm::Data => {
                let digest = hash(part);
                writer.data(part_kind(part), &part_id(message, part), part.clone(), true);
                MessagePart::Data(digest)
            }
        };
    }
    match slot {
        MessagePart::Text(text) => {
            text.update(&joined(part.get(TEXT.name())), writer);
            text.is_streaming = is_streaming(part);
            text.close_if_complete(writer);
        }
        MessagePart::Data(sent) if *sent != hash(part) => {
            *sent = hash(part);
            writer.data(part_kind(part), &part_id(message, part), part.clone(), false);
        }
        MessagePart::Data(_) | MessagePart::Omitted | MessagePart::Unsent => {}
    }
}

/// Applies a change of a message. Returns false if the sent state is not enough to apply it.
fn change_message(
    id: &str,
    teammate: Option<&str>,
    parts: &mut Vec<Arc<MessagePart>>,
    operations: &[ContentOperation],
    writer: &mut MessageWriter,
) -> bool {
    let mut follows = true;
    let mut changed = BTreeSet::new();
    for operation in operations {
        let Some(at) = operation.place() else {
            follows &= !operations::path(operation).starts_with("/parts");
            continue;
        };
        match (operation, at.within) {
            (ContentOperation::Push(_, value), Within::Content) if at.is(PARTS) => {
                let mut part = MessagePart::Unsent;
                update_part(&mut part, id, teammate, value, writer);
                parts.push(Arc::new(part));
            }
            (_, Within::Content) => follows &= !at.is(PARTS),
            (_, Within::Item(_, index)) => {
                changed.insert(index);
                follows &= match parts.get_mut(index).map(Arc::make_mut) {
                    Some(MessagePart::Omitted) => true,
                    Some(MessagePart::Text(text)) if at.member != part::KIND.name() => {
                        change_text(text, operation, at, writer);
                        true
                    }
                    _ => false,
                };
            }
            (_, Within::Member(_)) => {}
        }
    }
    for index in changed {
        if let Some(MessagePart::Text(text)) = parts.get_mut(index).map(Arc::make_mut) {
            text.close_if_complete(writer);
        }
    }
    follows
}

/// Applies an operation on a text, at this place within it.
fn change_text(text: &mut Text, operation: &ContentOperation, at: &MemberPlace, writer: &mut MessageWriter) {
    use ContentOperation as Op;
    match operation {
        Op::Push(_, chunk) if at.member == TEXT.name() => text.append(chunk.as_str().unwrap_or_default(), writer),
        Op::Add(_, whole) | Op::Replace(_, whole) if at.member == TEXT.name() => text.update(&joined(Some(whole)), writer),
        Op::Add(_, status) | Op::Replace(_, status) if at.member == part::STATUS.name() => {
            text.is_streaming = TextStatus::read(status) == Some(TextStatus::Streaming);
        }
        // Other members do not concern the text.
        Op::Add(..) | Op::Replace(..) | Op::Remove(_) | Op::Push(..) | Op::RemoveFirst(_) | Op::FromSource(_) => {}
    }
}

/// Applies a change of a call. Returns false if no copy is stored.
fn change_call(
    id: &str,
    call: &mut Call,
    operations: &[ContentOperation],
    budget: &mut CopyBudget,
    writer: &mut MessageWriter,
) -> bool {
    let follows = call.copy.apply(operations, budget);
    if let [ContentOperation::Push(at, chunk)] = operations
        && at.is(INPUT_TEXT)
        && call.send_input_delta(id, chunk.as_str().unwrap_or_default(), writer)
    {
        return follows;
    }
    call.unsent_bytes += operations.iter().map(json_bytes).sum::<usize>();
    if !operations.iter().all(may_wait) || !call.copy.should_defer(call.unsent_bytes) {
        call.update_from_copy(id, true, writer);
    }
    follows
}
