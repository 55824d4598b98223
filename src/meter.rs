//! What is counted: numbers that many add to and somebody reads now and then.
//!
//! To count is one relaxed addition. Each stage has its own counts, as plain fields; the server that the stages belong to
//! gives them names and shows them. Nothing here is global: two servers in one process do not count for each other.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts `n` more.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// How many there were.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many of something there are.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// One more.
    pub fn rise(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// One less, of those that were counted.
    pub fn fall(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many there are.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The upper bounds of a histogram's buckets, in microseconds: from a tenth of a millisecond to ten seconds.
pub const BOUNDS_MICROS: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000,
];

/// How long something took, by buckets.
#[derive(Debug, Default)]
pub struct Histogram {
    /// One a bound, and what lies beyond the last.
    buckets: [AtomicU64; BOUNDS_MICROS.len() + 1],
    sum_micros: AtomicU64,
}

impl Histogram {
    /// It took this long once more.
    pub fn observe(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        self.buckets[at].fetch_add(1, Ordering::Relaxed);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// How many there were in each bucket, none of them counted twice.
    #[must_use]
    pub fn buckets(&self) -> [u64; BOUNDS_MICROS.len() + 1] {
        std::array::from_fn(|at| self.buckets[at].load(Ordering::Relaxed))
    }

    /// How often it was observed.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets().iter().sum()
    }

    /// How long all of it took.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_micros.load(Ordering::Relaxed))
    }
}

/// How often each of a few names came up. For what goes wrong: it takes a lock.
#[derive(Debug, Default)]
pub struct ByName(Mutex<BTreeMap<&'static str, u64>>);

impl ByName {
    /// Counts one more under this name.
    pub fn add(&self, name: &'static str) {
        *self.0.lock().entry(name).or_default() += 1;
    }

    /// The names that came up, and how often, in the order of the alphabet.
    #[must_use]
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        self.0.lock().iter().map(|(name, count)| (*name, *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_as_long_as_a_bound_is_in_its_bucket_and_nothing_is_in_two() {
        let histogram = Histogram::default();
        for micros in [0, 100, 101, 1_000, 9_999_999, 10_000_000, 10_000_001] {
            histogram.observe(Duration::from_micros(micros));
        }
        let buckets = histogram.buckets();
        assert_eq!((buckets[0], buckets[1], buckets[3], buckets[15], buckets[16]), (2, 1, 1, 2, 1));
        assert_eq!((histogram.count(), histogram.sum()), (7, Duration::from_micros(30_001_201)));
    }
}
