//! The bytes of every face: what readers of each recording get does not change by accident.
//!
//! `tests/faces.txt` has a digest for each recording and face, over the three audiences. After a change that is meant to
//! change bytes: `UPDATE_FACES=1 cargo test --test it faces`, and a line in `CHANGELOG.md` that names the difference. If
//! the same rows have other contents, it also asks for another version of the fold.
//! `PROSCENIUM_FACES=DIR` writes the bytes themselves, so that two checkouts can be compared with `diff -r`.

use crate::ag_ui_client::Version;
use crate::harness::{fact, facts_in, part_of, recordings, repository};
use crate::projection::{Pipeline, block_on, generated_runs};
use crate::story::Story;
use crate::{format_ag_ui, format_ai_sdk};
use proscenium::encode::encoded::FrameBuffer;
use proscenium::encode::native::Encoder;
use proscenium::log::LogId;
use proscenium::log::row::Row;
use proscenium::model::{Audience, Epoch};
use proscenium::projection::{VERSION, View};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use xxhash_rust::xxh3::xxh3_64;

/// The number of parts of the recordings that the gate reads in turn.
const PARTS: usize = 4;

/// The number of generated runs of native facts. Recordings have no facts of some activity types.
const GENERATED: usize = 40;

const TABLE: &str = "tests/faces.txt";

struct Run {
    log: LogId,
    rows: Vec<Row>,
}

/// Reads a run by one face as an audience.
type Face = fn(&Run, &Story, Audience) -> String;

const FACES: &[(&str, Face)] = &[
    ("events", |run, _, audience| events(run, audience)),
    ("native", |run, _, audience| native(run, audience)),
    ("ag-ui-0", |_, story, _| lines(format_ag_ui::read_in_all_ways(story, Version::Old))),
    ("ag-ui-1", |_, story, _| lines(format_ag_ui::read_in_all_ways(story, Version::V1))),
    ("ai-sdk-5", |_, story, _| lines(format_ai_sdk::read_in_all_ways(story, 5))),
    ("ai-sdk-6", |_, story, _| lines(format_ai_sdk::read_in_all_ways(story, 6))),
    ("ai-sdk-7", |_, story, _| lines(format_ai_sdk::read_in_all_ways(story, 7))),
];

/// The envelopes. The order of the members of their payloads has no meaning.
fn events(run: &Run, audience: Audience) -> String {
    let mut out = String::new();
    for row in &run.rows {
        let Some(text) = row.view(audience) else { continue };
        let mut envelope: Value = serde_json::from_slice(text).expect("a row is JSON");
        envelope["payload"].sort_all_objects();
        writeln!(out, "{} {envelope}", row.prev(audience)).expect("writing to a string cannot fail");
    }
    out
}

/// The frames of a reader that reads live, and the snapshots of one that joins at the end.
fn native(run: &Run, audience: Audience) -> String {
    let (encoder, mut out) = (Encoder::new(&run.log), FrameBuffer::new(Epoch::from_random(1)));
    let mut view = View::new(&run.log, audience);
    for row in &run.rows {
        let folded = view.fold(row.sequence(), row.view(audience));
        for change in &folded.changes {
            encoder.change(&mut out, row.sequence(), folded.prev, view.changed_activity(change), change);
        }
        if !folded.changes.is_empty() {
            out.set_cursor();
        }
    }
    for activity in view.activities() {
        encoder.snapshot(&mut out, activity.sequence, None, activity);
    }
    encoder.hydrated(&mut out, view.last_framed, Some(view.through));
    String::from_utf8(out.finish().into_bytes().into()).expect("frames are text")
}

fn lines(read: Vec<(&str, Vec<Value>)>) -> String {
    let mut out = String::new();
    for (name, events) in read {
        writeln!(out, "# {name}").expect("writing to a string cannot fail");
        for event in events {
            writeln!(out, "{event}").expect("writing to a string cannot fail");
        }
    }
    out
}

