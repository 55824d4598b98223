//! Renders envelopes as text.

use super::event::Event;
use super::words::words;
use crate::cli::screen::{LineStyle, Screen, ToolProgress, one_line};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::io;

/// The maximum number of message parts whose text is kept for comparison with the final.
///
/// Beyond it, the oldest part is dropped.
const STREAMED_PARTS_MAX: usize = 64;
/// The maximum number of running tools whose names are kept.
const TOOLS_MAX: usize = 256;
/// What a line of a terminal has besides a body, in columns: a sign and a short name.
const LINE_START_COLUMNS: usize = 24;
/// The least length of a shortened body on a terminal, in columns.
const BODY_COLUMNS_MIN: usize = 40;

/// Renders envelopes as text, and keeps the state that this needs.
#[derive(Default)]
pub struct Renderer {
    streamed_parts: VecDeque<StreamedPart>,
    /// The role or agent of the last text.
    speaker: Option<String>,
    /// The names of running tools.
    tools: HashMap<String, String>,
    /// The message, part and kind of the text in the last line.
    current: Option<(String, String, TextKind)>,
}

/// The kind of a streamed text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextKind {
    Answer,
    Reasoning,
    Plan,
}

impl TextKind {
    fn of(event_type: &str) -> Self {
        match event_type {
            "reasoning.delta" | "reasoning.summary" => Self::Reasoning,
            "plan.delta" | "plan.final" => Self::Plan,
            _ => Self::Answer,
        }
    }

    const fn style(self) -> LineStyle {
        if matches!(self, Self::Answer) { LineStyle::Text } else { LineStyle::Dim }
    }

    /// The label before the text, which identifies it in output without colours.
    const fn label(self) -> &'static str {
        match self {
            Self::Answer => "",
            Self::Reasoning => "reasoning",
            Self::Plan => "plan",
        }
    }
}

/// The streamed text of one message part.
struct StreamedPart {
    message: String,
    part: String,
    kind: TextKind,
    text: String,
}

impl Renderer {
    pub fn render(&mut self, event: &Event<'_>, screen: &mut Screen) -> io::Result<()> {
        match event.id("type") {
            event_type @ ("text.delta" | "reasoning.delta" | "plan.delta") => {
                self.render_chunk(event, TextKind::of(event_type), screen)
            }
            event_type @ ("text.final" | "reasoning.summary" | "plan.final") => {
                self.render_final(event, TextKind::of(event_type), screen)
            }
            "messages.snapshot" => self.render_messages(event, screen),
            "tool.started" | "tool.args" | "tool.progress" | "tool.output.delta" | "tool.result" | "tool.failed" => {
                self.render_tool(event, screen)
            }
            "action.required" => {
                let risk = if event.text("risk").is_empty() { String::new() } else { format!(" (risk: {})", event.text("risk")) };
                screen.line(LineStyle::Prompt, &format!("? {}: {}{risk}", event.text("kind"), event.text("message")))
            }
            "action.resolved" => screen.line(LineStyle::Prompt, &format!("! {}", event.text("outcome"))),
            "run.started" => {
                let attempt = event.payload("attempt").and_then(Value::as_u64).filter(|attempt| *attempt > 1);
                screen.line(
                    LineStyle::Info,
                    &attempt.map_or("● started".to_owned(), |attempt| format!("● started, attempt {attempt}")),
                )
            }
            "run.status" => self.render_status(event, screen),
            "run.failed" => screen.line(LineStyle::Failure, &format!("● failed: {}", event.error())),
            "run.finished" => screen.line(LineStyle::Info, &format!("● finished: {}", event.id("phase"))),
            _ => {
                let words = shorten(Some(&words(event).into()), screen);
                screen.line(LineStyle::Dim, &format!("· {words}"))
            }
        }
    }

    fn render_status(&self, event: &Event<'_>, screen: &mut Screen) -> io::Result<()> {
        if let Some(step) = event.payload("step").and_then(Value::as_str) {
            return screen.line(LineStyle::Dim, &format!("· step {step}"));
        }
        let status = if event.text("status").is_empty() { event.id("phase") } else { event.text("status") };
        let message = if event.text("message").is_empty() { String::new() } else { format!(": {}", event.text("message")) };
        let resumed = if event.payload("resumed") == Some(&Value::Bool(true)) { ", resumed" } else { "" };
        screen.line(LineStyle::Info, &format!("● {status}{resumed}{message}"))
    }

