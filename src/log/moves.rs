//! Which logs of a set have moved: what a reader of many logs has to look at.

use parking_lot::Mutex;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

/// The members of a set of logs that have moved since they were last taken, for one reader of the set.
///
/// A commit adds the log before the commit's position becomes visible. So a reader that loads the position first, and
/// takes the members afterwards, has every member that moved up to there, at a cost that does not depend on the others.
#[derive(Debug, Default)]
pub struct Moves {
    moved: Mutex<Moved>,
    /// Whether the set may have gained or lost logs.
    has_changed: AtomicBool,
    /// Whether it is time for the reader to look.
    is_woken: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

#[derive(Debug, Default)]
struct Moved {
    members: Vec<usize>,
    /// By member: whether it is listed.
    is_listed: Vec<bool>,
}

impl Moves {
    /// Adds a member that has moved.
    pub fn add(&self, member: usize) {
        let Moved { members, is_listed } = &mut *self.moved.lock();
        if is_listed.len() <= member {
            is_listed.resize(member + 1, false);
        }
        if !std::mem::replace(&mut is_listed[member], true) {
            members.push(member);
        }
    }

    /// Takes the members that have moved, each once.
    #[must_use]
    pub fn take(&self) -> Vec<usize> {
        let Moved { members, is_listed } = &mut *self.moved.lock();
        for member in &*members {
            is_listed[*member] = false;
        }
        std::mem::take(members)
    }

    /// Announces that the set may have gained or lost logs, and wakes the reader.
    pub fn change(&self) {
        self.has_changed.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether the set may have gained or lost logs since [`Self::mark_unchanged`].
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.has_changed.load(Ordering::Acquire)
    }

    /// Call this before listing the logs.
    pub fn mark_unchanged(&self) {
        self.has_changed.store(false, Ordering::Release);
    }

    /// Wakes the reader: it is time to look. Further calls have no effect until the reader does.
    pub fn wake(&self) {
        if !self.is_woken.swap(true, Ordering::AcqRel)
            && let Some(waker) = &*self.waker.lock()
        {
            waker.wake_by_ref();
        }
    }

    /// Begins a look. Returns whether the reader was woken since the last one.
    pub fn begin_look(&self) -> bool {
        self.is_woken.swap(false, Ordering::AcqRel)
    }

    /// Sets what [`Self::wake`] calls from now on.
    pub fn set_waker(&self, waker: &Waker) {
        *self.waker.lock() = Some(waker.clone());
    }

    /// Waits for [`Self::wake`]. A call of it since the last look counts.
    pub async fn woken(&self) {
        poll_fn(|context| {
            // First, so that a wake in between finds it.
            self.set_waker(context.waker());
            if self.begin_look() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// A log's place in the sets that contain it.
#[derive(Debug)]
pub(super) struct Follower {
    pub moves: Arc<Moves>,
    pub member: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_moves_often_is_listed_once_and_again_after_it_was_taken() {
        let moves = Moves::default();
        for member in [7, 3, 7, 7, 3] {
            moves.add(member);
        }
        assert_eq!(moves.take(), [7, 3]);
        assert!(moves.take().is_empty());
        moves.add(3);
        assert_eq!(moves.take(), [3]);
    }
}
