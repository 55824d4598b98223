//! A stream on a socket of its own, in the server's format or in a client's.

use super::{DialectStream, heartbeat_chunk};
use crate::encode::encoded::EncodedFrames;
use crate::encode::native::heartbeat;
use crate::feed::TryNext;
use crate::feed::fan_out::Followers;
use crate::model::Cursor;
use crate::serve::api::stream::Stream;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// An open stream, whose bytes a socket takes as they are.
pub enum OpenStream {
    Native(Box<Stream>),
    /// In chunks, so that a stream that is cut does not look complete.
    InFormat(Box<DialectStream>),
}

impl OpenStream {
    /// See [`Stream::try_next`].
    pub fn try_next(&mut self) -> TryNext {
        match self {
            Self::Native(stream) => stream.try_next(),
            Self::InFormat(stream) => stream.try_next(),
        }
    }

    /// See [`Stream::advance`].
    pub async fn advance(&mut self) -> TryNext {
        match self {
            Self::Native(stream) => stream.advance().await,
            // Boxed, so that the task of a native stream reserves no memory for it.
            Self::InFormat(stream) => Box::pin(stream.advance()).await,
        }
    }

    /// See [`Stream::rewind`]. The events of a client's format are sent once.
    pub fn rewind(&mut self, cursor: Cursor) -> bool {
        match self {
            Self::Native(stream) => stream.rewind(cursor),
            Self::InFormat(_) => false,
        }
    }

    /// See [`Stream::follow`].
    pub fn follow(&mut self, followers: &Arc<Followers>, key: usize, waker: &Waker) {
        match self {
            Self::Native(stream) => stream.follow(followers, key, waker),
            Self::InFormat(stream) => stream.follow(followers, key, waker),
        }
    }

    /// See [`Stream::unfollow`].
    pub fn unfollow(&mut self) {
        match self {
            Self::Native(stream) => stream.unfollow(),
            Self::InFormat(stream) => stream.unfollow(),
        }
    }

    /// See [`Stream::must_end`].
    #[must_use]
    pub fn must_end(&self) -> bool {
        match self {
            Self::Native(stream) => stream.must_end(),
            Self::InFormat(stream) => stream.must_end(),
        }
    }

    /// The time between two heartbeats.
    #[must_use]
    pub fn heartbeat(&self) -> Duration {
        match self {
            Self::Native(stream) => stream.heartbeat(),
            Self::InFormat(stream) => stream.heartbeat(),
        }
    }

    /// The bytes of a heartbeat.
    #[must_use]
    pub fn heartbeat_bytes(&self) -> EncodedFrames {
        match self {
            Self::Native(_) => heartbeat(),
            Self::InFormat(_) => heartbeat_chunk(),
        }
    }
}
