//! A run's boundaries: starts, interrupts and ends, and the steps and usage between them.
//!
//! One stream may carry several runs, each with its own start; all are facts of the URL's run. If a run starts while
//! another is open, later events do not identify their run, so the adapter only flags the start. Awaken restarts an
//! interrupted run under the same id: the run then continues.

use super::EventHandler;
use crate::bounded::keyed;
use crate::members::{RuntimeId, add_rest, carry_all, diagnostic, id_of, internal, next_id, take_id, take_question, take_text};
use crate::turn::{TurnState, ended, error, failed, resolved, started, take_error, waiting};
use crate::{ActionAnswer, Fact};
use proscenium_model::{
    ActionId, ActionKind, AgentId, Audience, Draft, EventType, MemberRef, Owner, Phase, RunId, SessionId, ThreadId, ToolCallId,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The most interleaved runs without an end. Beyond this limit the adapter evicts the oldest.
pub(in crate::ag_ui) const INTERLEAVED_MAX: usize = 8;

/// The reason with which Awaken's encoder requests approval for a tool.
const PERMISSION_CONFIRM: &str = "tool:PermissionConfirm";

/// Maps an interrupt's reason to an action kind.
///
/// AG-UI's own reasons are `tool_call`, `input_required` and `confirmation`.
fn kind_of(reason: Option<&str>, has_call: bool) -> ActionKind {
    match reason {
        Some(kind) if ActionKind::NAMES.contains(&kind) => kind.into(),
        Some("tool_call" | PERMISSION_CONFIRM) => ActionKind::ToolApproval,
        Some("confirmation") if has_call => ActionKind::ToolApproval,
        Some("confirmation") => ActionKind::PermissionGrant,
        _ => ActionKind::StructuredInput,
    }
}

/// A pending action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Pending {
    pub action: ActionId,
    pub call: Option<ToolCallId>,
    pub agent: Option<AgentId>,
    /// The kind of action. It determines the owner of the resolution.
    pub kind: String,
}

keyed! { Pending: ActionId = action; }

