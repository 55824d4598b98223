//! Tests of the server's promises, one module each, in one binary.
//!
//! A test sends facts over HTTP and compares the frames and pages that the server returns. The exceptions are the store
//! contract (`store`), the adapters (`awaken`, `ethos`, parts of others) and the fold (`projection`), which call the
//! crate directly. Timing never decides a test: it waits for an event, and [`harness::TIMEOUT`] only tells a hang from
//! a failure.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![expect(clippy::disallowed_methods, reason = "a test has the machine's clocks; the server's are its own")]

mod harness;

mod a2a;
mod a2a_push;
mod acp_face;
mod activities;
mod ag_ui;
mod ag_ui_client;
mod ai_sdk_client;
mod approvals;
mod archive;
mod attachments;
mod attack;
mod attempts;
mod audience;
mod auth;
mod awaken;
mod awaken_canonical;
mod backup;
mod backup_online;
mod blobs;
mod branches;
mod check;
mod cli;
mod clients;
mod cluster;
mod commands;
mod config_file;
mod conform;
mod connect;
mod control;
mod copilot_threads;
mod counted;
mod crash;
mod decisions;
mod demo;
mod docs;
mod doctor;
mod documentation;
mod durable;
mod edge;
mod erase;
mod erase_sessions;
mod ethos;
mod faces;
mod feedback;
mod format_ag_ui;
mod format_ai_sdk;
mod fuzz;
mod halves;
mod hydrate;
mod ingest;
mod journal;
mod lifecycle;
mod limits;
mod listing;
mod lists;
mod load;
mod many_runs;
mod mutations;
mod nats;
mod openapi;
mod ops;
#[cfg(feature = "otlp")]
mod otlp;
mod packages;
mod page_bundle;
mod power_loss;
mod projection;
mod push;
mod record;
mod redaction;
mod reporter;
mod repository;
mod retention;
mod retention_rules;
mod runtimes;
mod salvage;
mod schema;
mod search;
mod secrets;
mod sessions;
mod settle;
mod socket;
mod store;
mod story;
mod stream;
mod streamed;
mod supervision;
mod surfaces;
mod threads;
mod tls;
#[cfg(feature = "otlp")]
mod traces;
mod translations;
mod turn_runner;
mod upgrade;
mod vocabulary;
mod waits;
mod webhooks;
mod whole;
mod writers;
