//! Tickets: what a browser puts in an address where it can send no header (`EventSource`, WebSocket).
//!
//! A ticket is random, good once, for a minute at most, and for one thing; it stands for the token that it was made with and
//! for nothing more. What gets into a log with an address is worth nothing by then. `EventSource`, though, comes back with the
//! same address after a cut: who says where the stream was cut off (`Last-Event-ID`) may go on with a ticket that was used,
//! while its stream is open (which then ends where it was) and for [`RESUME`] after it was last seen.

use super::{End, Grant, Refusal};
use crate::model::{RunId, SessionId};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// How long a ticket may be good before it is used, in seconds.
pub const SECONDS_MAX: u64 = 60;
/// How long after its stream was last seen a ticket lets its reader come back, in seconds.
pub const RESUME: u64 = 60;
/// Tickets at once.
pub const TICKETS_MAX: usize = 65_536;
/// Tickets of one token at once.
pub const TICKETS_OF_ONE_MAX: usize = 256;

/// What a ticket is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To read one stream.
    Stream,
    /// One WebSocket.
    Socket,
}

/// The only thing that a ticket lets its holder see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Only {
    Run(RunId),
    Session(SessionId),
}

/// There is no room for another ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are {0} tickets that wait to be used or may be used again, the limit; use those, or wait a minute")]
pub struct TooMany(pub usize);

struct Ticket {
    of: Arc<Grant>,
    purpose: Purpose,
    only: Option<Only>,
    until: u64,
    used: Option<Used>,
}

/// A ticket's stream, and when it was last seen to be open, in seconds since 1970.
struct Used {
    by: Weak<Grant>,
    seen: u64,
}

impl Ticket {
    /// What it gives: never more than its token does.
    fn grant(&self) -> Grant {
        let mut rights = self.of.rights.clone();
        if self.purpose == Purpose::Stream {
            rights = rights.to_read();
        }
        self.of.narrowed(match &self.only {
            None => rights,
            Some(Only::Run(run)) => rights.for_run(run.clone()),
            Some(Only::Session(session)) => rights.for_session(session),
        })
    }

    fn is_of_use(&mut self, now: u64) -> bool {
        self.of.stands(now).is_ok()
            && match &mut self.used {
                None => now < self.until,
                Some(used) => {
                    if used.by.strong_count() > 0 {
                        used.seen = now;
                    }
                    now <= used.seen + RESUME
                }
            }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.of.tickets.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The tickets that may be used, by their hashes.
#[derive(Default)]
pub(super) struct Tickets(HashMap<[u8; 32], Ticket>);

impl Tickets {
    pub fn put(
        &mut self,
        digest: [u8; 32],
        of: Arc<Grant>,
        purpose: Purpose,
        only: Option<Only>,
        until: u64,
    ) -> Result<(), TooMany> {
        if self.0.len() >= TICKETS_MAX {
            return Err(TooMany(TICKETS_MAX));
        }
        if of.tickets.fetch_add(1, Ordering::Relaxed) >= TICKETS_OF_ONE_MAX {
            of.tickets.fetch_sub(1, Ordering::Relaxed);
            return Err(TooMany(TICKETS_OF_ONE_MAX));
        }
        self.0.insert(digest, Ticket { of, purpose, only, until, used: None });
        Ok(())
    }

    pub fn take(&mut self, digest: &[u8; 32], purpose: Purpose, resumes: bool, now: u64) -> Result<Arc<Grant>, Refusal> {
        let ticket = self.0.get_mut(digest).ok_or(Refusal::Ticket)?;
        ticket.of.stands(now)?;
        if ticket.purpose != purpose || !ticket.is_of_use(now) || ticket.used.is_some() && !resumes {
            return Err(Refusal::Ticket);
        }
        let grant = Arc::new(ticket.grant());
        match purpose {
            // A WebSocket's cursors are in its messages: whoever comes back makes a new one.
            Purpose::Socket => drop(self.0.remove(digest)),
            Purpose::Stream => {
                let used = Used { by: Arc::downgrade(&grant), seen: now };
                if let Some(before) = ticket.used.replace(used).and_then(|used| used.by.upgrade()) {
                    before.end(End::Resumed);
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
        self.0.retain(|_, ticket| ticket.is_of_use(now));
    }
}
