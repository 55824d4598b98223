//! The AG-UI dialect: every way of reading ends with the server's state, and no client throws or warns.

use crate::ag_ui_client::{Client, Version};
use crate::harness::{part_of, recordings};
use crate::projection::{Pipeline, block_on, check_property};
use crate::story::Story;
use proscenium::encode::ag_ui::{self, AgUi, AgUiOptions};
use proscenium::encode::frames::{ActivityView, Frame};
use proscenium::encode::{Begin, Dialect, Flow, Until};
use proscenium::log::LogId;
use proscenium::log::row::Row;
use proscenium::model::{Audience, Sequence};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

const VERSIONS: [Version; 2] = [Version::Old, Version::V1];

/// From this number of envelopes on, a run takes long to be read in every way.
const LONG: usize = 300;

/// Returns whether an agent resumes after its end, or becomes the run's own.
///
/// A stream names each agent once per run, so a reader that resumes may not know such an agent.
fn has_agents_that_return(story: &Story) -> bool {
    let done = |shown: &[Arc<ActivityView>]| -> BTreeSet<Box<str>> {
        let is_done =
            |agent: &&Arc<ActivityView>| agent.text("status").is_some_and(|status| ["completed", "failed"].contains(&status));
        shown.iter().filter(|shown| &*shown.kind == "agent").filter(is_done).map(|agent| agent.id.clone()).collect()
    };
    let has_own =
        |shown: &[Arc<ActivityView>]| shown.iter().any(|shown| &*shown.kind == "run" && shown.text("agentId").is_some());
    let is_named_later = story.last() > 0 && !has_own(&story.shown[1]) && has_own(&story.shown[story.last()]);
    is_named_later || story.shown.windows(2).any(|pair| !done(&pair[0]).is_subset(&done(&pair[1])))
}

/// The server side of one stream, without the server.
struct Stream<'s> {
    story: &'s Story,
    dialect: AgUi,
    /// The number of envelopes sent to the reader.
    at: usize,
    /// The number of envelopes in the log, which a restart sends at least.
    written: usize,
    events: Vec<Value>,
    is_over: bool,
}

fn options(version: Version, begin: Begin) -> AgUiOptions {
    AgUiOptions {
        thread: "thread".into(),
        run: "run".into(),
        begin,
        until: Until::End,
        is_v1: version == Version::V1,
        subagents: version == Version::V1,
        messages: Vec::new(),
    }
}

impl<'s> Stream<'s> {
    fn of(story: &'s Story, options: AgUiOptions) -> Self {
        Self { story, dialect: AgUi::new(options), at: 0, written: 0, events: Vec::new(), is_over: false }
    }

    /// Opens a stream from the start.
    fn from_start(story: &'s Story, version: Version) -> Self {
        let mut stream = Self::of(story, options(version, Begin::Replay));
        stream.frame(Frame::Hydrated {});
        stream
    }

    /// Opens a stream that joins at a position.
    fn joined(story: &'s Story, version: Version, at: usize) -> Self {
        Self::joining(story, options(version, Begin::Snapshot), at)
    }

    fn joining(story: &'s Story, options: AgUiOptions, at: usize) -> Self {
        let mut stream = Self { at, ..Self::of(story, options) };
        stream.dialect.load_history(Vec::new());
        stream.hydrate(story.at(at));
        stream
    }

    /// Opens a stream that resumes with a cursor after having missed some envelopes.
    fn resumed(story: &'s Story, version: Version, begin: Begin, from: usize, at: usize) -> Self {
        let mut stream = Self { at, ..Self::of(story, options(version, begin)) };
        stream.dialect.load_history(Vec::new());
        stream.dialect.resume(Sequence(from as u64), story.at(from));
        stream.hydrate(story.changed(from, at));
        stream
    }

