//! Awaken: the runtime's `AgentEvent`, told apart by `event_type`, into our vocabulary.
//!
//! Awaken names neither run nor message on its events: both come from the boundaries before them (`run_start`, `step_start`),
//! which is why this adapter remembers where a run stands. A suspension is a pause and never an end; a step is one message,
//! whatever reconnects happened in it; the text that was streamed is the text, and `result.response` (only the last message,
//! or its tail) replaces nothing. State snapshots hold the runtime's internals and stay internal. Never refuses an event
//! type or a member that it does not know, and never remembers a body.

use super::members::{bad_id, carrying, diagnostic, instant, take_id, take_known_id, take_text, take_type, unknown_type};
use super::{Adapter, Fact, FactError, SourceKind};
use crate::model::{
    ActionId, AgentId, Audience, Draft, EventType, Ids, MessageId, Owner, PartId, Persistence, Phase, RunId, Scope, SessionId,
    Surface, TaskId, ThreadId, ToolCallId, TurnId,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::VecDeque;

/// The source `awaken`.
pub const SOURCE: SourceKind = SourceKind {
    name: "awaken",
    fresh: || Box::new(Awaken::default()),
    restore: |memory| Box::new(serde_json::from_slice::<Awaken>(memory).unwrap_or_default()),
    answers: None,
};

/// The discriminator.
const TYPE: &str = "event_type";

/// The activity type of seed 002's tool progress.
const PROGRESS: &str = "tool-call-progress";

/// Calls that are open at once; beyond that the oldest counts as ended here. Real steps have a handful.
const CALLS_OPEN_MAX: usize = 256;

/// Ended calls whose late activities are still known to be about a call.
const CALLS_ENDED_MAX: usize = 64;

/// What is remembered of a tool's name, in characters.
const NAME_CHARS_MAX: usize = 128;

/// Where the run stands, as far as its own boundaries say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Life {
    #[default]
    New,
    Open,
    /// Suspended, or finished with work outstanding: another start of the same run goes on.
    Paused,
    Ended,
}

/// A call that has started and not ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Call {
    id: ToolCallId,
    name: String,
    /// How much of its arguments was streamed, in bytes.
    args_bytes: u64,
    /// Whether the model finished asking for it. A call that never got there never runs.
    ready: bool,
}

/// An action that waits for its answer. Awaken answers by call id alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Pending {
    call: ToolCallId,
    action: ActionId,
    approval: bool,
}

/// The adapter; all of it is memory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Awaken {
    life: Life,
    /// Starts that were no resumption.
    attempt: u64,
    /// Awaken's own id of the run, which need not be ours.
    run: Option<RunId>,
    session: Option<SessionId>,
    thread: Option<ThreadId>,
    parent_thread: Option<ThreadId>,
    agent: Option<AgentId>,
    /// The message of the current step.
    message: Option<MessageId>,
    /// The part that text continues; `None` also after a tool call, when text begins a new part.
    text: Option<PartId>,
    text_is_unsealed: bool,
    reasoning: Option<PartId>,
    /// Whether this attempt is a child agent's, whose card on the roster ends with it.
    is_subagent: bool,
    /// Whether any text was streamed in this attempt.
    text_was_streamed: bool,
    messages_made: u64,
    parts_made: u64,
    calls: Vec<Call>,
    ended_calls: VecDeque<ToolCallId>,
    pending: Vec<Pending>,
    /// The hash of the last compaction state.
    compaction: Option<String>,
}

/// The members that an event cannot do without: text, and an id is not empty.
fn required(event_type: &str) -> &'static [&'static str] {
    match event_type {
        "text_delta" | "reasoning_delta" => &["delta"],
        "tool_call_start" | "tool_call_ready" | "tool_call_done" | "tool_call_cancel" => &["id"],
        "tool_call_delta" => &["id", "args_delta"],
        "tool_call_stream_delta" => &["id", "delta"],
        "tool_call_resumed" => &["target_id"],
        "activity_snapshot" | "activity_delta" => &["message_id", "activity_type"],
        _ => &[],
    }
}

impl Adapter for Awaken {
    fn adapt(&mut self, mut fact: Fact, given: &Ids, out: &mut Vec<Draft>) -> Result<(), FactError> {
        let event_type = take_type(&mut fact, TYPE)?;
        let has = |member: &str| {
            fact.get(member).and_then(Value::as_str).is_some_and(|text| !text.is_empty() || member.ends_with("delta"))
        };
        if let Some(member) = required(&event_type).iter().find(|member| !has(member)) {
            let malformed = diagnostic("malformed_event", &event_type, fact).with("expected", format!("{member} as text"));
            out.push(self.about(malformed, given));
            return Ok(());
        }
        let mut step = Step { memory: self, given, out };
        match event_type.as_str() {
            "run_start" => step.run_start(fact),
            "run_finish" => step.run_finish(fact),
            "step_start" => step.step_start(fact)?,
            "step_end" => step.step_end(fact),
            "text_delta" => step.text_delta(fact),
            "reasoning_delta" => step.reasoning_delta(fact),
            "reasoning_encrypted_value" => step.reasoning_encrypted_value(fact),
            "tool_call_start" => step.tool_call_start(fact)?,
            "tool_call_delta" => step.tool_call_delta(fact)?,
            "tool_call_ready" => step.tool_call_ready(fact)?,
            "tool_call_stream_delta" => step.tool_call_stream_delta(fact)?,
            "tool_call_done" => step.tool_call_done(fact)?,
            "tool_call_resumed" => step.tool_call_resumed(fact)?,
            "tool_call_cancel" => step.tool_call_cancel(fact)?,
            "stream_reset" => step.stream_reset(fact),
            "activity_snapshot" => step.activity_snapshot(fact)?,
            "activity_delta" => step.activity_delta(fact)?,
            "messages_snapshot" => step.messages_snapshot(fact),
            "inference_complete" => step.inference_complete(fact),
            "state_snapshot" => step.state_snapshot(fact),
            "state_delta" => step.state_delta(fact),
            "error" => step.error(fact),
            unknown => step.push(unknown_type(unknown, fact)),
        }
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("memory has only string keys")
    }
}

fn name_of(text: &str) -> String {
    text.chars().take(NAME_CHARS_MAX).collect()
}

impl Awaken {
    /// The draft with the ids that hold for whatever this run now says. What was given wins over Awaken's own notion.
    fn about(&self, mut draft: Draft, given: &Ids) -> Draft {
        draft.ids.or(given);
        let own = Ids {
            session: self.session.clone(),
            thread: self.thread.clone(),
            turn: self.message.as_ref().and_then(|m| TurnId::new(m.as_str()).ok()),
            agent: self.agent.clone(),
            parent_thread: self.parent_thread.clone(),
            ..Ids::default()
        };
        draft.ids.or(&own);
        draft
    }

    /// The message of the current step; one is made up where Awaken gives none.
    fn message(&mut self) -> MessageId {
        if self.message.is_none() {
            self.message = Some(self.made_message());
        }
        self.message.clone().expect("just set")
    }

    // The source in made-up ids keeps them away from those that another source's adapter makes up for the same run.
    fn made_message(&mut self) -> MessageId {
        self.messages_made += 1;
        MessageId::new(&format!("awaken-message-{}", self.messages_made)).expect("a short name with a number is an id")
    }

    fn made_part(&mut self) -> PartId {
        self.parts_made += 1;
        PartId::new(&format!("awaken-part-{}", self.parts_made)).expect("a short name with a number is an id")
    }

    fn call(&self, id: &ToolCallId) -> Option<&Call> {
        self.calls.iter().find(|call| call.id == *id)
    }

    fn knows_call(&self, id: &ToolCallId) -> bool {
        self.call(id).is_some() || self.ended_calls.contains(id)
    }

    fn open_call(&mut self, call: Call) {
        self.calls.retain(|open| open.id != call.id);
        if self.calls.len() == CALLS_OPEN_MAX {
            let oldest = self.calls.remove(0);
            self.remember_ended(oldest.id);
        }
        self.calls.push(call);
    }

    fn end_call(&mut self, id: &ToolCallId) {
        self.calls.retain(|open| open.id != *id);
        self.remember_ended(id.clone());
    }

    fn remember_ended(&mut self, id: ToolCallId) {
        if self.ended_calls.contains(&id) {
            return;
        }
        if self.ended_calls.len() == CALLS_ENDED_MAX {
            self.ended_calls.pop_front();
        }
        self.ended_calls.push_back(id);
    }

    fn has_another_run(&self, fact: &Fact) -> bool {
        let native = fact.get("run_id").and_then(Value::as_str).filter(|id| !id.is_empty());
        native.is_some_and(|native| self.run.as_ref().is_some_and(|run| run.as_str() != native))
    }
}

/// What a run's boundary says of who runs.
struct Boundary {
    thread: Option<ThreadId>,
    run: Option<RunId>,
    parent_run: Option<String>,
    session: Option<SessionId>,
    parent_thread: Option<ThreadId>,
    agent: Option<AgentId>,
    parent_call: Option<String>,
    is_subagent: bool,
    /// What else `identity` has.
    identity: Map<String, Value>,
}

impl Boundary {
    fn take(fact: &mut Fact) -> Self {
        let mut identity = match fact.get("identity") {
            Some(Value::Object(_)) => match fact.shift_remove("identity") {
                Some(Value::Object(identity)) => identity,
                _ => unreachable!("just seen to be an object"),
            },
            _ => Map::new(),
        };
        // The identity repeats the event's own ids; where it says another, that stays to be seen.
        for member in ["thread_id", "run_id", "parent_run_id"] {
            match identity.shift_remove(member) {
                Some(said) if fact.get(member).is_none() => drop(fact.insert(member.into(), said)),
                Some(said) if fact.get(member) != Some(&said) => drop(identity.insert(member.into(), said)),
                _ => {}
            }
        }
        let thread = take_id(fact, "thread_id");
        let run = take_id(fact, "run_id");
        Self {
            parent_run: take_text(fact, "parent_run_id"),
            session: take_id(&mut identity, "session_id"),
            parent_thread: take_id(&mut identity, "parent_thread_id"),
            agent: take_id(&mut identity, "agent_id"),
            parent_call: take_text(&mut identity, "parent_tool_call_id"),
            is_subagent: identity.get("origin").and_then(Value::as_str) == Some("subagent"),
            thread,
            run,
            identity,
        }
    }

    /// Writes what belongs to no id of ours.
    fn tell(self, draft: &mut Draft) {
        if let Some(run) = self.run.filter(|run| draft.ids.run.as_ref() != Some(run)) {
            draft.add_ref("runId", run.as_str().into());
        }
        if let Some(parent) = self.parent_run {
            draft.add_ref("parentRunId", parent.into());
        }
        if let Some(parent) = self.parent_call {
            draft.add_ref("parentToolCallId", parent.into());
        }
        if !self.identity.is_empty() {
            draft.payload.insert("identity".into(), Value::Object(self.identity));
        }
    }
}

