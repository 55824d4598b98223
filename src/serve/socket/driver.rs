//! Drives one connection.
//!
//! It reads while it has space for replies, and writes when the socket accepts more.

use super::connection::{Close, Connection};
use super::message::refusal;
use crate::auth::{GrantWatch, TokenError};
use crate::encode::native;
use crate::serve::access::authorization::unauthenticated;
use crate::serve::http::problem::Problem;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::StatusCode;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::{Error, Message};

/// Maximum payload of one WebSocket frame.
///
/// Longer messages are split: the library never frees the memory that its longest frame took.
const PIECE_BYTES_MAX: usize = 16 * 1024;
/// Maximum messages whose replies are pending or unsent. Beyond it no more are read.
const REPLIES_PENDING_MAX: usize = 64;
/// Maximum bytes of unsent replies, unless a single reply is larger.
const REPLIES_BYTES_MAX: usize = 256 * 1024;
/// Maximum client pings answered while the client reads nothing.
const PONGS_AHEAD_MAX: usize = 64;
/// Server pings without an answer after which the connection closes.
const PINGS_UNANSWERED_MAX: u32 = 2;
/// Time and input limits of a closing connection.
///
/// The client gets this long to read its last messages. Its own input is discarded meanwhile.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(2);
const DISCARD_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Time that a client gets to authenticate.
const AUTH_TIME_MAX: Duration = Duration::from_secs(10);
impl Connection<'_> {
    pub(super) async fn run(&mut self) {
        let stopping = self.app.stopping.waiter();
        let drain_delay = self.app.drain_delay();
        let heartbeat = self.app.keep_alive.heartbeat;
        let mut heartbeat_timer = pin!(tokio::time::sleep(heartbeat));
        let mut auth_deadline = self.client.is_none().then(|| Box::pin(tokio::time::sleep(AUTH_TIME_MAX)));
        let close = loop {
            if self.client.is_some() {
                auth_deadline = None;
            }
            // Taken anew in each round, because the token may be replaced.
            let mut watch = self.client.as_ref().and_then(|client| client.principal.watch());
            let received = tokio::select! {
                biased;
                () = stopping.elapsed(drain_delay) => {
                    break Some(Close::new(CloseCode::Away, "the server is stopping; reconnect with your cursors", None));
                }
                problem = token_ended(watch.as_mut()) => break Some(Close::unauthenticated("the token has ended", problem)),
                () = elapsed(auth_deadline.as_mut()) => {
                    let problem = unauthenticated(&TokenError::Missing);
                    break Some(Close::unauthenticated("the client did not authenticate in time", problem));
                }
                () = &mut heartbeat_timer => {
                    heartbeat_timer.as_mut().reset(Instant::now() + heartbeat);
                    if self.misses_pongs() {
                        break Some(Close::new(CloseCode::Policy, "two pings were not answered", None));
                    }
                    continue;
                }
                received = poll_fn(|context| self.poll(context)) => received,
            };
            self.is_alive = true;
            match received {
                // Boxed, so that an idle connection does not reserve its memory.
                Ok(Some(Message::Text(text))) => {
                    Box::pin(self.handle(&text)).await;
                    if let Some(close) = self.closing.take() {
                        break Some(close);
                    }
                }
                Ok(Some(Message::Ping(_))) => {
                    self.pings_unflushed += 1;
                    if self.pings_unflushed > PONGS_AHEAD_MAX && !poll_fn(|context| self.poll_flushed(context)).await {
                        break Some(Close::new(CloseCode::Policy, "the client sends pings and reads no pongs", None));
                    }
                }
                Ok(Some(Message::Pong(_) | Message::Frame(_))) => {}
                Ok(Some(Message::Close(_)) | None) => break None,
                Ok(Some(Message::Binary(_))) => {
                    let detail = "The message is binary. Send JSON as a text message.";
                    let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail);
                    break Some(Close::new(CloseCode::Unsupported, "messages must be JSON text", Some(problem)));
                }
                Err(error) => break self.close_for(&error),
            }
        };
        // The client may be gone or not reading; then it gets no close.
        let _ = tokio::time::timeout(CLOSE_TIME_MAX, Box::pin(self.close(close))).await;
    }

    /// Counts a heartbeat and schedules a ping. Returns whether too many pings are unanswered.
    fn misses_pongs(&mut self) -> bool {
        self.pings_unanswered = if std::mem::take(&mut self.is_alive) { 0 } else { self.pings_unanswered + 1 };
        self.ping_due = true;
        self.pings_unanswered >= PINGS_UNANSWERED_MAX
    }

    /// The close for input that is not a message. `None`: the client is gone.
    fn close_for(&self, error: &Error) -> Option<Close> {
        match error {
            Error::Capacity(_) => {
                let limit = self.app.limits.body_bytes_max;
                let detail = format!("The message is larger than {limit} bytes, the limit. Send its facts in parts.");
                let problem = Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail).with("limit", limit);
                Some(Close::new(CloseCode::Size, "a message is too large", Some(problem)))
            }
            Error::Utf8(_) => {
                let problem = Problem::bad_request("not_json", "The text message is not UTF-8. Send JSON.");
                Some(Close::new(CloseCode::Invalid, "a text message is not UTF-8", Some(problem)))
            }
            Error::Protocol(_) => Some(Close::new(CloseCode::Protocol, "WebSocket protocol error", None)),
            _ => None,
        }
    }

    /// Reads and writes as far as possible without waiting. Resolves with a message, or `None` at the end.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Message>, Error>> {
        loop {
            let had_space = self.has_space();
            if had_space && let Poll::Ready(received) = self.socket.poll_next_unpin(context) {
                return Poll::Ready(received.transpose());
            }
            self.send(context)?;
            if had_space || !self.has_space() {
                return Poll::Pending;
            }
        }
    }

    fn has_space(&self) -> bool {
        let forwarded = self.upstream.as_ref().map_or(0, |upstream| upstream.waiting.len());
        self.replies.len() + self.publishes.len() + forwarded < REPLIES_PENDING_MAX && self.takes_replies()
    }

    /// Whether the client has read enough to be sent further replies.
    pub(super) fn takes_replies(&self) -> bool {
        self.replies.len() < REPLIES_PENDING_MAX && self.replies.iter().map(String::len).sum::<usize>() < REPLIES_BYTES_MAX
    }

    /// Resolves to whether the socket has sent everything.
    fn poll_flushed(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        match self.socket.poll_flush_unpin(context) {
            Poll::Ready(flushed) => {
                self.pings_unflushed = 0;
                Poll::Ready(flushed.is_ok())
            }
            Poll::Pending if tokio::task::coop::has_budget_remaining() => Poll::Ready(false),
            // The task has used up its cooperative budget.
            Poll::Pending => Poll::Pending,
        }
    }

    /// Writes while the socket accepts more.
    fn send(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        // Collected even while the socket is stalled: all producers share the limit on data in flight to the store.
        while let Poll::Ready(Some(answer)) = self.publishes.poll_next_unpin(context) {
            self.replies.push_back(answer);
        }
        while self.has_space()
            && let Poll::Ready(Some(result)) = self.claims.poll_next_unpin(context)
        {
            // Otherwise the claim was aborted.
            if let Ok(result) = result {
                self.deliver_claim(result);
            }
        }
        self.poll_upstream(context);
        if self.stalled {
            let Poll::Ready(flushed) = self.socket.poll_flush_unpin(context) else { return Ok(()) };
            flushed?;
            // The client has read, which is a sign of life: a slow reader may receive the ping much later.
            (self.stalled, self.is_alive, self.pings_unflushed) = (false, true, 0);
        }
        loop {
            let Poll::Ready(ready) = self.socket.poll_ready_unpin(context) else {
                // Otherwise the task has used up its cooperative budget, and is woken again.
                if tokio::task::coop::has_budget_remaining() {
                    self.stalled = true;
                    self.release_unsent();
                }
                return Ok(());
            };
            ready?;
            match self.next(context) {
                Some(message) => self.socket.start_send_unpin(message)?,
                None => break,
            }
        }
        match self.socket.poll_flush_unpin(context) {
            Poll::Ready(flushed) => {
                self.pings_unflushed = 0;
                flushed
            }
            Poll::Pending => {
                self.stalled = tokio::task::coop::has_budget_remaining();
                Ok(())
            }
        }
    }

    /// The next message to write.
    fn next(&mut self, context: &mut Context<'_>) -> Option<Message> {
        if let Some(message_rest) = self.message_rest.take() {
            return Some(self.piece(message_rest, Data::Continue));
        }
        if std::mem::take(&mut self.ping_due) {
            return Some(Message::Ping(Bytes::new()));
        }
        if let Some(answer) = self.replies.pop_front() {
            return Some(self.piece(answer.into(), Data::Text));
        }
        loop {
            if let Some(mut ready) = self.ready.take() {
                if let Some((text, at)) = native::message(&mut ready.frames, &ready.sub) {
                    ready.at = at;
                    ready.counted.delivered();
                    self.ready = Some(ready);
                    return Some(self.piece(text.into(), Data::Text));
                }
                match ready.is_last {
                    true => drop(self.subscriptions.remove(&ready.sub)),
                    false => self.wait_for_frames(ready.sub, ready.reader, ready.counted, ready.access),
                }
            }
            match self.readers.poll_next_unpin(context) {
                Poll::Ready(Some(Ok(ready))) => self.ready = Some(ready),
                // The subscription was aborted.
                Poll::Ready(Some(Err(_))) => {}
                Poll::Ready(None) | Poll::Pending => return None,
            }
        }
    }

    /// Splits off the next piece of a message, and keeps the rest.
    fn piece(&mut self, mut text: Bytes, kind: Data) -> Message {
        let piece = text.split_to(text.len().min(PIECE_BYTES_MAX));
        let is_last = text.is_empty();
        self.message_rest = (!is_last).then_some(text);
        Message::Frame(Frame::message(piece, OpCode::Data(kind), is_last))
    }

    /// Closes the connection.
    ///
    /// It follows the client's close frame, or sends the server's own after all pending replies.
    async fn close(&mut self, close: Option<Close>) -> Result<(), Error> {
        let Some(Close { problem, code, reason }) = close else {
            self.socket.flush().await?;
            return Ok(self.socket.get_mut().shutdown().await?);
        };
        while let Some(message_rest) = self.message_rest.take() {
            let piece = self.piece(message_rest, Data::Continue);
            self.socket.feed(piece).await?;
        }
        while let Some(answer) = self.publishes.next().await {
            self.replies.push_back(answer);
        }
        self.drain_upstream().await;
        self.replies.extend(problem.map(|problem| refusal(None, &problem)));
        while let Some(answer) = self.replies.pop_front() {
            self.socket.feed(Message::Text(answer.into())).await?;
        }
        self.socket.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await?;
        let io = self.socket.get_mut();
        io.shutdown().await?;
        // Closing a socket with unread input resets it, and the client would lose the close frame.
        let (mut void, mut discarded) = ([0; 512], 0);
        while discarded < DISCARD_BYTES_MAX {
            match io.read(&mut void).await? {
                0 => break,
                read => discarded += read,
            }
        }
        Ok(())
    }
}

/// Waits until a token ends; forever without one.
async fn token_ended(watch: Option<&mut GrantWatch>) -> Problem {
    match watch {
        Some(watch) => unauthenticated(&TokenError::Ended(watch.ended().await)),
        None => std::future::pending().await,
    }
}

/// Waits for a timer; forever without one.
async fn elapsed(sleep: Option<&mut Pin<Box<tokio::time::Sleep>>>) {
    match sleep {
        Some(sleep) => sleep.await,
        None => std::future::pending().await,
    }
}
