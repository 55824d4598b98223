//! The task that sends the line: one body at a time, each fact under a number of its own, until an answer settles it.
//!
//! A body whose answer never came is sent again, the same facts under the same numbers, so that the server knows what it has.
//! Between tries it waits, longer each time and never exactly as long as others do.

use super::queue::{BATCH_FACTS_MAX, Queue};
use super::wire::{Answer, Sink};
use std::sync::Arc;
use std::time::Duration;

/// The longest that a server's `Retry-After` is obeyed.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);

/// How long to wait between tries: `first`, then twice as long each time, up to `most`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub first: Duration,
    pub most: Duration,
}

impl Pace {
    /// The pause after so many tries came to nothing: a random half of it is left out, so that those who were cut off together do
    /// not come back together. A server that says how long to wait is waited for so long, and then a little.
    fn pause(self, tries: u32, told: Option<Duration>, random: u64) -> Duration {
        let full = self.first.saturating_mul(1 << tries.min(16)).min(self.most);
        let part = (random % 1000) as u32;
        let jittered = full / 2 + full / 2 * part / 1000;
        told.map_or(jittered, |told| told.min(RETRY_AFTER_MAX) + jittered)
    }
}

/// A small generator (xorshift) for pauses: nobody's secret hangs on it.
pub(super) struct Dice(u64);

impl Dice {
    pub const fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    const fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// The line as its sender has it: however that ends, even before it began, whoever waits is told.
pub(super) struct Sending(pub Arc<Queue>);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Sends until nothing more will come, or the server takes nothing more.
pub(super) async fn run(sending: Sending, sink: Sink, pace: Pace, mut dice: Dice) {
    let queue = &sending.0;
    // The number of the next fact that is not acknowledged.
    let mut seq = 0;
    let mut tries = 0;
    let mut limit = BATCH_FACTS_MAX;
    while let Some(batch) = queue.batch(limit).await {
        let count = batch.len();
        let (why, after) = match sink.deliver(seq, batch).await {
            Answer::Taken { duplicates } => {
                queue.acknowledged(count, duplicates);
                seq += count as u64;
                tries = 0;
                limit = limit.saturating_mul(2).min(BATCH_FACTS_MAX);
                continue;
            }
            // What it had of us is gone, and so is our copy: what is left begins where it stands. It only ever goes back.
            Answer::Gap { expected } if expected < seq => {
                tracing::warn!(
                    seq,
                    expected,
                    "the server has lost reports that it had acknowledged; the run may have been erased"
                );
                seq = expected;
                continue;
            }
            Answer::Gap { expected } => (format!("it expects number {expected} after {seq}"), None),
            Answer::Fact { index, why } => {
                queue.refused(index, &why);
                continue;
            }
            Answer::Body { why } if count == 1 => {
                queue.refused(0, &why);
                continue;
            }
            // One of them is at fault, or all together are too much.
            Answer::Body { .. } => {
                limit = count / 2;
                continue;
            }
            Answer::Never(error) => return queue.stop(error),
            Answer::Later { why, after } => (why, after),
        };
        if !queue.failed(why) {
            return;
        }
        tokio::time::sleep(pace.pause(tries, after, dice.roll())).await;
        tries += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_their_most_and_no_two_reporters_keep_step() {
        let pace = Pace { first: Duration::from_millis(100), most: Duration::from_secs(10) };
        let least: Vec<_> = (0..9).map(|tries| pace.pause(tries, None, 0).as_millis()).collect();
        assert_eq!(least, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        let most: Vec<_> = (0..9).map(|tries| pace.pause(tries, None, 999).as_micros()).collect();
        assert_eq!(most, [99_950, 199_900, 399_800, 799_600, 1_599_200, 3_198_400, 6_396_800, 9_995_000, 9_995_000]);
        assert_eq!(pace.pause(u32::MAX, None, 0), Duration::from_secs(5));
        let mut dice = Dice::new(7);
        let pauses: std::collections::BTreeSet<_> = (0..100).map(|_| pace.pause(7, None, dice.roll())).collect();
        assert!(pauses.len() > 80, "{pauses:?}");
    }

    #[test]
    fn a_server_that_says_how_long_is_waited_for_so_long_but_not_for_ever() {
        let pace = Pace { first: Duration::from_millis(100), most: Duration::from_secs(10) };
        assert_eq!(pace.pause(0, Some(Duration::from_secs(2)), 0), Duration::from_millis(2050));
        assert_eq!(pace.pause(0, Some(Duration::from_hours(24)), 0), RETRY_AFTER_MAX + Duration::from_millis(50));
    }
}
