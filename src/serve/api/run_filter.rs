//! The filter of runs: the language of the page's Events panel, read once into types.
//!
//! ```text
//!   status:failed,waiting agent:code* -source:acp cost:>1 duration:5m..1h since:7d "disk space"
//! ```
//!
//! Terms of one name, and the values of one term, are alternatives. All other terms must hold. A minus excludes. `*`
//! stands for any characters, and case does not count. A value with spaces stands in quotation marks. Words without a name
//! are looked up in titles and texts.

use crate::log::control::DEFAULT_AGENT;
use crate::log::figures::nanos;
use crate::log::run_index::IndexedRun;
use crate::model::{AgentId, Audience, OwnerId, SessionId};
use crate::search::{QUERY_WORDS_MAX, WordQuery};
use crate::serve::http::problem::Problem;
use crate::serve::http::request::quoted;
use crate::source::ledger::Status;
use serde_json::Value;

/// Values of all terms of one filter.
pub const FILTER_VALUES_MAX: usize = 64;

/// The names of terms, each with what its value may be.
const TERMS: &[(&str, &str)] = &[
    ("status", "accepted, running, waiting, completed, failed, cancelled, interrupted or unknown"),
    ("agent", "an agent's id; * stands for any characters"),
    ("source", "a source's name, such as acp; * stands for any characters"),
    ("session", "a session's id; * stands for any characters"),
    ("run", "a run's id; * stands for any characters"),
    ("owner", "an owner's name; * stands for any characters"),
    ("cost", "dollars with a comparison, such as >1, <=0.5 or 1..5"),
    ("tokens", "a number with a comparison, such as >10k, <=2M or 1k..5k"),
    ("duration", "a time with a comparison, such as >5m, <=90s or 1m..1h"),
    ("since", "a time back from now, such as 90s, 15m, 24h or 7d, or a date such as 2026-11-01"),
];

/// The filter of a list of runs.
#[derive(Debug, Default)]
pub struct RunFilter {
    status: Choice<Status>,
    agent: Choice<Pattern>,
    source: Choice<Pattern>,
    session: Choice<Pattern>,
    run: Choice<Pattern>,
    owner: Choice<Pattern>,
    /// In billionths of a dollar.
    cost: Choice<Bounds>,
    tokens: Choice<Bounds>,
    /// In milliseconds.
    duration: Choice<Bounds>,
    /// The earliest start, in milliseconds since 1970.
    since: Choice<i64>,
    /// What the texts or the title of a run must have.
    pub words: Option<WordQuery>,
}

/// Which conditions a run meets. The facet of a condition counts the runs that meet all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a condition of its own")]
pub struct Judgement {
    pub status: bool,
    pub agent: bool,
    pub source: bool,
    pub owner: bool,
    /// All conditions without a facet.
    pub others: bool,
}

impl Judgement {
    /// Whether the run is in the list.
    #[must_use]
    pub const fn is_met(self) -> bool {
        self.status && self.agent && self.source && self.owner && self.others
    }
}

/// The terms of one name.
#[derive(Debug)]
struct Choice<T> {
    /// One of these must hold; empty: no condition.
    wanted: Vec<T>,
    /// None of these may hold.
    excluded: Vec<T>,
}

impl<T> Default for Choice<T> {
    fn default() -> Self {
        Self { wanted: Vec::new(), excluded: Vec::new() }
    }
}

impl<T> Choice<T> {
    fn accepts(&self, holds: impl Fn(&T) -> bool) -> bool {
        (self.wanted.is_empty() || self.wanted.iter().any(&holds)) && !self.excluded.iter().any(&holds)
    }

    fn add(&mut self, is_excluded: bool, value: T) {
        if is_excluded { self.excluded.push(value) } else { self.wanted.push(value) }
    }
}

/// A text in which `*` stands for any characters.
#[derive(Debug)]
struct Pattern(Box<str>);

