//! Declared members: the names, types and meanings of what the server puts into an activity's content.
//!
//! Each activity type declares its content once, beside its fold ([`content!`]). The fold and the dialects read and
//! write by the declared constants, and the schema in `schema/activities/` follows from the same rows. A content stays
//! a JSON object in the order in which its members appeared: sources add members, and readers patch it.

use proscenium_model::{Sequence, schema};
use serde_json::{Map, Number, Value, json};
use std::marker::PhantomData;

/// A member of a content: its name, and the type of its values.
#[derive(Debug)]
pub struct Member<T> {
    name: &'static str,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Member<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Member<T> {}

impl<T> Member<T> {
    /// A member of this name; [`content!`] also describes it.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, of: PhantomData }
    }

    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Puts a value into a new object.
    pub fn put(self, object: &mut Map<String, Value>, value: impl Fits<T>) {
        object.insert(self.name.to_owned(), value.into_json());
    }
}

/// The rest of an end that this audience may not see.
pub const WITHHELD: Member<Mark> = Member::new("withheld");
pub(super) const WITHHELD_ABOUT: &str = "The activity ended, and this reader's audience may not see the rest of its end.";
/// Whether something was left out.
pub const CLIPPED: Member<Flag> = Member::new("clipped");
/// What [`CLIPPED`] means for a text.
pub(super) const CLIPPED_ABOUT: &str =
    "The text reached its limit of 4 MiB; the rest is only in the log, or in a body that refs names.";
/// Whether a run ended around something that outlives it.
pub const STALE: Member<Mark> = Member::new("stale");
/// What [`STALE`] means for an activity that outlives its run.
pub(super) const STALE_ABOUT: &str = "The activity was open when its run ended, and no later fact is about it.";
/// What a `topology` means.
pub(super) const TOPOLOGY_ABOUT: &str = "How the work is organised; unknown if no fact states it.";
/// Links that a source states.
pub const REFS: Member<Any> = Member::new("refs");
/// A text that grows.
pub const TEXT: Member<Text> = Member::new("text");
/// The parts of a message.
pub const PARTS: Member<List> = Member::new("parts");
/// The streamed output of a call: standard output, and other channels.
pub const OUTPUT_TEXT: Member<Text> = Member::new("output_text");
/// What other channels than standard output got.
pub const OUTPUT_CHANNELS: Member<Object> = Member::new("output_channels");
/// The status of an action.
pub const ACTION_STATUS: Member<ActionStatus> = Member::new("status");
/// The call of an action.
pub const TOOL_CALL_ID: Member<Str> = Member::new("toolCallId");

/// A text in the form in which contents hold it.
#[must_use]
pub fn text(whole: &str) -> Value {
    Value::Array(if whole.is_empty() { Vec::new() } else { vec![whole.into()] })
}

/// The text of a text member: its only string.
#[must_use]
pub fn joined(member: Option<&Value>) -> &str {
    member.and_then(|chunks| chunks.get(0)).and_then(Value::as_str).unwrap_or_default()
}

/// A type of the values of members.
pub trait MemberType {
    /// What reading gives.
    type Read<'c>;

    /// Reads a value; `None` for JSON of another type.
    fn read(json: &Value) -> Option<Self::Read<'_>>;

    /// The schema, without a description.
    fn schema() -> Value;
}

/// A value that a member of type `T` may have.
pub trait Fits<T> {
    /// Whether this JSON is the value.
    fn is(&self, json: &Value) -> bool;

    /// The value as JSON.
    fn into_json(self) -> Value;
}

/// Defines types of members: what reads them, what fits, and their schema.
macro_rules! member_types {
    ($($(#[$doc:meta])* $name:ident: $read:ty = $reader:expr, $schema:tt; $($fits:ty)*;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl MemberType for $name {
            type Read<'c> = $read;

            fn read(json: &Value) -> Option<Self::Read<'_>> {
                ($reader)(json)
            }

            fn schema() -> Value {
                json!($schema)
            }
        }

        $(impl Fits<$name> for $fits {
            fn is(&self, json: &Value) -> bool {
                json == self
            }

            fn into_json(self) -> Value {
                self.into()
            }
        })*
    )*};
}

