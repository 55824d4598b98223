//! Tool calls: how they start, what is said of them, and how they end.
//!
//! Progress names its tool and not its call: it is the call's only where exactly one open call has that name, and the turn's
//! otherwise. A call that a script makes inside of another (`parent#2`) is nested in that one, and for internal eyes. An end
//! reaches whoever saw the start; that it is told with its body is for the end's own audience to say.

use super::{CALLS_ENDED_MAX, CALLS_OPEN_MAX, Ethos, RESULTS_MAX, Step, name_of, take_audience, take_needed, take_number, tell};
use crate::model::{ActionId, Audience, Draft, EventType, Owner, Scope, Surface, ToolCallId};
use crate::source::Fact;
use crate::source::members::{carrying, diagnostic, take_text};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A call that has started and not ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Call {
    pub(super) id: ToolCallId,
    pub(super) name: String,
    /// Who saw it start.
    start: Audience,
    untrusted: bool,
}

/// A call that ended just now.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Paid {
    pub(super) call: ToolCallId,
    pub(super) start: Audience,
}

impl Ethos {
    pub(super) fn remember_ended(&mut self, id: ToolCallId) {
        if self.ended_calls.contains(&id) {
            return;
        }
        if self.ended_calls.len() == CALLS_ENDED_MAX {
            self.ended_calls.pop_front();
        }
        self.ended_calls.push_back(id);
    }

    fn open_call(&mut self, call: Call) {
        self.calls.retain(|open| open.id != call.id);
        if self.calls.len() == CALLS_OPEN_MAX {
            let oldest = self.calls.remove(0);
            self.remember_ended(oldest.id);
        }
        self.calls.push(call);
    }

    /// Takes the call off the list of those that are open.
    fn take_call(&mut self, id: &ToolCallId) -> Option<Call> {
        let at = self.calls.iter().position(|call| call.id == *id)?;
        self.remember_ended(id.clone());
        Some(self.calls.remove(at))
    }

    /// The call that progress of this tool is of, if there is only one that it can be of.
    fn only_call_of(&self, name: &str) -> Option<ToolCallId> {
        let name = name_of(name);
        let mut open = self.calls.iter().filter(|call| call.name == name);
        match (open.next(), open.next()) {
            (Some(call), None) => Some(call.id.clone()),
            _ => None,
        }
    }
}

/// The call in which a script made this one: its id goes on with `#` and a number.
fn parent_of(id: &ToolCallId) -> Option<&str> {
    let (parent, number) = id.as_str().rsplit_once('#')?;
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    Some(parent).filter(|parent| is_number && !parent.is_empty())
}

/// Names that the loop takes for what it says itself. No tool has such a one.
fn is_of_the_loop(name: &str) -> bool {
    name.starts_with('_')
}

/// How much the registry cut off a result that it marked as cut, in the UTF-16 code units in which it counts; `true` where
/// that cannot be read. The mark is the result's last line; the written contract has two hyphens in it, the code a dash.
fn truncated(result: &str) -> Option<Value> {
    let wrapped = is_wrapped(result);
    let result = result.trim_end();
    let result = if wrapped { result.strip_suffix("</untrusted>")?.trim_end() } else { result };
    let (kept, mark) = result.rsplit_once("[truncated ")?;
    let total = mark.strip_suffix(" chars total]")?.trim_start_matches(['-', '—', '–']).trim_start();
    let kept = kept.strip_suffix('\n').unwrap_or(kept).encode_utf16().count() as u64;
    // What the wrapper added to the kept text, its mark does not say.
    let cut = total.parse().ok().filter(|_| !wrapped).and_then(|total: u64| total.checked_sub(kept));
    Some(cut.map_or(Value::Bool(true), Value::from))
}

/// Whether a result stands in the marks that the loop puts around what a stranger may have written.
fn is_wrapped(result: &str) -> bool {
    let result = result.trim();
    (result.starts_with("<untrusted ") || result.starts_with("<untrusted>")) && result.ends_with("</untrusted>")
}

/// Takes the source's own warning of what the call gives.
fn take_warning(fact: &mut Fact) -> bool {
    let mut warns = false;
    for member in ["untrusted", "outputIsUntrusted"] {
        if let Some(Value::Bool(flag)) = fact.get(member) {
            warns |= flag;
            fact.shift_remove(member);
        }
    }
    warns
}

