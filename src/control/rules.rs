//! The rules of controls: the write boundaries of seed 003 as one table, and the parser of requests.
//!
//! Pure. An error names the invalid member and the expected value.

use crate::log::LogKind;
use crate::log::control::PendingAction;
use crate::model::decided_by::person;
use crate::model::json::hash_sorted;
use crate::model::options::{self, Effect, OfferedOption};
use crate::model::{Control, ControlId, Ids, Sequence};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a control waits for its owner, unless the control or its action says otherwise.
pub const TTL: Duration = Duration::from_hours(24);
/// The longest such time.
pub const TTL_MAX: Duration = Duration::from_hours(30 * 24);

/// The members that can name a target.
pub const TARGETS: &[&str] = &["actionId", "toolCallId", "agentId", "taskId", "artifactId", "evidenceId", "messageId"];

/// The action kinds that ask for an answer; an approval would have no meaning.
pub const QUESTIONS: &[&str] = &["structured_input", "clarification", "credential_request"];

/// The action kind whose answer is a secret, regardless of its format.
pub const CREDENTIAL: &str = "credential_request";

/// When a control has a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Validity {
    /// While the run's attempt is active.
    Running,
    /// Like `Running`, unless it names a teammate, a task or a call, which may outlive the run.
    RunningOrNamed,
    Always,
}

/// The requirements of one control.
struct Rule {
    control: Control,
    /// In a run: one of these targets, if the list has any; `None` when a run does not accept the control.
    run: Option<&'static [&'static str]>,
    /// The same for a session.
    session: Option<&'static [&'static str]>,
    needs_value: bool,
    when: Validity,
}

const NOTHING: Option<&[&str]> = Some(&[]);
const ACTION: Option<&[&str]> = Some(&["actionId"]);
const TEAMMATE: Option<&[&str]> = Some(&["agentId", "taskId"]);

#[rustfmt::skip]
const RULES: &[Rule] = &[
    // Three kinds of input: a new turn, a turn queued behind others, and a message to the active turn.
    Rule { control: Control::Send, run: NOTHING, session: NOTHING, needs_value: true, when: Validity::Always },
    Rule { control: Control::Queue, run: NOTHING, session: NOTHING, needs_value: true, when: Validity::Always },
    Rule { control: Control::Steer, run: NOTHING, session: None, needs_value: true, when: Validity::Running },
    Rule { control: Control::Interrupt, run: NOTHING, session: None, needs_value: false, when: Validity::Running },
    Rule { control: Control::Delegate, run: NOTHING, session: NOTHING, needs_value: true, when: Validity::Always },
    Rule { control: Control::Assign, run: Some(&["taskId"]), session: Some(&["taskId"]), needs_value: false, when: Validity::Always },
    Rule { control: Control::ContinueAgent, run: Some(&["agentId"]), session: Some(&["agentId"]), needs_value: true, when: Validity::Always },
    Rule { control: Control::Wait, run: NOTHING, session: TEAMMATE, needs_value: false, when: Validity::Running },
    Rule { control: Control::Stop, run: NOTHING, session: TEAMMATE, needs_value: false, when: Validity::RunningOrNamed },
    Rule { control: Control::Close, run: TEAMMATE, session: NOTHING, needs_value: false, when: Validity::Always },
    Rule { control: Control::RequestReview, run: NOTHING, session: NOTHING, needs_value: false, when: Validity::Always },
    Rule { control: Control::Approve, run: ACTION, session: ACTION, needs_value: false, when: Validity::Always },
    Rule { control: Control::Reject, run: ACTION, session: ACTION, needs_value: false, when: Validity::Always },
    Rule { control: Control::Answer, run: ACTION, session: ACTION, needs_value: true, when: Validity::Always },
    Rule { control: Control::Edit, run: Some(&["actionId", "artifactId"]), session: Some(&["actionId", "artifactId"]), needs_value: true, when: Validity::Always },
    Rule { control: Control::Retry, run: NOTHING, session: Some(&["agentId", "taskId", "toolCallId", "artifactId"]), needs_value: false, when: Validity::Always },
    Rule { control: Control::Rollback, run: NOTHING, session: NOTHING, needs_value: false, when: Validity::Always },
    Rule { control: Control::Export, run: Some(&["artifactId", "evidenceId"]), session: Some(&["artifactId", "evidenceId"]), needs_value: false, when: Validity::Always },
];

