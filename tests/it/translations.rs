//! Readers of one dialect share its translation, and each of them gets exactly what a lone reader gets.

use crate::harness::{Client, Sse, Transport, environment, fact, part_of, recordings, serve_until, start_local, with_timeout};
use crate::projection::{Pipeline, block_on};
use proscenium::encode::ag_ui::{AgUi, AgUiOptions};
use proscenium::encode::ai_sdk::{AiSdk, AiSdkOptions};
use proscenium::encode::dialect_cursor::DialectCursor;
use proscenium::encode::encoded::{EncodedFrames, FrameBuffer};
use proscenium::encode::frames::{ActivityView, DecodedFrame};
use proscenium::encode::native::Encoder;
use proscenium::encode::placeholders::Placeholders;
use proscenium::encode::translations::ReaderTranslator;
use proscenium::encode::translator::{IdPosition, PlainDialect, Translator};
use proscenium::encode::{Begin, Flow, Until};
use proscenium::feed::FeedConfig;
use proscenium::guard::Policy;
use proscenium::log::row::Row;
use proscenium::log::{LogId, Storage};
use proscenium::model::{Audience, Epoch, RunId, Sequence};
use proscenium::projection::View;
use proscenium::serve::{KeepAlive, Limits, Server};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::oneshot;

/// The number of parts of the recordings that the gate reads in turn.
const PARTS: usize = 16;

/// A run in blocks of frames, as flushes make them.
struct Run {
    encoder: Encoder,
    blocks: Vec<EncodedFrames>,
    /// The view before the first block, and after each.
    views: Vec<View>,
    id: RunId,
    /// The hydrations, which readers at one position share.
    pages: RefCell<BTreeMap<(Sequence, usize), EncodedFrames>>,
}

impl Run {
    fn of(log: &LogId, rows: &[Row], audience: Audience) -> Self {
        let LogId::Run(run) = log else { panic!("not a run") };
        let (encoder, mut view) = (Encoder::new(log), View::new(log, audience));
        let (mut blocks, mut views) = (Vec::new(), vec![view.clone()]);
        let mut rows = rows.iter();
        for envelopes in [1, 1, 3, 2, 7].into_iter().cycle() {
            let mut out = FrameBuffer::for_dialects(Epoch::from_random(1));
            let taken: Vec<_> = rows.by_ref().take(envelopes).collect();
            if taken.is_empty() {
                break;
            }
            for row in taken {
                let folded = view.fold(row.sequence(), row.view(audience));
                for change in &folded.changes {
                    encoder.change(&mut out, row.sequence(), folded.prev, view.changed_activity(change), change);
                }
                if !folded.changes.is_empty() {
                    out.set_cursor();
                }
            }
            if !out.is_empty() {
                let (frames, kept) = both_forms(out);
                assert_eq!(kept, frames.decoded().0, "what dialects read live is what they decode later");
                blocks.push(frames);
                views.push(view.clone());
            }
        }
        Self { encoder, blocks, views, id: run.clone(), pages: RefCell::default() }
    }

    /// What a reader gets that has everything up to `known`, and is too slow for the blocks after it.
    fn hydration(&self, known: Sequence, at: usize) -> EncodedFrames {
        self.pages.borrow_mut().entry((known, at)).or_insert_with(|| self.encode_hydration(known, at)).clone()
    }

    fn encode_hydration(&self, known: Sequence, at: usize) -> EncodedFrames {
        let (view, mut out) = (&self.views[at], FrameBuffer::new(Epoch::from_random(1)));
        for activity in view.activities().iter().filter(|activity| activity.sequence > known) {
            self.encoder.snapshot(&mut out, activity.sequence, None, activity);
        }
        self.encoder.hydrated(&mut out, view.last_framed, Some(view.through));
        out.finish()
    }

    fn shown(&self, at: usize) -> Vec<ActivityView> {
        self.views[at].activities().iter().map(|activity| ActivityView::of(&self.id, activity)).collect()
    }
}

/// Frames as bytes, and as they were kept for dialects.
fn both_forms(out: FrameBuffer) -> (EncodedFrames, Arc<[DecodedFrame]>) {
    let frames = out.finish();
    let kept = frames.decoded().0;
    frames.forget_decoded();
    (frames, kept)
}

/// A reader that shares, and one that translates the same frames alone.
struct Reader<'r> {
    run: &'r Run,
    placeholders: &'r Placeholders,
    shared: ReaderTranslator,
    lone: ReaderTranslator,
    /// The blocks that it has.
    at: usize,
    is_over: bool,
    /// Whether it made its last translation itself.
    is_own: bool,
    text: String,
}