impl EventHandler<'_> {
    // ── the start ──

    pub(super) fn run_started(&mut self, mut fact: Fact, answers: Vec<ActionAnswer>) {
        let input = fact.shift_remove("input");
        for answer in answers {
            self.resolve_answer(answer);
        }
        let named: Option<RunId> = id_of(&fact, "runId");
        if self.memory.turn_state == TurnState::Open {
            self.interleaved(named, fact);
        } else {
            self.begin(named, fact);
            for answer in input.as_ref().map(|input| self.answered_calls(input)).unwrap_or_default() {
                self.answer_call(answer);
            }
        }
        if let Some(input) = input {
            self.push(internal("run_input", "RUN_STARTED").with("input", input));
        }
    }

    /// Flags a start within an open run. The events up to the ends do not identify their run.
    fn interleaved(&mut self, named: Option<RunId>, fact: Fact) {
        let open = self.memory.run.as_ref().map_or(Value::Null, |run| run.as_str().into());
        if let Some(run) = named.filter(|run| self.memory.run.as_ref() != Some(run)) {
            self.memory.interleaved.push(run);
        }
        self.push(diagnostic("interleaved_run", "RUN_STARTED", fact).with("openRun", open));
    }

    fn begin(&mut self, named: Option<RunId>, mut fact: Fact) {
        let parent = take_text(&mut fact, "parentRunId").filter(|parent| !parent.is_empty());
        let was_paused = self.memory.turn_state == TurnState::Paused;
        let is_another = named.is_some() && named != self.memory.run;
        let is_resumed = was_paused && !is_another;
        let continues = was_paused && parent.is_some() && parent.as_deref() == self.memory.run.as_ref().map(RunId::as_str);
        if is_resumed || continues {
            // An interrupted run continues only after an answer, but its start need not contain the answer.
            for pending in self.memory.pending.take_all() {
                self.resolved(pending, "answered", None);
            }
        }
        self.memory.turn_state = TurnState::Open;
        if is_another {
            (self.memory.session, self.memory.thread) = (None, None);
        }
        self.store_ids(&mut fact);
        let mut draft = started(is_resumed, self.out.next_attempt());
        draft.set("protocolVersion", take_text(&mut fact, "protocolVersion"));
        self.add_run_reference(&mut draft);
        draft.add_ref("parentRunId", parent);
        self.push(carry_all(draft, fact));
    }

    /// Stores the run, thread and session ids of a boundary event.
    fn store_ids(&mut self, fact: &mut Fact) {
        let thread: Option<ThreadId> = take_id(fact, "threadId");
        let memory = &mut *self.memory;
        memory.run = take_id(fact, "runId").or(memory.run.take());
        // The thread is the session unless the request names another.
        memory.session = thread.as_ref().and_then(|t| SessionId::new(t.as_str()).ok()).or(memory.session.take());
        memory.thread = thread.or(memory.thread.take());
    }

    /// Adds the runtime's run id as a reference, if it differs from the server's.
    fn add_run_reference(&self, draft: &mut Draft) {
        let run = self.memory.run.as_ref().filter(|run| self.given.run.as_ref() != Some(run));
        draft.add_ref("runId", run.map(RunId::as_str));
    }

    /// Resolves a pending action of this log. Other answers belong to other logs.
    fn resolve_answer(&mut self, answer: ActionAnswer) {
        if let Some(pending) = self.memory.pending.take(&answer.action) {
            self.resolved(pending, answer.outcome, answer.value);
        }
    }

    fn resolved(&mut self, pending: Pending, outcome: &str, value: Option<Value>) {
        let owner = ActionKind::from(pending.kind.as_str()).owner();
        let draft = resolved(pending.action, pending.call, outcome, owner);
        self.push(draft.with_some("value", value).with_agent(pending.agent));
    }

    // ── the end ──

    pub(super) fn run_finished(&mut self, mut fact: Fact) {
        let named: Option<RunId> = id_of(&fact, "runId");
        if named.is_some_and(|run| self.memory.interleaved.take(&run).is_some()) {
            return self.push(diagnostic("interleaved_run", "RUN_FINISHED", fact));
        }
        if self.memory.turn_state == TurnState::New {
            self.store_ids(&mut fact);
        }
        self.take_ids(&mut fact);
        let usage = fact.shift_remove("usage");
        let result = fact.shift_remove("result");
        let mut outcome = Outcome::take(&mut fact);
        let mut draft = outcome.end(result.as_ref());
        match draft.phase {
            Phase::Completed => {
                self.end_streams();
                self.await_client(outcome.pending_calls());
            }
            Phase::Waiting => {
                self.end_streams();
                for (n, interrupt) in outcome.interrupts(&mut fact).into_iter().enumerate() {
                    match interrupt {
                        Value::Object(interrupt) => self.require_action(interrupt),
                        odd => draft.payload.insert(format!("interrupt{n}"), odd),
                    }
                }
                self.memory.hold_calls();
            }
            _ => self.close_streams(),
        }
        add_rest(&mut draft, outcome.rest);
        draft.set("result", result);
        self.close(carry_all(draft, fact), usage);
    }

    pub(super) fn run_error(&mut self, mut fact: Fact) {
        self.take_ids(&mut fact);
        let usage = fact.shift_remove("usage");
        self.close_streams();
        let draft = failed(take_error(&mut fact, "the run failed without saying why"));
        self.close(carry_all(draft, fact), usage);
    }

    /// Removes ids that repeat the start's. Different ids stay in the fact.
    fn take_ids(&self, fact: &mut Fact) {
        let (thread, run) = (self.memory.thread.as_ref().map(ThreadId::as_str), self.memory.run.as_ref().map(RunId::as_str));
        for (member, known) in [("threadId", thread), ("runId", run)] {
            if known.is_some() && fact.get(member).and_then(Value::as_str) == known {
                fact.shift_remove(member);
            }
        }
    }

    /// Ends or pauses the run with this draft. The usage envelope comes first.
    fn close(&mut self, mut draft: Draft, usage: Option<Value>) {
        self.add_run_reference(&mut draft);
        if let Some(usage) = usage {
            self.usage(usage);
        }
        if draft.event_type == EventType::RunStatus {
            self.memory.turn_state = TurnState::Paused;
        } else {
            self.end_agents(&draft.phase);
            self.memory.end_calls();
            self.memory.turn_state = TurnState::Ended;
        }
        self.push(draft);
    }

    fn usage(&mut self, usage: Value) {
        let models = match usage {
            Value::Array(models) => models,
            one => vec![one],
        };
        let draft = Draft::new(EventType::MetricChanged).with("usage", summed(&models)).with("models", models);
        self.push(draft.with_audience(Audience::Dashboard));
    }

    // ── what it asks ──

    /// Translates one interrupt into a required action.
    fn require_action(&mut self, mut interrupt: Map<String, Value>) {
        interrupt.retain(|_, value| !value.is_null());
        let action: ActionId =
            take_id(&mut interrupt, "id").unwrap_or_else(|| next_id("ag-ui-action", &mut self.memory.actions_made));
        let call: Option<ToolCallId> = take_id(&mut interrupt, "toolCallId");
        let agent: Option<AgentId> = take_id(&mut interrupt, "subagentRunId");
        let reason = take_text(&mut interrupt, "reason");
        let kind = kind_of(reason.as_deref(), call.is_some());
        let call = call.or_else(|| self.memory.only_ready_call().filter(|_| kind == ActionKind::ToolApproval));
        let metadata = interrupt.shift_remove("metadata");
        let members = [("message", "message"), ("responseSchema", "schema"), ("expiresAt", "expiresAt"), ("payload", "payload")];
        let draft = Draft::new(EventType::ActionRequired).with("kind", kind.as_str()).with_some("reason", reason);
        let mut draft = draft.with_moved(&mut interrupt, &members).with_owner(kind.owner());
        if let Some(id) = &call {
            draft = self.name_call(draft, id);
        }
        take_question(&mut draft, &mut interrupt);
        question_of(&mut draft);
        add_rest(&mut draft, interrupt);
        (draft.ids.action, draft.ids.tool_call, draft.ids.agent) = (Some(action.clone()), call.clone(), agent.clone());
        let ids = draft.ids.clone();
        self.push(draft);
        if let Some(metadata) = metadata {
            self.push(Draft { ids, ..internal("metadata", "RUN_FINISHED").with("metadata", metadata) });
        }
        self.memory.pending.add(Pending { action, call, agent, kind: kind.to_string() });
    }

    // ── between ──

    pub(super) fn step(&mut self, edge: &str, mut fact: Fact) {
        let name = take_text(&mut fact, "stepName").unwrap_or_default();
        let draft = Draft::new(EventType::RunStatus).with("step", edge).with("stepName", name).with_audience(Audience::Dashboard);
        self.push_own(carry_all(draft, fact));
    }
}

