//! The agents of messages: a producer may name the agent of a message with its first request only.

use proscenium_model::{AgentId, Draft, EventType, MessageId};
use std::collections::{BTreeSet, HashMap};

/// The agent of each message whose producer named one. A message is a subject, so the bound of subjects covers it.
#[derive(Debug, Clone, Default)]
pub struct Speakers {
    agents: HashMap<MessageId, AgentId>,
    /// The messages whose agent changed since the last save.
    changed: BTreeSet<MessageId>,
}

impl Speakers {
    /// Adds a saved entry. `None`: the entry is invalid.
    pub fn restore(&mut self, message: &str, agent: &[u8]) -> Option<()> {
        let agent = AgentId::new(std::str::from_utf8(agent).ok()?).ok()?;
        self.agents.insert(MessageId::new(message).ok()?, agent);
        Some(())
    }

    /// Returns the entries that changed since the last call.
    pub fn take_changed(&mut self) -> impl Iterator<Item = (MessageId, AgentId)> {
        let Self { agents, changed } = self;
        std::mem::take(changed).into_iter().filter_map(|message| {
            let agent = agents.get(&message)?.clone();
            Some((message, agent))
        })
    }

    /// The agent of the draft's message, if the draft names none.
    pub(super) fn find(&self, draft: &Draft) -> Option<&AgentId> {
        let message = draft.ids.message.as_ref().filter(|_| draft.ids.agent.is_none() && streams(draft))?;
        self.agents.get(message)
    }

    /// Remembers the agent that the draft names for its message.
    pub(super) fn note(&mut self, draft: &Draft) {
        let (Some(message), Some(agent)) = (&draft.ids.message, &draft.ids.agent) else { return };
        if streams(draft) && self.agents.get(message) != Some(agent) {
            self.agents.insert(message.clone(), agent.clone());
            self.changed.insert(message.clone());
        }
    }
}

/// Whether the draft is a piece or the end of what an agent says.
const fn streams(draft: &Draft) -> bool {
    use EventType as E;
    matches!(
        draft.event_type,
        E::TextDelta | E::TextFinal | E::ReasoningDelta | E::ReasoningSummary | E::PlanDelta | E::PlanFinal
    )
}
