//! Requests, responses, and the turns between them.

use super::event::Sender;
use super::history::CONTENT;
use super::{EventHandler, internal, members_of, request_key, texts_of};
use crate::Fact;
use crate::members::{diagnostic, take_counts, take_id, take_list, take_text};
use crate::turn::{error, failed, resolved, waiting};
use proscenium_model::{ActionId, AgentId, Audience, Draft, EventType, MemberRef, Owner, Phase, Scope, ThreadId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The JSON-RPC error code of an agent that wants the user to sign in.
const AUTH_REQUIRED: i64 = -32000;

/// Whether an update shows an agent at work: without the client's side, the first of them starts a turn.
fn is_work(kind: &str) -> bool {
    CONTENT.contains(&kind) && kind != "plan_removed"
}

/// A turn without an end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Turn {
    pub session: ThreadId,
    /// The number of prompts that the client sent and that have no response.
    pub prompts: u32,
}

/// A request of the client without a response.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ClientRequest {
    pub id: String,
    method: Method,
    session: Option<ThreadId>,
}

/// The requests of the client whose response says more than itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Method {
    Initialize,
    Authenticate,
    Load,
    Prompt,
    Other,
}

/// A request of the agent without a response.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct AgentRequest {
    pub id: String,
    pub session: Option<ThreadId>,
    pub purpose: Purpose,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Purpose {
    Permission(ActionId),
    Elicitation(ActionId),
    CreateTerminal,
    /// Reads the output of this terminal.
    ReadTerminal(String),
    Other,
}