impl Pattern {
    fn matches(&self, text: &str) -> bool {
        let (pattern, text) = (self.0.as_bytes(), text.as_bytes());
        // The place after the last `*`, and the text that it stands for so far.
        let (mut at, mut read, mut star) = (0, 0, None);
        while read < text.len() {
            match pattern.get(at) {
                Some(b'*') => {
                    at += 1;
                    star = Some((at, read));
                }
                Some(byte) if byte.eq_ignore_ascii_case(&text[read]) => (at, read) = (at + 1, read + 1),
                _ => match &mut star {
                    Some((after, until)) => {
                        *until += 1;
                        (at, read) = (*after, *until);
                    }
                    None => return false,
                },
            }
        }
        pattern[at..].iter().all(|byte| *byte == b'*')
    }
}

/// A range of numbers, with both ends.
#[derive(Debug, PartialEq, Eq)]
struct Bounds {
    min: u64,
    max: u64,
}

impl Bounds {
    /// Reads a comparison. `number` reads a number with its unit.
    fn parse(text: &str, number: impl Fn(&str) -> Option<u64>) -> Option<Self> {
        let all = Self { min: 0, max: u64::MAX };
        if let Some((min, max)) = text.split_once("..") {
            return Some(Self { min: number(min)?, max: number(max)? });
        }
        let (comparison, value) = text.split_at(text.find(|c| !matches!(c, '<' | '>' | '='))?);
        let value = number(value)?;
        match comparison {
            ">" => Some(Self { min: value.saturating_add(1), ..all }),
            ">=" => Some(Self { min: value, ..all }),
            // Nothing is below 0: the range is empty.
            "<" if value == 0 => Some(Self { min: 1, max: 0 }),
            "<" => Some(Self { max: value - 1, ..all }),
            "<=" => Some(Self { max: value, ..all }),
            _ => None,
        }
    }

    const fn has(&self, value: u64) -> bool {
        self.min <= value && value <= self.max
    }
}

/// A decimal number of at least 0, times its unit.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates, and the number is at least 0"
)]
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
    let (_, scale) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    let number: f64 = number.parse().ok()?;
    Some((number * scale).round() as u64)
}

fn dollars_of(text: &str) -> Option<u64> {
    let number = text.strip_prefix('$').unwrap_or(text);
    let is_decimal = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    number.parse().ok().filter(|_| is_decimal).and_then(nanos)
}

fn tokens_of(text: &str) -> Option<u64> {
    scaled(text, &[("", 1.0), ("k", 1e3), ("M", 1e6)])
}

fn millis_of(text: &str) -> Option<u64> {
    scaled(text, &[("ms", 1.0), ("s", 1e3), ("m", 6e4), ("h", 3.6e6), ("d", 8.64e7), ("w", 6.048e8)])
}

/// A time back from now, or a date or time, in milliseconds since 1970.
#[must_use]
pub fn since_of(text: &str, now: jiff::Timestamp) -> Option<i64> {
    if let Some(back) = millis_of(text) {
        return Some(now.as_millisecond().saturating_sub(i64::try_from(back).ok()?));
    }
    let of_date = || Some(text.parse::<jiff::civil::Date>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp());
    text.parse().ok().or_else(of_date).map(jiff::Timestamp::as_millisecond)
}

/// One term of a filter's text.
struct Term<'f> {
    text: &'f str,
    is_excluded: bool,
    /// `None`: a word.
    name: Option<&'f str>,
    value: &'f str,
    is_quoted: bool,
}

