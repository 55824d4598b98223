//! Texts: messages and thoughts, by what the client has of each part.

use super::types::Key;
use crate::content_copy::joined;
use crate::frames::ActivityView;
use crate::sent_text::SentText;
use proscenium_model::PartKind;
use proscenium_projection::change::{ContentOperation, Within};
use proscenium_projection::members::{PARTS, TEXT, TypedContent};
use proscenium_projection::message::{self, part};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The most prompts of the client whose echo has not come.
const PROMPTS_MAX: usize = 64;
/// The activity type of thoughts.
const REASONING: &str = "reasoning";

/// A chunk of a text for the client.
pub(super) struct Chunk {
    pub update: Value,
    /// The part, and the bytes of its text that the client has with this chunk.
    pub part: u64,
    pub bytes: u64,
}

/// Whether activities of this type are texts.
pub(super) fn is_text(kind: &str) -> bool {
    kind == message::KIND || kind == REASONING
}

/// Where the parts of a message appeared. `None`: the activity is shown as a whole.
pub(super) fn places(activity: &ActivityView) -> Option<Vec<u64>> {
    let parts = activity.content.read(PARTS).filter(|_| &*activity.kind == message::KIND)?;
    let opened = |part: &Value| part.read(part::OPENED).map_or(activity.opened.0, |opened| opened.0);
    Some(parts.iter().map(opened).collect())
}

/// How the client shows a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Channel {
    User,
    Agent,
    Thought,
}

impl Channel {
    const fn update(self) -> &'static str {
        match self {
            Self::User => "user_message_chunk",
            Self::Agent => "agent_message_chunk",
            Self::Thought => "agent_thought_chunk",
        }
    }

    /// The channel of a part of a message. `None`: the client is not shown it.
    fn of(role: &str, part: &Value) -> Option<Self> {
        let kind = PartKind::from(part.read(part::KIND).unwrap_or_default());
        match (role, &kind) {
            (_, PartKind::ReasoningSummary) => Some(Self::Thought),
            ("user", kind) if kind.is_text() => Some(Self::User),
            ("assistant", kind) if kind.is_text() => Some(Self::Agent),
            _ => None,
        }
    }
}

/// A part, as the client has it.
#[derive(Debug, Clone)]
struct KnownPart {
    channel: Option<Channel>,
    /// The text of the frames so far.
    text: SentText,
    bytes: u64,
    /// How many bytes of what comes next the client has already.
    lead: u64,
    /// How often the text was replaced.
    corrections: u32,
}

/// A message or a thought, as the client has it.
#[derive(Debug, Clone, Default)]
struct KnownText {
    role: Box<str>,
    /// The id that chunks name.
    message: Box<str>,
    agent: Option<Box<str>>,
    parts: Vec<KnownPart>,
}

/// All texts of a session.
#[derive(Debug, Default)]
pub(super) struct Texts {
    known: HashMap<Key, KnownText>,
    /// What the client has beyond its cursor, of parts that have not come yet.
    lead: HashMap<u64, u64>,
    prompts: VecDeque<String>,
    /// The runs that used an id of a message first: in another run, the id gets the run's before it.
    owners: HashMap<Box<str>, Box<str>>,
}

impl Texts {
    /// Sets what the client has beyond its cursor.
    pub fn lead(&mut self, ahead: impl Iterator<Item = (u64, u64)>) {
        self.lead = ahead.collect();
    }

    /// Does not show the next message of a user that has this text.
    pub fn expect_prompt(&mut self, text: String) {
        if self.prompts.len() == PROMPTS_MAX {
            self.prompts.pop_front();
        }
        self.prompts.push_back(text);
    }

    /// The chunks that a snapshot adds: of one part of a message, or of all.
    pub fn snapshot(&mut self, key: &Key, activity: &ActivityView, only: Option<usize>) -> Vec<Chunk> {
        let known = self.known.remove(key);
        let mut known = known.unwrap_or_else(|| self.first(key, activity));
        let mut chunks = Vec::new();
        let thought;
        let parts = match activity.content.read(PARTS) {
            Some(parts) if &*key.kind == message::KIND => parts.as_slice(),
            _ => {
                thought = [Value::Object(activity.content.as_ref().clone())];
                &thought
            }
        };
        for (n, part) in parts.iter().enumerate() {
            if n >= known.parts.len() {
                self.add_part(key, &mut known, part);
            }
            if only.is_none_or(|only| only == n) {
                chunks.extend(known.set(key, n, &joined(part.get(TEXT.name()))));
            }
        }
        self.known.insert(key.clone(), known);
        chunks
    }