/// Why a request is not a valid control.
#[derive(Debug, Clone, PartialEq)]
pub struct InvalidControl {
    /// The invalid member.
    pub member: &'static str,
    pub detail: String,
    pub expected: Value,
}

impl InvalidControl {
    fn new(member: &'static str, detail: impl Into<String>, expected: impl Into<Value>) -> Self {
        Self { member, detail: detail.into(), expected: expected.into() }
    }
}

/// The approval in a value: its member `approved`, or the value itself if it is a boolean.
#[must_use]
pub fn approval_of(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(approved) => Some(*approved),
        other => other.get("approved").and_then(Value::as_bool),
    }
}

/// The requested expiry of a control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    At(jiff::Timestamp),
    After(Duration),
}

/// A control request. Everything that does not depend on the log's state is checked.
#[derive(Debug, Clone, PartialEq)]
pub struct ControlRequest {
    pub id: Option<ControlId>,
    pub control: Control,
    pub targets: BTreeMap<String, String>,
    pub value: Option<Value>,
    pub expiry: Option<Expiry>,
    /// Whether a `send` supersedes the actions of its agent that are pending.
    pub supersede: bool,
    /// The last envelope of the question that the requester saw.
    pub seen: Option<Sequence>,
    /// The person for whom the requester decides.
    pub on_behalf_of: Option<Box<str>>,
    /// The version of the question that the requester was shown.
    pub version: Option<u32>,
    /// The step of a rule by which the server decides.
    pub rule: Option<RuleDecision>,
}

/// The step of a rule by which the server decides, as it fell due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleDecision {
    /// When the steps of the action began to count, in milliseconds since 1970.
    pub since: i64,
    /// The steps that were done before.
    pub steps: u32,
    /// Whether the runtime asks for the decision at the deadline of the action.
    pub at_deadline: bool,
}

impl ControlRequest {
    /// A request that the server makes for an existing client.
    #[must_use]
    pub fn new(id: ControlId, control: Control, targets: BTreeMap<String, String>, value: Option<Value>) -> Self {
        Self { id: Some(id), value, ..Self::of(control, targets) }
    }

    /// A request without a value, by an id that the server makes.
    #[must_use]
    pub const fn of(control: Control, targets: BTreeMap<String, String>) -> Self {
        Self {
            id: None,
            control,
            targets,
            value: None,
            expiry: None,
            supersede: false,
            seen: None,
            on_behalf_of: None,
            version: None,
            rule: None,
        }
    }

