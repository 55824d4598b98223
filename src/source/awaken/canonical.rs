//! Awaken's canonical wrapper: events as Awaken's server stores and replays them.
//!
//! The wrapper has two forms, distinguished by the position of `event_kind`: a stored event, and the draft of one
//! (`{fidelity, draft}`). The adapter handles the inner event like a bare one. The wrapper adds the visibility, the
//! time, the run and the event's names in Awaken's store (`rawEventRef`).
//!
//! Two rules apply only to wrapped events. Awaken stores a suspended call twice, under two kinds; both are one
//! question. A wrapped event names its run, so the adapter can identify and flag events of another run.

use super::{Awaken, Event, Kind, Native, TYPE, TurnState, hash_of, name_of_type};
use crate::model::{Audience, Draft, EventType, Ids, RunId, SessionId, ThreadId};
use crate::source::members::{carry, diagnostic, malformed, take_text, take_time};
use crate::source::{Fact, FactError};
use serde_json::{Map, Value};

/// The wrapper's members about the event itself, with their names in `rawEventRef`.
#[rustfmt::skip]
const MARKS: &[(&str, &str)] = &[
    ("event_id", "eventId"), ("event_kind", "eventKind"), ("causation_id", "causationId"), ("correlation_id", "correlationId"),
    ("cursors_by_scope", "cursors"), ("origin", "origin"), ("visibility", "visibility"), ("fidelity", "fidelity"),
    ("schema_version", "schemaVersion"),
];

/// Members of a non-public boundary or failure that are visible to every reader: the run's status.
const PUBLIC_MEMBERS: &[&str] = &["status", "attempt", "resumed"];

/// The members around a native event.
pub(super) struct Wrapper {
    kind: String,
    /// The event's names in Awaken's store.
    marks: Map<String, Value>,
    thread: Option<String>,
    run: Option<String>,
    created: Option<Box<str>>,
    is_public: bool,
    /// The hash of the question that the event asks.
    question: Option<String>,
    /// Unknown members.
    rest: Fact,
}

/// Whether the fact is a wrapped event.
pub(super) fn is_wrapped(fact: &Fact) -> bool {
    let names_kind = |of: &Fact| of.get("event_kind").is_some_and(Value::is_string);
    !fact.get(TYPE).is_some_and(Value::is_string)
        && (names_kind(fact) || fact.get("draft").and_then(Value::as_object).is_some_and(names_kind))
}

/// Converts both forms of the wrapper into one.
fn flattened(mut fact: Fact) -> Fact {
    let Some(Value::Object(mut inner)) = fact.shift_remove("draft") else { return fact };
    for (member, value) in fact {
        inner.entry(member).or_insert(value);
    }
    inner
}

impl Wrapper {
    /// Reads the wrapper.
    /// The caller has already taken the payload.
    fn take(mut fact: Fact) -> Self {
        let kind = fact.get("event_kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_public = match fact.get("visibility") {
            // Without a visibility the event type table decides. Any value but `public` fails closed.
            None | Some(Value::Null) => true,
            Some(said) => said == "public",
        };
        let taken = |(theirs, ours): &(&str, &str)| Some(((*ours).to_owned(), fact.shift_remove(*theirs)?));
        let marks = MARKS.iter().filter_map(taken).filter(|(_, value)| !value.is_null()).collect();
        let (thread, run) = (take_scope(&mut fact, "thread"), take_scope(&mut fact, "run"));
        let created = take_time(&mut fact, "created_at");
        Self { kind, marks, thread, run, created, is_public, question: None, rest: fact }
    }

    /// Adds missing ids to a boundary event.
    /// Other events have no ids of their own.
    fn complete(&self, native: &mut Fact) {
        if !matches!(native.get(TYPE).and_then(Value::as_str), Some("run_start" | "run_finish")) {
            return;
        }
        for (member, id) in [("thread_id", &self.thread), ("run_id", &self.run)] {
            let lacks = native.get(member).is_none_or(|own| own.is_null() || own == "");
            native.extend(id.clone().filter(|_| lacks).map(|id| (member.to_owned(), id.into())));
        }
    }

