//! An envelope, as `tail` reads it.

use serde_json::{Map, Value};

/// Accessors for an envelope.
pub struct Event<'e>(pub &'e Map<String, Value>);

impl<'e> Event<'e> {
    pub fn id(&self, member: &str) -> &'e str {
        self.0.get(member).and_then(Value::as_str).unwrap_or("")
    }

    pub fn payload(&self, member: &str) -> Option<&'e Value> {
        self.0.get("payload")?.get(member)
    }

    pub fn text(&self, member: &str) -> &'e str {
        self.payload(member).and_then(Value::as_str).unwrap_or("")
    }

    /// Returns the code and the message of an error.
    pub fn error(&self) -> String {
        let text = |member: &str| self.payload("error").and_then(|error| error.get(member)).and_then(Value::as_str);
        [text("code"), text("message")].into_iter().flatten().collect::<Vec<_>>().join(": ")
    }
}
