//! Which controls a target can take: the write boundaries of seed 003 as one table, and the reading of a request by it.
//!
//! Pure. What is wrong is told with the member at fault and with what was expected in its place.

use crate::log::LogKind;
use crate::log::control::AskedAction;
use crate::model::{Control, ControlId, Ids};
use data_encoding::HEXLOWER;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a control waits for its owner, unless it or its action says otherwise.
pub const TTL: Duration = Duration::from_hours(24);
/// The longest that one may wait.
pub const TTL_MAX: Duration = Duration::from_hours(30 * 24);

/// What a control may be about, by the members' names.
pub const TARGETS: &[&str] = &["actionId", "toolCallId", "agentId", "taskId", "artifactId", "evidenceId", "messageId"];

/// The action kinds that ask for an answer: approving one would say nothing.
pub const QUESTIONS: &[&str] = &["structured_input", "clarification", "credential_request"];

/// The action kind whose answer is a secret, whatever it looks like.
pub const CREDENTIAL: &str = "credential_request";

/// When a control means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// While the run's attempt goes on.
    Running,
    /// The same, unless it names a teammate, a task or a call, which may outlive the run.
    RunningOrNamed,
    Always,
}

/// What one control needs.
struct Rule {
    control: Control,
    /// In a run: one of these targets, if there are any; `None` where a run does not take it.
    run: Option<&'static [&'static str]>,
    /// The same in a session.
    session: Option<&'static [&'static str]>,
    needs_value: bool,
    when: When,
}

const NOTHING: Option<&[&str]> = Some(&[]);
const ACTION: Option<&[&str]> = Some(&["actionId"]);
const TEAMMATE: Option<&[&str]> = Some(&["agentId", "taskId"]);

#[rustfmt::skip]
const RULES: &[Rule] = &[
    // Input: a new turn, one after those that wait, and a word into the one that goes on are three things.
    Rule { control: Control::Send, run: NOTHING, session: NOTHING, needs_value: true, when: When::Always },
    Rule { control: Control::Queue, run: NOTHING, session: NOTHING, needs_value: true, when: When::Always },
    Rule { control: Control::Steer, run: NOTHING, session: None, needs_value: true, when: When::Running },
    Rule { control: Control::Interrupt, run: NOTHING, session: None, needs_value: false, when: When::Running },
    Rule { control: Control::Delegate, run: NOTHING, session: NOTHING, needs_value: true, when: When::Always },
    Rule { control: Control::Assign, run: Some(&["taskId"]), session: Some(&["taskId"]), needs_value: false, when: When::Always },
    Rule { control: Control::ContinueAgent, run: Some(&["agentId"]), session: Some(&["agentId"]), needs_value: true, when: When::Always },
    Rule { control: Control::Wait, run: NOTHING, session: TEAMMATE, needs_value: false, when: When::Running },
    Rule { control: Control::Stop, run: NOTHING, session: TEAMMATE, needs_value: false, when: When::RunningOrNamed },
    Rule { control: Control::Close, run: TEAMMATE, session: NOTHING, needs_value: false, when: When::Always },
    Rule { control: Control::RequestReview, run: NOTHING, session: NOTHING, needs_value: false, when: When::Always },
    Rule { control: Control::Approve, run: ACTION, session: ACTION, needs_value: false, when: When::Always },
    Rule { control: Control::Reject, run: ACTION, session: ACTION, needs_value: false, when: When::Always },
    Rule { control: Control::Answer, run: ACTION, session: ACTION, needs_value: true, when: When::Always },
    Rule { control: Control::Edit, run: Some(&["actionId", "artifactId"]), session: Some(&["actionId", "artifactId"]), needs_value: true, when: When::Always },
    Rule { control: Control::Retry, run: NOTHING, session: Some(&["agentId", "taskId", "toolCallId", "artifactId"]), needs_value: false, when: When::Always },
    Rule { control: Control::Rollback, run: NOTHING, session: NOTHING, needs_value: false, when: When::Always },
    Rule { control: Control::Export, run: Some(&["artifactId", "evidenceId"]), session: Some(&["artifactId", "evidenceId"]), needs_value: false, when: When::Always },
];

