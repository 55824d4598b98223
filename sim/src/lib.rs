//! A simulator of the server.
//!
//! A simulation is one thread: the node as it runs below its sockets, on simulated time, chance and disk, and its clients
//! on connections in memory. Everything in it follows from a seed. [`plan`] says what a seed means, [`disk`] what the
//! disk may do, [`model`] what the server promises. `docs/src/simulation.md` is for users.

pub mod auditor;
pub mod chance;
pub mod client;
pub mod decisions;
pub mod dialects;
pub mod disk;
pub mod model;
pub mod plan;
pub mod planted;
pub mod simulation;
pub mod storage;
pub mod world;
