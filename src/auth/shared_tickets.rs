//! Tickets of a cluster: issued by one server, and redeemed on any.
//!
//! ```text
//!   issue    a statement of the grant, signed with the key of the cluster      no other server takes part
//!   redeem   the signature, the times and the purpose, then one write of       the record refuses the second one
//!            "used" to the record that all servers share
//! ```
//! The rules are those of [`tickets`](super::tickets). Tickets that no client uses take no memory, so their number has no
//! limit. A server with an open stream repeats its entry each [`REFRESH_SECS`]: so another server knows whether the client
//! may resume, and an entry that has changed ends the stream.

use super::links::{LinkTable, OpenedLink};
use super::tickets::{Purpose, RESUME_SECS, TicketScope, narrowed};
use super::{EndReason, Grant, TokenError};
use crate::auth::rights::Rights;
use futures_util::future::BoxFuture;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// How often a server repeats the entry of an open stream, in seconds.
pub const REFRESH_SECS: u64 = 20;
/// How long the record must keep an entry after its last write, in seconds.
pub const RECORD_SECS_MIN: u64 = 2 * RESUME_SECS;

/// The record of used tickets that the servers share.
pub trait TicketRecord: Send + Sync {
    /// Reads the entry of a ticket. `None`: the ticket was not used.
    fn read<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<TicketUse>, TokenError>>;

    /// Writes the entry of a ticket if it still has this revision, 0 for none. Returns the new revision.
    ///
    /// `None`: another server was faster.
    fn write<'a>(&'a self, id: &'a str, seen: u64, revision: u64) -> BoxFuture<'a, Result<Option<u64>, TokenError>>;
}

/// An entry of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TicketUse {
    /// When the ticket's stream was last seen open, in seconds since 1970.
    pub seen: u64,
    pub revision: u64,
}

/// What a ticket states.
#[derive(Serialize, Deserialize)]
struct Statement {
    /// The name of its entry in the record.
    id: Box<str>,
    purpose: Purpose,
    until: u64,
    rights: Rights,
    subject: Box<str>,
    expires: u64,
    token_id: Option<Box<str>>,
    key: [u8; 32],
    /// The share link that the token is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    link: Option<Box<str>>,
}

/// A stream that a ticket opened on this server.
struct OpenStream {
    grant: Weak<Grant>,
    entry: TicketUse,
}

/// Issues and redeems tickets with the key of a cluster.
pub struct SharedTickets {
    signing: EncodingKey,
    verifying: DecodingKey,
    record: Box<dyn TicketRecord>,
    open: Mutex<HashMap<Box<str>, OpenStream>>,
}

impl SharedTickets {
    /// Tickets that this secret signs.
    #[must_use]
    pub fn new(secret: &[u8], record: impl TicketRecord + 'static) -> Self {
        super::crypto::install();
        let (signing, verifying) = (EncodingKey::from_secret(secret), DecodingKey::from_secret(secret));
        Self { signing, verifying, record: Box::new(record), open: Mutex::default() }
    }

    /// Signs a ticket. `id` is random.
    pub(super) fn issue(&self, id: &str, of: &Grant, purpose: Purpose, scope: Option<&TicketScope>, until: u64) -> String {
        let Grant { rights, subject, expires, id: token_id, key, link, .. } = narrowed(of, purpose, scope);
        let link = link.map(|link| link.id.clone());
        let statement = Statement { id: id.into(), purpose, until, rights, subject, expires, token_id, key, link };
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &statement, &self.signing)
            .expect("a statement is JSON, and HMAC signs")
    }

    fn verify(&self, ticket: &str) -> Option<Statement> {
        let mut validation = Validation::new(Algorithm::HS256);
        (validation.validate_exp, validation.validate_nbf, validation.validate_aud) = (false, false, false);
        validation.required_spec_claims.clear();
        jsonwebtoken::decode(ticket, &self.verifying, &validation).ok().map(|ticket| ticket.claims)
    }

    /// Redeems a ticket, once among all servers. `resumes`: the client sends its last event id.
    pub(super) async fn redeem(
        &self,
        ticket: &str,
        purpose: Purpose,
        resumes: bool,
        now: u64,
        links: Option<&Arc<dyn LinkTable>>,
    ) -> Result<Arc<Grant>, TokenError> {
        let Statement { id, purpose: of, until, rights, subject, expires, token_id, key, link } =
            self.verify(ticket).ok_or(TokenError::Ticket)?;
        let open = |id: Box<str>| {
            let terms = links.and_then(|links| links.terms(&id)).ok_or(TokenError::Ended(EndReason::LinkEnded))?;
            Ok::<_, TokenError>(Arc::new(OpenedLink { id, terms }))
        };
        let link = link.map(open).transpose()?;
        let grant = Arc::new(Grant { id: token_id, link, ..Grant::of(rights, subject, expires, key) });
        grant.ensure_valid(now)?;
        if of != purpose {
            return Err(TokenError::Ticket);
        }
        let used = if resumes && purpose == Purpose::Stream { self.record.read(&id).await? } else { None };
        let revision = match used {
            None if now < until => 0,
            Some(used) if self.is_open(&id) || now <= used.seen + RESUME_SECS => used.revision,
            _ => return Err(TokenError::Ticket),
        };
        let revision = self.record.write(&id, now, revision).await?.ok_or(TokenError::Ticket)?;
        if purpose == Purpose::Stream {
            let stream = OpenStream { grant: Arc::downgrade(&grant), entry: TicketUse { seen: now, revision } };
            if let Some(before) = self.open.lock().insert(id, stream).and_then(|before| before.grant.upgrade()) {
                before.end(EndReason::ResumedElsewhere);
            }
        }
        Ok(grant)
    }

    fn is_open(&self, id: &str) -> bool {
        self.open.lock().get(id).is_some_and(|stream| stream.grant.strong_count() > 0)
    }

    /// Repeats the entries of the open streams, and ends a stream that another server continues.
    pub(super) async fn refresh(&self, now: u64) {
        let due: Vec<(Box<str>, TicketUse)> = {
            let mut open = self.open.lock();
            open.retain(|_, stream| stream.grant.strong_count() > 0);
            let due = open.iter().filter(|(_, stream)| now >= stream.entry.seen + REFRESH_SECS);
            due.map(|(id, stream)| (id.clone(), stream.entry)).collect()
        };
        for (id, entry) in due {
            // Without an answer it tries again with the next check.
            let Ok(written) = self.record.write(&id, now, entry.revision).await else { continue };
            let mut open = self.open.lock();
            // Unless the client has resumed here meanwhile.
            let Some(stream) = open.get_mut(&id).filter(|stream| stream.entry == entry) else { continue };
            match (written, stream.grant.upgrade()) {
                (Some(revision), _) => stream.entry = TicketUse { seen: now, revision },
                (None, Some(grant)) => grant.end(EndReason::ResumedElsewhere),
                (None, None) => {}
            }
        }
    }
}
