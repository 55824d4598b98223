//! What a connector remembers of a run: ids and other values that its agent gave, for later calls.
//!
//! One state entry of the run's log per agent and protocol. An entry is no envelope, so no fact writes it and no reader
//! sees it: only a connector's own deliveries carry one. A later call sends these values to the agent, with the server's
//! credentials or on a command line.

use super::{LogId, StoreError};
use crate::model::AgentId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The prefix of an entry's state key; protocol and agent follow.
pub const AGENT_MEMORY_KEY_PREFIX: &str = "n:";

/// Values of an agent, by the names that its protocol gives them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    /// Values of this run.
    #[serde(default)]
    pub run: Map<String, Value>,
    /// Values that later runs of the session need, too.
    #[serde(default)]
    pub session: Map<String, Value>,
}

/// What one agent gave in one run, by one protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentMemory {
    pub agent: AgentId,
    pub protocol: String,
    pub values: Remembered,
}

impl AgentMemory {
    /// The key of its state entry.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{AGENT_MEMORY_KEY_PREFIX}{}:{}", self.protocol, self.agent)
    }

    /// Whether it is of this agent and protocol.
    #[must_use]
    pub fn is_of(&self, agent: &AgentId, protocol: &str) -> bool {
        self.agent == *agent && self.protocol == protocol
    }

    /// Reads the memory from a log's state entry.
    ///
    /// # Errors
    /// `Unreadable` for bytes that are no memory.
    pub fn read(log: &LogId, entry: &[u8], saved: &[u8]) -> Result<Self, StoreError> {
        serde_json::from_slice(saved).map_err(|error| StoreError::unreadable(log, entry, &error))
    }
}

/// The memory that a connector's delivery stores with its facts.
#[derive(Debug, Clone)]
pub enum MemoryWrite {
    /// The turn begins its run. The delivery is refused if the log has anything already.
    First(AgentMemory),
    Later(AgentMemory),
}

impl MemoryWrite {
    /// The memory.
    #[must_use]
    pub const fn memory(&self) -> &AgentMemory {
        match self {
            Self::First(memory) | Self::Later(memory) => memory,
        }
    }
}