impl EventHandler<'_> {
    // ── messages ──

    pub(super) fn client_request(&mut self, id: &Value, method: &str, mut params: Fact) {
        self.enter_session_of(&params);
        let kind = match method {
            "initialize" => Method::Initialize,
            "authenticate" => Method::Authenticate,
            "session/load" => Method::Load,
            "session/prompt" => Method::Prompt,
            _ => Method::Other,
        };
        self.memory.client_requests.add(ClientRequest { id: request_key(id), method: kind, session: self.session.clone() });
        match kind {
            Method::Prompt => {
                params.shift_remove("sessionId");
                return self.prompt(params);
            }
            // The requests of an earlier connection have no response on this one.
            Method::Initialize => {
                self.memory.agent_requests.clear();
                self.memory.terminals.clear();
            }
            Method::Load => {
                if let Some(session) = self.session.clone() {
                    self.memory.loading.add(session);
                }
            }
            Method::Authenticate | Method::Other => {}
        }
        self.push(diagnostic("request", method, params));
    }

    pub(super) fn agent_request(&mut self, id: &Value, method: &str, params: Fact) {
        self.enter_session_of(&params);
        let key = request_key(id);
        let purpose = match method {
            "session/request_permission" => self.permission(id, params),
            "elicitation/create" => self.elicitation(id, params),
            "terminal/create" => {
                self.connection("request", method, params);
                Purpose::CreateTerminal
            }
            _ => {
                let terminal = params.get("terminalId").and_then(Value::as_str).map(|id| self.terminal_key(id));
                self.connection("request", method, params);
                terminal.filter(|_| method == "terminal/output").map_or(Purpose::Other, Purpose::ReadTerminal)
            }
        };
        self.memory.agent_requests.add(AgentRequest { id: key, session: self.session.clone(), purpose });
    }

    pub(super) fn client_response(&mut self, id: &Value, outcome: Result<Value, Value>) {
        let Some(request) = self.memory.agent_requests.take(&request_key(id)) else {
            return self.response("unknown_response", id, outcome);
        };
        self.session.clone_from(&request.session);
        match request.purpose {
            Purpose::Permission(action) => self.permission_answered(&action, outcome),
            Purpose::Elicitation(action) => self.elicitation_answered(&action, outcome),
            Purpose::CreateTerminal => {
                if let Some(id) = outcome.as_ref().ok().and_then(|result| result.get("terminalId")).and_then(Value::as_str) {
                    self.remember_terminal(id);
                }
                self.response("response", id, outcome);
            }
            Purpose::ReadTerminal(terminal) => match outcome {
                Ok(result) => self.terminal_output(&terminal, result),
                Err(error) => self.response("response", id, Err(error)),
            },
            Purpose::Other => self.response("response", id, outcome),
        }
    }

    pub(super) fn agent_response(&mut self, id: &Value, outcome: Result<Value, Value>) {
        let stops = outcome.as_ref().is_ok_and(|result| result.get("stopReason").is_some_and(Value::is_string));
        let request = self.memory.client_requests.take(&request_key(id));
        if let Some(session) = request.as_ref().and_then(|request| request.session.clone()) {
            self.session = Some(session);
        }
        match (request.map(|request| request.method), outcome) {
            (Some(Method::Prompt), Ok(result)) => self.prompt_answered(result),
            (Some(Method::Prompt), Err(error)) => self.prompt_failed(error),
            // Without the client's side, only its content tells the end of a turn.
            (None, Ok(result)) if stops => self.prompt_answered(result),
            (None, Err(error)) if !self.memory.sees_client && !self.memory.turns.is_empty() => self.prompt_failed(error),
            (method, outcome) => {
                match (method, &outcome) {
                    (Some(Method::Authenticate), Ok(_)) => self.signed_in(),
                    (Some(Method::Load), _) => {
                        if let Some(session) = &self.session {
                            self.memory.loading.take(session);
                        }
                    }
                    (None, _) => self.memory.loading.clear(),
                    _ => {}
                }
                if let Ok(result) = &outcome {
                    self.learn(result);
                }
                self.response("response", id, outcome);
            }
        }
    }

    pub(super) fn notification(&mut self, sender: Sender, method: &str, params: Fact) {
        self.enter_session_of(&params);
        if method == "$/cancel_request"
            && sender == Sender::Agent
            && let Some(request) = params.get("requestId").and_then(|id| self.memory.agent_requests.take(&request_key(id)))
            && let Purpose::Permission(action) | Purpose::Elicitation(action) = request.purpose
        {
            self.session = request.session;
            self.resolve(&action, "cancelled", None, Map::new());
        }
        self.connection("notification", method, params);
    }

    /// Keeps what the two ends say about the connection, files and terminals, for internal readers.
    fn connection(&mut self, kind: &str, method: &str, params: Fact) {
        let mut draft = diagnostic(kind, method, params);
        if method.starts_with("fs/") || method.starts_with("terminal/") {
            (draft.owner, draft.scope, draft.phase) = (Owner::Tool, Scope::ToolCall, Phase::Acting);
        }
        self.push(draft);
    }

    fn response(&mut self, kind: &str, id: &Value, outcome: Result<Value, Value>) {
        let (member, value) = match outcome {
            Ok(result) => ("result", result),
            Err(error) => ("error", error),
        };
        self.push(internal(kind, "response").with("requestId", id.clone()).with(member, value));
    }

    fn enter_session_of(&mut self, params: &Fact) {
        if let Some(session) = params.get("sessionId").and_then(Value::as_str).and_then(|id| ThreadId::new(id).ok()) {
            self.enter(session);
        }
    }

    /// Learns the agent's name, the protocol's version and the session from a response.
    fn learn(&mut self, result: &Value) {
        let name = ["agentInfo", "info"].iter().find_map(|member| result.get(*member)?.get("name")?.as_str());
        let memory = &mut *self.memory;
        memory.agent = memory.agent.take().or_else(|| AgentId::new(name?).ok());
        if let Some(version) = result.get("protocolVersion").and_then(Value::as_u64) {
            memory.is_second = version >= 2;
        }
        let session = result.get("sessionId").and_then(Value::as_str).and_then(|id| ThreadId::new(id).ok());
        memory.session = memory.session.take().or(session);
    }

    // ── the start ──

    fn prompt(&mut self, mut params: Fact) {
        let Some(session) = self.session() else { return self.push(diagnostic("request", "session/prompt", params)) };
        self.session = Some(session.clone());
        let is_open = !self.memory.turns.is_empty();
        self.close_part();
        let prompts = self.memory.turns.take(&session).map_or(0, |turn| turn.prompts);
        self.memory.turns.add(Turn { session, prompts: prompts + 1 });
        let blocks = take_list(&mut params, "prompt");
        if is_open {
            // The events of a session's two turns, or of a client's two sessions, come in one stream with one end.
            self.push(internal("interleaved_run", "session/prompt").with("event", Value::Object(params)));
        } else {
            self.start(false, params);
        }
        if let Some(text) = texts_of(&blocks) {
            self.said(text);
        }
        let others: Vec<_> = blocks.into_iter().filter(|block| super::block_text(block).is_none()).collect();
        if !others.is_empty() {
            self.push(internal("prompt", "session/prompt").with("content", others));
        }
    }

    fn start(&mut self, is_synthetic: bool, rest: Fact) {
        self.signed_in();
        let draft = Draft::new(EventType::RunStarted).with("attempt", self.out.next_attempt()).with_scope(Scope::Turn);
        self.push_carrying(draft.with_some("synthetic", is_synthetic.then_some(true)), rest);
    }

    /// Starts a turn whose prompt is not visible.
    pub(super) fn start_unseen_turn(&mut self, kind: &str, update: &Fact) {
        let memory = &*self.memory;
        let runs = kind == "state_update" && update.get("state").and_then(Value::as_str) != Some("idle");
        let is_late = kind == "tool_call_update" && self.call_of(update).is_some_and(|id| memory.calls.know(&id, &self.out));
        if !memory.turns.is_empty() || memory.sees_client || !(runs || is_work(kind)) || is_late {
            return;
        }
        if let Some(session) = self.session.clone() {
            // What the turn before it said has its end.
            self.memory.parts.take(&session);
            self.memory.turns.add(Turn { session, prompts: 0 });
            self.start(true, Map::new());
        }
    }

    /// Whether the message belongs to no turn.
    pub(super) fn is_outside_turns(&self) -> bool {
        self.memory.turns.is_empty()
    }

    // ── the end ──

    fn prompt_answered(&mut self, result: Value) {
        let mut result = members_of(result, "result");
        let Some(reason) = take_text(&mut result, "stopReason") else {
            // In protocol 2 the response only accepts the prompt.
            return self.push(internal("response", "session/prompt").with("result", Value::Object(result)));
        };
        self.end(&reason, result);
    }

    fn end(&mut self, reason: &str, mut rest: Fact) {
        if let Some(usage) = rest.shift_remove("usage") {
            self.turn_usage(usage);
        }
        let (phase, status) = match reason {
            "cancelled" => (Phase::Cancelled, "cancelled"),
            "max_tokens" | "max_turn_requests" => (Phase::Interrupted, "interrupted"),
            "error" => (Phase::Failed, "failed"),
            _ => (Phase::Completed, "completed"),
        };
        let class = if phase == Phase::Failed { EventType::RunFailed } else { EventType::RunFinished };
        let mut draft = Draft::new(class).with("status", status).with("reason", reason);
        if phase == Phase::Failed {
            let error = rest.shift_remove("error").unwrap_or_else(|| json!({ "message": "the turn failed without saying why" }));
            draft = draft.with("error", error);
        }
        draft.set("refused", (reason == "refusal").then_some(true));
        (draft.scope, draft.phase) = (Scope::Turn, phase);
        self.finish(draft, rest);
    }

    fn prompt_failed(&mut self, error_value: Value) {
        let mut rest = members_of(error_value, "message");
        let code = rest.get("code").and_then(Value::as_i64);
        let message = take_text(&mut rest, "message").unwrap_or_else(|| "the turn failed without saying why".into());
        let mut shown = error(rest.shift_remove("code").map(|code| code.to_string()), message.as_str());
        if code == Some(AUTH_REQUIRED) {
            return self.signed_out(message, shown, rest);
        }
        let details = rest.get_mut("data").and_then(Value::as_object_mut).and_then(|data| take_text(data, "details"));
        shown.extend(details.map(|details| ("details".to_owned(), details.into())));
        rest.retain(|_, value| !value.as_object().is_some_and(Map::is_empty));
        if !rest.is_empty() {
            self.push(internal("error_data", "session/prompt").with("error", Value::Object(rest)));
        }
        self.finish(failed(shown).with_scope(Scope::Turn), Map::new());
    }

    /// Ends the session's turn, and with the last open turn the run.
    fn finish(&mut self, draft: Draft, rest: Fact) {
        let session = self.session();
        let open = session.and_then(|session| self.memory.turns.take(&session));
        if let Some(turn) = open.filter(|turn| turn.prompts > 1) {
            self.memory.turns.add(Turn { prompts: turn.prompts - 1, ..turn });
        }
        if !self.memory.turns.is_empty() {
            self.close_part();
            let note = internal("interleaved_run", "session/prompt").with("event", Value::Object(rest));
            return self.push(note.with_some("status", draft.payload.get("status").map(MemberRef::into_value)));
        }
        self.close_all_parts();
        let memory = &mut *self.memory;
        memory.calls.end_all();
        memory.pending.clear();
        self.push_carrying(draft, rest);
    }

    /// Pauses the turn until the user has signed in.
    fn signed_out(&mut self, message: String, error: Map<String, Value>, rest: Map<String, Value>) {
        self.close_part();
        if let Some(session) = self.session() {
            self.memory.turns.take(&session);
            let action: ActionId = super::id_from(&format!("{session}:auth"));
            let draft = Draft::new(EventType::ActionRequired).with("kind", "credential_request").with("message", message);
            self.push(draft.with("error", Value::Object(error)).with_owner(Owner::Policy).with_action(action.clone()));
            self.memory.signed_out.add(action);
        }
        self.push(waiting().with_scope(Scope::Turn));
        if !rest.is_empty() {
            self.push(internal("error_data", "session/prompt").with("error", Value::Object(rest)));
        }
    }

    fn signed_in(&mut self) {
        for action in self.memory.signed_out.take_all() {
            self.push(resolved(action, None, "answered", Owner::Policy));
        }
    }

    /// Reports the token counts of the turn.
    fn turn_usage(&mut self, usage: Value) {
        let mut usage = members_of(usage, "usage");
        let names = [
            ("inputTokens", "inputTokens"),
            ("outputTokens", "outputTokens"),
            ("cachedReadTokens", "cacheReadTokens"),
            ("cachedWriteTokens", "cacheCreationTokens"),
            ("thoughtTokens", "thinkingTokens"),
        ];
        let draft = Draft::new(EventType::MetricChanged).with("kind", "turn").with("usage", take_counts(&mut usage, &names));
        let draft = draft.with_moved(&mut usage, &[("totalTokens", "totalTokens")]);
        self.push_carrying(draft.with_scope(Scope::Turn).with_audience(Audience::Dashboard), usage);
    }

    // ── protocol 2 ──

    /// The state of the session, which in protocol 2 marks the turn.
    pub(super) fn state_update(&mut self, mut update: Fact) {
        self.memory.is_second = true;
        let state = take_text(&mut update, "state").unwrap_or_default();
        if state == "idle" && !self.is_outside_turns() {
            let reason = take_text(&mut update, "stopReason").unwrap_or_else(|| "end_turn".into());
            return self.end(&reason, update);
        }
        let mut draft = Draft::new(EventType::RunStatus).with("sessionState", state.as_str()).with_scope(Scope::Turn);
        if state == "requires_action" {
            draft.phase = Phase::Waiting;
        }
        draft.ids.message = take_id(&mut update, "messageId");
        self.push_carrying(draft, update);
    }
}
