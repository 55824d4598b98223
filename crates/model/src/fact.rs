//! What facts say: a struct for each family of event types.
//!
//! A struct has the members that some module reads. All others stay in `extra`, in their order. The macro `family!` makes
//! everything that must know all members: reading, writing, names, the JSON Schema, and the visitors that the guard uses.
//! So a new member is one line here, and nothing can overlook it.
//!
//! Reading is lenient: a member of another JSON type than its field stays in `extra`, and refuses nothing.

use super::json::{write_plain, write_text, write_value};
use super::taxonomy::EventType;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value, json};
use std::borrow::Cow;
use std::fmt;

/// A member's value, wherever it is stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MemberRef<'m> {
    /// A text.
    Text(&'m str),
    /// A truth value.
    Flag(bool),
    /// A number with its own digits.
    Number(&'m Number),
    /// Null, a list or an object.
    Value(&'m Value),
}

impl<'m> From<&'m Value> for MemberRef<'m> {
    fn from(value: &'m Value) -> Self {
        match value {
            Value::String(text) => Self::Text(text),
            Value::Bool(flag) => Self::Flag(*flag),
            Value::Number(number) => Self::Number(number),
            other => Self::Value(other),
        }
    }
}

impl<'m> MemberRef<'m> {
    /// The value, if it is a text.
    #[must_use]
    pub const fn text(self) -> Option<&'m str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value, if it is a number.
    #[must_use]
    pub const fn number(self) -> Option<&'m Number> {
        match self {
            Self::Number(number) => Some(number),
            _ => None,
        }
    }

    /// The value, if it is a list.
    #[must_use]
    pub const fn list(self) -> Option<&'m Vec<Value>> {
        match self {
            Self::Value(Value::Array(items)) => Some(items),
            _ => None,
        }
    }

    /// The value, if it is an object.
    #[must_use]
    pub const fn object(self) -> Option<&'m Map<String, Value>> {
        match self {
            Self::Value(Value::Object(members)) => Some(members),
            _ => None,
        }
    }

    /// Whether the value is null.
    #[must_use]
    pub const fn is_null(self) -> bool {
        matches!(self, Self::Value(Value::Null))
    }

    /// A member of the value, if it is an object.
    #[must_use]
    pub fn get(self, member: &str) -> Option<&'m Value> {
        match self {
            Self::Value(value) => value.get(member),
            _ => None,
        }
    }

    /// The value, copied if it is no list and no object.
    #[must_use]
    pub fn to_value(self) -> Cow<'m, Value> {
        match self {
            Self::Text(text) => Cow::Owned(text.into()),
            Self::Flag(flag) => Cow::Owned(flag.into()),
            Self::Number(number) => Cow::Owned(Value::Number(number.clone())),
            Self::Value(value) => Cow::Borrowed(value),
        }
    }

    /// A copy of the value.
    #[must_use]
    pub fn into_value(self) -> Value {
        self.to_value().into_owned()
    }

    fn write_json(self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => write_text(out, text),
            Self::Flag(flag) => write_plain(out, &flag),
            Self::Number(number) => write_plain(out, number),
            Self::Value(value) => write_value(out, value),
        }
    }
}

/// A member that may have text: what redaction and the joining of halves change.
pub enum MemberMut<'m> {
    /// A text.
    Text(&'m mut String),
    /// A value that may have texts inside.
    Value(&'m mut Value),
}

/// The type of a member's field.
trait FieldType: Sized {
    /// The JSON Schema.
    fn schema() -> Value;

    /// Reads a value, or returns one of another type.
    fn read(value: Value) -> Result<Self, Value>;

    fn into_value(self) -> Value;

    fn view(&self) -> MemberRef<'_>;

    /// `None`: the value has no text.
    fn view_mut(&mut self) -> Option<MemberMut<'_>>;
}

impl FieldType for String {
    fn schema() -> Value {
        json!({ "type": "string" })
    }

    fn read(value: Value) -> Result<Self, Value> {
        match value {
            Value::String(text) => Ok(text),
            other => Err(other),
        }
    }

    fn into_value(self) -> Value {
        self.into()
    }

    fn view(&self) -> MemberRef<'_> {
        MemberRef::Text(self)
    }

    fn view_mut(&mut self) -> Option<MemberMut<'_>> {
        Some(MemberMut::Text(self))
    }
}

impl FieldType for bool {
    fn schema() -> Value {
        json!({ "type": "boolean" })
    }