    /// Adds the wrapper's time, names and ids to a draft of the event.
    fn mark(&self, draft: &mut Draft) {
        draft.timestamp = draft.timestamp.take().or_else(|| self.created.clone());
        draft.raw_event_ref = Some(Value::Object(self.marks.clone())).filter(|_| !self.marks.is_empty());
        let thread = self.thread.as_deref();
        draft.ids.fill_from(&Ids {
            thread: thread.and_then(|id| ThreadId::new(id).ok()),
            session: thread.and_then(|id| SessionId::new(id).ok()),
            ..Ids::default()
        });
    }
}

/// Takes the wrapper's thread or run id.
/// A scope with a different id stays and is carried.
fn take_scope(fact: &mut Fact, kind: &str) -> Option<String> {
    let member = format!("{kind}_id");
    let mut id = take_text(fact, &member).filter(|id| !id.is_empty());
    if let Some(Value::Array(scopes)) = fact.get_mut("scopes") {
        scopes.retain(|scope| {
            let is_whole = scope.as_object().is_some_and(|scope| scope.len() == 2);
            let named = scope.get(&member).and_then(Value::as_str).filter(|_| is_whole && scope["scope_type"] == kind);
            let Some(named) = named.filter(|named| id.as_deref().is_none_or(|id| id == *named)) else { return true };
            id.get_or_insert_with(|| named.to_owned());
            false
        });
        if scopes.is_empty() {
            fact.shift_remove("scopes");
        }
    }
    id
}

/// Hashes the question of a suspended call.
/// `None`: the event is no question.
fn question(native: &Fact) -> Option<String> {
    let status = native.get("result").and_then(|result| result.get("status"));
    let outcome = native.get("outcome").filter(|outcome| outcome.is_string());
    let asks = outcome.map_or_else(|| status.is_some_and(|status| status == "pending"), |outcome| outcome == "suspended");
    (native[TYPE] == "tool_call_done" && asks)
        .then(|| hash_of(&serde_json::to_string(native).expect("JSON object keys are strings")))
}

