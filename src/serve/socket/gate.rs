//! A socket of which little is read, until somebody is known to be there.

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What may be read of a connection until it has said who it is, in bytes.
pub(super) const UNKNOWN_BYTES_MAX: usize = 16 * 1024;

/// A socket of which only so much is read, until somebody is known to be there.
pub(super) struct Gate {
    pub io: TokioIo<Upgraded>,
    pub room: Option<usize>,
}

impl AsyncRead for Gate {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(room) = self.room else { return Pin::new(&mut self.io).poll_read(context, into) };
        if room == 0 {
            return Poll::Ready(Err(io::Error::other("more was sent than is read of somebody who is not known")));
        }
        let mut part = vec![0; room.min(into.remaining())];
        let mut part = ReadBuf::new(&mut part);
        let polled = Pin::new(&mut self.io).poll_read(context, &mut part);
        into.put_slice(part.filled());
        let read = part.filled().len();
        self.room = Some(room - read);
        polled
    }
}

impl AsyncWrite for Gate {
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
