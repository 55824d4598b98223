//! What the activities of a run do not have: its model, its usage, its parent, and where its attempt begins.

use super::span::TraceParent;
use proscenium_model::fact::MetricFact;
use proscenium_model::{EventType, MemberRef, ReceivedAt, Sequence};
use proscenium_projection::envelope_view::EnvelopeView;
use proscenium_sources::ledger::RunState;
use serde_json::Value;

/// The member by which a fact names the runtime's own span.
const TRACEPARENT: &str = "traceparent";
/// What the text of each envelope has that the notes read.
const MARKS: [&str; 3] = ["\"run.", "\"metric.changed\"", "\"traceparent\""];
/// The longest kept name of a model or provider, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// Billionths of a dollar in a dollar.
const NANOS_PER_DOLLAR: f64 = 1e9;

/// Notes on a run, from its envelopes in their order.
#[derive(Debug, Clone, Default)]
pub struct RunNotes {
    run: RunState,
    /// The last envelope of the attempt before. Those of this attempt follow.
    pub(super) after: Sequence,
    /// The last end so far.
    ended: Sequence,
    /// When this attempt started, if it is not the first one.
    pub(super) restarted_at: Option<ReceivedAt>,
    pub(super) parent: Option<TraceParent>,
    pub(super) provider: Option<Box<str>>,
    /// The model that the run was started with, and the one that the last call reported.
    pub(super) models: [Option<Box<str>>; 2],
    pub(super) usage: TokenUsage,
}

/// The usage of model calls. A member is `None` if no call reported it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct TokenUsage {
    pub input: Option<u64>,
    pub output: Option<u64>,
    cost_usd: Option<f64>,
}

impl TokenUsage {
    /// The usage in a content, or in a fact.
    pub(super) fn of(usage: Option<&Value>) -> Self {
        let tokens = |member: &str| usage.and_then(|usage| usage.get(member)).and_then(Value::as_u64);
        let cost_usd = usage.and_then(|usage| usage.get("costUsd")).and_then(Value::as_f64);
        Self { input: tokens("inputTokens"), output: tokens("outputTokens"), cost_usd }
    }

    fn add(&mut self, more: Self) {
        for (sum, more) in [(&mut self.input, more.input), (&mut self.output, more.output)] {
            *sum = more.map(|more| sum.unwrap_or(0).saturating_add(more)).or(*sum);
        }
        self.cost_usd = more.cost_usd.map(|more| self.cost_usd.unwrap_or(0.0) + more).or(self.cost_usd);
    }

    /// The cost in US dollars, to a billionth.
    pub(super) fn cost_usd(self) -> Option<f64> {
        self.cost_usd
            .filter(|cost| cost.is_finite() && *cost >= 0.0)
            .map(|cost| (cost * NANOS_PER_DOLLAR).round() / NANOS_PER_DOLLAR)
    }
}

impl RunNotes {
    /// Whether an envelope may have something to note, by its text.
    #[must_use]
    pub fn is_of_interest(text: &[u8]) -> bool {
        MARKS.iter().any(|mark| memchr::memmem::find(text, mark.as_bytes()).is_some())
    }

    /// The number of the attempt; 0 for a run without a start.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.run.attempt
    }

    /// Notes the next envelope. Those without [`Self::is_of_interest`] may be left out.
    pub fn note(&mut self, envelope: &EnvelopeView) {
        if self.parent.is_none() {
            self.parent = envelope.text(TRACEPARENT).and_then(TraceParent::parse);
        }
        self.note_attempt(envelope);
        match envelope.event_type {
            EventType::RunStarted => {
                note_name(&mut self.models[0], envelope.text("model"));
                note_name(&mut self.provider, envelope.text("provider"));
            }
            EventType::MetricChanged => self.note_metric(envelope),
            _ => {}
        }
    }

    fn note_attempt(&mut self, envelope: &EnvelopeView) {
        let EnvelopeView { event_type, phase, ids, payload, .. } = envelope;
        let attempt = self.run.attempt;
        self.run.apply(event_type, phase, ids.action.as_ref(), payload);
        if self.run.attempt > attempt && self.ended > Sequence::NONE {
            (self.after, self.restarted_at) = (self.ended, Some(envelope.received_at));
            self.usage = TokenUsage::default();
        }
        if envelope.ends_run() {
            self.ended = envelope.sequence;
        }
    }

    fn note_metric(&mut self, envelope: &EnvelopeView) {
        let fact = envelope.fact::<MetricFact>();
        let mut usage = TokenUsage::of(fact.usage.as_deref());
        let stated = || envelope.get("costUsd").map(MemberRef::into_value).and_then(|cost| cost.as_f64());
        usage.cost_usd = usage.cost_usd.or_else(stated);
        self.usage.add(usage);
        note_name(&mut self.models[1], envelope.text("model"));
        note_name(&mut self.provider, envelope.text("provider"));
        // AG-UI's usage is a list of one entry for each model.
        if let Some(Value::Array(models)) = envelope.get("models").map(MemberRef::into_value) {
            for model in &models {
                note_name(&mut self.models[1], model["model"].as_str());
                note_name(&mut self.provider, model["provider"].as_str());
            }
        }
    }
}

fn note_name(known: &mut Option<Box<str>>, stated: Option<&str>) {
    if let Some(stated) = stated.filter(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX) {
        *known = Some(stated.into());
    }
}
