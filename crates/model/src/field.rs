//! The members of facts: the types of their fields, and the macro that makes the struct of a family.
//!
//! A struct has the members that some module reads, and names those that a content takes as they are. All others stay in
//! `extra`, in their order. The macro `family!` makes everything that must know all members: reading, writing, names, the
//! JSON Schema, and the visitors that the guard uses. So a new member is one line, and nothing can overlook it.
//!
//! Reading is lenient: a member of another JSON type than its field stays in `extra`, and refuses nothing.

use super::json::{write_plain, write_text, write_value};
use serde_json::{Map, Number, Value, json};
use std::borrow::Cow;

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

    /// The value, if it is a truth value.
    #[must_use]
    pub const fn flag(self) -> Option<bool> {
        match self {
            Self::Flag(flag) => Some(flag),
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

    pub(super) fn write_json(self, out: &mut Vec<u8>) {
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
pub(super) trait FieldType: Sized {
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

/// What facts of a family of event types say.
pub trait FactFamily: Clone + Default + From<Map<String, Value>> {
    /// The names of all members.
    const MEMBERS: &'static [&'static str];
    /// The members that a content takes as they are, in the order in which it does, each with its meaning; some have none.
    const COPIED: &'static [(&'static str, &'static str)];

    /// The JSON Schema of the payload. It refuses nothing, as the server does not.
    #[must_use]
    fn schema() -> Value;

    /// Sets a member.
    fn insert(&mut self, name: impl AsRef<str> + Into<String>, value: Value);

    /// The fact with these members in place of its own. Those that the family does not know are left out.
    #[must_use]
    fn overlaid<'f>(mut fact: Cow<'f, Self>, members: &Map<String, Value>) -> Cow<'f, Self> {
        for (name, value) in members.iter().filter(|(name, _)| Self::MEMBERS.contains(&name.as_str())) {
            fact.to_mut().insert(name.as_str(), value.clone());
        }
        fact
    }
}

/// Defines the struct of a family: each member with its purpose, its field, its type and its name.
///
/// Under `copied` stand the members that a content takes as they are, of any type; one has a field only if code
/// reads it.
macro_rules! family {
    ($(#[doc = $about:literal])+ $family:ident {
        $($field:ident: $kind:ty = $member:literal: $purpose:literal;)*
    } $(copied {
        $($($copied_field:ident: $copied_kind:ty =)? $copied:literal $(: $copied_about:literal)?;)+
    })?) => {
        family! {
            @struct $(#[doc = $about])+ $family {
                $(#[doc = $purpose] $field: $kind = $member;)*
                $($($(#[doc = concat!("`", $copied, "`")] $copied_field: $copied_kind = $copied;)?)+)?
            }
        }

        impl FactFamily for $family {
            const MEMBERS: &'static [&'static str] = &[$($member,)* $($($copied,)+)?];
            const COPIED: &'static [(&'static str, &'static str)] = &[$($(($copied, concat!($($copied_about)?)),)+)?];

            fn schema() -> Value {
                schema_of(concat!($($about),+), &[
                    $(($member, $purpose, <$kind as FieldType>::schema()),)*
                    $($(($copied, concat!($($copied_about)?), family!(@schema $($copied_kind)?)),)+)?
                ])
            }

            fn insert(&mut self, name: impl AsRef<str> + Into<String>, value: Value) {
                Self::insert(self, name, value);
            }
        }
    };
    (@schema) => { json!({}) };
    (@schema $kind:ty) => { <$kind as FieldType>::schema() };
    (@struct $(#[$about:meta])+ $family:ident { $(#[$purpose:meta] $field:ident: $kind:ty = $member:literal;)+ }) => {
        $(#[$about])+
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $family {
            $(#[$purpose] pub $field: Option<$kind>,)+
            /// All other members, and those of another JSON type, in their order.
            pub extra: Map<String, Value>,
        }

        impl $family {
            fn has(&self, name: &str) -> bool {
                match name {
                    $($member => self.$field.is_some(),)+
                    _ => false,
                }
            }

            pub(super) fn get(&self, name: &str) -> Option<MemberRef<'_>> {
                let member = match name {
                    $($member => self.$field.as_ref().map(FieldType::view),)+
                    _ => None,
                };
                member.or_else(|| self.extra.get(name).map(MemberRef::from))
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

            pub(super) fn is_empty(&self) -> bool {
                self.extra.is_empty() $(&& self.$field.is_none())+
            }

            pub(super) fn each<'m>(&'m self, mut see: impl FnMut(&'m str, MemberRef<'m>)) {
                $(if let Some(value) = &self.$field {
                    see($member, value.view());
                })+
                // A source may set a field beside a member of another type.
                for (name, value) in self.extra.iter().filter(|(name, _)| !self.has(name)) {
                    see(name, value.into());
                }
            }

            pub(super) fn each_mut(&mut self, mut change: impl FnMut(&'static str, MemberMut<'_>)) {
                $(if let Some(member) = self.$field.as_mut().and_then(FieldType::view_mut) {
                    change($member, member);
                })+
            }

            pub(super) fn into_map(self) -> Map<String, Value> {
                let mut map = Map::new();
                $(if let Some(value) = self.$field {
                    map.insert($member.to_owned(), value.into_value());
                })+
                for (name, value) in self.extra {
                    map.entry(name).or_insert(value);
                }
                map
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
pub(super) use family;

/// The schema of a family's payload, of its members' names, meanings and types.
pub(super) fn schema_of(about: &str, members: &[(&str, &str, Value)]) -> Value {
    let property = |(member, purpose, kind): &(&str, &str, Value)| {
        let mut property = Map::new();
        if !purpose.is_empty() {
            property.insert("description".to_owned(), purpose.trim().into());
        }
        if kind.as_object().is_some_and(|kind| !kind.is_empty()) {
            property.insert("anyOf".to_owned(), json!([kind, true]));
        }
        ((*member).to_owned(), property.into())
    };
    let properties: Map<String, Value> = members.iter().map(property).collect();
    json!({ "description": about.trim(), "type": "object", "properties": properties, "additionalProperties": true })
}
