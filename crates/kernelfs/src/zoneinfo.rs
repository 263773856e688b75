//! `/proc/zoneinfo`: watermarks, sizes, statistics and per-CPU lists of every zone.
//!
//! Models: mm/vmstat.c (`zoneinfo_show_print`). What changed over time, all told from the file:
//! statistics by node came with v4.8, before which zones held them; the page marks grew `cma`,
//! `boost` and `promo` and lost `scanned` (`node_scanned` for a while); `protection` stood after the counters until v4.12;
//! counters were indented by 4; unpopulated zones are listed, cut short, since v4.12.

use crate::TextFile;
use crate::counters::Counters;
use crate::lines::{Line, Problems, Spacing, node_zone, number};
use highorder_input::InputError;

/// `/proc/zoneinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zoneinfo {
    /// Where this kernel puts what differs between kernels.
    pub form: ZoneinfoForm,
    /// The zones in file order.
    pub zones: Vec<ZoneinfoZone>,
}

/// The differences between kernels that the values do not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneinfoForm {
    /// Blanks before a counter: 6, or 4 on older kernels.
    pub counter_indent: usize,
    /// Whether `protection` stands after the counters, as on older kernels.
    pub is_protection_after_counters: bool,
}

impl Default for ZoneinfoForm {
    fn default() -> ZoneinfoForm {
        ZoneinfoForm { counter_indent: 6, is_protection_after_counters: false }
    }
}

/// One zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneinfoZone {
    /// The NUMA node.
    pub node: u32,
    /// The zone's name.
    pub zone: String,
    /// Statistics of the whole node, with the node's first populated zone.
    pub node_stats: Option<Counters>,
    /// The page marks in file order: `free`, `boost`, `min`, `low`, `high`, `promo`, `spanned`,
    /// `present`, `managed`, `cma`; all in base pages.
    pub pages: Counters,
    /// Base pages kept back from requests that prefer each zone.
    pub protection: Protection,
    /// The zone's own counters.
    pub counters: Counters,
    /// The per-CPU lists; `None` for an unpopulated zone.
    pub pagesets: Option<Vec<Pageset>>,
    /// What follows the per-CPU lists: `node_unreclaimable` (`all_unreclaimable` once),
    /// `start_pfn`, `inactive_ratio`.
    pub trailing: Counters,
}

/// The lowmem reserves: one for each zone a request may prefer, in zone order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// Base pages.
    pub pages: Vec<u64>,
    /// How the line was spaced.
    pub spacing: Spacing,
}

/// One CPU's page lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pageset {
    /// The CPU.
    pub cpu: u32,
    /// `count`, `high`, `batch`, and on newer kernels `high_min` and `high_max`; base pages.
    pub fields: Counters,
    /// How far a CPU's counters may run ahead of the zone's; absent on one-CPU kernels.
    pub vm_stats_threshold: Option<u64>,
}

impl Zoneinfo {
    /// Returns one zone.
    pub fn zone(&self, node: u32, zone: &str) -> Option<&ZoneinfoZone> {
        self.zones.iter().find(|z| z.node == node && z.zone == zone)
    }

    /// Returns one zone, to change it.
    pub fn zone_mut(&mut self, node: u32, zone: &str) -> Option<&mut ZoneinfoZone> {
        self.zones.iter_mut().find(|z| z.node == node && z.zone == zone)
    }

    /// Returns a node's statistics.
    pub fn node_stats(&self, node: u32) -> Option<&Counters> {
        self.zones.iter().filter(|z| z.node == node).find_map(|z| z.node_stats.as_ref())
    }
}

impl ZoneinfoZone {
    /// Returns the zone's size in base pages without holes and reserved pages.
    pub fn managed(&self) -> Option<u64> {
        self.pages.get("managed")
    }

    /// Returns a watermark, `min`, `low`, `high` or `promo`, in base pages.
    pub fn watermark(&self, name: &str) -> Option<u64> {
        self.pages.get(name)
    }

