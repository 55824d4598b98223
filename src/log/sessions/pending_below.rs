//! The pending actions below each session.

use crate::model::{Audience, SessionId};
use std::collections::HashMap;
use std::ops::{Add, Sub};

/// Numbers of pending actions, per audience.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ActionCounts {
    pub pending: [u64; 3],
    /// Those of them without a decision under way.
    pub unanswered: [u64; 3],
}

impl ActionCounts {
    const NONE: Self = Self { pending: [0; 3], unanswered: [0; 3] };

    fn combine(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        let each = |a: [u64; 3], b: [u64; 3]| std::array::from_fn(|reader| with(a[reader], b[reader]));
        Self { pending: each(self.pending, other.pending), unanswered: each(self.unanswered, other.unanswered) }
    }
}

impl Add for ActionCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.combine(other, |a, b| a + b)
    }
}

impl Sub for ActionCounts {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.combine(other, |a, b| a - b)
    }
}

/// The number of pending actions below each session, for sessions with any.
#[derive(Debug, Default)]
pub struct PendingBelow(HashMap<SessionId, ActionCounts>);

impl PendingBelow {
    /// The pending actions below one session that an audience sees.
    #[must_use]
    pub fn of(&self, session: &SessionId, audience: Audience) -> u64 {
        self.0.get(session).map_or(0, |counts| counts.pending[audience.index()])
    }

    /// Those of them without a decision under way.
    #[must_use]
    pub fn unanswered_of(&self, session: &SessionId, audience: Audience) -> u64 {
        self.0.get(session).map_or(0, |counts| counts.unanswered[audience.index()])
    }
}

/// A session with pending actions, or an ancestor of one.
pub(super) struct Node {
    pub id: SessionId,
    pub own: ActionCounts,
    pub below: ActionCounts,
    pub parent: Option<usize>,
    /// Children among the nodes whose counts are not added to this node yet.
    pub children_left: usize,
}

/// Sums the pending actions of all descendants, each counted once.
///
/// The time is linear in the number of nodes, at any depth.
pub(super) fn sum_pending_below(mut nodes: Vec<Node>) -> PendingBelow {
    let mut done: Vec<usize> = (0..nodes.len()).filter(|at| nodes[*at].children_left == 0).collect();
    let mut next = 0;
    while let Some(at) = done.get(next).copied() {
        next += 1;
        let Some(parent) = nodes[at].parent else { continue };
        let sum = nodes[at].own + nodes[at].below;
        let above = &mut nodes[parent];
        above.below = above.below + sum;
        above.children_left -= 1;
        if above.children_left == 0 {
            done.push(parent);
        }
    }
    // The remaining nodes are cycles of parents. Everything below a cycle is below each of its sessions, except the
    // session itself.
    for first in 0..nodes.len() {
        let mut cycle = Vec::new();
        let mut at = first;
        while nodes[at].children_left > 0 {
            nodes[at].children_left = 0;
            cycle.push(at);
            at = nodes[at].parent.expect("each session of a cycle has a parent");
        }
        let sum = cycle.iter().fold(ActionCounts::NONE, |sum, at| sum + nodes[*at].own + nodes[*at].below);
        for at in cycle {
            nodes[at].below = sum - nodes[at].own;
        }
    }
    let below = nodes.into_iter().filter(|node| node.below != ActionCounts::NONE);
    PendingBelow(below.map(|node| (node.id, node.below)).collect())
}
