//! Reading a response as a client of the dialect does.

use crate::cli::innermost;
use proscenium::connect::sse::{SseMessage, SseParser};
use proscenium_conform::{ResumeDialect, StreamEnd, StreamEvent, Transcript};
use reqwest::{Response, StatusCode};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The most bytes of one response, and of one of its events.
const RESPONSE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// What ends the stream of an AI SDK server, after its last chunk.
const DONE: &str = "[DONE]";

/// What was read of a response.
pub struct Reading {
    pub body: Vec<u8>,
    pub transcript: Transcript,
}

/// A response that is being read.
pub struct OpenRead {
    response: Response,
    parser: SseParser,
    dialect: ResumeDialect,
    silence: Duration,
    body: Vec<u8>,
    events: Vec<StreamEvent>,
    end: Option<StreamEnd>,
    /// When its reader last got an event, or began to read again.
    moved_at: Instant,
}

fn events_of(messages: Vec<SseMessage>, dialect: ResumeDialect) -> impl Iterator<Item = StreamEvent> {
    // A client of the AI SDK counts chunks, and does not read ids.
    let id_of = move |id: Option<String>| id.filter(|id| !id.is_empty() && dialect == ResumeDialect::AgUi);
    let event = move |SseMessage { data, id, .. }| StreamEvent { id: id_of(id), data };
    messages.into_iter().filter(|message| message.data != DONE).map(event)
}

/// The events in the first bytes of a response, and the id after which a client resumes that has no more.
pub fn read_prefix(bytes: &[u8], dialect: ResumeDialect) -> (Vec<StreamEvent>, Option<String>) {
    let mut parser = SseParser::new(RESPONSE_BYTES_MAX);
    let events = events_of(parser.push(bytes).unwrap_or_default(), dialect).collect();
    let id = Some(parser.last_id()).filter(|id| !id.is_empty() && dialect == ResumeDialect::AgUi);
    (events, id.map(str::to_owned))
}

impl OpenRead {
    /// Begins to read a response.
    pub fn new(response: Response, dialect: ResumeDialect, silence: Duration) -> Self {
        let status = response.status();
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or("none");
        let end = match status {
            StatusCode::NO_CONTENT => Some(StreamEnd::Complete),
            _ if !status.is_success() => Some(StreamEnd::Failed(format!("the answer is {status}"))),
            _ if !kind.starts_with("text/event-stream") => {
                Some(StreamEnd::Failed(format!("the answer's content type is {kind}, not text/event-stream")))
            }
            _ => None,
        };
        Self {
            response,
            parser: SseParser::new(RESPONSE_BYTES_MAX),
            dialect,
            silence,
            body: Vec::new(),
            events: Vec::new(),
            end,
            moved_at: Instant::now(),
        }
    }

    /// The number of events so far.
    pub const fn event_count(&self) -> usize {
        self.events.len()
    }

    /// Reads until there is an event, or the end.
    pub async fn read_some(&mut self) {
        self.read_events(1).await;
    }

    /// Reads until there are so many events, or the end.
    pub async fn read_events(&mut self, count: usize) {
        self.moved_at = Instant::now();
        while self.end.is_none() && self.events.len() < count {
            self.read().await;
        }
    }

    /// Reads to the end of the response.
    pub async fn read_to_end(mut self) -> Reading {
        self.read_events(usize::MAX).await;
        let end = self.end.unwrap_or(StreamEnd::Complete);
        Reading { body: self.body, transcript: Transcript { events: self.events, end } }
    }

    async fn read(&mut self) {
        let Ok(read) = timeout_at(self.moved_at + self.silence, self.response.chunk()).await else {
            let why = format!("the response has no event for {} s, and does not end", self.silence.as_secs());
            self.end = Some(StreamEnd::Failed(why));
            return;
        };
        match read {
            Ok(Some(bytes)) => self.take(&bytes),
            Ok(None) => self.end = Some(StreamEnd::Complete),
            Err(error) => self.end = Some(StreamEnd::Failed(format!("the response is cut: {}", innermost(&error)))),
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.body.extend_from_slice(bytes);
        let count = self.events.len();
        match self.parser.push(bytes) {
            Ok(messages) => self.events.extend(events_of(messages, self.dialect)),
            Err(error) => self.end = Some(StreamEnd::Failed(error.to_string())),
        }
        if self.events.len() > count {
            self.moved_at = Instant::now();
        }
        if self.body.len() > RESPONSE_BYTES_MAX {
            self.end = Some(StreamEnd::Failed(format!("the response has more than {RESPONSE_BYTES_MAX} bytes")));
        }
    }
}
