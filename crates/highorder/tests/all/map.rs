//! `highorder map`: what it draws, and what it refuses to.

use crate::common::{
    STATE, highorder, inexact_file, names, printed, project, refused, snapshot_file, text,
};
use highorder_snapshot::Exactness;
use serde_json::Value;
use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::time::Duration;

#[test]
fn a_recorded_state_as_plain_text() {
    insta::assert_snapshot!(printed(&["map", STATE]));
}

#[test]
fn a_recorded_state_of_two_nodes_at_150_columns() {
    let state = "tests/data/recordings/612-rec-fragslab/state1";
    insta::assert_snapshot!(printed(&["map", state, "--width", "150", "--color", "never"]));
}

#[test]
fn colour_is_drawn_where_it_is_asked_for() {
    assert!(!printed(&["map", STATE]).contains('\x1b'), "standard output is no terminal");
    assert!(printed(&["map", STATE, "--color", "always"]).contains(";2;"));
    assert!(printed(&["map", STATE, "--colour", "256"]).contains(";5;"));
}

#[test]
fn a_snapshot_file_is_drawn_as_what_it_was_made_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = snapshot_file(folder.path());
    let body = |source: &str| {
        let drawn = printed(&["map", source]);
        drawn.lines().filter(|line| !line.contains(source)).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(body(text(&file)), body(STATE));
}

#[test]
fn pictures_are_whole_and_the_same_every_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let (png, svg) = (folder.path().join("map.png"), folder.path().join("map.svg"));
    let draw = || {
        let arguments = ["map", STATE, "--png", text(&png), "--svg", text(&svg), "--force"];
        let drawn = printed(&arguments);
        (drawn, fs::read(&png).expect("a PNG"), fs::read_to_string(&svg).expect("an SVG"))
    };
    let first = draw();
    assert_eq!(names(folder.path()), ["map.png", "map.svg"], "nothing else is left behind");
    let (_, png_bytes, svg_text) = &first;
    let mut reader = png::Decoder::new(Cursor::new(png_bytes)).read_info().expect("a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    let frame = reader.next_frame(&mut pixels).expect("an image");
    assert!(frame.width > 1000 && frame.height > 1000, "{} x {}", frame.width, frame.height);
    assert!(svg_text.starts_with("<svg") && svg_text.trim_end().ends_with("</svg>"));
    assert!(draw() == first, "the same state gave other bytes");
}

