//! The lifecycle of a turn: its start, status, cost and end; the compaction of the context.

use super::event::Kind;
use super::tasks::Task;
use super::{EventHandler, TurnState, internal};
use crate::Fact;
use crate::members::{diagnostic, take_counts, take_flag, take_number, take_text};
use crate::turn::{ended, error, failed, started, waiting};
use proscenium_model::{Audience, Draft, EventType, Owner, Payload, Phase, Scope, ThreadId};
use serde_json::{Map, Value};

/// Subtypes of results of a turn that a limit stopped.
const LIMITS: &[&str] = &["error_max_turns", "error_max_budget_usd"];

/// HTTP statuses of errors that pass.
const RETRYABLE: &[u64] = &[429, 529];

impl EventHandler<'_> {
    /// Learns the session, and starts the turn of a line that shows the main agent at work.
    pub(super) fn enter(&mut self, session: Option<&str>, line: Option<&(Kind, Fact)>) {
        let session = session.and_then(|session| ThreadId::new(session).ok());
        let Some((kind, fact)) = line else { return };
        let is_open = self.memory.turn_state == TurnState::Open;
        let is_other = session.is_some() && self.memory.session.is_some() && session != self.memory.session;
        if is_open && is_other && *kind == Kind::Init {
            // From here on two processes print into one stream.
            let note = internal("interleaved_run", "system/init").with_some("session", session.as_ref().map(ThreadId::as_str));
            return self.push(note);
        }
        if session.is_some() && !is_open {
            self.memory.session = session;
        }
        let is_main = fact.get("parent_tool_use_id").is_none_or(Value::is_null);
        let is_work = match kind {
            Kind::StreamEvent | Kind::Assistant => is_main,
            Kind::Status => fact.get("status").is_some_and(Value::is_string),
            Kind::ControlRequest => fact.get("request").is_some_and(|request| request.get("agent_id").is_none()),
            _ => false,
        };
        if is_work && !is_open {
            self.start(Map::new());
        }
    }

    pub(super) fn init(&mut self, mut fact: Fact) {
        let mut started = Fact::new();
        for member in ["model", "permissionMode"] {
            started.extend(fact.shift_remove(member).map(|value| (member.to_owned(), value)));
        }
        if self.memory.turn_state == TurnState::Open {
            self.push(Draft { payload: Payload::read(&EventType::RunStatus, started), ..self.acting() });
        } else {
            self.start(started);
        }
        self.push(diagnostic("init", "system/init", fact));
    }

    fn start(&mut self, about: Map<String, Value>) {
        let memory = &mut *self.memory;
        let is_resumed = std::mem::replace(&mut memory.turn_state, TurnState::Open) == TurnState::Paused;
        (memory.has_text, memory.is_interrupted) = (false, false);
        (memory.api_error, memory.api_status) = (None, None);
        let mut draft = match is_resumed {
            true => started(true, 0),
            false => Draft::new(EventType::RunStarted).with("attempt", self.out.next_attempt()),
        };
        draft.scope = Scope::Turn;
        draft.payload.extend(about);
        self.push(draft);
    }

    /// Creates a draft that says that the turn works, for operators.
    fn acting(&self) -> Draft {
        self.status_draft().with_audience(Audience::Dashboard)
    }

    /// Creates a status of the turn, which waits if it has asked.
    fn status_draft(&self) -> Draft {
        let draft = Draft::new(EventType::RunStatus).with_scope(Scope::Turn);
        if self.memory.pending.is_empty() { draft } else { draft.with_phase(Phase::Waiting) }
    }

    pub(super) fn working(&mut self, mut fact: Fact) {
        let draft = self.acting().with_moved(&mut fact, &[("estimated_tokens", "estimatedThinkingTokens")]);
        fact.shift_remove("estimated_tokens_delta");
        self.push_carrying(draft, fact);
    }

    pub(super) fn status(&mut self, mut fact: Fact) {
        let status = take_text(&mut fact, "status");
        fact.retain(|member, value| !(member == "status" && value.is_null()));
        if let Some(mode) = take_text(&mut fact, "permissionMode") {
            self.push(Draft::new(EventType::PermissionChanged).with("mode", mode).with_scope(Scope::Session));
        }
        let result = take_text(&mut fact, "compact_result");
        let error = take_text(&mut fact, "compact_error");
        match (status.as_deref(), result.as_deref()) {
            (Some("compacting"), _) if !self.memory.is_compacting => {
                self.memory.is_compacting = true;
                self.memory.compactions_made += 1;
                let draft = self.compaction(EventType::ContextCompactionStarted);
                self.push_carrying(draft, fact);
            }
            // A compaction that succeeds has its own line.
            (_, Some("failed")) => {
                let draft = self.compaction(EventType::ContextCompactionCompleted).with("status", "failed");
                self.memory.is_compacting = false;
                self.push_carrying(draft.with_phase(Phase::Failed).with_some("error", error), fact);
            }
            (Some(status), _) => {
                let draft = self.acting().with("requestState", status);
                self.push_carrying(draft, fact);
            }
            (None, _) if fact.is_empty() => {}
            (None, _) => self.push(diagnostic("status", "system/status", fact)),
        }
    }

    fn compaction(&self, class: EventType) -> Draft {
        Draft::new(class).with("compactionId", format!("claude-stream-json-compaction-{}", self.memory.compactions_made))
    }

    pub(super) fn compact_boundary(&mut self, mut fact: Fact) {
        if !std::mem::take(&mut self.memory.is_compacting) {
            self.memory.compactions_made += 1;
        }
        let mut draft = self.compaction(EventType::ContextCompactionCompleted);
        if let Some(Value::Object(mut about)) = fact.shift_remove("compact_metadata") {
            let names = [
                ("trigger", "trigger"),
                ("pre_tokens", "tokensBefore"),
                ("post_tokens", "tokensAfter"),
                ("duration_ms", "durationMs"),
            ];
            draft.move_members(&mut about, &names);
            draft.payload.extend(about);
        }
        self.push_carrying(draft, fact);
    }

    pub(super) fn api_retry(&mut self, mut fact: Fact) {
        let number = |member: &str| fact.get(member).and_then(Value::as_u64).unwrap_or_default();
        let message = format!("The model did not answer. Retry {} of {}.", number("attempt"), number("max_retries"));
        let names = [
            ("attempt", "attempt"),
            ("max_retries", "maxRetries"),
            ("retry_delay_ms", "retryDelayMs"),
            ("error_status", "errorStatus"),
            ("error", "code"),
        ];
        let draft = Draft::new(EventType::RunStatus).with("status", "retrying").with("message", message);
        self.push_carrying(draft.with_moved(&mut fact, &names).with_scope(Scope::Turn), fact);
    }

    pub(super) fn notice(&mut self, mut fact: Fact) {
        let message = ["content", "message", "text", "title"].iter().find_map(|member| take_text(&mut fact, member));
        let draft = self.status_draft().with("notice", true).with_some("message", message);
        self.push_carrying(draft.with_moved(&mut fact, &[("level", "severity")]), fact);
    }

    // ── the end ──

    pub(super) fn result(&mut self, mut fact: Fact) {
        if self.memory.turn_state == TurnState::Ended {
            return self.push(diagnostic("late_end", "result", fact));
        }
        self.close_message();
        self.turn_usage(&mut fact);
        let subtype = take_text(&mut fact, "subtype").unwrap_or_default();
        let reason = take_text(&mut fact, "terminal_reason").unwrap_or_default();
        let is_error = take_flag(&mut fact, "is_error").unwrap_or(subtype != "success");
        let text = take_text(&mut fact, "result").filter(|text| !text.is_empty());
        let has_asked = !is_error && self.memory.pending.iter().any(|pending| pending.agent.is_none());
        // The end of a child in the background starts the turn that has the answer.
        let is_interim = !is_error && self.memory.tasks.iter().any(Task::is_agent);
        let mut draft = match () {
            () if reason.starts_with("aborted") => ended(Phase::Cancelled, "cancelled"),
            () if LIMITS.contains(&subtype.as_str()) => ended(Phase::Interrupted, "interrupted").with("reason", subtype.as_str()),
            () if is_error => self.failed(&subtype, &reason, text.clone(), &mut fact),
            () if has_asked || is_interim => waiting(),
            () => ended(Phase::Completed, "completed"),
        };
        draft.set("refused", (fact.get("stop_reason").and_then(Value::as_str) == Some("refusal")).then_some(true));
        let names = [("stop_reason", "stopReason"), ("num_turns", "turnCount"), ("duration_ms", "durationMs")];
        draft.move_members(&mut fact, &names);
        draft.set("terminalReason", (!reason.is_empty()).then_some(reason));
        // The text of a successful turn was streamed, or came as whole messages.
        let structured = fact.shift_remove("structured_output").filter(|value| !value.is_null());
        let unsaid = text.filter(|_| !is_error && !self.memory.has_text).map(Value::from);
        self.push(draft.with_some("result", structured.or(unsaid)).with_scope(Scope::Turn));
        self.push(diagnostic("result", "result", fact).with("subtype", subtype));
        match is_interim {
            true => self.memory.turn_state = TurnState::Paused,
            false => self.finish(),
        }
    }

    /// Creates the end of a turn that failed. The list of errors is for internal readers.
    fn failed(&mut self, subtype: &str, reason: &str, text: Option<String>, fact: &mut Fact) -> Draft {
        let status = take_number(fact, "api_error_status").and_then(|status| status.as_u64()).or(self.memory.api_status);
        let code = self.memory.api_error.clone().unwrap_or_else(|| match reason {
            "" | "completed" => subtype.to_owned(),
            reason => reason.to_owned(),
        });
        let message = text.unwrap_or_else(|| format!("The turn failed: {code}."));
        let is_retryable = status.is_some_and(|status| RETRYABLE.contains(&status));
        let draft = failed(error(Some(code), message)).with_some("retryable", is_retryable.then_some(true));
        draft.with_some("apiStatus", status)
    }

    fn finish(&mut self) {
        let memory = &mut *self.memory;
        memory.turn_state = TurnState::Ended;
        memory.is_interrupted = false;
        let over: Vec<_> = memory.calls.open.iter().filter(|call| call.agent.is_none()).map(|call| call.id.clone()).collect();
        for id in over {
            memory.calls.end(&id);
        }
        memory.pending.clear();
    }

    /// Reports what the turn cost: the process reports its own sum.
    fn turn_usage(&mut self, fact: &mut Fact) {
        let mut usage = Map::new();
        if let Some(Value::Object(mut counts)) = fact.shift_remove("usage") {
            let names = [
                ("input_tokens", "inputTokens"),
                ("output_tokens", "outputTokens"),
                ("cache_read_input_tokens", "cacheReadTokens"),
                ("cache_creation_input_tokens", "cacheCreationTokens"),
            ];
            usage = take_counts(&mut counts, &names);
            fact.insert("usageDetails".into(), counts.into());
        }
        if let Some(total) = fact.get("total_cost_usd").and_then(Value::as_f64) {
            // A new process starts at zero.
            let before = if total < self.memory.cost_usd { 0.0 } else { self.memory.cost_usd };
            self.memory.cost_usd = total;
            usage.insert("costUsd".into(), (total - before).into());
        }
        if usage.is_empty() {
            return;
        }
        let draft = Draft::new(EventType::MetricChanged).with("kind", "turn").with("usage", usage);
        self.push(draft.with_scope(Scope::Turn).with_audience(Audience::Dashboard));
    }

    // ── policy ──

    pub(super) fn permission_denied(&mut self, mut fact: Fact) {
        let call = take_text(&mut fact, "tool_use_id").map(|id| self.call_id(&id));
        let names = [("tool_name", "toolName"), ("message", "message"), ("decision_reason_type", "reason")];
        let draft = Draft::new(EventType::PermissionChanged).with("decision", "denied").with_moved(&mut fact, &names);
        self.push_carrying(draft.with_scope(Scope::ToolCall).with_audience(Audience::Dashboard).with_call(call), fact);
    }

    /// Reports a hook that blocks a call; what other hooks print is internal.
    pub(super) fn hook_response(&mut self, fact: Fact) {
        let blocks = fact.get("exit_code").and_then(Value::as_i64) == Some(2);
        let text = |member: &str| fact.get(member).and_then(Value::as_str).map(str::to_owned);
        if blocks || text("outcome").as_deref() == Some("blocked") {
            let draft = Draft::new(EventType::PermissionChanged).with("decision", "denied").with("reason", "hook");
            let draft = draft.with_some("hook", text("hook_name")).with_owner(Owner::Policy);
            self.push(draft.with_scope(Scope::ToolCall).with_audience(Audience::Dashboard));
        }
        self.push(diagnostic("hook_response", "system/hook_response", fact));
    }
}