/// One event on its way.
struct Step<'a> {
    memory: &'a mut Awaken,
    given: &'a Ids,
    out: &'a mut Vec<Draft>,
}

impl Step<'_> {
    fn push(&mut self, draft: Draft) {
        let draft = self.memory.about(draft, self.given);
        self.out.push(draft);
    }

    // ── the run ──

    fn run_start(&mut self, mut fact: Fact) {
        let memory = &mut *self.memory;
        let is_another = memory.has_another_run(&fact);
        if is_another && memory.life == Life::Open {
            // Nothing between here and the ends says which run it is of: they cannot be told apart, only flagged.
            let open = memory.run.as_ref().map_or(Value::Null, |run| run.as_str().into());
            return self.push(diagnostic("interleaved_run", "run_start", fact).with("openRun", open));
        }
        let resumed = memory.life == Life::Paused && !is_another;
        if memory.life == Life::Open {
            // Awaken's bare loop stops without a terminal, and its mailbox then starts the same run again.
            self.seal();
            self.interrupt_calls();
        }
        let boundary = Boundary::take(&mut fact);
        let memory = &mut *self.memory;
        memory.life = Life::Open;
        if is_another {
            (memory.session, memory.thread, memory.parent_thread, memory.agent) = (None, None, None, None);
        }
        self.learn(&boundary);
        let (class, phase) =
            if resumed { (EventType::RunStatus, Phase::Acting) } else { (EventType::RunStarted, Phase::Accepted) };
        let mut draft = carrying(Draft::new(class), fact);
        draft.phase = phase;
        draft.persistence = Persistence::Snapshot;
        if resumed {
            draft.payload.insert("resumed".into(), true.into());
        } else {
            self.memory.attempt += 1;
            self.memory.message = None;
            self.memory.text_was_streamed = false;
            draft.payload.insert("attempt".into(), self.memory.attempt.into());
        }
        draft = self.memory.about(draft, self.given);
        let spawned = boundary.is_subagent && !resumed;
        boundary.tell(&mut draft);
        let refs = draft.refs.clone();
        self.push(draft);
        if !resumed {
            self.memory.is_subagent = spawned;
        }
        if spawned {
            self.agent_spawned(refs);
        }
    }

    fn learn(&mut self, boundary: &Boundary) {
        let memory = &mut *self.memory;
        let session = boundary.session.clone().or_else(|| boundary.thread.as_ref().and_then(|t| SessionId::new(t.as_str()).ok()));
        memory.run = boundary.run.clone().or(memory.run.take());
        memory.session = session.or(memory.session.take());
        memory.thread = boundary.thread.clone().or(memory.thread.take());
        memory.parent_thread = boundary.parent_thread.clone().or(memory.parent_thread.take());
        // An end by Awaken's mailbox has a degraded identity without an agent: it is still the same one's.
        memory.agent = boundary.agent.clone().or(memory.agent.take());
    }

    fn agent_spawned(&mut self, refs: Option<Value>) {
        let mut draft = self.memory.about(Draft::new(EventType::AgentSpawned), self.given);
        let Some(agent) = &draft.ids.agent else { return };
        let name = agent.as_str().to_owned();
        draft = draft.with("agentName", name).with("runtimeEntity", "subagent_turn").with("runtimeStatus", "running");
        draft.refs = refs;
        self.push(draft);
    }

    /// The run's end is its child agent's too; nothing else would ever end that one.
    fn agent_completed(&mut self, end: &Draft) {
        if std::mem::take(&mut self.memory.is_subagent) {
            let status = end.text("status").unwrap_or("failed").to_owned();
            let mut draft = Draft::new(EventType::AgentCompleted).with("status", status).with("runtimeEntity", "subagent_turn");
            draft.phase = end.phase.clone();
            let draft = self.memory.about(draft, self.given);
            self.out.extend(Some(draft).filter(|draft| draft.ids.agent.is_some()));
        }
    }

    fn run_finish(&mut self, mut fact: Fact) {
        if self.memory.has_another_run(&fact) {
            return self.push(diagnostic("interleaved_run", "run_finish", fact));
        }
        let boundary = Boundary::take(&mut fact);
        if self.memory.run.is_none() {
            self.learn(&boundary);
        }
        let mut result = fact.shift_remove("result").filter(|v| !v.is_null());
        let response = result.as_mut().and_then(Value::as_object_mut).and_then(|result| take_text(result, "response"));
        let outstanding = result.as_ref().and_then(|r| r.get("status")).and_then(Value::as_str) == Some("waiting");
        let mut draft = finish(fact.shift_remove("termination"), outstanding);
        self.seal();
        if let Some(text) = response.filter(|text| !text.is_empty() && !self.memory.text_was_streamed) {
            self.memory.text_was_streamed = true;
            self.answer(text);
        }
        if let Some(result) = result.filter(|r| r.as_object().is_none_or(|r| !r.is_empty())) {
            draft.payload.insert("result".into(), result);
        }
        self.memory.message = None;
        draft = self.memory.about(carrying(draft, fact), self.given);
        boundary.tell(&mut draft);
        if draft.class == EventType::RunStatus {
            self.memory.life = Life::Paused;
        } else {
            self.agent_completed(&draft);
            self.end();
        }
        self.push(draft);
    }

    /// The answer of a run that streamed none.
    fn answer(&mut self, text: String) {
        let message = self.memory.message();
        let mut draft = Draft::new(EventType::TextFinal).with("text", text);
        draft.ids.message = Some(message);
        self.push(draft);
    }

    fn error(&mut self, mut fact: Fact) {
        self.seal();
        self.memory.message = None;
        let mut error = Map::new();
        if let Some(code) = take_text(&mut fact, "code") {
            error.insert("code".into(), code.into());
        }
        let message = take_text(&mut fact, "message").unwrap_or_else(|| "the run failed without saying why".into());
        error.insert("message".into(), message.into());
        let draft = carrying(Draft::new(EventType::RunFailed).with("error", Value::Object(error)).with("retryable", true), fact);
        self.agent_completed(&draft);
        self.end();
        self.push(draft);
    }

    /// The end of a run closes what is open in the log; here it only has to be forgotten.
    fn end(&mut self) {
        self.memory.life = Life::Ended;
        self.memory.pending.clear();
        for call in std::mem::take(&mut self.memory.calls) {
            self.memory.remember_ended(call.id);
        }
    }

    // ── steps and their message ──

    fn step_start(&mut self, mut fact: Fact) -> Result<(), FactError> {
        let named = match take_text(&mut fact, "message_id").filter(|id| !id.is_empty()) {
            Some(id) => Some(MessageId::new(&id).map_err(|error| bad_id("message_id", &error))?),
            None => None,
        };
        self.seal();
        self.memory.message = named;
        self.memory.message();
        self.step_status("started", fact);
        Ok(())
    }

    fn step_end(&mut self, fact: Fact) {
        self.seal();
        // Arguments that are no JSON make Awaken drop the call without a word; by now every other call is ready.
        self.drop_unready("its arguments were never complete");
        self.step_status("ended", fact);
        self.memory.message = None;
    }

    fn step_status(&mut self, step: &str, rest: Fact) {
        let mut draft = carrying(Draft::new(EventType::RunStatus).with("step", step), rest);
        draft.scope = Scope::Turn;
        draft.audience = Audience::Dashboard;
        self.push(draft);
    }

    /// Ends what the step streamed. The ends have no text: what was streamed is the text.
    fn seal(&mut self) {
        if let Some(part) = self.memory.reasoning.take() {
            let mut draft = Draft::new(EventType::ReasoningSummary);
            draft.ids.message.clone_from(&self.memory.message);
            draft.ids.part = Some(part);
            self.push(draft);
        }
        self.memory.text = None;
        if std::mem::take(&mut self.memory.text_is_unsealed) {
            let mut draft = Draft::new(EventType::TextFinal);
            draft.ids.message.clone_from(&self.memory.message);
            self.push(draft);
        }
    }

    fn text_delta(&mut self, mut fact: Fact) {
        let memory = &mut *self.memory;
        let message = memory.message();
        let part = memory.text.take().unwrap_or_else(|| memory.made_part());
        memory.text = Some(part.clone());
        memory.text_is_unsealed = true;
        memory.text_was_streamed = true;
        self.chunk(EventType::TextDelta, take_text(&mut fact, "delta"), message, part, fact);
    }

    fn reasoning_delta(&mut self, mut fact: Fact) {
        let memory = &mut *self.memory;
        let message = memory.message();
        let part = memory.reasoning.take().unwrap_or_else(|| memory.made_part());
        memory.reasoning = Some(part.clone());
        self.chunk(EventType::ReasoningDelta, take_text(&mut fact, "delta"), message, part, fact);
    }

    fn chunk(&mut self, class: EventType, text: Option<String>, message: MessageId, part: PartId, rest: Fact) {
        let mut draft = carrying(Draft::new(class).with("text", text), rest);
        draft.ids.message = Some(message);
        draft.ids.part = Some(part);
        self.push(draft);
    }

    fn reasoning_encrypted_value(&mut self, mut fact: Fact) {
        // The value is the provider's and means nothing to anybody else: only that there was one, and how large.
        let bytes = match fact.shift_remove("encrypted_value") {
            Some(Value::String(text)) => text.len(),
            Some(other) => other.to_string().len(),
            None => 0,
        };
        let mut draft = carrying(Draft::new(EventType::DiagnosticChanged), fact);
        draft = draft.with("kind", "reasoning_encrypted_value").with("bytes", bytes);
        (draft.owner, draft.scope, draft.phase) = (Owner::Model, Scope::Part, Phase::Reasoning);
        draft.ids.message.clone_from(&self.memory.message);
        self.push(draft);
    }

    /// The provider's stream broke, and Awaken asks again within the step: what the step streamed is void.
    fn stream_reset(&mut self, mut fact: Fact) {
        let reason = take_text(&mut fact, "reason");
        let message = self.memory.message();
        self.memory.text = None;
        self.memory.text_is_unsealed = false;
        self.memory.reasoning = None;
        let messages = json!([{ "messageId": message.as_str(), "role": "assistant", "parts": [] }]);
        let mut draft = carrying(Draft::new(EventType::MessagesSnapshot), fact).with("mode", "repair").with("messages", messages);
        if let Some(reason) = &reason {
            draft.payload.insert("reason".into(), reason.as_str().into());
        }
        (draft.owner, draft.scope, draft.persistence) = (Owner::Runtime, Scope::Message, Persistence::EphemeralLive);
        draft.ids.message = Some(message);
        self.push(draft);
        self.drop_unready(reason.as_deref().unwrap_or("the stream was reset"));
    }

    // ── tool calls ──

    fn tool(&self, class: EventType, call: ToolCallId, rest: Fact) -> Draft {
        let mut draft = carrying(Draft::new(class), rest);
        draft.ids.tool_call = Some(call);
        draft
    }

    fn tool_call_start(&mut self, mut fact: Fact) -> Result<(), FactError> {
        let id: ToolCallId = take_known_id(&mut fact, "id")?;
        let name = take_text(&mut fact, "name").unwrap_or_default();
        self.memory.text = None;
        self.memory.open_call(Call { id: id.clone(), name: name_of(&name), args_bytes: 0, ready: false });
        let mut draft = self.tool(EventType::ToolStarted, id, fact).with("toolName", name);
        // Until its arguments are complete it is the model's wish, not yet the tool's work.
        draft.owner = Owner::Model;
        draft.ids.message.clone_from(&self.memory.message);
        self.push(draft);
        Ok(())
    }

    fn tool_call_delta(&mut self, mut fact: Fact) -> Result<(), FactError> {
        let id: ToolCallId = take_known_id(&mut fact, "id")?;
        let text = take_text(&mut fact, "args_delta").unwrap_or_default();
        if let Some(call) = self.memory.calls.iter_mut().find(|call| call.id == id) {
            call.args_bytes += text.len() as u64;
        }
        let mut draft = self.tool(EventType::ToolArgs, id, fact).with("inputText", text);
        draft.audience = Audience::Dashboard;
        self.push(draft);
        Ok(())
    }

    fn tool_call_ready(&mut self, mut fact: Fact) -> Result<(), FactError> {
        let id: ToolCallId = take_known_id(&mut fact, "id")?;
        let name = take_text(&mut fact, "name").unwrap_or_default();
        let input = fact.shift_remove("arguments").unwrap_or(Value::Null);
        let mut draft = self.tool(EventType::ToolArgs, id.clone(), fact).with("input", input);
        draft.persistence = Persistence::Archive;
        match self.memory.calls.iter_mut().find(|call| call.id == id) {
            Some(call) => call.ready = true,
            None => {
                self.memory.open_call(Call { id, name: name_of(&name), args_bytes: 0, ready: true });
                draft.payload.insert("toolName".into(), name.into());
            }
        }
        self.push(draft);
        Ok(())
    }

    fn tool_call_stream_delta(&mut self, mut fact: Fact) -> Result<(), FactError> {
        let id: ToolCallId = take_known_id(&mut fact, "id")?;
        let name = take_text(&mut fact, "name");
        let text = take_text(&mut fact, "delta");
        let is_announced = self.memory.knows_call(&id);
        let mut draft = self.tool(EventType::ToolOutputDelta, id, fact).with("text", text);
        if let Some(name) = name.filter(|_| !is_announced) {
            draft.payload.insert("toolName".into(), name.into());
        }
        draft.audience = Audience::User;
        self.push(draft);
        Ok(())
    }

    fn tool_call_cancel(&mut self, mut fact: Fact) -> Result<(), FactError> {
        let id: ToolCallId = take_known_id(&mut fact, "id")?;
        let name = take_text(&mut fact, "name");
        let reason = take_text(&mut fact, "reason").unwrap_or_else(|| "cancelled before it ran".into());
        self.memory.end_call(&id);
        let mut draft = self.never_ran(id, &reason, fact);
        if let Some(name) = name {
            draft.payload.insert("toolName".into(), name.into());
        }
        self.push(draft);
        Ok(())
    }

    /// The end of a call that the runtime gave up before it ran. For operators; whoever saw its start is shown it by rule.
    fn never_ran(&self, id: ToolCallId, reason: &str, rest: Fact) -> Draft {
        let mut draft = self.tool(EventType::ToolFailed, id, rest);
        draft = draft.with("error", json!({ "code": "cancelled", "message": reason })).with("neverStarted", true);
        (draft.owner, draft.phase, draft.audience) = (Owner::Runtime, Phase::Cancelled, Audience::Dashboard);
        draft
    }

    fn drop_unready(&mut self, reason: &str) {
        let (ready, dropped) = std::mem::take(&mut self.memory.calls).into_iter().partition(|call| call.ready);
        self.memory.calls = ready;
        for call in dropped {
            let draft = self.never_ran(call.id.clone(), reason, Map::new());
            self.push(draft.with("toolName", call.name).with("inputTextBytes", call.args_bytes));
            self.memory.remember_ended(call.id);
        }
    }

    /// Ends the calls of an attempt that stopped without a word.
    fn interrupt_calls(&mut self) {
        for call in std::mem::take(&mut self.memory.calls) {
            let error = json!({ "code": "interrupted", "message": "the run was started again before the call ended" });
            let mut draft =
                self.tool(EventType::ToolFailed, call.id.clone(), Map::new()).with("error", error).with("toolName", call.name);
            (draft.owner, draft.phase) = (Owner::Runtime, Phase::Interrupted);
            self.push(draft);
            self.memory.remember_ended(call.id);
        }
        self.memory.pending.clear();
    }

    fn tool_call_done(&mut self, mut fact: Fact) -> Result<(), FactError> {
        let id: ToolCallId = take_known_id(&mut fact, "id")?;
        let message: Option<MessageId> = take_id(&mut fact, "message_id");
        let outcome = take_text(&mut fact, "outcome");
        let mut result = match fact.shift_remove("result") {
            Some(Value::Object(result)) => result,
            Some(bare) => Map::from_iter([("data".to_owned(), bare)]),
            None => Map::new(),
        };
        let outcome = match (outcome.as_deref(), result.get("status").and_then(Value::as_str)) {
            (Some("succeeded"), _) | (None, Some("success")) => EventType::ToolResult,
            (Some("suspended"), _) | (None, Some("pending")) => EventType::ActionRequired,
            (Some("failed"), _) | (None, Some("error")) => EventType::ToolFailed,
            (outcome, _) => {
                let outcome = outcome.unwrap_or_default().to_owned();
                fact.insert("result".into(), Value::Object(result));
                let mut draft = diagnostic("unknown_outcome", "tool_call_done", fact).with("outcome", outcome);
                draft.ids.tool_call = Some(id);
                self.push(draft);
                return Ok(());
            }
        };
        result.shift_remove("status");
        let mut draft = self.tool(outcome, id.clone(), fact);
        draft.ids.message = message;
        if let Some(name) = take_text(&mut result, "tool_name").or_else(|| self.memory.call(&id).map(|call| call.name.clone())) {
            draft.payload.insert("toolName".into(), name.into());
        }
        match draft.class {
            EventType::ActionRequired => self.suspended(draft, result),
            EventType::ToolFailed => self.failed(draft, result),
            _ => self.succeeded(draft, result),
        }
        Ok(())
    }

    fn succeeded(&mut self, mut draft: Draft, mut result: Map<String, Value>) {
        self.end_of(&draft);
        draft = draft.with("output", result.shift_remove("data").unwrap_or(Value::Null)).with("status", "completed");
        draft.audience = Audience::User;
        let data = draft.payload.get("output").cloned().filter(|_| has_child(&result));
        add_rest(&mut draft, result);
        let child = child_of(&draft, data.as_ref(), "completed");
        self.push(draft);
        self.tell_of_child(child);
    }

    fn failed(&mut self, mut draft: Draft, mut result: Map<String, Value>) {
        self.end_of(&draft);
        let data = result.shift_remove("data").filter(|v| !v.is_null());
        let told = data.as_ref().and_then(|data| data.get("error"));
        let message = take_text(&mut result, "message")
            .or_else(|| told.and_then(|e| e.get("message").unwrap_or(e).as_str()).map(str::to_owned))
            .unwrap_or_else(|| "the tool failed without saying why".into());
        let flag = |name: &str| result.get("metadata").and_then(|m| m.get(name)) == Some(&Value::Bool(true));
        // Awaken marks a cancelled tool by this prefix alone (`ToolError::Cancelled`).
        let cancelled = message.starts_with("Cancelled:");
        let code = match (flag("timed_out"), flag("rejected"), cancelled) {
            (true, ..) => Some("timeout"),
            (_, true, _) => Some("rejected"),
            (.., true) => Some("cancelled"),
            _ => told.and_then(|error| error.get("code")).and_then(Value::as_str),
        };
        let error = match code {
            Some(code) => json!({ "code": code, "message": message }),
            None => json!({ "message": message }),
        };
        if flag("rejected") {
            self.rejected(&draft, &message);
        }
        draft = draft.with("error", error);
        if cancelled {
            draft.phase = Phase::Cancelled;
        }
        add_rest(&mut draft, result);
        let child = child_of(&draft, data.as_ref(), "failed");
        draft.payload.extend(data.map(|data| ("data".to_owned(), data)));
        self.push(draft);
        self.tell_of_child(child);
    }

    /// A policy refused the call: a fact of its own, beside the call's failure.
    fn rejected(&mut self, call: &Draft, message: &str) {
        let mut draft = Draft::new(EventType::PermissionChanged).with("decision", "denied").with("message", message);
        if let Some(name) = call.payload.get("toolName") {
            draft.payload.insert("toolName".into(), name.clone());
        }
        draft.scope = Scope::ToolCall;
        draft.ids.tool_call.clone_from(&call.ids.tool_call);
        self.push(draft);
    }

    fn end_of(&mut self, draft: &Draft) {
        if let Some(id) = &draft.ids.tool_call {
            self.memory.end_call(id);
        }
    }

    fn tell_of_child(&mut self, child: Option<[Draft; 2]>) {
        for draft in child.into_iter().flatten() {
            if draft.class != EventType::AgentCompleted || draft.ids.agent.is_some() {
                let mut told = self.memory.about(draft.clone(), self.given);
                // It is about the child, or about nobody that we know by name.
                told.ids.agent = draft.ids.agent;
                self.out.push(told);
            }
        }
    }

    fn suspended(&mut self, mut draft: Draft, mut result: Map<String, Value>) {
        let mut ticket = take_object(&mut result, "suspension");
        let mut suspension = take_object(&mut ticket, "suspension");
        let mut pending = take_object(&mut ticket, "pending");
        let mut parameters = take_object(&mut suspension, "parameters");
        let mode = take_text(&mut ticket, "resume_mode");
        let id = draft.ids.tool_call.clone().expect("a call's draft has the call's id");
        // Decisions may address the call as well as the suspension, so the call's id names an action that has no name.
        let action = take_id(&mut suspension, "id").or_else(|| ActionId::new(id.as_str()).ok());
        let action = action.expect("what is a call's id can be an action's");
        // Only a call that will be replayed is the user's to allow; otherwise somebody must give the value (trap 34).
        let approval = mode.as_deref().is_none_or(|mode| mode == "replay_tool_call");
        let (kind, owner) = if approval { ("tool_approval", Owner::Policy) } else { ("structured_input", Owner::Action) };
        let reported = take_text(&mut result, "message");
        draft.owner = owner;
        draft = draft.with("kind", kind);
        if let Some(message) = take_text(&mut suspension, "message").or(reported) {
            draft.payload.insert("message".into(), message.into());
        }
        let schema = suspension.shift_remove("response_schema");
        let (options, risk) = (parameters.shift_remove("options"), parameters.shift_remove("risk"));
        for (member, value) in [("schema", schema), ("options", options), ("risk", risk)] {
            draft.payload.extend(value.filter(|v| !v.is_null()).map(|value| (member.to_owned(), value)));
        }
        let input = pending.shift_remove("arguments").or_else(|| parameters.shift_remove("args"));
        // Whoever may not see the call loses `input`; its repetition elsewhere would tell it.
        for repeated in ["args", "arguments"] {
            if parameters.get(repeated) == input.as_ref() {
                parameters.shift_remove(repeated);
            }
        }
        if parameters.get("tool") == draft.payload.get("toolName") {
            parameters.shift_remove("tool");
        }
        draft.payload.extend(input.map(|input| ("input".to_owned(), input)));
        draft.payload.extend(mode.map(|mode| ("resumeMode".to_owned(), mode.into())));
        draft.payload.extend(suspension.shift_remove("action").map(|action| ("action".to_owned(), action)));
        if !parameters.is_empty() {
            draft.payload.insert("parameters".into(), Value::Object(parameters));
        }
        pending.retain(|member, _| !matches!(member.as_str(), "id" | "name"));
        result.retain(|_, value| !value.is_null());
        for rest in [suspension, ticket, pending, result] {
            add_rest(&mut draft, rest);
        }
        draft.ids.action = Some(action.clone());
        self.memory.pending.retain(|pending| pending.call != id);
        if self.memory.pending.len() == CALLS_OPEN_MAX {
            self.memory.pending.remove(0);
        }
        self.memory.pending.push(Pending { call: id, action, approval });
        self.push(draft);
    }

    /// The answer to a suspended call, and at once the call's end: Awaken sends no `tool_call_done` for it, and no outcome.
    /// Its own encoders tell the outcome by the result: a textual `error` is a failure, `approved: false` a refusal before
    /// the tool ran, anything else success.
    fn tool_call_resumed(&mut self, mut fact: Fact) -> Result<(), FactError> {
        let target: ToolCallId = take_known_id(&mut fact, "target_id")?;
        let result = fact.shift_remove("result").unwrap_or(Value::Null);
        let at = self.memory.pending.iter().position(|p| p.call == target || p.action.as_str() == target.as_str());
        let pending = at.map(|at| self.memory.pending.remove(at));
        let id = pending.as_ref().map_or(target, |pending| pending.call.clone());
        let name = self.memory.call(&id).map(|call| call.name.clone());
        self.memory.end_call(&id);
        let refused = result.get("approved") == Some(&Value::Bool(false));
        let error = result.get("error").and_then(Value::as_str).map(str::to_owned);
        if let Some(pending) = pending {
            self.resolved(pending, &id, &result, refused && error.is_none());
        }
        let mut draft = match (error, refused) {
            (Some(message), _) => {
                let mut draft = self.tool(EventType::ToolFailed, id, fact).with("error", json!({ "message": message }));
                draft.payload.extend(others(result, "error"));
                draft
            }
            (None, true) => {
                let reason = result.get("reason").and_then(Value::as_str).unwrap_or("refused before it ran");
                let mut draft = self.never_ran(id, reason, fact);
                draft.audience = Audience::User;
                draft
            }
            (None, false) => {
                let mut draft = self.tool(EventType::ToolResult, id, fact).with("status", "completed");
                draft.audience = Audience::User;
                let (output, metadata) = unwrapped(result);
                draft.payload.extend(metadata.map(|metadata| ("metadata".to_owned(), metadata)));
                draft.with("output", output)
            }
        };
        draft.payload.extend(name.map(|name| ("toolName".to_owned(), name.into())));
        self.push(draft);
        Ok(())
    }

    fn resolved(&mut self, pending: Pending, call: &ToolCallId, result: &Value, refused: bool) {
        let outcome = match (pending.approval, refused) {
            (true, true) => "rejected",
            // That the tool ran and failed says that it was allowed to run.
            (true, false) => "approved",
            (false, true) => "cancelled",
            (false, false) => "answered",
        };
        let mut draft = Draft::new(EventType::ActionResolved).with("outcome", outcome);
        // What an approved tool gave is the tool's output; only otherwise is it what the user said.
        if outcome != "approved" {
            draft.payload.insert("value".into(), result.clone());
        }
        draft.owner = if pending.approval { Owner::Policy } else { Owner::Action };
        draft.ids.action = Some(pending.action);
        draft.ids.tool_call = Some(call.clone());
        self.push(draft);
    }

    // ── activities ──

    fn activity_snapshot(&mut self, mut fact: Fact) -> Result<(), FactError> {
        let target = take_known_id(&mut fact, "message_id")?;
        let activity = take_text(&mut fact, "activity_type").unwrap_or_default();
        let content = fact.shift_remove("content").unwrap_or(Value::Null);
        let replace = fact.shift_remove("replace").filter(|v| !v.is_null());
        match content {
            Value::Object(content) if activity == PROGRESS => self.progress(target, content, replace, fact),
            content => {
                let mut draft = self.activity(target, activity, fact).with("content", content);
                draft.payload.extend(replace.map(|replace| ("replace".to_owned(), replace)));
                self.push(draft);
            }
        }
        Ok(())
    }

    fn activity_delta(&mut self, mut fact: Fact) -> Result<(), FactError> {
        let target = take_known_id(&mut fact, "message_id")?;
        let activity = take_text(&mut fact, "activity_type").unwrap_or_default();
        let patch = match fact.shift_remove("patch") {
            Some(patch @ Value::Array(_)) => patch,
            None => Value::Array(Vec::new()),
            Some(bare) => Value::Array(vec![bare]),
        };
        let draft = self.activity(target, activity, fact).with("patch", patch);
        self.push(draft);
        Ok(())
    }

    /// An activity of a tool's own making. Awaken puts the id of the call that makes it in the place of a message's.
    fn activity(&self, target: ToolCallId, activity: String, rest: Fact) -> Draft {
        let mut draft = carrying(Draft::new(EventType::ToolProgress).with("activityType", activity), rest);
        if self.memory.knows_call(&target) {
            draft.ids.tool_call = Some(target);
        } else {
            draft.ids.message = MessageId::new(target.as_str()).ok();
        }
        (draft.persistence, draft.audience) = (Persistence::Snapshot, Audience::User);
        draft
    }

    fn progress(&mut self, target: ToolCallId, mut content: Map<String, Value>, replace: Option<Value>, rest: Fact) {
        let id = content.get("call_id").and_then(Value::as_str).and_then(|id| ToolCallId::new(id).ok()).unwrap_or(target);
        let parent = content.get("parent_call_id").filter(|v| !v.is_null()).cloned();
        let child_run = content.get("run_id").and_then(Value::as_str).filter(|run| {
            let is = |ours: Option<&RunId>| ours.is_none_or(|ours| ours.as_str() == *run);
            !is(self.memory.run.as_ref()) && self.given.run.as_ref().is_none_or(|ours| ours.as_str() != *run)
        });
        let child_run = child_run.map(|run| Value::from(run.to_owned()));
        let is_child = parent.is_some() || child_run.is_some();
        let mut draft = self.tool(EventType::ToolProgress, id.clone(), rest);
        draft.payload.extend(content.shift_remove("tool_name").map(|name| ("toolName".to_owned(), name)));
        for member in ["status", "progress", "loaded", "total", "message"] {
            draft.payload.extend(content.shift_remove(member).map(|value| (member.to_owned(), value)));
        }
        draft.payload.extend(content);
        if replace == Some(Value::Bool(false)) {
            draft.payload.insert("replace".into(), false.into());
        }
        draft.audience = Audience::User;
        if is_child {
            draft = draft.with("runtimeEntity", "subagent_turn");
            draft.surface = Surface::TaskCapsule;
            for (rel, value) in [("parentToolCallId", parent), ("childRunId", child_run)] {
                if let Some(value) = value {
                    draft.add_ref(rel, value);
                }
            }
        }
        if !self.memory.knows_call(&id) {
            // A child's call is announced nowhere else; from here on its activities are known to be a call's.
            self.memory.remember_ended(id);
        }
        let mut draft = self.memory.about(draft, self.given);
        if is_child {
            // Which agent the child is, its progress does not say; it is not the one that speaks here.
            draft.ids.agent = None;
        }
        self.out.push(draft);
    }

    // ── messages, state, metrics ──

    fn messages_snapshot(&mut self, mut fact: Fact) {
        let messages = match fact.shift_remove("messages") {
            Some(Value::Array(messages)) => messages.into_iter().map(|message| self.windowed(message)).collect(),
            _ => Vec::new(),
        };
        let draft = carrying(Draft::new(EventType::MessagesSnapshot), fact).with("mode", "window").with("messages", messages);
        self.push(draft);
    }

    /// A message of history in our shape; what cannot be recognised in it stays beside.
    fn windowed(&mut self, message: Value) -> Value {
        let Value::Object(mut message) = message else { return message };
        let named: Option<MessageId> = ["messageId", "message_id", "id"].iter().find_map(|member| take_id(&mut message, member));
        let id = named.unwrap_or_else(|| self.memory.made_message());
        let role = take_text(&mut message, "role").unwrap_or_else(|| "unknown".into());
        let mut parts = match message.shift_remove("parts") {
            Some(Value::Array(parts)) => parts,
            _ => Vec::new(),
        };
        match message.shift_remove("content") {
            Some(Value::String(text)) => parts.push(self.part(part_kind(&role), text)),
            Some(Value::Array(blocks)) => {
                let mut others = Vec::new();
                for block in blocks {
                    match block_text(&block) {
                        Some((None, text)) => parts.push(self.part(part_kind(&role), text)),
                        Some((Some(kind), text)) => parts.push(self.part(kind, text)),
                        None => others.push(block),
                    }
                }
                if !others.is_empty() {
                    message.insert("content".into(), Value::Array(others));
                }
            }
            Some(Value::Null) | None => {}
            Some(other) => drop(message.insert("content".into(), other)),
        }
        let mut shaped = Map::new();
        shaped.insert("messageId".into(), id.as_str().into());
        shaped.insert("role".into(), role.into());
        shaped.insert("parts".into(), Value::Array(parts));
        for (member, value) in message {
            shaped.entry(member).or_insert(value);
        }
        Value::Object(shaped)
    }

    fn part(&mut self, kind: &str, text: String) -> Value {
        json!({ "partId": self.memory.made_part().as_str(), "kind": kind, "text": [text] })
    }

    fn inference_complete(&mut self, mut fact: Fact) {
        let mut payload = Map::new();
        for (member, ours) in [("model", "model"), ("duration_ms", "durationMs")] {
            payload.extend(fact.shift_remove(member).map(|value| (ours.to_owned(), value)));
        }
        if let Some(usage) = fact.shift_remove("usage").filter(|v| !v.is_null()) {
            payload.insert("usage".into(), usage_of(usage));
        }
        let mut draft = carrying(Draft::new(EventType::MetricChanged), fact);
        draft.payload = payload;
        (draft.scope, draft.phase, draft.audience) = (Scope::Turn, Phase::Producing, Audience::Dashboard);
        self.push(draft);
    }

    fn state_snapshot(&mut self, mut fact: Fact) {
        let snapshot = fact.shift_remove("snapshot").unwrap_or(Value::Null);
        let compaction = self.compaction(&snapshot);
        let draft = carrying(Draft::new(EventType::StateSnapshot), fact).with("state", snapshot);
        self.push(internal_state(draft));
        if let Some(draft) = compaction {
            self.push(draft);
        }
    }

    fn state_delta(&mut self, mut fact: Fact) {
        let patch = match fact.shift_remove("delta") {
            Some(patch @ Value::Array(_)) => patch,
            None => Value::Array(Vec::new()),
            Some(bare) => Value::Array(vec![bare]),
        };
        self.push(internal_state(carrying(Draft::new(EventType::StateDelta), fact).with("patch", patch)));
    }

    /// Awaken tells of a compaction nowhere but in its state. The summaries there are the runtime's own; only the numbers go on.
    fn compaction(&mut self, snapshot: &Value) -> Option<Draft> {
        let state = snapshot.get("extensions")?.get("__context_compaction")?;
        let hash = Sha256::digest(state.to_string()).iter().take(8).fold(String::new(), |hash, byte| format!("{hash}{byte:02x}"));
        if self.memory.compaction.replace(hash.clone()).as_ref() == Some(&hash) {
            return None;
        }
        let last = state.get("boundaries")?.as_array()?.last()?;
        let mut draft = Draft::new(EventType::ContextCompactionCompleted);
        draft.timestamp = last.get("timestamp_ms").and_then(instant);
        if let Some(total) = state.get("total_compactions").and_then(Value::as_u64) {
            draft = draft.with("compactionId", format!("awaken-compaction-{total}")).with("totalCompactions", total);
        }
        for (member, ours) in [("pre_tokens", "preTokens"), ("post_tokens", "postTokens")] {
            draft.payload.extend(last.get(member).map(|count| (ours.to_owned(), count.clone())));
        }
        Some(draft)
    }
}

