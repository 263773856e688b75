//! A screen of text: zones against their watermarks, free blocks by order, stalls, rates.

use crate::sample::{Sample, Zone};
use highorder_tables::text;

/// What is told of a rate: its name, and the counters that it is the sum of.
type Rate = (&'static str, &'static [&'static str]);

/// Who had to wait.
const STALLS: [Rate; 4] = [
    ("direct reclaim", &["allocstall"]),
    ("direct compaction", &["compact_stall"]),
    ("reads of pages", &["pgmajfault"]),
    ("kills for memory", &["oom_kill"]),
];
/// What compaction does.
const COMPACTION: [Rate; 4] = [
    ("frames scanned to move", &["compact_migrate_scanned"]),
    ("frames scanned for targets", &["compact_free_scanned"]),
    ("pages moved", &["pgmigrate_success"]),
    ("kcompactd woken", &["compact_daemon_wake"]),
];
/// What becomes of huge pages.
const HUGE: [Rate; 4] = [
    ("huge faults", &["thp_fault_alloc"]),
    ("fallen back", &["thp_fault_fallback"]),
    ("collapsed", &["thp_collapse_alloc"]),
    ("split", &["thp_split_page"]),
];
/// What reclaim does.
const RECLAIM: [Rate; 4] = [
    ("scanned by kswapd", &["pgscan_kswapd"]),
    ("scanned directly", &["pgscan_direct"]),
    ("stolen", &["pgsteal_kswapd", "pgsteal_direct"]),
    ("swapped in and out", &["pswpin", "pswpout"]),
];
/// Columns of a gauge.
const GAUGE: usize = 16;
/// Columns of a zone's name.
const NAME: usize = 14;
/// More blocks than this have a prefix, so that a screen of 80 columns has all orders.
const PLAIN_MAX: u64 = 99_999;
/// Columns of one of two columns of rates.
const RATE_COLUMN: usize = 38;

/// The screen in lines, none of them wider than `width`; `before` is the sample that rates are since.
#[must_use]
pub fn lines(before: Option<&Sample>, now: &Sample, width: usize) -> Vec<String> {
    let mut out = vec![memory(now)];
    out.push(String::new());
    for zone in &now.zones {
        out.push(gauge(zone));
    }
    out.push(String::new());
    out.push(orders(now));
    for zone in &now.zones {
        let blocks: String = zone.blocks.iter().map(|&nr| format!(" {:>5}", short(nr))).collect();
        out.push(format!("{:<NAME$}{blocks}", name(zone)));
    }
    out.push(String::new());
    let halves = [
        ("stalls, a second", &STALLS, "compaction, a second", &COMPACTION),
        ("reclaim, pages a second", &RECLAIM, "huge pages, a second", &HUGE),
    ];
    for (left_title, left, right_title, right) in halves {
        out.push(format!("{left_title:<RATE_COLUMN$}{right_title}"));
        for (left, right) in left.iter().zip(right) {
            let [left, right] = [left, right].map(|rate| row(rate, before, now));
            out.push(format!("{left:<RATE_COLUMN$}{right}").trim_end().to_owned());
        }
        out.push(String::new());
    }
    out.push(pressure(before, now));
    out.iter().map(|line| text::shorten(line, width)).collect()
}

fn memory(now: &Sample) -> String {
    let kib = |name| now.value(name).unwrap_or(0.0) as u64;
    let pages = |name| text::pages(kib(name) / 4);
    let swap = match kib("SwapTotal") {
        0 => "no swap".to_owned(),
        _ => format!("swap free {}", pages("SwapFree")),
    };
    format!(
        "memory {}, free {}, available {}, huge {}, {swap}",
        pages("MemTotal"),
        pages("MemFree"),
        pages("MemAvailable"),
        pages("AnonHugePages")
    )
}

fn name(zone: &Zone) -> String {
    format!("node {} {}", zone.node, zone.name)
}

/// A count in five columns or so.
fn short(nr: u64) -> String {
    if nr > PLAIN_MAX { text::prefixed(nr as f64).replace(' ', "") } else { nr.to_string() }
}

/// Free memory up to twice the high mark, with the marks on it.
fn gauge(zone: &Zone) -> String {
    let [min, low, high] = zone.marks;
    let most = (2 * high).max(1);
    let column = |pages: u64| (pages.min(most) as usize * (GAUGE - 1)) / most as usize;
    let mut bar: Vec<char> = (0..GAUGE)
        .map(|at| if at <= column(zone.free) && zone.free > 0 { '#' } else { '.' })
        .collect();
    for mark in [min, low, high] {
        bar[column(mark)] = '|';
    }
    let bar: String = bar.into_iter().collect();
    let state = match zone.free {
        free if free < min => ", below min",
        free if free < low => ", below low",
        free if free < high => ", below high",
        _ => "",
    };
    let pages = text::pages;
    format!(
        "{:<NAME$} [{bar}] {:>8} free, marks {} {} {}{state}",
        name(zone),
        pages(zone.free),
        pages(min),
        pages(low),
        pages(high)
    )
}

fn orders(now: &Sample) -> String {
    let nr = now.zones.iter().map(|zone| zone.blocks.len()).max().unwrap_or(0);
    let heads: String = (0..nr).map(|order| format!(" {order:>5}")).collect();
    format!("{:<NAME$}{heads}", "free of order")
}

fn row((label, counters): &Rate, before: Option<&Sample>, now: &Sample) -> String {
    let rates = counters.iter().map(|name| now.rate(before?, name));
    let sum = rates.fold(None, |sum: Option<f64>, rate| match (sum, rate) {
        (Some(sum), Some(rate)) => Some(sum + rate),
        (sum, rate) => sum.or(rate),
    });
    let value = sum.map_or_else(|| "-".to_owned(), |rate| text::significant(rate.max(0.0)));
    format!("  {label:<27}{value:>7}")
}

/// The share of time in which some, and in which all, waited for memory.
fn pressure(before: Option<&Sample>, now: &Sample) -> String {
    let share = |name| Some(now.rate(before?, name)? / 1e4);
    match (share("psi_memory_some_us"), share("psi_memory_full_us")) {
        (Some(some), Some(full)) => {
            format!("waiting for memory: some task {some:.1} % of the time, all {full:.1} %")
        }
        _ if now.pressure_us.is_none() => {
            "waiting for memory: this kernel does not tell (/proc/pressure/memory)".to_owned()
        }
        _ => "waiting for memory: -".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::tests::two;

    #[test]
    fn the_screen_shows_rates_and_keeps_its_width() {
        let [before, after] = two();
        let first = lines(None, &after, 200).join("\n");
        assert!(first.contains("direct compaction                -"), "{first}");
        let screen = lines(Some(&before), &after, 200).join("\n");
        assert!(screen.contains("direct compaction               25"), "{screen}");
        assert!(screen.contains("node 0 Normal") && screen.contains("free of order"), "{screen}");
        for width in [20, 72, 80] {
            let screen = lines(Some(&before), &after, width);
            assert!(screen.iter().all(|line| line.chars().count() <= width), "{screen:#?}");
        }
    }

    #[test]
    fn a_zone_below_a_mark_says_so() {
        let zone = |free| Zone { free, marks: [10, 20, 30], ..Zone::default() };
        for (free, state) in [(5, ", below min"), (15, ", below low"), (25, ", below high")] {
            assert!(gauge(&zone(free)).ends_with(state), "{}", gauge(&zone(free)));
        }
        assert!(!gauge(&zone(60)).contains("below"));
        assert_eq!(short(123_456), "123k");
    }
}
