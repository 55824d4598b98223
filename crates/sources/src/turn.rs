//! What runtimes say of a run: where it stands, what it streams, how it ends.

use super::Fact;
use super::members::take_text;
use proscenium_model::{ActionId, Draft, EventType, Owner, Persistence, Phase, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Where a run stands, by the boundaries that its runtime reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TurnState {
    #[default]
    New,
    Open,
    /// The run waits: for an answer, for a credential, or for work that goes on elsewhere.
    // Ethos' word in the states of releases up to 0.2.0.
    #[serde(alias = "parked")]
    Paused,
    Ended,
}

/// What a stream of a message has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Channel {
    Text,
    Reasoning,
}

impl Channel {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Reasoning => "reasoning",
        }
    }

    #[must_use]
    pub const fn delta(self) -> EventType {
        match self {
            Self::Text => EventType::TextDelta,
            Self::Reasoning => EventType::ReasoningDelta,
        }
    }

    #[must_use]
    pub const fn end(self) -> EventType {
        match self {
            Self::Text => EventType::TextFinal,
            Self::Reasoning => EventType::ReasoningSummary,
        }
    }
}

/// The status of a run that waits.
pub(super) fn waiting() -> Draft {
    Draft::new(EventType::RunStatus).with("status", "waiting").with_phase(Phase::Waiting).with_persistence(Persistence::Snapshot)
}

/// An end of the run that is no failure.
pub(super) fn ended(phase: Phase, status: &str) -> Draft {
    Draft::new(EventType::RunFinished).with("status", status).with_phase(phase)
}

/// The failure of the run.
pub(super) fn failed(error: impl Into<Value>) -> Draft {
    Draft::new(EventType::RunFailed).with("status", "failed").with("error", error)
}

/// The start of the run, or where it was paused, its continuation.
pub(super) fn started(is_resumed: bool, attempt: u64) -> Draft {
    let mut draft = match is_resumed {
        true => Draft::new(EventType::RunStatus).with("resumed", true),
        false => Draft::new(EventType::RunStarted).with("attempt", attempt),
    };
    draft.phase = if is_resumed { Phase::Acting } else { Phase::Accepted };
    draft.persistence = Persistence::Snapshot;
    draft
}

/// The end of an action, mostly by its answer.
pub(super) fn resolved(action: ActionId, call: Option<ToolCallId>, outcome: &str, owner: Owner) -> Draft {
    Draft::new(EventType::ActionResolved).with("outcome", outcome).with_owner(owner).with_action(action).with_call(call)
}

/// The `error` of a failure: `{code?, message}`.
pub(super) fn error(code: Option<impl Into<Value>>, message: impl Into<Value>) -> Map<String, Value> {
    let mut error = Map::new();
    error.extend(code.map(|code| ("code".to_owned(), code.into())));
    error.insert("message".into(), message.into());
    error
}

/// Takes the `error` of a failure from members of these names.
pub(super) fn take_error(fact: &mut Fact, otherwise: &str) -> Map<String, Value> {
    let code = take_text(fact, "code");
    error(code, take_text(fact, "message").unwrap_or_else(|| otherwise.to_owned()))
}
