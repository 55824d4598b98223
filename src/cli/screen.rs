//! Where `tail` writes: streamed text, lines, and tools that are at work.
//!
//! On a terminal, tools are progress bars below the text; elsewhere everything is plain lines, in the order in which it came.
//! Text from a run is shown and never obeyed: control characters, which a terminal would, are replaced first.

use console::measure_text_width;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};

/// Tools that are shown at work at once; those beyond are told when they end.
const TOOLS_MAX: usize = 64;
/// The steps of a bar.
const BAR_STEPS: u64 = 1000;

/// What a line or a stretch of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    Text,
    Aside,
    Good,
    Bad,
    Ask,
    Note,
}

impl Ink {
    const fn code(self) -> &'static str {
        match self {
            Self::Text => "",
            Self::Aside => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Bad => "\x1b[31m",
            Self::Ask => "\x1b[1;33m",
            Self::Note => "\x1b[36m",
        }
    }

    fn on(self, text: &str, colour: bool) -> Cow<'_, str> {
        if !colour || self == Self::Text || text.is_empty() {
            Cow::Borrowed(text)
        } else {
            format!("{}{text}\x1b[0m", self.code()).into()
        }
    }
}

/// A tool at work.
#[derive(Debug, Clone, Copy)]
pub struct Work<'a> {
    pub id: &'a str,
    pub name: &'a str,
    /// From 0 to 1, where the tool says.
    pub fraction: Option<f64>,
    pub note: &'a str,
}

/// Where a run is shown.
pub enum Screen {
    Plain(Plain),
    Live(Live),
}

impl Screen {
    /// Lines to anywhere.
    pub fn plain(out: Box<dyn Write>, colour: bool) -> Self {
        Self::Plain(Plain { out, colour, flowing: None, is_flowing: false, told: HashMap::new() })
    }

