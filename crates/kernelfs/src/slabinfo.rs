//! `/proc/slabinfo`: objects and slabs of every cache.
//!
//! Models: mm/slab_common.c (`print_slabinfo_header`, `cache_show`).

use crate::TextFile;
use crate::lines::{Line, Problems, Spacing, number};
use highorder_input::InputError;

/// One slab cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlabCache {
    /// The cache's name.
    pub name: String,
    /// Objects in use.
    pub active_objs: u64,
    /// Objects there is room for.
    pub num_objs: u64,
    /// Bytes an object takes.
    pub objsize: u64,
    /// Objects to a slab.
    pub objperslab: u64,
    /// Base pages to a slab.
    pub pagesperslab: u64,
    /// `limit`, `batchcount` and `sharedfactor`; zero with SLUB.
    pub tunables: [u64; 3],
    /// Slabs in use.
    pub active_slabs: u64,
    /// Slabs.
    pub num_slabs: u64,
    /// Objects shared between CPUs; zero with SLUB.
    pub sharedavail: u64,
    /// What follows on kernels that keep statistics (` : globalstat ...`), as it is.
    pub statistics: String,
    /// How the line was spaced.
    pub spacing: Spacing,
}

/// `/proc/slabinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slabinfo {
    /// The format's version, e.g. `2.1`, or `2.1 (statistics)`.
    pub version: String,
    /// The line that names the columns, as it is.
    pub columns: String,
    /// The caches in file order.
    pub caches: Vec<SlabCache>,
}

/// The names of the columns without statistics.
const COLUMNS: &str = "# name            <active_objs> <num_objs> <objsize> <objperslab> \
    <pagesperslab> : tunables <limit> <batchcount> <sharedfactor> : slabdata <active_slabs> \
    <num_slabs> <sharedavail>";

const VERSION: &str = "slabinfo - version: ";

impl Default for Slabinfo {
    fn default() -> Slabinfo {
        Slabinfo { version: "2.1".into(), columns: COLUMNS.into(), caches: Vec::new() }
    }
}

impl Slabinfo {
    /// Returns one cache.
    pub fn cache(&self, name: &str) -> Option<&SlabCache> {
        self.caches.iter().find(|cache| cache.name == name)
    }
}

impl TextFile for Slabinfo {
    fn parse(file: &str, text: &[u8]) -> Result<Slabinfo, InputError> {
        let mut problems = Problems::new(file);
        let mut table = Slabinfo::default();
        let lines = problems.lines(text);
        match lines.first().map(|line| (line, line.text.strip_prefix(VERSION))) {
            Some((_, Some(version))) => table.version = version.into(),
            Some((line, None)) => problems.line(*line, "`slabinfo - version: `"),
            None => problems.add(0, "a file that ends too early", "`slabinfo - version: `"),
        }
        match lines.get(1) {
            Some(line) if line.text.starts_with("# name") => table.columns = line.text.into(),
            Some(line) => problems.line(*line, "`# name` and the names of the columns"),
            None => problems.add(0, "a file that ends too early", "the names of the columns"),
        }
        for line in lines.iter().skip(2) {
            match parse_cache(*line) {
                Some(mut cache) => {
                    cache.spacing = problems.spacing(*line, &cache_line(&cache));
                    table.caches.push(cache);
                }
                None => problems.line(*line, "a name, 5 numbers, 3 tunables and 3 slabdata"),
            }
        }
        problems.finish(table, text)
    }

    fn to_text(&self) -> String {
        let mut text = format!("{VERSION}{}\n{}\n", self.version, self.columns);
        for cache in &self.caches {
            text.push_str(&cache.spacing.apply(cache_line(cache)));
            text.push('\n');
        }
        text
    }
}

fn parse_cache(line: Line<'_>) -> Option<SlabCache> {
    let statistics = line.text.find(" : globalstat").map_or("", |at| &line.text[at..]);
    let text = &line.text[..line.text.len() - statistics.len()];
    let (objects, rest) = text.split_once(" : tunables")?;
    let (tunables, slabs) = rest.split_once(" : slabdata")?;
    let [limit, batchcount, sharedfactor] = numbers(tunables)?;
    let [active_slabs, num_slabs, sharedavail] = numbers(slabs)?;
    // A name may hold blanks, so the numbers are told from the right.
    let words: Vec<&str> = objects.split_ascii_whitespace().collect();
    let (name, sizes) = words.split_at(words.len().checked_sub(5).filter(|&n| n > 0)?);
    let [active_objs, num_objs, objsize, objperslab, pagesperslab] = numbers(&sizes.join(" "))?;
    Some(SlabCache {
        name: name.join(" "),
        active_objs,
        num_objs,
        objsize,
        objperslab,
        pagesperslab,
        tunables: [limit, batchcount, sharedfactor],
        active_slabs,
        num_slabs,
        sharedavail,
        statistics: statistics.into(),
        spacing: Spacing::KERNEL,
    })
}

fn numbers<const N: usize>(text: &str) -> Option<[u64; N]> {
    let numbers: Vec<u64> = text.split_ascii_whitespace().map(number).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

fn cache_line(cache: &SlabCache) -> String {
    let SlabCache { name, active_objs, num_objs, objsize, objperslab, pagesperslab, .. } = cache;
    let SlabCache { active_slabs, num_slabs, sharedavail, statistics, .. } = cache;
    let [limit, batchcount, sharedfactor] = cache.tunables;
    format!(
        "{name:<17} {active_objs:>6} {num_objs:>6} {objsize:>6} {objperslab:>4} \
         {pagesperslab:>4} : tunables {limit:>4} {batchcount:>4} {sharedfactor:>4} : slabdata \
         {active_slabs:>6} {num_slabs:>6} {sharedavail:>6}{statistics}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "bio-128               21     21    192   21    1 : tunables    0    0    0 \
                       : slabdata      1      2      0";

    #[test]
    fn a_cache_is_read_changed_and_written() {
        let text = format!("slabinfo - version: 2.1\n{COLUMNS}\n{ROW}\n");
        let mut table = Slabinfo::parse("s", text.as_bytes()).unwrap();
        assert_eq!(table.to_text(), text);
        assert!(table.caches[0].spacing.is_kernel());
        assert_eq!(table.cache("bio-128").unwrap().num_slabs, 2);
        table.caches[0].active_objs = 1;
        assert_eq!(table.to_text(), text.replacen("    21     21", "     1     21", 1));
    }

    #[test]
    fn a_name_with_blanks_and_statistics_is_kept() {
        let row = ROW.replace("bio-128", "my bio ") + " : globalstat      1 2 : cpustat 3";
        let text = format!("slabinfo - version: 2.1 (statistics)\n{COLUMNS} : globalstat\n{row}\n");
        let table = Slabinfo::parse("s", text.as_bytes()).unwrap();
        assert_eq!(table.caches[0].name, "my bio");
        assert_eq!(table.caches[0].statistics, " : globalstat      1 2 : cpustat 3");
        assert_eq!(table.to_text(), text);
    }

    #[test]
    fn every_bad_row_is_named() {
        let text = format!("slabinfo - version: 2.1\n{COLUMNS}\nbio 1 2\n{ROW} 7\n{ROW}\n");
        let error = Slabinfo::parse("s", text.as_bytes()).unwrap_err();
        let lines: Vec<u64> = error.problems().iter().filter_map(|problem| problem.line).collect();
        assert_eq!(lines, [3, 4]);
        assert_eq!(Slabinfo::parse("s", b"").unwrap_err().problems().len(), 2);
    }
}
