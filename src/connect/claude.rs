//! Claude Code as a process: lines of JSON in both directions.
//!
//! A process serves one session, and a new one after a restart resumes it. In a branch that leaves the session at its end,
//! a process begins with a fork of it; in another branch, with the conversation in words.
//!
//! A fact is a line with its direction, because the answers of the host are not in the output.

use super::call::{ActionReply, Protocol, QuestionLife, Step, TurnInput, Upstream, UpstreamCall};
use super::entry::AgentEntry;
use super::error::{UpstreamError, excerpt};
use super::memory;
use super::parts::{Part, parts, refused, text_of};
use super::process::{AgentProcess, Pooled, ProcessPool, told};
use super::{ConnectorKind, TargetKind, process_pool};
use crate::branches::LeftTurn;
use crate::encode::files::FileContent;
use crate::log::agent_memory::Remembered;
use crate::model::branch::Fork;
use crate::model::{Control, SessionId, halves};
use futures_util::FutureExt;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::future::ready;
use std::sync::Arc;
use uuid::Uuid;

pub(super) const CONNECTOR: ConnectorKind = ConnectorKind {
    name: "claude-stream-json",
    source: "claude-stream-json",
    target: TargetKind::Command,
    options: &[],
    resolves: false,
    open,
};

/// What makes the program speak lines, tell its text as it comes, and ask before it runs a tool.
const ARGUMENTS: [&str; 9] = [
    "-p",
    "--output-format",
    "stream-json",
    "--verbose",
    "--input-format",
    "stream-json",
    "--include-partial-messages",
    "--permission-prompt-tool",
    "stdio",
];

fn open(entry: &AgentEntry, line_bytes_max: usize) -> Result<Box<dyn Protocol>, String> {
    Ok(Box::new(ClaudeAgent(process_pool(entry, line_bytes_max)?)))
}

struct ClaudeAgent(Arc<ProcessPool<ClaudeProcess>>);

/// What the session remembers: the program's own session.
const SESSION: &str = "claudeSession";

struct ClaudeProcess(AgentProcess);

impl Pooled for ClaudeProcess {
    fn process(&mut self) -> &mut AgentProcess {
        &mut self.0
    }
}

impl Protocol for ClaudeAgent {
    fn call<'a>(&'a self, call: &'a UpstreamCall) -> Step<'a, Box<dyn Upstream>> {
        async {
            let TurnInput::Messages { messages, .. } = &call.input else {
                return Err(UpstreamError::new(
                    "process_ended",
                    "The agent's process has ended, and no longer waits for the answer.",
                ));
            };
            // Before a process starts: a file may be refused.
            let said = messages.iter().flat_map(|message| parts(&message.content)).map(block).collect::<Result<Vec<_>, _>>()?;
            let opening = Opening::of(call);
            let (process, context) = match self.0.take(&call.session).await {
                Some(process) => (process, None),
                None => {
                    let arguments = ARGUMENTS.into_iter().map(str::to_owned).chain(opening.arguments());
                    let process = AgentProcess::start(&self.0.command, &arguments.collect::<Vec<_>>(), self.0.line_bytes_max)?;
                    (ClaudeProcess(process), told(&call.history).filter(|_| matches!(opening, Opening::New(_))))
                }
            };
            let content = context.into_iter().map(|text| text_block(&text)).chain(said).collect();
            let (is_forking, news) = match opening {
                // The program's first line says the session.
                Opening::Fork(_) => (true, Remembered::default()),
                Opening::New(session) | Opening::Known(session) => (false, remembered(session)),
            };
            let (pool, session) = (self.0.clone(), call.session.clone());
            let (facts, questions, children) = (Vec::new(), Map::new(), HashSet::new());
            let process = Some(process);
            let mut turn = ClaudeTurn { pool, session, process, facts, questions, children, interrupts: 0, is_forking, news };
            turn.say(content).await?;
            // The log has the user's words already.
            turn.facts.clear();
            Ok(Box::new(turn) as Box<dyn Upstream>)
        }
        .boxed()
    }

