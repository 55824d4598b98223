//! `POST /v1/backup`: the files of the store after one commit, for a client that keeps backups.
//!
//! ```text
//! answer := plan "\n"  the content of each file of the plan that the client lacks, in order  {"end":true} "\n"
//! ```
//! The client says which files it has, by checksum and size, so that an unchanged file is not sent again. The files stay
//! as long as the answer is on its way. A client that reads nothing for a minute, or reads for hours, loses them, because they take disk
//! space, and hold up the removal of what was erased.

use crate::log::Store;
use crate::log::pinned::{PinnedContent, PinnedFiles};
use crate::model::Epoch;
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, OpenAccess, forbidden};
use crate::serve::http::body::read_object;
use crate::serve::http::problem::Problem;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use http::{StatusCode, header};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// Backups that clients read at once.
pub const BACKUPS_MAX: usize = 2;
/// The time in which a client that reads nothing loses the files.
const BACKUP_STALL_MAX: Duration = Duration::from_mins(1);
/// The time in which a client must have read a backup: the removal of what was erased waits for it.
const BACKUP_TIME_MAX: Duration = Duration::from_hours(6);
/// The bytes of a backup that are sent in a second if the client does not name a rate.
const BACKUP_BYTES_PER_SEC: u64 = 128 * 1024 * 1024;
/// The largest body of a request, in bytes: the names of about 250,000 files.
const BACKUP_BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// What one read of a file sends.
const CHUNK_BYTES: u64 = 1024 * 1024;
/// How often the server looks whether a client still reads, and whether the disk has space.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What a client asks for.
struct Wanted {
    /// The files that it has.
    has: HashSet<String>,
    bytes_per_sec: u64,
}