/// Why a control cannot be taken by what it is about.
#[derive(Debug, Clone, PartialEq)]
pub struct Bad {
    /// The member at fault.
    pub member: &'static str,
    pub detail: String,
    pub expected: Value,
}

impl Bad {
    fn new(member: &'static str, detail: impl Into<String>, expected: impl Into<Value>) -> Self {
        Self { member, detail: detail.into(), expected: expected.into() }
    }
}

/// Whether a value says that something is approved: by its `approved`, or by being that itself.
#[must_use]
pub fn approves(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(approved) => Some(*approved),
        other => other.get("approved").and_then(Value::as_bool),
    }
}

/// Until when a control waits, as it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    At(jiff::Timestamp),
    For(Duration),
}

/// A control as it was asked for; what does not depend on how its log stands has been checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish {
    pub id: Option<ControlId>,
    pub control: Control,
    pub targets: BTreeMap<String, String>,
    pub value: Option<Value>,
    pub until: Option<Until>,
}

impl Wish {
    /// Reads a request to a log of this kind; `given` is the id of that log, which the body may repeat.
    ///
    /// # Errors
    /// [`Bad`] for what no such log can take.
    pub fn read(body: Map<String, Value>, kind: LogKind, given: &str, now: jiff::Timestamp) -> Result<Self, Bad> {
        let (mut id, mut control, mut value, mut until) = (None, None, None, None);
        let mut targets = BTreeMap::new();
        let own = if kind == LogKind::Run { "runId" } else { "sessionId" };
        for (member, said) in body {
            match (member.as_str(), said) {
                (_, Value::Null) => {}
                ("control", Value::String(name)) => control = Some(name),
                ("controlId", Value::String(text)) => {
                    id = Some(ControlId::new(&text).map_err(|error| Bad::new("controlId", error.to_string(), "an id"))?);
                }
                ("value", said) => value = Some(said),
                ("expiresAt", Value::String(text)) => until = Some(Until::At(moment(&text, now)?)),
                ("ttlSeconds", Value::Number(seconds)) => until = Some(Until::For(ttl(&seconds)?)),
                (name, Value::String(text)) if TARGETS.contains(&name) => {
                    let name = TARGETS.iter().copied().find(|known| *known == name).unwrap_or_default();
                    Ids::default().set(name, &text).map_err(|error| Bad::new(name, error.to_string(), "an id"))?;
                    targets.insert(member, text);
                }
                (name, Value::String(text)) if name == own && text == given => {}
                (name, said) => return Err(unreadable(name, &said, own, given)),
            }
        }
        let names = || RULES.iter().map(|rule| rule.control.as_str()).collect::<Vec<_>>();
        let Some(name) = control else {
            return Err(Bad::new("control", "control is missing; it says what is to be done", names()));
        };
        if name == Control::OpenDetail.as_str() {
            let detail = "open_detail is a read, and changes nothing that somebody owns; get what you want to see";
            return Err(Bad::new("control", detail, json!(["GET /v1/runs/{runId}/activities", "GET /v1/blobs/{id}"])));
        }
        let Some(rule) = RULES.iter().find(|rule| rule.control.as_str() == name) else {
            return Err(Bad::new("control", format!("nobody knows the control {name:?}"), names()));
        };
        let needs = match kind {
            LogKind::Run => rule.run,
            LogKind::Session => rule.session,
        };
        let Some(needs) = needs else {
            let detail = format!("a session cannot take {name}: it is for the turn that goes on in a run");
            return Err(Bad::new("control", detail, "POST /v1/runs/{runId}/controls"));
        };
        if let (false, Some(first)) = (needs.iter().any(|need| targets.contains_key(*need)), needs.first()) {
            let detail = format!("{name} is about something: name it by {}", needs.join(" or "));
            return Err(Bad::new(first, detail, json!(needs)));
        }
        if rule.needs_value && value.is_none() {
            return Err(Bad::new("value", format!("{name} says nothing without a value"), "a value"));
        }
        let wish = Self { id, control: rule.control.clone(), targets, value, until };
        match wish.value.as_ref().and_then(approves).filter(|says| wish.verdict().is_some_and(|verdict| verdict != *says)) {
            Some(says) => Err(wish.contradiction(&format!("approved: {says}"), says)),
            None => Ok(wish),
        }
    }

