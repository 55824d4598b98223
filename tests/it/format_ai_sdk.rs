//! The AI SDK dialect.
//!
//! Every way of reading ends with the message that the page loads, and no client throws.

use crate::ai_sdk_client::{Reader, as_seen_by};
use crate::harness::{Client, Sse, Transport, fact, part_of, recording, recordings, start_local, to_ndjson};
use crate::projection::{Pipeline, block_on, check_property};
use crate::story::Story;
use proscenium::encode::ai_sdk::{AiSdk, AiSdkOptions, messages};
use proscenium::encode::frames::{ActivityView, Frame};
use proscenium::encode::{Begin, Dialect, Flow, Until};
use proscenium::log::LogId;
use proscenium::log::row::Row;
use proscenium::model::{Audience, Sequence};
use serde_json::{Value, json};

const VERSIONS: [u8; 3] = [5, 6, 7];

/// From this number of envelopes on, a run takes long to be read in every way.
const LONG: usize = 300;

/// Returns the assistant's message as a client loads it from the page.
fn loaded_parts(story: &Story, version: u8) -> Value {
    let own = messages(&story.at(story.last()), "r", version).into_iter().find(|message| message["role"] == "assistant");
    as_seen_by(&own.unwrap_or_else(|| json!({ "parts": [{ "type": "step-start" }] })), version)["parts"].clone()
}

/// The server side of one stream, without the server.
struct Stream<'s> {
    story: &'s Story,
    dialect: AiSdk,
    at: usize,
    chunks: Vec<Value>,
    is_over: bool,
}

impl<'s> Stream<'s> {
    fn joined(story: &'s Story, version: u8, at: usize) -> Self {
        Self::joining(story, version, Until::End, at)
    }

    fn joining(story: &'s Story, version: u8, until: Until, at: usize) -> Self {
        let dialect = AiSdk::new(AiSdkOptions { message: "r".into(), version, begin: Begin::Snapshot, until });
        let mut stream = Self { story, dialect, at, chunks: Vec::new(), is_over: false };
        stream.hydrate(story.at(at));
        stream
    }

    fn resumed(story: &'s Story, version: u8, until: Until, known: usize, at: usize) -> Self {
        let mut dialect = AiSdk::new(AiSdkOptions { message: "r".into(), version, begin: Begin::Snapshot, until });
        dialect.resume(Sequence(known as u64), story.at(known));
        let mut stream = Self { story, dialect, at, chunks: Vec::new(), is_over: false };
        stream.hydrate(story.changed(known, at));
        stream
    }

    fn hydrate(&mut self, shown: Vec<ActivityView>) {
        for shown in shown {
            self.send_frame(Frame::ActivitySnapshot(shown));
        }
        self.send_frame(Frame::Hydrated {});
    }

    fn send_frame(&mut self, frame: Frame) {
        let flow = self.dialect.frame(&frame, &mut self.chunks);
        self.go_on(flow);
    }

    fn go_on(&mut self, flow: Flow) {
        match flow {
            Flow::Continue => {}
            Flow::End => self.is_over = true,
            Flow::Restart => self.hydrate(self.story.at(self.at)),
        }
    }

    fn follow(&mut self, to: usize) {
        while self.at < to && !self.is_over {
            self.at += 1;
            for frame in self.story.steps[self.at - 1].clone() {
                self.send_frame(frame);
            }
            let flow = self.dialect.end_batch(&mut self.chunks);
            self.go_on(flow);
        }
    }

    fn jump(&mut self, to: usize) {
        let known = std::mem::replace(&mut self.at, to);
        self.hydrate(self.story.changed(known, to));
    }

    fn rest(mut self) -> Vec<Value> {
        self.go_to_the_end();
        self.chunks
    }

    fn go_to_the_end(&mut self) {
        self.follow(self.story.last());
        while let Some(status) = self.story.end().filter(|_| !self.is_over) {
            self.send_frame(Frame::End { status: status.into() });
        }
    }
}

/// Reads a run live, up to its end.
pub fn read_live(log: &LogId, rows: &[Row], audience: Audience) -> Value {
    let story = Story::of(log, rows, audience);
    Reader::read(7, &Stream::joined(&story, 7, 0).rest()).message
}