#[test]
fn this_machine_can_be_drawn_by_whoever_runs_this() {
    let output = highorder(&["map", "--lines", "4"]).output().expect("the program runs");
    if !output.status.success() {
        eprintln!("SKIPPED: {}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let drawn = String::from_utf8_lossy(&output.stdout);
    assert!(drawn.starts_with("The memory of this machine"));
    assert!(drawn.contains("order  free memory"));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let state = project().join(STATE);
    let script =
        format!("'{}' map '{}' | head -n 1", env!("CARGO_BIN_EXE_highorder"), state.display());
    let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("a shell");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_missing_file_is_named() {
    let complaint = refused(&["map", "no/such.snap"]);
    assert_eq!(
        complaint,
        "error: no/such.snap: cannot read: No such file or directory (os error 2)\n"
    );
}

#[test]
fn a_file_that_is_no_snapshot_is_refused() {
    let complaint = refused(&["map", "Cargo.toml"]);
    assert!(complaint.starts_with("error: Cargo.toml: not a snapshot file"), "{complaint}");
    assert_eq!(complaint.lines().count(), 1);
}

#[test]
fn a_truncated_or_altered_snapshot_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = snapshot_file(folder.path());
    let whole = fs::read(&file).expect("the snapshot");
    fs::write(&file, &whole[..whole.len() / 2]).expect("a shorter one");
    let (half, all) = (whole.len() / 2, whole.len());
    let expected = format!("{}: truncated: found {half} bytes, expected {all}", file.display());
    assert_eq!(refused(&["map", text(&file)]), format!("error: {expected}\n"));

    let mut altered = whole;
    altered[half] ^= 1;
    fs::write(&file, &altered).expect("an altered one");
    let complaint = refused(&["map", text(&file)]);
    assert!(complaint.contains("checksum") && complaint.lines().count() == 1, "{complaint}");
}

#[test]
fn a_bad_line_in_a_recorded_state_is_named_with_its_number() {
    let folder = tempfile::tempdir().expect("a folder");
    for entry in fs::read_dir(project().join(STATE)).expect("the recorded state") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        fs::copy(&path, folder.path().join(name)).expect("a copy");
    }
    fs::remove_file(folder.path().join("pageblock.csv.gz")).expect("it was copied");
    let blocks = "pfn,migratetype,skip\n0,Unmovable,0\n512,Moveable,0\n";
    fs::write(folder.path().join("pageblock.csv"), blocks).expect("a table");
    let complaint = refused(&["map", text(folder.path())]);
    assert!(
        complaint.contains("pageblock.csv:3:") && complaint.contains("Moveable"),
        "{complaint}"
    );
}

#[test]
fn a_recording_is_asked_which_of_its_states() {
    let recording = Path::new(STATE).parent().expect("a folder");
    let complaint = refused(&["map", text(recording)]);
    assert!(complaint.contains("expected one state of it") && complaint.contains("state0"));
}

#[test]
fn nothing_is_written_when_the_input_is_bad() {
    let folder = tempfile::tempdir().expect("a folder");
    let png = folder.path().join("map.png");
    refused(&["map", "Cargo.toml", "--png", text(&png)]);
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn a_picture_that_cannot_be_written_is_an_error_with_its_path() {
    let complaint = refused(&["map", STATE, "--svg", "no/such/folder/map.svg"]);
    assert!(complaint.starts_with("error: no/such/folder/map.svg: cannot write"), "{complaint}");
}

fn json(source: &str) -> Value {
    serde_json::from_str(&printed(&["map", source, "--format", "json"])).expect("one object")
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("found {value}, expected a number"))
}

/// What is counted at least and at most.
fn range(value: &Value) -> (u64, u64) {
    let (least, most) = (count(&value["least"]), count(&value["most"]));
    assert!(least <= most, "{value}");
    (least, most)
}

const RANGES: [&str; 3] = ["pageblocks_mixed", "pageblocks_nearly_free", "pinned_pages"];

#[test]
fn what_is_known_by_lists_lies_within_what_is_known_by_frames() {
    let folder = tempfile::tempdir().expect("a folder");
    let (exact, inexact) =
        (json(STATE), json(text(&inexact_file(folder.path(), Exactness::Frames))));
    let uses = |map: &Value, name: &str| count(&map["all"]["pages_by_use"][name]);
    let unknown = "unknown_kernel_or_per_cpu";
    assert_eq!(uses(&exact, unknown), 0);
    assert_eq!(uses(&inexact, "free_per_cpu"), 0);
    let per_cpu = uses(&exact, "free_per_cpu");
    assert!(per_cpu > 0, "the recorded machine has pages on per-CPU lists");
    assert_eq!(count(&inexact["all"]["per_cpu_pages_among_unknown"]), per_cpu);
    let both = |map: &Value| uses(map, "kernel") + uses(map, "free_per_cpu") + uses(map, unknown);
    assert_eq!(both(&exact), both(&inexact), "they are the same frames");
    for name in RANGES {
        let (known, last) = range(&exact["all"][name]);
        assert_eq!(known, last, "{name} is known by lists");
        let (least, most) = range(&inexact["all"][name]);
        assert!(least <= known && known <= most, "{name}: {known} is not in {least}..={most}");
        assert!(least < most, "{name} is a range by frames");
    }
    let drawn = printed(&["map", text(&inexact_file(folder.path(), Exactness::Frames))]);
    assert!(drawn.contains("Q unknown, no flags"), "{drawn}");
    assert!(drawn.contains("unknown: kernel or free per-CPU pages"), "{drawn}");
}

#[test]
fn of_counts_alone_nothing_is_said_of_uses() {
    let folder = tempfile::tempdir().expect("a folder");
    let map = json(text(&inexact_file(folder.path(), Exactness::Counts)));
    assert_eq!(map["exactness"], "counts");
    for name in RANGES {
        assert!(map["all"][name].is_null(), "{name}: {}", map["all"][name]);
    }
}

/// A counter of the machine that runs this, or those that begin with its name added up.
fn vmstat(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let values = text.lines().filter_map(|line| line.split_once(' '));
    let values = values.filter(|(counter, _)| counter.starts_with(name));
    values.filter_map(|(_, value)| value.parse::<u64>().ok()).sum()
}

/// Two maps may differ by what the machine did between them, which it counts itself: on an idle one, by next
/// to nothing.
#[test]
fn two_maps_ten_seconds_apart_differ_by_what_was_allocated_and_freed_alone() {
    if fs::File::open("/proc/kpageflags").is_err() {
        eprintln!("SKIPPED: /proc/kpageflags cannot be opened by whoever runs this");
        return;
    }
    // Pages allocated, freed, and put aside or brought back by a hypervisor's balloon.
    let pages_moved = || ["pgalloc_", "pgfree", "balloon_"].map(vmstat).iter().sum::<u64>();
    let before = pages_moved();
    let first = json("live");
    std::thread::sleep(Duration::from_secs(10));
    let second = json("live");
    let moved = pages_moved() - before;
    let zones = first["zones"].as_array().expect("zones");
    for (a, b) in zones.iter().zip(second["zones"].as_array().expect("zones")) {
        if a["managed_pages"] != b["managed_pages"] {
            eprintln!("SKIPPED: the kernel took memory into use meanwhile");
            return;
        }
        for name in ["spanned_pages", "present_pages"] {
            assert_eq!(a[name], b[name], "{name}");
        }
    }
    for name in RANGES {
        let ((a_least, a_most), (b_least, b_most)) =
            (range(&first["all"][name]), range(&second["all"][name]));
        let apart = a_least.saturating_sub(b_most).max(b_least.saturating_sub(a_most));
        assert!(
            apart <= moved,
            "{name}: {a_least}..={a_most}, then {b_least}..={b_most}, though {moved} pages moved"
        );
    }
    eprintln!("{moved} pages were allocated or freed meanwhile");
}

#[test]
fn a_zone_is_as_large_in_a_snapshot_as_on_the_map() {
    if fs::read("/proc/buddyinfo").is_err() || fs::read("/proc/zoneinfo").is_err() {
        eprintln!("SKIPPED: /proc/buddyinfo or /proc/zoneinfo cannot be read here");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("now.snap");
    let said = printed(&["snapshot", "-o", text(&file)]);
    let drawn = printed(&["map", text(&file), "--width", "200"]);
    let sizes = |text: &str, is_zone: fn(&str) -> bool| -> Vec<String> {
        let lines = text.lines().filter(|line| is_zone(line));
        lines
            .map(|line| {
                let end = line.find(" managed").unwrap_or_else(|| panic!("no size in {line}"));
                let words: Vec<&str> = line[..end].split_whitespace().collect();
                words[words.len() - 5..].join(" ")
            })
            .collect()
    };
    let said = sizes(&said, |line| line.starts_with("zone "));
    assert!(!said.is_empty() && said[0].contains(" present, "), "{said:?}");
    assert_eq!(said, sizes(&drawn, |line| line.starts_with("Node ") && line.contains(", zone ")));
}
