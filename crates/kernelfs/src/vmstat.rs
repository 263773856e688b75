//! `/proc/vmstat`: one counter a line, `name value`.
//!
//! Models: mm/vmstat.c (`vmstat_show`). Kernels differ in which counters there are and in their
//! order; both are taken from the file.

use highorder_input::InputError;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use crate::TextFile;
use crate::counters::Counters;
use crate::lines::{Problems, number};

/// The counters of `/proc/vmstat`.
///
/// `nr_*` are levels in base pages unless the name says otherwise; the others count events (or
/// base pages, as `pgsteal_*`) since boot. Access is that of [`Counters`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vmstat {
    /// The counters in file order.
    pub counters: Counters,
}

impl Deref for Vmstat {
    type Target = Counters;
    fn deref(&self) -> &Counters {
        &self.counters
    }
}

impl DerefMut for Vmstat {
    fn deref_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }
}

impl TextFile for Vmstat {
    fn parse(file: &str, text: &[u8]) -> Result<Vmstat, InputError> {
        let mut problems = Problems::new(file);
        let mut counters = Counters::new();
        let mut first_line = BTreeMap::new();
        let lines = problems.lines(text);
        for line in &lines {
            let words = line.words();
            let parsed = match words[..] {
                [name, value] => number(value).map(|value| (name, value)),
                _ => None,
            };
            let Some((name, value)) = parsed else {
                problems.line(*line, "a counter's name and its value");
                continue;
            };
            if let Some(first) = first_line.insert(name, line.number) {
                let found = format!("counter {name} again (first on line {first})");
                problems.add(line.number, found, "each counter once");
            }
            let spacing = problems.spacing(*line, &counter_line(name, value));
            counters.push(name, value, spacing);
        }
        if text.is_empty() {
            problems.add(0, "an empty file", "at least one counter");
        }
        problems.finish(Vmstat { counters }, text)
    }

    fn to_text(&self) -> String {
        self.counters
            .as_slice()
            .iter()
            .map(|c| c.spacing.apply(counter_line(&c.name, c.value)) + "\n")
            .collect()
    }
}

fn counter_line(name: &str, value: u64) -> String {
    format!("{name} {value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_read_changed_and_written() {
        let mut vmstat = Vmstat::parse("vmstat", b"nr_free_pages 12\npgfault 7\n").unwrap();
        assert_eq!(vmstat.get("nr_free_pages"), Some(12));
        assert_eq!(vmstat.get("nr_nothing"), None);
        vmstat.set("nr_free_pages", 4096);
        vmstat.set("thp_fault_alloc", 1);
        assert_eq!(vmstat.to_text(), "nr_free_pages 4096\npgfault 7\nthp_fault_alloc 1\n");
    }

    #[test]
    fn all_bad_lines_are_reported_in_one_go() {
        let text = b"nr_free_pages twelve\npgfault 7\npgfault\n\npgfault 8\n";
        let error = Vmstat::parse("t/vmstat", text).unwrap_err();
        assert_eq!(
            error.to_string(),
            "t/vmstat:1: `nr_free_pages twelve`, expected a counter's name and its value\n\
             t/vmstat:3: `pgfault`, expected a counter's name and its value\n\
             t/vmstat:4: ``, expected a counter's name and its value\n\
             t/vmstat:5: counter pgfault again (first on line 2), expected each counter once"
        );
    }

    #[test]
    fn a_file_cut_inside_its_last_number_is_an_error() {
        let error = Vmstat::parse("vmstat", b"nr_free_pages 12\npgfault 7").unwrap_err();
        assert_eq!(
            error.to_string(),
            "vmstat:2: no newline at the end of the file, expected a whole last line"
        );
        assert!(Vmstat::parse("vmstat", b"").is_err());
    }
}