    /// Returns the zone's first page frame number, if the zone is populated.
    pub fn start_pfn(&self) -> Option<u64> {
        self.trailing.get("start_pfn")
    }
}

impl TextFile for Zoneinfo {
    fn parse(file: &str, text: &[u8]) -> Result<Zoneinfo, InputError> {
        let mut problems = Problems::new(file);
        let lines = problems.lines(text);
        let mut parser = Parser {
            table: Zoneinfo { form: form(&lines), zones: Vec::new() },
            section: Section::Top,
            problems: &mut problems,
        };
        for line in &lines {
            parser.line(*line);
        }
        parser.end_of_zone(lines.last().copied());
        let table = parser.table;
        if text.is_empty() {
            problems.add(0, "an empty file", "at least one zone");
        }
        problems.finish(table, text)
    }

    fn to_text(&self) -> String {
        let mut text = String::new();
        for zone in &self.zones {
            self.write_zone(zone, &mut text);
        }
        text
    }
}

impl Zoneinfo {
    fn write_zone(&self, zone: &ZoneinfoZone, text: &mut String) {
        let mut push = |line: String| {
            text.push_str(&line);
            text.push('\n');
        };
        push(format!("Node {}, zone {:>8}", zone.node, zone.zone));
        if let Some(stats) = &zone.node_stats {
            push(NODE_STATS.into());
            for c in stats.as_slice() {
                push(c.spacing.apply(self.form.counter_line(&c.name, c.value)));
            }
        }
        for c in zone.pages.as_slice() {
            push(c.spacing.apply(pages_line(&c.name, c.value)));
        }
        let protection = zone.protection.spacing.apply(protection_line(&zone.protection.pages));
        if !self.form.is_protection_after_counters {
            push(protection.clone());
        }
        for c in zone.counters.as_slice() {
            push(c.spacing.apply(self.form.counter_line(&c.name, c.value)));
        }
        if self.form.is_protection_after_counters {
            push(protection);
        }
        if let Some(pagesets) = &zone.pagesets {
            push(PAGESETS.into());
            for pageset in pagesets {
                push(cpu_line(pageset.cpu));
                let width = pageset.label_width();
                for c in pageset.fields.as_slice() {
                    push(c.spacing.apply(pageset_line(&c.name, c.value, width)));
                }
                if let Some(threshold) = pageset.vm_stats_threshold {
                    push(format!("{THRESHOLD}{threshold}"));
                }
            }
        }
        let width = trailing_width(&zone.trailing);
        for c in zone.trailing.as_slice() {
            push(c.spacing.apply(trailing_line(&c.name, c.value, width)));
        }
    }
}

const NODE_STATS: &str = "  per-node stats";
const PAGESETS: &str = "  pagesets";
const THRESHOLD: &str = "  vm stats threshold: ";

impl ZoneinfoForm {
    fn counter_line(&self, name: &str, value: u64) -> String {
        format!("{:indent$}{name:<12} {value}", "", indent = self.counter_indent)
    }
}

fn pages_line(name: &str, value: u64) -> String {
    match name {
        "free" => format!("  pages {name:<8} {value}"),
        // Too long for the column, it starts further left (v4.8 to v4.11).
        "node_scanned" => format!("   {name}  {value}"),
        _ => format!("        {name:<8} {value}"),
    }
}

fn protection_line(pages: &[u64]) -> String {
    let pages: Vec<String> = pages.iter().map(u64::to_string).collect();
    format!("        protection: ({})", pages.join(", "))
}

fn cpu_line(cpu: u32) -> String {
    format!("    cpu: {cpu}")
}

impl Pageset {
    /// The values line up one blank after the longest label and its colon.
    fn label_width(&self) -> usize {
        self.fields.iter().map(|(name, _)| name.len() + 2).max().unwrap_or(0)
    }
}

fn pageset_line(name: &str, value: u64, width: usize) -> String {
    format!("              {:<width$}{value}", format!("{name}:"))
}