/// How a run came to a boundary. A pause is a status; what says nothing that we know is an end of an unknown kind.
fn finish(termination: Option<Value>, outstanding: bool) -> Draft {
    let (name, value) = match termination {
        Some(Value::Object(mut termination)) => {
            let name = take_text(&mut termination, "type").unwrap_or_else(|| "unknown".into());
            (name, termination.shift_remove("value").unwrap_or(Value::Null))
        }
        Some(Value::String(name)) => (name, Value::Null),
        other => ("unknown".into(), other.unwrap_or(Value::Null)),
    };
    let ended = |phase: Phase, status: &str| {
        let mut draft = Draft::new(EventType::RunFinished).with("status", status);
        draft.phase = phase;
        draft
    };
    let failed = |code: Option<&str>| {
        let message = value.as_str().unwrap_or("the run failed without saying why");
        let error = match code {
            Some(code) => json!({ "code": code, "message": message }),
            None => json!({ "message": message }),
        };
        Draft::new(EventType::RunFailed).with("status", "failed").with("error", error)
    };
    let mut draft = match name.as_str() {
        "suspended" => waiting(),
        "natural_end" if outstanding => waiting(),
        "natural_end" | "behavior_requested" | "plugin_requested" => ended(Phase::Completed, "completed"),
        "cancelled" => ended(Phase::Cancelled, "cancelled"),
        "stopped" => ended(Phase::Interrupted, "interrupted"),
        "blocked" => {
            let mut draft = failed(Some("blocked"));
            draft.owner = Owner::Policy;
            draft
        }
        "error" => failed(None),
        _ => ended(Phase::Unknown, "unknown"),
    };
    draft.payload.insert("termination".into(), name.into());
    match value {
        Value::Object(told) => add_rest(&mut draft, told),
        Value::Null => {}
        value if draft.class == EventType::RunFailed && value.is_string() => {}
        value => drop(draft.payload.insert("value".into(), value)),
    }
    draft
}

