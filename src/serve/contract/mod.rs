//! The contract that `/openapi.json` describes.
//!
//! Every address, its parameters, its bodies and its problems.
//!
//! These files are tables without handlers, so every other part of the server may use them. [`router`](mod@super::router)
//! maps each operation to its handler.

pub mod access_rule;
pub mod groups;
pub mod kinds;
pub mod members;
pub mod openapi;
pub mod operation;
pub mod operations;
pub mod shapes;
