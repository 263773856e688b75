//! What the workloads ask of a system, checked call by call.

mod fake;

use fake::{Event, Fake};
use highorder_record::Better;
use highorder_system::{
    Access, Advice, Caches, Failure, KernelBlock, MemPolicy, NodeId, Ns, Pattern, Place,
};
use highorder_workload::recorded::{Program, Script};
use highorder_workload::{Choice, Configured, Value, find};
use std::collections::BTreeMap;

/// A machine of 64 MiB.
const PAGES: u64 = 16_384;
/// No memory.
const NONE: Value = Value::Float(0.0);

fn configured<const N: usize>(name: &str, values: [(&str, Value); N]) -> Configured {
    find(name, &values.map(|(key, value)| (key.to_owned(), value)).into()).unwrap()
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

#[test]
fn usemem_writes_every_page_once_a_pass_and_frees_all() {
    let mut sys = Fake::new(PAGES);
    let values = [("file", NONE), ("memory", Value::Float(0.5)), ("passes", Value::Integer(7))];
    sys.run(configured("usemem", values).with_threads(3).code()).unwrap();
    assert_eq!(sys.unmapped.len(), 3);
    for mapping in &sys.unmapped {
        assert_eq!(mapping.area.pages, PAGES / 2 / 3);
        assert!(mapping.writes.iter().all(|&writes| writes == 7));
    }
    let words = Pattern::word(Access::Write);
    let touched = |event: &&Event| matches!(event, Event::Touch(_, how) if *how == words);
    assert_eq!(sys.events.iter().filter(touched).count(), 3 * 7, "a call for each pass, not page");
}

#[test]
fn usemem_without_a_file_has_one_process_with_a_thread_for_each_mapping() {
    let mut sys = Fake::new(PAGES);
    sys.run(configured("usemem", [("file", NONE)]).with_threads(4).code()).unwrap();
    let spawned: Vec<_> =
        sys.spawned().iter().map(|spec| (spec.name.clone(), spec.new_process)).collect();
    let thread = |number| (format!("usemem-{number}"), false);
    assert_eq!(spawned, [("usemem".to_owned(), true), thread(0), thread(1), thread(2), thread(3)]);
    assert!(sys.spawned().iter().all(|spec| spec.place == Place::Any));
}

#[test]
fn usemem_reports_seconds_under_its_number_of_threads() {
    let mut sys = Fake::new(PAGES);
    let values = [("file", NONE), ("memory", text("40 MiB")), ("passes", Value::Integer(2))];
    sys.run(configured("usemem", values).with_threads(2).code()).unwrap();
    // 10 ns in the kernel and 1 outside for each page touched.
    let touches = 2 * 10_240;
    assert_eq!(sys.samples("System-2"), [(Ns(10) * touches).as_secs_f64()]);
    assert_eq!(sys.samples("Elapsd-2"), [(Ns(11) * touches).as_secs_f64()]);
    let row = &sys.rows["Elapsd-2"];
    assert_eq!((row.unit.as_str(), row.better, row.decimals), ("s", Better::Lower, 2));
    assert_eq!(sys.rows.len(), 2);
}

#[test]
fn memory_is_noted_while_all_of_it_is_there() {
    // The others map files or nothing: what they use is page cache.
    for (name, values) in [
        ("churn", [("live", Value::Float(0.5))]),
        ("memhog", [("memory", Value::Float(0.5))]),
        ("mmap-demo", [("memory", Value::Float(0.5))]),
        ("usemem", [("file", NONE)]),
    ] {
        let mut sys = Fake::new(PAGES);
        let workload = configured(name, values).scaled(1, 64).with_threads(2);
        sys.run(workload.code()).unwrap();
        let held = sys.held.as_ref().unwrap_or_else(|| panic!("{name} notes nothing"));
        let pages: u64 = held.iter().map(|mapping| mapping.area.pages).sum();
        assert!(pages > PAGES / 3, "{name}: {pages}");
        assert!(held.iter().all(|mapping| mapping.writes.iter().all(|&writes| writes > 0)));
        let after = sys.events.iter().skip_while(|event| **event != Event::Held).skip(1);
        assert!(after.clone().count() > 0 && after.clone().all(|e| matches!(e, Event::Unmap(_))));
    }
}

#[test]
fn dd_writes_its_file_reads_it_again_and_deletes_it() {
    let mut sys = Fake::new(PAGES);
    sys.run(configured("dd", [("size", text("5 MiB")), ("reads", Value::Integer(2))]).code())
        .unwrap();
    assert_eq!(sys.file_bytes_moved(), (5 << 20, 10 << 20));
    assert_eq!(sys.files, BTreeMap::new(), "nothing is left");
    assert_eq!((sys.samples("Write").len(), sys.samples("Read").len()), (1, 2));
}

#[test]
fn a_killed_process_is_counted_and_its_times_are_not() {
    for (name, rows) in [
        ("usemem", &["Killed-2"][..]),
        // The first pass does not end.
        ("mmap-demo", &["Killed"]),
        ("churn", &["Killed-2"]),
        ("memhog", &["Killed"]),
    ] {
        let mut sys = Fake::new(PAGES);
        sys.capacity = PAGES / 8;
        sys.run(configured(name, []).scaled(1, 64).with_threads(2).code()).unwrap();
        let found: Vec<&str> = sys.rows.keys().map(String::as_str).collect();
        assert_eq!(found, rows, "{name}");
        assert_eq!(sys.samples(rows[0]), [1.0]);
    }
}

#[test]
fn what_the_system_refuses_ends_the_run_with_every_thread_waited_for() {
    for (name, mappings_max) in [("usemem", 1), ("mmap-demo", 0), ("churn", 2), ("memhog", 0)] {
        let mut sys = Fake::new(PAGES);
        sys.mappings_max = mappings_max;
        let ended = sys.run(configured(name, []).scaled(1, 64).with_threads(2).code());
        assert_eq!(
            ended,
            Err(Failure::Refused("no room for another mapping".to_owned())),
            "{name}"
        );
        assert!(sys.rows.is_empty(), "{name}");
    }
}

#[test]
fn mmap_demo_fills_one_buffer_from_one_nodes_cpus() {
    for (word, advice) in
        [("none", None), ("huge", Some(Advice::Huge)), ("no-huge", Some(Advice::NoHuge))]
    {
        let mut sys = Fake::new(PAGES);
        let values = [("advice", text(word)), ("node", Value::Integer(1))];
        sys.run(configured("mmap-demo", values).code()).unwrap();
        let [buffer] = &sys.unmapped[..] else { panic!("{:?}", sys.unmapped) };
        assert_eq!(buffer.area.pages, PAGES * 8 / 10);
        assert_eq!(buffer.advice, advice);
        assert!(buffer.writes.iter().all(|&writes| writes == 3));
        let whole = Event::Touch(buffer.area, Pattern::whole(Access::Write));
        assert_eq!(sys.events.iter().filter(|&event| *event == whole).count(), 3);
        let [process] = sys.spawned()[..] else { panic!("{:?}", sys.spawned()) };
        assert_eq!(process.place, Place::Node(NodeId(1)));
    }
}

#[test]
fn mmap_demo_reports_what_time_prints_and_each_pass() {
    let mut sys = Fake::new(PAGES);
    sys.run(configured("mmap-demo", []).with_threads(9).code()).unwrap();
    let found: Vec<&str> = sys.rows.keys().map(String::as_str).collect();
    assert_eq!(found, ["Elapsd", "Pass 1", "Pass 2", "Pass 3", "System", "User"]);
    let pass = Ns(11) * (PAGES * 8 / 10);
    assert_eq!(sys.samples("Pass 2"), [pass.as_secs_f64()]);
    assert_eq!(sys.samples("Elapsd"), [(pass * 3).as_secs_f64()]);
}

fn churn(seed: u64) -> Fake {
    let mut sys = Fake::new(PAGES);
    sys.seed = seed;
    let values = [
        ("live", Value::Float(0.5)),
        ("area_min", text("8 KiB")),
        ("area_max", text("256 KiB")),
        ("operations", Value::Integer(2_000)),
        ("threads", Value::Integer(2)),
    ];
    sys.run(configured("churn", values).code()).unwrap();
    sys
}

#[test]
fn churn_keeps_its_live_set_within_an_area_of_what_was_asked() {
    let sys = churn(1);
    const LIVE: u64 = PAGES / 2 / 2;
    const LARGEST: u64 = 64;
    let mut areas = BTreeMap::new();
    let (mut live, mut threads, mut is_full) = (0, 0, false);
    for event in sys.events.iter().take_while(|event| **event != Event::Held) {
        match *event {
            Event::Spawn(ref spec) if !spec.new_process => {
                // The one before has ended: the fake runs them one after another.
                threads += 1;
                (live, is_full) = (0, false);
            }
            Event::Map(area) => {
                areas.insert(area.first, area.pages);
                live += area.pages;
                assert!((2..=LARGEST).contains(&area.pages), "{area:?}");
            }
            Event::Unmap(area) => {
                assert!(live + LARGEST > LIVE, "{live} pages are live: there was room");
                is_full = true;
                live -= areas.remove(&area.first).unwrap();
            }
            _ => {}
        }
        assert!(live <= LIVE, "{live} pages are live");
        assert!(!is_full || live + 2 * LARGEST > LIVE, "{live} pages are live");
    }
    assert!(is_full);
    assert_eq!(threads, 2);
}

#[test]
fn churn_writes_each_area_when_it_is_mapped_and_some_again() {
    let sys = churn(1);
    let mut again = 0;
    for mapping in &sys.unmapped {
        let writes = mapping.writes[0];
        assert!(writes >= 1 && mapping.writes.iter().all(|&other| other == writes));
        again += writes - 1;
    }
    // One operation in two touches: of 4000, 2000 give or take six times the square root of 1000.
    assert!((1_800..=2_200).contains(&again), "{again}");
    assert_eq!(sys.latencies["churn-touch"], again);
    assert_eq!(sys.latencies["churn-map"], sys.unmapped.len() as u64);
    assert_eq!(sys.samples("System-2").len(), 1);
    assert_eq!(sys.rows["Rate-2"].better, Better::Higher);
}

#[test]
fn churn_repeats_itself_with_the_same_seed_alone() {
    assert_eq!(churn(1).events, churn(1).events);
    assert_ne!(churn(1).events, churn(2).events);
}

#[test]
fn threads_of_churn_draw_from_streams_of_their_own() {
    let sys = churn(1);
    let mut sizes: [Vec<u64>; 2] = Default::default();
    let mut thread = None;
    for event in sys.events.iter().take_while(|event| **event != Event::Held) {
        match event {
            Event::Spawn(spec) if !spec.new_process => {
                thread = Some(thread.map_or(0, |number| number + 1));
            }
            Event::Map(area) => sizes[thread.unwrap()].push(area.pages),
            _ => {}
        }
    }
    assert_ne!(sizes[0], sizes[1]);
}

#[test]
fn a_live_set_smaller_than_an_area_is_refused() {
    let values = [("live", text("1 MiB")), ("area_max", text("1 MiB"))];
    let ended = Fake::new(PAGES).run(configured("churn", values).with_threads(2).code());
    let expected =
        "churn: a thread's live set of 128 pages is smaller than the largest area, 256 pages";
    assert_eq!(ended, Err(Failure::Refused(expected.to_owned())));
}

#[test]
fn usemem_reads_the_same_part_of_its_file_from_every_thread() {
    let mut sys = Fake::new(PAGES);
    let values = [("passes", Value::Integer(3))];
    sys.run(configured("usemem", values).with_threads(4).code()).unwrap();
    // 0.16 of memory and 32 MiB more are written, once, before the counters begin: copies of 20 times 1,048,575 bytes.
    let file_pages = PAGES * 16 / 100;
    let copied = file_pages * 4096 + (32 << 20);
    assert_eq!(sys.file_bytes_moved(), (copied + 20 * 1_048_575, copied));
    let events = &sys.events;
    let at = |wanted: &Event| events.iter().position(|event| event == wanted).unwrap();
    let spawned = |name: &str| {
        let is_it = |event: &Event| matches!(event, Event::Spawn(spec) if spec.name == name);
        events.iter().position(is_it).unwrap()
    };
    assert!(spawned("dd") < at(&Event::Sync) && at(&Event::Sync) < at(&Event::Before));
    assert!(at(&Event::Before) < spawned("usemem"));

    let of_file: Vec<_> = sys.unmapped.iter().filter_map(|m| Some((m.file.clone()?, m))).collect();
    assert_eq!(of_file.len(), 4);
    for (file, mapping) in of_file {
        assert_eq!(file, ("usemem-file".to_owned(), 0, Access::Read));
        assert_eq!(mapping.area.pages, file_pages / 4);
        assert!(mapping.reads.iter().all(|&reads| reads == 3));
    }
    let processes: Vec<_> =
        sys.spawned().iter().filter(|spec| spec.new_process).map(|spec| &*spec.name).collect();
    assert_eq!(processes, ["dd", "usemem", "usemem-file"]);
    assert_eq!((sys.samples("System-4").len(), sys.samples("Elapsd-4").len()), (1, 1));
    assert_eq!(sys.files, BTreeMap::new(), "nothing is left");
}

#[test]
fn fsmark_writes_as_many_files_as_fill_memory_in_every_iteration_and_keeps_them() {
    let mut sys = Fake::new(PAGES);
    let values = [
        ("file_size", text("1 MiB")),
        ("iterations", Value::Integer(3)),
        ("directories", Value::Integer(2)),
        ("directory_files", Value::Integer(1)),
        ("threads_per_cpu", Value::Integer(2)),
    ];
    sys.run(configured("fsmark", values).code()).unwrap();
    // 64 files among 8 threads, 3 times.
    assert_eq!(sys.files.len(), 3 * 64);
    assert!(sys.files.values().all(|&bytes| bytes == 1 << 20));
    let blocks: Vec<_> = sys
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Write(name, at, bytes) if name == "fsmark/7/01/2-3" => Some((*at, *bytes)),
            _ => None,
        })
        .collect();
    let expected: Vec<_> = (0..64).map(|n| (n * 16384, 16384)).collect();
    assert_eq!(blocks, expected, "in a row, by 16 KiB, in the second directory in turn");
    // 8 files of 1 MiB: 64 writes of 16 KiB each, a creation and a close.
    let file = 66.0 * 100e-9 + 1024.0 * 50e-9;
    let rate = 8.0 * (8.0 / (8.0 * file));
    let samples = sys.samples("Files/s");
    assert_eq!(samples.len(), 3);
    assert!(samples.iter().all(|found| (found / rate - 1.0).abs() < 1e-6), "{samples:?} {rate}");
    assert_eq!(sys.samples("Overhead"), [0.0; 0], "no time passes between calls here");
}