    fn hydrate(&mut self, shown: Vec<ActivityView>) {
        for shown in shown {
            assert_eq!(self.dialect.frame(&Frame::ActivitySnapshot(shown), &mut self.events), Flow::Continue);
        }
        self.frame(Frame::Hydrated {});
    }

    fn frame(&mut self, frame: Frame) {
        let flow = self.dialect.frame(&frame, &mut self.events);
        self.go_on(flow);
    }

    fn go_on(&mut self, flow: Flow) {
        match flow {
            Flow::Continue => {}
            Flow::End => self.is_over = true,
            Flow::Restart => {
                self.at = self.at.max(self.written);
                self.dialect.load_history(Vec::new());
                self.hydrate(self.story.at(self.at));
            }
        }
    }

    /// Sends the next envelope.
    fn step(&mut self) {
        let frames = self.story.steps[self.at].clone();
        self.at += 1;
        for frame in frames {
            assert_eq!(self.dialect.frame(&frame, &mut self.events), Flow::Continue);
        }
        let flow = self.dialect.end_batch(&mut self.events);
        self.go_on(flow);
    }

    /// Skips to a position at once, as for a reader that is too slow.
    fn leap(&mut self, to: usize) {
        let changed = self.story.changed(self.at, to);
        self.at = to;
        self.hydrate(changed);
    }

    /// Sends everything, and the end if the run has one.
    fn finish(&mut self) {
        while self.at < self.story.steps.len() && !self.is_over {
            self.step();
        }
        if let Some(status) = self.story.end().filter(|_| !self.is_over) {
            self.frame(Frame::End { status: status.into() });
            assert!(self.is_over);
        }
    }
}

/// Joins the text chunks of messages.
///
/// A client that read live has more chunks than one that joined later.
fn joined(messages: &[Value]) -> Vec<Value> {
    let mut messages = messages.to_vec();
    for content in messages.iter_mut().filter(|message| message["role"] == "activity").map(|message| &mut message["content"]) {
        if let Some(Value::Array(chunks)) = content.get_mut("text")
            && chunks.iter().all(Value::is_string)
        {
            let whole: String = chunks.iter().filter_map(Value::as_str).collect();
            *chunks = if whole.is_empty() { Vec::new() } else { vec![whole.into()] };
        }
    }
    messages
}

#[track_caller]
fn assert_same(client: &Client, shown: &[ActivityView], version: Version, how: &str) {
    let expected = ag_ui::messages(shown, version == Version::V1);
    let (have, mut expected) = (joined(&client.messages), joined(&expected));
    if have.len() >= ag_ui::MESSAGES_MAX {
        // A reader that joins gets a window, the envelopes since, and every open activity, however old.
        let ids: BTreeSet<_> = have.iter().map(|message| message["id"].as_str().unwrap()).collect();
        let window = expected.len().saturating_sub(ag_ui::MESSAGES_MAX);
        let mut n = 0;
        expected.retain(|message| {
            n += 1;
            n > window || ids.contains(message["id"].as_str().unwrap())
        });
    }
    if have != expected {
        let at = have.iter().zip(&expected).position(|(a, b)| a != b).unwrap_or(have.len().min(expected.len()));
        panic!(
            "{how}: message {at} is {:#?}, not {:#?}\nof {} and {}",
            have.get(at),
            expected.get(at),
            have.len(),
            expected.len()
        );
    }
    if let Some(state) = ag_ui::state(shown) {
        assert_eq!(client.state, Some(state), "{how}");
    }
}

fn read(version: Version, events: &[Value]) -> Client {
    let mut client = Client::new(version, &[]);
    for event in events {
        client.read(event);
    }
    client
}

/// Reads a run live, up to its end.
pub fn read_live(log: &LogId, rows: &[Row], audience: Audience) -> Vec<Value> {
    let story = Story::of(log, rows, audience);
    let mut stream = Stream::from_start(&story, Version::V1);
    stream.finish();
    read(Version::V1, &stream.events).messages
}

