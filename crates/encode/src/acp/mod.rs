//! The ACP dialect: the activities of a session as `session/update`s of the Agent Client Protocol, version 1.
//!
//! ```text
//! message    user_message_chunk · agent_message_chunk     a chunk for each growth of a text, by `messageId`
//! reasoning  agent_thought_chunk
//! tool call  tool_call, then tool_call_update             the members that changed; the content as a whole
//! plan       plan                                         the whole list, each time
//! session    available_commands_update · session_info_update · config_option_update
//! permission current_mode_update
//! action     session/request_permission · elicitation/create   where this client can be asked
//! ```
//! **One session, many runs.** Unlike the other dialects, this one reads the frames of all logs of a session. Each text
//! of a run is known by what the client has of it. So a snapshot and the deltas that it stands for lead to the same
//! updates: a load, a resume and a slow reader need no cases of their own.
//!
//! **Positions.** Every update has a [`Position`]: the cursor of the last complete round of frames, and how much of each
//! text the client has beyond it. A client that is cut off at any update resumes there, and gets no chunk twice. All
//! other updates replace what they name, so they may come again.
//!
//! **Corrections.** No update takes back text. A text that was replaced comes as a message of its own, whose id ends
//! with `~` and a number.
//!
//! The dialect keeps lengths and hashes of texts, and bounded copies of what is still open.

mod call;
mod position;
mod question;
mod session;
mod text;
mod types;

pub use position::{AHEAD_MAX, Position};
pub use question::{ANSWER, Ask, AskedQuestion};
pub use types::{AcpOptions, Key, TurnState};

use super::content_copy::{ContentCopy, CopyBudget, apply, json_bytes};
use super::frames::{ActivityView, DecodedFrame, Delta, Frame};
use proscenium_model::Cursor;
use proscenium_projection::members::{ACTION_STATUS, ActionStatus, CallState, OUTPUT_CHANNELS, OUTPUT_TEXT, TypedContent};
use proscenium_projection::{run, tool_call};
use proscenium_sources::ledger::Status;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use text::Texts;

/// What a client of the session has to get, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum AcpEvent {
    /// The `update` of a `session/update`, and where a client resumes that has it.
    Update(Value, Option<Position>),
    /// A request to the client.
    Ask(Box<AskedQuestion>),
    /// The action takes no answer of this client any longer.
    Settled(Key),
    /// The state of a run changed.
    Run(TurnState),
    /// The client lacks the state of an activity that the dialect kept no copy of.
    Missing(Key),
    /// Everything so far is one round of frames.
    Round,
    /// The session was erased or rewritten: what the client has is void.
    Reset,
    /// The problem with which the stream ends.
    Failed(Value),
}

/// What the dialect knows of an activity that is no text.
#[derive(Debug, Clone, Default)]
struct KnownActivity {
    copy: ContentCopy,
    /// What the client has of it, by member.
    sent: Map<String, Value>,
    /// Changes of a long output that were not sent, in bytes.
    unsent_bytes: usize,
    /// Whether it is over, so that no copy is kept.
    is_over: bool,
}

/// The translation of one session for one client.
#[derive(Debug, Default)]
pub struct Acp {
    options: AcpOptions,
    session: Box<str>,
    texts: Texts,
    known: HashMap<Key, KnownActivity>,
    budget: CopyBudget,
    /// The runs that gave a call its id first: in another run, the id gets the run's before it.
    calls: HashMap<Box<str>, Box<str>>,
    /// The pending actions of each run that are asked, or whose answer is on its way.
    open_questions: BTreeMap<Box<str>, Vec<Box<str>>>,
    /// Snapshots of one run, until all of them are here.
    batch: Vec<ActivityView>,
    position: Option<Position>,
    is_silent: bool,
    events: Vec<AcpEvent>,
}

impl Acp {
    /// The translation of this session for a client, before any frame.
    #[must_use]
    pub fn new(session: &str, options: AcpOptions) -> Self {
        Self { options, session: session.into(), ..Self::default() }
    }