    fn read(value: Value) -> Result<Self, Value> {
        value.as_bool().ok_or(value)
    }

    fn into_value(self) -> Value {
        self.into()
    }

    fn view(&self) -> MemberRef<'_> {
        MemberRef::Flag(*self)
    }

    fn view_mut(&mut self) -> Option<MemberMut<'_>> {
        None
    }
}

impl FieldType for Number {
    fn schema() -> Value {
        json!({ "type": "number" })
    }

    fn read(value: Value) -> Result<Self, Value> {
        match value {
            Value::Number(number) => Ok(number),
            other => Err(other),
        }
    }

    fn into_value(self) -> Value {
        Value::Number(self)
    }

    fn view(&self) -> MemberRef<'_> {
        MemberRef::Number(self)
    }

    fn view_mut(&mut self) -> Option<MemberMut<'_>> {
        None
    }
}

/// Boxed: most facts have few of these members, and an object is large.
impl FieldType for Box<Value> {
    fn schema() -> Value {
        json!({})
    }

    fn read(value: Value) -> Result<Self, Value> {
        Ok(Self::new(value))
    }

    fn into_value(self) -> Value {
        *self
    }

    fn view(&self) -> MemberRef<'_> {
        MemberRef::from(&**self)
    }

    fn view_mut(&mut self) -> Option<MemberMut<'_>> {
        Some(MemberMut::Value(self))
    }
}

/// Defines the struct of a family: each member with its purpose, its field, its type and its name.
macro_rules! family {
    ($(#[doc = $about:literal])+ $family:ident { $($(#[doc = $purpose:literal])+ $field:ident: $kind:ty = $member:literal;)+ }) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $family {
            $($(#[doc = $purpose])+ pub $field: Option<$kind>,)+
            /// All other members, and those of another JSON type, in their order.
            pub extra: Map<String, Value>,
        }

        impl $family {
            /// The names of the members, in the order of writing.
            pub const MEMBERS: &[&str] = &[$($member),+];

            fn has(&self, name: &str) -> bool {
                match name {
                    $($member => self.$field.is_some(),)+
                    _ => false,
                }
            }

            fn get(&self, name: &str) -> Option<MemberRef<'_>> {
                let member = match name {
                    $($member => self.$field.as_ref().map(FieldType::view),)+
                    _ => None,
                };
                member.or_else(|| self.extra.get(name).map(MemberRef::from))
            }

            /// The fact with these members in place of its own. Members without a field are left out.
            #[must_use]
            pub fn overlaid<'f>(mut fact: Cow<'f, Self>, members: &Map<String, Value>) -> Cow<'f, Self> {
                for (name, value) in members.iter().filter(|(name, _)| Self::MEMBERS.contains(&name.as_str())) {
                    fact.to_mut().insert(name.as_str(), value.clone());
                }
                fact
            }

            /// Sets a member.
            pub fn insert(&mut self, name: impl AsRef<str> + Into<String>, value: Value) {
                match name.as_ref() {
                    $($member => match <$kind as FieldType>::read(value) {
                        Ok(value) => {
                            self.$field = Some(value);
                            self.extra.shift_remove($member);
                        }
                        Err(value) => {
                            self.$field = None;
                            self.extra.insert($member.to_owned(), value);
                        }
                    },)+
                    _ => drop(self.extra.insert(name.into(), value)),
                }
            }

            /// Removes a member, and returns its value.
            pub fn remove(&mut self, name: &str) -> Option<Value> {
                let member = match name {
                    $($member => self.$field.take().map(FieldType::into_value),)+
                    _ => None,
                };
                let other = self.extra.shift_remove(name);
                member.or(other)
            }

            fn is_empty(&self) -> bool {
                $(self.$field.is_none())&&+ && self.extra.is_empty()
            }

            fn each<'m>(&'m self, mut see: impl FnMut(&'m str, MemberRef<'m>)) {
                $(if let Some(value) = &self.$field {
                    see($member, value.view());
                })+
                // A source may set a field beside a member of another type.
                for (name, value) in self.extra.iter().filter(|(name, _)| !self.has(name)) {
                    see(name, value.into());
                }
            }

            fn each_mut(&mut self, mut change: impl FnMut(MemberMut<'_>)) {
                $(if let Some(member) = self.$field.as_mut().and_then(FieldType::view_mut) {
                    change(member);
                })+
            }

            fn into_map(self) -> Map<String, Value> {
                let mut map = Map::new();
                $(if let Some(value) = self.$field {
                    map.insert($member.to_owned(), value.into_value());
                })+
                for (name, value) in self.extra {
                    map.entry(name).or_insert(value);
                }
                map
            }

            /// The JSON Schema of the payload. It refuses nothing, as the server does not.
            #[must_use]
            pub fn schema() -> Value {
                let properties = [$((
                    $member,
                    concat!($($purpose),+),
                    <$kind as FieldType>::schema(),
                )),+];
                schema_of(concat!($($about),+), properties)
            }
        }

        impl From<Map<String, Value>> for $family {
            fn from(members: Map<String, Value>) -> Self {
                let mut fact = Self::default();
                members.into_iter().for_each(|(name, value)| fact.insert(name, value));
                fact
            }
        }
    };
}