fn waiting() -> Draft {
    let mut draft = Draft::new(EventType::RunStatus).with("status", "waiting");
    (draft.phase, draft.persistence) = (Phase::Waiting, Persistence::Snapshot);
    draft
}

/// State holds the runtime's internals: recent answers, arguments, tickets.
fn internal_state(mut draft: Draft) -> Draft {
    (draft.scope, draft.surface, draft.audience) = (Scope::Run, Surface::Diagnostics, Audience::Internal);
    draft
}

/// Adds members that have no place of their own, under their own names, where the payload does not have them yet.
fn add_rest(draft: &mut Draft, rest: Map<String, Value>) {
    for (member, value) in rest {
        if member != "message" || !value.is_null() {
            draft.payload.entry(member).or_insert(value);
        }
    }
}

fn take_object(map: &mut Map<String, Value>, member: &str) -> Map<String, Value> {
    match map.get_mut(member) {
        Some(Value::Object(inner)) => {
            let inner = std::mem::take(inner);
            map.shift_remove(member);
            inner
        }
        _ => Map::new(),
    }
}

/// A resumed call's output: the raw data, or `{data, metadata}` where the tool set metadata.
fn unwrapped(result: Value) -> (Value, Option<Value>) {
    match result {
        Value::Object(mut both) if both.len() == 2 && both.contains_key("data") && both.contains_key("metadata") => {
            let metadata = both.shift_remove("metadata");
            (both.shift_remove("data").unwrap_or(Value::Null), metadata)
        }
        result => (result, None),
    }
}