    fn question_life(&self) -> QuestionLife {
        QuestionLife::WithinCall
    }

    /// None: the process that asked has ended, or it would have got the answer.
    fn open_questions<'a>(&'a self, _call: &'a UpstreamCall) -> Step<'a, Option<HashSet<String>>> {
        Box::pin(ready(Ok(Some(HashSet::new()))))
    }

    /// The program forks a session at its end only.
    fn fork_of(&self, left: &LeftTurn) -> Fork {
        let is_known = session_in(&left.memory).is_some();
        if is_known && left.is_at_end && left.is_newest { Fork::State } else { Fork::Transcript }
    }

    fn check_edit(&self, edit: &ActionReply) -> Result<(), &'static str> {
        let is_input = edit.value.as_ref().is_some_and(Value::is_object);
        if is_input { Ok(()) } else { Err("The value must be the tool's input, with changes.") }
    }
}

/// The program's session that a process opens. It stands on a command line: nothing but a UUID does.
enum Opening {
    New(Uuid),
    Known(Uuid),
    /// A new one that begins as this one.
    Fork(Uuid),
}

impl Opening {
    fn of(call: &UpstreamCall) -> Self {
        if let Some(known) = session_in(&call.memory) {
            return Self::Known(known);
        }
        match call.left_turn().and_then(|left| session_in(&left.memory)) {
            Some(left) => Self::Fork(left),
            None => Self::New(uuid::Builder::from_random_bytes(call.nonce.to_be_bytes()).into_uuid()),
        }
    }

    fn arguments(&self) -> Vec<String> {
        match self {
            Self::New(session) => vec![format!("--session-id={session}")],
            Self::Known(session) => vec![format!("--resume={session}")],
            Self::Fork(session) => vec!["--fork-session".to_owned(), format!("--resume={session}")],
        }
    }
}

fn session_in(memory: &Remembered) -> Option<Uuid> {
    memory::id(&memory.session, SESSION).and_then(|known| Uuid::parse_str(known).ok())
}

fn remembered(session: Uuid) -> Remembered {
    Remembered { session: memory::named([(SESSION, Some(session.to_string().as_str()))]), ..Remembered::default() }
}

fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// A part of a message as the Messages API has it.
fn block(part: Part<'_>) -> Result<Value, UpstreamError> {
    let file = match part {
        Part::Text(text) => return Ok(text_block(text)),
        Part::File(file) => file,
    };
    let kind = match file.media_type {
        "image/jpeg" | "image/png" | "image/gif" | "image/webp" => "image",
        "application/pdf" => "document",
        _ => {
            let text = text_of(&file).ok_or_else(|| refused(&file, "it takes JPEG, PNG, GIF and WebP images, PDF and texts."))?;
            let source = json!({ "type": "text", "media_type": "text/plain", "data": text });
            return Ok(json!({ "type": "document", "title": file.shown_name(), "source": source }));
        }
    };
    let source = match file.content {
        FileContent::Inline(data) => json!({ "type": "base64", "media_type": file.media_type, "data": data }),
        FileContent::Url(url) => json!({ "type": "url", "url": url }),
    };
    Ok(json!({ "type": kind, "source": source }))
}

/// The most child agents whose end a turn waits for.
const CHILDREN_MAX: usize = 64;

/// A turn: from the user's line to the `result` after which no child agent works.
struct ClaudeTurn {
    pool: Arc<ProcessPool<ClaudeProcess>>,
    session: SessionId,
    /// `None` once the turn is over.
    process: Option<ClaudeProcess>,
    /// Facts that the log does not have yet.
    facts: Vec<String>,
    /// The inputs of tools that wait for a permission, by request.
    questions: Map<String, Value>,
    /// The child agents that work in the background: their end starts the turn with the answer.
    children: HashSet<String>,
    interrupts: u64,
    /// Whether the program has not said yet which session it forked.
    is_forking: bool,
    news: Remembered,
}

