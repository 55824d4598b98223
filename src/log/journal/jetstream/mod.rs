//! The journal of a cluster: a stream of NATS, which any number of nodes follow.
//!
//! ```text
//!   stream     message 1     2     3      4     5    …         a message has a sequence
//!   records    [ record 1 ][ record 2  ][ record 3 ][ …        a record is one message, or several
//!                                  ▲
//!                                  └ a part without the rest, of a writer that ended: no record
//! ```
//!
//! **The fence.** A publish names the sequence that it expects as the stream's last one, and the stream refuses it if
//! another message has that place. A record is published only after the one before is acknowledged. (The expected
//! sequence is a number only: with two records on their way, another writer's message could take the place of the first
//! and let the second pass. Parts of one record may be on their way together, because a reader ignores a part whose
//! predecessor is another's.)
//!
//! **No answer.** If a publish gets no answer, its message may or may not be in the stream. The journal then looks at the
//! place where it must be, until that is known: this writer's message there means success, another's means
//! [`Appended::Moved`], an empty place means to publish again.
//!
//! **Following.** Until this process appends, and after an append was refused, a task reads what others append. An append
//! that succeeds proves that they have appended nothing.

mod config;
mod connection;
mod parts;
mod reader;

pub use config::{StreamOptions, open_stream, stream_name};
pub use connection::{StreamClient, StreamConnection};

use super::{Appended, Journal, JournalState, Record, forgotten};
use crate::log::StoreError;
use async_nats::jetstream::context::{Context, PublishAckFuture, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use bytes::Bytes;
use config::subject_of;
use connection::JournalRuntime;
use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use parts::{Assembler, HEADER_BYTES, RecordPart, split};
use reader::StreamReader;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// The largest body of a message. A server's default limit is 1 MiB; smaller messages spread better over its Raft log.
const PART_BYTES_MAX: usize = 512 << 10;
/// Parts of one record that are on their way at once.
const PARTS_IN_FLIGHT_MAX: usize = 16;
/// Bytes of records that were read ahead of the store.
const READ_AHEAD_BYTES_MAX: usize = 64 << 20;
/// The time to wait for an answer of the stream, and between two attempts.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);
const RETRY_TIME: Duration = Duration::from_millis(50);
/// The time after which callers no longer wait for an append: longer than NATS takes to replace a server.
const APPEND_TIME_MAX: Duration = Duration::from_secs(5);

/// A journal in a stream. Its connection has a thread of its own, so that no work of this process delays it.
pub struct JetStreamJournal {
    shared: Arc<Shared>,
    runtime: JournalRuntime,
}

struct Shared {
    context: Context,
    stream: Stream,
    subject: String,
    options: StreamOptions,
    state: Mutex<StreamState>,
    /// Wakes the task that follows, when the store has taken records.
    taken: Notify,
    /// The position of the last record, and why following has failed for good.
    moved: watch::Sender<u64>,
    failed: watch::Sender<Option<StoreError>>,
    is_abandoned: AtomicBool,
}

#[derive(Default)]
struct StreamState {
    /// The position of the first record that the stream has, and of the last one.
    first: u64,
    last: u64,
    /// The sequence of the last message.
    sequence: u64,
    /// Records that others appended, for the store.
    ahead: VecDeque<Record>,
    ahead_bytes: usize,
    /// Counts the tasks that followed. Only the newest one changes the state.
    following: u64,
    is_following: bool,
    /// Where the record after this position begins, for the reader that goes on.
    next_read: Option<(u64, u64)>,
}

impl JetStreamJournal {
    /// Opens the stream of a cluster, or creates it, and follows it after the record `applied`.
    ///
    /// If the stream has no record, the next one gets the position after `base`, which is the position of the snapshot
    /// that every node begins with.
    ///
    /// # Errors
    /// `Failed` when the stream cannot be reached or does not keep what this server promises.
    pub fn open(connected: StreamClient, options: StreamOptions, base: u64) -> Result<Self, StoreError> {
        let StreamClient { runtime, context } = connected;
        let shared = runtime.run(Shared::open(context, options, base))??;
        let journal = Self { shared: Arc::new(shared), runtime };
        journal.follow();
        Ok(journal)
    }

    /// Reads what others append, from the last message that this process knows.
    pub fn follow(&self) {
        let _inside = self.runtime.enter();
        self.shared.follow();
    }

    /// The position of the last record that this process knows, when it changes.
    #[must_use]
    pub fn moved(&self) -> watch::Receiver<u64> {
        self.shared.moved.subscribe()
    }

    /// Runs work of the cluster on the thread of the connection, blocking the caller.
    ///
    /// # Errors
    /// `Failed` if the work panicked.
    pub fn run<T: Send>(&self, work: impl Future<Output = T> + Send) -> Result<T, StoreError> {
        self.runtime.run(work)
    }

    /// The position of the first record that the stream has now. Other nodes may have shortened it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn refresh_first(&self) -> Result<u64, StoreError> {
        self.runtime.run(self.shared.refresh_first())?
    }

    /// Asks the stream for the position of its first record, which other nodes may have moved.
    ///
    /// # Errors
    /// `Failed` when NATS does not answer.
    pub async fn first(&self) -> Result<u64, StoreError> {
        self.spawn(|shared| Box::pin(async move { shared.refresh_first().await })).await
    }

    /// Starts a task of the cluster on the thread of the connection.
    pub fn spawn_task(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.runtime.spawn(task)
    }

    /// Lets an append that gets no answer fail, so that the process can end.
    pub fn abandon(&self) {
        self.shared.is_abandoned.store(true, Ordering::Relaxed);
    }

    /// Runs work of the journal in its runtime, for a caller in any thread.
    async fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce(Arc<Shared>) -> BoxFuture<'static, Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let ended = self.runtime.spawn(work(self.shared.clone())).await;
        ended.unwrap_or_else(|error| Err(StoreError::failed("using the stream of commits", &error)))
    }
}

