//! The operator's rules of retention: `[[retention]]` of the configuration.
//!
//! Pure: which sessions and runs a rule is about, and from when on. `serve::maintenance::retain` finds what is due, for the
//! task that does it and for the dry run alike.

use crate::auth::rights::Scope;
use crate::environment::sabotage;
use crate::model::SessionOwner;
use crate::source::ledger::Status;
use crate::waits::{After, OneOrMore};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// Rules of one server, and of one dry run.
pub const RETENTION_RULES_MAX: usize = 64;
/// Patterns of owners of one rule.
pub const OWNER_PATTERNS_MAX: usize = 64;
/// Of what a rule is due for, and of what a hold keeps: the oldest that a dry run names at most.
pub const DRY_RUN_NAMED_MAX: u64 = 1000;
/// The longest time after which a rule acts: a hundred years.
pub const RETENTION_AFTER_MAX: Duration = Duration::from_hours(36_500 * 24);
/// The statuses that a rule may name: those of a run that has ended.
const ENDED: [Status; 4] = [Status::Completed, Status::Failed, Status::Cancelled, Status::Interrupted];

/// Why a rule is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("[[retention]] {rule}: {key}: {what}")]
pub struct InvalidRetentionRule {
    /// The rule's number, from 1, its name, and its line.
    pub rule: String,
    pub key: &'static str,
    pub what: String,
}

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RetentionAction {
    /// Removes from ended runs what mattered only while they were live.
    Compact,
    /// Erases whole sessions, and runs without a session.
    Erase,
}

/// A rule as the configuration has it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RetentionTable {
    name: Option<String>,
    owner: Option<OneOrMore>,
    status: Option<OneOrMore>,
    after: Option<After>,
    then: Option<RetentionAction>,
    #[serde(default)]
    confirm: bool,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionRule {
    pub name: Box<str>,
    pub owner: Scope,
    /// Empty: any.
    pub status: Vec<Status>,
    pub after: Duration,
    pub then: RetentionAction,
}

/// The rules of one server, in the order of the configuration. The first one that is due acts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetentionRules(pub Vec<RetentionRule>);

impl RetentionRules {
    /// Checks rules, each with its line in its file. `acts`: they are to act, so a rule that would erase everything needs
    /// `confirm = true`.
    ///
    /// # Errors
    /// [`InvalidRetentionRule`], for the first rule that is not valid.
    pub fn new(tables: Vec<(RetentionTable, Option<usize>)>, acts: bool) -> Result<Self, InvalidRetentionRule> {
        if tables.len() > RETENTION_RULES_MAX {
            let what = format!("there are {} rules; there may be {RETENTION_RULES_MAX}", tables.len());
            return Err(InvalidRetentionRule { rule: (RETENTION_RULES_MAX + 1).to_string(), key: "retention", what });
        }
        let (mut rules, mut names) = (Vec::new(), BTreeSet::new());
        for (index, (table, line)) in tables.into_iter().enumerate() {
            let shown = rule_shown(index + 1, table.name.as_deref(), line);
            let invalid = |(key, what)| InvalidRetentionRule { rule: shown.clone(), key, what };
            let rule = table.into_rule(index + 1, acts).map_err(invalid)?;
            if !names.insert(rule.name.clone()) {
                return Err(invalid(("name", "another rule has this name; give each rule its own".into())));
            }
            rules.push(rule);
        }
        Ok(Self(rules))
    }
}

/// A rule, as errors name it.
#[must_use]
pub fn rule_shown(number: usize, name: Option<&str>, line: Option<usize>) -> String {
    let name = name.map(|name| format!(" ({name})")).unwrap_or_default();
    let line = line.map(|line| format!(", line {line}")).unwrap_or_default();
    format!("{number}{name}{line}")
}

impl RetentionTable {
    fn into_rule(self, number: usize, acts: bool) -> Result<RetentionRule, (&'static str, String)> {
        let name = self.name.unwrap_or_else(|| format!("retention-{number}"));
        if name.is_empty() || name.chars().count() > crate::model::decided_by::PERSON_CHARS_MAX {
            return Err(("name", "it must have 1 to 256 characters".into()));
        }
        let Some(then) = self.then else {
            return Err(("then", "the rule does nothing; set it to compact or erase".into()));
        };
        let Some(After(after)) = self.after else {
            return Err(("after", "the rule is never due; set the time since the last activity, such as 30d".into()));
        };
        if after.is_zero() || after > RETENTION_AFTER_MAX {
            let what = format!("it is {} s; it must be from 1 s to {} s", after.as_secs(), RETENTION_AFTER_MAX.as_secs());
            return Err(("after", what));
        }
        let owner = self.owner.map(scope_of).transpose().map_err(|what| ("owner", what))?.unwrap_or(Scope::All);
        let status = self.status.map(statuses_of).transpose().map_err(|what| ("status", what))?.unwrap_or_default();
        let takes_all = owner.names_all() && (status.is_empty() || ENDED.iter().all(|ended| status.contains(ended)));
        if acts && then == RetentionAction::Erase && takes_all && !self.confirm {
            let what = "the rule would erase everything: it names no owner and no status; name some, or set confirm = true";
            return Err(("confirm", what.into()));
        }
        Ok(RetentionRule { name: name.into(), owner, status, after, then })
    }
}

fn scope_of(owners: OneOrMore) -> Result<Scope, String> {
    let owners: Vec<String> = owners.into();
    match owners.len() {
        0 => Err("it names no owner; remove it, or name some".into()),
        1..=OWNER_PATTERNS_MAX => {
            let owners = owners.iter().map(|owner| owner.as_str().into()).collect();
            Scope::of_patterns(owners)
        }
        count => Err(format!("it has {count} patterns; it may have {OWNER_PATTERNS_MAX}")),
    }
}