    /// Writes a chunk of streamed text.
    fn render_chunk(&mut self, event: &Event<'_>, kind: TextKind, screen: &mut Screen) -> io::Result<()> {
        let text = event.text("text");
        let (message, part) = (event.id("messageId"), event.id("partId"));
        let is_of = |streamed: &&mut StreamedPart| streamed.message == message && streamed.part == part && streamed.kind == kind;
        match self.streamed_parts.iter_mut().find(is_of) {
            Some(streamed) => streamed.text.push_str(text),
            None => {
                if self.streamed_parts.len() == STREAMED_PARTS_MAX {
                    self.streamed_parts.pop_front();
                }
                self.streamed_parts.push_back(StreamedPart {
                    message: message.into(),
                    part: part.into(),
                    kind,
                    text: text.into(),
                });
            }
        }
        self.begin_line(event, kind, screen)?;
        screen.write_text(kind.style(), text)
    }

    /// Begins a line for the text of a part, unless the last line already belongs to it.
    fn begin_line(&mut self, event: &Event<'_>, kind: TextKind, screen: &mut Screen) -> io::Result<()> {
        let (message, part) = (event.id("messageId"), event.id("partId"));
        let is_this = |(of, known, as_kind): &(String, String, TextKind)| {
            of == message && *as_kind == kind && (part.is_empty() || known == part)
        };
        if self.current.as_ref().is_some_and(is_this) && screen.is_in_text() {
            return Ok(());
        }
        screen.end_text()?;
        self.current = Some((message.to_owned(), part.to_owned(), kind));
        self.write_label(event, kind, screen)
    }

    /// Writes the speaker, if it has changed, and the label of the text.
    fn write_label(&mut self, event: &Event<'_>, kind: TextKind, screen: &mut Screen) -> io::Result<()> {
        let role = Some(event.text("role")).filter(|role| !role.is_empty() && *role != "assistant");
        let speaker = role.unwrap_or_else(|| event.id("agentId"));
        let is_known = self.speaker.as_deref().is_some_and(|known| known == speaker) || self.speaker.is_none() && role.is_none();
        self.speaker = Some(speaker.to_owned());
        let speaker = if is_known { "" } else { speaker };
        let label = [speaker, kind.label()].into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ");
        if label.is_empty() { Ok(()) } else { screen.write_text(kind.style(), &format!("{label}: ")) }
    }

    /// Ends a part or a message: writes only the text that was not streamed.
    fn render_final(&mut self, event: &Event<'_>, kind: TextKind, screen: &mut Screen) -> io::Result<()> {
        let (message, part) = (event.id("messageId"), event.id("partId"));
        let is_of = |streamed: &StreamedPart| {
            streamed.message == message && streamed.kind == kind && (part.is_empty() || streamed.part == part)
        };
        let streamed: String =
            self.streamed_parts.iter().filter(|streamed| is_of(streamed)).map(|streamed| streamed.text.as_str()).collect();
        self.streamed_parts.retain(|streamed| !is_of(streamed));
        let whole = event.text("text");
        if let Some(rest) = whole.strip_prefix(streamed.as_str()) {
            if !rest.is_empty() {
                self.begin_line(event, kind, screen)?;
                screen.write_text(kind.style(), rest)?;
            }
        } else if !whole.is_empty() {
            screen.line(LineStyle::Info, "— the final text replaces the text above:")?;
            screen.write_text(kind.style(), whole)?;
        }
        // Another part may be in the middle of its line; it continues in a new one.
        screen.end_text()
    }

    fn render_messages(&mut self, event: &Event<'_>, screen: &mut Screen) -> io::Result<()> {
        let is_repair = event.text("mode") == "repair";
        if is_repair {
            let reason = if event.text("reason").is_empty() { String::new() } else { format!(" ({})", event.text("reason")) };
            screen.line(LineStyle::Info, &format!("↺ the streamed text of this message is discarded{reason}"))?;
        }
        for message in event.payload("messages").and_then(Value::as_array).into_iter().flatten() {
            let id = message["messageId"].as_str().unwrap_or("");
            self.streamed_parts.retain(|streamed| streamed.message != id);
            let text: String = message["parts"].as_array().into_iter().flatten().map(|part| joined(&part["text"])).collect();
            if !text.is_empty() {
                screen.write_text(LineStyle::Text, &format!("{}: {text}", message["role"].as_str().unwrap_or("?")))?;
                screen.end_text()?;
            }
        }
        Ok(())
    }