    /// Loads what the client has: the activities of the session by log, and its position.
    ///
    /// Returns no updates, but what the client may be asked, and how the runs stand.
    pub fn resume(&mut self, known: Vec<Vec<ActivityView>>, position: Position) -> Vec<AcpEvent> {
        self.is_silent = true;
        self.texts.lead(position.ahead());
        for activities in known {
            self.batch = activities;
            self.flush();
        }
        self.is_silent = false;
        self.position = Some(position);
        std::mem::take(&mut self.events)
    }

    /// Shows the activities of one log as they are now, to a client that has nothing of them.
    pub fn load(&mut self, activities: Vec<ActivityView>) -> Vec<AcpEvent> {
        self.batch = activities;
        self.flush();
        std::mem::take(&mut self.events)
    }

    /// Ends a load: the client has everything up to this cursor.
    pub fn end_load(&mut self, cursor: Cursor) {
        self.position = Some(Position::at(cursor));
    }

    /// Does not show the next message of a user that has this text: the client itself sent it.
    pub fn expect_prompt(&mut self, text: String) {
        self.texts.expect_prompt(text);
    }

    /// Whether a run waits, and no client of this session can be asked: it goes on only with a new message.
    #[must_use]
    pub fn rests(&self, run: &TurnState) -> bool {
        run.status == Status::Waiting && !self.open_questions.contains_key(&run.run)
    }

    /// The last complete position of the client.
    #[must_use]
    pub const fn position(&self) -> Option<&Position> {
        self.position.as_ref()
    }

    /// Translates frames.
    pub fn translate(&mut self, frames: &[DecodedFrame]) -> Vec<AcpEvent> {
        for DecodedFrame { frame, cursor } in frames {
            self.frame(frame);
            if let Some(cursor) = cursor {
                self.end_round(*cursor);
            }
        }
        std::mem::take(&mut self.events)
    }

    /// Shows the current state of an activity that was missing.
    pub fn reload(&mut self, activity: ActivityView) -> Vec<AcpEvent> {
        self.show(&activity);
        std::mem::take(&mut self.events)
    }

    fn frame(&mut self, frame: &Frame) {
        match frame {
            Frame::ActivitySnapshot(activity) => {
                if self.batch.first().is_some_and(|first| first.run != activity.run) {
                    self.flush();
                }
                match self.batch.iter_mut().find(|known| known.kind == activity.kind && known.id == activity.id) {
                    Some(known) => *known = activity.clone(),
                    None => self.batch.push(activity.clone()),
                }
            }
            Frame::ActivityDelta(delta) => self.delta(delta),
            Frame::Hydrated {} | Frame::End { .. } => self.flush(),
            Frame::Reset { .. } => {
                let events = std::mem::take(&mut self.events);
                *self = Self { events, ..Self::new(&self.session, self.options) };
                self.events.push(AcpEvent::Reset);
            }
            Frame::Error { problem } => self.events.push(AcpEvent::Failed(problem.clone())),
        }
    }

    /// Ends a round: its last update has the cursor alone.
    fn end_round(&mut self, cursor: Cursor) {
        self.flush();
        let position = Position::at(cursor);
        let last = self.events.iter_mut().rev().find_map(|event| match event {
            AcpEvent::Update(_, position) => Some(position),
            _ => None,
        });
        if let Some(last) = last {
            *last = Some(position.clone());
        }
        self.position = Some(position);
        self.events.push(AcpEvent::Round);
    }

