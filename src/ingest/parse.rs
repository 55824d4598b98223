//! Parsing of a delivery, before its log's writer has it.
//!
//! Pure, and outside any lock. It judges every fact of the delivery, so that nothing after it can refuse one.

use super::delivery::Delivery;
use crate::model::halves;
use crate::source::{self, ActionAnswer, Event, FactError};
use serde_json::Value;

/// Why a fact is refused for what it is.
#[derive(Debug, Clone)]
pub(super) enum Refused {
    Fact(FactError),
    NotJson(String),
}

/// What parsing found in a delivery, from one fact on.
pub(super) struct Parsed {
    /// The index of the first fact that was parsed.
    from: usize,
    /// The parsed facts up to the refused one, in order; `None` for a delivery that is too large to hold.
    events: Option<std::vec::IntoIter<Event>>,
    /// The first refused fact.
    pub refused: Option<(usize, Refused)>,
    /// The answers that the facts bring to actions of other runs.
    pub answers: Vec<ActionAnswer>,
}

impl Parsed {
    /// Parses the facts of a delivery from this index on, up to the first that is refused.
    pub fn of(delivery: &Delivery, from: usize) -> Self {
        let Delivery { facts, atomic, .. } = delivery;
        // A larger delivery is judged now, and its facts are parsed again one by one when the writer applies them.
        let holds = delivery.may_hold_parsed(from);
        let mut events = Vec::with_capacity(if holds { facts.len() - from } else { 0 });
        let (mut answers, mut refused) = (Vec::new(), None);
        for index in from..facts.len() {
            match parse(delivery, index) {
                Ok(mut event) => {
                    answers.append(&mut event.answers);
                    if holds {
                        events.push(event);
                    }
                }
                Err(why) => {
                    refused = Some((index, why));
                    break;
                }
            }
        }
        // An atomic body that is not JSON gets that error before any other.
        if let (Some((index, why @ Refused::Fact(_))), true) = (&mut refused, atomic)
            && let Some((bad, error)) = facts.check(*index + 1)
        {
            (*index, *why) = (bad, Refused::NotJson(error.to_string()));
        }
        if *atomic && refused.is_some() {
            answers.clear();
        }
        Self { from, events: holds.then(|| events.into_iter()), refused, answers }
    }

    /// Whether this is no judgement of the facts from this index on, because an earlier one was refused.
    pub fn is_before(&self, index: usize) -> bool {
        self.refused.as_ref().is_some_and(|(refused, _)| *refused < index)
    }

    /// Returns the parsed fact with this index. The caller asks for each at most once, in order.
    pub fn take(&mut self, delivery: &Delivery, index: usize) -> Event {
        let held = self.events.as_mut().and_then(|events| {
            let event = events.nth(index - self.from);
            self.from = index + 1;
            event
        });
        held.or_else(|| parse(delivery, index).ok()).expect("the caller takes only facts before the refused one")
    }
}

/// Parses one fact.
pub(super) fn parse(delivery: &Delivery, index: usize) -> Result<Event, Refused> {
    if let Some(parsed) = delivery.facts.text(index).and_then(delivery.source.parse_text) {
        return parsed.map_err(Refused::Fact);
    }
    match delivery.facts.get(index) {
        Ok(fact) => parse_value(delivery, fact),
        Err(error) => match delivery.facts.text(index).and_then(halves::parse_marked) {
            Some((fact, halves)) => parse_value(delivery, fact).map(|event| event.with_halves(halves)),
            None => Err(Refused::NotJson(describe(&error, delivery.facts.text(index)))),
        },
    }
}

fn parse_value(delivery: &Delivery, fact: Value) -> Result<Event, Refused> {
    match fact {
        Value::Object(fact) => (delivery.source.parse)(fact).map_err(Refused::Fact),
        other => Err(Refused::Fact(FactError::NotAnObject { found: source::kind_of(&other) })),
    }
}

/// Says why a text is not JSON. The parser's own words for text that is not UTF-8 name neither bytes nor remedy.
fn describe(error: &serde_json::Error, text: Option<&[u8]>) -> String {
    match text.and_then(|text| std::str::from_utf8(text).err().map(|bad| (bad.valid_up_to(), text))) {
        Some((at, text)) => format!("byte {} (0x{:02x}) is not UTF-8. Send JSON as UTF-8", at + 1, text[at]),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::delivery::{Facts, PARSED_FACTS_MAX, PARSED_TEXT_BYTES_MAX};
    use super::*;
    use crate::log::LogId;
    use crate::model::RunId;

    fn delivery(facts: &[String], atomic: bool) -> Delivery {
        let ends = facts.iter().scan(0, |end, fact| {
            *end += fact.len();
            Some(*end - fact.len()..*end)
        });
        let (log, facts) = (LogId::Run(RunId::new("r").unwrap()), Facts::from_text(facts.concat().into(), ends.collect()));
        Delivery { atomic, ..Delivery::new(log, &source::agent_ui::SOURCE, facts) }
    }

    fn fact(text: &str) -> String {
        format!(r#"{{"type":"text.delta","payload":{text}}}"#)
    }

    #[test]
    fn facts_beyond_a_limit_are_judged_and_parsed_again() {
        let long = fact(&format!("{:?}", "x".repeat(PARSED_TEXT_BYTES_MAX)));
        for (facts, holds) in [
            (vec![fact("{}"); PARSED_FACTS_MAX], true),
            (vec![fact("{}"); PARSED_FACTS_MAX + 1], false),
            (vec![long], false),
            (vec![fact(&format!("{}{}", "[".repeat(64), "]".repeat(64))); 8], false),
        ] {
            let delivery = delivery(&facts, true);
            let mut parsed = Parsed::of(&delivery, 0);
            assert_eq!((parsed.events.is_some(), parsed.refused.is_none()), (holds, true));
            // Facts may be left out, as duplicates are.
            for index in (0..facts.len()).skip(3) {
                parsed.take(&delivery, index);
            }
        }
    }

    #[test]
    fn an_atomic_body_that_is_not_json_gets_that_error_before_any_other() {
        let facts = [fact("{}"), "{}".to_owned(), fact("{}"), "{".to_owned()];
        let refused = |atomic: bool| Parsed::of(&delivery(&facts, atomic), 0).refused;
        assert!(matches!(refused(false), Some((1, Refused::Fact(FactError::NoType { member: "type" })))));
        assert!(matches!(refused(true), Some((3, Refused::NotJson(_)))));
        let parsed = Parsed::of(&delivery(&facts, false), 0);
        assert_eq!((parsed.is_before(1), parsed.is_before(2)), (false, true));
    }
}