impl<'r> Reader<'r> {
    fn new(run: &'r Run, placeholders: &'r Placeholders, dialect: &dyn PlainDialect, at: usize) -> Self {
        let translator = Translator::new(dialect.boxed_clone(), IdPosition::Last);
        let [shared, lone] = [translator.clone(), translator].map(ReaderTranslator::new);
        Self { run, placeholders, shared, lone, at, is_over: false, is_own: true, text: String::new() }
    }

    fn joined(run: &'r Run, placeholders: &'r Placeholders, dialect: &dyn PlainDialect, at: usize, page: &EncodedFrames) -> Self {
        let mut reader = Self::new(run, placeholders, dialect, at);
        reader.change(|translator| translator.load_history(Vec::new()));
        reader.take(page);
        reader
    }

    fn change(&mut self, change: impl Fn(&mut Translator)) {
        change(self.shared.own());
        change(self.lone.own());
    }

    /// Takes the next block.
    fn step(&mut self) {
        if !self.is_over {
            self.at += 1;
            self.take(&self.run.blocks[self.at - 1].clone());
        }
    }

    /// Takes the state at a position instead of the blocks up to there.
    fn skip_to(&mut self, at: usize) {
        if !self.is_over {
            let known = self.run.views[self.at].through;
            self.at = at;
            self.take(&self.run.hydration(known, at));
        }
    }

    fn take(&mut self, frames: &EncodedFrames) {
        let shared = frames.translate(&mut self.shared, self.placeholders, true);
        let lone = frames.translate(&mut self.lone, self.placeholders, false);
        let (Some(shared), Some(lone)) = (shared, lone) else {
            // Arguments in bodies: these frames are translated for each reader.
            let (all, of) = frames.decoded();
            let (all, placeholders) = (&all[of], self.placeholders.clone());
            return self.change(|translator| {
                translator.translate(all, &placeholders, &mut Vec::new());
            });
        };
        assert_eq!((shared.chunk.text(), shared.flow), (lone.chunk.text(), lone.flow));
        assert!(self.shared.get() == self.lone.get(), "the next translators are equal");
        self.is_own = shared.is_own;
        self.text.push_str(std::str::from_utf8(&shared.chunk.text()).unwrap());
        match shared.flow {
            Flow::Continue => {}
            Flow::End => self.is_over = true,
            Flow::Restart => {
                self.change(|translator| translator.load_history(Vec::new()));
                self.take(&self.run.hydration(Sequence::NONE, self.at));
            }
        }
    }

    /// The ids of its events.
    fn ids(&self) -> Vec<DialectCursor> {
        self.text.lines().filter_map(|line| line.strip_prefix("id: ")).map(|id| id.parse().unwrap()).collect()
    }
}

fn ag_ui(is_v1: bool, begin: Begin, thread: &str) -> AgUi {
    let (thread, run, until) = (thread.to_owned(), "run".to_owned(), Until::End);
    AgUi::new(AgUiOptions { thread, run, begin, until, is_v1, subagents: is_v1, messages: Vec::new() })
}

fn ai_sdk(version: u8) -> AiSdk {
    AiSdk::new(AiSdkOptions { message: "message".into(), version, begin: Begin::Snapshot, until: Until::End })
}

/// Reads a run in all ways at once. Returns how often readers that joined, skipped or fell behind shared again.
fn check(run: &Run, dialect: &dyn PlainDialect, other: &dyn PlainDialect, is_replayable: bool) -> usize {
    let placeholders = Placeholders::new(7);
    let (last, mut shared_again) = (run.blocks.len(), 0);
    let at_start = run.hydration(Sequence::NONE, 0);
    let start = |dialect| Reader::joined(run, &placeholders, dialect, 0, &at_start);
    let mut equal = [start(dialect), start(dialect), start(dialect)];
    let [mut of_other, mut slow, mut skipping] = [start(other), start(dialect), start(dialect)];
    let mut joined: Vec<Reader<'_>> = Vec::new();
    for at in 0..last {
        if at == last / 3 || at == last / 2 {
            let page = run.hydration(Sequence::NONE, at);
            // The one that joins may come first or last.
            joined.insert(0, Reader::joined(run, &placeholders, dialect, at, &page));
        }
        joined.iter_mut().take(1).for_each(Reader::step);
        equal.iter_mut().for_each(Reader::step);
        assert!(equal[1..].iter().all(|reader| reader.is_over || !reader.is_own), "equal readers translate once");
        joined.iter_mut().skip(1).for_each(Reader::step);
        of_other.step();
        if at > 0 {
            // The newest block keeps translations; an older one does not.
            run.blocks[at - 1].forget_decoded();
        }
        match at % 7 {
            0..3 => slow.step(),
            // It reads the blocks that it has missed.
            6 => (slow.at..=at).for_each(|_| slow.step()),
            _ => {}
        }
        match at % 9 {
            0..4 => skipping.step(),
            8 => skipping.skip_to(at + 1),
            _ => {}
        }
        let again =
            joined.iter().chain([&slow, &skipping]).filter(|reader| !reader.is_over && reader.at == at + 1 && !reader.is_own);
        shared_again += again.count();
    }
    if is_replayable {
        resume_within(run, dialect, &placeholders, &equal[0]);
    }
    shared_again
}

