//! Builds AG-UI messages from activities, each with its id and its position.
//!
//! The order is the one in which a live stream begins the messages. It follows the envelope in which a thing first
//! appeared: a part of a message, a call, a call's first report. A client appends each new message, puts a result right
//! after its call, and never moves a message; this module derives the same order from the activities alone.

use super::attribution::{own_agent, teammate};
use super::call::{self, CallResult, JsonCompactor, KnownCall};
use crate::call_members::progress;
use crate::cow_map::CowMap;
use crate::frames::ActivityView;
use proscenium_model::Sequence;
use proscenium_projection::members::{ACTION_STATUS, ActionStatus, PARTS, TEXT, TOOL_CALL_ID, TextStatus, TypedContent};
use proscenium_projection::message::{self, part};
use proscenium_projection::tool_call::{self, INPUT, INPUT_TEXT, TOOL_NAME};
use proscenium_projection::{run, state, surface, thought};
use proscenium_sources::SOURCES;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// The type of the activity for a message part that AG-UI cannot express: a file, a source.
const PART_ACTIVITY_TYPE: &str = "message-part";
/// Activity kinds that clients do not show.
///
/// Other events carry the run's state, and the rest is for operators.
const HIDDEN_KINDS: &[&str] = &[run::KIND, state::KIND, "metrics", "diagnostics", "session"];

/// The identity of a message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum MessageKey {
    /// The first text of a message, or the text of a further part.
    Text(Box<str>, Option<Box<str>>),
    /// A part of a message that is not text.
    Part(Box<str>, Box<str>),
    Reasoning(Box<str>),
    /// The message that contains the call.
    Call(Box<str>),
    Result(Box<str>),
    Progress(Box<str>),
    Activity(Box<str>, Box<str>),
}

impl MessageKey {
    /// The message's id, before deduplication.
    fn name(&self, run: Option<&str>) -> String {
        let own = |id: &str| run.map_or_else(|| id.to_owned(), |run| scoped(id, run));
        match self {
            Self::Text(message, None) => own(message),
            Self::Text(message, Some(part)) => format!("{}/{part}", own(message)),
            Self::Part(message, part) => format!("part:{}/{part}", own(message)),
            Self::Reasoning(id) => format!("reasoning:{}", run.map_or_else(|| id.to_string(), |run| scoped_thought(id, run))),
            Self::Call(id) => own(id),
            Self::Result(id) => format!("result:{}", own(id)),
            Self::Progress(id) => format!("progress:{}", own(id)),
            Self::Activity(kind, id) if &**kind == "plan" => {
                format!("{kind}:{}", run.map_or_else(|| id.to_string(), |run| scoped_thought(id, run)))
            }
            // An agent names its surfaces for the whole thread.
            Self::Activity(kind, id) if &**kind == surface::KIND => format!("{}{id}", surface::MESSAGE_PREFIX),
            Self::Activity(kind, id) => format!("{kind}:{}", own(id)),
        }
    }

    /// The key of a message of an earlier run: there, a generated id names another message than in the current run.
    ///
    /// Calls keep theirs, under which clients know them.
    fn of_earlier(self, run: &str) -> Self {
        match self {
            Self::Text(message, part) => Self::Text(scoped(&message, run).into(), part),
            Self::Part(message, part) => Self::Part(scoped(&message, run).into(), part),
            Self::Reasoning(id) => Self::Reasoning(scoped_thought(&id, run).into()),
            Self::Activity(kind, id) if &*kind == "plan" => Self::Activity(kind, scoped_thought(&id, run).into()),
            Self::Activity(kind, id) if &*kind != surface::KIND => Self::Activity(kind, scoped(&id, run).into()),
            Self::Activity(..) | Self::Call(_) | Self::Result(_) | Self::Progress(_) => self,
        }
    }
}

/// The id with its run, if an adapter generated it.
fn scoped(id: &str, run: &str) -> String {
    scoped_by(id, id, run)
}

/// The same for a thought, whose id starts with its message: the message's id may be generated.
fn scoped_thought(id: &str, run: &str) -> String {
    scoped_by(id, id.rsplit_once('/').map_or(id, |(message, _)| message), run)
}

fn scoped_by(id: &str, named: &str, run: &str) -> String {
    let is_scoped = id.strip_prefix(run).is_some_and(|rest| rest.starts_with('/'));
    if is_generated(named) && !is_scoped { format!("{run}/{id}") } else { id.to_owned() }
}

