//! The sent state of a run's activities, and the chunks that bring the reader up to date.
//!
//! It holds lengths and hashes of texts, and bounded copies of contents that must be sent as a whole
//! ([`kept`](super::kept)).

use super::call::{self, Ask, Call, Target};
use super::kept::{Kept, Room, WAITS_FROM, joined};
use super::page::{Page, hash, weight};
use super::text::{Channel, Text};
use crate::encode::frames::Shown;
use crate::model::{PartKind, Sequence};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Paths of a call's changes that may be deferred.
const MAY_WAIT: &[&str] = &["/output_text/-", "/progress", "/loaded", "/total", "/message"];
/// The prefix of such paths for output channels other than the standard output.
const CHANNELS: &str = "/output_channels/";

/// The sent state of one part of a message.
#[derive(Debug, Default)]
enum Part {
    /// Not sent yet.
    #[default]
    Unsaid,
    Text(Text),
    /// A data part, with the hash of its sent content.
    Data(u64),
    /// Not sent as a part: the call's own activity covers it.
    Silent,
}

/// The sent state of one activity.
#[derive(Debug)]
enum Thing {
    /// A message of the assistant or a teammate, part by part.
    Message {
        teammate: Option<Box<str>>,
        parts: Vec<Part>,
    },
    Thought(Text),
    /// See [`Told::calls`].
    Call,
    Data(Data),
    Run(Kept),
    /// A user's or system message, which the client already has.
    Silent,
}

/// An activity that is sent as a data part.
#[derive(Debug, Default)]
struct Data {
    opened: Sequence,
    kept: Kept,
    said: Option<u64>,
    /// The size of unsent changes, in bytes.
    unsaid: usize,
}

/// The reader's message.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub page: Page,
    /// By type and id.
    things: BTreeMap<Box<str>, BTreeMap<Box<str>, Thing>>,
    /// By the call's id: calls with an activity, and calls that so far have only an approval.
    calls: BTreeMap<Box<str>, Call>,
    room: Room,
    /// Whether a change was missed because no copy was stored.
    pub is_behind: bool,
    /// Whether missed changes must be sent at once, not at the end.
    pub is_urgent: bool,
    /// Actions that wait for a decision.
    pub pending: BTreeSet<Box<str>>,
    /// The call of each action that is an approval.
    asked: BTreeMap<Box<str>, Box<str>>,
    /// The status of the run.
    pub status: Box<str>,
    /// The sent metadata of the message.
    metadata: Map<String, Value>,
}

