//! `proscenium tail`: one run in the terminal, from its start or from now on.
//!
//! An ordinary reader of `frames=events`: it comes back with its cursor when the connection breaks, ignores what it has seen,
//! and says so when `prev` tells it that something is missing.

use super::screen::{Ink, Screen, Work};
use super::sse::Parser;
use super::{Audience, CliError, Server};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::time::Duration;

/// What `tail` is asked for.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Tail {
    /// The run to watch. One that nobody has written yet is waited for.
    run: String,
    #[command(flatten)]
    server: Server,
    /// As whom to look.
    #[arg(long, env = "PROSCENIUM_AUDIENCE", value_enum, default_value_t = Audience::User)]
    audience: Audience,
    /// Where to begin.
    #[arg(long, env = "PROSCENIUM_FROM", value_enum, default_value_t = From::Start)]
    from: From,
    /// No colours; they are also left out where `NO_COLOR` is set, and where the output is no terminal.
    #[arg(long, env = "PROSCENIUM_NO_COLOR", value_parser = clap::builder::BoolishValueParser::new())]
    no_color: bool,
}

const EXAMPLES: &str = "\
Examples:
  proscenium tail my-run                          from its start, then live; ends when the run does
  proscenium tail my-run --from now               only what comes from now on
  proscenium tail my-run --audience internal      everything, also what users do not see
  proscenium tail my-run > my-run.txt             plain lines

The exit code says whether the run could be watched; how the run itself ended is the last line.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum From {
    Start,
    Now,
}

/// The longest wait before coming back to a server that is away.
const WAIT_MAX: Duration = Duration::from_secs(15);

/// Watches the run until it ends.
///
/// # Errors
/// [`CliError`] when the server cannot be reached at first, or refuses.
pub async fn run(asked: Tail, is_colourful_terminal: bool) -> Result<(), CliError> {
    let colour = is_colourful_terminal && !asked.no_color;
    let is_terminal = io::IsTerminal::is_terminal(&io::stdout());
    let screen = if is_terminal { Screen::live(colour) } else { Screen::plain(Box::new(io::stdout()), colour) };
    let mut watch = Watch { screen, story: Story::default(), last: (asked.from == From::Start).then_some(0) };
    let followed = follow(&asked, &mut watch).await;
    watch.screen.close()?;
    followed
}

async fn follow(asked: &Tail, watch: &mut Watch) -> Result<(), CliError> {
    let after = if asked.from == From::Start { "start" } else { "now" };
    let url =
        format!("{}?frames=events&audience={}&after={after}", asked.server.run(&asked.run, "stream"), asked.audience.as_str());
    let client = asked.server.client()?;
    say_if_unknown(asked, &client).await;
    let mut parser = Parser::default();
    let (mut was_there, mut tries) = (false, 0);
    loop {
        parser.reconnect();
        let mut request = client.get(&url).header("accept", "text/event-stream");
        if !parser.last_id().is_empty() {
            request = request.header("last-event-id", parser.last_id());
        }
        let why = match request.send().await {
            Err(error) if !was_there => return Err(asked.server.failed(&error)),
            Err(error) => asked.server.failed(&error).to_string(),
            Ok(answer) if answer.status() == reqwest::StatusCode::NO_CONTENT => return Ok(()),
            Ok(answer) if was_there && answer.status().is_server_error() => asked.server.refusal(answer).await.0.to_string(),
            Ok(answer) => {
                let mut answer = asked.server.accepted(answer).await?;
                if tries > 0 {
                    watch.screen.line(Ink::Aside, "— connected again")?;
                }
                (was_there, tries) = (true, 0);
                loop {
                    let bytes = match answer.chunk().await {
                        Ok(Some(bytes)) => bytes,
                        Ok(None) => break "the server ended the stream".to_owned(),
                        Err(error) => break super::innermost(&error),
                    };
                    let garbled = |why: String| CliError::Garbled { url: url.clone(), why };
                    for data in parser.take(&bytes).map_err(|error| garbled(error.to_string()))? {
                        let frame = serde_json::from_str(&data).map_err(|error| garbled(error.to_string()))?;
                        if watch.take(frame)? {
                            return Ok(());
                        }
                    }
                }
            }
        };
        if tries == 0 {
            watch.screen.line(Ink::Aside, &format!("— connection lost ({why}); coming back"))?;
        }
        let least = parser.retry().unwrap_or(Duration::from_secs(1));
        tokio::time::sleep(least.saturating_mul(1 << tries.min(4)).min(WAIT_MAX)).await;
        tries += 1;
    }
}

