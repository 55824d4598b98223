//! The taxonomies of seed 003: closed by name, open by value.
//!
//! Every value that the seed names is a variant. Any other text is carried as [`Other`](Owner::Other), never refused.
//! `unknown` is the value of a dimension that cannot be known. The table [`EVENT_TYPES`] holds the defaults of each
//! event type: owner, scope, surface, persistence and audience.

use super::audience::Audience;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

macro_rules! taxonomy {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum $name {
            $(#[doc = concat!("`", $text, "`")] $variant,)*
            /// A value that the seed does not name, carried unchanged.
            Other(Box<str>),
        }

        impl $name {
            /// Every name of the seed, in the seed's order.
            pub const NAMES: &[&str] = &[$($text),*];

            /// The value on the wire.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Other(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $($text => Self::$variant,)*
                    other => Self::Other(other.into()),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
                Ok(Self::from(text.as_ref()))
            }
        }
    )*};
}

taxonomy! {
    /// The writer of the fact. A surface may render the fact; only its owner changes it.
    Owner {
        Runtime = "runtime", Model = "model", Tool = "tool", Action = "action", Artifact = "artifact", Evidence = "evidence",
        Context = "context", Policy = "policy", Task = "task", Agent = "agent", Session = "session",
        Diagnostics = "diagnostics", UiProjection = "ui_projection", Unknown = "unknown",
    }

    /// The smallest stable entity that the fact affects.
    Scope {
        Application = "application", Workspace = "workspace", Team = "team", Session = "session", Thread = "thread",
        Run = "run", Turn = "turn", Message = "message", Part = "part", Task = "task", Agent = "agent",
        ToolCall = "tool_call", ActionRequest = "action_request", Artifact = "artifact", Evidence = "evidence",
        Unknown = "unknown",
    }

    /// The phase of the run that the fact belongs to.
    Phase {
        Draft = "draft", Submitted = "submitted", Accepted = "accepted", Routing = "routing", Preparing = "preparing",
        Planning = "planning", Reasoning = "reasoning", Acting = "acting", Waiting = "waiting", Reviewing = "reviewing",
        Producing = "producing", Reconciling = "reconciling", Completed = "completed", Failed = "failed",
        Cancelled = "cancelled", Interrupted = "interrupted", Archived = "archived", Hydrating = "hydrating",
        Unknown = "unknown",
    }

    /// The surface that should show the fact: a destination, never an owner.
    Surface {
        Composer = "composer", Conversation = "conversation", InlineProcess = "inline_process",
        RuntimeStatus = "runtime_status", ToolUi = "tool_ui", Hitl = "hitl", TaskCapsule = "task_capsule",
        ArtifactWorkspace = "artifact_workspace", TimelineEvidence = "timeline_evidence", SessionTabs = "session_tabs",
        Diagnostics = "diagnostics", TeamRoster = "team_roster", WorkBoard = "work_board",
        DelegationGraph = "delegation_graph", HandoffLane = "handoff_lane", WorkerNotifications = "worker_notifications",
        ReviewLane = "review_lane", TeammateTranscript = "teammate_transcript", BackgroundTeammate = "background_teammate",
        RemoteTeammate = "remote_teammate", TeamPolicy = "team_policy", Custom = "custom", Unknown = "unknown",
    }

    /// How long the fact is useful.
    Persistence {
        EphemeralLive = "ephemeral_live", Transcript = "transcript", Snapshot = "snapshot", Archive = "archive",
        ArtifactStore = "artifact_store", EvidencePack = "evidence_pack", DiagnosticsLog = "diagnostics_log",
        UiLocal = "ui_local", Unknown = "unknown",
    }

    /// The user actions on a fact, each carried out by its owner.
    Control {
        Send = "send", Queue = "queue", Steer = "steer", Interrupt = "interrupt", Delegate = "delegate", Assign = "assign",
        ContinueAgent = "continue_agent", Wait = "wait", Stop = "stop", Close = "close", RequestReview = "request_review",
        Approve = "approve", Reject = "reject", Answer = "answer", Edit = "edit", Retry = "retry", Rollback = "rollback",
        Export = "export", OpenDetail = "open_detail",
    }

    /// The organisation of the work.
    Topology {
        SoloRun = "solo_run", CoordinatorTeam = "coordinator_team", ParallelWorkers = "parallel_workers",
        SpecialistHandoff = "specialist_handoff", ReviewTeam = "review_team", HumanAgentBoard = "human_agent_board",
        BackgroundTeammate = "background_teammate", RemoteTeammate = "remote_teammate",
    }

    /// The kind of a human-in-the-loop request.
    ActionKind {
        ToolApproval = "tool_approval", PlanDecision = "plan_decision", TeammatePlanDecision = "teammate_plan_decision",
        StructuredInput = "structured_input", Clarification = "clarification", PermissionGrant = "permission_grant",
        DelegatedPermission = "delegated_permission", CredentialRequest = "credential_request",
        ArtifactReview = "artifact_review",
    }

    /// How a human-in-the-loop request ended. `superseded`: the conversation went on without a decision.
    ActionOutcome {
        Approved = "approved", Rejected = "rejected", Answered = "answered", Cancelled = "cancelled", Expired = "expired",
        Superseded = "superseded",
    }

    /// The kind of a message part.
    PartKind {
        UserText = "user_text", AssistantText = "assistant_text", ReasoningSummary = "reasoning_summary",
        ReasoningDetail = "reasoning_detail", Plan = "plan", RuntimeStatus = "runtime_status", ToolCall = "tool_call",
        ToolResult = "tool_result", ActionRequired = "action_required", ArtifactRef = "artifact_ref",
        EvidenceRef = "evidence_ref", ContextEvent = "context_event", AgentTask = "agent_task", AgentRoster = "agent_roster",
        AgentHandoff = "agent_handoff", WorkerNotification = "worker_notification",
        RemoteAgentStatus = "remote_agent_status", FileChange = "file_change", Error = "error", Diagnostic = "diagnostic",
    }

    /// The event type, `type` on the wire: the 52 of seed 003, and Proscenium's own: `control.changed`, `action.reminded`,
    /// `action.escalated` and `feedback.given`.
    EventType {
        SessionOpened = "session.opened", SessionHydrated = "session.hydrated", SessionUpdated = "session.updated",
        SessionClosed = "session.closed",
        RunStarted = "run.started", RunStatus = "run.status", RunFinished = "run.finished", RunFailed = "run.failed",
        PlanDelta = "plan.delta", PlanFinal = "plan.final", TextDelta = "text.delta", TextFinal = "text.final",
        ReasoningDelta = "reasoning.delta", ReasoningSummary = "reasoning.summary",
        ToolStarted = "tool.started", ToolArgs = "tool.args", ToolProgress = "tool.progress",
        ToolOutputDelta = "tool.output.delta", ToolResult = "tool.result", ToolFailed = "tool.failed",
        ActionRequired = "action.required", ActionResolved = "action.resolved", QueueChanged = "queue.changed",
        TaskChanged = "task.changed", AgentChanged = "agent.changed", AgentSpawned = "agent.spawned",
        AgentCompleted = "agent.completed", AgentHandoff = "agent.handoff", TeamChanged = "team.changed",
        WorkerNotification = "worker.notification", ReviewRequested = "review.requested",
        ReviewCompleted = "review.completed", ContextChanged = "context.changed",
        ContextCompactionStarted = "context.compaction.started",
        ContextCompactionCompleted = "context.compaction.completed", PermissionChanged = "permission.changed",
        ArtifactCreated = "artifact.created", ArtifactUpdated = "artifact.updated",
        ArtifactPreviewReady = "artifact.preview.ready", ArtifactVersionCreated = "artifact.version.created",
        ArtifactDiffReady = "artifact.diff.ready", ArtifactExportStarted = "artifact.export.started",
        ArtifactExportCompleted = "artifact.export.completed", ArtifactFailed = "artifact.failed",
        ArtifactDeleted = "artifact.deleted", ArtifactChanged = "artifact.changed", EvidenceChanged = "evidence.changed",
        StateSnapshot = "state.snapshot", StateDelta = "state.delta", MessagesSnapshot = "messages.snapshot",
        DiagnosticChanged = "diagnostic.changed", MetricChanged = "metric.changed",
        ControlChanged = "control.changed", ActionReminded = "action.reminded", ActionEscalated = "action.escalated",
        FeedbackGiven = "feedback.given",
    }
}

