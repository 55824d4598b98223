//! Frames of several logs on their way to one consumer.

use crate::encode::encoded::{EncodedFrames, FrameBuffer};
use crate::model::{Cursor, Epoch};
use std::collections::VecDeque;

/// The bytes at which a block of copied frames is full.
const BLOCK_BYTES_MAX: usize = 16 * 1024;

/// Blocks of frames, in order: finished ones, and an open one that gets further frames.
///
/// Cursors of one log are meaningless on a stream of several, so that frames with cursors are copied.
pub(super) struct Blocks {
    finished: VecDeque<EncodedFrames>,
    open: FrameBuffer,
}

impl Blocks {
    pub const fn new() -> Self {
        Self { finished: VecDeque::new(), open: new_block() }
    }

    /// Appends copies of frames without their cursors.
    pub fn copy(&mut self, frames: &EncodedFrames) {
        if self.open.len() >= BLOCK_BYTES_MAX {
            self.finish_open();
        }
        self.open.append(frames);
    }

    /// Appends a block as it is: its frames have no cursors, or the stream's.
    pub fn push(&mut self, block: EncodedFrames) {
        self.finish_open();
        self.finished.push_back(block);
    }

    /// Gives the last frame a cursor, if it is in the open block.
    pub fn set_cursor(&mut self, cursor: Cursor) {
        if !self.open.is_empty() {
            self.open.set_cursor_at(cursor);
        }
    }

    fn finish_open(&mut self) {
        if !self.open.is_empty() {
            self.finished.push_back(std::mem::replace(&mut self.open, new_block()).finish());
        }
    }

    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.finished.is_empty() && self.open.is_empty()
    }

    /// Whether a block is finished.
    pub fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// Takes the next finished block.
    pub fn next_finished(&mut self) -> Option<EncodedFrames> {
        self.finished.pop_front()
    }

    /// Takes the next block, finished or not.
    pub fn next(&mut self) -> Option<EncodedFrames> {
        if self.finished.is_empty() {
            self.finish_open();
        }
        self.next_finished()
    }
}

/// A block without an epoch: its only cursor has one.
const fn new_block() -> FrameBuffer {
    FrameBuffer::new(Epoch::from_random(0))
}
