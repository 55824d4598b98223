//! Attachments: files that people send with their messages.
//!
//! ```text
//!   POST …/attachments ─▶ entry in the server's own log ─▶ body in the session's own log ─▶ a message names its address
//!                             └─ a day later: does the session, or a branch of it, name it? ─▶ it stays, or goes
//! ```
//! The body is erased with its session. Until the entry is gone, the server does not know whether a message came.

use crate::control::{self, ControlError, Requester};
use crate::environment::Environment;
use crate::holds::Holds;
use crate::ingest::{BlobMeta, Ingest, Quota, ServerAppend, WriterView, new_blob_id};
use crate::log::commit::Logs;
use crate::log::row::Rows;
use crate::log::server_state::{EntryChange, StateRecord, hashed_prefix};
use crate::log::{Blob, Limit, LogId, StoreError};
use crate::model::{Audience, BlobId, Epoch, Sequence, SessionId};
use bytes::Bytes;
use memchr::memmem;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The largest attachment, in bytes.
pub const ATTACHMENT_BYTES_MAX: usize = 10 * 1024 * 1024;
/// The longest name of an attachment, in characters.
pub const ATTACHMENT_NAME_CHARS_MAX: usize = 255;
/// The media type of an attachment that states none.
pub const UNKNOWN_MEDIA_TYPE: &str = "application/octet-stream";
/// Attachments of the last day, of one session and of one server.
pub const ATTACHMENTS_PER_SESSION_MAX: usize = 256;
pub const ATTACHMENTS_MAX: usize = 100_000;
/// How long an attachment waits for a message that names it.
pub const UNNAMED_TIME: Duration = Duration::from_hours(24);
/// Attachments that one sweep decides about.
const SWEPT_MAX: usize = 256;
/// Rows that a sweep reads at once.
const PAGE: Limit = Limit { rows: 4096, bytes: 4 * 1024 * 1024 };

/// An attachment of the last day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct NewAttachment {
    session: SessionId,
    /// In milliseconds since 1970.
    at: i64,
}

impl StateRecord for NewAttachment {
    const TABLE: &'static str = "attachment";
}

/// A file that a person uploads.
#[derive(Debug)]
pub struct Upload {
    pub media_type: Box<str>,
    pub name: Option<Box<str>>,
    pub body: Bytes,
}

/// The media type that a client states, without parameters. `None`: the text is none.
#[must_use]
pub fn media_type_of(stated: &str) -> Option<Box<str>> {
    let text = stated.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_token =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte));
    match text.split_once('/') {
        _ if text.is_empty() => Some(UNKNOWN_MEDIA_TYPE.into()),
        Some((kind, subtype)) if is_token(kind) && is_token(subtype) => Some(text.into()),
        _ => None,
    }
}

/// Whether an attachment can have this name.
#[must_use]
pub fn is_attachment_name(name: &str) -> bool {
    !name.chars().any(char::is_control) && name.chars().count() <= ATTACHMENT_NAME_CHARS_MAX
}

/// Why an attachment is refused.
#[derive(Debug, thiserror::Error)]
pub enum AttachmentError {
    #[error("{0} attachments of the last day are kept, the limit; send some of them with messages, or try again tomorrow")]
    TooMany(usize),
    /// Its requester may not add to the session.
    #[error(transparent)]
    Refused(#[from] ControlError),
}

impl From<StoreError> for AttachmentError {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.into())
    }
}

/// The attachments of one server.
pub struct Attachments {
    environment: Environment,
    logs: Arc<Logs>,
    ingest: Arc<Ingest>,
    holds: Arc<Holds>,
    /// Held from counting until an attachment is noted, so that the limits hold for requests at once.
    noting: tokio::sync::Mutex<()>,
}

impl Attachments {
    /// The attachments that the logs of the server have.
    #[must_use]
    pub fn new(environment: Environment, logs: Arc<Logs>, ingest: Arc<Ingest>, holds: Arc<Holds>) -> Self {
        Self { environment, logs, ingest, holds, noting: tokio::sync::Mutex::default() }
    }

