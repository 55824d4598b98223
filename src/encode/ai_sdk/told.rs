//! What the reader was told of a run's activities, and how it is told what they come to.
//!
//! Of texts it knows lengths and hashes, of what can only be said as a whole a bounded copy ([`kept`](super::kept)).

use super::call::{self, Ask, Call, Target};
use super::kept::{Kept, Room, WAITS_FROM, joined};
use super::page::{Page, hash, weight};
use super::text::{Channel, Text};
use crate::encode::frames::Shown;
use crate::model::{PartKind, Sequence};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Changes of a call that may wait for others, by their paths.
const MAY_WAIT: &[&str] = &["/output_text/-", "/progress", "/loaded", "/total", "/message"];
/// The same of what it puts out beside its standard output.
const CHANNELS: &str = "/output_channels/";

/// What a message's part is to the reader.
#[derive(Debug, Default)]
enum Part {
    /// It was not there yet.
    #[default]
    Unsaid,
    Text(Text),
    /// A data part, by the hash of what was said.
    Data(u64),
    /// Nothing: it is told elsewhere.
    Silent,
}

/// What an activity is to the reader.
#[derive(Debug)]
enum Thing {
    /// What the assistant or a teammate says, part by part.
    Message {
        teammate: Option<Box<str>>,
        parts: Vec<Part>,
    },
    Thought(Text),
    /// See [`Told::calls`].
    Call,
    Data(Data),
    Run(Kept),
    /// The client's own words, which it has.
    Silent,
}

/// An activity that is a data part.
#[derive(Debug, Default)]
struct Data {
    opened: Sequence,
    kept: Kept,
    said: Option<u64>,
    /// Bytes of changes that were not said yet.
    unsaid: usize,
}

/// The reader's message.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub page: Page,
    /// By type and id.
    things: BTreeMap<Box<str>, BTreeMap<Box<str>, Thing>>,
    /// By the call's id: of activities, and of actions about calls that are yet to come.
    calls: BTreeMap<Box<str>, Call>,
    room: Room,
    /// Whether something changed that could not be followed.
    pub is_behind: bool,
    /// Whether it should be made good at once.
    pub is_urgent: bool,
    /// Actions that wait for somebody.
    pub pending: BTreeSet<Box<str>>,
    /// Actions that are about calls, and which.
    asked: BTreeMap<Box<str>, Box<str>>,
    /// How the run stands.
    pub status: Box<str>,
    /// What the message's metadata say.
    metadata: Map<String, Value>,
}