/// The schema of a family's payload.
fn schema_of<const N: usize>(about: &str, members: [(&str, &str, Value); N]) -> Value {
    let property = |(member, purpose, kind): (&str, &str, Value)| {
        let mut property = json!({ "description": purpose.trim() });
        if kind.as_object().is_some_and(|kind| !kind.is_empty()) {
            property["anyOf"] = json!([kind, true]);
        }
        (member.to_owned(), property)
    };
    let properties: Map<String, Value> = members.into_iter().map(property).collect();
    json!({ "description": about.trim(), "type": "object", "properties": properties, "additionalProperties": true })
}

family! {
    /// What a fact says of a tool call: its start, arguments, progress, output or end.
    CallFact {
        /// The name of the tool.
        tool_name: String = "toolName";
        /// The kind of the tool, in its runtime's words.
        kind: String = "kind";
        /// The files that the call touches: `[{path, line?}]`. An empty list: no file.
        locations: Box<Value> = "locations";
        /// The whole arguments.
        input: Box<Value> = "input";
        /// A chunk of the arguments' JSON text, or arguments that are no JSON.
        input_text: String = "inputText";
        /// On `tool.args`: `input-streaming` or `input-available`.
        state: String = "state";
        /// The tool's own report: `pending`, `running`, `done`, `failed` or `cancelled`.
        status: String = "status";
        /// What the tool does now, for people.
        message: String = "message";
        /// The done fraction of the work, 0 to 1.
        progress: Number = "progress";
        /// The done amount of the work.
        loaded: Number = "loaded";
        /// The whole amount of the work.
        total: Number = "total";
        /// Who supplies the result, if not the run.
        awaits: String = "awaits";
        /// The type of the activity that the tool reports.
        activity_type: String = "activityType";
        /// The content of that activity.
        content: Box<Value> = "content";
        /// JSON Patch operations on that content.
        patch: Box<Value> = "patch";
        /// `false`: the content is only for readers that have none yet.
        replace: bool = "replace";
        /// The channel of a chunk of output; `stdout` if absent.
        channel: String = "channel";
        /// A chunk of output.
        text: String = "text";
        /// The result.
        output: Box<Value> = "output";
        /// The result as data, beside one for the model.
        structured: Box<Value> = "structured";
        /// Where the whole output is.
        output_ref: Box<Value> = "outputRef";
        /// Why the call failed: `{code?, message}`, or text.
        error: Box<Value> = "error";
        /// How long the call took, in milliseconds.
        duration_ms: Number = "durationMs";
        /// What the call cost, in US dollars.
        cost_usd: Number = "costUsd";
        /// Whether the output was cut, and by how much.
        truncated: Box<Value> = "truncated";
        /// Whether the output is from a source that the runtime does not trust.
        untrusted: bool = "untrusted";
        /// Whether the call ended before the tool ran.
        never_started: bool = "neverStarted";
        /// The call that made this one.
        parent_call: String = "parentToolCallId";
        /// Seed 002: the tool's name in a report.
        reported_name: String = "tool_name";
        /// Seed 002: the node of a report.
        node: String = "node_id";
        /// Seed 002: the node above that of a report.
        parent_node: String = "parent_node_id";
        /// Seed 002: the call above that of a report.
        reported_parent: String = "parent_call_id";
        /// The version of the questions about the call that this fact makes. Only the server writes it.
        question_version: Number = "questionVersion";
        /// On `tool.started`: the call's result came first, and is for a narrower audience than the start.
        end_withheld: bool = "endWithheld";
        /// Whether the body is for a narrower audience than this reader's.
        withheld: bool = "withheld";
    }
}

