//! Metrics for operators, internal state, and the compactions that only the state reports.

use super::EventHandler;
use crate::Fact;
use crate::awaken::event::hash_of;
use crate::members::{carry_all, parse_timestamp, take_list};
use proscenium_model::{Audience, Draft, EventType, Payload, Phase, Scope, Surface};
use serde_json::{Map, Value};

impl EventHandler<'_> {
    pub(super) fn inference_complete(&mut self, mut fact: Fact) {
        let mut payload = Map::new();
        for (member, ours) in [("model", "model"), ("duration_ms", "durationMs")] {
            payload.extend(fact.shift_remove(member).map(|value| (ours.to_owned(), value)));
        }
        if let Some(usage) = fact.shift_remove("usage").filter(|v| !v.is_null()) {
            payload.insert("usage".into(), usage_of(usage));
        }
        let draft = Draft { payload: Payload::read(&EventType::MetricChanged, payload), ..Draft::new(EventType::MetricChanged) };
        let draft = draft.with_scope(Scope::Turn).with_phase(Phase::Producing).with_audience(Audience::Dashboard);
        self.push(carry_all(draft, fact));
    }

    pub(super) fn state_snapshot(&mut self, mut fact: Fact) {
        let snapshot = fact.shift_remove("snapshot").unwrap_or(Value::Null);
        let compaction = self.compaction(&snapshot);
        let draft = carry_all(Draft::new(EventType::StateSnapshot), fact).with("state", snapshot);
        self.push(internal_state(draft));
        if let Some(draft) = compaction {
            self.push(draft);
        }
    }

    pub(super) fn state_delta(&mut self, mut fact: Fact) {
        let patch = take_list(&mut fact, "delta");
        self.push(internal_state(carry_all(Draft::new(EventType::StateDelta), fact).with("patch", patch)));
    }

    /// Reads a compaction from the state: Awaken reports it nowhere else.
    ///
    /// The draft has only the numbers, because the summaries are runtime internals.
    fn compaction(&mut self, snapshot: &Value) -> Option<Draft> {
        let state = snapshot.get("extensions")?.get("__context_compaction")?;
        let hash = hash_of(&state.to_string());
        if self.memory.compaction.replace(hash.clone()).as_ref() == Some(&hash) {
            return None;
        }
        let last = state.get("boundaries")?.as_array()?.last()?;
        let mut draft = Draft::new(EventType::ContextCompactionCompleted);
        draft.timestamp = last.get("timestamp_ms").and_then(parse_timestamp);
        if let Some(total) = state.get("total_compactions").and_then(Value::as_u64) {
            draft = draft.with("compactionId", format!("awaken-compaction-{total}")).with("totalCompactions", total);
        }
        for (member, ours) in [("pre_tokens", "preTokens"), ("post_tokens", "postTokens")] {
            draft.set(ours, last.get(member).cloned());
        }
        Some(draft)
    }
}

/// Makes a state draft internal. State holds runtime internals: recent answers, arguments, tickets.
fn internal_state(draft: Draft) -> Draft {
    draft.with_scope(Scope::Run).with_surface(Surface::Diagnostics).with_audience(Audience::Internal)
}

/// Renames usage counts to the protocol's names. Unknown counts keep their names.
fn usage_of(usage: Value) -> Value {
    let Value::Object(usage) = usage else { return usage };
    let ours = |member: String| match member.as_str() {
        "prompt_tokens" => "inputTokens".into(),
        "completion_tokens" => "outputTokens".into(),
        "total_tokens" => "totalTokens".into(),
        "cache_read_tokens" => "cacheReadTokens".into(),
        "cache_creation_tokens" => "cacheCreationTokens".into(),
        "thinking_tokens" => "thinkingTokens".into(),
        _ => member,
    };
    Value::Object(usage.into_iter().map(|(member, count)| (ours(member), count)).collect())
}
