//! A clock of the real binary that a test sets forward.
//!
//! Time runs on as usual. `PROSCENIUM_TEST_CLOCK` names a Unix socket, on which the line `advance 3600000` sets all
//! clocks of the process forward by an hour: the wall clock, [`super::instant`], and tokio's, which its timers and those
//! of hyper and of reqwest follow. The server answers `ok`. Timers that became due fire right after.
//!
//! Three kinds of waiting stay real: threads that sleep, the runtime of the NATS client, and NATS itself.

use futures_util::FutureExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

/// How far the clocks are ahead of the machine's, in milliseconds.
static AHEAD_MS: AtomicU64 = AtomicU64::new(0);

pub(super) fn ahead() -> Duration {
    Duration::from_millis(AHEAD_MS.load(Ordering::Relaxed))
}

/// The socket that the environment names.
#[must_use]
pub fn socket() -> Option<PathBuf> {
    std::env::var_os("PROSCENIUM_TEST_CLOCK").map(PathBuf::from)
}

/// Obeys a test, if the environment names a socket. The runtime must have one thread, because tokio's clock moves only
/// there.
///
/// # Errors
/// The error of the socket.
pub fn start() -> std::io::Result<()> {
    let Some(path) = socket() else { return Ok(()) };
    let listener = UnixListener::bind(path)?;
    tokio::spawn(async move {
        while let Ok((test, _)) = listener.accept().await {
            if let Err(error) = obey(test).await {
                tracing::error!(%error, "the test clock's connection failed");
            }
        }
    });
    Ok(())
}

async fn obey(test: UnixStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(test).lines();
    while let Some(line) = lines.next_line().await? {
        let ms = line.strip_prefix("advance ").and_then(|ms| ms.parse().ok());
        if let Some(ms) = ms {
            advance(ms);
        }
        lines.get_mut().write_all(if ms.is_some() { b"ok\n" } else { b"expected: advance MILLISECONDS\n" }).await?;
    }
    Ok(())
}

/// Sets the clocks forward.
fn advance(ms: u64) {
    AHEAD_MS.fetch_add(ms, Ordering::Relaxed);
    // Between these calls no other task runs, so the pause does not make tokio jump to its next timer.
    tokio::time::pause();
    // The first poll moves the clock. The rest would only yield.
    let _ = tokio::time::advance(Duration::from_millis(ms)).now_or_never();
    tokio::time::resume();
}