/// Whether an adapter generated the id: then another run of the same thread may have the same one.
fn is_generated(id: &str) -> bool {
    let is_named =
        |part: &str| SOURCES.iter().any(|source| part.strip_prefix(source.name).is_some_and(|rest| rest.starts_with('-')));
    id.split('/').any(is_named)
}

/// The position of a message: run in thread, envelope, activity, order within the activity.
pub(super) type SortKey = (u32, u64, u32, u32);

/// One message in its current state.
#[derive(Debug)]
pub(super) struct Item {
    pub key: MessageKey,
    pub order: SortKey,
    /// Whether it repeats history: an item from the call's own activity takes precedence.
    pub is_history: bool,
    /// The run of the message.
    pub run: Option<Box<str>>,
    /// The teammate that wrote it; `None` for the run's own agent.
    pub agent: Option<Box<str>>,
    pub body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    Text {
        role: &'static str,
        text: String,
        is_live: bool,
        /// Content parts beside the text.
        files: Vec<Value>,
    },
    Reasoning {
        text: String,
        is_live: bool,
    },
    Call {
        id: Box<str>,
        name: String,
        arguments: String,
        compactor: JsonCompactor,
        is_live: bool,
        call_state: KnownCall,
    },
    Result {
        call: Box<str>,
        result: CallResult,
        id: Option<Box<str>>,
    },
    Activity {
        kind: Box<str>,
        /// As the fold has it. A surface is shown in another form.
        content: Map<String, Value>,
    },
}

impl Item {
    /// Whether it may still grow.
    pub fn is_live(&self) -> bool {
        match &self.body {
            Body::Text { is_live, .. } | Body::Reasoning { is_live, .. } | Body::Call { is_live, .. } => *is_live,
            Body::Result { .. } | Body::Activity { .. } => false,
        }
    }
}

/// The AG-UI form of a message part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartKind {
    Text,
    Reasoning,
    /// A call in the history.
    Call,
    Result,
    Other,
}

impl PartKind {
    /// Determines the form from the part's kind and the message's role.
    pub fn of(part: &Map<String, Value>, role: &str) -> Self {
        let has_call = || part.read(TOOL_CALL_ID).is_some_and(|id| !id.is_empty());
        match part.read(part::KIND).unwrap_or_default() {
            kind if kind.ends_with("_text") => Self::Text,
            // A prompt outside the transcript has one of these roles and is still text.
            "diagnostic" if matches!(role, "system" | "developer") => Self::Text,
            kind if kind.starts_with("reasoning") => Self::Reasoning,
            "tool_call" if has_call() => Self::Call,
            "tool_result" if has_call() => Self::Result,
            _ => Self::Other,
        }
    }
}

/// The AG-UI name of a role.
pub(super) fn role(of: &str) -> &'static str {
    match of {
        "developer" => "developer",
        "system" => "system",
        "user" => "user",
        _ => "assistant",
    }
}

/// The key of a message part. `is_first` states that no text precedes this one.
pub(super) fn part_key(message: &str, part: &Map<String, Value>, of: PartKind, is_first: bool) -> MessageKey {
    let id = part.read(part::ID).unwrap_or_default();
    match of {
        PartKind::Text => MessageKey::Text(message.into(), (!is_first).then(|| id.into())),
        PartKind::Reasoning => MessageKey::Reasoning(format!("{message}/{id}").into()),
        PartKind::Call => MessageKey::Call(call_of(part)),
        PartKind::Result => MessageKey::Result(call_of(part)),
        PartKind::Other => MessageKey::Part(message.into(), id.into()),
    }
}

/// The call of a message part.
fn call_of(part: &Map<String, Value>) -> Box<str> {
    part.read(TOOL_CALL_ID).unwrap_or_default().into()
}

/// Whether an activity is a message of our schema, not a source's own activity of the same kind.
pub(super) fn is_message(activity: &ActivityView) -> bool {
    &*activity.kind == message::KIND && activity.content.read(PARTS).is_some() && activity.content.read(message::ROLE).is_some()
}

/// Whether clients show activities of this kind as they are.
pub(super) fn is_shown(kind: &str) -> bool {
    !HIDDEN_KINDS.contains(&kind)
}