    /// A terminal.
    pub fn live(colour: bool) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stdout());
        let flow = all.add(ProgressBar::no_length().with_style(style("{msg}")));
        Self::Live(Live { all, flow, line: String::new(), ink: None, colour, bars: HashMap::new() })
    }

    /// Whether it is a terminal, which has no room for whole bodies.
    pub const fn is_live(&self) -> bool {
        matches!(self, Self::Live(_))
    }

    /// Streamed text: goes on where the last such text of the same kind ended.
    pub fn flow(&mut self, ink: Ink, text: &str) -> io::Result<()> {
        let text = clean(text);
        match self {
            Self::Plain(plain) => plain.flow(ink, &text),
            Self::Live(live) => live.flow(ink, &text),
        }
    }

    /// Whether the last line is streamed text that may go on.
    pub const fn is_flowing(&self) -> bool {
        match self {
            Self::Plain(plain) => plain.is_flowing,
            Self::Live(live) => live.ink.is_some(),
        }
    }

    /// Ends streamed text.
    pub fn end_flow(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(plain) => plain.end_flow(),
            Self::Live(live) => live.end_flow(),
        }
    }

    /// A line of its own.
    pub fn line(&mut self, ink: Ink, text: &str) -> io::Result<()> {
        self.end_flow()?;
        let text = clean(text).replace('\n', " ");
        match self {
            Self::Plain(plain) => writeln!(plain.out, "{}", ink.on(&text, plain.colour)),
            Self::Live(live) => live.all.println(ink.on(&text, live.colour)),
        }
    }

    /// A tool is at work, this far.
    pub fn work(&mut self, work: Work<'_>) -> io::Result<()> {
        let (id, name, note) = (work.id, clean(work.name), clean(work.note).replace('\n', " "));
        let work =
            Work { id, name: &name, note: &note, fraction: work.fraction.filter(|f| f.is_finite()).map(|f| f.clamp(0.0, 1.0)) };
        match self {
            Self::Plain(plain) => plain.work(work),
            Self::Live(live) => {
                live.work(work);
                Ok(())
            }
        }
    }

    /// A tool is no longer at work.
    pub fn work_over(&mut self, id: &str) {
        match self {
            Self::Plain(plain) => drop(plain.told.remove(id)),
            Self::Live(live) => {
                if let Some(bar) = live.bars.remove(id) {
                    bar.finish_and_clear();
                    live.all.remove(&bar);
                }
            }
        }
    }

    /// Nothing more will come.
    pub fn close(&mut self) -> io::Result<()> {
        self.end_flow()?;
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

/// Lines in their order.
pub struct Plain {
    out: Box<dyn Write>,
    colour: bool,
    /// The kind of text that the last line is still open for.
    flowing: Option<Ink>,
    /// Whether nothing but streamed text has come since it began; it may have just ended a line.
    is_flowing: bool,
    /// What was last said of each tool: its tenths, or its note where it knows no fraction.
    told: HashMap<String, (Option<u8>, String)>,
}

impl Plain {
    fn flow(&mut self, ink: Ink, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        if self.flowing != Some(ink) {
            self.end_flow()?;
        }
        (self.flowing, self.is_flowing) = ((!text.ends_with('\n')).then_some(ink), true);
        write!(self.out, "{}", ink.on(text, self.colour))?;
        self.out.flush()
    }

    fn end_flow(&mut self) -> io::Result<()> {
        self.is_flowing = false;
        if self.flowing.take().is_some() { writeln!(self.out) } else { Ok(()) }
    }

    /// Says so at each tenth; of a tool that knows no fraction, at each new note.
    fn work(&mut self, work: Work<'_>) -> io::Result<()> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0 to 1 before")]
        let tenths = work.fraction.map(|fraction| (fraction * 10.0) as u8);
        let now = (tenths, if tenths.is_some() { String::new() } else { work.note.to_owned() });
        if self.told.get(work.id) == Some(&now) || self.told.len() >= TOOLS_MAX && !self.told.contains_key(work.id) {
            return Ok(());
        }
        self.told.insert(work.id.to_owned(), now);
        let percent = work.fraction.map_or_else(String::new, |fraction| format!(" {:3.0}%", fraction * 100.0));
        let note = if work.note.is_empty() { String::new() } else { format!("  {}", work.note) };
        self.end_flow()?;
        writeln!(self.out, "{}", Ink::Note.on(&format!("▸ {}{percent}{note}", work.name), self.colour))
    }
}

/// A terminal: finished lines scroll, the line that is being written and the bars stay below them.
pub struct Live {
    all: MultiProgress,
    flow: ProgressBar,
    /// The line that is being written.
    line: String,
    ink: Option<Ink>,
    colour: bool,
    bars: HashMap<String, ProgressBar>,
}

impl Live {
    fn flow(&mut self, ink: Ink, text: &str) -> io::Result<()> {
        if self.ink != Some(ink) {
            self.end_flow()?;
            self.ink = Some(ink);
        }
        let width = usize::from(console::Term::stdout().size().1).max(20) - 1;
        for c in text.chars() {
            if c == '\n' {
                self.scroll()?;
                continue;
            }
            self.line.push(c);
            if measure_text_width(&self.line) > width {
                // Broken at its last space, if it has one; a line of a bar cannot wrap by itself.
                let at = self.line.rfind(' ').map_or(self.line.len() - c.len_utf8(), |at| at + 1);
                let rest = self.line.split_off(at);
                self.scroll()?;
                self.line = rest;
            }
        }
        self.flow.set_message(ink.on(&self.line, self.colour).into_owned());
        Ok(())
    }

    /// Lets the line go up among the finished ones.
    fn scroll(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        self.flow.set_message("");
        self.all.println(self.ink.unwrap_or(Ink::Text).on(&line, self.colour))
    }

    fn end_flow(&mut self) -> io::Result<()> {
        let ended = if self.line.is_empty() { Ok(()) } else { self.scroll() };
        self.ink = None;
        ended
    }

    fn work(&mut self, work: Work<'_>) {
        if !self.bars.contains_key(work.id) {
            if self.bars.len() >= TOOLS_MAX {
                return;
            }
            self.bars.insert(work.id.to_owned(), self.all.add(ProgressBar::new(BAR_STEPS)));
        }
        let bar = &self.bars[work.id];
        match work.fraction {
            Some(fraction) => {
                let bar_style = if self.colour { "{bar:24.cyan/dim}" } else { "{bar:24}" };
                bar.set_style(style(&format!("  {{prefix}} {bar_style} {{percent:>3}}% {{wide_msg}}")));
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0 to 1 before")]
                bar.set_position((fraction * BAR_STEPS as f64) as u64);
            }
            None => bar.set_style(style("  {prefix} {spinner} {wide_msg}")),
        }
        bar.set_prefix(work.name.to_owned());
        bar.set_message(work.note.to_owned());
        bar.tick();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("our own templates are well-formed").progress_chars("━╸ ")
}

/// The text without what a terminal would take as a command: control characters other than line ends and tabs, and those that
/// turn the direction of writing.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    let is_bad =
        |c: char| c.is_control() && c != '\n' && c != '\t' || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if text.contains(is_bad) { text.replace("\r\n", "\n").replace(is_bad, "\u{fffd}").into() } else { Cow::Borrowed(text) }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// A screen whose text can be read afterwards.
    #[derive(Clone, Default)]
    pub struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Paper {
        pub fn screen(&self) -> Screen {
            Screen::plain(Box::new(self.clone()), false)
        }

        pub fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn text_flows_until_something_else_has_to_be_said() {
        let paper = Paper::default();
        let mut screen = paper.screen();
        screen.flow(Ink::Text, "Hel").unwrap();
        screen.flow(Ink::Text, "lo").unwrap();
        screen.line(Ink::Good, "done").unwrap();
        screen.flow(Ink::Text, "a line\n").unwrap();
        screen.line(Ink::Good, "done").unwrap();
        screen.flow(Ink::Aside, "thinking").unwrap();
        screen.flow(Ink::Text, "talking").unwrap();
        screen.close().unwrap();
        assert_eq!(paper.text(), "Hello\ndone\na line\ndone\nthinking\ntalking\n");
    }

    #[test]
    fn a_tool_is_told_once_a_tenth() {
        let paper = Paper::default();
        let mut screen = paper.screen();
        for percent in 0..=100 {
            let note = format!("step {percent}");
            screen.work(Work { id: "c", name: "index", fraction: Some(f64::from(percent) / 100.0), note: &note }).unwrap();
        }
        assert_eq!(paper.text().lines().count(), 11);
        assert!(paper.text().ends_with("▸ index 100%  step 100\n"), "{}", paper.text());
    }

    #[test]
    fn text_from_a_run_cannot_command_the_terminal() {
        let paper = Paper::default();
        let mut screen = paper.screen();
        screen.flow(Ink::Text, "a\x1b[2Jb\r\nc\u{202e}d\x07").unwrap();
        screen.line(Ink::Text, "e\u{9b}f\ng").unwrap();
        assert_eq!(paper.text(), "a\u{fffd}[2Jb\nc\u{fffd}d\u{fffd}\ne\u{fffd}f g\n");
    }
}
