//! `proscenium tail`: shows a run, or all runs of a session, in the terminal, from the start or from now on.
//!
//! It is an ordinary reader of `frames=events`. It reconnects with its cursor, skips envelopes that it has shown, and
//! reports a gap when `prev` does not match.

mod event;
mod renderer;
mod words;

use super::screen::{LineStyle, Screen};
use super::{Audience, CliError, Endpoint};
use event::Event;
use proscenium::connect::sse::{SseMessage, SseParser};
use renderer::Renderer;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

/// The largest message that a server sends: its largest fact, in a frame.
const MESSAGE_BYTES_MAX: usize = 272 * 1024 * 1024;

/// The logs of a session that are remembered. Beyond, all are forgotten, and repeated text is shown again.
const SHOWN_LOGS_MAX: usize = 4096;

/// The arguments of `tail`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Tail {
    /// The run to watch. The command waits for a run that has no facts yet.
    #[arg(required_unless_present = "session")]
    run: Option<String>,
    /// The session to watch with all of its runs, also later ones, instead of a run.
    #[arg(long, env = "PROSCENIUM_SESSION", value_name = "SESSION", conflicts_with = "run")]
    session: Option<String>,
    #[command(flatten)]
    server: Endpoint,
    /// The audience to read as.
    #[arg(long, env = "PROSCENIUM_AUDIENCE", value_enum, default_value_t = Audience::User)]
    audience: Audience,
    /// The position to start from.
    #[arg(long, env = "PROSCENIUM_FROM", value_enum, default_value_t = StartPosition::Start)]
    from: StartPosition,
    /// Print no colours. `NO_COLOR`, or an output that is not a terminal, has the same effect.
    #[arg(long, env = "PROSCENIUM_NO_COLOR", value_parser = clap::builder::BoolishValueParser::new())]
    no_color: bool,
    /// Print each envelope as one line of JSON.
    #[arg(long, env = "PROSCENIUM_JSON", value_parser = clap::builder::BoolishValueParser::new())]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  proscenium tail my-run                          from its start, then live; exits when the run ends
  proscenium tail my-run --from now               only new envelopes
  proscenium tail my-run --audience internal      everything, including what users do not see
  proscenium tail my-run > my-run.txt             plain lines
  proscenium tail --session my-session            all runs of a session, until Ctrl-C
  proscenium tail my-run --json | jq .type

The exit code shows whether the command could watch the run. The last line shows how the run ended.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum StartPosition {
    Start,
    Now,
}

/// The longest delay before the next attempt to reconnect.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(15);

/// Watches the run until it ends.
///
/// # Errors
/// [`CliError`] if the first connection fails, or if the server rejects the request.
pub async fn run(args: Tail, is_colourful_terminal: bool) -> Result<(), CliError> {
    let colour = is_colourful_terminal && !args.no_color;
    let is_terminal = io::IsTerminal::is_terminal(&io::stdout());
    let screen = if is_terminal && !args.json { Screen::live(colour) } else { Screen::plain(Box::new(io::stdout()), colour) };
    let mut viewer = Viewer::new(screen, &args);
    let followed = follow(&args, &mut viewer).await;
    viewer.screen.close()?;
    followed
}

async fn follow(args: &Tail, viewer: &mut Viewer) -> Result<(), CliError> {
    let after = if args.from == StartPosition::Start { "start" } else { "now" };
    let stream = match (&args.session, &args.run) {
        (Some(session), _) => args.server.resource_url("sessions", session, "stream"),
        (None, run) => args.server.run_url(run.as_deref().unwrap_or_default(), "stream"),
    };
    let url = format!("{stream}?frames=events&audience={}&after={after}", args.audience.as_str());
    let client = args.server.client()?;
    if let Some(run) = &args.run {
        report_unknown_run(&args.server, run, &client).await;
    }
    let mut parser = SseParser::new(MESSAGE_BYTES_MAX);
    let (mut was_connected, mut tries) = (false, 0);
    loop {
        parser.reconnect();
        let mut request = client.get(&url).header("accept", "text/event-stream");
        if !parser.last_id().is_empty() {
            request = request.header("last-event-id", parser.last_id());
        }
        let reason = match request.send().await {
            Err(error) if !was_connected => return Err(args.server.request_error(&error)),
            Err(error) => args.server.request_error(&error).to_string(),
            Ok(answer) if answer.status() == reqwest::StatusCode::NO_CONTENT => return Ok(()),
            Ok(answer) if was_connected && answer.status().is_server_error() => {
                args.server.read_rejection(answer).await.0.to_string()
            }
            Ok(answer) => {
                let mut answer = args.server.require_success(answer).await?;
                if tries > 0 {
                    viewer.note(LineStyle::Dim, "— reconnected")?;
                }
                (was_connected, tries) = (true, 0);
                loop {
                    let bytes = match answer.chunk().await {
                        Ok(Some(bytes)) => bytes,
                        Ok(None) => break "the server ended the stream".to_owned(),
                        Err(error) => break super::innermost(&error),
                    };
                    let invalid_frame = |reason: String| CliError::InvalidFrame { url: url.clone(), reason };
                    for SseMessage { data, .. } in parser.push(&bytes).map_err(|error| invalid_frame(error.to_string()))? {
                        let frame = serde_json::from_str(&data).map_err(|error| invalid_frame(error.to_string()))?;
                        if viewer.show(frame)? {
                            return Ok(());
                        }
                    }
                }
            }
        };
        if tries == 0 {
            viewer.note(LineStyle::Dim, &format!("— connection lost ({reason}); reconnecting"))?;
        }
        let delay = parser.retry().unwrap_or(Duration::from_secs(1));
        tokio::time::sleep(delay.saturating_mul(1 << tries.min(4)).min(RETRY_DELAY_MAX)).await;
        tries += 1;
    }
}

