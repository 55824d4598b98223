//! Folds of stored logs: activities at any sequence, from the nearest checkpoint and later rows.
//!
//! A thread beside the write path makes checkpoints while a log grows, with or without readers. So opening a run costs
//! its state and the facts since its checkpoint, not its history. A checkpoint is due when the log has grown by
//! [`ROWS_BETWEEN`] rows and by [`LOG_TO_CHECKPOINT`] times the checkpoint's size in bytes: all checkpoints together
//! never exceed that part of the log.
//!
//! Compaction leaves the activities at a log's tail unchanged, but not the ones in between. So a fold locks the
//! history, and no fold continues a view from before a compaction.

use super::last_seen::LastSeen;
use crate::log::commit::{Log, Logs};
use crate::log::row::{Row, Rows};
use crate::log::{Limit, LogId, Store, StoreError};
use crate::meter::Counter;
use crate::model::{Audience, Epoch, Sequence};
use crate::projection::View;
use crate::projection::envelope_view::EnvelopeView;
use bytes::Bytes;
use std::sync::Arc;

/// The least number of rows between two checkpoints of one log.
const ROWS_BETWEEN: u64 = 2048;

/// The growth that makes another checkpoint due, as a multiple of the checkpoint's size.
///
/// Checkpoints compete with ingest.
const LOG_TO_CHECKPOINT: usize = 4;

/// The rows that one checkpoint covers, of a log that has grown by more; it covers more if it is large.
///
/// A reader that joins while a log grows faster than its checkpoints are made starts at the last one.
const ROWS_AT_ONCE: u64 = 65_536;

/// The pause of the checkpoint thread, as a multiple of its working time.
///
/// It leaves the processor to ingest.
///
/// A reader that opens a run meanwhile folds a few more rows itself.
const REST_FACTOR: u32 = 1;

/// The rows that one read of a fold fetches.
const PAGE: Limit = Limit { rows: 2048, bytes: 1024 * 1024 };

/// The activities of `log` for `audience` at `at`, or at its tail if that is earlier.
///
/// # Errors
/// [`StoreError`] from the store.
pub async fn at(logs: &Logs, log: &Arc<Log>, epoch: Epoch, audience: Audience, at: Sequence) -> Result<View, StoreError> {
    let of = log.clone();
    logs.work_on(vec![log.clone()], move |store| fold_to(store, &of, epoch, audience, at)).await
}

/// The activities of several logs, each at its own sequence, in the order of the logs.
pub(super) async fn at_all(
    logs: &Logs,
    of: Vec<(Arc<Log>, Epoch, Sequence)>,
    audience: Audience,
) -> Result<Vec<View>, StoreError> {
    if of.is_empty() {
        return Ok(Vec::new());
    }
    let all = of.iter().map(|(log, ..)| log.clone()).collect();
    logs.work_on(all, move |store| of.iter().map(|(log, epoch, at)| fold_to(store, log, *epoch, audience, *at)).collect()).await
}

fn fold_to(store: &dyn Store, log: &Log, epoch: Epoch, audience: Audience, at: Sequence) -> Result<View, StoreError> {
    let saved = nearest(store, &log.id, epoch, audience, at)?;
    let mut view = restore_or_new(&log.id, audience, saved.as_deref());
    for_each_row(store, &log.id, epoch, view.through, at, |row| fold_row(&mut view, row))?;
    Ok(view)
}

/// Advances a view to the log's tail in the store.
///
/// # Errors
/// [`StoreError`] from the store.
pub async fn catch_up(logs: &Logs, log: &Arc<Log>, epoch: Epoch, mut view: View) -> Result<View, StoreError> {
    let id = log.id.clone();
    logs.work_on(vec![log.clone()], move |store| {
        for_each_row(store, &id, epoch, view.through, Sequence::MAX, |row| fold_row(&mut view, row))?;
        Ok(view)
    })
    .await
}

/// The kind of the checkpoints of [`LastSeen`] for an audience. The kinds before are those of activities.
pub(super) const fn last_seen_kind(audience: Audience) -> u8 {
    (Audience::ALL.len() + audience.index()) as u8
}

/// The last envelopes of each kind, at the nearest sequence at or before `at` that has a checkpoint of them.
pub(super) async fn last_seen_at(
    logs: &Logs,
    log: &LogId,
    epoch: Epoch,
    audience: Audience,
    at: Sequence,
) -> Result<Option<(Sequence, LastSeen)>, StoreError> {
    let found = logs.checkpoint(log, epoch, last_seen_kind(audience), at).await?;
    Ok(found.and_then(|(at, saved)| Some((at, LastSeen::restore(&saved).ok()?))))
}

