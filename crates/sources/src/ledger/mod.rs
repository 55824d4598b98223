//! The ledger of one log: its subjects, their start audiences and seals, and the run's status.
//!
//! Every draft of every source passes through the ledger once, in order, before the guard. The ledger stamps the inputs
//! of the audience rule (`startAudience`, and for an action the audience of its call). It replaces a chunk for a sealed
//! stream with a diagnostic, and it tracks the run's state. The ledger is a pure function of the drafts, and the commit
//! of the drafts stores it. A restart, a replay and an import therefore produce the same ledger. The ledger never
//! changes a body and never invents a fact.

mod calls;
mod pending_set;
mod run;
mod shared_set;
mod speakers;
mod subject;

#[cfg(test)]
mod tests;

pub use calls::CallProgress;
pub use pending_set::PendingSet;
pub use run::{RunState, Status};
pub use shared_set::SharedSet;
pub use speakers::Speakers;

use proscenium_model::audience::Audience;
use proscenium_model::fact::{CallFact, Family, MessagesFact};
use proscenium_model::{AgentId, Draft, Envelope, EventType, Ids, MemberRef, Payload, ToolCallId};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use subject::{ActivityChange, Subject, SubjectKind, SubjectState, change_of, subject_of};

/// What the log could not take as the producer sent it, as the response to the producer names it.
///
/// The server logs a chunk that arrived after its stream was sealed as `diagnostic.changed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Violation {
    /// The index of the fact in the request body, from 0.
    pub index: u64,
    /// `write_after_seal`; or `unreadable_deadline`, `unreadable_approvals` or `unreadable_on_expiry` for a member of an action
    /// that cannot be read and counts as not stated; or `unreadable_surface` for an A2UI message, beside which the others count.
    pub code: &'static str,
    /// The event type of the fact.
    pub event_type: String,
    /// The sealed subject or the action, as `kind:id`; or the place of the message, as `a2ui_operations:n`.
    pub thing: String,
}

/// The ledger of one log.
///
/// It is the log's account of its calls, messages, parts and actions. `IngestLimits::subjects_max` bounds it.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// The subjects of each kind, in the order of [`SubjectKind`].
    subjects: [HashMap<Box<str>, SubjectState>; SubjectKind::ALL.len()],
    /// Keys of subjects that changed since the last save.
    changed: BTreeSet<Box<str>>,
    /// How the run stands.
    pub run: RunState,
    /// Who wrote which message.
    pub speakers: Speakers,
    /// The id of the subject at hand, to allocate none for each draft.
    buffer: String,
}

