//! Drives one connection: it reads a message once it has sent what the last ones led to.

use super::connection::{Connection, JOBS_MAX, Job};
use super::prompt::stop;
use super::rpc::{AUTH_REQUIRED, INVALID_REQUEST, RpcError};
use super::session::{OpenSession, Opening};
use crate::auth::TokenError;
use crate::encode::acp::AcpEvent;
use crate::model::SessionId;
use crate::serve::access::authorization::unauthenticated;
use crate::serve::socket::ReadyReader;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::future::pending;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

/// The close code for a token that has ended.
const CLOSE_UNAUTHENTICATED: u16 = 4401;
/// Server pings without an answer after which the connection closes.
const PINGS_UNANSWERED_MAX: u32 = 2;
/// Time that a closing connection gives its client to read the last messages.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(2);
/// Input of a closing connection that is discarded, in bytes.
const DISCARD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The next thing that a connection does.
enum Step {
    Close(CloseCode, &'static str, Option<RpcError>),
    Ping,
    Received(Option<Result<Message, Error>>),
    Frames(ReadyReader),
    Job(Job),
    /// A reader was aborted.
    Nothing,
}

impl Connection {
    pub(super) async fn run(&mut self) {
        let stopping = self.app.stopping.waiter();
        let drain_delay = self.app.drain_delay();
        let heartbeat = self.app.keep_alive.heartbeat;
        let mut heartbeat_timer = pin!(sleep(heartbeat));
        let mut watch = self.terms.principal.watch();
        let (mut is_alive, mut unanswered) = (true, 0);
        loop {
            let step = tokio::select! {
                biased;
                () = stopping.elapsed(drain_delay) => {
                    Step::Close(CloseCode::Away, "the server is stopping; connect again and resume", None)
                }
                reason = async { match &mut watch { Some(watch) => watch.ended().await, None => pending().await } } => {
                    let problem = unauthenticated(&TokenError::Ended(reason));
                    let error = RpcError { code: AUTH_REQUIRED, ..problem.into() };
                    Step::Close(CloseCode::Library(CLOSE_UNAUTHENTICATED), "the token has ended", Some(error))
                }
                () = &mut heartbeat_timer => Step::Ping,
                step = self.next_step() => step,
            };
            let done = match step {
                Step::Close(code, reason, error) => return self.close_with(code, reason, error).await,
                Step::Ping => {
                    heartbeat_timer.as_mut().reset(Instant::now() + heartbeat);
                    unanswered = if std::mem::take(&mut is_alive) { 0 } else { unanswered + 1 };
                    if unanswered >= PINGS_UNANSWERED_MAX {
                        return self.close_with(CloseCode::Policy, "two pings were not answered", None).await;
                    }
                    self.socket.send(Message::Ping(Vec::new().into())).await
                }
                Step::Received(received) => {
                    is_alive = true;
                    match received {
                        Some(Ok(Message::Text(text))) => Box::pin(self.handle(&text)).await,
                        Some(Ok(Message::Binary(_))) => {
                            let error = RpcError::new(INVALID_REQUEST, "The message is binary. Send JSON as a text message.");
                            return self.close_with(CloseCode::Unsupported, "messages must be JSON text", Some(error)).await;
                        }
                        Some(Ok(Message::Close(_))) | None => {
                            let _ = timeout(CLOSE_TIME_MAX, self.socket.close(None)).await;
                            return;
                        }
                        Some(Ok(_)) => Ok(()),
                        Some(Err(Error::Capacity(_))) => {
                            let limit = self.app.limits.body_bytes_max;
                            let detail =
                                format!("The message is larger than {limit} bytes, the limit. Send less, or a link to it.");
                            let error = RpcError::new(INVALID_REQUEST, detail).with(json!({ "limit": limit }));
                            return self.close_with(CloseCode::Size, "a message is too large", Some(error)).await;
                        }
                        Some(Err(error)) => Err(error),
                    }
                }
                Step::Frames(ready) => Box::pin(self.take_frames(ready)).await,
                Step::Job(job) => Box::pin(self.take_job(job)).await,
                Step::Nothing => Ok(()),
            };
            if let Err(error) = done {
                tracing::debug!(%error, "an ACP connection ends");
                return;
            }
        }
    }

