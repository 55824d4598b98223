//! The last envelope of each kind that a filter can tell apart, at one sequence of a log.
//!
//! A reader with a filter that resumes needs the last envelope that its filter accepted. A checkpoint of this answers
//! that without the rows before it.

use super::Filter;
use crate::encode::encoded::FrameTag;
use crate::model::{AgentId, EventType, Sequence, Surface};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The most kinds that are remembered: an attacker could give each envelope another type.
const KINDS_MAX: usize = 1024;

/// The last envelopes, by type, surface and agent; empty and over if the log has too many kinds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LastSeen {
    last: HashMap<(EventType, Surface, Option<AgentId>), Sequence>,
    is_over: bool,
}

/// The saved form. Another form needs another kind of checkpoint.
#[derive(Serialize, Deserialize)]
struct SavedKinds {
    is_over: bool,
    kinds: Vec<(EventType, Surface, Option<AgentId>, Sequence)>,
}

impl LastSeen {
    /// Records an envelope.
    pub fn record(&mut self, event_type: &EventType, surface: &Surface, agent: Option<&AgentId>, sequence: Sequence) {
        if self.is_over {
            return;
        }
        self.last.insert((event_type.clone(), surface.clone(), agent.cloned()), sequence);
        if self.last.len() > KINDS_MAX {
            *self = Self { last: HashMap::new(), is_over: true };
        }
    }

    /// The last envelope that the filter accepts; `None` if it is not known.
    pub fn last_accepted(&self, filter: &Filter) -> Option<Sequence> {
        let accepted = self.last.iter().filter(|((event_type, surface, agent), _)| {
            filter.accepts(&FrameTag { event_type: Some(event_type.clone()), surface: surface.clone(), agent: agent.clone() })
        });
        (!self.is_over).then(|| accepted.map(|(_, sequence)| *sequence).max().unwrap_or_default())
    }

    /// Serialises it. Equal ones give equal bytes.
    pub fn save(&self) -> Vec<u8> {
        let mut kinds: Vec<_> = self
            .last
            .iter()
            .map(|((event_type, surface, agent), at)| (event_type.clone(), surface.clone(), agent.clone(), *at))
            .collect();
        kinds.sort_unstable_by_key(|(.., at)| *at);
        serde_json::to_vec(&SavedKinds { is_over: self.is_over, kinds }).expect("plain data serializes")
    }

    /// Restores what was saved.
    ///
    /// # Errors
    /// If the bytes are something else.
    pub fn restore(saved: &[u8]) -> serde_json::Result<Self> {
        let SavedKinds { is_over, kinds } = serde_json::from_slice(saved)?;
        let last = kinds.into_iter().map(|(event_type, surface, agent, at)| ((event_type, surface, agent), at)).collect();
        Ok(Self { last, is_over })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Audience;

    fn filter(types: &[&str], surfaces: &[&str], agent: Option<&str>) -> Filter {
        let types: Vec<_> = types.iter().map(|name| (*name).into()).collect();
        let (surfaces, agent) = (surfaces.iter().map(|name| (*name).into()).collect(), agent.map(|id| AgentId::new(id).unwrap()));
        Filter { audience: Audience::User, surfaces, types: types.into(), agent }
    }

    #[test]
    fn each_filter_finds_its_last_envelope_also_after_a_restore() {
        let mut seen = LastSeen::default();
        let agent = AgentId::new("a").unwrap();
        let envelopes = [("text.delta", "conversation", None), ("tool.started", "action_tray", Some(&agent)), ("x", "y", None)];
        for (at, (event_type, surface, agent)) in (1..).zip(envelopes.iter().cycle().take(6)) {
            seen.record(&(*event_type).into(), &(*surface).into(), *agent, Sequence(at));
        }
        let again = LastSeen::restore(&seen.save()).unwrap();
        assert_eq!((&again, again.save()), (&seen, seen.save()));
        for (filter, last) in [
            (filter(&[], &[], None), 6),
            (filter(&["text.delta", "x"], &["conversation"], None), 4),
            (filter(&[], &[], Some("a")), 5),
            (filter(&["x"], &[], Some("a")), 0),
        ] {
            assert_eq!(again.last_accepted(&filter), Some(Sequence(last)), "{filter:?}");
        }
    }

    #[test]
    fn a_log_with_too_many_kinds_has_none_that_is_known() {
        let mut seen = LastSeen::default();
        for at in 1..=KINDS_MAX as u64 + 2 {
            seen.record(&at.to_string().as_str().into(), &"s".into(), None, Sequence(at));
        }
        assert_eq!((seen.last_accepted(&filter(&[], &[], None)), seen.last.len()), (None, 0));
        assert_eq!(LastSeen::restore(&seen.save()).unwrap(), seen);
    }
}