    /// Parses a request to a log of this kind; `given` is the id of the log, which the body may repeat.
    ///
    /// # Errors
    /// [`InvalidControl`] for a request that no log of this kind accepts.
    pub fn parse(body: Map<String, Value>, kind: LogKind, given: &str, now: jiff::Timestamp) -> Result<Self, InvalidControl> {
        let (mut id, mut control, mut value, mut expiry, mut supersede) = (None, None, None, None, false);
        let (mut seen, mut on_behalf_of) = (None, None);
        let mut targets = BTreeMap::new();
        let own = if kind == LogKind::Run { "runId" } else { "sessionId" };
        for (member, item) in body {
            match (member.as_str(), item) {
                (_, Value::Null) => {}
                ("control", Value::String(name)) => control = Some(name),
                ("controlId", Value::String(text)) => {
                    id = Some(
                        ControlId::new(&text).map_err(|error| InvalidControl::new("controlId", error.to_string(), "an id"))?,
                    );
                }
                ("value", item) => value = Some(item),
                ("expiresAt", Value::String(text)) => expiry = Some(Expiry::At(parse_expires_at(&text, now)?)),
                ("onBehalfOf", Value::String(name)) if !name.is_empty() => on_behalf_of = Some(person(&name)),
                ("seenSequence", Value::Number(sequence)) if sequence.is_u64() => seen = sequence.as_u64().map(Sequence),
                ("ttlSeconds", Value::Number(seconds)) => expiry = Some(Expiry::After(parse_ttl(&seconds)?)),
                ("supersede", Value::Bool(asked)) => supersede = asked,
                (name, Value::String(text)) if TARGETS.contains(&name) => {
                    let name = TARGETS.iter().copied().find(|known| *known == name).unwrap_or_default();
                    Ids::default().set(name, &text).map_err(|error| InvalidControl::new(name, error.to_string(), "an id"))?;
                    targets.insert(member, text);
                }
                (name, Value::String(text)) if name == own && text == given => {}
                (name, item) => return Err(unreadable_member(name, &item, own, given)),
            }
        }
        let names = || RULES.iter().map(|rule| rule.control.as_str()).collect::<Vec<_>>();
        let Some(name) = control else {
            return Err(InvalidControl::new("control", "control is missing; name the control to perform", names()));
        };
        if name == Control::OpenDetail.as_str() {
            let detail = "open_detail reads and changes nothing; send a GET request instead";
            return Err(InvalidControl::new("control", detail, json!(["GET /v1/runs/{runId}/activities", "GET /v1/blobs/{id}"])));
        }
        let Some(rule) = RULES.iter().find(|rule| rule.control.as_str() == name) else {
            return Err(InvalidControl::new(
                "control",
                format!("the control {name:?} is unknown; use one of the listed names"),
                names(),
            ));
        };
        let needs = match kind {
            LogKind::Run => rule.run,
            LogKind::Session => rule.session,
        };
        let Some(needs) = needs else {
            let detail = format!("a session cannot take {name}, because it needs the active turn of a run; send it to the run");
            return Err(InvalidControl::new("control", detail, "POST /v1/runs/{runId}/controls"));
        };
        if let (false, Some(first)) = (needs.iter().any(|need| targets.contains_key(*need)), needs.first()) {
            let detail = format!("{name} needs a target; name it by {}", needs.join(" or "));
            return Err(InvalidControl::new(first, detail, json!(needs)));
        }
        if rule.needs_value && value.is_none() {
            return Err(InvalidControl::new("value", format!("{name} needs a value; send the member value"), "a value"));
        }
        if supersede && rule.control != Control::Send {
            let detail = format!("{name} supersedes no action; send the member supersede with the control send only");
            return Err(InvalidControl::new("supersede", detail, "the control send"));
        }
        let control = rule.control.clone();
        let request = Self { id, control, targets, value, expiry, supersede, seen, on_behalf_of, version: None, rule: None };
        match request
            .value
            .as_ref()
            .and_then(approval_of)
            .filter(|says| request.approval().is_some_and(|approval| approval != *says))
        {
            Some(says) => Err(request.contradiction(&format!("approved: {says}"), says)),
            None => Ok(request),
        }
    }

    /// Whether the control decides an action.
    #[must_use]
    pub fn decides(&self) -> bool {
        self.control.decides() && self.targets.contains_key("actionId")
    }

    /// The values that say the same as this request's value, if it says no more than yes or no.
    #[must_use]
    pub fn plain_verdicts(&self) -> Vec<Option<Value>> {
        let is_plain = match &self.value {
            None | Some(Value::Bool(_)) => true,
            Some(Value::Object(members)) => members.len() == 1 && members.contains_key("approved"),
            Some(_) => false,
        };
        match self.approval().filter(|_| is_plain) {
            Some(approved) => vec![None, Some(approved.into()), Some(json!({ "approved": approved }))],
            None => Vec::new(),
        }
    }

    /// Whether the control allows or rejects the request; `None` for one that does neither.
    const fn approval(&self) -> Option<bool> {
        match self.control {
            Control::Approve => Some(true),
            Control::Reject => Some(false),
            _ => None,
        }
    }

    fn contradiction(&self, what: &str, says: bool) -> InvalidControl {
        let meant = if says { Control::Approve } else { Control::Reject };
        let detail = format!("the control is {}, but its value says {what}; send {meant}, or another value", self.control);
        InvalidControl::new("value", detail, format!("a value that agrees with the control, or the control {meant}"))
    }

    /// Whether the control has a meaning only while the run's attempt is active.
    #[must_use]
    pub fn is_attempt_bound(&self) -> bool {
        let names = ["agentId", "taskId", "toolCallId"].iter().any(|target| self.targets.contains_key(*target));
        match RULES.iter().find(|rule| rule.control == self.control).map(|rule| rule.when) {
            Some(Validity::Running) => true,
            Some(Validity::RunningOrNamed) => !names,
            Some(Validity::Always) | None => false,
        }
    }

    /// Whether the control asks to end the whole run, judged by its own members.
    #[must_use]
    pub fn ends_run(&self) -> bool {
        let is_part = ["taskId", "toolCallId"].iter().any(|part| self.targets.contains_key(*part));
        matches!(self.control, Control::Interrupt | Control::Stop) && !is_part
    }

