//! Frames of the open sessions as updates, requests to the client, and answers to its prompts.

use super::connection::{ASKED_MAX, Asked, Connection};
use super::rpc::{self, NOT_FOUND, RpcError};
use super::session::{log_of, view_of};
use crate::encode::acp::{AcpEvent, Ask, AskedQuestion, Key};
use crate::encode::frames::DecodedFrame;
use crate::log::LogId;
use crate::model::SessionId;
use crate::serve::socket::ReadyReader;
use serde_json::{Value, json};
use std::collections::VecDeque;
use tokio_tungstenite::tungstenite::Error;

impl Connection {
    /// Sends what the next frames of a session lead to.
    pub(super) async fn take_frames(&mut self, ready: ReadyReader) -> Result<(), Error> {
        let ReadyReader { sub, reader, counted, access, frames, is_last, .. } = ready;
        let Ok(session) = sub.parse::<SessionId>() else { return Ok(()) };
        let Some(open) = self.sessions.get_mut(&session) else { return Ok(()) };
        let events = if frames.is_empty() {
            Vec::new()
        } else {
            let (all, of) = frames.decoded();
            let mark = |decoded: &DecodedFrame| DecodedFrame {
                frame: self.app.placeholders.mark(&decoded.frame).into_owned(),
                cursor: decoded.cursor,
            };
            open.acp.translate(&all[of].iter().map(mark).collect::<Vec<_>>())
        };
        counted.delivered();
        self.take_events(&session, events).await?;
        if is_last || !self.sessions.contains_key(&session) {
            return self.fail_session(&session, RpcError::new(NOT_FOUND, format!("Session {session} has ended."))).await;
        }
        let reading = self.read_on(&session, reader, counted, access);
        if let Some(open) = self.sessions.get_mut(&session) {
            open.reading = reading;
        }
        Ok(())
    }

    /// Sends what events lead to, in their order.
    pub(super) async fn take_events(&mut self, session: &SessionId, events: Vec<AcpEvent>) -> Result<(), Error> {
        let mut events = VecDeque::from(events);
        let mut is_round = false;
        while let Some(event) = events.pop_front() {
            match event {
                AcpEvent::Update(update, position) => {
                    let mut params = json!({ "sessionId": session, "update": update });
                    if let Some(position) = position {
                        params["_meta"] = json!({ "proscenium": { "cursor": position.to_string() } });
                    }
                    let message = rpc::notification("session/update", &params);
                    self.send_of_session(session, &message).await?;
                }
                AcpEvent::Ask(question) => self.ask(session, *question).await?,
                AcpEvent::Settled(key) => self.withdraw(session, &key).await?,
                AcpEvent::Run(run) => {
                    let Some(open) = self.sessions.get_mut(session) else { continue };
                    if let LogId::Run(id) = log_of(session, &run.run) {
                        open.bodies.cover(&id);
                    }
                    open.runs.insert(run.run.clone(), run);
                }
                AcpEvent::Missing(key) => {
                    let log = log_of(session, &key.run);
                    let found = view_of(&self.app, &log, self.terms.audience, &key.kind, &key.id).await;
                    if let (Ok(Some(view)), Some(open)) = (found, self.sessions.get_mut(session)) {
                        for event in open.acp.reload(view).into_iter().rev() {
                            events.push_front(event);
                        }
                    }
                }
                AcpEvent::Round => is_round = true,
                AcpEvent::Reset => {
                    let detail = format!("Session {session} was erased or rewritten. Load it again.");
                    return self.fail_session(session, RpcError::new(NOT_FOUND, detail)).await;
                }
                AcpEvent::Failed(problem) => {
                    let detail = problem["detail"].as_str().unwrap_or("The session cannot be read.").to_owned();
                    return self.fail_session(session, RpcError::new(NOT_FOUND, detail).with(problem)).await;
                }
            }
        }
        if is_round { self.settle_prompts(session).await } else { Ok(()) }
    }

