//! Disk space: the server refuses writes before the disk is full, and still serves reads.
//!
//! A store whose disk fills in the middle of a commit has failed for good. So the server keeps a reserve. Below it,
//! writes get 507 `disk_full` until space is free again. Data in flight counts as written; otherwise one large body
//! could use up the whole reserve.

use crate::ingest::Delivery;
use crate::serve::App;
use crate::serve::http::problem::Problem;
use http::StatusCode;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Interval of the free space checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// The store writes data twice: to its journal, then to a table.
const WRITE_AMPLIFICATION: u64 = 2;
/// Data in flight may use 1/64 of the reserve, so that small facts work up to its edge.
const IN_FLIGHT_SHARE: u64 = 64;
/// `Retry-After` of a refused write, in seconds.
const RETRY_AFTER_SECS: u64 = 5;

/// Returns the free bytes.
pub type Probe = Arc<dyn Fn() -> std::io::Result<u64> + Send + Sync>;

/// The bytes to keep free on the store's disk, and the probe that measures them.
#[derive(Clone)]
pub struct DiskReserve {
    pub bytes: u64,
    pub probe: Probe,
}

impl DiskReserve {
    /// A reserve on the disk of this directory.
    #[must_use]
    pub fn of(directory: &Path, bytes: u64) -> Self {
        let directory = directory.to_owned();
        Self { bytes, probe: Arc::new(move || free_bytes(&directory)) }
    }
}

/// The bytes free to this process on a directory's disk.
fn free_bytes(directory: &Path) -> std::io::Result<u64> {
    let disk = rustix::fs::statvfs(directory)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// The last known state of the store's disk.
#[derive(Debug)]
pub struct Disk {
    /// [`UNKNOWN`] until the first check.
    free: AtomicU64,
    reserve: AtomicU64,
    /// Bytes that admitted data may still take of `free`.
    promised: AtomicU64,
}

const UNKNOWN: u64 = u64::MAX;

impl Default for Disk {
    fn default() -> Self {
        Self { free: AtomicU64::new(UNKNOWN), reserve: AtomicU64::new(0), promised: AtomicU64::new(0) }
    }
}

impl Disk {
    /// The free bytes at the last check. `None`: unknown, or not checked.
    #[must_use]
    pub fn free(&self) -> Option<u64> {
        Some(self.free.load(Ordering::Relaxed)).filter(|free| *free != UNKNOWN)
    }

    /// Checks that writes are allowed.
    ///
    /// # Errors
    /// 507 while less than the reserve is free.
    pub fn check_space(&self) -> Result<(), Problem> {
        let (free, reserve) = (self.free.load(Ordering::Relaxed), self.reserve.load(Ordering::Relaxed));
        if free >= reserve {
            return Ok(());
        }
        let detail = format!(
            "The store's disk has {free} bytes free, less than the reserve of {reserve} bytes. The server refuses writes and \
             still serves reads. Free some space, or lower --disk-reserve."
        );
        Err(disk_full(detail, reserve))
    }

    /// Reserves space for these facts, besides the data in flight.
    ///
    /// # Errors
    /// 507 while less than the reserve is free, or would be.
    pub fn reserve_space(&self, delivery: &Delivery) -> Result<(), Problem> {
        self.check_space()?;
        let (free, reserve) = (self.free.load(Ordering::Relaxed), self.reserve.load(Ordering::Relaxed));
        let bytes = (delivery.envelope_bytes() as u64).saturating_mul(WRITE_AMPLIFICATION);
        let promised = self.promised.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if free.saturating_sub(promised) >= reserve - reserve / IN_FLIGHT_SHARE {
            return Ok(());
        }
        self.promised.fetch_sub(bytes, Ordering::Relaxed);
        let detail = format!(
            "The store's disk has {free} bytes free. With this body {promised} bytes are in flight, which leaves less than the \
             reserve of {reserve} bytes. Nothing was accepted. Send less at once, free some space, or lower --disk-reserve."
        );
        Err(disk_full(detail, reserve))
    }
}

fn disk_full(detail: String, reserve: u64) -> Problem {
    let problem = Problem::new(StatusCode::INSUFFICIENT_STORAGE, "disk_full", detail);
    problem.with("limit", reserve).with_retry_after(RETRY_AFTER_SECS)
}

/// Checks the free space once. `in_flight` returns the bytes in flight to the disk.
pub(in crate::serve) fn refresh(disk: &Disk, reserve: &DiskReserve, in_flight: impl FnOnce() -> usize) {
    // Read in this order, data written meanwhile is counted twice rather than not at all.
    let (promised, in_flight) = (disk.promised.load(Ordering::Relaxed), in_flight() as u64);
    let had_space = disk.check_space().is_ok();
    disk.reserve.store(reserve.bytes, Ordering::Relaxed);
    match (reserve.probe)() {
        Ok(free) => {
            disk.free.store(free.min(UNKNOWN - 1), Ordering::Relaxed);
            disk.promised.fetch_sub(promised.saturating_sub(in_flight), Ordering::Relaxed);
        }
        // Without a measurement the store itself has to find out.
        Err(error) => {
            if disk.free.swap(UNKNOWN, Ordering::Relaxed) != UNKNOWN {
                tracing::warn!(%error, "cannot measure the free space of the store's disk");
            }
        }
    }
    let free = disk.free();
    match (had_space, disk.check_space().is_ok()) {
        (true, false) => tracing::error!(free, reserve = reserve.bytes, "the disk is nearly full: refusing writes"),
        (false, true) => tracing::info!(free, reserve = reserve.bytes, "the disk has space again: accepting writes"),
        _ => {}
    }
}

/// Checks the free space periodically.
pub(in crate::serve) async fn monitor(app: Arc<App>, reserve: DiskReserve) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let (app, reserve) = (app.clone(), reserve.clone());
        // A network disk may be slow.
        let checking = tokio::task::spawn_blocking(move || refresh(&app.disk, &reserve, || app.ingest.in_flight_bytes()));
        checking.await.expect("the disk check panicked");
    }
}
