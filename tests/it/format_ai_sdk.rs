//! The AI SDK dialect: whoever reads it, from wherever, has the message that is loaded, and no client throws.

#[path = "../../src/encode/ai_sdk/tests/reader.rs"]
mod reader;

use crate::harness::{AUDIENCES, Client, Sse, Via, fact, lines, local, repository, soon};
use crate::projection::{Line, law, wait};
use proscenium::encode::ai_sdk::{AiSdk, Options, messages};
use proscenium::encode::frames::{Frame, Shown};
use proscenium::encode::{Dialect, Flow, Until};
use proscenium::log::LogId;
use proscenium::log::row::Row;
use proscenium::model::Audience;
use proscenium::projection::View;
use reader::{Reader, seen};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const VERSIONS: [u8; 3] = [5, 6, 7];

/// What one audience is told of a run, envelope by envelope.
struct Story {
    /// The frames of each envelope that gave any.
    steps: Vec<Vec<Frame>>,
    /// What was shown before the first, and after each of them.
    shown: Vec<Vec<Shown>>,
}

impl Story {
    fn of(log: &LogId, rows: &[Row], audience: Audience) -> Self {
        let mut view = View::new(log, audience);
        let mut story = Self { steps: Vec::new(), shown: vec![Vec::new()] };
        for row in rows {
            let folded = view.fold(row.sequence(), row.view(audience));
            let frame = |touch: &proscenium::projection::stage::Touch| {
                let activity = view.touched(touch);
                match touch.is_snapshot {
                    true => Frame::ActivitySnapshot(Shown::from(activity)),
                    false => Frame::ActivityDelta {
                        activity_type: activity.kind.clone(),
                        activity_id: activity.id.clone(),
                        patch: touch.patch.iter().map(|op| serde_json::to_value(op).unwrap()).collect(),
                    },
                }
            };
            let frames: Vec<Frame> = folded.touched.iter().map(frame).collect();
            if !frames.is_empty() {
                story.steps.push(frames);
                story.shown.push(view.activities().iter().map(Shown::from).collect());
            }
        }
        story
    }

    fn last(&self) -> usize {
        self.steps.len()
    }

    fn status(&self) -> Box<str> {
        let run = self.shown[self.last()].iter().find(|shown| &*shown.kind == "run");
        run.and_then(|run| run.text("status")).expect("a run that has ended").into()
    }

    /// What changed between two places, as whoever was away is shown it.
    fn changed(&self, from: usize, to: usize) -> Vec<Shown> {
        let known: BTreeMap<_, _> = self.shown[from].iter().map(|shown| ((&shown.kind, &shown.id), shown)).collect();
        self.shown[to].iter().filter(|shown| known.get(&(&shown.kind, &shown.id)) != Some(shown)).cloned().collect()
    }

    /// The assistant's message, as those have it who load it.
    fn loaded(&self, version: u8) -> Value {
        let own = messages(&self.shown[self.last()], "r", version).into_iter().find(|message| message["role"] == "assistant");
        seen(&own.unwrap_or_else(|| json!({ "parts": [{ "type": "step-start" }] })), version)["parts"].clone()
    }
}

/// A server's end of one stream, without the server.
struct Stream<'s> {
    story: &'s Story,
    dialect: AiSdk,
    at: usize,
    chunks: Vec<Value>,
    is_over: bool,
}

impl<'s> Stream<'s> {
    fn joined(story: &'s Story, version: u8, at: usize) -> Self {
        let dialect = AiSdk::new(Options { message: "r".into(), version, until: Until::End });
        let mut stream = Self { story, dialect, at, chunks: Vec::new(), is_over: false };
        stream.hydrate(&story.shown[at]);
        stream
    }

    fn resumed(story: &'s Story, version: u8, known: usize, at: usize) -> Self {
        let mut dialect = AiSdk::new(Options { message: "r".into(), version, until: Until::End });
        dialect.resume(story.shown[known].clone());
        let mut stream = Self { story, dialect, at, chunks: Vec::new(), is_over: false };
        stream.hydrate(&story.changed(known, at));
        stream
    }

    fn hydrate(&mut self, shown: &[Shown]) {
        for shown in shown {
            self.hear(Frame::ActivitySnapshot(shown.clone()));
        }
        self.hear(Frame::Hydrated {});
    }

    fn hear(&mut self, frame: Frame) {
        let flow = self.dialect.frame(frame, &mut self.chunks);
        self.go_on(flow);
    }

    fn go_on(&mut self, flow: Flow) {
        match flow {
            Flow::On => {}
            Flow::Over => self.is_over = true,
            Flow::Again => self.hydrate(&self.story.shown[self.at]),
        }
    }

    fn follow(&mut self, to: usize) {
        while self.at < to {
            self.at += 1;
            for frame in self.story.steps[self.at - 1].clone() {
                self.hear(frame);
            }
            let flow = self.dialect.settle(&mut self.chunks);
            self.go_on(flow);
        }
    }