/// The defaults of an event type.
#[derive(Debug, Clone, PartialEq)]
pub struct EventDefaults {
    /// Who owns it.
    pub owner: Owner,
    /// What it concerns.
    pub scope: Scope,
    /// What the agent does meanwhile.
    pub phase: Phase,
    /// Where clients show it.
    pub surface: Surface,
    /// How long it is of use.
    pub persistence: Persistence,
    /// Who may see it.
    pub audience: Audience,
}

/// The defaults of every event type, one row per type, in the seed's order.
///
/// Owner, scope and surface follow the seed's dimension tables, persistence its rehydration rules, and audience the
/// protocol's rule: tool chatter and diagnostics are internal.
pub static EVENT_TYPES: &[(EventType, EventDefaults)] = &{
    use Audience as A;
    use EventType as E;
    use Owner as O;
    use Persistence as K;
    use Phase as P;
    use Scope as S;
    use Surface as U;
    const fn row(event_type: E, owner: O, scope: S, phase: P, surface: U, persistence: K, audience: A) -> (E, EventDefaults) {
        (event_type, EventDefaults { owner, scope, phase, surface, persistence, audience })
    }
    [
        row(E::SessionOpened, O::Session, S::Session, P::Hydrating, U::SessionTabs, K::Snapshot, A::User),
        row(E::SessionHydrated, O::Session, S::Session, P::Hydrating, U::SessionTabs, K::Snapshot, A::User),
        row(E::SessionUpdated, O::Session, S::Session, P::Unknown, U::SessionTabs, K::Snapshot, A::User),
        row(E::SessionClosed, O::Session, S::Session, P::Archived, U::SessionTabs, K::Snapshot, A::User),
        row(E::RunStarted, O::Runtime, S::Run, P::Accepted, U::RuntimeStatus, K::Snapshot, A::User),
        row(E::RunStatus, O::Runtime, S::Run, P::Acting, U::RuntimeStatus, K::EphemeralLive, A::User),
        row(E::RunFinished, O::Runtime, S::Run, P::Completed, U::RuntimeStatus, K::Archive, A::User),
        row(E::RunFailed, O::Runtime, S::Run, P::Failed, U::RuntimeStatus, K::Archive, A::User),
        row(E::PlanDelta, O::Model, S::Turn, P::Planning, U::InlineProcess, K::EphemeralLive, A::User),
        row(E::PlanFinal, O::Model, S::Turn, P::Planning, U::InlineProcess, K::Archive, A::User),
        row(E::TextDelta, O::Model, S::Part, P::Producing, U::Conversation, K::EphemeralLive, A::User),
        row(E::TextFinal, O::Model, S::Message, P::Reconciling, U::Conversation, K::Transcript, A::User),
        row(E::ReasoningDelta, O::Model, S::Part, P::Reasoning, U::InlineProcess, K::EphemeralLive, A::User),
        row(E::ReasoningSummary, O::Model, S::Part, P::Reasoning, U::InlineProcess, K::Archive, A::User),
        row(E::ToolStarted, O::Tool, S::ToolCall, P::Acting, U::ToolUi, K::Archive, A::User),
        row(E::ToolArgs, O::Model, S::ToolCall, P::Acting, U::ToolUi, K::EphemeralLive, A::User),
        row(E::ToolProgress, O::Tool, S::ToolCall, P::Acting, U::ToolUi, K::EphemeralLive, A::Internal),
        row(E::ToolOutputDelta, O::Tool, S::ToolCall, P::Acting, U::ToolUi, K::EphemeralLive, A::Internal),
        row(E::ToolResult, O::Tool, S::ToolCall, P::Completed, U::ToolUi, K::Archive, A::Internal),
        row(E::ToolFailed, O::Tool, S::ToolCall, P::Failed, U::ToolUi, K::Archive, A::User),
        row(E::ActionRequired, O::Action, S::ActionRequest, P::Waiting, U::Hitl, K::Snapshot, A::User),
        row(E::ActionResolved, O::Action, S::ActionRequest, P::Acting, U::Hitl, K::Archive, A::User),
        row(E::QueueChanged, O::Runtime, S::Session, P::Waiting, U::Composer, K::Snapshot, A::User),
        row(E::TaskChanged, O::Task, S::Task, P::Acting, U::TaskCapsule, K::Snapshot, A::User),
        row(E::AgentChanged, O::Agent, S::Agent, P::Acting, U::TeamRoster, K::Snapshot, A::User),
        row(E::AgentSpawned, O::Agent, S::Agent, P::Acting, U::TeamRoster, K::Snapshot, A::User),
        row(E::AgentCompleted, O::Agent, S::Agent, P::Completed, U::TeamRoster, K::Archive, A::User),
        row(E::AgentHandoff, O::Agent, S::Agent, P::Interrupted, U::HandoffLane, K::Archive, A::User),
        row(E::TeamChanged, O::Agent, S::Team, P::Routing, U::TeamRoster, K::Snapshot, A::User),
        row(E::WorkerNotification, O::Agent, S::Agent, P::Archived, U::WorkerNotifications, K::Archive, A::User),
        row(E::ReviewRequested, O::Evidence, S::Evidence, P::Reviewing, U::ReviewLane, K::EvidencePack, A::User),
        row(E::ReviewCompleted, O::Evidence, S::Evidence, P::Reviewing, U::ReviewLane, K::EvidencePack, A::User),
        row(E::ContextChanged, O::Context, S::Turn, P::Preparing, U::InlineProcess, K::Snapshot, A::User),
        row(E::ContextCompactionStarted, O::Context, S::Session, P::Reconciling, U::InlineProcess, K::Archive, A::User),
        row(E::ContextCompactionCompleted, O::Context, S::Session, P::Reconciling, U::InlineProcess, K::Archive, A::User),
        row(E::PermissionChanged, O::Policy, S::Run, P::Acting, U::TeamPolicy, K::Archive, A::User),
        row(E::ArtifactCreated, O::Artifact, S::Artifact, P::Producing, U::ArtifactWorkspace, K::ArtifactStore, A::User),
        row(E::ArtifactUpdated, O::Artifact, S::Artifact, P::Producing, U::ArtifactWorkspace, K::ArtifactStore, A::User),
        row(E::ArtifactPreviewReady, O::Artifact, S::Artifact, P::Producing, U::ArtifactWorkspace, K::ArtifactStore, A::User),
        row(E::ArtifactVersionCreated, O::Artifact, S::Artifact, P::Producing, U::ArtifactWorkspace, K::ArtifactStore, A::User),
        row(E::ArtifactDiffReady, O::Artifact, S::Artifact, P::Producing, U::ArtifactWorkspace, K::ArtifactStore, A::User),
        row(E::ArtifactExportStarted, O::Artifact, S::Artifact, P::Producing, U::ArtifactWorkspace, K::ArtifactStore, A::User),
        row(E::ArtifactExportCompleted, O::Artifact, S::Artifact, P::Producing, U::ArtifactWorkspace, K::ArtifactStore, A::User),
        row(E::ArtifactFailed, O::Artifact, S::Artifact, P::Failed, U::ArtifactWorkspace, K::ArtifactStore, A::User),
        row(E::ArtifactDeleted, O::Artifact, S::Artifact, P::Producing, U::ArtifactWorkspace, K::ArtifactStore, A::User),
        row(E::ArtifactChanged, O::Artifact, S::Artifact, P::Producing, U::ArtifactWorkspace, K::ArtifactStore, A::User),
        row(E::EvidenceChanged, O::Evidence, S::Evidence, P::Reviewing, U::TimelineEvidence, K::EvidencePack, A::User),
        row(E::StateSnapshot, O::Runtime, S::Thread, P::Unknown, U::Custom, K::Snapshot, A::User),
        row(E::StateDelta, O::Runtime, S::Thread, P::Unknown, U::Custom, K::Snapshot, A::User),
        row(E::MessagesSnapshot, O::Session, S::Thread, P::Reconciling, U::Conversation, K::Transcript, A::User),
        row(E::DiagnosticChanged, O::Diagnostics, S::Run, P::Unknown, U::Diagnostics, K::DiagnosticsLog, A::Internal),
        row(E::MetricChanged, O::Diagnostics, S::Run, P::Unknown, U::Diagnostics, K::DiagnosticsLog, A::Internal),
        row(E::ControlChanged, O::Session, S::Run, P::Submitted, U::Composer, K::Archive, A::User),
        row(E::ActionReminded, O::Policy, S::ActionRequest, P::Waiting, U::Hitl, K::Archive, A::User),
        row(E::ActionEscalated, O::Policy, S::ActionRequest, P::Waiting, U::Hitl, K::Archive, A::User),
        row(E::FeedbackGiven, O::Session, S::Message, P::Unknown, U::Conversation, K::Archive, A::User),
    ]
};

