//! Folders of captures of real kernels as records.

use std::fs;
use std::path::{Path, PathBuf};

use highorder_record::compare;
use highorder_record::{Form, Group, Record, Source, Store, read_foreign, vmstat_listing};

fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/cases").join(name)
}

#[test]
fn a_case_becomes_a_record() {
    let record = read_foreign(&case("612-thpscale-madvise-lru0")).unwrap();
    assert_eq!(record.problems(), Vec::<String>::new());
    assert_eq!(record.inputs.source, Source::Foreign);
    assert_eq!(record.inputs.experiment, "612-thpscale-madvise-lru0");
    assert_eq!(record.inputs.kernel.name, "6.12.107+deb12-cloud-amd64");
    let setting = &record.inputs.kernel.values["/sys/kernel/mm/transparent_hugepage/defrag"];
    assert_eq!(setting, "madvise");
    assert_eq!(record.inputs.machine.values["node_mb"], "1024");
    assert_eq!(record.inputs.workload.name, "thpscale");
    assert_eq!(record.durations.elapsed_ns, Some(42_270_000_000));
    assert_eq!(record.durations.user_ns, None);
    // Its three rounds got 60 huge pages each.
    assert_eq!(record.delta("thp_fault_alloc"), Some(180));
    let held = record.held.as_ref().unwrap();
    assert!(held.counters["nr_free_pages"] < record.before.counters["nr_free_pages"]);
    let zone = record.before.zone(0, "DMA32").unwrap();
    assert!(zone.pages["min"] < zone.pages["low"] && zone.pages["low"] < zone.pages["high"]);
    assert_eq!(zone.free_blocks.len(), 11);
    let movable = &zone.free_blocks_by_migratetype["Movable"];
    assert!(movable.iter().zip(&zone.free_blocks).all(|(some, all)| some <= all));
    assert!(zone.pageblocks["Movable"] > 0);
    let one = record.metric("thpscale.fault_huge.amean_us-1").unwrap();
    assert_eq!((one.samples[..].to_vec(), one.unit.as_str()), (vec![44_251.83], "us"));
    assert_eq!(record.metric("Percentage huge-4").unwrap().samples, [31.25]);
    assert!(record.metric("thpscale.anon_pct").is_none(), "what was asked for is no result");
}

#[test]
fn two_nodes_and_a_list_of_lists_are_read() {
    let record = read_foreign(&case("612-mmapdemo-zrm0")).unwrap();
    assert!(record.after.zone(1, "DMA32").is_some());
    assert!(record.after.nodes[&1].contains_key("nr_inactive_anon"));
    assert_eq!(record.metric("mmapdemo.loop_s").unwrap().samples, [29.629, 19.005, 6.169]);
    let on_node_1 = record.metric("mmapdemo.node_pages.1").unwrap();
    assert_eq!(on_node_1.samples, [142_316.0, 140_088.0, 140_088.0]);
    let timeline = &record.timeline;
    assert_eq!((timeline.time_ns[0], timeline.time_ns[1]), (0, 1_006_000_000));
    assert_eq!(timeline.get("nr_free_pages", 0), Some(188_595.0));
    assert_eq!(timeline.get("thp_fault_alloc", 0), Some(0.0), "left out where it is 0");
    assert_eq!(timeline.get("thp_fault_alloc", 1), Some(25.0));
    assert_eq!(timeline.get("buddyinfo 1 DMA32 10", 0), Some(142.0));
    let listing = vmstat_listing(&record, 5_000_000_000).text();
    assert!(listing.starts_with("procs -----------memory----------"), "{listing}");
}

#[test]
fn cases_compare_and_are_kept_like_any_other_record() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let names = ["612-mmapdemo-zrm0", "612-thpscale-madvise-lru0"];
    let records: Vec<Record> = names.map(|name| read_foreign(&case(name)).unwrap()).into();
    for record in &records {
        store.put(record).unwrap();
        assert_eq!(store.get(record.identity()).unwrap().as_ref(), Some(record));
    }
    let groups: Vec<Group<'_>> = names
        .iter()
        .zip(&records)
        .map(|(name, record)| Group { label: (*name).to_owned(), records: vec![record] })
        .collect();
    insta::assert_snapshot!(compare::vmstat("", &groups, Form::Y2016).text());
    insta::assert_snapshot!("percentage_huge", compare::percentage_huge("", &groups).text());
}

#[test]
fn two_runs_of_one_case_are_two_records() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |name: &str, faults: &str| {
        let case = folder.path().join(name);
        for moment in ["before", "after"] {
            fs::create_dir_all(case.join(moment)).unwrap();
            fs::write(case.join(moment).join("vmstat"), format!("pgfault {faults}\n")).unwrap();
        }
        fs::write(case.join("case.json"), "{\"name\": \"churn\"}").unwrap();
        read_foreign(&case).unwrap()
    };
    let (one, two) = (copy("r1", "5"), copy("r2", "6"));
    assert_ne!(one.identity(), two.identity());
    assert_eq!(one.identity(), copy("again", "5").identity());
}

#[test]
fn what_is_wrong_is_told_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let error = || read_foreign(folder.path()).unwrap_err().to_string();
    assert!(error().contains("before/vmstat"), "{}", error());
    for moment in ["before", "after"] {
        fs::create_dir(path(moment)).unwrap();
        fs::write(path(moment).join("vmstat"), "pgfault 1\n").unwrap();
    }
    read_foreign(folder.path()).unwrap();
    for (file, text, expected) in [
        ("after/vmstat", "pgfault x\n", "after/vmstat:1: `pgfault x`, expected"),
        ("after/buddyinfo", "Node 0\n", "after/buddyinfo:1: `Node 0`, expected"),
        ("case.json", "{\n \"name\": }", "case.json:2: "),
        ("case.json", "[1]", "case.json: `[1]`, expected an object"),
        ("workload.json", "{\"prog\":\"usemem\"}\n{\"n\":1}\n", "workload.json:2: no key `prog`"),
        ("timeline", "T 1\npgfault\n", "timeline:2: `pgfault`, expected a counter's name"),
        ("timeline", "pgfault 1\n", "timeline:1: `pgfault 1`, expected `T SECONDS` first"),
        ("timeline", "T 2\nT 1\n", "timeline:2: `T 1`, expected a later time"),
    ] {
        let before = fs::read(path(file)).ok();
        fs::write(path(file), text).unwrap();
        assert!(error().contains(expected), "{}", error());
        match before {
            Some(before) => fs::write(path(file), before).unwrap(),
            None => fs::remove_file(path(file)).unwrap(),
        }
    }
}
