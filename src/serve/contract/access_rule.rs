//! The access rule of an address.

use crate::auth::rights::Verb;

/// What a client needs to use an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessRule {
    /// No token. The answer is the same for every client.
    Public,
    /// Any valid token.
    AnyToken,
    /// This verb on the run, session or agent that the address names.
    ///
    /// If it names none, the handler filters its answer.
    Requires(Verb),
    /// The `read` verb, by a token or a stream ticket.
    ReadStream,
    /// The handler authorizes each message.
    InBand,
}
