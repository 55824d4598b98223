//! A table for a terminal: columns by their contents, the widest texts shortened until a row fits the window.

use console::{Term, measure_text_width, truncate_str};
use std::io::{self, IsTerminal, Write};

/// The blanks between two columns.
const GAP: usize = 2;
/// A column is never shortened below this width.
const WIDTH_MIN: usize = 8;

/// Rows under a heading.
pub struct Table<const N: usize> {
    heading: [&'static str; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub fn new(heading: [&'static str; N], rows: impl IntoIterator<Item = [String; N]>) -> Self {
        Self { heading, rows: rows.into_iter().collect() }
    }

    /// Prints the table, in the window's width if the output is a terminal.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = io::stdout().is_terminal().then(|| usize::from(Term::stdout().size().1));
        self.print_within(out, width)
    }

    fn print_within(&self, out: &mut dyn Write, width: Option<usize>) -> io::Result<()> {
        let heading = self.heading.map(str::to_owned);
        let widest = |at: usize| {
            let of_rows = self.rows.iter().map(|row| measure_text_width(&row[at])).max().unwrap_or(0);
            of_rows.max(measure_text_width(self.heading[at]))
        };
        let mut widths: [usize; N] = std::array::from_fn(widest);
        if let Some(width) = width {
            shrink(&mut widths, width.saturating_sub(GAP * N.saturating_sub(1)));
        }
        for row in std::iter::once(&heading).chain(&self.rows) {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(widths) {
                let cell = truncate_str(cell, width, "…");
                let blanks = width - measure_text_width(&cell) + GAP;
                line.push_str(&cell);
                line.extend(std::iter::repeat_n(' ', blanks));
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Takes from the widest column until the sum fits, or no column can give more.
fn shrink(widths: &mut [usize], sum_max: usize) {
    while widths.iter().sum::<usize>() > sum_max {
        let Some(widest) = widths.iter_mut().max().filter(|width| **width > WIDTH_MIN) else { return };
        *widest -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(width: Option<usize>) -> String {
        let rows = [["r1", "Delete the file a.txt and all that is below it?", "high"], ["run-2", "名前", "low"]];
        let table = Table::new(["RUN", "TITLE", "RISK"], rows.map(|row| row.map(str::to_owned)));
        let mut out = Vec::new();
        table.print_within(&mut out, width).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_are_as_wide_as_their_contents_and_the_widest_one_gives_way() {
        let whole = printed(None);
        assert!(whole.lines().nth(1).unwrap().ends_with("all that is below it?  high"), "{whole}");
        assert_eq!(
            printed(Some(30)),
            "RUN    TITLE              RISK\nr1     Delete the file …  high\nrun-2  名前               low\n"
        );
    }

    #[test]
    fn a_window_that_is_too_narrow_for_all_columns_gets_the_least_widths() {
        assert!(printed(Some(5)).lines().all(|line| measure_text_width(line) <= 5 + GAP + WIDTH_MIN + GAP + 4));
    }
}
