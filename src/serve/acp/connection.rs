//! The state of one connection, and how it sends.

use super::prompt::Prompt;
use super::rpc::{self, RpcError};
use super::session::{OpenSession, Opening};
use crate::encode::acp::{AcpOptions, AskedQuestion};
use crate::feed::AnyReader;
use crate::model::{AgentId, Audience, SessionId};
use crate::serve::App;
use crate::serve::access::authorization::{OpenAccess, Principal};
use crate::serve::access::quota::QuotaSlot;
use crate::serve::clients::bodies::{BodyReader, FilledText};
use crate::serve::http::request::Query;
use crate::serve::socket::{ReadyReader, SubscriptionId};
use crate::serve::telemetry::meters::Counted;
use futures_util::SinkExt;
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::FuturesUnordered;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error, Message};

/// Maximum requests of a client whose answers are being made. Beyond it no more messages are read.
pub(super) const JOBS_MAX: usize = 64;
/// Maximum prompts of a connection without an answer.
pub(super) const PROMPTS_MAX: usize = 32;
/// Maximum requests to a client without an answer. Beyond it, the oldest is withdrawn.
pub(super) const ASKED_MAX: usize = 1024;

pub(super) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Who connects, and to what.
pub(super) struct Terms {
    pub principal: Principal,
    /// Counts the connection for the token's `sub`.
    pub _slot: Option<QuotaSlot<Box<str>>>,
    /// The agent of new sessions, and of messages. `None`: the session's own.
    pub agent: Option<AgentId>,
    /// The session that `session/new` returns. `None`: a new one.
    pub session: Option<SessionId>,
    pub audience: Audience,
    pub query: Query,
}

/// What became of a request.
pub(super) enum Job {
    Answered(Value, Result<Value, RpcError>),
    /// A session is open; the second value is the result of the request.
    Opened(Value, SessionId, Box<Result<(Opening, Value), RpcError>>),
    /// The prompt of this number was submitted.
    Submitted(SessionId, u64, Result<(), RpcError>),
    /// An agent took the prompt of this number, or none ever will.
    Claimed(SessionId, u64, Result<(), RpcError>),
    Done,
}

/// A request to the client.
pub(super) struct Asked {
    pub session: SessionId,
    pub question: AskedQuestion,
}

/// One connection.
pub(super) struct Connection {
    pub app: Arc<App>,
    pub socket: Socket,
    pub terms: Terms,
    /// What the client can be asked. `None` before `initialize`.
    pub client: Option<AcpOptions>,
    pub sessions: HashMap<SessionId, OpenSession>,
    /// The readers that wait for frames.
    pub readers: FuturesUnordered<Abortable<BoxFuture<'static, ReadyReader>>>,
    pub jobs: FuturesUnordered<BoxFuture<'static, Job>>,
    /// The requests to the client without an answer, by their ids.
    pub asked: HashMap<u64, Asked>,
    /// The id of the next request to the client, and the number of the next prompt.
    pub next: u64,
}

impl Connection {
    pub fn new(app: Arc<App>, socket: Socket, terms: Terms) -> Self {
        Self {
            app,
            socket,
            terms,
            client: None,
            sessions: HashMap::new(),
            readers: FuturesUnordered::new(),
            jobs: FuturesUnordered::new(),
            asked: HashMap::new(),
            next: 0,
        }
    }

    pub fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Sends a message. It waits until the socket takes it: the client gets no more than it reads.
    pub async fn send(&mut self, message: &Value) -> Result<(), Error> {
        self.send_text(message.to_string()).await
    }

    /// Sends a message with the bodies that it refers to.
    pub async fn send_filled(&mut self, message: &Value, bodies: Option<&BodyReader>) -> Result<(), Error> {
        let text = message.to_string();
        match bodies.filter(|_| self.app.placeholders.is_in(text.as_bytes())) {
            None => self.send_text(text).await,
            Some(bodies) => {
                let (mut filling, mut filled) = (FilledText::of(text), Vec::new());
                while let Some(piece) = filling.next(bodies).await {
                    filled.extend_from_slice(&piece);
                }
                self.send_text(String::from_utf8_lossy(&filled).into_owned()).await
            }
        }
    }

    async fn send_text(&mut self, text: String) -> Result<(), Error> {
        // The client reads, or its connection ends with its unanswered pings.
        let time_max = self.app.keep_alive.heartbeat * 2;
        match tokio::time::timeout(time_max, self.socket.send(Message::text(text))).await {
            Ok(sent) => sent,
            Err(_) => Err(Error::ConnectionClosed),
        }
    }

    /// Answers a request.
    pub async fn answer(&mut self, id: &Value, outcome: Result<Value, RpcError>) -> Result<(), Error> {
        if let Err(error) = &outcome {
            tracing::debug!(code = error.code, message = error.message, "an ACP request is refused");
        }
        self.send(&rpc::answer(id, outcome)).await
    }

    /// Waits for the next frames of a session.
    pub fn read_on(&self, session: &SessionId, reader: AnyReader, counted: Counted, access: OpenAccess) -> AbortHandle {
        let (stop, stopped) = AbortHandle::new_pair();
        let sub = SubscriptionId::from(session.as_str());
        self.readers.push(Abortable::new(Box::pin(ReadyReader::wait(sub, reader, counted, access)), stopped));
        stop
    }

    /// Closes a session for this client. Returns its prompts without an answer.
    pub fn close_session(&mut self, session: &SessionId) -> Vec<Prompt> {
        self.asked.retain(|_, asked| asked.session != *session);
        let Some(open) = self.sessions.remove(session) else { return Vec::new() };
        open.reading.abort();
        open.prompts
    }

    /// The number of prompts without an answer.
    pub fn open_prompts(&self) -> usize {
        self.sessions.values().map(|session| session.prompts.len()).sum()
    }
}