/// What the program says of a session that it does not have.
const NO_SESSION: &str = "No conversation found";

impl ClaudeTurn {
    async fn send(&mut self, message: Value) -> Result<(), UpstreamError> {
        let process = self.process.as_mut().ok_or_else(|| UpstreamError::cut("The turn has ended."))?;
        self.facts.push(json!({ "from": "host", "message": message }).to_string());
        process.0.write(&message).await
    }

    async fn say(&mut self, content: Vec<Value>) -> Result<(), UpstreamError> {
        let message = json!({ "role": "user", "content": content });
        self.send(json!({ "type": "user", "message": message, "parent_tool_use_id": null, "session_id": "" })).await
    }

    fn take(&mut self, line: &str) -> Result<(), UpstreamError> {
        let message = halves::parse(line.as_bytes()).map_err(|error| {
            UpstreamError::new("endpoint_not_json", format!("A line of the agent is not JSON: {error}. {}", excerpt(line)))
        })?;
        let request = message["request_id"].as_str().map(str::to_owned);
        if self.is_forking {
            self.note_fork(&message, line)?;
        }
        match (message["type"].as_str(), request) {
            (Some("system"), _) => self.note_child(&message),
            (Some("result"), _) if self.children.is_empty() || is_error(&message) => {
                if let Some(process) = self.process.take() {
                    self.pool.keep(&self.session, process);
                }
            }
            (Some("control_request"), Some(request)) => {
                self.questions.insert(request, message["request"]["input"].clone());
            }
            (Some("control_cancel_request"), Some(request)) => drop(self.questions.shift_remove(&request)),
            _ => {}
        }
        // The text as it came: the log joins halves of pairs that the parsed value has lost.
        self.facts.push(format!(r#"{{"from":"claude","message":{line}}}"#));
        Ok(())
    }

    /// Notes the session that the program forked. Without it, a later process would lose this turn.
    fn note_fork(&mut self, message: &Value, line: &str) -> Result<(), UpstreamError> {
        let is_end = message["type"] == "result";
        if is_end && is_error(message) && line.contains(NO_SESSION) {
            return Err(UpstreamError::state_lost(excerpt(line)));
        }
        match message["session_id"].as_str().and_then(|session| Uuid::parse_str(session).ok()) {
            Some(session) => (self.is_forking, self.news) = (false, remembered(session)),
            None if is_end => return Err(UpstreamError::new("agent_invalid_answer", "The program did not say its session.")),
            None => {}
        }
        Ok(())
    }

    /// Notes the start or the end of a child agent.
    fn note_child(&mut self, message: &Value) {
        let Some(task) = message["task_id"].as_str() else { return };
        match message["subtype"].as_str() {
            Some("task_started") if message["task_type"] == "local_agent" && self.children.len() < CHILDREN_MAX => {
                self.children.insert(task.to_owned());
            }
            Some("task_notification") => _ = self.children.remove(task),
            _ => {}
        }
    }
}

/// Whether a `result` is the end of a turn that failed or was stopped.
fn is_error(result: &Value) -> bool {
    result["is_error"].as_bool().unwrap_or(result["subtype"] != "success")
}

/// The answer to a permission, whose tool has this input.
fn decision(reply: &ActionReply, mut input: Value) -> Value {
    let changed = reply.value.as_ref().and_then(|value| value.get("updatedInput")).cloned();
    match &reply.control {
        Control::Edit => json!({ "behavior": "allow", "updatedInput": reply.value }),
        // A question of the program: the answers are a part of its tool's input.
        Control::Answer if changed.is_none() => {
            if let Some(input) = input.as_object_mut() {
                let answers = reply.value.as_ref().map(|value| value.get("answers").unwrap_or(value).clone());
                input.insert("answers".into(), answers.unwrap_or_default());
            }
            json!({ "behavior": "allow", "updatedInput": input })
        }
        _ if reply.is_approved() => {
            let mut decision = json!({ "behavior": "allow", "updatedInput": changed.unwrap_or(input) });
            if let Some(suggestion) = reply.chosen_option().and_then(|option| option.get("suggestion")) {
                decision["updatedPermissions"] = json!([suggestion]);
            }
            decision
        }
        _ => json!({ "behavior": "deny", "message": reply.reason().unwrap_or("The user rejected this.") }),
    }
}

impl Upstream for ClaudeTurn {
    fn next(&mut self) -> Step<'_, Option<Vec<String>>> {
        async {
            if !self.facts.is_empty() {
                return Ok(Some(std::mem::take(&mut self.facts)));
            }
            // While the user decides, the program has nothing to say.
            let limit = self.questions.is_empty().then_some(self.pool.limits.silence);
            let Some(process) = &mut self.process else { return Ok(None) };
            let is_forking = self.is_forking;
            let line = process.0.next(limit).await.map_err(|error| match is_forking && error.reason.contains(NO_SESSION) {
                true => UpstreamError::state_lost(error.reason),
                false => error,
            })?;
            self.take(&line)?;
            Ok(Some(std::mem::take(&mut self.facts)))
        }
        .boxed()
    }

    fn cancel(&mut self) -> Step<'_, bool> {
        async {
            self.questions.clear();
            self.interrupts += 1;
            let id = format!("proscenium-{}", self.interrupts);
            self.send(json!({ "type": "control_request", "request_id": id, "request": { "subtype": "interrupt" } })).await?;
            Ok(true)
        }
        .boxed()
    }

