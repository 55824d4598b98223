//! The AG-UI dialect: whoever reads it, from wherever, has what is shown, and no client throws or warns.

use crate::ag_ui_client::{Client, Version};
use crate::harness::recordings;
use crate::projection::{Line, law, wait};
use proscenium::encode::ag_ui::{self, AgUi, Options};
use proscenium::encode::frames::{Frame, Shown};
use proscenium::encode::{Begin, Dialect, Flow, Until};
use proscenium::log::LogId;
use proscenium::log::row::Row;
use proscenium::model::Audience;
use proscenium::projection::View;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const VERSIONS: [Version; 2] = [Version::Old, Version::V1];

/// What one audience is told of a run, envelope by envelope.
struct Story {
    /// The frames of each envelope that gave any.
    steps: Vec<Vec<Frame>>,
    /// What was shown before the first, and after each of them.
    shown: Vec<Vec<Shown>>,
}

impl Story {
    fn of(log: &LogId, rows: &[Row], audience: Audience) -> Self {
        let LogId::Run(run) = log else { panic!("a run") };
        let mut view = View::new(log, audience);
        let mut story = Self { steps: Vec::new(), shown: vec![Vec::new()] };
        for row in rows {
            let folded = view.fold(row.sequence(), row.view(audience));
            let frames: Vec<Frame> = folded
                .touched
                .iter()
                .map(|touch| {
                    let activity = view.touched(touch);
                    match touch.is_snapshot {
                        true => Frame::ActivitySnapshot(Shown::of(run, activity)),
                        false => Frame::ActivityDelta {
                            activity_type: activity.kind.clone(),
                            activity_id: activity.id.clone(),
                            patch: touch.patch.iter().map(|op| serde_json::to_value(op).unwrap()).collect(),
                        },
                    }
                })
                .collect();
            if !frames.is_empty() {
                story.steps.push(frames);
                story.shown.push(view.activities().iter().map(|activity| Shown::of(run, activity)).collect());
            }
        }
        story
    }

    fn status(&self, at: usize) -> &str {
        self.shown[at].iter().find(|shown| &*shown.kind == "run").and_then(|run| run.text("status")).unwrap_or("unknown")
    }

    /// Whether an agent goes on after its end, or turns out to be the run's own. A client is told of each once in a run, so of who
    /// comes back it cannot be known what it was told.
    fn has_agents_that_return(&self) -> bool {
        let done = |shown: &[Shown]| -> BTreeSet<Box<str>> {
            let is_done = |agent: &&Shown| agent.text("status").is_some_and(|status| ["completed", "failed"].contains(&status));
            shown.iter().filter(|shown| &*shown.kind == "agent").filter(is_done).map(|agent| agent.id.clone()).collect()
        };
        let own = |shown: &[Shown]| shown.iter().find(|shown| &*shown.kind == "run")?.text("agentId").map(str::to_owned);
        let was_nobodys = self.shown.len() > 1 && own(&self.shown[1]).is_none() && own(self.shown.last().unwrap()).is_some();
        was_nobodys || self.shown.windows(2).any(|pair| !done(&pair[0]).is_subset(&done(&pair[1])))
    }

    /// What of the activities changed between two places, as whoever was away is told.
    fn changed(&self, from: usize, to: usize) -> Vec<Shown> {
        let was: BTreeMap<_, _> = self.shown[from].iter().map(|shown| ((&shown.kind, &shown.id), shown)).collect();
        self.shown[to].iter().filter(|shown| was.get(&(&shown.kind, &shown.id)).is_none_or(|was| was != shown)).cloned().collect()
    }
}

/// A server's end of one stream, without the server.
struct Stream<'s> {
    story: &'s Story,
    dialect: AgUi,
    /// How many envelopes the reader was told of.
    at: usize,
    events: Vec<Value>,
    /// How many events of each step were said.
    is_over: bool,
    again: usize,
}

