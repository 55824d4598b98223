//! The state of a run in AG-UI: the boundaries of the client's run, and its pending interrupts.

use super::attribution::{Attribution, set_metadata, teammate};
use crate::frames::ActivityView;
use proscenium_model::Sequence;
use proscenium_model::version::versioned_id;
use proscenium_projection::action::{
    ACTION_KIND, CONTROL, EXPIRES_AT, MESSAGE, OPTIONS, OUTCOME, PARAMETERS, PAYLOAD, QUESTION_VERSION, RESPONSE_SCHEMA, SCHEMA,
    TITLE, TOOL_NAME,
};
use proscenium_projection::change::{ContentOperation, MemberPlace, Within};
use proscenium_projection::members::{ACTION_STATUS, ActionStatus, TOOL_CALL_ID, TypedContent};
use proscenium_projection::run;
use proscenium_sources::ledger::Status;
use serde_json::{Map, Value, json};

/// Content members of the `run` activity that this module reads.
const MEMBERS: &[&str] = &[run::STATUS.name(), run::ATTEMPT.name(), run::AGENT_ID.name(), run::ERROR.name(), run::RESULT.name()];
/// Content members of an action that an interrupt has by names of its own, or that decide whether the run waits for it.
#[rustfmt::skip]
const ACTION_MEMBERS: &[&str] = &[
    ACTION_STATUS.name(), CONTROL.name(), ACTION_KIND.name(), "reason", MESSAGE.name(), SCHEMA.name(), RESPONSE_SCHEMA.name(),
    TOOL_CALL_ID.name(), EXPIRES_AT.name(), OUTCOME.name(), QUESTION_VERSION.name(),
];
/// Members that AG-UI's interrupt lacks; they go to the metadata.
#[rustfmt::skip]
const METADATA_MEMBERS: &[&str] = &[
    OPTIONS.name(), "risk", TITLE.name(), "description", TOOL_NAME.name(), PARAMETERS.name(), "scope", "policyScope",
    "artifactId", "versionId", "evidenceId", "plan", PAYLOAD.name(), "refs",
];

fn is_of_run(member: &str) -> bool {
    MEMBERS.contains(&member)
}

fn is_of_action(member: &str) -> bool {
    ACTION_MEMBERS.contains(&member) || METADATA_MEMBERS.contains(&member)
}

/// The state of the run in the frames so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Run {
    members: Map<String, Value>,
    /// Actions that wait for a decision, by id, in the order in which they appeared.
    pending: Vec<(Box<str>, PendingAction)>,
    /// Whether one was answered since the run last did anything else than wait: its runtime goes on.
    has_answer: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct PendingAction {
    opened: Sequence,
    agent: Option<Box<str>>,
    members: Map<String, Value>,
}

impl Run {
    /// Loads the content of the `run` activity.
    pub fn load(&mut self, content: &Map<String, Value>) {
        self.members = select_members(is_of_run, content);
        self.has_answer &= self.status() == Status::Waiting;
    }

    /// Sets the status with which the stream ends.
    pub fn set_status(&mut self, status: Status) {
        self.members.clear();
        run::STATUS.put(&mut self.members, status);
    }

    /// Applies a change of the `run` activity.
    pub fn apply(&mut self, operations: &[ContentOperation]) {
        change(&mut self.members, is_of_run, operations);
        self.has_answer &= self.status() == Status::Waiting;
    }

    /// The agent of the run.
    pub fn agent(&self) -> Option<&str> {
        self.members.read(run::AGENT_ID)
    }

    /// The number of the current attempt; `None` until the `run` activity is known.
    pub fn attempt(&self) -> Option<u64> {
        self.members.read(run::ATTEMPT)
    }

    fn status(&self) -> Status {
        self.members.read(run::STATUS).unwrap_or(Status::Unknown)
    }

    pub fn has_ended(&self) -> bool {
        self.status().is_end()
    }

    /// Whether the run waits for a decision.
    ///
    /// It does not while every request is answered: the answers are in transit, or the runtime goes on with them.
    pub fn is_paused(&self) -> bool {
        let is_asked = if self.pending.is_empty() { !self.has_answer } else { self.unanswered().next().is_some() };
        self.status() == Status::Waiting && is_asked
    }

    // ── pending actions ──

    /// Loads an action.
    pub fn load_action(&mut self, action: &ActivityView) {
        let asked = PendingAction {
            opened: action.opened,
            agent: teammate(action, self.agent()),
            members: select_members(is_of_action, &action.content),
        };
        match self.pending.iter_mut().find(|(id, _)| *id == action.id) {
            Some((_, known)) => *known = asked,
            None => self.pending.push((action.id.clone(), asked)),
        }
        // A repeated request keeps the position of its first appearance.
        self.pending.sort_by_key(|(_, asked)| asked.opened);
        self.drop_answered();
    }

    /// Applies a change of an action. A request that is repeated after its answer arrives as a snapshot.
    pub fn apply_to_action(&mut self, action: &str, operations: &[ContentOperation]) {
        if let Some((_, known)) = self.pending.iter_mut().find(|(id, _)| **id == *action) {
            change(&mut known.members, is_of_action, operations);
        }
        self.drop_answered();
    }

    fn drop_answered(&mut self) {
        let is_answer = |outcome: &str| ["approved", "rejected", "answered"].contains(&outcome);
        self.has_answer |= self.pending.iter().any(|(_, asked)| asked.members.read(OUTCOME).is_some_and(is_answer));
        self.pending.retain(|(_, asked)| asked.members.read(ACTION_STATUS) == Some(ActionStatus::Pending));
    }

    fn unanswered(&self) -> impl Iterator<Item = &(Box<str>, PendingAction)> {
        self.pending.iter().filter(|(_, asked)| !asked.members.has(CONTROL))
    }