#[test]
fn fsmark_by_default_is_the_published_one() {
    // 16 GiB on 4 CPUs: 546 files of 30 MiB among 16 threads, 34 each.
    let values = configured("fsmark", []).values();
    let shown = |key: &str| values[key].clone();
    assert_eq!(shown("file_size"), "30 MiB");
    assert_eq!((shown("iterations"), shown("threads_per_cpu")), ("15".into(), "4".into()));
    assert_eq!((shown("memory"), shown("block")), ("1.0".into(), "16 KiB".into()));
    let mut sys = Fake::new(PAGES);
    let ended = sys.run(configured("fsmark", []).code());
    let message = "fsmark: memory for 2 files among 16 threads, expected one for each";
    assert_eq!(ended, Err(Failure::Refused(message.to_owned())));
    // Scaled together with memory it is the same number of files.
    let mut sys = Fake::new(PAGES);
    let small = [("iterations", Value::Integer(1))];
    sys.run(configured("fsmark", small).scaled(1, 64).code()).unwrap();
    assert_eq!(sys.files.len(), 128, "64 MiB in files of 480 KiB, 8 for each of 16 threads");
}

fn postmark(seed: u64) -> Fake {
    let mut sys = Fake::new(PAGES);
    sys.seed = seed;
    let values = [
        ("memory", text("8 MiB")),
        ("size_max", text("64 KiB")),
        ("subdirectories", Value::Integer(10)),
        ("transactions", Value::Integer(2_000)),
    ];
    sys.run(configured("postmark", values).code()).unwrap();
    sys
}

