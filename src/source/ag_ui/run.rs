//! A run's boundaries: starts, interrupts and ends, and the steps and usage between them.
//!
//! One stream may carry several runs, each with its own start; all are facts of the URL's run. If a run starts while
//! another is open, later events do not identify their run, so the adapter only flags the start. Awaken restarts an
//! interrupted run under the same id: the run then continues.

use super::{ActionAnswer, EventHandler, id_of, internal};
use crate::model::{
    ActionId, ActionKind, AgentId, Audience, Draft, EventType, Owner, Persistence, Phase, RunId, SessionId, ThreadId, ToolCallId,
};
use crate::source::Fact;
use crate::source::bounded::keyed;
use crate::source::members::{carry_all, diagnostic, next_id, take_id, take_question, take_text};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The most interleaved runs without an end.
/// Beyond this limit the adapter evicts the oldest.
pub(super) const INTERLEAVED_MAX: usize = 8;

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

/// The lifecycle state of the run, according to its boundary events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TurnState {
    #[default]
    New,
    Open,
    /// Interrupted: the run waits for answers.
    Paused,
    Ended,
}

/// A pending action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Pending {
    pub action: ActionId,
    #[serde(default)]
    pub call: Option<ToolCallId>,
    #[serde(default)]
    pub agent: Option<AgentId>,
    /// The kind of action.
    /// It determines the owner of the resolution.
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

    /// Flags a start within an open run.
    /// The events up to the ends do not identify their run.
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
        let (class, phase) =
            if is_resumed { (EventType::RunStatus, Phase::Acting) } else { (EventType::RunStarted, Phase::Accepted) };
        let mut draft = Draft::new(class);
        draft.phase = phase;
        draft.persistence = Persistence::Snapshot;
        if is_resumed {
            draft.payload.insert("resumed".into(), true.into());
        } else {
            self.memory.attempt += 1;
            draft.payload.insert("attempt".into(), self.memory.attempt.into());
        }
        let version = take_text(&mut fact, "protocolVersion");
        draft.set("protocolVersion", version);
        self.add_run_reference(&mut draft);
        if let Some(parent) = parent {
            draft.add_ref("parentRunId", parent.into());
        }
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
        if let Some(run) = self.memory.run.as_ref().filter(|run| self.given.run.as_ref() != Some(run)) {
            draft.add_ref("runId", run.as_str().into());
        }
    }

    /// Resolves a pending action of this log.
    /// Other answers belong to other logs.
    fn resolve_answer(&mut self, answer: ActionAnswer) {
        if let Some(pending) = self.memory.pending.take(&answer.action) {
            self.resolved(pending, answer.outcome, answer.value);
        }
    }

    fn resolved(&mut self, pending: Pending, outcome: &str, value: Option<Value>) {
        let mut draft = Draft::new(EventType::ActionResolved).with("outcome", outcome);
        draft.set("value", value);
        draft.owner = ActionKind::from(pending.kind.as_str()).owner();
        draft.ids.action = Some(pending.action);
        draft.ids.tool_call = pending.call;
        draft.ids.agent = pending.agent;
        self.push(draft);
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
        let end = outcome.end(result.as_ref());
        let mut draft = end.draft();
        match &end {
            End::Completed => {
                self.end_streams();
                self.await_client(outcome.pending_calls());
            }
            End::Interrupted => {
                self.end_streams();
                for (n, interrupt) in outcome.interrupts(&mut fact).into_iter().enumerate() {
                    match interrupt {
                        Value::Object(interrupt) => self.require_action(interrupt),
                        odd => drop(draft.payload.insert(format!("interrupt{n}"), odd)),
                    }
                }
                self.memory.hold_calls();
            }
            End::Waiting => {
                self.end_streams();
                self.memory.hold_calls();
            }
            End::Cancelled | End::Stopped(_) | End::Failed(..) | End::Unknown(_) => self.close_streams(),
        }
        for (member, value) in outcome.rest {
            draft.payload.entry(member).or_insert(value);
        }
        draft.set("result", result);
        self.close(carry_all(draft, fact), usage);
    }

    pub(super) fn run_error(&mut self, mut fact: Fact) {
        self.take_ids(&mut fact);
        let usage = fact.shift_remove("usage");
        self.close_streams();
        let draft = Draft::new(EventType::RunFailed).with("status", "failed");
        let draft = draft.with("error", error(&mut fact, "the run failed without saying why"));
        self.close(carry_all(draft, fact), usage);
    }

    /// Removes ids that repeat the start's.
    /// Different ids stay in the fact.
    fn take_ids(&self, fact: &mut Fact) {
        let repeats =
            |member: &str, known: Option<&str>| fact.get(member).and_then(Value::as_str).is_some_and(|id| known == Some(id));
        let same_thread = repeats("threadId", self.memory.thread.as_ref().map(ThreadId::as_str));
        let same_run = repeats("runId", self.memory.run.as_ref().map(RunId::as_str));
        for (member, is_same) in [("threadId", same_thread), ("runId", same_run)] {
            if is_same {
                fact.shift_remove(member);
            }
        }
    }

    /// Ends or pauses the run with this draft.
    /// The usage envelope comes first.
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
        let mut draft = Draft::new(EventType::MetricChanged).with("usage", summed(&models)).with("models", models);
        draft.audience = Audience::Dashboard;
        self.push(draft);
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
        let mut draft = Draft::new(EventType::ActionRequired).with("kind", kind.as_str());
        draft.owner = kind.owner();
        draft.set("reason", reason);
        let metadata = interrupt.shift_remove("metadata");
        for (member, ours) in
            [("message", "message"), ("responseSchema", "schema"), ("expiresAt", "expiresAt"), ("payload", "payload")]
        {
            draft.set(ours, interrupt.shift_remove(member));
        }
        if let Some(id) = &call {
            self.name_call(&mut draft, id);
        }
        take_question(&mut draft, &mut interrupt);
        question_of(&mut draft);
        for (member, value) in interrupt {
            draft.payload.entry(member).or_insert(value);
        }
        draft.ids.action = Some(action.clone());
        draft.ids.tool_call.clone_from(&call);
        draft.ids.agent.clone_from(&agent);
        let ids = draft.ids.clone();
        self.push(draft);
        if let Some(metadata) = metadata {
            let mut draft = internal("metadata", "RUN_FINISHED").with("metadata", metadata);
            draft.ids = ids;
            self.push(draft);
        }
        self.memory.pending.add(Pending { action, call, agent, kind: kind.to_string() });
    }

    // ── between ──

    pub(super) fn step(&mut self, edge: &str, mut fact: Fact) {
        let name = take_text(&mut fact, "stepName").unwrap_or_default();
        let mut draft = Draft::new(EventType::RunStatus).with("step", edge).with("stepName", name);
        draft.audience = Audience::Dashboard;
        self.push_own(carry_all(draft, fact));
    }
}

