//! The tasks that run beside the requests.

pub mod compact;
pub mod controls;
pub mod disk;
pub mod erase;
pub mod purge;
pub mod settle;
pub mod tasks;
