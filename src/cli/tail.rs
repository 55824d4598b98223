//! `proscenium tail`: shows one run in the terminal, from its start or from now on.
//!
//! It is an ordinary reader of `frames=events`. It reconnects with its cursor, skips envelopes that it has shown, and
//! reports a gap when `prev` does not match.

mod renderer;

use super::screen::{LineStyle, Screen};
use super::{Audience, CliError, Endpoint};
use proscenium::connect::sse::{SseMessage, SseParser};
use renderer::{Event, Renderer};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::io::{self, Write};
use std::time::Duration;

/// The largest message that a server sends: its largest fact, in a frame.
const MESSAGE_BYTES_MAX: usize = 272 * 1024 * 1024;

/// The arguments of `tail`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Tail {
    /// The run to watch. The command waits for a run that has no facts yet.
    run: String,
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
}

const EXAMPLES: &str = "\
Examples:
  proscenium tail my-run                          from its start, then live; exits when the run ends
  proscenium tail my-run --from now               only new envelopes
  proscenium tail my-run --audience internal      everything, including what users do not see
  proscenium tail my-run > my-run.txt             plain lines

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
    let screen = if is_terminal { Screen::live(colour) } else { Screen::plain(Box::new(io::stdout()), colour) };
    let mut viewer = Viewer { screen, renderer: Renderer::default(), last: (args.from == StartPosition::Start).then_some(0) };
    let followed = follow(&args, &mut viewer).await;
    viewer.screen.close()?;
    followed
}

async fn follow(args: &Tail, viewer: &mut Viewer) -> Result<(), CliError> {
    let after = if args.from == StartPosition::Start { "start" } else { "now" };
    let url =
        format!("{}?frames=events&audience={}&after={after}", args.server.run_url(&args.run, "stream"), args.audience.as_str());
    let client = args.server.client()?;
    report_unknown_run(args, &client).await;
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
                    viewer.screen.line(LineStyle::Dim, "— reconnected")?;
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
            viewer.screen.line(LineStyle::Dim, &format!("— connection lost ({reason}); reconnecting"))?;
        }
        let delay = parser.retry().unwrap_or(Duration::from_secs(1));
        tokio::time::sleep(delay.saturating_mul(1 << tries.min(4)).min(RETRY_DELAY_MAX)).await;
        tries += 1;
    }
}

/// Reports a run without facts on standard error: its name may be wrong.
async fn report_unknown_run(args: &Tail, client: &reqwest::Client) {
    // The request of the stream reports any other error.
    let Ok(answer) = client.get(args.server.run_url(&args.run, "")).send().await else { return };
    if answer.status() == reqwest::StatusCode::NOT_FOUND {
        let run = super::screen::sanitize(&args.run).into_owned();
        let _ = writeln!(io::stderr(), "run {run:?} has no facts yet; waiting for the first (Ctrl-C to stop)");
    }
}

/// The members of a frame that this command reads.
#[derive(Debug, Deserialize)]
#[serde(tag = "frame")]
enum Frame {
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

/// A reader of one run, and its output.
struct Viewer {
    screen: Screen,
    renderer: Renderer,
    /// The last shown sequence; `None` before the first.
    last: Option<u64>,
}

impl Viewer {
    /// Shows a frame; returns true for the end of the run.
    fn show(&mut self, frame: Frame) -> Result<bool, CliError> {
        match frame {
            Frame::Event { sequence, prev, event } => {
                match self.last {
                    Some(last) if sequence <= last => return Ok(false),
                    Some(last) if prev.is_some_and(|prev| prev != last) => {
                        let gap = format!(
                            "! envelopes are missing here: received {sequence} after {last}, expected {} before it",
                            prev.unwrap_or(0)
                        );
                        self.screen.line(LineStyle::Failure, &gap)?;
                    }
                    _ => {}
                }
                self.last = Some(sequence);
                self.renderer.render(&Event(&event), &mut self.screen)?;
            }
            Frame::Reset { reason } => {
                self.last = Some(0);
                self.renderer = Renderer::default();
                let reason = reason.as_deref().unwrap_or("unknown");
                self.screen.line(
                    LineStyle::Info,
                    &format!("— the log of this run was replaced ({reason}); showing it from its start:"),
                )?;
            }
            Frame::Error { problem } => {
                let text = |member: &str| problem[member].as_str().unwrap_or("unknown").to_owned();
                return Err(CliError::Rejected { code: text("code"), detail: text("detail") });
            }
            Frame::End { status } => {
                let line_style = if status == "completed" { LineStyle::Success } else { LineStyle::Failure };
                self.screen.line(line_style, &format!("■ {status}"))?;
                return Ok(true);
            }
            Frame::Other => {}
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::super::screen::tests::BufferScreen;
    use super::*;
    use serde_json::json;

    /// Returns the output after these frames, for a reader that began at the start of the run.
    fn render(frames: &[Value]) -> String {
        let buffer = BufferScreen::default();
        let mut viewer = Viewer { screen: buffer.screen(), renderer: Renderer::default(), last: Some(0) };
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
        let other = json!({ "type": "task.changed", "taskId": "t", "payload": { "numbers": long } });
        let shown = render(&events(&[result, other]));
        for (line, before) in shown.lines().zip(["✓ c  ", "· task.changed "]) {
            let body: Value = serde_json::from_str(line.strip_prefix(before).unwrap()).unwrap();
            assert_eq!(body["numbers"], json!(long));
        }
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
