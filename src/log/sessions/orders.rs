//! The orders of sessions in lists: by creation, and by what each audience last saw of them.

use crate::model::{Audience, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// What a list of sessions is sorted by, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionSort {
    Created,
    /// By the newest news that this audience sees.
    Updated(Audience),
}

/// The place of a session in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListPlace {
    /// When its newest news came, in milliseconds since 1970; 0 in the order of creation.
    pub at: i64,
    /// Its place in the order of creation.
    pub created: u64,
}

/// All that the orders need of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placement {
    pub created: u64,
    /// Per audience, in milliseconds since 1970.
    pub updated: [i64; 3],
    pub archived: bool,
}

impl Placement {
    pub const fn place(&self, sort: SessionSort) -> ListPlace {
        let at = match sort {
            SessionSort::Created => 0,
            SessionSort::Updated(audience) => self.updated[audience.index()],
        };
        ListPlace { at, created: self.created }
    }
}

/// The sessions of a store in all orders. Archived ones lie apart, so that any number of them costs a list nothing.
#[derive(Default)]
pub(super) struct Orders([Order; 2]);

#[derive(Default)]
struct Order {
    created: BTreeMap<u64, SessionId>,
    updated: [BTreeSet<(i64, u64)>; 3],
}

impl Orders {
    /// Moves a session from one place to another. `None`: it is in no list.
    pub fn replace(&mut self, session: &SessionId, from: Option<Placement>, to: Option<Placement>) {
        if from == to {
            return;
        }
        let moves = |of: Option<Placement>| of.map(|of| (of.created, of.archived));
        if moves(from) != moves(to) {
            if let Some((created, archived)) = moves(from) {
                self.0[usize::from(archived)].created.remove(&created);
            }
            if let Some((created, archived)) = moves(to) {
                self.0[usize::from(archived)].created.insert(created, session.clone());
            }
        }
        for reader in 0..Audience::ALL.len() {
            let key = |of: Placement| (usize::from(of.archived), (of.updated[reader], of.created));
            let (from, to) = (from.map(key), to.map(key));
            if from == to {
                continue;
            }
            if let Some((order, key)) = from {
                self.0[order].updated[reader].remove(&key);
            }
            if let Some((order, key)) = to {
                self.0[order].updated[reader].insert(key);
            }
        }
    }

    /// Up to `limit` sessions before a place, newest first. `archived`: only those that are, or are not.
    pub fn list(
        &self,
        sort: SessionSort,
        archived: Option<bool>,
        before: Option<ListPlace>,
        limit: usize,
    ) -> Vec<(ListPlace, SessionId)> {
        let orders = self.0.iter().zip([false, true]).filter(|(_, is)| archived.is_none_or(|wanted| wanted == *is));
        let mut found: Vec<_> = orders.flat_map(|(order, _)| order.list(sort, before, limit)).collect();
        if archived.is_none() {
            found.sort_unstable_by(|a, b| b.cmp(a));
            found.truncate(limit);
        }
        found
    }
}

impl Order {
    fn list(&self, sort: SessionSort, before: Option<ListPlace>, limit: usize) -> Vec<(ListPlace, SessionId)> {
        match sort {
            SessionSort::Created => {
                let older = self.created.range(..before.map_or(u64::MAX, |before| before.created)).rev().take(limit);
                older.map(|(created, session)| (ListPlace { at: 0, created: *created }, session.clone())).collect()
            }
            SessionSort::Updated(audience) => {
                let before = before.map_or((i64::MAX, u64::MAX), |before| (before.at, before.created));
                let older = self.updated[audience.index()].range(..before).rev().take(limit);
                let placed = older.filter_map(|(at, created)| {
                    Some((ListPlace { at: *at, created: *created }, self.created.get(created)?.clone()))
                });
                placed.collect()
            }
        }
    }
}
