//! The operator's rules for actions that wait: `[[waits]]` of the configuration.
//!
//! Pure: which rules match an action, which step of them is due, and whether a decision of the server is allowed. Later
//! modules do it: the summary of a log has the number of steps done, and the controls have the decisions.
//!
//! A fact can make a wait stricter and never laxer: only a rule allows that the server approves an action, and no rule
//! allows it for an action whose risk is high or not stated.

use crate::model::{ActionKind, AgentId};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// Rules of one server.
pub const RULES_MAX: usize = 256;
/// Patterns of one member of a rule, and receivers of one rule.
pub const PATTERNS_MAX: usize = 64;
/// The most approvals that an action can need.
pub const APPROVALS_MAX: u32 = 16;
/// The longest time after which a step is due.
pub const AFTER_MAX: Duration = Duration::from_hours(366 * 24);
/// The risks at which the server may approve. Every other word counts as high.
pub const APPROVABLE_RISKS: [&str; 2] = ["low", "medium"];

/// Why a rule is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[[waits]] {rule}: {key}: {what}")]
pub struct InvalidRule {
    /// The rule's name and number, from 1.
    pub rule: String,
    pub key: &'static str,
    pub what: String,
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Then {
    /// The server rejects.
    Reject,
    /// The server approves.
    Approve,
    /// Further receivers are told.
    Escalate,
    /// The receivers are told again.
    Remind,
}

/// A decision of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitVerdict {
    Reject,
    Approve,
}

/// A rule as the configuration has it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RuleTable {
    name: Option<String>,
    #[serde(default)]
    agent: Patterns,
    #[serde(default)]
    kind: Patterns,
    #[serde(default)]
    tool: Patterns,
    #[serde(default)]
    risk: Patterns,
    after: Option<After>,
    then: Option<Then>,
    #[serde(default)]
    to: OneOrMore,
    #[serde(default)]
    allow_approve: bool,
    approvals: Option<u32>,
}

/// Texts that match exactly or, with `*` at their end, by their beginning. Without a pattern, everything matches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "OneOrMore")]
struct Patterns(Vec<String>);

impl Patterns {
    fn matches(&self, text: Option<&str>) -> bool {
        let matches = |pattern: &String| {
            text.is_some_and(|text| match pattern.strip_suffix('*') {
                Some(beginning) => text.starts_with(beginning),
                None => text == *pattern,
            })
        };
        self.0.is_empty() || self.0.iter().any(matches)
    }
}

impl From<OneOrMore> for Patterns {
    fn from(texts: OneOrMore) -> Self {
        Self(texts.into())
    }
}

/// One text, or a list of them.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "text, or a list of texts")]
pub(crate) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl From<OneOrMore> for Vec<String> {
    fn from(texts: OneOrMore) -> Self {
        match texts {
            OneOrMore::One(text) => vec![text],
            OneOrMore::More(texts) => texts,
        }
    }
}

impl Default for OneOrMore {
    fn default() -> Self {
        Self::More(Vec::new())
    }
}

/// A duration of the configuration: `90s`, `15m`, `24h`, `30d`, or a number of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct After(pub(crate) Duration);

impl<'de> Deserialize<'de> for After {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a duration such as 90s, 15m, 24h or 30d, or a number of seconds")]
        enum Form {
            Seconds(u64),
            Text(String),
        }
        match Form::deserialize(from)? {
            Form::Seconds(seconds) => Ok(Self(Duration::from_secs(seconds))),
            Form::Text(text) => parse_duration(&text).map(Self).map_err(D::Error::custom),
        }
    }
}

/// Reads `90s`, `15m`, `24h`, `30d`, or a number of seconds.
///
/// # Errors
/// What the text should be.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3600),
        Some((at, 'd')) => (&text[..at], 86_400),
        _ => (text, 1),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    let bad = || format!("{text:?} is no duration; write one such as 90s, 15m, 24h or 30d, or a number of seconds");
    seconds.map(Duration::from_secs).ok_or_else(bad)
}

