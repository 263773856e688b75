//! Text in paragraphs and fields, as wide as the terminal.

use highorder_tables::text::wrap;
use std::io;

/// The width where there is no terminal, and the most that lines have on one: longer ones are hard to read.
const WIDTH_MAX: usize = 100;
/// The least width of what stands beside a name: with less, it goes below the name.
const BESIDE_MIN: usize = 40;

/// The width of the terminal, as far as lines shall have it.
pub(crate) fn width() -> usize {
    let width = terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| width.0.into());
    width.unwrap_or(WIDTH_MAX).min(WIDTH_MAX)
}

/// Text that grows.
#[derive(Clone, Debug)]
pub(crate) struct Sheet {
    width: usize,
    text: String,
}

impl Sheet {
    /// None yet.
    pub(crate) const fn new(width: usize) -> Self {
        Self { width, text: String::new() }
    }

    /// All of it.
    pub(crate) fn text(self) -> String {
        self.text
    }

    /// A line as it is.
    pub(crate) fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// A line with an empty one above it, unless it is the first.
    pub(crate) fn heading(&mut self, heading: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.line(heading);
    }

    /// Words in lines, each behind the indent.
    pub(crate) fn paragraph(&mut self, indent: &str, words: &str) {
        for line in wrap(words, self.width.saturating_sub(indent.len()).max(1)) {
            self.line(&format!("{indent}{line}"));
        }
    }

    /// Names in a column, and beside each what there is to say of it.
    pub(crate) fn fields<N: AsRef<str>, W: AsRef<str>>(&mut self, indent: &str, rows: &[(N, W)]) {
        let names = rows.iter().map(|(name, _)| name.as_ref().chars().count());
        let names = names.max().unwrap_or(0);
        let beside = self.width.saturating_sub(indent.len() + names + 2);
        for (name, words) in rows {
            let (name, words) = (name.as_ref(), words.as_ref());
            if beside < BESIDE_MIN {
                self.line(&format!("{indent}{name}"));
                self.paragraph(&format!("{indent}    "), words);
                continue;
            }
            let lines = wrap(words, beside);
            let first = lines.first().map_or("", String::as_str);
            self.line(&format!("{indent}{name:names$}  {first}"));
            for line in lines.iter().skip(1) {
                self.line(&format!("{indent}{:names$}  {line}", ""));
            }
        }
    }

    /// Columns two blanks apart; the last may be of any length.
    pub(crate) fn columns(&mut self, indent: &str, rows: &[Vec<String>]) {
        let nr = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..nr).map(width).collect();
        for row in rows {
            let cells: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            self.line(&format!("{indent}{}", cells.join("  ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_stays_beside_its_name_or_goes_below_where_there_is_no_room() {
        let rows = [("a", "one two three four five six seven eight nine"), ("name", "ten")];
        let mut sheet = Sheet::new(46);
        sheet.fields("", &rows);
        assert_eq!(
            sheet.text(),
            "a     one two three four five six seven eight\n      nine\nname  ten\n"
        );
        let mut sheet = Sheet::new(24);
        sheet.fields("", &rows);
        assert_eq!(
            sheet.text(),
            "a\n    one two three four\n    five six seven eight\n    nine\nname\n    ten\n"
        );
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut sheet = Sheet::new(80);
        let row = |cells: [&str; 3]| cells.map(ToOwned::to_owned).to_vec();
        sheet.columns("  ", &[row(["a", "bb", "c"]), row(["aaa", "b", "long"])]);
        assert_eq!(sheet.text(), "  a    bb  c\n  aaa  b   long\n");
    }
}
