//! Writers: streams on plain sockets, each with as little of its own as possible.
//!
//! ```text
//!   opening ─▶ task of its own ◀──── socket full · reads the log · ends ────┐
//!              catches up, waits    ───── has everything, socket takes all ─▶ writer
//! ```
//!
//! A stream that has everything needs only one step at each flush: one read from the ring, one write to the socket. That
//! holds for streams in clients' formats too, whose readers share their text. One
//! *writer* per worker thread does that for all of them, woken once for all flushes. Anything else happens in a task of
//! the stream's own, to which the writer gives the stream back.

use super::surplus_input::SurplusInput;
use crate::encode::encoded::EncodedFrames;
use crate::feed::TryNext;
use crate::feed::fan_out::{Followers, give_way};
use crate::log::commit::Logs;
use crate::serve::access::quota::ConnectionPermit;
use crate::serve::api::stream::COPIED_BYTES_MAX;
use crate::serve::clients::open_stream::OpenStream;
use bytes::Bytes;
use parking_lot::Mutex;
use slab::Slab;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Maximum unsent bytes that a stalled reader holds, unless a single frame is larger.
pub const UNSENT_BYTES_MAX: usize = 8 * 1024;

/// The time between two looks at the streams' heartbeats and tokens.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The number of writes after which a writer gives way to other work.
const WRITES_AT_ONCE: usize = 16;

/// An open stream on its socket.
pub struct LiveStream {
    socket: TcpStream,
    stream: OpenStream,
    input: SurplusInput,
    /// Counts the connection while it is open.
    _permit: ConnectionPermit,
}

impl LiveStream {
    /// A stream whose request was the last one of this connection.
    #[must_use]
    pub fn new(socket: TcpStream, stream: OpenStream, permit: ConnectionPermit) -> Self {
        Self { socket, stream, input: SurplusInput::default(), _permit: permit }
    }
}

/// The writers of all worker threads.
pub struct Writers {
    inboxes: Box<[Arc<Inbox>]>,
    next: AtomicUsize,
    logs: Arc<Logs>,
}

/// What waits for one writer.
struct Inbox {
    joining: Mutex<Vec<LiveStream>>,
    /// Streams whose socket has something to read, or was closed, and streams of several logs that have moved.
    woken: Mutex<Vec<usize>>,
    followers: Arc<Followers>,
    wake: Arc<Notify>,
}

impl Inbox {
    fn new() -> Arc<Self> {
        let wake = Arc::new(Notify::new());
        let followers = Followers::new(wake.clone());
        Arc::new(Self { joining: Mutex::default(), woken: Mutex::default(), followers, wake })
    }

    fn push<T>(&self, list: &Mutex<Vec<T>>, item: T) {
        list.lock().push(item);
        self.wake.notify_one();
    }
}

impl Writers {
    /// Creates this many writers, which give way to the committer of `logs`.
    #[must_use]
    pub fn new(count: usize, logs: Arc<Logs>) -> Arc<Self> {
        Arc::new(Self { inboxes: (0..count.max(1)).map(|_| Inbox::new()).collect(), next: AtomicUsize::new(0), logs })
    }

    /// The writers' tasks.
    pub fn tasks(self: &Arc<Self>) -> impl Iterator<Item = impl Future<Output = ()> + Send + use<>> {
        let writers = self.clone();
        (0..self.inboxes.len()).map(move |n| {
            let writer = Writer { inbox: writers.inboxes[n].clone(), writers: writers.clone(), slots: Slab::new(), writes: 0 };
            // A writer gives way by itself. Tokio's budget would end its look at a socket early, and wake it again.
            tokio::task::unconstrained(writer.run())
        })
    }

    /// Serves a stream until it ends or its client disconnects, after these first bytes.
    pub fn serve(self: &Arc<Self>, live: LiveStream, first: impl Into<EncodedFrames>) {
        let (writers, first) = (self.clone(), first.into());
        tokio::spawn(async move {
            if let Err(error) = writers.catch_up(live, first).await {
                tracing::debug!(%error, "a connection failed");
            }
        });
    }

    /// Sends `unsent`, and then what the stream has, until it ends or has everything. Then a writer serves it.
    async fn catch_up(&self, mut live: LiveStream, mut unsent: EncodedFrames) -> io::Result<()> {
        loop {
            let LiveStream { socket, stream, input, .. } = &mut live;
            while !unsent.is_empty() {
                match socket.try_write(unsent.as_ref()) {
                    Ok(written) => unsent.advance(written),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        unsent = shrink_unsent(&unsent, stream);
                        socket.writable().await?;
                    }
                    Err(error) => return Err(error),
                }
            }
            match stream.try_next() {
                TryNext::Frames(frames) => {
                    unsent = frames;
                    // A reader that is always behind must not keep the thread.
                    tokio::task::consume_budget().await;
                    continue;
                }
                TryNext::Idle => {
                    let inbox = &self.inboxes[self.next.fetch_add(1, Ordering::Relaxed) % self.inboxes.len()];
                    inbox.push(&inbox.joining, live);
                    return Ok(());
                }
                TryNext::Busy => {}
            }
            let next = tokio::select! {
                biased;
                next = stream.advance() => next,
                ended = input.ended(socket) => return ended,
            };
            match next {
                TryNext::Frames(frames) => unsent = frames,
                TryNext::Idle => {}
                TryNext::Busy => return socket.shutdown().await,
            }
        }
    }
}

/// A stream that has everything.
struct Slot {
    live: LiveStream,
    /// Called when the socket becomes readable, and when one of several logs moves.
    waker: Waker,
    heartbeat_at: Instant,
}