    /// Whether it says that what was asked is allowed; `None` for what says neither.
    const fn verdict(&self) -> Option<bool> {
        match self.control {
            Control::Approve => Some(true),
            Control::Reject => Some(false),
            _ => None,
        }
    }

    fn contradiction(&self, what: &str, says: bool) -> Bad {
        let meant = if says { Control::Approve } else { Control::Reject };
        let detail = format!("the control is {} and its value says {what}; send {meant}, or another value", self.control);
        Bad::new("value", detail, format!("a value that says what the control says, or the control {meant}"))
    }

    /// Whether it means something only while the run's attempt goes on.
    #[must_use]
    pub fn is_of_attempt(&self) -> bool {
        let names = ["agentId", "taskId", "toolCallId"].iter().any(|target| self.targets.contains_key(*target));
        match RULES.iter().find(|rule| rule.control == self.control).map(|rule| rule.when) {
            Some(When::Running) => true,
            Some(When::RunningOrNamed) => !names,
            Some(When::Always) | None => false,
        }
    }

    /// Whether it asks for the end of the whole, as far as it says itself.
    #[must_use]
    pub fn asks_for_an_end(&self) -> bool {
        let is_part = ["taskId", "toolCallId"].iter().any(|part| self.targets.contains_key(*part));
        matches!(self.control, Control::Interrupt | Control::Stop) && !is_part
    }

    /// Whether this action can be answered so.
    ///
    /// # Errors
    /// [`Bad`] where approving would say nothing, or where the option that is chosen says the opposite.
    pub fn fits_action(&self, asked: Option<&AskedAction>) -> Result<(), Bad> {
        let chosen = self.value.as_ref().and_then(|value| value.get("optionId")).and_then(Value::as_str);
        let says = chosen.and_then(|chosen| asked?.options.get(chosen).copied());
        if let (Some(says), Some(verdict)) = (says, self.verdict())
            && says != verdict
        {
            return Err(self.contradiction(&format!("option {:?}", chosen.unwrap_or_default()), says));
        }
        let kind = asked.and_then(|asked| asked.kind.as_deref());
        match kind.filter(|kind| self.control == Control::Approve && QUESTIONS.contains(kind)) {
            None => Ok(()),
            Some(kind) => {
                let detail = format!("the action is a {kind}: it asks for an answer, which an approval is not");
                Err(Bad::new("control", detail, json!(["answer", "reject"])))
            }
        }
    }

    /// The hash of what is asked, by its guarded value.
    #[must_use]
    pub fn print(&self, guarded: Option<&Value>) -> String {
        let until = match self.until {
            None => Value::Null,
            Some(Until::At(at)) => at.as_millisecond().into(),
            Some(Until::For(ttl)) => json!([ttl.as_secs()]),
        };
        let mut text = String::new();
        write_sorted(&json!([self.control.as_str(), self.targets, guarded, until]), &mut text);
        HEXLOWER.encode(&Sha256::digest(text)[..16])
    }
}

fn unreadable(name: &str, said: &Value, own: &'static str, given: &str) -> Bad {
    let known = ["control", "controlId", "value", "expiresAt", "ttlSeconds"];
    let known: Vec<_> = known.iter().chain(TARGETS).copied().collect();
    match known.iter().find(|known| **known == name) {
        Some(member) => {
            let expected = if *member == "ttlSeconds" { "a number" } else { "text" };
            Bad::new(member, format!("{member} is {}; it must be {expected}", crate::source::kind_of(said)), expected)
        }
        None if name == own => Bad::new(own, format!("{own} is another one than the address has"), given),
        None => Bad::new("control", format!("a control has no member {name:?}; what it carries goes into value"), json!(known)),
    }
}