/// The nearest checkpoint at or before `at`.
fn nearest(store: &dyn Store, log: &LogId, epoch: Epoch, audience: Audience, at: Sequence) -> Result<Option<Bytes>, StoreError> {
    let found = store.checkpoint(log, epoch, audience.index() as u8, at)?;
    Ok(found.map(|(_, saved)| saved))
}

/// Restores a saved view, or creates one if none is usable.
///
/// A checkpoint of another fold version is not usable. A checkpoint is a cache: an unreadable one costs a fold from the
/// log's start, and a warning.
fn restore_or_new(log: &LogId, audience: Audience, saved: Option<&[u8]>) -> View {
    let restored = saved.map(|saved| View::restore(log, audience, saved)).transpose();
    let restored = restored.unwrap_or_else(|error| {
        tracing::warn!(%log, %audience, %error, "a checkpoint is unreadable; the server folds the log from its start");
        None
    });
    restored.flatten().unwrap_or_else(|| View::new(log, audience))
}

fn fold_row(view: &mut View, row: &Row) {
    view.fold(row.sequence(), row.view(view.audience));
}

/// Calls `each` with the rows after `after` up to `until`, in order. Returns their size in bytes.
fn for_each_row(
    store: &dyn Store,
    log: &LogId,
    epoch: Epoch,
    mut after: Sequence,
    until: Sequence,
    mut each: impl FnMut(&Row),
) -> Result<usize, StoreError> {
    let mut bytes = 0;
    while after < until {
        let page = store.read(log, epoch, after, PAGE)?;
        let begun = after;
        for row in page.into_iter().flat_map(|placed| Rows(placed.rows)).filter(|row| row.sequence() > begun) {
            if row.sequence() > until {
                return Ok(bytes);
            }
            after = row.sequence();
            bytes += row.size();
            each(&row);
        }
        if after == begun {
            break;
        }
    }
    Ok(bytes)
}

/// What a checkpoint has for an audience.
#[derive(Debug, Clone)]
struct AudienceView {
    view: View,
    seen: LastSeen,
}

/// The views of all audiences; audiences with equal envelopes share one.
///
/// Most runs hide little, and only late.
struct AudienceViews(Vec<(AudienceView, Vec<Audience>)>);

/// The saved parts of an [`AudienceView`].
type SavedView = Option<(Bytes, Bytes)>;

impl AudienceViews {
    /// Restores the views from the saved ones, in [`Audience::ALL`]'s order.
    fn restore(log: &LogId, saved: &[SavedView; 3]) -> Self {
        let mut views: Vec<(AudienceView, Vec<Audience>)> = Vec::new();
        for (audience, saved_view) in Audience::ALL.into_iter().zip(saved) {
            // A saved view does not name its audience: equal bytes mean equal views.
            match views.iter_mut().find(|(_, of)| saved[of[0].index()] == *saved_view) {
                Some((_, of)) => of.push(audience),
                None => {
                    let seen = saved_view.as_ref().and_then(|(_, seen)| LastSeen::restore(seen).ok());
                    let saved = saved_view.as_ref().filter(|_| seen.is_some()).map(|(view, _)| &view[..]);
                    let view = restore_or_new(log, audience, saved);
                    let seen = seen.filter(|_| view.through > Sequence::NONE).unwrap_or_default();
                    views.push((AudienceView { view, seen }, vec![audience]));
                }
            }
        }
        Self(views)
    }

    /// The sequence that all views have reached, if it is the same.
    fn through(&self) -> Option<Sequence> {
        let through = self.0[0].0.view.through;
        self.0.iter().all(|(of, _)| of.view.through == through).then_some(through)
    }

    /// Folds one row and parses each of its texts once.
    fn fold(&mut self, row: &Row) {
        self.split(row);
        let mut read: Option<(&[u8], Option<EnvelopeView>)> = None;
        for (AudienceView { view, seen }, _) in &mut self.0 {
            let text = row.view(view.audience);
            let Some(text) = text else {
                view.fold(row.sequence(), None);
                continue;
            };
            if view.fold_chunk(row.sequence(), text).is_some() {
                let chunks = view.chunks().expect("they were just folded");
                seen.record(&chunks.event_type, &chunks.surface, chunks.agent.as_ref(), row.sequence());
                continue;
            }
            if !read.as_ref().is_some_and(|(known, _)| std::ptr::eq(*known, text)) {
                read = Some((text, EnvelopeView::parse(row.sequence(), text)));
            }
            match read.as_ref().and_then(|(_, envelope)| envelope.as_ref()) {
                Some(envelope) => {
                    view.fold_row(envelope, text);
                    seen.record(&envelope.event_type, &envelope.surface, envelope.ids.agent.as_ref(), row.sequence());
                }
                None => drop(view.fold(row.sequence(), Some(text))),
            }
        }
    }

