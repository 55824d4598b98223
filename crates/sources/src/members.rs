//! Members of a fact: adapters take the members that they read and carry all others.
//!
//! Taking a member removes it from the fact. A member with an unreadable value stays in the fact, and the draft carries
//! it with the rest. So no input of a producer is lost, and no carried member can pass for a member that the server
//! stamps.

use super::{Fact, FactError};
use jiff::Timestamp;
use proscenium_model::id::IdError;
use proscenium_model::{
    ActionId, AgentId, ArtifactId, Draft, EventType, EvidenceId, Ids, MessageId, PartId, RunId, SessionId, TaskId, ThreadId,
    ToolCallId, TurnId, halves,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde::de::value::{BorrowedStrDeserializer, Error};
use serde_json::{Map, Number, Value};
use sha2::{Digest, Sha256};
use std::str::FromStr;

/// The ids of a conversation, for a runtime whose id of it names both the thread and the session.
pub(super) fn conversation_ids(thread: Option<&ThreadId>) -> Ids {
    let session = thread.and_then(|thread| SessionId::new(thread.as_str()).ok());
    Ids { session, thread: thread.cloned(), ..Ids::default() }
}

/// The envelope's own members. Only the server writes values under these names.
pub(super) const RESERVED: &[&str] = &[
    "type",
    "eventId",
    "sequence",
    "sourceSequence",
    "timestamp",
    "receivedAt",
    "owner",
    "scope",
    "phase",
    "surface",
    "persistence",
    "control",
    "topology",
    "audience",
    "startAudience",
    "payload",
    "refs",
    "rawEventRef",
];

/// Carries an unknown member in the draft.
///
/// A member that collides with one of the envelope's own gets the prefix `source`. If that name is taken too, the first
/// value stays (an export that is imported twice).
pub(super) fn carry(draft: &mut Draft, member: String, value: Value) {
    if RESERVED.contains(&member.as_str()) || Ids::MEMBERS.contains(&member.as_str()) {
        draft.extra.entry(source_prefixed(&member)).or_insert(value);
    } else {
        draft.extra.insert(member, value);
    }
}

/// Adds the prefix `source`: `eventId` → `sourceEventId`.
fn source_prefixed(member: &str) -> String {
    let mut letters = member.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).fold("source".to_owned(), |mut name, c| {
        name.push(c);
        name
    }) + letters.as_str()
}

/// Reports an invalid id to the producer.
pub(super) fn invalid_id_error(member: &'static str, error: &IdError) -> FactError {
    FactError::BadMember { member, expected: error.to_string() }
}

/// Converts RFC 3339 text, or milliseconds since 1970, to RFC 3339 text in UTC.
pub(super) fn parse_timestamp(value: &Value) -> Option<Box<str>> {
    let at = match value {
        Value::String(text) => text.parse::<Timestamp>().ok()?,
        Value::Number(number) => match number.as_i64() {
            Some(ms) => Timestamp::from_millisecond(ms).ok()?,
            // Microseconds: today's milliseconds as a float have no finer resolution.
            None => Timestamp::from_microsecond(number.as_f64().map(|ms| (ms * 1000.0).round() as i64)?).ok()?,
        },
        _ => return None,
    };
    Some(at.to_string().into())
}

/// Reads the name of an event type. `None`: the runtime's vocabulary does not have it.
pub(super) fn known<'de, K: Deserialize<'de>>(name: &'de str) -> Option<K> {
    K::deserialize(BorrowedStrDeserializer::<Error>::new(name)).ok()
}

/// The required type of a required member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Text, as an id. An empty one is no id: [`require`] then makes one up.
    Id,
    /// Text, not empty.
    Name,
    Text,
    Flag,
    List,
    Object,
    /// Any value, including null.
    Value,
}

