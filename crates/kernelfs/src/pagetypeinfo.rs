//! `/proc/pagetypeinfo`: free blocks by migratetype and order, and pageblocks by migratetype.
//!
//! Models: mm/vmstat.c (`pagetypeinfo_show` and the functions it calls). Since v5.4
//! (93b3a674485f) counting stops at 100000 and the number is printed as `>100000`; the mixed
//! blocks section is there only on kernels that track page owners.

use crate::TextFile;
use crate::lines::{Line, Problems, Spacing, node_zone, number};
use highorder_files::limits;
use highorder_input::InputError;

/// A number of free blocks, maybe a lower bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeCount {
    /// Free blocks; not base pages.
    pub blocks: u64,
    /// Whether the kernel stopped counting there: printed with a `>`.
    pub is_lower_bound: bool,
}

impl From<u64> for FreeCount {
    fn from(blocks: u64) -> FreeCount {
        FreeCount { blocks, is_lower_bound: false }
    }
}

/// The free blocks of one migratetype in one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeRow {
    /// The NUMA node.
    pub node: u32,
    /// The zone's name.
    pub zone: String,
    /// The migratetype's name, e.g. `Movable`.
    pub migratetype: String,
    /// Free blocks of each order, order 0 first.
    pub counts: Vec<FreeCount>,
    /// How the line was spaced.
    pub spacing: Spacing,
}

/// The pageblocks of one zone by migratetype.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockRow {
    /// The NUMA node.
    pub node: u32,
    /// The zone's name.
    pub zone: String,
    /// Pageblocks of each migratetype, in the order of [`PagetypeinfoNode::migratetypes`].
    pub counts: Vec<u64>,
    /// How the line was spaced.
    pub spacing: Spacing,
}

/// `/proc/pagetypeinfo`: the kernel prints the whole table once for every node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pagetypeinfo {
    /// The nodes' tables.
    pub nodes: Vec<PagetypeinfoNode>,
}

/// One node's table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PagetypeinfoNode {
    /// Order of a pageblock.
    pub page_block_order: u64,
    /// Base pages of a pageblock.
    pub pages_per_block: u64,
    /// How many orders the table of free blocks has (11 on x86-64: 0 to 10).
    pub nr_orders: usize,
    /// Free blocks by node, zone and migratetype, in file order.
    pub free: Vec<FreeRow>,
    /// The migratetypes' names, in the order of the block columns.
    pub migratetypes: Vec<String>,
    /// Pageblocks by migratetype, a row a zone.
    pub blocks: Vec<BlockRow>,
    /// Pageblocks that hold pages of another type than their own, where the kernel counts them.
    pub mixed: Option<Vec<BlockRow>>,
    /// How the two lines at the top and the three headings were spaced.
    pub heading_spacing: [Spacing; 5],
}

impl Pagetypeinfo {
    /// Returns the order of a pageblock.
    pub fn page_block_order(&self) -> Option<u64> {
        self.nodes.first().map(|node| node.page_block_order)
    }

    /// Returns the base pages of a pageblock.
    pub fn pages_per_block(&self) -> Option<u64> {
        self.nodes.first().map(|node| node.pages_per_block)
    }

    /// Returns the rows of free blocks of all nodes.
    pub fn free(&self) -> impl Iterator<Item = &FreeRow> {
        self.nodes.iter().flat_map(|node| &node.free)
    }

    /// Returns the free blocks of one migratetype.
    pub fn free_row(&self, node: u32, zone: &str, migratetype: &str) -> Option<&FreeRow> {
        self.free().find(|r| r.node == node && r.zone == zone && r.migratetype == migratetype)
    }

    /// Returns the number of pageblocks of one migratetype.
    pub fn nr_blocks(&self, node: u32, zone: &str, migratetype: &str) -> Option<u64> {
        self.nodes.iter().find_map(|table| {
            let column = table.migratetypes.iter().position(|name| name == migratetype)?;
            let row = table.blocks.iter().find(|row| row.node == node && row.zone == zone)?;
            row.counts.get(column).copied()
        })
    }
}

