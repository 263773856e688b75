//! A replay in lockstep, told.

use super::{Format, headline, notes, with_progress};
use crate::failure::Failure;
use crate::output;
use highorder_kernels::KernelFile;
use highorder_lab::Recording;
use highorder_lab::lockstep::{self, Choice, Inferred, Report};
use highorder_tables::{Table, Value, text};
use std::fmt::Write as _;

/// Replays and prints how often the model agreed.
pub(super) fn run(
    recording: &Recording,
    kernel: &KernelFile,
    format: Format,
) -> Result<(), Failure> {
    let report =
        with_progress(recording, |progress| lockstep::replay(recording, kernel, progress))?;
    let out = match format {
        Format::Text => as_text(recording, kernel, &report),
        Format::Json => as_json(recording, kernel, &report),
    };
    output::print(out.as_bytes())
}

fn as_text(recording: &Recording, kernel: &KernelFile, report: &Report) -> String {
    let mut out = format!("{}, in lockstep with {}\n", headline(recording), kernel.name);
    out.push_str(&notes(recording));
    out.push('\n');
    let columns = [
        ("the kernel's choices", "choice"),
        ("asked", "asked"),
        ("agreed", "agreed"),
        ("share", "share"),
    ];
    let mut table = Table::new("", &columns);
    for choice in Choice::ALL {
        let tally = report.tally(choice);
        table.push(vec![
            choice.label().into(),
            Value::Count(tally.asked as i64),
            Value::Count(tally.agreed as i64),
            tally.share().map_or(Value::Missing, |share| Value::Percent(100.0 * share)),
        ]);
    }
    out.push_str(&table.text());
    let _ = writeln!(out, "\nnot traced, so inferred:");
    for (what, nr) in inferred(&report.inferred) {
        let _ = writeln!(out, "  {:>9} {what}", text::count(nr));
    }
    if let Some(end) = report.end {
        let _ = writeln!(
            out,
            "\nat the end: {} free blocks recorded, {} on the same list, {} of them behind the same block",
            text::count(end.free_blocks),
            text::count(end.on_same_list),
            text::count(end.in_same_order)
        );
    }
    if !report.disagreements.is_empty() {
        let _ = writeln!(out, "\nthe first disagreements of each kind:");
    }
    for disagreement in &report.disagreements {
        let _ = writeln!(
            out,
            "  event {} at {:.6} s, {}\n    kernel: {}\n    model:  {}\n    state:  {}",
            text::count(disagreement.event as u64),
            disagreement.seconds,
            disagreement.choice.label().trim_start(),
            disagreement.kernel,
            disagreement.model,
            disagreement.state
        );
    }
    out
}

fn inferred(inferred: &Inferred) -> [(&'static str, u64); 6] {
    [
        ("pages handed out in bulk", inferred.bulk_pages),
        ("pages captured by compaction", inferred.captured_pages),
        ("pages freed or taken past a locked per-CPU list", inferred.bypassed_pages),
        ("free lists turned by compaction's search", inferred.rotations),
        ("marks of per-CPU lists moved by a timer", inferred.marks),
        ("pages otherwise used or freed unseen", inferred.other_pages),
    ]
}

fn as_json(recording: &Recording, kernel: &KernelFile, report: &Report) -> String {
    let tallies: serde_json::Map<_, _> = Choice::ALL
        .into_iter()
        .map(|choice| {
            let tally = report.tally(choice);
            let value = serde_json::json!({
                "asked": tally.asked, "agreed": tally.agreed, "share": tally.share(),
            });
            (choice.key().to_owned(), value)
        })
        .collect();
    let disagreements: Vec<_> = report
        .disagreements
        .iter()
        .map(|d| {
            serde_json::json!({
                "event": d.event, "seconds": d.seconds, "choice": d.choice.key(),
                "kernel": d.kernel, "model": d.model, "state": d.state,
            })
        })
        .collect();
    let end = report.end.map(|end| {
        serde_json::json!({
            "free_blocks": end.free_blocks,
            "on_same_list": end.on_same_list,
            "in_same_order": end.in_same_order,
        })
    });
    let value = serde_json::json!({
        "recording": recording.name,
        "kernel_release": recording.before.kernel_release,
        "kernel": kernel.name,
        "events": report.nr_events,
        "agreement": tallies,
        "inferred": {
            "bulk_pages": report.inferred.bulk_pages,
            "captured_pages": report.inferred.captured_pages,
            "bypassed_pages": report.inferred.bypassed_pages,
            "rotated_lists": report.inferred.rotations,
            "moved_marks": report.inferred.marks,
            "other_pages": report.inferred.other_pages,
        },
        "end": end,
        "disagreements": disagreements,
    });
    format!("{value:#}\n")
}
