//! The AG-UI dialect: native frames of one run, translated for `@ag-ui/client`.
//!
//! One law: wherever a client began, its reduced state equals [`messages`] of the activities. A snapshot and a stream
//! name and order the same things the same way ([`items`]). The server knows sent texts by their length and hash
//! ([`sent`]), so a reader that missed something receives the difference.
//!
//! The mapping:
//! * **A text part** is a message of its own: the first has our message's id, a further one has `message/part`. Texts
//!   of one message and the calls between them interleave, parts may stream at the same time, and a client appends. One
//!   AG-UI message for all of them could neither keep their order nor be the same for every reader. Its role is the
//!   message's, or `assistant`.
//! * **Reasoning** is a reasoning message `reasoning:<id>`, in a span of the same id.
//! * **A tool call** is an assistant message with that one call, under the call's id. Its result is a tool message
//!   `result:<call>`. A client puts a result after the call's message: with one call in each message, their order does
//!   not depend on which result came first. Arguments are compact JSON, streamed or not. Every ended call has a result,
//!   also a withheld, failed or cancelled one, because clients wait for calls without a result.
//! * **A tool's own progress report** is an activity `progress:<call>`, from the first report on.
//! * **A surface** is an activity `a2ui-surface-<id>` with the A2UI messages that lead to its state. A small one is sent
//!   whole with each change; of a larger one, and of one that an earlier run created, the messages are appended.
//! * **Any other activity** is an activity `<kind>:<id>` with its content unchanged. Text in it is a list of chunks, as
//!   in the native frames. `run`, `state`, `session`, `metrics` and `diagnostics` are left out: other events carry the
//!   members that clients need, and the rest is for operators.
//! * **A part that is not text** (a file, a source) is an activity `part:<message>/<part>` of type `message-part`: text
//!   events cannot carry it, and a snapshot must not contain more than the stream.
//! * **The run** brackets all events. A pause ends the client's run, and later events begin another; so does another
//!   attempt. The server ends brackets before the run, and reopens unfinished ones in the next run.
//!
//! Ids are permanent. An id that an adapter generated can recur in another run of the thread, so it gets its run as a
//! prefix: `<run>/<id>`. If two messages would have one id, the later gets the suffix `~2`.
//!
//! Clients before 1.0 refuse unknown events. They receive a cancelled run as a failed one, with a code.

pub mod adapted;
mod agents;
mod attribution;
mod call;
mod changes;
mod events;
mod items;
mod list;
mod run_state;
mod sent;

use super::frames::{ActivityView, CUT_INSIDE, Frame};
use super::{Begin, Dialect, Flow, Until};
use agents::Agents;
use attribution::{Attribution, set_metadata};
use events::Bracket;
use items::{Body, Entry, MessageIds, MessageKey};
use proscenium_model::Sequence;
use proscenium_projection::members::TypedContent;
use proscenium_projection::{ACTION_KIND, agent, run, state};
use proscenium_sources::ledger::Status;
use run_state::{Run, RunIds, run_error};
use sent::{ClientMessages, SentMessage, SentState};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;

/// The most messages in a snapshot. Unfinished ones stay even beyond it.
pub const MESSAGES_MAX: usize = 2000;
/// The approximate limit of a snapshot's messages, in bytes with their bodies.
///
/// The newest message and the unfinished ones stay even beyond it.
pub const SNAPSHOT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The options of one client's stream.
#[derive(Debug, Clone, PartialEq)]
pub struct AgUiOptions {
    /// The client's id of the conversation (`threadId`).
    pub thread: String,
    /// The client's id of the run (`runId`).
    pub run: String,
    /// How the stream begins.
    pub begin: Begin,
    /// Where the stream ends.
    pub until: Until,
    /// Whether the client speaks 1.0 (`protocolVersion`).
    ///
    /// That version has an outcome and a list that older clients refuse.
    pub is_v1: bool,
    /// Whether the client accepts sub-agent events. If not, their messages appear as the run's own.
    pub subagents: bool,
    /// The client's copy of the thread, as it sent it.
    ///
    /// The snapshot keeps the messages that the log lacks.
    pub messages: Vec<Value>,
}

