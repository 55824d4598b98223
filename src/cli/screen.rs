//! The output of `tail`: streamed text, lines, and running tools.
//!
//! On a terminal, running tools are progress bars below the text. Any other output gets plain lines in order of
//! arrival. A run's text cannot control the terminal: the screen replaces control characters first.

use console::measure_text_width;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};

/// The maximum number of tools with visible progress.
///
/// The screen shows only the end of any further tool.
const TOOLS_MAX: usize = 64;
/// The number of steps of a progress bar.
const BAR_STEPS: u64 = 1000;

/// The style of a line or a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineStyle {
    Text,
    Dim,
    Success,
    Failure,
    Prompt,
    Info,
}

impl LineStyle {
    const fn code(self) -> &'static str {
        match self {
            Self::Text => "",
            Self::Dim => "\x1b[2m",
            Self::Success => "\x1b[32m",
            Self::Failure => "\x1b[31m",
            Self::Prompt => "\x1b[1;33m",
            Self::Info => "\x1b[36m",
        }
    }

    fn apply(self, text: &str, colour: bool) -> Cow<'_, str> {
        if !colour || self == Self::Text || text.is_empty() {
            Cow::Borrowed(text)
        } else {
            format!("{}{text}\x1b[0m", self.code()).into()
        }
    }
}

/// The state of a running tool.
#[derive(Debug, Clone, Copy)]
pub struct ToolProgress<'a> {
    pub id: &'a str,
    pub name: &'a str,
    /// The progress from 0 to 1, if the tool reports it.
    pub fraction: Option<f64>,
    pub note: &'a str,
}

/// The output for a run.
pub enum Screen {
    Plain(Plain),
    Live(Live),
}

impl Screen {
    /// Creates a screen that writes plain lines.
    pub fn plain(out: Box<dyn Write>, colour: bool) -> Self {
        Self::Plain(Plain { out, colour, open_style: None, is_in_text: false, reported: HashMap::new() })
    }

    /// Creates a screen on the terminal.
    pub fn live(colour: bool) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stdout());
        let flow = all.add(ProgressBar::no_length().with_style(style("{msg}")));
        Self::Live(Live { all, flow, line: String::new(), line_style: None, colour, bars: HashMap::new() })
    }

    /// Returns the width of the terminal, which has no room for whole bodies; `None` for any other output.
    pub fn columns(&self) -> Option<usize> {
        matches!(self, Self::Live(_)).then(|| usize::from(console::Term::stdout().size().1))
    }

    /// Writes streamed text; continues the last text if it has the same style.
    pub fn write_text(&mut self, line_style: LineStyle, text: &str) -> io::Result<()> {
        let text = sanitize(text);
        match self {
            Self::Plain(plain) => plain.write_text(line_style, &text),
            Self::Live(live) => live.write_text(line_style, &text),
        }
    }

    /// Returns whether the last output is streamed text that may continue.
    pub const fn is_in_text(&self) -> bool {
        match self {
            Self::Plain(plain) => plain.is_in_text,
            Self::Live(live) => live.line_style.is_some(),
        }
    }

    /// Ends streamed text.
    pub fn end_text(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(plain) => plain.end_text(),
            Self::Live(live) => live.end_text(),
        }
    }

    /// Writes a separate line.
    pub fn line(&mut self, line_style: LineStyle, text: &str) -> io::Result<()> {
        self.end_text()?;
        let text = sanitize(text).replace('\n', " ");
        match self {
            Self::Plain(plain) => writeln!(plain.out, "{}", line_style.apply(&text, plain.colour)),
            Self::Live(live) => live.all.println(line_style.apply(&text, live.colour)),
        }
    }

    /// Shows the progress of a tool.
    pub fn show_tool(&mut self, tool: ToolProgress<'_>) -> io::Result<()> {
        let (id, name, note) = (tool.id, sanitize(tool.name), sanitize(tool.note).replace('\n', " "));
        let tool = ToolProgress {
            id,
            name: &name,
            note: &note,
            fraction: tool.fraction.filter(|f| f.is_finite()).map(|f| f.clamp(0.0, 1.0)),
        };
        match self {
            Self::Plain(plain) => plain.show_tool(tool),
            Self::Live(live) => {
                live.show_tool(tool);
                Ok(())
            }
        }
    }

    /// Removes a tool that has ended.
    pub fn remove_tool(&mut self, id: &str) {
        match self {
            Self::Plain(plain) => drop(plain.reported.remove(id)),
            Self::Live(live) => {
                if let Some(bar) = live.bars.remove(id) {
                    bar.finish_and_clear();
                    live.all.remove(&bar);
                }
            }
        }
    }

    /// Flushes the output and removes the progress bars.
    pub fn close(&mut self) -> io::Result<()> {
        self.end_text()?;
        match self {
            Self::Plain(plain) => plain.out.flush(),
            Self::Live(live) => {
                live.flow.finish_and_clear();
                live.bars.drain().for_each(|(_, bar)| bar.finish_and_clear());
                live.all.clear()
            }
        }
    }
}

