//! Tickets: credentials in a URL, for browser APIs that cannot send headers (`EventSource`, WebSocket).
//!
//! A ticket is random, usable once, for one purpose, and for at most a minute. It grants no more than the token that
//! requested it. A URL that leaks into a log is worthless by then. `EventSource`, however, reconnects with the same
//! URL. A client that sends `Last-Event-ID` may therefore reuse a ticket while its stream is open, which ends the
//! earlier connection, and for [`RESUME_SECS`] afterwards.
//!
//! The tickets of a cluster are in [`shared_tickets`](super::shared_tickets).

use super::{EndReason, Grant, TokenError};
use crate::model::{RunId, SessionId};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Maximum lifetime of an unused ticket, in seconds.
pub const TICKET_TTL_SECS_MAX: u64 = 60;
/// How long a client may resume after its stream was last seen open, in seconds.
pub const RESUME_SECS: u64 = 60;
/// Maximum number of outstanding tickets.
pub const TICKETS_MAX: usize = 65_536;
/// Maximum number of outstanding tickets per token.
pub const TICKETS_PER_TOKEN_MAX: usize = 256;

/// What a ticket permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// Reading one stream.
    Stream,
    /// Opening one WebSocket.
    Socket,
}

/// The run or session that a ticket is restricted to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TicketScope {
    Run(RunId),
    Session(SessionId),
}

/// The number of outstanding tickets has reached its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} tickets are outstanding, the limit. Use them, or retry in a minute.")]
pub struct TooManyTickets(pub usize);

struct Ticket {
    grant: Arc<Grant>,
    purpose: Purpose,
    scope: Option<TicketScope>,
    until: u64,
    used: Option<Used>,
}

/// A redeemed ticket's stream. `seen`: when it was last open, in seconds since 1970.
struct Used {
    by: Weak<Grant>,
    seen: u64,
}

/// Creates the grant of a ticket, which never exceeds its token.
pub(super) fn narrowed(grant: &Grant, purpose: Purpose, scope: Option<&TicketScope>) -> Grant {
    let mut rights = grant.rights.clone();
    if purpose == Purpose::Stream {
        rights = rights.read_only();
    }
    grant.restricted_to(match scope {
        None => rights,
        Some(TicketScope::Run(run)) => rights.restricted_to_run(run.clone()),
        Some(TicketScope::Session(session)) => rights.restricted_to_session(session),
    })
}

impl Ticket {
    fn is_usable(&mut self, now: u64) -> bool {
        self.grant.ensure_valid(now).is_ok()
            && match &mut self.used {
                None => now < self.until,
                Some(used) => {
                    if used.by.strong_count() > 0 {
                        used.seen = now;
                    }
                    now <= used.seen + RESUME_SECS
                }
            }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.grant.tickets.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Outstanding tickets, keyed by the SHA-256 of their text.
#[derive(Default)]
pub(super) struct Tickets(HashMap<[u8; 32], Ticket>);

impl Tickets {
    pub fn insert(
        &mut self,
        digest: [u8; 32],
        grant: Arc<Grant>,
        purpose: Purpose,
        scope: Option<TicketScope>,
        until: u64,
    ) -> Result<(), TooManyTickets> {
        if self.0.len() >= TICKETS_MAX {
            return Err(TooManyTickets(TICKETS_MAX));
        }
        if grant.tickets.fetch_add(1, Ordering::Relaxed) >= TICKETS_PER_TOKEN_MAX {
            grant.tickets.fetch_sub(1, Ordering::Relaxed);
            return Err(TooManyTickets(TICKETS_PER_TOKEN_MAX));
        }
        self.0.insert(digest, Ticket { grant, purpose, scope, until, used: None });
        Ok(())
    }

    pub fn redeem(&mut self, digest: &[u8; 32], purpose: Purpose, resumes: bool, now: u64) -> Result<Arc<Grant>, TokenError> {
        let ticket = self.0.get_mut(digest).ok_or(TokenError::Ticket)?;
        ticket.grant.ensure_valid(now)?;
        if ticket.purpose != purpose || !ticket.is_usable(now) || ticket.used.is_some() && !resumes {
            return Err(TokenError::Ticket);
        }
        let grant = Arc::new(narrowed(&ticket.grant, ticket.purpose, ticket.scope.as_ref()));
        match purpose {
            // A WebSocket client sends cursors in its messages, so a reconnect needs a new ticket.
            Purpose::Socket => drop(self.0.remove(digest)),
            Purpose::Stream => {
                let used = Used { by: Arc::downgrade(&grant), seen: now };
                if let Some(before) = ticket.used.replace(used).and_then(|used| used.by.upgrade()) {
                    before.end(EndReason::ResumedElsewhere);
                }
            }
        }
        Ok(grant)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn sweep(&mut self, now: u64) {
        self.0.retain(|_, ticket| ticket.is_usable(now));
    }
}
