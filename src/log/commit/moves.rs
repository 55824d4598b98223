//! Which logs of a set have moved: what a reader of many logs has to look at.

use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::Notify;

/// The members of a set of logs that have moved since they were last taken, for one reader of the set.
///
/// A commit adds the log before the commit's position becomes visible. So a reader that loads the position first, and
/// takes the members afterwards, has every member that moved up to there, at a cost that does not depend on the others.
#[derive(Debug, Default)]
pub struct Moves {
    moved: Mutex<Moved>,
    wake: Notify,
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

    /// Wakes the reader: it is time to look.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits for [`Self::wake`]. A call of it before the wait counts.
    pub async fn woken(&self) {
        self.wake.notified().await;
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
