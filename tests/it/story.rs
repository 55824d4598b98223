//! A run as one audience sees it, envelope by envelope: what the tests of dialects send to their streams.

use proscenium::encode::frames::{ActivityView, Frame};
use proscenium::log::LogId;
use proscenium::log::row::Row;
use proscenium::model::Audience;
use proscenium::projection::View;
use std::sync::Arc;

pub struct Story {
    /// The frames of each envelope that has any.
    pub steps: Vec<Vec<Frame>>,
    /// The activities before the first of them, and after each of them.
    pub shown: Vec<Vec<Arc<ActivityView>>>,
}

impl Story {
    pub fn of(log: &LogId, rows: &[Row], audience: Audience) -> Self {
        let LogId::Run(run) = log else { panic!("not a run") };
        let mut view = View::new(log, audience);
        let mut story = Self { steps: Vec::new(), shown: vec![Vec::new()] };
        for row in rows {
            let folded = view.fold(row.sequence(), row.view(audience));
            if folded.changes.is_empty() {
                continue;
            }
            let frame = |change| Frame::of_change(Some(run), view.changed_activity(change), change);
            story.steps.push(folded.changes.iter().map(frame).collect());
            let mut shown = story.shown.last().cloned().unwrap_or_default();
            for change in &folded.changes {
                let now = Arc::new(ActivityView::of(run, view.changed_activity(change)));
                match shown.get_mut(change.index) {
                    Some(current) => *current = now,
                    None => shown.push(now),
                }
            }
            story.shown.push(shown);
        }
        story
    }

    /// The number of envelopes that have frames.
    pub fn last(&self) -> usize {
        self.steps.len()
    }

    /// The activities after so many envelopes.
    pub fn at(&self, at: usize) -> Vec<ActivityView> {
        self.shown[at].iter().map(|shown| ActivityView::clone(shown)).collect()
    }

    /// The activities that changed between two positions, as a reader that resumes gets them.
    pub fn changed(&self, from: usize, to: usize) -> Vec<ActivityView> {
        let known = &self.shown[from];
        let is_new = |at: usize, shown: &Arc<ActivityView>| known.get(at).is_none_or(|known| !Arc::ptr_eq(known, shown));
        (0..).zip(&self.shown[to]).filter(|(at, shown)| is_new(*at, shown)).map(|(_, shown)| ActivityView::clone(shown)).collect()
    }

    /// The status of the run after so many envelopes.
    pub fn status(&self, at: usize) -> &str {
        self.shown[at].iter().find(|shown| &*shown.kind == "run").and_then(|run| run.text("status")).unwrap_or("unknown")
    }

    /// The status with which the run ended; `None` if it has not.
    pub fn end(&self) -> Option<&str> {
        Some(self.status(self.last())).filter(|status| ["completed", "failed", "cancelled", "interrupted"].contains(status))
    }
}
