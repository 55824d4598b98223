//! The calls under one id of the runtime, and how far each has come.
//!
//! Providers number calls anew in each step (`call_0`), so an id may stand for many calls of a run. A start after a start
//! and an end is another call: the first has the runtime's id, the n-th has `id~n`. The runtime knows only its own id, so
//! everything that it reports later is about the newest call.

use super::subject::{SubjectState, reported_progress};
use super::{Ledger, call};
use crate::members::{RuntimeId, id_from};
use proscenium_model::{Draft, EventType, ToolCallId};
use serde_json::Value;

/// What the log has of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallProgress {
    /// Whether a fact announced the call.
    pub has_started: bool,
    /// Whether a fact stated its end.
    pub has_ended: bool,
}

impl CallProgress {
    /// The progress of the newest call after a further event.
    #[must_use]
    pub const fn after(self, class: &EventType) -> Self {
        match class {
            EventType::ToolStarted => Self { has_started: true, has_ended: self.has_ended && !self.has_started },
            EventType::ToolResult | EventType::ToolFailed => Self { has_ended: true, ..self },
            _ => self,
        }
    }
}

impl From<SubjectState> for CallProgress {
    fn from(state: SubjectState) -> Self {
        Self { has_started: !state.unstarted, has_ended: state.sealed }
    }
}

/// The id of the n-th call under an id.
fn nth_call(id: &ToolCallId, n: u32) -> ToolCallId {
    if n == 1 { id.clone() } else { id_from(&format!("{id}~{n}")) }
}

impl Ledger {
    /// Returns the progress of the newest call under this id of the runtime.
    #[must_use]
    pub fn progress_of(&self, id: &ToolCallId) -> CallProgress {
        self.get(call(&self.newest_call(id))).map(CallProgress::from).unwrap_or_default()
    }

    /// Returns the id of the newest call under this id of the runtime.
    #[must_use]
    pub fn newest_call(&self, id: &ToolCallId) -> ToolCallId {
        nth_call(id, self.count_calls(id))
    }

    /// The number of calls under an id, at least 1. They are numbered without a gap.
    fn count_calls(&self, id: &ToolCallId) -> u32 {
        let is_known = |n: u32| self.get(call(&nth_call(id, n))).is_some();
        // Most ids stand for one call, and while that is open no other can follow it.
        if !self.get(call(id)).is_some_and(|first| first.sealed) || !is_known(2) {
            return 1;
        }
        let (mut known, mut unknown) = (2, 4);
        while is_known(unknown) {
            (known, unknown) = (unknown, unknown.saturating_mul(2));
        }
        while unknown - known > 1 {
            let middle = known + (unknown - known) / 2;
            if is_known(middle) { known = middle } else { unknown = middle }
        }
        known
    }

    /// Gives the draft's call, and its parent, the ids that they have in this log.
    pub(super) fn name_call(&self, draft: &mut Draft) {
        // A control names a call as readers know it.
        if draft.event_type == EventType::ControlChanged {
            return;
        }
        if let Some(parent) = draft.refs.as_mut().and_then(|refs| refs.get_mut("parentToolCallId"))
            && let Some(id) = parent.as_str().and_then(ToolCallId::of)
        {
            *parent = Value::from(self.newest_call(&id).as_str());
        }
        let named = draft.ids.tool_call.clone();
        let Some(id) = named.or_else(|| reported_progress(draft)) else { return };
        let mut nth = self.count_calls(&id);
        let known = self.get(call(&nth_call(&id, nth))).map(CallProgress::from);
        let restarts = known.is_some_and(|known| known.has_started && known.has_ended);
        if draft.event_type == EventType::ToolStarted && restarts {
            nth += 1;
        }
        if nth > 1 {
            draft.extra.entry(ToolCallId::SOURCE_MEMBER).or_insert_with(|| id.as_str().into());
            draft.ids.tool_call = Some(nth_call(&id, nth));
        }
    }
}
