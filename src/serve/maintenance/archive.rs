//! The archive: moves the rows of runs that ended long ago to object storage.
//!
//! ```text
//!   run that has rested ─▶ object, stored ─▶ a commit that names it ─▶ an older object, deleted
//!     ─▶ commits that empty the run's appends ─▶ commits that empty its bodies
//! ```
//! A crash between two steps leaves the run whole, and the next look begins again. Objects that no run names, such as
//! those of a crash, are deleted by a sweep: at the start, once a day, and soon after a deletion failed.

use crate::environment::sabotage;
use crate::feed::Feed;
use crate::ingest::{CompactionPlan, ServerAppend, WriterView};
use crate::log::archive::{ARCHIVE, Archive, ArchiveEntry, ListTexts, ObjectWriter, moved_body, object_name};
use crate::log::commit::Tail;
use crate::log::row::{ROW_LENGTH_BYTES, Rows};
use crate::log::run_index::Upkeep;
use crate::log::{Blob, Limit, LogId, LogKind, RewrittenAppend, Store, StoreError, StoredAppend, log_of_number};
use crate::model::{Audience, Epoch, Sequence};
use crate::serve::App;
use crate::serve::api::session_entry::{ERROR, highlight_of_log, made_title};
use crate::serve::maintenance::ended_runs;
use crate::source::ledger::Status;
use bytes::Bytes;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// What one store read fetches.
const READ_LIMIT: Limit = Limit { rows: 4096, bytes: 1024 * 1024 };
/// Appends that one commit empties. Commits wait while a step is written, so it is small.
const STEP_APPENDS: usize = 8192;
/// Bodies that one commit empties.
const STEP_BODIES: usize = 256;
/// Runs that are archived at once.
const RUNS_AT_ONCE: usize = 4;
/// Time between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_hours(24);
/// The same after a deletion has failed.
const RETRY_INTERVAL: Duration = Duration::from_mins(1);

/// Archives the ended runs of one server.
#[derive(Clone)]
pub struct Archiver {
    app: Arc<App>,
    /// Time from a run's last fact to its archiving. `None`: never; the sweep still deletes.
    after: Option<Duration>,
    step_appends: usize,
    next_sweep: Arc<Mutex<Option<Instant>>>,
}

impl Archiver {
    pub(in crate::serve) fn new(app: Arc<App>, after: Option<Duration>) -> Self {
        Self { app, after, step_appends: STEP_APPENDS, next_sweep: Arc::default() }
    }

    /// Sets the most appends that one commit empties.
    #[must_use]
    pub const fn with_step_appends(mut self, appends: usize) -> Self {
        self.step_appends = appends;
        self
    }

    /// Looks at all runs periodically.
    pub(in crate::serve) async fn run(self) {
        loop {
            ended_runs::until_leading(&self.app).await;
            if let Err(error) = self.sweep_if_due().await {
                tracing::warn!(%error, "cannot look for archived runs that were erased");
            }
            match self.run_once().await {
                Ok(0) => {}
                Ok(runs) => tracing::info!(runs, "archived"),
                Err(error) => tracing::warn!(%error, "cannot archive runs"),
            }
            ended_runs::next_look(&self.app, self.after.unwrap_or(SWEEP_INTERVAL)).await;
        }
    }

