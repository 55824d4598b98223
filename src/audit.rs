//! The audit: who decided, erased, held, settled, shared and configured.
//!
//! Each entry is an envelope of the server's own log, so that it is ordered, durable and never compacted, and stays when
//! what it is about is erased. It has ids, the reason of a hold, and no other text.

use crate::ingest::Ingest;
use crate::log::{LogId, StoreError};
use crate::model::decided_by::{DecidedBy, Decider};
use crate::model::{Audience, Draft, EventType, Owner};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// The event type of an entry.
const AUDIT_RECORDED: &str = "audit.recorded";

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Deed {
    /// A person or a rule decided an action.
    #[serde(rename = "decision")]
    Decision,
    /// A run, a session, or all that an owner has, is erased.
    #[serde(rename = "erase")]
    Erase,
    /// A run is settled.
    #[serde(rename = "settle")]
    Settle,
    /// A link is made.
    #[serde(rename = "link.created")]
    LinkCreated,
    /// A link is opened for the first time.
    #[serde(rename = "link.opened")]
    LinkOpened,
    /// A link is taken back.
    #[serde(rename = "link.revoked")]
    LinkRevoked,
    /// A webhook is made.
    #[serde(rename = "webhook.created")]
    WebhookCreated,
    /// A webhook is removed.
    #[serde(rename = "webhook.removed")]
    WebhookRemoved,
    /// The server begins to sign with another key.
    #[serde(rename = "key.changed")]
    KeyChanged,
    /// A legal hold is set on a session or an owner.
    #[serde(rename = "hold.set")]
    HoldSet,
    /// A legal hold is lifted.
    #[serde(rename = "hold.lifted")]
    HoldLifted,
}

impl Deed {
    /// Every deed.
    pub const ALL: [Self; 11] = [
        Self::Decision,
        Self::Erase,
        Self::Settle,
        Self::LinkCreated,
        Self::LinkOpened,
        Self::LinkRevoked,
        Self::WebhookCreated,
        Self::WebhookRemoved,
        Self::KeyChanged,
        Self::HoldSet,
        Self::HoldLifted,
    ];
}

/// One entry.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    pub what: Deed,
    /// Who did it: the members of `decidedBy`.
    pub by: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action_id: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_id: Option<Box<str>>,
    /// The control that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<Box<str>>,
    /// The link, the webhook, the key, or the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Box<str>>,
    /// Of a hold: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Box<str>>,
}

impl AuditEntry {
    /// What a person did at a moment.
    #[must_use]
    pub fn new(what: Deed, by: Decider, at: Timestamp) -> Self {
        let by = DecidedBy { decider: by, at: format!("{at:.3}").into(), seen: None }.to_value();
        Self {
            what,
            by,
            run_id: None,
            session_id: None,
            action_id: None,
            control_id: None,
            control: None,
            id: None,
            reason: None,
        }
    }

    /// The entry about a run or a session.
    #[must_use]
    pub fn about(mut self, log: &LogId) -> Self {
        match log {
            LogId::Run(run) => self.run_id = Some(run.as_str().into()),
            LogId::Session(session) => self.session_id = Some(session.as_str().into()),
        }
        self
    }

    /// The entry about a link, a webhook, a key, or an owner.
    #[must_use]
    pub fn with_id(mut self, id: &str) -> Self {
        self.id = Some(id.into());
        self
    }

    /// The entry of a hold, with why it is set.
    #[must_use]
    pub fn with_reason(mut self, reason: &str) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// The envelope of the entry.
    ///
    /// # Panics
    /// Never: plain data serializes.
    #[must_use]
    pub fn draft(&self) -> Draft {
        let mut draft =
            Draft::new(EventType::from(AUDIT_RECORDED)).with_owner(Owner::Diagnostics).with_audience(Audience::Internal);
        let Value::Object(members) = serde_json::to_value(self).expect("plain data serializes") else { return draft };
        for (member, value) in members {
            draft.payload.insert(member, value);
        }
        draft
    }

    /// Records the entry, durably.
    ///
    /// # Errors
    /// [`StoreError`] from the store.
    pub async fn record(self, ingest: &Ingest) -> Result<(), StoreError> {
        ingest.append_to_server(&[self.draft()], &[]).await
    }
}
