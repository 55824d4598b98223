//! Tool calls: starts, progress, approvals and ends.
//!
//! Progress names its tool, not its call. It belongs to the call if exactly one open call has that name, otherwise to
//! the turn. A call that a script makes inside another call (`parent#2`) is nested in that call and internal. The end
//! of a call reaches every reader of its start; the end's own audience decides which readers get the body.

use super::{EventHandler, action_id, take_audience};
use crate::Fact;
use crate::digest::TextDigest;
use crate::members::{carry_all, diagnostic, name_of, take_checked_id, take_flag, take_number, take_text};
use crate::turn::error;
use proscenium_model::{ActionId, Audience, Draft, EventType, Owner, Scope, Surface, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

/// A started call without an end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Call {
    pub(super) id: ToolCallId,
    pub(super) name: String,
    untrusted: bool,
}

/// The call that the previous event ended: a cost event that follows directly bills this call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct BilledCall {
    pub(super) call: ToolCallId,
}

/// Returns the parent of a script's nested call, whose id is the parent's id plus `#` and a number.
fn parent_of(id: &ToolCallId) -> Option<&str> {
    let (parent, number) = id.as_str().rsplit_once('#')?;
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    Some(parent).filter(|parent| is_number && !parent.is_empty())
}

/// Whether the name is reserved for notices of the loop. No tool has such a name.
fn is_loop_name(name: &str) -> bool {
    name.starts_with('_')
}

/// Returns the length that Ethos' registry cut off a result, in UTF-16 code units.
///
/// `true`: the mark has no readable length. `None`: the result has no mark. The mark is the last line of the result.
/// The written contract has two hyphens in the mark; the code writes a dash.
fn truncated(result: &str) -> Option<Value> {
    let wrapped = is_wrapped(result);
    let result = result.trim_end();
    let result = if wrapped { result.strip_suffix("</untrusted>")?.trim_end() } else { result };
    let (kept, mark) = result.rsplit_once("[truncated ")?;
    let total = mark.strip_suffix(" chars total]")?.trim_start_matches(['-', '—', '–']).trim_start();
    let kept = kept.strip_suffix('\n').unwrap_or(kept).encode_utf16().count() as u64;
    // The mark does not include the length that the wrapper added to the kept text.
    let cut = total.parse().ok().filter(|_| !wrapped).and_then(|total: u64| total.checked_sub(kept));
    Some(cut.map_or(Value::Bool(true), Value::from))
}

/// Whether a result is inside the `<untrusted>` marks that the loop puts around untrusted text.
fn is_wrapped(result: &str) -> bool {
    let result = result.trim();
    (result.starts_with("<untrusted ") || result.starts_with("<untrusted>")) && result.ends_with("</untrusted>")
}

/// Takes the source's own warning about untrusted output.
fn take_untrusted_flag(fact: &mut Fact) -> bool {
    let mut warns = false;
    for member in ["untrusted", "outputIsUntrusted"] {
        warns |= take_flag(fact, member) == Some(true);
    }
    warns
}