/// A value's JSON with the members of objects in order, whatever order they came in.
fn write_sorted(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            out.push('{');
            for (name, value) in members {
                out.push_str(&Value::from(name.as_str()).to_string());
                write_sorted(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_sorted(item, out);
                out.push(',');
            }
            out.push(']');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

fn moment(text: &str, now: jiff::Timestamp) -> Result<jiff::Timestamp, Bad> {
    let expected = "a moment within the next 30 days, as RFC 3339";
    let bad = |why: &str| Bad::new("expiresAt", format!("expiresAt is {text:?}, {why}"), expected);
    let at: jiff::Timestamp = text.parse().map_err(|_| bad("which is no moment"))?;
    let wait = at.as_millisecond() - now.as_millisecond();
    match wait {
        ..=0 => Err(bad("which has passed")),
        _ if wait > i64::try_from(TTL_MAX.as_millis()).unwrap_or(i64::MAX) => Err(bad("which is too far away")),
        _ => Ok(at),
    }
}

fn ttl(seconds: &serde_json::Number) -> Result<Duration, Bad> {
    let max = TTL_MAX.as_secs();
    seconds.as_u64().filter(|seconds| (1..=max).contains(seconds)).map(Duration::from_secs).ok_or_else(|| {
        Bad::new("ttlSeconds", format!("ttlSeconds is {seconds}; it must be 1 to {max}"), format!("a whole number, 1 to {max}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> jiff::Timestamp {
        "2026-11-22T10:00:00Z".parse().unwrap()
    }

    fn read(kind: LogKind, body: Value) -> Result<Wish, Bad> {
        let Value::Object(body) = body else { panic!("{body} is no object") };
        Wish::read(body, kind, "here", now())
    }

    /// The least that each control is taken with, in a run and in a session; null where it is not.
    fn least() -> Vec<(&'static str, Value, Value)> {
        let none = json!({});
        let value = json!({"value": "v"});
        let action = json!({"actionId": "x"});
        let answer = json!({"actionId": "x", "value": "v"});
        let task = json!({"taskId": "x"});
        let artifact = json!({"artifactId": "x"});
        let edit = json!({"artifactId": "x", "value": "v"});
        vec![
            ("send", value.clone(), value.clone()),
            ("queue", value.clone(), value.clone()),
            ("steer", value.clone(), Value::Null),
            ("interrupt", none.clone(), Value::Null),
            ("delegate", value.clone(), value),
            ("assign", task.clone(), task.clone()),
            ("continue_agent", json!({"agentId": "x", "value": "v"}), json!({"agentId": "x", "value": "v"})),
            ("wait", none.clone(), task.clone()),
            ("stop", none.clone(), task.clone()),
            ("close", task.clone(), none.clone()),
            ("request_review", none.clone(), none.clone()),
            ("approve", action.clone(), action.clone()),
            ("reject", action.clone(), action),
            ("answer", answer.clone(), answer),
            ("edit", edit.clone(), edit),
            ("retry", none.clone(), task),
            ("rollback", none.clone(), none),
            ("export", artifact.clone(), artifact),
        ]
    }

    #[test]
    fn every_control_of_the_seed_has_a_rule_but_for_the_one_that_is_a_read() {
        let ruled: Vec<_> = RULES.iter().map(|rule| rule.control.as_str()).chain(["open_detail"]).collect();
        assert_eq!(ruled, Control::NAMES);
        assert_eq!(least().iter().map(|(name, ..)| *name).chain(["open_detail"]).collect::<Vec<_>>(), Control::NAMES);
    }

    #[test]
    fn every_control_is_taken_with_the_least_that_it_needs_and_not_with_any_of_that_missing() {
        for (name, run, session) in least() {
            for (kind, body) in [(LogKind::Run, run), (LogKind::Session, session)] {
                let with = |members: &Value| {
                    let mut body = json!({"control": name});
                    body.as_object_mut().unwrap().extend(members.as_object().cloned().unwrap_or_default());
                    body
                };
                if body.is_null() {
                    let bad = read(kind, with(&json!({"value": "v", "agentId": "x"}))).unwrap_err();
                    assert_eq!((bad.member, bad.expected), ("control", json!("POST /v1/runs/{runId}/controls")), "{name}");
                    continue;
                }
                let wish = read(kind, with(&body)).unwrap_or_else(|bad| panic!("{name}: {bad:?}"));
                assert_eq!(wish.control.as_str(), name);
                for member in body.as_object().unwrap().keys() {
                    let mut lacking = body.clone();
                    lacking.as_object_mut().unwrap().shift_remove(member);
                    assert!(read(kind, with(&lacking)).is_err(), "{name} without {member}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_read_names_the_member_and_what_was_expected() {
        for (body, member) in [
            (json!({}), "control"),
            (json!({"control": 7}), "control"),
            (json!({"control": "explode"}), "control"),
            (json!({"control": "open_detail"}), "control"),
            (json!({"control": "approve"}), "actionId"),
            (json!({"control": "approve", "actionId": ""}), "actionId"),
            (json!({"control": "approve", "actionId": {}}), "actionId"),
            (json!({"control": "answer", "actionId": "a", "value": null}), "value"),
            (json!({"control": "stop", "controlId": "a\nb"}), "controlId"),
            (json!({"control": "stop", "ttlSeconds": 0}), "ttlSeconds"),
            (json!({"control": "stop", "ttlSeconds": 2_592_001}), "ttlSeconds"),
            (json!({"control": "stop", "ttlSeconds": "9"}), "ttlSeconds"),
            (json!({"control": "stop", "expiresAt": "2026-11-22T10:00:00Z"}), "expiresAt"),
            (json!({"control": "stop", "expiresAt": "tomorrow"}), "expiresAt"),
            (json!({"control": "stop", "expiresAt": "2027-11-22T10:00:00Z"}), "expiresAt"),
            (json!({"control": "stop", "runId": "elsewhere"}), "runId"),
            (json!({"control": "stop", "ttl": 7}), "control"),
        ] {
            let bad = read(LogKind::Run, body.clone()).expect_err(&body.to_string());
            assert_eq!(bad.member, member, "{body}: {bad:?}");
            assert!(!bad.expected.is_null(), "{body}");
        }
        let taken = json!({"control": "stop", "runId": "here", "ttlSeconds": 9, "value": {"why": "enough"}, "taskId": null});
        let wish = read(LogKind::Run, taken).unwrap();
        assert_eq!((wish.until, wish.targets.len()), (Some(Until::For(Duration::from_secs(9))), 0));
    }

    #[test]
    fn what_ends_the_run_and_what_ends_with_it_depends_on_what_is_named() {
        let wish = |body: Value| read(LogKind::Run, body).unwrap();
        let told = |body: Value| (wish(body.clone()).is_of_attempt(), wish(body).asks_for_an_end());
        assert_eq!(told(json!({"control": "stop"})), (true, true));
        assert_eq!(told(json!({"control": "stop", "agentId": "a"})), (false, true));
        assert_eq!(told(json!({"control": "stop", "taskId": "t"})), (false, false));
        assert_eq!(told(json!({"control": "interrupt", "toolCallId": "c"})), (true, false));
        assert_eq!(told(json!({"control": "steer", "value": "left"})), (true, false));
        assert_eq!(told(json!({"control": "queue", "value": "later"})), (false, false));
    }

    #[test]
    fn the_print_tells_other_requests_apart_and_not_the_order_of_their_members() {
        let print = |body: Value| {
            let wish = read(LogKind::Run, body).unwrap();
            wish.print(wish.value.as_ref())
        };
        let first = print(json!({"control": "answer", "actionId": "a", "value": {"x": 1, "y": [2, {"b": 3, "a": 4}]}}));
        let same = print(json!({"value": {"y": [2, {"a": 4, "b": 3}], "x": 1}, "actionId": "a", "control": "answer"}));
        assert_eq!((first.len(), &first), (32, &same));
        for other in [
            json!({"control": "answer", "actionId": "b", "value": {"x": 1, "y": [2, {"b": 3, "a": 4}]}}),
            json!({"control": "answer", "actionId": "a", "value": {"x": 1, "y": [2, {"b": 3, "a": 5}]}}),
            json!({"control": "edit", "actionId": "a", "value": {"x": 1, "y": [2, {"b": 3, "a": 4}]}}),
            json!({"control": "answer", "actionId": "a", "ttlSeconds": 1, "value": {"x": 1, "y": [2, {"b": 3, "a": 4}]}}),
        ] {
            assert_ne!(print(other.clone()), first, "{other}");
        }
    }
}
