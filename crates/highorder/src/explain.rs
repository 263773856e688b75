//! `highorder explain`: why an allocation failed, from what the kernel's log says of it.

use crate::failure::Failure;
use crate::output;
use clap::ValueEnum;
use highorder_explain::{Cgroup, Counter, Kind, Refusal, Report, Zone, ZoneVerdict, judge};
use highorder_files::limits;
use highorder_tables::{Table, Value};
use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The word that stands for standard input.
const STANDARD_INPUT: &str = "-";
const PAGE_KIB: u64 = 4;
/// What `vm.extfrag_threshold` is by default, as an index: above it the kernel compacts, below it reclaims
/// (`sysctl_extfrag_threshold`, mm/compaction.c, v6.12).
const EXTFRAG_THRESHOLD: f64 = 0.5;
/// Functions that tell that a task compacts.
const OF_COMPACTION: [&str; 4] =
    ["compact_zone", "try_to_compact_pages", "__alloc_pages_direct_compact", "kcompactd"];
/// Functions that tell that a task compacts for a request of its own.
const OF_DIRECT_COMPACTION: [&str; 2] = ["try_to_compact_pages", "__alloc_pages_direct_compact"];
/// The first release that compacts in advance (facdaa917c4d).
const PROACTIVE: (u32, u32) = (5, 9);

/// How it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Sentences and a table, to read
    Text,
    /// One object
    Json,
}

/// What to read.
#[derive(clap::Args)]
#[command(after_help = "\
FILE is the text of dmesg, of a journal or of a console, of any kernel since 3.0. Reports of page allocation failures and \
stalls, of the OOM killer, and of tasks that hang are looked for in it.

Examples:
  dmesg | highorder explain
  journalctl -k | highorder explain --format json
  highorder explain /var/log/kern.log")]
pub(crate) struct Arguments {
    /// The log, or - for standard input
    #[arg(value_name = "FILE", default_value = STANDARD_INPUT)]
    log: PathBuf,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Reads the log, and says what refused in each report.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let name = arguments.log.display();
    let text = read(&arguments.log)?;
    let reports = highorder_explain::read(&text)
        .map_err(|message| Failure::input(format!("{name}: {message}")))?;
    if reports.is_empty() {
        return Err(Failure::input(format!(
            "{name}: found no report, expected lines with `page allocation failure`, `invoked oom-killer` or `blocked \
             for more than`"
        )));
    }
    match arguments.format {
        Format::Text => {
            let told: Vec<String> = reports.iter().map(told).collect();
            output::print(told.join("\n").as_bytes())
        }
        Format::Json => {
            let objects = reports.iter().map(json).collect::<Result<Vec<_>, _>>()?;
            output::print(output::json(&serde_json::json!({ "reports": objects }))?.as_bytes())
        }
    }
}

fn read(log: &Path) -> Result<Vec<u8>, Failure> {
    if log != Path::new(STANDARD_INPUT) {
        let text = highorder_files::read(log, limits::KERNEL_LOG);
        return text.map_err(|error| Failure::input(format!("{}: {error}", log.display())));
    }
    let mut text = Vec::new();
    let limit = limits::KERNEL_LOG;
    let read = io::stdin().lock().take(limit.most + 1).read_to_end(&mut text);
    read.map_err(|error| Failure::input(format!("standard input: cannot read: {error}")))?;
    match text.len() as u64 > limit.most {
        true => Err(Failure::input(format!(
            "standard input: found more than {}, expected at most that of {}",
            limit.told(),
            limit.of
        ))),
        false => Ok(text),
    }
}

/// The first line: what happened to whom.
fn headline(report: &Report) -> String {
    let what = match report.kind {
        Kind::Failure => "an allocation failed",
        Kind::Stall => "an allocation took long",
        Kind::Oom => "the OOM killer was called",
        Kind::Hung => "a task did not go on",
    };
    let order = report
        .order
        .map(|order| format!(": order {order}, {} KiB in one piece", PAGE_KIB << order));
    let mode = (!report.mode.is_empty()).then(|| format!(", {}", report.mode));
    format!(
        "line {}: {what} ({}){}{}",
        report.line,
        report.task,
        order.unwrap_or_default(),
        mode.unwrap_or_default()
    )
}

fn told(report: &Report) -> String {
    let verdicts = judge::judge(report);
    let mut out = format!("{}\n", headline(report));
    for sentence in sentences(report, &verdicts) {
        let _ = writeln!(out, "  {sentence}");
    }
    // Before 3.9 a cgroup's report had the machine's zones, which refused nothing.
    if !report.zones.is_empty() && report.cgroup.is_none() {
        let _ = write!(out, "\n{}", table(report, &verdicts).text());
    }
    highorder_input::printable(&out)
}