#[test]
fn postmark_creates_reads_appends_and_deletes_at_even_odds_and_leaves_nothing() {
    let sys = postmark(1);
    assert_eq!(sys.files, BTreeMap::new());
    let events = sys.file_events();
    let count = |of: fn(&Event) -> bool| events.iter().filter(|event| of(event)).count();
    let created = count(|event| matches!(event, Event::Create(_)));
    let opened = count(|event| matches!(event, Event::Open(_)));
    assert_eq!(created, count(|event| matches!(event, Event::Unlink(_))));
    // 128 files; half of 2000 transactions create, give or take six times the square root of 500.
    assert!((128 + 866..=128 + 1_134).contains(&created), "{created}");
    // Each transaction reads or appends, but to a file that is as long as it can be.
    assert!((1_900..=2_000).contains(&opened), "{opened}");
    let reads = count(|event| matches!(event, Event::Read(_, 0, _)));
    assert!((866..=1_134).contains(&reads), "{reads}");
    let mut sizes = BTreeMap::new();
    for event in events {
        if let Event::Write(name, at, bytes) = event {
            assert!(*bytes <= 4096);
            let size = sizes.entry(name.clone()).or_insert(0);
            assert_eq!(*size, *at, "{name}: written in a row");
            *size += bytes;
        }
    }
    assert!(sizes.values().all(|size| (3096..=65536).contains(size)));
    let folders: std::collections::BTreeSet<&str> =
        sizes.keys().map(|name| name.rsplit_once('/').unwrap().0).collect();
    assert_eq!(folders.len(), 10);
}

#[test]
fn postmark_reports_the_rates_of_its_phases() {
    let sys = postmark(1);
    let names: Vec<&str> = sys.rows.keys().map(String::as_str).collect();
    let expected = [
        "Data megabytes read per second",
        "Data megabytes written per second",
        "Files create/transact per second",
        "Files created alone per second",
        "Files delete/transact per second",
        "Files deleted alone per second",
        "System",
        "Transactions per second",
    ];
    assert_eq!(names, expected);
    // A deletion is a call of 100 ns here.
    let deleted = sys.samples("Files deleted alone per second")[0];
    assert!((deleted / 1e7 - 1.0).abs() < 1e-9, "{deleted}");
    let rate = |row: &str| sys.samples(row)[0];
    let transacted =
        rate("Files create/transact per second") + rate("Files delete/transact per second");
    assert!((transacted / rate("Transactions per second") - 1.0).abs() < 1e-9);
    let (written, read) = sys.file_bytes_moved();
    let moved = rate("Data megabytes written per second") / rate("Data megabytes read per second");
    assert!((moved / (written as f64 / read as f64) - 1.0).abs() < 1e-9);
}

