//! Fan-out: how the readers of a view learn of a flush.
//!
//! ```text
//!            ┌▶ wake groups: 16 readers each, a task per reader       sockets of all kinds, readers that catch up
//!   flush ───┼▶ followers: the keys of their readers, one task        sockets that accept every byte at once
//!            └▶ readers of several logs, which know what has moved
//! ```
//!
//! A flush has arrived when the last of them has written it.

use crate::log::commit::{Logs, Moves};
use parking_lot::Mutex;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Readers that one flush wakes at once, in the order in which they began to wait.
///
/// Tokio's `watch` would wake them in an order of chance, which no seed of a simulation sets.
#[derive(Default)]
pub(super) struct WakeGroup {
    flushes: AtomicU64,
    wake: Notify,
    readers: AtomicUsize,
}

impl WakeGroup {
    pub fn wake(&self) {
        self.flushes.fetch_add(1, Ordering::Release);
        self.wake.notify_waiters();
    }
}

/// A reader that waits for the flushes of a view, in a wake group.
pub struct FlushWaiter {
    group: Arc<WakeGroup>,
    seen: u64,
}

impl FlushWaiter {
    fn in_group(group: &Arc<WakeGroup>) -> Self {
        group.readers.fetch_add(1, Ordering::Relaxed);
        Self { group: group.clone(), seen: group.flushes.load(Ordering::Acquire) }
    }

    /// Counts the flushes so far as seen.
    pub fn look(&mut self) {
        self.seen = self.group.flushes.load(Ordering::Acquire);
    }

    /// Waits for a flush that is not seen yet.
    pub async fn flushed(&mut self) {
        let Self { group, seen } = self;
        loop {
            let woken = group.wake.notified();
            let flushes = group.flushes.load(Ordering::Acquire);
            if flushes != *seen {
                *seen = flushes;
                return;
            }
            woken.await;
        }
    }
}

impl Drop for FlushWaiter {
    fn drop(&mut self) {
        self.group.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The most readers of one wake group.
///
/// Between groups the flusher yields, so that a producer's answer does not wait for a thousand socket writes.
const WAKE_GROUP_READERS_MAX: usize = 16;

/// Readers of any views that one task serves. The task knows each by a key.
pub struct Followers {
    flushes: Mutex<Vec<Flush>>,
    wake: Arc<Notify>,
}

/// A flush of one view, as its followers get it.
pub struct Flush {
    /// The readers of the view. A reader that left meanwhile may be among them.
    pub readers: Box<[usize]>,
    /// Held until the readers have the frames.
    _arrival: Arc<dyn Any + Send + Sync>,
}

impl Followers {
    /// Followers of no view yet. Each flush notifies `wake`.
    #[must_use]
    pub fn new(wake: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self { flushes: Mutex::default(), wake })
    }

    /// Takes the flushes since the last call, in order.
    #[must_use]
    pub fn take(&self) -> Vec<Flush> {
        std::mem::take(&mut self.flushes.lock())
    }
}

/// The followers of one view that one task serves.
struct Seats {
    followers: Arc<Followers>,
    readers: Vec<usize>,
}

/// The readers of one view.
#[derive(Default)]
pub(super) struct Listeners {
    groups: Vec<Arc<WakeGroup>>,
    seats: Vec<Seats>,
    /// Readers of several logs.
    sets: Vec<Arc<Moves>>,
}

impl Listeners {
    /// Whether the view has no readers.
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
            && self.sets.is_empty()
            && self.groups.iter().all(|group| group.readers.load(Ordering::Relaxed) == 0)
    }

    /// Adds a reader with a task of its own.
    pub fn join(&mut self) -> FlushWaiter {
        self.groups.retain(|group| group.readers.load(Ordering::Relaxed) > 0);
        if let Some(group) = self.groups.iter().find(|group| group.readers.load(Ordering::Relaxed) < WAKE_GROUP_READERS_MAX) {
            return FlushWaiter::in_group(group);
        }
        let group = Arc::default();
        let place = FlushWaiter::in_group(&group);
        self.groups.push(group);
        place
    }

    /// Adds a reader that `followers` serve.
    pub fn follow(&mut self, followers: &Arc<Followers>, reader: usize) {
        match self.seats.iter_mut().find(|seats| Arc::ptr_eq(&seats.followers, followers)) {
            Some(seats) => seats.readers.push(reader),
            None => self.seats.push(Seats { followers: followers.clone(), readers: vec![reader] }),
        }
    }

    /// Removes a reader that `followers` served.
    pub fn unfollow(&mut self, followers: &Arc<Followers>, reader: usize) {
        for seats in self.seats.iter_mut().filter(|seats| Arc::ptr_eq(&seats.followers, followers)) {
            if let Some(at) = seats.readers.iter().position(|one| *one == reader) {
                seats.readers.swap_remove(at);
            }
        }
        self.seats.retain(|seats| !seats.readers.is_empty());
    }

    /// Adds a reader of several logs.
    pub fn join_set(&mut self, moves: &Arc<Moves>) {
        self.sets.push(moves.clone());
    }

    /// Removes a reader of several logs.
    pub fn leave_set(&mut self, moves: &Arc<Moves>) {
        if let Some(at) = self.sets.iter().position(|one| Arc::ptr_eq(one, moves)) {
            self.sets.swap_remove(at);
        }
    }

    /// Tells the followers of a flush, and returns the groups that are still to wake.
    ///
    /// A reader that joins now finds the ring up to date and misses nothing.
    pub fn announce(&self, arrival: &Arc<impl Any + Send + Sync>) -> Vec<Arc<WakeGroup>> {
        for Seats { followers, readers } in &self.seats {
            let flush = Flush { readers: readers.as_slice().into(), _arrival: arrival.clone() };
            followers.flushes.lock().push(flush);
            followers.wake.notify_one();
        }
        for moves in &self.sets {
            moves.wake();
        }
        self.groups.clone()
    }
}

/// Lets the other tasks of this thread run, and the committer.
///
/// The committer is a thread: on a shared core it would otherwise wait for a whole time slice. The thread gives way only
/// to it, because another program on this core would keep the core for a time slice of its own.
pub async fn give_way(logs: &Logs) {
    tokio::task::yield_now().await;
    if logs.is_committing() {
        std::thread::yield_now();
    }
}
