//! Finds reports in the text of a log.
//!
//! Models: the forms of `warn_alloc` and `show_free_areas`, mm/page_alloc.c and mm/show_mem.c, `dump_header` and
//! `__oom_kill_process`, mm/oom_kill.c, `mem_cgroup_print_oom_meminfo`, mm/memcontrol.c, `check_hung_task`,
//! kernel/hung_task.c, from v3.0 to v6.12.

use crate::{Counter, FreeList, Killed, Kind, Report, Zone};
use highorder_files::limits;
use highorder_mm::gfp::Gfp;

/// The largest order that there is room for: of lists and of requests.
const ORDERS_MAX: usize = 20;
/// KiB of a base page, where a log has no lists that tell it.
const PAGE_KIB: u64 = 4;
/// Bits that mean the same in all releases (include/linux/gfp.h, v3.0; include/linux/gfp_types.h, v6.12).
const BITS: [(u64, Gfp); 5] = [
    (0x01, Gfp::DMA),
    (0x02, Gfp::HIGHMEM),
    (0x04, Gfp::DMA32),
    (0x08, Gfp::MOVABLE),
    (0x20, Gfp::HIGH),
];
/// More than any machine has: what is beyond is damaged.
const PAGES_MAX: u64 = 1 << 40;
/// Lists of reserves have a number for each kind of zone.
const RESERVES_MAX: usize = 8;
/// What is counted of a cgroup (`mem_cgroup_print_oom_meminfo`).
const COUNTERS: [&str; 4] = ["memory", "memory+swap", "swap", "kmem"];
/// KiB from which on a limit is none: the largest that there is room for is `PAGE_COUNTER_MAX` pages, a little less than
/// 2^63 bytes (include/linux/page_counter.h, v6.12), before 3.19 2^63 or 2^64 bytes.
const NO_LIMIT_KIB: u64 = 9_007_199_254_000_000;

/// The reports of a log, in its order; what is no report is passed over.
///
/// # Errors
/// More of them than there may be.
pub fn read(text: &[u8]) -> Result<Vec<Report>, String> {
    let text = String::from_utf8_lossy(text);
    let mut reports: Vec<Report> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = message(line);
        if let Some(report) = first_line(number, line) {
            // The stack of a task that waits in an allocation is another report's beginning at times: each has its own.
            limits::REPORTS.check(reports.len() as u64 + 1)?;
            reports.push(report);
        } else if let Some(report) = reports.last_mut() {
            add(report, line);
        }
    }
    Ok(reports)
}

/// A line without what dmesg, syslog and journals put before it.
fn message(line: &str) -> &str {
    let mut rest = line.split_once(" kernel: ").map_or(line, |(_, message)| message).trim_start();
    if let Some((level, message)) = rest.strip_prefix('<').and_then(|rest| rest.split_once('>'))
        && level.len() <= 3
        && level.bytes().all(|b| b.is_ascii_digit())
    {
        rest = message.trim_start();
    }
    // `[  123.456789]`, and the task or CPU that CONFIG_PRINTK_CALLER adds: `[ T123]`.
    while let Some((stamp, message)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'))
    {
        let is_stamp = stamp.bytes().all(|b| b.is_ascii_digit() || b" .TC".contains(&b));
        if !is_stamp || stamp.trim().is_empty() {
            break;
        }
        rest = message.trim_start();
    }
    rest
}

fn first_line(line: usize, text: &str) -> Option<Report> {
    const BEGINNINGS: [(&str, Kind); 5] = [
        (": page allocation failure", Kind::Failure),
        (": page allocation stalls", Kind::Stall),
        (" invoked oom-killer", Kind::Oom),
        (" blocked for more than", Kind::Hung),
        ("soft lockup - CPU#", Kind::Hung),
    ];
    let (at, kind) = BEGINNINGS.iter().find_map(|(word, kind)| Some((text.find(word)?, *kind)))?;
    let task = match kind {
        Kind::Hung => text.split_once("task ").map_or_else(
            || text.rsplit_once('[').map_or("", |(_, task)| task.trim_end_matches(']')),
            |(_, rest)| rest.split(' ').next().unwrap_or_default(),
        ),
        _ => &text[..at],
    };
    let mode = field(text, "mode:").or_else(|| field(text, "gfp_mask=")).unwrap_or_default();
    let order = field(text, "order:").or_else(|| field(text, "order="));
    let order = order.and_then(|order| order.parse().ok());
    let (gfp, names_flags) = flags(mode);
    Some(Report {
        kind,
        line,
        task: task.trim().to_owned(),
        order: order.filter(|order| usize::from(*order) < ORDERS_MAX),
        mode: mode.to_owned(),
        gfp,
        names_flags,
        release: None,
        stack: Vec::new(),
        zones: Vec::new(),
        cgroup: None,
        killed: None,
    })
}

/// What follows a name up to a comma, a blank, or the end.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(name)?;
    rest.trim_start().split([',', ' ']).next()
}

