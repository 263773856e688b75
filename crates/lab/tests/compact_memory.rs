//! Compaction of all zones of recorded machines: the model beside the kernels that did it, event by event.

use highorder_lab::KernelFile;
use highorder_lab::compact_memory::{self, Comparison, Recorded, distance};
use highorder_lab::free_running::Side;
use highorder_lab::passes::{Pass, Passes};
use highorder_snapshot::FrameUse;
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/recordings").join(name)
}

fn compacted(recording: &str, kernels: &[&str]) -> (Comparison, Vec<KernelFile>) {
    let recorded = Recorded::read(folder(recording)).unwrap();
    let kernels: Vec<_> = kernels.iter().map(|name| KernelFile::load(name).unwrap()).collect();
    let all: Vec<_> = kernels.iter().collect();
    (compact_memory::compact(&recorded, &all).unwrap(), kernels)
}

/// The model's events as text.
fn text_of(comparison: &Comparison, kernel: &KernelFile) -> String {
    String::from_utf8(comparison.models[0].trace_text(kernel, "init")).unwrap()
}

/// Events of compaction in a trace, without who and when.
fn events(text: &str) -> Vec<String> {
    let event = |line: &str| {
        let at = line.find(": mm_")?;
        let event = &line[at + 2..];
        (!line.starts_with('#') && !event.contains("kcompactd")).then(|| event.to_owned())
    };
    text.lines().filter_map(event).collect()
}

#[test]
fn the_model_says_line_by_line_what_the_kernel_said() {
    for (recording, kernel) in [("612-rec-compact", "linux-6.12"), ("61-rec-compact", "linux-6.1")]
    {
        let (comparison, kernels) = compacted(recording, &[kernel]);
        let recorded = events(&recorded_text(recording));
        let model = events(&text_of(&comparison, &kernels[0]));
        assert!(recorded.len() > 400, "{recording}: {}", recorded.len());
        for (at, (recorded, model)) in recorded.iter().zip(&model).enumerate() {
            assert_eq!(recorded, model, "{recording}: event {at}");
        }
        assert_eq!(recorded.len(), model.len(), "{recording}");
    }
}

/// A recorded trace's text.
fn recorded_text(recording: &str) -> String {
    let text = highorder_kernelfs::read_bytes(folder(recording).join("trace.txt.zst")).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn free_blocks_end_up_as_the_kernel_left_them() {
    for (recording, kernel) in [("612-rec-compact", "linux-6.12"), ("61-rec-compact", "linux-6.1")]
    {
        let (comparison, _) = compacted(recording, &[kernel]);
        let (recorded, work) = comparison.recorded.as_ref().unwrap();
        let model = &comparison.models[0];
        let (before, after) =
            (distance(&comparison.before, recorded), distance(&model.side, recorded));
        println!("{recording}: {after:.4} from the kernel's, which was {before:.4} from before");
        assert!(after < before / 10.0, "{recording}: {after} {before}");
        assert_eq!(*work, model.work, "{recording}");
        assert!(model.side.same_use(recorded) > 0.98, "{recording}");
    }
}

#[test]
fn every_kernel_compacts_a_recorded_machine_and_loses_no_page() {
    let names =
        ["linux-3.4-rc2", "linux-4.4", "linux-4.14", "linux-5.1", "linux-6.1", "linux-6.12"];
    let (comparison, _) = compacted("612-rec-compact", &names);
    for model in &comparison.models {
        let name = &model.side.name;
        assert!(model.work.migrated > 1_000, "{name}: {:?}", model.work);
        let in_use = |side: &Side| {
            let is_used = |usage: &&FrameUse| {
                !matches!(usage, FrameUse::Free(_) | FrameUse::PerCpu | FrameUse::Hole)
            };
            side.uses.iter().filter(is_used).count()
        };
        assert_eq!(in_use(&model.side), in_use(&comparison.before), "{name}");
        let moved: u64 = model.zones.iter().map(|zone| zone.nr_moved).sum();
        assert_eq!(moved, model.work.migrated, "{name}");
    }
}

#[test]
fn a_trace_falls_into_the_runs_that_made_it() {
    let passes = Passes::read(folder("612-rec-compact").join("trace.txt.zst")).unwrap();
    // The zones DMA and DMA32, whole.
    let (recorded, _) = compacted("612-rec-compact", &[]);
    let work = recorded.recorded.unwrap().1;
    assert_eq!(passes.passes.len(), 2);
    let sums = passes.passes.iter().map(Pass::sums);
    let [migrate, free, moved, _] = sums.fold([0; 4], |a, b| std::array::from_fn(|i| a[i] + b[i]));
    assert_eq!([migrate, free, moved], [work.migrate_scanned, work.free_scanned, work.migrated]);
    for pass in &passes.passes {
        assert_eq!((pass.status.as_deref(), pass.order), (Some("complete"), Some(-1)));
        assert_eq!((pass.task.as_str(), pass.mode.as_str()), ("init", "sync"));
    }
}