/// The messages of an activity. `place` is its position among the activities of run number `run`.
pub(super) fn items(activity: &ActivityView, own: Option<&str>, run: u32, place: u32) -> Vec<Item> {
    let mut items = Vec::new();
    let agent = teammate(activity, own);
    let mut add = |key: MessageKey, opened: u64, sub: usize, body: Body| {
        let order = (run, opened, place, u32::try_from(sub).unwrap_or(u32::MAX));
        let is_history = matches!(body, Body::Call { .. } | Body::Result { .. }) && &*activity.kind == message::KIND;
        items.push(Item { key, order, is_history, run: activity.run.clone(), agent: agent.clone(), body });
    };
    let opened = activity.opened.0;
    match &*activity.kind {
        message::KIND if is_message(activity) => {
            let (mut is_first, role) = (true, activity.content.read(message::ROLE).unwrap_or_default());
            for (sub, part) in parts(&activity.content).enumerate() {
                let of = PartKind::of(part, role);
                let key = part_key(&activity.id, part, of, is_first);
                let opened = part.read(part::OPENED).unwrap_or(activity.opened).0;
                let mut body = part_body(&activity.id, role, part, of);
                if let Body::Text { files, .. } = &mut body
                    && std::mem::take(&mut is_first)
                {
                    *files = crate::files::files(&activity.content);
                }
                add(key, opened, sub, body);
            }
        }
        "reasoning" if activity.content.has(thought::STATUS) => {
            let (text, is_live) = (joined(activity.content.get(TEXT.name())), is_streaming(&activity.content));
            add(MessageKey::Reasoning(activity.id.clone()), opened, 0, Body::Reasoning { text, is_live });
        }
        tool_call::KIND if activity.content.has(tool_call::CALL_ID) => {
            let content = &activity.content;
            let (arguments, compactor) = call::arguments(content);
            let (name, is_live, call_state) = (call::name(content).to_owned(), call::is_live(content), KnownCall::of(content));
            let id = &activity.id;
            add(
                MessageKey::Call(id.clone()),
                opened,
                0,
                Body::Call { id: id.clone(), name, arguments, compactor, is_live, call_state },
            );
            if let Ok(Some(result)) = call::result_of(|member| Ok(content.get(member))) {
                add(MessageKey::Result(id.clone()), opened, 1, Body::Result { call: id.clone(), result, id: None });
            }
            if let Some(Sequence(reported)) = content.read(tool_call::REPORTED) {
                let body = Body::Activity { kind: activity.kind.clone(), content: progress(content) };
                add(MessageKey::Progress(id.clone()), reported, 2, body);
            }
        }
        kind if is_shown(kind) => {
            let body = Body::Activity { kind: activity.kind.clone(), content: Map::clone(&activity.content) };
            add(MessageKey::Activity(activity.kind.clone(), activity.id.clone()), opened, 0, body);
        }
        _ => {}
    }
    items
}

/// The parts of a message.
pub(super) fn parts(content: &Map<String, Value>) -> impl Iterator<Item = &Map<String, Value>> {
    content.read(PARTS).into_iter().flatten().filter_map(Value::as_object)
}

/// The body of a message part.
pub(super) fn part_body(message: &str, role: &str, part: &Map<String, Value>, of: PartKind) -> Body {
    let role = self::role(role);
    let text = || joined(part.get(TEXT.name()));
    match of {
        PartKind::Text => Body::Text { role, text: text(), is_live: is_streaming(part), files: Vec::new() },
        PartKind::Reasoning => Body::Reasoning { text: text(), is_live: is_streaming(part) },
        PartKind::Call => {
            let mut content = Map::new();
            for (member, ours) in [("toolName", TOOL_NAME.name()), ("input", INPUT.name())] {
                content.extend(part.get(member).map(|value| (ours.to_owned(), value.clone())));
            }
            content.extend(part.get("inputText").map(|text| (INPUT_TEXT.name().to_owned(), json!([text]))));
            let (arguments, compactor) = call::arguments(&content);
            let name = call::name(&content).to_owned();
            Body::Call { id: call_of(part), name, arguments, compactor, is_live: false, call_state: KnownCall::of(&content) }
        }
        PartKind::Result => {
            let result = CallResult { content: text(), metadata: Map::new() };
            Body::Result { call: call_of(part), result, id: Some(message.into()) }
        }
        PartKind::Other => Body::Activity { kind: PART_ACTIVITY_TYPE.into(), content: part.clone() },
    }
}

/// Joins a text's chunks.
pub(super) fn joined(text: Option<&Value>) -> String {
    call::chunks(text).collect()
}

fn is_streaming(of: &Map<String, Value>) -> bool {
    of.read(part::STATUS) == Some(TextStatus::Streaming)
}

/// The assigned message ids; each occurs once.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct MessageIds(CowMap<Box<str>, ()>);

impl MessageIds {
    /// Reserves an id. Returns false if it is taken.
    pub fn reserve(&mut self, id: &str) -> bool {
        self.0.insert(id.into(), ()).is_none()
    }

