//! What the workloads ask of a system, checked call by call.

mod fake;

use fake::{Event, Fake};
use highorder_record::Better;
use highorder_system::{Access, Advice, Failure, Ns, Pattern, Place};
use highorder_workload::{Configured, Value, find};
use std::collections::BTreeMap;

/// A machine of 64 MiB.
const PAGES: u64 = 16_384;

fn configured<const N: usize>(name: &str, values: [(&str, Value); N]) -> Configured {
    find(name, &values.map(|(key, value)| (key.to_owned(), value)).into()).unwrap()
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

#[test]
fn usemem_writes_every_page_once_a_pass_and_frees_all() {
    let mut sys = Fake::new(PAGES);
    let values = [("memory", Value::Float(0.5)), ("passes", Value::Integer(7))];
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
fn usemem_has_one_process_with_a_thread_for_each_mapping() {
    let mut sys = Fake::new(PAGES);
    sys.run(configured("usemem", []).with_threads(4).code()).unwrap();
    let spawned: Vec<_> =
        sys.spawned().iter().map(|spec| (spec.name.clone(), spec.new_process)).collect();
    let thread = |number| (format!("usemem-{number}"), false);
    assert_eq!(spawned, [("usemem".to_owned(), true), thread(0), thread(1), thread(2), thread(3)]);
    assert!(sys.spawned().iter().all(|spec| spec.place == Place::Any));
}

#[test]
fn usemem_reports_seconds_under_its_number_of_threads() {
    let mut sys = Fake::new(PAGES);
    let values = [("memory", text("40 MiB")), ("passes", Value::Integer(2))];
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
    // dd maps nothing: what it uses are files.
    for name in highorder_workload::names().iter().filter(|&&name| name != "dd") {
        let mut sys = Fake::new(PAGES);
        let workload = configured(name, []).scaled(1, 64).with_threads(2);
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
    assert_eq!(sys.files, [(String::new(), 5 << 20)], "all of it written, and the name gone");
    assert_eq!(sys.samples("Write").len() + sys.samples("Read").len(), 0, "no time passes here");
}

#[test]
fn a_killed_process_is_counted_and_its_times_are_not() {
    for (name, rows) in [
        ("usemem", &["Killed-2"][..]),
        // The first pass does not end.
        ("mmap-demo", &["Killed"]),
        ("churn", &["Killed-2"]),
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
    for (name, mappings_max) in [("usemem", 1), ("mmap-demo", 0), ("churn", 2)] {
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
        assert_eq!(process.place, Place::Node(1));
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