    /// Looks at all runs once, and archives those that are due. Returns their number.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn run_once(&self) -> Result<usize, StoreError> {
        let Some(after) = self.after else { return Ok(0) };
        let mut runs = 0;
        let archive = |run| {
            let archiver = self.clone();
            async move { archiver.archive_run(&LogId::Run(run), after).await }
        };
        let done = |done: Option<()>| {
            runs += usize::from(done.is_some());
            self.app.meters.archived_runs.add(u64::from(done.is_some()));
        };
        ended_runs::each(ended_runs::waiting(&self.app, Upkeep::Archive, after), RUNS_AT_ONCE, archive, done).await?;
        Ok(runs)
    }

    /// Archives a run. `None` if it is not due, or has moved meanwhile.
    async fn archive_run(&self, id: &LogId, after: Duration) -> Result<Option<()>, StoreError> {
        let App { logs, ingest, feed, search, .. } = &*self.app;
        let archive = logs.archive();
        let _alone = archive.lock(id).await;
        let tail = logs.log(id).await?.tail();
        let is_due =
            tail.summary.extension.archived_through < tail.last && ended_runs::has_rested(&self.app, &tail.summary, after);
        let Some(epoch) = tail.epoch.filter(|_| is_due) else { return Ok(None) };
        let draft = logs.work({
            let (archive, id, tail, store_epoch) = (archive.clone(), id.clone(), tail.clone(), logs.store_epoch());
            move |store| write_object(store, &archive, store_epoch, &id, epoch, &tail)
        });
        let Some(Draft { file, mut entry, before, position, moved }) = draft.await? else { return Ok(None) };
        for (audience, texts) in Audience::ALL.into_iter().zip(&mut entry.texts) {
            if tail.summary.run_for(audience).status == Status::Failed {
                texts.error = highlight_of_log(&self.app, id, ERROR, audience).await?.map(|(_, text)| text);
            }
        }
        // Who reads commits in their order must have read the rows before they leave the store.
        if search.position() < position {
            return Ok(None);
        }
        let is_new = before.as_ref() != Some(&entry.object);
        let mut replaced = before.filter(|_| is_new);
        if let Err(error) = archive.put(id, &entry, file).await
            && !sabotage::is(56)
        {
            // It may be there all the same.
            if is_new {
                self.delete(id, &entry.object).await;
            }
            return Err(error);
        }
        let (mut found, mut is_named, through) = (tail, false, entry.through);
        let mut moved = Some(moved).filter(|moved| !moved.is_empty());
        loop {
            let (of, last, count) = (id.clone(), found.last, self.step_appends);
            let emptied = logs.work(move |store| emptied_appends(store, &of, epoch, (through, last), count)).await?;
            let has_emptied_rows = emptied.len() < count;
            let is_last = has_emptied_rows && moved.is_none();
            let plan = CompactionPlan {
                appends: emptied,
                unseen: [0; 3],
                compacted: found.summary.compacted,
                // Until the last step the run stays due.
                archived_through: if is_last { through } else { Sequence(through.0 - 1) },
                state: vec![(Bytes::from_static(ARCHIVE), Some(entry.save()))],
            };
            if !ingest.compact(id, &found, plan).await? {
                if !is_named && is_new {
                    self.delete(id, &entry.object).await;
                }
                return Ok(None);
            }
            is_named = true;
            if let Some(object) = replaced.take() {
                self.delete(id, &object).await;
            }
            if is_last {
                break;
            }
            if has_emptied_rows && let Some(bodies) = moved.take() {
                self.empty_bodies(id, epoch, bodies).await?;
            }
            found = logs.log(id).await?.tail();
            if found.epoch != Some(epoch) {
                return Ok(None);
            }
        }
        self.app.meters.archived_bytes.add(entry.bytes);
        Feed::renew(feed, id).await?;
        Ok(Some(()))
    }

    /// Leaves of the bodies of a run what names them, now that the run names its object.
    async fn empty_bodies(&self, id: &LogId, epoch: Epoch, mut bodies: Vec<Blob>) -> Result<(), StoreError> {
        while !bodies.is_empty() {
            let step = bodies.split_off(bodies.len().saturating_sub(STEP_BODIES));
            let empty = |view: &WriterView<'_>| {
                // The run may have been erased, and begun again.
                let blobs = if view.epoch == epoch { step.clone() } else { Vec::new() };
                ((), ServerAppend { blobs, ..ServerAppend::default() })
            };
            self.app.ingest.append_as_server(id, empty).await?;
        }
        Ok(())
    }

    /// Deletes an object that no run names, now or soon.
    async fn delete(&self, id: &LogId, object: &str) {
        if let Err(error) = self.app.logs.archive().delete(id, object).await {
            tracing::warn!(%error, "an object stays for a minute");
            *self.next_sweep.lock().await = Some(Instant::now() + RETRY_INTERVAL);
        }
    }

    async fn sweep_if_due(&self) -> Result<(), StoreError> {
        let mut next = self.next_sweep.lock().await;
        if next.is_none_or(|next| Instant::now() >= next) {
            *next = Some(Instant::now() + RETRY_INTERVAL);
            self.sweep().await?;
            *next = Some(Instant::now() + SWEEP_INTERVAL);
        }
        Ok(())
    }

    /// Deletes the objects of this store that no run names. Returns their number.
    ///
    /// # Errors
    /// `Archived` when object storage does not answer; otherwise [`StoreError`] from the store.
    pub async fn sweep(&self) -> Result<usize, StoreError> {
        let App { logs, .. } = &*self.app;
        let archive = logs.archive();
        let mut deleted = 0;
        for (number, object) in archive.objects(logs.store_epoch()).await? {
            let named = object.clone();
            let is_named = logs.query(move |store| is_named(store, number, &named)).await?;
            if !is_named {
                archive.delete(&LogId::of_server(), &object).await?;
                deleted += 1;
            }
        }
        Ok(deleted)
    }
}

