//! The operations on a content as a JSON Patch (RFC 6902): written, and read again as the server wrote them.

use crate::activity_set::{escaped, unescaped};
use crate::change::{ContentOperation, MemberPlace, Within};
use crate::members::{OUTPUT_CHANNELS, PARTS};
use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use std::borrow::Cow;

impl Serialize for ContentOperation {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let op = match self {
            Self::Add(..) | Self::Push(..) => "add",
            Self::Replace(..) => "replace",
            Self::Remove(_) | Self::RemoveFirst(_) => "remove",
            Self::FromSource(op) => return op.serialize(to),
        };
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("op", op)?;
        map.serialize_entry("path", &path(self))?;
        match self {
            Self::Add(_, value) | Self::Replace(_, value) | Self::Push(_, value) => map.serialize_entry("value", value)?,
            Self::Remove(_) | Self::RemoveFirst(_) | Self::FromSource(_) => {}
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for ContentOperation {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Value::deserialize(from).map(read)
    }
}

/// Reads an operation. One in a form that the server does not write stays as it is.
pub fn read(mut op: Value) -> ContentOperation {
    let Some((kind, at)) = shape(&op) else { return ContentOperation::FromSource(op) };
    let value = op.get_mut("value").map(Value::take).unwrap_or_default();
    match kind {
        OperationKind::Add => ContentOperation::Add(at, value),
        OperationKind::Replace => ContentOperation::Replace(at, value),
        OperationKind::Remove => ContentOperation::Remove(at),
        OperationKind::Push => ContentOperation::Push(at, value),
        OperationKind::RemoveFirst => ContentOperation::RemoveFirst(at),
    }
}

enum OperationKind {
    Add,
    Replace,
    Remove,
    Push,
    RemoveFirst,
}

/// What an operation does, and where; `None` unless it is written as the server writes it.
fn shape(op: &Value) -> Option<(OperationKind, MemberPlace)> {
    let mut members = op.as_object()?.iter();
    let mut text = |name: &str| members.next().filter(|(member, _)| *member == name)?.1.as_str();
    let (op, path) = (text("op")?, text("path")?);
    let has_value = match members.next() {
        Some((member, _)) if member == "value" => true,
        Some(_) => return None,
        None => false,
    };
    let tokens: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    let (within, tokens) = match tokens[..] {
        [list, index, ref rest @ ..] if list == PARTS.name() && !rest.is_empty() => {
            (Within::Item(PARTS.name(), index.parse().ok().filter(|known: &usize| known.to_string() == index)?), rest)
        }
        [object, ref rest @ ..] if object == OUTPUT_CHANNELS.name() && !rest.is_empty() => {
            (Within::Member(OUTPUT_CHANNELS.name()), rest)
        }
        ref content => (Within::Content, content),
    };
    let (kind, token) = match (op, tokens, has_value) {
        ("add", [member], true) => (OperationKind::Add, member),
        ("add", [member, "-"], true) => (OperationKind::Push, member),
        ("replace", [member], true) => (OperationKind::Replace, member),
        ("remove", [member], false) => (OperationKind::Remove, member),
        ("remove", [member, "0"], false) => (OperationKind::RemoveFirst, member),
        _ => return None,
    };
    let member = unescaped(token);
    let is_only = members.next().is_none() && escaped(&member) == *token;
    is_only.then(|| (kind, MemberPlace { within, member: member.into_owned().into() }))
}

/// The JSON Pointer of what an operation sets or changes.
pub fn path(operation: &ContentOperation) -> Cow<'_, str> {
    match operation {
        ContentOperation::FromSource(op) => op.get("path").and_then(Value::as_str).unwrap_or_default().into(),
        ContentOperation::Push(at, _) => pointer(at, "/-").into(),
        ContentOperation::RemoveFirst(at) => pointer(at, "/0").into(),
        ContentOperation::Add(at, _) | ContentOperation::Replace(at, _) | ContentOperation::Remove(at) => pointer(at, "").into(),
    }
}

/// The value of an operation, to be changed.
pub fn value_mut(operation: &mut ContentOperation) -> Option<&mut Value> {
    match operation {
        ContentOperation::Add(_, value) | ContentOperation::Replace(_, value) | ContentOperation::Push(_, value) => Some(value),
        ContentOperation::FromSource(op) => op.get_mut("value"),
        ContentOperation::Remove(_) | ContentOperation::RemoveFirst(_) => None,
    }
}

/// The JSON Pointer (RFC 6901) of a place, with this end.
fn pointer(at: &MemberPlace, end: &str) -> String {
    let member = escaped(&at.member);
    match at.within {
        Within::Content => ["/", &*member, end].concat(),
        Within::Item(list, index) => ["/", list, "/", itoa::Buffer::new().format(index), "/", &member, end].concat(),
        Within::Member(object) => ["/", object, "/", &member, end].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(within: Within, member: &'static str) -> MemberPlace {
        MemberPlace { within, member: member.into() }
    }

    #[test]
    fn an_operation_of_the_fold_is_read_as_it_was_written() {
        let places = [
            at(Within::Content, "status"),
            at(Within::Content, "a/b~c"),
            at(Within::Content, "-"),
            at(Within::Item(PARTS.name(), 12), "text"),
            at(Within::Member(OUTPUT_CHANNELS.name()), "stderr"),
            at(Within::Member(OUTPUT_CHANNELS.name()), "-"),
            at(Within::Member(OUTPUT_CHANNELS.name()), "0"),
        ];
        for place in places {
            for operation in [
                ContentOperation::Add(place.clone(), json!({ "a": [1] })),
                ContentOperation::Replace(place.clone(), json!("text")),
                ContentOperation::Remove(place.clone()),
                ContentOperation::Push(place.clone(), json!("chunk")),
                ContentOperation::RemoveFirst(place),
            ] {
                let written = serde_json::to_string(&operation).unwrap();
                assert_eq!(serde_json::from_str::<ContentOperation>(&written).unwrap(), operation, "{written}");
            }
        }
    }

    #[test]
    fn any_operation_of_a_source_is_written_as_it_came() {
        for op in [
            r#"{"op":"test","path":"/a","value":1}"#,
            r#"{"op":"move","path":"/a","from":"/b"}"#,
            r#"{"path":"/a","op":"add","value":1}"#,
            r#"{"op":"add","path":"/a","value":1,"more":2}"#,
            r#"{"op":"add","path":"/a/b/c","value":1}"#,
            r#"{"op":"add","path":"/a/1","value":1}"#,
            r#"{"op":"add","path":"/parts/01/text","value":1}"#,
            r#"{"op":"add","path":"/parts/-","value":{}}"#,
            r#"{"op":"add","path":"/parts/1","value":{}}"#,
            r#"{"op":"add","path":"/output_channels/-","value":{}}"#,
            r#"{"op":"add","path":"/a~2","value":1}"#,
            r#"{"op":"remove","path":"/a","value":1}"#,
            r#"{"op":"replace","path":"","value":{}}"#,
            r#"{"op":"add"}"#,
            "7",
        ] {
            let operation: ContentOperation = serde_json::from_str(op).unwrap();
            assert_eq!(serde_json::to_string(&operation).unwrap(), op, "{operation:?}");
        }
    }
}