/// A rule. What it does not name matches everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitRule {
    pub name: Box<str>,
    agent: Patterns,
    kind: Patterns,
    tool: Patterns,
    risk: Patterns,
    step: Option<(Duration, Then)>,
    /// The names of webhooks, or `push` for people's devices.
    pub to: Vec<Box<str>>,
    allows_approve: bool,
    /// At least 1.
    approvals: u32,
}

/// What the rules must know of a pending action. Times are milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingAction {
    /// The agent that takes the decision.
    pub agent: AgentId,
    pub kind: Option<Box<str>>,
    pub tool: Option<Box<str>>,
    /// Whether it is about a call whose tool is not known.
    pub is_tool_unknown: bool,
    pub risk: Option<Box<str>>,
    /// What its runtime asks for at the deadline.
    pub on_expiry: Option<WaitVerdict>,
    /// When its steps began to count.
    pub since: i64,
    pub expires_at: Option<i64>,
    /// The number of steps that were done.
    pub steps: u32,
    /// Whether a decision is under way.
    pub is_decided: bool,
    /// The approvals that its runtime asks for.
    pub approvals: u32,
}

/// What is due for an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DueStep<'r> {
    /// Its deadline has passed, and the server decides nothing.
    Expire,
    /// Its deadline has passed, and its runtime asks for this decision. An approval has the rule that allows it.
    AtDeadline(WaitVerdict, Option<&'r WaitRule>),
    Decide(WaitVerdict, &'r WaitRule),
    Remind(&'r WaitRule),
    Escalate(&'r WaitRule),
}

/// The rules of one server, in the order of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaitRules(Vec<WaitRule>);

impl WaitRules {
    /// Checks the rules of a configuration. `is_receiver` tells whether a name is that of a webhook, and `has_tokens`
    /// whether the server tells by tokens who approves.
    ///
    /// Whether enough people may decide is not checked: the server knows a person by the token of a request only.
    ///
    /// # Errors
    /// [`InvalidRule`], for the first rule that is not valid.
    pub fn new(tables: Vec<RuleTable>, is_receiver: impl Fn(&str) -> bool, has_tokens: bool) -> Result<Self, InvalidRule> {
        if tables.len() > RULES_MAX {
            let what = format!("the file has {} rules; it may have {RULES_MAX}", tables.len());
            return Err(InvalidRule { rule: (RULES_MAX + 1).to_string(), key: "waits", what });
        }
        let (mut rules, mut names) = (Vec::new(), BTreeSet::new());
        for (index, table) in tables.into_iter().enumerate() {
            let rule = table.into_rule(index + 1, &is_receiver, has_tokens)?;
            if !names.insert(rule.name.clone()) {
                let what = "another rule has this name; give each rule its own".to_owned();
                return Err(InvalidRule { rule: format!("{} ({})", index + 1, rule.name), key: "name", what });
            }
            rules.push(rule);
        }
        Ok(Self(rules))
    }

    fn matching(&self, action: &WaitingAction) -> impl Iterator<Item = &WaitRule> {
        self.0.iter().filter(|rule| rule.matches(action))
    }

    /// The steps of an action, in the order of their times. An approval is no step of an action that the server may not
    /// approve.
    fn steps(&self, action: &WaitingAction) -> Vec<(Duration, Then, &WaitRule)> {
        let steps = self.matching(action).filter_map(|rule| rule.step.map(|(after, then)| (after, then, rule)));
        let mut steps: Vec<_> = steps.collect();
        steps.retain(|(_, then, _)| *then != Then::Approve || self.may_approve(action));
        // Of one time, the rules keep their order.
        steps.sort_by_key(|(after, ..)| *after);
        steps
    }

    /// The approvals that an action needs: the largest number that its runtime or a rule asks for.
    #[must_use]
    pub fn approvals(&self, action: &WaitingAction) -> u32 {
        // A tool that is not known may be each.
        let may_match = |rule: &&WaitRule| rule.matches_but_tool(action) && (action.is_tool_unknown || rule.matches(action));
        self.0.iter().filter(may_match).map(|rule| rule.approvals).fold(action.approvals.max(1), u32::max)
    }

    /// The largest number of approvals that a rule asks for, for an action of which nothing is known.
    #[must_use]
    pub fn approvals_max(&self) -> u32 {
        self.0.iter().map(|rule| rule.approvals).fold(1, u32::max)
    }

    /// Whether the server may approve an action, if a rule says so: its risk is stated, and not high, and one approval is
    /// enough.
    fn may_approve(&self, action: &WaitingAction) -> bool {
        let is_low = action.risk.as_deref().is_some_and(|risk| APPROVABLE_RISKS.contains(&risk));
        is_low && self.approvals(action) == 1
    }

    fn next_step(&self, action: &WaitingAction) -> Option<(i64, Then, &WaitRule)> {
        if action.is_decided {
            return None;
        }
        let (after, then, rule) = self.steps(action).into_iter().nth(usize::try_from(action.steps).ok()?)?;
        let after = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
        Some((action.since.saturating_add(after), then, rule))
    }

    /// When something is due for an action: its deadline, or its next step. In milliseconds since 1970.
    #[must_use]
    pub fn next_at(&self, action: &WaitingAction) -> Option<i64> {
        self.next_step(action).map(|(at, ..)| at).into_iter().chain(action.expires_at).min()
    }

    /// What is due for an action. A deadline that has passed comes before steps.
    #[must_use]
    pub fn due(&self, action: &WaitingAction, now: i64) -> Option<DueStep<'_>> {
        if action.expires_at.is_some_and(|at| at <= now) {
            let allowing = || self.matching(action).find(|rule| rule.allows_approve && self.may_approve(action));
            return Some(match action.on_expiry {
                _ if action.is_decided => DueStep::Expire,
                Some(WaitVerdict::Reject) => DueStep::AtDeadline(WaitVerdict::Reject, None),
                Some(WaitVerdict::Approve) => {
                    allowing().map_or(DueStep::Expire, |rule| DueStep::AtDeadline(WaitVerdict::Approve, Some(rule)))
                }
                None => DueStep::Expire,
            });
        }
        let (_, then, rule) = self.next_step(action).filter(|(at, ..)| *at <= now)?;
        Some(match then {
            Then::Reject => DueStep::Decide(WaitVerdict::Reject, rule),
            Then::Approve => DueStep::Decide(WaitVerdict::Approve, rule),
            Then::Escalate => DueStep::Escalate(rule),
            Then::Remind => DueStep::Remind(rule),
        })
    }
}

impl WaitRule {
    fn matches(&self, action: &WaitingAction) -> bool {
        self.matches_but_tool(action) && self.tool.matches(action.tool.as_deref())
    }

    fn matches_but_tool(&self, action: &WaitingAction) -> bool {
        self.agent.matches(Some(action.agent.as_str()))
            && self.kind.matches(action.kind.as_deref())
            && self.risk.matches(action.risk.as_deref())
    }
}

impl RuleTable {
    fn into_rule(self, number: usize, is_receiver: &impl Fn(&str) -> bool, has_tokens: bool) -> Result<WaitRule, InvalidRule> {
        let name = self.name.clone().unwrap_or_else(|| format!("waits-{number}"));
        let shown = if self.name.is_some() { format!("{number} ({name})") } else { number.to_string() };
        let invalid = |key, what: String| InvalidRule { rule: shown.clone(), key, what };
        let step = match (self.after, self.then) {
            (Some(After(after)), Some(then)) if after.is_zero() || after > AFTER_MAX => {
                let what = format!("{then} is due after {} s; it must be from 1 s to {} s", after.as_secs(), AFTER_MAX.as_secs());
                return Err(invalid("after", what));
            }
            (Some(After(after)), Some(then)) => Some((after, then)),
            (None, Some(then)) => return Err(invalid("then", format!("{then} needs the time after which it is due; set after"))),
            (Some(_), None) => return Err(invalid("after", "the rule does nothing then; set then".into())),
            (None, None) if self.allow_approve || self.approvals.is_some() => None,
            (None, None) => {
                return Err(invalid("then", "the rule does nothing; set after and then, allow-approve, or approvals".into()));
            }
        };
        if name.is_empty() || name.chars().count() > crate::model::decided_by::PERSON_CHARS_MAX {
            return Err(invalid("name", "it must have 1 to 256 characters".into()));
        }
        let patterns = [("agent", &self.agent), ("kind", &self.kind), ("tool", &self.tool), ("risk", &self.risk)];
        for (key, Patterns(patterns)) in patterns {
            if patterns.len() > PATTERNS_MAX {
                return Err(invalid(key, format!("it has {} patterns; it may have {PATTERNS_MAX}", patterns.len())));
            }
            if let Some(pattern) = patterns.iter().find(|pattern| is_hopeless(pattern)) {
                return Err(invalid(key, format!("{pattern:?} matches nothing; write a text, or a beginning with * at its end")));
            }
        }
        if let Some(kind) = self.kind.0.iter().find(|kind| !matches_any(kind, ActionKind::NAMES)) {
            let known = ActionKind::NAMES.join(", ");
            return Err(invalid("kind", format!("{kind:?} matches no kind of action; use one of {known}")));
        }
        if self.agent.0.iter().any(|agent| !agent.ends_with('*') && AgentId::new(agent).is_err()) {
            return Err(invalid("agent", format!("{:?} has a text that no agent can have as its id", self.agent.0)));
        }
        let approvals = self.approvals.unwrap_or(1);
        if !(1..=APPROVALS_MAX).contains(&approvals) {
            return Err(invalid("approvals", format!("it is {approvals}; it must be from 1 to {APPROVALS_MAX}")));
        }
        if approvals > 1 && !has_tokens {
            let what = "counting people needs tokens; set auth-key, auth-jwks or auth-issuer, or remove approvals";
            return Err(invalid("approvals", what.into()));
        }
        if approvals > 1 && self.allow_approve {
            let what = "the server is none of the people who approve; remove allow-approve, or approvals";
            return Err(invalid("approvals", what.into()));
        }
        let approves = self.then == Some(Then::Approve);
        if approves && !self.allow_approve {
            return Err(invalid("then", "the server approves only with allow-approve = true in the same rule".into()));
        }
        if let Some(risk) = self.risk.0.iter().find(|risk| !APPROVABLE_RISKS.contains(&risk.as_str()))
            && self.allow_approve
        {
            let allowed = APPROVABLE_RISKS.join(" and ");
            return Err(invalid("risk", format!("the server never approves a risk {risk:?}; allow-approve covers {allowed}")));
        }
        if self.allow_approve && self.risk.0.is_empty() {
            let what =
                "allow-approve needs the risks that it covers: the server never approves a high risk, or one that is not stated";
            return Err(invalid("risk", format!("{what}; set risk to low, medium, or both")));
        }
        let Patterns(to) = self.to.into();
        let tells = matches!(self.then, Some(Then::Escalate | Then::Remind));
        if !to.is_empty() && !tells {
            return Err(invalid("to", "only escalate and remind have receivers; remove it".into()));
        }
        if to.is_empty() && self.then == Some(Then::Escalate) {
            return Err(invalid("to", "escalate needs receivers; name webhooks, or push".into()));
        }
        if to.len() > PATTERNS_MAX {
            return Err(invalid("to", format!("it has {} receivers; it may have {PATTERNS_MAX}", to.len())));
        }
        if let Some(unknown) = to.iter().find(|name| !is_receiver(name)) {
            return Err(invalid("to", format!("{unknown:?} is neither push nor the name of a webhook of this configuration")));
        }
        let RuleTable { agent, kind, tool, risk, allow_approve, .. } = self;
        let to = to.into_iter().map(Into::into).collect();
        Ok(WaitRule { name: name.into(), agent, kind, tool, risk, step, to, allows_approve: allow_approve, approvals })
    }
}

/// Whether no text matches the pattern.
fn is_hopeless(pattern: &str) -> bool {
    pattern.is_empty() || pattern.trim_end_matches('*').contains('*') || pattern.ends_with("**")
}

fn matches_any(pattern: &str, names: &[&str]) -> bool {
    let pattern = Patterns(vec![pattern.to_owned()]);
    names.iter().any(|name| pattern.matches(Some(name)))
}

impl fmt::Display for Then {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reject => "reject",
            Self::Approve => "approve",
            Self::Escalate => "escalate",
            Self::Remind => "remind",
        })
    }
}

