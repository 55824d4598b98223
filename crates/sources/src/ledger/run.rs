//! The status of a run, derived from its facts.

use super::pending_set::PendingSet;
use proscenium_model::fact::{ActionFact, RunFact};
use proscenium_model::{ActionId, EventType, Payload, Phase, WordsFact};
use serde::{Deserialize, Serialize};

/// The status of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// A runtime has taken the run, and not begun it.
    Accepted,
    /// The run goes on.
    Running,
    /// The run waits for a decision.
    Waiting,
    /// The run has done its work.
    Completed,
    /// The run ended with an error.
    Failed,
    /// A person or a program ended the run.
    Cancelled,
    /// The run ended before its work was done, without an error.
    Interrupted,
    /// No fact says how the run stands.
    Unknown,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 8] = {
        use Status::{Accepted, Cancelled, Completed, Failed, Interrupted, Running, Unknown, Waiting};
        [Accepted, Running, Waiting, Completed, Failed, Cancelled, Interrupted, Unknown]
    };

    /// Whether the run has ended. Only a new start reopens it.
    #[must_use]
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::Interrupted)
    }

    /// The status of this name on the wire.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self::ALL.into_iter().find(|status| status.as_str() == name).unwrap_or(Self::Unknown)
    }

    /// Returns the name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
            Self::Unknown => "unknown",
        }
    }
}

/// The run's state, as stored with the log and shown in summaries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "the flags are independent: different facts set each of them")]
pub struct RunState {
    /// How the run stands.
    pub status: Status,
    /// What the agent does.
    pub phase: Phase,
    /// The attempt number: 1 for the first start, plus 1 for each further start that does not continue the attempt.
    pub attempt: u32,
    /// Whether text, a tool, an action or an acceptance arrived without a start.
    #[serde(default)]
    pub begun: bool,
    /// Ids of pending actions.
    #[serde(default)]
    pub pending: PendingSet,
    /// Whether the source itself reported that the run waits, independent of pending actions.
    #[serde(default)]
    pub paused: bool,
    /// Whether the server reported the run as stale because no fact arrived for too long.
    #[serde(default)]
    pub stale: bool,
    /// Whether the server ended the run instead of its source. Any fact then reopens it.
    #[serde(default)]
    pub settled: bool,
}

impl Default for RunState {
    fn default() -> Self {
        Self {
            status: Status::Unknown,
            phase: Phase::Unknown,
            attempt: 0,
            begun: false,
            pending: PendingSet::default(),
            paused: false,
            stale: false,
            settled: false,
        }
    }
}

/// Whether an event of this type proves that the run is at work.
const fn is_work(class: &EventType) -> bool {
    use EventType as E;
    matches!(
        class,
        E::TextDelta
            | E::TextFinal
            | E::ReasoningDelta
            | E::ReasoningSummary
            | E::PlanDelta
            | E::PlanFinal
            | E::ToolStarted
            | E::ToolArgs
            | E::ToolProgress
            | E::ToolOutputDelta
            | E::ToolResult
            | E::ToolFailed
            | E::ActionRequired
            | E::ActionResolved
    )
}