/// Copies the question's members from the interrupt's payload.
/// The payload itself stays whole.
///
/// The payload may use the protocol's names or Awaken's.
fn question_of(draft: &mut Draft) {
    let Some(Value::Object(mut own)) = draft.payload.get("payload").cloned() else { return };
    take_question(draft, &mut own);
    for (ours, theirs) in
        [("toolName", &["toolName", "tool"][..]), ("parameters", &["parameters", "arguments", "args", "input"][..])]
    {
        let value = theirs.iter().find_map(|name| own.shift_remove(*name)).filter(|value| !value.is_null());
        if let Some(value) = value.filter(|_| !draft.payload.contains_key(ours)) {
            draft.payload.insert(ours.into(), value);
        }
    }
}

/// The outcome member of `RUN_FINISHED`.
/// Awaken sends bare text.
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

    fn end(&self, result: Option<&Value>) -> End {
        match self.name.as_deref() {
            Some("interrupt") => End::Interrupted,
            Some("cancelled") => End::Cancelled,
            Some("success") => End::Completed,
            Some(other) => End::Unknown(other.to_owned()),
            None => end_of_awaken_result(result).unwrap_or(End::Completed),
        }
    }

    /// Returns the calls that the run leaves to the client.
    /// The member also stays in the outcome's rest, for readers.
    fn pending_calls(&self) -> Option<Vec<ToolCallId>> {
        let ids = self.rest.get("pendingToolCallIds")?.as_array()?;
        Some(ids.iter().filter_map(|id| ToolCallId::new(id.as_str()?).ok()).collect())
    }

    /// Takes the run's interrupts: a list, or the single one that Awaken puts beside the outcome.
    fn interrupts(&mut self, fact: &mut Fact) -> Vec<Value> {
        match self.rest.shift_remove("interrupts") {
            Some(Value::Array(interrupts)) => interrupts,
            Some(odd) => vec![odd],
            None => fact.shift_remove("interrupt").into_iter().collect(),
        }
    }
}