#[test]
fn postmark_and_small_files_repeat_themselves_with_the_same_seed_alone() {
    assert_eq!(postmark(1).events, postmark(1).events);
    assert_ne!(postmark(1).events, postmark(2).events);
    assert_eq!(small_files(1, "half").events, small_files(1, "half").events);
    assert_ne!(small_files(1, "half").events, small_files(2, "half").events);
}

#[test]
fn micro_writes_each_page_of_a_sparse_file_of_each_process_once_in_both_tests() {
    let mut sys = Fake::new(PAGES);
    sys.run(configured("micro", [("memory", Value::Float(2.0))]).code()).unwrap();
    let names: Vec<&str> = sys.files.keys().map(String::as_str).collect();
    let expected = [
        "micro/mmap-read-0",
        "micro/mmap-read-1",
        "micro/mmap-read-2",
        "micro/mmap-read-3",
        "micro/mmap-write-0",
        "micro/mmap-write-1",
        "micro/mmap-write-2",
        "micro/mmap-write-3",
    ];
    assert_eq!(names, expected);
    assert_eq!(sys.file_bytes_moved(), (0, 0), "holes, until they are touched");
    assert_eq!(sys.unmapped.len(), 8);
    for mapping in &sys.unmapped {
        assert_eq!(mapping.area.pages, 2 * PAGES / 4);
        assert!(mapping.writes.iter().all(|&writes| writes == 1));
        assert_eq!(mapping.file.as_ref().unwrap().1, 0);
    }
    let processes = sys.spawned().iter().filter(|spec| spec.new_process).count();
    assert_eq!(processes, 8);
    let sleeps = sys.events.iter().filter(|event| matches!(event, Event::Sleep(_))).count();
    assert_eq!(sleeps, 2, "nothing counts here, so kswapd is idle at once");
}

fn small_files(seed: u64, unlink: &str) -> Fake {
    let mut sys = Fake::new(PAGES);
    sys.seed = seed;
    let values = [("memory", text("16 MiB")), ("unlink", text(unlink))];
    sys.run(configured("small-files", values).code()).unwrap();
    sys
}

#[test]
fn small_files_are_written_by_pages_synced_and_read_sixteen_times_a_visit() {
    let sys = small_files(1, "none");
    // 256 files of 64 KiB.
    assert_eq!(sys.files.len(), 256);
    assert!(sys.files.values().all(|&bytes| bytes == 64 << 10));
    let of_one: Vec<u64> = sys
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Write(name, at, 4096) if name == "small-files/3/63" => Some(*at),
            _ => None,
        })
        .collect();
    assert!(of_one.iter().copied().eq((0..16).map(|n| n * 4096)));
    let events = sys.file_events();
    let sync = events.iter().position(|event| **event == Event::Sync).unwrap();
    let (before, after) = events.split_at(sync);
    assert!(before.iter().all(|event| !matches!(event, Event::Read(..))));
    assert!(after.iter().all(|event| !matches!(event, Event::Write(..))));
    let visits: Vec<_> = after[1..].chunks(18).collect();
    assert!(visits.len() > 100, "{}", visits.len());
    for visit in visits {
        let [Event::Open(name), reads @ .., Event::Close(closed)] = visit else {
            panic!("{visit:?}")
        };
        assert_eq!(name, closed);
        for read in reads {
            let Event::Read(other, at, 4096) = read else { panic!("{read:?}") };
            assert!(other == name && at % 4096 == 0 && *at < 64 << 10);
        }
    }
    // As long as the writing took: here readers run one after another, so that only the first of them has
    // any time.
    let phase = sys.samples("Write phase")[0];
    assert!(phase > 0.0 && sys.samples("Write").len() == 1);
    assert!(sys.latencies["small-files-visit"] > 100);
}

#[test]
fn thpfioscale_fills_half_of_its_area_while_small_files_are_read() {
    let mut sys = Fake::new(PAGES);
    let values = [("memory", text("16 MiB")), ("read_seconds", Value::Integer(1))];
    sys.run(configured("thpfioscale", values).code()).unwrap();
    assert_eq!(sys.files, BTreeMap::new(), "all are deleted");
    let processes = sys.spawned().iter().filter(|spec| spec.new_process).count();
    assert_eq!(processes, 4 + 4 + 1, "writers, readers, and whose memory it is");
    let nr_units = sys.samples("fault-base-1").len();
    let node = highorder_system::System::machine(&sys).nodes[0].total_pages;
    assert_eq!(nr_units as u64, node * 75 / 100 / 2 / 512);
    assert_eq!(sys.samples("Percentage huge-1"), [0.0]);
}

#[test]
fn thpfioscale_writes_its_files_in_turns_and_keeps_open_what_it_reads() {
    let mut sys = Fake::new(PAGES);
    let values = [("memory", text("16 MiB")), ("read_seconds", Value::Integer(1))];
    sys.run(configured("thpfioscale", values).code()).unwrap();
    let events = sys.file_events();
    let sync = events.iter().position(|event| **event == Event::Sync).unwrap();
    let (before, after) = events.split_at(sync);
    // Of 64 files of a writer the first block each, then the second; and none is closed before all are written.
    let of_one = before.iter().filter_map(|event| match event {
        Event::Write(name, at, 4096) if name.starts_with("small-files/3/") => {
            Some((name.as_str(), at / 4096))
        }
        _ => None,
    });
    let names: Vec<String> = (0..64).map(|file| format!("small-files/3/{file}")).collect();
    let turns = (0..16).flat_map(|at| names.iter().map(move |name| (name.as_str(), at)));
    assert!(of_one.eq(turns));
    let is_of_one = |name: &str| name.starts_with("small-files/3/");
    let written =
        before.iter().rposition(|event| matches!(event, Event::Write(n, ..) if is_of_one(n)));
    let closed = before.iter().position(|event| matches!(event, Event::Close(n) if is_of_one(n)));
    assert!(written < closed);
    let mut opened = Vec::new();
    let mut reads = Vec::new();
    for event in after {
        match event {
            Event::Open(name) => {
                assert!(!opened.contains(name), "{name} is open");
                opened.push(name.clone());
            }
            Event::Read(name, at, 4096) => reads.push((name.clone(), at / 4096)),
            _ => {}
        }
    }
    assert!(!reads.is_empty());
    for visit in reads.chunks(16) {
        let mut blocks: Vec<u64> = visit.iter().map(|&(_, at)| at).collect();
        blocks.sort_unstable();
        assert!(blocks.into_iter().eq(0..16), "each block once");
        assert!(visit.iter().all(|(name, _)| *name == visit[0].0));
    }
}

