//! The machine's clocks and randomness.

use ring::rand::SystemRandom;
use std::hash::RandomState;
use std::time::{Duration, Instant, SystemTime};

/// The wall clock, where dates of HTTP and of envelopes exist: a machine without a battery may start in any year.
pub(super) fn now() -> jiff::Timestamp {
    #[cfg(feature = "simulation")]
    if let Some(now) = super::simulation::now() {
        return now;
    }
    let (first, last) = (jiff::Timestamp::UNIX_EPOCH, jiff::Timestamp::MAX);
    let now = SystemTime::now();
    let beyond = if now < SystemTime::UNIX_EPOCH { first } else { last };
    let now = jiff::Timestamp::try_from(now).unwrap_or(beyond).clamp(first, last);
    #[cfg(feature = "test-clock")]
    let now = now.saturating_add(super::test_clock::ahead()).expect("a duration has no calendar units");
    now
}

/// The monotonic clock, the same on every thread.
#[must_use]
pub fn instant() -> Instant {
    #[cfg(feature = "simulation")]
    if let Some(now) = super::simulation::instant() {
        return now;
    }
    let now = Instant::now();
    // Outside its runtime, tokio does not know how far a test has set the clock.
    #[cfg(feature = "test-clock")]
    let now = now + super::test_clock::ahead();
    now
}

/// Blocks this thread. The clock of a test does not shorten it.
pub fn sleep_thread(pause: Duration) {
    std::thread::sleep(pause);
}

/// Random bits from the operating system.
///
/// # Panics
/// If the operating system has none.
#[must_use]
pub fn random() -> u128 {
    #[cfg(feature = "simulation")]
    if let Some(bits) = super::simulation::random() {
        return bits;
    }
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).expect("the operating system provides randomness");
    u128::from_ne_bytes(bits)
}

/// Keys of a hash whose collisions no client can predict.
#[must_use]
pub fn hash_keys() -> RandomState {
    RandomState::new()
}

/// The same, of a hash for many short keys.
#[must_use]
pub fn fast_hash_keys() -> ahash::RandomState {
    let [one, two] = [random(), random()];
    ahash::RandomState::with_seeds(one as u64, (one >> 64) as u64, two as u64, (two >> 64) as u64)
}

/// Randomness for work with keys.
#[must_use]
pub fn key_randomness() -> SystemRandom {
    SystemRandom::new()
}

/// Chooses the cryptography of TLS for the process. All code that makes a client or a server of TLS calls it first.
pub fn install_crypto_provider() {
    // Fails if one is installed already.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
}
