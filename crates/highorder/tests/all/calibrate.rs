//! `highorder calibrate`: a machine file of this machine.

use crate::common::{highorder, names, refused, text};
use highorder_kernels::machine;

#[test]
fn the_file_written_is_a_machine_with_a_source_for_every_cost() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("here.toml");
    let assert = highorder(&["calibrate", "--out", text(&file)]).assert().stdout("");
    let said = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    if said.contains("Something disturbed the measurement") {
        assert.code(2);
        assert!(names(folder.path()).is_empty(), "what cannot be is not written");
        eprintln!("SKIPPED: other programs keep this machine from being measured: {said}");
        return;
    }
    assert.success();
    assert_eq!(said, format!("wrote {}\n", file.display()), "no progress without a terminal");
    let machine = machine::load(text(&file)).expect("a machine file");
    assert_eq!(machine.name, "here");
    assert!(machine.description.starts_with("here: "), "{}", machine.description);
    for (name, cost) in machine.costs.by_name() {
        assert!(!cost.source.is_empty(), "{name}");
    }
    for (name, cost) in [
        ("clear_base_page", &machine.costs.clear_base_page),
        ("local_access", &machine.costs.local_access),
        ("system_call", &machine.costs.system_call),
        ("pfn_scan", &machine.costs.pfn_scan),
    ] {
        assert!(cost.picoseconds() > 0, "{name} costs nothing");
        assert!(cost.source.starts_with("measured: "), "{name}: {}", cost.source);
    }
    // A huge page is 512 base pages, and its clearing has less to begin with for each.
    let [base, huge] = [&machine.costs.clear_base_page, &machine.costs.clear_huge_page];
    assert!(huge.picoseconds() > 32 * base.picoseconds(), "{base:?} {huge:?}");
}

#[test]
fn an_unknown_folder_of_a_disk_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, missing) = (folder.path().join("here.toml"), folder.path().join("missing"));
    let told = refused(&["calibrate", "--out", text(&file), "--disk", text(&missing)]);
    assert!(told.starts_with(&format!("error: {}: cannot read: ", missing.display())), "{told}");
    assert!(names(folder.path()).is_empty());
}

#[test]
fn a_file_that_is_there_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("here.toml");
    std::fs::write(&file, "mine").expect("a file");
    let told = refused(&["calibrate", "--out", text(&file)]);
    assert_eq!(told, format!("error: {}: is there already; --force replaces it\n", file.display()));
    assert_eq!(std::fs::read(&file).expect("the file"), b"mine");
}

#[test]
fn a_name_that_no_machine_file_can_have_is_refused() {
    let told = refused(&["calibrate", "--out", "nowhere.txt"]);
    assert!(told.contains("expected a name that ends in .toml"), "{told}");
}