/// Says that there is nothing to show yet, for a run that nothing has written: perhaps its name is wrong. On standard error, for
/// it is nothing of the run's.
async fn say_if_unknown(asked: &Tail, client: &reqwest::Client) {
    // What else is wrong, the stream's own request tells.
    let Ok(answer) = client.get(asked.server.run(&asked.run, "")).send().await else { return };
    if answer.status() == reqwest::StatusCode::NOT_FOUND {
        let run = super::screen::clean(&asked.run).into_owned();
        let _ = writeln!(io::stderr(), "run {run:?} has no facts yet; waiting for the first (Ctrl-C to stop)");
    }
}

/// A frame, as far as it is read here.
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
    /// A kind that a later server may send.
    #[serde(other)]
    Other,
}

/// One reader and what it shows.
struct Watch {
    screen: Screen,
    story: Story,
    /// The last sequence that was shown; `None` until one is known.
    last: Option<u64>,
}

impl Watch {
    /// Shows a frame; true when it was the run's end.
    fn take(&mut self, frame: Frame) -> Result<bool, CliError> {
        match frame {
            Frame::Event { sequence, prev, event } => {
                match self.last {
                    Some(last) if sequence <= last => return Ok(false),
                    Some(last) if prev.is_some_and(|prev| prev != last) => {
                        let lost = format!(
                            "! something is missing here: after {last} comes {sequence}, which follows {}",
                            prev.unwrap_or(0)
                        );
                        self.screen.line(Ink::Bad, &lost)?;
                    }
                    _ => {}
                }
                self.last = Some(sequence);
                self.story.tell(&Event(&event), &mut self.screen)?;
            }
            Frame::Reset { reason } => {
                self.last = Some(0);
                self.story = Story::default();
                let why = reason.as_deref().unwrap_or("unknown");
                self.screen.line(Ink::Note, &format!("— this run's log was written anew ({why}); from its start:"))?;
            }
            Frame::Error { problem } => {
                let text = |member: &str| problem[member].as_str().unwrap_or("unknown").to_owned();
                return Err(CliError::Refused { code: text("code"), detail: text("detail") });
            }
            Frame::End { status } => {
                let ink = if status == "completed" { Ink::Good } else { Ink::Bad };
                self.screen.line(ink, &format!("■ {status}"))?;
                return Ok(true);
            }
            Frame::Other => {}
        }
        Ok(false)
    }
}

/// Messages and parts whose streamed text is remembered, to compare it with their end; the oldest is forgotten beyond.
const SPEECHES_MAX: usize = 64;
/// Tools whose names are remembered.
const TOOLS_MAX: usize = 256;
/// What a terminal shows of a body that has no better form, in characters.
const BRIEF_CHARS: usize = 100;

/// What must be remembered to tell a run as it comes.
#[derive(Default)]
struct Story {
    speeches: VecDeque<Speech>,
    /// Who spoke last.
    voice: Option<String>,
    /// Names of tools that have started and not ended.
    tools: HashMap<String, String>,
    /// The part whose text the screen's last line is.
    flowing: Option<(String, String, Kind)>,
}

/// What a stretch of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Answer,
    Reasoning,
    Plan,
}

impl Kind {
    fn of(class: &str) -> Self {
        match class {
            "reasoning.delta" | "reasoning.summary" => Self::Reasoning,
            "plan.delta" | "plan.final" => Self::Plan,
            _ => Self::Answer,
        }
    }

