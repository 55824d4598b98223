//! A sorted set of ids whose copies share what they have in common.
//!
//! Every commit copies the ids of a run's pending actions and compares them. A copy costs nothing, a change one leaf and
//! the list of leaves, and a comparison only the leaves that two sets do not share.

use std::sync::Arc;

/// Maximum ids of a leaf. A set of a million ids then has a few thousand leaves.
const LEAF_MAX: usize = 512;

/// Ids in order, never empty.
type Leaf = Arc<Vec<Arc<str>>>;

/// A sorted set of ids.
#[derive(Debug, Clone, Default)]
pub struct SharedSet {
    leaves: Arc<Vec<Leaf>>,
    len: usize,
}

impl SharedSet {
    /// The number of ids.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the set has no ids.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the set has this id.
    #[must_use]
    pub fn contains(&self, id: &str) -> bool {
        self.leaves.get(self.leaf_of(id)).is_some_and(|leaf| place_in(leaf, id).is_ok())
    }

    /// The ids in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.leaves.iter().flat_map(|leaf| leaf.iter())
    }

    /// Adds an id. Returns whether it is new.
    pub fn insert(&mut self, id: Arc<str>) -> bool {
        let at = self.leaf_of(&id);
        let Some(leaf) = self.leaves.get(at) else {
            Arc::make_mut(&mut self.leaves).push(Arc::new(vec![id]));
            self.len += 1;
            return true;
        };
        let Err(place) = place_in(leaf, &id) else { return false };
        let leaves = Arc::make_mut(&mut self.leaves);
        let leaf = Arc::make_mut(&mut leaves[at]);
        leaf.insert(place, id);
        if leaf.len() > LEAF_MAX {
            let upper = leaf.split_off(LEAF_MAX / 2);
            leaves.insert(at + 1, Arc::new(upper));
        }
        self.len += 1;
        true
    }

    /// Removes an id. Returns it, if the set had it.
    pub fn remove(&mut self, id: &str) -> Option<Arc<str>> {
        let at = self.leaf_of(id);
        let place = place_in(self.leaves.get(at)?, id).ok()?;
        let leaves = Arc::make_mut(&mut self.leaves);
        let leaf = Arc::make_mut(&mut leaves[at]);
        let removed = leaf.remove(place);
        if leaf.is_empty() {
            leaves.remove(at);
        }
        self.len -= 1;
        Some(removed)
    }

    /// Whether both are copies of one set, unchanged since.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.leaves, &other.leaves) || self.is_empty() && other.is_empty()
    }

    /// The ids that only one of the two sets has.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Vec<Arc<str>> {
        // Nearly every commit: an empty set would cost an allocation.
        if self.is_same(other) {
            return Vec::new();
        }
        let (mut own, mut others) = (self.leaves.iter().peekable(), other.leaves.iter().peekable());
        let (mut of_self, mut of_other) = (SharedSet::default(), Vec::new());
        loop {
            match (own.peek(), others.peek()) {
                (None, None) => break,
                (Some(one), Some(two)) if Arc::ptr_eq(one, two) => {
                    own.next();
                    others.next();
                }
                (Some(one), two) if two.is_none_or(|two| one.last() <= two.last()) => {
                    of_self.extend(one.iter().cloned());
                    own.next();
                }
                (_, two) => {
                    of_other.extend(two.into_iter().flat_map(|leaf| leaf.iter().cloned()));
                    others.next();
                }
            }
        }
        of_other.retain(|id| of_self.remove(id).is_none());
        of_other.extend(of_self.iter().cloned());
        of_other
    }

    /// The index of the leaf that has the id, or would have it. Only in an empty set it does not exist.
    fn leaf_of(&self, id: &str) -> usize {
        let after = self.leaves.partition_point(|leaf| leaf.first().is_some_and(|first| **first <= *id));
        after.saturating_sub(1)
    }
}

fn place_in(leaf: &[Arc<str>], id: &str) -> Result<usize, usize> {
    leaf.binary_search_by(|known| (**known).cmp(id))
}

impl Extend<Arc<str>> for SharedSet {
    fn extend<T: IntoIterator<Item = Arc<str>>>(&mut self, ids: T) {
        for id in ids {
            self.insert(id);
        }
    }
}

impl FromIterator<Arc<str>> for SharedSet {
    fn from_iter<T: IntoIterator<Item = Arc<str>>>(ids: T) -> Self {
        let mut set = Self::default();
        set.extend(ids);
        set
    }
}

impl PartialEq for SharedSet {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.len == other.len && self.difference(other).is_empty()
    }
}

impl Eq for SharedSet {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn id(n: u16) -> Arc<str> {
        n.to_string().into()
    }

    proptest! {
        #[test]
        fn a_set_and_its_copies_are_what_an_ordinary_set_is(changes in prop::collection::vec((any::<bool>(), 0_u16..3000), 0..4000)) {
            let (mut set, mut model) = (SharedSet::default(), BTreeSet::new());
            for n in 0..1500 {
                set.insert(id(2 * n));
                model.insert(id(2 * n));
            }
            let (copy, was) = (set.clone(), model.clone());
            for (is_in, n) in changes {
                match is_in {
                    true => prop_assert_eq!(set.insert(id(n)), model.insert(id(n))),
                    false => prop_assert_eq!(set.remove(&id(n)).is_some(), model.remove(&id(n))),
                }
            }
            prop_assert!(set.iter().eq(model.iter()) && set.len() == model.len());
            prop_assert!(copy.iter().eq(was.iter()), "a change of one set has changed its copy");
            prop_assert!((0..3000).all(|n| set.contains(&id(n)) == model.contains(&id(n))));
            let mut difference = set.difference(&copy);
            difference.sort_unstable();
            prop_assert!(difference.iter().eq(model.symmetric_difference(&was)));
            prop_assert_eq!(set == copy, model == was);
        }
    }

    #[test]
    fn a_change_of_a_large_set_copies_one_leaf() {
        let mut set: SharedSet = (0..50_000).map(|n| Arc::from(format!("{n:06}"))).collect();
        let before = set.clone();
        set.insert("004321a".into());
        let shared = set.leaves.iter().filter(|leaf| before.leaves.iter().any(|known| Arc::ptr_eq(leaf, known))).count();
        assert!(shared + 2 >= before.leaves.len(), "{shared} of {} leaves are shared", before.leaves.len());
        assert_eq!(set.difference(&before), ["004321a".into()]);
        assert!(!set.is_same(&before) && before.clone().is_same(&before));
    }
}