/// The chunks of readers that begin in different ways, and the messages that a client loads.
pub fn read_in_all_ways(story: &Story, version: u8) -> Vec<(&'static str, Vec<Value>)> {
    let (third, half) = (story.last() / 3, story.last() / 2);
    let streams = [
        ("live", Stream::joined(story, version, 0)),
        ("joined", Stream::joined(story, version, half)),
        ("resumed", Stream::resumed(story, version, Until::End, third, half)),
        ("until-pause", Stream::joining(story, version, Until::Pause, 0)),
    ];
    let read = streams.map(|(name, stream)| (name, stream.rest()));
    read.into_iter().chain([("loaded", messages(&story.at(story.last()), "r", version))]).collect()
}

/// Returns whether a client can have the loaded message: versions 5 and 6 cannot retract a text.
fn holds(reader: &Reader, story: &Story, version: u8) -> bool {
    assert!(reader.ended.is_some(), "a stream ended without its last chunk");
    let is_split = version < 7 && reader.corrections + reader.reopened > 0;
    if !is_split {
        let loaded = loaded_parts(story, version);
        let (have, want) = (reader.message["parts"].as_array().unwrap(), loaded.as_array().unwrap());
        let differs = have.iter().zip(want).position(|(have, want)| have != want);
        let at = differs.unwrap_or(have.len().min(want.len()));
        assert_eq!(have.get(at), want.get(at), "version {version}, part {at} of {} and {}", have.len(), want.len());
    }
    !is_split
}

/// Reads a run in every way, at some of its envelopes.
///
/// Returns whether every client ended with the loaded message.
fn check(story: &Story, stride: usize, versions: &[u8]) -> bool {
    let mut holds_for_all = true;
    for version in versions.iter().copied() {
        let live = Reader::read(version, &Stream::joined(story, version, 0).rest());
        holds_for_all &= holds(&live, story, version);
        holds(&read_by_responses(story, version), story, version);
        let late = Reader::read(version, &Stream::joined(story, version, story.last()).rest());
        assert!(holds(&late, story, version), "a stream of the final state needs no retraction");
        let (mut first, mut had) = (Stream::joined(story, version, 0), Reader::new(version));
        for at in (0..=story.last()).step_by(stride) {
            holds(&Reader::read(version, &Stream::joined(story, version, at).rest()), story, version);
            let to = (at + stride / 2 + 1).min(story.last());
            first.follow(at);
            first.chunks.drain(..).for_each(|chunk| had.apply(&chunk));
            let mut reader = had.clone();
            Stream::resumed(story, version, Until::End, at, to).rest().iter().for_each(|chunk| reader.apply(chunk));
            holds(&reader, story, version);
            // A slow reader gets every changed activity again.
            if story.last() < LONG {
                let mut slow = Stream::joined(story, version, 0);
                slow.follow(at);
                slow.jump(to);
                holds(&Reader::read(version, &slow.rest()), story, version);
            }
        }
    }
    holds_for_all
}

/// A client whose requests each get their own response, up to the next pause.
fn read_by_responses(story: &Story, version: u8) -> Reader {
    let mut stream = Stream::joining(story, version, Until::Pause, 0);
    let mut reader = Reader::new(version);
    loop {
        stream.go_to_the_end();
        stream.chunks.drain(..).for_each(|chunk| reader.apply(&chunk));
        if stream.at == story.last() {
            return reader;
        }
        reader.start_response();
        let known = stream.at;
        stream = Stream::resumed(story, version, Until::Pause, known, known);
    }
}

#[test]
fn every_way_of_reading_a_recording_ends_with_the_loaded_message() {
    block_on(async {
        let pipeline = Pipeline::new();
        let (mut read, mut differ) = (Vec::new(), Vec::new());
        for (n, (source, name, facts)) in part_of(recordings(), 16).into_iter().enumerate() {
            let end = [fact("run.finished", json!({}))];
            let (log, rows) = pipeline.rows(&[(source, &facts), ("agentui", &end)]).await;
            for audience in Audience::ALL {
                let story = Story::of(&log, &rows, audience);
                let versions = if story.last() < LONG { &VERSIONS[..] } else { &VERSIONS[n % 3..][..1] };
                let stride = if story.last() < LONG { (story.last() / 10).clamp(1, 7) } else { story.last() / 10 };
                if !check(&story, stride, versions) {
                    differ.push(format!("{name} {audience}"));
                }
            }
            read.push(name);
        }
        // Here the runtime retracts a text, or corrects it: clients of versions 5 and 6 that read it live keep it.
        let resets = [
            "awaken/recovery_stream_reset",
            "awaken-canonical/recovery_stream_reset.drafts",
            // "Buillt." becomes "Built.".
            "acp/scripted-v2draft-turn",
            // The connection to the model broke, and the half answer is abandoned.
            "claude-stream-json/stream_cut_retry",
            // A later node gives the same message another text.
            "langgraph/hidden_model_call_and_message_edits",
            "langgraph/raw-astream_events_v2-custom_and_hidden",
        ];
        let resets = resets.iter().filter(|name| read.iter().any(|read| read == *name));
        let resets = resets.flat_map(|name| ["user", "dashboard", "internal"].map(|audience| format!("{name} {audience}")));
        assert_eq!(differ, resets.collect::<Vec<_>>());
    });
}