impl Wanted {
    fn read(body: &serde_json::Map<String, Value>) -> Result<Self, Problem> {
        let bad = |member: &str, what: &str| {
            Err(Problem::bad_request("bad_query", format!("The body's {member} is not {what}.")).with("member", member))
        };
        let has = match body.get("have") {
            None => HashSet::new(),
            Some(Value::Array(names)) if names.iter().all(Value::is_string) => {
                names.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            Some(_) => return bad("have", "a list of names of files"),
        };
        let bytes_per_sec = match body.get("bytesPerSecond").map(|rate| rate.as_u64().filter(|rate| *rate > 0)) {
            None => BACKUP_BYTES_PER_SEC,
            Some(Some(rate)) => rate,
            Some(None) => return bad("bytesPerSecond", "a positive number"),
        };
        Ok(Self { has, bytes_per_sec })
    }
}

/// `POST /v1/backup`.
pub async fn post(State(app): State<Arc<App>>, authorization: Authorization, request: Request) -> Result<Response, Problem> {
    if !authorization.is_unrestricted() {
        let detail = "The token does not cover all sessions, and a backup has all of them.".into();
        return Err(forbidden("sessions:*", detail));
    }
    let wanted = Wanted::read(&read_object(&app, request, BACKUP_BODY_BYTES_MAX).await?)?;
    app.disk.check_space()?;
    let Ok(slot) = app.backups.clone().try_acquire_owned() else {
        let detail = format!("{BACKUPS_MAX} backups are being read, the limit. Try again when one has ended.");
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_backups", detail).with("limit", BACKUPS_MAX));
    };
    let Some(files) = app.logs.work(Store::pin).await? else {
        let detail = "The server keeps its store in memory, so it has no files to back up. Start it with --store embedded.";
        return Err(Problem::new(StatusCode::CONFLICT, "no_files", detail));
    };
    let (plan, sent) = plan(&app, &files, &wanted.has);
    tracing::info!(position = files.mark.applied, files = files.files.len(), sent = sent.len(), "a client reads a backup");
    let lease = Arc::new(Lease { files: Mutex::new(Some(files)), last_read: Mutex::new(Instant::now()), _slot: slot });
    tokio::spawn(watch(app.clone(), Arc::downgrade(&lease)));
    let reader = BackupReader {
        app,
        access: authorization.into_open_access(),
        lease,
        sent,
        next: 0,
        offset: 0,
        bytes_per_sec: wanted.bytes_per_sec,
        begun: Instant::now(),
        bytes: 0,
    };
    let chunks = futures_util::stream::try_unfold((Some(reader), Some(plan)), |(reader, plan)| async move {
        let Some(mut reader) = reader else { return Ok(None) };
        if let Some(plan) = plan {
            return Ok(Some((plan, (Some(reader), None))));
        }
        Ok::<_, axum::BoxError>(match reader.next_chunk().await? {
            Some(chunk) => Some((chunk, (Some(reader), None))),
            None => Some((Bytes::from_static(b"{\"end\":true}\n"), (None, None))),
        })
    });
    let headers = [(header::CONTENT_TYPE, "application/octet-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(chunks)).into_response())
}

/// The first line of the answer, and the files to send, by their places in the list.
fn plan(app: &App, pinned: &PinnedFiles, has: &HashSet<String>) -> (Bytes, Vec<usize>) {
    let mut sent = Vec::new();
    let files: Vec<Value> = pinned
        .files
        .iter()
        .enumerate()
        .map(|(at, file)| {
            let checksum = format!("{:032x}", file.checksum);
            let is_sent = !has.contains(&format!("{checksum}-{}", file.bytes));
            sent.extend(is_sent.then_some(at));
            json!({ "path": file.path, "bytes": file.bytes, "checksum": checksum, "sent": is_sent })
        })
        .collect();
    let plan = json!({
        "backup": 1,
        "serverVersion": env!("CARGO_PKG_VERSION"),
        "storeFormat": pinned.format,
        "storeEpoch": pinned.epoch.map(|epoch: Epoch| epoch.to_string()),
        "position": pinned.mark.applied,
        "appends": pinned.mark.position,
        "logs": pinned.mark.created,
        "madeAt": (app.environment.now)().to_string(),
        "chains": { "logs": pinned.heads.logs, "digest": HEXLOWER.encode(&pinned.heads.digest) },
        "files": files,
    });
    (Bytes::from(format!("{plan}\n")), sent)
}

/// The files of one backup, while its client reads.
struct Lease {
    /// `None` once the client has lost them.
    files: Mutex<Option<PinnedFiles>>,
    last_read: Mutex<Instant>,
    _slot: OwnedSemaphorePermit,
}

/// Takes the files away from a client that does not read, and while the disk is nearly full.
async fn watch(app: Arc<App>, lease: std::sync::Weak<Lease>) {
    let begun = Instant::now();
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let Some(lease) = lease.upgrade() else { return };
        let is_stalled = lease.last_read.lock().elapsed() > BACKUP_STALL_MAX || begun.elapsed() > BACKUP_TIME_MAX;
        let is_full = app.disk.check_space().is_err();
        if is_stalled || is_full {
            tracing::warn!(is_stalled, is_full, "a backup is ended: its files take disk space");
            lease.files.lock().take();
            return;
        }
    }
}

/// The content of a backup on its way.
struct BackupReader {
    app: Arc<App>,
    access: OpenAccess,
    lease: Arc<Lease>,
    /// The files to send, by their places in the list.
    sent: Vec<usize>,
    /// The place in `sent` of the current file, and what of it is sent.
    next: usize,
    offset: u64,
    bytes_per_sec: u64,
    begun: Instant,
    bytes: u64,
}

impl BackupReader {
    /// The next bytes; `None` at the end.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, axum::BoxError> {
        loop {
            // A slow client may outlast its token. The error breaks the body off, so it does not look complete.
            if let Some(end) = self.access.end_reason() {
                return Err(end.to_string().into());
            }
            let due = Duration::from_secs_f64(self.bytes as f64 / self.bytes_per_sec as f64);
            tokio::time::sleep_until(self.begun + due).await;
            *self.lease.last_read.lock() = Instant::now();
            let Some(at) = self.sent.get(self.next) else { return Ok(None) };
            let file = {
                let files = self.lease.files.lock();
                let Some(files) = &*files else {
                    return Err("the files of the backup are gone: it stood still or took too long, or the disk is full".into());
                };
                let file = &files.files[*at];
                (file.content.clone(), file.bytes)
            };
            let (content, bytes) = file;
            // A slow rate gets small pieces, so that none waits for more than a second.
            let (offset, count) = (self.offset, CHUNK_BYTES.min(bytes - self.offset).min(self.bytes_per_sec));
            if count == 0 {
                (self.next, self.offset) = (self.next + 1, 0);
                continue;
            }
            let read = self.app.logs.work(move |_| read_at(&content, offset, count)).await?;
            (self.offset, self.bytes) = (offset + count, self.bytes + count);
            return Ok(Some(read));
        }
    }
}

fn read_at(content: &PinnedContent, offset: u64, count: u64) -> std::io::Result<Bytes> {
    let as_size = |n: u64| usize::try_from(n).map_err(std::io::Error::other);
    match content {
        PinnedContent::Memory(content) => Ok(content.slice(as_size(offset)?..as_size(offset + count)?)),
        PinnedContent::Disk(path) => {
            let mut read = vec![0; as_size(count)?];
            File::open(path)?.read_exact_at(&mut read, offset)?;
            Ok(read.into())
        }
    }
}