/// The approvals that a question asks for, and whether that is a number that it may ask for.
///
/// A larger one counts as [`APPROVALS_MAX`], and what is no whole number as one.
#[must_use]
pub fn approvals_of(stated: &serde_json::Value) -> (u32, bool) {
    let number = stated.as_u64().unwrap_or(0);
    let approvals = u32::try_from(number).unwrap_or(u32::MAX).clamp(1, APPROVALS_MAX);
    (approvals, u64::from(approvals) == number)
}

/// The risk as rules compare it.
#[must_use]
pub fn risk_of(stated: &str) -> Box<str> {
    stated.trim().to_lowercase().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn rules(tables: &Value) -> Result<WaitRules, String> {
        let tables = serde_json::from_value(tables.clone()).map_err(|error| error.to_string())?;
        WaitRules::new(tables, |name| name == "pager", true).map_err(|error| error.to_string())
    }

    fn action(risk: Option<&str>, steps: u32) -> WaitingAction {
        WaitingAction {
            agent: AgentId::new("coder").unwrap(),
            kind: Some("tool_approval".into()),
            tool: Some("rm".into()),
            is_tool_unknown: false,
            risk: risk.map(Into::into),
            on_expiry: None,
            since: 1000,
            expires_at: None,
            steps,
            is_decided: false,
            approvals: 1,
        }
    }

    #[test]
    fn the_matching_rules_are_the_steps_of_an_action_in_the_order_of_their_times() {
        let rules = rules(&json!([
            {"name": "give-up", "agent": "cod*", "tool": ["rm", "mv"], "after": "2h", "then": "reject"},
            {"name": "others", "agent": "writer", "after": "1s", "then": "reject"},
            {"name": "nudge", "kind": "tool_*", "after": "15m", "then": "remind"},
            {"name": "wake", "after": 3600, "then": "escalate", "to": ["pager"]},
        ]))
        .unwrap();
        let next = |steps| rules.next_step(&action(None, steps)).map(|(at, then, rule)| (at, then, rule.name.to_string()));
        assert_eq!(next(0), Some((901_000, Then::Remind, "nudge".into())));
        assert_eq!(next(1), Some((3_601_000, Then::Escalate, "wake".into())));
        assert_eq!(next(2), Some((7_201_000, Then::Reject, "give-up".into())));
        assert_eq!(next(3), None);
        assert_eq!(rules.due(&action(None, 0), 900_999), None);
        assert_eq!(rules.next_at(&WaitingAction { expires_at: Some(7), ..action(None, 0) }), Some(7));
        assert_eq!(rules.next_at(&WaitingAction { is_decided: true, ..action(None, 0) }), None);
    }

    #[test]
    fn a_fact_cannot_loosen_a_wait_and_an_approval_needs_a_rule_and_a_low_risk() {
        let none = WaitRules::default();
        let allowing =
            rules(&json!([{"name": "lax", "agent": "coder", "risk": ["low", "medium"], "allow-approve": true}])).unwrap();
        let at_deadline = |rules: &WaitRules, risk, on_expiry| {
            let action = WaitingAction { on_expiry, expires_at: Some(5), ..action(risk, 0) };
            match rules.due(&action, 5) {
                Some(DueStep::AtDeadline(verdict, rule)) => Some((verdict, rule.map(|rule| rule.name.to_string()))),
                Some(DueStep::Expire) => None,
                other => panic!("{other:?}"),
            }
        };
        let approve = Some(WaitVerdict::Approve);
        assert_eq!(at_deadline(&none, Some("low"), approve), None);
        for risk in [None, Some("high"), Some("critical"), Some("lowish"), Some("")] {
            assert_eq!(at_deadline(&allowing, risk, approve), None, "{risk:?}");
        }
        assert_eq!(at_deadline(&allowing, Some("low"), approve), Some((WaitVerdict::Approve, Some("lax".into()))));
        assert_eq!(at_deadline(&none, None, Some(WaitVerdict::Reject)), Some((WaitVerdict::Reject, None)));
        assert_eq!(at_deadline(&allowing, Some("low"), None), None);
    }

    #[test]
    fn the_larger_number_of_approvals_counts_and_with_several_the_server_never_approves() {
        let rules = rules(&json!([
            {"tool": "rm", "approvals": 3},
            {"approvals": 2},
            {"risk": "low", "after": "1h", "then": "approve", "allow-approve": true},
        ]))
        .unwrap();
        let of = |tool: &str, approvals| WaitingAction { tool: Some(tool.into()), approvals, ..action(Some("low"), 0) };
        assert_eq!([("rm", 0), ("rm", 5), ("ls", 1)].map(|(tool, asked)| rules.approvals(&of(tool, asked))), [3, 5, 2]);
        assert_eq!(rules.next_at(&of("ls", 1)), None);
        let unknown = WaitingAction { tool: None, is_tool_unknown: true, ..of("", 1) };
        assert_eq!(rules.approvals(&unknown), 3, "it may be the tool of the rule");
        let without = json!([{"approvals": 2}]);
        let error = WaitRules::new(serde_json::from_value(without).unwrap(), |_| false, false).unwrap_err().to_string();
        assert!(error.contains("[[waits]] 1: approvals: counting people needs tokens"), "{error}");
    }

    #[test]
    fn a_rule_that_cannot_work_is_refused_with_its_name_its_key_and_what_is_wrong() {
        let refused = |rule: Value| rules(&json!([rule])).expect_err(&format!("{rule} is refused"));
        for (rule, says) in [
            (json!({"then": "reject"}), "[[waits]] 1: then: reject needs the time"),
            (json!({"name": "n", "after": "1h"}), "[[waits]] 1 (n): after: the rule does nothing"),
            (json!({"name": "n"}), "[[waits]] 1 (n): then: the rule does nothing"),
            (json!({"after": 0, "then": "remind"}), "after: remind is due after 0 s"),
            (json!({"after": "367d", "then": "remind"}), "after: remind is due after 31708800 s"),
            (json!({"after": "1h", "then": "approve", "risk": "low"}), "then: the server approves only with allow-approve"),
            (json!({"after": "1h", "then": "approve", "allow-approve": true}), "risk: allow-approve needs the risks"),
            (json!({"allow-approve": true, "risk": ["low", "high"]}), "risk: the server never approves a risk \"high\""),
            (json!({"allow-approve": true, "risk": "*"}), "risk: the server never approves a risk \"*\""),
            (json!({"after": "1h", "then": "remind", "kind": "tool_aproval"}), "kind: \"tool_aproval\" matches no kind"),
            (json!({"after": "1h", "then": "remind", "tool": "r*m"}), "tool: \"r*m\" matches nothing"),
            (json!({"after": "1h", "then": "remind", "tool": ""}), "tool: \"\" matches nothing"),
            (json!({"after": "1h", "then": "escalate"}), "to: escalate needs receivers"),
            (json!({"after": "1h", "then": "escalate", "to": "pagr"}), "to: \"pagr\" is neither push nor the name of"),
            (json!({"after": "1h", "then": "reject", "to": "pager"}), "to: only escalate and remind have receivers"),
            (json!({"approvals": 0}), "approvals: it is 0; it must be from 1 to 16"),
            (json!({"approvals": 17}), "approvals: it is 17"),
            (json!({"approvals": 2, "allow-approve": true, "risk": "low"}), "approvals: the server is none of the people"),
            (json!({"name": "", "after": "1h", "then": "reject"}), "name: it must have 1 to 256"),
        ] {
            let error = refused(rule);
            assert!(error.contains(says), "{error}");
        }
        for (rule, says) in [
            (json!({"after": "soon", "then": "reject"}), "\"soon\" is no duration"),
            (json!({"after": "1h", "then": "allow"}), "unknown variant `allow`"),
            (json!({"after": "1h", "then": "reject", "agents": "x"}), "unknown field `agents`"),
            (json!({"after": true, "then": "reject"}), "a duration such as 90s"),
        ] {
            let error = refused(rule);
            assert!(error.contains(says), "{error}");
        }
        let twice = json!({"name": "n", "after": "1h", "then": "reject"});
        assert!(rules(&json!([twice, twice])).unwrap_err().contains("[[waits]] 2 (n): name: another rule"));
        assert!(rules(&json!(vec![json!({"after": "1h", "then": "reject"}); RULES_MAX + 1])).unwrap_err().contains("257 rules"));
    }
}