#[test]
fn every_way_of_reading_random_facts_ends_with_the_loaded_message() {
    check_property(30, async |pipeline, facts| {
        let end = [fact("run.finished", json!({}))];
        let (log, rows) = pipeline.rows(&[("agentui", &facts), ("agentui", &end)]).await;
        for audience in [Audience::User, Audience::Internal] {
            let story = Story::of(&log, &rows, audience);
            // In version 6, an approval that moves to another call stays with the first.
            check(&story, (story.last() / 4).max(1), &[5, 7]);
            Reader::read(6, &Stream::joined(&story, 6, 0).rest());
        }
    });
}

/// A chunk of a stream, with its cursor.
#[derive(Debug, Clone, PartialEq)]
struct StreamChunk {
    chunk: Value,
    id: Option<String>,
}

/// Parses a body. Strict.
///
/// Heartbeats, `retry` on the first event only, one data line, then the id; `[DONE]` is a text.
fn parse_body(body: &[u8]) -> Vec<StreamChunk> {
    let text = std::str::from_utf8(body).unwrap();
    assert!(!text.contains('\r') && text.starts_with(":\n"), "{text}");
    let mut all = Vec::new();
    for block in text.split_inclusive("\n\n") {
        let mut rest: Vec<&str> = block.lines().filter(|line| !line.is_empty() && *line != ":").collect();
        if rest.is_empty() {
            continue;
        }
        let retry = rest[0].strip_prefix("retry: ");
        assert_eq!(retry.is_some(), all.is_empty(), "{block}");
        if retry.is_some() {
            rest.remove(0);
        }
        let data = rest.remove(0).strip_prefix("data: ").unwrap();
        let chunk = if data == "[DONE]" { data.into() } else { serde_json::from_str(data).unwrap() };
        let id = rest.pop().map(|line| line.strip_prefix("id: ").unwrap().to_owned());
        assert!(rest.is_empty(), "{block}");
        all.push(StreamChunk { chunk, id });
    }
    all
}

/// Reads a stream from this cursor on to its end.
async fn read_stream(client: &Client, run: &str, query: &str, resume: Option<&str>) -> Vec<StreamChunk> {
    let headers: Vec<_> = resume.iter().map(|id| ("last-event-id", *id)).collect();
    let answer = client.get_with(&format!("/v1/runs/{run}/stream?format=ai-sdk&{query}"), &headers).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let mut all = parse_body(&answer.body);
    assert_eq!(all.pop().unwrap().chunk, "[DONE]");
    all
}

fn chunks(said: &[StreamChunk]) -> impl Iterator<Item = &Value> {
    said.iter().map(|said| &said.chunk)
}

/// Returns the assistant's message as a client loads it from the page.
async fn loaded(client: &Client, run: &str, version: u8) -> Value {
    let answer = client.get(&format!("/v1/runs/{run}/activities")).await.ok();
    let shown: Vec<ActivityView> = serde_json::from_value(answer["activities"].clone()).unwrap();
    let own = messages(&shown, run, version).into_iter().find(|message| message["role"] == "assistant");
    as_seen_by(&own.unwrap(), version)
}