impl PagetypeinfoNode {
    /// Returns the text of the lines that are not rows, in file order.
    fn headings(&self) -> [String; 5] {
        let mut orders = format!("{:<43} ", "Free pages count per migrate type at order");
        for order in 0..self.nr_orders {
            orders.push_str(&format!("{order:>6} "));
        }
        let types: String = self.migratetypes.iter().map(|name| format!("{name:>12} ")).collect();
        [
            format!("Page block order: {}", self.page_block_order),
            format!("Pages per block:  {}", self.pages_per_block),
            orders,
            format!("{:<23}{types}", "Number of blocks type"),
            format!("{:<23}{types}", "Number of mixed blocks"),
        ]
    }

    fn push_text(&self, text: &mut String) {
        let headings = self.headings();
        let [block_order, block_pages, orders, types, mixed_types] =
            std::array::from_fn(|i| self.heading_spacing[i].apply(headings[i].clone()));
        text.push_str(&format!("{block_order}\n{block_pages}\n\n{orders}\n"));
        for row in &self.free {
            text.push_str(&row.spacing.apply(free_line(row)));
            text.push('\n');
        }
        let mut push_blocks = |heading: String, rows: &[BlockRow]| {
            text.push_str(&format!("\n{heading}\n"));
            for row in rows {
                text.push_str(&row.spacing.apply(block_line(row)));
                text.push('\n');
            }
        };
        push_blocks(types, &self.blocks);
        if let Some(mixed) = &self.mixed {
            push_blocks(mixed_types, mixed);
        }
    }
}

impl TextFile for Pagetypeinfo {
    fn parse(file: &str, text: &[u8]) -> Result<Pagetypeinfo, InputError> {
        let mut problems = Problems::new(file);
        let lines = problems.lines(text);
        let mut reader = Reader { lines: &lines, at: 0, problems: &mut problems };
        let mut nodes = vec![reader.table()];
        while reader.at < lines.len() && reader.is_at_table() {
            nodes.push(reader.table());
        }
        if let Some(line) = lines.get(reader.at) {
            reader.problems.line(*line, "the end of the file");
        }
        problems.finish(Pagetypeinfo { nodes }, text)
    }

    fn to_text(&self) -> String {
        let mut text = String::new();
        for node in &self.nodes {
            node.push_text(&mut text);
        }
        text
    }
}

fn free_line(row: &FreeRow) -> String {
    let mut line =
        format!("Node {:>4}, zone {:>8}, type {:>12} ", row.node, row.zone, row.migratetype);
    for count in &row.counts {
        // A bound has at least six digits: the kernel gives up at 100000.
        let count = match count.is_lower_bound {
            true => format!(">{}", count.blocks),
            false => count.blocks.to_string(),
        };
        line.push_str(&format!("{count:>6} "));
    }
    line
}

fn block_line(row: &BlockRow) -> String {
    let mut line = format!("Node {}, zone {:>8} ", row.node, row.zone);
    for count in &row.counts {
        line.push_str(&format!("{count:>12} "));
    }
    line
}

/// What a node's table starts with.
const BLOCK_ORDER: &str = "Page block order:";

/// Walks the lines from section to section.
struct Reader<'a> {
    lines: &'a [Line<'a>],
    at: usize,
    problems: &'a mut Problems,
}

impl<'a> Reader<'a> {
    /// Whether a node's table starts here.
    fn is_at_table(&self) -> bool {
        self.lines.get(self.at).is_some_and(|line| line.text.starts_with(BLOCK_ORDER))
    }

