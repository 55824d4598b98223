//! Which start of a run begins an attempt, and which belongs to the attempt at work.
//!
//! Seed 003 calls two things a start: a run is accepted, and a runtime begins to work. So an attempt can have several: of
//! the process that opens the run and of the framework whose stream it forwards, or of a page and of the worker that
//! takes the run. The server marks each one but the first ([`RunFact::continues`]), and it does not count.
//!
//! A source that starts again after work lost its attempt, such as by a crash, and begins the next one.
//!
//! Only facts that users see decide this. Otherwise the number of the attempt would tell them of hidden ones.

use crate::model::fact::RunFact;
use crate::model::{Draft, EventType};
use crate::source::ledger::RunState;
use serde::{Deserialize, Serialize};
use serde_json::Number;

/// The starts of the current attempt. It is stored with the log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AttemptStarts {
    /// The sources that started the attempt.
    sources: Vec<Box<str>>,
    /// Whether users saw more of the attempt than starts and their own messages.
    has_work: bool,
}

impl AttemptStarts {
    /// Notes a start before it changes the run, and marks it if it continues the attempt.
    pub fn note_start(&mut self, start: &mut Draft, source: &str, run: &RunState) {
        let is_first_of_source = self.sources.iter().all(|known| **known != *source);
        // Some sources count their attempts themselves.
        let Some(fact) = start.payload.fact_mut::<RunFact>() else { return };
        let is_retry = fact.attempt.as_ref().and_then(Number::as_u64).is_some_and(|attempt| attempt > 1);
        // A store of an earlier release does not say who started the attempt.
        let is_open = run.attempt > 0 && !run.status.is_end() && !self.sources.is_empty();
        if is_open && (is_first_of_source || !self.has_work && !is_retry) {
            fact.continues = Some(true);
        } else {
            *self = Self::default();
        }
        if self.sources.iter().all(|known| **known != *source) {
            self.sources.push(source.into());
        }
    }

    /// Notes a draft that users see.
    pub fn note_visible(&mut self, draft: &Draft) {
        use EventType as E;
        let is_beside = matches!(
            draft.event_type,
            E::RunStarted
                | E::RunStatus
                | E::SessionOpened
                | E::SessionHydrated
                | E::SessionUpdated
                | E::SessionClosed
                | E::QueueChanged
                | E::ControlChanged
                | E::ActionReminded
                | E::ActionEscalated
                | E::FeedbackGiven
                | E::DiagnosticChanged
                | E::MetricChanged
        );
        self.has_work |= !is_beside && draft.text("role") != Some("user");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Payload;
    use crate::source::ledger::Ledger;
    use serde_json::{Value, json};

    /// The attempt after each of these facts.
    fn attempts(facts: &[(&str, &str, Value)]) -> Vec<u32> {
        let (mut ledger, mut starts) = (Ledger::default(), AttemptStarts::default());
        let attempt_after = |(source, event_type, payload): &(&str, &str, Value)| {
            let mut draft = Draft::new((*event_type).into());
            draft.payload = Payload::of_value(&draft.event_type, payload.clone());
            if draft.event_type == EventType::RunStarted {
                starts.note_start(&mut draft, source, &ledger.run);
            }
            ledger.record(&mut draft, 0);
            starts.note_visible(&draft);
            starts = crate::model::stored::restore(&crate::model::stored::save(&starts)).expect("a stored state");
            ledger.run.attempt
        };
        facts.iter().map(attempt_after).collect()
    }

    #[test]
    fn the_start_of_a_forwarded_stream_belongs_to_the_attempt_that_forwards_it() {
        let of = |source, event_type| (source, event_type, json!({}));
        let facts = [
            of("agentui", "run.started"),
            of("agentui", "tool.started"),
            of("langgraph", "run.started"),
            of("langgraph", "text.delta"),
            of("agentui", "run.finished"),
            of("langgraph", "run.started"),
            of("agentui", "run.started"),
        ];
        assert_eq!(attempts(&facts), [1, 1, 1, 1, 1, 2, 2]);
    }

    #[test]
    fn a_worker_starts_the_run_that_a_page_opened_and_a_crashed_worker_begins_again() {
        let of = |event_type, payload| ("agentui", event_type, payload);
        let facts = [
            of("run.started", json!({})),
            of("text.final", json!({ "role": "user", "text": "Go" })),
            of("run.started", json!({})),
            of("text.delta", json!({ "text": "I" })),
            of("run.started", json!({})),
        ];
        assert_eq!(attempts(&facts), [1, 1, 1, 1, 2]);
    }

    #[test]
    fn a_source_that_counts_its_attempts_is_believed() {
        let of = |source, attempt: u64| (source, "run.started", json!({ "attempt": attempt }));
        assert_eq!(attempts(&[of("a2a", 1), of("a2a", 2), of("acp", 1)]), [1, 2, 2]);
    }
}