/// The object's members but one.
fn others(value: Value, but: &str) -> Map<String, Value> {
    let Value::Object(mut map) = value else { return Map::new() };
    map.shift_remove(but);
    map
}

fn has_child(result: &Map<String, Value>) -> bool {
    result.get("metadata").is_some_and(|metadata| metadata.get("child_run_id").is_some_and(Value::is_string))
}

/// What the end of a delegating call says of the child: that it reported, and, where it is named, that it is done.
fn child_of(call: &Draft, data: Option<&Value>, otherwise: &str) -> Option<[Draft; 2]> {
    let run = call.payload.get("metadata")?.get("child_run_id")?.as_str()?.to_owned();
    let told = |member: &str| data.and_then(|data| data.get(member));
    let status = told("status").and_then(Value::as_str).unwrap_or(otherwise).to_owned();
    let agent = told("agent_id").and_then(Value::as_str).and_then(|id| AgentId::new(id).ok());
    let child = |class: EventType| {
        let mut draft = Draft::new(class).with("status", status.as_str()).with("runtimeEntity", "subagent_turn");
        draft.ids.agent.clone_from(&agent);
        draft.ids.task = TaskId::new(&run).ok();
        draft.ids.tool_call.clone_from(&call.ids.tool_call);
        draft.add_ref("childRunId", run.as_str().into());
        draft
    };
    let mut notice = child(EventType::WorkerNotification);
    notice.payload.extend(told("response").map(|response| ("summary".to_owned(), response.clone())));
    let mut done = child(EventType::AgentCompleted);
    done.payload.extend(agent.as_ref().map(|agent| ("agentName".to_owned(), agent.as_str().into())));
    if status == "failed" {
        done.phase = Phase::Failed;
    }
    Some([notice, done])
}

/// The part that a role's plain text is. What neither the user nor the assistant said (system prompts) is not for a transcript.
fn part_kind(role: &str) -> &'static str {
    match role {
        "user" => "user_text",
        "assistant" => "assistant_text",
        "tool" => "tool_result",
        _ => "diagnostic",
    }
}

/// The text of a content block that is nothing but text, and its kind where that is not the role's.
fn block_text(block: &Value) -> Option<(Option<&'static str>, String)> {
    let text = |member: &str| block.get(member).and_then(Value::as_str).map(str::to_owned);
    match block.get("type").and_then(Value::as_str)? {
        "text" => Some((None, text("text")?)),
        "reasoning" => Some((Some("reasoning_summary"), text("text")?)),
        "thinking" => Some((Some("reasoning_summary"), text("thinking")?)),
        _ => None,
    }
}