    /// Sends a message with the bodies of its session.
    async fn send_of_session(&mut self, session: &SessionId, message: &Value) -> Result<(), Error> {
        let Some(open) = self.sessions.remove(session) else { return self.send(message).await };
        let sent = self.send_filled(message, Some(&open.bodies)).await;
        self.sessions.insert(session.clone(), open);
        sent
    }

    /// Asks the client about an action.
    async fn ask(&mut self, session: &SessionId, question: AskedQuestion) -> Result<(), Error> {
        if self.asked.len() >= ASKED_MAX
            && let Some(oldest) = self.asked.keys().min().copied()
        {
            self.asked.remove(&oldest);
            self.send(&rpc::notification("$/cancel_request", &json!({ "requestId": oldest }))).await?;
        }
        let (method, mut params) = match &question.ask {
            Ask::Permission(params) => ("session/request_permission", params.clone()),
            Ask::Elicitation(params) => ("elicitation/create", params.clone()),
        };
        params["sessionId"] = session.as_str().into();
        params["_meta"] = json!({ "proscenium": { "runId": question.key.run, "actionId": question.key.id } });
        let id = self.take_number();
        self.asked.insert(id, Asked { session: session.clone(), question });
        let message = rpc::request(id, method, &params);
        self.send_of_session(session, &message).await
    }

    /// Takes a request back: another client has answered it, or it has no answer any longer.
    async fn withdraw(&mut self, session: &SessionId, key: &Key) -> Result<(), Error> {
        self.withdraw_where(|asked| asked.session == *session && asked.question.key == *key).await
    }

    /// Takes all requests of a session back.
    pub(super) async fn withdraw_all(&mut self, session: &SessionId) -> Result<(), Error> {
        self.withdraw_where(|asked| asked.session == *session).await
    }

    async fn withdraw_where(&mut self, is_about: impl Fn(&Asked) -> bool) -> Result<(), Error> {
        let ids: Vec<u64> = self.asked.iter().filter(|(_, asked)| is_about(asked)).map(|(id, _)| *id).collect();
        for id in ids {
            self.asked.remove(&id);
            self.send(&rpc::notification("$/cancel_request", &json!({ "requestId": id }))).await?;
        }
        Ok(())
    }

    /// Answers the prompts whose turns are over.
    pub(super) async fn settle_prompts(&mut self, session: &SessionId) -> Result<(), Error> {
        let Some(open) = self.sessions.get_mut(session) else { return Ok(()) };
        let mut taken: Vec<Box<str>> = open.prompts.iter().filter_map(|prompt| prompt.turn.clone()).collect();
        let (mut answers, mut left) = (Vec::new(), Vec::new());
        for mut prompt in std::mem::take(&mut open.prompts) {
            if prompt.turn.is_none() {
                let named = open.runs.get(prompt.run.as_str()).into_iter();
                let mut free = named.chain(open.runs.values()).filter(|run| !taken.contains(&run.run) && prompt.may_be(run));
                prompt.turn = free.next().map(|run| run.run.clone());
                taken.extend(prompt.turn.clone());
            }
            let run = prompt.turn.as_ref().and_then(|turn| open.runs.get(turn));
            match run.and_then(|run| prompt.answer(run, open.acp.rests(run))) {
                Some(answer) => answers.push((prompt.id, answer)),
                None => left.push(prompt),
            }
        }
        open.prompts = left;
        for (id, answer) in answers {
            self.answer(&id, answer).await?;
        }
        Ok(())
    }

    /// Closes a session that cannot be read any longer, and fails its prompts.
    async fn fail_session(&mut self, session: &SessionId, error: RpcError) -> Result<(), Error> {
        self.withdraw_all(session).await?;
        for prompt in self.close_session(session) {
            self.answer(&prompt.id, Err(error.clone())).await?;
        }
        Ok(())
    }
}