/// Reports a run without facts on standard error: its name may be wrong.
async fn report_unknown_run(server: &Endpoint, run: &str, client: &reqwest::Client) {
    // The request of the stream reports any other error.
    let Ok(answer) = client.get(server.run_url(run, "")).send().await else { return };
    if answer.status() == reqwest::StatusCode::NOT_FOUND {
        let run = super::screen::sanitize(run).into_owned();
        let _ = writeln!(io::stderr(), "run {run:?} has no facts yet; waiting for the first (Ctrl-C to stop)");
    }
}

/// A frame, as far as this command reads it.
#[derive(Debug, Deserialize)]
struct Frame {
    #[serde(flatten)]
    log: LogName,
    #[serde(flatten)]
    kind: FrameKind,
}

/// The log of a frame.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogName {
    run_id: Option<String>,
    session_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "frame")]
enum FrameKind {
    Event {
        sequence: u64,
        prev: Option<u64>,
        event: Map<String, Value>,
    },
    Reset {
        reason: Option<String>,
    },
    Error {
        problem: Value,
    },
    End {
        status: String,
    },
    /// A frame type of a later server.
    #[serde(other)]
    Other,
}

/// A reader of one log or several, and its output.
struct Viewer {
    screen: Screen,
    /// What is shown of each log so far.
    logs: HashMap<LogName, ShownLog>,
    /// The log of the last line, of several.
    current: Option<LogName>,
    is_of_session: bool,
    /// Whether the first envelope of a log is expected to be its first one.
    is_from_start: bool,
    prints_json: bool,
}

/// What is shown of a log.
#[derive(Default)]
struct ShownLog {
    renderer: Renderer,
    /// The last shown sequence; `None` before the first.
    last: Option<u64>,
}

impl Viewer {
    fn new(screen: Screen, args: &Tail) -> Self {
        let (is_of_session, is_from_start) = (args.session.is_some(), args.from == StartPosition::Start);
        Self { screen, logs: HashMap::new(), current: None, is_of_session, is_from_start, prints_json: args.json }
    }

    /// Shows a frame; returns true for the end of the run.
    fn show(&mut self, Frame { log, kind }: Frame) -> Result<bool, CliError> {
        match kind {
            FrameKind::Event { sequence, prev, event } => self.show_event(log, sequence, prev, event)?,
            FrameKind::Reset { reason } => {
                if self.logs.len() >= SHOWN_LOGS_MAX {
                    self.logs.clear();
                }
                self.logs.insert(log, ShownLog { last: Some(0), ..ShownLog::default() });
                let reason = reason.as_deref().unwrap_or("unknown");
                let line = format!("— the log of this run was replaced ({reason}); showing it from its start:");
                self.note(LineStyle::Info, &line)?;
            }
            FrameKind::Error { problem } => {
                let text = |member: &str| problem[member].as_str().unwrap_or("unknown").to_owned();
                return Err(CliError::Rejected { code: text("code"), detail: text("detail") });
            }
            FrameKind::End { status } => {
                let line_style = if status == "completed" { LineStyle::Success } else { LineStyle::Failure };
                self.name_log(&log)?;
                self.note(line_style, &format!("■ {status}"))?;
                return Ok(!self.is_of_session);
            }
            FrameKind::Other => {}
        }
        Ok(false)
    }

