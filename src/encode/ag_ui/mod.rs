//! The AG-UI dialect: native frames of one run, as an AG-UI client is told them.

use super::frames::{Frame, Shown};
use super::{Begin, Dialect, Flow, Until};
use serde_json::Value;

/// How one client is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// What the client calls the conversation.
    pub thread: String,
    /// What the client calls the run.
    pub run: String,
    pub begin: Begin,
    pub until: Until,
    /// Whether the client speaks 1.0 (`protocolVersion`), which knows an outcome and a list that older ones refuse.
    pub is_v1: bool,
    /// Whether the client may be told of sub-agents.
    pub subagents: bool,
    /// What the client sent: what it has already, and what is kept where the log does not know it.
    pub messages: Vec<Value>,
}

/// One client's telling.
pub struct AgUi {
    options: Options,
}

impl AgUi {
    /// The telling before anything was told.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options }
    }
}

impl Dialect for AgUi {
    fn recall(&mut self, _earlier: Vec<Shown>) {}

    fn resume(&mut self, _known: Vec<Shown>) {}

    fn frame(&mut self, _frame: Frame, _events: &mut Vec<Value>) -> Flow {
        let _ = &self.options;
        Flow::On
    }
}

/// The AG-UI messages that activities come to, in order.
#[must_use]
pub fn messages(_shown: &[Shown], _is_v1: bool) -> Vec<Value> {
    Vec::new()
}

/// What the run waits for, as `RUN_FINISHED` says it.
#[must_use]
pub fn interrupts(_shown: &[Shown]) -> Vec<Value> {
    Vec::new()
}

/// The application's state, if there is any.
#[must_use]
pub fn state(_shown: &[Shown]) -> Option<Value> {
    None
}