/// The values line up at a column that moved when the labels got to speak of nodes (v4.8).
fn trailing_width(trailing: &Counters) -> usize {
    if trailing.iter().any(|(name, _)| name.starts_with("node_")) { 21 } else { 19 }
}

fn trailing_line(name: &str, value: u64, width: usize) -> String {
    format!("  {:<width$}{value}", format!("{name}:"))
}

/// Looks ahead for what the layout depends on.
fn form(lines: &[Line<'_>]) -> ZoneinfoForm {
    let counter = |line: &&Line<'_>| line.text.trim_start().starts_with("nr_free_pages ");
    let Some(at) = lines.iter().position(|line| counter(&line)) else {
        return ZoneinfoForm::default();
    };
    let line = lines[at].text;
    let own_protection = lines[..at]
        .iter()
        .rev()
        .take_while(|line| !line.text.starts_with("Node "))
        .any(|line| line.text.trim_start().starts_with("protection:"));
    ZoneinfoForm {
        counter_indent: line.len() - line.trim_start().len(),
        is_protection_after_counters: !own_protection,
    }
}

/// Which part of a zone the last line belonged to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    /// Before the first zone.
    Top,
    Zone,
    NodeStats,
    Pages,
    Pagesets,
    Trailing,
}

struct Parser<'p> {
    table: Zoneinfo,
    section: Section,
    problems: &'p mut Problems,
}

impl Parser<'_> {
    fn line(&mut self, line: Line<'_>) {
        if line.text.starts_with("Node") {
            return self.zone_line(line);
        }
        let form = self.table.form;
        let problems = &mut *self.problems;
        let Some(zone) = self.table.zones.last_mut() else {
            return problems.line(line, "`Node N, zone NAME`");
        };
        let text = line.text;
        let indent = text.len() - text.trim_start_matches(' ').len();
        let words = line.words();
        match (indent, &words[..]) {
            (2, ["per-node", "stats"]) if text == NODE_STATS => {
                zone.node_stats = Some(Counters::new());
                self.section = Section::NodeStats;
            }
            (2, ["pages", name, value]) => {
                self.section = Section::Pages;
                push(problems, &mut zone.pages, line, (name, value), pages_line);
            }
            (2, ["pagesets"]) if text == PAGESETS => {
                zone.pagesets = Some(Vec::new());
                self.section = Section::Pagesets;
            }
            (2, ["vm", "stats", "threshold:", value]) => {
                let pageset = zone.pagesets.as_mut().and_then(|sets| sets.last_mut());
                match (pageset, number(value)) {
                    (Some(pageset), Some(value)) => pageset.vm_stats_threshold = Some(value),
                    _ => problems.line(line, "the threshold of the CPU above"),
                }
            }
            (2, [label, value]) if label.ends_with(':') => {
                self.section = Section::Trailing;
                let name = &label[..label.len() - 1];
                // The column depends on all labels of the zone: laid out when the zone ends.
                push_as_is(problems, &mut zone.trailing, line, (name, value));
            }
            (4, ["cpu:", cpu]) if self.section == Section::Pagesets => {
                let cpu = number(cpu).and_then(|cpu| cpu.try_into().ok());
                match (cpu, &mut zone.pagesets) {
                    (Some(cpu), Some(sets)) => {
                        sets.push(Pageset { cpu, ..Pageset::default() });
                    }
                    _ => problems.line(line, "the number of a CPU"),
                }
            }
            (8, ["protection:", values @ ..]) => match parse_protection(values) {
                Some(pages) => {
                    let spacing = problems.spacing(line, &protection_line(&pages));
                    zone.protection = Protection { pages, spacing };
                }
                None => problems.line(line, "`protection: (N, N, ...)`"),
            },
            (8, [name, value]) | (3, [name @ "node_scanned", value])
                if self.section == Section::Pages =>
            {
                push(problems, &mut zone.pages, line, (name, value), pages_line);
            }
            (14, [label, value]) if self.section == Section::Pagesets && label.ends_with(':') => {
                let name = &label[..label.len() - 1];
                let pageset = zone.pagesets.as_mut().and_then(|sets| sets.last_mut());
                match pageset {
                    Some(set) => push_as_is(problems, &mut set.fields, line, (name, value)),
                    None => problems.line(line, "`cpu: N` first"),
                }
            }
            (4 | 6, [name, value]) => {
                let counters = match (self.section, &mut zone.node_stats) {
                    (Section::NodeStats, Some(stats)) => stats,
                    (Section::Pages, _) => &mut zone.counters,
                    _ => return problems.line(line, "a line of the section it stands in"),
                };
                let canonical = |name: &str, value| form.counter_line(name, value);
                push(problems, counters, line, (name, value), canonical);
            }
            _ => problems.line(line, "a line of zoneinfo"),
        }
    }

    fn zone_line(&mut self, line: Line<'_>) {
        if self.section != Section::Top {
            self.end_of_zone(Some(line));
        }
        self.section = Section::Zone;
        let zone = match node_zone(line.text) {
            Some((node, zone, "")) => {
                ZoneinfoZone { node, zone: zone.into(), ..Default::default() }
            }
            _ => {
                self.problems.line(line, "`Node N, zone NAME`");
                ZoneinfoZone::default()
            }
        };
        self.table.zones.push(zone);
    }

    /// Checks that the zone above `next` is whole.
    fn end_of_zone(&mut self, next: Option<Line<'_>>) {
        let Some(zone) = self.table.zones.last_mut() else { return };
        let at = next.map_or(0, |line| line.number);
        let mut missing = |what: &str| {
            let found = format!("node {}, zone {} without {what}", zone.node, zone.zone);
            self.problems.add(at, found, "all its parts");
        };
        if zone.pages.is_empty() {
            missing("page marks");
        }
        if zone.protection.pages.is_empty() {
            missing("protection");
        }
        if zone.pagesets.is_some() && zone.trailing.get("start_pfn").is_none() {
            missing("start_pfn");
        }
        if zone.pagesets.is_none() && !zone.counters.is_empty() {
            missing("pagesets");
        }
        let width = trailing_width(&zone.trailing);
        zone.trailing.respace(|name, value| trailing_line(name, value, width));
        for set in zone.pagesets.iter_mut().flatten() {
            let width = set.label_width();
            set.fields.respace(|name, value| pageset_line(name, value, width));
        }
    }
}

