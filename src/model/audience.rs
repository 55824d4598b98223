//! Who may see what: the audience rule of the protocol, section 3, in one place.
//!
//! [`Reader::sight`](Audience::sight) is the only chokepoint. It is asked once per envelope and audience, when the envelope
//! is written; live frames, resume, replay, REST, blobs and exports all read what it decided then, so that no path can
//! forget to ask.

use super::envelope::{Draft, Envelope};
use super::id::EvidenceId;
use super::taxonomy::{EventType, Persistence, Phase, Scope, Surface};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// Who a fact is for, or who a reader is: `user` ⊂ `dashboard` ⊂ `internal`. The order is by narrowness: a fact for
/// `Internal` is the narrowest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    /// End users.
    User,
    /// Operators; they see what users see too.
    Dashboard,
    /// Logs, telemetry, verbose modes; they see everything. Where nobody says, it is this: closed.
    #[default]
    Internal,
}

impl Audience {
    /// All audiences, widest first; an audience's place here is [`Self::index`].
    pub const ALL: [Self; 3] = [Self::User, Self::Dashboard, Self::Internal];

    /// The place of this audience in tables of three.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Dashboard => "dashboard",
            Self::Internal => "internal",
        }
    }

    /// The audience that a name stands for; `None` for a name that we do not know. Producers' unknown names fail closed to
    /// [`Internal`](Self::Internal), a reader's are refused: the caller decides.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.as_str() == name)
    }

    /// Whether a reader of this audience may see a fact for `fact`.
    #[must_use]
    pub fn admits(self, fact: Self) -> bool {
        fact <= self
    }

    /// What a reader of this audience gets of `envelope`.
    ///
    /// The rules, in order: run boundaries reach everyone; outside a thing's start audience there is nothing of it; a patch
    /// is nothing to whoever lacks what it builds on; a failure takes the start audience, whatever its own; who saw a start
    /// sees an end, as an edge where the end's own audience is narrower; an action loses what tells of a call that this
    /// reader cannot see; and the failure of a hidden call is counted, for a failure always reaches users (seed 000).
    #[must_use]
    pub fn sight(self, envelope: &Envelope) -> Sight {
        let class = &envelope.draft.class;
        let own = self.admits(envelope.draft.audience);
        if class.is_run_boundary() {
            return if own || *class == EventType::RunFailed { Sight::Body } else { Sight::Edge };
        }
        if !self.admits(envelope.draft.start_audience.unwrap_or(envelope.draft.audience)) {
            return if is_failed_call(envelope) { Sight::Counted } else { Sight::Hidden };
        }
        if envelope.draft.missed_by.is_some_and(|missed| self <= missed) {
            return Sight::Hidden;
        }
        if is_failure(envelope) && envelope.draft.start_audience.is_some() {
            return Sight::Body;
        }
        if !own {
            return if class.is_end() { Sight::Edge } else { Sight::Hidden };
        }
        match envelope.draft.call_audience {
            Some(call) if !self.admits(call) => Sight::Trimmed,
            _ => Sight::Body,
        }
    }
}

impl fmt::Display for Audience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How much of an envelope a reader gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// Nothing, not even that it exists.
    Hidden,
    /// That a hidden call failed: neither its ids nor its name nor a body.
    Counted,
    /// That the thing ended: ids, status, duration, and that the rest is withheld.
    Edge,
    /// The body without what tells of a call that this reader cannot see.
    Trimmed,
    /// All of it.
    Body,
}

/// Whether the envelope says that something went wrong.
#[must_use]
pub fn is_failure(envelope: &Envelope) -> bool {
    match envelope.draft.class {
        EventType::ToolFailed | EventType::ArtifactFailed | EventType::RunFailed => true,
        ref class => class.is_end() && envelope.draft.phase == Phase::Failed,
    }
}

/// Ids of things that stand beside the envelope's own. An edge without them would end nothing that a reader knows.
const THING_IDS: &[&str] = &["reviewId", "compactionId", "id"];