/// Usage by our names, which are those that other sources count by; counts of other names keep them.
fn usage_of(usage: Value) -> Value {
    let Value::Object(usage) = usage else { return usage };
    let ours = |member: String| match member.as_str() {
        "prompt_tokens" => "inputTokens".into(),
        "completion_tokens" => "outputTokens".into(),
        "total_tokens" => "totalTokens".into(),
        "cache_read_tokens" => "cacheReadTokens".into(),
        "cache_creation_tokens" => "cacheCreationTokens".into(),
        "thinking_tokens" => "thinkingTokens".into(),
        _ => member,
    };
    Value::Object(usage.into_iter().map(|(member, count)| (ours(member), count)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::samples::{given, object};
    use super::*;

    fn event(event_type: &str, mut members: Value) -> Value {
        members[TYPE] = event_type.into();
        members
    }

    fn start(run: &str) -> Value {
        event("run_start", json!({"thread_id": "t", "run_id": run, "identity": {"agent_id": "a", "origin": "user"}}))
    }

    fn finish_as(run: &str, termination: &str) -> Value {
        event("run_finish", json!({"thread_id": "t", "run_id": run, "termination": {"type": termination}}))
    }

    fn step(message: &str) -> Value {
        event("step_start", json!({"message_id": message}))
    }

    fn step_end() -> Value {
        event("step_end", json!({}))
    }

    fn text(delta: &str) -> Value {
        event("text_delta", json!({"delta": delta}))
    }

    fn call(id: &str) -> [Value; 2] {
        [
            event("tool_call_start", json!({"id": id, "name": "rm"})),
            event("tool_call_ready", json!({"id": id, "name": "rm", "arguments": {"path": "/"}})),
        ]
    }

    fn done(id: &str, outcome: &str, result: Value) -> Value {
        event("tool_call_done", json!({"id": id, "message_id": "", "result": result, "outcome": outcome}))
    }

    fn suspended(id: &str, mode: &str) -> Value {
        let ticket = json!({
            "suspension": {
                "id": format!("ask-{id}"), "action": "tool:PermissionConfirm", "message": "Sure?", "response_schema": {"type": "object"},
                "parameters": {"args": {"path": "/"}, "tool": "rm", "risk": "high", "options": ["yes"], "scope": "once"},
            },
            "pending": {"id": id, "name": "rm", "arguments": {"path": "/"}},
            "resume_mode": mode,
        });
        done(
            id,
            "suspended",
            json!({"tool_name": "rm", "status": "pending", "data": null, "message": "waits", "suspension": ticket}),
        )
    }

    fn resumed(id: &str, result: Value) -> Value {
        event("tool_call_resumed", json!({"target_id": id, "result": result}))
    }

    /// Adapts the facts one by one, saving and restoring the adapter between any two.
    fn adapt_for(given: &Ids, facts: impl IntoIterator<Item = Value>) -> Vec<Draft> {
        let mut adapter = (SOURCE.fresh)();
        let mut out = Vec::new();
        for fact in facts {
            adapter.adapt(object(fact), given, &mut out).unwrap();
            adapter = (SOURCE.restore)(&adapter.save());
        }
        out
    }

    fn adapt(facts: impl IntoIterator<Item = Value>) -> Vec<Draft> {
        adapt_for(&given(), facts)
    }

    fn last(facts: impl IntoIterator<Item = Value>) -> Draft {
        adapt(facts).pop().unwrap()
    }

    /// `class phase` of each draft.
    fn classes(drafts: &[Draft]) -> Vec<String> {
        drafts.iter().map(|d| format!("{} {}", d.class, d.phase)).collect()
    }

    fn payload(draft: &Draft) -> Value {
        Value::Object(draft.payload.clone())
    }

    #[test]
    fn a_run_start_names_the_session_thread_and_agent_and_keeps_awaken_s_own_run_as_a_reference() {
        let facts = event(
            "run_start",
            json!({"thread_id": "t", "run_id": "native", "parent_run_id": "p", "identity": {"thread_id": "t", "run_id": "native",
                "session_id": "s", "agent_id": "a", "origin": "user", "dispatch_id": "d"}}),
        );
        let draft = last([facts.clone()]);
        assert_eq!(draft.ids.session.as_ref().unwrap().as_str(), "s");
        assert_eq!(draft.ids.thread.as_ref().unwrap().as_str(), "t");
        assert_eq!(draft.ids.agent.as_ref().unwrap().as_str(), "a");
        assert_eq!(draft.ids.run.as_ref().unwrap().as_str(), "run");
        assert_eq!(draft.refs, Some(json!({"runId": "native", "parentRunId": "p"})));
        assert_eq!(payload(&draft), json!({"attempt": 1, "identity": {"origin": "user", "dispatch_id": "d"}}));

        let mut given = given();
        given.session = SessionId::new("mine").ok();
        given.agent = AgentId::new("boss").ok();
        let draft = adapt_for(&given, [facts]).remove(0);
        assert_eq!((draft.ids.session.unwrap().as_str(), draft.ids.agent.unwrap().as_str()), ("mine", "boss"));
    }

    #[test]
    fn a_suspension_is_a_pause_and_the_second_start_a_resumption() {
        let drafts = adapt([start("r"), finish_as("r", "suspended"), start("r"), finish_as("r", "natural_end")]);
        assert_eq!(
            classes(&drafts),
            ["run.started accepted", "run.status waiting", "run.status acting", "run.finished completed"]
        );
        assert_eq!(drafts[2].payload["resumed"], true);
    }

    #[test]
    fn a_suspended_run_may_be_cancelled_without_starting_again() {
        let drafts = adapt([start("r"), finish_as("r", "suspended"), finish_as("r", "cancelled"), start("r")]);
        assert_eq!(classes(&drafts)[1..], ["run.status waiting", "run.finished cancelled", "run.started accepted"]);
    }

    #[test]
    fn another_run_may_start_while_the_first_is_suspended() {
        let drafts = adapt([start("r"), finish_as("r", "suspended"), start("x"), finish_as("x", "natural_end")]);
        assert_eq!(classes(&drafts)[2..], ["run.started accepted", "run.finished completed"]);
    }

    #[test]
    fn a_start_after_an_end_is_another_attempt() {
        let drafts = adapt([start("r"), finish_as("r", "error"), start("r"), finish_as("r", "natural_end"), start("other")]);
        let attempts: Vec<_> = drafts.iter().filter_map(|d| d.payload.get("attempt")?.as_u64()).collect();
        assert_eq!(attempts, [1, 2, 3]);
        assert_eq!(drafts[4].refs, Some(json!({"runId": "other"})));
    }

    #[test]
    fn a_run_that_starts_within_another_is_flagged_and_ends_nothing() {
        let facts = [start("r"), step("m"), text("a"), start("x"), text("b"), finish_as("x", "natural_end"), text("c")];
        let drafts = adapt(facts);
        let flagged: Vec<_> = drafts.iter().filter(|d| d.class == EventType::DiagnosticChanged).collect();
        assert_eq!(flagged.len(), 2);
        assert!(flagged.iter().all(|d| d.payload["kind"] == "interleaved_run" && d.audience == Audience::Internal));
        assert_eq!(flagged[0].payload["event"]["run_id"], "x");
        assert!(!drafts.iter().any(|d| d.class == EventType::RunFinished));
        let parts: Vec<_> = drafts.iter().filter(|d| d.class == EventType::TextDelta).map(|d| d.ids.part.clone()).collect();
        assert!(parts.iter().all(|part| *part == parts[0]));
    }

    #[test]
    fn a_run_that_starts_again_without_having_ended_leaves_nothing_open() {
        let [begin, ready] = call("c");
        let drafts = adapt([start("r"), step("m"), text("a"), begin, ready, start("r")]);
        let expected = ["text.final reconciling", "tool.failed interrupted", "run.started accepted"];
        assert_eq!(classes(&drafts)[drafts.len() - 3..], expected);
    }

    #[test]
    fn every_termination_is_told_apart() {
        let ends = |termination: Value, result: Value| {
            let draft =
                last([start("r"), event("run_finish", json!({"run_id": "r", "termination": termination, "result": result}))]);
            (classes(std::slice::from_ref(&draft)).remove(0), draft)
        };
        let waiting = json!({"status": "waiting", "status_reason": "awaiting_tasks"});
        for (termination, result, expected) in [
            (json!({"type": "natural_end"}), json!({"status": "done"}), "run.finished completed"),
            (json!({"type": "natural_end"}), waiting, "run.status waiting"),
            (json!({"type": "behavior_requested"}), Value::Null, "run.finished completed"),
            (json!({"type": "plugin_requested"}), Value::Null, "run.finished completed"),
            (json!({"type": "cancelled"}), json!({"status": "waiting"}), "run.finished cancelled"),
            (json!({"type": "suspended"}), Value::Null, "run.status waiting"),
            (json!({"type": "of_tomorrow", "value": 7}), Value::Null, "run.finished unknown"),
            (Value::Null, Value::Null, "run.finished unknown"),
        ] {
            assert_eq!(ends(termination.clone(), result).0, expected, "{termination}");
        }
        let (stopped, draft) = ends(json!({"type": "stopped", "value": {"code": "max_rounds", "detail": "25"}}), Value::Null);
        assert_eq!(stopped, "run.finished interrupted");
        assert_eq!((&draft.payload["code"], &draft.payload["detail"]), (&json!("max_rounds"), &json!("25")));
        let (blocked, draft) = ends(json!({"type": "blocked", "value": "forbidden"}), Value::Null);
        assert_eq!((blocked.as_str(), draft.owner.clone()), ("run.failed failed", Owner::Policy));
        assert_eq!(draft.payload["error"], json!({"code": "blocked", "message": "forbidden"}));
        let (error, draft) = ends(json!({"type": "error", "value": "no key"}), Value::Null);
        assert_eq!(error, "run.failed failed");
        assert_eq!(draft.payload["error"], json!({"message": "no key"}));
    }

    #[test]
    fn a_step_is_one_message_and_its_end_seals_what_was_streamed_without_repeating_it() {
        let thought = event("reasoning_delta", json!({"delta": "hm"}));
        let [begin, ready] = call("c");
        let drafts = adapt([start("r"), step("m"), thought, text("a"), text("b"), begin, text("c"), ready, step_end()]);
        let named = |d: &Draft| {
            let part = d.ids.part.as_ref().map_or("-", |p| p.as_str()).replace("awaken-", "");
            format!("{} {}/{part} {}", d.class, d.ids.message.as_ref().map_or("-", |m| m.as_str()), d.text("text").unwrap_or("-"))
        };
        let expected = [
            "reasoning.delta m/part-1 hm",
            "text.delta m/part-2 a",
            "text.delta m/part-2 b",
            "tool.started m/- -",
            "text.delta m/part-3 c",
            "tool.args -/- -",
            "reasoning.summary m/part-1 -",
            "text.final m/- -",
            "run.status -/- -",
        ];
        assert_eq!(drafts[2..].iter().map(named).collect::<Vec<_>>(), expected);
        assert!(drafts[2..].iter().all(|d| d.ids.turn.as_ref().unwrap().as_str() == "m"));
        assert_eq!(drafts.last().unwrap().audience, Audience::Dashboard);
    }

    #[test]
    fn a_step_without_a_name_is_given_one() {
        let drafts = adapt([step(""), text("a"), step_end(), text("b")]);
        let messages: Vec<_> = drafts.iter().filter_map(|d| d.ids.message.as_ref().map(|m| m.as_str().to_owned())).collect();
        assert_eq!(messages, ["awaken-message-1", "awaken-message-1", "awaken-message-2"]);
    }

    #[test]
    fn the_response_is_the_answer_only_where_none_was_streamed() {
        let end = |response: &str| {
            event("run_finish", json!({"run_id": "r", "termination": {"type": "natural_end"}, "result": {"response": response}}))
        };
        let finals = |facts: Vec<Value>| {
            let drafts = adapt(facts);
            drafts
                .iter()
                .filter(|d| d.class == EventType::TextFinal)
                .map(|d| d.text("text").map(str::to_owned))
                .collect::<Vec<_>>()
        };
        assert_eq!(finals(vec![start("r"), step("m"), step_end(), end("whole")]), [Some("whole".to_owned())]);
        assert_eq!(finals(vec![start("r"), step("m"), text("who"), text("le"), step_end(), end("le")]), [None]);
        assert_eq!(finals(vec![start("r"), end("")]), []);
    }

    #[test]
    fn a_reset_voids_what_the_step_streamed_and_the_rest_is_new_parts_of_the_same_message() {
        let begin = event("tool_call_start", json!({"id": "half", "name": "rm"}));
        let args = event("tool_call_delta", json!({"id": "half", "args_delta": "{\"pa"}));
        let reset = event("stream_reset", json!({"reason": "reset by peer"}));
        let [whole, ready] = call("whole");
        let drafts = adapt([step("m"), text("a"), whole, ready, begin, args, reset, text("b"), step_end()]);
        let repair = drafts.iter().find(|d| d.class == EventType::MessagesSnapshot).unwrap();
        assert_eq!(repair.payload["mode"], "repair");
        assert_eq!(repair.payload["messages"], json!([{"messageId": "m", "role": "assistant", "parts": []}]));
        let failed: Vec<_> = drafts.iter().filter(|d| d.class == EventType::ToolFailed).collect();
        assert_eq!(failed.len(), 1, "a call that is ready goes on");
        assert_eq!(failed[0].ids.tool_call.as_ref().unwrap().as_str(), "half");
        assert_eq!((failed[0].phase.clone(), failed[0].audience), (Phase::Cancelled, Audience::Dashboard));
        assert_eq!((&failed[0].payload["neverStarted"], &failed[0].payload["inputTextBytes"]), (&json!(true), &json!(4)));
        let texts: Vec<_> = drafts.iter().filter(|d| d.class == EventType::TextDelta).collect();
        assert_eq!(texts[0].ids.message, texts[1].ids.message);
        assert_ne!(texts[0].ids.part, texts[1].ids.part);
        assert_eq!(drafts.iter().filter(|d| d.class == EventType::TextFinal).count(), 1);
    }

    #[test]
    fn a_reset_that_nothing_follows_leaves_nothing_to_seal() {
        let drafts = adapt([step("m"), text("a"), event("stream_reset", json!({})), step_end()]);
        assert_eq!(classes(&drafts)[2..], ["messages.snapshot reconciling", "run.status acting"]);
    }

    #[test]
    fn a_call_goes_from_the_model_s_wish_to_a_result() {
        let [begin, ready] = call("c");
        let args = event("tool_call_delta", json!({"id": "c", "args_delta": "{"}));
        let output = event("tool_call_stream_delta", json!({"id": "c", "name": "rm", "delta": "gone"}));
        let end = done(
            "c",
            "succeeded",
            json!({"tool_name": "rm", "status": "success", "data": {"n": 1}, "message": null,
            "metadata": {"mcp.server": "web"}, "of_tomorrow": 1}),
        );
        let drafts = adapt([begin, args, ready, output, end]);
        let seen: Vec<_> = drafts.iter().map(|d| format!("{} {} {}", d.class, d.owner, d.audience)).collect();
        let expected = [
            "tool.started model user",
            "tool.args model dashboard",
            "tool.args model user",
            "tool.output.delta tool user",
            "tool.result tool user",
        ];
        assert_eq!(seen, expected);
        assert_eq!(payload(&drafts[0]), json!({"toolName": "rm"}));
        assert_eq!(payload(&drafts[2]), json!({"input": {"path": "/"}}));
        assert_eq!(payload(&drafts[3]), json!({"text": "gone"}));
        let result = json!({"toolName": "rm", "output": {"n": 1}, "status": "completed", "metadata": {"mcp.server": "web"}, "of_tomorrow": 1});
        assert_eq!(payload(&drafts[4]), result);
        assert!(drafts.iter().all(|d| d.ids.tool_call.as_ref().unwrap().as_str() == "c"));
    }

    #[test]
    fn tools_fail_in_each_of_awaken_s_ways() {
        let failed = |result: Value| adapt([done("c", "failed", result)]);
        let code = |drafts: &[Draft]| drafts.last().unwrap().payload["error"].get("code").cloned();
        let plain = failed(json!({"status": "error", "data": null, "message": "boom"}));
        assert_eq!((classes(&plain), code(&plain)), (vec!["tool.failed failed".to_owned()], None));
        let timeout = failed(json!({"message": "Timeout: 30s", "metadata": {"timed_out": true}}));
        assert_eq!(code(&timeout), Some(json!("timeout")));
        let cancelled = failed(json!({"message": "Cancelled: run cancelled"}));
        assert_eq!((classes(&cancelled), code(&cancelled)), (vec!["tool.failed cancelled".to_owned()], Some(json!("cancelled"))));
        let rejected = failed(json!({"message": "forbidden", "metadata": {"rejected": true}}));
        assert_eq!(classes(&rejected), ["permission.changed acting", "tool.failed failed"]);
        assert_eq!(rejected[0].owner, Owner::Policy);
        let coded = failed(json!({"message": "[E] 502", "data": {"error": {"code": "E", "message": "502"}}}));
        assert_eq!(code(&coded), Some(json!("E")));
        assert_eq!(coded[0].payload["data"], json!({"error": {"code": "E", "message": "502"}}));
        let silent = failed(json!({"message": null}));
        assert_eq!(silent[0].payload["error"]["message"], "the tool failed without saying why");
    }

    #[test]
    fn a_suspended_call_asks_by_what_its_answer_will_do() {
        let [begin, ready] = call("c");
        let ask = |mode: &str| last([begin.clone(), ready.clone(), suspended("c", mode)]);
        let approval = ask("replay_tool_call");
        assert_eq!((approval.class.clone(), approval.owner.clone()), (EventType::ActionRequired, Owner::Policy));
        assert_eq!(approval.ids.action.as_ref().unwrap().as_str(), "ask-c");
        assert_eq!(approval.ids.tool_call.as_ref().unwrap().as_str(), "c");
        let told = json!({
            "toolName": "rm", "kind": "tool_approval", "message": "Sure?", "schema": {"type": "object"}, "options": ["yes"],
            "risk": "high", "input": {"path": "/"}, "resumeMode": "replay_tool_call", "action": "tool:PermissionConfirm",
            "parameters": {"scope": "once"},
        });
        assert_eq!(payload(&approval), told);
        let client = ask("use_decision_as_tool_result");
        assert_eq!((client.owner.clone(), &client.payload["kind"]), (Owner::Action, &json!("structured_input")));
        assert_eq!(ask("pass_decision_to_tool").payload["kind"], "structured_input");
    }

    #[test]
    fn an_answer_resolves_its_action_and_ends_the_call_by_what_the_result_is() {
        let answered = |mode: &str, result: Value| {
            let [begin, ready] = call("c");
            let drafts = adapt([begin, ready, suspended("c", mode), resumed("c", result)]);
            assert_eq!(drafts[3].ids.action.as_ref().unwrap().as_str(), "ask-c");
            (drafts[3].payload["outcome"].clone(), classes(&drafts[4..]).remove(0), drafts)
        };
        let (outcome, end, drafts) = answered("replay_tool_call", json!({"deleted": 1}));
        assert_eq!((outcome, end.as_str()), (json!("approved"), "tool.result completed"));
        assert_eq!(payload(&drafts[4]), json!({"status": "completed", "toolName": "rm", "output": {"deleted": 1}}));
        assert_eq!(drafts[3].payload.get("value"), None);
        let (outcome, end, drafts) = answered("replay_tool_call", json!({"approved": false}));
        assert_eq!((outcome, end.as_str()), (json!("rejected"), "tool.failed cancelled"));
        assert_eq!(drafts[4].payload["neverStarted"], true);
        let (outcome, end, drafts) = answered("replay_tool_call", json!({"error": "disk full", "hint": 1}));
        assert_eq!((outcome, end.as_str()), (json!("approved"), "tool.failed failed"));
        assert_eq!(payload(&drafts[4]), json!({"error": {"message": "disk full"}, "hint": 1, "toolName": "rm"}));
        let (outcome, end, drafts) = answered("use_decision_as_tool_result", json!({"data": {"x": 1}, "metadata": {"m": 1}}));
        assert_eq!((outcome, end.as_str()), (json!("answered"), "tool.result completed"));
        assert_eq!((&drafts[4].payload["output"], &drafts[4].payload["metadata"]), (&json!({"x": 1}), &json!({"m": 1})));
        let (outcome, ..) = answered("use_decision_as_tool_result", json!({"approved": false}));
        assert_eq!(outcome, "cancelled");
    }

    #[test]
    fn an_answer_may_name_the_suspension_instead_of_the_call() {
        let [begin, ready] = call("c");
        let drafts = adapt([begin, ready, suspended("c", "replay_tool_call"), resumed("ask-c", json!(1))]);
        assert!(drafts[3..].iter().all(|d| d.ids.tool_call.as_ref().unwrap().as_str() == "c"));
        let unasked = adapt([resumed("c", json!(1))]);
        assert_eq!(classes(&unasked), ["tool.result completed"]);
    }

    #[test]
    fn a_call_that_the_model_never_finished_asking_for_ends_with_its_step() {
        let drafts = adapt([step("m"), event("tool_call_start", json!({"id": "c", "name": "rm"})), step_end()]);
        assert_eq!(classes(&drafts)[2..], ["tool.failed cancelled", "run.status acting"]);
        let cancelled = last([event("tool_call_cancel", json!({"id": "c", "name": "rm", "reason": "stream broke"}))]);
        assert_eq!(
            payload(&cancelled),
            json!({"error": {"code": "cancelled", "message": "stream broke"}, "neverStarted": true, "toolName": "rm"})
        );
    }

    fn activity(target: &str, name: &str, content: Value) -> Value {
        event("activity_snapshot", json!({"message_id": target, "activity_type": name, "content": content, "replace": true}))
    }

    #[test]
    fn progress_is_told_by_our_names_and_keeps_the_rest() {
        let content = json!({"schema": "tool-call-progress.v1", "node_id": "tool_call:c", "call_id": "c", "tool_name": "rm",
            "status": "running", "progress": 0.5, "loaded": 1, "total": 2, "message": "half", "run_id": "r"});
        let draft = last([start("r"), activity("c", PROGRESS, content)]);
        let told = json!({"toolName": "rm", "status": "running", "progress": 0.5, "loaded": 1, "total": 2, "message": "half",
            "schema": "tool-call-progress.v1", "node_id": "tool_call:c", "call_id": "c", "run_id": "r"});
        assert_eq!(payload(&draft), told);
        assert_eq!((draft.audience, draft.refs.clone()), (Audience::User, None));
    }

    #[test]
    fn a_child_s_progress_is_its_own_call_under_the_parent_s() {
        let content = json!({"call_id": "child", "parent_call_id": "c", "run_id": "other", "status": "done"});
        let draft = last([start("r"), activity("child", PROGRESS, content)]);
        assert_eq!(draft.class, EventType::ToolProgress);
        assert_eq!(draft.ids.tool_call.as_ref().unwrap().as_str(), "child");
        assert_eq!(draft.ids.agent, None);
        assert_eq!(draft.refs, Some(json!({"parentToolCallId": "c", "childRunId": "other"})));
        assert_eq!((draft.surface.clone(), &draft.payload["runtimeEntity"]), (Surface::TaskCapsule, &json!("subagent_turn")));
    }

    #[test]
    fn other_activities_belong_to_a_known_call_or_else_to_a_message() {
        let [begin, _] = call("c");
        let draft = last([begin, activity("c", "log", json!("line"))]);
        assert_eq!(payload(&draft), json!({"activityType": "log", "content": "line", "replace": true}));
        assert_eq!((draft.ids.tool_call.unwrap().as_str(), draft.ids.message), ("c", None));
        let draft = last([event("activity_snapshot", json!({"message_id": "m", "activity_type": "plan", "content": {}}))]);
        assert_eq!(payload(&draft), json!({"activityType": "plan", "content": {}}));
        assert_eq!((draft.ids.tool_call, draft.ids.message.unwrap().as_str()), (None, "m"));
        for (patch, expected) in
            [(json!({"op": "add"}), json!([{"op": "add"}])), (json!([]), json!([])), (Value::Null, json!([null]))]
        {
            let draft = last([event("activity_delta", json!({"message_id": "m", "activity_type": "plan", "patch": patch}))]);
            assert_eq!((&draft.payload["patch"], draft.audience), (&expected, Audience::User));
        }
    }

    #[test]
    fn a_delegating_call_tells_of_its_child_when_it_ends() {
        let result = json!({"tool_name": "delegate", "status": "success", "message": null, "metadata": {"child_run_id": "cr"},
            "data": {"agent_id": "researcher", "response": "found", "status": "completed"}});
        let drafts = adapt([start("r"), done("c", "succeeded", result)]);
        assert_eq!(classes(&drafts)[1..], ["tool.result completed", "worker.notification archived", "agent.completed completed"]);
        assert!(drafts[2..].iter().all(|d| d.ids.agent.as_ref().unwrap().as_str() == "researcher"));
        assert_eq!(drafts[2].payload["summary"], "found");
        assert_eq!(drafts[2].refs, Some(json!({"childRunId": "cr"})));
        let nameless = adapt([start("r"), done("c", "failed", json!({"message": "no", "metadata": {"child_run_id": "cr"}}))]);
        assert_eq!(classes(&nameless)[1..], ["tool.failed failed", "worker.notification archived"]);
        assert_eq!(nameless[2].ids.agent, None);
    }

    #[test]
    fn a_child_agent_s_run_puts_it_on_the_roster_and_takes_it_off() {
        let begin = event(
            "run_start",
            json!({"thread_id": "t", "run_id": "r", "parent_run_id": "p",
            "identity": {"agent_id": "kid", "parent_thread_id": "pt", "parent_tool_call_id": "pc", "origin": "subagent"}}),
        );
        let drafts = adapt([begin.clone(), finish_as("r", "suspended"), begin, finish_as("r", "cancelled")]);
        let expected = [
            "run.started accepted",
            "agent.spawned acting",
            "run.status waiting",
            "run.status acting",
            "agent.completed cancelled",
            "run.finished cancelled",
        ];
        assert_eq!(classes(&drafts), expected);
        assert_eq!(drafts[1].ids.agent.as_ref().unwrap().as_str(), "kid");
        assert_eq!(drafts[1].ids.parent_thread.as_ref().unwrap().as_str(), "pt");
        assert_eq!(drafts[1].refs, Some(json!({"runId": "r", "parentRunId": "p", "parentToolCallId": "pc"})));
    }

    #[test]
    fn state_is_internal_and_a_compaction_is_told_once_by_its_numbers() {
        let state = |total: u64| {
            let boundary =
                json!({"summary": "SECRET", "pre_tokens": 900, "post_tokens": 90, "timestamp_ms": 1_767_225_600_000_i64});
            let boundaries = vec![boundary; total as usize];
            let compaction = json!({"boundaries": boundaries, "total_compactions": total});
            event("state_snapshot", json!({"snapshot": {"revision": 1, "extensions": {"__context_compaction": compaction}}}))
        };
        let drafts = adapt([state(0), state(1), state(1), state(2)]);
        let (states, compactions): (Vec<_>, Vec<_>) = drafts.iter().partition(|d| d.class == EventType::StateSnapshot);
        assert!(states.iter().all(|d| d.audience == Audience::Internal && d.surface == Surface::Diagnostics));
        assert_eq!(compactions.len(), 2);
        let told = json!({"compactionId": "awaken-compaction-1", "totalCompactions": 1, "preTokens": 900, "postTokens": 90});
        assert_eq!(payload(compactions[0]), told);
        assert_eq!(compactions[0].timestamp.as_deref(), Some("2026-01-01T00:00:00Z"));
        let delta = last([event("state_delta", json!({"delta": [{"op": "add"}]}))]);
        assert_eq!((delta.audience, payload(&delta)), (Audience::Internal, json!({"patch": [{"op": "add"}]})));
    }

    #[test]
    fn encrypted_reasoning_leaves_only_its_length() {
        let draft = last([event("reasoning_encrypted_value", json!({"encrypted_value": "b3BhcXVl", "provider": "x"}))]);
        assert_eq!(payload(&draft), json!({"kind": "reasoning_encrypted_value", "bytes": 8}));
        assert_eq!((draft.audience, &draft.extra["provider"]), (Audience::Internal, &json!("x")));
    }

    #[test]
    fn usage_is_counted_by_our_names() {
        let usage = json!({"prompt_tokens": 3, "completion_tokens": 2, "cache_read_tokens": 1, "of_tomorrow": 9});
        let draft = last([event("inference_complete", json!({"model": "m", "usage": usage, "duration_ms": 5}))]);
        let told = json!({"model": "m", "durationMs": 5,
            "usage": {"inputTokens": 3, "outputTokens": 2, "cacheReadTokens": 1, "of_tomorrow": 9}});
        assert_eq!((payload(&draft), draft.audience), (told, Audience::Dashboard));
    }

    #[test]
    fn a_history_window_is_put_into_our_shape() {
        let messages = json!([
            {"role": "user", "content": "hi"},
            {"id": "m", "role": "assistant", "tool_calls": [1], "content": [
                {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "hello"}, {"type": "image", "url": "/i"},
            ]},
            {"id": "s", "role": "system", "content": "be nice"},
            "odd",
        ]);
        let draft = last([event("messages_snapshot", json!({"messages": messages}))]);
        let shaped = json!([
            {"messageId": "awaken-message-1", "role": "user", "parts": [{"partId": "awaken-part-1", "kind": "user_text", "text": ["hi"]}]},
            {"messageId": "m", "role": "assistant", "parts": [
                {"partId": "awaken-part-2", "kind": "reasoning_summary", "text": ["hm"]},
                {"partId": "awaken-part-3", "kind": "assistant_text", "text": ["hello"]},
            ], "tool_calls": [1], "content": [{"type": "image", "url": "/i"}]},
            {"messageId": "s", "role": "system", "parts": [{"partId": "awaken-part-4", "kind": "diagnostic", "text": ["be nice"]}]},
            "odd",
        ]);
        assert_eq!((&draft.payload["mode"], &draft.payload["messages"]), (&json!("window"), &shaped));
    }

    #[test]
    fn an_error_fails_the_run_and_a_later_start_tries_again() {
        let drafts =
            adapt([start("r"), step("m"), text("a"), event("error", json!({"message": "boom", "code": "LLM"})), start("r")]);
        assert_eq!(classes(&drafts)[3..], ["text.final reconciling", "run.failed failed", "run.started accepted"]);
        assert_eq!(payload(&drafts[4]), json!({"error": {"code": "LLM", "message": "boom"}, "retryable": true}));
        assert_eq!(drafts[5].payload["attempt"], 2);
    }

    #[test]
    fn what_is_not_known_is_kept_for_internal_eyes_and_never_an_error() {
        let unknown = last([event("of_tomorrow", json!({"x": 1}))]);
        assert_eq!((unknown.class.clone(), &unknown.payload["event"]), (EventType::DiagnosticChanged, &json!({"x": 1})));
        for broken in [
            event("text_delta", json!({"delta": 7})),
            event("tool_call_start", json!({"id": "", "name": "x"})),
            event("tool_call_done", json!({"id": "c", "outcome": "of_tomorrow", "result": {"data": 1}})),
            event("activity_delta", json!({"message_id": "m"})),
        ] {
            let draft = last([broken.clone()]);
            assert_eq!((draft.class.clone(), draft.audience), (EventType::DiagnosticChanged, Audience::Internal), "{broken}");
        }
        let mut adapter = (SOURCE.fresh)();
        let mut refused = |fact: Value| adapter.adapt(object(fact), &given(), &mut Vec::new()).unwrap_err();
        assert_eq!(refused(json!({"type": "text_delta"})), FactError::NoType { member: TYPE });
        assert_eq!(refused(event("tool_call_start", json!({"id": "x".repeat(257)}))).member(), Some("id"));
        assert_eq!(refused(step("a\nb")).member(), Some("message_id"));
    }

    #[test]
    fn members_that_nobody_knows_are_carried_and_forge_nothing() {
        let draft =
            last([event("text_delta", json!({"delta": "a", "of_tomorrow": [1], "audience": "internal", "eventId": "e"}))]);
        assert_eq!(Value::Object(draft.extra), json!({"of_tomorrow": [1], "sourceAudience": "internal", "sourceEventId": "e"}));
        assert_eq!(draft.audience, Audience::User);
    }

    #[test]
    fn memory_is_bounded_however_many_calls_stay_open() {
        let mut adapter = Awaken::default();
        let mut out = Vec::new();
        for n in 0..CALLS_OPEN_MAX + CALLS_ENDED_MAX + 10 {
            for fact in call(&format!("c{n}")).into_iter().chain([suspended(&format!("c{n}"), "replay_tool_call")]) {
                adapter.adapt(object(fact), &given(), &mut out).unwrap();
            }
        }
        assert_eq!(
            (adapter.calls.len(), adapter.ended_calls.len(), adapter.pending.len()),
            (CALLS_OPEN_MAX, CALLS_ENDED_MAX, CALLS_OPEN_MAX)
        );
        assert!(adapter.knows_call(&ToolCallId::new("c20").unwrap()));
        assert!(!adapter.knows_call(&ToolCallId::new("c1").unwrap()));
    }
}
