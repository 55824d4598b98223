//! The signal that asks the server to stop.
//!
//! Streams and requests wait for it. It wakes them group by group, in the order in which they began to wait: tokio's
//! `watch` has an order of chance, which no seed of a simulation sets.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Groups of those that wait, so that they rarely wait for each other's lock.
const GROUPS: usize = 8;

/// The signal of one server.
#[derive(Default)]
pub struct StopSignal {
    requested_at: OnceLock<Instant>,
    groups: [Notify; GROUPS],
    next_group: AtomicUsize,
}

impl StopSignal {
    /// Gives the signal. The first one counts.
    pub fn request(&self) {
        self.requested_at.get_or_init(Instant::now);
        for group in &self.groups {
            group.notify_waiters();
        }
    }

    /// Whether the signal was given.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.requested_at.get().is_some()
    }

    /// A waiter for the signal.
    #[must_use]
    pub fn waiter(self: &Arc<Self>) -> StopWaiter {
        StopWaiter { signal: self.clone(), group: self.next_group.fetch_add(1, Ordering::Relaxed) % GROUPS }
    }
}

/// Waits for the signal.
pub struct StopWaiter {
    signal: Arc<StopSignal>,
    group: usize,
}

impl StopWaiter {
    /// Whether the signal was given.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.signal.is_requested()
    }

    /// Waits for the signal, and returns its time. Cancel safe.
    pub async fn requested(&self) -> Instant {
        let woken = self.signal.groups[self.group].notified();
        if let Some(at) = self.signal.requested_at.get() {
            return *at;
        }
        woken.await;
        *self.signal.requested_at.get().expect("the signal wakes after it was given")
    }

    /// Resolves so long after the signal. Cancel safe.
    pub async fn elapsed(&self, after: Duration) {
        sleep_until(self.requested().await + after).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn everyone_who_waits_gets_the_time_of_the_first_signal() {
        let signal = Arc::new(StopSignal::default());
        let before: Vec<_> = (0..2 * GROUPS)
            .map(|_| {
                let waiter = signal.waiter();
                tokio::spawn(async move { waiter.requested().await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(!signal.is_requested() && before.iter().all(|waiting| !waiting.is_finished()));
        let at = Instant::now();
        signal.request();
        for waiting in before {
            assert_eq!(waiting.await.unwrap(), at);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        signal.request();
        assert_eq!(signal.waiter().requested().await, at);
        signal.waiter().elapsed(Duration::from_secs(3)).await;
        assert_eq!(at.elapsed(), Duration::from_secs(3));
    }
}
