//! What one answer of a durable stream reads: the frames of the reader that all streams have, as items.

use super::offset::{self, DurableOffset};
use crate::encode::encoded::EncodedFrames;
use crate::encode::native::{envelope_of, is_reset};
use crate::feed::{AnyReader, LogSet, ReadRequest, StartAt, TryNext, merged_reader};
use crate::log::LogId;
use crate::model::{Cursor, Epoch, RunId, Sequence, SessionId};
use crate::serve::App;
use crate::serve::access::authorization::Authorization;
use crate::serve::api::hydrate::no_such_run;
use crate::serve::api::sessions::no_such_session;
use crate::serve::clients::items::{Item, ItemReader};
use crate::serve::clients::view::Format;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::Query;
use bytes::Bytes;
use http::StatusCode;
use std::sync::Arc;

/// Bytes of items after which most answers take no further ones.
const DURABLE_PAGE_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of what one answer holds because a client cannot resume within it.
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
#[derive(Clone, Copy)]
pub enum DurableItems<'q> {
    /// The envelopes as they are stored.
    Envelopes,
    /// The server's own frames.
    Frames,
    /// The events of another client's format, with the parameters of a query.
    Format(Format, &'q Query),
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
    source: ItemSource,
    next: Cursor,
    /// Items after the last position at which a client can resume.
    held: Vec<Bytes>,
    held_bytes: usize,
}

/// What the items are made of. `waited_for`: what [`DurableReader::wait`] has read.
enum ItemSource {
    /// The frames that all streams have.
    Frames { reader: AnyReader, are_envelopes: bool, waited_for: Option<EncodedFrames> },
    /// One run in another client's format.
    Format { reader: Box<ItemReader>, waited_for: Option<Vec<Item>> },
}

impl ItemSource {
    /// Waits for more. Cancel safe.
    async fn wait(&mut self) -> Result<(), Problem> {
        match self {
            Self::Frames { reader, waited_for: waited @ None, .. } => *waited = reader.next().await?,
            Self::Format { reader, waited_for: waited @ None } => *waited = reader.next(true).await?,
            Self::Frames { .. } | Self::Format { .. } => {}
        }
        Ok(())
    }

    /// The next items that are committed, each with the position after it if a client can resume there.
    async fn next(&mut self) -> Result<Option<Vec<(Option<Bytes>, Option<Cursor>)>>, Problem> {
        let (mut frames, are_envelopes) = match self {
            Self::Format { reader, waited_for } => {
                let read = match waited_for.take() {
                    Some(waited) => Some(waited),
                    None => reader.next(false).await?,
                };
                return Ok(read.map(|items| items.into_iter().map(|(item, after)| (Some(item), after)).collect()));
            }
            Self::Frames { reader, are_envelopes, waited_for } => {
                let read = match waited_for.take() {
                    Some(waited) => TryNext::Frames(waited),
                    None if reader.has_seen_end() || reader.is_done() => TryNext::Busy,
                    None => reader.read_committed().await?,
                };
                let TryNext::Frames(frames) = read else { return Ok(None) };
                (frames, *are_envelopes)
            }
        };
        let mut read = Vec::new();
        while let Some((frame, cursor)) = frames.next_frame() {
            if matches!(self, Self::Frames { reader: AnyReader::One(_), .. }) && is_reset(&frame) {
                return Err(offset::was_reset());
            }
            read.push((if are_envelopes { envelope_of(&frame) } else { Some(frame) }, cursor));
        }
        Ok(Some(read))
    }

    /// Bytes of items after which an answer takes no further ones.
    const fn page_bytes_max(&self) -> usize {
        match self {
            Self::Format { reader, .. } if reader.must_be_whole() => SNAPSHOT_BYTES_MAX,
            Self::Frames { .. } | Self::Format { .. } => DURABLE_PAGE_BYTES_MAX,
        }
    }

    /// Where the reader is, if it passed what its filter does not show.
    fn position(&self) -> Option<Cursor> {
        match self {
            Self::Frames { reader, .. } => reader.position(),
            Self::Format { .. } => None,
        }
    }