#[test]
fn small_files_go_all_or_by_halves_at_random() {
    assert_eq!(small_files(1, "all").files, BTreeMap::new());
    let half = small_files(1, "half");
    assert_eq!(half.files.len(), 128);
    let mut runs = 0;
    let there: Vec<bool> =
        (0..64).map(|file| half.files.contains_key(&format!("small-files/0/{file}"))).collect();
    for pair in there.windows(2) {
        runs += usize::from(pair[0] != pair[1]);
    }
    // 32 changes are expected of 64 coins; four, or sixty, would be a pattern.
    assert!((12..=52).contains(&runs), "{runs}");
}

#[test]
fn small_files_stay_small_whatever_the_scale() {
    let values = configured("small-files", []).scaled(1, 16).values();
    assert_eq!((values["file_size"].as_str(), values["block"].as_str()), ("64 KiB", "4 KiB"));
    assert_eq!(values["memory"], "1.5");
}

#[test]
fn memhog_writes_once_and_sleeps_with_its_memory() {
    let mut sys = Fake::new(PAGES);
    sys.run(configured("memhog", [("hold_seconds", Value::Integer(7))]).code()).unwrap();
    let [hog] = &sys.unmapped[..] else { panic!("{:?}", sys.unmapped) };
    assert_eq!(hog.area.pages, PAGES * 3 / 4);
    assert!(hog.writes.iter().all(|&writes| writes == 1));
    let at = |wanted: &Event| sys.events.iter().position(|event| event == wanted).unwrap();
    assert!(at(&Event::Sleep(Ns::from_secs(7))) < at(&Event::Unmap(hog.area)));
}

/// Ten parts as long as each other: headers are read, and the heap grows, in the first seven.
#[test]
fn a_compiler_s_heap_grows_while_it_reads_and_four_tenths_of_it_are_in_use() {
    let mut sys = Fake::new(PAGES);
    let values = [
        ("builds", text("yes")),
        ("passes", Value::Integer(0)),
        ("rested", text("no")),
        ("warm_seconds", Value::Integer(0)),
    ];
    // Memory for `make` and one compiler: with the next one the build ends.
    sys.mappings_max = 2;
    assert!(sys.run(configured("stress-highalloc", values).code()).is_err());
    let is_spawn = |event: &Event| matches!(event, Event::Spawn(_));
    let begins = sys.events.iter().position(
        |event| matches!(event, Event::Spawn(spec) if spec.name == "cc1" && spec.new_process),
    );
    let rest = &sys.events[begins.unwrap() + 1..];
    let compiler = &rest[..rest.iter().position(is_spawn).unwrap()];
    let parts: Vec<&[Event]> =
        compiler.split(|event| *event == Event::Compute(Ns::from_millis(30))).collect();
    assert_eq!(parts.len(), 11, "ten, and what comes after the last");
    let heap = compiler.iter().find_map(|event| match event {
        Event::Map(area) => Some(*area),
        _ => None,
    });
    let heap = heap.unwrap();
    let mut used = vec![0_u32; heap.pages as usize];
    let mut nr_there = 0;
    for (number, part) in parts[..10].iter().enumerate() {
        let reads = part.iter().filter(|event| matches!(event, Event::Open(_))).count();
        assert_eq!(reads > 0, number < 7, "{reads} files are read in part {number}");
        used.fill(0);
        for event in *part {
            if let Event::Touch(area, how) = event {
                assert_eq!(*how, Pattern::word(Access::Write));
                let first = (area.first - heap.first) as usize;
                used[first..first + area.pages as usize].iter_mut().for_each(|times| *times += 1);
            }
        }
        assert!(used.iter().all(|&times| times <= 1), "no page is gone to twice in a part");
        let nr_used = used.iter().filter(|&&times| times > 0).count() as u64;
        let new = used.iter().skip(nr_there as usize).filter(|&&times| times > 0).count() as u64;
        nr_there += new;
        if number < 7 {
            assert!((new * 7).abs_diff(heap.pages) <= 7, "{new} new pages in part {number}");
        } else {
            assert_eq!((new, nr_there), (0, heap.pages));
            assert!((nr_used * 10).abs_diff(heap.pages * 4) < heap.pages / 2, "{nr_used}");
        }
    }
}

#[test]
fn stress_highalloc_asks_at_its_pace_and_gives_all_back_after_each_pass() {
    let mut sys = Fake::new(PAGES);
    sys.blocks_max = 10;
    sys.run(configured("stress-highalloc", []).code()).unwrap();
    // 95 % of 64 MiB is 30 blocks of 2 MiB, and 10 of 30 are 33 %.
    let kind = KernelBlock::Module { order: 9 };
    let taken = |had| sys.events.iter().filter(|e| **e == Event::Take(kind, had)).count();
    assert_eq!((taken(true), taken(false)), (30, 60));
    for row in ["Pass 1", "Pass 2", "while Rested"] {
        assert_eq!(sys.samples(row), [33.0], "{row}");
        assert_eq!(sys.rows[row].better, Better::Points);
    }
    // The call takes 100 ns of the 125 ms.
    let pause = Event::Sleep(Ns(125_000_000 - 100));
    assert_eq!(sys.events.iter().filter(|event| **event == pause).count(), 90);
    let last = |wanted: &Event| sys.events.iter().rposition(|event| event == wanted).unwrap();
    let knob = Event::Knob("vm.min_free_kbytes".to_owned(), "1024".to_owned());
    let drop = Event::Drop(Caches::All);
    assert!(last(&Event::Sleep(Ns::from_secs(180))) < last(&drop) && last(&drop) < last(&knob));
    assert_eq!(sys.file_bytes_moved(), (PAGES * 4096, PAGES * 4096));
    assert_eq!(sys.files, BTreeMap::new());
}

