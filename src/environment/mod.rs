//! Time and chance: the only module that asks the machine for them.
//!
//! Clippy's `disallowed-methods` keeps every other call out (`clippy.toml`), so a test can set the clock forward, and the
//! simulator (`sim/`) can repeat a run from its seed. [`threads`] has the threads below the sockets, which a simulation
//! runs as tasks. [`Environment`] is passed to the code that stamps, expires and names; the
//! functions below serve code that no caller hands it to.
//!
//! Two clocks measure durations and deadlines:
//!
//! * Tokio's `Instant`, for a deadline that a timer of the same runtime ends. A paused runtime moves both.
//! * [`instant`], for a time that threads and other runtimes compare as well: a lease, a commit, a sign of life.
//!
//! Either may measure how long work took. A clock that is set forward meanwhile only falsifies a metric.

#[cfg(feature = "test-clock")]
pub mod test_clock;

#[cfg(feature = "simulation")]
pub mod simulation;

pub mod sabotage;

pub mod threads;

#[expect(clippy::disallowed_methods, reason = "all other code gets time and chance from here")]
mod machine;

pub use machine::{fast_hash_keys, hash_keys, install_crypto_provider, instant, key_randomness, random, sleep_thread};

use std::time::{Duration, Instant};

/// The source of time and randomness.
///
/// `main` gives it, so that all other code is a function of its arguments.
#[derive(Debug, Clone, Copy)]
pub struct Environment {
    pub now: fn() -> jiff::Timestamp,
    /// Random bits from the operating system.
    pub random: fn() -> u128,
}

impl Environment {
    /// The clock and the randomness of the machine.
    pub const SYSTEM: Self = Self { now: machine::now, random };
}

/// The time since `since`, a value of [`instant`].
#[must_use]
pub fn elapsed(since: Instant) -> Duration {
    instant().saturating_duration_since(since)
}