family! {
    /// What a fact says in words: a text, reasoning or a plan, as a chunk or as a whole.
    WordsFact {
        /// A chunk, or the whole text at the end.
        text: String = "text";
        /// Who speaks; `assistant` if absent.
        role: String = "role";
        /// The kind of the part.
        kind: String = "kind";
        /// A summary of the text.
        summary: Box<Value> = "summary";
        /// The plan.
        plan: Box<Value> = "plan";
        /// The steps of the plan.
        steps: Box<Value> = "steps";
        /// The entries of the plan.
        entries: Box<Value> = "entries";
        /// What is attached to the message.
        attachments: Box<Value> = "attachments";
        /// How the end came about, in its producer's words.
        status: String = "status";
        /// Whether the body is for a narrower audience than this reader's.
        withheld: bool = "withheld";
    }
}

/// A family of event types, by what their payloads have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Tool calls.
    Call,
    /// Texts, reasoning and plans.
    Words,
    /// Unknown event types, and those without a struct yet.
    Open,
}

impl From<&EventType> for Family {
    fn from(event_type: &EventType) -> Self {
        use EventType as E;
        match event_type {
            E::ToolStarted | E::ToolArgs | E::ToolProgress | E::ToolOutputDelta | E::ToolResult | E::ToolFailed => Self::Call,
            E::TextDelta | E::TextFinal | E::ReasoningDelta | E::ReasoningSummary | E::PlanDelta | E::PlanFinal => Self::Words,
            _ => Self::Open,
        }
    }
}

/// What a fact says, by the family of its event type.
#[derive(Debug, Clone, PartialEq)]
pub enum Payload {
    /// Boxed: a call has many members, and most facts are words.
    Call(Box<CallFact>),
    /// A text, reasoning or a plan.
    Words(WordsFact),
    /// A payload of a family without a type of its own.
    Open(Map<String, Value>),
}

impl Payload {
    /// The empty payload of a family, or of an event type.
    #[must_use]
    pub fn empty(family: impl Into<Family>) -> Self {
        match family.into() {
            Family::Call => Self::Call(Box::default()),
            Family::Words => Self::Words(WordsFact::default()),
            Family::Open => Self::Open(Map::new()),
        }
    }

    /// The payload with these members.
    #[must_use]
    pub fn read(family: impl Into<Family>, members: Map<String, Value>) -> Self {
        match family.into() {
            Family::Call => Self::Call(Box::new(members.into())),
            Family::Words => Self::Words(members.into()),
            Family::Open => Self::Open(members),
        }
    }

    /// The payload of any value. Null is an empty one, and a value that is no object becomes its `value`.
    #[must_use]
    pub fn of_value(family: impl Into<Family>, value: Value) -> Self {
        match value {
            Value::Object(members) => Self::read(family, members),
            Value::Null => Self::empty(family),
            bare => Self::read(family, Map::from_iter([("value".to_owned(), bare)])),
        }
    }

    /// The same members as the payload of another family.
    #[must_use]
    pub fn into_family(self, family: impl Into<Family>) -> Self {
        match (family.into(), self) {
            (Family::Call, same @ Self::Call(_))
            | (Family::Words, same @ Self::Words(_))
            | (Family::Open, same @ Self::Open(_)) => same,
            (family, other) => Self::read(family, other.into_map()),
        }
    }

    /// The payload as a JSON object, in the order of writing.
    #[must_use]
    pub fn into_map(self) -> Map<String, Value> {
        match self {
            Self::Call(call) => call.into_map(),
            Self::Words(words) => words.into_map(),
            Self::Open(map) => map,
        }
    }

    /// The payload as a JSON value, in the order of writing.
    #[must_use]
    pub fn to_value(&self) -> Value {
        Value::Object(self.clone().into_map())
    }

    /// What it says of a tool call. `None`: the event type is not one of a call.
    #[must_use]
    pub const fn as_call(&self) -> Option<&CallFact> {
        match self {
            Self::Call(call) => Some(call),
            _ => None,
        }
    }

    /// As [`Self::as_call`].
    pub const fn call_mut(&mut self) -> Option<&mut CallFact> {
        match self {
            Self::Call(call) => Some(call),
            _ => None,
        }
    }

    /// What it says in words. `None`: the event type is not one of words.
    #[must_use]
    pub const fn as_words(&self) -> Option<&WordsFact> {
        match self {
            Self::Words(words) => Some(words),
            _ => None,
        }
    }