/// A piece of the reader's message, at its position.
pub(super) enum Piece<'s> {
    /// A part of a message, by index.
    Part(&'s Shown, usize),
    Whole(&'s Shown),
    /// The progress report of a call, at its first report.
    Report(&'s Shown),
}

/// Splits activities into pieces, in the order in which they appeared.
pub(super) fn pieces(shown: &[Shown]) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    for shown in shown {
        match parts(shown) {
            Some(parts) => pieces.extend((0..).zip(parts).map(|(at, part)| {
                (part.get("opened").and_then(Value::as_u64).unwrap_or(shown.opened.0), Piece::Part(shown, at))
            })),
            None => pieces.push((shown.opened.0, Piece::Whole(shown))),
        }
        if let Some(since) = call::reported(&shown.content).filter(|_| &*shown.kind == call::KIND) {
            pieces.push((since, Piece::Report(shown)));
        }
    }
    // The sort is stable: pieces of one envelope keep their order.
    pieces.sort_by_key(|(opened, _)| *opened);
    pieces.into_iter().map(|(_, piece)| piece).collect()
}

/// The parts of a message; `None` for any other activity.
pub(super) fn parts(shown: &Shown) -> Option<&Vec<Value>> {
    shown.content.get("parts").and_then(Value::as_array).filter(|_| &*shown.kind == "message")
}

/// Whether a message belongs to the assistant message. The client already has the messages of users and systems.
pub(super) fn is_answer(message: &Shown) -> bool {
    !matches!(message.text("role"), Some("user" | "system" | "developer"))
}

/// The agent of a message or thought, if it is not the run's own: then the id starts with it.
pub(super) fn teammate(shown: &Shown) -> Option<&str> {
    let agent = shown.agent.as_deref().or_else(|| shown.text("agentId"))?;
    shown.id.strip_prefix(agent)?.starts_with('/').then_some(agent)
}

/// The chunk form of a message part.
pub(super) enum Said {
    On(Channel),
    Data,
    /// Omitted: the call's own activity covers it.
    Nothing,
}

pub(super) fn said_as(part: &Value) -> Said {
    let kind = part.get("kind").and_then(Value::as_str).unwrap_or_default();
    let is_named = PartKind::NAMES.contains(&kind) && !PartKind::from(kind).is_text();
    let is_text = kind.ends_with("_text") || !is_named && !joined(part.get("text")).is_empty();
    match kind {
        "tool_call" | "tool_result" => Said::Nothing,
        _ if kind.starts_with("reasoning") || kind == "thinking" => Said::On(Channel::Reasoning),
        _ if is_text => Said::On(Channel::Text),
        _ => Said::Data,
    }
}

/// The stream's id of a message part.
pub(super) fn part_id(message: &str, part: &Value) -> String {
    format!("{message}/{}", part.get("partId").and_then(Value::as_str).unwrap_or_default())
}

/// The kind of a part, as its data part names it.
pub(super) fn part_kind(part: &Value) -> &str {
    part.get("kind").and_then(Value::as_str).filter(|kind| !kind.is_empty()).unwrap_or("part")
}

pub(super) fn streams(content: &Value) -> bool {
    content.get("status").and_then(Value::as_str) == Some("streaming")
}

/// The content of an activity's data part. A `state` is sent bare, and our own text chunks are joined.
pub(super) fn data_of<'c>(kind: &str, content: &'c Map<String, Value>) -> Cow<'c, Value> {
    match (kind, content.get("state")) {
        ("state", Some(state)) if content.len() == 1 => Cow::Borrowed(state),
        ("plan" | "worker-notification", _) if content.get("text").is_some_and(Value::is_array) => {
            let mut content = content.clone();
            let text = joined(content.get("text")).into_owned();
            content.insert("text".into(), text.into());
            Cow::Owned(content.into())
        }
        _ => Cow::Owned(content.clone().into()),
    }
}

/// The metadata of the message, from the run's activity.
pub(super) fn metadata_of(run: &str, content: &Map<String, Value>) -> Map<String, Value> {
    let mut metadata = Map::from_iter([("runId".to_owned(), run.into())]);
    for member in ["sessionId", "threadId", "usage", "notices", "result"] {
        metadata.extend(content.get(member).map(|value| (member.to_owned(), value.clone())));
    }
    metadata
}

/// Whether this is the run's own activity.
pub(super) fn is_run(shown: &Shown) -> bool {
    &*shown.kind == "run" && shown.text("status").is_some()
}

impl Told {
    pub fn new(version: u8) -> Self {
        Self { page: Page::new(version), ..Self::default() }
    }

    /// Drops the sent state, as the reader drops its message.
    pub fn forget(&mut self) {
        let page = std::mem::take(&mut self.page);
        *self = Self { page: Page { chunks: page.chunks, ..Page::new(page.version) }, ..Self::default() };
    }

    /// Whether no activity was sent yet.
    pub fn is_empty(&self) -> bool {
        self.things.is_empty()
    }

    /// Brings the reader up to date with these activities.
    pub fn tell(&mut self, shown: &[Shown]) {
        self.foresee(shown);
        for piece in pieces(shown) {
            match piece {
                Piece::Part(message, at) => self.tell_part(message, at),
                Piece::Whole(shown) => self.tell_whole(shown),
                Piece::Report(call) => {
                    let Self { calls, page, .. } = self;
                    if let Some(known) = calls.get_mut(&call.id) {
                        known.report(&call.id, &call.content, page);
                    }
                }
            }
        }
        for message in shown.iter().filter(|shown| parts(shown).is_some_and(Vec::is_empty)) {
            self.message(message);
        }
    }

