//! A reader of one log, of several logs, or of lists.

use super::fan_out::Followers;
use super::merged_reader::MergedReader;
use super::reader::Reader;
use crate::encode::encoded::EncodedFrames;
use crate::encode::lists;
use crate::log::StoreError;
use crate::model::Cursor;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use std::sync::Arc;
use std::task::Waker;

/// A reader of one log, of several logs, or of lists.
pub enum AnyReader {
    One(Reader),
    Merged(Box<MergedReader>),
    /// Frames about many logs, from above the feed. They never end.
    Lists(BoxStream<'static, Result<EncodedFrames, StoreError>>),
}

impl AnyReader {
    /// Whether the client need not reconnect; see [`Reader::has_seen_end`]. Always false for several logs.
    #[must_use]
    pub const fn has_seen_end(&self) -> bool {
        matches!(self, Self::One(reader) if reader.has_seen_end())
    }

    /// Waits for the next frames; `None` after the end of the only run. Dropping the future loses no frame.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn next(&mut self) -> Result<Option<EncodedFrames>, StoreError> {
        match self {
            Self::One(reader) => reader.next().await,
            Self::Merged(reader) => reader.next().await.map(Some),
            Self::Lists(frames) => frames.next().await.transpose(),
        }
    }

    /// Reads the store for a reader that is [`TryNext::Busy`].
    ///
    /// A reader of one log also waits for its next frames. Dropping the future loses no frame.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn advance(&mut self) -> Result<TryNext, StoreError> {
        match self {
            Self::One(reader) => Ok(reader.next().await?.map_or(TryNext::Busy, TryNext::Frames)),
            Self::Merged(reader) => reader.advance().await,
            Self::Lists(frames) => Ok(frames.next().await.transpose()?.map_or(TryNext::Busy, TryNext::Frames)),
        }
    }

    /// The next frames of what was committed before this call, or [`TryNext::Idle`] if the reader has all of it.
    ///
    /// It waits at most for a flush. After the end of the only run it is [`TryNext::Busy`]. Dropping the future loses no
    /// frame.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn read_committed(&mut self) -> Result<TryNext, StoreError> {
        match self {
            Self::One(reader) => {
                let committed = reader.committed();
                loop {
                    match reader.read_on().await? {
                        TryNext::Idle if reader.is_before(committed) => reader.flushed().await,
                        other => return Ok(other),
                    }
                }
            }
            Self::Merged(reader) => reader.advance().await,
            Self::Lists(_) => Ok(TryNext::Busy),
        }
    }

    /// Where the reader of one log is; `None` for several logs, and before the log was written.
    #[must_use]
    pub fn position(&self) -> Option<Cursor> {
        match self {
            Self::One(reader) => reader.position(),
            Self::Merged(_) | Self::Lists(_) => None,
        }
    }

    /// The next frames, if the reader has them now; see [`Reader::try_next`].
    pub fn try_next(&mut self) -> TryNext {
        match self {
            Self::One(reader) => reader.try_next(),
            Self::Merged(reader) => reader.try_next(),
            Self::Lists(_) => TryNext::Busy,
        }
    }

    /// Leaves the wakes of this reader to a task; see [`Reader::follow`] and [`MergedReader::follow`].
    pub fn follow(&mut self, followers: &Arc<Followers>, key: usize, waker: &Waker) {
        match self {
            Self::One(reader) => reader.follow(followers, key),
            Self::Merged(reader) => reader.follow(waker),
            // Its connection awaits it.
            Self::Lists(_) => {}
        }
    }

    /// Gives the reader its own wakes again; see [`Reader::unfollow`].
    pub fn unfollow(&mut self) {
        if let Self::One(reader) = self {
            reader.unfollow();
        }
    }

    /// Whether the last frame was returned; see [`Reader::is_done`].
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self, Self::One(reader) if reader.is_done())
    }

    /// Whether no other reader reads the only run; see [`Reader::is_alone`]. Always true for several logs.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        match self {
            Self::One(reader) => reader.is_alone(),
            Self::Merged(_) | Self::Lists(_) => true,
        }
    }

    /// The Error frame that ends the stream.
    #[must_use]
    pub fn error(&self, problem: &serde_json::Value) -> EncodedFrames {
        match self {
            Self::One(reader) => reader.error(problem),
            Self::Merged(reader) => reader.error(problem),
            Self::Lists(_) => lists::error(problem),
        }
    }

    /// Sends the only run's activities again; see [`Reader::restart`].
    pub fn restart(&mut self) {
        if let Self::One(reader) = self {
            reader.restart();
        }
    }

    /// Returns the reader to `cursor`; see [`Reader::rewind`].
    pub fn rewind(&mut self, cursor: Cursor) -> bool {
        match self {
            Self::One(reader) => reader.rewind(cursor),
            // A returned block has one log's frames of one round, and its consumer keeps it.
            Self::Merged(_) | Self::Lists(_) => false,
        }
    }
}

/// What a reader has without waiting.
pub enum TryNext {
    Frames(EncodedFrames),
    /// Nothing before the log's next flush.
    Idle,
    /// [`AnyReader::next`] knows: the reader reads the log, or has returned its last frame.
    Busy,
}
