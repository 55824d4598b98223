//! A2UI: the messages by which an agent describes a surface of an interface, as version 0.9 has them.
//!
//! A fact carries them as a list, as AG-UI does: `content {a2ui_operations: […], status?}` of an activity of the type
//! [`ACTIVITY_TYPE`]. A message of another version is no fault: readers get it as it is.

use crate::id::MessageId;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// The type of the activity that carries the messages.
pub const ACTIVITY_TYPE: &str = "a2ui-surface";
/// The member of its content with the messages.
pub const OPERATIONS: &str = "a2ui_operations";
/// The media types of a message in a part of A2A. The second is the older one.
pub const MEDIA_TYPES: [&str; 2] = ["application/a2ui+json", "application/json+a2ui"];

const CREATE: &str = "createSurface";
const COMPONENTS: &str = "updateComponents";
const DATA_MODEL: &str = "updateDataModel";
const DELETE: &str = "deleteSurface";

/// A message about one surface.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SurfaceMessage<'m> {
    /// The surface that it is about.
    pub surface: &'m str,
    /// The version that it states.
    pub version: Option<&'m Value>,
    /// What it does.
    pub operation: SurfaceChange<'m>,
}

/// What a message does to its surface.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SurfaceChange<'m> {
    /// Creates the surface. The members are those of `createSurface`.
    Create(&'m Map<String, Value>),
    /// Sets components. An item may be no component.
    Components(&'m [Value]),
    /// Sets or removes a value of the data model.
    DataModel {
        /// The JSON Pointer of the value; empty for the whole model.
        path: &'m str,
        /// The value; `None` removes what is there.
        value: Option<&'m Value>,
    },
    /// Deletes the surface.
    Delete,
    /// A message of another version, as it is.
    Other(&'m Value),
}

impl<'m> SurfaceMessage<'m> {
    /// Reads a message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(message: &'m Value) -> Result<Self, &'static str> {
        let members = message.as_object().ok_or("The message is not an object.")?;
        let version = members.get("version").filter(|version| !version.is_null());
        let known = [CREATE, COMPONENTS, DATA_MODEL, DELETE].into_iter().find_map(|name| Some((name, members.get(name)?)));
        let Some((name, body)) = known else {
            let other = members.values().find_map(|body| body.get("surfaceId")?.as_str());
            let surface = other.ok_or("The message has none of the known operations, and names no surface.")?;
            return Ok(Self { surface: checked(surface)?, version, operation: SurfaceChange::Other(message) });
        };
        let body = body.as_object().ok_or("The operation is not an object.")?;
        let surface = checked(body.get("surfaceId").and_then(Value::as_str).ok_or("The operation has no surfaceId.")?)?;
        let operation = match name {
            CREATE => SurfaceChange::Create(body),
            COMPONENTS => SurfaceChange::Components(
                body.get("components").and_then(Value::as_array).ok_or("The components are not a list.")?,
            ),
            DATA_MODEL => {
                let path = match body.get("path") {
                    None | Some(Value::Null) => "",
                    Some(path) => path.as_str().ok_or("The path is not a text.")?,
                };
                SurfaceChange::DataModel { path, value: body.get("value") }
            }
            _ => SurfaceChange::Delete,
        };
        Ok(Self { surface, version, operation })
    }
}

/// A surface's id, if it can be that of an activity.
fn checked(surface: &str) -> Result<&str, &'static str> {
    MessageId::new(surface).map(|_| surface).map_err(|_| "The surfaceId is not a valid id.")
}

/// The id of a component; `None` for a value that is none.
#[must_use]
pub fn component_id(component: &Value) -> Option<&str> {
    component.get("id")?.as_str().filter(|id| !id.is_empty())
}

/// The tokens of a path into the data model. Renderers ignore empty ones.
pub fn path_tokens(path: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let unescaped = |token: &str| token.replace("~1", "/").replace("~0", "~");
    path.split('/').filter(|token| !token.is_empty()).map(move |token| match token.contains('~') {
        true => Cow::Owned(unescaped(token)),
        false => Cow::Borrowed(token),
    })
}

/// What is wrong with a list of messages: the place of the first faulty one, and its fault.
#[must_use]
pub fn fault(messages: &Value) -> Option<(usize, &'static str)> {
    let Value::Array(messages) = messages else { return Some((0, "The messages are not a list.")) };
    messages.iter().enumerate().find_map(|(at, message)| Some((at, fault_of(message)?)))
}

fn fault_of(message: &Value) -> Option<&'static str> {
    match SurfaceMessage::read(message) {
        Ok(SurfaceMessage { operation: SurfaceChange::Components(components), .. }) => {
            components.iter().any(|component| component_id(component).is_none()).then_some("A component has no id.")
        }
        Ok(_) => None,
        Err(fault) => Some(fault),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_fault_of_a_message_is_named_and_another_version_is_none() {
        for (message, expected) in [
            (json!({"version": "v0.9", "createSurface": {"surfaceId": "s"}}), None),
            (json!({"updateDataModel": {"surfaceId": "s", "path": null, "value": 1}}), None),
            (json!({"surfaceUpdate": {"surfaceId": "s", "components": 7}}), None),
            (json!(7), Some("The message is not an object.")),
            (json!({}), Some("The message has none of the known operations, and names no surface.")),
            (json!({"deleteSurface": 7}), Some("The operation is not an object.")),
            (json!({"deleteSurface": {}}), Some("The operation has no surfaceId.")),
            (json!({"deleteSurface": {"surfaceId": ""}}), Some("The surfaceId is not a valid id.")),
            (json!({"updateComponents": {"surfaceId": "s"}}), Some("The components are not a list.")),
            (json!({"updateComponents": {"surfaceId": "s", "components": [{"id": ""}]}}), Some("A component has no id.")),
            (json!({"updateDataModel": {"surfaceId": "s", "path": 7}}), Some("The path is not a text.")),
        ] {
            assert_eq!(fault_of(&message), expected, "{message}");
        }
        assert_eq!(fault(&json!([{"deleteSurface": {"surfaceId": "s"}}, 7])), Some((1, "The message is not an object.")));
        assert_eq!(fault(&json!({})), Some((0, "The messages are not a list.")));
    }

    #[test]
    fn a_path_is_read_as_renderers_read_it() {
        let tokens = |path| path_tokens(path).collect::<Vec<_>>();
        assert_eq!((tokens("").len(), tokens("/").len(), tokens("a//b")), (0, 0, vec!["a".into(), "b".into()]));
        assert_eq!(tokens("/a~1b/~0"), ["a/b", "~"]);
    }
}