/// A reader that was cut within an envelope gets the rest, beside readers that were not.
fn resume_within(run: &Run, dialect: &dyn PlainDialect, placeholders: &Placeholders, whole: &Reader<'_>) {
    let within: Vec<_> = whole.ids().into_iter().filter(|id| id.sent.count > 0).collect();
    for id in within.iter().step_by((within.len() / 4).max(1)) {
        let Some(at) = run.views.iter().position(|view| view.through == id.cursor.after) else { continue };
        let mut reader = Reader::new(run, placeholders, dialect, at);
        let known = run.shown(at);
        reader.change(|translator| {
            translator.load_history(Vec::new());
            translator.resume(id.cursor.after, known.clone());
            translator.resume_at(Some(*id));
        });
        let mut beside = Reader::joined(run, placeholders, dialect, at, &run.hydration(Sequence::NONE, at));
        while reader.at < run.blocks.len() && !reader.is_over {
            beside.step();
            reader.step();
        }
    }
}

#[test]
fn readers_of_all_recordings_get_what_lone_readers_get_however_they_share() {
    let (mut shared_again, mut read) = ([0; 3], 0);
    for (source, name, facts) in part_of(recordings(), PARTS) {
        let (log, rows) =
            block_on(async { Pipeline::with_clock(|| jiff::Timestamp::UNIX_EPOCH).rows(&[(source, &facts)]).await });
        let run = || Run::of(&log, &rows, Audience::User);
        println!("{name}");
        read += 1;
        shared_again[0] += check(&run(), &ag_ui(true, Begin::Snapshot, "t"), &ag_ui(true, Begin::Snapshot, "other"), true);
        shared_again[1] += check(&run(), &ag_ui(false, Begin::Replay, "t"), &ag_ui(false, Begin::Snapshot, "t"), true);
        shared_again[2] += check(&run(), &ai_sdk(7), &ai_sdk(5), false);
    }
    println!("{read} recordings: {shared_again:?} translations shared after a join, a pause or a skip");
    assert!(shared_again.iter().all(|count| *count > read), "{shared_again:?} of {read} recordings");
}

fn delta(n: usize) -> Value {
    fact("text.delta", json!({ "messageId": "m", "partId": "p", "payload": { "text": format!("word {n} ") } }))
}

async fn translations(client: &Client) -> u64 {
    let text = String::from_utf8(client.get("/metrics").await.body).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("proscenium_translations_total ")).expect("the metric exists");
    line.parse().expect("a counter is a number")
}

async fn read_until(readers: &mut [Sse], text: &str) {
    for sse in readers {
        while memchr::memmem::find(&sse.bytes, text.as_bytes()).is_none() {
            sse.read_more().await;
        }
    }
}

#[tokio::test]
async fn a_hundred_readers_of_one_run_cause_one_translation_of_each_chunk_and_get_the_same_bytes() {
    const FACTS: usize = 20;
    for format in ["ag-ui&protocolVersion=1.0", "ai-sdk&version=7"] {
        let client = start_local().await;
        client.append("r", &[delta(0)]).await;
        let path = format!("/v1/runs/r/stream?format={format}");
        let mut readers = Vec::new();
        for n in 0..100 {
            let via = if n % 10 == 0 { Transport::Hyper } else { Transport::Raw };
            readers.push(client.open(via, &path, None).await);
        }
        read_until(&mut readers, "word 0 ").await;
        let before = translations(&client).await;
        for n in 1..=FACTS {
            client.append("r", &[delta(n)]).await;
            read_until(&mut readers, &format!("word {n} ")).await;
        }
        assert_eq!(translations(&client).await - before, FACTS as u64, "{format}");
        client.append("r", &[fact("run.finished", json!({}))]).await;
        let mut texts = Vec::new();
        for mut sse in readers {
            sse.read_to_end().await;
            let text = String::from_utf8(sse.bytes).unwrap();
            // Heartbeats and the reconnect delay are a reader's own.
            texts.push(
                text.lines().filter(|line| *line != ":" && !line.starts_with("retry: ")).map(str::to_owned).collect::<Vec<_>>(),
            );
        }
        assert!(texts.iter().all(|text| *text == texts[0]), "{format}: all readers get the same events");
    }
}

