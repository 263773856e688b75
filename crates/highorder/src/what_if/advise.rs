//! `highorder advise`: the known settings, tried one by one and in pairs on a recorded machine.

use super::told::{self, is_same};
use super::{Asked, Format};
use crate::failure::Failure;
use highorder_lab::what_if::{Answer, Knobs, MEASURES, Recorded, measure};
use highorder_tables::{Table, Value};

/// Pairs that are tried of the settings that help alone.
const PAIRS_OF: usize = 4;

/// What to look at.
#[derive(clap::Args)]
#[command(after_help = "\
Each known setting is tried by itself in the model, as `what-if` does it, then those that help in pairs. A setting helps \
if tasks wait less for memory and no fewer areas get their huge page, or if more get one and tasks wait no longer. Less \
and more are what no seed contradicts: the medians are more than a hundredth apart, and what the seeds span, from the \
least to the most, does not overlap. So a setting with the better median may not count as one that helps. \
What each costs stands beside it. Nothing is changed: the lines at the end are for you to apply, and to take back.

Examples:
  highorder advise tests/data/recordings/612-rec-fragslab
  highorder advise tests/data/recordings/612-rec-fragslab --format md")]
pub(crate) struct Arguments {
    #[command(flatten)]
    asked: Asked,
}

/// Values worth trying: what distributions, databases and the kernel's documentation recommend
/// (Documentation/admin-guide/mm/transhuge.rst, Documentation/admin-guide/sysctl/vm.rst, v6.12). Of numbers, the default,
/// none at all and a few times as much.
const TRIED: [(&str, &[&str]); 14] = [
    ("transparent_hugepage/enabled", &["always", "madvise", "never"]),
    ("transparent_hugepage/defrag", &["always", "defer", "defer+madvise", "madvise", "never"]),
    ("transparent_hugepage/khugepaged/defrag", &["0", "1"]),
    ("transparent_hugepage/khugepaged/pages_to_scan", &["4096", "65536"]),
    ("transparent_hugepage/khugepaged/scan_sleep_millisecs", &["1000"]),
    ("transparent_hugepage/khugepaged/max_ptes_none", &["0", "511"]),
    ("vm.min_free_kbytes", &["x2", "x4"]),
    ("vm.watermark_scale_factor", &["10", "50", "200"]),
    ("vm.watermark_boost_factor", &["0", "15000"]),
    ("vm.compaction_proactiveness", &["0", "20", "60"]),
    ("vm.extfrag_threshold", &["200", "500", "800"]),
    ("vm.zone_reclaim_mode", &["0", "1"]),
    ("vm.swappiness", &["10", "60", "100"]),
    ("vm.vfs_cache_pressure", &["50", "200"]),
];

/// A setting that was tried.
struct Tried {
    knobs: Knobs,
    answer: Answer,
}

/// Tries, and says what helps.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let recorded = arguments.asked.read()?;
    let mut settings = vec![Knobs::new()];
    settings.extend(alone(&recorded));
    let mut answers = arguments.asked.ask(&recorded, &settings)?;
    let now = answers.remove(0);
    let shown = arguments.asked.agreement(&recorded, &now)?;
    let mut tried: Vec<Tried> = settings
        .into_iter()
        .skip(1)
        .zip(answers)
        .map(|(knobs, answer)| Tried { knobs, answer })
        .collect();
    let helping = helping(&now, &tried);
    let pairs = pairs(&helping.iter().map(|&at| &tried[at].knobs).collect::<Vec<_>>());
    let answers = arguments.asked.ask(&recorded, &pairs)?;
    tried.extend(pairs.into_iter().zip(answers).map(|(knobs, answer)| Tried { knobs, answer }));
    let best = self::helping(&now, &tried);
    let table = ranked(&now, &tried, &best);
    let nr_tasks = recorded.wanted().tasks.len();
    let mut first = match (shown.is_credible, best.first()) {
        (false, _) => vec![shown.verdict()],
        (true, None) => vec![
            "None of the settings tried would help by more than the spread of the seeds: tasks would wait as long, or get \
             fewer huge pages."
                .to_owned(),
        ],
        (true, Some(&best)) => {
            let label = label(&tried[best].knobs);
            let answers = [now.clone(), tried[best].answer.clone()];
            told::changes_told(&[&label], &answers, nr_tasks, &shown)
        }
    };
    let told = |this: &Tried| {
        told::unfinished_told(&format!("\nWith {}", label(&this.knobs)), &this.answer, nr_tasks)
    };
    if shown.is_credible
        && let Some(&best) = best.first()
        && matches!(arguments.asked.format, Format::Text | Format::Md)
    {
        first.extend(lines(&recorded, &tried[best].knobs));
    }
    first.extend(tried.iter().filter_map(told));
    first.extend(idle(&now, &tried).map(|idle| format!("\n{idle}")));
    arguments.asked.print(&recorded, &first, &[table], &shown)
}

