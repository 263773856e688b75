//! What a misspelt name was probably meant to be.
//!
//! Names are looked up everywhere: of experiments, kernels, machines, workloads, parameters, knobs, variants and keys
//! of files. Whoever finds none asks [`expected`] for the end of the message.
//!
//! ```
//! let known = ["memory", "passes", "threads"];
//! assert_eq!(highorder_input::expected("pases", &known), "did you mean `passes`?");
//! assert_eq!(highorder_input::expected("speed", &known), "expected one of memory, passes, threads");
//! ```

/// Letters of a name for each mistake in it; a shorter name may have one mistake.
///
/// Our choice: with 5, a mistake in `usemem` or two in `transparent_hugepage` are near misses, and `linux-7.0` is not
/// taken for `linux-4.4`.
const LETTERS_PER_MISTAKE: usize = 5;
/// A name shorter than this may have none: another letter is another name, as of disks `sda` and `sdb`.
const LETTERS_MIN: usize = 4;
/// As many names are suggested at most: more are no suggestion but a list.
const SUGGESTIONS_MAX: usize = 3;
/// The least part of a name by which it is known.
const PART_MIN: usize = 3;

/// The known names that `found` is nearest to, if it is near enough to be meant for one of them.
///
/// A name is near if it has few mistakes (letters too many, too few, wrong or swapped), in the whole name or in
/// what stands behind the last `.` or `/`, as `swapiness` for `vm.swappiness`. Otherwise one is near of which
/// `found` is a part.
#[must_use]
pub fn nearest<'a>(found: &str, known: &[&'a str]) -> Vec<&'a str> {
    let found = found.to_lowercase();
    let length = found.chars().count();
    let most = if length < LETTERS_MIN { 0 } else { (length / LETTERS_PER_MISTAKE).max(1) };
    let distance = |name: &str| {
        let name = name.to_lowercase();
        let end = name.rfind(['.', '/']).map_or("", |at| &name[at + 1..]);
        let to = |name: &str| strsim::damerau_levenshtein(&found, name);
        to(&name).min(if end.is_empty() { usize::MAX } else { to(end) })
    };
    let distances: Vec<usize> = known.iter().map(|name| distance(name)).collect();
    let least = distances.iter().copied().min().filter(|least| *least <= most);
    let mut near: Vec<&str> = match least {
        Some(least) => {
            let named = known.iter().zip(&distances);
            named.filter(|(_, distance)| **distance == least).map(|(name, _)| *name).collect()
        }
        None if length >= PART_MIN => with_part(&found, known),
        None => Vec::new(),
    };
    near.dedup();
    if near.len() > SUGGESTIONS_MAX { Vec::new() } else { near }
}

/// The names that begin with this, or if there are none that have it anywhere.
fn with_part<'a>(part: &str, known: &[&'a str]) -> Vec<&'a str> {
    let having = |has: fn(&str, &str) -> bool| -> Vec<&'a str> {
        known.iter().copied().filter(|name| has(&name.to_lowercase(), part)).collect()
    };
    let beginning = having(|name, part| name.starts_with(part));
    if beginning.is_empty() { having(|name, part| name.contains(part)) } else { beginning }
}

/// The question that a message ends with, if `found` is a near miss.
#[must_use]
pub fn did_you_mean(found: &str, known: &[&str]) -> Option<String> {
    let quoted: Vec<String> =
        nearest(found, known).into_iter().map(|name| format!("`{name}`")).collect();
    let (last, others) = quoted.split_last()?;
    Some(match others {
        [] => format!("did you mean {last}?"),
        others => format!("did you mean {} or {last}?", others.join(", ")),
    })
}

/// The end of a message about a name that is not known: what was probably meant, or all that are known.
#[must_use]
pub fn expected(found: &str, known: &[&str]) -> String {
    did_you_mean(found, known).unwrap_or_else(|| match known {
        [] => "expected none".to_owned(),
        [one] => format!("expected {one}"),
        all => format!("expected one of {}", all.join(", ")),
    })
}

/// The same for what can be a file of one's own too.
#[must_use]
pub fn expected_or_file(found: &str, known: &[&str]) -> String {
    let or_file = || format!("{}, or a .toml file", expected(found, known));
    did_you_mean(found, known).unwrap_or_else(or_file)
}