fn statuses_of(names: OneOrMore) -> Result<Vec<Status>, String> {
    let names: Vec<String> = names.into();
    let known = ENDED.map(Status::as_str).join(", ");
    if names.is_empty() {
        return Err(format!("it names no status; remove it, or name some of {known}"));
    }
    let status = |name: &String| {
        let found = ENDED.into_iter().find(|status| status.as_str() == name);
        found.ok_or_else(|| format!("{name:?} is no status of a run that has ended; use some of {known}"))
    };
    names.iter().map(status).collect()
}

impl RetentionRule {
    /// Whether the rule is about what this owner has. Without patterns, it is also about what no owner has.
    #[must_use]
    pub fn takes_owner(&self, owner: SessionOwner<'_>) -> bool {
        match owner {
            _ if self.owner.names_all() => true,
            SessionOwner::Of(owner) => self.owner.contains(owner.as_str()),
            SessionOwner::Absent | SessionOwner::Unowned => false,
        }
    }

    /// Whether the rule is about a run, or a session, with this status.
    #[must_use]
    pub fn takes_status(&self, status: Status) -> bool {
        self.status.is_empty() || self.status.contains(&status)
    }

    /// When the rule is due for what was active last at this time. Both are in milliseconds since 1970.
    #[must_use]
    pub fn due_at(&self, last_activity: i64) -> i64 {
        let after = if sabotage::is(60) { self.after / 2 } else { self.after };
        last_activity.saturating_add(i64::try_from(after.as_millis()).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn rules(tables: &Value, acts: bool) -> Result<RetentionRules, String> {
        let tables: Vec<RetentionTable> = serde_json::from_value(tables.clone()).map_err(|error| error.to_string())?;
        let tables = tables.into_iter().map(|table| (table, Some(7))).collect();
        RetentionRules::new(tables, acts).map_err(|error| error.to_string())
    }

    #[test]
    fn a_rule_that_cannot_work_is_refused_with_its_number_line_key_and_what_is_wrong() {
        let refused = |rule: Value| rules(&json!([rule]), true).expect_err(&format!("{rule} is refused"));
        for (rule, says) in [
            (json!({"after": "30d"}), "[[retention]] 1, line 7: then: the rule does nothing"),
            (json!({"then": "erase"}), "after: the rule is never due"),
            (json!({"name": "n", "after": 0, "then": "compact"}), "[[retention]] 1 (n), line 7: after: it is 0 s"),
            (json!({"after": "40000d", "then": "compact"}), "after: it is 3456000000 s; it must be from 1 s to 3153600000 s"),
            (json!({"after": "30d", "then": "erase"}), "confirm: the rule would erase everything"),
            (json!({"owner": "*", "after": "30d", "then": "erase"}), "confirm: the rule would erase everything"),
            (
                json!({"status": ["completed", "failed", "cancelled", "interrupted"], "after": "30d", "then": "erase"}),
                "confirm: the rule would erase everything",
            ),
            (json!({"owner": "ac*me", "after": "30d", "then": "erase"}), "owner: \"ac*me\" has a `*` before its end"),
            (json!({"owner": [], "after": "30d", "then": "erase"}), "owner: it names no owner"),
            (json!({"owner": "", "after": "30d", "then": "erase"}), "owner: "),
            (json!({"status": "running", "after": "30d", "then": "erase"}), "status: \"running\" is no status of a run that has"),
            (json!({"status": [], "after": "30d", "then": "erase"}), "status: it names no status"),
            (json!({"name": "", "after": "30d", "then": "compact"}), "name: it must have 1 to 256"),
            (json!({"after": "-5s", "then": "compact"}), "\"-5s\" is no duration"),
            (json!({"after": -5, "then": "compact"}), "a duration such as 90s, 15m, 24h or 30d"),
            (json!({"after": "30d", "then": "archive"}), "unknown variant `archive`"),
            (json!({"after": "30d", "then": "compact", "owners": "x"}), "unknown field `owners`"),
        ] {
            let error = refused(rule);
            assert!(error.contains(says), "{error}");
        }
        let twice = json!({"name": "n", "after": "1h", "then": "compact"});
        assert!(rules(&json!([twice, twice]), true).unwrap_err().contains("[[retention]] 2 (n), line 7: name: another rule"));
        let many = json!(vec![json!({"after": "1h", "then": "compact"}); RETENTION_RULES_MAX + 1]);
        assert!(rules(&many, true).unwrap_err().contains("65 rules"));
    }

    #[test]
    fn a_rule_takes_its_owners_and_statuses_and_one_without_takes_all() {
        let all = json!([
            {"owner": ["acme", "test/*"], "status": "failed", "after": "1h", "then": "erase"},
            {"after": 90, "then": "erase", "confirm": true},
        ]);
        let RetentionRules(rules) = rules(&all, true).unwrap();
        let owner = |name: &str| name.parse::<crate::model::OwnerId>().unwrap();
        let takes = |rule: usize, name: &str| rules[rule].takes_owner(SessionOwner::Of(&owner(name)));
        assert_eq!([takes(0, "acme"), takes(0, "test/a"), takes(0, "acme2"), takes(1, "acme2")], [true, true, false, true]);
        assert_eq!([rules[0].takes_owner(SessionOwner::Unowned), rules[1].takes_owner(SessionOwner::Unowned)], [false, true]);
        assert_eq!([rules[0].takes_status(Status::Failed), rules[0].takes_status(Status::Completed)], [true, false]);
        assert_eq!((rules[1].due_at(1000), &*rules[1].name), (91_000, "retention-2"));
    }

    #[test]
    fn what_only_shows_needs_no_confirmation() {
        assert!(rules(&json!([{"after": "30d", "then": "erase"}]), false).is_ok());
    }
}
