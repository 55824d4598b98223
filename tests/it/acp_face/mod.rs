//! The face of the Agent Client Protocol: an editor's connection on `/acp`, and the command `proscenium acp`.

mod bad_input;
pub mod editor;
mod recordings;
mod rust_client;
mod turns;
