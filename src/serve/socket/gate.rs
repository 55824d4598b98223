//! A socket that limits its input until the client has authenticated.

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;

/// Maximum input of an unauthenticated connection, in bytes.
pub(super) const UNAUTHENTICATED_BYTES_MAX: usize = 16 * 1024;

pub(super) type Socket = WebSocketStream<ReadLimited>;

/// A socket that limits its input until the client has authenticated.
pub(super) struct ReadLimited {
    pub io: TokioIo<Upgraded>,
    pub bytes_left: Option<usize>,
}

impl AsyncRead for ReadLimited {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(bytes_left) = self.bytes_left else { return Pin::new(&mut self.io).poll_read(context, into) };
        if bytes_left == 0 {
            return Poll::Ready(Err(io::Error::other("an unauthenticated client sent too much")));
        }
        let mut part = vec![0; bytes_left.min(into.remaining())];
        let mut part = ReadBuf::new(&mut part);
        let polled = Pin::new(&mut self.io).poll_read(context, &mut part);
        into.put_slice(part.filled());
        let read = part.filled().len();
        self.bytes_left = Some(bytes_left - read);
        polled
    }
}

impl AsyncWrite for ReadLimited {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