    /// The pending actions as AG-UI interrupts.
    ///
    /// An answered action is excluded, even while its answer is in transit.
    pub fn interrupts(&self, attribution: Attribution) -> Vec<Value> {
        self.unanswered().map(|(id, asked)| asked.interrupt(id, attribution)).collect()
    }

    // ── boundaries ──

    /// The event that ends a client's run now.
    ///
    /// `pending` are the calls whose results the client has to supply.
    pub fn end_event(&self, of: &RunIds<'_>, attribution: Attribution, pending: &[Box<str>]) -> Value {
        let mut finished = json!({ "type": "RUN_FINISHED", "threadId": of.thread, "runId": of.run });
        let interrupts = self.interrupts(attribution);
        match self.status() {
            Status::Failed => return self.error_event("The run failed without an error message.", None),
            Status::Interrupted => return self.error_event("The run was interrupted before it finished.", Some("interrupted")),
            Status::Cancelled if !of.is_v1 => return self.error_event("The run was cancelled.", Some("cancelled")),
            Status::Cancelled => finished["outcome"] = json!({ "type": "cancelled" }),
            Status::Waiting if !interrupts.is_empty() => {
                finished["outcome"] = json!({ "type": "interrupt", "interrupts": interrupts });
            }
            status @ (Status::Completed | Status::Waiting | Status::Accepted | Status::Running | Status::Unknown) => {
                finished["outcome"] = json!({ "type": "success" });
                if of.is_v1 && !pending.is_empty() {
                    finished["outcome"]["pendingToolCallIds"] = json!(pending);
                }
                match (status, self.members.read(run::RESULT)) {
                    (Status::Completed, Some(result)) => finished["result"] = result.clone(),
                    (Status::Completed, None) => {}
                    _ => set_metadata(&mut finished, "status", status.as_str().into()),
                }
            }
        }
        finished
    }

    fn error_event(&self, otherwise: &str, code: Option<&str>) -> Value {
        let error = self.members.read(run::ERROR);
        let (message, code_member) = match error {
            Some(Value::String(message)) => (Some(message.as_str()), None),
            Some(error) => (error.get("message").and_then(Value::as_str), error.get("code")),
            None => (None, None),
        };
        let own_code = code_member.map(|code| code.as_str().map_or_else(|| code.to_string(), str::to_owned));
        run_error(message.unwrap_or(otherwise), own_code.as_deref().or(code))
    }
}

impl PendingAction {
    fn interrupt(&self, id: &str, attribution: Attribution) -> Value {
        let (members, text) = (&self.members, |member: &str| self.members.get(member).and_then(Value::as_str));
        let kind = members.read(ACTION_KIND).unwrap_or("unknown");
        let by_kind = match kind {
            "tool_approval" => "tool_call",
            "structured_input" | "clarification" | "credential_request" => "input_required",
            _ => "confirmation",
        };
        let version = members.read(QUESTION_VERSION).and_then(Value::as_u64).unwrap_or(1);
        let mut interrupt = json!({ "id": versioned_id(id, version), "reason": text("reason").unwrap_or(by_kind) });
        for member in [MESSAGE.name(), TOOL_CALL_ID.name(), EXPIRES_AT.name()] {
            if let Some(value) = text(member) {
                interrupt[member] = value.into();
            }
        }
        if let (None, Some(title)) = (text(MESSAGE.name()), text(TITLE.name())) {
            interrupt[MESSAGE.name()] = title.into();
        }
        let schema = members.read(RESPONSE_SCHEMA).or_else(|| members.read(SCHEMA));
        if let Some(schema) = schema.filter(|schema| schema.is_object()) {
            interrupt[RESPONSE_SCHEMA.name()] = schema.clone();
        }
        set_metadata(&mut interrupt, "kind", kind.into());
        for member in METADATA_MEMBERS {
            if let Some(value) = members.get(*member) {
                set_metadata(&mut interrupt, member, value.clone());
            }
        }
        if let (Attribution::Subagent, Some(agent)) = (attribution, &self.agent) {
            interrupt["subagentRunId"] = (**agent).into();
        }
        interrupt
    }
}

/// The client's ids of its run, and its protocol version.
pub(super) struct RunIds<'o> {
    pub thread: &'o str,
    pub run: &'o str,
    pub is_v1: bool,
}

pub(super) fn run_error(message: &str, code: Option<&str>) -> Value {
    let mut event = json!({ "type": "RUN_ERROR", "message": message });
    if let Some(code) = code {
        event["code"] = code.into();
    }
    event
}

/// The members of a content that this dialect reads.
pub(super) fn select_members(is_known: impl Fn(&str) -> bool, content: &Map<String, Value>) -> Map<String, Value> {
    content.iter().filter(|(member, _)| is_known(member)).map(|(member, value)| (member.clone(), value.clone())).collect()
}

/// Applies the operations on whole members.
pub(super) fn change(members: &mut Map<String, Value>, is_known: impl Fn(&str) -> bool, operations: &[ContentOperation]) {
    use ContentOperation as Op;
    let is_known = |at: &MemberPlace| at.within == Within::Content && is_known(&at.member);
    for operation in operations {
        match operation {
            Op::Add(at, value) | Op::Replace(at, value) if is_known(at) => {
                members.insert(at.member.clone().into_owned(), value.clone());
            }
            Op::Remove(at) if is_known(at) => drop(members.shift_remove(&*at.member)),
            // No other operation changes a whole member.
            Op::Add(..) | Op::Replace(..) | Op::Remove(_) | Op::Push(..) | Op::RemoveFirst(_) | Op::FromSource(_) => {}
        }
    }
}