#[test]
fn thpscale_punches_holes_of_half_a_huge_page_and_tells_base_from_huge() {
    for is_huge in [false, true] {
        let mut sys = Fake::new(PAGES);
        sys.faults_are_huge = is_huge;
        sys.run(configured("thpscale", [("advice", text("huge"))]).with_threads(1).code()).unwrap();
        // 0.8 of 64 MiB and 6 MiB more, in whole huge pages.
        let share = (PAGES * 4 / 5 + 6 * 256).next_multiple_of(512);
        let halves = sys.unmapped.iter().filter(|mapping| mapping.area.pages == 256);
        assert_eq!(halves.count() as u64, 2 * share / 512, "the first halves, then the others");
        let (there, other) =
            if is_huge { ("fault-huge", "fault-base") } else { ("fault-base", "fault-huge") };
        // Half of it before it was rounded up.
        let units = (PAGES * 4 / 5 / 2 / 512) as usize;
        assert_eq!(sys.samples(&format!("{there}-1")).len(), units);
        assert_eq!(sys.samples(&format!("{other}-1")), [0.0], "stands for none");
        assert_eq!(sys.samples("Percentage huge-1"), [if is_huge { 100.0 } else { 0.0 }]);
        let timed = sys.unmapped.iter().find(|mapping| mapping.area.pages == share / 2).unwrap();
        assert_eq!(timed.advice, Some(Advice::Huge));
        let advised = sys.unmapped.iter().filter(|mapping| mapping.advice.is_some());
        assert_eq!(advised.count(), 1, "the one whose faults are timed");
        let (whole, rest) = timed.writes.split_at(units * 512);
        assert!(whole.iter().all(|&writes| writes > 0) && rest.iter().all(|&writes| writes == 0));
        assert_eq!(sys.files, BTreeMap::new());
    }
}

#[test]
fn stutter_takes_the_time_of_mappings_less_the_pause() {
    let mut sys = Fake::new(PAGES);
    sys.naps_max = 20;
    let values = [("mapping", text("1 MiB")), ("rounds", Value::Integer(2))];
    sys.run(configured("stutter", values).code()).unwrap();
    // 11 ns a page.
    let each = 256.0 * 11.0 / 1e6;
    assert_eq!(sys.samples("mmap"), [each; 20]);
    let hogs: Vec<u64> = sys.spawned().iter().map(|spec| u64::from(spec.new_process)).collect();
    assert_eq!(hogs, [1, 1, 1], "the sampler, and a hog for each round");
    assert_eq!(sys.samples("Killed"), [3.0]);
    let file = 2 * PAGES * 4096;
    assert_eq!(sys.file_bytes_moved(), (file + 2 * file, 2 * file), "written once, copied twice");
    assert_eq!(sys.files, BTreeMap::new());
}

#[test]
fn numa_thp_bench_binds_what_it_writes_and_runs_where_it_is_told() {
    let mut sys = Fake::new(PAGES);
    let values = [
        ("area", text("4 MiB")),
        ("cpu_node", Value::Integer(1)),
        ("writes", Value::Integer(5000)),
    ];
    sys.run(configured("numa-thp-bench", values).code()).unwrap();
    assert_eq!(sys.spawned()[0].place, Place::Node(NodeId(1)));
    let (huge, base) = (Some(Advice::Huge), Some(Advice::NoHuge));
    let advised: Vec<_> = sys.unmapped.iter().map(|mapping| mapping.advice).collect();
    assert_eq!(advised, [huge, base, base, huge]);
    for mapping in &sys.unmapped {
        let bound = Event::Bind(mapping.area, MemPolicy::Bind(1));
        assert!(sys.events.contains(&bound));
        assert_eq!(mapping.writes.iter().sum::<u64>(), 1024 + 5000);
    }
    for row in ["MADV_HUGEPAGE", "MADV_NOHUGEPAGE"] {
        // 11 ns a write, the first touches left out.
        assert_eq!(sys.samples(row), [5000.0 * 11.0 / 1000.0; 2], "{row}");
    }
}

#[test]
fn mmap_demo_keeps_a_page_in_each_pageblock_of_a_share_of_its_node() {
    // Half of 64 MiB is on the node, half of that 8 huge pages.
    for (with, blocks) in [("pinned", 8), ("anon", 0), ("file", 0)] {
        let mut sys = Fake::new(PAGES);
        let values = [("fragment", Value::Integer(50)), ("fragment_with", text(with))];
        sys.run(configured("mmap-demo", values).code()).unwrap();
        let at = |wanted: &Event| sys.events.iter().position(|event| event == wanted);
        assert!(at(&Event::Move(Place::Node(NodeId(0)))) < at(&Event::Move(Place::Any)), "{with}");
        assert!(at(&Event::Move(Place::Any)) < at(&Event::Before), "{with}");
        let kept = sys.events.iter().skip_while(|event| **event != Event::Before);
        let freed = kept.filter(|event| matches!(event, Event::Free(_))).count();
        assert_eq!(freed, blocks, "{with}: what stayed is given back at the end");
        let pages: u64 = sys.unmapped[..sys.unmapped.len() - usize::from(with == "anon")]
            .iter()
            .map(|mapping| mapping.writes.iter().filter(|&&writes| writes > 0).count() as u64)
            .sum();
        assert!(pages >= PAGES * 4 / 5, "{with}");
        if with == "anon" {
            let last = sys.unmapped.last().unwrap();
            assert_eq!(last.writes.iter().sum::<u64>(), 8, "a page of each unit stayed");
        }
        assert_eq!(sys.files, BTreeMap::new(), "{with}");
    }
}