fn options(version: Version, begin: Begin) -> Options {
    Options {
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
    fn of(story: &'s Story, options: Options) -> Self {
        Self { story, dialect: AgUi::new(options), at: 0, events: Vec::new(), is_over: false, again: 0 }
    }

    /// A reader that is told of all from the start.
    fn told(story: &'s Story, version: Version) -> Self {
        let mut stream = Self::of(story, options(version, Begin::Told));
        stream.frame(Frame::Hydrated {});
        stream
    }

    /// One that joins at a place.
    fn joined(story: &'s Story, version: Version, at: usize) -> Self {
        Self::joining(story, options(version, Begin::Shown), at)
    }

    fn joining(story: &'s Story, options: Options, at: usize) -> Self {
        let mut stream = Self { at, ..Self::of(story, options) };
        stream.dialect.recall(Vec::new());
        stream.hydrate(story.shown[at].clone());
        stream
    }

    /// One that comes back with a cursor, after having been away for some envelopes.
    fn resumed(story: &'s Story, version: Version, begin: Begin, from: usize, at: usize) -> Self {
        let mut stream = Self { at, ..Self::of(story, options(version, begin)) };
        stream.dialect.recall(Vec::new());
        stream.dialect.resume(story.shown[from].clone());
        stream.hydrate(story.changed(from, at));
        stream
    }

    fn hydrate(&mut self, shown: Vec<Shown>) {
        for shown in shown {
            assert_eq!(self.dialect.frame(Frame::ActivitySnapshot(shown), &mut self.events), Flow::On);
        }
        self.frame(Frame::Hydrated {});
    }

    fn frame(&mut self, frame: Frame) {
        let flow = self.dialect.frame(frame, &mut self.events);
        self.go_on(flow);
    }

    fn go_on(&mut self, flow: Flow) {
        match flow {
            Flow::On => {}
            Flow::Over => self.is_over = true,
            Flow::Again => {
                self.again += 1;
                self.dialect.recall(Vec::new());
                self.hydrate(self.story.shown[self.at].clone());
            }
        }
    }

    /// Tells of the next envelope.
    fn step(&mut self) {
        let frames = self.story.steps[self.at].clone();
        self.at += 1;
        for frame in frames {
            assert_eq!(self.dialect.frame(frame, &mut self.events), Flow::On);
        }
        let flow = self.dialect.settle(&mut self.events);
        self.go_on(flow);
    }

    /// Goes on to a place in one leap, as a reader does that is too slow.
    fn leap(&mut self, to: usize) {
        let changed = self.story.changed(self.at, to);
        self.at = to;
        self.hydrate(changed);
    }

    /// Tells of everything, and of the end if there is one.
    fn finish(&mut self) {
        while self.at < self.story.steps.len() && !self.is_over {
            self.step();
        }
        let status = self.story.status(self.at);
        if !self.is_over && ["completed", "failed", "cancelled", "interrupted"].contains(&status) {
            self.frame(Frame::End { status: status.into() });
            assert!(self.is_over);
        }
    }
}

/// Messages with the chunks of their texts joined: a client that was there has more of them than one that comes later.
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
fn assert_same(client: &Client, shown: &[Shown], version: Version, how: &str) {
    let expected = ag_ui::messages(shown, version == Version::V1);
    let (have, mut expected) = (joined(&client.messages), joined(&expected));
    if have.len() >= ag_ui::MESSAGES_MAX {
        // Who joins has a window, and what came since; and what is still open, however old.
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

/// What a client has to have at the end of a stream.
fn check_end(story: &Story, client: &Client, version: Version, how: &str) {
    let last = story.shown.last().unwrap();
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

/// Every way of reading a story, at every `stride`-th place.
fn check(story: &Story, stride: usize) {
    for version in VERSIONS {
        let mut told = Stream::told(story, version);
        let mut client = Client::new(version, &[]);
        told.events.iter().for_each(|event| client.read(event));
        // How much was said up to each place.
        let mut counts = vec![told.events.len()];
        while told.at < story.steps.len() {
            let count = told.events.len();
            told.step();
            told.events[count..].iter().for_each(|event| client.read(event));
            if told.at.is_multiple_of(stride) {
                assert_same(&client, &story.shown[told.at], version, &format!("{version:?} told up to {}", told.at));
            }
            counts.push(told.events.len());
        }
        told.finish();
        told.events[*counts.last().unwrap()..].iter().for_each(|event| client.read(event));
        check_end(story, &client, version, &format!("{version:?} told"));
        let said = |at: usize| &told.events[..counts[at]];

        for at in (0..=story.steps.len()).step_by(stride) {
            let mut joined = Stream::joined(story, version, at);
            let how = format!("{version:?} joined at {at}");
            assert_same(&read(version, &joined.events), &story.shown[at], version, &how);
            joined.finish();
            check_end(story, &read(version, &joined.events), version, &how);
            // One who has a part of it already, and says so.
            let mut client = read(version, said(at / 2));
            client.joins();
            let messages = client.messages.iter().filter(|message| message["role"] != "activity").cloned().collect();
            let mut joined = Stream::joining(story, Options { messages, ..options(version, Begin::Shown) }, at);
            joined.finish();
            joined.events.iter().for_each(|event| client.read(event));
            check_end(story, &client, version, &format!("{how}, having something"));

            // Nobody has a cursor before the first envelope.
            let is_sure = version == Version::Old || !story.has_agents_that_return();
            for from in [at, at / 2, at.saturating_sub(1)].into_iter().filter(|from| *from > 0 && is_sure) {
                let mut resumed = Stream::resumed(story, version, Begin::Told, from, at);
                let how = format!("{version:?} resumed at {at} from {from}");
                resumed.finish();
                let events = [said(from), &resumed.events].concat();
                check_end(story, &read(version, &events), version, &how);
            }

            // Who was cut off within the next envelope is told it once more as it came: of that it has heard the first events.
            if is_sure && at > 0 && at < story.steps.len() {
                let mut again = Stream { at, ..Stream::of(story, options(version, Begin::Told)) };
                again.dialect.resume(story.shown[at].clone());
                again.step();
                assert_eq!(again.events, told.events[counts[at]..counts[at + 1]], "{version:?} told again after {at}");
            }

            let mut slow = Stream::told(story, version);
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
fn whoever_reads_a_recording_from_wherever_has_what_is_shown_and_no_client_complains() {
    wait(async {
        let line = Line::new();
        for (source, name, facts) in recordings() {
            let (log, rows) = line.rows(&[(source, &facts)]).await;
            for audience in [Audience::User, Audience::Internal] {
                let story = Story::of(&log, &rows, audience);
                println!("{name} {audience}: {} envelopes", story.steps.len());
                check(&story, (story.steps.len() / 12).max(1));
            }
        }
    });
}

#[test]
fn whoever_reads_facts_of_any_kind_in_any_order_has_what_is_shown_and_no_client_complains() {
    law(60, async |line, facts| {
        let (log, rows) = line.rows(&[("agentui", &facts)]).await;
        for audience in [Audience::User, Audience::Internal] {
            check(&Story::of(&log, &rows, audience), 5);
        }
    });
}