    const fn ink(self) -> Ink {
        if matches!(self, Self::Answer) { Ink::Text } else { Ink::Aside }
    }

    /// What stands before such text, where there may be no colours to tell it apart.
    const fn label(self) -> &'static str {
        match self {
            Self::Answer => "",
            Self::Reasoning => "reasoning",
            Self::Plan => "plan",
        }
    }
}

/// The text that was streamed for one part.
struct Speech {
    message: String,
    part: String,
    kind: Kind,
    text: String,
}

/// An envelope, for reading.
struct Event<'e>(&'e Map<String, Value>);

impl<'e> Event<'e> {
    fn id(&self, member: &str) -> &'e str {
        self.0.get(member).and_then(Value::as_str).unwrap_or("")
    }

    fn payload(&self, member: &str) -> Option<&'e Value> {
        self.0.get("payload")?.get(member)
    }

    fn text(&self, member: &str) -> &'e str {
        self.payload(member).and_then(Value::as_str).unwrap_or("")
    }

    /// What went wrong, in its own words.
    fn error(&self) -> String {
        let of = |member: &str| self.payload("error").and_then(|error| error.get(member)).and_then(Value::as_str);
        [of("code"), of("message")].into_iter().flatten().collect::<Vec<_>>().join(": ")
    }
}

impl Story {
    fn tell(&mut self, event: &Event<'_>, screen: &mut Screen) -> io::Result<()> {
        match event.id("type") {
            class @ ("text.delta" | "reasoning.delta" | "plan.delta") => self.speak(event, Kind::of(class), screen),
            class @ ("text.final" | "reasoning.summary" | "plan.final") => self.finish(event, Kind::of(class), screen),
            "messages.snapshot" => self.messages(event, screen),
            "tool.started" | "tool.args" | "tool.progress" | "tool.output.delta" | "tool.result" | "tool.failed" => {
                self.tool(event, screen)
            }
            "action.required" => {
                let risk = if event.text("risk").is_empty() { String::new() } else { format!(" (risk: {})", event.text("risk")) };
                screen.line(Ink::Ask, &format!("? {}: {}{risk}", event.text("kind"), event.text("message")))
            }
            "action.resolved" => screen.line(Ink::Ask, &format!("! {}", event.text("outcome"))),
            "run.started" => {
                let attempt = event.payload("attempt").and_then(Value::as_u64).filter(|attempt| *attempt > 1);
                screen.line(Ink::Note, &attempt.map_or("● started".to_owned(), |attempt| format!("● started, attempt {attempt}")))
            }
            "run.status" => self.status(event, screen),
            "run.failed" => screen.line(Ink::Bad, &format!("● failed: {}", event.error())),
            "run.finished" => screen.line(Ink::Note, &format!("● finished: {}", event.id("phase"))),
            other => {
                let payload = brief(event.0.get("payload"), screen);
                screen.line(Ink::Aside, &format!("· {other} {payload}"))
            }
        }
    }

    fn status(&self, event: &Event<'_>, screen: &mut Screen) -> io::Result<()> {
        if let Some(step) = event.payload("step").and_then(Value::as_str) {
            return screen.line(Ink::Aside, &format!("· step {step}"));
        }
        let status = if event.text("status").is_empty() { event.id("phase") } else { event.text("status") };
        let message = if event.text("message").is_empty() { String::new() } else { format!(": {}", event.text("message")) };
        let resumed = if event.payload("resumed") == Some(&Value::Bool(true)) { ", resumed" } else { "" };
        screen.line(Ink::Note, &format!("● {status}{resumed}{message}"))
    }

    /// A chunk of streamed text.
    fn speak(&mut self, event: &Event<'_>, kind: Kind, screen: &mut Screen) -> io::Result<()> {
        let text = event.text("text");
        let (message, part) = (event.id("messageId"), event.id("partId"));
        let is_of = |speech: &&mut Speech| speech.message == message && speech.part == part && speech.kind == kind;
        match self.speeches.iter_mut().find(is_of) {
            Some(speech) => speech.text.push_str(text),
            None => {
                if self.speeches.len() == SPEECHES_MAX {
                    self.speeches.pop_front();
                }
                self.speeches.push_back(Speech { message: message.into(), part: part.into(), kind, text: text.into() });
            }
        }
        self.begin_text(event, kind, screen)?;
        screen.flow(kind.ink(), text)
    }

