//! What activities come to: AG-UI messages, each with its id and its place among the others.
//!
//! Their order is that in which a live stream begins them, so it goes by the envelope with which a thing first appeared: a part
//! of a message, a call, a call's first report. A client appends whatever begins, puts a result right after its call, and never
//! moves anything; the same order is made here out of the activities alone.

use super::call::{self, Answer, Kept, Scan};
use super::events::{self, Attribution};
use super::run::own_agent;
use crate::encode::frames::Shown;
use crate::source::SOURCES;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};

/// The type of the activity that shows a part of a message which AG-UI has no words for: a file, a source.
const PART: &str = "message-part";
/// Kinds of activities that are of no use to a client's user: what the run is said by, and what operators read.
const UNSHOWN: &[&str] = &["run", "state", "metrics", "diagnostics", "session"];

/// Of what a message is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// A message's first text, or that of a further part.
    Text(Box<str>, Option<Box<str>>),
    /// Another part of a message.
    Part(Box<str>, Box<str>),
    Reasoning(Box<str>),
    /// The message that holds the call.
    Call(Box<str>),
    Result(Box<str>),
    Progress(Box<str>),
    Activity(Box<str>, Box<str>),
}

impl Key {
    /// The message's id, unless another message has it.
    fn name(&self, run: Option<&str>) -> String {
        let of = |named: &str, id: &str| match run.filter(|_| is_made_up(named)) {
            Some(run) => format!("{run}/{id}"),
            None => id.to_owned(),
        };
        let own = |id: &str| of(id, id);
        // Of a thought it is the message that may have no name of its own.
        let thought = |id: &str| of(id.rsplit_once('/').map_or(id, |(message, _)| message), id);
        match self {
            Self::Text(message, None) => own(message),
            Self::Text(message, Some(part)) => format!("{}/{part}", own(message)),
            Self::Part(message, part) => format!("part:{}/{part}", own(message)),
            Self::Reasoning(id) => format!("reasoning:{}", thought(id)),
            Self::Call(id) => own(id),
            Self::Result(id) => format!("result:{}", own(id)),
            Self::Progress(id) => format!("progress:{}", own(id)),
            Self::Activity(kind, id) if &**kind == "plan" => format!("{kind}:{}", thought(id)),
            Self::Activity(kind, id) => format!("{kind}:{}", own(id)),
        }
    }
}

/// Whether an adapter made the id up: then another run of the same thread may have it, too.
fn is_made_up(id: &str) -> bool {
    let is_named =
        |part: &str| SOURCES.iter().any(|source| part.strip_prefix(source.name).is_some_and(|rest| rest.starts_with('-')));
    id.split('/').any(is_named)
}

/// Where a message stands: the run in its thread, the envelope, the activity, and the order within that.
pub(super) type Order = (u32, u64, u32, u32);

/// One message, as far as it has come.
#[derive(Debug)]
pub(super) struct Item {
    pub key: Key,
    pub order: Order,
    /// Whether it repeats history: what is known of the same thing otherwise holds.
    pub is_history: bool,
    /// The run that it is of.
    pub run: Option<Box<str>>,
    /// The teammate that it is of.
    pub agent: Option<Box<str>>,
    pub body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    Text { role: &'static str, text: String, is_live: bool },
    Reasoning { text: String, is_live: bool },
    Call { id: Box<str>, name: String, arguments: String, scan: Scan, is_live: bool, kept: Kept },
    Result { call: Box<str>, answer: Answer, id: Option<Box<str>> },
    Activity { kind: Box<str>, content: Map<String, Value> },
}

impl Item {
    /// Whether more may come of it.
    pub fn is_live(&self) -> bool {
        match &self.body {
            Body::Text { is_live, .. } | Body::Reasoning { is_live, .. } | Body::Call { is_live, .. } => *is_live,
            Body::Result { .. } | Body::Activity { .. } => false,
        }
    }
}

/// What a part of a message is in AG-UI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartOf {
    Text,
    Reasoning,
    /// A call that history tells of.
    Call,
    Result,
    Other,
}

impl PartOf {
    /// What a part is, by its kind and by who speaks.
    pub fn of(part: &Map<String, Value>, role: &str) -> Self {
        let is = |member: &str| part.get(member).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        match part.get("kind").and_then(Value::as_str).unwrap_or_default() {
            kind if kind.ends_with("_text") => Self::Text,
            // A prompt that is in no transcript is of one of these all the same.
            "diagnostic" if matches!(role, "system" | "developer") => Self::Text,
            kind if kind.starts_with("reasoning") => Self::Reasoning,
            "tool_call" if is("toolCallId") => Self::Call,
            "tool_result" if is("toolCallId") => Self::Result,
            _ => Self::Other,
        }
    }
}

/// AG-UI's name of a role.
pub(super) fn role(of: &str) -> &'static str {
    match of {
        "developer" => "developer",
        "system" => "system",
        "user" => "user",
        _ => "assistant",
    }
}

