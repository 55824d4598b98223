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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Phase;
    use crate::source::ethos::tests::{adapt, call, done, ended, event, failed, last, payload, progress, seen_by, start, text};
    use crate::source::samples::object;
    use serde_json::json;

    // ── audience ──

    #[test]
    fn who_may_see_an_event_is_said_on_it_and_what_we_do_not_know_is_internal_and_kept() {
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
    fn a_failure_is_for_users_whatever_is_said_on_it_unless_it_is_a_script_s_own() {
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
    fn a_call_that_a_script_makes_is_nested_in_the_script_s() {
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
    fn a_percentage_is_a_hundredth_and_never_guessed_by_its_size() {
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
    fn progress_is_a_call_s_only_where_one_open_call_has_its_tool_s_name() {
        let joined = |facts: Vec<Value>| {
            let draft = last(facts.into_iter().chain([progress("bash", json!({}))]));
            assert_eq!(draft.scope, if draft.ids.tool_call.is_some() { Scope::ToolCall } else { Scope::Turn });
            draft.ids.tool_call.map(|id| id.as_str().to_owned())
        };
        assert_eq!(joined(vec![]), None);
        assert_eq!(joined(vec![call("a", "bash"), call("b", "grep")]), Some("a".to_owned()));
        assert_eq!(joined(vec![call("a", "bash"), call("b", "bash")]), None, "two of them are indistinguishable");
        assert_eq!(joined(vec![call("a", "bash"), call("b", "bash"), ended("a", "bash", "")]), Some("b".to_owned()));
        assert_eq!(joined(vec![call("a", "bash"), ended("a", "bash", "")]), None, "what has ended is not reopened");
        assert_eq!(joined(vec![start(), call("a", "bash"), done("")]), None);
    }

    #[test]
    fn what_the_loop_says_under_a_tool_s_name_is_no_tool() {
        for (name, owner, phase) in [
            ("_watcher", Owner::Policy, Phase::Interrupted),
            ("_budget", Owner::Runtime, Phase::Interrupted),
            ("_approval", Owner::Runtime, Phase::Interrupted),
            ("_loop", Owner::Runtime, Phase::Acting),
        ] {
            let draft = last([start(), progress(name, json!({"message": "Stopped", "audience": "user"}))]);
            assert_eq!((draft.class.clone(), draft.owner.clone(), draft.phase.clone()), (EventType::RunStatus, owner, phase));
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
    fn compactions_are_for_whom_they_say_and_each_is_one_of_its_own() {
        let compaction = |audience: &str| progress("_compaction", json!({"audience": audience, "message": "m"}));
        let drafts = adapt(["internal", "user", "dashboard", "admin", "user"].map(compaction));
        let told: Vec<_> = drafts.iter().map(|d| (d.audience.as_str(), d.text("compactionId").unwrap())).collect();
        let expected = [
            ("internal", "ethos-internal-compaction-1"),
            ("user", "ethos-compaction-1"),
            ("dashboard", "ethos-dashboard-compaction-1"),
            ("internal", "ethos-internal-compaction-2"),
            ("user", "ethos-compaction-2"),
        ];
        assert_eq!(told, expected);
    }

    // ── calls ──

    #[test]
    fn a_call_starts_with_its_input_and_ends_with_what_it_gave() {
        let end = event(
            "tool_end",
            json!({"toolCallId": "c", "toolName": "read", "ok": true, "durationMs": 812, "result": "text",
                "structured": {"_uiType": "card"}, "cost_usd": 0.01, "ofTomorrow": 1}),
        );
        let drafts = adapt([start(), text("a"), call("c", "read"), end]);
        assert_eq!(
            (payload(&drafts[2]), drafts[2].class.clone()),
            (json!({"toolName": "read", "input": {"x": 1}}), EventType::ToolStarted)
        );
        assert_eq!(drafts[2].ids.message.as_ref().unwrap().as_str(), "ethos-message-1");
        let given = json!({"toolName": "read", "structured": {"_uiType": "card"}, "durationMs": 812, "costUsd": 0.01,
            "status": "completed", "output": "text"});
        assert_eq!((payload(&drafts[3]), drafts[3].class.clone()), (given, EventType::ToolResult));
        assert_eq!(drafts[3].extra["ofTomorrow"], 1);
    }

    #[test]
    fn a_failure_says_its_text_once_and_its_code_where_the_wire_has_one() {
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
    fn an_end_without_a_start_says_that_nothing_ever_started_if_it_failed() {
        let told = |facts: Vec<Value>| last(facts).payload.get("neverStarted").cloned();
        assert_eq!(told(vec![failed("c", "x")]), Some(json!(true)));
        assert_eq!(told(vec![call("c", "x"), failed("c", "x")]), None);
        assert_eq!(told(vec![ended("c", "x", "1")]), None, "what gave a result ran, seen or not");
        assert_eq!(told(vec![call("c", "x"), failed("c", "x"), failed("c", "x")]), None);
        assert_eq!(last([call("c", "x"), event("tool_end", json!({"toolCallId": "c", "ok": false}))]).payload["toolName"], "x");
    }

    #[test]
    fn what_the_registry_cut_off_is_counted_as_it_counts() {
        let cut = |result: &str| last([ended("c", "x", result)]).payload.get("truncated").cloned();
        assert_eq!(cut("12345\n[truncated — 1005 chars total]"), Some(json!(1000)));
        assert_eq!(cut("12345\n[truncated -- 1005 chars total]"), Some(json!(1000)));
        assert_eq!(cut("12345[truncated -- 1005 chars total]\n"), Some(json!(1000)));
        assert_eq!(cut("a😀\n[truncated — 5 chars total]"), Some(json!(2)), "a smiley is two of its units");
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
    fn what_a_stranger_may_have_written_is_marked_by_the_marks_that_ethos_gives() {
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
    fn an_approval_that_is_announced_waits_for_nobody() {
        let announced =
            event("tool_approval_required", json!({"toolCallId": "c", "toolName": "deploy", "args": {"env": "prod"}}));
        let draft = last([announced]);
        assert_eq!((draft.class.clone(), draft.scope.clone()), (EventType::PermissionChanged, Scope::ToolCall));
        let told = json!({"toolName": "deploy", "permissionId": "c", "requiresApproval": true, "gated": false, "input": {"env": "prod"}});
        assert_eq!((payload(&draft), draft.surface, draft.ids.action), (told, Surface::ToolUi, None));
    }

    #[test]
    fn an_answer_to_an_approval_names_the_action_of_its_call() {
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