    /// Checks whether this control can answer the action. Returns the option that a control takes which names none.
    ///
    /// # Errors
    /// [`InvalidControl`] when an approval has no meaning, when the selected option contradicts the control, and when an
    /// approval must name its option because none allows only once.
    pub fn check_action(&self, asked: Option<&PendingAction>) -> Result<Option<Box<str>>, InvalidControl> {
        let Some(asked) = asked else { return Ok(None) };
        let named = self.named_option(asked);
        let says = named.and_then(|named| asked.option(named)?.effect.approval());
        if let (Some(says), Some(approval)) = (says, self.approval())
            && says != approval
        {
            return Err(self.contradiction(&format!("option {:?}", named.unwrap_or_default()), says));
        }
        let kind = asked.kind.as_deref().filter(|kind| self.control == Control::Approve && QUESTIONS.contains(kind));
        if let Some(kind) = kind {
            let detail = format!("the action is a {kind}: it needs an answer, and an approval gives none; send answer or reject");
            return Err(InvalidControl::new("control", detail, json!(["answer", "reject"])));
        }
        self.choose_option(asked, named)
    }

    /// The option that the value names: by `optionId`, or as a text that is an option's id.
    fn named_option(&self, asked: &PendingAction) -> Option<&str> {
        let value = self.value.as_ref()?;
        let whole = value.as_str().filter(|text| asked.option(text).is_some());
        value.get("optionId").and_then(Value::as_str).or(whole)
    }

    /// The narrowest option of a decision that names none. `None`: the runtime's own yes or no.
    fn choose_option(&self, asked: &PendingAction, named: Option<&str>) -> Result<Option<Box<str>>, InvalidControl> {
        // A runtime judges an option that it did not offer.
        let is_plain = named.is_none() && options::decide(&asked.options);
        let Some(approval) = self.approval().filter(|_| is_plain) else { return Ok(None) };
        match options::plain_choice(&asked.options, approval) {
            Some(option) => Ok(Some(option.id.clone())),
            None if !approval => Ok(None),
            None => {
                let agrees = |option: &&OfferedOption| option.effect != Effect::Reject;
                let ids: Vec<&str> = asked.options.iter().filter(agrees).map(|option| &*option.id).collect();
                let detail = "the action has no option that allows it once; name one of its options in value.optionId";
                Err(InvalidControl::new("value", detail, ids))
            }
        }
    }

    /// The hash of the request, with its redacted value.
    #[must_use]
    pub fn fingerprint(&self, guarded: Option<&Value>) -> String {
        let expiry = match self.expiry {
            None => Value::Null,
            Some(Expiry::At(at)) => at.as_millisecond().into(),
            Some(Expiry::After(ttl)) => json!([ttl.as_secs()]),
        };
        hash_sorted(&json!([self.control.as_str(), self.targets, guarded, expiry]))
    }
}

fn unreadable_member(name: &str, value: &Value, own: &'static str, given: &str) -> InvalidControl {
    let known = ["control", "controlId", "value", "expiresAt", "ttlSeconds", "supersede", "seenSequence", "onBehalfOf"];
    let known: Vec<_> = known.iter().chain(TARGETS).copied().collect();
    match known.iter().find(|known| **known == name) {
        Some(member) => {
            let expected = match *member {
                "ttlSeconds" | "seenSequence" => "a number",
                "supersede" => "a boolean",
                _ => "text",
            };
            InvalidControl::new(member, format!("{member} is {}; it must be {expected}", crate::source::kind_of(value)), expected)
        }
        None if name == own => InvalidControl::new(own, format!("{own} differs from the one in the address"), given),
        None => {
            InvalidControl::new("control", format!("a control has no member {name:?}; put the data into value"), json!(known))
        }
    }
}

fn parse_expires_at(text: &str, now: jiff::Timestamp) -> Result<jiff::Timestamp, InvalidControl> {
    let expected = "a time within the next 30 days, as RFC 3339";
    let bad = |why: &str| InvalidControl::new("expiresAt", format!("expiresAt is {text:?}, {why}"), expected);
    let at: jiff::Timestamp = text.parse().map_err(|_| bad("which is not a time"))?;
    let wait = at.as_millisecond() - now.as_millisecond();
    match wait {
        ..=0 => Err(bad("which is in the past")),
        _ if wait > i64::try_from(TTL_MAX.as_millis()).unwrap_or(i64::MAX) => Err(bad("which is too far away")),
        _ => Ok(at),
    }
}

