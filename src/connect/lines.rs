//! The output of a program, line by line.
//!
//! Nothing reads ahead of the turn: what a program writes beyond one line waits in its pipe, and the program with it.

use super::error::UpstreamError;
use crate::model::json::without_mark;
use bytes::BytesMut;
use std::future::pending;
use std::os::fd::AsFd;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes that one read asks for: as much as a pipe holds.
const READ_BYTES: usize = 64 * 1024;
/// Bytes of output that the server reads while it writes to the program, so that neither waits for the other.
const AHEAD_BYTES_MAX: usize = 1024 * 1024;
/// Bytes that are dropped at once before a turn. A program that has more is at work on something else.
const DROPPED_BYTES_MAX: usize = 1024 * 1024;

pub(super) struct LineReader<R> {
    output: R,
    buffer: BytesMut,
    /// The bytes at the start of the buffer that have no line end.
    searched: usize,
    line_bytes_max: usize,
    /// Whether the buffer begins within a line whose beginning was dropped.
    is_within_dropped: bool,
}

impl<R: AsyncRead + AsFd + Unpin> LineReader<R> {
    pub fn new(output: R, line_bytes_max: usize) -> Self {
        Self { output, buffer: BytesMut::new(), searched: 0, line_bytes_max, is_within_dropped: false }
    }

    /// The next line that is not blank; `None` at the end of the output. Cancel safe.
    ///
    /// # Errors
    /// The line is too large.
    pub async fn next(&mut self) -> Option<Result<String, UpstreamError>> {
        loop {
            if let Some(line) = self.take_line() {
                return Some(Ok(line));
            }
            if self.buffer.len() > self.line_bytes_max {
                let reason = format!("A line of the agent's process is larger than {} bytes, the limit.", self.line_bytes_max);
                return Some(Err(UpstreamError::new("process_line_too_large", reason)));
            }
            if !self.read_more().await {
                return None;
            }
        }
    }

    /// Reads a limited amount, for [`Self::next`]. Never resolves. Cancel safe.
    pub async fn read_ahead(&mut self) {
        while self.buffer.len() < AHEAD_BYTES_MAX && self.read_more().await {}
        pending::<()>().await;
    }

    /// Reads and drops the output until its end. Cancel safe.
    pub async fn discard(&mut self) {
        loop {
            self.drop_buffer();
            if !self.read_more().await {
                return;
            }
        }
    }

    /// Drops what the program has written so far, with the rest of its last line.
    pub fn discard_written(&mut self) {
        self.drop_buffer();
        let mut bytes = [0; 4096];
        let mut dropped = 0;
        // Asks the pipe itself: the runtime may not have noticed yet what came.
        while dropped < DROPPED_BYTES_MAX {
            let Ok(read @ 1..) = rustix::io::read(&self.output, &mut bytes) else { return };
            self.is_within_dropped = bytes[read - 1] != b'\n';
            dropped += read;
        }
    }

    fn take_line(&mut self) -> Option<String> {
        while let Some(end) = memchr::memchr(b'\n', &self.buffer[self.searched..]) {
            let line = self.buffer.split_to(self.searched + end + 1);
            self.searched = 0;
            let line = String::from_utf8_lossy(without_mark(&line)).trim().to_owned();
            if !std::mem::take(&mut self.is_within_dropped) && !line.is_empty() {
                return Some(line);
            }
        }
        self.searched = self.buffer.len();
        if self.is_within_dropped {
            self.drop_buffer();
        }
        None
    }

    /// `false` at the end of the output. Cancel safe.
    async fn read_more(&mut self) -> bool {
        self.buffer.reserve(READ_BYTES);
        self.output.read_buf(&mut self.buffer).await.is_ok_and(|bytes| bytes > 0)
    }

    fn drop_buffer(&mut self) {
        if let Some(last) = self.buffer.last() {
            self.is_within_dropped = *last != b'\n';
        }
        self.buffer = BytesMut::new();
        self.searched = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::unix::pipe;

    #[tokio::test]
    async fn a_turn_begins_with_the_first_whole_line_after_what_was_dropped() {
        let (mut program, output) = pipe::pipe().unwrap();
        let mut lines = LineReader::new(output, 64);
        program.write_all(b"first\n\nlate\nlater, in ").await.unwrap();
        assert_eq!(lines.next().await.unwrap().unwrap(), "first");
        lines.discard_written();
        program.write_all(b"two parts").await.unwrap();
        lines.discard_written();
        program.write_all(b" or three\nsecond\nthi").await.unwrap();
        assert_eq!(lines.next().await.unwrap().unwrap(), "second", "the rest of a dropped line is dropped, too");
        program.write_all(b"rd\n").await.unwrap();
        assert_eq!(lines.next().await.unwrap().unwrap(), "third");
        program.write_all(&[b'x'; 65]).await.unwrap();
        assert!(lines.next().await.unwrap().is_err(), "a line has a limit");
    }

    #[tokio::test]
    async fn a_program_that_is_not_read_from_is_held_by_its_pipe() {
        let (mut program, output) = pipe::pipe().unwrap();
        let mut lines = LineReader::new(output, usize::MAX);
        let written = tokio::spawn(async move {
            program.write_all(&vec![b'x'; 3 * AHEAD_BYTES_MAX]).await.unwrap();
            program
        });
        // It never resolves; it reads as long as it has room and the program writes.
        for _ in 0..1000 {
            tokio::select! {
                biased;
                () = lines.read_ahead() => unreachable!(),
                () = tokio::task::yield_now() => {}
            }
        }
        assert!(!written.is_finished(), "the program waits");
        assert!(lines.buffer.len() < AHEAD_BYTES_MAX + 2 * READ_BYTES, "{}", lines.buffer.len());
        let program = tokio::select! {
            () = lines.discard() => unreachable!("the output has not ended"),
            program = written => program.unwrap(),
        };
        drop(program);
        lines.discard().await;
        assert!(lines.buffer.capacity() <= 2 * READ_BYTES, "nothing of it stays: {}", lines.buffer.capacity());
    }
}
