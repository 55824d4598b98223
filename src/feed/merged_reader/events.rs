//! The events of several logs, merged in commit order.
//!
//! The members that have more wait in a queue, by the commit position of their next append. The reader takes the
//! earliest append, over and over. It reads a page of a log when that log comes first, and each page once.

use super::{Load, MemberLog, MergedReader};
use crate::encode::encoded::FrameBuffer;
use crate::environment::sabotage;
use crate::feed::merged::{ALL_ROWS, order_position};
use crate::feed::{Filter, Frames, PAGE};
use crate::log::row::{Row, Rows};
use crate::log::{Limit, Store, StoreError, StoredAppend};
use crate::model::{Epoch, Sequence};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};

/// The bytes at which a block of events is full.
const BLOCK_BYTES_MAX: usize = 64 * 1024;

/// The bytes that one reader reads ahead, of all members together.
const QUEUED_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The least bytes of one page, which many members share.
const PAGE_BYTES_MIN: usize = 4 * 1024;

/// What a reader of events must look up of a member.
pub(super) struct Missing {
    member: usize,
    epoch: Epoch,
    /// The commit position of the next event, which is not in memory.
    is_position: bool,
    /// The last sequence that the filter accepted.
    is_prev: bool,
}

/// The members that have more events, by the commit position of the next append.
#[derive(Default)]
pub(super) struct Queue {
    /// An entry counts if its member has the same position.
    order: BinaryHeap<Reverse<(u64, usize)>>,
    members: HashMap<usize, Upcoming>,
}

/// The next appends of a member.
struct Upcoming {
    position: u64,
    /// Those that were read.
    appends: VecDeque<StoredAppend>,
}

impl Queue {
    fn insert(&mut self, member: usize, position: u64, appends: VecDeque<StoredAppend>) {
        self.order.push(Reverse((position, member)));
        self.members.insert(member, Upcoming { position, appends });
    }

    /// Adds a member with these appends; none if it has no more.
    fn insert_appends(&mut self, member: usize, appends: VecDeque<StoredAppend>) {
        match appends.front().map(|first| first.position) {
            Some(position) => self.insert(member, position, appends),
            None => self.remove(member),
        }
    }

    pub fn remove(&mut self, member: usize) {
        self.members.remove(&member);
    }

    fn contains(&self, member: usize) -> bool {
        self.members.contains_key(&member)
    }

    /// The member whose next append is the earliest, if that is at or before `until`.
    fn first(&mut self, until: u64) -> Option<usize> {
        while let Some(&Reverse((position, member))) = self.order.peek() {
            if self.members.get(&member).is_some_and(|upcoming| upcoming.position == position) {
                return (position <= until).then_some(member);
            }
            self.order.pop();
        }
        None
    }

    /// Takes the next append of a member; `None` if it must be read first.
    fn take(&mut self, member: usize) -> Option<StoredAppend> {
        let upcoming = self.members.get_mut(&member)?;
        let append = upcoming.appends.pop_front()?;
        match upcoming.appends.front() {
            Some(next) => {
                upcoming.position = next.position;
                self.order.push(Reverse((next.position, member)));
            }
            None => self.remove(member),
        }
        Some(append)
    }

    /// The limit of a member's page.
    fn page(&self) -> Limit {
        let bytes = QUEUED_BYTES_MAX / (self.members.len() + 1);
        Limit { rows: PAGE.rows, bytes: bytes.clamp(PAGE_BYTES_MIN, PAGE.bytes) }
    }
}

impl MergedReader {
    /// Makes a block of the events that were committed when the round began.
    ///
    /// Returns whether the reader may have more.
    pub(super) fn events(&mut self) -> Result<bool, Load> {
        let Some((now, _)) = self.round else { return Ok(false) };
        self.queue_active()?;
        let mut out = FrameBuffer::new(self.feed.logs.store_epoch());
        // The reader resumed between a run's last event and its End.
        for key in std::mem::take(&mut self.active) {
            self.members[key].push_end(|end| end.encoder.append_end(&mut out, self.at, end.sequence, end.status));
        }
        let (mut has_advanced, mut missing) = (false, None);
        while self.active.is_empty()
            && out.len() < BLOCK_BYTES_MAX
            && let Some(key) = self.queue.first(now)
        {
            let member = &mut self.members[key];
            let Some(append) = self.queue.take(key) else {
                missing = member.epoch.map(|epoch| Load::Page(key, epoch));
                break;
            };
            has_advanced = true;
            let after = member.after;
            for row in Rows(append.rows).filter(|row| row.sequence() > after) {
                member.after = row.sequence();
                member.end_pending = true;
                let row_number = if sabotage::is(37) { 1 } else { row.sequence().0 - append.before.0 };
                self.at = order_position(append.position, row_number.min(ALL_ROWS - 1));
                event(&self.request.filter, member, &row, self.at, &mut out);
            }
            member.push_end(|end| end.encoder.append_end(&mut out, self.at, end.sequence, end.status));
            if !self.queue.contains(key) && member.after < member.hub.log.tail().last {
                // No later append of another log may overtake its next one.
                self.active.push(key);
            }
        }
        // The next round knows the logs and the ends of erased ones that were announced meanwhile.
        self.round = None;
        if !out.is_empty() {
            self.ready.push(out.finish());
        }
        match missing {
            Some(load) if self.ready.is_empty() => Err(load),
            missing => Ok(has_advanced || missing.is_some()),
        }
    }