fn parse_ttl(seconds: &serde_json::Number) -> Result<Duration, InvalidControl> {
    let max = TTL_MAX.as_secs();
    seconds.as_u64().filter(|seconds| (1..=max).contains(seconds)).map(Duration::from_secs).ok_or_else(|| {
        InvalidControl::new(
            "ttlSeconds",
            format!("ttlSeconds is {seconds}; it must be 1 to {max}"),
            format!("a whole number, 1 to {max}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::options::Width;

    fn now() -> jiff::Timestamp {
        "2026-11-22T10:00:00Z".parse().unwrap()
    }

    fn read(kind: LogKind, body: Value) -> Result<ControlRequest, InvalidControl> {
        let Value::Object(body) = body else { panic!("{body} is no object") };
        ControlRequest::parse(body, kind, "here", now())
    }

    /// The minimal body of each control, in a run and in a session; null where it is not accepted.
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
    fn every_control_of_the_seed_except_open_detail_has_a_rule() {
        let ruled: Vec<_> = RULES.iter().map(|rule| rule.control.as_str()).chain(["open_detail"]).collect();
        assert_eq!(ruled, Control::NAMES);
        assert_eq!(least().iter().map(|(name, ..)| *name).chain(["open_detail"]).collect::<Vec<_>>(), Control::NAMES);
    }

    #[test]
    fn every_control_is_accepted_with_its_minimal_body_and_refused_without_any_member_of_it() {
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
                let request = read(kind, with(&body)).unwrap_or_else(|bad| panic!("{name}: {bad:?}"));
                assert_eq!(request.control.as_str(), name);
                for member in body.as_object().unwrap().keys() {
                    let mut lacking = body.clone();
                    lacking.as_object_mut().unwrap().shift_remove(member);
                    assert!(read(kind, with(&lacking)).is_err(), "{name} without {member}");
                }
            }
        }
    }

    #[test]
    fn an_error_names_the_invalid_member_and_the_expected_value() {
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
            (json!({"control": "send", "value": "x", "supersede": "yes"}), "supersede"),
            (json!({"control": "queue", "value": "x", "supersede": true}), "supersede"),
            (json!({"control": "steer", "value": "x", "supersede": true}), "supersede"),
        ] {
            let bad = read(LogKind::Run, body.clone()).expect_err(&body.to_string());
            assert_eq!(bad.member, member, "{body}: {bad:?}");
            assert!(!bad.expected.is_null(), "{body}");
        }
        let taken = json!({"control": "stop", "runId": "here", "ttlSeconds": 9, "value": {"why": "enough"}, "taskId": null});
        let request = read(LogKind::Run, taken).unwrap();
        assert_eq!((request.expiry, request.targets.len()), (Some(Expiry::After(Duration::from_secs(9))), 0));
    }

    fn asked(options: &[(&str, Effect, Width)]) -> PendingAction {
        let options =
            options.iter().map(|(id, effect, width)| OfferedOption { id: (*id).into(), effect: *effect, width: *width });
        PendingAction {
            action: "x".parse().unwrap(),
            agent: None,
            kind: Some("tool_approval".into()),
            expires_at: None,
            options: options.collect(),
        }
    }

    const ONCE: (&str, Effect, Width) = ("once", Effect::Allow, Width::Once);
    const ALWAYS: (&str, Effect, Width) = ("always", Effect::Allow, Width::Always);
    const MAYBE: (&str, Effect, Width) = ("maybe", Effect::Allow, Width::Unknown);
    const NO: (&str, Effect, Width) = ("no", Effect::Reject, Width::Once);
    const NEVER: (&str, Effect, Width) = ("never", Effect::Reject, Width::Always);
    const OTHER: (&str, Effect, Width) = ("other", Effect::Answer, Width::Unknown);

    fn decide(control: &str, value: Value, offered: &[(&str, Effect, Width)]) -> Result<Option<Box<str>>, Value> {
        let request = read(LogKind::Run, json!({"control": control, "actionId": "x", "value": value})).unwrap();
        request.check_action(Some(&asked(offered))).map_err(|invalid| invalid.expected)
    }

    #[test]
    fn an_approval_without_an_option_takes_the_one_that_allows_once_or_is_refused() {
        let chosen = |offered: &[_]| decide("approve", Value::Null, offered);
        assert_eq!(chosen(&[ONCE, ALWAYS, NO]), Ok(Some("once".into())));
        assert_eq!(chosen(&[MAYBE, NO]), Ok(Some("maybe".into())), "the only one, of unknown width");
        assert_eq!(chosen(&[ALWAYS, NO]), Err(json!(["always"])));
        assert_eq!(chosen(&[ALWAYS, MAYBE, NO]), Err(json!(["always", "maybe"])));
        assert_eq!(chosen(&[NO, OTHER]), Err(json!(["other"])));
        assert_eq!((chosen(&[]), chosen(&[OTHER])), (Ok(None), Ok(None)), "without options, as the runtime has it");
        assert_eq!(decide("approve", json!({"note": "fine"}), &[ONCE, ALWAYS]), Ok(Some("once".into())));
        assert_eq!(decide("approve", json!("fine"), &[ALWAYS]), Err(json!(["always"])));
    }

    #[test]
    fn a_rejection_without_an_option_always_works_and_takes_the_narrowest() {
        assert_eq!(decide("reject", Value::Null, &[ONCE, NO, NEVER]), Ok(Some("no".into())));
        assert_eq!(decide("reject", json!({"reason": "no"}), &[ONCE, NEVER]), Ok(Some("never".into())));
        assert_eq!(decide("reject", Value::Null, &[ONCE, OTHER]), Ok(None));
        assert_eq!(decide("reject", Value::Null, &[]), Ok(None));
    }

    #[test]
    fn a_named_option_stays_and_must_agree_with_the_control() {
        let all = [ONCE, ALWAYS, NO];
        assert_eq!(decide("approve", json!({"optionId": "always"}), &all), Ok(None), "a wider yes is named");
        assert_eq!(decide("approve", json!("always"), &all), Ok(None));
        assert_eq!(decide("approve", json!({"optionId": "bogus"}), &all), Ok(None), "the runtime judges it");
        assert!(decide("approve", json!({"optionId": "no"}), &all).is_err());
        assert!(decide("reject", json!("once"), &all).is_err());
    }

    #[test]
    fn the_targets_decide_whether_a_control_ends_the_run_and_whether_it_ends_with_it() {
        let request = |body: Value| read(LogKind::Run, body).unwrap();
        let kinds = |body: Value| (request(body.clone()).is_attempt_bound(), request(body).ends_run());
        assert_eq!(kinds(json!({"control": "stop"})), (true, true));
        assert_eq!(kinds(json!({"control": "stop", "agentId": "a"})), (false, true));
        assert_eq!(kinds(json!({"control": "stop", "taskId": "t"})), (false, false));
        assert_eq!(kinds(json!({"control": "interrupt", "toolCallId": "c"})), (true, false));
        assert_eq!(kinds(json!({"control": "steer", "value": "left"})), (true, false));
        assert_eq!(kinds(json!({"control": "queue", "value": "later"})), (false, false));
    }

    #[test]
    fn the_fingerprint_differs_by_request_and_not_by_the_order_of_members() {
        let fingerprint = |body: Value| {
            let request = read(LogKind::Run, body).unwrap();
            request.fingerprint(request.value.as_ref())
        };
        let first = fingerprint(json!({"control": "answer", "actionId": "a", "value": {"x": 1, "y": [2, {"b": 3, "a": 4}]}}));
        let same = fingerprint(json!({"value": {"y": [2, {"a": 4, "b": 3}], "x": 1}, "actionId": "a", "control": "answer"}));
        assert_eq!((first.len(), &first), (32, &same));
        for other in [
            json!({"control": "answer", "actionId": "b", "value": {"x": 1, "y": [2, {"b": 3, "a": 4}]}}),
            json!({"control": "answer", "actionId": "a", "value": {"x": 1, "y": [2, {"b": 3, "a": 5}]}}),
            json!({"control": "edit", "actionId": "a", "value": {"x": 1, "y": [2, {"b": 3, "a": 4}]}}),
            json!({"control": "answer", "actionId": "a", "ttlSeconds": 1, "value": {"x": 1, "y": [2, {"b": 3, "a": 4}]}}),
        ] {
            assert_ne!(fingerprint(other.clone()), first, "{other}");
        }
    }
}