    /// Assigns an id to a new message.
    pub fn assign(&mut self, key: &MessageKey, run: Option<&str>) -> Box<str> {
        let name = key.name(run);
        let mut id: Box<str> = name.as_str().into();
        let mut n = 2;
        while self.0.insert(id.clone(), ()).is_some() {
            id = format!("{name}~{n}").into();
            n += 1;
        }
        id
    }
}

/// A message with its assigned id.
#[derive(Debug)]
pub(super) struct Entry {
    pub id: Box<str>,
    pub item: Item,
    /// Whether it belongs to the streamed run, not to an earlier one.
    pub is_current: bool,
    /// The result of a call, which follows it directly.
    pub result: Option<Box<Entry>>,
}

impl Entry {
    /// Whether the message is unfinished: then no window omits it.
    pub fn is_open(&self) -> bool {
        match &self.item.body {
            Body::Text { .. } | Body::Reasoning { .. } => self.item.is_live(),
            Body::Call { .. } => self.is_current && self.result.is_none(),
            Body::Result { .. } => false,
            Body::Activity { content, .. } => self.is_current && content.read(ACTION_STATUS) == Some(ActionStatus::Pending),
        }
    }
}

/// All messages of the activities, in order: run by run, with this run last.
///
/// A message that several runs contain stands where it first appeared, with the content of its last run.
pub(super) fn entries(earlier: &[ActivityView], activities: &[ActivityView], names: &mut MessageIds) -> Vec<Entry> {
    let (mut items, mut number) = (Vec::new(), 0);
    let mut rest = earlier;
    while let Some(first) = rest.first() {
        let count = rest.iter().take_while(|activity| activity.run == first.run).count();
        let (run, after) = rest.split_at(count);
        items.extend(of_run(run, number).map(|mut item| {
            if let Some(run) = &item.run {
                item.key = item.key.of_earlier(run);
            }
            item
        }));
        (rest, number) = (after, number + 1);
    }
    items.extend(of_run(activities, number));
    items.sort_by_key(|item| item.order);
    let mut list = EntryList { entries: Vec::with_capacity(items.len()), places: HashMap::with_capacity(items.len()) };
    for item in items {
        let is_current = item.order.0 == number;
        list.insert(item, is_current, names);
    }
    list.entries
}

fn of_run(run: &[ActivityView], number: u32) -> impl Iterator<Item = Item> {
    let own = own_agent(run);
    (0..).zip(run).flat_map(move |(place, activity)| items(activity, own, number, place))
}

/// Messages and their positions: a result has its call's position, where the call is known.
struct EntryList {
    entries: Vec<Entry>,
    places: HashMap<MessageKey, usize>,
}

impl EntryList {
    fn insert(&mut self, item: Item, is_current: bool, names: &mut MessageIds) {
        if let Some(at) = self.places.get(&item.key).copied() {
            if !item.is_history {
                self.replace(at, item, is_current);
            }
            return;
        }
        let given = match &item.body {
            Body::Result { id: Some(id), .. } => names.reserve(id).then(|| id.clone()),
            _ => None,
        };
        let id = given.unwrap_or_else(|| names.assign(&item.key, item.run.as_deref()));
        let owner = match &item.key {
            MessageKey::Result(call) => self.places.get(&MessageKey::Call(call.clone())).copied(),
            _ => None,
        };
        self.places.insert(item.key.clone(), owner.unwrap_or(self.entries.len()));
        let entry = Entry { id, item, is_current, result: None };
        match owner {
            Some(at) => self.entries[at].result = Some(Box::new(entry)),
            None => self.entries.push(entry),
        }
    }

    /// Replaces a known message by a later version.
    fn replace(&mut self, at: usize, mut item: Item, is_current: bool) {
        let entry = &mut self.entries[at];
        if let (Body::Activity { content: base, .. }, Body::Activity { kind, content }) = (&entry.item.body, &mut item.body)
            && **kind == *surface::KIND
        {
            *content = surface::continued(base, content);
        }
        let entry = match (&item.key, &mut entry.result) {
            (MessageKey::Result(_), Some(result)) => &mut **result,
            (MessageKey::Call(call), Some(result)) if result.item.order.0 < item.order.0 && !result.item.is_history => {
                // The call was made again and has no result yet.
                self.places.remove(&MessageKey::Result(call.clone()));
                entry.result = None;
                entry
            }
            _ => entry,
        };
        entry.is_current = is_current;
        entry.item = Item { order: entry.item.order, agent: entry.item.agent.take(), ..item };
    }
}
