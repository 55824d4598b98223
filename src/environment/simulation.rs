//! The machine of a simulation: its time and chance follow from a seed.
//!
//! A simulation is a thread with a current-thread runtime whose clock is paused. Until that thread calls [`begin`], and on
//! every other thread, the server works as in production.
//!
//! Two things stay the machine's: keys of TLS and of signatures, and tokio's choice between branches of a `select!` that
//! are ready at once. So every `select!` that a simulation reaches is `biased`.

use std::cell::Cell;
use std::time::Duration;
use tokio::time::Instant;

/// What a simulated machine has instead of clocks and randomness.
#[derive(Clone, Copy)]
struct Machine {
    /// The state of the generator.
    chance: u64,
    /// The wall clock when `begun` was now.
    wall: jiff::Timestamp,
    begun: Instant,
}

thread_local! {
    static MACHINE: Cell<Option<Machine>> = const { Cell::new(None) };
}

/// Starts the simulated machine of this thread. Must run inside a runtime with a paused clock.
pub fn begin(seed: u64, wall: jiff::Timestamp) {
    MACHINE.set(Some(Machine { chance: seed, wall, begun: Instant::now() }));
}

/// Gives this thread the machine's clocks and randomness again.
pub fn end() {
    MACHINE.set(None);
}

/// Sets the wall clock forward or back, as a time service does.
pub fn step_wall_clock(ms: i64) {
    update(|machine| {
        let wall = machine.wall.saturating_add(jiff::SignedDuration::from_millis(ms));
        machine.wall = wall.expect("a duration has no calendar units");
    });
}

/// Whether this thread simulates.
pub(super) fn is_active() -> bool {
    MACHINE.get().is_some()
}

/// The wall clock; `None` outside a simulation.
#[must_use]
pub fn now() -> Option<jiff::Timestamp> {
    let Machine { wall, begun, .. } = MACHINE.get()?;
    Some(wall.saturating_add(begun.elapsed()).expect("a duration has no calendar units"))
}

/// The monotonic clock; `None` outside a simulation.
pub(super) fn instant() -> Option<std::time::Instant> {
    is_active().then(|| Instant::now().into_std())
}

/// Random bits; `None` outside a simulation.
pub(super) fn random() -> Option<u128> {
    update(|machine| u128::from(next(&mut machine.chance)) << 64 | u128::from(next(&mut machine.chance)))
}

/// How long a blocking call takes. Most take no time, so that calls overtake each other.
pub(super) fn blocking_time() -> Duration {
    let bits = update(|machine| next(&mut machine.chance)).unwrap_or(0);
    Duration::from_millis(if bits.is_multiple_of(4) { bits >> 32 & 7 } else { 0 })
}

fn update<T>(change: impl FnOnce(&mut Machine) -> T) -> Option<T> {
    let mut machine = MACHINE.get()?;
    let changed = change(&mut machine);
    MACHINE.set(Some(machine));
    Some(changed)
}

/// `SplitMix64`: the next number of a generator.
const fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