/// The translation of one run for one client.
#[derive(Debug, Clone, PartialEq)]
pub struct AgUi {
    options: Arc<AgUiOptions>,
    attribution: Attribution,
    /// Activities of earlier runs, until the snapshot includes them.
    earlier: Vec<ActivityView>,
    /// Frames that are translated together: those of one envelope, or the whole hydration.
    batch: Vec<Frame>,
    /// Whether the next hydration becomes one snapshot.
    is_joining: bool,
    sent: SentState,
    run: Run,
    /// The log's id of the run.
    log_run: Option<Box<str>>,
    agents: Agents,
    client: ClientRun,
    /// Brackets of unfinished messages, in opening order. They are open while the client's run is.
    live: Vec<(MessageKey, Bracket)>,
}

/// The state of the client's run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientRun {
    /// No run has begun, or the last one has ended.
    Ended,
    /// The log's run is open, in this attempt.
    Open { attempt: Option<u64> },
}

impl AgUi {
    /// Creates the translation, before any frame.
    #[must_use]
    pub fn new(options: AgUiOptions) -> Self {
        let attribution = if options.subagents { Attribution::Subagent } else { Attribution::Inline };
        let sent = SentState::of(Arc::new(ClientMessages::of(&options.messages)));
        Self {
            attribution,
            earlier: Vec::new(),
            batch: Vec::new(),
            is_joining: options.begin == Begin::Snapshot,
            sent,
            run: Run::default(),
            log_run: None,
            agents: Agents::default(),
            client: ClientRun::Ended,
            live: Vec::new(),
            options: Arc::new(options),
        }
    }
}

impl Dialect for AgUi {
    fn load_history(&mut self, earlier: Vec<ActivityView>) {
        // A client that gets a replay keeps the earlier messages that it sent.
        if self.options.begin == Begin::Snapshot || self.is_joining {
            self.earlier = earlier;
        }
    }

    fn resume(&mut self, after: Sequence, known: Vec<ActivityView>) {
        let earlier = std::mem::take(&mut self.earlier);
        let entries = self.load_sent(&earlier, &known);
        self.live = self.unfinished(&entries);
        self.is_joining = false;
        // The first envelope begins the client's run, also if it shows nothing of the log's run.
        if after > Sequence::NONE && !self.run.is_paused() {
            self.client = ClientRun::Open { attempt: self.run.attempt() };
            if self.attribution == Attribution::Subagent {
                self.agents.restore();
            }
        }
    }

    fn frame(&mut self, frame: &Frame, events: &mut Vec<Value>) -> Flow {
        match frame {
            Frame::ActivitySnapshot(_) | Frame::ActivityDelta(_) => {
                self.batch.push(frame.clone());
                Flow::Continue
            }
            Frame::Hydrated {} => {
                let flow = if self.is_joining { self.send_snapshot(events) } else { self.translate_batch(events) };
                if flow == Flow::Continue { self.update_client_run(events) } else { flow }
            }
            Frame::Reset { reason } => {
                self.batch.clear();
                if **reason == *CUT_INSIDE {
                    self.client = ClientRun::Ended;
                    self.agents = Agents::default();
                    self.live.clear();
                }
                self.restart()
            }
            Frame::End { status } => {
                let flow = self.translate_batch(events);
                if flow != Flow::Continue {
                    return flow;
                }
                if !self.run.has_ended() {
                    self.run.set_status(Status::of(status));
                }
                self.end_run(events);
                Flow::End
            }
            Frame::Error { problem } => {
                if self.translate_batch(events) == Flow::End {
                    return Flow::End;
                }
                let text = |member: &str| problem.get(member).and_then(Value::as_str);
                let message = text("detail").or_else(|| text("title")).unwrap_or("The stream ended with an error.");
                self.open_run(events);
                self.close_run(run_error(message, text("code")), events);
                Flow::End
            }
        }
    }