    /// Whether the run has ended, and all of it was read.
    fn is_done(&self) -> bool {
        match self {
            Self::Frames { reader, .. } => reader.has_seen_end() || reader.is_done(),
            Self::Format { reader, .. } => reader.is_done(),
        }
    }
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
    /// 404 for a stream that does not exist, 410 for an offset that it does not have, 400 for parameters that do not fit
    /// the format, or the store's failure.
    pub async fn open(
        app: &Arc<App>,
        authorization: &Authorization,
        target: &DurableTarget,
        request: ReadRequest,
        items: DurableItems<'_>,
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
        // Behind the end, nothing is to be translated.
        let is_over = end == next && next.knows_end;
        let source = match (target, items) {
            (DurableTarget::Run(run), DurableItems::Format(format, query)) if !is_over => {
                let after = (next.after > Sequence::NONE).then_some(next);
                let (authorization, audience) = (authorization.clone(), request.filter.audience);
                let reader = ItemReader::open(app, authorization, run, (format, query), audience, after).await?;
                ItemSource::Format { reader: Box::new(reader), waited_for: None }
            }
            _ => {
                let reader = match target {
                    DurableTarget::Run(run) => AnyReader::One(app.feed.read(&LogId::Run(run.clone()), request, start).await?),
                    DurableTarget::Session { session, children } => {
                        let takes = authorization.session_filter();
                        let logs = LogSet::of_session(app.logs.clone(), session.clone(), *children, takes);
                        AnyReader::Merged(Box::new(app.feed.read_merged(logs, request, start)))
                    }
                };
                let are_envelopes = matches!(items, DurableItems::Envelopes);
                ItemSource::Frames { reader, are_envelopes, waited_for: None }
            }
        };
        Ok(Self { app: app.clone(), source, next, held: Vec::new(), held_bytes: 0 })
    }

    /// Waits for more. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The store's failure, or 410 for an erased run.
    pub async fn wait(&mut self) -> Result<(), Problem> {
        self.source.wait().await
    }

    /// Reads what was committed before this call, up to [`DURABLE_PAGE_BYTES_MAX`].
    ///
    /// # Errors
    /// The store's failure, 410 for a run that was erased, 422 for too many snapshots.
    pub async fn read(&mut self) -> Result<DurableBatch, Problem> {
        let (mut items, mut bytes) = (Vec::new(), 0);
        loop {
            let committed = self.committed();
            let Some(read) = self.source.next().await? else {
                // A reader that the filter shows nothing need not read the same rows again.
                if let Some(position) = self.source.position().or(committed).filter(|at| at.position() > self.next.position()) {
                    self.next = position;
                }
                let is_closed = self.source.is_done();
                if is_closed || !self.is_formatted() {
                    items.append(&mut self.held);
                }
                return Ok(DurableBatch { items, next: self.next, is_up_to_date: true, is_closed });
            };
            for (item, after) in read {
                self.take(item, after, &mut items, &mut bytes)?;
            }
            if self.held.is_empty() && bytes > self.source.page_bytes_max() {
                return Ok(DurableBatch { items, next: self.next, is_up_to_date: false, is_closed: false });
            }
        }
    }

    /// Whether its items are of another client's format. That stream counts itself in the metrics.
    #[must_use]
    pub const fn is_formatted(&self) -> bool {
        matches!(self.source, ItemSource::Format { .. })
    }

    /// Everything committed so far, as a position of several logs.
    fn committed(&self) -> Option<Cursor> {
        let merges = matches!(self.source, ItemSource::Frames { reader: AnyReader::Merged(_), .. });
        merges.then(|| Cursor::at(self.app.logs.store_epoch(), merged_reader::now(&self.app.logs)))
    }

    /// Takes an item. Its answer ends with the last one after which a client can resume.
    fn take(
        &mut self,
        item: Option<Bytes>,
        after: Option<Cursor>,
        items: &mut Vec<Bytes>,
        bytes: &mut usize,
    ) -> Result<(), Problem> {
        self.held_bytes += item.as_ref().map_or(0, Bytes::len);
        self.held.extend(item);
        if let Some(after) = after.filter(|after| self.counts(after.epoch)) {
            let held_bytes = std::mem::take(&mut self.held_bytes);
            if self.is_formatted() && after.position() <= self.next.position() {
                self.held.clear();
                return Ok(());
            }
            self.next = after;
            *bytes += held_bytes;
            items.append(&mut self.held);
        } else if after.is_some() && self.is_formatted() {
            return Err(offset::was_reset());
        }
        if self.held_bytes > SNAPSHOT_BYTES_MAX {
            return Err(too_large());
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
        "The activities take more than {SNAPSHOT_BYTES_MAX} bytes, the limit of one answer. Omit frames and format, and read the envelopes."
    );
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "activities_too_large", detail).with("limit", SNAPSHOT_BYTES_MAX)
}
