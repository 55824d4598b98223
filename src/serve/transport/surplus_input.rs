//! What the client of a stream sends after its request.
//!
//! A stream's request is the last one of its connection, so its client has nothing more to send. A client that sends
//! without end must not occupy the thread that serves all others.

use std::io;
use tokio::net::TcpStream;

/// Maximum bytes that the client of a stream may send after its request.
const SURPLUS_BYTES_MAX: usize = 16 * 1024;
/// Maximum bytes of one read.
const READ_BYTES: usize = 4096;

/// The input of a stream after its request: it is discarded, and too much of it ends the stream.
#[derive(Default)]
pub struct SurplusInput {
    discarded: usize,
}

impl SurplusInput {
    /// Discards what has come, and returns whether the stream ends: the client has closed its side or sent too much.
    pub fn discard(&mut self, socket: &TcpStream) -> io::Result<bool> {
        let mut void = [0; READ_BYTES];
        while self.discarded <= SURPLUS_BYTES_MAX {
            match socket.try_read(&mut void) {
                Ok(0) => return Ok(true),
                Ok(read) => self.discarded += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        tracing::debug!("a stream ends: its client sent more than {SURPLUS_BYTES_MAX} bytes after its request");
        Ok(true)
    }

    /// Discards input until the stream ends. Cancel safe.
    pub async fn ended(&mut self, socket: &TcpStream) -> io::Result<()> {
        loop {
            socket.readable().await?;
            if self.discard(socket)? {
                return Ok(());
            }
        }
    }
}
