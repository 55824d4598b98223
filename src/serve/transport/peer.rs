//! The other side of a plain connection, for answers that only a present client may get.
//!
//! hyper reads nothing while a request is answered if a client may half-close, so it does not notice that a client has
//! gone. A long poll for controls would take one for a worker that is dead.

use futures_util::FutureExt;
use socket2::SockRef;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// The time between two looks at a client that has sent a further request already.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A socket that a connection reads and writes, while its requests may look at its peer.
pub struct SharedSocket(Arc<TcpStream>);

/// The client at the other end of a socket.
#[derive(Clone)]
pub struct Peer(Arc<TcpStream>);

impl SharedSocket {
    /// Shares a socket with its requests.
    #[must_use]
    pub fn new(socket: TcpStream) -> Self {
        Self(Arc::new(socket))
    }

    /// The client at the other end.
    #[must_use]
    pub fn peer(&self) -> Peer {
        Peer(self.0.clone())
    }
}

impl Peer {
    /// Whether the client has closed its side of the connection, or reset it.
    #[must_use]
    pub fn has_left(&self) -> bool {
        let has_left = match self.peek() {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        };
        // The end may stand behind bytes of a further request.
        has_left
            || self
                .0
                .ready(Interest::READABLE)
                .now_or_never()
                .is_some_and(|ready| ready.is_ok_and(tokio::io::Ready::is_read_closed))
    }

    /// Resolves once the client has left.
    pub async fn left(&self) {
        loop {
            match self.0.ready(Interest::READABLE).await {
                Ok(ready) if !ready.is_read_closed() => {}
                _ => return,
            }
            match self.0.try_io(Interest::READABLE, || self.peek()) {
                Ok(0) => return,
                // Bytes of a further request keep the socket readable.
                Ok(_) => tokio::time::sleep(LOOK_INTERVAL).await,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    /// Reads ahead without taking the byte. 0 is the end.
    fn peek(&self) -> io::Result<usize> {
        SockRef::from(&*self.0).peek(&mut [MaybeUninit::uninit()])
    }
}

impl AsyncRead for SharedSocket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read_buf(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(drop)),
            }
        }
    }
}

impl AsyncWrite for SharedSocket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write_vectored(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.0).shutdown(Shutdown::Write))
    }
}
