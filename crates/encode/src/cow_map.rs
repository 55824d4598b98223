//! A sorted map whose clones share the entries that do not change.
//!
//! Readers of one dialect share the state of their translation, and a step from a shared state needs a copy. A run may
//! have 20,000 activities, of which a step changes one.

use std::borrow::Borrow;
use std::sync::Arc;

/// The most entries that a change copies.
const SEGMENT_ENTRIES_MAX: usize = 32;

/// A sorted map in segments. A clone shares them, and a change copies only the segment that it touches.
#[derive(Debug, Clone)]
pub struct CowMap<K, V> {
    /// Sorted, and none is empty.
    segments: Vec<Arc<Vec<(K, V)>>>,
}

impl<K, V> Default for CowMap<K, V> {
    fn default() -> Self {
        Self { segments: Vec::new() }
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for CowMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        // Maps of one origin have the same segments, nearly all of them shared.
        let have_same_lengths = self.segments.iter().map(|segment| segment.len()).eq(other.segments.iter().map(|of| of.len()));
        match have_same_lengths {
            true => self.segments.iter().zip(&other.segments).all(|(one, two)| Arc::ptr_eq(one, two) || one == two),
            false => self.iter().eq(other.iter()),
        }
    }
}

impl<K, V> CowMap<K, V> {
    /// The entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.segments.iter().flat_map(|segment| segment.iter()).map(|(key, value)| (key, value))
    }

    /// The keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// The values in the order of their keys.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.segments.iter().flat_map(|segment| segment.iter()).map(|(_, value)| value)
    }
}

impl<K: Ord + Clone, V: Clone> CowMap<K, V> {
    /// The segment and the place in it of a key, or where an entry with it would go.
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> (usize, Result<usize, usize>)
    where
        K: Borrow<Q>,
    {
        let last_key = |segment: &Arc<Vec<(K, V)>>| segment.last().is_some_and(|(last, _)| last.borrow() < key);
        // A key after all others belongs into the last segment.
        let at = self.segments.partition_point(last_key).min(self.segments.len().saturating_sub(1));
        let place = |segment: &Arc<Vec<(K, V)>>| segment.binary_search_by(|(known, _)| known.borrow().cmp(key));
        (at, self.segments.get(at).map_or(Err(0), place))
    }

    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let (segment, Ok(at)) = self.find(key) else { return None };
        Some(&self.segments[segment][at].1)
    }

    /// Whether it has the key.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).1.is_ok()
    }

    /// The value of a key, to be changed.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let (segment, Ok(at)) = self.find(key) else { return None };
        Some(&mut Arc::make_mut(&mut self.segments[segment])[at].1)
    }

    /// Sets the value of a key, and returns the one that it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            (segment, Ok(at)) => Some(std::mem::replace(&mut Arc::make_mut(&mut self.segments[segment])[at].1, value)),
            (segment, Err(at)) => {
                self.insert_at(segment, at, key, value);
                None
            }
        }
    }

    /// The value of a key, which is set if it is missing.
    pub fn get_or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        let (segment, at) = match self.find(&key) {
            (segment, Ok(at)) => (segment, at),
            (segment, Err(at)) => self.insert_at(segment, at, key, value()),
        };
        &mut Arc::make_mut(&mut self.segments[segment])[at].1
    }

    /// Inserts an entry at its place, and returns where it is then.
    fn insert_at(&mut self, segment: usize, at: usize, key: K, value: V) -> (usize, usize) {
        let Some(entries) = self.segments.get_mut(segment).map(Arc::make_mut) else {
            self.segments.push(Arc::new(vec![(key, value)]));
            return (segment, at);
        };
        entries.insert(at, (key, value));
        if entries.len() <= SEGMENT_ENTRIES_MAX {
            return (segment, at);
        }
        // Most keys grow: a segment that grows at its end stays nearly full.
        let half = if at + 1 == entries.len() { at } else { entries.len() / 2 };
        let rest = entries.split_off(half);
        self.segments.insert(segment + 1, Arc::new(rest));
        if at < half { (segment, at) } else { (segment + 1, at - half) }
    }

    /// Removes a key, and returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let (segment, Ok(at)) = self.find(key) else { return None };
        let entries = Arc::make_mut(&mut self.segments[segment]);
        let (_, value) = entries.remove(at);
        if entries.is_empty() {
            self.segments.remove(segment);
        }
        Some(value)
    }

    /// The entries in the order of their keys, with values to be changed. It copies every shared segment.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.segments.iter_mut().flat_map(|segment| Arc::make_mut(segment).iter_mut()).map(|(key, value)| (&*key, value))
    }

    /// The values in the order of their keys, to be changed. It copies every shared segment.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.iter_mut().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Debug, Clone)]
    enum Edit {
        Insert(u16, u32),
        GetOrInsert(u16, u32),
        Change(u16),
        Remove(u16),
    }

    fn edit() -> impl Strategy<Value = Edit> {
        let key = 0..400_u16;
        prop_oneof![
            4 => (key.clone(), any::<u32>()).prop_map(|(key, value)| Edit::Insert(key, value)),
            1 => (key.clone(), any::<u32>()).prop_map(|(key, value)| Edit::GetOrInsert(key, value)),
            1 => key.clone().prop_map(Edit::Change),
            1 => key.prop_map(Edit::Remove),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_sorted_map_and_its_clones_keep_what_they_had(edits in prop::collection::vec(edit(), 0..600), cloned_at in 0..600_usize) {
            let (mut map, mut model) = (CowMap::<u16, u32>::default(), BTreeMap::new());
            let mut clone = (map.clone(), model.clone());
            for (n, edit) in edits.into_iter().enumerate() {
                if n == cloned_at {
                    clone = (map.clone(), model.clone());
                }
                match edit {
                    Edit::Insert(key, value) => prop_assert_eq!(map.insert(key, value), model.insert(key, value)),
                    Edit::GetOrInsert(key, value) => {
                        prop_assert_eq!(map.get_or_insert_with(key, || value), model.entry(key).or_insert(value));
                    }
                    Edit::Change(key) => {
                        map.get_mut(&key).into_iter().chain(model.get_mut(&key)).for_each(|value| *value = value.wrapping_add(1));
                    }
                    Edit::Remove(key) => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                }
                prop_assert!(map.segments.iter().all(|segment| (1..=SEGMENT_ENTRIES_MAX).contains(&segment.len())));
            }
            for (map, model) in [(&map, &model), (&clone.0, &clone.1)] {
                prop_assert!(map.iter().eq(model.iter()));
                prop_assert!((0..400).all(|key| map.get(&key) == model.get(&key)));
            }
            // Equality does not depend on how the segments came about.
            let again: Vec<_> = model.iter().rev().map(|(key, value)| (*key, *value)).collect();
            let mut rebuilt = CowMap::default();
            for (key, value) in again {
                rebuilt.insert(key, value);
            }
            prop_assert_eq!(&rebuilt, &map);
            prop_assert_eq!(map == clone.0, model == clone.1);
        }
    }

    #[test]
    fn a_change_copies_one_segment_of_a_clone() {
        let mut map = CowMap::default();
        for key in 0..20_000 {
            map.insert(key, key);
        }
        let before = map.clone();
        *map.get_mut(&10_000).unwrap() = 0;
        let shared = map.segments.iter().zip(&before.segments).filter(|(one, two)| Arc::ptr_eq(one, two)).count();
        assert_eq!((shared, before.get(&10_000)), (map.segments.len() - 1, Some(&10_000)));
    }
}
