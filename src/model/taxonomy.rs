//! The taxonomies of seed 003: closed by name, open by value.
//!
//! Every value that the seed names is a variant; any other text is carried as [`Other`](Owner::Other), never refused.
//! `unknown` stands where a dimension cannot be known. The table [`CLASSES`] says once what each event class is when its
//! producer does not: who owns it, what it touches, where it shows, how long it lives, who may see it.

use super::audience::Audience;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

macro_rules! taxonomy {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum $name {
            $($variant,)*
            /// A value that the seed does not name, carried as it came.
            Other(Box<str>),
        }

        impl $name {
            /// Every name of the seed, in its order.
            pub const NAMES: &[&str] = &[$($text),*];

            /// The value as it stands on the wire.
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
    /// Who writes the fact. A surface may render it; only its owner changes it.
    Owner {
        Runtime = "runtime", Model = "model", Tool = "tool", Action = "action", Artifact = "artifact", Evidence = "evidence",
        Context = "context", Policy = "policy", Task = "task", Agent = "agent", Session = "session",
        Diagnostics = "diagnostics", UiProjection = "ui_projection", Unknown = "unknown",
    }

    /// The smallest stable entity that the fact touches.
    Scope {
        Application = "application", Workspace = "workspace", Team = "team", Session = "session", Thread = "thread",
        Run = "run", Turn = "turn", Message = "message", Part = "part", Task = "task", Agent = "agent",
        ToolCall = "tool_call", ActionRequest = "action_request", Artifact = "artifact", Evidence = "evidence",
        Unknown = "unknown",
    }

    /// Where in a run's life the fact belongs.
    Phase {
        Draft = "draft", Submitted = "submitted", Accepted = "accepted", Routing = "routing", Preparing = "preparing",
        Planning = "planning", Reasoning = "reasoning", Acting = "acting", Waiting = "waiting", Reviewing = "reviewing",
        Producing = "producing", Reconciling = "reconciling", Completed = "completed", Failed = "failed",
        Cancelled = "cancelled", Interrupted = "interrupted", Archived = "archived", Hydrating = "hydrating",
        Unknown = "unknown",
    }

    /// Where the fact is meant to be shown: a destination, never an owner.
    Surface {
        Composer = "composer", Conversation = "conversation", InlineProcess = "inline_process",
        RuntimeStatus = "runtime_status", ToolUi = "tool_ui", Hitl = "hitl", TaskCapsule = "task_capsule",
        ArtifactWorkspace = "artifact_workspace", TimelineEvidence = "timeline_evidence", SessionTabs = "session_tabs",
        Diagnostics = "diagnostics", TeamRoster = "team_roster", WorkBoard = "work_board",
        DelegationGraph = "delegation_graph", HandoffLane = "handoff_lane", WorkerNotifications = "worker_notifications",
        ReviewLane = "review_lane", TeammateTranscript = "teammate_transcript", BackgroundTeammate = "background_teammate",
        RemoteTeammate = "remote_teammate", TeamPolicy = "team_policy", Custom = "custom", Unknown = "unknown",
    }

    /// How long the fact is of use.
    Persistence {
        EphemeralLive = "ephemeral_live", Transcript = "transcript", Snapshot = "snapshot", Archive = "archive",
        ArtifactStore = "artifact_store", EvidencePack = "evidence_pack", DiagnosticsLog = "diagnostics_log",
        UiLocal = "ui_local", Unknown = "unknown",
    }

    /// What a user may do about the fact, each through its owner.
    Control {
        Send = "send", Queue = "queue", Steer = "steer", Interrupt = "interrupt", Delegate = "delegate", Assign = "assign",
        ContinueAgent = "continue_agent", Wait = "wait", Stop = "stop", Close = "close", RequestReview = "request_review",
        Approve = "approve", Reject = "reject", Answer = "answer", Edit = "edit", Retry = "retry", Rollback = "rollback",
        Export = "export", OpenDetail = "open_detail",
    }

    /// How the work is organised.
    Topology {
        SoloRun = "solo_run", CoordinatorTeam = "coordinator_team", ParallelWorkers = "parallel_workers",
        SpecialistHandoff = "specialist_handoff", ReviewTeam = "review_team", HumanAgentBoard = "human_agent_board",
        BackgroundTeammate = "background_teammate", RemoteTeammate = "remote_teammate",
    }

    /// What a human-in-the-loop request asks for.
    ActionKind {
        ToolApproval = "tool_approval", PlanDecision = "plan_decision", TeammatePlanDecision = "teammate_plan_decision",
        StructuredInput = "structured_input", Clarification = "clarification", PermissionGrant = "permission_grant",
        DelegatedPermission = "delegated_permission", CredentialRequest = "credential_request",
        ArtifactReview = "artifact_review",
    }

    /// What a part of a message is.
    PartKind {
        UserText = "user_text", AssistantText = "assistant_text", ReasoningSummary = "reasoning_summary",
        ReasoningDetail = "reasoning_detail", Plan = "plan", RuntimeStatus = "runtime_status", ToolCall = "tool_call",
        ToolResult = "tool_result", ActionRequired = "action_required", ArtifactRef = "artifact_ref",
        EvidenceRef = "evidence_ref", ContextEvent = "context_event", AgentTask = "agent_task", AgentRoster = "agent_roster",
        AgentHandoff = "agent_handoff", WorkerNotification = "worker_notification",
        RemoteAgentStatus = "remote_agent_status", FileChange = "file_change", Error = "error", Diagnostic = "diagnostic",
    }

    /// The event class, `type` on the wire: the 52 of seed 003, and `control.changed`, the one class of our own.
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
        ControlChanged = "control.changed",
    }
}

