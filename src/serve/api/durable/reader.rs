//! What one answer of a durable stream reads: the frames of the reader that all streams have, as items.

use super::offset::{self, DurableOffset};
use crate::encode::encoded::EncodedFrames;
use crate::encode::native::{envelope_of, is_reset};
use crate::feed::{AnyReader, Frames, LogSet, ReadRequest, StartAt, TryNext, merged_reader};
use crate::log::LogId;
use crate::model::{Cursor, Epoch, RunId, Sequence, SessionId};
use crate::serve::App;
use crate::serve::access::authorization::Authorization;
use crate::serve::api::hydrate::no_such_run;
use crate::serve::api::sessions::no_such_session;
use crate::serve::http::problem::Problem;
use bytes::Bytes;
use http::StatusCode;
use std::sync::Arc;

/// Bytes of items after which an answer takes no further frames.
const DURABLE_PAGE_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of snapshots that one answer holds: a client cannot resume between them.
pub const SNAPSHOT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The stream of a request.
pub enum DurableTarget {
    Run(RunId),
    /// A session, with its descendants if `children`.
    Session {
        session: SessionId,
        children: bool,
    },
}

/// What the items of a stream are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DurableItems {
    /// The envelopes as they are stored.
    Envelopes,
    /// The server's own frames.
    Frames,
}

/// What a stream has after a position.
pub struct DurableBatch {
    /// JSON texts, in order.
    pub items: Vec<Bytes>,
    /// The position after them.
    pub next: Cursor,
    /// Whether they are all that was committed.
    pub is_up_to_date: bool,
    /// Whether the run has ended, and they reach its end.
    pub is_closed: bool,
}

/// The reader of one stream.
pub struct DurableReader {
    app: Arc<App>,
    reader: AnyReader,
    items: DurableItems,
    /// Whether it reads one run.
    is_run: bool,
    next: Cursor,
    /// Frames that [`Self::wait`] has read.
    waited_for: Option<EncodedFrames>,
    /// Items after the last position at which a client can resume.
    held: Vec<Bytes>,
    held_bytes: usize,
}

/// The end of a stream now, and whether it is closed there.
///
/// # Errors
/// 404 for a stream that does not exist, or the store's failure.
pub async fn end_of(app: &App, target: &DurableTarget) -> Result<(Cursor, bool), Problem> {
    match target {
        DurableTarget::Run(run) => {
            let tail = app.logs.log(&LogId::Run(run.clone())).await?.tail();
            let epoch = tail.epoch.ok_or_else(|| no_such_run(run))?;
            let knows_end = tail.end().is_some();
            Ok((Cursor { epoch, after: tail.last, knows_end }, knows_end))
        }
        DurableTarget::Session { session, .. } => {
            if app.logs.sessions().created_order(session).is_none() {
                return Err(no_such_session(session));
            }
            Ok((Cursor::at(app.logs.store_epoch(), merged_reader::now(&app.logs)), false))
        }
    }
}

impl DurableReader {
    /// Opens the stream at an offset.
    ///
    /// # Errors
    /// 404 for a stream that does not exist, 410 for an offset that it does not have, or the store's failure.
    pub async fn open(
        app: &Arc<App>,
        authorization: &Authorization,
        target: &DurableTarget,
        request: ReadRequest,
        items: DurableItems,
        offset: DurableOffset,
    ) -> Result<Self, Problem> {
        let (end, _) = end_of(app, target).await?;
        let (start, next) = match offset {
            DurableOffset::Start => (StartAt::Start, Cursor::at(end.epoch, Sequence::NONE)),
            DurableOffset::Now => (StartAt::Now, Cursor { knows_end: false, ..end }),
            DurableOffset::After(given) if given.epoch != end.epoch => return Err(offset::other_epoch(given, end.epoch)),
            DurableOffset::After(given) if given.after > end.after => return Err(offset::beyond_end(given, end)),
            DurableOffset::After(given) => (StartAt::After(given), given),
        };
        let reader = match target {
            DurableTarget::Run(run) => AnyReader::One(app.feed.read(&LogId::Run(run.clone()), request, start).await?),
            DurableTarget::Session { session, children } => {
                let takes = authorization.session_filter();
                let logs = LogSet::of_session(app.logs.clone(), session.clone(), *children, takes);
                AnyReader::Merged(Box::new(app.feed.read_merged(logs, request, start)))
            }
        };
        let is_run = matches!(target, DurableTarget::Run(_));
        Ok(Self { app: app.clone(), reader, items, is_run, next, waited_for: None, held: Vec::new(), held_bytes: 0 })
    }