    fn is_replayable(&self) -> bool {
        true
    }

    fn compares_arguments(&self) -> bool {
        true
    }

    fn end_batch(&mut self, events: &mut Vec<Value>) -> Flow {
        match self.translate_batch(events) {
            Flow::Continue if !self.is_joining => self.update_client_run(events),
            flow => flow,
        }
    }
}

impl AgUi {
    // ── the client's run ──

    /// Begins a client's run unless one is open, and reopens the brackets of unfinished messages.
    fn open_run(&mut self, events: &mut Vec<Value>) {
        if self.start_run(events) {
            self.agents.announce_active(self.attribution, events);
            for (key, _) in &self.live {
                events.extend(self.sent.messages.get(key).into_iter().flat_map(SentMessage::reopen));
            }
        }
    }

    /// Begins a client's run unless one is open. Returns whether it began one.
    fn start_run(&mut self, events: &mut Vec<Value>) -> bool {
        if self.client != ClientRun::Ended {
            return false;
        }
        let mut event = json!({ "type": "RUN_STARTED", "threadId": self.options.thread, "runId": self.options.run });
        if self.options.is_v1 {
            event["protocolVersion"] = "1.0".into();
        }
        events.push(event);
        self.client = ClientRun::Open { attempt: self.run.attempt() };
        true
    }

    /// Ends the open brackets and then the client's run, with this event.
    fn close_run(&mut self, end_event: Value, events: &mut Vec<Value>) {
        events.extend(self.live.iter().flat_map(|(_, bracket)| bracket.end()));
        self.agents.end_all(events);
        events.push(end_event);
        self.client = ClientRun::Ended;
    }

    /// Ends the client's run with the state of the log's run.
    fn end_run(&mut self, events: &mut Vec<Value>) {
        self.open_run(events);
        let end_event = self.end_event(&self.run);
        self.close_run(end_event, events);
    }

    fn end_event(&self, run: &Run) -> Value {
        let awaits = self.sent.messages.values().filter_map(|record| match record {
            SentMessage::Call { call, call_state, is_current: true, .. } if call::awaits_client_result(call_state.members()) => {
                Some(call.clone())
            }
            _ => None,
        });
        let mut awaits: Vec<_> = awaits.collect();
        awaits.sort_unstable();
        let of = RunIds { thread: &self.options.thread, run: &self.options.run, is_v1: self.options.is_v1 };
        run.end_event(&of, self.attribution, &awaits)
    }

    /// Ends the client's run if the log's run waits for a decision, and begins one if it continues.
    fn update_client_run(&mut self, events: &mut Vec<Value>) -> Flow {
        if !self.run.is_paused() {
            self.open_run(events);
            return Flow::Continue;
        }
        match self.options.until {
            Until::Pause => {
                self.end_run(events);
                Flow::End
            }
            Until::End => {
                if self.client != ClientRun::Ended {
                    self.end_run(events);
                }
                Flow::Continue
            }
        }
    }

    /// Ends the client's run if the log's run has a new attempt; `before` is the previous one's state.
    fn check_attempt(&mut self, before: &Run, events: &mut Vec<Value>) -> Flow {
        let ClientRun::Open { attempt: Some(current @ 1..) } = self.client else {
            if let (ClientRun::Open { .. }, attempt @ Some(_)) = (self.client, self.run.attempt()) {
                self.client = ClientRun::Open { attempt };
            }
            return Flow::Continue;
        };
        if self.run.attempt().is_none_or(|now| now <= current) {
            return Flow::Continue;
        }
        let end_event = match before.has_ended() {
            true => self.end_event(before),
            false => run_error("The run was interrupted, and another attempt began.", Some("interrupted")),
        };
        self.close_run(end_event, events);
        if self.options.until == Until::Pause { Flow::End } else { Flow::Continue }
    }

    fn restart(&mut self) -> Flow {
        self.is_joining = true;
        Flow::Restart
    }

    // ── snapshots ──

