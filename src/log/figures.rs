//! The figures of a run: its source, the usage of its model calls, and how long its questions waited for a decision.
//!
//! They are a state entry of their own ([`FIGURES`]), and not a part of the summary. Every append saves the summary, and
//! one with further members has the longer form of JSON. The figures are saved when they change: with the first append, and
//! with each measurement. A version that does not know the entry leaves it alone.
//!
//! A log that an earlier version began has no figures of that part. Its usage stays absent, since a part of it would be
//! taken for the whole.

use super::{LogId, StoreError};
use crate::model::fact::MetricFact;
use crate::model::stored;
use crate::model::{Audience, Draft, MemberRef};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::VecDeque;

/// The key of the state entry that has the figures of a run.
pub const FIGURES: &[u8] = b"f";

/// Waits that the figures keep, the newest.
pub const WAITS_MAX: usize = 64;

/// Billionths of a dollar in a dollar. Prices of tokens are whole numbers of them, so sums are exact.
const NANOS_PER_DOLLAR: f64 = 1e9;

/// The figures of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFigures {
    /// The source of the run's first fact. `None`: only the server has written to the run.
    source: Option<Box<str>>,
    /// Whether they cover the log from its first envelope.
    is_whole: bool,
    /// Per audience: the usage that it sees. `None`: it sees none.
    usage: [Option<Usage>; 3],
    /// The newest waits, the oldest first.
    waits: VecDeque<Wait>,
}

/// The usage of model calls. A member is `None` if no call reported it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Usage {
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    /// In billionths of a US dollar.
    pub cost_nanos: Option<u64>,
}

/// How long an action waited for its decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The audiences that saw the decision, a bit for each, in the order of [`Audience::ALL`].
    audiences: u8,
    pub ms: u64,
}

impl Wait {
    /// Whether an audience saw the action and its decision.
    #[must_use]
    pub const fn is_seen_by(self, audience: Audience) -> bool {
        self.audiences >> audience.index() & 1 == 1
    }
}

impl Usage {
    /// What a measurement reports. `None`: no usage of a model call.
    fn of(draft: &Draft) -> Option<Self> {
        let usage = draft.payload.as_fact::<MetricFact>().and_then(|metric| metric.usage.as_deref()).and_then(Value::as_object);
        let tokens = |member: &str| usage.and_then(|usage| usage.get(member)).and_then(Value::as_u64);
        let cost = usage.and_then(|usage| usage.get("costUsd")).and_then(Value::as_f64);
        let cost = cost.or_else(|| draft.member("costUsd").map(MemberRef::into_value).and_then(|cost| cost.as_f64()));
        let reported =
            Self { input_tokens: tokens("inputTokens"), output_tokens: tokens("outputTokens"), cost_nanos: cost.and_then(nanos) };
        (reported != Self::default()).then_some(reported)
    }

    /// Adds another usage. A member that neither has stays absent.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.input_tokens, other.input_tokens),
            (&mut self.output_tokens, other.output_tokens),
            (&mut self.cost_nanos, other.cost_nanos),
        ] {
            *sum = more.map(|more| sum.unwrap_or(0).saturating_add(more)).or(*sum);
        }
    }

    /// The tokens of both directions. `None`: no call reported any.
    #[must_use]
    pub fn tokens(&self) -> Option<u64> {
        let (input, output) = (self.input_tokens, self.output_tokens);
        (input.is_some() || output.is_some()).then(|| input.unwrap_or(0).saturating_add(output.unwrap_or(0)))
    }

    /// The cost in US dollars.
    #[must_use]
    pub fn cost_usd(&self) -> Option<f64> {
        self.cost_nanos.map(dollars)
    }
}

/// Dollars as billionths. `None` for what is no cost.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates, and the cost is at least 0"
)]
pub fn nanos(dollars: f64) -> Option<u64> {
    (dollars.is_finite() && dollars >= 0.0).then(|| (dollars * NANOS_PER_DOLLAR).round() as u64)
}

/// Billionths as dollars.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "15 digits are enough for money")]
pub fn dollars(nanos: u64) -> f64 {
    nanos as f64 / NANOS_PER_DOLLAR
}