    /// Waits for more. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The store's failure, or 410 for an erased run.
    pub async fn wait(&mut self) -> Result<(), Problem> {
        if self.waited_for.is_none() {
            self.waited_for = self.reader.next().await?;
        }
        Ok(())
    }

    /// Reads what was committed before this call, up to [`DURABLE_PAGE_BYTES_MAX`].
    ///
    /// # Errors
    /// The store's failure, 410 for a run that was erased, 422 for too many snapshots.
    pub async fn read(&mut self) -> Result<DurableBatch, Problem> {
        let (mut items, mut bytes) = (Vec::new(), 0);
        loop {
            let committed = self.committed();
            let is_closed = self.reader.has_seen_end() || self.reader.is_done() && self.waited_for.is_none();
            let read = match self.waited_for.take() {
                Some(frames) => TryNext::Frames(frames),
                None if is_closed => TryNext::Busy,
                None => self.reader.read_committed().await?,
            };
            let TryNext::Frames(frames) = read else {
                // A reader that the filter shows nothing need not read the same rows again.
                if let Some(position) = self.reader.position().or(committed).filter(|at| at.position() > self.next.position()) {
                    self.next = position;
                }
                items.append(&mut self.held);
                return Ok(DurableBatch { items, next: self.next, is_up_to_date: true, is_closed });
            };
            self.take(frames, &mut items, &mut bytes)?;
            if self.held.is_empty() && bytes > DURABLE_PAGE_BYTES_MAX {
                return Ok(DurableBatch { items, next: self.next, is_up_to_date: false, is_closed: false });
            }
        }
    }

    /// Everything committed so far, as a position of several logs.
    fn committed(&self) -> Option<Cursor> {
        (!self.is_run).then(|| Cursor::at(self.app.logs.store_epoch(), merged_reader::now(&self.app.logs)))
    }

    /// Takes the items of frames, up to the last position at which a client can resume.
    fn take(&mut self, mut frames: EncodedFrames, items: &mut Vec<Bytes>, bytes: &mut usize) -> Result<(), Problem> {
        while let Some((frame, cursor)) = frames.next_frame() {
            if self.is_run && is_reset(&frame) {
                return Err(offset::was_reset());
            }
            let item = match self.items {
                DurableItems::Frames => Some(frame),
                DurableItems::Envelopes => envelope_of(&frame),
            };
            self.held_bytes += item.as_ref().map_or(0, Bytes::len);
            self.held.extend(item);
            if let Some(cursor) = cursor.filter(|cursor| self.counts(cursor.epoch)) {
                self.next = cursor;
                *bytes += std::mem::take(&mut self.held_bytes);
                items.append(&mut self.held);
            }
            if self.held_bytes > SNAPSHOT_BYTES_MAX {
                return Err(too_large());
            }
        }
        Ok(())
    }

    /// Whether the stream's positions have this epoch. The Reset of one of several logs has the log's own.
    fn counts(&self, epoch: Epoch) -> bool {
        self.next.epoch == epoch
    }
}

fn too_large() -> Problem {
    let detail = format!(
        "The activities take more than {SNAPSHOT_BYTES_MAX} bytes, the limit of one answer. Omit frames, and read the envelopes."
    );
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "activities_too_large", detail).with("limit", SNAPSHOT_BYTES_MAX)
}

/// The frames that the reader must make for these items.
#[must_use]
pub const fn frames_for(items: DurableItems, asked: Frames) -> Frames {
    match items {
        DurableItems::Envelopes => Frames::Events,
        DurableItems::Frames => asked,
    }
}