/// Copies the question's members from the interrupt's payload.
/// The payload itself stays whole.
///
/// The payload may use the protocol's names or Awaken's.
fn question_of(draft: &mut Draft) {
    let Some(mut own) = draft.payload.get("payload").and_then(MemberRef::object).cloned() else { return };
    take_question(draft, &mut own);
    for (ours, theirs) in
        [("toolName", &["toolName", "tool"][..]), ("parameters", &["parameters", "arguments", "args", "input"][..])]
    {
        let value = theirs.iter().find_map(|name| own.shift_remove(*name)).filter(|value| !value.is_null());
        if let Some(value) = value.filter(|_| !draft.payload.contains_key(ours)) {
            draft.payload.insert(ours, value);
        }
    }
}

/// The outcome of a run that waits for answers.
const INTERRUPT: &str = "interrupt";

/// The outcome member of `RUN_FINISHED`. Awaken sends bare text.
struct Outcome {
    name: Option<String>,
    rest: Map<String, Value>,
}

impl Outcome {
    fn take(fact: &mut Fact) -> Self {
        match fact.shift_remove("outcome") {
            Some(Value::Object(mut rest)) => {
                rest.retain(|_, value| !value.is_null());
                Self { name: Some(take_text(&mut rest, "type").unwrap_or_else(|| "unknown".into())), rest }
            }
            Some(Value::String(name)) => Self { name: Some(name), rest: Map::new() },
            Some(odd) => Self { name: Some("unknown".into()), rest: Map::from_iter([("told".to_owned(), odd)]) },
            None => Self { name: None, rest: Map::new() },
        }
    }

