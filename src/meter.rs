//! Counters, gauges and histograms.
//!
//! Counting is one relaxed addition. Each stage has its own counters as plain fields; the server that owns the stages
//! names and exposes them. Nothing here is global: two servers in one process do not count for each other.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The current value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that grows and shrinks.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Adds one.
    pub fn inc(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts one. The caller must have added it before.
    pub fn dec(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sets the value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The current value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The upper bounds of a histogram's buckets, in microseconds: 0.1 ms to 10 s.
pub const BUCKET_BOUNDS_MICROS: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000,
];

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct Histogram {
    /// One bucket per bound, and one for values beyond the last bound.
    buckets: [AtomicU64; BUCKET_BOUNDS_MICROS.len() + 1],
    sum_micros: AtomicU64,
}

impl Histogram {
    /// Adds one duration.
    pub fn observe(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BUCKET_BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        self.buckets[at].fetch_add(1, Ordering::Relaxed);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// The number of durations in each bucket; the buckets are not cumulative.
    #[must_use]
    pub fn buckets(&self) -> [u64; BUCKET_BOUNDS_MICROS.len() + 1] {
        std::array::from_fn(|at| self.buckets[at].load(Ordering::Relaxed))
    }

    /// The number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets().iter().sum()
    }

    /// The sum of all durations.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_micros.load(Ordering::Relaxed))
    }
}

/// A counter per label. It takes a lock, so it is for rare events such as errors.
#[derive(Debug, Default)]
pub struct LabelCounter(Mutex<BTreeMap<&'static str, u64>>);

impl LabelCounter {
    /// Adds one to this label.
    pub fn add(&self, name: &'static str) {
        *self.0.lock().entry(name).or_default() += 1;
    }

    /// The labels with their counts, sorted by label.
    #[must_use]
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        self.0.lock().iter().map(|(name, count)| (*name, *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_equal_to_a_bound_is_in_its_bucket_and_buckets_are_not_cumulative() {
        let histogram = Histogram::default();
        for micros in [0, 100, 101, 1_000, 9_999_999, 10_000_000, 10_000_001] {
            histogram.observe(Duration::from_micros(micros));
        }
        let buckets = histogram.buckets();
        assert_eq!((buckets[0], buckets[1], buckets[3], buckets[15], buckets[16]), (2, 1, 1, 2, 1));
        assert_eq!((histogram.count(), histogram.sum()), (7, Duration::from_micros(30_001_201)));
    }
}
