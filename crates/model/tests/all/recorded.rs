//! Recorded programs on the model, where the tests' fake system cannot run them: with others in the background.

use crate::common;
use highorder_kernels::machine;
use highorder_model::run;
use highorder_record::{Inputs, State};
use highorder_sim::Ns;
use highorder_system::{KernelBlock, System};
use highorder_workload::recorded::{Results, Script, Shell, Told};

#[test]
fn highalloc_has_its_passes_under_load_and_one_at_rest() {
    let spec = common::model(machine::load("guest-tcg").unwrap(), "linux-3.5", "always");
    let setup = Script::parse("highalloc -S -k 2 -f 200 -M 40").unwrap();
    let script = Script::parse("highalloc -k 2 -f 200 -M 40 -w 2 -m 5").unwrap();
    let record = run(spec, Inputs::default(), script.code(Some(setup))).unwrap();
    let success = |pass: &str| {
        let name = format!("highalloc.{pass}.pct");
        let row = record.metrics.iter().find(|metric| metric.name == name);
        row.unwrap_or_else(|| panic!("{name} is reported")).samples[0]
    };
    for pass in ["pass1", "pass2", "rested"] {
        assert!((1.0..=100.0).contains(&success(pass)), "{pass}: {}", success(pass));
    }
    assert!(success("rested") >= success("pass1"), "{} {}", success("rested"), success("pass1"));
    // The trees have gone, and the file of memory's size was read as it was written: what is left are objects.
    let files = record.after.counters["nr_file_pages"];
    assert!(files < record.before.counters["nr_file_pages"], "{files} pages of files are left");
    assert!(record.delta("compact_stall").unwrap() > 0);
}

/// What a command line activates on an idle guest under this kernel.
fn activated(kernel: &str, line: &str) -> i64 {
    let spec = common::model(machine::load("guest-tcg").unwrap(), kernel, "always");
    let script = Script::parse(line).unwrap();
    run(spec, Inputs::default(), script.code(None)).unwrap().delta("pgactivate").unwrap()
}

#[test]
fn a_file_that_is_sent_is_not_used_before_4_9_and_one_that_is_read_is() {
    let written = "dd if=/dev/zero of=/data/f bs=1M count=40 2>/dev/null; sync";
    let sent = format!("{written}; cat /data/f > /dev/null");
    let read = format!("{written}; dd if=/data/f of=/dev/null bs=1M");
    // In 4.4 writing is a first use, and reading the second, which activates.
    let pages = 40 * 256;
    assert!(activated("linux-4.4", &sent) < pages / 100);
    let of_read = activated("linux-4.4", &read);
    assert!(of_read > pages * 9 / 10, "{of_read} of {pages}");
    // Since 4.7 writing is none, so that both are the first.
    for line in [&sent, &read] {
        assert!(activated("linux-4.14", line) < pages / 100, "{line}");
    }
}

/// How far a counter goes while a shell copies the counters around a second in which nothing else runs.
fn around_nothing(kernel: &str, by_shell: bool, counter: &str) -> i64 {
    let spec = common::model(machine::load("guest-tcg").unwrap(), kernel, "never");
    let script = Script::parse("sleep 1").unwrap();
    let script = if by_shell { script.by_shell(Shell::default()) } else { script };
    let record = run(spec, Inputs::default(), script.code(None)).unwrap();
    assert_eq!(record.delta("pgmajfault"), Some(0), "{kernel}");
    record.delta(counter).unwrap()
}

#[test]
fn the_copies_of_the_counters_count_themselves() {
    for kernel in ["linux-3.5", "linux-4.4", "linux-6.12"] {
        assert_eq!(around_nothing(kernel, false, "pgfault"), 0, "{kernel}");
    }
    // Recorded: 186 on 4.4, 195 to 201 on 6.12; on 3.5, where each page of text faults, 433 with a program more.
    for (kernel, recorded) in [("linux-3.5", 433 * 8 / 9), ("linux-4.4", 186), ("linux-6.12", 195)]
    {
        let faults = around_nothing(kernel, true, "pgfault");
        assert!((faults - recorded).abs() <= recorded / 20, "{kernel}: {faults}, {recorded}");
    }
}

