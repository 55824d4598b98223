//! What a run comes to in a client of the AI SDK, whoever it is, from wherever it reads.

#[path = "reader.rs"]
mod reader;

mod laws;
mod stories;

use super::*;
use crate::encode::frames;
use crate::encode::native::{Encoder, end_of_frame};
use crate::log::LogId;
use crate::model::{Audience, Epoch, EventType, RunId, Sequence};
use crate::projection::View;
use bytes::Bytes;
use reader::{Reader, seen};

/// A log of envelopes, and what its readers are told.
struct Log {
    encoder: Encoder,
    /// As of each envelope; the first is the empty one.
    views: Vec<View>,
    /// The frames of each envelope; none of the first.
    frames: Vec<Vec<u8>>,
}

impl Log {
    fn new() -> Self {
        let id = LogId::Run(RunId::new("r").unwrap());
        Self { encoder: Encoder::new(&id), views: vec![View::new(&id, Audience::User)], frames: vec![Vec::new()] }
    }

    fn of(facts: &[(&str, Value)]) -> Self {
        let mut log = Self::new();
        for (class, members) in facts {
            log.add(class, members);
        }
        log
    }

    fn add(&mut self, class: &str, members: &Value) -> &mut Self {
        let defaults = EventType::from(class).defaults();
        let mut envelope = json!({ "type": class, "phase": defaults.phase.as_str(), "surface": defaults.surface });
        envelope.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let mut view = self.views.last().unwrap().clone();
        let sequence = view.through.next();
        let folded = view.fold(sequence, Some(envelope.to_string().as_bytes()));
        let mut out = Vec::new();
        for touch in &folded.touched {
            self.encoder.touched(&mut out, sequence, folded.prev, view.touched(touch), touch);
            end_of_frame(&mut out, None);
        }
        self.frames.push(out);
        self.views.push(view);
        self
    }

    fn last(&self) -> usize {
        self.views.len() - 1
    }

    fn shown(&self, at: usize) -> Vec<Shown> {
        self.views[at].activities().iter().map(Shown::from).collect()
    }

    /// What brings a reader of `known` to `at`.
    fn hydration(&self, known: usize, at: usize) -> Vec<u8> {
        let after = self.views[known].through;
        let mut out = Vec::new();
        for activity in self.views[at].activities().iter().filter(|activity| activity.sequence > after) {
            self.encoder.snapshot(&mut out, activity.sequence, None, activity);
            end_of_frame(&mut out, None);
        }
        out.extend(self.encoder.hydrated(self.views[at].framed, None));
        out
    }

    fn end(&self) -> Option<Vec<u8>> {
        let run = self.shown(self.last()).into_iter().rfind(|shown| &*shown.kind == "run")?;
        let status = run.text("status").filter(|status| ["completed", "failed", "cancelled", "interrupted"].contains(status))?;
        Some(self.encoder.end(Epoch::from_random(1), Sequence(1), status))
    }
}

/// A dialect's reader on its way through a log.
struct Stream<'l> {
    log: &'l Log,
    dialect: AiSdk,
    at: usize,
    chunks: Vec<Value>,
    is_over: bool,
}

impl<'l> Stream<'l> {
    fn open(log: &'l Log, version: u8, until: Until) -> Self {
        let dialect = AiSdk::new(Options { message: "r".into(), version, until });
        Self { log, dialect, at: 0, chunks: Vec::new(), is_over: false }
    }

    /// One that joins at this envelope.
    fn joined(log: &'l Log, version: u8, until: Until, at: usize) -> Self {
        let mut stream = Self::open(log, version, until);
        stream.at = at;
        stream.hear(&log.hydration(0, at));
        stream
    }

    /// One that comes back, and knows what was shown at `known`.
    fn resumed(log: &'l Log, version: u8, until: Until, known: usize, at: usize) -> Self {
        let mut stream = Self::open(log, version, until);
        stream.dialect.resume(log.shown(known));
        stream.at = at;
        stream.hear(&log.hydration(known, at));
        stream
    }

    fn hear(&mut self, bytes: &[u8]) {
        let mut bytes = Bytes::copy_from_slice(bytes);
        while let Some((frame, _)) = frames::next(&mut bytes).filter(|_| !self.is_over) {
            match self.dialect.frame(frame, &mut self.chunks) {
                Flow::On => {}
                Flow::Over => self.is_over = true,
                Flow::Again => return self.hear(&self.log.hydration(0, self.at)),
            }
        }
    }

    /// Reads on, envelope by envelope.
    fn follow(&mut self, to: usize) -> &mut Self {
        while self.at < to && !self.is_over {
            self.at += 1;
            self.hear(&self.log.frames[self.at]);
            if !self.is_over {
                match self.dialect.settle(&mut self.chunks) {
                    Flow::On => {}
                    Flow::Over => self.is_over = true,
                    Flow::Again => self.hear(&self.log.hydration(0, self.at)),
                }
            }
        }
        self
    }

    /// Is brought to an envelope in one step, for it was slow.
    fn jump(&mut self, to: usize) -> &mut Self {
        let known = std::mem::replace(&mut self.at, to);
        self.hear(&self.log.hydration(known, to));
        self
    }

    /// Reads to the end.
    fn rest(mut self) -> Vec<Value> {
        self.follow(self.log.last());
        while let Some(end) = self.log.end().filter(|_| !self.is_over) {
            self.hear(&end);
        }
        self.chunks
    }
}

/// The assistant's message, as those have it who load it.
fn loaded(log: &Log, version: u8) -> Value {
    let messages = messages(&log.shown(log.last()), "r", version);
    let own = messages.into_iter().find(|message| message["role"] == "assistant");
    own.unwrap_or_else(|| json!({ "id": "r", "role": "assistant", "parts": [{ "type": "step-start" }] }))
}

/// What matters of a message: its parts, and what is known of the run where it is in the message at all.
fn parts(message: &Value, version: u8) -> Value {
    seen(message, version)["parts"].clone()
}