    fn delta(&mut self, delta: &Delta) {
        let in_batch = |known: &&mut ActivityView| known.run == delta.run && known.kind == delta.kind && known.id == delta.id;
        if let Some(activity) = self.batch.iter_mut().find(in_batch)
            && apply(Arc::make_mut(&mut activity.content), &delta.operations)
        {
            return;
        }
        self.flush();
        let key = Key::of(delta.run.as_deref(), &delta.kind, &delta.id);
        if text::is_text(&delta.kind) {
            match self.texts.delta(&key, &delta.operations) {
                Some(chunks) => self.say(chunks),
                None => self.events.push(AcpEvent::Missing(key)),
            }
            return;
        }
        if !session::is_shown(&delta.kind) {
            return;
        }
        let is_output = delta
            .operations
            .iter()
            .all(|operation| operation.place().is_some_and(|place| place.is(OUTPUT_TEXT) || place.is(OUTPUT_CHANNELS)));
        let Some(known) = self.known.get_mut(&key).filter(|known| !known.is_over) else {
            return self.events.push(AcpEvent::Missing(key));
        };
        known.unsent_bytes += delta.operations.iter().map(json_bytes).sum::<usize>();
        if !known.copy.apply(&delta.operations, &mut self.budget) {
            return self.events.push(AcpEvent::Missing(key));
        }
        // The content of a call is sent as a whole, so a long output waits for more of it.
        if is_output && known.copy.should_defer(known.unsent_bytes) {
            return;
        }
        if let Some(content) = known.copy.content().cloned() {
            self.show_content(key, &content);
        }
    }

    /// Shows the snapshots of a batch, in the order in which their parts appeared.
    fn flush(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let mut placed: Vec<(u64, usize, Option<usize>)> = Vec::new();
        for (n, activity) in batch.iter().enumerate() {
            match text::places(activity) {
                Some(parts) => placed.extend(parts.into_iter().enumerate().map(|(part, opened)| (opened, n, Some(part)))),
                None => placed.push((activity.opened.0, n, None)),
            }
        }
        // The run is last: its end is about all that came before.
        placed.sort_by_key(|(opened, n, _)| (&*batch[*n].kind == run::KIND, *opened, *n));
        for (_, n, part) in placed {
            match part {
                Some(part) => self.show_part(&batch[n], part),
                None => self.show(&batch[n]),
            }
        }
    }

    fn show_part(&mut self, activity: &ActivityView, part: usize) {
        let chunks = self.texts.snapshot(&Key::of_view(activity), activity, Some(part));
        self.say(chunks);
    }

    /// Shows a whole activity.
    fn show(&mut self, activity: &ActivityView) {
        let key = Key::of_view(activity);
        if text::is_text(&activity.kind) {
            let chunks = self.texts.snapshot(&key, activity, None);
            return self.say(chunks);
        }
        if !session::is_shown(&activity.kind) {
            return;
        }
        let known = self.known.entry(key.clone()).or_default();
        known.copy.store(&activity.content, &mut self.budget);
        known.is_over = false;
        self.show_content(key, &activity.content);
    }

    fn show_content(&mut self, key: Key, content: &Map<String, Value>) {
        match &*key.kind {
            tool_call::KIND => self.show_call(&key, content),
            run::KIND => self.events.push(AcpEvent::Run(TurnState::of(&key.run, content))),
            question::KIND => self.show_action(&key, content),
            _ => {
                for update in session::updates(&self.session, &key, content) {
                    self.update_if_new(&key, update);
                }
            }
        }
        let is_over = match &*key.kind {
            tool_call::KIND => content.read(tool_call::STATE).is_some_and(CallState::is_end),
            run::KIND => content.read(run::STATUS).is_some_and(Status::is_end),
            question::KIND => content.read(ACTION_STATUS) != Some(ActionStatus::Pending),
            _ => false,
        };
        if let Some(known) = self.known.get_mut(&key) {
            known.unsent_bytes = 0;
            if is_over {
                known.is_over = true;
                known.copy.clear(&mut self.budget);
                known.sent = Map::new();
            }
        }
    }