#[test]
fn a_recorded_thpscale_fragments_memory_and_touches_huge_pages_places_round_by_round() {
    let mut sys = Fake::new(PAGES);
    let line = "thpscale -d /data -t 1,2";
    // Its memory is its process's to the end, so that it is still there when the fake looks.
    let program = Program::parse(line).unwrap();
    let code = program.code();
    code(&mut sys).unwrap();
    // 30 % of memory in whole units of 512 pages, and as many files of 64 KiB as fill half of memory.
    let anon = PAGES * 30 / 100 / 512 * 512;
    let first = &sys.mapped[0];
    assert_eq!((first.area.pages, first.advice), (anon, Some(Advice::NoHuge)));
    let stays = |(page, &writes): (usize, &u64)| (writes == 1) == (page % 2 == 0);
    assert!(first.writes.iter().enumerate().all(stays), "every other page is there");
    let files = PAGES / 2 * 4096 / (64 << 10);
    assert_eq!(sys.file_bytes_moved(), (files << 16, files << 16));
    // Writing and touching take turns: no two MiB of memory without files between them.
    let turns = sys.events.iter().filter_map(|event| match event {
        Event::Touch(..) => Some('t'),
        Event::Create(_) => Some('f'),
        _ => None,
    });
    let turns: String = turns.take((files + anon / 256) as usize).collect();
    assert!(!turns.contains("tt"), "{turns}");
    // Two rounds of 40 %, which are unmapped; in the second each thread has a half.
    let rounds: Vec<_> =
        sys.unmapped.iter().map(|round| (round.area.pages, round.advice)).collect();
    let half = PAGES * 40 / 100 / 2 / 512 * 512;
    assert_eq!(rounds, [PAGES * 40 / 100 / 512 * 512, 2 * half].map(|n| (n, Some(Advice::Huge))));
    assert!(sys.unmapped.iter().all(|round| round.writes.iter().all(|&writes| writes == 1)));
    assert_eq!(sys.held.as_ref().map(Vec::len), Some(2), "held with the last round there");
}

#[test]
fn a_recorded_slabload_unlinks_half_of_its_files_or_stops_where_no_inodes_are_left() {
    let run = |script: Script| {
        let mut sys = Fake::new(PAGES);
        script.code(None)(&mut sys).unwrap();
        let count = |wanted: fn(&&Event) -> bool| sys.events.iter().filter(wanted).count();
        let created = count(|event| matches!(event, Event::Create(_)));
        (created, count(|event| matches!(event, Event::Unlink(_))))
    };
    let script = || Script::parse("slabload -n 4000").unwrap();
    let (created, unlinked) = run(script());
    assert_eq!(created, 4000);
    assert!((1800..2200).contains(&unlinked), "{unlinked}");
    // 501 inodes are 500 files and their directory.
    assert_eq!(run(script().with_inodes(1002)), (1000, 0));
    assert_eq!(run(script().with_inodes(100_000)), (created, unlinked));
}

#[test]
fn a_recorded_churn_stays_under_its_size_and_replaces_what_is_oldest() {
    let mut sys = Fake::new(PAGES);
    Script::parse("churn -n 500 -m 8").unwrap().code(None)(&mut sys).unwrap();
    let held: u64 = sys.mapped.iter().map(|mapping| mapping.area.pages).sum();
    assert!(held <= 8 * 256, "{held}");
    assert_eq!(sys.mapped.len() + sys.unmapped.len(), 500);
    let all = || sys.mapped.iter().chain(&sys.unmapped);
    assert!(all().all(|mapping| mapping.writes.iter().all(|&writes| writes == 1)));
    let huge = all().filter(|mapping| mapping.advice == Some(Advice::Huge)).count();
    assert!((45..=105).contains(&huge), "15 of 100: {huge}");
}

/// What a recorded command line does on the fake system.
fn recorded(line: &str) -> Fake {
    let mut sys = Fake::new(PAGES);
    Script::parse(line).unwrap().code(None)(&mut sys).unwrap();
    sys
}

/// Bytes that were written to each file, in all.
fn written(sys: &Fake) -> BTreeMap<String, u64> {
    let mut files = BTreeMap::new();
    for event in &sys.events {
        if let Event::Write(name, _, bytes) = event {
            *files.entry(name.clone()).or_default() += bytes;
        }
    }
    files
}

#[test]
fn a_recorded_thpscale_without_a_hint_advises_nothing_of_its_mapping() {
    let sys = recorded("thpscale -a 10 -p 40 -t 1 -N");
    let process = |mapping: &&fake::Mapping| mapping.area.pages == PAGES * 40 / 100 / 512 * 512;
    let round = sys.unmapped.iter().find(process).expect("the round's mapping was unmapped");
    assert_eq!(round.advice, None);
}

#[test]
fn a_recorded_dd_writes_a_file_and_reads_another_through() {
    let sys = recorded(
        "dd if=/dev/zero of=/data/f bs=1M count=12 2>/dev/null; sync; dd if=/data/f of=/dev/null bs=1M",
    );
    let reads: u64 = sys
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Read(name, _, bytes) if name == "f" => Some(*bytes),
            _ => None,
        })
        .sum();
    assert_eq!((written(&sys)["f"], reads), (12 << 20, 12 << 20));
    let sync = sys.events.iter().position(|event| *event == Event::Sync).expect("it is synced");
    let last_write = sys.events.iter().rposition(|event| matches!(event, Event::Write(..)));
    assert!(last_write < Some(sync));
    for line in
        ["dd if=/dev/zero of=/data/f bs=1M", "dd if=/dev/sda of=/dev/null bs=1M", "dd bs=1M"]
    {
        assert!(Script::parse(line).is_err(), "{line}");
    }
}

#[test]
fn a_recorded_fsmark_keeps_as_many_files_as_memory_holds_in_each_iteration() {
    let files = written(&recorded("fsmark -t 4 -s 1024 -i 3 -p 50"));
    let each = PAGES * 4096 / 2 / (1 << 20) / 4;
    assert_eq!(files.len() as u64, 3 * 4 * each);
    assert!(files.values().all(|&bytes| bytes == 1 << 20), "{files:?}");
}

#[test]
fn a_recorded_postmark_begins_with_files_of_percents_of_memory_and_leaves_none() {
    let sys = recorded("postmark -p 200 -x 50");
    let created = sys.events.iter().filter(|event| matches!(event, Event::Create(_))).count();
    let first = PAGES * 4096 * 2 / (5 << 20);
    assert!((first as usize..=first as usize + 50).contains(&created), "{created} of {first}");
    assert!(sys.files.is_empty());
    assert!(written(&sys).values().all(|&bytes| (3096..=5 << 20).contains(&bytes)));
}