/// Each known setting by itself that this kernel has and that is another one than it has now.
fn alone(recorded: &Recorded) -> Vec<Knobs> {
    let mut all = Vec::new();
    for (name, values) in TRIED {
        let present = recorded.present.get(name);
        for value in values {
            let value = match value.strip_prefix('x') {
                Some(times) => {
                    let number = |text: &str| text.parse::<u64>().ok();
                    let Some(present) = present.and_then(|present| number(present)) else {
                        continue;
                    };
                    (present * number(times).unwrap_or(1)).to_string()
                }
                None => (*value).to_owned(),
            };
            let knobs = Knobs::from([(name.to_owned(), value.clone())]);
            if present != Some(&value) && recorded.check(&knobs).is_ok() {
                all.push(knobs);
            }
        }
    }
    all
}

/// Those that help, the best first: who waits least, and of equal ones who has most huge pages.
fn helping(now: &Answer, tried: &[Tried]) -> Vec<usize> {
    let mut helping: Vec<usize> =
        (0..tried.len()).filter(|&at| helps(now, &tried[at].answer)).collect();
    let rank = |answer: &Answer| {
        let of = |name: &str| measure(name).of(answer).map_or(0.0, |values| values[0]);
        (of("Time in stalls"), -of("Areas with a huge page"))
    };
    helping.sort_by(|&a, &b| {
        let (a, b) = (rank(&tried[a].answer), rank(&tried[b].answer));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    });
    helping
}

/// Whether tasks wait less and have no fewer huge pages, or have more and wait no longer; and all do what was recorded.
fn helps(now: &Answer, then: &Answer) -> bool {
    if !then.unfinished.is_empty() {
        return false;
    }
    let better = |name: &str| {
        let (a, b) = match (measure(name).of(now), measure(name).of(then)) {
            (Some(a), Some(b)) => (a, b),
            // Nobody asks any more for what some had.
            (Some(a), None) if a[0] > 0.0 => return -1,
            _ => return 0,
        };
        match is_same(a, b) {
            true => 0,
            false if (b[0] < a[0]) == measure(name).less_is_better => 1,
            false => -1,
        }
    };
    let (stalls, huge) = (better("Time in stalls"), better("Areas with a huge page"));
    stalls >= 0 && huge >= 0 && stalls + huge > 0
}

/// The best settings, two of different knobs at a time.
fn pairs(helping: &[&Knobs]) -> Vec<Knobs> {
    let best = &helping[..helping.len().min(PAIRS_OF)];
    let mut pairs = Vec::new();
    for (number, one) in best.iter().enumerate() {
        for other in &best[number + 1..] {
            if one.keys().all(|name| !other.contains_key(name)) {
                let mut both = (*one).clone();
                both.extend(other.iter().map(|(name, value)| (name.clone(), value.clone())));
                pairs.push(both);
            }
        }
    }
    pairs
}

fn label(knobs: &Knobs) -> String {
    let words: Vec<String> = knobs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    words.join(" ")
}

