//! The task that sends the queue: one request at a time, each fact under its own sequence number.
//!
//! After a lost response the task sends the same facts under the same numbers again, so that the server detects
//! duplicates. Between attempts it waits with exponential backoff and jitter.

use crate::queue::{BATCH_FACTS_MAX, Queue};
use crate::wire::{DeliveryOutcome, Sink};
use std::sync::Arc;
use std::time::Duration;

/// The longest `Retry-After` that the task honours.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);

/// The backoff between attempts: `initial`, then twice as long after each attempt, up to `max`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    pub initial: Duration,
    pub max: Duration,
}

impl Backoff {
    /// Returns the delay after `tries` failed attempts.
    ///
    /// Jitter removes up to half of the delay, so that reporters that lost the connection together do not reconnect
    /// together. If the server sent `Retry-After`, the jittered delay is added to it.
    fn delay(self, tries: u32, retry_after: Option<Duration>, random: u64) -> Duration {
        let full = self.initial.saturating_mul(1 << tries.min(16)).min(self.max);
        let part = (random % 1000) as u32;
        let jittered = full / 2 + full / 2 * part / 1000;
        retry_after.map_or(jittered, |wait| wait.min(RETRY_AFTER_MAX) + jittered)
    }
}

/// A small pseudo-random generator (xorshift) for jitter.
/// It is not for secrets.
pub(crate) struct Rng(u64);

impl Rng {
    pub const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// The task's handle of the queue.
/// Its drop abandons the queue.
///
/// The drop also runs if the task ends before its first poll. So every caller that waits for the queue wakes up.
pub(crate) struct AbandonOnDrop(pub Arc<Queue>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Sends the queue until it is closed and empty, or until the server rejects the reporter.
pub(crate) async fn run(handle: AbandonOnDrop, sink: Sink, backoff: Backoff, mut rng: Rng) {
    let queue = &handle.0;
    // The number of the next unacknowledged fact.
    let mut seq = 0;
    let mut tries = 0;
    let mut limit = BATCH_FACTS_MAX;
    while let Some(batch) = queue.batch(limit).await {
        let count = batch.len();
        let (why, after) = match sink.deliver(seq, batch).await {
            DeliveryOutcome::Accepted { duplicates } => {
                queue.acknowledged(count, duplicates);
                seq += count as u64;
                tries = 0;
                limit = limit.saturating_mul(2).min(BATCH_FACTS_MAX);
                continue;
            }
            // The server lost acknowledged facts, and the reporter has no copy. The rest continues at the server's
            // number, which only ever decreases.
            DeliveryOutcome::Gap { expected } if expected < seq => {
                tracing::warn!(seq, expected, "the server has lost acknowledged reports; the run may have been erased");
                seq = expected;
                continue;
            }
            DeliveryOutcome::Gap { expected } => (format!("the server expects number {expected} after {seq}"), None),
            DeliveryOutcome::Fact { index, why } => {
                queue.refused(index, &why);
                continue;
            }
            DeliveryOutcome::Body { why } if count == 1 => {
                queue.refused(0, &why);
                continue;
            }
            // Either one fact is invalid, or the body is too large.
            DeliveryOutcome::Body { .. } => {
                limit = count / 2;
                continue;
            }
            DeliveryOutcome::Rejected(error) => return queue.stop(error),
            DeliveryOutcome::Retry { why, after } => (why, after),
        };
        if !queue.failed(why) {
            return;
        }
        tokio::time::sleep(backoff.delay(tries, after, rng.next())).await;
        tries += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_up_to_the_maximum_with_jitter() {
        let backoff = Backoff { initial: Duration::from_millis(100), max: Duration::from_secs(10) };
        let least: Vec<_> = (0..9).map(|tries| backoff.delay(tries, None, 0).as_millis()).collect();
        assert_eq!(least, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        let most: Vec<_> = (0..9).map(|tries| backoff.delay(tries, None, 999).as_micros()).collect();
        assert_eq!(most, [99_950, 199_900, 399_800, 799_600, 1_599_200, 3_198_400, 6_396_800, 9_995_000, 9_995_000]);
        assert_eq!(backoff.delay(u32::MAX, None, 0), Duration::from_secs(5));
        let mut rng = Rng::new(7);
        let delays: std::collections::BTreeSet<_> = (0..100).map(|_| backoff.delay(7, None, rng.next())).collect();
        assert!(delays.len() > 80, "{delays:?}");
    }

    #[test]
    fn retry_after_is_honoured_up_to_a_maximum() {
        let backoff = Backoff { initial: Duration::from_millis(100), max: Duration::from_secs(10) };
        assert_eq!(backoff.delay(0, Some(Duration::from_secs(2)), 0), Duration::from_millis(2050));
        assert_eq!(backoff.delay(0, Some(Duration::from_hours(24)), 0), RETRY_AFTER_MAX + Duration::from_millis(50));
    }
}