    async fn next_step(&mut self) -> Step {
        let has_room = self.jobs.len() < JOBS_MAX;
        tokio::select! {
            received = self.socket.next(), if has_room => Step::Received(received),
            ready = self.readers.next(), if !self.readers.is_empty() => match ready {
                Some(Ok(ready)) => Step::Frames(ready),
                _ => Step::Nothing,
            },
            job = self.jobs.next(), if !self.jobs.is_empty() => job.map_or(Step::Nothing, Step::Job),
            else => pending().await,
        }
    }

    async fn take_job(&mut self, job: Job) -> Result<(), Error> {
        match job {
            Job::Answered(id, outcome) => self.answer(&id, outcome).await,
            Job::Opened(id, session, opened) => match *opened {
                Ok((opening, result)) => self.take_opening(&id, session, opening, result).await,
                Err(error) => self.answer(&id, Err(error)).await,
            },
            Job::Submitted(session, number, Ok(())) => {
                let prompts = self.sessions.get(&session).map(|open| &open.prompts);
                let prompt = prompts.into_iter().flatten().find(|prompt| prompt.number == number);
                if let Some((run, is_cancelled)) = prompt.map(|prompt| (prompt.run.clone(), prompt.is_cancelled)) {
                    self.await_claim(session.clone(), number, run);
                    // The cancellation came before there was something to cancel.
                    if is_cancelled {
                        self.cancel(&session);
                    }
                }
                Ok(())
            }
            Job::Claimed(session, number, Ok(())) => {
                let prompts = self.sessions.get_mut(&session).map(|open| &mut open.prompts);
                if let Some(prompt) = prompts.into_iter().flatten().find(|prompt| prompt.number == number) {
                    prompt.is_claimed = true;
                }
                self.settle_prompts(&session).await
            }
            Job::Submitted(session, number, Err(error)) | Job::Claimed(session, number, Err(error)) => {
                self.fail_prompt(&session, number, error).await
            }
            Job::Done => Ok(()),
        }
    }

    /// Answers a prompt that no agent takes.
    async fn fail_prompt(&mut self, session: &SessionId, number: u64, error: RpcError) -> Result<(), Error> {
        let Some(open) = self.sessions.get_mut(session) else { return Ok(()) };
        let Some(at) = open.prompts.iter().position(|prompt| prompt.number == number) else { return Ok(()) };
        let prompt = open.prompts.remove(at);
        let outcome = if prompt.is_cancelled { Ok(stop("cancelled", None)) } else { Err(error) };
        self.answer(&prompt.id, outcome).await
    }

    /// Shows a session that was opened, answers the request, asks what waits, and reads on.
    async fn take_opening(&mut self, id: &Value, session: SessionId, opening: Opening, result: Value) -> Result<(), Error> {
        let Opening { acp, bodies, reader, access, counted, events } = opening;
        // The prompts of the session stay, if it was open.
        self.withdraw_all(&session).await?;
        let prompts = self.close_session(&session);
        let reading = self.read_on(&session, reader, counted, access);
        let open = OpenSession { acp, reading, runs: HashMap::new(), prompts, bodies };
        self.sessions.insert(session.clone(), open);
        let cursor = self.sessions[&session].acp.position().map(ToString::to_string);
        let (shown, other): (Vec<_>, Vec<_>) = events.into_iter().partition(|event| matches!(event, AcpEvent::Update(..)));
        self.take_events(&session, shown).await?;
        let mut result = result;
        result["_meta"] = json!({ "proscenium": { "cursor": cursor } });
        self.answer(id, Ok(result)).await?;
        self.take_events(&session, other).await?;
        self.settle_prompts(&session).await
    }

    async fn close_with(&mut self, code: CloseCode, reason: &'static str, error: Option<RpcError>) {
        let closing = async {
            if let Some(error) = error {
                self.answer(&Value::Null, Err(error)).await?;
            }
            self.socket.send(Message::Close(Some(CloseFrame { code, reason: Utf8Bytes::from_static(reason) }))).await?;
            let io = self.socket.get_mut();
            io.shutdown().await?;
            // Closing a socket with unread input resets it, and the client would lose the close frame.
            let (mut void, mut discarded) = ([0; 4096], 0);
            while discarded < DISCARD_BYTES_MAX {
                match io.read(&mut void).await? {
                    0 => break,
                    read => discarded += read,
                }
            }
            Ok::<_, Error>(())
        };
        // The client may be gone or not reading.
        let _ = timeout(CLOSE_TIME_MAX, closing).await;
    }
}