#[test]
fn a_recorded_mapstream_writes_every_page_of_its_files_once() {
    let sys = recorded("mapstream -n 2 -p 150");
    let files: Vec<_> = sys.unmapped.iter().filter(|mapping| mapping.file.is_some()).collect();
    assert_eq!(files.len(), 2);
    for mapping in files {
        assert_eq!(mapping.area.pages, PAGES * 150 / 100 / 2);
        assert!(mapping.writes.iter().all(|&writes| writes == 1));
    }
}

#[test]
fn a_recorded_stutter_makes_its_file_first_and_copies_it_in_each_round() {
    let mut sys = Fake::new(PAGES);
    sys.naps_max = 20;
    let setup = Script::parse("stutter -s").unwrap();
    assert!(!setup.leaves_files(), "it drops the file from memory");
    let rounds = Script::parse("stutter -r 2 -m 1 -p 70 >/dev/null 2>&1").unwrap();
    rounds.code(Some(setup))(&mut sys).unwrap();
    let before = sys.events.iter().position(|event| *event == Event::Before).unwrap();
    let made = sys.events[..before].iter().any(|event| matches!(event, Event::Create(_)));
    assert!(made && sys.events[..before].contains(&Event::Drop(Caches::All)));
    let bytes = 2 * PAGES * 4096;
    let copied: u64 = sys.events[before..]
        .iter()
        .filter_map(|event| match event {
            Event::Write(_, _, bytes) => Some(*bytes),
            _ => None,
        })
        .sum();
    assert_eq!(copied, 2 * bytes);
    let maps = |pages: u64| {
        let of = |event: &&Event| matches!(event, Event::Map(area) if area.pages == pages);
        sys.events.iter().filter(of).count()
    };
    assert_eq!(maps(PAGES * 70 / 100), 2, "a hog for each round");
    assert!(maps(256) > 0, "mappings of 1 MiB are timed");
}

#[test]
fn a_recorded_highalloc_makes_trees_of_files_first() {
    let script = Script::parse("highalloc -S -k 2 -f 40 -M 10").unwrap();
    assert!(script.leaves_files() && script.loads_slab());
    let files = written(&recorded("highalloc -S -k 2 -f 40 -M 10"));
    assert_eq!(files.len(), 80);
    assert_eq!(files.values().sum::<u64>(), 2 * (10 << 20));
    for line in
        ["highalloc -k 2 -f 40", "highalloc -k 0 -f 40 -M 10", "mapstream -n 2", "fsmark -s 0"]
    {
        assert!(Script::parse(line).is_err(), "{line}");
    }
}

/// The workload with these values, so small that it does not take long; one of another name has its defaults.
fn small(name: &str) -> Configured {
    let one = Value::Integer(1);
    let values = match name {
        "churn" => vec![("operations", Value::Integer(100))],
        "numa-thp-bench" => vec![("area", text("4 MiB")), ("writes", Value::Integer(1000))],
        "postmark" => vec![("transactions", Value::Integer(100))],
        "stutter" => vec![("mapping", text("1 MiB")), ("rounds", one)],
        "small-files" => vec![("memory", Value::Float(0.1))],
        "thpfioscale" => vec![("memory", Value::Float(0.1)), ("read_seconds", one)],
        "usemem" => vec![("passes", one)],
        _ => Vec::new(),
    };
    with_values(name, values)
}

fn with_values(name: &str, values: Vec<(&str, Value)>) -> Configured {
    let values = values.into_iter().map(|(key, value)| (key.to_owned(), value));
    find(name, &values.collect()).unwrap().scaled(1, 64)
}

#[test]
fn a_workload_looks_at_late_parameters_once_it_has_parted_and_not_before() {
    let mut names = Vec::new();
    for name in highorder_workload::names() {
        let workload = small(name);
        let Some(early) = workload.values_at_first() else { continue };
        assert!(early.len() < workload.values().len(), "{name}");
        let mut whole = Fake::new(PAGES);
        whole.run(workload.code()).unwrap();
        let choice = Choice::default();
        let mut parted = Fake::new(PAGES);
        parted.at_part = Some(Box::new({
            let (choice, workload) = (choice.clone(), workload.clone());
            move || choice.choose(&workload)
        }));
        // Whoever looks at what is still to be chosen panics.
        parted.run(workload.code_until_chosen(&choice)).unwrap();
        assert_eq!((whole.nr_parts, parted.nr_parts), (1, 1), "{name}");
        assert!(whole.events == parted.events && whole.rows == parted.rows, "{name}");
        names.push(*name);
    }
    assert_eq!(names, ["thpfioscale", "thpscale", "usemem"]);
}

#[test]
fn a_workload_says_whether_it_needs_files_and_creates_some_exactly_then() {
    let zero = Value::Integer(0);
    let check = |workload: Configured| {
        let name = workload.name();
        let mut sys = Fake::new(PAGES);
        // The sampler of stutter would never end.
        sys.naps_max = 20;
        sys.run(workload.code()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let creates = sys.events.iter().any(|event| matches!(event, Event::Create(_)));
        assert_eq!(workload.needs_files(), creates, "{name}");
        creates
    };
    // Its threads meet at a barrier, and the fake system runs one after another.
    assert!(configured("fleet", []).needs_files());
    for name in highorder_workload::names().iter().filter(|name| **name != "fleet") {
        check(small(name));
    }
    let passes = || ("passes", Value::Integer(1));
    assert!(!check(with_values("usemem", vec![passes(), ("file", NONE)])));
    assert!(!check(with_values("stress-highalloc", vec![("rested", text("no"))])));
    let fragment =
        |with| vec![passes(), ("fragment", Value::Integer(10)), ("fragment_with", text(with))];
    assert!(check(with_values("mmap-demo", fragment("file"))));
    assert!(!check(with_values("mmap-demo", fragment("anon"))));
    assert!(!check(with_values(
        "mmap-demo",
        vec![("fragment", zero), ("fragment_with", text("file"))]
    )));
}