impl Step<'_> {
    /// A draft of this call, with what is left of the event.
    fn tool(class: EventType, id: ToolCallId, name: Option<String>, rest: Fact) -> Draft {
        let mut draft = carrying(Draft::new(class), rest);
        draft.payload.extend(name.map(|name| ("toolName".to_owned(), name.into())));
        if let Some(parent) = parent_of(&id) {
            draft.add_ref("parentToolCallId", parent.into());
        }
        draft.ids.tool_call = Some(id);
        draft
    }

    /// After a call that users see, text begins a new part.
    fn part_text(&mut self, seen: Audience) {
        if seen == Audience::User {
            self.memory.text = None;
        }
    }

    pub(super) fn tool_start(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_needed(&mut fact, "toolCallId");
        let name = take_text(&mut fact, "toolName").unwrap_or_default();
        if is_of_the_loop(&name) {
            return self.no_tool("tool_start", &id, &name, fact);
        }
        let nested = parent_of(&id).is_some();
        let audience = take_audience(&mut fact, if nested { Audience::Internal } else { Audience::User });
        let untrusted = take_warning(&mut fact);
        let input = fact.shift_remove("args");
        self.end_thought();
        self.part_text(audience);
        self.memory.works();
        self.memory.open_call(Call { id: id.clone(), name: name_of(&name), start: audience, untrusted });
        let mut draft = Self::tool(EventType::ToolStarted, id, Some(name), fact);
        draft.payload.extend(input.map(|input| ("input".to_owned(), input)));
        draft.audience = audience;
        draft.ids.message.clone_from(&self.memory.message);
        self.push(draft);
    }

    /// What the loop says under a tool's name is no call, whatever it came as.
    fn no_tool(&mut self, event_type: &str, id: &ToolCallId, name: &str, mut fact: Fact) {
        fact.insert("toolCallId".into(), id.as_str().into());
        fact.insert("toolName".into(), name.into());
        self.push(diagnostic("no_tool", event_type, fact));
    }

    pub(super) fn tool_progress(&mut self, mut fact: Fact) {
        let name = take_text(&mut fact, "toolName").unwrap_or_default();
        if is_of_the_loop(&name) {
            return self.loop_says(&name, fact);
        }
        let audience = take_audience(&mut fact, Audience::Internal);
        let percent = take_number(&mut fact, "percent");
        let message = take_text(&mut fact, "message");
        let mut draft = match self.memory.only_call_of(&name) {
            Some(id) => Self::tool(EventType::ToolProgress, id, Some(name), fact),
            None => {
                let mut draft = carrying(Draft::new(EventType::ToolProgress), fact).with("toolName", name);
                draft.scope = Scope::Turn;
                draft
            }
        };
        draft.payload.extend(message.map(|message| ("message".to_owned(), message.into())));
        if let Some(percent) = percent {
            // 0 to 100, also where it looks like a fraction: 1 is one hundredth.
            draft.payload.extend(percent.as_f64().map(|n| ("progress".to_owned(), (n / 100.0).clamp(0.0, 1.0).into())));
            draft.payload.insert("percent".into(), percent);
        }
        draft.audience = audience;
        self.push(draft);
    }

    pub(super) fn tool_end(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_needed(&mut fact, "toolCallId");
        let told = take_text(&mut fact, "toolName");
        if let Some(name) = told.as_deref().filter(|name| is_of_the_loop(name)) {
            return self.no_tool("tool_end", &id, name, fact);
        }
        let has_ended = self.memory.ended_calls.contains(&id);
        let call = self.memory.take_call(&id);
        let name = told.or_else(|| call.as_ref().map(|call| call.name.clone()));
        let warns = take_warning(&mut fact) || call.as_ref().is_some_and(|call| call.untrusted);
        let is_ok = fact.shift_remove("ok") == Some(Value::Bool(true));
        let mut draft = if is_ok { Self::succeeded(id, name, fact) } else { Self::failed(id, name, fact) };
        if call.is_none() && !has_ended && !is_ok {
            draft.payload.insert("neverStarted".into(), true.into());
        }
        if warns || draft.text("output").is_some_and(is_wrapped) {
            draft.payload.insert("untrusted".into(), true.into());
        }
        let id = draft.ids.tool_call.clone().expect("a call's draft has the call's id");
        let start = call.map_or(draft.audience, |call| call.start);
        if parent_of(&id).is_none() {
            self.memory.ends_with_tools = true;
            if let Some(result) = draft.text("output").filter(|_| is_ok) {
                let print = super::Print::of(result.as_bytes());
                if self.memory.results.len() == RESULTS_MAX {
                    self.memory.results.pop_front();
                }
                self.memory.results.push_back(print);
            }
        }
        self.part_text(start);
        self.memory.remember_ended(id.clone());
        self.memory.just_ended = Some(Paid { call: id, start }).filter(|_| is_ok);
        self.push(draft);
    }

    /// The body of a success is for whom the event says, which is hardly ever anybody; its end is for all who saw the start.
    fn succeeded(id: ToolCallId, name: Option<String>, mut fact: Fact) -> Draft {
        let audience = take_audience(&mut fact, Audience::Internal);
        let result = fact.shift_remove("result");
        let mut draft = Self::ended(EventType::ToolResult, id, name, fact).with("status", "completed");
        if let Some(cut) = result.as_ref().and_then(Value::as_str).and_then(truncated) {
            draft.payload.insert("truncated".into(), cut);
        }
        draft.payload.extend(result.map(|result| ("output".to_owned(), result)));
        draft.audience = audience;
        draft
    }

    /// A failure is for all who saw the start, whatever is said on it. Only what fails inside of a script is the script's own
    /// affair, unless it is said to be more.
    fn failed(id: ToolCallId, name: Option<String>, mut fact: Fact) -> Draft {
        let said = fact.get("audience").cloned();
        let mut audience = take_audience(&mut fact, Audience::Internal);
        let (mut code, mut message) = (take_text(&mut fact, "code"), take_text(&mut fact, "error"));
        let mut others = Map::new();
        if let Some(Value::Object(_)) = fact.get("error")
            && let Some(Value::Object(mut error)) = fact.shift_remove("error")
        {
            code = take_text(&mut error, "code").or(code);
            message = take_text(&mut error, "message");
            others = error;
        }
        // The result of a failure is its text again, or, where a call was refused, the only place that has it.
        let result = fact.shift_remove("result");
        let told = result.as_ref().and_then(Value::as_str);
        let output = match (&message, told) {
            (Some(message), Some(told)) if message == told => None,
            (None, Some(told)) => {
                message = Some(told.to_owned());
                None
            }
            _ => result,
        };
        let mut error = Map::new();
        error.extend(code.map(|code| ("code".to_owned(), code.into())));
        let message = message.unwrap_or_else(|| "the tool failed without saying why".into());
        error.insert("message".into(), message.into());
        error.extend(others);
        if parent_of(&id).is_none() {
            if let Some(said) = said.filter(|said| audience != Audience::User && !said.is_null()) {
                fact.insert("audience".into(), said);
            }
            audience = Audience::User;
        }
        let mut draft = Self::ended(EventType::ToolFailed, id, name, fact).with("error", Value::Object(error));
        draft.payload.extend(output.map(|output| ("output".to_owned(), output)));
        draft.audience = audience;
        draft
    }

    fn ended(class: EventType, id: ToolCallId, name: Option<String>, mut fact: Fact) -> Draft {
        let mut told = Draft::new(class.clone());
        tell(&mut told, &mut fact, &[("structured", "structured")]);
        for (member, ours) in [("durationMs", "durationMs"), ("cost_usd", "costUsd"), ("costUsd", "costUsd")] {
            let number = take_number(&mut fact, member);
            told.payload.extend(number.map(|number| (ours.to_owned(), number)));
        }
        let mut draft = Self::tool(class, id, name, fact);
        draft.payload.extend(told.payload);
        draft
    }

    /// That a call needs an approval. Nothing waits for one: the tool starts right away, and the gate is elsewhere.
    pub(super) fn approval_announced(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_needed(&mut fact, "toolCallId");
        let name = take_text(&mut fact, "toolName");
        let nested = parent_of(&id).is_some();
        let audience = take_audience(&mut fact, if nested { Audience::Internal } else { Audience::User });
        let input = fact.shift_remove("args");
        // Each call's is a fact of its own.
        let permission = Value::from(id.as_str());
        let mut draft = Self::tool(EventType::PermissionChanged, id, name, fact).with("permissionId", permission);
        draft = draft.with("requiresApproval", true).with("gated", false);
        draft.payload.extend(input.map(|input| ("input".to_owned(), input)));
        (draft.scope, draft.surface, draft.audience) = (Scope::ToolCall, Surface::ToolUi, audience);
        self.push(draft);
    }

    /// The answer to an approval, by the call that it is about.
    pub(super) fn approval_response(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_needed(&mut fact, "toolCallId");
        let is_approved = fact.shift_remove("approved") == Some(Value::Bool(true));
        let asked = self.memory.pending.iter().find(|pending| pending.call.as_ref() == Some(&id));
        let action: ActionId = asked.map_or_else(|| super::action_id("approval", id.as_str()), |pending| pending.action.clone());
        self.memory.answered(&action);
        let mut draft = Draft::new(EventType::ActionResolved).with("kind", "tool_approval");
        draft = draft.with("outcome", if is_approved { "approved" } else { "rejected" });
        tell(&mut draft, &mut fact, &[("reason", "reason")]);
        draft.owner = Owner::Policy;
        (draft.ids.action, draft.ids.tool_call) = (Some(action), Some(id));
        self.push_carrying(draft, fact);
    }
}