    fn show_event(&mut self, log: LogName, sequence: u64, prev: Option<u64>, event: Map<String, Value>) -> Result<(), CliError> {
        if self.logs.len() >= SHOWN_LOGS_MAX && !self.logs.contains_key(&log) {
            self.logs.clear();
        }
        let is_from_start = self.is_from_start && !self.is_of_session;
        let start = || ShownLog { last: is_from_start.then_some(0), ..ShownLog::default() };
        let last = self.logs.entry(log.clone()).or_insert_with(start).last.replace(sequence);
        if let Some(last) = last {
            if sequence <= last {
                self.logs.entry(log).or_default().last = Some(last);
                return Ok(());
            }
            if prev.is_some_and(|prev| prev != last) {
                let expected = prev.unwrap_or(0);
                let gap =
                    format!("! envelopes are missing here: received {sequence} after {last}, expected {expected} before it");
                self.note(LineStyle::Failure, &gap)?;
            }
        }
        if self.prints_json {
            return Ok(self.screen.line(LineStyle::Text, &Value::Object(event).to_string())?);
        }
        self.name_log(&log)?;
        let shown = self.logs.entry(log).or_default();
        Ok(shown.renderer.render(&Event(&event), &mut self.screen)?)
    }

    /// Says which log follows, if the last lines are of another one.
    fn name_log(&mut self, log: &LogName) -> io::Result<()> {
        if !self.is_of_session || self.current.as_ref() == Some(log) {
            return Ok(());
        }
        self.current = Some(log.clone());
        let name = log.run_id.as_ref().map_or_else(|| "the session".to_owned(), |run| format!("run {run}"));
        self.note(LineStyle::Dim, &format!("— {name}"))
    }

    /// Writes a line that no envelope has. Programs that read JSON get none.
    fn note(&mut self, line_style: LineStyle, line: &str) -> io::Result<()> {
        if self.prints_json { Ok(()) } else { self.screen.line(line_style, line) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::screen::tests::BufferScreen;
    use super::*;
    use serde_json::json;

    /// Returns the output after these frames, for a reader that began at the start of the run.
    fn render(frames: &[Value]) -> String {
        render_as(&["tail", "r"], frames)
    }

    fn render_as(arguments: &[&str], frames: &[Value]) -> String {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            tail: Tail,
        }
        let buffer = BufferScreen::default();
        let mut viewer = Viewer::new(buffer.screen(), &<Line as clap::Parser>::try_parse_from(arguments).ok().unwrap().tail);
        for frame in frames {
            viewer.show(serde_json::from_value(frame.clone()).unwrap()).unwrap();
        }
        viewer.screen.close().unwrap();
        buffer.text()
    }

    /// Builds consecutive frames of these events.
    fn events(events: &[Value]) -> Vec<Value> {
        (1..).zip(events).map(|(n, event)| json!({ "frame": "Event", "sequence": n, "prev": n - 1, "event": event })).collect()
    }

    fn text(event_type: &str, text: Value) -> Value {
        json!({ "type": event_type, "messageId": "m", "partId": "p", "payload": text })
    }

    #[test]
    fn streamed_text_is_not_repeated_at_its_end() {
        let streamed = [text("text.delta", json!({ "text": "Hel" })), text("text.delta", json!({ "text": "lo." }))];
        for end in [json!({}), json!({ "text": "Hello." })] {
            assert_eq!(render(&events(&[&streamed[..], &[text("text.final", end)]].concat())), "Hello.\n");
        }
        assert_eq!(
            render(&events(&[&streamed[..], &[text("text.final", json!({ "text": "Hello. Bye." }))]].concat())),
            "Hello. Bye.\n"
        );
        let replaced = render(&events(&[&streamed[..], &[text("text.final", json!({ "text": "Hi." }))]].concat()));
        assert_eq!(replaced, "Hello.\n— the final text replaces the text above:\nHi.\n");
        assert_eq!(render(&events(&[text("text.final", json!({ "text": "All at once." }))])), "All at once.\n");
    }

    #[test]
    fn reasoning_and_plans_have_labels_and_interleaved_parts_have_separate_lines() {
        let of = |event_type: &str, part: &str, text: &str| json!({ "type": event_type, "messageId": "m", "partId": part, "payload": { "text": text } });
        let plain = render(&events(&[
            of("reasoning.delta", "p", "Let me "),
            of("reasoning.delta", "p", "think."),
            of("reasoning.summary", "p", "Let me think."),
            of("plan.delta", "p", "1. Look."),
            of("text.delta", "p", "The answer "),
            of("text.delta", "q", "Beside "),
            of("text.delta", "p", "is 4."),
            of("text.delta", "q", "it."),
            of("text.final", "p", "The answer is 4."),
            of("plan.final", "p", "1. Look. 2. Leap."),
        ]));
        assert_eq!(plain, "reasoning: Let me think.\nplan: 1. Look.\nThe answer \nBeside \nis 4.\nit.\nplan:  2. Leap.\n");
    }

    #[test]
    fn piped_output_has_whole_bodies() {
        let long: Vec<u32> = (0..200).collect();
        let result = json!({ "type": "tool.result", "toolCallId": "c", "payload": { "output": { "numbers": long } } });
        let shown = render(&events(&[result]));
        let body: Value = serde_json::from_str(shown.strip_prefix("✓ c  ").unwrap()).unwrap();
        assert_eq!(body["numbers"], json!(long));
    }

    #[test]
    fn json_is_each_envelope_as_it_is_and_nothing_else() {
        let all = [text("text.delta", json!({ "text": "Hi\n" })), json!({ "type": "run.finished", "payload": {} })];
        let end = json!({ "frame": "End", "status": "completed" });
        let shown = render_as(&["tail", "r", "--json"], &[&events(&all)[..], &[end]].concat());
        let lines: Vec<Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines, all);
    }

