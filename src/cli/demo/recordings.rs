//! Runs of other runtimes, in their own words: recorded, and played as they are beside the story.
//!
//! The player is an ordinary producer: one streamed POST a run, a fact a line, at the pace of a person watching. What it plays is
//! in `tests/recordings`; only the pauses are ours.

use super::Stage;
use bytes::Bytes;
use rust_embed::RustEmbed;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The recordings.
#[derive(RustEmbed)]
#[folder = "tests/recordings/"]
#[include = "awaken/*.ndjson"]
#[include = "ethos/approval_gate_waits_silently.ndjson"]
#[include = "ethos/short_text_thinking.ndjson"]
#[include = "ethos/tool_progress_audiences.ndjson"]
#[include = "turn-runner/handwritten-port-gate_approved.ndjson"]
#[include = "turn-runner/handwritten-port-multi_tool.ndjson"]
#[include = "ag-ui/scripted-sdk1.0-activity.ndjson"]
#[include = "ag-ui/scripted-sdk1.0-text_reasoning.ndjson"]
#[include = "ag-ui/scripted-sdk1.0-tools_interleaved.ndjson"]
struct Recordings;

/// What is played, in this order and then again: the source, the recording, and what its runs are called. Left out are those in
/// which nothing happens, those that never end, and of Awaken, which has real ones, those that no runtime made.
#[rustfmt::skip]
const PLAYLIST: &[(&str, &str, &str)] = &[
    ("awaken", "awaken/tool_progress_activity.ndjson", "tool-progress"),
    ("ethos", "ethos/tool_progress_audiences.ndjson", "ethos-progress"),
    ("awaken", "awaken/multi_tool_sequential.ndjson", "several-tools"),
    ("turnrunner", "turn-runner/handwritten-port-multi_tool.ndjson", "turn-runner-tools"),
    ("ag-ui", "ag-ui/scripted-sdk1.0-tools_interleaved.ndjson", "ag-ui-tools"),
    ("awaken", "awaken/hitl_approve.ndjson", "approval"),
    ("ethos", "ethos/approval_gate_waits_silently.ndjson", "ethos-approval"),
    ("awaken", "awaken/short_text_reasoning.ndjson", "reasoning"),
    ("turnrunner", "turn-runner/handwritten-port-gate_approved.ndjson", "turn-runner-gate"),
    ("ag-ui", "ag-ui/scripted-sdk1.0-activity.ndjson", "ag-ui-activity"),
    ("awaken", "awaken/tool_errors.ndjson", "tool-errors"),
    ("awaken", "awaken/subagent_progress_forwarded.ndjson", "subagent"),
    ("ethos", "ethos/short_text_thinking.ndjson", "ethos-thinking"),
    ("awaken", "awaken/recovery_stream_reset.ndjson", "recovery"),
    ("ag-ui", "ag-ui/scripted-sdk1.0-text_reasoning.ndjson", "ag-ui-reasoning"),
    ("awaken", "awaken/cancel_mid_tool.ndjson", "cancelled"),
    ("awaken", "awaken/three_turns_one_thread.ndjson", "conversation"),
    ("awaken", "awaken/hitl_reject_result.ndjson", "rejected"),
    ("awaken", "awaken/blocked_by_policy.ndjson", "blocked"),
    ("awaken", "awaken/recovery_continue_text.ndjson", "continued"),
    ("awaken", "awaken/malformed_tool_args_orphan_call.ndjson", "malformed-call"),
    ("awaken", "awaken/hitl_cancel.ndjson", "declined"),
    ("awaken", "awaken/long_40_steps.ndjson", "long"),
];

/// Recordings that play at once.
pub const LANES: usize = 2;

/// Between the last recording and the first one again, however fast they are played.
const RECESS: Duration = Duration::from_secs(2);

impl Stage {
    /// Plays one recording after another: for ever, unless everything is played once.
    pub async fn play_recordings(self: Arc<Self>, lane: usize) {
        // The first run begins at once, so that there is something to see; the others join it.
        self.pause(1500 * lane as u64).await;
        for turn in 0.. {
            let (round, place) = ((turn * LANES + lane) / PLAYLIST.len(), (turn * LANES + lane) % PLAYLIST.len());
            if round > 0 && place < LANES {
                if self.is_once {
                    return;
                }
                tokio::time::sleep(RECESS).await;
            }
            let (source, file, name) = PLAYLIST[place];
            for facts in runs_of(source, file) {
                let run = format!("demo-{}-{name}", self.recorded.fetch_add(1, Ordering::Relaxed) + 1);
                if let Err(why) = self.clone().play(&run, source, name, facts).await {
                    tracing::warn!(run, %why, "a run of the demo broke off");
                }
                self.wait(Pause::new(2500, 1500)).await;
            }
        }
    }