    /// Loads the approvals of the shown calls first, so that each call is sent once.
    fn foresee(&mut self, shown: &[Shown]) {
        let of_kind = |kind: &'static str| shown.iter().filter(move |shown| &*shown.kind == kind);
        let mut asked: HashMap<&str, Vec<Ask>> = HashMap::new();
        for action in of_kind("action") {
            if let Some((call, ask)) = Ask::of(&action.id, action.opened, &action.content, self.page.version) {
                asked.entry(call).or_default().push(ask);
            }
        }
        for call in of_kind(call::KIND) {
            let Some(asks) = asked.remove(&*call.id) else { continue };
            // An approval that precedes its call is sent at its own position.
            if asks.iter().any(|ask| ask.opened <= call.opened) {
                continue;
            }
            let Some(last) = asks.into_iter().max_by_key(|ask| ask.opened) else { continue };
            let known = self.calls.entry(call.id.clone()).or_default();
            if known.ask.as_ref().is_none_or(|known| known.opened <= last.opened) {
                known.ask = Some(last);
            }
        }
    }

    /// The entry of a message; creates it if it is missing.
    fn message(&mut self, message: &Shown) -> (&mut Thing, &mut Page) {
        let new = match is_answer(message) {
            true => Thing::Message { teammate: teammate(message).map(Into::into), parts: Vec::new() },
            false => Thing::Silent,
        };
        let of_kind = self.things.entry(message.kind.clone()).or_default();
        (of_kind.entry(message.id.clone()).or_insert(new), &mut self.page)
    }

    fn tell_part(&mut self, message: &Shown, at: usize) {
        let Some(part) = parts(message).and_then(|parts| parts.get(at)) else { return };
        let (thing, page) = self.message(message);
        let Thing::Message { teammate, parts } = thing else { return };
        if parts.len() <= at {
            parts.resize_with(at + 1, Part::default);
        }
        bring_part(&mut parts[at], &message.id, teammate.as_deref(), part, page);
    }

    fn tell_whole(&mut self, shown: &Shown) {
        match &*shown.kind {
            "reasoning" if shown.text("messageId").is_some() => self.tell_thought(shown),
            call::KIND => self.tell_call(shown),
            "run" if is_run(shown) => self.tell_run(shown),
            _ => self.tell_data(shown),
        }
    }

    fn tell_thought(&mut self, shown: &Shown) {
        let of_kind = self.things.entry(shown.kind.clone()).or_default();
        let thing = of_kind.entry(shown.id.clone()).or_insert_with(|| {
            Thing::Thought(Text::begin(shown.id.to_string(), Channel::Reasoning, teammate(shown), &mut self.page))
        });
        if let Thing::Thought(text) = thing {
            text.bring(&joined(shown.content.get("text")), &mut self.page);
            text.streams = shown.text("status") == Some("streaming");
            text.settle(&mut self.page);
        }
    }

    fn tell_call(&mut self, shown: &Shown) {
        self.things.entry(shown.kind.clone()).or_default().insert(shown.id.clone(), Thing::Call);
        let call = self.calls.entry(shown.id.clone()).or_default();
        call.kept.keep(shown.content.clone(), &mut self.room);
        call.bring(&shown.id, &shown.content, &mut self.page);
        self.make_room();
    }

    /// Drops the copies of ended calls when the budget is nearly used up.
    fn make_room(&mut self) {
        if self.room.is_tight() {
            for call in self.calls.values_mut().filter(|call| call.has_ended()) {
                call.kept.forget(&mut self.room);
            }
        }
    }

    fn tell_run(&mut self, shown: &Shown) {
        let Self { room, .. } = self;
        let mut kept = Kept::default();
        kept.keep(shown.content.clone(), room);
        let of_kind = self.things.entry(shown.kind.clone()).or_default();
        if let Some(Thing::Run(mut before)) = of_kind.insert(shown.id.clone(), Thing::Run(kept)) {
            before.forget(&mut self.room);
        }
        self.follow_run(&shown.id, &shown.content);
    }

