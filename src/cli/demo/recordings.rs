//! Plays recorded runs of other runtimes beside the story.
//!
//! The player is an ordinary producer: one streamed POST per run, one fact per line, at a pace that a viewer can
//! follow. The facts come unchanged from `tests/recordings`; the player only adds the pauses.

use super::Context;
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A recording of the playlist: the source, the file, the name of its runs, and the recorded facts.
type Recording = (&'static str, &'static str, &'static str, &'static [u8]);

/// Embeds a recording in the binary.
macro_rules! recording {
    ($source:literal, $file:literal, $name:literal) => {
        ($source, $file, $name, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recordings/", $file)))
    };
}

/// The recordings to play in this order, repeatedly.
///
/// It omits recordings without content, those that never end, and Awaken's handwritten ones, because Awaken has real
/// ones.
#[rustfmt::skip]
const PLAYLIST: &[Recording] = &[
    recording!("awaken", "awaken/tool_progress_activity.ndjson", "tool-progress"),
    recording!("ethos", "ethos/tool_progress_audiences.ndjson", "ethos-progress"),
    recording!("awaken", "awaken/multi_tool_sequential.ndjson", "several-tools"),
    recording!("turnrunner", "turn-runner/handwritten-port-multi_tool.ndjson", "turn-runner-tools"),
    recording!("ag-ui", "ag-ui/scripted-sdk1.0-tools_interleaved.ndjson", "ag-ui-tools"),
    recording!("ai-sdk", "ai-sdk/parallel_tools_same_name.ndjson", "ai-sdk-tools"),
    recording!("openai-responses", "openai-responses/endpoint-web_search_citations.ndjson", "responses-search"),
    recording!("a2a", "a2a/v1-multi_artifacts_unicode.ndjson", "a2a-artifacts"),
    recording!("awaken", "awaken/hitl_approve.ndjson", "approval"),
    recording!("ethos", "ethos/approval_gate_waits_silently.ndjson", "ethos-approval"),
    recording!("awaken", "awaken/short_text_reasoning.ndjson", "reasoning"),
    recording!("turnrunner", "turn-runner/handwritten-port-gate_approved.ndjson", "turn-runner-gate"),
    recording!("ag-ui", "ag-ui/scripted-sdk1.0-activity.ndjson", "ag-ui-activity"),
    recording!("awaken", "awaken/tool_errors.ndjson", "tool-errors"),
    recording!("awaken", "awaken/subagent_progress_forwarded.ndjson", "subagent"),
    recording!("ethos", "ethos/short_text_thinking.ndjson", "ethos-thinking"),
    recording!("awaken", "awaken/recovery_stream_reset.ndjson", "recovery"),
    recording!("ag-ui", "ag-ui/scripted-sdk1.0-text_reasoning.ndjson", "ag-ui-reasoning"),
    recording!("awaken", "awaken/cancel_mid_tool.ndjson", "cancelled"),
    recording!("awaken", "awaken/three_turns_one_thread.ndjson", "conversation"),
    recording!("awaken", "awaken/hitl_reject_result.ndjson", "rejected"),
    recording!("awaken", "awaken/blocked_by_policy.ndjson", "blocked"),
    recording!("awaken", "awaken/recovery_continue_text.ndjson", "continued"),
    recording!("awaken", "awaken/malformed_tool_args_orphan_call.ndjson", "malformed-call"),
    recording!("awaken", "awaken/hitl_cancel.ndjson", "declined"),
    recording!("awaken", "awaken/long_40_steps.ndjson", "long"),
];

/// The number of recordings that play at the same time.
pub const CONCURRENT_RECORDINGS: usize = 2;

/// The pause before the playlist starts again, at any speed.
const ROUND_PAUSE: Duration = Duration::from_secs(2);

impl Context {
    /// Plays one recording after another, or with `--once` the playlist once.
    pub async fn play_recordings(self: Arc<Self>, lane: usize) {
        // The first lane starts at once, so that the page is not empty; the others follow.
        self.pause(1500 * lane as u64).await;
        for turn in 0.. {
            let (round, position) =
                ((turn * CONCURRENT_RECORDINGS + lane) / PLAYLIST.len(), (turn * CONCURRENT_RECORDINGS + lane) % PLAYLIST.len());
            if round > 0 && position < CONCURRENT_RECORDINGS {
                if self.is_once {
                    return;
                }
                tokio::time::sleep(ROUND_PAUSE).await;
            }
            let (source, _, name, facts) = PLAYLIST[position];
            for facts in split_runs(source, facts) {
                let run = format!("demo-{}-{name}", self.recorded.fetch_add(1, Ordering::Relaxed) + 1);
                if let Err(error) = self.clone().play(&run, source, name, facts).await {
                    tracing::warn!(run, %error, "a recorded run of the demo failed");
                }
                self.wait((2500, 1500)).await;
            }
        }
    }

    /// Plays one run as one streamed body with one fact per line.
    async fn play(self: Arc<Self>, run: &str, source: &str, name: &str, facts: Vec<Fact>) -> Result<(), crate::cli::CliError> {
        let lines = futures_util::stream::unfold((self.clone(), facts.into_iter()), async |(context, mut facts)| {
            let fact = facts.next()?;
            context.wait(fact.before).await;
            Some((Ok(fact.line), (context, facts)))
        });
        let session = format!("demo-{name}");
        let opened = json!({ "type": "session.opened", "payload": { "title": title(name, source) } });
        self.api.session_producer(&session).publish(&[opened]).await?;
        let ids = [("source", source), ("sessionId", &session)];
        self.api.stream(run, &ids, lines).await
    }

    async fn wait(&self, (min_ms, jitter_ms): Pause) {
        self.pause(min_ms + self.random(jitter_ms)).await;
    }
}

/// Returns the title of a recording's session, such as `Several tools (awaken)`.
fn title(name: &str, source: &str) -> String {
    let words = name.trim_start_matches(source).trim_start_matches(['-']).replace('-', " ");
    let (first, rest) = words.split_at(1);
    format!("{}{rest} ({source})", first.to_uppercase())
}

/// The length of a pause in milliseconds: a minimum, and the maximum of a random addition.
type Pause = (u64, u64);

/// The time that a person needs for a decision.
const DECISION: Pause = (3500, 2000);

/// Returns the pause before a fact of this type, in the vocabulary of any source.
fn pause_before(event_type: &str) -> Pause {
    match event_type {
        "activity_snapshot" | "activity_delta" | "tool_progress" | "ACTIVITY_SNAPSHOT" | "ACTIVITY_DELTA" => (180, 140),
        other if other.ends_with("_delta") || other.ends_with("_CONTENT") || other == "message" => (30, 50),
        "run_start" | "tool_call_done" | "tool_call_resumed" | "stream_reset" | "tool_end" | "toolExecutionEnd" => (300, 300),
        "RUN_STARTED" | "TOOL_CALL_RESULT" | "turnStart" | "step_start" | "iterationStart" => (250, 250),
        // A person had to decide.
        "tool_start" | "turnGateClosed" => (900, 600),
        _ => (5, 15),
    }
}

/// One line to send, and the pause before it.
struct Fact {
    before: Pause,
    line: Bytes,
}

/// The event types that start a run, of all sources.
const STARTS: &[&str] = &["run_start", "turnStart", "RUN_STARTED"];

/// Returns the type of a recorded event.
fn type_of(event: &Value) -> &str {
    ["event_type", "type", "event"].iter().find_map(|member| event[*member].as_str()).unwrap_or_default()
}

/// Splits a recording into its runs. A suspended run and its continuation are one run.
fn split_runs(source: &str, recording: &'static [u8]) -> Vec<Vec<Fact>> {
    let recording = Bytes::from_static(recording);
    let mut runs: Vec<Vec<Fact>> = Vec::new();
    let mut current = Value::Null;
    for line in recording.split_inclusive(|byte| *byte == b'\n') {
        let event: Value = serde_json::from_slice(line).expect("every recorded line is JSON");
        let event_type = type_of(&event);
        let mut before = pause_before(event_type);
        if runs.is_empty() || STARTS.contains(&event_type) {
            // Only Awaken sends another start event when it continues a suspended run.
            if source == "awaken" && !runs.is_empty() && event["run_id"] == current {
                before = DECISION;
            } else {
                runs.push(Vec::new());
            }
            current = event["run_id"].clone();
        }
        let run = runs.last_mut().expect("the first line starts a run");
        run.push(Fact { before, line: recording.slice_ref(line) });
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(run: &[Fact]) -> Vec<String> {
        run.iter().map(|fact| type_of(&serde_json::from_slice(&fact.line).unwrap()).to_owned()).collect()
    }

    /// Splits the recording of this file.
    fn split_file(file: &str) -> Vec<Vec<Fact>> {
        let (source, .., facts) = PLAYLIST.iter().find(|(_, of, ..)| *of == file).unwrap();
        split_runs(source, facts)
    }

    #[test]
    fn every_run_of_the_playlist_has_a_start_and_an_end() {
        for (source, file, _, facts) in PLAYLIST {
            let (start, end) = match *source {
                "awaken" => ("run_start", "run_finish"),
                "ethos" => ("run_start", "done"),
                "turnrunner" => ("turnStart", "turnEnd"),
                "ai-sdk" => ("start", "finish"),
                "openai-responses" => ("response.created", "response.completed"),
                // Its events have no type; the states of a task say where it is.
                "a2a" => ("", ""),
                _ => ("RUN_STARTED", "RUN_FINISHED"),
            };
            for run in split_runs(source, facts) {
                let kinds = kinds(&run);
                assert_eq!((kinds[0].as_str(), kinds.last().unwrap().as_str()), (start, end), "{file}");
                let last: Value = serde_json::from_slice(&run.last().unwrap().line).unwrap();
                assert_ne!(last["termination"]["type"], "suspended", "{file}");
            }
        }
    }

    #[test]
    fn a_title_names_the_recording_and_its_source_once() {
        assert_eq!(title("several-tools", "awaken"), "Several tools (awaken)");
        assert_eq!(title("ag-ui-activity", "ag-ui"), "Activity (ag-ui)");
    }

    #[test]
    fn every_source_is_among_the_first_recordings() {
        for source in ["awaken", "ethos", "turnrunner", "ag-ui"] {
            assert!(PLAYLIST.iter().position(|(of, ..)| *of == source).is_some_and(|at| at < 5), "{source}");
        }
    }

    #[test]
    fn a_suspended_run_continues_after_the_pause_of_a_decision() {
        let runs = split_file("awaken/hitl_approve.ndjson");
        assert_eq!(runs.len(), 1);
        let pauses: Vec<_> = runs[0].iter().map(|fact| fact.before).collect();
        assert_eq!(pauses.iter().filter(|pause| **pause == DECISION).count(), 1);
    }

    #[test]
    fn a_conversation_of_three_turns_is_three_runs() {
        assert_eq!(split_file("awaken/three_turns_one_thread.ndjson").len(), 3);
    }
}