    #[test]
    fn the_runs_of_a_session_are_named_and_each_keeps_its_own_text() {
        let of = |run: &str, sequence: u64, event: Value| json!({ "frame": "Event", "runId": run, "sequence": sequence, "prev": sequence - 1, "event": event });
        let shown = render_as(
            &["tail", "--session", "s"],
            &[
                of("a", 1, text("text.delta", json!({ "text": "One" }))),
                of("b", 1, text("text.delta", json!({ "text": "Two" }))),
                of("a", 2, text("text.final", json!({ "text": "One." }))),
                of("a", 2, text("text.final", json!({ "text": "One." }))),
                json!({ "frame": "End", "runId": "a", "status": "completed" }),
                of("b", 2, text("text.final", json!({ "text": "Two" }))),
            ],
        );
        assert_eq!(shown, "— run a\nOne\n— run b\nTwo\n— run a\n.\n■ completed\n— run b\n");
    }

    #[test]
    fn a_gap_is_reported_and_a_repeated_envelope_is_skipped() {
        let event = |sequence: u64, prev: u64| json!({ "frame": "Event", "sequence": sequence, "prev": prev, "event": text("text.delta", json!({ "text": sequence.to_string() })) });
        assert_eq!(render(&[event(1, 0), event(4, 1), event(4, 1), event(2, 1), event(5, 4)]), "145\n");
        let gap = render(&[event(1, 0), event(5, 4)]);
        assert!(gap.contains("received 5 after 1, expected 4 before it"), "{gap}");
    }

    #[test]
    fn a_reset_starts_the_output_again() {
        let reset = json!({ "frame": "Reset", "sequence": 0, "reason": "epoch" });
        let again = events(&[text("text.delta", json!({ "text": "again" }))]);
        let shown = render(&[&events(&[text("text.delta", json!({ "text": "old" }))])[..], &[reset], &again[..]].concat());
        assert_eq!(shown, "old\n— the log of this run was replaced (epoch); showing it from its start:\nagain\n");
    }

    #[test]
    fn a_tool_has_separate_lines_between_the_text() {
        let tool = |event_type: &str, payload: Value| json!({ "type": event_type, "toolCallId": "c", "payload": payload });
        let shown = render(&events(&[
            text("text.delta", json!({ "text": "Look:" })),
            tool("tool.started", json!({ "toolName": "index" })),
            tool("tool.args", json!({ "input": { "n": 2 } })),
            tool("tool.progress", json!({ "progress": 0.5, "message": "half" })),
            tool("tool.progress", json!({ "activityType": "log", "content": "opened\n" })),
            tool("tool.result", json!({ "output": { "ok": true } })),
            tool("tool.failed", json!({ "error": { "code": "late", "message": "too late" } })),
        ]));
        assert_eq!(
            shown,
            "Look:\n▸ index\n▸ index  {\"n\":2}\n▸ index  50%  half\n  log: opened\n✓ index  {\"ok\":true}\n✗ c: late: too late\n"
        );
    }

    #[test]
    fn a_withheld_result_is_marked() {
        let event = json!({ "type": "tool.result", "toolCallId": "c", "payload": { "withheld": true, "status": "completed" } });
        assert_eq!(render(&events(&[event])), "✓ c  (not for this audience)\n");
    }

    #[test]
    fn unknown_frame_types_are_skipped() {
        assert_eq!(render(&[json!({ "frame": "Hologram", "sequence": 1 })]), "");
    }
}