/// What it comes to, and what would have let the request through.
fn sentences(report: &Report, verdicts: &[ZoneVerdict]) -> Vec<String> {
    let mut sentences = Vec::new();
    if report.kind == Kind::Hung {
        sentences.push(hung(report));
    }
    if let Some(cgroup) = &report.cgroup {
        sentences.extend(of_cgroup(report, cgroup));
        return sentences;
    }
    if report.zones.is_empty() {
        if report.kind != Kind::Hung {
            sentences.push(
                "the log has no zones of it: it is cut, or the kernel left them out because it had told them just before"
                    .to_owned(),
            );
        }
        return sentences;
    }
    if report.order.is_none() {
        sentences.push("the log does not say which order: 0 is assumed".to_owned());
    }
    if !report.names_flags && !report.mode.is_empty() {
        sentences.push(
            "flags are by number: only the zones that it may use, and whether it is urgent, are known".to_owned(),
        );
    }
    let allowed = || {
        let all = report.zones.iter().zip(verdicts);
        all.filter(|(_, verdict)| verdict.refusal != Refusal::NotAllowed)
    };
    let missing = allowed().filter_map(|(zone, verdict)| match verdict.refusal {
        Refusal::Watermark { missing, .. } => Some((missing, zone)),
        _ => None,
    });
    let by_mark = missing.min_by_key(|(missing, _)| *missing);
    let is_fragmented = allowed().find(|(_, verdict)| {
        matches!(
            verdict.refusal,
            Refusal::NoBlock { .. } | Refusal::OrderShare { .. } | Refusal::OtherTypes(_)
        )
    });
    if let Some((zone, verdict)) = is_fragmented {
        sentences.push(format!(
            "zone {} had enough free pages and no block to give: memory was fragmented",
            zone.name
        ));
        if let Refusal::NoBlock { largest: Some(largest) } = verdict.refusal {
            sentences.push(format!(
                "an order of at most {largest} would have been served there, or this one after compaction"
            ));
        }
        match verdict.fragmentation_index {
            Some(index) if index > EXTFRAG_THRESHOLD => sentences.push(format!(
                "its fragmentation index was {index:.3}, above vm.extfrag_threshold's default of 0.500: compaction is \
                 what helps"
            )),
            Some(index) if index >= 0.0 => sentences.push(format!(
                "its fragmentation index was {index:.3}, not above vm.extfrag_threshold's default of 0.500: the kernel \
                 takes that for lack of memory and reclaims"
            )),
            _ => {}
        }
    } else if let Some((missing, zone)) = by_mark {
        sentences.push(format!(
            "every zone that it may use was at its mark: {} KiB more free in zone {} would have let it through",
            missing * PAGE_KIB,
            zone.name
        ));
    } else if allowed().count() == 0 {
        sentences.push("there is no zone that it may use".to_owned());
    } else {
        sentences.push(
            "as the log shows memory, it could have been served: something was freed meanwhile, or its memory policy or \
             cpuset left these nodes out"
                .to_owned(),
        );
    }
    sentences
}

/// Whether a task that hangs is in compaction, and what would spare it that.
fn hung(report: &Report) -> String {
    let is_in = |name: &str| report.stack.iter().any(|function| function == name);
    let at = report.stack.iter().find(|function| OF_COMPACTION.contains(&function.as_str()));
    let Some(at) = at else { return "its stack is not in compaction".to_owned() };
    let is_proactive = !report.is_before(PROACTIVE);
    if is_in("kcompactd") {
        let remedy = match is_proactive && !is_in("kcompactd_do_work") {
            true => "vm.compaction_proactiveness 0 or fewer requests of high orders spare it that",
            false => "requests of high orders woke it, and fewer of them spare it that",
        };
        return format!("kcompactd is in compaction ({at}): {remedy}");
    }
    if !OF_DIRECT_COMPACTION.iter().any(|name| is_in(name)) {
        return format!("it is in compaction ({at}); its stack does not say for whom");
    }
    let mut remedies = Vec::new();
    if is_proactive {
        // Guests waited 1.23, 0.67 and 0.14 s with 0, 20 and 80: docs/what-if.md.
        remedies.push(
            "a higher vm.compaction_proactiveness, so that kcompactd does more of it in advance",
        );
    }
    remedies.push(match is_in("khugepaged") {
        true => "transparent_hugepage/khugepaged/defrag 0",
        false => "transparent_hugepage/defrag defer or madvise, if what it asks for is a huge page",
    });
    remedies.push("fewer requests of high orders");
    format!(
        "it compacts for a request of its own ({at}); what spares tasks that: {}",
        remedies.join("; ")
    )
}