/// Plain lines in order of arrival.
pub struct Plain {
    out: Box<dyn Write>,
    colour: bool,
    /// The style of the last line, if it has no line end yet.
    open_style: Option<LineStyle>,
    /// Whether the last output is streamed text. It may have ended with a line end.
    is_in_text: bool,
    /// The last reported tenths per tool, or the last note of a tool without a fraction.
    reported: HashMap<String, (Option<u8>, String)>,
}

impl Plain {
    fn write_text(&mut self, line_style: LineStyle, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        if self.open_style != Some(line_style) {
            self.end_text()?;
        }
        (self.open_style, self.is_in_text) = ((!text.ends_with('\n')).then_some(line_style), true);
        write!(self.out, "{}", line_style.apply(text, self.colour))?;
        self.out.flush()
    }

    fn end_text(&mut self) -> io::Result<()> {
        self.is_in_text = false;
        if self.open_style.take().is_some() { writeln!(self.out) } else { Ok(()) }
    }

    /// Writes a line at each tenth; for a tool without a fraction, at each new note.
    fn show_tool(&mut self, tool: ToolProgress<'_>) -> io::Result<()> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0 to 1 before")]
        let tenths = tool.fraction.map(|fraction| (fraction * 10.0) as u8);
        let now = (tenths, if tenths.is_some() { String::new() } else { tool.note.to_owned() });
        if self.reported.get(tool.id) == Some(&now) || self.reported.len() >= TOOLS_MAX && !self.reported.contains_key(tool.id) {
            return Ok(());
        }
        self.reported.insert(tool.id.to_owned(), now);
        let percent = tool.fraction.map_or_else(String::new, |fraction| format!(" {:3.0}%", fraction * 100.0));
        let note = if tool.note.is_empty() { String::new() } else { format!("  {}", tool.note) };
        self.end_text()?;
        writeln!(self.out, "{}", LineStyle::Info.apply(&format!("▸ {}{percent}{note}", tool.name), self.colour))
    }
}

/// A terminal: finished lines scroll up, and the current line and the progress bars stay below them.
pub struct Live {
    all: MultiProgress,
    flow: ProgressBar,
    /// The current line.
    line: String,
    line_style: Option<LineStyle>,
    colour: bool,
    bars: HashMap<String, ProgressBar>,
}

impl Live {
    fn write_text(&mut self, line_style: LineStyle, text: &str) -> io::Result<()> {
        if self.line_style != Some(line_style) {
            self.end_text()?;
            self.line_style = Some(line_style);
        }
        let width = usize::from(console::Term::stdout().size().1).max(20) - 1;
        for c in text.chars() {
            if c == '\n' {
                self.scroll()?;
                continue;
            }
            self.line.push(c);
            if measure_text_width(&self.line) > width {
                // A progress bar cannot wrap its line, so break it at its last space.
                let at = self.line.rfind(' ').map_or(self.line.len() - c.len_utf8(), |at| at + 1);
                let rest = self.line.split_off(at);
                self.scroll()?;
                self.line = rest;
            }
        }
        self.flow.set_message(line_style.apply(&self.line, self.colour).into_owned());
        Ok(())
    }

