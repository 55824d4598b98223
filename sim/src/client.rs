//! A client on a connection in memory, which may be cut after any byte.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

/// A connection that ends after so many bytes in both directions.
pub struct Cut {
    inner: DuplexStream,
    left: u64,
}

impl Cut {
    /// Opens a connection to a node; `None` if the node is gone. The pipe holds `buffer` bytes in each direction.
    #[must_use]
    pub fn connect(node: &UnboundedSender<DuplexStream>, buffer: u64, left: u64) -> Option<Self> {
        let (inner, served) = tokio::io::duplex(buffer as usize);
        node.send(served).ok()?;
        Some(Self { inner, left })
    }
}

impl AsyncRead for Cut {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.left == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut bytes = [0; 2048];
        let room = to.remaining().min(bytes.len()).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let mut part = ReadBuf::new(&mut bytes[..room]);
        let polled = Pin::new(&mut self.inner).poll_read(context, &mut part);
        if let Poll::Ready(Ok(())) = polled {
            to.put_slice(part.filled());
            self.left -= part.filled().len() as u64;
        }
        polled
    }
}

impl AsyncWrite for Cut {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.left == 0 {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let polled = Pin::new(&mut self.inner).poll_write(context, &bytes[..room]);
        if let Poll::Ready(Ok(written)) = &polled {
            self.left -= *written as u64;
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// A task that ends with its owner.
struct Owned(JoinHandle<()>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub text: String,
}

impl Answer {
    /// The body as JSON; null if it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// The code of a problem.
    #[must_use]
    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// Sends a request; `None` if the connection ended before the whole answer.
pub async fn send(socket: Cut, request: Request<String>) -> Option<Answer> {
    let (response, _connection) = begin(socket, request).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.ok()?.to_bytes();
    Some(Answer { status, text: String::from_utf8(body.into()).ok()? })
}

async fn begin(socket: Cut, request: Request<String>) -> Option<(Response<Incoming>, Owned)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.ok()?;
    let connection = Owned(tokio::task::spawn_local(async move { drop(connection.await) }));
    let request = request.map(|body| Full::new(Bytes::from(body)));
    Some((sender.send_request(request).await.ok()?, connection))
}

/// One event of a stream: its id, and its data.
#[derive(Debug, Clone)]
pub struct Event {
    pub id: Option<String>,
    pub data: String,
}

/// An open stream of server-sent events.
pub struct Events {
    body: Incoming,
    read: Vec<u8>,
    _connection: Owned,
}

impl Events {
    /// Opens a stream; `Err` with any answer but 200. `None` if the connection ended.
    pub async fn open(socket: Cut, request: Request<String>) -> Option<Result<Self, Answer>> {
        let (response, connection) = begin(socket, request).await?;
        let status = response.status().as_u16();
        let mut body = response.into_body();
        if status == 200 {
            return Some(Ok(Self { body, read: Vec::new(), _connection: connection }));
        }
        let mut text = Vec::new();
        while let Some(frame) = body.frame().await {
            text.extend_from_slice(frame.ok()?.data_ref()?);
        }
        Some(Err(Answer { status, text: String::from_utf8(text).ok()? }))
    }

    /// The next event that has data; `None` at the end of the stream, or of the connection.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            while let Some(end) = self.read.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.read.drain(..end + 2).collect();
                let block = String::from_utf8(block).ok()?;
                let value = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                if let Some(data) = value("data: ") {
                    return Some(Event { id: value("id: "), data });
                }
            }
            let frame = self.body.frame().await?.ok()?;
            self.read.extend_from_slice(frame.data_ref()?);
        }
    }
}