/// What a cgroup's limit refused, and who was killed for it.
fn of_cgroup(report: &Report, cgroup: &Cgroup) -> Vec<String> {
    let whose = match &cgroup.path {
        Some(path) => format!("cgroup {path}"),
        None => "a cgroup".to_owned(),
    };
    let reached = cgroup.reached();
    let mut sentences = vec![match reached {
        Some(counter) => format!("{whose} reached its limit: {}", used(counter)),
        None => format!("{whose} reached its limit; the log does not say what it used"),
    }];
    let others = cgroup.counters.iter().filter(|counter| Some(*counter) != reached);
    let others: Vec<String> = others.map(used).collect();
    if !others.is_empty() {
        sentences.push(format!("of the same cgroup: {}", others.join("; ")));
    }
    let has = |name: &str| cgroup.counters.iter().any(|counter| counter.name == name);
    let limit = match reached.map(|counter| counter.name) {
        Some("memory") if has("swap") => "memory.max",
        Some("memory") if has("memory+swap") => "memory.limit_in_bytes",
        Some("memory+swap") => "memory.memsw.limit_in_bytes",
        Some("kmem") => "memory.kmem.limit_in_bytes",
        _ => "limit",
    };
    sentences.push(format!(
        "the machine's own memory was not short: a higher {limit} of this cgroup would have let it through"
    ));
    sentences.push(match &report.killed {
        Some(killed) => {
            let elsewhere =
                cgroup.task_path.iter().filter(|path| cgroup.path.as_ref() != Some(*path));
            let elsewhere: String = elsewhere.map(|path| format!(", of cgroup {path}")).collect();
            let group = cgroup.killed_group.iter();
            let group: String = group.map(|path| format!(", with all of cgroup {path}")).collect();
            format!("{} (process {}) was killed{elsewhere}{group}", killed.name, killed.pid)
        }
        None => "the log does not say who was killed".to_owned(),
    });
    sentences
}

/// What a counter says.
fn used(counter: &Counter) -> String {
    let Counter { name, usage_kib, limit_kib } = counter;
    let mib = *usage_kib as f64 / 1024.0;
    match limit_kib {
        Some(limit) => format!(
            "{name} {usage_kib} of {limit} KiB ({mib:.1} of {:.1} MiB)",
            *limit as f64 / 1024.0
        ),
        None => format!("{name} {usage_kib} KiB ({mib:.1} MiB), without a limit"),
    }
}

fn table(report: &Report, verdicts: &[ZoneVerdict]) -> Table {
    let columns = [
        ("node", "node"),
        ("zone", "zone"),
        ("free (KiB)", "free_kib"),
        ("min for it (KiB)", "min_kib"),
        ("kept from it (KiB)", "reserve_kib"),
        ("low (KiB)", "low_kib"),
        ("high (KiB)", "high_kib"),
        ("fragmentation index", "fragmentation_index"),
        ("what refused", "refusal"),
    ];
    let mut table = Table::new("", &columns);
    let kib = |pages: u64| Value::Count((pages * PAGE_KIB) as i64);
    for (zone, verdict) in report.zones.iter().zip(verdicts) {
        table.push(vec![
            zone.node.into(),
            zone.name.as_str().into(),
            kib(zone.free),
            kib(verdict.mark),
            kib(verdict.reserve),
            kib(zone.marks[1]),
            kib(zone.marks[2]),
            verdict.fragmentation_index.map_or(Value::Missing, |index| Value::Real(index, 3)),
            refusal(report, zone, &verdict.refusal).into(),
        ]);
    }
    table
}

fn refusal(report: &Report, zone: &Zone, refusal: &Refusal) -> String {
    match refusal {
        Refusal::NotAllowed => "it may not use this zone".to_owned(),
        Refusal::Watermark { missing, .. } if zone.free == 0 => {
            format!("nothing is free; {} KiB missing", missing * PAGE_KIB)
        }
        Refusal::Watermark { missing, .. } => {
            format!("watermark: {} KiB missing", missing * PAGE_KIB)
        }
        Refusal::OrderShare { order } => {
            format!("watermark of order {order}: too little in blocks as large")
        }
        Refusal::NoBlock { largest: Some(largest) } => {
            format!(
                "free lists: no block of order {}, the largest is {largest}",
                report.order.unwrap_or(0)
            )
        }
        Refusal::NoBlock { largest: None } => "free lists: empty".to_owned(),
        Refusal::OtherTypes(types) => {
            format!("free lists: blocks as large are of types {types} alone")
        }
        Refusal::NoLists => "its marks did not; the log has no free lists".to_owned(),
        Refusal::Nothing => "nothing that the log shows".to_owned(),
    }
}

fn json(report: &Report) -> Result<serde_json::Value, Failure> {
    let verdicts = judge::judge(report);
    let kind = match report.kind {
        Kind::Failure => "failure",
        Kind::Stall => "stall",
        Kind::Oom => "oom",
        Kind::Hung => "hung",
    };
    Ok(serde_json::json!({
        "line": report.line,
        "kind": kind,
        "task": report.task,
        "order": report.order,
        "mode": report.mode,
        "kernel_release": report.release,
        "cgroup": report.cgroup.as_ref().map(cgroup_json),
        "killed": report.killed.as_ref().map(|killed| {
            serde_json::json!({ "name": killed.name, "pid": killed.pid })
        }),
        "sentences": sentences(report, &verdicts),
        "zones": output::tables_as_json(&[table(report, &verdicts)])?,
    }))
}

fn cgroup_json(cgroup: &Cgroup) -> serde_json::Value {
    let counter = |counter: &Counter| {
        serde_json::json!({
            "name": counter.name,
            "usage_kib": counter.usage_kib,
            "limit_kib": counter.limit_kib,
        })
    };
    serde_json::json!({
        "path": cgroup.path,
        "task_path": cgroup.task_path,
        "killed_group": cgroup.killed_group,
        "counters": cgroup.counters.iter().map(counter).collect::<Vec<_>>(),
    })
}