impl RunFigures {
    /// The figures of a log that begins with the next envelope, or that has envelopes without figures.
    #[must_use]
    pub fn begin(source: Option<&str>, is_whole: bool) -> Self {
        Self { source: source.map(Into::into), is_whole, ..Self::default() }
    }

    /// Reads the figures from the entry [`FIGURES`] of a log.
    ///
    /// # Errors
    /// `Unreadable` for bytes that are not figures.
    pub fn read(log: &LogId, value: &[u8]) -> Result<Self, StoreError> {
        stored::restore(value).map_err(|error| StoreError::unreadable(log, FIGURES, &error))
    }

    /// Encodes the figures for the entry [`FIGURES`].
    #[must_use]
    pub fn save(&self) -> Bytes {
        stored::save(self).into()
    }

    /// The source of the run's first fact.
    #[must_use]
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// Names the source, if the run has none.
    pub fn name_source(&mut self, source: &str) {
        self.source.get_or_insert_with(|| source.into());
    }

    /// The usage that an audience sees. `None`: it sees none, or an earlier version began the run.
    #[must_use]
    pub const fn usage(&self, audience: Audience) -> Option<Usage> {
        self.usage[audience.index()]
    }

    /// The newest waits, the oldest first.
    #[must_use]
    pub const fn waits(&self) -> &VecDeque<Wait> {
        &self.waits
    }

    /// Whether they cover the log from its first envelope. Others count nothing.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Adds what a measurement reports, for the audiences that see it.
    pub fn measure(&mut self, draft: &Draft, is_seen: [bool; 3]) {
        let Some(reported) = Usage::of(draft) else { return };
        for (sum, _) in self.usage.iter_mut().zip(is_seen).filter(|(_, is_seen)| *is_seen) {
            sum.get_or_insert_default().add(&reported);
        }
    }

    /// Adds the wait of an action that was decided, for the audiences that see the decision.
    pub fn add_wait(&mut self, ms: u64, is_seen: [bool; 3]) {
        if self.waits.len() == WAITS_MAX {
            self.waits.pop_front();
        }
        let audiences = is_seen.iter().enumerate().map(|(at, is_seen)| u8::from(*is_seen) << at).sum();
        self.waits.push_back(Wait { audiences, ms });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::EventType;
    use serde_json::json;

    fn metric(usage: Value) -> Draft {
        Draft::new(EventType::MetricChanged).with("usage", usage)
    }

    #[test]
    fn usage_is_summed_for_those_who_see_it_and_what_no_call_reported_stays_absent() {
        let mut figures = RunFigures::begin(Some("acp"), true);
        figures.measure(&metric(json!({ "inputTokens": 10, "outputTokens": 2 })), [false, true, true]);
        figures.measure(&metric(json!({ "inputTokens": 5, "costUsd": 0.1 })), [false, false, true]);
        figures.measure(&metric(json!({ "cachedTokens": 5 })), [true; 3]);
        figures.measure(&Draft::new(EventType::MetricChanged).with("costUsd", 0.2), [false, false, true]);
        assert_eq!(figures.usage(Audience::User), None);
        let dashboard = figures.usage(Audience::Dashboard).unwrap();
        assert_eq!((dashboard.tokens(), dashboard.cost_usd()), (Some(12), None));
        let internal = figures.usage(Audience::Internal).unwrap();
        assert_eq!((internal.input_tokens, internal.output_tokens, internal.cost_usd()), (Some(15), Some(2), Some(0.3)));
    }

    #[test]
    fn figures_are_read_as_they_were_saved_and_keep_the_newest_waits() {
        let mut figures = RunFigures::begin(None, true);
        figures.name_source("langgraph");
        figures.name_source("acp");
        for ms in 0..=WAITS_MAX as u64 {
            figures.add_wait(ms, [false, true, true]);
        }
        let log = LogId::Run("r".parse().unwrap());
        let read = RunFigures::read(&log, &figures.save()).unwrap();
        assert_eq!(read, figures);
        assert_eq!((read.source(), read.waits().len(), read.waits()[0].ms), (Some("langgraph"), WAITS_MAX, 1));
        assert!(!read.waits()[0].is_seen_by(Audience::User) && read.waits()[0].is_seen_by(Audience::Dashboard));
        assert!(RunFigures::read(&log, b"x").is_err());
    }
}