    /// Adds an attachment to a session, durably. A session may begin with it.
    ///
    /// # Errors
    /// The limit that is reached, or why the requester may not add to the session.
    pub async fn add(&self, session: &SessionId, upload: Upload, by: &Requester) -> Result<BlobId, AttachmentError> {
        let _claim = control::claim_session(&self.logs, &self.ingest, session, by, &[Quota::Bytes])?;
        let id = new_blob_id(self.environment);
        let meta = BlobMeta {
            audience: Audience::User,
            media_type: upload.media_type,
            run: None,
            session: Some(session.clone()),
            attachment: Some(upload.name.unwrap_or_default()),
        };
        let blob = Blob { id: id.clone(), meta: meta.save(), body: upload.body };
        // First, so that a crash leaves no body that no sweep finds.
        self.note(session, &id).await?;
        let owner = by.owner.clone();
        let add = |_: &WriterView<'_>| {
            ((), ServerAppend { blobs: vec![blob.clone()], owner: owner.clone(), ..ServerAppend::default() })
        };
        self.ingest.append_as_server(&LogId::Session(session.clone()), add).await?;
        Ok(id)
    }

    /// Notes an attachment, if the limits allow it.
    async fn note(&self, session: &SessionId, id: &BlobId) -> Result<(), AttachmentError> {
        let _noting = self.noting.lock().await;
        let state = self.logs.server_state();
        let prefix = hashed_prefix(session.as_str());
        for (count, limit) in [
            (state.count::<NewAttachment>(&prefix), ATTACHMENTS_PER_SESSION_MAX),
            (state.length::<NewAttachment>(), ATTACHMENTS_MAX),
        ] {
            if count >= limit {
                return Err(AttachmentError::TooMany(limit));
            }
        }
        let noted = NewAttachment { session: session.clone(), at: (self.environment.now)().as_millisecond() };
        Ok(self.ingest.append_to_server(&[], &[EntryChange::set(&format!("{prefix}{id}"), &noted)]).await?)
    }

    /// The attachment with this address's id, if it belongs to the session or to one that it branches from.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn read(&self, session: &SessionId, id: &BlobId) -> Result<Option<(BlobMeta, Bytes)>, StoreError> {
        let Some(blob) = self.logs.blob(id).await? else { return Ok(None) };
        let meta = BlobMeta::read(&blob)?;
        let of = meta.session.as_ref().filter(|_| meta.attachment.is_some());
        let is_of_session = of.is_some_and(|of| self.logs.sessions().is_of_lineage(of, session));
        Ok(is_of_session.then_some((meta, blob.body)))
    }

    /// Forgets what is kept about the attachments of an erased session. Their bodies went with its log.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn forget(&self, session: &SessionId) -> Result<(), StoreError> {
        let known = self.logs.server_state().all::<NewAttachment>(&hashed_prefix(session.as_str()));
        let entries: Vec<_> = known.iter().map(|(id, _)| EntryChange::remove::<NewAttachment>(id)).collect();
        if entries.is_empty() { Ok(()) } else { self.ingest.append_to_server(&[], &entries).await }
    }

    /// Decides about the attachments that are a day old: those that nothing names are removed, unless a hold keeps them.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn sweep(&self) -> Result<(), StoreError> {
        let until = (self.environment.now)().as_millisecond() - i64::try_from(UNNAMED_TIME.as_millis()).expect("a day fits");
        if self.logs.server_state().length::<NewAttachment>() == 0 {
            return Ok(());
        }
        let (logs, holds) = (self.logs.clone(), self.holds.clone());
        let due = move || {
            let known = logs.server_state().all::<NewAttachment>("").into_iter();
            let is_due = |noted: &NewAttachment| noted.at <= until && holds.covering(&noted.session).is_none();
            known.filter(|(_, noted)| is_due(noted)).take(SWEPT_MAX).collect::<Vec<_>>()
        };
        let mut by_session: BTreeMap<SessionId, Vec<(String, BlobId)>> = BTreeMap::new();
        // At the server's limit this reads very many.
        for (key, NewAttachment { session, at: _ }) in self.logs.work(move |_| due()).await {
            let id = key.rsplit_once(':').and_then(|(_, id)| BlobId::new(id).ok());
            by_session.entry(session).or_default().extend(id.map(|id| (key, id)));
        }
        for (session, attachments) in by_session {
            let ids: Vec<_> = attachments.iter().map(|(_, id)| id.clone()).collect();
            let unnamed = self.unnamed(&session, ids).await?;
            if !unnamed.is_empty() {
                let remove = |_: &WriterView<'_>| {
                    // A session that was erased meanwhile does not begin again.
                    let is_there = self.logs.sessions().has_own_log(&session);
                    let removals = unnamed.iter().filter(|_| is_there).cloned().map(Blob::removal);
                    ((), ServerAppend { blobs: removals.collect(), ..ServerAppend::default() })
                };
                self.ingest.append_as_server(&LogId::Session(session.clone()), remove).await?;
            }
            let entries: Vec<_> = attachments.iter().map(|(key, _)| EntryChange::remove::<NewAttachment>(key)).collect();
            self.ingest.append_to_server(&[], &entries).await?;
        }
        Ok(())
    }

    /// Those of these attachments that no envelope and no open control of the session and of its branches names.
    async fn unnamed(&self, session: &SessionId, mut ids: Vec<BlobId>) -> Result<Vec<BlobId>, StoreError> {
        let sessions = self.logs.sessions();
        let all = [vec![session.clone()], sessions.branches_below(session)].concat();
        for (_, log) in all.iter().filter_map(|session| sessions.logs_of(session, usize::MAX)).flat_map(|(logs, _)| logs) {
            if ids.is_empty() {
                break;
            }
            let open = |view: &WriterView<'_>| {
                let values = view.controls.values().filter_map(|control| control.value.as_ref());
                values.map(|value| Bytes::from(value.to_string())).collect::<Vec<_>>()
            };
            for value in self.ingest.read(&log, open).await? {
                drop_named(&mut ids, &value);
            }
            let Some(epoch) = self.logs.log(&log).await?.tail().epoch else { continue };
            ids = self.unnamed_in(log, epoch, ids).await?;
        }
        Ok(ids)
    }

    /// Those of these attachments that no envelope of a log names.
    async fn unnamed_in(&self, log: LogId, epoch: Epoch, mut ids: Vec<BlobId>) -> Result<Vec<BlobId>, StoreError> {
        self.logs
            .work(move |store| {
                let mut after = Sequence::NONE;
                loop {
                    let page = store.read(&log, epoch, after, PAGE)?;
                    let Some(last) = page.last() else { return Ok(ids) };
                    let before = after;
                    let rows: Vec<_> = page.iter().flat_map(|append| Rows(append.rows.clone())).collect();
                    after = rows.last().map_or(last.before, crate::log::row::Row::sequence);
                    for row in rows {
                        row.view(Audience::Internal).into_iter().for_each(|view| drop_named(&mut ids, view));
                    }
                    if ids.is_empty() || after <= before {
                        return Ok(ids);
                    }
                }
            })
            .await
    }
}

/// Drops the attachments that a text names.
fn drop_named(ids: &mut Vec<BlobId>, text: &[u8]) {
    ids.retain(|id| memmem::find(text, id.as_str().as_bytes()).is_none());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_is_two_tokens() {
        let of = |text: &str| media_type_of(text);
        assert_eq!(of("Image/PNG; charset=x").as_deref(), Some("image/png"));
        assert_eq!(of("application/vnd.ms-excel").as_deref(), Some("application/vnd.ms-excel"));
        assert_eq!(of("").as_deref(), Some(UNKNOWN_MEDIA_TYPE));
        for refused in ["png", "image/", "/png", "image/png/x", "text/html\" x", "te xt/plain"] {
            assert_eq!(of(refused), None, "{refused}");
        }
    }
}
