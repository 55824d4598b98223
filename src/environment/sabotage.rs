//! Planted faults: the simulator plants one at a time, and must find it. `docs/src/simulation.md` has their table.

/// Whether this fault is planted. A build without the feature `sabotage` has no faults, and no code for them.
#[cfg(not(feature = "sabotage"))]
#[must_use]
pub const fn is(_fault: u32) -> bool {
    false
}

#[cfg(feature = "sabotage")]
pub use planted::{is, plant};

#[cfg(feature = "sabotage")]
mod planted {
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<u32> = const { Cell::new(0) };
    }

    /// Whether this fault is planted on this thread.
    #[must_use]
    pub fn is(fault: u32) -> bool {
        PLANTED.get() == fault
    }

    /// Plants a fault in what this thread simulates; 0: none.
    pub fn plant(fault: u32) {
        PLANTED.set(fault);
    }
}
