//! One record as vmstat(8) and time(1) would have shown it.

use highorder_tables::{Column, Table, Value};

use crate::record::Record;

/// The columns of vmstat(8): group, heading, narrowest width, and the key in CSV and JSON.
const VMSTAT: [(&str, &str, usize, &str); 18] = [
    ("procs", "r", 2, "runnable"),
    ("procs", "b", 2, "blocked"),
    ("memory", "swpd", 6, "swpd_kib"),
    ("memory", "free", 6, "free_kib"),
    ("memory", "buff", 6, "buff_kib"),
    ("memory", "cache", 6, "cache_kib"),
    ("swap", "si", 4, "si_kib_per_s"),
    ("swap", "so", 4, "so_kib_per_s"),
    ("io", "bi", 5, "bi_kib_per_s"),
    ("io", "bo", 5, "bo_kib_per_s"),
    ("system", "in", 4, "in_per_s"),
    ("system", "cs", 4, "cs_per_s"),
    ("cpu", "us", 2, "us_percent"),
    ("cpu", "sy", 2, "sy_percent"),
    ("cpu", "id", 2, "id_percent"),
    ("cpu", "wa", 2, "wa_percent"),
    ("cpu", "st", 2, "st_percent"),
    ("time", "s", 6, "time_s"),
];

/// A listing as of `vmstat INTERVAL`.
#[derive(Clone, Debug, PartialEq)]
pub struct VmstatListing {
    rows: Vec<[Value; 18]>,
}

/// Makes a listing of a record's timeline, a row for each sample that lies `interval_ns` or more after
/// the last one shown (0: every sample).
///
/// Levels are those at the sample; rates are per second since the row above, so the first row has none
/// (vmstat(8) prints averages since boot there). What the timeline does not tell is missing. The
/// columns it looks for are listed at [`timeline`](crate::timeline).
///
/// Models: vmstat(8) of procps: `cache` is page cache and reclaimable slab, `bi` and `bo` are KiB.
/// Departs: the last column is the time of the sample, in seconds since the run began.
#[must_use]
pub fn vmstat_listing(record: &Record, interval_ns: u64) -> VmstatListing {
    let mut rows = Vec::new();
    let mut last: Option<usize> = None;
    for (i, &time) in record.timeline.time_ns.iter().enumerate() {
        if last.is_some_and(|last| time - record.timeline.time_ns[last] < interval_ns) {
            continue;
        }
        rows.push(Sample { record, at: i, last }.row());
        last = Some(i);
    }
    VmstatListing { rows }
}

/// About as many rows as a listing that is suggested has.
const ROWS_SUGGESTED: f64 = 20.0;

/// What a reader should know whose interval leaves one row of a run that has more samples: how long the run was,
/// and which interval shows more; none where more than one row is shown, or there are no more samples.
#[must_use]
pub fn too_coarse(record: &Record, interval_ns: u64) -> Option<String> {
    let times = &record.timeline.time_ns;
    let (first, last) = (*times.first()?, *times.last()?);
    if times.len() < 2 || times.iter().any(|time| time - first >= interval_ns.max(1)) {
        return None;
    }
    let (took, interval) = ((last - first) as f64 / 1e9, interval_ns as f64 / 1e9);
    let between_samples = took / (times.len() - 1) as f64;
    let finer = below(took / ROWS_SUGGESTED).max(below(between_samples));
    // Two digits that are not 0, of times below a tenth of a second.
    let decimals = (-took.max(1e-9).log10().floor()).max(1.0) as usize + 1;
    Some(format!(
        "The run was sampled for {took:.decimals$} s, less than the {interval} s between two lines: \
         --listing={finer} shows about {:.0} lines.",
        (took / finer.max(between_samples)).floor() + 1.0
    ))
}

/// The largest of 1, 2, 5, 10 and so on, and their tenths, that is not larger.
fn below(seconds: f64) -> f64 {
    let unit = 10_f64.powf(seconds.log10().floor());
    let digit = [5.0, 2.0, 1.0].into_iter().find(|digit| digit * unit <= seconds).unwrap_or(1.0);
    // Written and read, so that it is the number that a person would write.
    format!("{:.9}", digit * unit).parse().unwrap_or(digit * unit)
}

/// One sample and the one shown before it.
struct Sample<'a> {
    record: &'a Record,
    at: usize,
    last: Option<usize>,
}