    fn show_call(&mut self, key: &Key, content: &Map<String, Value>) {
        let id = self.call_id(key);
        let shown = call::render(&id, content);
        let known = self.known.entry(key.clone()).or_default();
        let is_first = known.sent.is_empty();
        let mut changed = Map::new();
        for (member, value) in &shown {
            if known.sent.get(member) != Some(value) {
                changed.insert(member.clone(), value.clone());
            }
        }
        // The client keeps a member that an update lacks.
        for gone in known.sent.keys().filter(|member| !shown.contains_key(*member)) {
            changed.insert(gone.clone(), call::none(gone));
        }
        known.sent.clone_from(&shown);
        if changed.is_empty() {
            return;
        }
        let kind = if is_first { "tool_call" } else { "tool_call_update" };
        let mut update = Map::from_iter([("sessionUpdate".to_owned(), kind.into()), ("toolCallId".to_owned(), id.into())]);
        update.extend(changed);
        self.push_update(update.into());
    }

    /// The id under which the client knows a call.
    fn call_id(&mut self, key: &Key) -> String {
        let owner = self.calls.entry(key.id.clone()).or_insert_with(|| key.run.clone());
        if *owner == key.run { key.id.to_string() } else { format!("{}:{}", key.run, key.id) }
    }

    fn show_action(&mut self, key: &Key, content: &Map<String, Value>) {
        let call_key = content.get("toolCallId").and_then(Value::as_str);
        let call_key = call_key.map(|call| Key::of(Some(&key.run), tool_call::KIND, call));
        let call = call_key.map(|call| {
            let id = self.call_id(&call);
            let known = self.known.get(&call).and_then(|known| known.copy.content());
            (id.clone(), known.map(|content| call::render(&id, content)).unwrap_or_default())
        });
        let is_pending = content.read(ACTION_STATUS) == Some(ActionStatus::Pending);
        let asked = match is_pending && !question::is_decided(content) {
            true => question::render(self.options, key, content, call),
            false => None,
        };
        let known = self.known.entry(key.clone()).or_default();
        let before = known.sent.get(ASKED).cloned();
        let now = asked.as_ref().map(|asked| asked.ask.params().clone());
        match &now {
            Some(params) => drop(known.sent.insert(ASKED.to_owned(), params.clone())),
            None => drop(known.sent.shift_remove(ASKED)),
        }
        let is_open = is_pending && (asked.is_some() || question::is_decided(content));
        self.note_question(key, is_open);
        if before == now {
            return;
        }
        if before.is_some() {
            self.events.push(AcpEvent::Settled(key.clone()));
        }
        self.events.extend(asked.map(|asked| AcpEvent::Ask(Box::new(asked))));
    }

    fn note_question(&mut self, key: &Key, is_open: bool) {
        let questions = self.open_questions.entry(key.run.clone()).or_default();
        questions.retain(|known| *known != key.id);
        if is_open {
            questions.push(key.id.clone());
        } else if questions.is_empty() {
            self.open_questions.remove(&key.run);
        }
    }

    /// Sends an update that replaces the last one of its kind, if it differs.
    fn update_if_new(&mut self, key: &Key, session::StateUpdate { update, is_empty }: session::StateUpdate) {
        let kind = update["sessionUpdate"].as_str().unwrap_or_default().to_owned();
        let known = self.known.entry(key.clone()).or_default();
        let before = known.sent.get(&kind);
        if before != Some(&update) && !(is_empty && before.is_none()) {
            known.sent.insert(kind, update.clone());
            self.push_update(update);
        }
    }

    /// Sends chunks of texts.
    fn say(&mut self, chunks: Vec<text::Chunk>) {
        for text::Chunk { update, part, bytes } in chunks {
            if let Some(position) = &mut self.position {
                position.advance(part, bytes);
            }
            self.push_update(update);
        }
    }

    fn push_update(&mut self, update: Value) {
        if !self.is_silent {
            self.events.push(AcpEvent::Update(update, self.position.clone().filter(Position::is_exact)));
        }
    }
}

/// Where [`KnownActivity::sent`] has the parameters of the request about an action.
const ASKED: &str = "asked";

#[cfg(test)]
mod tests;