impl Shared {
    async fn open(context: Context, options: StreamOptions, base: u64) -> Result<Self, StoreError> {
        let stream = open_stream(&context, &options).await?;
        let subject = subject_of(&options.cluster);
        let shared = Self {
            context,
            stream,
            subject,
            options,
            state: Mutex::default(),
            taken: Notify::new(),
            moved: watch::Sender::new(0),
            failed: watch::Sender::new(None),
            is_abandoned: AtomicBool::new(false),
        };
        let (first, last, sequence) = shared.bounds(base).await?;
        *shared.state.lock() = StreamState { first, last, sequence, ..StreamState::default() };
        shared.moved.send_replace(last);
        Ok(shared)
    }

    /// The positions of the first and the last record of the stream, and the sequence of its last message.
    async fn bounds(&self, base: u64) -> Result<(u64, u64, u64), StoreError> {
        let state = self.info().await?;
        let (mut last, mut sequence) = (None, state.last_sequence);
        // After the last whole record come at most some parts of records without a last one.
        'record: while last.is_none() && sequence >= state.first_sequence && sequence > 0 {
            let Some(part) = self.part(sequence).await? else { break };
            if part.is_last {
                for back in 1..=u64::from(part.index) {
                    let before = self.part(sequence - back).await?;
                    let expected = RecordPart { index: part.index - back as u32, ..part.clone() };
                    if !before.is_some_and(|before| before.is_same(&expected)) {
                        sequence -= back;
                        continue 'record;
                    }
                }
                last = Some(part.position);
            }
            sequence -= 1;
        }
        let first = match self.part(state.first_sequence).await? {
            Some(part) if last.is_some() => part.position,
            _ => base + 1,
        };
        Ok((first, last.unwrap_or(base), state.last_sequence))
    }

    async fn info(&self) -> Result<async_nats::jetstream::stream::State, StoreError> {
        loop {
            match self.stream.get_info().await {
                Ok(info) => return Ok(info.state),
                Err(error) => self.retry(&error).await?,
            }
        }
    }

    /// The message with this sequence; `None` if the stream has none. Asks until the stream answers.
    async fn part(&self, sequence: u64) -> Result<Option<RecordPart>, StoreError> {
        if sequence == 0 {
            return Ok(None);
        }
        loop {
            match self.stream.get_raw_message(sequence).await {
                Ok(message) => {
                    return RecordPart::decode(message.payload).map(Some).ok_or_else(|| StoreError::Corrupt {
                        path: self.subject.as_str().into(),
                        what: format!("message {sequence} is no part of a commit; another program wrote it"),
                    });
                }
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => return Ok(None),
                Err(error) => self.retry(&error).await?,
            }
        }
    }

    /// Waits before the next attempt; fails when the process must end.
    async fn retry(&self, error: &(dyn std::fmt::Display + std::marker::Sync)) -> Result<(), StoreError> {
        if self.is_abandoned.load(Ordering::Relaxed) {
            return Err(StoreError::failed("reaching the stream of commits", error));
        }
        tracing::debug!(%error, "the stream of commits does not answer; trying again");
        tokio::time::sleep(RETRY_TIME).await;
        Ok(())
    }

    /// The sequence at which the record `position` begins, by bisection: positions grow with the sequences.
    async fn find(&self, position: u64) -> Result<u64, StoreError> {
        let state = self.info().await?;
        let (mut low, mut high) = (state.first_sequence.max(1), state.last_sequence + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.part(middle).await? {
                Some(part) if part.position < position => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    fn follow(self: &Arc<Self>) {
        let (number, sequence) = {
            let mut state = self.state.lock();
            if state.is_following {
                return;
            }
            state.is_following = true;
            state.following += 1;
            (state.following, state.sequence)
        };
        let shared = self.clone();
        tokio::spawn(async move {
            let mut reader = StreamReader::new(shared.stream.clone(), sequence + 1);
            let mut assembler = Assembler::default();
            loop {
                let read = reader.next().await;
                let has_room = match read {
                    Ok((sequence, part)) => shared.add(number, sequence, assembler.add(part)),
                    Err(error) => {
                        shared.failed.send_replace(Some(error));
                        return;
                    }
                };
                match has_room {
                    None => return,
                    Some(true) => {}
                    Some(false) => shared.taken.notified().await,
                }
            }
        });
    }

    /// Adds what the task of this number has read; returns whether there is room for more. `None` ends the task.
    fn add(&self, number: u64, sequence: u64, record: Option<Record>) -> Option<bool> {
        let mut state = self.state.lock();
        if !state.is_following || state.following != number {
            return None;
        }
        state.sequence = sequence;
        let Some(record) = record else { return Some(true) };
        if record.position != state.last + 1 {
            if self.options.is_fenced {
                let what = format!("message {sequence} has the record {}, which does not follow {}", record.position, state.last);
                self.failed.send_replace(Some(StoreError::Corrupt { path: self.subject.as_str().into(), what }));
                return None;
            }
            return Some(true);
        }
        state.last = record.position;
        state.ahead_bytes += record.body.len();
        state.ahead.push_back(record);
        let has_room = state.ahead_bytes < READ_AHEAD_BYTES_MAX;
        let last = state.last;
        drop(state);
        self.moved.send_replace(last);
        Some(has_room)
    }

    async fn append(self: Arc<Self>, expected: u64, body: Bytes) -> Result<Appended, StoreError> {
        let after = {
            let state = self.state.lock();
            if state.last != expected {
                return Ok(Appended::Moved { last: state.last });
            }
            state.sequence
        };
        let part_bytes_max =
            PART_BYTES_MAX.min(self.context.client().server_info().max_payload.saturating_sub(4096 + HEADER_BYTES));
        let parts = split(self.options.writer, expected + 1, body, part_bytes_max.max(1024));
        let mut done = 0;
        while done < parts.len() {
            let upto = parts.len().min(done + PARTS_IN_FLIGHT_MAX);
            match self.publish(&parts[done..upto], after + done as u64).await {
                Published::All => done = upto,
                Published::Unknown { stored, why } => {
                    done += stored;
                    let sequence = after + done as u64 + 1;
                    match self.part(sequence).await? {
                        Some(found) if found.is_same(&parts[done]) => done += 1,
                        Some(_) => return self.refused(sequence).await,
                        None => self.retry(&why).await?,
                    }
                }
            }
        }
        let mut state = self.state.lock();
        // A task that follows has read the same messages, or reads them in vain.
        let position = expected + 1;
        (state.is_following, state.last, state.sequence) = (false, position, after + parts.len() as u64);
        (state.ahead_bytes, state.next_read) = (0, None);
        state.ahead.clear();
        drop(state);
        Ok(Appended::At(position))
    }

    /// Publishes parts of one record after the message `after`.
    async fn publish(&self, parts: &[RecordPart], after: u64) -> Published {
        let mut acks: Vec<Option<PublishAckFuture>> = Vec::with_capacity(parts.len());
        for (part, expected) in parts.iter().zip(after..) {
            let message = PublishMessage::build().payload(part.encode());
            let message = if self.options.is_fenced { message.expected_last_sequence(expected) } else { message };
            acks.push(self.context.send_publish(self.subject.clone(), message).await.ok());
        }
        let answers = join_all(acks.into_iter().map(async |ack| match ack {
            Some(ack) => tokio::time::timeout(ANSWER_TIME_MAX, ack).await.map_err(|_| PublishErrorKind::TimedOut.to_string()),
            None => Err("not connected".into()),
        }));
        for (stored, answer) in answers.await.into_iter().enumerate() {
            match answer {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Published::Unknown { stored, why: error.to_string() },
                Err(why) => return Published::Unknown { stored, why },
            }
        }
        Published::All
    }

    /// Follows again after another writer's message, until this process knows the record that it belongs to.
    async fn refused(self: Arc<Self>, sequence: u64) -> Result<Appended, StoreError> {
        self.follow();
        let (mut moved, known) = (self.moved.subscribe(), self.state.lock().last);
        loop {
            {
                let state = self.state.lock();
                if state.last > known || state.sequence >= sequence {
                    return Ok(Appended::Moved { last: state.last });
                }
            }
            if let Some(error) = &*self.failed.borrow() {
                return Err(error.clone());
            }
            tokio::select! {
                _ = moved.changed() => {}
                () = tokio::time::sleep(RETRY_TIME) => {}
            }
            self.retry(&"following the stream").await?;
        }
    }

    /// Takes records after `after` from what was read ahead.
    fn take_ahead(&self, after: u64, bytes_max: usize) -> Vec<Record> {
        let (mut state, mut taken, mut bytes) = (self.state.lock(), Vec::new(), 0);
        while state.ahead.front().is_some_and(|record| record.position <= after) {
            let record = state.ahead.pop_front().expect("it has one");
            state.ahead_bytes -= record.body.len();
        }
        while let Some(record) = state.ahead.front().filter(|record| record.position == after + 1 + taken.len() as u64) {
            bytes += record.body.len();
            if bytes > bytes_max && !taken.is_empty() {
                break;
            }
            let record = state.ahead.pop_front().expect("it has one");
            state.ahead_bytes -= record.body.len();
            taken.push(record);
        }
        drop(state);
        self.taken.notify_one();
        taken
    }

    /// Reads records after `after` from the stream.
    async fn read(self: Arc<Self>, after: u64, bytes_max: usize) -> Result<Vec<Record>, StoreError> {
        let (first, last, next_read) = {
            let state = self.state.lock();
            (state.first, state.last, state.next_read)
        };
        if after >= last {
            return Ok(Vec::new());
        }
        if after + 1 < first {
            return Err(forgotten(after, first));
        }
        let begin = match next_read {
            Some((position, sequence)) if position == after + 1 => sequence,
            _ => self.find(after + 1).await?,
        };
        let (mut reader, mut assembler) = (StreamReader::new(self.stream.clone(), begin), Assembler::default());
        let (mut read, mut bytes, mut next) = (Vec::<Record>::new(), 0, (after + 1, begin));
        while next.0 <= last {
            let (sequence, part) = reader.next().await?;
            let Some(record) = assembler.add(part).filter(|record| record.position >= next.0) else { continue };
            if record.position > next.0 {
                if !self.options.is_fenced {
                    continue;
                }
                return Err(forgotten(next.0 - 1, record.position));
            }
            bytes += record.body.len();
            if bytes > bytes_max && !read.is_empty() {
                break;
            }
            next = (record.position + 1, sequence + 1);
            read.push(record);
        }
        self.state.lock().next_read = Some(next);
        Ok(read)
    }

    async fn truncate_before(self: Arc<Self>, position: u64) -> Result<(), StoreError> {
        let sequence = self.find(position).await?;
        let purged = self.stream.purge().sequence(sequence).await;
        purged.map_err(|error| StoreError::failed("truncating the stream of commits", &error))?;
        self.refresh_first().await.map(drop)
    }

    /// Asks the stream for the position of its first record.
    async fn refresh_first(&self) -> Result<u64, StoreError> {
        let base = self.state.lock().first - 1;
        let (first, ..) = self.bounds(base).await?;
        self.state.lock().first = first;
        Ok(first)
    }
}

/// What is known of parts that were published.
enum Published {
    All,
    /// So many are stored. The next one may or may not be.
    Unknown {
        stored: usize,
        why: String,
    },
}

impl JournalState for JetStreamJournal {
    fn path(&self) -> PathBuf {
        self.shared.subject.as_str().into()
    }

    fn failure(&self) -> Option<watch::Receiver<Option<StoreError>>> {
        Some(self.shared.failed.subscribe())
    }

    fn others(&self) -> Option<watch::Receiver<u64>> {
        Some(self.moved())
    }
}

impl Journal for JetStreamJournal {
    fn bounds(&self) -> (u64, u64) {
        let state = self.shared.state.lock();
        (state.first, state.last)
    }

    async fn append(&self, expected: u64, parts: &[Bytes]) -> Result<Appended, StoreError> {
        let body = match parts {
            [only] => only.clone(),
            parts => parts.concat().into(),
        };
        self.spawn(|shared| Box::pin(shared.append(expected, body))).await
    }

    async fn overdue(&self) {
        let timer = {
            let _inside = self.runtime.enter();
            tokio::time::sleep(APPEND_TIME_MAX)
        };
        timer.await;
    }

    async fn read(&self, after: u64, bytes_max: usize) -> Result<Vec<Record>, StoreError> {
        let ahead = self.shared.take_ahead(after, bytes_max);
        if !ahead.is_empty() {
            return Ok(ahead);
        }
        self.spawn(|shared| Box::pin(shared.read(after, bytes_max))).await
    }

    async fn truncate_before(&self, position: u64) -> Result<(), StoreError> {
        self.spawn(|shared| Box::pin(shared.truncate_before(position))).await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        // An append is durable when the stream has acknowledged it.
        Ok(())
    }
}