impl RunState {
    /// Applies an event to the run's state. Returns true if the run had already ended.
    pub fn apply(&mut self, class: &EventType, phase: &Phase, action: Option<&ActionId>, payload: &Payload) -> bool {
        let fact = payload.as_fact::<RunFact>();
        match class {
            // The progress of a reader's answer, a reminder, or feedback is no sign of life from the runtime.
            EventType::ControlChanged | EventType::ActionReminded | EventType::ActionEscalated | EventType::FeedbackGiven => {
                return self.status.is_end();
            }
            EventType::RunStatus if fact.is_some_and(|run| run.stale == Some(true)) => {
                self.stale = self.can_go_stale();
                return self.status.is_end();
            }
            _ => self.stale = false,
        }
        let is_accepted = *class == EventType::RunStatus && class.begins_run(phase);
        self.begun |= self.attempt == 0 && (is_accepted || is_work(class));
        let is_settlement = *class == EventType::RunFailed && fact.is_some_and(|run| run.synthetic == Some(true));
        if self.settled && !is_settlement {
            self.settled = false;
            if *class != EventType::RunStarted {
                let status = self.live_status();
                self.set_status(status, if status == Status::Unknown { &Phase::Unknown } else { &Phase::Acting });
            }
        }
        match class {
            EventType::RunStarted if self.is_continued_by(payload) => self.continue_attempt(),
            EventType::RunStarted => {
                self.attempt += 1;
                self.pending.clear();
                self.paused = false;
                self.set_status(Status::Accepted, phase);
            }
            // Late events do not reopen an ended run.
            _ if self.status.is_end() => return true,
            EventType::RunFinished | EventType::RunFailed => {
                self.pending.clear();
                self.paused = false;
                self.settled = is_settlement;
                let status = match phase {
                    Phase::Failed => Status::Failed,
                    Phase::Cancelled => Status::Cancelled,
                    Phase::Interrupted => Status::Interrupted,
                    _ if *class == EventType::RunFailed => Status::Failed,
                    _ => Status::Completed,
                };
                self.set_status(status, phase);
            }
            EventType::RunStatus => {
                self.paused = *phase == Phase::Waiting;
                self.set_status(if is_accepted { Status::Accepted } else { self.live_status() }, phase);
            }
            EventType::ActionRequired => {
                if let Some(id) = action {
                    self.pending.insert(id.as_str());
                }
                self.set_status(Status::Waiting, phase);
            }
            EventType::ActionResolved => {
                if let Some(id) = action {
                    self.pending.remove(id.as_str());
                }
                // The server closed the request. Its runtime may not know, and has not continued.
                if payload.as_fact().is_none_or(|action: &ActionFact| action.synthetic != Some(true)) {
                    self.set_status(self.live_status(), phase);
                }
            }
            EventType::DiagnosticChanged | EventType::MetricChanged => {}
            // The user's message comes before the agent's work.
            EventType::TextDelta | EventType::TextFinal
                if (self.status == Status::Accepted || self.waits_for_nothing())
                    && payload.as_fact().is_some_and(|words: &WordsFact| words.role.as_deref() == Some("user")) => {}
            _ if self.status == Status::Accepted || self.status == Status::Unknown && self.begun || self.waits_for_nothing() => {
                self.set_status(Status::Running, phase);
            }
            // These events set the run's phase. The completion of one tool does not determine it.
            EventType::TextDelta
            | EventType::ReasoningDelta
            | EventType::PlanDelta
            | EventType::ToolStarted
            | EventType::ReviewRequested => self.phase.clone_from(phase),
            _ => {}
        }
        false
    }

    /// Whether both states are equal, by the sets of pending actions that they share; see [`PendingSet::is_same`].
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let Self { status, phase, attempt, begun, pending, paused, stale, settled } = self;
        pending.is_same(&other.pending)
            && (status, phase, attempt) == (&other.status, &other.phase, &other.attempt)
            && (begun, paused, stale, settled) == (&other.begun, &other.paused, &other.stale, &other.settled)
    }

    /// Shares the pending actions with `run`, if both have the same ones.
    ///
    /// `before` and `run_before` are both states at the last call. Sets that have not changed since are not compared.
    pub fn share_pending(&mut self, run: &Self, before: &PendingSet, run_before: &Self) {
        let is_unchanged = self.pending.is_same(before) && run.pending.is_same(&run_before.pending);
        if !is_unchanged && self.pending == run.pending {
            self.pending.clone_from(&run.pending);
        }
    }

    /// Whether a start with this payload continues the attempt at work.
    #[must_use]
    pub fn is_continued_by(&self, start: &Payload) -> bool {
        self.attempt > 0 && !self.status.is_end() && start.as_fact().is_some_and(|start: &RunFact| start.continues == Some(true))
    }

    /// Whether silence makes the run stale: it proceeds without waiting for a decision.
    #[must_use]
    pub const fn can_go_stale(&self) -> bool {
        matches!(self.status, Status::Accepted | Status::Running)
    }

    /// Whether the server closed the last request of a waiting run. The run waits until its runtime continues.
    fn waits_for_nothing(&self) -> bool {
        self.status == Status::Waiting && self.live_status() != Status::Waiting
    }

    /// Ends a pause. An attempt that is only accepted stays so.
    fn continue_attempt(&mut self) {
        if self.status != Status::Accepted {
            self.paused = false;
            self.set_status(self.live_status(), &Phase::Acting);
        }
    }

    /// Returns the status of a run that has not ended. Facts that only describe a run do not start it.
    fn live_status(&self) -> Status {
        if self.paused || !self.pending.is_empty() {
            Status::Waiting
        } else if self.attempt > 0 || self.begun {
            Status::Running
        } else {
            Status::Unknown
        }
    }

    fn set_status(&mut self, status: Status, phase: &Phase) {
        self.status = status;
        self.phase.clone_from(phase);
    }
}