    /// The end or the pause of the run.
    fn end(&self, result: Option<&Value>) -> Draft {
        match self.name.as_deref() {
            Some(INTERRUPT) => waiting(),
            Some("cancelled") => ended(Phase::Cancelled, "cancelled"),
            Some("success") => ended(Phase::Completed, "completed"),
            Some(other) => ended(Phase::Unknown, "unknown").with("outcome", other),
            None => end_of_awaken_result(result).unwrap_or_else(|| ended(Phase::Completed, "completed")),
        }
    }

    /// Returns the calls that the run leaves to the client.
    /// The member also stays in the outcome's rest, for readers.
    fn pending_calls(&self) -> Option<Vec<ToolCallId>> {
        let ids = self.rest.get("pendingToolCallIds")?.as_array()?;
        Some(ids.iter().filter_map(|id| ToolCallId::of(id.as_str()?)).collect())
    }

    /// Takes the run's interrupts: a list, or the single one that Awaken puts beside the outcome.
    fn interrupts(&mut self, fact: &mut Fact) -> Vec<Value> {
        if self.name.as_deref() != Some(INTERRUPT) {
            return Vec::new();
        }
        match self.rest.shift_remove("interrupts") {
            Some(Value::Array(interrupts)) => interrupts,
            Some(odd) => vec![odd],
            None => fact.shift_remove("interrupt").into_iter().collect(),
        }
    }
}

/// Reads the end of a run from Awaken's result.
///
/// Awaken's encoder sends no outcome for an end that is neither a success nor an interrupt. Its result has `status`,
/// and a code in `status_reason`.
fn end_of_awaken_result(result: Option<&Value>) -> Option<Draft> {
    let text = |member: &str| result?.get(member)?.as_str();
    text("response")?;
    let reason = text("status_reason").unwrap_or_default();
    let (code, detail) = reason.split_once(':').unwrap_or((reason, ""));
    Some(match (text("status")?, code) {
        ("waiting", _) => waiting(),
        ("done", "cancelled") => ended(Phase::Cancelled, "cancelled"),
        ("done", "stopped") => ended(Phase::Interrupted, "interrupted").with("code", detail),
        ("done", "blocked") => Draft { owner: Owner::Policy, ..failed(error(Some("blocked"), detail)) },
        ("done", "error") => failed(error(Some("error"), detail)),
        _ => return None,
    })
}

/// Sums the counts of all models under the protocol's names. Unknown counts keep their names.
fn summed(models: &[Value]) -> Map<String, Value> {
    let mut sum = Map::new();
    for (member, count) in models.iter().filter_map(Value::as_object).flatten() {
        let Some(count) = count.as_u64() else { continue };
        let ours = match member.as_str() {
            "cachedInputTokens" => "cacheReadTokens",
            "cacheWriteInputTokens" => "cacheCreationTokens",
            "reasoningTokens" => "thinkingTokens",
            other => other,
        };
        let known = sum.get(ours).and_then(Value::as_u64).unwrap_or(0);
        sum.insert(ours.to_owned(), known.saturating_add(count).into());
    }
    sum
}
