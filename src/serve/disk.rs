//! A disk that is nearly full: facts are refused while there is still room for what was taken, and reads go on.
//!
//! A store that meets the end of its disk in the middle of a commit has failed for good. So a reserve is kept: below it writes
//! are answered with 507 `disk_full`. It is looked at again and again, and writes are taken again once there is room. What is under
//! way counts as written: else one large body at the edge of the reserve could take all of it.

use super::App;
use super::problem::Problem;
use crate::ingest::Delivery;
use http::StatusCode;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often the disk is looked at.
const EVERY: Duration = Duration::from_millis(250);
/// How often the store writes what it keeps: into the journal, and then into a table.
const WRITTEN_TIMES: u64 = 2;
/// The part of the reserve that what is under way may take: small facts go on up to the edge of it.
const PART_UNDER_WAY: u64 = 64;
/// When somebody who was refused may ask again, in seconds.
const RETRY_AFTER: u64 = 5;

/// Says how many bytes are free.
pub type Probe = Arc<dyn Fn() -> std::io::Result<u64> + Send + Sync>;

/// What is kept free on the store's disk, and who says what is.
#[derive(Clone)]
pub struct Reserve {
    pub bytes: u64,
    pub probe: Probe,
}

impl Reserve {
    /// So many bytes of the disk that this directory is on.
    #[must_use]
    pub fn of(directory: &Path, bytes: u64) -> Self {
        let directory = directory.to_owned();
        Self { bytes, probe: Arc::new(move || free_bytes(&directory)) }
    }
}

/// What is free for us on the disk of a directory.
fn free_bytes(directory: &Path) -> std::io::Result<u64> {
    let disk = rustix::fs::statvfs(directory)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// How the store's disk was found.
#[derive(Debug)]
pub struct Disk {
    /// [`UNKNOWN`] until it was looked at.
    free: AtomicU64,
    reserve: AtomicU64,
    /// Bytes that what was let in may take of what was free then.
    promised: AtomicU64,
}

const UNKNOWN: u64 = u64::MAX;

impl Default for Disk {
    fn default() -> Self {
        Self { free: AtomicU64::new(UNKNOWN), reserve: AtomicU64::new(0), promised: AtomicU64::new(0) }
    }
}

impl Disk {
    /// What was free when it was last looked at; nothing where nobody looks.
    #[must_use]
    pub fn free(&self) -> Option<u64> {
        Some(self.free.load(Ordering::Relaxed)).filter(|free| *free != UNKNOWN)
    }

    /// Whether there is room for writes.
    ///
    /// # Errors
    /// 507 while less is free than the reserve.
    pub fn has_room(&self) -> Result<(), Problem> {
        let (free, reserve) = (self.free.load(Ordering::Relaxed), self.reserve.load(Ordering::Relaxed));
        if free >= reserve {
            return Ok(());
        }
        let detail = format!(
            "{free} bytes are free on the store's disk, the reserve is {reserve}: nothing is written until there is room; \
             free some, or lower --disk-reserve. Reads go on"
        );
        Err(full(detail, reserve))
    }

    /// Whether there is room for these facts beside what is under way already; they then count as under way, too.
    ///
    /// # Errors
    /// 507 while less is free than the reserve, or would be.
    pub fn has_room_for(&self, delivery: &Delivery) -> Result<(), Problem> {
        self.has_room()?;
        let (free, reserve) = (self.free.load(Ordering::Relaxed), self.reserve.load(Ordering::Relaxed));
        let bytes = (delivery.envelope_bytes() as u64).saturating_mul(WRITTEN_TIMES);
        let promised = self.promised.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if free.saturating_sub(promised) >= reserve - reserve / PART_UNDER_WAY {
            return Ok(());
        }
        self.promised.fetch_sub(bytes, Ordering::Relaxed);
        let detail = format!(
            "{free} bytes are free on the store's disk, and with this {promised} bytes are under way to it, which leaves less than \
             the reserve of {reserve} bytes. Nothing of this was kept; send less at once, free some, or lower --disk-reserve"
        );
        Err(full(detail, reserve))
    }
}

fn full(detail: String, reserve: u64) -> Problem {
    let problem = Problem::new(StatusCode::INSUFFICIENT_STORAGE, "disk_full", detail);
    problem.with("limit", reserve).retry_after(RETRY_AFTER)
}

/// Looks once. `under_way` says how much is under way to the disk.
pub(super) fn look(disk: &Disk, reserve: &Reserve, under_way: impl FnOnce() -> usize) {
    // In this order: what is written meanwhile is counted twice rather than not at all.
    let (promised, under_way) = (disk.promised.load(Ordering::Relaxed), under_way() as u64);
    let had_room = disk.has_room().is_ok();
    disk.reserve.store(reserve.bytes, Ordering::Relaxed);
    match (reserve.probe)() {
        Ok(free) => {
            disk.free.store(free.min(UNKNOWN - 1), Ordering::Relaxed);
            disk.promised.fetch_sub(promised.saturating_sub(under_way), Ordering::Relaxed);
        }
        // Nothing is known: whether there is room is then the store's to find out.
        Err(error) => {
            if disk.free.swap(UNKNOWN, Ordering::Relaxed) != UNKNOWN {
                tracing::warn!(%error, "cannot tell how much is free on the store's disk");
            }
        }
    }
    let free = disk.free();
    match (had_room, disk.has_room().is_ok()) {
        (true, false) => tracing::error!(free, reserve = reserve.bytes, "the disk is nearly full; writes are refused"),
        (false, true) => tracing::info!(free, reserve = reserve.bytes, "there is room again; writes are taken"),
        _ => {}
    }
}

/// Looks again and again.
pub(super) async fn watch(app: Arc<App>, reserve: Reserve) {
    loop {
        tokio::time::sleep(EVERY).await;
        let (app, reserve) = (app.clone(), reserve.clone());
        // A disk over a network may take its time.
        let looking = tokio::task::spawn_blocking(move || look(&app.disk, &reserve, || app.ingest.in_flight_bytes()));
        looking.await.expect("nobody aborts it, and a panic in it is one here");
    }
}