/// `0x40dc0(GFP_KERNEL|__GFP_COMP)`, or the number alone before 4.6.
fn flags(mode: &str) -> (Gfp, bool) {
    if let Some((_, names)) = mode.split_once('(') {
        let known = names.trim_end_matches(')').split('|').filter_map(Gfp::from_kernel_name);
        return (known.fold(Gfp::NONE, Gfp::union), true);
    }
    let number = u64::from_str_radix(mode.trim_start_matches("0x"), 16).unwrap_or(0);
    let known = BITS.iter().filter(|(bit, _)| number & bit != 0);
    (known.fold(Gfp::NONE, |gfp, (_, flag)| gfp.union(*flag)), false)
}

/// Adds what a line of a report says.
fn add(report: &mut Report, line: &str) {
    if report.release.is_none() && line.contains("ainted") {
        report.release = release(line);
    }
    if let Some(function) = function(line) {
        report.stack.push(function);
    }
    if report.kind == Kind::Oom {
        add_of_cgroup(report, line);
        if report.killed.is_none() {
            report.killed = killed(line);
        }
    }
    if let Some(numbers) = line.strip_prefix("lowmem_reserve[]:") {
        if let Some(zone) = report.zones.last_mut() {
            let numbers = numbers.split_ascii_whitespace();
            let numbers = numbers.map_while(|number| number.parse::<u64>().ok());
            let numbers = numbers.map(|pages| pages.min(PAGES_MAX));
            zone.lowmem_reserve = numbers.take(RESERVES_MAX).collect();
        }
        return;
    }
    let (node, rest) = match line.strip_prefix("Node ").and_then(|rest| rest.split_once(' ')) {
        Some((node, rest)) => (node.parse().unwrap_or(0), rest),
        None => (0, line),
    };
    let Some((name, rest)) = rest.split_once([' ', ':']) else { return };
    if !is_zone(name) {
        return;
    }
    if rest.contains("free:") && rest.contains("min:") {
        limit_zones(report);
        report.zones.push(zone(node, name, rest));
    } else if rest.contains("kB") {
        let known = report.zones.iter_mut().find(|zone| zone.node == node && zone.name == name);
        if let Some(zone) = known {
            zone.lists = lists(rest);
        }
    }
}

/// Adds what a line says of a cgroup that reached its limit.
fn add_of_cgroup(report: &mut Report, line: &str) {
    // Of kills in quick succession there is no more than the last line: it is not of this report.
    let is_first = report.killed.is_none() && report.zones.is_empty();
    if line.starts_with("Memory cgroup out of memory") && is_first {
        report.cgroup.get_or_insert_default();
    } else if line.starts_with("oom-kill:constraint=CONSTRAINT_MEMCG") && is_first {
        let cgroup = report.cgroup.get_or_insert_default();
        cgroup.path = between(line, ",oom_memcg=", ",task_memcg=").or(cgroup.path.take());
        cgroup.task_path = between(line, ",task_memcg=", ",task=");
    } else if let Some(rest) = line.strip_prefix("Task in ") {
        // Before 5.0 (ef8444ea01d7).
        if let Some((task_path, path)) = rest.split_once(" killed as a result of limit of ") {
            let cgroup = report.cgroup.get_or_insert_default();
            cgroup.task_path = Some(task_path.to_owned());
            cgroup.path = Some(path.trim_end().to_owned());
        }
    } else if let Some(path) = line.strip_prefix("Memory limit reached of cgroup ") {
        // The same where there is no task to kill.
        report.cgroup.get_or_insert_default().path = Some(path.trim_end().to_owned());
    } else if let Some(rest) = line.strip_prefix("Memory cgroup stats for ") {
        let cgroup = report.cgroup.get_or_insert_default();
        let path = rest.split_once(": ").map_or(rest.trim_end(), |(path, _)| path);
        // One line for each cgroup below it too before 5.3, behind its own.
        cgroup.path.get_or_insert_with(|| path.trim_end_matches(':').to_owned());
    } else if let Some(rest) = line.strip_prefix("Tasks in ") {
        let group = rest.split_once(" are going to be killed due to memory.oom.group");
        if let (Some(cgroup), Some((path, _))) = (&mut report.cgroup, group) {
            cgroup.killed_group = Some(path.to_owned());
        }
    } else if let Some(counter) = counter(line) {
        let cgroup = report.cgroup.get_or_insert_default();
        if cgroup.counters.iter().all(|known| known.name != counter.name) {
            cgroup.counters.push(counter);
        }
    }
}