impl ActionKind {
    /// The default owner of a request of this kind.
    #[must_use]
    pub const fn owner(&self) -> Owner {
        match self {
            Self::ToolApproval | Self::PermissionGrant | Self::DelegatedPermission | Self::CredentialRequest => Owner::Policy,
            Self::PlanDecision | Self::TeammatePlanDecision | Self::Clarification => Owner::Runtime,
            Self::ArtifactReview => Owner::Artifact,
            Self::StructuredInput | Self::Other(_) => Owner::Action,
        }
    }
}

impl PartKind {
    /// The kind of a plain text of this role.
    ///
    /// System prompts do not belong in a transcript, and a tool's text is not an answer.
    #[must_use]
    pub fn of_role(role: &str) -> Self {
        match role {
            "user" => Self::UserText,
            "tool" => Self::ToolResult,
            "notification" => Self::WorkerNotification,
            "system" | "developer" | "unknown" => Self::Diagnostic,
            _ => Self::AssistantText,
        }
    }

    /// Whether the part is plain text of a participant.
    #[must_use]
    pub const fn is_text(&self) -> bool {
        matches!(self, Self::UserText | Self::AssistantText | Self::WorkerNotification | Self::Diagnostic)
    }
}

static UNKNOWN_EVENT_TYPE: EventDefaults = EventDefaults {
    owner: Owner::Unknown,
    scope: Scope::Unknown,
    phase: Phase::Unknown,
    surface: Surface::Unknown,
    persistence: Persistence::Unknown,
    audience: Audience::Internal,
};