/// What a reader of TOML or JSON says of an unknown key or word, with what was probably meant in place of all that
/// are known; any other message as it is.
///
/// Such a message has the form "unknown field `merg`, expected one of `merge`, `moved_to`", as the library serde
/// writes it.
#[must_use]
pub fn shortened(message: &str) -> String {
    let shorter = || {
        let rest = ["unknown field `", "unknown variant `"]
            .iter()
            .find_map(|begin| message.strip_prefix(begin))?;
        let (found, rest) = rest.split_once("`, expected ")?;
        let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
        let begin = &message[..message.len() - rest.len() - "expected ".len()];
        Some(format!("{begin}{}", did_you_mean(found, &known)?))
    };
    shorter().unwrap_or_else(|| in_plain_words(message))
}

/// A message that says what a type of Rust's is called says what values that has.
fn in_plain_words(message: &str) -> String {
    const TYPES: [(&str, &str); 9] = [
        ("u8", "a whole number, 0..=255"),
        ("u16", "a whole number, 0..=65535"),
        ("u32", "a whole number, 0..=4294967295"),
        ("u64", "a whole number, at least 0"),
        ("usize", "a whole number, at least 0"),
        ("i32", "a whole number"),
        ("i64", "a whole number"),
        ("f32", "a number"),
        ("f64", "a number"),
    ];
    let Some((begin, end)) = message.rsplit_once(", expected ") else { return message.to_owned() };
    let plain = TYPES.iter().find(|(name, _)| *name == end).map_or(end, |(_, plain)| plain);
    format!("{begin}, expected {plain}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNELS: [&str; 5] = ["linux-4.4", "linux-5.4", "linux-6.1", "linux-6.12", "linux-3.3"];

    #[test]
    fn letters_too_few_too_many_wrong_and_swapped_are_near_misses() {
        let known = ["usemem", "stutter", "fleet"];
        for found in ["usmem", "useemem", "usenem", "uesmem", "USEMEM", "usememm"] {
            assert_eq!(nearest(found, &known), ["usemem"], "{found}");
        }
        assert_eq!(nearest("postmark", &known), [""; 0]);
        assert_eq!(nearest("", &known), [""; 0]);
        assert_eq!(nearest("sdc", &["sda", "sdb"]), [""; 0], "another letter is another name");
    }

    #[test]
    fn names_equally_near_are_all_suggested() {
        assert_eq!(
            did_you_mean("linux-6.2", &KERNELS).as_deref(),
            Some("did you mean `linux-6.1` or `linux-6.12`?")
        );
        assert_eq!(did_you_mean("linux-7.0", &KERNELS), None, "no kernel is like it");
    }

    #[test]
    fn the_end_of_a_name_and_a_part_of_it_are_enough() {
        let knobs = ["vm.swappiness", "transparent_hugepage/enabled", "vm.page-cluster"];
        assert_eq!(nearest("swapiness", &knobs), ["vm.swappiness"]);
        assert_eq!(nearest("hugepage", &knobs), ["transparent_hugepage/enabled"]);
        let experiments = ["overcommit", "usemem", "usemem-anon", "thp-defrag-usemem", "dd-usemem"];
        assert_eq!(nearest("usem", &experiments), ["usemem", "usemem-anon"], "the beginning first");
        assert_eq!(nearest("linux", &KERNELS), [""; 0], "a part of everything says nothing");
    }

    #[test]
    fn what_is_no_near_miss_is_told_all_there_are() {
        assert_eq!(expected("speed", &["a1", "b1"]), "expected one of a1, b1");
        assert_eq!(expected("speed", &["a1"]), "expected a1");
        assert_eq!(expected("speed", &[]), "expected none");
    }

    #[test]
    fn a_message_about_an_unknown_key_suggests_the_one_meant() {
        let of = |known| format!("unknown field `merg`, expected {known}");
        assert_eq!(
            shortened(&of("one of `max_order`, `merge`, `moved_to`")),
            "unknown field `merg`, did you mean `merge`?"
        );
        assert_eq!(shortened(&of("`merge`")), "unknown field `merg`, did you mean `merge`?");
        assert_eq!(shortened(&of("`a` or `b`")), of("`a` or `b`"));
        assert_eq!(
            shortened("unknown variant `tial`, expected `head` or `tail`"),
            "unknown variant `tial`, did you mean `tail`?"
        );
        assert_eq!(shortened("missing field `x`"), "missing field `x`");
        assert_eq!(
            shortened("invalid value: integer `-5`, expected u64"),
            "invalid value: integer `-5`, expected a whole number, at least 0"
        );
    }
}