    /// Loads everything that the reader has or is about to receive.
    fn load_sent(&mut self, earlier: &[ActivityView], activities: &[ActivityView]) -> Vec<Entry> {
        self.run = Run::default();
        if let Some(run) = activities.iter().find(|activity| &*activity.kind == run::KIND) {
            self.run.load(&run.content);
        }
        self.log_run = activities.iter().find_map(|activity| activity.run.clone()).or(self.log_run.take());
        let mut sent = SentState::of(std::mem::take(&mut self.sent.client));
        self.agents.begin_snapshot();
        let own = self.run.agent().map(str::to_owned);
        for activity in activities {
            let agent = attribution::teammate(activity, own.as_deref());
            self.agents.record(agent.as_deref());
            sent.record_activity(activity, agent);
            match &*activity.kind {
                ACTION_KIND => self.run.load_action(activity),
                agent::KIND if own.as_deref() != Some(&*activity.id) => self.agents.load(activity),
                _ => {}
            }
        }
        let mut entries = items::entries(earlier, activities, &mut sent.ids);
        for entry in &mut entries {
            if let Some(result) = &mut entry.result
                && let Body::Result { call, .. } = &result.item.body
                && let Some(theirs) = sent.client.result(call)
            {
                result.id = theirs.into();
            }
        }
        sent.record_entries(&entries);
        self.sent = sent;
        entries
    }

    /// The brackets of unfinished messages.
    fn unfinished(&self, entries: &[Entry]) -> Vec<(MessageKey, Bracket)> {
        let live = entries.iter().filter(|entry| entry.is_current && entry.item.is_live());
        live.filter_map(|entry| Some((entry.item.key.clone(), Bracket::of(&entry.id, &entry.item)?))).collect()
    }

    /// Sends one snapshot that replaces the reader's copy.
    fn send_snapshot(&mut self, events: &mut Vec<Value>) -> Flow {
        let batch = std::mem::take(&mut self.batch);
        let mut activities = Vec::with_capacity(batch.len());
        for frame in batch {
            if let Frame::ActivitySnapshot(activity) = frame {
                activities.push(activity);
            }
        }
        self.is_joining = false;
        let before = self.run.clone();
        let earlier = std::mem::take(&mut self.earlier);
        let lacks = self.sent.calls_without_result();
        let entries = self.load_sent(&earlier, &activities);
        let live = self.unfinished(&entries);
        let open = std::mem::replace(&mut self.live, live.clone());
        let mut output = Vec::new();
        if self.client != ClientRun::Ended {
            let done = open.iter().filter(|(key, _)| !live.iter().any(|(live, _)| live == key));
            output.extend(done.flat_map(|(_, bracket)| bracket.end()));
        }
        let is_new = self.start_run(&mut output);
        let results = self.push_messages(&entries, &lacks, &mut output);
        output.extend(results);
        if let Some(state) = state(&activities).or_else(|| state(&earlier)) {
            output.push(json!({ "type": "STATE_SNAPSHOT", "snapshot": state }));
        }
        self.agents.end_absent(&mut output);
        self.agents.announce_active(self.attribution, &mut output);
        for (key, _) in live.iter().filter(|(key, _)| is_new || !open.iter().any(|(open, _)| open == key)) {
            output.extend(self.sent.messages.get(key).into_iter().flat_map(SentMessage::reopen));
        }
        events.extend(output);
        // The snapshot comes before the end of a previous attempt's run: the cursor of that end covers the snapshot.
        self.check_attempt(&before, events)
    }