/// Takes the next term from a text without leading spaces.
fn take_term<'f>(rest: &mut &'f str) -> Result<Term<'f>, Problem> {
    let whole = *rest;
    let after_minus = whole.strip_prefix('-').unwrap_or(whole);
    let named =
        after_minus.split_once(':').filter(|(name, _)| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic()));
    let from = named.map_or(after_minus, |(_, value)| value);
    let (value, after) = match from.strip_prefix('"') {
        Some(quoted_text) => quoted_text
            .split_once('"')
            .ok_or_else(|| refused(whole, "Its quotation mark is not closed", "a closing quotation mark"))?,
        None => from.split_at(from.find(char::is_whitespace).unwrap_or(from.len())),
    };
    *rest = after;
    let text = &whole[..whole.len() - after.len()];
    let (is_excluded, name) = (whole.len() > after_minus.len(), named.map(|(name, _)| name));
    Ok(Term { text, is_excluded, name, value, is_quoted: from.starts_with('"') })
}

/// 400 for a term that cannot be read.
fn refused(term: &str, why: &str, expected: &str) -> Problem {
    let detail = format!("The filter has the term {}. {why}; expected is {expected}.", quoted(term));
    Problem::bad_request("bad_query", detail).with("term", term.chars().take(64).collect::<String>()).with("expected", expected)
}

impl RunFilter {
    /// Reads a filter.
    ///
    /// # Errors
    /// 400, which names the term and what is allowed. The caller adds the member of the query.
    pub fn parse(text: &str, now: jiff::Timestamp) -> Result<Self, Problem> {
        let (mut filter, mut words, mut values) = (Self::default(), Vec::new(), 0);
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let term = take_term(&mut rest)?;
            rest = rest.trim_start();
            match term.name {
                None if term.is_excluded => {
                    return Err(refused(term.text, "Words cannot be excluded", "a word without a minus, or a name"));
                }
                None => words.push(term.value),
                Some(name) => {
                    // A value in quotation marks may have a comma.
                    let ends = |c: char| c == ',' && !term.is_quoted;
                    for value in term.value.split(ends) {
                        values += 1;
                        filter.add(&term, name, value, now)?;
                    }
                }
            }
            if values > FILTER_VALUES_MAX {
                let detail =
                    format!("The filter has more than {FILTER_VALUES_MAX} values, the limit. Use fewer, or patterns with *.");
                return Err(Problem::bad_request("bad_query", detail).with("limit", FILTER_VALUES_MAX));
            }
        }
        if !words.is_empty() {
            let parsed = WordQuery::parse(&words.join(" ")).map_err(|count| {
                let detail = format!("The filter has {count} different words. The limit is {QUERY_WORDS_MAX}.");
                Problem::bad_request("bad_query", detail).with("limit", QUERY_WORDS_MAX)
            })?;
            filter.words = Some(parsed);
        }
        Ok(filter)
    }

    fn add(&mut self, term: &Term<'_>, name: &str, value: &str, now: jiff::Timestamp) -> Result<(), Problem> {
        let Some((_, expected)) = TERMS.iter().find(|(known, _)| *known == name) else {
            let names = TERMS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            let expected = format!("one of {names}, or a text in quotation marks");
            return Err(refused(term.text, &format!("It has the name {name:?}, which is none of a filter"), &expected));
        };
        let added = self.try_add(name, term.is_excluded, value, now);
        added.ok_or_else(|| refused(term.text, &format!("The value {} is none of {name}", quoted(value)), expected))
    }

    /// `None` for a value that the term cannot have.
    fn try_add(&mut self, name: &str, is_excluded: bool, value: &str, now: jiff::Timestamp) -> Option<()> {
        let patterns = match name {
            "agent" => Some(&mut self.agent),
            "source" => Some(&mut self.source),
            "session" => Some(&mut self.session),
            "run" => Some(&mut self.run),
            "owner" => Some(&mut self.owner),
            _ => None,
        };
        match (name, patterns) {
            (_, Some(patterns)) => patterns.add(is_excluded, Some(Pattern(value.into())).filter(|_| !value.is_empty())?),
            ("status", _) => {
                let status = Status::ALL.into_iter().find(|status| status.as_str().eq_ignore_ascii_case(value));
                self.status.add(is_excluded, status?);
            }
            ("cost", _) => self.cost.add(is_excluded, Bounds::parse(value, dollars_of)?),
            ("tokens", _) => self.tokens.add(is_excluded, Bounds::parse(value, tokens_of)?),
            ("duration", _) => self.duration.add(is_excluded, Bounds::parse(value, millis_of)?),
            _ => self.since.add(is_excluded, since_of(value, now)?),
        }
        Some(())
    }

    /// Which conditions a run meets, as an audience sees it. Words are the caller's.
    #[must_use]
    pub fn judge(&self, run: &IndexedRun<'_>, audience: Audience) -> Judgement {
        let pattern =
            |choice: &Choice<Pattern>, text: Option<&str>| choice.accepts(|of| text.is_some_and(|text| of.matches(text)));
        let bounds = |choice: &Choice<Bounds>, value: Option<u64>| choice.accepts(|of| value.is_some_and(|value| of.has(value)));
        let usage = run.usage(audience).unwrap_or_default();
        let others = pattern(&self.session, run.session().map(SessionId::as_str))
            && pattern(&self.run, Some(run.run().as_str()))
            && bounds(&self.cost, usage.cost_nanos)
            && bounds(&self.tokens, usage.tokens())
            && bounds(&self.duration, run.duration())
            && self.since.accepts(|since| run.started().is_some_and(|started| started >= *since));
        Judgement {
            status: self.status.accepts(|status| *status == run.status(audience)),
            agent: pattern(&self.agent, Some(agent_name(run))),
            source: pattern(&self.source, run.source()),
            owner: pattern(&self.owner, run.owner().map(OwnerId::as_str)),
            others,
        }
    }
}