/// `memory: usage 102400kB, limit 102400kB, failcnt 3311`.
fn counter(line: &str) -> Option<Counter> {
    let (name, rest) = line.split_once(": usage ")?;
    let name = COUNTERS.into_iter().find(|known| *known == name)?;
    let (usage, rest) = rest.split_once("kB, limit ")?;
    let (limit, _) = rest.split_once("kB")?;
    let limit_kib = limit.parse::<u64>().ok().filter(|limit| *limit < NO_LIMIT_KIB);
    Some(Counter { name, usage_kib: usage.parse().ok()?, limit_kib })
}

/// `Killed process 1234 (name) total-vm:4kB`, or what `oom-kill:` says of whom it is to be.
fn killed(line: &str) -> Option<Killed> {
    if line.starts_with("oom-kill:") {
        let pid = between(line, ",pid=", ",")?.parse().ok()?;
        return Some(Killed { name: between(line, ",task=", ",pid=")?, pid });
    }
    let (_, rest) = line.split_once("Killed process ")?;
    let (pid, rest) = rest.split_once(" (")?;
    let ends = [") total-vm", "), "];
    let name = ends.iter().find_map(|end| rest.split_once(*end));
    let name = name.map_or(rest.trim_end_matches(')'), |(name, _)| name);
    // Some have `, UID 0,` behind it.
    let pid = pid.split(',').next()?.parse().ok()?;
    Some(Killed { name: name.to_owned(), pid })
}

/// What stands between two words, or behind the first where a line is cut.
fn between(text: &str, begin: &str, end: &str) -> Option<String> {
    let (_, rest) = text.split_once(begin)?;
    Some(rest.split_once(end).map_or(rest.trim_end(), |(found, _)| found).to_owned())
}

/// Lines repeated without end leave no more zones than there can be.
fn limit_zones(report: &mut Report) {
    let most = usize::try_from(limits::ZONES.most).unwrap_or(usize::MAX);
    report.zones.truncate(most - 1);
}

fn is_zone(name: &str) -> bool {
    ["DMA", "DMA32", "Normal", "HighMem", "Movable", "Device"].contains(&name)
}

fn zone(node: u32, name: &str, text: &str) -> Zone {
    let pages = |name: &str| {
        let value = field(text, name).unwrap_or_default();
        let digits = value.trim_end_matches(|c: char| !c.is_ascii_digit());
        digits.parse::<u64>().unwrap_or(0).min(PAGES_MAX) / PAGE_KIB
    };
    Zone {
        node,
        name: name.to_owned(),
        free: pages("free:"),
        // The log prints marks with their boost.
        marks: [pages(" min:"), pages(" low:"), pages(" high:")],
        reserved_highatomic: pages("reserved_highatomic:"),
        ..Zone::default()
    }
}

/// `1*4kB (U) 0*8kB 3*16kB (UM) = 52kB`.
fn lists(text: &str) -> Vec<FreeList> {
    let mut lists: Vec<FreeList> = Vec::new();
    for word in text.split_ascii_whitespace().take_while(|word| *word != "=") {
        if let Some((blocks, _)) = word.split_once('*') {
            let Ok(blocks) = blocks.parse::<u64>() else { break };
            let blocks = blocks.min(limits::BLOCKS.most);
            lists.push(FreeList { blocks, types: String::new() });
        } else if let (Some(list), Some(types)) = (lists.last_mut(), word.strip_prefix('(')) {
            list.types = types.trim_end_matches(')').to_owned();
        }
    }
    lists.truncate(ORDERS_MAX);
    lists
}

/// What stands behind `Not tainted` or `Tainted: G   O` and looks like a release.
fn release(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("ainted")?;
    let is_release = |word: &&str| {
        word.starts_with(|c: char| c.is_ascii_digit()) && word.matches('.').count() >= 1
    };
    rest.split_ascii_whitespace().find(is_release).map(str::to_owned)
}

/// `compact_zone+0x1a/0x300`, with an address before it in old logs; `?` says that it may be left over.
fn function(line: &str) -> Option<String> {
    let call = line.rsplit_once("] ").map_or(line, |(_, call)| call).trim();
    let (name, rest) = call.split_once("+0x")?;
    let is_name =
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.".contains(&b));
    (is_name && rest.contains("/0x")).then(|| name.to_owned())
}