/// The key of a part of a message. `is_first` says of a text that no text stands before it.
pub(super) fn part_key(message: &str, part: &Map<String, Value>, of: PartOf, is_first: bool) -> Key {
    let text = |member: &str| part.get(member).and_then(Value::as_str).unwrap_or_default().into();
    match of {
        PartOf::Text => Key::Text(message.into(), (!is_first).then(|| text("partId"))),
        PartOf::Reasoning => Key::Reasoning(format!("{message}/{}", text("partId")).into()),
        PartOf::Call => Key::Call(text("toolCallId")),
        PartOf::Result => Key::Result(text("toolCallId")),
        PartOf::Other => Key::Part(message.into(), text("partId")),
    }
}

/// Whether an activity is a message of ours, and none that a source calls so.
pub(super) fn is_message(shown: &Shown) -> bool {
    &*shown.kind == "message" && shown.content.get("parts").is_some_and(Value::is_array) && shown.text("role").is_some()
}

/// Whether a client is shown activities of this kind as such.
pub(super) fn is_shown(kind: &str) -> bool {
    !UNSHOWN.contains(&kind)
}

/// The teammate that an activity is of, if it is not of the run's own agent.
pub(super) fn teammate(shown: &Shown, own: Option<&str>) -> Option<Box<str>> {
    let agent = shown.agent.as_deref()?;
    let is_own = match &*shown.kind {
        // A card on the roster is the lead's.
        "agent" => true,
        "message" | "reasoning" | "plan" => !shown.id.strip_prefix(agent).is_some_and(|rest| rest.starts_with('/')),
        _ => own == Some(agent),
    };
    (!is_own).then(|| agent.into())
}

/// The messages that an activity comes to. `place` is its place among the activities of run number `run`.
pub(super) fn items(shown: &Shown, own: Option<&str>, run: u32, place: u32) -> Vec<Item> {
    let mut items = Vec::new();
    let agent = teammate(shown, own);
    let mut add = |key: Key, opened: u64, sub: usize, body: Body| {
        let order = (run, opened, place, u32::try_from(sub).unwrap_or(u32::MAX));
        let is_history = matches!(body, Body::Call { .. } | Body::Result { .. }) && &*shown.kind == "message";
        items.push(Item { key, order, is_history, run: shown.run.clone(), agent: agent.clone(), body });
    };
    let opened = shown.opened.0;
    match &*shown.kind {
        "message" if is_message(shown) => {
            let mut is_first = true;
            let parts = shown.content["parts"].as_array().into_iter().flatten().filter_map(Value::as_object);
            for (sub, part) in parts.enumerate() {
                let of = PartOf::of(part, shown.text("role").unwrap_or_default());
                let key = part_key(&shown.id, part, of, is_first);
                is_first &= of != PartOf::Text;
                let opened = part.get("opened").and_then(Value::as_u64).unwrap_or(opened);
                add(key, opened, sub, part_body(&shown.id, shown.text("role").unwrap_or_default(), part, of));
            }
        }
        "reasoning" if shown.content.contains_key("status") => {
            let (text, is_live) = (joined(shown.content.get("text")), is_streaming(&shown.content));
            add(Key::Reasoning(shown.id.clone()), opened, 0, Body::Reasoning { text, is_live });
        }
        "tool-call-progress" if shown.content.contains_key("call_id") => {
            let content = &shown.content;
            let (arguments, scan) = call::arguments(content);
            let (name, is_live, kept) = (call::name(content).to_owned(), call::is_live(content), Kept::of(content));
            let id = &shown.id;
            add(Key::Call(id.clone()), opened, 0, Body::Call { id: id.clone(), name, arguments, scan, is_live, kept });
            if let Ok(Some(answer)) = call::answer(|member| Ok(content.get(member))) {
                add(Key::Result(id.clone()), opened, 1, Body::Result { call: id.clone(), answer, id: None });
            }
            if let Some(reported) = content.get("reported").and_then(Value::as_u64) {
                let body = Body::Activity { kind: shown.kind.clone(), content: call::report(content) };
                add(Key::Progress(id.clone()), reported, 2, body);
            }
        }
        kind if is_shown(kind) => {
            let body = Body::Activity { kind: shown.kind.clone(), content: shown.content.clone() };
            add(Key::Activity(shown.kind.clone(), shown.id.clone()), opened, 0, body);
        }
        _ => {}
    }
    items
}

/// What a part of a message says.
pub(super) fn part_body(message: &str, role: &str, part: &Map<String, Value>, of: PartOf) -> Body {
    let role = self::role(role);
    let call = || part.get("toolCallId").and_then(Value::as_str).unwrap_or_default().into();
    match of {
        PartOf::Text => Body::Text { role, text: joined(part.get("text")), is_live: is_streaming(part) },
        PartOf::Reasoning => Body::Reasoning { text: joined(part.get("text")), is_live: is_streaming(part) },
        PartOf::Call => {
            let mut content = Map::new();
            for (member, ours) in [("toolName", "tool_name"), ("input", "input")] {
                content.extend(part.get(member).map(|value| (ours.to_owned(), value.clone())));
            }
            content.extend(part.get("inputText").map(|text| ("input_text".to_owned(), json!([text]))));
            let (arguments, scan) = call::arguments(&content);
            let name = call::name(&content).to_owned();
            Body::Call { id: call(), name, arguments, scan, is_live: false, kept: Kept::of(&content) }
        }
        PartOf::Result => {
            let answer = Answer { content: joined(part.get("text")), told: Map::new() };
            Body::Result { call: call(), answer, id: Some(message.into()) }
        }
        PartOf::Other => Body::Activity { kind: PART.into(), content: part.clone() },
    }
}