member_types! {
    /// A text that is replaced as a whole.
    Str: &'c str = Value::as_str, { "type": "string" }; &str String;
    /// A value of any type, as its source states it.
    Any: &'c Value = Some, {}; Value;
    /// A mark: `true`, or absent.
    Mark: bool = Value::as_bool, { "const": true }; bool;
    /// A truth value.
    Flag: bool = Value::as_bool, { "type": "boolean" }; bool;
    /// A number, as its source states it.
    Num: &'c Number = Value::as_number, { "type": "number" };;
    /// The sequence of an envelope.
    Position: Sequence = |json: &Value| json.as_u64().map(Sequence), { "type": "integer", "minimum": 1 };;
    /// A number of things.
    Count: u64 = Value::as_u64, { "type": "integer", "minimum": 0 }; u32 u64;
    /// A list of any values.
    List: &'c Vec<Value> = Value::as_array, { "type": "array" };;
    /// An object with any members.
    Object: &'c Map<String, Value> = Value::as_object, { "type": "object" };;
    /// A text that grows: a list of chunks, of which the server has one.
    Text: &'c str = |json| Some(joined(Some(json))), {
        "type": "array",
        "items": { "description": "A chunk. A snapshot has one, a delta appends another; the text is all of them.", "type": "string" },
    };;
}

/// Defines what fits a member by its conversion to JSON.
macro_rules! fits {
    ($($member:ty: $value:ty = $json:expr;)*) => {$(
        impl Fits<$member> for $value {
            fn is(&self, json: &Value) -> bool {
                *json == ($json)(self.clone())
            }

            fn into_json(self) -> Value {
                ($json)(self)
            }
        }
    )*};
}

fits! {
    Num: Number = Value::Number;
    Position: Sequence = |at: Sequence| Value::from(at.0);
    List: Vec<Value> = Value::Array;
    Object: Map<String, Value> = Value::Object;
    Text: &str = text;
}

/// Defines closed sets of our own values.
macro_rules! closed {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $(#[doc = concat!("`", $text, "`")] $variant,)*
        }

        impl $name {
            /// Every value on the wire.
            pub const NAMES: &[&str] = &[$($text),*];

            /// The value on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }

            /// The value of this name.
            #[must_use]
            pub fn of(name: &str) -> Option<Self> {
                match name {
                    $($text => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        impl MemberType for $name {
            type Read<'c> = Self;

            fn read(json: &Value) -> Option<Self> {
                json.as_str().and_then(Self::of)
            }

            fn schema() -> Value {
                json!({ "enum": Self::NAMES })
            }
        }

        impl Fits<$name> for $name {
            fn is(&self, json: &Value) -> bool {
                json == self.as_str()
            }

            fn into_json(self) -> Value {
                self.as_str().into()
            }
        }
    )*};
}

closed! {
    /// The position of a call in its lifecycle (seed 003).
    CallState {
        InputStreaming = "input-streaming",
        InputAvailable = "input-available",
        Running = "running",
        Progress = "progress",
        OutputAvailable = "output-available",
        OutputError = "output-error",
        Cancelled = "cancelled",
    }

    /// The status of a call as its tool reports it (seed 002's `ProgressStatus`).
    CallStatus {
        Pending = "pending",
        Running = "running",
        Done = "done",
        Failed = "failed",
        Cancelled = "cancelled",
    }

    /// Whether a text may still grow.
    TextStatus {
        Streaming = "streaming",
        Complete = "complete",
        Interrupted = "interrupted",
    }

    /// Whether a request still waits.
    ActionStatus {
        Pending = "pending",
        Resolved = "resolved",
        Interrupted = "interrupted",
    }
}

impl CallState {
    /// Whether the call has ended.
    #[must_use]
    pub const fn is_end(self) -> bool {
        matches!(self, Self::OutputAvailable | Self::OutputError | Self::Cancelled)
    }
}

/// A content that is read by declared members.
pub trait TypedContent {
    /// The value of a member, if it has its declared type.
    fn read<T: MemberType>(&self, member: Member<T>) -> Option<T::Read<'_>>;

    /// Whether the content has a member, of any type.
    fn has<T>(&self, member: Member<T>) -> bool;
}

impl TypedContent for Map<String, Value> {
    fn read<T: MemberType>(&self, member: Member<T>) -> Option<T::Read<'_>> {
        self.get(member.name()).and_then(T::read)
    }

    fn has<T>(&self, member: Member<T>) -> bool {
        self.contains_key(member.name())
    }
}

/// For an object in a list; any other value has no members.
impl TypedContent for Value {
    fn read<T: MemberType>(&self, member: Member<T>) -> Option<T::Read<'_>> {
        self.get(member.name()).and_then(T::read)
    }

    fn has<T>(&self, member: Member<T>) -> bool {
        self.get(member.name()).is_some()
    }
}

