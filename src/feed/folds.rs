//! Folds at rest: a log's activities as of any sequence, from the nearest checkpoint and the rows after it.
//!
//! Checkpoints are made while a log grows, whether anybody reads it or not, by one thread beside the write path: so opening a
//! run costs its state and the facts since its checkpoint, not its history. One is made when the log has grown by
//! [`ROWS_BETWEEN`] rows and by [`LOG_TO_CHECKPOINT`] times as many bytes as the checkpoint will take: together they never take
//! more than that part of the log.
//!
//! A log whose past was rewritten comes to the same at its tail, and to something else in between: so a fold holds the past
//! still, and nobody goes on from a view of before.

use crate::log::row::{Row, Rows};
use crate::log::run::{Log, Logs};
use crate::log::{Limit, LogId, Store, StoreError};
use crate::model::{Audience, Epoch, Sequence};
use crate::projection::View;
use crate::projection::seen::Seen;
use std::sync::Arc;

/// Rows between two checkpoints of one log, at least.
const ROWS_BETWEEN: u64 = 2048;

/// By how many times its own size a log must have grown for another checkpoint: each is written beside what is ingested.
const LOG_TO_CHECKPOINT: usize = 4;

/// What is read at once to be folded.
const PAGE: Limit = Limit { rows: 2048, bytes: 1024 * 1024 };

/// The activities of `log` for `audience` as of `at`, or of its tail where that is before.
///
/// # Errors
/// [`StoreError`] from the store.
pub async fn at<S: Store>(
    logs: &Logs<S>,
    log: &LogId,
    epoch: Epoch,
    audience: Audience,
    at: Sequence,
) -> Result<View, StoreError> {
    let (log, open) = (log.clone(), logs.log(log).await?);
    logs.work(move |store| {
        let _still = open.hold_still();
        let mut view = nearest(store, &log, epoch, audience, at)?.0;
        forward(store, &log, epoch, std::slice::from_mut(&mut view), at)?;
        Ok(view)
    })
    .await
}

/// Brings a view to the log's tail, as far as it is in the store.
///
/// # Errors
/// [`StoreError`] from the store.
pub async fn catch_up<S: Store>(logs: &Logs<S>, log: &LogId, epoch: Epoch, mut view: View) -> Result<View, StoreError> {
    let (log, open) = (log.clone(), logs.log(log).await?);
    logs.work(move |store| {
        let _still = open.hold_still();
        forward(store, &log, epoch, std::slice::from_mut(&mut view), Sequence::MAX)?;
        Ok(view)
    })
    .await
}

/// The nearest checkpoint at or before `at`, and its size; a fresh view where there is none.
fn nearest<S: Store>(
    store: &S,
    log: &LogId,
    epoch: Epoch,
    audience: Audience,
    at: Sequence,
) -> Result<(View, usize), StoreError> {
    let kind = audience.index() as u8;
    let found = pollster::block_on(store.checkpoint(log, epoch, kind, at))?;
    // One that another version of the fold made means nothing to this one.
    let restored = found.and_then(|(_, saved)| Some((View::restore(log, audience, &saved)?, saved.len())));
    Ok(restored.unwrap_or_else(|| (View::new(log, audience), 0)))
}

/// Folds the rows after the views' common place up to `until`. Returns how many bytes they were.
fn forward<S: Store>(store: &S, log: &LogId, epoch: Epoch, views: &mut [View], until: Sequence) -> Result<usize, StoreError> {
    let mut bytes = 0;
    loop {
        let after = views[0].through;
        if after >= until {
            return Ok(bytes);
        }
        let page = pollster::block_on(store.read(log, epoch, after, PAGE))?;
        let mut moved = false;
        for row in page.into_iter().flat_map(|placed| Rows(placed.rows)).filter(|row| row.sequence() > after) {
            if row.sequence() > until {
                return Ok(bytes);
            }
            moved = true;
            bytes += fold(views, &row);
        }
        if !moved {
            return Ok(bytes);
        }
    }
}

/// Folds one row into each view, reading each of its texts once. Returns its size.
fn fold(views: &mut [View], row: &Row) -> usize {
    let mut read: Option<(&[u8], Option<Seen>)> = None;
    for view in views {
        let text = row.view(view.audience);
        match text {
            None => drop(view.fold(row.sequence(), None)),
            Some(text) => {
                // Audiences that get the same share its bytes.
                if !read.as_ref().is_some_and(|(known, _)| std::ptr::eq(*known, text)) {
                    read = Some((text, Seen::parse(row.sequence(), text)));
                }
                match read.as_ref().and_then(|(_, seen)| seen.as_ref()) {
                    Some(seen) => drop(view.fold_seen(seen)),
                    None => drop(view.fold(row.sequence(), Some(text))),
                }
            }
        }
    }
    row.size()
}

/// Makes checkpoints of logs that have grown, one after the other, until nobody can ask any more.
pub async fn checkpoint<S: Store>(logs: Arc<Logs<S>>, mut grown: tokio::sync::mpsc::UnboundedReceiver<Arc<Log>>) {
    while let Some(log) = grown.recv().await {
        loop {
            let life = log.tail().epoch;
            let made = logs.work({
                let log = log.clone();
                move |store| make(store, &log)
            });
            let due = made.await.unwrap_or_else(|error| {
                // Readers do without; the store's own failure stops the server elsewhere.
                tracing::warn!(%error, log = %log.id, "no checkpoint could be made");
                log.tail().last.plus(ROWS_BETWEEN)
            });
            // Of a log that was erased meanwhile it says nothing.
            let due = if log.tail().epoch == life { due } else { Sequence(ROWS_BETWEEN) };
            // It may have grown so far while this one was made.
            if log.announce_grown_at(due) {
                break;
            }
        }
    }
}

/// Makes a checkpoint for every audience, if the log has grown enough to be worth it; says when to ask again.
pub(super) fn make<S: Store>(store: &S, log: &Log) -> Result<Sequence, StoreError> {
    let _still = log.hold_still();
    let tail = log.tail();
    let Some(epoch) = tail.epoch else { return Ok(Sequence(ROWS_BETWEEN)) };
    let mut views = Vec::with_capacity(Audience::ALL.len());
    let mut size = 0;
    for audience in Audience::ALL {
        let (view, bytes) = nearest(store, &log.id, epoch, audience, tail.last)?;
        size += bytes;
        views.push(view);
    }
    let begun = views[0].through;
    if views.iter().any(|view| view.through != begun) {
        // A crash came between the audiences' checkpoints: begin where all of them can.
        for view in &mut views {
            *view = View::new(&log.id, view.audience);
        }
    }
    let begun = views[0].through;
    let rows = tail.last.0.saturating_sub(begun.0);
    if rows < ROWS_BETWEEN {
        return Ok(begun.plus(ROWS_BETWEEN));
    }
    let bytes = forward(store, &log.id, epoch, &mut views, tail.last)?;
    if bytes < LOG_TO_CHECKPOINT * size {
        // At this pace it will be worth it.
        let row = (bytes as u64 / rows).max(1);
        return Ok(begun.plus(((LOG_TO_CHECKPOINT * size) as u64 / row).max(rows + ROWS_BETWEEN)));
    }
    for view in &views {
        let saved = view.save().into();
        pollster::block_on(store.save_checkpoint(&log.id, epoch, view.audience.index() as u8, view.through, saved))?;
    }
    Ok(views[0].through.plus(ROWS_BETWEEN))
}
