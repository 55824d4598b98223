//! The server's own API: a file per group of operations.

pub mod attention;
pub mod audit;
pub mod controls;
pub mod decisions;
pub mod erase;
pub mod export;
pub mod facts;
pub mod hydrate;
pub mod keys;
mod link_decision;
pub mod links;
pub mod lists;
pub mod me;
pub mod ops;
pub mod push;
mod session_entry;
pub mod session_list;
pub mod session_updates;
pub mod sessions;
pub mod settle;
pub mod stream;
pub mod webhooks;
pub mod workbench;
