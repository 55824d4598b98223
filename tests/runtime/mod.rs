//! The source `relay`: a made-up runtime, which the guide "Add a runtime" adds.
//!
//! A fact names its event in `kind`. One stream is one run. Text has no ids, and a result names only its call.

mod event;
mod map;
mod tests;

use super::SourceKind;

/// The source `relay`.
pub const SOURCE: SourceKind = SourceKind::of::<map::Relay>("relay");