    fn follow_run(&mut self, id: &str, content: &Map<String, Value>) {
        self.status = content.get("status").and_then(Value::as_str).unwrap_or_default().into();
        let mut metadata = metadata_of(id, content);
        metadata.retain(|member, value| self.metadata.get(member) != Some(value));
        if !metadata.is_empty() {
            self.metadata.extend(metadata.clone());
            self.page.say(json!({ "type": "message-metadata", "messageMetadata": metadata }));
        }
    }

    /// The error message of the run, if it has one.
    pub fn error(&self) -> Option<String> {
        let runs = self.things.get("run")?.values();
        let mut errors = runs.filter_map(|run| match run {
            Thing::Run(kept) => kept.content()?.get("error"),
            _ => None,
        });
        errors.next_back().and_then(|error| error.get("message").unwrap_or(error).as_str()).map(str::to_owned)
    }

    fn tell_data(&mut self, shown: &Shown) {
        let Self { things, room, page, .. } = self;
        let of_kind = things.entry(shown.kind.clone()).or_default();
        let Thing::Data(data) =
            of_kind.entry(shown.id.clone()).or_insert_with(|| Thing::Data(Data { opened: shown.opened, ..Data::default() }))
        else {
            // Another activity has the same type and id: a source created one of them.
            return;
        };
        let is_new = data.said.is_none();
        data.kept.keep(shown.content.clone(), room);
        data.bring(&shown.kind, &shown.id, &shown.content, page);
        if &*shown.kind == "action" {
            self.follow_action(&shown.id, shown.opened, &shown.content, is_new);
        }
    }

    /// Applies an action beyond its data part: the pending decision, and the approval of its call.
    fn follow_action(&mut self, id: &str, opened: Sequence, content: &Map<String, Value>, is_new: bool) {
        match content.get("status").and_then(Value::as_str) {
            Some("pending") => drop(self.pending.insert(id.into())),
            _ => drop(self.pending.remove(id)),
        }
        let asked = Ask::of(id, opened, content, self.page.version);
        let call_id = asked.as_ref().map(|(call, _)| *call);
        if self.asked.get(id).is_some_and(|known| Some(&**known) != call_id) {
            self.take_back(id);
        }
        let Some((call_id, ask)) = asked else { return };
        let was_asked = self.asked.insert(id.into(), call_id.into()).is_some();
        let call = self.calls.entry(call_id.into()).or_default();
        // The part of the call may have to stand at the sequence of the first request.
        self.page.is_spoilt |= !is_new && !was_asked && self.page.can_retract();
        match &call.ask {
            Some(known) if *known == ask => return,
            // A later request exists.
            Some(known) if known.opened > opened => return,
            _ => call.ask = Some(ask),
        }
        if call.is_told {
            if call.kept.content().is_none() {
                self.is_behind = true;
            }
            return call.bring_kept(call_id, false, &mut self.page);
        }
        let ask = call.ask.take();
        if let Some(ask) = &ask {
            call.lead(call_id, &Target::asked(content, ask), &mut self.page);
        }
        call.ask = ask;
    }

    /// Withdraws the approval of a call that the action no longer concerns.
    fn take_back(&mut self, action: &str) {
        let Some(call_id) = self.asked.remove(action) else { return };
        let Some(call) = self.calls.get_mut(&call_id) else { return };
        if call.ask.as_ref().is_some_and(|ask| *ask.action == *action) {
            // A client without `reset-step` keeps the sent approval in its part.
            self.page.is_spoilt |= self.page.can_retract();
            call.ask.as_mut().expect("the condition has checked the approval").is_void();
            call.bring_kept(&call_id, false, &mut self.page);
        }
    }

