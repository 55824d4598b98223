//! The source `a2a`: task events of the Agent2Agent protocol, 1.0 and 0.3, by JSON-RPC or REST.
//!
//! A fact is the JSON of one SSE `data:` line. It has no type: the object inside is a task, a message, a status or an
//! artifact. Each task of a stream is an attempt of the run.
//!
//! * A pausing state ends the stream, not the task: the next update of the task resumes the run.
//! * The text of an artifact is the answer. The message of a status is a line of progress, except for a question.
//! * An artifact without `append` replaces the one before it. The end of the task seals what is open.
//! * A task that comes again is a snapshot: its artifacts repair the known ones.
//! * The history and the metadata of a task are internal. Queries of URLs may hold credentials: they are internal, too.
//! * The adapter never rejects an unknown event or member, and its memory never holds a body.
//!
//! | module | contents |
//! | --- | --- |
//! | `event` | the forms of a fact, and the parser |
//! | `task` | tasks, their states, pauses and ends |
//! | `artifact` | artifacts and messages |

mod artifact;
mod event;
mod task;

use super::bounded::Bounded;
use super::turn::TurnState;
use super::{Drafts, Fact, Parser, Runtime, SourceKind};
use artifact::Artifact;
use event::{Event, Kind, Known};
use proscenium_model::{ActionId, Draft, EventType, Ids, ThreadId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use task::State;

/// The source `a2a`.
pub const SOURCE: SourceKind = SourceKind::of::<A2a>("a2a");

/// The state of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct A2a {
    turn_state: TurnState,
    /// The number of started tasks.
    attempt: u64,
    /// The server's id of the task.
    task: Option<String>,
    /// The last reported state of the task.
    state: Option<State>,
    /// The task's context.
    thread: Option<ThreadId>,
    /// The pending question, and the number of questions so far.
    question: Option<ActionId>,
    questions: u64,
    /// Whether the task has streamed text.
    has_text: bool,
    artifacts: Bounded<Artifact, { artifact::ARTIFACTS_MAX }>,
    messages_made: u64,
    artifacts_made: u64,
}

impl Runtime for A2a {
    type Event = Event;
    const PARSE: Parser<Event> = event::parse;

    fn apply(&mut self, event: Event, given: &Ids, out: Drafts<'_>) {
        let from = out.len();
        let mut handler = EventHandler { memory: self, given, out };
        let timestamp = match event {
            Ok(known) => handler.event(*known),
            Err(draft) => {
                handler.push(*draft);
                None
            }
        };
        handler.out.set_time(from, timestamp.as_deref());
    }
}

/// Handles one event: borrows the memory and appends the drafts.
struct EventHandler<'a> {
    memory: &'a mut A2a,
    given: &'a Ids,
    out: Drafts<'a>,
}

impl EventHandler<'_> {
    fn push(&mut self, mut draft: Draft) {
        draft.ids.fill_from(self.given);
        draft.ids.fill_from(&Ids { thread: self.memory.thread.clone(), ..Ids::default() });
        self.out.push(draft);
    }

    /// Appends a draft for internal readers, unless it is empty.
    fn push_internal(&mut self, kind: &str, rest: Fact) {
        if !rest.is_empty() {
            let draft = Draft::new(EventType::DiagnosticChanged).with("kind", kind).with("event", Value::Object(rest));
            self.push(draft);
        }
    }

    /// Handles an event and returns its time.
    fn event(&mut self, Known { kind, members: fact, envelope, timestamp }: Known) -> Option<Box<str>> {
        match kind {
            Kind::Task => self.task(fact),
            Kind::Status => self.status_update(fact),
            Kind::Artifact => self.artifact_update(fact),
            Kind::Message => self.lone_message(fact),
            Kind::Error => self.error(fact),
        }
        self.push_internal("envelope", envelope);
        timestamp
    }
}

#[cfg(test)]
mod tests;