    fn render_tool(&mut self, event: &Event<'_>, screen: &mut Screen) -> io::Result<()> {
        let id = event.id("toolCallId");
        let has_started = self.tools.contains_key(id);
        let given = Some(event.text("toolName")).filter(|name| !name.is_empty());
        let name = given.map(str::to_owned).or_else(|| self.tools.get(id).cloned());
        let name = name.unwrap_or_else(|| if id.is_empty() { "a hidden step".to_owned() } else { id.to_owned() });
        let nested = if event.text("parent_call_id").is_empty() { "" } else { "↳ " };
        let name = format!("{nested}{name}");
        let work = |note, fraction| ToolProgress { id, name: &name, fraction, note };
        match event.id("type") {
            "tool.started" => {
                if self.tools.len() < TOOLS_MAX {
                    self.tools.insert(id.to_owned(), given.unwrap_or(id).to_owned());
                }
                screen.show_tool(work("", None))
            }
            "tool.args" => match event.payload("input") {
                Some(input) => {
                    let input = shorten(Some(input), screen);
                    screen.show_tool(work(&input, None))
                }
                None => Ok(()),
            },
            "tool.output.delta" => screen.show_tool(work(last_line(event.text("text")), None)),
            "tool.progress" if !event.text("activityType").is_empty() => {
                let body = event.payload("content").or_else(|| event.payload("patch"));
                let body = shorten(body, screen);
                screen.line(LineStyle::Dim, &format!("  {}: {body}", event.text("activityType")))
            }
            "tool.progress" => {
                let (status, message) = (event.text("status"), event.text("message"));
                let note = if message.is_empty() { status } else { message };
                screen.show_tool(work(note, event.payload("progress").and_then(Value::as_f64)))?;
                // Many sources report a nested call only by its progress.
                match status {
                    "done" if !has_started => self.end_tool(id, LineStyle::Success, &format!("✓ {name}  {message}"), screen),
                    "failed" | "cancelled" if !has_started => {
                        self.end_tool(id, LineStyle::Failure, &format!("✗ {name}  {message}"), screen)
                    }
                    _ => Ok(()),
                }
            }
            "tool.failed" => self.end_tool(id, LineStyle::Failure, &format!("✗ {name}: {}", event.error()), screen),
            _ => {
                let withheld = event.payload("withheld") == Some(&Value::Bool(true));
                let output =
                    if withheld { "(not for this audience)".to_owned() } else { shorten(event.payload("output"), screen) };
                self.end_tool(id, LineStyle::Success, &format!("✓ {name}  {output}"), screen)
            }
        }
    }

    fn end_tool(&mut self, id: &str, line_style: LineStyle, line: &str, screen: &mut Screen) -> io::Result<()> {
        self.tools.remove(id);
        screen.remove_tool(id);
        screen.line(line_style, line.trim_end())
    }
}

/// Joins a text that may be an array of chunks.
fn joined(text: &Value) -> String {
    match text {
        Value::Array(chunks) => chunks.iter().filter_map(Value::as_str).collect(),
        other => other.as_str().unwrap_or("").to_owned(),
    }
}

fn last_line(text: &str) -> &str {
    text.trim_end().lines().last().unwrap_or("")
}

/// Formats a body on one line, and shortens it to the width of a terminal.
///
/// Programs read piped output, and half of a JSON text is not JSON.
fn shorten(value: Option<&Value>, screen: &Screen) -> String {
    let text = match value {
        None | Some(Value::Null) => return String::new(),
        Some(Value::String(text)) => one_line(text),
        Some(other) => other.to_string(),
    };
    let Some(columns) = screen.columns() else { return text };
    console::truncate_str(&text, columns.saturating_sub(LINE_START_COLUMNS).max(BODY_COLUMNS_MIN), "…").into_owned()
}