    fn table(&mut self) -> PagetypeinfoNode {
        let mut table = PagetypeinfoNode::default();
        let block_order = self.heading(BLOCK_ORDER, "`Page block order: ` and a number");
        let block_pages = self.heading("Pages per block:", "`Pages per block: ` and a number");
        for (found, field) in [
            (&block_order, &mut table.page_block_order),
            (&block_pages, &mut table.pages_per_block),
        ] {
            if let Some((line, rest)) = found {
                match rest[..] {
                    [word] if number(word).is_some() => *field = number(word).unwrap_or_default(),
                    _ => self.problems.line(*line, "one number"),
                }
            }
        }
        self.blank();
        let expected = "`Free pages count per migrate type at order` and the orders";
        let orders = self.heading("Free pages count per migrate type at order", expected);
        if let Some((line, words)) = &orders {
            table.nr_orders = words.len();
            if let Err(message) = limits::ORDERS.check(words.len() as u64) {
                self.problems.message(message);
            }
            if words.iter().enumerate().any(|(order, word)| *word != order.to_string()) {
                self.problems.line(*line, "the orders, counted from 0");
            }
        }
        table.free = self.free_rows(table.nr_orders);
        self.blank();
        let expected = "`Number of blocks type` and the migratetypes";
        let types = self.heading("Number of blocks type", expected);
        if let Some((_, words)) = &types {
            table.migratetypes = words.iter().map(|word| word.to_string()).collect();
        }
        table.blocks = self.block_rows(table.migratetypes.len());
        let mut mixed = None;
        if self.at < self.lines.len() && !self.is_at_table() {
            self.blank();
            let expected = "`Number of mixed blocks` and the migratetypes";
            mixed = self.heading("Number of mixed blocks", expected);
            table.mixed = Some(self.block_rows(table.migratetypes.len()));
        }
        let headings = table.headings();
        for (i, found) in [block_order, block_pages, orders, types, mixed].iter().enumerate() {
            if let Some((line, _)) = found {
                table.heading_spacing[i] = self.problems.spacing(*line, &headings[i]);
            }
        }
        table
    }

    /// Takes a line that starts with `title`; returns it and the words after the title.
    fn heading(&mut self, title: &str, expected: &str) -> Option<(Line<'a>, Vec<&'a str>)> {
        let Some(line) = self.lines.get(self.at).copied() else {
            self.problems.add(0, "a file that ends too early", expected);
            return None;
        };
        self.at += 1;
        let Some(rest) = line.text.strip_prefix(title) else {
            self.problems.line(line, expected);
            return None;
        };
        Some((line, rest.split_ascii_whitespace().collect()))
    }

    /// Takes the blank line between two sections.
    fn blank(&mut self) {
        if let Some(line) = self.lines.get(self.at).copied() {
            self.at += 1;
            if !line.text.is_empty() {
                self.problems.line(line, "a blank line");
                self.at -= usize::from(line.text.starts_with(|c: char| c.is_ascii_uppercase()));
            }
        }
    }

    /// Takes the lines up to the next blank one or the next node's table.
    fn rows(&mut self) -> &'a [Line<'a>] {
        let rest = &self.lines[self.at..];
        let stops = |line: &Line<'_>| line.text.is_empty() || line.text.starts_with(BLOCK_ORDER);
        let end = rest.iter().position(stops).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn free_rows(&mut self, nr_orders: usize) -> Vec<FreeRow> {
        let mut rows = Vec::new();
        for line in self.rows() {
            let Some(mut row) = parse_free(line.text) else {
                self.problems.line(*line, "`Node N, zone NAME, type NAME` and free blocks");
                continue;
            };
            if row.counts.len() != nr_orders {
                let found = format!(
                    "zone {}, type {} has {} order columns",
                    row.zone,
                    row.migratetype,
                    row.counts.len()
                );
                self.problems.add(line.number, found, nr_orders.to_string());
            }
            self.problems.check_blocks(line.number, row.counts.iter().map(|count| count.blocks));
            row.spacing = self.problems.spacing(*line, &free_line(&row));
            rows.push(row);
        }
        rows
    }

    fn block_rows(&mut self, nr_types: usize) -> Vec<BlockRow> {
        let mut rows = Vec::new();
        for line in self.rows() {
            let parsed = node_zone(line.text).and_then(|(node, zone, counts)| {
                let counts = counts.split_ascii_whitespace().map(number).collect::<Option<_>>()?;
                Some(BlockRow { node, zone: zone.into(), counts, spacing: Spacing::KERNEL })
            });
            let Some(mut row) = parsed else {
                self.problems.line(*line, "`Node N, zone NAME` and pageblocks of each type");
                continue;
            };
            if row.counts.len() != nr_types {
                let found = format!("zone {} has {} type columns", row.zone, row.counts.len());
                self.problems.add(line.number, found, nr_types.to_string());
            }
            self.problems.check_blocks(line.number, row.counts.iter().copied());
            row.spacing = self.problems.spacing(*line, &block_line(&row));
            rows.push(row);
        }
        rows
    }
}