/// Reports a stream to look at.
struct WokenStream {
    inbox: Arc<Inbox>,
    key: usize,
}

impl Wake for WokenStream {
    fn wake(self: Arc<Self>) {
        self.inbox.push(&self.inbox.woken, self.key);
    }
}

/// The task that writes to many streams.
struct Writer {
    inbox: Arc<Inbox>,
    writers: Arc<Writers>,
    slots: Slab<Slot>,
    /// Writes since it gave way.
    writes: usize,
}

impl Drop for Writer {
    fn drop(&mut self) {
        // A flush keeps the feed alive, which keeps the followers.
        drop(self.inbox.followers.take());
    }
}

impl Writer {
    async fn run(mut self) {
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let is_look = tokio::select! {
                () = self.inbox.wake.notified() => false,
                _ = look.tick(), if !self.slots.is_empty() => true,
            };
            let joining = std::mem::take(&mut *self.inbox.joining.lock());
            for live in joining {
                self.join(live);
            }
            let woken = std::mem::take(&mut *self.inbox.woken.lock());
            for key in woken {
                self.check_socket(key);
                self.write(key);
                self.give_way_at_times().await;
            }
            for flush in self.inbox.followers.take() {
                for key in &flush.readers {
                    self.write(*key);
                    self.give_way_at_times().await;
                }
            }
            if is_look {
                self.look().await;
            }
        }
    }

    fn join(&mut self, live: LiveStream) {
        let entry = self.slots.vacant_entry();
        let key = entry.key();
        let waker = Waker::from(Arc::new(WokenStream { inbox: self.inbox.clone(), key }));
        let heartbeat_at = Instant::now() + live.stream.heartbeat();
        let slot = entry.insert(Slot { live, waker, heartbeat_at });
        slot.live.stream.follow(&self.inbox.followers, key, &slot.waker);
        self.check_socket(key);
        // Frames may have come before this stream followed.
        self.write(key);
    }

    /// Writes what the stream has.
    fn write(&mut self, key: usize) {
        // A flush may name a stream that has left meanwhile, or another stream in its place: that one loses nothing.
        while let Some(slot) = self.slots.get_mut(key) {
            match slot.live.stream.try_next() {
                TryNext::Frames(frames) => self.send(key, frames),
                TryNext::Idle => return,
                TryNext::Busy => self.give_back(key, Bytes::new().into()),
            }
        }
    }

    /// Sends frames to a stream. It leaves if its socket does not accept all of them.
    fn send(&mut self, key: usize, mut frames: EncodedFrames) {
        self.writes += 1;
        match self.slots[key].live.socket.try_write(frames.as_ref()) {
            Ok(written) if written == frames.len() => {}
            Ok(written) => {
                frames.advance(written);
                self.give_back(key, frames);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.give_back(key, frames),
            Err(error) => {
                tracing::debug!(%error, "a connection failed");
                self.slots.remove(key);
            }
        }
    }

    /// Gives a stream back to a task of its own, with frames that it has not sent.
    fn give_back(&mut self, key: usize, unsent: EncodedFrames) {
        let mut live = self.slots.remove(key).live;
        live.stream.unfollow();
        self.writers.serve(live, unsent);
    }

    /// Removes a stream that its client has ended, and waits for the next input of any other.
    fn check_socket(&mut self, key: usize) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        let LiveStream { socket, input, .. } = &mut slot.live;
        while let Poll::Ready(ready) = socket.poll_read_ready(&mut Context::from_waker(&slot.waker)) {
            if ready.and_then(|()| input.discard(socket)).unwrap_or(true) {
                self.slots.remove(key);
                return;
            }
        }
    }

    /// Sends the heartbeats that are due, and gives back the streams whose token has ended or that must stop.
    async fn look(&mut self) {
        let now = Instant::now();
        let due = |slot: &Slot| now >= slot.heartbeat_at || slot.live.stream.must_end();
        let keys: Vec<usize> = self.slots.iter().filter(|(_, slot)| due(slot)).map(|(key, _)| key).collect();
        for key in keys {
            let Some(slot) = self.slots.get_mut(key) else { continue };
            if slot.live.stream.must_end() {
                self.give_back(key, Bytes::new().into());
            } else {
                slot.heartbeat_at = now + slot.live.stream.heartbeat();
                let heartbeat = slot.live.stream.heartbeat_bytes();
                self.send(key, heartbeat);
            }
            self.give_way_at_times().await;
        }
    }

    /// Gives way to other work after each [`WRITES_AT_ONCE`] writes.
    async fn give_way_at_times(&mut self) {
        if self.writes >= WRITES_AT_ONCE {
            self.writes = 0;
            give_way(&self.writers.logs).await;
        }
    }
}

/// Reduces the bytes that a stalled reader holds to the rest of the current frame.
///
/// Everything after that frame is returned to the stream, to be read again when the socket accepts more. A small frame is
/// copied, so that the reader keeps no shared chunk alive. A large frame stays shared: it is nearly all of its chunk, and a
/// copy would belong to one reader alone.
fn shrink_unsent(unsent: &EncodedFrames, stream: &mut OpenStream) -> EncodedFrames {
    if unsent.len() <= UNSENT_BYTES_MAX {
        return unsent.copied_after(b"");
    }
    match unsent.current_frame() {
        (frame, Some(cursor)) if stream.rewind(cursor) => match frame.len() {
            ..=COPIED_BYTES_MAX => frame.copied_after(b""),
            _ => frame,
        },
        // A frame inside an envelope: the reader cannot resume after it.
        _ => unsent.clone(),
    }
}