impl Ledger {
    /// Restores a saved ledger: the run's state, the speakers, and one byte per subject.
    pub fn restore<'a>(run: RunState, speakers: Speakers, subjects: impl Iterator<Item = (&'a str, u8)>) -> Self {
        let mut ledger = Self { run, speakers, ..Self::default() };
        for (key, byte) in subjects {
            if let (Some(subject), Some(state)) = (Subject::of_key(key), SubjectState::from_byte(byte)) {
                ledger.subjects[subject.kind as usize].insert(subject.id.into(), state);
            }
        }
        ledger
    }

    /// Returns the number of subjects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.subjects.iter().map(HashMap::len).sum()
    }

    /// Whether the ledger has no subjects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether these are the key and the byte of a saved subject.
    #[must_use]
    pub fn can_restore(key: &str, byte: u8) -> bool {
        Subject::of_key(key).is_some() && SubjectState::from_byte(byte).is_some()
    }

    /// Returns the subjects that changed since the last call, with the byte to save for each.
    pub fn take_changed(&mut self) -> Vec<(Box<str>, u8)> {
        let changed = std::mem::take(&mut self.changed);
        let byte = |key: &str| Some(self.get(Subject::of_key(key)?)?.to_byte());
        changed.into_iter().filter_map(|key| byte(&key).map(|byte| (key, byte))).collect()
    }

    /// Adds the agent that an earlier draft named for the same message, if this draft names none.
    ///
    /// `names_speakers` tells whether the draft's agent is the producer's own word, and not a child that a source found.
    pub fn add_speaker(&mut self, draft: &mut Draft, names_speakers: bool) {
        if names_speakers {
            self.speakers.note(draft);
        }
        let Some(agent) = self.speakers.find(draft).cloned() else { return };
        let mut buffer = std::mem::take(&mut self.buffer);
        let message = subject_of(draft, &mut buffer).map(|subject| subject.message().unwrap_or(subject));
        // The same id without an agent is another message.
        if message.is_none_or(|message| self.get(message).is_none()) {
            draft.ids.agent = Some(agent);
        }
        self.buffer = buffer;
    }

    fn get(&self, subject: Subject<'_>) -> Option<SubjectState> {
        self.subjects[subject.kind as usize].get(subject.id).copied()
    }

    /// Stores the state of a subject. `before` is the one that it has.
    fn store(&mut self, subject: Subject<'_>, before: Option<SubjectState>, state: SubjectState) {
        if before == Some(state) {
            return;
        }
        match self.subjects[subject.kind as usize].get_mut(subject.id) {
            Some(known) => *known = state,
            None => drop(self.subjects[subject.kind as usize].insert(subject.id.into(), state)),
        }
        self.changed.insert(subject.to_key());
    }

    /// Records a draft: stamps it and updates the run's state.
    ///
    /// Returns a [`Violation`], and replaces the draft with a diagnostic, if the draft's stream is already sealed.
    pub fn record(&mut self, draft: &mut Draft, index: u64) -> Option<Violation> {
        self.name_call(draft);
        let mut buffer = std::mem::take(&mut self.buffer);
        let violation = self.record_subject(draft, subject_of(draft, &mut buffer), index);
        self.buffer = buffer;
        if violation.is_none() {
            self.run.apply(&draft.event_type, &draft.phase, draft.ids.action.as_ref(), &draft.payload);
        }
        violation
    }

    fn record_subject(&mut self, draft: &mut Draft, subject: Option<Subject<'_>>, index: u64) -> Option<Violation> {
        let known = subject.and_then(|subject| self.get(subject));
        if let Some(late) =
            subject.filter(|subject| is_chunk(&draft.event_type) && !draft.reopens && self.is_sealed(*subject, known, draft))
        {
            let violation = Violation {
                index,
                code: "write_after_seal",
                event_type: draft.event_type.as_str().into(),
                thing: late.to_key().into(),
            };
            *draft = rejected(draft, &violation);
            return Some(violation);
        }
        let mut changed = String::new();
        let change = change_of(draft, &mut changed);
        let is_known = change.is_some_and(|(subject, _)| self.get(subject).is_some());
        self.stamp(draft, subject, known);
        let call = subject.filter(|subject| subject.kind == SubjectKind::Tool);
        if let Some(before) = known.filter(|_| call.is_some() && draft.event_type == EventType::ToolOutputDelta) {
            // In logs of releases up to 0.2.0, a call has restarted, and these readers missed it.
            draft.missed_by = before.missed;
        }
        // A snapshot with `replace: false` only reaches readers that have no state yet.
        if let Some((subject, change)) = change.filter(|_| !(is_known && draft.member("replace") == Some(MemberRef::Flag(false))))
        {
            self.track_change(draft, subject, change);
        }
        if let (Some(subject), Some(missed)) = (subject, draft.missed_by) {
            self.narrow_unstarted(draft, subject, missed, known.filter(|_| call.is_some()));
        }
        None
    }

    fn is_sealed(&self, subject: Subject<'_>, known: Option<SubjectState>, draft: &Draft) -> bool {
        if let Some(state) = known.filter(|state| state.sealed || draft.ids.part.is_none()) {
            return state.sealed;
        }
        // The end of the whole message ends every part. For readers that saw neither the message nor its end, a new
        // part starts the message.
        let start = known.map_or_else(|| first_audience(draft).max(self.agent_of(draft)), |part| part.start);
        let whole = subject.message().and_then(|message| self.get(message));
        whole.is_some_and(|whole| whole.sealed && whole.start <= start)
    }

    /// Returns the audience of the draft's agent; `User` if no event set another.
    fn agent_of(&self, draft: &Draft) -> Audience {
        self.agent_audience(draft.ids.agent.as_ref())
    }

    fn agent_audience(&self, agent: Option<&AgentId>) -> Audience {
        let agent = agent.and_then(|id| self.get(Subject::new(SubjectKind::Agent, id.as_str())));
        agent.map_or(Audience::User, |agent| agent.start)
    }

    /// Returns the audience of an operation on these ids.
    ///
    /// It is the narrower of two audiences: that of the action (else of the call), and that of the agent.
    #[must_use]
    pub fn audience_about(&self, ids: &Ids) -> Audience {
        let action = ids.action.as_ref().map(|id| Subject::new(SubjectKind::Action, id.as_str()));
        let target = action.or_else(|| ids.tool_call.as_ref().map(call));
        let target = target.and_then(|target| self.get(target)).map_or(Audience::User, |state| state.start);
        target.max(self.agent_audience(ids.agent.as_ref()))
    }

    /// Returns the audience of a call. `None`: the call is unknown in this log.
    #[must_use]
    pub fn call_audience(&self, id: &ToolCallId) -> Option<Audience> {
        self.get(call(id)).map(|state| state.start)
    }

    /// Whether an event of this log announced the agent: then it is a teammate, not the run's own agent.
    #[must_use]
    pub fn knows_agent(&self, agent: &AgentId) -> bool {
        self.get(Subject::new(SubjectKind::Agent, agent.as_str())).is_some()
    }

    fn stamp(&mut self, draft: &mut Draft, subject: Option<Subject<'_>>, known: Option<SubjectState>) {
        let agent = self.agent_of(draft);
        draft.call_audience = match draft.event_type {
            EventType::ActionRequired | EventType::ActionResolved | EventType::ControlChanged => {
                let call = draft.ids.tool_call.as_ref().and_then(|id| self.get(call(id)));
                call.filter(|call| !call.unstarted).map(|call| call.start)
            }
            _ => None,
        };
        let Some(subject) = subject else {
            // Readers that see the target of a control see the control's progress, and those of an action its reminders.
            let about = match draft.event_type {
                EventType::ControlChanged | EventType::ActionReminded | EventType::ActionEscalated => {
                    self.audience_about(&draft.ids)
                }
                _ => agent,
            };
            // Every event of a hidden agent is hidden, even an event without a subject.
            draft.start_audience = Some(about).filter(|a| *a != Audience::User && !draft.event_type.is_run_boundary());
            return;
        };
        let is_agent = subject.kind == SubjectKind::Agent;
        let own = if is_agent { draft.audience } else { first_audience(draft).max(agent) };
        // The subject's first envelope fixes its audience. For a call, this is the start: earlier envelopes start
        // nothing.
        let unstarted = subject.kind == SubjectKind::Tool
            && draft.event_type != EventType::ToolStarted
            && known.is_none_or(|subject| subject.unstarted);
        let first = match known {
            Some(subject) if !subject.unstarted => subject.start,
            Some(subject) if unstarted => subject.start.min(own),
            _ => own,
        };
        let ends = draft.event_type.is_end() && !is_agent;
        if unstarted_end(draft, known).is_some_and(|end| end > own)
            && let Some(call) = draft.payload.fact_mut::<CallFact>()
        {
            call.end_withheld = Some(true);
        }
        draft.start_audience = Some(match known.filter(|subject| !subject.unstarted) {
            // Readers that saw the start see the end. The body is withheld if it is a hidden agent's or covers a hidden
            // part.
            Some(subject) if ends => {
                draft.audience = draft.audience.max(agent).max(subject.narrowest);
                first
            }
            // A hidden agent that changes a visible subject hides only its own envelopes.
            _ if !is_agent => first.max(agent),
            _ => first,
        });
        let sealed = ends || known.is_some_and(|subject| subject.sealed);
        let state = match known {
            Some(state) if !state.unstarted => state,
            state => SubjectState { missed: state.and_then(|state| state.missed), unstarted, ..SubjectState::new(first) },
        };
        self.store(subject, known, SubjectState { start: first, sealed, ..state });
        if let Some(message) = subject.message() {
            let known = self.get(message);
            let whole = known.unwrap_or(SubjectState::new(first));
            let sealed = whole.sealed && whole.start <= first;
            let (start, narrowest) = (whole.start.min(first), whole.narrowest.max(first));
            self.store(message, known, SubjectState { start, narrowest, sealed, ..whole });
        }
    }

    /// Tracks which audience missed a change of an activity or the state.
    ///
    /// A reader that missed a change cannot apply later patches. A snapshot that the reader sees repairs this.
    fn track_change(&mut self, draft: &mut Draft, subject: Subject<'_>, change: ActivityChange) {
        let known = self.get(subject);
        let state = known.unwrap_or(SubjectState::new(Audience::User));
        let missed = match change {
            ActivityChange::Snapshot => hidden_from(draft),
            ActivityChange::Patch => {
                draft.missed_by = state.missed;
                state.missed.max(hidden_from(draft))
            }
        };
        self.store(subject, known, SubjectState { missed, ..state });
    }

    /// Narrows the audience of a call that has not started to the readers that saw this draft.
    fn narrow_unstarted(&mut self, draft: &Draft, subject: Subject<'_>, missed: Audience, before: Option<SubjectState>) {
        let Some(state) = self.get(subject).filter(|state| state.unstarted) else { return };
        let seen_by = draft.audience.max(self.agent_of(draft)).max(narrower(missed));
        let start = before.filter(|before| before.unstarted).map_or(seen_by, |before| before.start.min(seen_by));
        self.store(subject, Some(state), SubjectState { start, narrowest: start, ..state });
    }

    fn hides(&self, kind: SubjectKind, id: &str, reader: Audience) -> bool {
        self.get(Subject::new(kind, id)).is_some_and(|state| !state.unstarted && !reader.admits(state.start))
    }

    fn hides_agent(&self, id: Option<&Value>, reader: Audience) -> bool {
        id.and_then(Value::as_str).is_some_and(|id| self.hides(SubjectKind::Agent, id, reader))
    }

    /// Whether a call under this id is hidden. A snapshot does not tell which one it means.
    fn hides_call(&self, id: Option<&Value>, reader: Audience) -> bool {
        let Some(id) = id.and_then(Value::as_str).and_then(|id| ToolCallId::new(id).ok()) else { return false };
        let newest = self.newest_call(&id);
        [&id, &newest].into_iter().any(|id| self.hides(SubjectKind::Tool, id.as_str(), reader))
    }

    /// Whether the log has a subject that this reader cannot see.
    #[must_use]
    pub fn hides_from(&self, reader: Audience) -> bool {
        self.subjects.iter().flat_map(HashMap::values).any(|state| !reader.admits(state.narrowest))
    }

    /// Filters a `messages.snapshot` for `reader`.
    /// `None`: the reader sees the whole snapshot.
    ///
    /// The filter removes messages of hidden agents, and hidden parts and calls.
    #[must_use]
    pub fn messages_for<'d>(&self, envelope: &Envelope<'d>, reader: Audience) -> Option<Envelope<'d>> {
        if envelope.draft.event_type != EventType::MessagesSnapshot {
            return None;
        }
        let messages = envelope.draft.payload.as_fact::<MessagesFact>()?.messages.as_deref()?.as_array()?;
        let call = |of: &Value| self.hides_call(of.get("toolCallId").or_else(|| of.get("tool_call_id")), reader);
        let mut gone = false;
        let kept = messages
            .iter()
            .filter(|m| !(self.hides_agent(m.get("agentId"), reader) || call(m)))
            .map(|message| {
                let mut message = message.clone();
                for (member, by) in [("parts", None), ("toolCalls", Some("id")), ("tool_calls", Some("id"))] {
                    let Some(list) = message.get_mut(member).and_then(Value::as_array_mut) else { continue };
                    let before = list.len();
                    list.retain(|of| !(call(of) || by.is_some_and(|id| self.hides_call(of.get(id), reader))));
                    gone |= list.len() != before;
                }
                message
            })
            .collect::<Vec<_>>();
        if !gone && kept.len() == messages.len() {
            return None;
        }
        let mut filtered = envelope.clone();
        filtered.draft.to_mut().payload.insert("messages", Value::Array(kept));
        Some(filtered)
    }
}

