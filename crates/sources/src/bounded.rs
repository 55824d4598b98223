//! What runtimes remember of open and ended things, each kind with a named bound.

use super::Drafts;
use super::digest::TextDigest;
use proscenium_model::{ActionId, AgentId, MessageId, RunId, ThreadId, ToolCallId};
use serde::{Deserialize, Serialize};
use std::ops::{Deref, DerefMut};

/// The most open calls of a run. Real runs have a handful.
///
/// Beyond this limit the oldest counts as ended.
pub(super) const CALLS_OPEN_MAX: usize = 256;

/// The most pending actions of a run.
///
/// Beyond this limit the oldest is forgotten: its answer then does not name its call.
pub(super) const PENDING_MAX: usize = 64;

/// An item with a key.
pub(super) trait Keyed {
    type Key: PartialEq;
    fn key(&self) -> &Self::Key;
}

/// Implements [`Keyed`] by a field, or for a type that is its own key.
macro_rules! keyed {
    ($($item:ty: $key:ty = $($field:ident)?;)*) => {$(
        impl $crate::bounded::Keyed for $item {
            type Key = $key;
            fn key(&self) -> &$key {
                &self$(.$field)?
            }
        }
    )*};
}
pub(super) use keyed;

keyed! {
    u64: u64 = ; ToolCallId: ToolCallId = ; ActionId: ActionId = ; AgentId: AgentId = ; RunId: RunId = ; ThreadId: ThreadId = ;
    TextDigest: TextDigest = ; Option<AgentId>: Option<AgentId> = ;
}

impl<V> Keyed for (MessageId, V) {
    type Key = MessageId;
    fn key(&self) -> &MessageId {
        &self.0
    }
}

impl<V> Keyed for (ToolCallId, V) {
    type Key = ToolCallId;
    fn key(&self) -> &ToolCallId {
        &self.0
    }
}

/// At most `MAX` items, the one that was added last at the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Bounded<T, const MAX: usize>(Vec<T>);

impl<T, const MAX: usize> Default for Bounded<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const MAX: usize> Deref for Bounded<T, MAX> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T, const MAX: usize> DerefMut for Bounded<T, MAX> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T, const MAX: usize> Bounded<T, MAX> {
    /// Adds an item. Returns the oldest item if there are too many.
    pub fn push(&mut self, item: T) -> Option<T> {
        let oldest = (self.0.len() >= MAX).then(|| self.0.remove(0));
        self.0.push(item);
        oldest
    }

    pub fn remove(&mut self, at: usize) -> T {
        self.0.remove(at)
    }

    pub fn retain(&mut self, stays: impl FnMut(&T) -> bool) {
        self.0.retain(stays);
    }

    pub fn take_all(&mut self) -> Vec<T> {
        std::mem::take(&mut self.0)
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl<T: Keyed, const MAX: usize> Bounded<T, MAX> {
    /// Adds an item in place of one with the same key. Returns the oldest item if there are too many.
    pub fn add(&mut self, item: T) -> Option<T> {
        self.take(item.key());
        self.push(item)
    }

    pub fn find(&self, key: &T::Key) -> Option<&T> {
        self.0.iter().find(|item| item.key() == key)
    }

    pub fn find_mut(&mut self, key: &T::Key) -> Option<&mut T> {
        self.0.iter_mut().find(|item| item.key() == key)
    }

    pub fn take(&mut self, key: &T::Key) -> Option<T> {
        self.0.iter().position(|item| item.key() == key).map(|at| self.0.remove(at))
    }

    pub fn has(&self, key: &T::Key) -> bool {
        self.find(key).is_some()
    }
}

/// The open calls of a run, with what the runtime needs of each. The ledger knows those that have ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Calls<C> {
    pub open: Bounded<C, CALLS_OPEN_MAX>,
}

impl<C> Default for Calls<C> {
    fn default() -> Self {
        Self { open: Bounded::default() }
    }
}

impl<C: Keyed<Key = ToolCallId>> Calls<C> {
    pub fn start(&mut self, call: C) {
        self.open.add(call);
    }

    pub fn end(&mut self, id: &ToolCallId) -> Option<C> {
        self.open.take(id)
    }

    pub fn end_all(&mut self) -> Vec<C> {
        self.open.take_all()
    }

    /// Forgets a call whose end came before its start, now that nothing more of it comes.
    pub fn forget_if_ended(&mut self, id: &ToolCallId, log: &Drafts<'_>) {
        if log.has_ended(id) {
            self.open.take(id);
        }
    }

    /// Whether the call is open, or has ended.
    pub fn know(&self, id: &ToolCallId, log: &Drafts<'_>) -> bool {
        self.open.has(id) || log.has_begun(id)
    }

    /// Returns the one open call for which `is_it` is true. `None`: no such call, or several.
    pub fn only(&self, is_it: impl Fn(&C) -> bool) -> Option<&C> {
        let mut open = self.open.iter().filter(|call| is_it(call));
        open.next().filter(|_| open.next().is_none())
    }
}
