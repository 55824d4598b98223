//! Proscenium: the agent-UI projection server.
//!
//! Agent runtimes say what happens in facts of their own vocabulary; frontends need one ordered, honest, filtered picture of
//! it. Proscenium stands between them: it normalises facts into the Agent UI envelope, keeps a durable, ordered log a run,
//! and gives each reader what its audience may see, live, on resume and at rest.
//!
//! # The line a fact walks
//!
//! ```text
//!  POST facts · WebSocket                        SSE · WebSocket · REST
//!      │                                                         ▲
//!  serve ─▶ ingest ─▶ source ─▶ guard ─▶ log ══tail══▶ feed ─▶ projection ─▶ encode ─▶ serve
//!    Fact            Draft    Guarded   Row                     activities    bytes
//!                  normalised   safe    ordered, durable,
//!                                       as each audience gets it
//! ```
//!
//! Left of the tail is the write path, right of it the read path; they share only the log. Nothing on the right can slow,
//! fail or reorder anything on the left.
//!
//! # What it promises
//!
//! * **Order.** A run's envelopes are numbered 1, 2, 3 … without gaps, and no number is used twice in one epoch. What an ended
//!   run loses to compaction leaves holes, which are declared.
//! * **Durability.** An acknowledged fact survives the end of the process and of the power; a reader never sees an envelope
//!   that a crash could take back.
//! * **Once.** A producer that numbers its facts may repeat any request; nothing is stored twice.
//! * **Audience.** Who may see an envelope is decided in one place ([`model::Audience::sight`]), once, when it is written;
//!   every way of reading gives the same answer.
//! * **No secrets.** What looks like one is redacted before anything is stored; only [`guard`] makes what the log accepts.
//! * **Rights.** Whoever asks, by whatever way in, is looked at in one place ([`serve::access`]); no address is served that does
//!   not say what it takes.
//! * **No loss.** A reader sees every envelope that its selection takes once, in order, wherever it was cut off; `prev` on
//!   every frame lets it check that for itself.
//! * **Bounds.** Whatever grows has a named limit.
//!
//! # The rooms
//!
//! In the order of the line, which is the order of reading, and the order in which modules may use each other: a module uses
//! only those above it (`tests/it/house.rs` holds that). First stands what all of them count with, [`meter`]; last stands what is no stage of it, but for other programs to link:
//! [`reporter`], with which a tool says what it is doing.

pub mod meter;

pub mod model;

pub mod source;

pub mod guard;

pub mod log;

pub mod projection;

pub mod encode;

pub mod ingest;

pub mod feed;

pub mod control;

pub mod auth;

pub mod serve;

pub mod config;

pub mod reporter;

pub mod check;