    /// Plays one run: one streamed body, a fact a line.
    async fn play(self: Arc<Self>, run: &str, source: &str, name: &str, facts: Vec<Fact>) -> Result<(), crate::cli::CliError> {
        let lines = futures_util::stream::unfold((self.clone(), facts.into_iter()), async |(stage, mut facts)| {
            let fact = facts.next()?;
            stage.wait(fact.before).await;
            Some((Ok(fact.line), (stage, facts)))
        });
        let session = format!("demo-{name}");
        let ids = [("source", source), ("sessionId", &session)];
        self.api.stream(run, &ids, lines).await
    }

    async fn wait(&self, pause: Pause) {
        self.pause(pause.least_ms + self.random(pause.jitter_ms)).await;
    }
}

/// How long to wait: this long, and up to so much longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pause {
    least_ms: u64,
    jitter_ms: u64,
}

impl Pause {
    const fn new(least_ms: u64, jitter_ms: u64) -> Self {
        Self { least_ms, jitter_ms }
    }

    /// The pause before a fact of this type, in whatever vocabulary.
    fn before(event_type: &str) -> Self {
        match event_type {
            "activity_snapshot" | "activity_delta" | "tool_progress" | "ACTIVITY_SNAPSHOT" | "ACTIVITY_DELTA" => {
                Self::new(180, 140)
            }
            other if other.ends_with("_delta") || other.ends_with("_CONTENT") || other == "message" => Self::new(30, 50),
            "run_start" | "tool_call_done" | "tool_call_resumed" | "stream_reset" | "tool_end" | "toolExecutionEnd" => {
                Self::new(300, 300)
            }
            "RUN_STARTED" | "TOOL_CALL_RESULT" | "turnStart" | "step_start" | "iterationStart" => Self::new(250, 250),
            // Somebody had to decide.
            "tool_start" | "turnGateClosed" => Self::new(900, 600),
            _ => Self::new(5, 15),
        }
    }

    /// How long a person thinks before saying yes or no.
    const HUMAN: Self = Self::new(3500, 2000);
}

/// One line to send, and how long to wait before it.
struct Fact {
    before: Pause,
    line: Bytes,
}

/// What begins a run, by the sources' names.
const STARTS: &[&str] = &["run_start", "turnStart", "RUN_STARTED"];

/// What a recorded event is called.
fn type_of(event: &Value) -> &str {
    ["event_type", "type", "event"].iter().find_map(|member| event[*member].as_str()).unwrap_or_default()
}

/// The runs of a recording: a file may hold several, one after another. A run that was suspended and goes on is one.
fn runs_of(source: &str, file: &str) -> Vec<Vec<Fact>> {
    let recording = Recordings::get(file).expect("the playlist names recordings that are built in");
    let recording = Bytes::from(recording.data.into_owned());
    let mut runs: Vec<Vec<Fact>> = Vec::new();
    let mut of = Value::Null;
    for line in recording.split_inclusive(|byte| *byte == b'\n') {
        let event: Value = serde_json::from_slice(line).expect("every recorded line is JSON");
        let event_type = type_of(&event);
        let mut before = Pause::before(event_type);
        if runs.is_empty() || STARTS.contains(&event_type) {
            // Only Awaken starts a run again that it had suspended.
            if source == "awaken" && !runs.is_empty() && event["run_id"] == of {
                before = Pause::HUMAN;
            } else {
                runs.push(Vec::new());
            }
            of = event["run_id"].clone();
        }
        let run = runs.last_mut().expect("a recording begins with a run's start");
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

    #[test]
    fn every_run_of_the_playlist_begins_with_a_start_and_comes_to_an_end() {
        for (source, file, _) in PLAYLIST {
            let (start, end) = match *source {
                "awaken" => ("run_start", "run_finish"),
                "ethos" => ("run_start", "done"),
                "turnrunner" => ("turnStart", "turnEnd"),
                _ => ("RUN_STARTED", "RUN_FINISHED"),
            };
            for run in runs_of(source, file) {
                let kinds = kinds(&run);
                assert_eq!((kinds[0].as_str(), kinds.last().unwrap().as_str()), (start, end), "{file}");
                let last: Value = serde_json::from_slice(&run.last().unwrap().line).unwrap();
                assert_ne!(last["termination"]["type"], "suspended", "{file}");
            }
        }
    }

    #[test]
    fn every_source_is_heard_and_none_is_too_long_in_coming() {
        for source in ["awaken", "ethos", "turnrunner", "ag-ui"] {
            assert!(PLAYLIST.iter().position(|(of, ..)| *of == source).is_some_and(|at| at < 5), "{source}");
        }
    }

    #[test]
    fn a_suspended_run_goes_on_after_somebody_has_thought_about_it() {
        let runs = runs_of("awaken", "awaken/hitl_approve.ndjson");
        assert_eq!(runs.len(), 1);
        let pauses: Vec<_> = runs[0].iter().map(|fact| fact.before).collect();
        assert_eq!(pauses.iter().filter(|pause| **pause == Pause::HUMAN).count(), 1);
    }

    #[test]
    fn a_conversation_of_three_turns_is_three_runs() {
        assert_eq!(runs_of("awaken", "awaken/three_turns_one_thread.ndjson").len(), 3);
    }
}