/// The events of readers that begin in different ways, and the messages that a client loads.
pub fn read_in_all_ways(story: &Story, version: Version) -> Vec<(&'static str, Vec<Value>)> {
    let (third, half) = (story.last() / 3, story.last() / 2);
    let streams = [
        ("live", Stream::from_start(story, version)),
        ("joined", Stream::joined(story, version, half)),
        ("resumed", Stream::resumed(story, version, Begin::Replay, third, half)),
        ("until-pause", {
            let mut stream = Stream::of(story, AgUiOptions { until: Until::Pause, ..options(version, Begin::Replay) });
            stream.frame(Frame::Hydrated {});
            stream
        }),
    ];
    let read = streams.into_iter().map(|(name, mut stream)| {
        stream.finish();
        (name, stream.events)
    });
    read.chain([("loaded", ag_ui::messages(&story.at(story.last()), version == Version::V1))]).collect()
}

/// Checks a client's state at the end of a stream.
fn check_end(story: &Story, client: &Client, version: Version, how: &str) {
    let last = &story.at(story.last());
    assert_same(client, last, version, how);
    let status = story.status(story.steps.len());
    let waits = ag_ui::interrupts(last);
    match status {
        "waiting" if !waits.is_empty() => {
            let ids = |interrupts: &[Value]| interrupts.iter().map(|interrupt| interrupt["id"].clone()).collect::<Vec<_>>();
            assert_eq!(ids(&client.interrupts), ids(&waits), "{how}");
        }
        "failed" | "interrupted" => assert_eq!(client.boundary.as_ref().unwrap()["type"], "RUN_ERROR", "{how}"),
        "cancelled" if version == Version::Old => assert_eq!(client.boundary.as_ref().unwrap()["code"], "cancelled", "{how}"),
        "completed" => assert_eq!(client.boundary.as_ref().unwrap()["outcome"]["type"], "success", "{how}"),
        _ => {}
    }
}

/// Checks every way of reading a story, at every `stride`-th position.
fn check(story: &Story, stride: usize) {
    // It looks at every position, so it is asked once.
    let agents_return = has_agents_that_return(story);
    for version in VERSIONS {
        let mut stream = Stream::from_start(story, version);
        let mut client = Client::new(version, &[]);
        stream.events.iter().for_each(|event| client.read(event));
        // The number of events up to each position.
        let mut counts = vec![stream.events.len()];
        while stream.at < story.steps.len() {
            let count = stream.events.len();
            stream.step();
            stream.events[count..].iter().for_each(|event| client.read(event));
            if stream.at.is_multiple_of(stride) {
                assert_same(&client, &story.at(stream.at), version, &format!("{version:?} read up to {}", stream.at));
            }
            counts.push(stream.events.len());
        }
        stream.finish();
        stream.events[*counts.last().unwrap()..].iter().for_each(|event| client.read(event));
        check_end(story, &client, version, &format!("{version:?} read live"));
        let events_up_to = |at: usize| &stream.events[..counts[at]];
        let whole = ag_ui::events(&story.at(story.last()), options(version, Begin::Replay));
        check_end(story, &read(version, &whole), version, &format!("{version:?} read as a list of events"));

        // A stream that ends at a pause covers everything before its last cursor, also if the log is further by then.
        let until_pause = AgUiOptions { until: Until::Pause, ..options(version, Begin::Replay) };
        let mut brief = Stream { written: story.steps.len(), ..Stream::of(story, until_pause) };
        brief.frame(Frame::Hydrated {});
        while brief.at < story.steps.len() && !brief.is_over {
            brief.step();
        }
        let how = format!("{version:?} until a pause, at {}", brief.at);
        assert_same(&read(version, &brief.events), &story.at(brief.at), version, &how);

        for at in (0..=story.steps.len()).step_by(stride) {
            let mut joined = Stream::joined(story, version, at);
            let how = format!("{version:?} joined at {at}");
            assert_same(&read(version, &joined.events), &story.at(at), version, &how);
            joined.finish();
            check_end(story, &read(version, &joined.events), version, &how);
            // A reader that has a part already, and sends it.
            let mut client = read(version, events_up_to(at / 2));
            client.rejoin();
            let messages = client.messages.iter().filter(|message| message["role"] != "activity").cloned().collect();
            let mut joined = Stream::joining(story, AgUiOptions { messages, ..options(version, Begin::Snapshot) }, at);
            joined.finish();
            joined.events.iter().for_each(|event| client.read(event));
            check_end(story, &client, version, &format!("{how}, having something"));

            // No reader has a cursor before the first envelope.
            let is_sure = version == Version::Old || !agents_return;
            for from in [at, at / 2, at.saturating_sub(1)].into_iter().filter(|from| *from > 0 && is_sure) {
                let mut resumed = Stream::resumed(story, version, Begin::Replay, from, at);
                let how = format!("{version:?} resumed at {at} from {from}");
                resumed.finish();
                let events = [events_up_to(from), &resumed.events].concat();
                check_end(story, &read(version, &events), version, &how);
            }

            // A reader cut off inside the next envelope gets that envelope again, of which it has the first events.
            if is_sure && at > 0 && at < story.steps.len() {
                let mut again = Stream { at, ..Stream::of(story, options(version, Begin::Replay)) };
                again.dialect.resume(Sequence(at as u64), story.at(at));
                again.step();
                assert_eq!(again.events, stream.events[counts[at]..counts[at + 1]], "{version:?} repeated after {at}");
            }

            let mut slow = Stream::from_start(story, version);
            while slow.at < at / 3 {
                slow.step();
            }
            slow.leap(at);
            slow.finish();
            check_end(story, &read(version, &slow.events), version, &format!("{version:?} slow up to {at}"));
        }
    }
}

