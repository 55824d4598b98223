//! The export of a log: its envelopes as the audience sees them, one per line, with proofs if asked for.

use super::hydrate::existing_run;
use super::sessions::no_such_session;
use crate::feed::Filter;
use crate::log::hash_chain::ChainRecord;
use crate::log::row::Row;
use crate::log::{Limit, LogId, StoreError};
use crate::model::json::escape_line_ends;
use crate::model::{Epoch, Sequence, SessionId};
use crate::record::proof::ProofWriter;
use crate::serve::App;
use crate::serve::access::authorization::Authorization;
use crate::serve::http::problem::Problem;
use crate::serve::http::request::{Query, path_id};
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{Uri, header};
use std::sync::Arc;

/// What one store read fetches to fill a part of the body.
const READ_LIMIT: Limit = Limit { rows: 1024, bytes: 1024 * 1024 };

/// `GET /v1/runs/{run}/export`.
pub async fn run(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let wanted = Wanted::read(&uri)?;
    let (run, tail, epoch) = existing_run(&app, &uri).await?;
    export(app, authorization, wanted, (LogId::Run(run), epoch, tail.last)).await
}

/// `GET /v1/sessions/{session}/export`: the session's own log, without its runs.
pub async fn session(State(app): State<Arc<App>>, authorization: Authorization, uri: Uri) -> Result<Response, Problem> {
    let wanted = Wanted::read(&uri)?;
    let session: SessionId = path_id("sessionId", &uri)?;
    let log = LogId::Session(session.clone());
    let tail = app.logs.log(&log).await?.tail();
    let epoch = tail.epoch.ok_or_else(|| match app.logs.sessions().created_order(&session) {
        None => no_such_session(&session),
        Some(_) => {
            let detail = format!("Session {session} has no log of its own yet. Its runs have exports.");
            Problem::not_found("no_such_session", detail)
        }
    })?;
    export(app, authorization, wanted, (log, epoch, tail.last)).await
}

/// What a request asks for.
struct Wanted {
    filter: Filter,
    with_proof: bool,
}

impl Wanted {
    fn read(uri: &Uri) -> Result<Self, Problem> {
        let query = Query::from_uri(uri);
        Ok(Self { filter: query.filter()?, with_proof: query.is_set("proof") })
    }
}

async fn export(
    app: Arc<App>,
    authorization: Authorization,
    Wanted { filter, with_proof }: Wanted,
    (log, epoch, until): (LogId, Epoch, Sequence),
) -> Result<Response, Problem> {
    let access = Arc::new(authorization.into_open_access());
    let mut export = Export::of_rows(app, log, epoch, filter, until);
    let mut first = Vec::new();
    if with_proof {
        export.begin_proof(&mut first).await?;
    }
    if export.after < export.until {
        // Before the answer: a log that cannot be read is a problem with a status, not a body that breaks off.
        export.read_page(&mut first).await?;
    }
    let lines = futures_util::stream::try_unfold((Some(export), first), move |(export, text)| {
        let access = access.clone();
        async move {
            let Some(mut export) = export else { return Ok::<_, axum::BoxError>(None) };
            // A slow client may outlast its token. The error breaks the body off, so it does not look complete.
            if let Some(end) = access.end_reason() {
                return Err(end.to_string().into());
            }
            let mut text = text;
            if export.after < export.until {
                match (export.read_page(&mut text).await?, &export.proof) {
                    (true, _) => return Ok(Some((Bytes::from(text), (Some(export), Vec::new())))),
                    (false, Some(_)) => return Err("the log was erased".into()),
                    (false, None) => return Ok(None),
                }
            }
            export.end(&mut text);
            Ok((!text.is_empty()).then(|| (Bytes::from(text), (None, Vec::new()))))
        }
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")], Body::from_stream(lines))
        .into_response())
}

/// An export on its way.
pub(super) struct Export {
    app: Arc<App>,
    log: LogId,
    epoch: Epoch,
    filter: Filter,
    after: Sequence,
    until: Sequence,
    proof: Option<ProofWriter>,
}

impl Export {
    /// The rows of a log up to a sequence, without proofs.
    pub(super) const fn of_rows(app: Arc<App>, log: LogId, epoch: Epoch, filter: Filter, until: Sequence) -> Self {
        Self { app, log, epoch, filter, after: Sequence::NONE, until, proof: None }
    }

    /// The last envelope that was read.
    pub(super) const fn after(&self) -> Sequence {
        self.after
    }

    /// Begins the proofs, with the chain and the last row of one moment.
    async fn begin_proof(&mut self, out: &mut Vec<u8>) -> Result<(), Problem> {
        let loaded = self.app.logs.load(&self.log).await?.filter(|loaded| loaded.epoch == self.epoch);
        let record = match &loaded {
            Some(loaded) => ChainRecord::read(&self.log, &loaded.state)?,
            None => None,
        };
        self.until = loaded.map_or(self.until, |loaded| loaded.last);
        self.proof = Some(ProofWriter::begin(self.log.clone(), self.epoch, self.filter.audience, self.until, record, out));
        Ok(())
    }

    /// Writes the next rows; `false` if the log has none.
    pub(super) async fn read_page(&mut self, out: &mut Vec<u8>) -> Result<bool, StoreError> {
        let mut rows = self.app.feed.rows(&self.log, self.epoch, self.after, READ_LIMIT).await?;
        rows.retain(|row| row.sequence() <= self.until);
        let Some(last) = rows.last().map(Row::sequence) else { return Ok(false) };
        self.after = last;
        let Some(proof) = &mut self.proof else {
            let mut text = Vec::new();
            for view in rows.iter().filter_map(|row| self.filter.text_of(row)) {
                text.extend_from_slice(view);
                text.push(b'\n');
            }
            out.append(&mut escape_line_ends(&text).unwrap_or(text));
            return Ok(true);
        };
        if proof.has_unknown_gap(&rows) {
            // A compaction has removed rows since the export began.
            let loaded = self.app.logs.load(&self.log).await?.filter(|loaded| loaded.epoch == self.epoch);
            let record = loaded.map(|loaded| ChainRecord::read(&self.log, &loaded.state)).transpose()?.flatten();
            if let Some(record) = record {
                proof.update(record);
            }
        }
        for row in &rows {
            proof.row(row, self.filter.text_of(row), out);
        }
        Ok(true)
    }

    /// Writes the last line of the proofs, if it has them.
    fn end(self, out: &mut Vec<u8>) {
        if let Some(proof) = self.proof {
            proof.end(&self.app.signing_key, (self.app.environment.now)(), out);
        }
    }
}
