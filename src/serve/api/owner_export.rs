//! The export of an owner: all that it has, one JSON object per line.
//!
//! ```text
//!   owner ─▶ ( session ─▶ its envelopes ─▶ ( run ─▶ its envelopes )… )… ─▶ ( run without a session ─▶ … )… ─▶ end
//! ```
//! The lines between envelopes begin with [`EXPORT_LINE_START`], so that `proscenium import` tells them apart. The server
//! reads a page at a time, and waits for a slow client, however much the owner has. Decisions, feedback and the addresses of
//! bodies and attachments are in the envelopes.

use super::export::Export;
use super::hydrate::run_json;
use super::session_list::entry_of;
use crate::feed::Filter;
use crate::log::commit::Summary;
use crate::log::marks::{SessionMark, is_on};
use crate::log::{LogId, LogKind, StoreError};
use crate::model::{Audience, OwnerId, Sequence, SessionId};
use crate::serve::App;
use crate::serve::access::authorization::{Authorization, OpenAccess};
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, path_id};
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{Uri, header};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::mpsc;

/// What a line begins with that is no envelope.
pub const EXPORT_LINE_START: &[u8] = b"{\"export\":";
/// The version of the form of the lines.
const EXPORT_VERSION: u64 = 1;
/// Sessions, or runs, that are looked up at once.
const LOOKED_UP: usize = 256;
/// Pieces of the body that wait for the client: each is at most a page of rows.
const PIECES_WAITING: usize = 2;

/// `GET /v1/owners/{owner}/export`
pub async fn get(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let owner: OwnerId = path_id("ownerId", &uri)?;
    authorization.check_owner(&owner)?;
    let audience = Query::from_uri(&uri).audience()?;
    let (pieces, waiting) = mpsc::channel(PIECES_WAITING);
    let access = authorization.clone().into_open_access();
    let created = app.logs.mark().created;
    let export =
        OwnerExport { app, authorization, access, owner, audience, created, pieces, sessions: 0, runs: 0, unreadable: 0 };
    tokio::spawn(export.write());
    let body = futures_util::stream::unfold(waiting, async |mut waiting| Some((waiting.recv().await?, waiting)));
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(body)).into_response())
}

