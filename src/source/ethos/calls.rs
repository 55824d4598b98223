//! Tool calls: starts, progress, approvals and ends.
//!
//! Progress names its tool, not its call. It belongs to the call if exactly one open call has that name, otherwise to
//! the turn. A call that a script makes inside another call (`parent#2`) is nested in that call and internal. The end
//! of a call reaches every reader of its start; the end's own audience decides which readers get the body.

use super::{EventHandler, TextDigest, take_audience};
use crate::model::{ActionId, Audience, Draft, EventType, Owner, Scope, Surface, ToolCallId};
use crate::source::Fact;
use crate::source::members::{carry_all, diagnostic, move_members, name_of, take_checked_id, take_flag, take_number, take_text};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A started call without an end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Call {
    pub(super) id: ToolCallId,
    pub(super) name: String,
    /// The audience of the start.
    start: Audience,
    untrusted: bool,
}

/// The call that the previous event ended: a cost event that follows directly bills this call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct BilledCall {
    pub(super) call: ToolCallId,
    pub(super) start: Audience,
}

/// Returns the parent of a script's nested call, whose id is the parent's id plus `#` and a number.
fn parent_of(id: &ToolCallId) -> Option<&str> {
    let (parent, number) = id.as_str().rsplit_once('#')?;
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    Some(parent).filter(|parent| is_number && !parent.is_empty())
}