impl Control {
    /// Whether it decides the action that it names, and not only concerns it.
    #[must_use]
    pub const fn decides(&self) -> bool {
        matches!(self, Self::Approve | Self::Reject | Self::Answer | Self::Edit)
    }
}

impl EventType {
    /// The defaults of this event type.
    ///
    /// An unknown type is `unknown` in every dimension and, failing closed, internal.
    #[must_use]
    pub fn defaults(&self) -> &'static EventDefaults {
        if matches!(self, Self::Other(_)) {
            return match self.as_str().split('.').next() {
                // New members of families that are internal by rule stay in their family.
                Some("diagnostic" | "metric") => Self::DiagnosticChanged.defaults(),
                _ => &UNKNOWN_EVENT_TYPE,
            };
        }
        &EVENT_TYPES
            .iter()
            .find(|(event_type, _)| event_type == self)
            .expect("the table has a row for every named event type (tested)")
            .1
    }

    /// Whether this event type ends its subject.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        matches!(
            self,
            Self::TextFinal
                | Self::ReasoningSummary
                | Self::PlanFinal
                | Self::ToolResult
                | Self::ToolFailed
                | Self::ActionResolved
                | Self::AgentCompleted
                | Self::ReviewCompleted
                | Self::ContextCompactionCompleted
        )
    }

    /// Whether this event type starts or ends a run. Such events reach every reader.
    #[must_use]
    pub const fn is_run_boundary(&self) -> bool {
        matches!(self, Self::RunStarted | Self::RunFinished | Self::RunFailed)
    }

    /// Whether an event of this type and phase says that an agent works on the run: its start, or its acceptance.
    #[must_use]
    pub const fn begins_run(&self, phase: &Phase) -> bool {
        match self {
            Self::RunStarted => true,
            Self::RunStatus => matches!(phase, Phase::Accepted | Phase::Submitted),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_52_event_types_of_the_seed_and_four_extensions_have_defaults() {
        assert_eq!(EventType::NAMES.len(), 56);
        let rows: Vec<_> = EVENT_TYPES.iter().map(|(event_type, _)| event_type.as_str()).collect();
        assert_eq!(rows, EventType::NAMES);
    }

    #[test]
    fn tool_chatter_and_diagnostics_are_internal_and_everything_else_is_for_users() {
        for (event_type, defaults) in EVENT_TYPES {
            let internal = ["tool.progress", "tool.result", "tool.output.delta"].contains(&event_type.as_str())
                || event_type.as_str().starts_with("diagnostic.")
                || event_type.as_str().starts_with("metric.");
            let expected = if internal { Audience::Internal } else { Audience::User };
            assert_eq!(defaults.audience, expected, "{event_type}");
        }
        assert_eq!(EventType::from("weather.changed").defaults().audience, Audience::Internal);
        assert_eq!(EventType::from("diagnostic.of.tomorrow").defaults().owner, Owner::Diagnostics);
    }

    #[test]
    fn an_unknown_value_is_carried() {
        assert_eq!(Owner::from("moon").as_str(), "moon");
        assert_eq!(Owner::from("tool"), Owner::Tool);
    }
}