/// The text of each message, as a client joins it.
fn messages(sse: &Sse) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::<String, String>::new();
    let text = std::str::from_utf8(&sse.bytes).unwrap();
    for data in text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| data.starts_with('{')) {
        let event: Value = serde_json::from_str(data).unwrap();
        for message in event["messages"].as_array().into_iter().flatten() {
            texts.insert(message["id"].as_str().unwrap().into(), message["content"].as_str().unwrap().into());
        }
        if event["type"] == "TEXT_MESSAGE_CONTENT" {
            let id = event["messageId"].as_str().unwrap();
            texts.entry(id.into()).or_default().push_str(event["delta"].as_str().unwrap());
        }
    }
    texts
}

#[tokio::test]
async fn a_reader_that_does_not_read_disturbs_no_other_one_and_gets_all_when_it_reads_again() {
    const MESSAGES: usize = 60;
    let client = start_local().await;
    client.append("r", &[delta(0)]).await;
    let path = "/v1/runs/r/stream?format=ag-ui&protocolVersion=1.0";
    let mut readers = Vec::new();
    for _ in 0..4 {
        readers.push(client.open(Transport::Raw, path, None).await);
    }
    read_until(&mut readers, "word 0 ").await;
    let mut stalled = readers.pop().unwrap();
    let filler = "x".repeat(200_000);
    for n in 1..=MESSAGES {
        let text = format!("{filler} begun {n}");
        client
            .append(
                "r",
                &[fact("text.delta", json!({ "messageId": format!("m{n}"), "partId": "p", "payload": { "text": text } }))],
            )
            .await;
        read_until(&mut readers, &format!("begun {n}\"")).await;
    }
    client.append("r", &[fact("run.finished", json!({}))]).await;
    stalled.read_to_end().await;
    let whole = messages(&stalled);
    assert_eq!(whole.len(), MESSAGES + 1);
    for mut sse in readers {
        sse.read_to_end().await;
        assert!(messages(&sse) == whole, "every reader has every text once");
    }
}

#[tokio::test]
async fn a_reader_that_joins_late_shares_and_one_that_leaves_takes_nothing_with_it() {
    let client = start_local().await;
    client.append("r", &[delta(0)]).await;
    for format in ["ag-ui&protocolVersion=1.0", "ai-sdk&version=7"] {
        let path = format!("/v1/runs/r/stream?format={format}");
        let mut readers = vec![client.open(Transport::Raw, &path, None).await];
        read_until(&mut readers, "word 0 ").await;
        for n in 1..12 {
            client.append("r", &[delta(n)]).await;
            read_until(&mut readers, &format!("word {n} ")).await;
            let before = translations(&client).await;
            client
                .append(
                    "r",
                    &[fact(
                        "text.delta",
                        json!({ "messageId": "m", "partId": "p", "payload": { "text": format!("more {n} ") } }),
                    )],
                )
                .await;
            read_until(&mut readers, &format!("more {n} ")).await;
            assert_eq!(translations(&client).await - before, 1, "{format}, {} readers", readers.len());
            if n % 4 == 0 {
                drop(readers.remove(0));
            } else {
                readers.push(client.open(Transport::Raw, &path, None).await);
                read_until(&mut readers, &format!("more {n} ")).await;
            }
        }
        // The next format begins with the first word again.
        assert_eq!(client.delete("/v1/runs/r").await.status / 100, 2);
        client.append("r", &[delta(0)]).await;
    }
}

#[tokio::test]
async fn an_idle_reader_gets_heartbeats_and_a_server_that_stops_leaves_its_stream_incomplete() {
    let pulse = KeepAlive { heartbeat: Duration::from_millis(20), drain: Duration::from_millis(10) };
    let (sizes, limits) = (FeedConfig::default(), Limits::default());
    let server =
        Server::new(Storage::memory(), Policy::default(), sizes, limits, pulse, environment(jiff::Timestamp::now)).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let (client, serving) = serve_until(server, async move { drop(stopped.await) }).await;
    client.append("r", &[delta(0)]).await;
    let mut sse = client.open(Transport::Raw, "/v1/runs/r/stream?format=ai-sdk&version=7", None).await;
    read_until(std::slice::from_mut(&mut sse), "word 0 ").await;
    while memchr::memmem::find_iter(&sse.bytes, "\n:\n").count() < 3 {
        sse.read_more().await;
    }
    // A heartbeat between two events breaks neither.
    client.append("r", &[delta(1)]).await;
    read_until(std::slice::from_mut(&mut sse), "word 1 ").await;
    stop.send(()).unwrap();
    let mut rest = Vec::new();
    with_timeout("the end of the connection", sse.into_socket().read_to_end(&mut rest)).await.unwrap();
    assert!(!rest.ends_with(b"0\r\n\r\n"), "a cut stream has no last chunk: {:?}", String::from_utf8_lossy(&rest));
    serving.await.unwrap();
}