/// Whether the name is reserved for notices of the loop.
/// No tool has such a name.
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
        let mut draft = carry_all(Draft::new(class), rest);
        draft.set("toolName", name);
        if let Some(parent) = parent_of(&id) {
            draft.add_ref("parentToolCallId", parent.into());
        }
        draft.ids.tool_call = Some(id);
        draft
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
        self.memory.calls.start(Call { id: id.clone(), name: name_of(&name), start: audience, untrusted });
        let mut draft = Self::tool(EventType::ToolStarted, id, Some(name), fact);
        draft.set("input", input);
        draft.audience = audience;
        draft.ids.message.clone_from(&self.memory.message);
        self.push(draft);
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
        let mut draft = match self.memory.calls.only(|call| call.name == stored).map(|call| call.id.clone()) {
            Some(id) => Self::tool(EventType::ToolProgress, id, Some(name), fact),
            None => {
                let mut draft = carry_all(Draft::new(EventType::ToolProgress), fact).with("toolName", name);
                draft.scope = Scope::Turn;
                draft
            }
        };
        draft.set("message", message);
        if let Some(percent) = percent {
            // The range is 0 to 100, even if the value looks like a fraction: 1 is one hundredth.
            draft.payload.extend(percent.as_f64().map(|n| ("progress".to_owned(), (n / 100.0).clamp(0.0, 1.0).into())));
            draft.payload.insert("percent".into(), percent);
        }
        draft.audience = audience;
        self.push(draft);
    }

    pub(super) fn tool_end(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "toolCallId");
        let named = take_text(&mut fact, "toolName");
        if let Some(name) = named.as_deref().filter(|name| is_loop_name(name)) {
            return self.no_tool("tool_end", &id, name, fact);
        }
        let has_ended = self.memory.calls.ended.has(&id);
        let call = self.memory.calls.end(&id);
        let name = named.or_else(|| call.as_ref().map(|call| call.name.clone()));
        let warns = take_untrusted_flag(&mut fact) || call.as_ref().is_some_and(|call| call.untrusted);
        let is_ok = fact.shift_remove("ok") == Some(Value::Bool(true));
        let mut draft = if is_ok { Self::succeeded(id, name, fact) } else { Self::failed(id, name, fact) };
        if call.is_none() && !has_ended && !is_ok {
            draft.payload.insert("neverStarted".into(), true.into());
        }
        if warns || draft.text("output").is_some_and(is_wrapped) {
            draft.payload.insert("untrusted".into(), true.into());
        }
        let id = draft.ids.tool_call.clone().expect("`tool` has set the call's id");
        let start = call.map_or(draft.audience, |call| call.start);
        if parent_of(&id).is_none() {
            self.memory.ends_with_tools = true;
            if let Some(result) = draft.text("output").filter(|_| is_ok) {
                self.memory.results.add(TextDigest::of(result.as_bytes()));
            }
        }
        self.close_text_part(start);
        self.memory.just_ended = Some(BilledCall { call: id, start }).filter(|_| is_ok);
        self.push(draft);
    }

    /// Creates the end of a successful call.
    /// The event's own audience, usually internal, restricts only the body.
    fn succeeded(id: ToolCallId, name: Option<String>, mut fact: Fact) -> Draft {
        let audience = take_audience(&mut fact, Audience::Internal);
        let result = fact.shift_remove("result");
        let mut draft = Self::ended(EventType::ToolResult, id, name, fact).with("status", "completed");
        if let Some(cut) = result.as_ref().and_then(Value::as_str).and_then(truncated) {
            draft.payload.insert("truncated".into(), cut);
        }
        draft.set("output", result);
        draft.audience = audience;
        draft
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
        draft.set("output", output);
        draft.audience = audience;
        draft
    }

    fn ended(class: EventType, id: ToolCallId, name: Option<String>, mut fact: Fact) -> Draft {
        let mut known = Draft::new(class.clone());
        move_members(&mut known, &mut fact, &[("structured", "structured")]);
        for (member, ours) in [("durationMs", "durationMs"), ("cost_usd", "costUsd"), ("costUsd", "costUsd")] {
            let number = take_number(&mut fact, member);
            known.set(ours, number);
        }
        let mut draft = Self::tool(class, id, name, fact);
        draft.payload.extend(known.payload);
        draft
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
        let mut draft = Self::tool(EventType::PermissionChanged, id, name, fact).with("permissionId", permission);
        draft = draft.with("requiresApproval", true).with("gated", false);
        draft.set("input", input);
        (draft.scope, draft.surface, draft.audience) = (Scope::ToolCall, Surface::ToolUi, audience);
        self.push(draft);
    }

    /// Resolves the approval of a call.
    pub(super) fn approval_response(&mut self, mut fact: Fact) {
        let id: ToolCallId = take_checked_id(&mut fact, "toolCallId");
        let is_approved = fact.shift_remove("approved") == Some(Value::Bool(true));
        let asked = self.memory.pending.iter().find(|pending| pending.call.as_ref() == Some(&id));
        let action: ActionId = asked.map_or_else(|| super::action_id("approval", id.as_str()), |pending| pending.action.clone());
        self.memory.pending.take(&action);
        let mut draft = Draft::new(EventType::ActionResolved).with("kind", "tool_approval");
        draft = draft.with("outcome", if is_approved { "approved" } else { "rejected" });
        move_members(&mut draft, &mut fact, &[("reason", "reason")]);
        draft.owner = Owner::Policy;
        (draft.ids.action, draft.ids.tool_call) = (Some(action), Some(id));
        self.push_carrying(draft, fact);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Phase;
    use crate::source::ethos::tests::{adapt, call, done, ended, event, failed, last, payload, progress, seen_by, start, text};
    use crate::source::samples::object;
    use serde_json::json;

    // ── audience ──

    #[test]
    fn an_event_states_its_audience_and_an_unknown_one_is_internal_and_kept() {
        use Audience::{Dashboard, Internal, User};
        let of = |fact: Value| {
            let draft = last([fact]);
            (draft.audience, draft.extra.get("sourceAudience").cloned())
        };
        let kinds: [(fn() -> Value, Audience); 4] = [
            (|| call("c", "x"), User),
            (|| call("c#1", "x"), Internal),
            (|| progress("x", json!({})), Internal),
            (|| ended("c", "x", "1"), Internal),
        ];
        for (fact, absent) in kinds {
            assert_eq!(of(fact()), (absent, None));
            assert_eq!(of(seen_by(Value::Null, fact())), (absent, None));
            for (name, known) in [("user", User), ("dashboard", Dashboard), ("internal", Internal)] {
                assert_eq!(of(seen_by(name, fact())), (known, None));
            }
            for unknown in [json!("admin"), json!("User"), json!(7), json!(["user"])] {
                assert_eq!(of(seen_by(unknown.clone(), fact())), (Internal, Some(unknown)));
            }
        }
    }

    #[test]
    fn a_failure_is_for_users_despite_its_audience_unless_it_is_nested() {
        use Audience::{Dashboard, Internal, User};
        let of = |fact: Value| {
            let draft = last([fact]);
            (draft.audience, draft.extra.get("sourceAudience").cloned())
        };
        assert_eq!(of(failed("c", "x")), (User, None));
        assert_eq!(of(seen_by("dashboard", failed("c", "x"))), (User, Some(json!("dashboard"))));
        assert_eq!(of(seen_by("admin", failed("c", "x"))), (User, Some(json!("admin"))));
        assert_eq!(of(failed("c#1", "x")), (Internal, None));
        assert_eq!(of(seen_by("internal", failed("c#1", "x"))), (Internal, None));
        assert_eq!(of(seen_by("dashboard", failed("c#1", "x"))), (Dashboard, None));
        assert_eq!(of(seen_by("admin", failed("c#1", "x"))), (Internal, Some(json!("admin"))));
    }

    #[test]
    fn a_script_s_call_is_nested_in_its_parent() {
        let refs = |id: &str| last([call(id, "x")]).refs;
        assert_eq!(refs("toolu_1#2"), Some(json!({"parentToolCallId": "toolu_1"})));
        assert_eq!(refs("toolu_1#2#3"), Some(json!({"parentToolCallId": "toolu_1#2"})));
        assert_eq!(refs("script:1#2"), Some(json!({"parentToolCallId": "script:1"})));
        for id in ["toolu_1", "a#b", "#1", "a#", "a#-1"] {
            assert_eq!(refs(id), None, "{id}");
        }
        let end = last([call("c#1", "x"), failed("c#1", "x")]);
        assert_eq!(end.refs, Some(json!({"parentToolCallId": "c"})));
    }

    // ── progress ──

    #[test]
    fn a_percentage_is_a_hundredth_regardless_of_its_size() {
        for (percent, fraction) in [
            (json!(0), 0.0),
            (json!(1), 0.01),
            (json!(0.5), 0.005),
            (json!(33.4), 33.4 / 100.0),
            (json!(100), 1.0),
            (json!(250), 1.0),
            (json!(-3), 0.0),
        ] {
            let draft = last([progress("x", json!({"percent": percent}))]);
            assert_eq!(payload(&draft), json!({"toolName": "x", "message": "…", "progress": fraction, "percent": percent}));
        }
        let odd = last([progress("x", json!({"percent": "half"}))]);
        assert_eq!((odd.payload.get("progress"), &odd.extra["percent"]), (None, &json!("half")));
    }

    #[test]
    fn progress_belongs_to_a_call_only_if_one_open_call_has_its_tool_name() {
        let joined = |facts: Vec<Value>| {
            let draft = last(facts.into_iter().chain([progress("bash", json!({}))]));
            assert_eq!(draft.scope, if draft.ids.tool_call.is_some() { Scope::ToolCall } else { Scope::Turn });
            draft.ids.tool_call.map(|id| id.as_str().to_owned())
        };
        assert_eq!(joined(vec![]), None);
        assert_eq!(joined(vec![call("a", "bash"), call("b", "grep")]), Some("a".to_owned()));
        assert_eq!(joined(vec![call("a", "bash"), call("b", "bash")]), None, "two open calls of one tool are indistinguishable");
        assert_eq!(joined(vec![call("a", "bash"), call("b", "bash"), ended("a", "bash", "")]), Some("b".to_owned()));
        assert_eq!(joined(vec![call("a", "bash"), ended("a", "bash", "")]), None, "progress does not reopen an ended call");
        assert_eq!(joined(vec![start(), call("a", "bash"), done("")]), None);
    }

    #[test]
    fn loop_notices_under_a_tool_name_are_no_tool_calls() {
        for (name, owner, phase) in [
            ("_watcher", Owner::Policy, Phase::Interrupted),
            ("_budget", Owner::Runtime, Phase::Interrupted),
            ("_approval", Owner::Runtime, Phase::Interrupted),
            ("_loop", Owner::Runtime, Phase::Acting),
        ] {
            let draft = last([start(), progress(name, json!({"message": "Stopped", "audience": "user"}))]);
            assert_eq!(
                (draft.event_type.clone(), draft.owner.clone(), draft.phase.clone()),
                (EventType::RunStatus, owner, phase)
            );
            assert_eq!((payload(&draft), draft.audience), (json!({"notice": name, "message": "Stopped"}), Audience::User));
        }
        assert_eq!(last([progress("_watcher", json!({}))]).audience, Audience::Internal);
        for fact in [call("c", "_watcher"), ended("c", "_compaction", ""), failed("c", "_x")] {
            let draft = last([fact.clone()]);
            assert_eq!(draft.payload["kind"], "no_tool");
            assert_eq!(draft.payload["event"]["toolName"], fact["toolName"]);
        }
    }

    #[test]
    fn compactions_keep_their_audience_and_have_separate_ids() {
        let compaction = |audience: &str| progress("_compaction", json!({"audience": audience, "message": "m"}));
        let drafts = adapt(["internal", "user", "dashboard", "admin", "user"].map(compaction));
        let seen: Vec<_> = drafts.iter().map(|d| (d.audience.as_str(), d.text("compactionId").unwrap())).collect();
        let expected = [
            ("internal", "ethos-internal-compaction-1"),
            ("user", "ethos-compaction-1"),
            ("dashboard", "ethos-dashboard-compaction-1"),
            ("internal", "ethos-internal-compaction-2"),
            ("user", "ethos-compaction-2"),
        ];
        assert_eq!(seen, expected);
    }

    // ── calls ──

    #[test]
    fn a_call_starts_with_its_input_and_ends_with_its_output() {
        let end = event(
            "tool_end",
            json!({"toolCallId": "c", "toolName": "read", "ok": true, "durationMs": 812, "result": "text",
                "structured": {"_uiType": "card"}, "cost_usd": 0.01, "ofTomorrow": 1}),
        );
        let drafts = adapt([start(), text("a"), call("c", "read"), end]);
        assert_eq!(
            (payload(&drafts[2]), drafts[2].event_type.clone()),
            (json!({"toolName": "read", "input": {"x": 1}}), EventType::ToolStarted)
        );
        assert_eq!(drafts[2].ids.message.as_ref().unwrap().as_str(), "ethos-message-1");
        let given = json!({"toolName": "read", "structured": {"_uiType": "card"}, "durationMs": 812, "costUsd": 0.01,
            "status": "completed", "output": "text"});
        assert_eq!((payload(&drafts[3]), drafts[3].event_type.clone()), (given, EventType::ToolResult));
        assert_eq!(drafts[3].extra["ofTomorrow"], 1);
    }

    #[test]
    fn a_failure_has_its_text_once_and_its_code_if_sent() {
        let error = |members: Value| {
            let mut fact = event("tool_end", json!({"toolCallId": "c", "toolName": "x", "ok": false, "durationMs": 1}));
            fact.as_object_mut().unwrap().extend(object(members));
            let draft = last([call("c", "x"), fact]);
            (draft.payload["error"].clone(), draft.payload.get("output").cloned())
        };
        assert_eq!(error(json!({"result": "no", "error": "no"})), (json!({"message": "no"}), None));
        assert_eq!(error(json!({"result": "Denied"})), (json!({"message": "Denied"}), None));
        assert_eq!(error(json!({"result": "half", "error": "no"})), (json!({"message": "no"}), Some(json!("half"))));
        assert_eq!(error(json!({})), (json!({"message": "the tool failed without saying why"}), None));
        for code in ["input_invalid", "not_available", "execution_failed", "STALE_WRITE", "of_tomorrow"] {
            let coded = json!({"code": code, "message": "no"});
            assert_eq!(error(json!({"error": "no", "code": code})).0, coded);
            assert_eq!(error(json!({"error": {"message": "no", "code": code}})).0, coded);
        }
    }

    #[test]
    fn a_failed_end_without_a_start_is_marked_never_started() {
        let never_started = |facts: Vec<Value>| last(facts).payload.get("neverStarted").cloned();
        assert_eq!(never_started(vec![failed("c", "x")]), Some(json!(true)));
        assert_eq!(never_started(vec![call("c", "x"), failed("c", "x")]), None);
        assert_eq!(never_started(vec![ended("c", "x", "1")]), None, "a call with a result ran, even without a start event");
        assert_eq!(never_started(vec![call("c", "x"), failed("c", "x"), failed("c", "x")]), None);
        assert_eq!(last([call("c", "x"), event("tool_end", json!({"toolCallId": "c", "ok": false}))]).payload["toolName"], "x");
    }

    #[test]
    fn a_truncation_is_counted_in_the_registry_s_units() {
        let cut = |result: &str| last([ended("c", "x", result)]).payload.get("truncated").cloned();
        assert_eq!(cut("12345\n[truncated — 1005 chars total]"), Some(json!(1000)));
        assert_eq!(cut("12345\n[truncated -- 1005 chars total]"), Some(json!(1000)));
        assert_eq!(cut("12345[truncated -- 1005 chars total]\n"), Some(json!(1000)));
        assert_eq!(cut("a😀\n[truncated — 5 chars total]"), Some(json!(2)), "an emoji has two UTF-16 units");
        for unreadable in ["many", "", "-4", "99999999999999999999999", "1"] {
            assert_eq!(cut(&format!("12345\n[truncated -- {unreadable} chars total]")), Some(json!(true)), "{unreadable}");
        }
        assert_eq!(cut("<untrusted source=\"x\">12345\n[truncated — 1005 chars total]\n</untrusted>"), Some(json!(true)));
        for whole in ["", "[truncated", "[truncated — 5 chars total] and more", "chars total]"] {
            assert_eq!(cut(whole), None, "{whole}");
        }
        let kept = last([ended("c", "x", "12345\n[truncated — 1005 chars total]")]);
        assert_eq!(kept.text("output"), Some("12345\n[truncated — 1005 chars total]"));
    }

    #[test]
    fn untrusted_output_is_recognised_by_ethos_marks() {
        let untrusted = |facts: Vec<Value>| last(facts).payload.get("untrusted").cloned();
        let flagged = |mut fact: Value, member: &str, flag: Value| {
            fact[member] = flag;
            fact
        };
        let wrapped = "<untrusted source=\"https://x\" tool=\"fetch\">\nhi\n</untrusted>";
        assert_eq!(untrusted(vec![ended("c", "x", wrapped)]), Some(json!(true)));
        assert_eq!(untrusted(vec![ended("c", "x", "see <untrusted source=\"x\"> there")]), None);
        assert_eq!(untrusted(vec![flagged(ended("c", "x", "hi"), "outputIsUntrusted", json!(true))]), Some(json!(true)));
        assert_eq!(untrusted(vec![flagged(ended("c", "x", "hi"), "untrusted", json!(false))]), None);
        assert_eq!(
            untrusted(vec![flagged(call("c", "x"), "outputIsUntrusted", json!(true)), ended("c", "x", "hi")]),
            Some(json!(true))
        );
        let odd = last([flagged(ended("c", "x", "hi"), "untrusted", json!("yes"))]);
        assert_eq!((odd.payload.get("untrusted"), &odd.extra["untrusted"]), (None, &json!("yes")));
    }

    #[test]
    fn an_announced_approval_is_not_pending() {
        let announced =
            event("tool_approval_required", json!({"toolCallId": "c", "toolName": "deploy", "args": {"env": "prod"}}));
        let draft = last([announced]);
        assert_eq!((draft.event_type.clone(), draft.scope.clone()), (EventType::PermissionChanged, Scope::ToolCall));
        let expected = json!({"toolName": "deploy", "permissionId": "c", "requiresApproval": true, "gated": false, "input": {"env": "prod"}});
        assert_eq!((payload(&draft), draft.surface, draft.ids.action), (expected, Surface::ToolUi, None));
    }

    #[test]
    fn an_approval_response_names_the_action_of_its_call() {
        let answer =
            |approved: bool| event("tool_approval_response", json!({"toolCallId": "c", "approved": approved, "reason": "r"}));
        let draft = last([answer(false)]);
        assert_eq!(draft.ids.action.as_ref().unwrap().as_str(), "approval:c");
        assert_eq!(payload(&draft), json!({"kind": "tool_approval", "outcome": "rejected", "reason": "r"}));
        let asked = event("tool.approval_required", json!({"request": {"approvalId": "ap", "toolCallId": "c"}}));
        let draft = last([asked, answer(true)]);
        assert_eq!((draft.ids.action.unwrap().as_str(), &draft.payload["outcome"]), ("ap", &json!("approved")));
    }
}