    /// As [`Self::as_words`].
    pub const fn words_mut(&mut self) -> Option<&mut WordsFact> {
        match self {
            Self::Words(words) => Some(words),
            _ => None,
        }
    }

    /// The members without a field: all of an open payload.
    #[must_use]
    pub const fn open(&self) -> &Map<String, Value> {
        match self {
            Self::Call(call) => &call.extra,
            Self::Words(words) => &words.extra,
            Self::Open(map) => map,
        }
    }

    /// As [`Self::open`]. A member with a field must not be added here.
    pub const fn open_mut(&mut self) -> &mut Map<String, Value> {
        match self {
            Self::Call(call) => &mut call.extra,
            Self::Words(words) => &mut words.extra,
            Self::Open(map) => map,
        }
    }

    /// The value of a member.
    #[must_use]
    pub fn get(&self, member: &str) -> Option<MemberRef<'_>> {
        match self {
            Self::Call(call) => call.get(member),
            Self::Words(words) => words.get(member),
            Self::Open(map) => map.get(member).map(MemberRef::from),
        }
    }

    /// The text of a member, if it is text.
    #[must_use]
    pub fn text(&self, member: &str) -> Option<&str> {
        self.get(member)?.text()
    }

    /// Whether a member is `true`.
    #[must_use]
    pub fn is_true(&self, member: &str) -> bool {
        self.get(member) == Some(MemberRef::Flag(true))
    }

    /// Whether it has a member.
    #[must_use]
    pub fn contains_key(&self, member: &str) -> bool {
        self.get(member).is_some()
    }

    /// Sets a member.
    pub fn insert(&mut self, member: impl AsRef<str> + Into<String>, value: Value) {
        match self {
            Self::Call(call) => call.insert(member, value),
            Self::Words(words) => words.insert(member, value),
            Self::Open(map) => drop(map.insert(member.into(), value)),
        }
    }

    /// Sets a member, unless the payload has it.
    pub fn insert_missing(&mut self, member: impl AsRef<str> + Into<String>, value: impl Into<Value>) {
        if !self.contains_key(member.as_ref()) {
            self.insert(member, value.into());
        }
    }

    /// Removes a member, and returns its value.
    pub fn remove(&mut self, member: &str) -> Option<Value> {
        match self {
            Self::Call(call) => call.remove(member),
            Self::Words(words) => words.remove(member),
            Self::Open(map) => map.shift_remove(member),
        }
    }

    /// Whether it has no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Call(call) => call.is_empty(),
            Self::Words(words) => words.is_empty(),
            Self::Open(map) => map.is_empty(),
        }
    }

    /// Shows every member, in the order of writing.
    pub fn each<'m>(&'m self, mut see: impl FnMut(&'m str, MemberRef<'m>)) {
        match self {
            Self::Call(call) => call.each(see),
            Self::Words(words) => words.each(see),
            Self::Open(map) => map.iter().for_each(|(name, value)| see(name, value.into())),
        }
    }

    /// Changes every field that may have text. The other members are in [`Self::open_mut`].
    pub fn each_field_mut(&mut self, change: impl FnMut(MemberMut<'_>)) {
        match self {
            Self::Call(call) => call.each_mut(change),
            Self::Words(words) => words.each_mut(change),
            Self::Open(_) => {}
        }
    }

    /// Appends the JSON to `out`.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        let before = out.len();
        self.each(|name, member| {
            if out.len() > before {
                out.push(b',');
            }
            write_text(out, name);
            out.push(b':');
            member.write_json(out);
        });
        out.push(b'}');
    }
}

impl Extend<(String, Value)> for Payload {
    fn extend<T: IntoIterator<Item = (String, Value)>>(&mut self, members: T) {
        for (member, value) in members {
            self.insert(member, value);
        }
    }
}

impl Serialize for Payload {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.to_value().serialize(to)
    }
}

/// Reads a payload in one pass, if it is an object or null. Any other value is an error: [`Payload::of_value`] takes it.
pub struct PayloadSeed(pub Family);

impl<'de> DeserializeSeed<'de> for PayloadSeed {
    type Value = Payload;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Payload, D::Error> {
        from.deserialize_any(self)
    }
}

/// By this name the parser marks an object that stands for a number. A payload with it could not be read again.
const NUMBER: &str = "$serde_json::private::Number";