/// Reads a run by all faces as all audiences: the digest of each face.
fn digests(name: &str, source: &str, facts: &[Value]) -> String {
    let (log, rows) = block_on(async { Pipeline::with_clock(|| jiff::Timestamp::UNIX_EPOCH).rows(&[(source, facts)]).await });
    let run = Run { log, rows };
    let mut digests = vec![0; FACES.len()];
    for audience in Audience::ALL {
        let story = Story::of(&run.log, &run.rows, audience);
        for ((face, read), digest) in FACES.iter().zip(&mut digests) {
            let text = read(&run, &story, audience);
            *digest = xxh3_64(format!("{digest}\n{text}").as_bytes());
            if let Some(dir) = std::env::var_os("PROSCENIUM_FACES") {
                let dir = std::path::Path::new(&dir).join(name);
                std::fs::create_dir_all(&dir).expect("the directory can be created");
                std::fs::write(dir.join(format!("{face}.{audience}.txt")), text).expect("the file can be written");
            }
        }
    }
    digests.iter().map(|digest| format!(" {:012x}", digest >> 16)).collect()
}

/// The digests by recording, and whether the present version of the fold gave them.
fn table() -> (BTreeMap<String, String>, bool) {
    let text = std::fs::read_to_string(repository(TABLE)).unwrap_or_default();
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    let rows = rows.map(|line| line.split_at(line.find(' ').expect("a name precedes the digests")));
    let rows = rows.map(|(name, digests)| (name.to_owned(), digests.to_owned())).collect();
    (rows, text.lines().any(|line| line == format!("# fold {VERSION}")))
}

/// Whether the same rows have other contents: then checkpoints of the fold that gave the older ones are wrong.
fn folds_otherwise(digests: &str, before: &str) -> bool {
    let [found, before] = [digests, before].map(|digests| digests.split(' ').collect::<Vec<_>>());
    // A space precedes each digest.
    found[1] == before[1] && found[2] != before[2]
}

#[test]
fn the_bytes_of_every_face_are_as_recorded() {
    let generated =
        generated_runs(GENERATED).into_iter().enumerate().map(|(n, facts)| ("agentui", format!("generated/{n:02}"), facts));
    let all: Vec<_> = recordings().into_iter().chain(generated).collect();
    let names: Vec<_> = all.iter().map(|(_, name, _)| name.clone()).collect();
    let is_update = std::env::var("UPDATE_FACES").is_ok_and(|update| update == "1");
    let tried = if is_update { all } else { part_of(all, PARTS) };
    let read = |part: &[(&str, String, Vec<Value>)]| -> Vec<_> {
        part.iter().map(|(source, name, facts)| (name.clone(), digests(name, source, facts))).collect()
    };
    // Both halves have recordings of every source.
    let (left, right): (Vec<_>, Vec<_>) = tried.into_iter().enumerate().partition(|(n, _)| n % 2 == 0);
    let [left, right] = [left, right].map(|part| part.into_iter().map(|(_, run)| run).collect::<Vec<_>>());
    let found: BTreeMap<_, _> = std::thread::scope(|scope| {
        let other = scope.spawn(|| read(&right));
        read(&left).into_iter().chain(other.join().expect("the other half is read")).collect()
    });
    let (expected, is_same_version) = table();
    if is_update {
        let folded =
            found.iter().filter(|(name, digests)| expected.get(*name).is_some_and(|before| folds_otherwise(digests, before)));
        let folded: Vec<_> = folded.map(|(name, _)| name).filter(|_| is_same_version).collect();
        assert!(folded.is_empty(), "the fold has other results: increase VERSION in crates/projection/src/lib.rs; {folded:?}");
        let faces: Vec<_> = FACES.iter().map(|(face, _)| *face).collect();
        let rows: String = found.iter().map(|(name, digests)| format!("{name}{digests}\n")).collect();
        let text = format!(
            "# Digests of what readers get; see tests/it/faces.rs.\n# fold {VERSION}\n# recording {}\n{rows}",
            faces.join(" ")
        );
        std::fs::write(repository(TABLE), text).expect("the table can be written");
        return;
    }
    assert!(is_same_version, "the fold has another version than {TABLE} says: UPDATE_FACES=1 cargo test --test it faces");
    assert_eq!(
        expected.keys().collect::<Vec<_>>(),
        names.iter().collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    );
    let mut differences = Vec::new();
    for (name, digests) in &found {
        let faces = FACES.iter().map(|(face, _)| *face).zip(digests.split(' ').skip(1).zip(expected[name].split(' ').skip(1)));
        let changed: Vec<_> = faces.filter(|(_, (found, expected))| found != expected).map(|(face, _)| face).collect();
        if !changed.is_empty() {
            differences.push(format!("{name}: {}", changed.join(" ")));
        }
    }
    assert!(differences.is_empty(), "{} recordings have other bytes:\n{}", differences.len(), differences.join("\n"));
}

