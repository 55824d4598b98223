//! The state of a run in AG-UI: the boundaries of the client's run, and its pending interrupts.

use super::attribution::{Attribution, set_metadata, teammate};
use crate::encode::frames::ActivityView;
use crate::model::Sequence;
use crate::model::version::{QUESTION_VERSION, versioned_id};
use serde_json::{Map, Value, json};

/// Content members of the `run` activity that this module reads.
const MEMBERS: &[&str] = &["status", "attempt", "agentId", "error", "result"];
/// Content members of an action that an interrupt carries, or that decide whether the run waits for it.
#[rustfmt::skip]
const ACTION_MEMBERS: &[&str] = &[
    "status", "control", "kind", "reason", "message", "schema", "responseSchema", "toolCallId", "expiresAt", "title",
    "description", "toolName", "parameters", "risk", "scope", "policyScope", "artifactId", "versionId", "evidenceId", "plan",
    "payload", "options", "refs", "outcome", QUESTION_VERSION,
];
/// Members that AG-UI's interrupt lacks; they go to the metadata.
const METADATA_MEMBERS: &[&str] = &[
    "options",
    "risk",
    "title",
    "description",
    "toolName",
    "parameters",
    "scope",
    "policyScope",
    "artifactId",
    "versionId",
    "evidenceId",
    "plan",
    "payload",
    "refs",
];

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
        self.members.clear();
        copy_members(&mut self.members, MEMBERS, content);
        self.has_answer &= self.status() == "waiting";
    }

    /// Applies a patch of the `run` activity.
    pub fn apply_patch(&mut self, patch: &[Value]) {
        change(&mut self.members, MEMBERS, patch);
        self.has_answer &= self.status() == "waiting";
    }

    /// The agent of the run.
    pub fn agent(&self) -> Option<&str> {
        self.members.get("agentId").and_then(Value::as_str)
    }

    /// The number of the current attempt; `None` until the `run` activity is known.
    pub fn attempt(&self) -> Option<u64> {
        self.members.get("attempt").and_then(Value::as_u64)
    }

    fn status(&self) -> &str {
        self.members.get("status").and_then(Value::as_str).unwrap_or("unknown")
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.status(), "completed" | "failed" | "cancelled" | "interrupted")
    }

    /// Whether the run waits for a decision.
    ///
    /// It does not while every request is answered: the answers are in transit, or the runtime goes on with them.
    pub fn is_paused(&self) -> bool {
        let is_asked = if self.pending.is_empty() { !self.has_answer } else { self.unanswered().next().is_some() };
        self.status() == "waiting" && is_asked
    }

    // ── pending actions ──

    /// Loads an action.
    pub fn load_action(&mut self, action: &ActivityView) {
        let asked = PendingAction {
            opened: action.opened,
            agent: teammate(action, self.agent()),
            members: select_members(ACTION_MEMBERS, &action.content),
        };
        match self.pending.iter_mut().find(|(id, _)| *id == action.id) {
            Some((_, known)) => *known = asked,
            None => self.pending.push((action.id.clone(), asked)),
        }
        // A repeated request keeps the position of its first appearance.
        self.pending.sort_by_key(|(_, asked)| asked.opened);
        self.drop_answered();
    }

    /// Applies a patch of an action. A request that is repeated after its answer arrives as a snapshot.
    pub fn apply_action_patch(&mut self, action: &str, patch: &[Value]) {
        if let Some((_, known)) = self.pending.iter_mut().find(|(id, _)| **id == *action) {
            change(&mut known.members, ACTION_MEMBERS, patch);
        }
        self.drop_answered();
    }

    fn drop_answered(&mut self) {
        let text = |asked: &PendingAction, member: &str| asked.members.get(member).and_then(Value::as_str).map(str::to_owned);
        let is_answer = |outcome: &str| ["approved", "rejected", "answered"].contains(&outcome);
        self.has_answer |= self.pending.iter().any(|(_, asked)| text(asked, "outcome").as_deref().is_some_and(is_answer));
        self.pending.retain(|(_, asked)| text(asked, "status").as_deref() == Some("pending"));
    }

    fn unanswered(&self) -> impl Iterator<Item = &(Box<str>, PendingAction)> {
        self.pending.iter().filter(|(_, asked)| !asked.members.contains_key("control"))
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
            "failed" => return self.error_event("The run failed without an error message.", None),
            "interrupted" => return self.error_event("The run was interrupted before it finished.", Some("interrupted")),
            "cancelled" if !of.is_v1 => return self.error_event("The run was cancelled.", Some("cancelled")),
            "cancelled" => finished["outcome"] = json!({ "type": "cancelled" }),
            "waiting" if !interrupts.is_empty() => {
                finished["outcome"] = json!({ "type": "interrupt", "interrupts": interrupts });
            }
            status => {
                finished["outcome"] = json!({ "type": "success" });
                if of.is_v1 && !pending.is_empty() {
                    finished["outcome"]["pendingToolCallIds"] = json!(pending);
                }
                match (status, self.members.get("result")) {
                    ("completed", Some(result)) => finished["result"] = result.clone(),
                    ("completed", None) => {}
                    _ => set_metadata(&mut finished, "status", status.into()),
                }
            }
        }
        finished
    }

    fn error_event(&self, otherwise: &str, code: Option<&str>) -> Value {
        let error = self.members.get("error");
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
        let get = |member: &str| self.members.get(member);
        let text = |member: &str| get(member).and_then(Value::as_str);
        let kind = text("kind").unwrap_or("unknown");
        let by_kind = match kind {
            "tool_approval" => "tool_call",
            "structured_input" | "clarification" | "credential_request" => "input_required",
            _ => "confirmation",
        };
        let mut interrupt = json!({ "id": versioned_id(id, get(QUESTION_VERSION).and_then(Value::as_u64).unwrap_or(1)), "reason": text("reason").unwrap_or(by_kind) });
        for member in ["message", "toolCallId", "expiresAt"] {
            if let Some(value) = text(member) {
                interrupt[member] = value.into();
            }
        }
        if let (None, Some(title)) = (text("message"), text("title")) {
            interrupt["message"] = title.into();
        }
        if let Some(schema) = get("responseSchema").or_else(|| get("schema")).filter(|schema| schema.is_object()) {
            interrupt["responseSchema"] = schema.clone();
        }
        set_metadata(&mut interrupt, "kind", kind.into());
        for member in METADATA_MEMBERS {
            if let Some(value) = get(member) {
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

fn copy_members(members: &mut Map<String, Value>, names: &[&str], content: &Map<String, Value>) {
    members.extend(names.iter().filter_map(|name| Some(((*name).to_owned(), content.get(*name)?.clone()))));
}

pub(super) fn select_members(names: &[&str], content: &Map<String, Value>) -> Map<String, Value> {
    let mut members = Map::new();
    copy_members(&mut members, names, content);
    members
}

/// Applies a patch's operations on whole members.
pub(super) fn change(members: &mut Map<String, Value>, names: &[&str], patch: &[Value]) {
    for op in patch {
        let path = op.get("path").and_then(Value::as_str).unwrap_or_default();
        let Some(name) = path.strip_prefix('/').filter(|name| names.contains(name)) else { continue };
        match op.get("value") {
            Some(value) => drop(members.insert(name.to_owned(), value.clone())),
            None => drop(members.shift_remove(name)),
        }
    }
}