/// A text's chunks, joined.
pub(super) fn joined(text: Option<&Value>) -> String {
    call::chunks(text).collect()
}

fn is_streaming(of: &Map<String, Value>) -> bool {
    of.get("status").and_then(Value::as_str) == Some("streaming")
}

/// Messages' ids: each once.
#[derive(Debug, Default)]
pub(super) struct Names(HashSet<Box<str>>);

impl Names {
    /// Takes an id, if nobody has it.
    pub fn take(&mut self, id: &str) -> bool {
        self.0.insert(id.into())
    }

    /// The id of a message that begins.
    pub fn claim(&mut self, key: &Key, run: Option<&str>) -> Box<str> {
        let name = key.name(run);
        let mut id: Box<str> = name.as_str().into();
        let mut n = 2;
        while !self.0.insert(id.clone()) {
            id = format!("{name}~{n}").into();
            n += 1;
        }
        id
    }
}

/// A message with its id.
#[derive(Debug)]
pub(super) struct Entry {
    pub id: Box<str>,
    pub item: Item,
    /// Whether it is of the run that is being told, and not of an earlier one.
    pub is_current: bool,
    /// The result of a call, which stands right after it.
    pub result: Option<Box<Entry>>,
}

impl Entry {
    /// It as AG-UI has it.
    pub fn message(&self, attribution: Attribution) -> Value {
        events::message(&self.id, &self.item, attribution)
    }

    /// Whether more is to come of it: then no window leaves it out.
    pub fn is_open(&self) -> bool {
        match &self.item.body {
            Body::Text { .. } | Body::Reasoning { .. } => self.item.is_live(),
            Body::Call { .. } => self.is_current && self.result.is_none(),
            Body::Result { .. } => false,
            Body::Activity { content, .. } => self.is_current && content.get("status").and_then(Value::as_str) == Some("pending"),
        }
    }
}

/// All messages that activities come to, in order: those of earlier runs, one run after the other, and those of the run at
/// hand. A thing that several runs tell of stands where it first appeared, as the last of them tells it.
pub(super) fn entries(earlier: &[Shown], shown: &[Shown], names: &mut Names) -> Vec<Entry> {
    let (mut items, mut number) = (Vec::new(), 0);
    let mut rest = earlier;
    while let Some(first) = rest.first() {
        let count = rest.iter().take_while(|shown| shown.run == first.run).count();
        let (run, after) = rest.split_at(count);
        items.extend(of_run(run, number));
        (rest, number) = (after, number + 1);
    }
    items.extend(of_run(shown, number));
    items.sort_by_key(|item| item.order);
    let mut list = List { entries: Vec::with_capacity(items.len()), places: HashMap::with_capacity(items.len()) };
    for item in items {
        let is_current = item.order.0 == number;
        list.enter(item, is_current, names);
    }
    list.entries
}

fn of_run(run: &[Shown], number: u32) -> impl Iterator<Item = Item> {
    let own = own_agent(run);
    (0..).zip(run).flat_map(move |(place, shown)| items(shown, own, number, place))
}

/// Messages, and where they are: a result's place is its call's, where that is known.
struct List {
    entries: Vec<Entry>,
    places: HashMap<Key, usize>,
}

impl List {
    fn enter(&mut self, item: Item, is_current: bool, names: &mut Names) {
        if let Some(at) = self.places.get(&item.key).copied() {
            if !item.is_history {
                self.renew(at, item, is_current);
            }
            return;
        }
        let given = match &item.body {
            Body::Result { id: Some(id), .. } => names.take(id).then(|| id.clone()),
            _ => None,
        };
        let id = given.unwrap_or_else(|| names.claim(&item.key, item.run.as_deref()));
        let owner = match &item.key {
            Key::Result(call) => self.places.get(&Key::Call(call.clone())).copied(),
            _ => None,
        };
        self.places.insert(item.key.clone(), owner.unwrap_or(self.entries.len()));
        let entry = Entry { id, item, is_current, result: None };
        match owner {
            Some(at) => self.entries[at].result = Some(Box::new(entry)),
            None => self.entries.push(entry),
        }
    }

    /// What is known is told once more.
    fn renew(&mut self, at: usize, item: Item, is_current: bool) {
        let entry = &mut self.entries[at];
        let entry = match (&item.key, &mut entry.result) {
            (Key::Result(_), Some(result)) => &mut **result,
            (Key::Call(call), Some(result)) if result.item.order.0 < item.order.0 && !result.item.is_history => {
                // It was made again, and has no result so far.
                self.places.remove(&Key::Result(call.clone()));
                entry.result = None;
                entry
            }
            _ => entry,
        };
        entry.is_current = is_current;
        entry.item = Item { order: entry.item.order, agent: entry.item.agent.take(), ..item };
    }
}