    fn reply<'a>(&'a mut self, reply: &'a ActionReply) -> Step<'a, bool> {
        async {
            let Some(input) = self.questions.shift_remove(reply.own_action()) else { return Ok(false) };
            let response = json!({ "subtype": "success", "request_id": reply.own_action(), "response": decision(reply, input) });
            self.send(json!({ "type": "control_response", "response": response })).await?;
            Ok(true)
        }
        .boxed()
    }

    fn steer<'a>(&'a mut self, text: &'a str) -> Step<'a, bool> {
        async {
            self.say(vec![text_block(text)]).await?;
            Ok(true)
        }
        .boxed()
    }

    fn news(&mut self) -> Remembered {
        std::mem::take(&mut self.news)
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::samples::reply;
    use super::*;

    #[test]
    fn a_decision_allows_the_input_or_denies_it_with_the_reason() {
        let decided = |control: Control, value: Value| decision(&reply("q", control, value, json!({})), json!({ "path": "a" }));
        assert_eq!(decided(Control::Approve, Value::Null), json!({ "behavior": "allow", "updatedInput": { "path": "a" } }));
        assert_eq!(
            decided(Control::Edit, json!({ "path": "b" })),
            json!({ "behavior": "allow", "updatedInput": { "path": "b" } })
        );
        let edited = json!({ "approved": true, "updatedInput": { "path": "b" } });
        assert_eq!(decided(Control::Approve, edited), json!({ "behavior": "allow", "updatedInput": { "path": "b" } }));
        assert_eq!(decided(Control::Reject, json!("mine")), json!({ "behavior": "deny", "message": "mine" }));
        let asked = json!({ "options": [{ "optionId": "allow" }, { "optionId": "wide", "suggestion": { "type": "addRules" } }] });
        let chosen = |id: &str| {
            decision(&reply("q", Control::Approve, json!({ "optionId": id }), asked.clone()), json!({}))["updatedPermissions"]
                .clone()
        };
        assert_eq!((chosen("allow"), chosen("wide")), (Value::Null, json!([{ "type": "addRules" }])));
        assert_eq!(
            decided(Control::Answer, json!({ "answers": { "Which?": "this" } })),
            json!({ "behavior": "allow", "updatedInput": { "path": "a", "answers": { "Which?": "this" } } })
        );
    }
}
