//! What a client read of one response.

use serde_json::Value;

/// An event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEvent {
    /// Its own id, if it has one.
    pub id: Option<String>,
    /// Its JSON text.
    pub data: String,
}

/// How a response ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEnd {
    /// The server ended it.
    Complete,
    /// It failed, or its status is not a success; the reason.
    Failed(String),
}

/// The events of one response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    pub events: Vec<StreamEvent>,
    pub end: StreamEnd,
}

impl Transcript {
    /// The transcript of a response without events, such as a 204.
    #[must_use]
    pub const fn empty() -> Self {
        Self { events: Vec::new(), end: StreamEnd::Complete }
    }

    /// The transcript of a response that failed.
    #[must_use]
    pub fn failed(reason: impl Into<String>) -> Self {
        Self { events: Vec::new(), end: StreamEnd::Failed(reason.into()) }
    }

    /// The id after which a client resumes that has the first `k` events.
    #[must_use]
    pub fn id_at(&self, k: usize) -> Option<&str> {
        self.events[..k].iter().rev().find_map(|event| event.id.as_deref())
    }
}

/// The JSON of an event.
///
/// # Errors
/// That it is not JSON.
pub fn parse(event: &StreamEvent) -> Result<Value, String> {
    serde_json::from_str(&event.data).map_err(|error| format!("it is not JSON: {error}: {}", shortened(&event.data)))
}

/// The `type` of an event; empty if it has none.
pub fn type_of(event: &StreamEvent) -> String {
    parse(event).ok().and_then(|event| Some(event.get("type")?.as_str()?.to_owned())).unwrap_or_default()
}

/// A text of at most 120 characters.
pub fn shortened(text: &str) -> String {
    match text.char_indices().nth(120) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}