    /// Begins a line for a part's text, unless the last line is this part's.
    fn begin_text(&mut self, event: &Event<'_>, kind: Kind, screen: &mut Screen) -> io::Result<()> {
        let (message, part) = (event.id("messageId"), event.id("partId"));
        let is_this = |(of, known, as_kind): &(String, String, Kind)| {
            of == message && *as_kind == kind && (part.is_empty() || known == part)
        };
        if self.flowing.as_ref().is_some_and(is_this) && screen.is_flowing() {
            return Ok(());
        }
        screen.end_flow()?;
        self.flowing = Some((message.to_owned(), part.to_owned(), kind));
        self.name_voice(event, kind, screen)
    }

    /// Says who speaks, where that is another than before, and what kind of text comes.
    fn name_voice(&mut self, event: &Event<'_>, kind: Kind, screen: &mut Screen) -> io::Result<()> {
        let role = Some(event.text("role")).filter(|role| !role.is_empty() && *role != "assistant");
        let voice = role.unwrap_or_else(|| event.id("agentId"));
        let is_known = self.voice.as_deref().is_some_and(|known| known == voice) || self.voice.is_none() && role.is_none();
        self.voice = Some(voice.to_owned());
        let voice = if is_known { "" } else { voice };
        let label = [voice, kind.label()].into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ");
        if label.is_empty() { Ok(()) } else { screen.flow(kind.ink(), &format!("{label}: ")) }
    }

    /// The end of a part, or of a message: text that was not streamed is shown now, what was streamed is not shown twice.
    fn finish(&mut self, event: &Event<'_>, kind: Kind, screen: &mut Screen) -> io::Result<()> {
        let (message, part) = (event.id("messageId"), event.id("partId"));
        let is_of =
            |speech: &Speech| speech.message == message && speech.kind == kind && (part.is_empty() || speech.part == part);
        let streamed: String = self.speeches.iter().filter(|speech| is_of(speech)).map(|speech| speech.text.as_str()).collect();
        self.speeches.retain(|speech| !is_of(speech));
        let whole = event.text("text");
        if let Some(rest) = whole.strip_prefix(streamed.as_str()) {
            if !rest.is_empty() {
                self.begin_text(event, kind, screen)?;
                screen.flow(kind.ink(), rest)?;
            }
        } else if !whole.is_empty() {
            screen.line(Ink::Note, "— the text above is now:")?;
            screen.flow(kind.ink(), whole)?;
        }
        // Another part may be in the middle of its line; it goes on in a new one.
        screen.end_flow()
    }

    fn messages(&mut self, event: &Event<'_>, screen: &mut Screen) -> io::Result<()> {
        let is_repair = event.text("mode") == "repair";
        if is_repair {
            let reason = if event.text("reason").is_empty() { String::new() } else { format!(" ({})", event.text("reason")) };
            screen.line(Ink::Note, &format!("↺ what was streamed of this message is void{reason}"))?;
        }
        for message in event.payload("messages").and_then(Value::as_array).into_iter().flatten() {
            let id = message["messageId"].as_str().unwrap_or("");
            self.speeches.retain(|speech| speech.message != id);
            let text: String = message["parts"].as_array().into_iter().flatten().map(|part| joined(&part["text"])).collect();
            if !text.is_empty() {
                screen.flow(Ink::Text, &format!("{}: {text}", message["role"].as_str().unwrap_or("?")))?;
                screen.end_flow()?;
            }
        }
        Ok(())
    }

