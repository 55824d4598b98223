//! The promises of the server, each module one of them, in one binary.
//!
//! Facts go in over HTTP, frames and pages come out, and what comes out is compared: nothing here reaches inside, except for
//! the suites of a contract (`store`), of adapters (`awaken`, `ethos`, parts of the others) and of the fold (`projection`).
//! Timing never decides: whoever waits, waits for a thing to happen, with [`harness::PATIENCE`] only to tell a hang from a
//! failure.

#![expect(clippy::unwrap_used, reason = "a test that meets what it does not expect has failed")]

mod harness;

mod activities;
mod ag_ui;
mod ag_ui_client;
mod ai_sdk_client;
mod approvals;
mod attack;
mod audience;
mod auth;
mod awaken;
mod awaken_canonical;
mod backup;
mod blobs;
mod check;
mod cli;
mod clients;
mod control;
mod crash;
mod demo;
mod docs;
mod doctor;
mod edge;
mod erase;
mod ethos;
mod format_ag_ui;
mod format_ai_sdk;
mod fuzz;
mod house;
mod hydrate;
mod ingest;
mod lifecycle;
mod limits;
mod listing;
mod load;
mod openapi;
mod ops;
#[cfg(feature = "otlp")]
mod otlp;
mod projection;
mod redaction;
mod reporter;
mod retention;
mod runtimes;
mod schema;
mod secrets;
mod sessions;
mod settle;
mod socket;
mod store;
mod stream;
mod streamed;
mod supervision;
mod tls;
mod turn_runner;
mod vocabulary;
mod writers;
