//! The tasks that run beside the requests.

pub mod archive;
pub mod compact;
pub mod controls;
pub mod disk;
pub mod due;
mod ended_runs;
pub mod erase;
pub mod purge;
pub mod retain;
pub mod settle;
pub mod tasks;
