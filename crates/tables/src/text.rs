//! Numbers as people read them.

/// Bytes in a base page on the machines that are modelled.
const PAGE_BYTES: u64 = 4096;

/// A number of base pages as `1.25 GiB`, with three significant digits and binary units.
#[must_use]
pub fn pages(pages: u64) -> String {
    let mut value = (pages * PAGE_BYTES) as f64 / 1024.0;
    let mut unit = "KiB";
    for larger in ["MiB", "GiB", "TiB"] {
        if value < 1000.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    format!("{} {unit}", significant(value))
}

/// `part` of `whole` as `12.3 %`; a part that is not nothing never prints as zero.
#[must_use]
pub fn percent(part: u64, whole: u64) -> String {
    let value = if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 };
    match value {
        _ if part == 0 => "0 %".to_owned(),
        v if v < 0.1 => "<0.1 %".to_owned(),
        v if v < 9.95 => format!("{v:.1} %"),
        v if v < 99.5 || part == whole => format!("{v:.0} %"),
        v => format!("{:.1} %", v.min(99.9)),
    }
}

/// A range in words, `0.3 % to 0.6 %`, or the one thing if both ends are the same.
#[must_use]
pub fn range([least, most]: [String; 2]) -> String {
    if least == most { least } else { format!("{least} to {most}") }
}

/// A zone's size in the kernel's words: `present` is what is there, `managed` what its page allocator has.
#[must_use]
pub fn zone_size(present_pages: u64, managed_pages: u64) -> String {
    format!("{} present, {} managed", pages(present_pages), pages(managed_pages))
}

/// A count with its thousands apart: `12 345`.
#[must_use]
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// A count of something with its noun: `1 case`, `12 345 cases`.
#[must_use]
pub fn counted(n: u64, noun: &str) -> String {
    let ending = if n == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", count(n))
}

/// A measured value with a decimal prefix: `1.2 M`, `350 k`, `0.05`, and so on down to micro.
#[must_use]
pub fn prefixed(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { value.to_string() };
    }
    const PREFIXES: [(f64, &str); 7] = [
        (1e12, " T"),
        (1e9, " G"),
        (1e6, " M"),
        (1e3, " k"),
        (1e-2, ""),
        (1e-5, " m"),
        (0.0, " µ"),
    ];
    let scale = |from: f64| match from {
        1e-2 => 1.0,
        1e-5 => 1e-3,
        0.0 => 1e-6,
        large => large,
    };
    // 999.6 k must become 1 M, so the test is made on the rounded value.
    let magnitude = value.abs() * 1.0005;
    let (from, prefix) =
        PREFIXES.into_iter().find(|(from, _)| magnitude >= *from).unwrap_or((1e-2, ""));
    format!("{}{prefix}", significant(value / scale(from)))
}

/// Three significant digits, without zeros that say nothing.
#[must_use]
pub fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Breaks `text` at spaces into lines of at most `width` characters; a longer word is cut.
#[must_use]
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        if !line.is_empty() && line.chars().count() + 1 + word.len() > width {
            lines.push(std::mem::take(&mut line));
        }
        while word.len() > width {
            lines.push(word.drain(..width).collect());
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// `text` cut to `width` characters, the last of them an ellipsis where something is missing.
#[must_use]
pub fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_take_the_unit_that_keeps_them_short() {
        assert_eq!(pages(0), "0 KiB");
        assert_eq!(pages(1), "4 KiB");
        assert_eq!(pages(512), "2 MiB");
        assert_eq!(pages(251), "0.98 MiB");
        assert_eq!(pages(16 * 1024 * 1024), "64 GiB");
        assert_eq!(pages(1_310_720), "5 GiB");
    }

    #[test]
    fn percentages_do_not_hide_a_remainder() {
        assert_eq!(percent(0, 10), "0 %");
        assert_eq!(percent(1, 100_000), "<0.1 %");
        assert_eq!(percent(99_999, 100_000), "99.9 %");
        assert_eq!(percent(10, 10), "100 %");
        assert_eq!(percent(1, 3), "33 %");
        assert_eq!(percent(0, 0), "0 %");
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1 234 567");
    }

    #[test]
    fn prefixes_follow_the_rounded_value() {
        assert_eq!(prefixed(0.0), "0");
        assert_eq!(prefixed(999.0), "999");
        assert_eq!(prefixed(999_900.0), "1 M");
        assert_eq!(prefixed(-1500.0), "-1.5 k");
        assert_eq!(prefixed(0.05), "0.05");
        assert_eq!(prefixed(0.0015), "1.5 m");
        assert_eq!(prefixed(2e-6), "2 µ");
    }

    #[test]
    fn wrapping_keeps_every_word_and_the_width() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh i", 3), ["abc", "def", "gh", "i"]);
        assert_eq!(wrap("", 3), Vec::<String>::new());
    }

    #[test]
    fn shortening_marks_what_it_cuts() {
        assert_eq!(shorten("abcdef", 6), "abcdef");
        assert_eq!(shorten("abcdef", 4), "abc…");
    }
}
