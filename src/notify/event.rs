//! What happened to a run that a person or a program outside wants to hear of.
//!
//! Pure: events follow from the rows of a log, as each audience sees them, and from nothing else. So a node that reads
//! the same rows again makes the same events.

use crate::auth::holder::TokenHolder;
use crate::log::LogId;
use crate::log::row::Row;
use crate::model::fact::{ControlFact, WaitStepFact};
use crate::model::{ActionId, AgentId, Audience, ControlId, Epoch, EventType, OwnerId, Sequence, SessionId};
use crate::projection::envelope_view::EnvelopeView;
use crate::source::ledger::{RunState, Status};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

/// A kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventKind {
    /// A run waits for a person: once for each action, or for a pause without one, and at each step of a rule.
    #[serde(rename = "run.waiting")]
    RunWaiting,
    /// A run that waited goes on.
    #[serde(rename = "run.resumed")]
    RunResumed,
    /// A run did its work.
    #[serde(rename = "run.completed")]
    RunCompleted,
    /// A run ended with an error.
    #[serde(rename = "run.failed")]
    RunFailed,
    /// A run was ended before its work was done.
    #[serde(rename = "run.cancelled")]
    RunCancelled,
    /// No runtime took a control in time.
    #[serde(rename = "control.expired")]
    ControlExpired,
    /// A session exists.
    #[serde(rename = "session.created")]
    SessionCreated,
    /// The signed head of a log.
    #[serde(rename = "log.head")]
    LogHead,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::RunWaiting,
        Self::RunResumed,
        Self::RunCompleted,
        Self::RunFailed,
        Self::RunCancelled,
        Self::ControlExpired,
        Self::SessionCreated,
        Self::LogHead,
    ];

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RunWaiting => "run.waiting",
            Self::RunResumed => "run.resumed",
            Self::RunCompleted => "run.completed",
            Self::RunFailed => "run.failed",
            Self::RunCancelled => "run.cancelled",
            Self::ControlExpired => "control.expired",
            Self::SessionCreated => "session.created",
            Self::LogHead => "log.head",
        }
    }

    /// Whether it says that a run has ended.
    #[must_use]
    pub const fn ends_run(self) -> bool {
        matches!(self, Self::RunCompleted | Self::RunFailed | Self::RunCancelled)
    }
}

/// Something that happened in a log, at one of its envelopes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusEvent {
    pub kind: EventKind,
    #[serde(with = "log_text")]
    pub log: LogId,
    pub epoch: Epoch,
    pub sequence: Sequence,
    /// In milliseconds since 1970.
    pub at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<ActionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<ControlId>,
    /// How the run stands then, in the word of the protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// The step of a rule by which a run is told of again that waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// The only receivers, by name. Empty: all that want such events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<Box<str>>,
}

impl StatusEvent {
    /// Whether a holder may read the log of this event, whose owner is `owner`. Without authentication everyone may.
    #[must_use]
    pub fn is_covered_by(&self, holder: Option<&TokenHolder>, owner: Option<&OwnerId>) -> bool {
        holder.is_none_or(|holder| holder.rights.can_read(&self.log, self.session.as_ref(), owner))
    }
}

