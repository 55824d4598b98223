//! Proscenium: the agent-UI projection server.
//!
//! Agent runtimes report facts in their own vocabularies; frontends need one ordered, honest, filtered picture of a
//! run. Proscenium stands between them: it normalises facts into Agent UI envelopes, stores one durable, ordered log
//! per run, and gives each reader what its audience may see: live, on resume and at rest.
//!
//! # The path of a fact
//!
//! ```text
//!  POST facts · WebSocket                        SSE · WebSocket · REST
//!      │                                                         ▲
//!  serve ─▶ ingest ─▶ source ─▶ guard ─▶ log ══tail══▶ feed ─▶ projection ─▶ encode ─▶ serve
//!    Fact            Draft    Guarded   Row                     activities    bytes
//!                  normalised   safe    ordered, durable,
//!                                       one view per audience
//! ```
//!
//! The write path is left of the tail, the read path right of it; they share only the log. Nothing in the read path can
//! slow, fail or reorder the write path.
//!
//! # Guarantees
//!
//! * **Order.** A run's envelopes are numbered 1, 2, 3 … without gaps, and no number is used twice in one epoch. If
//!   compaction removes envelopes of an ended run, the log declares the gaps.
//! * **Durability.** An acknowledged fact survives the end of the process and a power loss. A reader never sees an
//!   envelope that a crash could take back.
//! * **Exactly once.** A producer that numbers its facts may repeat any request; the server stores each fact once.
//! * **Audience.** One function ([`model::Audience::visibility`]) decides who may see an envelope, once, when the
//!   server writes it. Every way of reading gives the same answer.
//! * **No secrets.** The guard redacts everything that looks like a secret before the server stores it. Only [`guard`]
//!   makes the type that the log accepts.
//! * **Authorization.** One module ([`serve::access`]) authorizes every request, on every transport. No route exists
//!   without a declared access rule.
//! * **No loss.** A reader gets every envelope that its filter admits, once and in order, wherever its connection was
//!   cut. With `prev` on every frame it can verify that itself.
//! * **Limits.** Everything that grows has a named limit.
//!
//! # Modules
//!
//! The modules are listed in the order of the path, which is the best order for reading. A module uses only modules
//! above it (`tests/it/repository.rs` checks that). First come [`meter`] and [`environment`], which the modules after
//! them use. Five are crates of their own in `crates/`: they have no I/O and no clock, and their manifests say what they
//! use. Last come modules outside the path. Authors of tools link another crate, `proscenium-reporter` in `sdk/rust`.

pub mod meter;

pub mod environment;

pub use proscenium_model as model;

pub use proscenium_sources as source;

pub use proscenium_guard as guard;

pub use proscenium_projection as projection;

pub use proscenium_encode as encode;

pub mod waits;

pub mod object_storage;

pub mod log;

pub mod search;

pub mod retention;

pub mod ingest;

pub mod audit;

pub mod holds;

pub mod feed;

pub mod control;

pub mod auth;

pub mod retention_rules;

pub mod record;

pub mod links;

pub mod marks;

pub mod attachments;

pub mod branches;

pub mod feedback;

pub mod notify;

pub mod traces;

pub mod cluster;

pub mod serve;

pub mod connect;

pub mod config;

pub mod check;