/// Whether a run names this object.
fn is_named(store: &dyn Store, number: u64, object: &str) -> Result<bool, StoreError> {
    let Some(found) = log_of_number(store, LogKind::Run, number)? else { return Ok(false) };
    Ok(ArchiveEntry::of(store, &found.log, found.epoch)?.is_some_and(|entry| entry.object == object))
}

/// An object that is not stored yet.
struct Draft {
    file: File,
    entry: ArchiveEntry,
    /// The object that the run names now.
    before: Option<String>,
    /// The position of the run's last append.
    position: u64,
    /// What the store keeps of the run's bodies.
    moved: Vec<Blob>,
}

/// Writes the object of a run. `None`: the run has moved.
fn write_object(
    store: &dyn Store,
    archive: &Archive,
    store_epoch: Epoch,
    id: &LogId,
    epoch: Epoch,
    tail: &Tail,
) -> Result<Option<Draft>, StoreError> {
    let of_disk = |error: std::io::Error| StoreError::failed("writing the object of an archived run", &error);
    let Some(head) = store.head(id)?.filter(|head| head.epoch == epoch && head.last == tail.last) else { return Ok(None) };
    let before = ArchiveEntry::of(store, id, epoch)?.map(|entry| entry.object);
    let mut writer = ObjectWriter::begin(archive.draft().map_err(of_disk)?).map_err(of_disk)?;
    let mut at = Sequence::NONE;
    while at < tail.last {
        let page = store.read(id, epoch, at, READ_LIMIT)?;
        if page.is_empty() {
            return Ok(None);
        }
        for append in page {
            at = Rows(append.rows.clone()).last().map_or(at, |row| row.sequence());
            writer.push(&append).map_err(of_disk)?;
        }
    }
    let mut moved: Vec<Blob> = Vec::new();
    loop {
        let page = store.bodies(id, epoch, moved.last().map(|blob| &blob.id), READ_LIMIT.bytes)?;
        if page.is_empty() {
            break;
        }
        for blob in page {
            writer.push_body(&blob).map_err(of_disk)?;
            moved.push(moved_body(head.number, &blob));
        }
    }
    let position = store.position_of(id, epoch, tail.last)?.unwrap_or(0);
    let (file, bytes, hash) = writer.end().map_err(of_disk)?;
    let object = object_name(store_epoch, head.number, &hash);
    let mut texts = <[ListTexts; 3]>::default();
    for (audience, texts) in Audience::ALL.into_iter().zip(&mut texts) {
        texts.title = made_title(store, &[(id.kind(), head.number)], audience)?;
    }
    let entry = ArchiveEntry { object, bytes, hash: hash.to_hex().to_string(), through: tail.last, texts };
    Ok(Some(Draft { file, entry, before, position, moved }))
}

/// The next appends up to `through` that the store still has, at most `count`, emptied; the log's `last` row stays.
///
/// Facts that came since the object was written are in no object.
fn emptied_appends(
    store: &dyn Store,
    id: &LogId,
    epoch: Epoch,
    (through, last): (Sequence, Sequence),
    count: usize,
) -> Result<Vec<RewrittenAppend>, StoreError> {
    let through = if sabotage::is(55) { last } else { through };
    let (mut emptied, mut at) = (Vec::new(), Sequence::NONE);
    while at < through && emptied.len() < count {
        let page = store.read_stored(id, epoch, at, READ_LIMIT)?;
        if page.is_empty() {
            break;
        }
        for StoredAppend { position, rows, .. } in page.into_iter().take(count - emptied.len()) {
            let Some(newest) = Rows(rows.clone()).last() else { continue };
            at = newest.sequence();
            if at > through {
                break;
            }
            let kept = if at == last { ROW_LENGTH_BYTES + newest.size() } else { 0 };
            if kept < rows.len() {
                let last = if kept > 0 { last } else { Sequence::NONE };
                emptied.push(RewrittenAppend { position, last, rows: rows.slice(rows.len() - kept..) });
            }
        }
    }
    Ok(emptied)
}