    /// Moves the current line to the finished lines.
    fn scroll(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        self.flow.set_message("");
        self.all.println(self.line_style.unwrap_or(LineStyle::Text).apply(&line, self.colour))
    }

    fn end_text(&mut self) -> io::Result<()> {
        let ended = if self.line.is_empty() { Ok(()) } else { self.scroll() };
        self.line_style = None;
        ended
    }

    fn show_tool(&mut self, tool: ToolProgress<'_>) {
        if !self.bars.contains_key(tool.id) {
            if self.bars.len() >= TOOLS_MAX {
                return;
            }
            self.bars.insert(tool.id.to_owned(), self.all.add(ProgressBar::new(BAR_STEPS)));
        }
        let bar = &self.bars[tool.id];
        match tool.fraction {
            Some(fraction) => {
                let bar_style = if self.colour { "{bar:24.cyan/dim}" } else { "{bar:24}" };
                bar.set_style(style(&format!("  {{prefix}} {bar_style} {{percent:>3}}% {{wide_msg}}")));
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0 to 1 before")]
                bar.set_position((fraction * BAR_STEPS as f64) as u64);
            }
            None => bar.set_style(style("  {prefix} {spinner} {wide_msg}")),
        }
        bar.set_prefix(tool.name.to_owned());
        bar.set_message(tool.note.to_owned());
        bar.tick();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the built-in templates are valid").progress_chars("━╸ ")
}

/// Puts a text on one line, without characters that control a terminal.
pub(super) fn one_line(text: &str) -> String {
    sanitize(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Replaces characters that control a terminal.
///
/// They are control characters, except line ends and tabs, and characters that change the writing direction.
pub(super) fn sanitize(text: &str) -> Cow<'_, str> {
    let is_bad =
        |c: char| c.is_control() && c != '\n' && c != '\t' || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if text.contains(is_bad) { text.replace("\r\n", "\n").replace(is_bad, "\u{fffd}").into() } else { Cow::Borrowed(text) }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// A screen that keeps its text for the test.
    #[derive(Clone, Default)]
    pub struct BufferScreen(Arc<Mutex<Vec<u8>>>);

    impl BufferScreen {
        pub fn screen(&self) -> Screen {
            Screen::plain(Box::new(self.clone()), false)
        }

        pub fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for BufferScreen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn streamed_text_continues_its_line_until_other_output() {
        let buffer = BufferScreen::default();
        let mut screen = buffer.screen();
        screen.write_text(LineStyle::Text, "Hel").unwrap();
        screen.write_text(LineStyle::Text, "lo").unwrap();
        screen.line(LineStyle::Success, "done").unwrap();
        screen.write_text(LineStyle::Text, "a line\n").unwrap();
        screen.line(LineStyle::Success, "done").unwrap();
        screen.write_text(LineStyle::Dim, "thinking").unwrap();
        screen.write_text(LineStyle::Text, "talking").unwrap();
        screen.close().unwrap();
        assert_eq!(buffer.text(), "Hello\ndone\na line\ndone\nthinking\ntalking\n");
    }

    #[test]
    fn plain_output_has_one_line_per_tenth_of_progress() {
        let buffer = BufferScreen::default();
        let mut screen = buffer.screen();
        for percent in 0..=100 {
            let note = format!("step {percent}");
            screen
                .show_tool(ToolProgress { id: "c", name: "index", fraction: Some(f64::from(percent) / 100.0), note: &note })
                .unwrap();
        }
        assert_eq!(buffer.text().lines().count(), 11);
        assert!(buffer.text().ends_with("▸ index 100%  step 100\n"), "{}", buffer.text());
    }

    #[test]
    fn a_runs_text_cannot_control_the_terminal() {
        let buffer = BufferScreen::default();
        let mut screen = buffer.screen();
        screen.write_text(LineStyle::Text, "a\x1b[2Jb\r\nc\u{202e}d\x07").unwrap();
        screen.line(LineStyle::Text, "e\u{9b}f\ng").unwrap();
        assert_eq!(buffer.text(), "a\u{fffd}[2Jb\nc\u{fffd}d\u{fffd}\ne\u{fffd}f g\n");
    }
}