    /// Appends the snapshot of a thread's messages and returns the events for separate results.
    ///
    /// A client appends a snapshot's messages that it lacks at its end. So the results of the calls in `lacks` follow
    /// as separate events, which place them after their calls.
    fn push_messages(&mut self, entries: &[Entry], lacks: &HashSet<Box<str>>, output: &mut Vec<Value>) -> Vec<Value> {
        let is_apart = |entry: &Entry| matches!(&entry.item.body, Body::Result { call, .. } if lacks.contains(call));
        let mut list = list::listed(entries, self.attribution, |entry| !is_apart(entry));
        list::merge(&mut list, &self.options.messages);
        // From here on the client has the sent messages, and of its own only the kept ones.
        let theirs: Vec<_> = list.iter().filter(|listed| listed.key.is_none()).map(|listed| listed.message.clone()).collect();
        self.sent.keep_client_messages(&theirs);
        let (messages, omitted) = list::window(list);
        let mut event = json!({ "type": "MESSAGES_SNAPSHOT", "messages": messages });
        if self.options.is_v1 {
            // The client must drop activities that the snapshot lacks, even if the snapshot has none at all.
            event["metadata"]["@ag-ui/client"]["authoritativeActivityTypes"] = Value::Null;
        }
        if !omitted.is_empty() {
            set_metadata(&mut event, "truncated", true.into());
            set_metadata(&mut event, "omitted", omitted.len().into());
        }
        for key in omitted.into_iter().flatten() {
            self.sent.messages.remove(&key);
            self.sent.omitted.insert(key, ());
        }
        output.push(event);
        let results = entries.iter().filter_map(|entry| entry.result.as_deref()).filter(|entry| is_apart(entry));
        let results = results.filter(
            |entry| matches!(&entry.item.key, MessageKey::Result(call) if !self.sent.omitted.contains_key(&MessageKey::Call(call.clone()))),
        );
        results.flat_map(|entry| events::begin(&entry.id, &entry.item, self.attribution)).collect()
    }
}

/// Splits off the last run: the earlier runs and the last one.
fn last_run(activities: &[ActivityView]) -> (&[ActivityView], &[ActivityView]) {
    let last = activities.last().map(|last| &last.run);
    let count = activities.iter().rev().take_while(|activity| Some(&activity.run) == last).count();
    activities.split_at(activities.len() - count)
}

/// The AG-UI messages of one run, or of the runs of a thread one after the other, in order.
///
/// If `is_v1`, a message names its sub-agent as 1.0 does.
#[must_use]
pub fn messages(activities: &[ActivityView], is_v1: bool) -> Vec<Value> {
    let attribution = if is_v1 { Attribution::Subagent } else { Attribution::Inline };
    let (earlier, last) = last_run(activities);
    let list = list::listed(&items::entries(earlier, last, &mut MessageIds::default()), attribution, |_| true);
    list.into_iter().map(|listed| listed.message).collect()
}

/// The events of a run as it stands, from its start, for a client that has nothing of it. A run at work has no end yet.
#[must_use]
pub fn events(activities: &[ActivityView], options: AgUiOptions) -> Vec<Value> {
    let (mut dialect, mut events) = (AgUi::new(options), Vec::new());
    // What no events can tell in order follows as a snapshot of the messages.
    let mut flow = Flow::Restart;
    while flow == Flow::Restart {
        for frame in activities.iter().cloned().map(Frame::ActivitySnapshot).chain([Frame::Hydrated {}]) {
            flow = dialect.frame(&frame, &mut events);
        }
    }
    if dialect.run.has_ended() {
        dialect.end_run(&mut events);
    }
    events
}

/// The text of a message, without other parts.
#[must_use]
pub fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n"),
        content => content.as_str().unwrap_or_default().to_owned(),
    }
}

/// The pending interrupts of the last run, in the form of `RUN_FINISHED`.
#[must_use]
pub fn interrupts(activities: &[ActivityView]) -> Vec<Value> {
    let (_, last) = last_run(activities);
    let mut run = Run::default();
    last.iter().filter(|activity| &*activity.kind == ACTION_KIND).for_each(|action| run.load_action(action));
    run.interrupts(Attribution::Inline)
}

/// The application's state, from the last run that has one.
#[must_use]
pub fn state(activities: &[ActivityView]) -> Option<Value> {
    activities.iter().rev().find(|activity| &*activity.kind == state::KIND)?.content.read(state::STATE).cloned()
}