/// The form of a log's identity in a stored event: its kind, and its id.
mod log_text {
    use crate::log::LogId;
    use crate::model::{RunId, SessionId};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    pub(super) fn serialize<S: Serializer>(log: &LogId, to: S) -> Result<S::Ok, S::Error> {
        match log {
            LogId::Run(id) => ("run", id.as_str()),
            LogId::Session(id) => ("session", id.as_str()),
        }
        .serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<LogId, D::Error> {
        let (kind, id) = <(String, String)>::deserialize(from)?;
        match kind.as_str() {
            "run" => RunId::new(&id).map(LogId::Run).map_err(de::Error::custom),
            _ => SessionId::new(&id).map(LogId::Session).map_err(de::Error::custom),
        }
    }
}

/// How a log stands at one of its rows, as each audience sees it.
#[derive(Debug, Clone, Default)]
pub struct LogTracker {
    runs: [RunState; 3],
    /// The run's own agent, as far as it is known.
    agent: Option<AgentId>,
    session: Option<SessionId>,
}

/// An event, and the audiences that see it.
pub type SeenEvent = (StatusEvent, [bool; 3]);

impl LogTracker {
    /// Applies a row, and returns what happened at it.
    pub fn apply(&mut self, log: &LogId, epoch: Epoch, row: &Row) -> Vec<SeenEvent> {
        let mut events: Vec<SeenEvent> = Vec::new();
        let mut parsed: Option<(&[u8], EnvelopeView)> = None;
        // Users see neither the rule nor its receivers.
        let (step, to) = wait_step(row).unwrap_or_default();
        for audience in Audience::ALL {
            let Some(text) = row.view(audience) else { continue };
            if parsed.as_ref().is_none_or(|(known, _)| !std::ptr::eq(*known, text)) {
                parsed = EnvelopeView::parse(row.sequence(), text).map(|view| (text, view));
            }
            let Some((_, envelope)) = &parsed else { continue };
            self.note(envelope);
            for (kind, action, control) in self.happened(audience, envelope) {
                let found = events.iter_mut().find(|(known, _)| known.kind == kind && known.action == action);
                if let Some((_, audiences)) = found {
                    audiences[audience.index()] = true;
                    continue;
                }
                let mut audiences = [false; 3];
                audiences[audience.index()] = true;
                let event = StatusEvent {
                    kind,
                    log: log.clone(),
                    epoch,
                    sequence: row.sequence(),
                    at: envelope.received_at.ms_since(crate::model::ReceivedAt::default()),
                    session: self.session.clone(),
                    agent: envelope.ids.agent.clone().or_else(|| self.agent.clone()),
                    action,
                    control,
                    status: matches!(log, LogId::Run(_)).then_some(self.runs[audience.index()].status),
                    step,
                    to: to.clone(),
                };
                events.push((event, audiences));
            }
        }
        events
    }

    fn note(&mut self, envelope: &EnvelopeView) {
        let EnvelopeView { ids, event_type, phase, .. } = envelope;
        if self.agent.is_none() && event_type.begins_run(phase) {
            self.agent.clone_from(&ids.agent);
        }
        if self.session.is_none() {
            self.session.clone_from(&ids.session);
        }
    }

    /// What an envelope tells one audience.
    fn happened(&mut self, audience: Audience, envelope: &EnvelopeView) -> Vec<(EventKind, Option<ActionId>, Option<ControlId>)> {
        let EnvelopeView { event_type, phase, ids, payload, .. } = envelope;
        let run = &mut self.runs[audience.index()];
        let before = (run.status, run.attempt);
        let is_asked = ids.action.as_ref().is_some_and(|action| run.pending.contains(action.as_str()));
        run.apply(event_type, phase, ids.action.as_ref(), payload);
        let mut happened = Vec::new();
        match event_type {
            EventType::ActionReminded | EventType::ActionEscalated if is_asked => {
                happened.push((EventKind::RunWaiting, ids.action.clone(), None));
            }
            EventType::ActionRequired if !is_asked => happened.push((EventKind::RunWaiting, ids.action.clone(), None)),
            EventType::ControlChanged => {
                let control = envelope.fact::<ControlFact>();
                if control.status.as_deref() == Some("expired") {
                    let id = envelope.text("controlId").and_then(|id| id.parse().ok());
                    happened.push((EventKind::ControlExpired, ids.action.clone(), id));
                }
            }
            _ => {}
        }
        let ends = run.status.is_end() && (!before.0.is_end() || before.1 != run.attempt);
        let status = match run.status {
            Status::Completed if ends => Some(EventKind::RunCompleted),
            Status::Failed if ends => Some(EventKind::RunFailed),
            Status::Cancelled | Status::Interrupted if ends => Some(EventKind::RunCancelled),
            Status::Waiting if before.0 != Status::Waiting && run.pending.is_empty() => Some(EventKind::RunWaiting),
            Status::Running | Status::Accepted if before.0 == Status::Waiting => Some(EventKind::RunResumed),
            _ => None,
        };
        happened.extend(status.map(|kind| (kind, None, None)));
        happened
    }
}

/// The step of a rule that a row is about, and the receivers that the rule names.
fn wait_step(row: &Row) -> Option<(Option<u32>, Vec<Box<str>>)> {
    let text = row.view(Audience::Internal)?;
    let is_step = |name: &EventType| memchr::memmem::find(text, name.as_str().as_bytes()).is_some();
    if ![EventType::ActionReminded, EventType::ActionEscalated].iter().any(is_step) {
        return None;
    }
    let envelope = EnvelopeView::parse(row.sequence(), text)?;
    let fact: &WaitStepFact = envelope.payload.as_fact()?;
    let to = fact.to.as_deref().and_then(Value::as_array).into_iter().flatten();
    let step = fact.step.as_ref().and_then(Number::as_u64).and_then(|step| u32::try_from(step).ok());
    Some((step, to.filter_map(|name| Some(name.as_str()?.into())).collect()))
}
