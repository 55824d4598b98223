//! How a run stands, by what its facts say of it.

use crate::model::{ActionId, EventType, Phase};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Accepted,
    Running,
    Waiting,
    Completed,
    Failed,
    Cancelled,
    Interrupted,
    Unknown,
}

impl Status {
    /// Whether the run has ended: only a new start reopens it.
    #[must_use]
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::Interrupted)
    }

    /// The name on the wire.
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

/// The run's state, as it is saved and as summaries show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "they are independent: each is set by other facts")]
pub struct RunState {
    pub status: Status,
    pub phase: Phase,
    /// 1 for the first start; one more for each start after an end.
    pub attempt: u32,
    /// Whether text, a tool, an action or its acceptance came without a start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
    /// Ids of actions that wait for somebody.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub pending: BTreeSet<String>,
    /// Whether the source itself said that the run waits, beside any pending action.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Whether nobody was heard of the run for so long that the server said so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
    /// Whether it was the server that ended the run, and not its source: then any fact reopens it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settled: bool,
}

impl Default for RunState {
    fn default() -> Self {
        Self {
            status: Status::Unknown,
            phase: Phase::Unknown,
            attempt: 0,
            begun: false,
            pending: BTreeSet::new(),
            paused: false,
            stale: false,
            settled: false,
        }
    }
}

/// Whether a fact of this class shows that the run is at work, whatever else is known of it.
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
    /// Follows what a fact says of the run, and says whether it came too late to change how the run stands: that has ended.
    pub fn follow(&mut self, class: &EventType, phase: &Phase, action: Option<&ActionId>, payload: &Map<String, Value>) -> bool {
        let marked = |member: &str| payload.get(member) == Some(&Value::Bool(true));
        match class {
            // What is said of a reader's answer is no sign of the runtime.
            EventType::ControlChanged => return self.status.is_end(),
            EventType::RunStatus if marked("stale") => {
                self.stale = self.ages();
                return self.status.is_end();
            }
            _ => self.stale = false,
        }
        let is_accepted = *class == EventType::RunStatus && matches!(phase, Phase::Accepted | Phase::Submitted);
        self.begun |= self.attempt == 0 && (is_accepted || is_work(class));
        let is_settlement = *class == EventType::RunFailed && marked("synthetic");
        if self.settled && !is_settlement {
            self.settled = false;
            if *class != EventType::RunStarted {
                let status = self.awake();
                self.stand(status, if status == Status::Unknown { &Phase::Unknown } else { &Phase::Acting });
            }
        }
        match class {
            EventType::RunStarted => {
                self.attempt += 1;
                self.pending.clear();
                self.paused = false;
                self.stand(Status::Accepted, phase);
            }
            // An ended run stays ended, whatever else arrives late.
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
                self.stand(status, phase);
            }
            EventType::RunStatus => {
                self.paused = *phase == Phase::Waiting;
                self.stand(if is_accepted { Status::Accepted } else { self.awake() }, phase);
            }
            EventType::ActionRequired => {
                if let Some(id) = action {
                    self.pending.insert(id.as_str().to_owned());
                }
                self.stand(Status::Waiting, phase);
            }
            EventType::ActionResolved => {
                if let Some(id) = action {
                    self.pending.remove(id.as_str());
                }
                self.stand(self.awake(), phase);
            }
            EventType::DiagnosticChanged | EventType::MetricChanged => {}
            _ if self.status == Status::Accepted || self.status == Status::Unknown && self.begun => {
                self.stand(Status::Running, phase);
            }
            // What the run is busy with. That one tool has completed says nothing of the run's phase.
            EventType::TextDelta
            | EventType::ReasoningDelta
            | EventType::PlanDelta
            | EventType::ToolStarted
            | EventType::ReviewRequested => self.phase.clone_from(phase),
            _ => {}
        }
        false
    }

    /// Whether the run goes on without anybody's decision, so that silence means something.
    #[must_use]
    pub const fn ages(&self) -> bool {
        matches!(self.status, Status::Accepted | Status::Running)
    }

    /// How a run stands that has not ended. Nothing makes a run out of facts that only describe one.
    fn awake(&self) -> Status {
        if self.paused || !self.pending.is_empty() {
            Status::Waiting
        } else if self.attempt > 0 || self.begun {
            Status::Running
        } else {
            Status::Unknown
        }
    }

    fn stand(&mut self, status: Status, phase: &Phase) {
        self.status = status;
        self.phase.clone_from(phase);
    }
}
