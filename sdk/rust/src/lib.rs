//! Reports a tool's progress to a Proscenium server, from any Rust process.
//!
#![doc = include_str!("../README.md")]
#![expect(clippy::disallowed_methods, reason = "a library in another process, with its own clock")]

// In the order of reading: a module uses only modules above it (`tests/it/repository.rs` checks that).
mod id;

pub mod trust;

mod error;

mod facts;

pub mod decisions;

mod queue;

mod recording;

mod wire;

mod worker;

mod call;

mod reporter;

#[cfg(test)]
mod tests;

pub use call::ToolCallReporter;
pub use error::{ReportError, StartError};
pub use facts::{
    ProgressStatus, TOOL_CALL_PROGRESS_ACTIVITY_TYPE, TOOL_CALL_PROGRESS_SCHEMA, ToolCallProgressState, ToolProgressEvent,
};
pub use id::{ID_BYTES_MAX, IdError};
pub use queue::Counters;
pub use recording::{RECORDED_FACTS_MAX, Recording};
pub use reporter::{QUEUE_BYTES_MAX, QUEUE_FACTS_MAX, Reporter, ReporterBuilder, STALL_TIMEOUT};
