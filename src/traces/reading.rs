//! Reads a run from its log as a trace.

use crate::encode::gen_ai::{self, RunNotes, Trace, TracedRun};
use crate::feed::Feed;
use crate::log::commit::Logs;
use crate::log::row::Row;
use crate::log::{Limit, LogId, StoreError};
use crate::model::{Audience, Epoch, RunId, Sequence};
use crate::projection::envelope_view::EnvelopeView;
use std::sync::Arc;

/// What one read of a log fetches.
const READ_LIMIT: Limit = Limit { rows: 1024, bytes: 1024 * 1024 };

/// Reads runs.
pub(super) struct TraceReader {
    pub logs: Arc<Logs>,
    pub feed: Arc<Feed>,
    /// Whose view has the contents. `None`: no contents.
    pub content: Option<Audience>,
}

impl TraceReader {
    /// The trace of a run as of an envelope. `None`: it was erased, or is being erased.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn read(&self, run: &RunId, epoch: Epoch, at: Sequence) -> Result<Option<Trace>, StoreError> {
        let log = LogId::Run(run.clone());
        if !self.exists(&log, epoch).await? {
            return Ok(None);
        }
        let notes = self.notes(&log, epoch, at).await?;
        let Some(view) = self.feed.activities(&log, Audience::Internal, Some(at)).await? else { return Ok(None) };
        let content = match self.content {
            None | Some(Audience::Internal) => None,
            Some(audience) => self.feed.activities(&log, audience, Some(at)).await?,
        };
        // Another log may have the name by now.
        if !self.exists(&log, epoch).await? {
            return Ok(None);
        }
        let (run, audience) = (run.clone(), self.content);
        let traced = self.logs.work(move |_| {
            let content = if audience == Some(Audience::Internal) { Some(&view) } else { content.as_ref() };
            gen_ai::trace(&TracedRun { run: &run, epoch, notes: &notes, view: &view, content })
        });
        Ok(traced.await)
    }

    /// Whether the log has this epoch, and neither it nor its session is erased.
    async fn exists(&self, log: &LogId, epoch: Epoch) -> Result<bool, StoreError> {
        let tail = self.logs.log(log).await?.tail();
        let is_erased = self.logs.check_not_erased(log, tail.summary.session_id.as_ref()).is_err();
        Ok(tail.epoch == Some(epoch) && !is_erased)
    }

    async fn notes(&self, log: &LogId, epoch: Epoch, at: Sequence) -> Result<RunNotes, StoreError> {
        let (mut notes, mut after) = (RunNotes::default(), Sequence::NONE);
        while after < at {
            let rows = self.feed.rows(log, epoch, after, READ_LIMIT).await?;
            let Some(last) = rows.last().map(Row::sequence) else { break };
            for row in rows.iter().filter(|row| row.sequence() <= at) {
                let text = row.view(Audience::Internal).filter(|text| RunNotes::is_of_interest(text));
                if let Some(envelope) = text.and_then(|text| EnvelopeView::parse(row.sequence(), text)) {
                    notes.note(&envelope);
                }
            }
            after = last;
        }
        Ok(notes)
    }
}