/// The way in which a run ended or paused.
enum End {
    Completed,
    /// The run was interrupted and waits for answers.
    Interrupted,
    /// The run finished with outstanding work.
    Waiting,
    Cancelled,
    /// A limit stopped the run; the value is its code.
    Stopped(String),
    /// The run failed with this code and message.
    Failed(&'static str, String),
    Unknown(String),
}

impl End {
    fn draft(&self) -> Draft {
        let ended = |phase: Phase, status: &str| {
            let mut draft = Draft::new(EventType::RunFinished).with("status", status);
            draft.phase = phase;
            draft
        };
        match self {
            Self::Completed => ended(Phase::Completed, "completed"),
            Self::Interrupted | Self::Waiting => {
                let mut draft = Draft::new(EventType::RunStatus).with("status", "waiting");
                (draft.phase, draft.persistence) = (Phase::Waiting, Persistence::Snapshot);
                draft
            }
            Self::Cancelled => ended(Phase::Cancelled, "cancelled"),
            Self::Stopped(code) => ended(Phase::Interrupted, "interrupted").with("code", code.as_str()),
            Self::Failed(code, message) => {
                let mut draft = Draft::new(EventType::RunFailed).with("status", "failed");
                if *code == "blocked" {
                    draft.owner = Owner::Policy;
                }
                draft.with("error", json!({ "code": code, "message": message }))
            }
            Self::Unknown(name) => ended(Phase::Unknown, "unknown").with("outcome", name.as_str()),
        }
    }
}

/// Reads the end of a run from Awaken's result.
///
/// Awaken's encoder sends no outcome for an end that is neither a success nor an interrupt. Its result has `status`,
/// and a code in `status_reason`.
fn end_of_awaken_result(result: Option<&Value>) -> Option<End> {
    let text = |member: &str| result?.get(member)?.as_str();
    text("response")?;
    let reason = text("status_reason").unwrap_or_default();
    let (code, detail) = reason.split_once(':').unwrap_or((reason, ""));
    match (text("status")?, code) {
        ("waiting", _) => Some(End::Waiting),
        ("done", "cancelled") => Some(End::Cancelled),
        ("done", "stopped") => Some(End::Stopped(detail.to_owned())),
        ("done", "blocked") => Some(End::Failed("blocked", detail.to_owned())),
        ("done", "error") => Some(End::Failed("error", detail.to_owned())),
        _ => None,
    }
}

/// Takes `{code?, message}` from a failure event.
pub(super) fn error(fact: &mut Fact, otherwise: &str) -> Value {
    let mut error = Map::new();
    if let Some(code) = take_text(fact, "code") {
        error.insert("code".into(), code.into());
    }
    let message = take_text(fact, "message").unwrap_or_else(|| otherwise.to_owned());
    error.insert("message".into(), message.into());
    Value::Object(error)
}

/// Sums the counts of all models under the protocol's names.
/// Unknown counts keep their names.
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
