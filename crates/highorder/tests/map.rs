//! `highorder map`: what it draws, and what it refuses to.

mod common;

use common::{STATE, highorder, names, printed, project, refused, snapshot_file, text};
use std::fs;
use std::io::Cursor;
use std::path::Path;

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
fn the_readme_shows_what_is_printed() {
    let state = "tests/data/recordings/612-rec-fragslab/state1";
    let drawn = printed(&["map", state, "--width", "100"]);
    let readme = fs::read_to_string(project().join("README.md")).expect("the README");
    let shown = format!("$ highorder map {state} --width 100\n{drawn}```\n");
    assert!(readme.contains(&shown), "README.md shows another picture than\n{drawn}");
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