#[tokio::test]
async fn a_finished_run_is_one_response_that_ends() {
    let client = start_local().await;
    for name in ["tool_progress_activity", "hitl_approve", "subagent_progress_forwarded"] {
        client.post_lines(&format!("/v1/runs/{name}/facts?source=awaken"), to_ndjson(&recording(name))).await.ok();
        client.append(name, &[fact("run.finished", json!({}))]).await;
        for version in VERSIONS {
            let all = read_stream(&client, name, &format!("version={version}"), None).await;
            let reader = Reader::read(version, chunks(&all));
            assert_eq!(reader.message, loaded(&client, name, version).await, "{name}");
            // A reader that has the end gets no stream.
            let end = all.last().unwrap().id.as_deref().unwrap();
            let path = format!("/v1/runs/{name}/stream?format=ai-sdk&version={version}");
            assert_eq!(client.get_with(&path, &[("last-event-id", end)]).await.status, 204);
        }
        let oldest = Reader::read(5, chunks(&read_stream(&client, name, "", None).await));
        assert_eq!(oldest.message, loaded(&client, name, 5).await, "the default version is one that all clients understand");
    }
    let path = "/v1/runs/hitl_approve/stream?format=ai-sdk";
    let answer = client.get(path).await;
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache, no-transform"),
        ("x-accel-buffering", "no"),
        ("x-vercel-ai-ui-message-stream", "v1"),
    ] {
        assert_eq!(answer.headers[name], value);
    }
    client.get(&format!("{path}&version=4")).await.problem(400, "bad_query");
    client.get(&format!("{path}&after=now")).await.problem(400, "bad_query");
    client.get("/v1/runs/hitl_approve/stream?format=smoke").await.problem(501, "not_served");
    client.get("/v1/runs/hitl_approve/stream?version=7").await.problem(400, "bad_query");
    client.get("/v1/stream?runs=hitl_approve&format=ai-sdk").await.problem(501, "not_served");
}

/// Reads a live stream until it contains this text.
async fn read_until(sse: &mut Sse, text: &str) {
    while !String::from_utf8_lossy(&sse.bytes).contains(text) {
        sse.read_more().await;
    }
}

#[tokio::test]
async fn a_live_run_is_streamed_and_can_be_resumed_after_any_cursor() {
    let client = start_local().await;
    let facts = recording("tool_progress_activity");
    let mut sse = client.open(Transport::Raw, "/v1/runs/r/stream?format=ai-sdk&version=7", None).await;
    read_until(&mut sse, "start-step").await;
    for (n, fact) in facts.iter().enumerate() {
        client.post_lines("/v1/runs/r/facts?source=awaken", to_ndjson(std::slice::from_ref(fact))).await.ok();
        if n % 5 == 4 {
            // With pauses, so that the stream contains cursors.
            let before = sse.bytes.len();
            client.append("r", &[fact_of_progress(n)]).await;
            while sse.bytes.len() == before {
                sse.read_more().await;
            }
        }
    }
    client.append("r", &[fact("run.finished", json!({}))]).await;
    read_until(&mut sse, "[DONE]").await;
    let all = parse_body(&sse.bytes);
    let all = &all[..all.len() - 1];
    let whole = loaded(&client, "r", 7).await;
    assert_eq!(Reader::read(7, chunks(all)).message["parts"], whole["parts"]);
    let cursors: Vec<usize> = (0..all.len() - 1).filter(|at| all[*at].id.is_some()).collect();
    assert!(cursors.len() > 10, "{}", cursors.len());
    for at in cursors {
        let mut reader = Reader::read(7, chunks(&all[..=at]));
        let rest = read_stream(&client, "r", "version=7", all[at].id.as_deref()).await;
        chunks(&rest).for_each(|chunk| reader.apply(chunk));
        assert_eq!(reader.message["parts"], whole["parts"], "after {:?}", all[at]);
    }
}

fn fact_of_progress(n: usize) -> Value {
    fact("task.changed", json!({ "taskId": "t", "payload": { "status": "running", "title": format!("step {n}") } }))
}

#[tokio::test]
async fn an_erased_run_ends_its_stream_with_an_error() {
    let client = start_local().await;
    client.append("r", &[fact("text.delta", json!({ "messageId": "m", "partId": "p", "payload": { "text": "So" } }))]).await;
    let mut sse = client.open(Transport::Raw, "/v1/runs/r/stream?format=ai-sdk", None).await;
    read_until(&mut sse, "text-delta").await;
    assert!(client.delete("/v1/runs/r").await.status < 300);
    client.append("r", &[fact("text.delta", json!({ "messageId": "m", "partId": "p", "payload": { "text": "Anew" } }))]).await;
    read_until(&mut sse, "[DONE]").await;
    let all = parse_body(&sse.bytes);
    let reader = Reader::read(5, chunks(&all[..all.len() - 1]));
    assert_eq!(reader.ended.unwrap()["type"], "error");
    // Its id is the start of the new log: a reader that resumes with it gets the whole new log.
    let id = all[all.len() - 2].id.clone();
    let mut sse = client.open(Transport::Raw, "/v1/runs/r/stream?format=ai-sdk", id.as_deref()).await;
    read_until(&mut sse, "Anew").await;
}