    /// The chunks that changes add. `None`: the text is not known.
    pub fn delta(&mut self, key: &Key, operations: &[ContentOperation]) -> Option<Vec<Chunk>> {
        let mut known = self.known.remove(key)?;
        let mut chunks = Vec::new();
        for operation in operations {
            let Some(place) = operation.place() else { continue };
            let is_text = place.member == TEXT.name();
            match (operation, place.within) {
                (ContentOperation::Push(_, part), Within::Content) if place.is(PARTS) => {
                    self.add_part(key, &mut known, part);
                    let n = known.parts.len() - 1;
                    chunks.extend(known.set(key, n, &joined(part.get(TEXT.name()))));
                }
                (ContentOperation::Push(_, Value::String(chunk)), within) if is_text => {
                    chunks.extend(known.push(key, index(within), chunk));
                }
                (ContentOperation::Add(_, text) | ContentOperation::Replace(_, text), within) if is_text => {
                    chunks.extend(known.set(key, index(within), &joined(Some(text))));
                }
                _ => {}
            }
        }
        self.known.insert(key.clone(), known);
        Some(chunks)
    }

    /// A text of which the client has nothing.
    fn first(&mut self, key: &Key, activity: &ActivityView) -> KnownText {
        let role = activity.text("role").unwrap_or("assistant");
        let id = activity.text("messageId").filter(|_| &*activity.kind == REASONING).unwrap_or(&activity.id);
        let owner = self.owners.entry(id.into()).or_insert_with(|| key.run.clone());
        let message = if *owner == key.run { id.into() } else { format!("{}:{id}", key.run).into() };
        KnownText { role: role.into(), message, agent: activity.agent.clone(), parts: Vec::new() }
    }

    fn add_part(&mut self, key: &Key, known: &mut KnownText, part: &Value) {
        let mut channel = if &*key.kind == REASONING { Some(Channel::Thought) } else { Channel::of(&known.role, part) };
        let lead = self.lead.remove(&part_key(key, known.parts.len())).unwrap_or(0);
        let text = joined(part.get(TEXT.name()));
        if channel == Some(Channel::User)
            && let Some(at) = self.prompts.iter().position(|prompt| *prompt == *text)
        {
            self.prompts.remove(at);
            channel = None;
        }
        known.parts.push(KnownPart { channel, text: SentText::default(), bytes: 0, lead, corrections: 0 });
    }
}

impl KnownText {
    /// The chunk that a part's whole text adds.
    fn set(&mut self, key: &Key, n: usize, whole: &str) -> Option<Chunk> {
        let part = self.parts.get_mut(n)?;
        match part.text.rest(whole).map(str::len) {
            Some(rest) => self.push(key, n, &whole[whole.len() - rest..]),
            None => {
                (part.text, part.bytes, part.lead) = (SentText::default(), 0, 0);
                part.corrections += 1;
                self.push(key, n, whole)
            }
        }
    }

    /// The chunk for a text that was appended to a part.
    fn push(&mut self, key: &Key, n: usize, chunk: &str) -> Option<Chunk> {
        let part = self.parts.get_mut(n)?;
        part.text.push(chunk);
        let before = part.bytes;
        part.bytes += chunk.len() as u64;
        // `lead` is a length of the whole text.
        let known = usize::try_from(part.lead.saturating_sub(before)).unwrap_or(usize::MAX).min(chunk.len());
        let chunk = chunk.get(known..).unwrap_or(chunk);
        let (channel, bytes, corrections) = (part.channel?, part.bytes, part.corrections);
        if chunk.is_empty() {
            return None;
        }
        let message = match corrections {
            0 => self.message.to_string(),
            n => format!("{}~{n}", self.message),
        };
        let content = json!({ "type": "text", "text": chunk });
        let mut update = Map::from_iter([
            ("sessionUpdate".to_owned(), channel.update().into()),
            ("messageId".to_owned(), message.into()),
            ("content".to_owned(), content),
        ]);
        if let Some(agent) = &self.agent {
            update.insert("_meta".into(), json!({ "proscenium": { "agentId": agent } }));
        }
        Some(Chunk { update: update.into(), part: part_key(key, n), bytes })
    }
}

/// The index of the part that a place is in.
const fn index(within: Within) -> usize {
    match within {
        Within::Item(_, n) => n,
        Within::Content | Within::Member(_) => 0,
    }
}

/// A number for a part, the same on every node.
fn part_key(key: &Key, n: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, n).hash(&mut hasher);
    hasher.finish()
}
