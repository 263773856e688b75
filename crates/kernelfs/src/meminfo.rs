//! `/proc/meminfo` and a node's `meminfo` in sysfs.
//!
//! Models: fs/proc/meminfo.c (`meminfo_proc_show`), mm/hugetlb.c (`hugetlb_report_meminfo`),
//! drivers/base/node.c (`node_read_meminfo`).

use crate::TextFile;
use crate::lines::{Problems, Spacing, number};
use highorder_input::InputError;

/// One line of `meminfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeminfoField {
    /// The node, in a node's file.
    pub node: Option<u32>,
    /// The name without its colon, e.g. `MemTotal` or `Active(anon)`.
    pub name: String,
    /// The value: kilobytes if `kilobytes` is set, else huge pages.
    pub value: u64,
    /// Whether the line ends in `kB`.
    pub kilobytes: bool,
    /// How the line was spaced.
    pub spacing: Spacing,
}

/// The lines of `meminfo`, in file order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meminfo {
    /// The lines.
    pub fields: Vec<MeminfoField>,
}

impl Meminfo {
    /// Returns a field's value: kilobytes, or a number of huge pages for `HugePages_*`.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.fields.iter().find(|field| field.name == name).map(|field| field.value)
    }

    /// Sets a field, appending it if there is none of that name; `HugePages_*` count pages, all
    /// others are kilobytes.
    pub fn set(&mut self, name: &str, value: u64) {
        match self.fields.iter_mut().find(|field| field.name == name) {
            Some(field) => field.value = value,
            None => self.fields.push(MeminfoField {
                node: self.fields.first().and_then(|field| field.node),
                name: name.into(),
                value,
                kilobytes: !name.starts_with("HugePages_"),
                spacing: Spacing::KERNEL,
            }),
        }
    }
}

impl TextFile for Meminfo {
    fn parse(file: &str, text: &[u8]) -> Result<Meminfo, InputError> {
        let mut problems = Problems::new(file);
        let mut meminfo = Meminfo::default();
        let lines = problems.lines(text);
        for line in &lines {
            let Some(mut field) = parse_field(&line.words()) else {
                problems.line(*line, "a name with a colon, a value and maybe kB");
                continue;
            };
            if meminfo.fields.iter().any(|f| f.name == field.name && f.node == field.node) {
                problems.add(line.number, format!("{} again", field.name), "each name once");
            }
            field.spacing = problems.spacing(*line, &field_line(&field));
            meminfo.fields.push(field);
        }
        if text.is_empty() {
            problems.add(0, "an empty file", "at least one field");
        }
        problems.finish(meminfo, text)
    }

    fn to_text(&self) -> String {
        self.fields.iter().map(|field| field.spacing.apply(field_line(field)) + "\n").collect()
    }
}

fn parse_field(words: &[&str]) -> Option<MeminfoField> {
    let (node, words) = match words {
        ["Node", node, rest @ ..] => (Some(number(node)?.try_into().ok()?), rest),
        _ => (None, words),
    };
    let (name, value, kilobytes) = match words {
        [name, value] => (name, value, false),
        [name, value, "kB"] => (name, value, true),
        _ => return None,
    };
    let name = name.strip_suffix(':').filter(|name| !name.is_empty())?.to_string();
    Some(MeminfoField { node, name, value: number(value)?, kilobytes, spacing: Spacing::KERNEL })
}

/// Names fill 16 columns and values the next 8; the hugetlb lines have three fixed blanks (in a
/// node's file one) and 5 columns instead, and a name too long for its columns takes them from the value's.
fn field_line(field: &MeminfoField) -> String {
    let node = field.node.map(|node| format!("Node {node} ")).unwrap_or_default();
    let name = format!("{}:", field.name);
    let value = field.value;
    let mut line = if name.starts_with("HugePages_") {
        let blanks = if field.node.is_some() { 1 } else { 3 };
        format!("{node}{name:<16}{:blanks$}{value:>5}", "")
    } else if name.len() >= 16 {
        format!("{node}{name} {value:>width$}", width = 23usize.saturating_sub(name.len()))
    } else {
        format!("{node}{name:<16}{value:>8}")
    };
    if field.kilobytes {
        line.push_str(" kB");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_kernels_columns() {
        let text = "MemTotal:       24684084 kB\n\
                    VmallocTotal:   34359738367 kB\n\
                    HardwareCorrupted:     0 kB\n\
                    HugePages_Free:       12\n";
        let mut meminfo = Meminfo::parse("meminfo", text.as_bytes()).unwrap();
        assert!(meminfo.fields.iter().all(|field| field.spacing.is_kernel()));
        assert_eq!(meminfo.to_text(), text);
        assert_eq!(meminfo.get("HugePages_Free"), Some(12));
        meminfo.set("MemTotal", 5);
        meminfo.set("MemFree", 4);
        meminfo.set("HugePages_Rsvd", 3);
        let text = meminfo.to_text();
        assert!(text.starts_with("MemTotal:              5 kB\n"), "{text}");
        assert!(
            text.ends_with("MemFree:               4 kB\nHugePages_Rsvd:        3\n"),
            "{text}"
        );
    }

    #[test]
    fn a_nodes_file_keeps_its_node() {
        let text = "Node 1 MemTotal:        4679884 kB\nNode 1 HugePages_Total:     0\n";
        let meminfo = Meminfo::parse("meminfo", text.as_bytes()).unwrap();
        assert_eq!(meminfo.fields[0].node, Some(1));
        assert!(meminfo.fields.iter().all(|field| field.spacing.is_kernel()));
        assert_eq!(meminfo.to_text(), text);
    }

    #[test]
    fn bad_lines_are_named() {
        let error = Meminfo::parse("m", b"MemTotal: x kB\nMemFree 1 kB\nA: 1 MB\n").unwrap_err();
        assert_eq!(error.problems().len(), 3);
        assert_eq!(
            error.problems()[1].to_string(),
            "m:2: `MemFree 1 kB`, expected a name with a colon, a value and maybe kB"
        );
    }
}
