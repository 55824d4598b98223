//! The events of Ethos' loop and of its web server: what each says alone.

use crate::members::{Need, Parsed, diagnostic, known, parse_kind, require, take_type};
use crate::{Fact, FactError};
use proscenium_model::Audience;
use serde::Deserialize;
use serde_json::Value;

/// The discriminator.
pub(super) const TYPE: &str = "type";

/// A URL that contains the state of an OAuth exchange.
const AUTH_URL: &str = "authUrl";

/// Members for Ethos' own frontend that the server must not store.
///
/// They are that URL, and the user's pending message.
const DROPPED_MEMBERS: &[&str] = &[AUTH_URL, "pendingUserMessage"];

/// Events of the server itself, without a turn or task. The adapter keeps them as diagnostics.
pub(super) const SERVER_EVENTS: &[&str] = &[
    "stream_meta",
    "mesh.changed",
    "evolve.skill_pending",
    "evolve.skill_applied",
    "memory.captured",
    "protocol.upgrade_required",
];

/// The event types of the loop and of the web server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    RunStart,
    Done,
    Error,
    Halt,
    ContextMeta,
    Usage,
    CredentialRequired,
    DryRunSummary,
    EvaluatorsComplete,
    TextDelta,
    ThinkingDelta,
    ToolStart,
    ToolProgress,
    ToolEnd,
    ToolApprovalRequired,
    ToolApprovalResponse,
    #[serde(alias = "notification")]
    NotificationReceived,
    MessagePersisted,
    #[serde(rename = "tool.approval_required")]
    ApprovalRequired,
    #[serde(rename = "approval.resolved")]
    ApprovalResolved,
    #[serde(rename = "clarify.request")]
    ClarifyRequest,
    #[serde(rename = "clarify.resolved")]
    ClarifyResolved,
    #[serde(rename = "run.update")]
    JobUpdate,
    #[serde(rename = "cron.fired")]
    CronFired,
}

impl Kind {
    /// Returns the required members of an event.
    const fn needs(self) -> &'static [(&'static str, Need)] {
        use Need::{Flag, Id, List, Text};
        match self {
            Self::TextDelta => &[("text", Text)],
            Self::ThinkingDelta => &[("thinking", Text)],
            Self::ToolStart | Self::ToolApprovalRequired => &[("toolCallId", Id)],
            Self::ToolProgress => &[("toolName", Text)],
            Self::ToolEnd => &[("toolCallId", Id), ("ok", Flag)],
            Self::ToolApprovalResponse => &[("toolCallId", Id), ("approved", Flag)],
            Self::CredentialRequired => &[("pluginId", Text), ("credentialKey", Text)],
            Self::EvaluatorsComplete => &[("results", List)],
            Self::DryRunSummary => &[("plan", List)],
            Self::MessagePersisted => &[("messageId", Id)],
            Self::ApprovalResolved => &[("approvalId", Id)],
            Self::ClarifyRequest | Self::ClarifyResolved => &[("requestId", Id)],
            Self::JobUpdate | Self::CronFired => &[("jobId", Id)],
            _ => &[],
        }
    }

    /// Whether the event has an `audience` member.
    ///
    /// On any other event, a future `audience` can narrow the event type table's audience but not widen it.
    const fn has_audience(self) -> bool {
        matches!(self, Self::ToolStart | Self::ToolProgress | Self::ToolEnd | Self::ToolApprovalRequired)
    }
}

/// A parsed fact.
pub(super) struct Event {
    /// The widest audience of the event's drafts.
    pub widest_audience: Audience,
    /// Whether the event has an address for a credential, which is dropped.
    pub has_address: bool,
    /// The event without its type and its dropped members.
    pub content: Parsed<(Kind, Fact)>,
}

pub(super) fn parse(mut fact: Fact) -> Result<Event, FactError> {
    let event_type = take_type(&mut fact, TYPE)?;
    let has_address = fact.contains_key(AUTH_URL);
    fact.retain(|member, _| !DROPPED_MEMBERS.contains(&member.as_str()));
    let has_audience = known::<Kind>(&event_type).is_some_and(Kind::has_audience);
    // An unknown audience is internal.
    let own = audience_of(&fact, Audience::User).unwrap_or(Audience::Internal);
    let widest_audience = if has_audience { Audience::User } else { own };
    Ok(Event { widest_audience, has_address, content: parse_known(&event_type, fact) })
}

fn parse_known(event_type: &str, fact: Fact) -> Parsed<(Kind, Fact)> {
    if SERVER_EVENTS.contains(&event_type) {
        return Err(diagnostic(event_type, event_type, fact).into());
    }
    let (kind, fact) = parse_kind::<Kind>(event_type, fact)?;
    Ok((kind, require("ethos", event_type, fact, kind.needs())?))
}

/// Reads the audience of the event: `absent` if it has none, and `None` if it is unknown.
pub(super) fn audience_of(fact: &Fact, absent: Audience) -> Option<Audience> {
    match fact.get("audience") {
        None | Some(Value::Null) => Some(absent),
        Some(said) => said.as_str().and_then(Audience::parse),
    }
}