/// A member's name, borrowed if its JSON text has no escapes.
#[derive(Deserialize)]
struct Name<'n>(#[serde(borrow)] Cow<'n, str>);

impl<'de> Visitor<'de> for PayloadSeed {
    type Value = Payload;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a payload")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Payload, A::Error> {
        let mut payload = Payload::empty(self.0);
        while let Some(Name(name)) = map.next_key()? {
            if name == NUMBER {
                return Err(Error::custom("the payload has the name by which the parser marks numbers"));
            }
            payload.insert(name, map.next_value()?);
        }
        Ok(payload)
    }

    fn visit_unit<E: Error>(self) -> Result<Payload, E> {
        Ok(Payload::empty(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ids;

    const TYPES: [EventType; 3] = [EventType::ToolResult, EventType::TextDelta, EventType::RunStarted];

    fn parse(event_type: &EventType, text: &str) -> Payload {
        PayloadSeed(event_type.into()).deserialize(&mut serde_json::Deserializer::from_str(text)).unwrap()
    }

    /// The payload's JSON as it is written.
    fn written(payload: &Payload) -> Value {
        let mut json = Vec::new();
        payload.write_json(&mut json);
        serde_json::from_slice(&json).unwrap()
    }

    #[test]
    fn every_payload_is_written_with_all_its_members_whatever_their_types() {
        let odd = json!({"text": 7, "toolName": null, "output": {"a": [1, "x"]}, "role": "user", "untrusted": "yes",
            "withheld": true, "durationMs": 3, "progress": 0.5, "ofTomorrow": [1], "\"": "\n"});
        for event_type in TYPES {
            let members = odd.as_object().unwrap().clone();
            let (parsed, read) = (parse(&event_type, &odd.to_string()), Payload::read(&event_type, members));
            assert_eq!(parsed, read);
            assert_eq!((written(&parsed), parsed.to_value()), (odd.clone(), odd.clone()), "{event_type}");
            for other in &TYPES {
                assert_eq!(written(&parsed.clone().into_family(other)), odd);
            }
            for (name, value) in odd.as_object().unwrap() {
                assert_eq!(parsed.get(name).map(MemberRef::into_value).as_ref(), Some(value));
                let mut rest = parsed.clone();
                assert_eq!(rest.remove(name).as_ref(), Some(value));
                assert!(!rest.contains_key(name));
            }
        }
    }

    #[test]
    fn a_member_has_one_value_by_its_last_type() {
        let mut payload = parse(&EventType::ToolStarted, r#"{"toolName": 7, "toolName": "a", "input": 1, "input": 2}"#);
        assert_eq!(written(&payload), json!({"toolName": "a", "input": 2}));
        payload.insert("toolName", json!(["b"]));
        assert_eq!(written(&payload), json!({"input": 2, "toolName": ["b"]}));
        payload.call_mut().unwrap().tool_name = Some("c".into());
        assert_eq!(written(&payload), json!({"toolName": "c", "input": 2}));
        assert_eq!(payload.to_value(), written(&payload));
    }

    #[test]
    fn a_payload_that_is_no_object_is_a_value_or_nothing() {
        for event_type in TYPES {
            for bare in [json!([1]), json!("x"), json!(7), json!(false)] {
                assert_eq!(written(&Payload::of_value(&event_type, bare.clone())), json!({ "value": bare }));
            }
            assert!(parse(&event_type, "{}").is_empty() && parse(&event_type, "null").is_empty());
            assert!(Payload::of_value(&event_type, Value::Null).is_empty());
        }
    }

    #[test]
    fn what_the_parser_takes_for_a_number_is_no_object() {
        for text in ["7", "1.5", r#"{"$serde_json::private::Number": "7"}"#, r#"{"$serde_json::private::Number": "x", "a": 1}"#] {
            let from = &mut serde_json::Deserializer::from_str(text);
            assert!(PayloadSeed(Family::Open).deserialize(from).is_err(), "{text}");
        }
    }

    #[test]
    fn no_field_has_the_name_of_an_id() {
        assert!(CallFact::MEMBERS.iter().chain(WordsFact::MEMBERS).all(|name| Ids::member(name).is_none()));
    }

    #[test]
    fn the_schema_describes_every_member() {
        for (members, schema) in [(CallFact::MEMBERS, CallFact::schema()), (WordsFact::MEMBERS, WordsFact::schema())] {
            let described: Vec<_> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(described, members);
        }
    }
}