/// The edge of `envelope`: ids, dimensions, times, `status`, `durationMs`, and `withheld: true`. Nothing that its producer
/// wrote freely survives.
#[must_use]
pub fn edge(envelope: &Envelope) -> Envelope {
    let mut edge = envelope.clone();
    let draft = &mut edge.draft;
    let mut payload = Map::new();
    if matches!(draft.class, EventType::ReviewCompleted | EventType::ContextCompactionCompleted) {
        for member in THING_IDS {
            let id = draft.said(member).filter(|id| match id {
                Value::String(text) => EvidenceId::new(text).is_ok(),
                other => other.is_u64() || other.is_i64(),
            });
            payload.extend(id.map(|id| ((*member).to_owned(), id.clone())));
        }
    }
    for member in ["status", "durationMs"] {
        if let Some(value @ (Value::String(_) | Value::Number(_))) = draft.payload.get(member) {
            payload.insert(member.into(), value.clone());
        }
    }
    payload.insert("withheld".into(), Value::Bool(true));
    draft.payload = payload;
    draft.refs = None;
    draft.raw_event_ref = None;
    draft.control = None;
    draft.source_sequence = None;
    draft.extra = Map::new();
    edge
}

/// Whether a tool call failed. One that was stopped has not.
fn is_failed_call(envelope: &Envelope) -> bool {
    envelope.draft.class == EventType::ToolFailed && !matches!(envelope.draft.phase, Phase::Cancelled | Phase::Interrupted)
}

/// `payload.kind` of [`counted`].
pub const HIDDEN_FAILURE: &str = "hidden_failure";

/// The failure of a hidden call as a reader that cannot see the call gets it. Only its place in the log is the failure's own.
#[must_use]
pub fn counted(envelope: &Envelope) -> Envelope {
    let mut draft = Draft::new(EventType::ToolFailed).with("kind", HIDDEN_FAILURE).with("withheld", true);
    draft.ids.run.clone_from(&envelope.draft.ids.run);
    draft.scope = if draft.ids.run.is_some() { Scope::Run } else { Scope::Session };
    (draft.surface, draft.persistence) = (Surface::Diagnostics, Persistence::DiagnosticsLog);
    Envelope { draft, received_at: envelope.received_at.clone(), ..*envelope }
}

/// Payload members of an action that tell of the question and its answer. Every other member may tell of the call.
#[rustfmt::skip]
const OF_THE_QUESTION: &[&str] = &[
    "kind", "title", "message", "reason", "description", "schema", "responseSchema", "options", "default", "risk", "scope",
    "policyScope", "plan", "versionId", "artifactRefs", "evidenceRefs", "expiresAt", "parentRouting", "agentName", "teamName",
    "runtimeEntity", "resumeMode", "outcome", "value", "decision", "decidedBy", "resolvedBy", "status", "controlId", "attempt",
    "requeued", "withheld",
];

/// Relations to what is reviewed. Any other reference may lead to the call.
const OF_THE_REVIEWED: &[&str] =
    &["artifact", "artifactId", "version", "versionId", "evidence", "evidenceId", "plan", "diff", "review"];

/// `envelope` of an action without what tells of its tool call: only what is known to tell of the question stays.
#[must_use]
pub fn trimmed(envelope: &Envelope) -> Envelope {
    let mut trimmed = envelope.clone();
    let draft = &mut trimmed.draft;
    draft.ids.tool_call = None;
    draft.payload.retain(|member, _| OF_THE_QUESTION.contains(&member.as_str()));
    draft.extra.retain(|member, _| OF_THE_QUESTION.contains(&member.as_str()));
    draft.raw_event_ref = None;
    draft.refs = draft.refs.take().and_then(reviewed);
    trimmed
}

/// The references to what is reviewed.
fn reviewed(refs: Value) -> Option<Value> {
    match refs {
        Value::Array(mut links) => {
            links.retain(|link| link.get("rel").and_then(Value::as_str).is_some_and(|rel| OF_THE_REVIEWED.contains(&rel)));
            (!links.is_empty()).then_some(Value::Array(links))
        }
        Value::Object(mut map) => {
            map.retain(|rel, _| OF_THE_REVIEWED.contains(&rel.as_str()));
            (!map.is_empty()).then_some(Value::Object(map))
        }
        _ => None,
    }
}
