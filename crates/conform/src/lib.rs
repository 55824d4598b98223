//! Whether a stream that a client resumes is the stream that it would have read without the cut.
//!
//! The invariant is *prefix(k) + resume(k) = whole, for every k*: a client that has the first k events of a stream and
//! asks for the rest ends with the state of a client that read all of it. What a client's state is follows from its
//! dialect ([`ClientState`]), so a rest may be the missing events, or a snapshot that replaces them.
//!
//! Everything here is a function of transcripts. A driver reads the streams and names the [`Check`] of each.

mod ag_ui;
mod ai_sdk;
mod checks;
mod difference;
mod transcript;

pub use ag_ui::AgUiState;
pub use ai_sdk::AiSdkState;
pub use checks::{Check, Fault, bytes, duplicate, resumed, sample, tool_cuts, whole};
pub use difference::first_difference;
pub use transcript::{StreamEnd, StreamEvent, Transcript};

use serde_json::Value;

/// The protocol of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeDialect {
    /// AG-UI events. Each has an id, and a client resumes after the last one.
    AgUi,
    /// The AI SDK's UI message stream. A client resumes after a number of chunks, or reads all of it again.
    AiSdk,
}

/// What a client of a dialect holds after some events.
pub enum ClientState {
    AgUi(Box<AgUiState>),
    AiSdk(Box<AiSdkState>),
}

impl ClientState {
    /// The state of a client that has read nothing.
    #[must_use]
    pub fn new(dialect: ResumeDialect) -> Self {
        match dialect {
            ResumeDialect::AgUi => Self::AgUi(Box::default()),
            ResumeDialect::AiSdk => Self::AiSdk(Box::default()),
        }
    }

    /// Reads an event.
    ///
    /// # Errors
    /// What a client of the dialect refuses.
    pub fn apply(&mut self, event: &Value) -> Result<(), String> {
        match self {
            Self::AgUi(state) => state.apply(event),
            Self::AiSdk(state) => state.apply(event),
        }
    }

    /// Begins another response: its first event may start the stream again.
    pub fn reconnect(&mut self) {
        match self {
            Self::AgUi(state) => state.reconnect(),
            Self::AiSdk(_) => {}
        }
    }

    /// What the client shows, as JSON. Equal states are equal documents.
    #[must_use]
    pub fn document(&self) -> Value {
        match self {
            Self::AgUi(state) => state.document(),
            Self::AiSdk(state) => state.document(),
        }
    }

    /// Whether the last event ended the run.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match self {
            Self::AgUi(state) => state.is_over(),
            Self::AiSdk(state) => state.is_over(),
        }
    }
}