    /// Applies a delta.
    pub fn follow(&mut self, kind: &str, id: &str, patch: &[Value]) {
        let Self { things, calls, room, page, .. } = self;
        let Some(thing) = things.get_mut(kind).and_then(|of_kind| of_kind.get_mut(id)) else {
            self.is_behind = true;
            return;
        };
        let follows = match thing {
            Thing::Silent => true,
            Thing::Message { teammate, parts } => follow_message(id, teammate.as_deref(), parts, patch, page),
            Thing::Thought(text) => {
                for op in patch {
                    follow_text(text, &members(op), &op["value"], page);
                }
                text.settle(page);
                true
            }
            Thing::Call => {
                let call = calls.get_mut(id).expect("every sent call has an entry");
                let follows = follow_call(id, call, patch, room, page);
                self.make_room();
                follows
            }
            Thing::Run(kept) => {
                let follows = kept.follow(patch, room);
                let kept = std::mem::take(kept);
                if let Some(content) = kept.content() {
                    self.follow_run(id, content);
                } else if let Some(status) = patch.iter().rfind(|op| op["path"] == "/status").and_then(|op| op["value"].as_str())
                {
                    // The status decides how the stream continues, so it is read even without a copy.
                    self.status = status.into();
                }
                if let Some(Thing::Run(place)) = self.things.get_mut(kind).and_then(|of_kind| of_kind.get_mut(id)) {
                    *place = kept;
                }
                follows
            }
            Thing::Data(data) => {
                let follows = data.kept.follow(patch, room);
                data.unsaid += patch.iter().map(weight).sum::<usize>();
                if !data.kept.waits(data.unsaid, room) {
                    data.bring_kept(kind, id, page);
                }
                let opened = data.opened;
                let kept = std::mem::take(&mut data.kept);
                if let Some(content) = kept.content().filter(|_| kind == "action") {
                    self.follow_action(id, opened, content, false);
                }
                if let Some(Thing::Data(data)) = self.things.get_mut(kind).and_then(|of_kind| of_kind.get_mut(id)) {
                    data.kept = kept;
                }
                follows
            }
        };
        self.is_behind |= !follows;
        // A state or status change must not wait for the end: a spinner would keep spinning, a question would stay
        // open.
        let is_turn = |op: &Value| matches!(op["path"].as_str(), Some("/state" | "/status"));
        self.is_urgent |= !follows && matches!(kind, call::KIND | "action") && patch.iter().any(is_turn);
    }

    /// Sends the deferred changes.
    pub fn flush(&mut self) {
        let Self { things, calls, page, .. } = self;
        for (kind, of_kind) in things {
            for (id, thing) in of_kind {
                match thing {
                    Thing::Data(data) if data.unsaid > 0 => data.bring_kept(kind, id, page),
                    _ => {}
                }
            }
        }
        for (id, call) in calls.iter_mut().filter(|(_, call)| call.unsaid > 0) {
            call.bring_kept(id, true, page);
        }
    }

