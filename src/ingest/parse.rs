//! Parsing of a delivery, before its log's writer has it.
//!
//! Pure, and outside any lock. It judges every fact of the delivery, so that nothing after it can refuse one.

use super::delivery::Delivery;
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
        Ok(Value::Object(fact)) => (delivery.source.parse)(fact).map_err(Refused::Fact),
        Ok(other) => Err(Refused::Fact(FactError::NotAnObject { found: source::kind_of(&other) })),
        Err(error) => Err(Refused::NotJson(error.to_string())),
    }
}