fn call(id: &ToolCallId) -> Subject<'_> {
    Subject::new(SubjectKind::Tool, id.as_str())
}

/// Returns the next narrower audience.
const fn narrower(audience: Audience) -> Audience {
    match audience {
        Audience::User => Audience::Dashboard,
        Audience::Dashboard | Audience::Internal => Audience::Internal,
    }
}

/// Returns the narrowest audience that does not receive this draft, for a draft that ends no subject.
fn hidden_from(draft: &Draft) -> Option<Audience> {
    match draft.start_audience.map_or(draft.audience, |start| start.max(draft.audience)) {
        Audience::User => None,
        Audience::Dashboard => Some(Audience::User),
        Audience::Internal => Some(Audience::Dashboard),
    }
}

/// Returns the audience of a subject that starts with this draft.
///
/// A failure without a start is for users. A failure nested in another call keeps its own audience, because an inner
/// failure is data for the script that made the call.
fn first_audience(draft: &Draft) -> Audience {
    if draft.event_type == EventType::ToolFailed && !is_nested(draft) { Audience::User } else { draft.audience }
}

/// Returns the audience of the end that came before this start of a call.
fn unstarted_end(draft: &Draft, known: Option<SubjectState>) -> Option<Audience> {
    let end = known.filter(|call| call.unstarted && call.sealed && draft.event_type == EventType::ToolStarted)?;
    Some(end.start)
}

fn is_nested(draft: &Draft) -> bool {
    let names_parent = |refs: &Value| refs.get("parentToolCallId").is_some_and(|v| !v.is_null());
    draft.refs.as_ref().is_some_and(names_parent) || draft.member("parentToolCallId").is_some_and(|parent| !parent.is_null())
}

const fn is_chunk(class: &EventType) -> bool {
    matches!(class, EventType::TextDelta | EventType::ReasoningDelta | EventType::PlanDelta | EventType::ToolOutputDelta)
}

/// Builds the internal diagnostic that replaces a late chunk. It keeps the whole payload.
fn rejected(draft: &Draft, violation: &Violation) -> Draft {
    let mut diagnostic = Draft::new(EventType::DiagnosticChanged);
    diagnostic.ids.clone_from(&draft.ids);
    diagnostic.timestamp.clone_from(&draft.timestamp);
    diagnostic.source_sequence = draft.source_sequence;
    let payload = json!({
        "kind": violation.code, "thing": violation.thing, "eventType": violation.event_type, "event": draft.payload,
    });
    diagnostic.payload = Payload::of_value(Family::Open, payload);
    diagnostic
}
