//! `highorder snapshot`: the state of this machine's memory, into a file.

use crate::failure::Failure;
use crate::output::{self, Force};
use clap::ValueEnum;
use highorder_files::Destination;
use highorder_snapshot::live::{self, Options};
use highorder_snapshot::{Exactness, Snapshot};
use highorder_tables::text;
use std::fmt::Write as _;
use std::path::PathBuf;

/// The file within a snapshot that holds its label.
pub(crate) const LABEL_FILE: &str = "label";

/// How to take a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// The most exact way that works here
    Best,
    /// Every list in list order, through /proc/kcore (root)
    Lists,
    /// Every frame's use, through /proc/kpageflags (root)
    Frames,
    /// Free blocks by zone and order, from files that everyone may read
    Counts,
}

impl From<Way> for live::Way {
    fn from(way: Way) -> Self {
        match way {
            Way::Best => Self::Best,
            Way::Lists => Self::Lists,
            Way::Frames => Self::Frames,
            Way::Counts => Self::Counts,
        }
    }
}

/// Where to and how.
#[derive(clap::Args)]
#[command(after_help = "\
Nothing on the machine is changed. The file holds where pages lie and what for, never what they \
contain. It is compressed and checksummed, and only its owner may read it: it tells where the kernel \
keeps its memory.

Examples:
  sudo highorder snapshot -o today.snap --label \"before the upgrade\"")]
pub(crate) struct Arguments {
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// How to take it
    #[arg(long, value_enum, default_value_t = Way::Best)]
    way: Way,
    /// A name for it, shown in pictures
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    #[command(flatten)]
    force: Force,
}

/// Takes the snapshot, writes it, says what it is.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let path = &arguments.output;
    let destination = Destination::new(path, arguments.force.replace())?.private();
    // Nothing is drawn while the lists are read: a spinner would allocate.
    let mut snapshot = live::take(Options { way: arguments.way.into(), ..Options::default() })?;
    if let Some(label) = &arguments.label {
        snapshot.files.insert(LABEL_FILE.to_owned(), label.clone().into_bytes());
    }
    let spinner = output::progress(None, "compressing");
    let bytes = snapshot.to_bytes(&path.display().to_string())?;
    spinner.finish_and_clear();
    destination.write(&bytes)?;
    let mut told = describe(&snapshot);
    let _ = writeln!(told, "{} bytes in {}", text::count(bytes.len() as u64), path.display());
    output::print_beside(told.as_bytes(), [&destination])
}

/// What was taken, what had to be inferred, and how it agrees with the kernel's own counts.
fn describe(snapshot: &Snapshot) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "{name:<10} {value}");
    };
    line("exactness", &format!("{}: {}", snapshot.exactness, meaning(snapshot.exactness)));
    line("kernel", snapshot.kernel_release.as_deref().unwrap_or("not known"));
    for zone in &snapshot.zones {
        let free = match snapshot.exactness {
            Exactness::Counts => String::new(),
            _ => format!(", {} free blocks", text::count(zone.free.len() as u64)),
        };
        let size = text::zone_size(zone.present_pages, zone.managed_pages);
        line("zone", &format!("node {} {}, {size}{free}", zone.node, zone.kind));
    }
    for (i, inferred) in snapshot.inferred.iter().enumerate() {
        line(if i == 0 { "inferred" } else { "" }, inferred);
    }
    if snapshot.exactness == Exactness::Counts {
        line("checked", "nothing to check: the counts are buddyinfo's own");
        return out;
    }
    line("checked", &agreement(snapshot));
    out
}

/// How the snapshot agrees with the kernel's own counts; each difference is among what is inferred.
fn agreement(snapshot: &Snapshot) -> String {
    let mut differences = snapshot.check();
    let mut against = vec!["buddyinfo", "pagetypeinfo", "zoneinfo"];
    if snapshot.exactness == Exactness::Frames {
        // By its own account the types are inferred: that they differ tells nothing.
        differences.retain(|sentence| !sentence.contains("pagetypeinfo"));
        against.retain(|name| *name != "pagetypeinfo");
    }
    against.retain(|name| snapshot.files.contains_key(*name));
    let against = against.join(", ");
    match differences.len() {
        0 => format!("agrees with {against}"),
        1 => format!("1 difference from {against}, named above: they were read at another moment"),
        nr => format!(
            "{nr} differences from {against}, named above: they were read at another moment"
        ),
    }
}

fn meaning(exactness: Exactness) -> &'static str {
    match exactness {
        Exactness::Lists => "every free list, per-CPU list and LRU list in list order",
        Exactness::Frames => {
            "every free block, and every frame's use but for those without flags; not the order of lists"
        }
        Exactness::Counts => "free blocks by zone and order, not where they lie",
    }
}
