//! Connectors: an existing agent behind the server, with nothing between that knows either.
//!
//! The page is an AG-UI client. The agents are endpoints in the test that answer as each test says.

mod ag_ui;
mod asides;
mod attachments;
mod branches;
pub mod endpoint;
mod failures;
mod follow;
mod memory;
mod openai_responses;
mod programs;
mod protocols;
mod questions;
mod supervised;
mod table;
mod turns;
mod user_headers;