/// The rows of a run, and what a user sees of it.
fn story_of(source: &str, facts: &[Value]) -> Story {
    let (log, rows) = block_on(async { Pipeline::with_clock(|| jiff::Timestamp::UNIX_EPOCH).rows(&[(source, facts)]).await });
    Story::of(&log, &rows, Audience::User)
}

/// The files that the only call of a run touches, after each of its envelopes.
fn locations(story: &Story) -> Vec<Option<Value>> {
    let of_call = |at| story.at(at).iter().find_map(|shown| shown.content.get("locations").cloned());
    (1..=story.last()).map(of_call).collect()
}

#[test]
fn the_files_that_a_call_of_acp_touches_are_in_its_content_and_in_every_dialect() {
    let story = story_of("acp", &facts_in("acp/scripted-one_tool"));
    let touched = json!([{ "path": "/srv/demo/README.md" }]);
    assert_eq!(locations(&story).last(), Some(&Some(touched.clone())));
    let member = format!("\"locations\":{touched}");
    for version in [Version::Old, Version::V1] {
        for (way, events) in format_ag_ui::read_in_all_ways(&story, version) {
            assert!(lines(vec![(way, events)]).contains(&member), "AG-UI {version:?}, {way}");
        }
    }
    for version in [5, 6, 7] {
        for (way, chunks) in format_ai_sdk::read_in_all_ways(&story, version) {
            assert!(lines(vec![(way, chunks)]).contains(&member), "AI SDK {version}, {way}");
        }
    }
}

#[test]
fn a_call_touches_the_files_that_its_latest_fact_names_wherever_the_fact_has_them() {
    let places = |paths: &[&str]| paths.iter().map(|path| json!({ "path": path, "line": 3 })).collect::<Vec<_>>();
    let many: Vec<_> = (0..200).map(|n| json!({ "path": n.to_string() })).collect();
    let of = |event_type: &str, members: Value| {
        let mut fact = fact(event_type, members);
        (fact["toolCallId"], fact["audience"]) = ("c".into(), "user".into());
        fact
    };
    let facts = [
        of("tool.started", json!({ "payload": { "toolName": "edit", "locations": places(&["a"]) } })),
        of("tool.progress", json!({ "locations": places(&["a", "b"]) })),
        of("tool.progress", json!({ "payload": { "message": "still", "locations": "no list" } })),
        of("tool.args", json!({ "payload": { "input": {}, "locations": many } })),
        of("tool.result", json!({ "payload": { "output": "done", "locations": [] } })),
    ];
    let touched = locations(&story_of("agentui", &facts));
    let expected = [Some(places(&["a"]).into()), Some(places(&["a", "b"]).into()), Some(places(&["a", "b"]).into())];
    assert_eq!(touched[..3], expected);
    assert_eq!(touched[3].as_ref().and_then(Value::as_array).map(Vec::len), Some(100));
    assert_eq!(touched[4..], [None]);
}
