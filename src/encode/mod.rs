//! Dialects: frames as bytes. One file a dialect.
//!
//! An encoder turns rows into the text that one kind of client reads, once for all readers of one selection. It decides
//! nothing about who may see what: the row already did.

pub mod native;