#[test]
fn the_text_of_the_copying_programs_becomes_active_when_the_first_of_them_ends() {
    // Recorded: 141 on 4.4, 272 on 4.20, 284 on 6.1.
    for (kernel, recorded) in [("linux-4.4", 141), ("linux-4.20", 272), ("linux-6.1", 284)] {
        let by_shell = around_nothing(kernel, true, "pgactivate");
        let otherwise = around_nothing(kernel, false, "pgactivate");
        assert!((recorded / 2..=recorded * 2).contains(&by_shell), "{kernel}: {by_shell}");
        assert!(otherwise < 10, "{kernel}: {otherwise}");
    }
}

#[test]
fn a_thread_that_computes_uses_its_cpu_for_so_long() {
    let spec = common::model(machine::load("guest-tcg").unwrap(), "linux-5.4", "never");
    let time = Ns::from_millis(300);
    let code = move |sys: &mut dyn System| {
        let (began, before) = (sys.now(), sys.cpu_use().user);
        sys.compute(time)?;
        assert_eq!(sys.cpu_use().user - before, time);
        assert!(sys.now() - began >= time);
        Ok(())
    };
    run(spec, Inputs::default(), Box::new(code)).unwrap();
}

#[test]
fn what_waits_for_its_reader_is_busy_meanwhile() {
    let spec = common::model(machine::load("guest-tcg").unwrap(), "linux-5.4", "always");
    let setup = Script::parse("dd if=/dev/zero of=/data/stream bs=1M count=40; sync").unwrap();
    let script = Script::parse("usemem -t 2 -m 64 -l 1 -f /data/stream").unwrap();
    let results = [("usemem.streamed_mb", vec![200.0]), ("usemem.loop_s", vec![1.0])];
    let results = results.map(|(name, values)| (name.to_owned(), values)).into();
    let script = script.in_step(Told { results, moments: Vec::new() });
    let record = run(spec, Inputs::default(), script.code(Some(setup))).unwrap();
    // It has little to do itself: of its 16384 pages one word each.
    let user = Ns(record.durations.user_ns.unwrap());
    assert!(user > Ns::from_millis(100), "{user:?}");
}

#[test]
fn files_are_read_again_about_as_often_as_they_were() {
    let read_mib = |again: f64| {
        let machine = machine::load("guest-tcg").unwrap().scaled(1, 4).unwrap();
        let spec = common::model(machine, "linux-5.0", "always");
        let script = Script::parse("fragmenter -t 2 -f 150 -a 20").unwrap();
        let results = [("fragmenter.reread_mb".to_owned(), vec![again])].into();
        let script = script.in_step(Told { results, moments: Vec::new() });
        let record = run(spec, Inputs::default(), script.code(None)).unwrap();
        record.delta("pgpgin").unwrap() as f64 / 1024.0
    };
    // Files are more than memory: what is read again is not in memory for the most part, and each side may be a little ahead.
    let [some, more] = [100.0, 400.0].map(read_mib);
    assert!((20.0..120.0).contains(&some) && (100.0..420.0).contains(&more), "{some} {more}");
    assert!((2.0..6.0).contains(&(more / some)), "{some} {more}");
}

#[test]
fn pages_of_the_pool_are_the_kernel_s_own_before_3_12_and_movable_since() {
    const PAGES: u64 = 20;
    let unmovable = |kernel: &str| {
        let spec = common::model(machine::load("guest-tcg").unwrap(), kernel, "never");
        let code = |sys: &mut dyn System| {
            for _ in 0..PAGES {
                sys.take_block(KernelBlock::Hugetlb)?.expect("memory is free");
            }
            Ok(())
        };
        let record = run(spec, Inputs::default(), Box::new(code)).unwrap();
        let blocks = |state: &State| -> u64 {
            state.zones.iter().filter_map(|zone| zone.pageblocks.get("Unmovable")).sum()
        };
        blocks(&record.after) - blocks(&record.before)
    };
    for kernel in ["linux-3.3", "linux-3.5"] {
        assert!(unmovable(kernel) >= PAGES - 1, "{kernel}: {}", unmovable(kernel));
    }
    for kernel in ["linux-4.4", "linux-6.12"] {
        assert_eq!(unmovable(kernel), 0, "{kernel}");
    }
}