    /// Queues the active members that have events.
    fn queue_active(&mut self) -> Result<(), Load> {
        let mut missing = Vec::new();
        for &key in &self.active {
            let member = &mut self.members[key];
            let tail = member.hub.log.tail();
            if tail.epoch != member.epoch {
                self.queue.remove(key);
            }
            // An erased log keeps its old epoch, to tell it from the next one.
            if let Some(epoch) = tail.epoch.filter(|epoch| member.epoch != Some(*epoch)) {
                if member.epoch.is_some() {
                    self.ready.copy(&member.hub.encoder.reset(epoch, "epoch"));
                }
                (member.epoch, member.after, member.prev, member.end_pending) = (Some(epoch), Sequence::NONE, None, true);
            }
            let Some(epoch) = tail.epoch.filter(|_| member.after < tail.last && !self.queue.contains(key)) else { continue };
            let is_past = member.after > Sequence::NONE && member.after < tail.summary.compacted.through;
            let is_filtered = self.request.filter.of_frames(Frames::Events).is_some();
            let is_prev = member.prev.is_none() && (is_past || is_filtered);
            let recent = match member.hub.log.recent_appends_after(member.after) {
                (tail, recent) if tail.epoch == Some(epoch) => recent,
                _ => None,
            };
            match recent {
                Some(recent) if !is_prev => {
                    let (bytes_max, mut bytes) = (self.queue.page().bytes, 0);
                    let page = recent.into_iter().take_while(|append| {
                        let has_room = bytes < bytes_max;
                        bytes += append.rows.len();
                        has_room
                    });
                    self.queue.insert_appends(key, page.collect());
                }
                recent => missing.push(Missing { member: key, epoch, is_position: recent.is_none(), is_prev }),
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(Load::Members(missing)) }
    }

    /// Looks up what is missing of these members, and queues those that have events in the store.
    pub(super) async fn load_members(&mut self, missing: Vec<Missing>) -> Result<(), StoreError> {
        let nexts: Vec<_> = missing.iter().filter(|of| of.is_position).map(|of| (of.member, of.epoch)).collect();
        let places =
            nexts.iter().map(|(key, epoch)| (self.members[*key].hub.log.id.clone(), *epoch, self.members[*key].after.next()));
        let places: Vec<_> = places.collect();
        let find = move |store: &dyn Store| {
            places.iter().map(|(log, epoch, next)| store.position_of(log, *epoch, *next)).collect::<Result<Vec<_>, _>>()
        };
        let found = self.feed.logs.query(find).await?;
        let mut erased = HashSet::new();
        for ((key, _), position) in nexts.into_iter().zip(found) {
            match position {
                Some(position) => self.queue.insert(key, position, VecDeque::new()),
                // The log was erased meanwhile; that moves it again.
                None => drop(erased.insert(key)),
            }
        }
        self.active.retain(|key| !erased.contains(key));
        for Missing { member: key, epoch, .. } in missing.into_iter().filter(|of| of.is_prev) {
            let member = &mut self.members[key];
            member.prev = Some(self.feed.prev_at(&member.hub.log.id, epoch, &self.request.filter, member.after).await?);
        }
        Ok(())
    }

    /// Reads the next events of a member.
    pub(super) async fn load_page(&mut self, key: usize, epoch: Epoch) -> Result<(), StoreError> {
        self.feed.counts.ring_misses.add(1);
        let (member, limit) = (&self.members[key], self.queue.page());
        let appends = self.feed.logs.read_appends(&member.hub.log.id, epoch, member.after, limit).await?;
        // None of a log that was erased meanwhile, which moves it again, or whose last rows compaction has deleted.
        self.queue.insert_appends(key, appends.into());
        Ok(())
    }
}

/// Appends an event, if the filter accepts it.
fn event(filter: &Filter, member: &mut MemberLog, row: &Row, position: Sequence, out: &mut FrameBuffer) {
    let Some(view) = filter.text_of(row) else { return };
    // The reader's previous event, which compaction may have deleted.
    let prev = member.prev.replace(row.sequence()).unwrap_or_else(|| row.prev(filter.audience));
    member.hub.encoder.event(out, position, row.sequence(), prev, view);
}
