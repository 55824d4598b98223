//! The state of one connection: its client, its subscriptions, its claims and its unsent replies.

use super::gate::Socket;
use super::message::refusal;
use super::upstream::Upstream;
use crate::auth::TokenError;
use crate::control::{Claim, ClaimedControl};
use crate::encode::encoded::EncodedFrames;
use crate::feed::AnyReader;
use crate::log::StoreError;
use crate::model::{AgentId, Cursor};
use crate::serve::App;
use crate::serve::access::authorization::{OpenAccess, Principal, unauthenticated};
use crate::serve::access::quota::QuotaSlot;
use crate::serve::http::problem::Problem;
use crate::serve::telemetry::meters::Counted;
use crate::serve::transport::peer::Peer;
use bytes::Bytes;
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::{FuturesOrdered, FuturesUnordered};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

/// The close code for a missing, invalid or ended token.
pub(super) const CLOSE_UNAUTHENTICATED: u16 = 4401;

/// A subscription's id, as JSON text.
pub(in crate::serve) type SubscriptionId = Arc<str>;

/// The authenticated client of a connection.
pub(super) struct AuthenticatedClient {
    pub principal: Principal,
    /// Counts the connection for the token's `sub`.
    _slot: Option<QuotaSlot<Box<str>>>,
}

impl AuthenticatedClient {
    /// Counts the connection for its principal.
    pub(super) fn new(app: &App, principal: Principal) -> Result<Self, Problem> {
        Ok(Self { _slot: principal.connection_slot(app)?, principal })
    }

    /// Replaces the token.
    pub(super) fn with_principal(self, principal: Principal) -> Self {
        Self { principal, ..self }
    }
}

/// How the server closes a connection: an optional problem, then the close frame.
pub(super) struct Close {
    pub problem: Option<Problem>,
    pub code: CloseCode,
    pub reason: &'static str,
}

impl Close {
    pub(super) const fn new(code: CloseCode, reason: &'static str, problem: Option<Problem>) -> Self {
        Self { problem, code, reason }
    }

    pub(super) fn unauthenticated(reason: &'static str, problem: Problem) -> Self {
        Self::new(CloseCode::Library(CLOSE_UNAUTHENTICATED), reason, Some(problem))
    }
}

/// A reader with a chunk to send.
pub(in crate::serve) struct ReadyReader {
    pub sub: SubscriptionId,
    pub reader: AnyReader,
    pub counted: Counted,
    pub access: OpenAccess,
    /// The unsent rest of its chunk.
    pub frames: EncodedFrames,
    /// The cursor of the last frame sent, if it had one.
    pub at: Option<Cursor>,
    /// Whether the chunk is the reader's last.
    pub is_last: bool,
}

impl ReadyReader {
    /// Waits until the reader has a chunk.
    pub(in crate::serve) async fn wait(sub: SubscriptionId, mut reader: AnyReader, counted: Counted, access: OpenAccess) -> Self {
        let (frames, is_last) = match reader.next().await {
            Ok(Some(frames)) => match access.check() {
                Ok(()) => (frames, reader.is_done()),
                Err(problem) => (reader.error(&problem.to_json()), true),
            },
            Ok(None) => (Bytes::new().into(), true),
            Err(error) => (reader.error(&Problem::from(error).to_json()), true),
        };
        Self { sub, reader, counted, access, frames, at: None, is_last }
    }
}

/// An open claim for an agent's controls.
pub(super) struct Claimer {
    pub agent: AgentId,
    pub claim: Claim,
    /// The unanswered leases with their expiry.
    pub open_leases: Vec<(Box<str>, Instant)>,
    pub waiting: AbortHandle,
    /// Whether it holds its maximum and waits for a lease to be answered or to expire.
    pub is_full: bool,
}

/// Controls for a claim. Empty: one of its leases expired.
pub(super) struct ClaimResult {
    pub sub: SubscriptionId,
    pub controls: Result<Vec<ClaimedControl>, StoreError>,
}

/// One WebSocket connection.
#[expect(clippy::struct_excessive_bools, reason = "each says another thing about the connection")]
pub(super) struct Connection<'a> {
    pub app: &'a Arc<App>,
    pub socket: Socket,
    /// The client's end of a plain connection.
    pub peer: Option<Peer>,
    /// `None` until the client has authenticated.
    pub client: Option<AuthenticatedClient>,
    /// Set to close the connection after the current reply.
    pub closing: Option<Close>,
    /// The readers that wait for a chunk. The first to become ready goes first.
    pub readers: FuturesUnordered<Abortable<BoxFuture<'static, ReadyReader>>>,
    pub subscriptions: HashMap<SubscriptionId, AbortHandle>,
    /// The reader whose turn it is.
    pub ready: Option<ReadyReader>,
    pub publishes: FuturesOrdered<BoxFuture<'a, String>>,
    pub claimers: HashMap<SubscriptionId, Claimer>,
    pub claims: FuturesUnordered<Abortable<BoxFuture<'a, ClaimResult>>>,
    pub replies: VecDeque<String>,
    /// The connection to the leader, on a node that follows.
    pub upstream: Option<Upstream>,
    /// Whether another node forwards its client's writes by this connection.
    pub is_forwarded: bool,
    /// The unsent rest of a long message.
    pub message_rest: Option<Bytes>,
    pub ping_due: bool,
    pub pings_unanswered: u32,
    /// Whether the client gave a sign of life since the last ping.
    pub is_alive: bool,
    /// Whether the socket accepted no more at the last attempt.
    pub stalled: bool,
    /// Client pings received since the socket was last flushed.
    pub pings_unflushed: usize,
}

impl<'a> Connection<'a> {
    pub(super) fn new(
        app: &'a Arc<App>,
        socket: Socket,
        peer: Option<Peer>,
        client: Option<AuthenticatedClient>,
        is_forwarded: bool,
    ) -> Self {
        Self {
            app,
            socket,
            peer,
            client,
            closing: None,
            readers: FuturesUnordered::new(),
            subscriptions: HashMap::new(),
            ready: None,
            publishes: FuturesOrdered::new(),
            claimers: HashMap::new(),
            claims: FuturesUnordered::new(),
            replies: VecDeque::new(),
            upstream: None,
            is_forwarded,
            message_rest: None,
            ping_due: false,
            pings_unanswered: 0,
            is_alive: true,
            stalled: false,
            pings_unflushed: 0,
        }
    }

    pub(super) fn refuse(&mut self, id: Option<&Value>, problem: &Problem) {
        self.app.meters.problems.add(problem.code);
        self.replies.push_back(refusal(id, problem));
    }

    /// Returns the authenticated principal, which the dispatch of messages has ensured.
    pub(super) fn principal(&self) -> Result<&Principal, Problem> {
        self.client.as_ref().map(|client| &client.principal).ok_or_else(|| unauthenticated(&TokenError::Missing))
    }
}