    fn tool(&mut self, event: &Event<'_>, screen: &mut Screen) -> io::Result<()> {
        let id = event.id("toolCallId");
        let has_started = self.tools.contains_key(id);
        let said = Some(event.text("toolName")).filter(|name| !name.is_empty());
        let name = said.map(str::to_owned).or_else(|| self.tools.get(id).cloned());
        let name = name.unwrap_or_else(|| if id.is_empty() { "a hidden step".to_owned() } else { id.to_owned() });
        let nested = if event.text("parent_call_id").is_empty() { "" } else { "↳ " };
        let name = format!("{nested}{name}");
        let work = |note, fraction| Work { id, name: &name, fraction, note };
        match event.id("type") {
            "tool.started" => {
                if self.tools.len() < TOOLS_MAX {
                    self.tools.insert(id.to_owned(), said.unwrap_or(id).to_owned());
                }
                screen.work(work("", None))
            }
            "tool.args" => match event.payload("input") {
                Some(input) => {
                    let input = brief(Some(input), screen);
                    screen.work(work(&input, None))
                }
                None => Ok(()),
            },
            "tool.output.delta" => screen.work(work(last_line(event.text("text")), None)),
            "tool.progress" if !event.text("activityType").is_empty() => {
                let body = event.payload("content").or_else(|| event.payload("patch"));
                let body = brief(body, screen);
                screen.line(Ink::Aside, &format!("  {}: {body}", event.text("activityType")))
            }
            "tool.progress" => {
                let (status, message) = (event.text("status"), event.text("message"));
                let note = if message.is_empty() { status } else { message };
                screen.work(work(note, event.payload("progress").and_then(Value::as_f64)))?;
                // A nested call is often told by its progress alone.
                match status {
                    "done" if !has_started => self.tool_over(id, Ink::Good, &format!("✓ {name}  {message}"), screen),
                    "failed" | "cancelled" if !has_started => {
                        self.tool_over(id, Ink::Bad, &format!("✗ {name}  {message}"), screen)
                    }
                    _ => Ok(()),
                }
            }
            "tool.failed" => self.tool_over(id, Ink::Bad, &format!("✗ {name}: {}", event.error()), screen),
            _ => {
                let withheld = event.payload("withheld") == Some(&Value::Bool(true));
                let output = if withheld { "(not for this audience)".to_owned() } else { brief(event.payload("output"), screen) };
                self.tool_over(id, Ink::Good, &format!("✓ {name}  {output}"), screen)
            }
        }
    }

    fn tool_over(&mut self, id: &str, ink: Ink, line: &str, screen: &mut Screen) -> io::Result<()> {
        self.tools.remove(id);
        screen.work_over(id);
        screen.line(ink, line.trim_end())
    }
}

/// Text that may be an array of its chunks.
fn joined(text: &Value) -> String {
    match text {
        Value::Array(chunks) => chunks.iter().filter_map(Value::as_str).collect(),
        other => other.as_str().unwrap_or("").to_owned(),
    }
}

fn last_line(text: &str) -> &str {
    text.trim_end().lines().last().unwrap_or("")
}

