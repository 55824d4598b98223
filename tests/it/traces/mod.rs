//! Runs as traces, through the binary: what a collector gets, and what becomes of one that is away.

pub mod collector;
mod export;
mod recordings;
mod settings;