impl Sample<'_> {
    fn row(&self) -> [Value; 18] {
        let page_kib = f64::from(self.record.page_bytes) / 1024.0;
        let pages_kib = |name: &str| self.level(name).map(|pages| pages * page_kib);
        let swapped = self.level("SwapTotal").zip(self.level("SwapFree")).map(|(t, f)| t - f);
        let free = self.level("MemFree").or_else(|| pages_kib("nr_free_pages"));
        let buffers = self.level("Buffers");
        let slab = self.level("SReclaimable").or_else(|| pages_kib("nr_slab_reclaimable"));
        // nr_file_pages counts buffers and the swap cache too.
        let cached = self.level("Cached").or_else(|| {
            let swap_cache = pages_kib("nr_swapcached").unwrap_or(0.0);
            Some(pages_kib("nr_file_pages")? - buffers.unwrap_or(0.0) - swap_cache)
        });
        let cache = cached.map(|cached| cached + slab.unwrap_or(0.0));
        let rate_kib = |name: &str| self.rate(name).map(|pages| pages * page_kib);
        let cpu = self.cpu_percent();
        let whole = |value: Option<f64>| match value {
            Some(x) => Value::Count(x.round() as i64),
            None => Value::Missing,
        };
        let time_s = self.record.timeline.time_ns[self.at] as f64 / 1e9;
        [
            whole(self.level("procs_running")),
            whole(self.level("procs_blocked")),
            whole(swapped),
            whole(free),
            whole(buffers),
            whole(cache),
            whole(rate_kib("pswpin")),
            whole(rate_kib("pswpout")),
            whole(self.rate("pgpgin")),
            whole(self.rate("pgpgout")),
            whole(self.rate("intr")),
            whole(self.rate("ctxt")),
            whole(cpu[0]),
            whole(cpu[1]),
            whole(cpu[2]),
            whole(cpu[3]),
            whole(cpu[4]),
            Value::Real(time_s, 1),
        ]
    }

    fn level(&self, name: &str) -> Option<f64> {
        self.record.timeline.get(name, self.at)
    }

    /// How far a counter rose since the sample shown before.
    fn rise(&self, name: &str) -> Option<f64> {
        Some(self.level(name)? - self.record.timeline.get(name, self.last?)?)
    }

    fn rate(&self, name: &str) -> Option<f64> {
        let times = &self.record.timeline.time_ns;
        let seconds = (times[self.at] - times[self.last?]) as f64 / 1e9;
        Some(self.rise(name)? / seconds)
    }

    /// User, system, idle, iowait and steal time in percent of all five.
    fn cpu_percent(&self) -> [Option<f64>; 5] {
        let parts = ["user", "system", "idle", "iowait", "steal"]
            .map(|part| self.rise(&format!("cpu_{part}_ns")));
        let all: f64 = parts.iter().flatten().sum();
        parts.map(|part| part.filter(|_| all > 0.0).map(|ns| 100.0 * ns / all))
    }
}

impl VmstatListing {
    /// The values in the column of this key, top to bottom, as far as they are known.
    pub(crate) fn column(&self, key: &str) -> Vec<f64> {
        let Some(at) = VMSTAT.iter().position(|(.., known)| *known == key) else {
            return Vec::new();
        };
        let number = |row: &[Value; 18]| match row[at] {
            Value::Count(n) => Some(n as f64),
            Value::Real(x, _) => Some(x),
            _ => None,
        };
        self.rows.iter().filter_map(number).collect()
    }

    /// The listing as vmstat(8) prints it, columns wide enough for what they hold.
    #[must_use]
    pub fn text(&self) -> String {
        let shown: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(Value::show).collect()).collect();
        let width = |i: usize| {
            let cells = shown.iter().map(|row| row[i].len()).max().unwrap_or(0);
            cells.max(VMSTAT[i].2)
        };
        let widths: Vec<usize> = (0..VMSTAT.len()).map(width).collect();
        let line = |cells: Vec<&str>| {
            let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
            cells.collect::<Vec<_>>().join(" ") + "\n"
        };
        let mut text = group_line(&widths);
        text.push_str(&line(VMSTAT.iter().map(|(_, heading, ..)| *heading).collect()));
        for row in &shown {
            text.push_str(&line(row.iter().map(String::as_str).collect()));
        }
        text
    }

    /// The listing for Markdown, CSV and JSON.
    #[must_use]
    pub fn table(&self) -> Table {
        let column = |(_, heading, _, key): &(&str, &str, usize, &str)| Column {
            heading: (*heading).to_owned(),
            key: (*key).to_owned(),
        };
        Table {
            title: String::new(),
            columns: VMSTAT.iter().map(column).collect(),
            rows: self.rows.iter().map(|row| row.to_vec()).collect(),
        }
    }
}

/// `procs -----------memory---------- ---swap-- ...`, each name in the middle of its columns.
fn group_line(widths: &[usize]) -> String {
    let mut groups: Vec<(&str, usize)> = Vec::new();
    for ((group, ..), width) in VMSTAT.iter().zip(widths) {
        match groups.last_mut() {
            Some((name, total)) if name == group => *total += 1 + width,
            _ => groups.push((group, *width)),
        }
    }
    let dashed = |(name, width): &(&str, usize)| {
        let dashes = width.saturating_sub(name.len());
        // vmstat(8) has the odd dash on the left, but for `-system--`.
        let left = if *name == "system" { dashes / 2 } else { dashes.div_ceil(2) };
        format!("{}{name}{}", "-".repeat(left), "-".repeat(dashes - left))
    };
    groups.iter().map(dashed).collect::<Vec<_>>().join(" ") + "\n"
}