/// A body on one line; its beginning, on a terminal. What is piped is read by programs, to which half of a JSON text is none.
fn brief(value: Option<&Value>, screen: &Screen) -> String {
    let text = match value {
        None | Some(Value::Null) => return String::new(),
        Some(Value::String(text)) => text.split_whitespace().collect::<Vec<_>>().join(" "),
        Some(other) => other.to_string(),
    };
    match text.char_indices().nth(BRIEF_CHARS).filter(|_| screen.is_live()) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::super::screen::tests::Paper;
    use super::*;
    use serde_json::json;

    /// What is on the screen after these frames, for a reader that began at the run's start.
    fn shown(frames: &[Value]) -> String {
        let paper = Paper::default();
        let mut watch = Watch { screen: paper.screen(), story: Story::default(), last: Some(0) };
        for frame in frames {
            watch.take(serde_json::from_value(frame.clone()).unwrap()).unwrap();
        }
        watch.screen.close().unwrap();
        paper.text()
    }

    /// Frames of these events, one after another.
    fn events(events: &[Value]) -> Vec<Value> {
        (1..).zip(events).map(|(n, event)| json!({ "frame": "Event", "sequence": n, "prev": n - 1, "event": event })).collect()
    }

    fn text(class: &str, text: Value) -> Value {
        json!({ "type": class, "messageId": "m", "partId": "p", "payload": text })
    }

    #[test]
    fn text_is_shown_as_it_streams_and_its_end_shows_nothing_twice() {
        let streamed = [text("text.delta", json!({ "text": "Hel" })), text("text.delta", json!({ "text": "lo." }))];
        for end in [json!({}), json!({ "text": "Hello." })] {
            assert_eq!(shown(&events(&[&streamed[..], &[text("text.final", end)]].concat())), "Hello.\n");
        }
        assert_eq!(
            shown(&events(&[&streamed[..], &[text("text.final", json!({ "text": "Hello. Bye." }))]].concat())),
            "Hello. Bye.\n"
        );
        let replaced = shown(&events(&[&streamed[..], &[text("text.final", json!({ "text": "Hi." }))]].concat()));
        assert_eq!(replaced, "Hello.\n— the text above is now:\nHi.\n");
        assert_eq!(shown(&events(&[text("text.final", json!({ "text": "All at once." }))])), "All at once.\n");
    }

    #[test]
    fn reasoning_plan_and_answers_are_told_apart_and_parts_that_interleave_do_not_run_together() {
        let of = |class: &str, part: &str, said: &str| json!({ "type": class, "messageId": "m", "partId": part, "payload": { "text": said } });
        let plain = shown(&events(&[
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
    fn what_is_piped_has_every_body_as_a_whole() {
        let long: Vec<u32> = (0..200).collect();
        let result = json!({ "type": "tool.result", "toolCallId": "c", "payload": { "output": { "numbers": long } } });
        let other = json!({ "type": "task.changed", "taskId": "t", "payload": { "numbers": long } });
        let shown = shown(&events(&[result, other]));
        for (line, before) in shown.lines().zip(["✓ c  ", "· task.changed "]) {
            let body: Value = serde_json::from_str(line.strip_prefix(before).unwrap()).unwrap();
            assert_eq!(body["numbers"], json!(long));
        }
    }

    #[test]
    fn a_gap_is_told_and_what_came_twice_is_not() {
        let event = |sequence: u64, prev: u64| json!({ "frame": "Event", "sequence": sequence, "prev": prev, "event": text("text.delta", json!({ "text": sequence.to_string() })) });
        assert_eq!(shown(&[event(1, 0), event(4, 1), event(4, 1), event(2, 1), event(5, 4)]), "145\n");
        let gap = shown(&[event(1, 0), event(5, 4)]);
        assert!(gap.contains("after 1 comes 5, which follows 4"), "{gap}");
    }

    #[test]
    fn a_reset_begins_the_run_anew() {
        let reset = json!({ "frame": "Reset", "sequence": 0, "reason": "epoch" });
        let again = events(&[text("text.delta", json!({ "text": "again" }))]);
        let shown = shown(&[&events(&[text("text.delta", json!({ "text": "old" }))])[..], &[reset], &again[..]].concat());
        assert_eq!(shown, "old\n— this run's log was written anew (epoch); from its start:\nagain\n");
    }

    #[test]
    fn a_tool_is_lines_of_its_own_between_the_text() {
        let tool = |class: &str, payload: Value| json!({ "type": class, "toolCallId": "c", "payload": payload });
        let shown = shown(&events(&[
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
    fn an_end_that_is_not_for_this_audience_says_so() {
        let event = json!({ "type": "tool.result", "toolCallId": "c", "payload": { "withheld": true, "status": "completed" } });
        assert_eq!(shown(&events(&[event])), "✓ c  (not for this audience)\n");
    }

    #[test]
    fn frames_that_a_later_server_may_send_are_passed_over() {
        assert_eq!(shown(&[json!({ "frame": "Hologram", "sequence": 1 })]), "");
    }
}
