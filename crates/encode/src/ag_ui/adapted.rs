//! Dialects that are AG-UI in another form: an adapter turns its events into those of its clients.

use super::AgUi;
use crate::frames::{ActivityView, Frame};
use crate::{Dialect, Flow};
use proscenium_model::Sequence;
use serde_json::Value;

/// What turns the events of AG-UI into those of other clients.
pub trait EventAdapter: Clone + PartialEq + Send + Sync + 'static {
    /// Whether its clients see the earlier runs of the thread.
    const HAS_HISTORY: bool = true;

    /// Turns the events of one frame, or of the end of a batch, into those of the client.
    fn adapt(&mut self, events_in: Vec<Value>, events: &mut Vec<Value>);

    /// Loads what the client already has, as of the cursor from which it resumes.
    fn resume(&mut self, _known: &[ActivityView]) {}

    /// The event of a stream that fails with this problem. `None`: the one of AG-UI.
    fn failure(&self, _problem: &Value) -> Option<Value> {
        None
    }
}

/// The AG-UI dialect behind an adapter.
#[derive(Debug, Clone, PartialEq)]
pub struct AdaptedAgUi<A> {
    inner: AgUi,
    adapter: A,
}

impl<A: EventAdapter> AdaptedAgUi<A> {
    /// Puts an adapter before a translation that has no frames yet.
    #[must_use]
    pub const fn of(inner: AgUi, adapter: A) -> Self {
        Self { inner, adapter }
    }

    fn adapted(&mut self, events: &mut Vec<Value>, translate: impl FnOnce(&mut AgUi, &mut Vec<Value>) -> Flow) -> Flow {
        let mut events_in = Vec::new();
        let flow = translate(&mut self.inner, &mut events_in);
        self.adapter.adapt(events_in, events);
        flow
    }
}

impl<A: EventAdapter> Dialect for AdaptedAgUi<A> {
    fn load_history(&mut self, earlier: Vec<ActivityView>) {
        if A::HAS_HISTORY {
            self.inner.load_history(earlier);
        }
    }

    fn resume(&mut self, after: Sequence, known: Vec<ActivityView>) {
        self.adapter.resume(&known);
        self.inner.resume(after, known);
    }

    fn frame(&mut self, frame: &Frame, events: &mut Vec<Value>) -> Flow {
        if let Frame::Error { problem } = frame
            && let Some(failure) = self.adapter.failure(problem)
        {
            events.push(failure);
            return Flow::End;
        }
        self.adapted(events, |inner, events_in| inner.frame(frame, events_in))
    }

    fn end_batch(&mut self, events: &mut Vec<Value>) -> Flow {
        self.adapted(events, Dialect::end_batch)
    }

    fn is_replayable(&self) -> bool {
        self.inner.is_replayable()
    }

    fn compares_arguments(&self) -> bool {
        self.inner.compares_arguments()
    }
}