/// A row for each setting that was tried: those that help first.
fn ranked(now: &Answer, tried: &[Tried], best: &[usize]) -> Table {
    const COLUMNS: [(&str, &str); 6] = [
        ("Time in stalls", "stalls, s"),
        ("Area for a huge page, 99th percentile", "p99, ms"),
        ("Areas with a huge page", "huge, %"),
        ("CPU of kernel threads", "kernel threads, s"),
        ("Pages reclaimed", "reclaimed"),
        ("Pages swapped out", "swapped out"),
    ];
    let mut columns = vec![("setting", "setting"), ("helps", "helps")];
    columns.extend(COLUMNS.iter().map(|&(_, heading)| (heading, heading)));
    let mut table = Table::new("What was tried, in the median of the seeds", &columns);
    let values = |answer: &Answer| {
        COLUMNS.map(|(name, _)| told::shown(measure(name), measure(name).of(answer)))
    };
    let mut row = |label: String, helps: &str, answer: &Answer| {
        let mut row: Vec<Value> = vec![label.as_str().into(), helps.into()];
        row.extend(values(answer));
        table.push(row);
    };
    row("as now".to_owned(), "", now);
    for &at in best {
        row(label(&tried[at].knobs), "yes", &tried[at].answer);
    }
    for (at, this) in tried.iter().enumerate() {
        if !best.contains(&at) && !changes_nothing(now, &this.answer) {
            let helps = if this.answer.unfinished.is_empty() { "no" } else { "no, unfinished" };
            row(label(&this.knobs), helps, &this.answer);
        }
    }
    table
}

/// Whether every figure is what it is now.
fn changes_nothing(now: &Answer, then: &Answer) -> bool {
    then.unfinished == now.unfinished
        && MEASURES.iter().all(|measure| measure.of(now) == measure.of(then))
}

/// A sentence that names the settings that change nothing.
fn idle(now: &Answer, tried: &[Tried]) -> Option<String> {
    let idle = tried.iter().filter(|this| changes_nothing(now, &this.answer));
    let labels: Vec<String> = idle.map(|this| label(&this.knobs)).collect();
    (!labels.is_empty()).then(|| format!("Without any effect here: {}.", labels.join(", ")))
}

/// What applies a setting from the next boot on, and what puts back what is now.
fn lines(recorded: &Recorded, knobs: &Knobs) -> Vec<String> {
    let (files, sysctls): (Vec<_>, Vec<_>) = knobs.iter().partition(|(name, _)| name.contains('/'));
    let mut all = Vec::new();
    let mut add = |heading: String, lines: Vec<String>| {
        if !lines.is_empty() {
            all.push(format!("\n{heading}:"));
            all.extend(lines.into_iter().map(|line| format!("  {line}")));
        }
    };
    let of = |these: &[(&String, &String)], line: &dyn Fn(&str, &str) -> String| {
        these.iter().map(|(name, value)| line(name, value)).collect::<Vec<_>>()
    };
    let present: Knobs = knobs
        .keys()
        .filter_map(|name| Some((name.clone(), recorded.present.get(name)?.clone())))
        .collect();
    let (files_now, sysctls_now): (Vec<_>, Vec<_>) =
        present.iter().partition(|(name, _)| name.contains('/'));
    let sysctl = |name: &str, value: &str| format!("{name} = {value}");
    let tmpfile = |name: &str, value: &str| format!("w /sys/kernel/mm/{name} - - - - {value}");
    add(format!("To apply, as {SYSCTL}, read by `sysctl --system`"), of(&sysctls, &sysctl));
    add(
        format!("To apply, as {TMPFILES}, read by `systemd-tmpfiles --create`"),
        of(&files, &tmpfile),
    );
    let mut undo: Vec<String> = Vec::new();
    undo.extend((!sysctls.is_empty()).then(|| format!("rm {SYSCTL}")));
    undo.extend((!files.is_empty()).then(|| format!("rm {TMPFILES}")));
    undo.extend(of(&sysctls_now, &|name, value| format!("sysctl -w {name}={value}")));
    undo.extend(of(&files_now, &|name, value| format!("echo {value} > /sys/kernel/mm/{name}")));
    add("To undo".to_owned(), undo);
    all
}

const SYSCTL: &str = "/etc/sysctl.d/90-highorder.conf";
const TMPFILES: &str = "/etc/tmpfiles.d/90-highorder.conf";