/// What an event class is unless its producer says otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassDefaults {
    pub owner: Owner,
    pub scope: Scope,
    pub phase: Phase,
    pub surface: Surface,
    pub persistence: Persistence,
    pub audience: Audience,
}

/// The one table of defaults, a row a class, in the seed's order. Owner, scope and surface follow the seed's dimension
/// tables; persistence its rehydration rules; audience the protocol's rule (chatter of tools and diagnostics is internal).
pub static CLASSES: &[(EventType, ClassDefaults)] = &{
    use Audience as A;
    use EventType as E;
    use Owner as O;
    use Persistence as K;
    use Phase as P;
    use Scope as S;
    use Surface as U;
    const fn row(class: E, owner: O, scope: S, phase: P, surface: U, persistence: K, audience: A) -> (E, ClassDefaults) {
        (class, ClassDefaults { owner, scope, phase, surface, persistence, audience })
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
    ]
};

impl ActionKind {
    /// Who owns a request of this kind, unless its producer says otherwise.
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
    /// What the plain text of a role is. System prompts are not for a transcript, and a tool's text is no answer.
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

    /// Whether it is plain text that somebody says.
    #[must_use]
    pub const fn is_text(&self) -> bool {
        matches!(self, Self::UserText | Self::AssistantText | Self::WorkerNotification | Self::Diagnostic)
    }
}

static UNKNOWN_CLASS: ClassDefaults = ClassDefaults {
    owner: Owner::Unknown,
    scope: Scope::Unknown,
    phase: Phase::Unknown,
    surface: Surface::Unknown,
    persistence: Persistence::Unknown,
    audience: Audience::Internal,
};

impl EventType {
    /// The defaults of this class. A class that nobody knows is `unknown` throughout and, failing closed, internal.
    #[must_use]
    pub fn defaults(&self) -> &'static ClassDefaults {
        if matches!(self, Self::Other(_)) {
            return match self.as_str().split('.').next() {
                // Families that are internal by rule stay themselves in whatever they grow.
                Some("diagnostic" | "metric") => &CLASSES[Self::NAMES.len() - 3].1,
                _ => &UNKNOWN_CLASS,
            };
        }
        &CLASSES.iter().find(|(class, _)| class == self).expect("the table has a row for every named class: tested").1
    }

    /// Whether this class ends the thing that it is about.
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

    /// Whether this class starts or ends a run: those reach everyone.
    #[must_use]
    pub const fn is_run_boundary(&self) -> bool {
        matches!(self, Self::RunStarted | Self::RunFinished | Self::RunFailed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_52_classes_of_the_seed_and_one_of_our_own_each_with_defaults() {
        assert_eq!(EventType::NAMES.len(), 53);
        let rows: Vec<_> = CLASSES.iter().map(|(class, _)| class.as_str()).collect();
        assert_eq!(rows, EventType::NAMES);
    }

    #[test]
    fn tool_chatter_and_diagnostics_are_internal_and_everything_else_is_for_users() {
        for (class, defaults) in CLASSES {
            let internal = ["tool.progress", "tool.result", "tool.output.delta"].contains(&class.as_str())
                || class.as_str().starts_with("diagnostic.")
                || class.as_str().starts_with("metric.");
            let expected = if internal { Audience::Internal } else { Audience::User };
            assert_eq!(defaults.audience, expected, "{class}");
        }
        assert_eq!(EventType::from("weather.changed").defaults().audience, Audience::Internal);
        assert_eq!(EventType::from("diagnostic.of.tomorrow").defaults().owner, Owner::Diagnostics);
    }

    #[test]
    fn a_value_that_nobody_named_is_carried() {
        assert_eq!(Owner::from("moon").as_str(), "moon");
        assert_eq!(Owner::from("tool"), Owner::Tool);
    }
}