/// The agent of a run. Runs that name none are of the default agent.
#[must_use]
pub fn agent_name<'t>(run: &IndexedRun<'t>) -> &'t str {
    run.agent().map_or(DEFAULT_AGENT, AgentId::as_str)
}

/// 400 of a filter, with the member of the query that has it.
#[must_use]
pub fn of_member(problem: Problem, member: &'static str) -> Problem {
    problem.with("member", Value::from(member))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::figures::RunFigures;
    use crate::log::run_index::RunIndex;
    use crate::log::summary::Summary;
    use crate::model::{Draft, EventType};
    use crate::source::ledger::RunState;
    use serde_json::json;
    use std::sync::Arc;

    fn now() -> jiff::Timestamp {
        "2026-03-10T00:00:00Z".parse().unwrap()
    }

    fn index() -> RunIndex {
        let mut figures = RunFigures::begin(Some("acp"), true);
        let usage = json!({ "inputTokens": 9000, "outputTokens": 1000, "costUsd": 1.5 });
        figures.measure(&Draft::new(EventType::MetricChanged).with("usage", usage), [false, true, true]);
        let summary = Summary {
            run: RunState { status: Status::Failed, ..RunState::default() },
            agent: Some("Coder-2".parse().unwrap()),
            session_id: Some("s/1".parse().unwrap()),
            started_at: Some("2026-03-09T00:00:00Z".into()),
            ended_at: Some("2026-03-09T00:10:00Z".into()),
            figures: Some(Arc::new(figures)),
            ..Summary::default()
        };
        let index = RunIndex::default();
        index.apply(1, &"r1".parse().unwrap(), None, &summary);
        index.apply(2, &"r2".parse().unwrap(), None, &Summary::default());
        index
    }

    fn takes(index: &RunIndex, filter: &str, created: u64, audience: Audience) -> bool {
        let filter = RunFilter::parse(filter, now()).unwrap();
        index.with(created, |run| filter.judge(&run, audience).is_met()).unwrap()
    }

    #[test]
    fn a_filter_takes_the_runs_that_meet_all_its_terms() {
        let index = index();
        for filter in [
            "",
            "status:failed",
            "status:running,failed",
            "status:running status:FAILED",
            "-status:running",
            "agent:coder-2",
            "agent:code*",
            "agent:*2 source:a*p",
            r#"agent:"Coder-2" run:r1"#,
            "session:s/*",
            "cost:>1 cost:<0.1",
            "cost:1..2",
            "cost:>=1.5 -cost:>1.5",
            "tokens:>=10k tokens:<1",
            "tokens:<=0.01M",
            "duration:>5m duration:<1s",
            "duration:10m..1h",
            "since:2d",
            "since:2026-03-09",
            "since:2026-03-08T23:59:59Z -owner:acme",
        ] {
            assert!(takes(&index, filter, 1, Audience::Internal), "{filter}");
        }
        for filter in [
            "status:running",
            "-status:failed",
            "agent:coder",
            "agent:x,y",
            "source:ag-ui",
            "status:failed agent:default",
            "cost:>1.5",
            "tokens:>10k",
            "duration:>10m",
            "since:1h",
            "owner:*",
            "-run:r*",
        ] {
            assert!(!takes(&index, filter, 1, Audience::Internal), "{filter}");
        }
    }

    #[test]
    fn a_run_without_a_value_meets_no_condition_on_it_and_its_agent_is_the_default_one() {
        let index = index();
        for filter in ["cost:>=0", "tokens:>=0", "duration:>=0s", "since:10w", "source:*", "session:*"] {
            assert!(!takes(&index, filter, 2, Audience::Internal), "{filter}");
        }
        assert!(takes(&index, "agent:default -source:acp -cost:>0", 2, Audience::Internal));
        assert!(!takes(&index, "cost:>0", 1, Audience::User), "users do not see what this run cost");
    }

    #[test]
    fn a_term_that_cannot_be_read_is_named_with_what_is_allowed() {
        for (filter, term, expected) in [
            ("agent:a status:fialed", "status:fialed", "accepted, running"),
            ("cost:1", "cost:1", "comparison"),
            ("cost:>one", "cost:>one", "dollars"),
            ("cost:>1,x", "cost:>1,x", "dollars"),
            ("tokens:>5q", "tokens:>5q", "10k"),
            ("duration:>5", "duration:>5", "5m"),
            ("since:yesterday", "since:yesterday", "7d"),
            ("agent:", "agent:", "an agent's id"),
            ("colour:red", "colour:red", "one of status, agent"),
            ("https://example.com", "https://example.com", "quotation marks"),
            (r#"agent:"coder"#, r#"agent:"coder"#, "closing"),
            ("-disk", "-disk", "without a minus"),
        ] {
            let problem = RunFilter::parse(filter, now()).unwrap_err();
            assert_eq!((problem.code, &problem.members["term"]), ("bad_query", &json!(term)), "{filter}");
            assert!(problem.members["expected"].as_str().unwrap().contains(expected), "{filter}: {}", problem.detail);
        }
        let many = format!("agent:{}", vec!["a"; FILTER_VALUES_MAX + 1].join(","));
        assert_eq!(RunFilter::parse(&many, now()).unwrap_err().members["limit"], json!(FILTER_VALUES_MAX));
        let words = (0..40).map(|n| format!("w{n} ")).collect::<String>();
        assert_eq!(RunFilter::parse(&words, now()).unwrap_err().members["limit"], json!(QUERY_WORDS_MAX));
    }

    #[test]
    fn words_are_what_has_no_name() {
        let words = |filter| RunFilter::parse(filter, now()).unwrap().words;
        assert_eq!(words("status:failed"), None);
        assert_eq!(words(r#"disk "free space" status:failed 12:30"#), WordQuery::parse("disk free space 12:30").ok());
    }

    #[test]
    fn a_pattern_stands_for_any_characters_at_its_stars() {
        for (pattern, text, is_match) in [
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "acb", false),
            ("*b*b", "abab", true),
            ("*", "", true),
            ("**a", "bba", true),
            ("A*", "älter", false),
            ("a", "aa", false),
        ] {
            assert_eq!(Pattern(pattern.into()).matches(text), is_match, "{pattern} {text}");
        }
    }
}
