//! Messages fit for a terminal: whatever an input holds, it cannot move the cursor, and cannot fill the screen.

/// How much of an input a message quotes between backticks, in characters.
const QUOTED_CHARS_MAX: usize = 200;
/// How long a line of a message is, in characters: the longest list of names that is expected has about 2000.
const LINE_CHARS_MAX: usize = 4000;
/// Stands for what is left out.
const LEFT_OUT: &str = "...";

/// A message as it may be printed: control characters and those that turn the direction of text are escaped, of what
/// stands between backticks the first 200 characters are kept, and of a line the first 4000. Ends of lines stay.
///
/// What is printable already stays as it is.
#[must_use]
pub fn printable(message: &str) -> String {
    let mut told = String::with_capacity(message.len().min(LINE_CHARS_MAX));
    for (number, line) in message.split('\n').enumerate() {
        if number > 0 {
            told.push('\n');
        }
        add_line(&mut told, line);
    }
    told
}

fn add_line(told: &mut String, line: &str) {
    // How much of a quote is kept so far; `None` outside of quotes.
    let mut quoted: Option<usize> = None;
    let (mut kept, mut piece) = (0, String::new());
    for c in line.chars() {
        piece.clear();
        match is_harmless(c) {
            true => piece.push(c),
            false => piece.extend(c.escape_default()),
        }
        let length = piece.chars().count();
        if c == '`' {
            quoted = if quoted.is_some() { None } else { Some(0) };
        } else if let Some(before) = quoted {
            let after = before.saturating_add(length);
            if after > QUOTED_CHARS_MAX {
                // Told once: from there on the quote is beyond all bounds.
                told.push_str(if before == usize::MAX { "" } else { LEFT_OUT });
                quoted = Some(usize::MAX);
                continue;
            }
            quoted = Some(after);
        }
        kept += length;
        if kept > LINE_CHARS_MAX {
            told.push_str(LEFT_OUT);
            return;
        }
        told.push_str(&piece);
    }
}

/// Whether a terminal only prints it.
#[must_use]
pub fn is_harmless(c: char) -> bool {
    // Marks that embed or override the direction of what follows (Unicode's UAX 9).
    let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !c.is_control() && !turns || c == '\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_move_the_cursor_is_escaped() {
        assert_eq!(printable("\u{1b}[31mred\u{0}\u{7f}\u{9b}"), r"\u{1b}[31mred\u{0}\u{7f}\u{9b}");
        assert_eq!(printable("a\rb\u{202e}c"), r"a\rb\u{202e}c");
        assert_eq!(printable("two\nlines,\ttab, ü, 中"), "two\nlines,\ttab, ü, 中");
    }

    #[test]
    fn what_is_quoted_and_lines_are_cut() {
        let long = "x".repeat(1_000_000);
        let told = printable(&format!("a `{long}`, expected b"));
        assert_eq!(told, format!("a `{}...`, expected b", "x".repeat(200)));
        assert_eq!(printable(&long).len(), LINE_CHARS_MAX + LEFT_OUT.len());
        assert_eq!(printable(&format!("`{long}")).len(), 1 + QUOTED_CHARS_MAX + LEFT_OUT.len());
    }

    #[test]
    fn what_is_printable_stays() {
        for text in ["", "a `b` c", &printable(&format!("`{}` and", "\u{1b}".repeat(400)))] {
            let told = printable(text);
            assert_eq!(printable(&told), told);
        }
    }
}