/// Makes the two lines that time(1) prints.
///
/// Models: GNU time's default format. `avgtext`, `avgdata` and `swaps` are 0, as Linux reports them.
/// Departs: inputs, outputs and faults are the whole machine's (`pgpgin`, `pgpgout`, `pgfault`), not
/// the process's alone. What the record does not tell is `-`.
#[must_use]
pub fn time_lines(record: &Record) -> String {
    let seconds = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e9);
    let durations = &record.durations;
    let (user, system) = (seconds(durations.user_ns), seconds(durations.system_ns));
    let elapsed = seconds(durations.elapsed_ns);
    let share = match (user, system, elapsed) {
        (Some(user), Some(system), Some(elapsed)) if elapsed > 0.0 => {
            Some((100.0 * (user + system) / elapsed).floor())
        }
        _ => None,
    };
    let fixed = |x: Option<f64>| x.map_or("-".to_owned(), |x| format!("{x:.2}"));
    let whole = |x: Option<i64>| x.map_or("-".to_owned(), |x| x.to_string());
    // Blocks of 512 bytes: two a KiB.
    let blocks = |name: &str| whole(record.delta(name).map(|kib| 2 * kib));
    let major = record.delta("pgmajfault");
    let minor = record.delta("pgfault").map(|all| all - major.unwrap_or(0));
    format!(
        "{}user {}system {}elapsed {}%CPU (0avgtext+0avgdata {}maxresident)k\n\
         {}inputs+{}outputs ({}major+{}minor)pagefaults 0swaps\n",
        fixed(user),
        fixed(system),
        elapsed.map_or("-".to_owned(), clock),
        share.map_or("-".to_owned(), |share| share.to_string()),
        record.resident_kib_max.map_or("-".to_owned(), |kib| kib.to_string()),
        blocks("pgpgin"),
        blocks("pgpgout"),
        whole(major),
        whole(minor),
    )
}

/// `m:ss.cc`, or `h:mm:ss` from an hour on.
fn clock(seconds: f64) -> String {
    let minutes = (seconds / 60.0).floor();
    if minutes >= 60.0 {
        let rest = (seconds % 60.0).floor();
        return format!("{}:{:02}:{rest:02}", (minutes / 60.0).floor(), minutes % 60.0);
    }
    // Hundredths are cut, as time(1) does: rounding could show 60.00 seconds.
    let hundredths = ((seconds - 60.0 * minutes) * 100.0 + 1e-6).floor();
    format!("{minutes}:{:02}.{:02}", (hundredths / 100.0).floor(), hundredths % 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Inputs;

    #[test]
    fn elapsed_time_reads_as_time_prints_it() {
        assert_eq!(clock(55.68), "0:55.68");
        assert_eq!(clock(66.80), "1:06.80");
        assert_eq!(clock(59.999), "0:59.99");
        assert_eq!(clock(3661.5), "1:01:01");
    }

    #[test]
    fn an_interval_that_leaves_one_row_says_how_long_the_run_was_and_what_shows_more() {
        let mut record = Record::new(Inputs::default());
        for sample in 0..=15 {
            record.timeline.push(sample * 62_500_000, [("nr_free_pages", 1)]);
        }
        assert_eq!(
            too_coarse(&record, 5_000_000_000).unwrap(),
            "The run was sampled for 0.94 s, less than the 5 s between two lines: --listing=0.05 shows \
             about 16 lines."
        );
        let mut short = Record::new(Inputs::default());
        for sample in 0..=4 {
            short.timeline.push(sample * 1_050_000, [("nr_free_pages", 1)]);
        }
        let told = too_coarse(&short, 1_000_000_000).unwrap();
        assert!(told.starts_with("The run was sampled for 0.0042 s,"), "{told}");
        assert_eq!(vmstat_listing(&record, 50_000_000).rows.len(), 16);
        assert_eq!(too_coarse(&record, 900_000_000), None);
        assert_eq!(too_coarse(&record, 0), None);
        assert_eq!(too_coarse(&Record::new(Inputs::default()), 1), None);
    }

    #[test]
    fn suggested_intervals_are_round() {
        for (seconds, expected) in
            [(0.05, 0.05), (0.049, 0.02), (1.9, 1.0), (37.0, 20.0), (0.001, 0.001)]
        {
            assert_eq!(below(seconds), expected);
        }
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        assert_eq!(
            time_lines(&Record::new(Inputs::default())),
            "-user -system -elapsed -%CPU (0avgtext+0avgdata -maxresident)k\n\
             -inputs+-outputs (-major+-minor)pagefaults 0swaps\n"
        );
    }
}