fn parse_free(text: &str) -> Option<FreeRow> {
    let (node, zone, rest) = node_zone(text)?;
    let mut words = rest.strip_prefix(',')?.split_ascii_whitespace();
    if words.next()? != "type" {
        return None;
    }
    let migratetype = words.next()?.to_string();
    let counts = words
        .map(|word| {
            let (is_lower_bound, digits) = match word.strip_prefix('>') {
                Some(digits) => (true, digits),
                None => (false, word),
            };
            Some(FreeCount { blocks: number(digits)?, is_lower_bound })
        })
        .collect::<Option<_>>()?;
    Some(FreeRow { node, zone: zone.into(), migratetype, counts, spacing: Spacing::KERNEL })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Page block order: 9\n\
        Pages per block:  512\n\
        \n\
        Free pages count per migrate type at order       0      1 \n\
        Node    0, zone   Normal, type    Unmovable      0      2 \n\
        Node    0, zone   Normal, type      Movable >100000      3 \n\
        \n\
        Number of blocks type     Unmovable      Movable \n\
        Node 0, zone   Normal           35          212 \n\
        \n\
        Number of mixed blocks    Unmovable      Movable \n\
        Node 0, zone   Normal            1            0 \n";

    #[test]
    fn all_sections_are_read_and_written() {
        let table = Pagetypeinfo::parse("p", TEXT.as_bytes()).unwrap();
        assert_eq!(table.to_text(), TEXT);
        assert!(table.nodes[0].heading_spacing.iter().all(Spacing::is_kernel));
        assert_eq!((table.nodes[0].nr_orders, table.page_block_order()), (2, Some(9)));
        assert_eq!(table.nr_blocks(0, "Normal", "Movable"), Some(212));
        let row = table.free_row(0, "Normal", "Movable").unwrap();
        assert_eq!(row.counts[0], FreeCount { blocks: 100_000, is_lower_bound: true });
        assert_eq!(row.counts[1], 3.into());
        assert_eq!(table.nodes[0].mixed.as_ref().unwrap()[0].counts, [1, 0]);
    }

    #[test]
    fn every_node_has_its_own_table() {
        let second = TEXT.replace("Node 0,", "Node 1,").replace("Node    0,", "Node    1,");
        let without_mixed = &TEXT[..TEXT.find("\nNumber of mixed").unwrap()];
        for first in [TEXT, without_mixed] {
            let text = format!("{first}{second}");
            let table = Pagetypeinfo::parse("p", text.as_bytes()).unwrap();
            assert_eq!(table.nodes.len(), 2);
            assert_eq!(table.nr_blocks(1, "Normal", "Unmovable"), Some(35));
            assert_eq!(table.free().count(), 4);
            assert_eq!(table.to_text(), text);
        }
    }

    #[test]
    fn rows_with_too_few_columns_are_named() {
        let text = TEXT.replace("     35          212 ", "     35 ").replace("  0      2 ", "  0 ");
        let error = Pagetypeinfo::parse("p", text.as_bytes()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "p:5: zone Normal, type Unmovable has 1 order columns, expected 2\n\
             p:9: zone Normal has 1 type columns, expected 2"
        );
    }

    #[test]
    fn a_file_without_its_last_section_is_an_error() {
        let cut = &TEXT[..TEXT.find("\nNumber of blocks").unwrap()];
        let error = Pagetypeinfo::parse("p", cut.as_bytes()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "p: a file that ends too early, expected `Number of blocks type` and the migratetypes"
        );
    }
}