    fn each_text(&mut self, change: impl Fn(&mut Text, &mut Page)) {
        let Self { things, page, .. } = self;
        for thing in things.values_mut().flat_map(BTreeMap::values_mut) {
            match thing {
                Thing::Thought(text) => change(text, page),
                Thing::Message { parts, .. } => {
                    for part in parts {
                        if let Part::Text(text) = part {
                            change(text, page);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Closes every open text.
    pub fn close(&mut self) {
        self.each_text(Text::close);
    }

    /// Marks deferred and missed changes as unsent, because the reader may lack them.
    pub fn doubt(&mut self) {
        let Self { things, calls, is_behind, .. } = self;
        for thing in things.values_mut().flat_map(BTreeMap::values_mut) {
            if let Thing::Data(data) = thing
                && (data.kept.content().is_none() || data.kept.bytes() >= WAITS_FROM)
            {
                *is_behind |= data.kept.content().is_none();
                (data.said, data.unsaid) = (data.said.map(|said| !said), 1);
            }
        }
        for call in calls.values_mut().filter(|call| call.is_told) {
            *is_behind |= call.kept.content().is_none();
            if call.kept.content().is_none() || call.kept.bytes() >= WAITS_FROM {
                call.doubt();
            }
        }
    }

    /// Marks every text as closed: the response that contained them has ended.
    pub fn is_cut(&mut self) {
        self.each_text(|text, _| text.is_cut());
    }
}

impl Data {
    fn bring(&mut self, kind: &str, id: &str, content: &Map<String, Value>, page: &mut Page) {
        self.unsaid = 0;
        let data = data_of(kind, content);
        let print = hash(&data);
        if self.said != Some(print) {
            page.data(kind, id, data.into_owned(), self.said.is_none());
            self.said = Some(print);
        }
    }

    fn bring_kept(&mut self, kind: &str, id: &str, page: &mut Page) {
        let kept = std::mem::take(&mut self.kept);
        if let Some(content) = kept.content() {
            self.bring(kind, id, content, page);
        }
        self.kept = kept;
    }
}

/// Brings the reader's copy of a message part up to date.
fn bring_part(slot: &mut Part, message: &str, teammate: Option<&str>, part: &Value, page: &mut Page) {
    if let Part::Unsaid = slot {
        *slot = match said_as(part) {
            Said::On(channel) => Part::Text(Text::begin(part_id(message, part), channel, teammate, page)),
            Said::Nothing => Part::Silent,
            Said::Data => {
                let print = hash(part);
                page.data(part_kind(part), &part_id(message, part), part.clone(), true);
                Part::Data(print)
            }
        };
    }
    match slot {
        Part::Text(text) => {
            text.bring(&joined(part.get("text")), page);
            text.streams = streams(part);
            text.settle(page);
        }
        Part::Data(said) if *said != hash(part) => {
            *said = hash(part);
            page.data(part_kind(part), &part_id(message, part), part.clone(), false);
        }
        Part::Data(_) | Part::Silent | Part::Unsaid => {}
    }
}

/// Splits a path into members. The members compared here never contain escapes.
fn members(op: &Value) -> Vec<&str> {
    op["path"].as_str().unwrap_or_default().split('/').skip(1).collect()
}

/// Applies a patch to a message. Returns false if the sent state is not enough to apply it.
fn follow_message(id: &str, teammate: Option<&str>, parts: &mut Vec<Part>, patch: &[Value], page: &mut Page) -> bool {
    let mut follows = true;
    let mut changed = BTreeSet::new();
    for op in patch {
        let value = &op["value"];
        match members(op)[..] {
            ["parts", "-"] => {
                let mut part = Part::Unsaid;
                bring_part(&mut part, id, teammate, value, page);
                parts.push(part);
            }
            ["parts", index, ref of_part @ ..] => {
                let index = index.parse().unwrap_or(usize::MAX);
                changed.insert(index);
                follows &= match (parts.get_mut(index), of_part) {
                    (Some(Part::Silent), _) => true,
                    (Some(Part::Text(text)), of_text) if of_text != ["kind"] => {
                        follow_text(text, of_text, value, page);
                        true
                    }
                    _ => false,
                };
            }
            ["parts"] => follows = false,
            _ => {}
        }
    }
    for index in changed {
        if let Some(Part::Text(text)) = parts.get_mut(index) {
            text.settle(page);
        }
    }
    follows
}

/// Applies an operation to a text; `path` is relative to the text.
fn follow_text(text: &mut Text, path: &[&str], value: &Value, page: &mut Page) {
    match path {
        ["text", "-"] => text.grow(value.as_str().unwrap_or_default(), page),
        ["text"] => text.bring(&joined(Some(value)), page),
        ["status"] => text.streams = value == "streaming",
        // Other members do not concern the text.
        _ => {}
    }
}

/// Applies a patch to a call. Returns false if no copy is stored.
fn follow_call(id: &str, call: &mut Call, patch: &[Value], room: &mut Room, page: &mut Page) -> bool {
    let follows = call.kept.follow(patch, room);
    if let [op] = patch
        && op["path"] == "/input_text/-"
        && call.stream(id, op["value"].as_str().unwrap_or_default(), page)
    {
        return follows;
    }
    call.unsaid += patch.iter().map(weight).sum::<usize>();
    let waits = |path: &str| MAY_WAIT.contains(&path) || path.starts_with(CHANNELS);
    let may_wait = patch.iter().all(|op| op["path"].as_str().is_some_and(waits));
    if !may_wait || !call.kept.waits(call.unsaid, room) {
        call.bring_kept(id, true, page);
    }
    follows
}
