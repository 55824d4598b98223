//! The chunks: what a fact means without the facts before it.

use crate::members::{Need, Parsed, id_of, parse_kind, require, take_text, take_type};
use crate::{Fact, FactError};
use proscenium_model::{Draft, EventType, ToolCallId};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The chunk types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    Start,
    StartStep,
    FinishStep,
    ResetStep,
    TextStart,
    TextDelta,
    TextEnd,
    ReasoningStart,
    ReasoningDelta,
    ReasoningEnd,
    ToolInputStart,
    ToolInputDelta,
    ToolInputAvailable,
    ToolInputError,
    ToolApprovalRequest,
    ToolApprovalResponse,
    ToolOutputAvailable,
    ToolOutputError,
    ToolOutputDenied,
    SourceUrl,
    SourceDocument,
    File,
    ReasoningFile,
    Custom,
    MessageMetadata,
    SteeringMessage,
    Error,
    Abort,
    Finish,
    /// `data-<name>`: the author of the backend chooses the name.
    #[serde(skip)]
    Data,
}

impl Kind {
    fn is_data(name: &str) -> bool {
        name.strip_prefix("data-").is_some_and(|name| !name.is_empty())
    }

    /// Returns the required members of a chunk.
    const fn needs(self) -> &'static [(&'static str, Need)] {
        use Need::{Flag, Id, List, Text};
        match self {
            Self::TextStart | Self::TextEnd | Self::ReasoningStart | Self::ReasoningEnd => &[("id", Text)],
            Self::TextDelta | Self::ReasoningDelta => &[("id", Text), ("delta", Text)],
            Self::ToolInputDelta => &[("toolCallId", Id), ("inputTextDelta", Text)],
            Self::ToolInputStart
            | Self::ToolInputAvailable
            | Self::ToolInputError
            | Self::ToolApprovalRequest
            | Self::ToolOutputAvailable
            | Self::ToolOutputError
            | Self::ToolOutputDenied => &[("toolCallId", Id)],
            Self::ToolApprovalResponse => &[("approvalId", Id), ("approved", Flag)],
            Self::File | Self::ReasoningFile => &[("url", Text)],
            Self::SteeringMessage => &[("parts", List)],
            _ => &[],
        }
    }

    /// Whether the chunk shows that the model or a tool works, so that a pause is over.
    pub const fn is_work(self) -> bool {
        use Kind::{FinishStep, ResetStep, StartStep};
        use Kind::{ReasoningDelta, ReasoningEnd, ReasoningStart, TextDelta, TextEnd, TextStart};
        matches!(self, StartStep | FinishStep | ResetStep)
            || matches!(self, TextStart | TextDelta | TextEnd | ReasoningStart | ReasoningDelta | ReasoningEnd)
            || self.is_of_call()
    }

    const fn is_of_call(self) -> bool {
        use Kind::{ToolApprovalRequest, ToolApprovalResponse, ToolOutputAvailable, ToolOutputDenied, ToolOutputError};
        self.is_input()
            || matches!(
                self,
                ToolApprovalRequest | ToolApprovalResponse | ToolOutputAvailable | ToolOutputError | ToolOutputDenied
            )
    }

    const fn is_input(self) -> bool {
        use Kind::{ToolInputAvailable, ToolInputDelta, ToolInputError, ToolInputStart};
        matches!(self, ToolInputStart | ToolInputDelta | ToolInputAvailable | ToolInputError)
    }

    /// Whether the chunk shows that the model works again. After a pause, the answers come before it.
    pub const fn is_of_model(self) -> bool {
        matches!(self, Self::StartStep | Self::TextStart | Self::ReasoningStart) || self.is_input()
    }
}

/// A parsed fact.
pub(super) type Event = Parsed<Box<Known>>;

/// A chunk of a known type.
pub(super) struct Known {
    pub kind: Kind,
    pub name: String,
    pub members: Fact,
    /// The streamed text of a delta.
    pub delta: String,
    /// A diagnostic for each internal member.
    pub internals: Vec<Draft>,
}

/// Members for internal readers, with the `kind` of their diagnostic.
///
/// They hold signatures, encrypted content, the provider's ids, and what the backend checks a decision with.
const INTERNAL_MEMBERS: &[(&str, &str)] = &[
    ("providerMetadata", "provider_metadata"),
    ("toolMetadata", "tool_metadata"),
    ("signature", "approval_signature"),
    ("inputSchemaInput", "approval_input"),
    ("approvalDescriptor", "approval_descriptor"),
];

pub(super) fn parse(mut fact: Fact) -> Result<Event, FactError> {
    let name = take_type(&mut fact, "type")?;
    Ok(parse_known(name, fact))
}

fn parse_known(name: String, fact: Fact) -> Event {
    let (kind, fact) = if Kind::is_data(&name) { (Kind::Data, fact) } else { parse_kind(&name, fact)? };
    let mut fact = require("ai-sdk", &name, fact, kind.needs())?;
    take_app(&mut fact);
    // Only `custom` consists of its metadata.
    let internals = if kind == Kind::Custom { Vec::new() } else { take_internals(&name, &mut fact) };
    let delta = match kind {
        Kind::TextDelta | Kind::ReasoningDelta => take_text(&mut fact, "delta"),
        Kind::ToolInputDelta => take_text(&mut fact, "inputTextDelta"),
        _ => None,
    };
    Ok(Known { kind, name, members: fact, delta: delta.unwrap_or_default(), internals }.into())
}

/// The members of a tool's interface that are for users.
const APP_MEMBERS: &[&str] = &["resourceUri", "mimeType", "visibility"];

/// Takes the interface of a tool (MCP Apps) out of the backend's own data about the tool: a page shows it.
fn take_app(fact: &mut Fact) {
    let Some(Value::Object(metadata)) = fact.get_mut("toolMetadata") else { return };
    let Some(Value::Object(app)) = metadata.get_mut("app") else { return };
    if !app.get("resourceUri").is_some_and(Value::is_string) {
        return;
    }
    let shown: Map<_, _> = APP_MEMBERS.iter().filter_map(|member| app.shift_remove_entry(*member)).collect();
    if app.is_empty() {
        metadata.shift_remove("app");
    }
    if metadata.is_empty() {
        fact.shift_remove("toolMetadata");
    }
    fact.insert("app".into(), shown.into());
}

/// Takes the chunk's internal members and returns a diagnostic for each.
fn take_internals(event_type: &str, fact: &mut Fact) -> Vec<Draft> {
    let call: Option<ToolCallId> = id_of(fact, "toolCallId");
    let diagnostics = INTERNAL_MEMBERS.iter().filter_map(|(member, kind)| {
        let value = fact.shift_remove(*member)?;
        let mut draft = Draft::new(EventType::DiagnosticChanged).with("kind", *kind).with("eventType", event_type);
        draft.payload.insert(*member, value);
        draft.ids.tool_call.clone_from(&call);
        Some(draft)
    });
    diagnostics.collect()
}
