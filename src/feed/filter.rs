//! Which frames a reader gets.

use crate::encode::encoded::FrameTag;
use crate::log::row::Row;
use crate::model::{AgentId, Audience, Surface};
use crate::projection::activity_set::Activity;

/// Selects the frames of one reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    pub audience: Audience,
    /// Only envelopes of these surfaces; empty: all.
    pub surfaces: Vec<Surface>,
    /// Only envelopes of these types; empty: all.
    pub types: Names,
    /// Only envelopes of this agent.
    pub agent: Option<AgentId>,
}

/// Distinct names. A reader looks one up for each frame, so they are sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names(Vec<Box<str>>);

impl Names {
    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is one of them.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.0.binary_search_by(|known| (**known).cmp(name)).is_ok()
    }
}

impl From<Vec<Box<str>>> for Names {
    fn from(mut names: Vec<Box<str>>) -> Self {
        names.sort_unstable();
        names.dedup();
        Self(names)
    }
}

impl Filter {
    /// The filter that accepts everything that an audience sees.
    #[must_use]
    pub fn all(audience: Audience) -> Self {
        Self { audience, surfaces: Vec::new(), types: Names::default(), agent: None }
    }

    /// The filter on these frames; `None` if it accepts all of them. An activity has no type.
    pub(super) fn of_frames(&self, frames: Frames) -> Option<&Self> {
        let is_all = self.surfaces.is_empty() && self.agent.is_none() && (frames == Frames::Activities || self.types.is_empty());
        (!is_all).then_some(self)
    }

    /// Whether the filter accepts an activity, by its surface and agent.
    #[must_use]
    pub fn accepts_activity(&self, activity: &Activity) -> bool {
        self.accepts_parts(&activity.surface, activity.agent.as_ref())
    }

    /// The row's text for this filter; `None` if the filter rejects it or the audience may not see it.
    #[must_use]
    pub fn text_of<'r>(&self, row: &'r Row) -> Option<&'r [u8]> {
        let is_accepted = |view: &&[u8]| {
            self.of_frames(Frames::Events)
                .is_none_or(|filter| FrameTag::of_envelope(view).is_some_and(|tag| filter.accepts(&tag)))
        };
        row.view(self.audience).filter(is_accepted)
    }

    /// Whether the filter accepts a frame with this tag.
    pub(super) fn accepts(&self, tag: &FrameTag) -> bool {
        tag.event_type.as_ref().is_none_or(|of| self.types.is_empty() || self.types.contains(of.as_str()))
            && self.accepts_parts(&tag.surface, tag.agent.as_ref())
    }

    /// Whether the filter accepts this surface and agent.
    fn accepts_parts(&self, surface: &Surface, agent: Option<&AgentId>) -> bool {
        (self.surfaces.is_empty() || self.surfaces.contains(surface))
            && self.agent.as_ref().is_none_or(|wanted| agent == Some(wanted))
    }
}

/// The kind of frames of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Frames {
    /// Every envelope, unchanged.
    Events,
    /// The activities that the projection folds from the envelopes.
    Activities,
}

/// The frames that a reader requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRequest {
    pub filter: Filter,
    pub frames: Frames,
    /// Whether activities from the reader's start on come as deltas, not as snapshots.
    pub replay: bool,
}