    fn jump(&mut self, to: usize) {
        let known = std::mem::replace(&mut self.at, to);
        self.hydrate(&self.story.changed(known, to));
    }

    fn rest(mut self) -> Vec<Value> {
        self.follow(self.story.last());
        while !self.is_over {
            self.hear(Frame::End { status: self.story.status() });
        }
        self.chunks
    }
}

/// Whether a client can have the message that is loaded: versions 5 and 6 cannot take back a text.
fn holds(reader: &Reader, story: &Story, version: u8) -> bool {
    assert!(reader.ended.is_some(), "no stream ends without its last chunk");
    let is_split = version < 7 && reader.corrections + reader.reopened > 0;
    if !is_split {
        let loaded = story.loaded(version);
        let (have, want) = (reader.message["parts"].as_array().unwrap(), loaded.as_array().unwrap());
        let differs = have.iter().zip(want).position(|(have, want)| have != want);
        let at = differs.unwrap_or(have.len().min(want.len()));
        assert_eq!(have.get(at), want.get(at), "version {version}, part {at} of {} and {}", have.len(), want.len());
    }
    !is_split
}

/// Reads a run in every way, at some of its envelopes; whether every client had all of it as it is loaded.
fn check(story: &Story, stride: usize, versions: &[u8]) -> bool {
    let mut holds_for_all = true;
    for version in versions.iter().copied() {
        let live = Reader::read(version, &Stream::joined(story, version, 0).rest());
        holds_for_all &= holds(&live, story, version);
        let late = Reader::read(version, &Stream::joined(story, version, story.last()).rest());
        assert!(holds(&late, story, version), "what is told of what it has come to has nothing to take back");
        for at in (0..=story.last()).step_by(stride) {
            holds(&Reader::read(version, &Stream::joined(story, version, at).rest()), story, version);
            let mut first = Stream::joined(story, version, 0);
            first.follow(at);
            let to = (at + stride / 2 + 1).min(story.last());
            let mut reader = Reader::read(version, &first.chunks);
            Stream::resumed(story, version, at, to).rest().iter().for_each(|chunk| reader.take(chunk));
            holds(&reader, story, version);
            let mut slow = Stream::joined(story, version, 0);
            slow.follow(at);
            slow.jump(to);
            holds(&Reader::read(version, &slow.rest()), story, version);
        }
    }
    holds_for_all
}

/// Every recording: its source, its name and its facts.
fn recordings() -> Vec<(&'static str, String, Vec<Value>)> {
    let mut all = Vec::new();
    for (directory, source) in [
        ("awaken", "awaken"),
        ("awaken-canonical", "awaken"),
        ("ethos", "ethos"),
        ("turn-runner", "turnrunner"),
        ("ag-ui", "ag-ui"),
    ] {
        let files = std::fs::read_dir(repository("tests/recordings").join(directory)).expect("recordings");
        let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            let text = std::fs::read_to_string(&path).expect("a recording");
            let facts = text.lines().filter(|line| !line.trim().is_empty());
            let facts = facts.map(|line| serde_json::from_str(line).expect("JSON")).collect();
            all.push((source, format!("{directory}/{}", path.file_stem().unwrap().to_str().unwrap()), facts));
        }
    }
    assert!(all.len() > 80);
    all
}

#[test]
fn whoever_reads_a_recording_from_wherever_has_the_message_that_is_loaded() {
    wait(async {
        let line = Line::new();
        let mut differ = Vec::new();
        for (source, name, facts) in recordings() {
            println!("{name}");
            let end = [fact("run.finished", json!({}))];
            let (log, rows) = line.rows(&[(source, &facts), ("agentui", &end)]).await;
            for audience in [Audience::User, Audience::Internal] {
                let story = Story::of(&log, &rows, audience);
                if !check(&story, (story.last() / 10).max(1), &VERSIONS) {
                    differ.push(format!("{name} {audience}"));
                }
            }
        }
        // Whose runtimes take back what they said: versions 5 and 6 have that, too, if they were there.
        assert_eq!(differ, Vec::<String>::new());
    });
}

#[test]
fn whoever_reads_facts_of_any_kind_in_any_order_has_the_message_that_is_loaded() {
    law(60, async |line, facts| {
        let end = [fact("run.finished", json!({}))];
        let (log, rows) = line.rows(&[("agentui", &facts), ("agentui", &end)]).await;
        for audience in [Audience::User, Audience::Internal] {
            let story = Story::of(&log, &rows, audience);
            // An approval that turns out to be of another call stays with the first in version 6.
            check(&story, (story.last() / 4).max(1), &[5, 7]);
            Reader::read(6, &Stream::joined(&story, 6, 0).rest());
        }
    });
}