#[test]
fn fragmenting_takes_as_long_as_it_did() {
    let elapsed = |results: Results| {
        let spec = common::model(machine::load("guest-tcg").unwrap(), "linux-4.4", "always");
        let script = Script::parse("thpscale -d /data -a 5 -f 5 -p 5 -t 1").unwrap();
        let script = script.in_step(Told { results, moments: Vec::new() });
        let record = run(spec, Inputs::default(), script.code(None)).unwrap();
        Ns(record.durations.elapsed_ns.unwrap())
    };
    let by_itself = elapsed(Results::new());
    assert!(by_itself < Ns::from_secs(10), "{by_itself:?}");
    let as_recorded = elapsed(Results::from([("thpscale.frag_s".to_owned(), vec![20.0])]));
    assert!((Ns::from_secs(20)..Ns::from_secs(25)).contains(&as_recorded), "{as_recorded:?}");
}

/// The share of pages written to swap that were rotated when they were written, of a program that needs more than memory
/// and has huge pages alone; its disk has so many queues.
fn rotated(kernel: &str, hardware_queues: u32) -> f64 {
    let mut machine = machine::load("guest-tcg").unwrap().scaled(1, 2).unwrap();
    machine.disks[0].hardware_queues = hardware_queues;
    // Alone on its host: which of two CPUs is first is the kernel's doing.
    machine.sched.host = None;
    let script = Script::parse("usemem -t 1 -p 110 -l 1 -H").unwrap();
    let record =
        run(common::model(machine, kernel, "always"), Inputs::default(), script.code(None));
    let record = record.unwrap();
    let delta = |name| record.delta(name).unwrap() as f64;
    assert!(delta("pswpout") > 20_000.0, "{kernel}: {}", delta("pswpout"));
    delta("pgrotated") / delta("pswpout")
}

#[test]
fn pages_of_a_split_huge_page_are_not_rotated_where_they_are_written_before_their_batch_is_back() {
    // One queue: all 512 pages are gathered, and written once they are back on their list.
    let share = rotated("linux-4.4", 1);
    assert!(share > 0.9, "{share}");
    // Several: a request goes as soon as the next one is begun. Later, any that is large.
    for (kernel, hardware_queues) in [("linux-4.4", 2), ("linux-4.14", 1), ("linux-5.4", 2)] {
        let share = rotated(kernel, hardware_queues);
        assert!((0.1..0.7).contains(&share), "{kernel}: {share}");
    }
}

#[test]
fn thpscale_splits_what_it_looks_at_before_3_4() {
    let of = |kernel: &str| {
        let spec = common::model(machine::load("guest-tcg-qemu64").unwrap(), kernel, "always");
        let script = Script::parse("thpscale -a 1 -p 20 -t 1").unwrap();
        let record = run(spec, Inputs::default(), script.code(None)).unwrap();
        let counted =
            ["thp_fault_alloc", "thp_split", "pgfault"].map(|name| record.delta(name).unwrap());
        let held = record.held.expect("held at the end of the last round");
        (counted, held.counters["nr_inactive_anon"])
    };
    let ([alloc, split, faults], inactive) = of("linux-3.3");
    assert!(alloc > 90, "{alloc} of about 100 are had");
    assert_eq!(split, alloc, "each is looked at");
    // Before it comes to its list: nobody has told yet that it is active, so that its 511 other parts are not.
    assert!((511 * alloc..512 * alloc).contains(&(inactive as i64)), "{inactive}");
    // Its parts stay mapped: nobody faults again.
    let (counted, inactive) = of("linux-3.4");
    assert_eq!(counted, [alloc, 0, faults]);
    assert!(inactive < 512, "{inactive}");
}
