//! The little of Markdown that the checks need.
//!
//! Fenced blocks, prose, headings, links, tables, wrapped text.

/// A fenced block of code.
pub struct Block<'t> {
    /// The word after the opening fence, such as `sh`.
    pub language: &'t str,
    /// The number of the first line inside, from 1.
    pub first_line: usize,
    pub lines: Vec<&'t str>,
}

impl Block<'_> {
    /// The number of the line with the closing fence.
    pub fn end_line(&self) -> usize {
        self.first_line + self.lines.len()
    }
}

/// The opening fence's backticks, if the line is one.
fn fence(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let ticks = line.len() - line.trim_start_matches('`').len();
    (ticks >= 3).then(|| &line[..ticks])
}

/// Every fenced block, in order.
pub fn blocks(text: &str) -> Vec<Block<'_>> {
    let (mut blocks, mut open): (Vec<Block<'_>>, Option<&str>) = (Vec::new(), None);
    for (line, number) in text.lines().zip(1..) {
        match (open, fence(line)) {
            (None, Some(ticks)) => {
                let language = line.trim_start()[ticks.len()..].trim();
                blocks.push(Block { language, first_line: number + 1, lines: Vec::new() });
                open = Some(ticks);
            }
            (Some(ticks), Some(found)) if found.len() >= ticks.len() && line.trim() == found => open = None,
            (Some(_), _) => blocks.last_mut().expect("a block is open").lines.push(line),
            (None, None) => {}
        }
    }
    blocks
}

/// The numbered lines outside of fenced blocks.
pub fn prose(text: &str) -> Vec<(usize, &str)> {
    let code = blocks(text);
    let is_code = |number: usize| code.iter().any(|block| (block.first_line - 1..=block.end_line()).contains(&number));
    text.lines().enumerate().map(|(index, line)| (index + 1, line)).filter(|(number, _)| !is_code(*number)).collect()
}

/// Removes code spans, so that what they show is not taken for a link.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// The anchors of a page: GitHub's and mdBook's rule, which agree on everything used here.
pub fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        let depth = line.len() - title.len();
        if !(1..=6).contains(&depth) || !title.starts_with(' ') {
            continue;
        }
        let plain = title.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let slug: String = plain.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect();
        let count = anchors.iter().filter(|known| **known == slug).count();
        anchors.push(if count == 0 { slug } else { format!("{slug}-{count}") });
    }
    anchors
}

/// The targets of links and images, with their lines.
pub fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code(line);
        for (at, found) in line.match_indices("](") {
            let target = line[at + found.len()..].split(')').next().unwrap_or_default();
            links.push((number, target.to_owned()));
        }
        // A reference definition: `[name]: target`.
        if let Some((name, target)) = line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "))
            && !name.contains(']')
        {
            links.push((number, target.trim().to_owned()));
        }
    }
    links
}

/// Formats a table. Cells may contain line breaks and pipes.
pub fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let row = |cells: &mut dyn Iterator<Item = String>| format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
    let escaped = |cell: String| cell.replace('\n', " ").replace("\\|", "|").replace('|', "\\|");
    let mut text = row(&mut head.iter().map(|cell| (*cell).to_owned()));
    text.push_str(&row(&mut head.iter().map(|_| "---".to_owned())));
    for cells in rows {
        text.push_str(&row(&mut cells.into_iter().map(escaped)));
    }
    text
}

/// Wraps a paragraph; code spans stay on one line.
pub fn wrap(paragraph: &str) -> String {
    let (mut text, mut width) = (String::new(), 0);
    let mut words: Vec<String> = Vec::new();
    let mut in_span = false;
    for piece in paragraph.split_whitespace() {
        match words.last_mut().filter(|_| in_span) {
            Some(word) => word.push_str(&format!(" {piece}")),
            None => words.push(piece.to_owned()),
        }
        in_span ^= piece.matches('`').count() % 2 == 1;
    }
    for word in words {
        let chars = word.chars().count();
        if width > 0 && width + 1 + chars > super::LINE_CHARS_MAX {
            text.push('\n');
            width = 0;
        }
        if width > 0 {
            text.push(' ');
            width += 1;
        }
        text.push_str(&word);
        width += chars;
    }
    text.push('\n');
    text
}

#[test]
fn markdown_is_read_as_expected() {
    let text = "# A `b/{c}` d\n\n[x](y.md#z) `[no](link)`\n\n## A b\n\n```sh\n# no heading\n```\n\n## A b\n\n[r]: s.md\n";
    assert_eq!(anchors(text), ["a-bc-d", "a-b", "a-b-1"]);
    assert_eq!(links(text), [(3, "y.md#z".to_owned()), (13, "s.md".to_owned())]);
    let blocks = blocks(text);
    assert_eq!((blocks.len(), blocks[0].language, blocks[0].first_line, blocks[0].end_line()), (1, "sh", 8, 9));
    assert!(wrap(&"word `code span` ".repeat(20)).lines().all(|line| line.len() <= 120 && line.matches('`').count() % 2 == 0));
    assert_eq!(table(&["a"], [vec!["x|y\nz".to_owned()]]), "| a |\n| --- |\n| x\\|y z |\n");
}