/// Why an export ends before its end.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("the client went away")]
    Gone,
    #[error("{0}")]
    TokenEnded(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

struct OwnerExport {
    app: Arc<App>,
    authorization: Authorization,
    access: OpenAccess,
    owner: OwnerId,
    audience: Audience,
    /// The number of logs when it began. What begins later is not in it.
    created: u64,
    pieces: mpsc::Sender<Result<Bytes, Broken>>,
    sessions: u64,
    runs: u64,
    /// Logs that the export has in part, or not at all.
    unreadable: u64,
}

impl OwnerExport {
    async fn write(mut self) {
        // The error breaks the body off, so it does not look complete.
        if let Err(broken) = self.write_all().await {
            let _ = self.pieces.send(Err(broken)).await;
        }
    }

    async fn write_all(&mut self) -> Result<(), Broken> {
        let begins = json!({ "version": EXPORT_VERSION, "ownerId": self.owner, "audience": self.audience.as_str() });
        self.line("owner", &begins).await?;
        let mut after = 0;
        loop {
            let listed = self.app.logs.sessions().owned_after(&self.owner, after, LOOKED_UP);
            let Some((last, _)) = listed.last() else { break };
            after = *last;
            let until = self.created;
            for (_, session) in listed.iter().filter(|(created, _)| *created <= until) {
                self.session(session).await?;
            }
            if after > self.created {
                break;
            }
        }
        self.runs_alone().await?;
        self.line("end", &json!({ "sessions": self.sessions, "runs": self.runs, "unreadable": self.unreadable })).await
    }

    /// A line that is no envelope: what it is, and its members.
    async fn line(&self, kind: &str, members: &Value) -> Result<(), Broken> {
        let members = members.to_string();
        self.piece(format!("{{\"export\":\"{kind}\",{}\n", &members[1..]).into()).await
    }

    async fn piece(&self, piece: Bytes) -> Result<(), Broken> {
        // A slow client may outlast its token.
        if let Some(end) = self.access.end_reason() {
            return Err(Broken::TokenEnded(end.to_string()));
        }
        self.pieces.send(Ok(piece)).await.map_err(|_| Broken::Gone)
    }

    async fn session(&mut self, session: &SessionId) -> Result<(), Broken> {
        let entry = entry_of(&self.app, &self.authorization, self.audience, session).await?;
        // It may have been erased since it was listed.
        let Some(mut entry) = entry else { return Ok(()) };
        entry["marks"] = self.marks(session).await;
        self.sessions += 1;
        self.line("session", &entry).await?;
        self.rows(LogId::Session(session.clone())).await?;
        let mut after = 0;
        loop {
            let listed = self.app.logs.sessions().runs_after(session, after, LOOKED_UP);
            let Some((last, _)) = listed.last() else { return Ok(()) };
            after = *last;
            let until = self.created;
            for (_, run) in listed.into_iter().filter(|(created, _)| *created <= until) {
                self.run(LogId::Run(run)).await?;
            }
            if after > until {
                return Ok(());
            }
        }
    }

    /// What people have read and pinned: the token's own mark, and, for `internal`, those of all, without names.
    async fn marks(&self, session: &SessionId) -> Value {
        let mark_json = |mark: &SessionMark| json!({ "readTo": mark.read_to, "pinned": mark.pinned });
        if self.audience == Audience::Internal {
            let (logs, session) = (self.app.logs.clone(), session.clone());
            let marks = move |_: &dyn crate::log::Store| {
                let ids = logs.server_state().ids::<SessionMark>(|id| is_on(id, &session));
                ids.iter().filter_map(|id| logs.server_state().get::<SessionMark>(id)).collect::<Vec<_>>()
            };
            return self.app.logs.work(marks).await.iter().map(mark_json).collect();
        }
        let own = self.authorization.subject().and_then(|sub| self.app.marks.of(&sub, session));
        own.iter().map(mark_json).collect()
    }

    /// The owner's runs without a session, newest first.
    async fn runs_alone(&mut self) -> Result<(), Broken> {
        let mut before = Some(self.created + 1);
        loop {
            let listed = self.app.logs.list(LogKind::Run, before, LOOKED_UP).await?;
            let Some(last) = listed.last() else { return Ok(()) };
            before = Some(last.created);
            for listed in listed {
                let summary = Summary::from_listed(&listed).filter(|summary| summary.session_id.is_none());
                if summary.is_some_and(|summary| summary.extension.owner.as_ref() == Some(&self.owner)) {
                    self.run(listed.log).await?;
                }
            }
        }
    }

    async fn run(&mut self, log: LogId) -> Result<(), Broken> {
        let tail = match self.app.logs.log(&log).await {
            Ok(log) => log.tail(),
            Err(error) => return self.unreadable(&log, Sequence::NONE, error).await,
        };
        let Some(epoch) = tail.epoch else { return Ok(()) };
        self.runs += 1;
        self.line("run", &run_json(log_id(&log), epoch, &tail.summary, self.audience)).await?;
        self.rows(log).await
    }

    /// The envelopes of a log that the audience sees.
    async fn rows(&mut self, log: LogId) -> Result<(), Broken> {
        let tail = match self.app.logs.log(&log).await {
            Ok(log) => log.tail(),
            Err(error) => return self.unreadable(&log, Sequence::NONE, error).await,
        };
        let Some(epoch) = tail.epoch else { return Ok(()) };
        let mut export = Export::of_rows(self.app.clone(), log.clone(), epoch, Filter::all(self.audience), tail.last);
        let mut text = Vec::new();
        loop {
            match export.read_page(&mut text).await {
                Ok(true) if text.is_empty() => {}
                Ok(true) => self.piece(std::mem::take(&mut text).into()).await?,
                Ok(false) => return Ok(()),
                Err(error) => return self.unreadable(&log, export.after(), error).await,
            }
        }
    }

    /// Says which log the export lacks from where on, and goes on with the next one. `after`: the last envelope that was read.
    async fn unreadable(&mut self, log: &LogId, after: Sequence, error: StoreError) -> Result<(), Broken> {
        if !error.affects_one_log() {
            return Err(error.into());
        }
        self.unreadable += 1;
        let member = if log.kind() == LogKind::Run { "runId" } else { "sessionId" };
        self.line("unreadable", &json!({ member: log_id(log), "after": after, "why": error.to_string() })).await
    }
}

fn log_id(log: &LogId) -> &str {
    match log {
        LogId::Run(run) => run.as_str(),
        LogId::Session(session) => session.as_str(),
    }
}