/// Parses a wrapped event.
pub(super) fn parse(fact: Fact) -> Result<Event, FactError> {
    let mut fact = flattened(fact);
    let is_native = |payload: &Value| payload.get(TYPE).and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    let Some(payload) = fact.get_mut("payload").filter(|payload| is_native(payload)).and_then(Value::as_object_mut) else {
        let kind = fact.get("event_kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let expected = "payload as the native event: an object that names its event_type";
        return Ok(Event::Malformed(malformed(&kind, fact, expected).into()));
    };
    let mut native = std::mem::take(payload);
    fact.shift_remove("payload");
    let mut wrapper = Wrapper::take(fact);
    wrapper.complete(&mut native);
    wrapper.question = question(&native);
    Ok(Event::Wrapped(wrapper.into(), Native::parse(native)?))
}

impl Awaken {
    /// Applies a wrapped event.
    pub(super) fn apply_wrapped(&mut self, mut wrapper: Wrapper, native: Native, given: &Ids, out: &mut Vec<Draft>) {
        let mut drafts = self.unwrapped(&wrapper, native, given);
        self.learn_scope(&mut wrapper);
        let rest = std::mem::take(&mut wrapper.rest);
        for draft in &mut drafts {
            wrapper.mark(draft);
        }
        if let Some(first) = drafts.first_mut() {
            rest.into_iter().for_each(|(member, value)| carry(first, member, value));
        }
        if wrapper.is_public {
            out.extend(drafts);
        } else {
            for draft in drafts {
                withhold(draft, out);
            }
        }
    }

    /// Applies the inner event.
    fn unwrapped(&mut self, wrapper: &Wrapper, native: Native, given: &Ids) -> Vec<Draft> {
        let event_type = name_of_type(&native.members);
        let (open, said) = (self.run.as_ref().map(RunId::as_str), wrapper.run.as_deref());
        let is_boundary = matches!(native.kind, Ok(Kind::RunStart | Kind::RunFinish));
        if self.turn_state == TurnState::Open && !is_boundary && said.is_some() && open.is_some() && said != open {
            let flagged = diagnostic("interleaved_run", event_type, native.members.clone());
            return vec![self.about(flagged.with("openRun", open).with("run", said), given)];
        }
        let question = &wrapper.question;
        if let Some(asked) = self.pending.iter().find(|pending| pending.asked.is_some() && pending.asked == *question) {
            // The same suspension under its other kind: the question is pending already, so only a diagnostic follows.
            let mut repeated = Draft::new(EventType::DiagnosticChanged).with("kind", "repeated_event");
            repeated = repeated.with("eventType", event_type).with("eventKind", wrapper.kind.as_str());
            (repeated.ids.tool_call, repeated.ids.action) = (Some(asked.call.clone()), Some(asked.action.clone()));
            return vec![self.about(repeated, given)];
        }
        let mut drafts = Vec::new();
        self.apply_native(native, given, &mut drafts);
        let asks = drafts.iter().find(|draft| draft.event_type == EventType::ActionRequired);
        if let Some(pending) = asks.and_then(|draft| self.pending.find_mut(draft.ids.tool_call.as_ref()?)) {
            pending.asked.clone_from(question);
        }
        drafts
    }

    /// Stores the wrapper's thread and run ids if no boundary set them.
    ///
    /// A replay may start in the middle of a run. The draft carries different ids.
    fn learn_scope(&mut self, wrapper: &mut Wrapper) {
        if let Some(thread) = &wrapper.thread {
            if self.thread.is_none() {
                self.thread = ThreadId::new(thread).ok();
                self.session = self.session.take().or_else(|| SessionId::new(thread).ok());
            }
            if self.thread.as_ref().map(ThreadId::as_str) != Some(thread) {
                wrapper.rest.insert("thread_id".into(), thread.as_str().into());
            }
        }
        if let Some(run) = &wrapper.run {
            if self.run.is_none() {
                self.run = RunId::new(run).ok();
            }
            if self.run.as_ref().map(RunId::as_str) != Some(run) {
                wrapper.rest.insert("run_id".into(), run.as_str().into());
            }
        }
    }
}

/// Restricts a non-public draft to the internal audience, but keeps the run's status visible.
///
/// The audience rule shows starts and ends of runs to every reader, without their bodies. It does not show pauses and
/// resumptions, and a run with a hidden pause would appear to work. The audience rule also shows a failure with its
/// body to every reader of the start. So a non-public failure loses its body. An internal diagnostic beside the draft
/// holds the removed members.
fn withhold(mut draft: Draft, out: &mut Vec<Draft>) {
    let fails = matches!(draft.event_type, EventType::ToolFailed | EventType::RunFailed);
    let stands = draft.event_type == EventType::RunStatus && !draft.payload.contains_key("step");
    if !stands {
        draft.audience = Audience::Internal;
    }
    if !fails && !stands {
        return out.push(draft);
    }
    let mut kept = Draft::new(EventType::DiagnosticChanged).with("kind", "withheld").with("eventType", draft.event_type.as_str());
    if let Some(message) = draft.payload.get("error").and_then(|error| error.get("message")) {
        kept.payload.insert("message".into(), message.clone());
    }
    kept.ids.clone_from(&draft.ids);
    kept.timestamp.clone_from(&draft.timestamp);
    (kept.refs, kept.raw_event_ref) = (draft.refs.take(), draft.raw_event_ref.take());
    kept.extra = std::mem::take(&mut draft.extra);
    let payload = std::mem::take(&mut draft.payload);
    draft.payload =
        PUBLIC_MEMBERS.iter().filter_map(|member| Some(((*member).to_owned(), payload.get(*member)?.clone()))).collect();
    if fails {
        draft.payload.insert("withheld".into(), true.into());
    }
    out.push(draft);
    out.push(kept.with("event", Value::Object(payload)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Phase;
    use crate::source::FactError;
    use crate::source::awaken::tests::{
        adapt, adapt_for, call, classes, done, event, finish_as, last, payload, resumed, start, step, suspended, text,
    };
    use crate::source::samples::{given, object};
    use serde_json::json;

    fn stored(native: Value, members: Value) -> Value {
        let mut fact = json!({
            "event_id": "e-1", "scopes": [{"scope_type": "thread", "thread_id": "t"}, {"scope_type": "run", "run_id": "r"}],
            "cursors_by_scope": [{"scope": "run:r", "cursor": "7"}], "event_kind": "Kind", "payload": native,
            "thread_id": "t", "run_id": "r", "causation_id": "e-0", "correlation_id": null, "origin": "runtime",
            "visibility": "public", "schema_version": 1, "created_at": "2026-01-02T03:04:05+02:00",
        });
        fact.as_object_mut().unwrap().extend(object(members));
        fact
    }

    fn public(native: Value) -> Value {
        stored(native, json!({}))
    }

    fn sensitive(native: Value) -> Value {
        stored(native, json!({"visibility": "sensitive"}))
    }

    fn draft_of(native: Value) -> Value {
        json!({"fidelity": "domain_event", "draft": {
            "scopes": [{"scope_type": "thread", "thread_id": "t"}, {"scope_type": "run", "run_id": "r"}],
            "event_kind": "Kind", "payload": native, "origin": "runtime", "visibility": "public", "schema_version": 1,
        }})
    }

    #[test]
    fn both_forms_give_the_same_drafts_as_the_bare_event() {
        let [begin, ready] = call("c");
        let natives =
            [start("r"), step("m"), text("a"), begin, ready, done("c", "succeeded", json!({"data": 1})), finish_as("r", "error")];
        let alone = adapt(natives.clone());
        for wrap in [public, draft_of] {
            let mut wrapped = adapt(natives.clone().map(wrap));
            for draft in &mut wrapped {
                assert!(draft.raw_event_ref.take().is_some() && draft.extra.is_empty(), "{:?}", draft.extra);
                draft.timestamp = None;
            }
            assert_eq!(wrapped, alone);
        }
    }

    #[test]
    fn an_event_keeps_its_time_and_its_names_in_awaken_s_store() {
        let draft = last([stored(text("a"), json!({"of_tomorrow": [1]}))]);
        assert_eq!(draft.timestamp.as_deref(), Some("2026-01-02T01:04:05Z"));
        let names = json!({
            "eventId": "e-1", "eventKind": "Kind", "causationId": "e-0", "cursors": [{"scope": "run:r", "cursor": "7"}],
            "origin": "runtime", "visibility": "public", "schemaVersion": 1,
        });
        assert_eq!(draft.raw_event_ref, Some(names));
        assert_eq!(Value::Object(draft.extra), json!({"of_tomorrow": [1]}));
        let draft = last([stored(text("a"), json!({"created_at": "yesterday"}))]);
        assert_eq!((draft.timestamp, &draft.extra["created_at"]), (None, &json!("yesterday")));
    }

    #[test]
    fn scopes_name_the_run_if_the_event_does_not() {
        let draft = last([draft_of(text("a"))]);
        assert_eq!(draft.ids.thread.as_ref().unwrap().as_str(), "t");
        assert_eq!(draft.ids.session.as_ref().unwrap().as_str(), "t");
        let boundary = last([draft_of(event("run_start", json!({"run_id": ""})))]);
        assert_eq!(boundary.refs, Some(json!({"runId": "r"})));
        assert_eq!(boundary.ids.thread.as_ref().unwrap().as_str(), "t");
        let mut given = given();
        given.session = SessionId::new("mine").ok();
        assert_eq!(adapt_for(&given, [draft_of(text("a"))]).remove(0).ids.session.unwrap().as_str(), "mine");
        let odd = json!([{"scope_type": "tenant", "tenant_id": "x"}, {"scope_type": "run", "run_id": "r"}]);
        let draft = last([public(start("r")), stored(text("a"), json!({"scopes": odd, "thread_id": "elsewhere"}))]);
        assert_eq!(draft.extra["scopes"], json!([{"scope_type": "tenant", "tenant_id": "x"}]));
        assert_eq!((&draft.extra["thread_id"], draft.ids.thread.unwrap().as_str()), (&json!("elsewhere"), "t"));
    }

    #[test]
    fn an_event_of_another_run_than_the_open_one_is_flagged_and_changes_nothing() {
        let other = json!({"run_id": "x", "scopes": [{"scope_type": "run", "run_id": "x"}]});
        let drafts = adapt([public(start("r")), stored(text("a"), other.clone()), stored(start("x"), other)]);
        assert_eq!(classes(&drafts)[1..], ["diagnostic.changed unknown", "diagnostic.changed unknown"]);
        assert!(drafts[1..].iter().all(|draft| draft.payload["kind"] == "interleaved_run"));
        assert_eq!((&drafts[1].payload["openRun"], &drafts[1].payload["run"]), (&json!("r"), &json!("x")));
    }

    #[test]
    fn a_suspension_stored_under_two_kinds_is_one_question() {
        let kinds = |native: Value| {
            ["ToolCallSuspended", "ToolPermissionRequested"].map(|kind| stored(native.clone(), json!({"event_kind": kind})))
        };
        let [begin, ready] = call("c");
        let [first, second] = kinds(suspended("c", "replay_tool_call"));
        let facts = [public(begin), public(ready), first.clone(), second.clone(), public(resumed("c", json!(1)))];
        let drafts = adapt(facts.clone());
        let expected = [
            "tool.started acting",
            "tool.args acting",
            "action.required waiting",
            "diagnostic.changed unknown",
            "action.resolved acting",
            "tool.result completed",
        ];
        assert_eq!(classes(&drafts), expected);
        let repeated = &drafts[3];
        assert_eq!(repeated.audience, Audience::Internal);
        assert_eq!(
            payload(repeated),
            json!({"kind": "repeated_event", "eventType": "tool_call_done", "eventKind": "ToolPermissionRequested"})
        );
        assert_eq!(repeated.ids.action, drafts[2].ids.action);
        // The order of the two kinds does not matter. After an answer, the same suspension is a new question.
        let again = adapt(facts.into_iter().chain([second, first]));
        assert_eq!(classes(&again)[6..], ["action.required waiting", "diagnostic.changed unknown"]);
        let other = adapt([public(suspended("c", "replay_tool_call")), public(suspended("d", "replay_tool_call"))]);
        assert_eq!(classes(&other), ["action.required waiting", "action.required waiting"]);
    }

    #[test]
    fn every_draft_of_a_non_public_event_is_internal() {
        let [begin, ready] = call("c");
        let end = done("c", "succeeded", json!({"data": {"agent_id": "kid"}, "metadata": {"child_run_id": "cr"}}));
        let drafts = adapt([step("m"), text("a"), begin, ready, suspended("c", "replay_tool_call"), end].map(sensitive));
        assert_eq!(drafts.len(), 8);
        assert!(drafts.iter().all(|draft| draft.audience == Audience::Internal), "{:?}", classes(&drafts));
        for visibility in [json!("audit"), json!("of_tomorrow"), json!(7)] {
            let draft = last([stored(text("a"), json!({"visibility": visibility}))]);
            assert_eq!(draft.audience, Audience::Internal, "{visibility}");
        }
        for visibility in [json!("public"), Value::Null] {
            let draft = last([stored(text("a"), json!({"visibility": visibility}))]);
            assert_eq!(draft.audience, Audience::User, "{visibility}");
        }
    }

    #[test]
    fn a_non_public_run_s_status_is_visible_to_every_reader() {
        let blocked = event("run_finish", json!({"run_id": "r", "termination": {"type": "blocked", "value": "secret plan"}}));
        let drafts = adapt([start("r"), finish_as("r", "suspended"), start("r"), blocked].map(sensitive));
        let expected = [
            ("run.started", Audience::Internal),
            ("run.status", Audience::User),
            ("diagnostic.changed", Audience::Internal),
            ("run.status", Audience::User),
            ("diagnostic.changed", Audience::Internal),
            ("run.failed", Audience::Internal),
            ("diagnostic.changed", Audience::Internal),
        ];
        assert_eq!(drafts.iter().map(|draft| (draft.event_type.as_str(), draft.audience)).collect::<Vec<_>>(), expected);
        assert_eq!((payload(&drafts[1]), drafts[1].phase.clone()), (json!({"status": "waiting"}), Phase::Waiting));
        assert_eq!(payload(&drafts[3]), json!({"resumed": true}));
        assert_eq!(payload(&drafts[5]), json!({"status": "failed", "withheld": true}));
        assert_eq!((&drafts[5].refs, &drafts[5].raw_event_ref), (&None, &None));
        assert_eq!(drafts[6].payload["event"]["error"], json!({"code": "blocked", "message": "secret plan"}));
        assert_eq!(drafts[6].payload["message"], "secret plan");
    }

    #[test]
    fn a_non_public_failure_shows_only_that_it_failed() {
        let [begin, ready] = call("c");
        let failed = sensitive(done("c", "failed", json!({"message": "secret plan"})));
        let drafts = adapt([public(begin), public(ready), failed]);
        assert_eq!(classes(&drafts)[2..], ["tool.failed failed", "diagnostic.changed unknown"]);
        assert_eq!(payload(&drafts[2]), json!({"withheld": true}));
        assert!(!format!("{:?}", drafts[2]).contains("secret plan"));
    }

    #[test]
    fn a_wrapper_without_an_event_is_a_diagnostic_that_keeps_the_fact() {
        for payload in [json!("text"), json!(null), json!({"delta": "a"}), json!({"event_type": ""}), json!({"event_type": 7})] {
            for fact in [public(payload.clone()), draft_of(payload.clone())] {
                let draft = last([fact]);
                assert_eq!((draft.payload["kind"].as_str(), draft.audience), (Some("malformed_event"), Audience::Internal));
                assert_eq!(draft.payload["event"]["payload"], payload);
                assert_eq!((&draft.payload["eventType"], draft.payload["event"].get("scopes").is_some()), (&json!("Kind"), true));
            }
        }
        let inner = last([public(event("text_delta", json!({"delta": 7})))]);
        assert_eq!((&inner.payload["kind"], inner.raw_event_ref.is_some()), (&json!("malformed_event"), true));
        let unknown = last([public(event("of_tomorrow", json!({})))]);
        assert_eq!(unknown.payload["kind"], "unknown_event_type");
    }

    #[test]
    fn a_fact_that_is_neither_an_event_nor_a_wrapper_is_rejected() {
        let mut adapter = (crate::source::awaken::SOURCE.fresh)();
        let before = adapter.save();
        for fact in
            [json!({"payload": text("a")}), json!({"draft": {"payload": text("a")}}), json!({"event_kind": 7, "draft": 7})]
        {
            let refused = adapter.adapt(object(fact), &given(), &mut Vec::new()).unwrap_err();
            assert_eq!(refused, FactError::NoType { member: TYPE });
        }
        let bad = public(event("tool_call_start", json!({"id": "x".repeat(257)})));
        let mut out = Vec::new();
        assert_eq!(adapter.adapt(object(bad), &given(), &mut out).unwrap_err().member(), Some("id"));
        assert_eq!((adapter.save(), out), (before, Vec::new()), "a rejected fact changes nothing");
    }
}