/// A part of the reader's message, in its place.
pub(super) enum Piece<'s> {
    /// A part of a message, by its index.
    Part(&'s Shown, usize),
    Whole(&'s Shown),
    /// What is reported of a call, from then on.
    Report(&'s Shown),
}

/// What is shown, piece by piece, in the order in which it appeared.
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
    // Stable: what appeared at once stays as it came.
    pieces.sort_by_key(|(opened, _)| *opened);
    pieces.into_iter().map(|(_, piece)| piece).collect()
}

/// A message's parts; `None` of anything else.
pub(super) fn parts(shown: &Shown) -> Option<&Vec<Value>> {
    shown.content.get("parts").and_then(Value::as_array).filter(|_| &*shown.kind == "message")
}

/// Whether a message is part of what the run answers. What users and systems say the client has.
pub(super) fn is_answer(message: &Shown) -> bool {
    !matches!(message.text("role"), Some("user" | "system" | "developer"))
}

/// The agent that a message or a thought is of, where it is not the run's own: it stands before the id.
pub(super) fn teammate(shown: &Shown) -> Option<&str> {
    let agent = shown.agent.as_deref().or_else(|| shown.text("agentId"))?;
    shown.id.strip_prefix(agent)?.starts_with('/').then_some(agent)
}

/// What a message's part is said as.
pub(super) enum Said {
    On(Channel),
    Data,
    /// A call is told as a call.
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

/// The id of a message's part among the stream's.
pub(super) fn part_id(message: &str, part: &Value) -> String {
    format!("{message}/{}", part.get("partId").and_then(Value::as_str).unwrap_or_default())
}

/// The name of a part's own kind.
pub(super) fn part_kind(part: &Value) -> &str {
    part.get("kind").and_then(Value::as_str).filter(|kind| !kind.is_empty()).unwrap_or("part")
}

pub(super) fn streams(content: &Value) -> bool {
    content.get("status").and_then(Value::as_str) == Some("streaming")
}

/// What a data part says of an activity: its content. The state is itself, and texts of ours are texts.
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

/// What a message's metadata say of the run.
pub(super) fn metadata_of(run: &str, content: &Map<String, Value>) -> Map<String, Value> {
    let mut metadata = Map::from_iter([("runId".to_owned(), run.into())]);
    for member in ["sessionId", "threadId", "usage", "notices", "result"] {
        metadata.extend(content.get(member).map(|value| (member.to_owned(), value.clone())));
    }
    metadata
}

/// Whether this is the activity of the run itself.
pub(super) fn is_run(shown: &Shown) -> bool {
    &*shown.kind == "run" && shown.text("status").is_some()
}

impl Told {
    pub fn new(version: u8) -> Self {
        Self { page: Page::new(version), ..Self::default() }
    }

    /// Forgets all, as the reader does.
    pub fn forget(&mut self) {
        let page = std::mem::take(&mut self.page);
        *self = Self { page: Page { chunks: page.chunks, ..Page::new(page.version) }, ..Self::default() };
    }

    /// Whether nothing was told of any activity.
    pub fn is_empty(&self) -> bool {
        self.things.is_empty()
    }

    /// Brings the reader to what is shown.
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

    /// Looks up what is asked about calls that are shown, so that each is told once.
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
            // What was asked before there was a call is told in its place.
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

    /// A message's entry, made if it was not there.
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

    /// Forgets the copies of calls that have ended, where there is little room for others.
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

    /// Why the run failed, as far as it said.
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
            // Two activities by one name, of which a source made one.
            return;
        };
        let is_new = data.said.is_none();
        data.kept.keep(shown.content.clone(), room);
        data.bring(&shown.kind, &shown.id, &shown.content, page);
        if &*shown.kind == "action" {
            self.follow_action(&shown.id, shown.opened, &shown.content, is_new);
        }
    }

    /// What an action comes to beside its data part: somebody is waited for, and a call's part asks.
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
        // The call's part may stand with the question, from when that was first asked.
        self.page.is_spoilt |= !is_new && !was_asked && self.page.can_retract();
        match &call.ask {
            Some(known) if *known == ask => return,
            // Another question was asked since.
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

    /// An action is not about the call any more that it was about: the call's part does not ask.
    fn take_back(&mut self, action: &str) {
        let Some(call_id) = self.asked.remove(action) else { return };
        let Some(call) = self.calls.get_mut(&call_id) else { return };
        if call.ask.as_ref().is_some_and(|ask| *ask.action == *action) {
            // What was said of it stays in the part, where the client cannot be made to forget.
            self.page.is_spoilt |= self.page.can_retract();
            call.ask.as_mut().expect("just seen").is_void();
            call.bring_kept(&call_id, false, &mut self.page);
        }
    }

    /// Follows a delta.
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
                let call = calls.get_mut(id).expect("a call that was told is among the calls");
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
                    // Whatever else it says, this decides how the stream goes on.
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
        // A spinner that nobody stops, or a question that nobody takes away, is not to wait for the end.
        let is_turn = |op: &Value| matches!(op["path"].as_str(), Some("/state" | "/status"));
        self.is_urgent |= !follows && matches!(kind, call::KIND | "action") && patch.iter().any(is_turn);
    }

    /// Says what waited for further changes.
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

    /// Closes every text that is open.
    pub fn close(&mut self) {
        self.each_text(Text::close);
    }

    /// The reader may not have what waited for further changes, or could not be followed: it is said again.
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

    /// Every text of the reader is closed: the answer that it was in has ended.
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

/// Brings the reader's part to a message's.
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

/// A path's members. None of those that matter here is ever escaped.
fn members(op: &Value) -> Vec<&str> {
    op["path"].as_str().unwrap_or_default().split('/').skip(1).collect()
}

/// Follows what was done to a message; false where that takes more than is known here.
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

/// Follows what was done to a text, by the members that its path names.
fn follow_text(text: &mut Text, path: &[&str], value: &Value, page: &mut Page) {
    match path {
        ["text", "-"] => text.grow(value.as_str().unwrap_or_default(), page),
        ["text"] => text.bring(&joined(Some(value)), page),
        ["status"] => text.streams = value == "streaming",
        // What says nothing of the text itself.
        _ => {}
    }
}

/// Follows what was done to a call; false where there is no copy of it any more.
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