#[test]
fn every_way_of_reading_a_recording_ends_with_the_same_state_without_client_errors() {
    block_on(async {
        let pipeline = Pipeline::new();
        for (source, name, facts) in part_of(recordings(), 24) {
            let (log, rows) = pipeline.rows(&[(source, &facts)]).await;
            for audience in Audience::ALL {
                let story = Story::of(&log, &rows, audience);
                println!("{name} {audience}: {} envelopes", story.steps.len());
                check(
                    &story,
                    match story.steps.len() {
                        n @ 0..LONG => (n / 12).clamp(1, 7),
                        n => n / 12,
                    },
                );
            }
        }
    });
}

#[test]
fn every_way_of_reading_random_facts_ends_with_the_same_state_without_client_errors() {
    check_property(30, async |pipeline, facts| {
        let (log, rows) = pipeline.rows(&[("agentui", &facts)]).await;
        for audience in [Audience::User, Audience::Internal] {
            check(&Story::of(&log, &rows, audience), 5);
        }
    });
}

#[test]
fn what_the_run_s_agent_says_before_the_run_names_it_is_its_own_at_last() {
    let facts = [
        json!({"type": "text.final", "messageId": "1", "agentId": "a", "payload": {"role": "user", "text": "Go."}}),
        json!({"type": "run.started", "agentId": "a"}),
        json!({"type": "text.final", "messageId": "2", "agentId": "a", "payload": {"text": "Gone."}}),
        json!({"type": "run.finished", "agentId": "a"}),
    ];
    block_on(async {
        let pipeline = Pipeline::new();
        let (log, rows) = pipeline.rows(&[("agentui", &facts)]).await;
        let story = Story::of(&log, &rows, Audience::User);
        check(&story, 1);
        let mut stream = Stream::from_start(&story, Version::V1);
        stream.finish();
        let client = read(Version::V1, &stream.events);
        assert_eq!(client.messages.len(), 2, "{:?}", client.messages);
        assert!(client.messages.iter().all(|message| message.get("subagentRunId").is_none()), "{:?}", client.messages);
    });
}