impl EventHandler<'_> {
    /// Creates a draft of this call with the remaining members of the event.
    fn tool(class: EventType, id: ToolCallId, name: Option<String>, rest: Fact) -> Draft {
        let draft = carry_all(Draft::new(class), rest).with_tool_name(name);
        draft.with_ref("parentToolCallId", parent_of(&id)).with_call(id)
    }

    /// Closes the text part at a call that users see: later text starts a new part.
    fn close_text_part(&mut self, seen: Audience) {
        if seen == Audience::User {
            self.memory.text = None;
        }
    }

    pub(super) fn tool_start(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "toolCallId");
        let name = take_text(&mut fact, "toolName").unwrap_or_default();
        if is_loop_name(&name) {
            return self.no_tool("tool_start", &id, &name, fact);
        }
        let nested = parent_of(&id).is_some();
        let audience = take_audience(&mut fact, if nested { Audience::Internal } else { Audience::User });
        let untrusted = take_untrusted_flag(&mut fact);
        let input = fact.shift_remove("args");
        self.end_thought();
        self.close_text_part(audience);
        self.memory.resume();
        self.memory.calls.start(Call { id: id.clone(), name: name_of(&name), untrusted });
        let draft = Self::tool(EventType::ToolStarted, id.clone(), Some(name), fact);
        let draft = draft.call(|call| call.input = input.map(Box::new));
        self.push(draft.with_audience(audience).with_message(self.memory.message.clone()));
        self.memory.calls.forget_if_ended(&id, &self.out);
    }

    /// Keeps a call event with a reserved tool name as a diagnostic: it is not a call.
    fn no_tool(&mut self, event_type: &str, id: &ToolCallId, name: &str, mut fact: Fact) {
        fact.insert("toolCallId".into(), id.as_str().into());
        fact.insert("toolName".into(), name.into());
        self.push(diagnostic("no_tool", event_type, fact));
    }

    pub(super) fn tool_progress(&mut self, mut fact: Fact) {
        let name = take_text(&mut fact, "toolName").unwrap_or_default();
        if is_loop_name(&name) {
            return self.loop_notice(&name, fact);
        }
        let audience = take_audience(&mut fact, Audience::Internal);
        let percent = take_number(&mut fact, "percent");
        let message = take_text(&mut fact, "message");
        let stored = name_of(&name);
        let draft = match self.memory.calls.only(|call| call.name == stored).map(|call| call.id.clone()) {
            Some(id) => Self::tool(EventType::ToolProgress, id, Some(name), fact),
            None => carry_all(Draft::new(EventType::ToolProgress), fact).with_tool_name(Some(name)).with_scope(Scope::Turn),
        };
        // The range is 0 to 100, even if the value looks like a fraction: 1 is one hundredth.
        let progress = percent.as_ref().and_then(Number::as_f64).map(|n| (n / 100.0).clamp(0.0, 1.0));
        let draft = draft.call(|call| {
            call.message = message;
            call.progress = progress.and_then(Number::from_f64);
        });
        self.push(draft.with_some("percent", percent).with_audience(audience));
    }

    pub(super) fn tool_end(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "toolCallId");
        let named = take_text(&mut fact, "toolName");
        if let Some(name) = named.as_deref().filter(|name| is_loop_name(name)) {
            return self.no_tool("tool_end", &id, name, fact);
        }
        let has_started = self.out.has_started(&id);
        let call = self.memory.calls.end(&id);
        let name = named.or_else(|| call.as_ref().map(|call| call.name.clone()));
        let warns = take_untrusted_flag(&mut fact) || call.as_ref().is_some_and(|call| call.untrusted);
        let is_ok = fact.shift_remove("ok") == Some(Value::Bool(true));
        let draft = if is_ok { Self::succeeded(id, name, fact) } else { Self::failed(id, name, fact) };
        let draft = draft.call(|call| {
            let is_wrapped = call.output.as_ref().and_then(|output| output.as_str()).is_some_and(is_wrapped);
            call.never_started = (!has_started && !is_ok).then_some(true);
            call.untrusted = (warns || is_wrapped).then_some(true);
        });
        let id = draft.ids.tool_call.clone().expect("`tool` has set the call's id");
        let start = call.and_then(|_| self.out.call_audience(&id)).unwrap_or(draft.audience);
        if parent_of(&id).is_none() {
            self.memory.ends_with_tools = true;
            if let Some(result) = draft.text("output").filter(|_| is_ok) {
                self.memory.results.add(TextDigest::of(result.as_bytes()));
            }
        }
        self.close_text_part(start);
        self.memory.just_ended = is_ok.then_some(BilledCall { call: id });
        self.push(draft);
    }

    /// Creates the end of a successful call.
    /// The event's own audience, usually internal, restricts only the body.
    fn succeeded(id: ToolCallId, name: Option<String>, mut fact: Fact) -> Draft {
        let audience = take_audience(&mut fact, Audience::Internal);
        let result = fact.shift_remove("result");
        let cut = result.as_ref().and_then(Value::as_str).and_then(truncated);
        let draft = Self::ended(EventType::ToolResult, id, name, fact).call(|call| {
            call.status = Some("completed".to_owned());
            call.truncated = cut.map(Box::new);
            call.output = result.map(Box::new);
        });
        draft.with_audience(audience)
    }

    /// Creates the end of a failed call.
    /// It is for users, even if the event has a narrower audience.
    ///
    /// Exception: the failure of a nested call keeps the event's audience, because it concerns only the script.
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
        // The result of a failure repeats the error text. For a refused call it is the only place with the text.
        let result = fact.shift_remove("result");
        let result_text = result.as_ref().and_then(Value::as_str);
        let output = match (&message, result_text) {
            (Some(message), Some(text)) if message == text => None,
            (None, Some(text)) => {
                message = Some(text.to_owned());
                None
            }
            _ => result,
        };
        let mut error = error(code, message.unwrap_or_else(|| "the tool failed without saying why".into()));
        error.extend(others);
        if parent_of(&id).is_none() {
            if let Some(said) = said.filter(|said| audience != Audience::User && !said.is_null()) {
                fact.insert("audience".into(), said);
            }
            audience = Audience::User;
        }
        let draft = Self::ended(EventType::ToolFailed, id, name, fact).call(|call| {
            call.error = Some(Box::new(error.into()));
            call.output = output.map(Box::new);
        });
        draft.with_audience(audience)
    }

    fn ended(class: EventType, id: ToolCallId, name: Option<String>, mut fact: Fact) -> Draft {
        let structured = fact.shift_remove("structured").filter(|structured| !structured.is_null());
        let [duration, cost, newer_cost] = ["durationMs", "cost_usd", "costUsd"].map(|member| take_number(&mut fact, member));
        Self::tool(class, id, name, fact).call(|call| {
            call.structured = structured.map(Box::new);
            call.duration_ms = duration;
            call.cost_usd = newer_cost.or(cost);
        })
    }

    /// Reports that a call needs an approval.
    /// The tool starts immediately; the real approval gate is in `pushes`.
    pub(super) fn approval_announced(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "toolCallId");
        let name = take_text(&mut fact, "toolName");
        let nested = parent_of(&id).is_some();
        let audience = take_audience(&mut fact, if nested { Audience::Internal } else { Audience::User });
        let input = fact.shift_remove("args");
        // Each call has its own permission.
        let permission = Value::from(id.as_str());
        let draft = Self::tool(EventType::PermissionChanged, id, name, fact).with("permissionId", permission);
        let draft = draft.with("requiresApproval", true).with("gated", false).with_some("input", input);
        self.push(draft.with_scope(Scope::ToolCall).with_surface(Surface::ToolUi).with_audience(audience));
    }

    /// Resolves the approval of a call.
    pub(super) fn approval_response(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "toolCallId");
        let is_approved = fact.shift_remove("approved") == Some(Value::Bool(true));
        let asked = self.memory.pending.iter().find(|pending| pending.call.as_ref() == Some(&id));
        let action: ActionId = asked.map_or_else(|| action_id("approval", id.as_str()), |pending| pending.action.clone());
        self.memory.pending.take(&action);
        let draft = Draft::new(EventType::ActionResolved).with("kind", "tool_approval");
        let draft = draft.with("outcome", if is_approved { "approved" } else { "rejected" });
        let draft = draft.with_moved(&mut fact, &[("reason", "reason")]).with_owner(Owner::Policy);
        self.push_carrying(draft.with_action(action).with_call(id), fact);
    }
}