    /// Splits views whose audiences get different texts of this row.
    fn split(&mut self, row: &Row) {
        let same = |a: Audience, b: Audience| match (row.view(a), row.view(b)) {
            (Some(a), Some(b)) => std::ptr::eq(a, b),
            (None, None) => true,
            _ => false,
        };
        let mut at = 0;
        while let Some((shared, of)) = self.0.get_mut(at) {
            let (with, apart): (Vec<_>, Vec<_>) = of.iter().partition(|audience| same(**audience, of[0]));
            if let Some(first) = apart.first() {
                let own = AudienceView { view: shared.view.clone().for_audience(*first), seen: shared.seen.clone() };
                *of = with;
                self.0.push((own, apart));
            }
            at += 1;
        }
    }
}

/// Makes checkpoints of logs that have grown, one after the other, until the channel closes.
pub async fn make_checkpoints_of_grown(logs: Arc<Logs>, mut grown: tokio::sync::mpsc::UnboundedReceiver<Arc<Log>>) {
    while let Some(log) = grown.recv().await {
        loop {
            let epoch = log.tail().epoch;
            let begun = tokio::time::Instant::now();
            let due = make_checkpoints(&logs, &log).await.unwrap_or_else(|error| {
                // Readers work without checkpoints, and a failure of the store stops the server elsewhere.
                tracing::warn!(%error, log = %log.id, "a checkpoint failed");
                log.tail().last.plus(ROWS_BETWEEN)
            });
            tokio::time::sleep(begun.elapsed() * REST_FACTOR).await;
            // The result does not apply to a log that was erased meanwhile.
            let due = if log.tail().epoch == epoch { due } else { Sequence(ROWS_BETWEEN) };
            // The log may have grown to the next checkpoint while this one was made.
            if log.announce_growth_at(due) {
                break;
            }
        }
    }
}

/// Makes the next checkpoint for every audience if the log has grown enough.
///
/// Returns the sequence of the next attempt, which the log may have reached.
pub(super) async fn make_checkpoints(logs: &Arc<Logs>, log: &Arc<Log>) -> Result<Sequence, StoreError> {
    let (of, all) = (log.clone(), logs.clone());
    logs.work_on(vec![log.clone()], move |store| checkpoints_of(store, &of, &all.counts().checkpoints)).await
}

