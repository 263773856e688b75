//! The files that a kernel starts its first program from: in memory alone, and where memory runs out in swap, or not.

use crate::common::model;
use highorder_kernels::machine;
use highorder_model::run_on;
use highorder_record::Inputs;
use highorder_system::{Access, Code, Failure, Ns, Pattern, ThreadSpec};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A program of this size is used, then half as much again as memory has, then the program again.
fn use_program_around_memory(text_bytes: u64) -> Code {
    Box::new(move |sys| {
        sys.unpack_file("program", text_bytes)?;
        let page_bytes = sys.machine().page_bytes;
        let file = sys.open_file("program")?;
        let text = sys.map_file(file, 0, text_bytes / page_bytes, Access::Read)?;
        sys.close_file(file)?;
        sys.touch_range(text, Pattern::word(Access::Read))?;
        let memory = sys.machine().total_pages;
        for _ in 0..3 {
            let all = sys.mmap(memory + memory / 4)?;
            sys.touch_range(all, Pattern::word(Access::Write))?;
            sys.munmap(all)?;
        }
        sys.touch_range(text, Pattern::word(Access::Read))
    })
}

#[test]
fn a_program_goes_to_swap_from_3_12_on_alone() {
    const TEXT: u64 = 1 << 20;
    let mut machine = machine::load("guest-tcg").unwrap().scaled(1, 16).unwrap();
    machine.swap[0].bytes = 128 << 20;
    for (kernel, goes) in [("linux-3.3", false), ("linux-4.4", true), ("linux-6.12", true)] {
        let spec = model(machine.clone(), kernel, "never");
        let (record, mut world) =
            run_on(spec, Inputs::default(), use_program_around_memory(TEXT)).unwrap();
        world.memory.lru_add_drain_all();
        world.memory.audit().unwrap();
        let rise = |name: &str| record.delta(name).expect("every kernel counts that");
        // Nothing else of this run is ever read: what is written once is unmapped.
        assert_eq!((rise("pgmajfault") > 0, rise("pswpin") > 0), (goes, goes), "{kernel}");
    }
}

#[test]
fn whoever_uses_a_page_on_its_way_to_swap_waits_until_it_is_there() {
    const TEXT: u64 = 4 << 20;
    /// Uses of the text beside the program that fills memory.
    const USES: u32 = 4000;
    let mut machine = machine::load("guest-tcg").unwrap().scaled(1, 16).unwrap();
    machine.swap[0].bytes = 128 << 20;
    let spec = model(machine, "linux-4.4", "never");
    let waited = Arc::new(AtomicU32::new(0));
    let count = waited.clone();
    let code: Code = Box::new(move |sys| {
        sys.unpack_file("/program", TEXT)?;
        let page_bytes = sys.machine().page_bytes;
        let reader: Code = Box::new(move |sys| {
            let file = sys.open_file("/program")?;
            let pages = TEXT / page_bytes;
            let text = sys.map_file(file, 0, pages, Access::Read)?;
            for number in 0..USES {
                let began = sys.now();
                let at = u64::from(number) * 37 % pages;
                sys.touch_range(text.part(at, 1), Pattern::word(Access::Read))?;
                count.fetch_add(u32::from(sys.now() > began), Ordering::Relaxed);
                sys.sleep(Ns::from_micros(300))?;
            }
            Ok(())
        });
        let reader = sys.spawn(ThreadSpec::process("reader"), reader)?;
        let memory = sys.machine().total_pages;
        for _ in 0..6 {
            let all = sys.mmap(memory + memory / 4)?;
            sys.touch_range(all, Pattern::word(Access::Write))?;
            sys.munmap(all)?;
        }
        sys.join(reader)
    });
    let (record, mut world) = run_on(spec, Inputs::default(), code).unwrap();
    world.memory.lru_add_drain_all();
    world.memory.audit().unwrap();
    assert!(record.delta("pswpin").unwrap() > 0);
    assert!(waited.load(Ordering::Relaxed) > 0);
}

#[test]
fn what_the_kernel_unpacked_is_only_read() {
    let machine = machine::load("guest-tcg").unwrap().scaled(1, 16).unwrap();
    let spec = model(machine, "linux-6.12", "never");
    let code: Code = Box::new(|sys| {
        let refused = |failure: Result<(), Failure>| {
            let Err(Failure::Refused(told)) = failure else { panic!("{failure:?}") };
            assert!(told.contains("`/program`") && told.ends_with("only read"), "{told}");
        };
        sys.unpack_file("/program", 1 << 20)?;
        let file = sys.open_file("/program")?;
        assert_eq!(sys.file_bytes(file)?, 1 << 20);
        sys.read_file(file, 0, 1 << 20)?;
        refused(sys.unpack_file("/program", 4096));
        refused(sys.create_file("/program").map(|_| ()));
        refused(sys.write_file(file, 0, 4096));
        refused(sys.set_file_bytes(file, 0));
        refused(sys.map_file(file, 0, 1, Access::Write).map(|_| ()));
        refused(sys.unlink("/program"));
        // A file of the disk is another one.
        let program = sys.create_file("program")?;
        sys.write_file(program, 0, 4096)?;
        sys.unlink("program")
    });
    let (_, world) = run_on(spec, Inputs::default(), code).unwrap();
    world.memory.audit().unwrap();
}