/// Takes a name and its value, laid out as `canonical` says.
fn push(
    problems: &mut Problems,
    counters: &mut Counters,
    line: Line<'_>,
    (name, value): (&str, &str),
    canonical: impl Fn(&str, u64) -> String,
) {
    let Some(value) = number(value) else {
        return problems.line(line, "a name and a number");
    };
    if counters.get(name).is_some() {
        return problems.add(line.number, format!("{name} again"), "each name once");
    }
    let spacing = problems.spacing(line, &canonical(name, value));
    counters.push(name, value, spacing);
}

/// Takes a name and its value whose column depends on the lines to come; see `end_of_zone`.
fn push_as_is(
    problems: &mut Problems,
    counters: &mut Counters,
    line: Line<'_>,
    pair: (&str, &str),
) {
    let before = counters.len();
    push(problems, counters, line, pair, |_, _| line.text.into());
    if counters.len() > before {
        counters.set_last_spacing(Spacing::verbatim(line.text));
    }
}

fn parse_protection(words: &[&str]) -> Option<Vec<u64>> {
    let inner = words.join(" ");
    inner.strip_prefix('(')?.strip_suffix(')')?.split(", ").map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODERN: &str = "\
Node 0, zone   Normal
  per-node stats
      nr_inactive_anon 5
      nr_mapped    652
  pages free     3808
        boost    0
        min      190
        managed  3840
        protection: (0, 438)
      nr_free_pages 3808
      nr_mlock     0
  pagesets
    cpu: 0
              count: 7
              high:  9
              batch: 1
  vm stats threshold: 4
  node_unreclaimable:  0
  start_pfn:           1
Node 0, zone  Movable
  pages free     0
        min      32
        protection: (0, 0)
";

    /// v3.10's order of lines and indents, written by hand from its documented format.
    const OLD: &str = "\
Node 0, zone      DMA
  pages free     3967
        min      32
        low      40
        high     48
        scanned  0
        spanned  4095
        present  3998
        managed  3977
    nr_free_pages 3967
    nr_inactive_anon 0
        protection: (0, 3000, 3900, 3900)
  pagesets
    cpu: 0
              count: 0
              high:  0
              batch: 1
  vm stats threshold: 6
  all_unreclaimable: 1
  start_pfn:         1
  inactive_ratio:    1
";

    #[test]
    fn zones_are_read_changed_and_written() {
        let mut table = Zoneinfo::parse("z", MODERN.as_bytes()).unwrap();
        assert_eq!(table.to_text(), MODERN);
        assert_eq!(table.node_stats(0).unwrap().get("nr_mapped"), Some(652));
        let zone = table.zone_mut(0, "Normal").unwrap();
        assert_eq!((zone.watermark("min"), zone.managed()), (Some(190), Some(3840)));
        assert_eq!(zone.start_pfn(), Some(1));
        assert_eq!(zone.protection.pages, [0, 438]);
        assert_eq!(zone.pagesets.as_ref().unwrap()[0].vm_stats_threshold, Some(4));
        zone.pages.set("min", 12345);
        let text = table.to_text();
        assert!(text.contains("        min      12345\n"), "{text}");
        assert_eq!(table.zone(0, "Movable").unwrap().pagesets, None);
    }

    #[test]
    fn per_cpu_values_line_up_after_the_longest_label() {
        let newer = "              high:  9\n              batch: 1\n";
        let text = MODERN.replace("count: 7", "count:    7").replace(
            newer,
            "              high:     9\n              batch:    1\n              high_min: 34\n",
        );
        let table = Zoneinfo::parse("z", text.as_bytes()).unwrap();
        let fields = &table.zones[0].pagesets.as_ref().unwrap()[0].fields;
        assert!(fields.as_slice().iter().all(|field| field.spacing.is_kernel()));
        assert_eq!(fields.get("high_min"), Some(34));
        assert_eq!(table.to_text(), text);
    }

    #[test]
    fn older_kernels_keep_their_order_and_indent() {
        let table = Zoneinfo::parse("z", OLD.as_bytes()).unwrap();
        assert_eq!(table.to_text(), OLD);
        assert_eq!(
            table.form,
            ZoneinfoForm { counter_indent: 4, is_protection_after_counters: true }
        );
        let zone = &table.zones[0];
        assert_eq!(zone.node_stats, None);
        assert_eq!(zone.counters.get("nr_inactive_anon"), Some(0));
        assert_eq!(zone.trailing.get("inactive_ratio"), Some(1));
        assert!(zone.trailing.as_slice().iter().all(|field| field.spacing.is_kernel()));
    }

    #[test]
    fn a_zone_cut_short_is_named() {
        let cut = &MODERN[..MODERN.find("  node_unreclaimable").unwrap()];
        let error = Zoneinfo::parse("z", cut.as_bytes()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "z:17: node 0, zone Normal without start_pfn, expected all its parts"
        );
    }

    #[test]
    fn lines_out_of_place_are_errors() {
        for (what, with) in [
            ("  pagesets\n", "  pagesets \n"),
            ("        boost    0\n", "        boost    none\n"),
            ("    cpu: 0\n", ""),
            ("protection: (0, 438)", "protection: (0 438)"),
            ("        boost    0\n", "        min      1\n"),
            ("  pages free     3808\n", "      nr_mlock     0\n  pages free     3808\n"),
        ] {
            let text = MODERN.replacen(what, with, 1);
            let outcome = Zoneinfo::parse("z", text.as_bytes());
            let expect_error = what != "  pages free     3808\n";
            assert_eq!(outcome.is_err(), expect_error, "{what:?} as {with:?}: {outcome:?}");
        }
    }
}