/// Describes the first required member that the event lacks, as "member as type".
pub(super) fn unmet(fact: &Fact, needs: &[(&'static str, Need)]) -> Option<String> {
    needs.iter().find_map(|(member, need)| {
        let (is_met, expected) = match (need, fact.get(*member)) {
            (Need::Id, value) => (matches!(value, Some(Value::String(_))), "an id"),
            (Need::Name, value) => (value.and_then(Value::as_str).is_some_and(|name| !name.is_empty()), "a name"),
            (Need::Text, value) => (matches!(value, Some(Value::String(_))), "text"),
            (Need::Flag, value) => (matches!(value, Some(Value::Bool(_))), "a boolean"),
            (Need::List, value) => (matches!(value, Some(Value::Array(_))), "a list"),
            (Need::Object, value) => (matches!(value, Some(Value::Object(_))), "an object"),
            (Need::Value, value) => (value.is_some(), "a value"),
        };
        (!is_met).then(|| format!("{member} as {expected}"))
    })
}

/// An event that is understood, or the diagnostic that keeps it whole for internal readers.
pub(super) type Parsed<T> = Result<T, Box<Draft>>;

/// Reads the kind of an event by the name of its type.
pub(super) fn parse_kind<K: DeserializeOwned>(name: &str, event: Fact) -> Parsed<(K, Fact)> {
    match known(name) {
        Some(kind) => Ok((kind, event)),
        None => Err(unknown_type(name, event).into()),
    }
}

/// Checks that an event of a source has the members that its type requires, and names what has an empty id.
pub(super) fn require(source: &str, name: &str, mut event: Fact, needs: &[(&'static str, Need)]) -> Parsed<Fact> {
    if let Some(expected) = unmet(&event, needs) {
        return Err(malformed(name, event, &expected).into());
    }
    for (member, _) in needs.iter().filter(|(_, need)| *need == Need::Id) {
        name_unnamed(source, &mut event, member);
    }
    Ok(event)
}

/// Replaces an empty id by one of the source.
///
/// All things with an empty id have this one. A second call under it is another call, as under any id.
pub(super) fn name_unnamed(source: &str, event: &mut Map<String, Value>, member: &str) {
    if let Some(id) = event.get_mut(member).filter(|id| **id == "") {
        *id = format!("{source}-unnamed").into();
    }
}

/// Keeps an event that lacks a required member as a diagnostic for the internal audience.
pub(super) fn malformed(event_type: &str, event: Fact, expected: &str) -> Draft {
    diagnostic("malformed_event", event_type, event).with("expected", expected)
}

/// Takes the fact's type out of `member`.
pub(super) fn take_type(fact: &mut Fact, member: &'static str) -> Result<String, FactError> {
    match fact.get(member) {
        Some(Value::String(text)) if !text.is_empty() => match fact.shift_remove(member) {
            Some(Value::String(text)) => Ok(text),
            _ => unreachable!("the match above found text"),
        },
        _ => Err(FactError::NoType { member }),
    }
}

/// Creates a diagnostic for the internal audience.
pub(super) fn internal(kind: &str, event_type: &str) -> Draft {
    Draft::new(EventType::DiagnosticChanged).with("kind", kind).with("eventType", event_type)
}

/// Keeps a fact of an unknown type whole, as a diagnostic for the internal audience.
pub(super) fn unknown_type(name: &str, fact: Fact) -> Draft {
    diagnostic("unknown_event_type", name, fact)
}

/// Keeps an event that the adapter cannot translate whole, as a diagnostic for the internal audience.
pub(super) fn diagnostic(kind: &str, event_type: &str, event: Fact) -> Draft {
    internal(kind, event_type).with("event", Value::Object(event))
}

/// Builds an id from a name; hashes a name that is no valid id.
pub(super) fn id_from<T: FromStr>(name: &str) -> T {
    let id = name.parse().ok().or_else(|| format!("{:x}", Sha256::digest(name)).parse().ok());
    id.expect("a hex digest is a valid id")
}

/// An id that runtimes give: any text, of any length.
pub(super) trait RuntimeId: FromStr {
    /// The member of an envelope with the runtime's own id, where the server had to make another one.
    const SOURCE_MEMBER: &'static str;

    /// The id in the log. `None`: the text is empty, which is no id.
    fn of(text: &str) -> Option<Self>;

    fn text(&self) -> &str;
}

macro_rules! runtime_ids {
    ($($id:ty: $member:literal, $of:expr;)*) => {$(
        impl RuntimeId for $id {
            const SOURCE_MEMBER: &'static str = $member;

            fn of(text: &str) -> Option<Self> {
                $of(text)
            }

            fn text(&self) -> &str {
                self.as_str()
            }
        }
    )*};
}

fn valid<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn hashed<T: FromStr>(text: &str) -> Option<T> {
    (!text.is_empty()).then(|| id_from(text))
}

runtime_ids! {
    ToolCallId: "sourceToolCallId", hashed;
    MessageId: "sourceMessageId", hashed;
    PartId: "sourcePartId", hashed;
    ActionId: "sourceActionId", hashed;
    ArtifactId: "sourceArtifactId", hashed;
    EvidenceId: "sourceEvidenceId", hashed;
    AgentId: "sourceAgentId", hashed;
    TaskId: "sourceTaskId", hashed;
    // Requests name these too, and there an invalid one is refused.
    RunId: "sourceRunId", valid;
    SessionId: "sourceSessionId", valid;
    ThreadId: "sourceThreadId", valid;
    TurnId: "sourceTurnId", valid;
}

/// Takes a member that is text. A value of any other type stays in the map.
pub(super) fn take_text(map: &mut Map<String, Value>, member: &str) -> Option<String> {
    match map.get(member)? {
        Value::String(_) => match map.shift_remove(member) {
            Some(Value::String(text)) => Some(text),
            _ => unreachable!("the match above found text"),
        },
        _ => None,
    }
}

/// Takes a member that holds an id.
///
/// Many runtimes write `""` for a missing id; this function removes it. A text that no envelope has as an id stays in the
/// map, under the name for the runtime's own id if the server makes one of it.
pub(super) fn take_id<T: RuntimeId>(map: &mut Map<String, Value>, member: &str) -> Option<T> {
    let text = map.get(member)?.as_str()?;
    let id = T::of(text);
    let is_made = id.as_ref().is_some_and(|id| id.text() != text);
    if (id.is_some() || text.is_empty())
        && let Some(text) = map.shift_remove(member).filter(|_| is_made)
    {
        map.insert(T::SOURCE_MEMBER.to_owned(), text);
    }
    id
}

/// Reads an id of the event. The member stays there.
pub(super) fn id_of<T: RuntimeId>(fact: &Fact, member: &str) -> Option<T> {
    T::of(fact.get(member)?.as_str()?)
}

/// Takes an id that the source's `parse` has required. [`require`] has named what has an empty one.
pub(super) fn take_checked_id<T: RuntimeId>(fact: &mut Map<String, Value>, member: &str) -> T {
    take_id(fact, member).unwrap_or_else(|| id_from("unnamed"))
}

/// Takes a boolean member. A value of any other type stays in the map.
pub(super) fn take_flag(map: &mut Map<String, Value>, member: &str) -> Option<bool> {
    let flag = map.get(member)?.as_bool();
    if flag.is_some() {
        map.shift_remove(member);
    }
    flag
}

/// Takes a member that is a number. A value of any other type stays in the map.
pub(super) fn take_number(map: &mut Map<String, Value>, member: &str) -> Option<Number> {
    let number = map.get(member)?.as_number().cloned();
    if number.is_some() {
        map.shift_remove(member);
    }
    number
}

/// Takes a timestamp. An invalid value stays in the map.
pub(super) fn take_time(map: &mut Map<String, Value>, member: &str) -> Option<Box<str>> {
    let at = map.get(member).and_then(parse_timestamp);
    if at.is_some() {
        map.shift_remove(member);
    }
    at
}

/// Takes a member that is an object. A value of any other type stays in the map.
pub(super) fn take_object(map: &mut Map<String, Value>, member: &str) -> Map<String, Value> {
    match map.get_mut(member) {
        Some(Value::Object(inner)) => {
            let inner = std::mem::take(inner);
            map.shift_remove(member);
            inner
        }
        _ => Map::new(),
    }
}

/// Takes a list; wraps any other value in a list, and returns an empty list without the member.
pub(super) fn take_list(map: &mut Map<String, Value>, member: &str) -> Vec<Value> {
    match map.shift_remove(member) {
        Some(Value::Array(list)) => list,
        Some(bare) => vec![bare],
        None => Vec::new(),
    }
}

/// The members of an object; any other value than null becomes the member `name`.
pub(super) fn members_of(value: Value, name: &str) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        Value::Null => Map::new(),
        odd => Map::from_iter([(name.to_owned(), odd)]),
    }
}

/// Takes a member as an object, as [`members_of`].
pub(super) fn take_members(map: &mut Map<String, Value>, member: &str, name: &str) -> Map<String, Value> {
    members_of(map.shift_remove(member).unwrap_or(Value::Null), name)
}

/// Takes counts that are numbers, each under its new name.
pub(super) fn take_counts(from: &mut Map<String, Value>, counts: &[(&str, &str)]) -> Map<String, Value> {
    counts.iter().filter_map(|(member, ours)| Some(((*ours).to_owned(), take_number(from, member)?.into()))).collect()
}

/// The text of a content block that is text.
pub(super) fn block_text(block: &Value) -> Option<&str> {
    block.get("text").and_then(Value::as_str).filter(|_| block.get("type").and_then(Value::as_str) == Some("text"))
}

/// The length of a value that the server does not store, in bytes.
pub(super) fn byte_count(value: &Value) -> usize {
    value.as_str().map_or_else(|| value.to_string().len(), str::len)
}

/// Adds members to the payload under their own names. Existing members keep their value, and a null message is none.
pub(super) fn add_rest(draft: &mut Draft, rest: Map<String, Value>) {
    for (member, value) in rest.into_iter().filter(|(member, value)| member != "message" || !value.is_null()) {
        draft.payload.insert_missing(member, value);
    }
}

/// A message of a history window, in the protocol's shape. Other members stay beside the parts.
pub(super) fn window_message(id: &MessageId, role: &str, agent: Option<AgentId>, parts: Vec<Value>, rest: Fact) -> Value {
    let mut shaped = Map::from_iter([("messageId".to_owned(), Value::from(id.as_str())), ("role".to_owned(), role.into())]);
    shaped.extend(agent.map(|agent| ("agentId".to_owned(), agent.as_str().into())));
    shaped.insert("parts".into(), parts.into());
    for (member, value) in rest {
        shaped.entry(member).or_insert(value);
    }
    shaped.into()
}

/// A snapshot that replaces the parts of a streamed message.
pub(super) fn repair(message: &MessageId, parts: Value) -> Draft {
    let messages = serde_json::json!([{ "messageId": message.as_str(), "role": "assistant", "parts": parts }]);
    Draft::new(EventType::MessagesSnapshot).with("mode", "repair").with("messages", messages)
}

/// Adds the runtime's own id where the draft has another one.
pub(super) fn with_source_id<T: RuntimeId>(mut draft: Draft, id: &T, own: &str) -> Draft {
    if id.text() != own && !own.is_empty() {
        draft.extra.insert(T::SOURCE_MEMBER.to_owned(), own.into());
    }
    draft
}

/// Sets the body of an artifact: its bytes in a `data:` URL, or the URL where it is.
///
/// The guard moves the bytes out of the envelope.
pub(super) fn set_body(draft: &mut Draft, url: Option<String>) {
    let member = if url.as_deref().is_some_and(|url| url.starts_with("data:")) { "body" } else { "url" };
    draft.set(member, url);
}

/// The greatest depth of textual arguments that the adapter parses as JSON, in levels.
///
/// The limit of a fact is the same.
const INPUT_DEPTH_MAX: usize = 64;

/// Parses textual arguments into a payload member: `input` for JSON, otherwise `inputText`.
///
/// JSON beyond the depth limit stays text.
pub(super) fn input(text: &str) -> (&'static str, Value) {
    match halves::parse(text.as_bytes()) {
        Ok(input) if is_within(&input, INPUT_DEPTH_MAX) => ("input", input),
        _ => ("inputText", text.into()),
    }
}

fn is_within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| is_within(item, levels - 1)),
        Value::Object(map) => levels > 0 && map.values().all(|value| is_within(value, levels - 1)),
        _ => true,
    }
}