/// The schema of a text whose values are known, but not closed.
pub(super) fn open_set(names: &[&str]) -> Value {
    json!({ "anyOf": [{ "enum": names }, { "type": "string" }] })
}

/// Whether a content always has a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// From the activity's first frame on.
    Always,
    /// Where a fact states it.
    Sometimes,
}

/// The declaration of one member.
#[derive(Debug)]
pub struct MemberSchema {
    /// The name on the wire.
    pub name: &'static str,
    /// Whether every content has it.
    pub presence: Presence,
    /// What it means.
    pub about: &'static str,
    /// The schema of its values.
    pub schema: fn() -> Value,
}

/// The declaration of a content.
#[derive(Debug)]
pub struct ContentSchema {
    /// The activity type.
    pub kind: &'static str,
    /// What an activity of this type is.
    pub about: &'static str,
    /// The members, in the order of their documentation.
    pub members: &'static [MemberSchema],
    /// The members that it takes from facts as they are, with their meanings; the declared ones go before.
    pub copied: &'static [(&'static str, &'static str)],
}

impl ContentSchema {
    /// The content as a schema of objects, without the head of a document.
    #[must_use]
    pub fn object(&self) -> Map<String, Value> {
        let described = |member: &MemberSchema| {
            let mut schema = Map::from_iter([("description".to_owned(), json!(member.about))]);
            if let Value::Object(of_type) = (member.schema)() {
                schema.extend(of_type);
            }
            (member.name.to_owned(), Value::Object(schema))
        };
        let always = self.members.iter().filter(|member| member.presence == Presence::Always);
        let required: Vec<_> = always.map(|member| member.name).collect();
        let mut properties: Map<_, _> = self.members.iter().map(described).collect();
        for (name, about) in self.copied.iter().filter(|(_, about)| !about.is_empty()) {
            properties.entry(*name).or_insert_with(|| json!({ "description": about }));
        }
        let Value::Object(object) = json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": true,
        }) else {
            unreachable!("the literal is an object")
        };
        object
    }

    /// The document in `schema/activities/`.
    #[must_use]
    pub fn document(&self) -> Value {
        let Value::Object(mut document) = json!({
            "$schema": schema::DIALECT,
            "$id": format!("urn:proscenium:schema:activity:{}", self.kind),
            "title": format!("Content of the activity type {}", self.kind),
            "description": self.about,
        }) else {
            unreachable!("the literal is an object")
        };
        document.extend(self.object());
        document.into()
    }
}

/// Declares a content: constants for its members, and the table of all of them.
///
/// A row is `"name": Type, Always | Sometimes [as CONSTANT] [with schema], "meaning";`. Contents share some constants. Of a
/// family of facts, a content also has the copied members; those that code reads have a constant, too.
macro_rules! content {
    ($table:ident = $kind:literal $(of $fact:ident $({ $($copied:ident = $copied_name:literal),+ })?)?, $about:literal; $(
        $name:literal: $type:ty, $presence:ident $(as $member:ident)? $(with $schema:expr)?, $doc:expr;
    )*) => {
        $($(
            #[doc = concat!("`", $name, "`")]
            pub const $member: $crate::members::Member<$type> = $crate::members::Member::new($name);
        )?)*
        $($($(
            #[doc = concat!("`", $copied_name, "`")]
            pub const $copied: $crate::members::Member<$crate::members::Any> = $crate::members::Member::new($copied_name);
        )+)?)?

        /// The declared members of the content.
        pub static $table: $crate::members::ContentSchema = $crate::members::ContentSchema {
            kind: $kind,
            about: $about,
            members: &[$($crate::members::MemberSchema {
                name: $name,
                presence: $crate::members::Presence::$presence,
                about: $doc,
                schema: || $crate::members::content!(@schema $type $(, $schema)?),
            }),*],
            copied: $crate::members::content!(@copied $($fact)?),
        };
    };
    (@copied) => { &[] };
    (@copied $fact:ty) => { <$fact as proscenium_model::fact::FactFamily>::COPIED };
    (@schema $type:ty) => { <$type as $crate::members::MemberType>::schema() };
    (@schema $type:ty, $schema:expr) => {{
        let _: std::marker::PhantomData<$type>;
        $schema
    }};
}
pub(super) use content;
