//! The ids of a run's pending actions.
//!
//! The summary of a log stores the first ones ([`LISTED_MAX`]); each of the others has a state entry of its own, so that
//! a commit saves only what changed.

use super::shared_set::SharedSet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

/// Ids that the summary stores, unless the server needs more of them at hand.
const LISTED_MAX: usize = 256;

/// The ids of the pending actions of one run.
#[derive(Debug, Clone, Default)]
pub struct PendingSet {
    /// The ids that the summary stores.
    listed: SharedSet,
    others: SharedSet,
    /// The number of further ids, of a summary that was read alone.
    unread: usize,
}

impl PendingSet {
    /// The number of ids.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.listed.len() + self.others.len() + self.unread
    }

    /// Whether no action is pending.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this action is pending.
    #[must_use]
    pub fn contains(&self, id: &str) -> bool {
        self.listed.contains(id) || self.others.contains(id)
    }

    /// The ids, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let (mut listed, mut others) = (self.listed.iter().peekable(), self.others.iter().peekable());
        std::iter::from_fn(move || {
            let is_listed_next = match (listed.peek(), others.peek()) {
                (Some(one), Some(other)) => one < other,
                (one, _) => one.is_some(),
            };
            if is_listed_next { listed.next() } else { others.next() }.map(|id| &**id)
        })
    }

    /// Adds an id. Returns whether it is new.
    pub fn insert(&mut self, id: &str) -> bool {
        match self.listed.len() < LISTED_MAX {
            _ if self.contains(id) => false,
            true => self.listed.insert(id.into()),
            false => self.others.insert(id.into()),
        }
    }

    /// Removes an id.
    pub fn remove(&mut self, id: &str) {
        if self.listed.remove(id).is_none() {
            self.others.remove(id);
        }
    }

    /// Removes all ids.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether both are copies of one set, unchanged since.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.listed.is_same(&other.listed) && self.others.is_same(&other.others) && self.unread == other.unread
    }

    /// The ids outside the summary.
    #[must_use]
    pub const fn others(&self) -> &SharedSet {
        &self.others
    }

    /// Moves these ids into the summary, if they are pending, and what exceeds it out of it.
    pub fn list<'a>(&mut self, needed: impl Iterator<Item = &'a str> + Clone) {
        if self.len() <= LISTED_MAX {
            return;
        }
        for id in needed.clone() {
            if let Some(id) = self.others.remove(id) {
                self.listed.insert(id);
            }
        }
        // Stores of earlier versions list all of them.
        if self.listed.len() > 2 * LISTED_MAX {
            let kept = needed.filter_map(|id| self.listed.remove(id)).collect();
            let exceeding = std::mem::replace(&mut self.listed, kept);
            self.others.extend(exceeding.iter().cloned());
        }
    }

    /// The part that the summary stores.
    #[must_use]
    pub fn listed_only(&self) -> Self {
        Self { listed: self.listed.clone(), others: SharedSet::default(), unread: 0 }
    }

    /// The number of ids that the summary does not store.
    #[must_use]
    pub const fn unlisted(&self) -> usize {
        self.others.len() + self.unread
    }

    /// Notes how many ids the summary does not store.
    pub const fn set_unread(&mut self, count: usize) {
        self.unread = count;
    }

    /// Sets the ids outside the summary. Returns whether they are as many as were noted.
    pub fn set_others(&mut self, others: SharedSet) -> bool {
        let noted = std::mem::take(&mut self.unread);
        self.others = others;
        noted == self.others.len()
    }
}

impl PartialEq for PendingSet {
    /// Whether both have the same ids, wherever those are stored.
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other)
            || (self.len(), self.unread) == (other.len(), other.unread)
                && match self.listed == other.listed {
                    true => self.others == other.others,
                    false => self.iter().eq(other.iter()),
                }
    }
}

impl Eq for PendingSet {}

impl<I: AsRef<str>> Extend<I> for PendingSet {
    fn extend<T: IntoIterator<Item = I>>(&mut self, ids: T) {
        for id in ids {
            self.insert(id.as_ref());
        }
    }
}

impl<I: AsRef<str>> FromIterator<I> for PendingSet {
    fn from_iter<T: IntoIterator<Item = I>>(ids: T) -> Self {
        let mut set = Self::default();
        set.extend(ids);
        set
    }
}

impl Serialize for PendingSet {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.iter().collect::<Vec<_>>().serialize(to)
    }
}

impl<'de> Deserialize<'de> for PendingSet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let listed = Vec::<Arc<str>>::deserialize(from)?.into_iter().collect();
        Ok(Self { listed, ..Self::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(range: std::ops::Range<usize>) -> impl Iterator<Item = String> {
        range.map(|n| format!("{n:05}"))
    }

    #[test]
    fn sets_are_equal_by_their_ids_wherever_they_are_stored() {
        let set: PendingSet = numbers(0..1000).collect();
        let restored: PendingSet = serde_json::from_str(&serde_json::to_string(&set).unwrap()).unwrap();
        assert_eq!((set.unlisted(), restored.unlisted()), (1000 - LISTED_MAX, 0));
        assert!(set == restored && set.iter().eq(restored.iter()));
        assert!(set.iter().map(ToOwned::to_owned).eq(numbers(0..1000)));
        let mut other = restored.clone();
        other.remove("00999");
        assert!(other.insert("01000") && !other.insert("01000"));
        assert_ne!(set, other);
    }

    #[test]
    fn the_summary_lists_what_is_needed_and_not_much_more() {
        let older: PendingSet =
            serde_json::from_str(&serde_json::to_string(&numbers(0..5000).collect::<Vec<_>>()).unwrap()).unwrap();
        let needed = ["00001", "04999", "not pending"];
        for mut set in [older, numbers(0..5000).collect()] {
            set.list(needed.into_iter());
            assert!(set.listed.contains("00001") && set.listed.contains("04999"));
            assert!(set.listed.len() <= 2 * LISTED_MAX && set.len() == 5000);
            assert!(set.iter().map(ToOwned::to_owned).eq(numbers(0..5000)));
            let mut alone = set.listed_only();
            alone.set_unread(set.unlisted());
            assert_eq!((alone.len(), alone.contains("02500")), (5000, false));
            assert!(alone.set_others(set.others().clone()) && alone == set);
        }
    }
}