/// Truncates a name to the length that the state may store.
pub(super) fn name_of(text: &str) -> String {
    text.chars().take(NAME_CHARS_MAX).collect()
}

/// The length of a name in the state (of a tool, a trace, a rule), in characters.
pub(super) const NAME_CHARS_MAX: usize = 128;

/// Generates the next id of a kind.
///
/// The prefix prevents collisions with a producer's ids and with ids that another source generates for the same run.
pub(super) fn next_id<T: FromStr>(prefix: &str, made: &mut u64) -> T {
    *made += 1;
    format!("{prefix}-{made}").parse().ok().expect("a short name with a number is a valid id")
}

/// Carries every remaining member of the event in the draft.
pub(super) fn carry_all(mut draft: Draft, rest: Fact) -> Draft {
    for (member, value) in rest {
        carry(&mut draft, member, value);
    }
    draft
}

/// Members of a question for which sources use the protocol's own names.
#[rustfmt::skip]
const QUESTION_MEMBERS: &[&str] = &[
    "title", "message", "description", "risk", "scope", "policyScope", "plan", "versionId", "schema", "responseSchema", "options",
    "default", "expiresAt",
];

/// Moves a question's members from `own` to the draft.
/// A member that the draft already has stays in `own`.
pub(super) fn take_question(draft: &mut Draft, own: &mut Map<String, Value>) {
    for member in QUESTION_MEMBERS {
        if own.get(*member).is_some_and(|value| !value.is_null()) && !draft.payload.contains_key(member) {
            draft.set(member, own.shift_remove(*member));
        }
    }
    draft.ids.artifact = draft.ids.artifact.take().or_else(|| take_id(own, "artifactId"));
    draft.ids.evidence = draft.ids.evidence.take().or_else(|| take_id(own, "evidenceId"));
    if draft.refs.is_none() && own.get("refs").is_some_and(|refs| refs.is_array() || refs.is_object()) {
        draft.refs = own.shift_remove("refs");
    }
}
