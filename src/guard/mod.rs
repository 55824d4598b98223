//! The one door to the log: redacts secrets, moves large bodies out, and hands back the only value that the log takes.
//!
//! A [`Guarded`] cannot be made anywhere else, so what is stored, sent, exported or replayed has passed here. Bodies come
//! first: an envelope that refers to a body is handed on together with it.

use crate::model::{BlobId, Draft};
use bytes::Bytes;

/// What the guard is told to do.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The largest string or output that stays in the envelope, in bytes of its JSON text. Default 32 KiB.
    pub inline_bytes_max: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self { inline_bytes_max: 32 * 1024 }
    }
}

/// A body that was moved out of an envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    pub id: BlobId,
    /// `text/plain; charset=utf-8` or `application/json`.
    pub media_type: &'static str,
    pub bytes: Bytes,
}

/// A draft without secrets and without large bodies, and the bodies it refers to.
#[derive(Debug, Clone, PartialEq)]
pub struct Guarded {
    draft: Draft,
    bodies: Vec<Body>,
}
