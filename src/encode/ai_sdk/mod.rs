//! The AI SDK dialect: the UI message stream of the Vercel AI SDK.

use super::frames::{Frame, Shown};
use super::{Dialect, Flow, Until};
use serde_json::Value;

/// What a stream is to be.
#[derive(Debug, Clone)]
pub struct Options {
    /// The id of the assistant's message: the same at every replay.
    pub message: String,
    /// The client's major version: 5, 6 or 7.
    pub version: u8,
    pub until: Until,
}

/// One run as one assistant's message.
pub struct AiSdk {
    options: Options,
}

impl AiSdk {
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options }
    }
}

impl Dialect for AiSdk {
    fn recall(&mut self, _: Vec<Shown>) {}

    fn resume(&mut self, _: Vec<Shown>) {}

    fn frame(&mut self, _: Frame, _: &mut Vec<Value>) -> Flow {
        match self.options.until {
            Until::Pause | Until::End => Flow::On,
        }
    }

    fn farewell(&self) -> Option<&'static str> {
        Some("[DONE]")
    }
}

/// The UI messages that a run's activities come to; `run` is the id of the assistant's message.
#[must_use]
pub fn messages(_: &[Shown], _run: &str, _version: u8) -> Vec<Value> {
    Vec::new()
}