fn checkpoints_of(store: &dyn Store, log: &Log, saved_count: &Counter) -> Result<Sequence, StoreError> {
    let tail = log.tail();
    let Some(epoch) = tail.epoch else { return Ok(Sequence(ROWS_BETWEEN)) };
    let mut saved: [SavedView; 3] = [const { None }; 3];
    for audience in Audience::ALL {
        let view = store.checkpoint(&log.id, epoch, audience.index() as u8, tail.last)?;
        let seen = store.checkpoint(&log.id, epoch, last_seen_kind(audience), tail.last)?;
        // A store of an older version has no second one, and a crash may have interrupted the saving.
        let both = view.zip(seen).filter(|((view_at, _), (seen_at, _))| view_at == seen_at);
        saved[audience.index()] = both.map(|((_, view), (_, seen))| (view, seen));
    }
    let size: usize = saved.iter().flatten().map(|(view, seen)| view.len() + seen.len()).sum();
    let mut views = AudienceViews::restore(&log.id, &saved);
    let begun = views.through().unwrap_or_else(|| {
        // A crash interrupted the saving of the audiences' checkpoints: start where all of them can.
        views = AudienceViews::restore(&log.id, &[const { None }; 3]);
        Sequence::NONE
    });
    let rows = tail.last.0.saturating_sub(begun.0);
    if rows < ROWS_BETWEEN {
        return Ok(begun.plus(ROWS_BETWEEN));
    }
    let (bytes_due, mut bytes, mut until) = (LOG_TO_CHECKPOINT * size, 0, begun);
    // A part without rows, which compaction deleted, does not count.
    while until < tail.last && (bytes == 0 || bytes < bytes_due) {
        let after = until;
        until = after.plus(ROWS_AT_ONCE).min(tail.last);
        bytes += for_each_row(store, &log.id, epoch, after, until, |row| views.fold(row))?;
    }
    if bytes < bytes_due {
        // Estimate the sequence from the average row size.
        let row = (bytes as u64 / rows).max(1);
        return Ok(begun.plus((bytes_due as u64 / row).max(rows + ROWS_BETWEEN)));
    }
    let through = views.through().unwrap_or(begun);
    for (AudienceView { view, seen }, of) in &views.0 {
        let (view, seen) = (Bytes::from(view.save()), Bytes::from(seen.save()));
        for audience in of {
            store.save_checkpoint(&log.id, epoch, last_seen_kind(*audience), through, seen.clone())?;
            store.save_checkpoint(&log.id, epoch, audience.index() as u8, through, view.clone())?;
            saved_count.add(1);
        }
    }
    Ok(through.plus(ROWS_BETWEEN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::Filter;
    use crate::model::RunId;

    /// A row with a text for these audiences.
    fn row(sequence: u64, seen_by: &[Audience]) -> Row {
        let text = format!(
            r#"{{"type":"text.delta","sequence":{sequence},"messageId":"m","partId":"p","phase":"producing","surface":"conversation","payload":{{"text":"{sequence} "}}}}"#
        );
        let views = Audience::ALL.map(|audience| seen_by.contains(&audience).then_some(text.as_bytes()));
        let mut rows = Vec::new();
        Row::encode(&mut rows, Sequence(sequence), [Sequence::NONE; 3], views);
        Rows(rows.into()).next().unwrap()
    }

    #[test]
    fn a_checkpoint_of_an_older_version_is_replaced_by_a_fold_from_the_first_row() {
        let log = LogId::Run(RunId::new("r").unwrap());
        let rows = [1, 2, 3].map(|n| row(n, &Audience::ALL));
        let mut whole = View::new(&log, Audience::User);
        for row in &rows[..2] {
            fold_row(&mut whole, row);
        }
        let mut older: serde_json::Value = serde_json::from_slice(&whole.save()).unwrap();
        older["version"] = (older["version"].as_u64().unwrap() - 1).into();
        let older = serde_json::to_vec(&older).unwrap();
        assert_ne!(older, whole.save());
        fold_row(&mut whole, &rows[2]);
        for saved in [Some(&older[..]), Some(b"{}"), None] {
            let mut view = restore_or_new(&log, Audience::User, saved);
            assert_eq!(view.through, Sequence::NONE);
            for row in &rows {
                fold_row(&mut view, row);
            }
            assert_eq!(view.save(), whole.save());
        }
    }

    #[test]
    fn audiences_share_a_view_until_their_envelopes_differ() {
        use Audience::{Dashboard, Internal, User};
        let log = LogId::Run(RunId::new("r").unwrap());
        let mut shared = AudienceViews::restore(&log, &[const { None }; 3]);
        let mut alone = Audience::ALL.map(|audience| View::new(&log, audience));
        let everyone = [User, Dashboard, Internal];
        let story: [(&[Audience], usize); 5] =
            [(&everyone, 1), (&everyone, 1), (&[Internal], 2), (&everyone, 2), (&[Dashboard, Internal], 3)];
        for (n, (seen_by, views)) in (1..).zip(story) {
            let row = row(n, seen_by);
            shared.fold(&row);
            for view in &mut alone {
                fold_row(view, &row);
            }
            assert_eq!((shared.0.len(), shared.through()), (views, Some(Sequence(n))));
            for (AudienceView { view, seen }, of) in &shared.0 {
                assert_eq!((view.audience, seen.last_accepted(&Filter::all(of[0]))), (of[0], Some(view.last_framed)));
                for audience in of {
                    assert_eq!(view.save(), alone[audience.index()].save(), "{audience} after {n}");
                }
            }
            // After a restore, audiences with equal views share one again.
            let seen = |audience: Audience| shared.0.iter().find(|(_, of)| of.contains(&audience)).unwrap().0.seen.save();
            let saved = Audience::ALL.map(|audience| Some((alone[audience.index()].save().into(), seen(audience).into())));
            let again = AudienceViews::restore(&log, &saved);
            assert_eq!((again.0.len(), again.through()), (views, Some(Sequence(n))));
        }
    }
}
