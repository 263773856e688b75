//! Workloads on this machine's kernel: what they leave, how they fail, and that nothing stays behind.

use highorder_real::host::{HostError, HostSpec, MemoryRule, run};
use highorder_record::{Better, Inputs, Metric, Record, Source};
use highorder_system::{
    Access, Advice, BarrierId, BlockId, Code, CpuId, Failure, KernelBlock, NodeId, Ns, Page,
    Pattern, Place, System, ThreadSpec,
};
use highorder_workload::{Value, find};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::RwLock;
use std::time::Duration;

const MIB: u64 = 256;

fn spec(folder: &Path) -> HostSpec {
    HostSpec {
        sample_interval: Ns::from_millis(20),
        // The tests map little; the machine may be small.
        memory: MemoryRule::Leave { bytes: 64 << 20, may_swap: false },
        time_limit: Some(Ns::from_secs(60)),
        // They kill as the kernel would.
        kills_are_the_kernels: true,
        ..HostSpec::new(folder)
    }
}

/// Runs a workload with `change` made to what tests usually ask for.
fn run_with(
    change: impl FnOnce(&mut HostSpec),
    workload: impl FnOnce(&mut dyn System) -> Result<(), Failure> + Send + 'static,
) -> Result<Record, HostError> {
    let folder = tempfile::tempdir().unwrap();
    let mut spec = spec(folder.path());
    change(&mut spec);
    // A run's processes inherit the lock on settings of another run of this program.
    let alone = spec.apply_knobs.then(|| RUNS.write().unwrap_or_else(|e| e.into_inner()));
    let beside = alone.is_none().then(|| RUNS.read().unwrap_or_else(|e| e.into_inner()));
    let outcome = run(&spec, Inputs::default(), Box::new(workload));
    drop((alone, beside));
    outcome
}

/// Runs that change settings are made alone.
static RUNS: RwLock<()> = RwLock::new(());

fn run_plain(
    workload: impl FnOnce(&mut dyn System) -> Result<(), Failure> + Send + 'static,
) -> Result<Record, HostError> {
    run_with(|_| {}, workload)
}

/// Whether a thread of this name runs anywhere.
fn is_there(name: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let tasks = processes.filter_map(|process| fs::read_dir(process.path().join("task")).ok());
    tasks.flatten().flatten().any(|task| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    })
}

#[allow(unsafe_code, reason = "what the kernel does when memory runs out")]
fn kill_me() {
    // SAFETY: the process of the workload ends.
    unsafe { libc::raise(libc::SIGKILL) };
}

fn seconds() -> Metric {
    Metric::new("Took", "s", Better::Lower)
}

#[test]
fn every_page_touched_is_a_fault_of_the_record() {
    let record = run_plain(|sys| {
        let area = sys.mmap(64 * MIB)?;
        sys.madvise(area, Advice::NoHuge)?;
        let began = sys.now();
        for page in 0..area.pages {
            let before = sys.now();
            sys.touch(area.page(page), Access::Write)?;
            let took = sys.now() - before;
            sys.latency("fault", took);
        }
        let took = (sys.now() - began).as_secs_f64();
        sys.report(&seconds(), took);
        sys.note_held();
        sys.sleep(Ns::from_millis(100))?;
        sys.munmap(area)
    })
    .unwrap();
    assert_eq!(record.inputs.source, Source::Host);
    assert!(record.delta("pgfault").unwrap() >= 64 * MIB as i64, "{:?}", record.delta("pgfault"));
    assert_eq!(record.latencies["fault"].count(), 64 * MIB);
    assert_eq!(record.metric("Took").unwrap().samples.len(), 1);
    assert!(record.resident_kib_max.unwrap() >= 64 << 10);
    assert!(!record.before.zones.is_empty() && record.held.is_some());
    let elapsed = record.durations.elapsed_ns.unwrap();
    assert!((100_000_000..60_000_000_000).contains(&elapsed), "{elapsed}");
    assert!(record.durations.system_ns.unwrap() > 0);
    assert!(record.timeline.len() >= 5, "{} samples", record.timeline.len());
    assert!(record.timeline.get("MemFree", 0).is_some());
    assert_eq!(record.problems(), Vec::<String>::new());
}

#[test]
fn pages_come_and_go_as_the_kernel_is_asked() {
    run_plain(|sys| {
        let area = sys.mmap(600)?;
        assert_eq!(area.first % sys.machine().huge_pages, 0);
        sys.madvise(area, Advice::NoHuge)?;
        assert!(!sys.is_present(area.page(7))?);
        sys.touch_range(area.part(5, 5), Pattern::whole(Access::Write))?;
        assert!(sys.is_present(area.page(7))? && !sys.is_present(area.page(10))?);
        sys.madvise(area, Advice::DontNeed)?;
        assert!(!sys.is_present(area.page(7))?);
        sys.mlock(area.part(0, 4), true)?;
        assert!(sys.is_present(area.page(3))?, "locked is there");
        sys.mlock(area.part(0, 4), false)?;
        sys.munmap(area.part(100, 100))?;
        let gone = sys.touch(area.page(150), Access::Read).unwrap_err();
        assert!(gone.to_string().contains("not mapped"), "{gone}");
        sys.touch(Page(1), Access::Read).unwrap_err();
        sys.munmap(area.part(0, 100))?;
        sys.munmap(area.part(200, 400))
    })
    .unwrap();
}

#[test]
fn threads_and_processes_meet_and_each_process_has_its_own_memory() {
    let record = run_plain(|sys| {
        let barrier = sys.new_barrier(4)?;
        let mine = sys.mmap(16 * MIB)?;
        sys.touch_range(mine, Pattern::word(Access::Write))?;
        let member = move |number: u64| -> Code {
            Box::new(move |sys: &mut dyn System| {
                // Memory of the process that started this one is not here.
                assert!(sys.touch(mine.page(0), Access::Read).is_err() == (number > 0));
                let area = sys.mmap(number + 1)?;
                sys.touch_range(area, Pattern::word(Access::Write))?;
                sys.barrier(barrier)?;
                sys.report(&Metric::new(format!("Member-{number}"), "n", Better::Neutral), 1.0);
                sys.barrier(barrier)
            })
        };
        let mut threads = vec![sys.spawn(ThreadSpec::thread("same"), member(0))?];
        for number in 1..3 {
            threads.push(sys.spawn(ThreadSpec::process("other"), member(number))?);
        }
        sys.barrier(barrier)?;
        sys.barrier(barrier)?;
        threads.into_iter().try_for_each(|thread| sys.join(thread))
    })
    .unwrap();
    assert_eq!(record.metrics.len(), 3, "{:?}", record.metrics);
}

#[test]
fn a_process_may_start_processes_and_cpu_time_counts_each_once() {
    let record = run_plain(|sys| {
        let burn = |sys: &mut dyn System| {
            let area = sys.mmap(MIB)?;
            let began = sys.now();
            while sys.now() - began < Ns::from_millis(200) {
                sys.touch_range(area, Pattern::whole(Access::Write))?;
            }
            Ok(())
        };
        let before = sys.cpu_use();
        let outer = sys.spawn(
            ThreadSpec::process("outer").on(Place::Any),
            Box::new(move |sys| {
                let inner = sys.spawn(ThreadSpec::process("inner"), Box::new(burn))?;
                sys.join(inner)
            }),
        )?;
        sys.join(outer)?;
        let after = sys.cpu_use();
        let used = (after.user - before.user).as_secs_f64();
        sys.report(&seconds(), used);
        Ok(())
    })
    .unwrap();
    let used = record.metric("Took").unwrap().samples[0];
    // The inner one's 0.2 s, if this machine had them to give.
    assert!((0.01..0.35).contains(&used), "{used}");
    let all = record.durations.user_ns.unwrap() as f64 / 1e9;
    assert!(all >= used && all < 0.5, "{all}");
}

#[test]
fn a_thread_that_computes_uses_a_cpu_for_so_long() {
    run_plain(|sys| {
        let (began, before) = (sys.now(), sys.cpu_use().user);
        sys.compute(Ns::from_millis(100))?;
        let after = sys.cpu_use();
        assert!(sys.now() - began >= Ns::from_millis(100));
        // Reading its clock is a call on some machines, and counts as the kernel's time there.
        let used = (after.user + after.system).saturating_sub(before);
        assert!(used >= Ns::from_millis(90), "{used:?}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_killed_process_is_a_result_and_its_memory_is_gone() {
    let record = run_plain(|sys| {
        let child = sys.spawn(
            ThreadSpec::process("victim"),
            Box::new(|sys| {
                let area = sys.mmap(8 * MIB)?;
                sys.touch_range(area, Pattern::word(Access::Write))?;
                let sibling = ThreadSpec::thread("sibling");
                sys.spawn(sibling, Box::new(|sys| sys.sleep(Ns::from_secs(50))))?;
                kill_me();
                Ok(())
            }),
        )?;
        assert_eq!(sys.join(child), Err(Failure::Killed));
        sys.report(&seconds(), 1.0);
        Ok(())
    })
    .unwrap();
    assert_eq!(record.metrics.len(), 1);
    assert!(record.notes.contains(&"A process of the workload was killed.".to_owned()));
}

#[test]
fn a_run_of_which_a_process_was_killed_from_outside_leaves_no_record() {
    let outcome = run_with(
        |spec| spec.kills_are_the_kernels = false,
        |sys| {
            let child = ThreadSpec::process("victim");
            let child = sys.spawn(
                child,
                Box::new(|_| {
                    kill_me();
                    Ok(())
                }),
            )?;
            assert_eq!(sys.join(child), Err(Failure::Killed));
            Ok(())
        },
    );
    assert!(matches!(outcome, Err(HostError::Killed { nr: 1 })), "{outcome:?}");
}

#[test]
#[allow(unsafe_code, reason = "the warden is killed as a user might")]
fn a_run_whose_warden_is_killed_ends_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = run_with(
        |spec| spec.folder = Some(folder.path().to_owned()),
        |sys| {
            sys.create_file("file")?;
            let orphan = ThreadSpec::process("hi-warded");
            sys.spawn(orphan, Box::new(|sys| sys.sleep(Ns::from_secs(50))))?;
            // SAFETY: the first process's parent is the warden.
            unsafe { libc::kill(libc::getppid(), libc::SIGKILL) };
            sys.sleep(Ns::from_secs(50))
        },
    );
    assert!(matches!(outcome, Err(HostError::Warden)), "{outcome:?}");
    assert_eq!(names(folder.path()), [""; 0]);
    let gone = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        !is_there("hi-warded")
    });
    assert!(gone, "a process of the workload is left");
}

#[test]
fn runs_beside_each_other_end_each_for_itself() {
    // A run's processes may be forked while another run's pipes are open, and hold copies for as long as they live.
    let runs = |millis: u64| {
        move || {
            for _ in 0..10 {
                run_plain(move |sys| sys.sleep(Ns::from_millis(millis))).unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        for millis in [1, 10, 40, 100, 150, 200] {
            scope.spawn(runs(millis));
        }
    });
}

#[test]
fn a_workload_that_is_killed_leaves_a_record_that_says_so() {
    let record = run_plain(|sys| {
        let orphan = ThreadSpec::process("hi-orphan");
        sys.spawn(orphan, Box::new(|sys| sys.sleep(Ns::from_millis(300))))?;
        sys.report(&seconds(), 1.0);
        kill_me();
        Ok(())
    })
    .unwrap();
    assert!(record.notes.iter().any(|note| note.contains("out of memory")), "{:?}", record.notes);
    assert_eq!(record.metrics.len(), 1, "what was reported before is there");
    assert!(!is_there("hi-orphan"));
}

#[test]
fn more_memory_than_others_can_spare_is_refused() {
    let error = run_plain(|sys| {
        let all = sys.machine().total_pages;
        sys.mmap(2 * all).map(drop)
    })
    .unwrap_err()
    .to_string();
    assert!(error.contains("MiB are left to this run; it leaves 64 MiB to others"), "{error}");
    let leave_all = |spec: &mut HostSpec| {
        spec.memory = MemoryRule::Leave { bytes: 1 << 60, may_swap: false };
    };
    let error = run_with(leave_all, |_| Ok(())).unwrap_err();
    assert!(matches!(error, HostError::NoMemory { .. }), "{error}");
}

#[test]
fn memory_that_was_given_back_can_be_mapped_again() {
    run_plain(|sys| {
        let half = sys.machine().total_pages / 2;
        for _ in 0..8 {
            let area = sys.mmap(half)?;
            sys.munmap(area)?;
            let child = ThreadSpec::process("mapper");
            let child = sys.spawn(child, Box::new(move |sys| sys.mmap(half).map(drop)))?;
            sys.join(child)?;
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn what_panics_is_an_error_that_names_thread_and_reason() {
    let error = run_plain(|sys| {
        let thread =
            sys.spawn(ThreadSpec::thread("clumsy"), Box::new(|_| panic!("no page {}", 17)))?;
        sys.join(thread)
    })
    .unwrap_err()
    .to_string();
    assert_eq!(error, "thread clumsy of the workload panicked: no page 17");
}

#[test]
fn what_would_wait_forever_is_an_error_that_names_who_waits() {
    let error = run_plain(|sys| {
        let barrier = sys.new_barrier(2)?;
        let thread =
            sys.spawn(ThreadSpec::thread("lonely"), Box::new(move |sys| sys.barrier(barrier)))?;
        sys.join(thread)
    })
    .unwrap_err()
    .to_string();
    assert_eq!(
        error,
        "every thread waits: workload for the end of lonely, lonely for barrier 0, where 1 of 2 are"
    );
    run_plain(|sys| sys.barrier(BarrierId(3))).unwrap_err();
}

#[test]
fn what_takes_too_long_is_ended_with_all_its_processes() {
    let limit = |spec: &mut HostSpec| spec.time_limit = Some(Ns::from_millis(300));
    let error = run_with(limit, |sys| {
        let sleeper = |sys: &mut dyn System| sys.sleep(Ns::from_secs(50));
        sys.spawn(ThreadSpec::process("hi-sleeper"), Box::new(sleeper))?;
        sys.spawn(
            ThreadSpec::thread("hi-spinner"),
            Box::new(|_| {
                loop {
                    std::hint::spin_loop();
                }
            }),
        )?;
        sys.sleep(Ns::from_secs(50))
    })
    .unwrap_err();
    assert!(matches!(error, HostError::TimedOut(_)), "{error}");
    assert!(!is_there("hi-sleeper") && !is_there("hi-spinner"));
}

/// Names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn files_lie_in_a_folder_that_goes_with_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let seen = folder.path().to_owned();
    let record = run_with(
        |spec| spec.folder = Some(folder.path().to_owned()),
        move |sys| {
            let file = sys.create_file("deep/er/file")?;
            sys.write_file(file, 0, 10_000)?;
            assert_eq!(sys.file_bytes(file)?, 10_000);
            sys.set_file_bytes(file, 5_000)?;
            assert_eq!(sys.file_bytes(file)?, 5_000);
            let run = names(&seen);
            assert_eq!(run.len(), 1, "{run:?}");
            assert!(seen.join(&run[0]).join("files/deep/er/file").is_file());
            for bad in ["", "/etc/passwd", "../x", "a//b", "a/..", ".hidden", "a/", "a\0b"] {
                let refused = sys.create_file(bad).unwrap_err().to_string();
                assert!(refused.contains("expected a file's name"), "{bad}: {refused}");
            }
            sys.close_file(file)?;
            assert!(sys.read_file(file, 0, 1).is_err(), "it is closed");
            assert!(sys.close_file(file).is_err());
            let file = sys.open_file("deep/er/file")?;
            sys.read_file(file, 0, 5_000)?;
            sys.unlink("deep/er/file")?;
            assert!(sys.open_file("deep/er/file").is_err());
            sys.create_file("left-behind").map(|_| ())
        },
    );
    record.unwrap();
    assert_eq!(names(folder.path()), [""; 0]);

    let refused = run_plain(|sys| sys.create_file("file").map(|_| ())).unwrap_err().to_string();
    assert!(refused.contains("given no folder for files"), "{refused}");
    let missing = folder.path().join("missing");
    let error = run_with(|spec| spec.folder = Some(missing), |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("missing: no folder for files can be made there"), "{error}");
}

#[test]
fn files_are_gone_after_panics_and_kills_too() {
    let folder = tempfile::tempdir().unwrap();
    let within = |spec: &mut HostSpec| spec.folder = Some(folder.path().to_owned());
    let error = run_with(within, |sys| {
        sys.create_file("file")?;
        panic!("in the middle")
    });
    assert!(matches!(error, Err(HostError::Broken { .. })), "{error:?}");
    assert_eq!(names(folder.path()), [""; 0]);
    run_with(within, |sys| {
        sys.create_file("file")?;
        kill_me();
        Ok(())
    })
    .unwrap();
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn mapped_files_are_shared_and_not_touched_behind_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let within = |spec: &mut HostSpec| spec.folder = Some(folder.path().to_owned());
    let record = run_with(within, |sys| {
        let page = sys.machine().page_bytes;
        let file = sys.create_file("mapped")?;
        sys.set_file_bytes(file, 8 * page)?;
        let area = sys.map_file(file, 2, 10, Access::Write)?;
        assert!(!sys.is_present(area.page(0))?);
        sys.touch_range(area.part(0, 6), Pattern::whole(Access::Write))?;
        assert!(sys.is_present(area.page(5))?);
        let refused = sys.touch(area.page(6), Access::Read).unwrap_err().to_string();
        assert_eq!(refused, "touch: page 9 of a file of 8 pages is behind its end");
        sys.set_file_bytes(file, 4 * page)?;
        assert!(sys.touch(area.page(3), Access::Read).is_err(), "it was cut");
        sys.touch(area.page(1), Access::Read)?;
        // Another process maps it too, and cuts it.
        let other: Code = Box::new(move |sys| {
            let file = sys.open_file("mapped")?;
            let read = sys.map_file(file, 0, 4, Access::Read)?;
            sys.touch_range(read, Pattern::whole(Access::Read))?;
            let refused = sys.touch(read.page(0), Access::Write).unwrap_err().to_string();
            assert!(refused.contains("mapped for reading only"), "{refused}");
            sys.set_file_bytes(file, 3 * page)?;
            Ok(())
        });
        let other = sys.spawn(ThreadSpec::process("other"), other)?;
        sys.join(other)?;
        assert!(sys.touch(area.page(1), Access::Read).is_err(), "another process cut it");
        sys.close_file(file)?;
        sys.touch(area.page(0), Access::Write)?;
        sys.munmap(area.part(0, 5))?;
        assert!(sys.touch(area.page(0), Access::Write).is_err());
        // Not given back as anonymous memory is: a mapping of that is still counted right.
        let more = sys.mmap(16)?;
        sys.munmap(more)
    });
    record.unwrap();
}

#[test]
fn pages_in_pipes_are_the_kernels_and_count_as_the_runs() {
    let pipes = |sys: &mut dyn System, nr: u32| -> Result<Vec<BlockId>, Failure> {
        let taken = (0..nr).map(|_| sys.take_block(KernelBlock::PipeBuffer));
        taken.map(|block| Ok(block?.expect("a page"))).collect()
    };
    run_plain(move |sys| {
        let blocks = pipes(sys, 600)?;
        // A process started now does not keep them when its parent gives them back.
        let child: Code = Box::new(|sys| sys.sleep(Ns::from_millis(50)));
        let child = sys.spawn(ThreadSpec::process("child"), child)?;
        for &block in blocks.iter().rev().step_by(2).chain(blocks.iter().step_by(2)) {
            sys.free_block(block)?;
        }
        assert!(sys.free_block(blocks[0]).is_err(), "it was given back");
        sys.join(child)?;
        let refused = sys.take_block(KernelBlock::Module { order: 4 }).unwrap_err().to_string();
        assert!(refused.contains("only the model has such a module"), "{refused}");
        let refused = sys.take_block(KernelBlock::Hugetlb).unwrap_err().to_string();
        assert!(refused.contains("may not change settings"), "{refused}");
        Ok(())
    })
    .unwrap();
    // As all memory of a run, they are refused when others would have too little left.
    let available =
        highorder_record::read_proc(Path::new("/proc")).unwrap().meminfo["MemAvailable"];
    let leave = |spec: &mut HostSpec| {
        let bytes = (available << 10).saturating_sub(64 << 20);
        spec.memory = MemoryRule::Leave { bytes, may_swap: true };
    };
    let error = run_with(leave, move |sys| pipes(sys, 1 << 20).map(|_| ())).unwrap_err();
    match error {
        HostError::Refused(text) => assert!(text.contains("a page in a pipe of 4 KiB"), "{text}"),
        // Others took what there was right before.
        HostError::NoMemory { .. } => {}
        other => panic!("{other}"),
    }
}

#[test]
fn places_that_are_not_there_are_refused() {
    run_plain(|sys| {
        let cpu = sys.machine().nodes[0].cpus[0];
        sys.set_place(Place::Cpu(cpu))?;
        assert!(sys.set_place(Place::Node(NodeId(4000))).is_err());
        assert!(sys.set_place(Place::Cpu(CpuId(100_000))).is_err());
        let nowhere = ThreadSpec::thread("nowhere").on(Place::Node(NodeId(4000)));
        assert!(sys.spawn(nowhere, Box::new(|_| Ok(()))).is_err());
        sys.set_place(Place::Any)
    })
    .unwrap();
}

#[test]
fn workloads_of_the_model_run_here_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let text = |value: &str| Value::Text(value.to_owned());
    for (name, values) in [
        (
            "usemem",
            vec![
                ("file", Value::Float(0.0)),
                ("memory", text("32 MiB")),
                ("threads", Value::Integer(2)),
            ],
        ),
        ("mmap-demo", vec![("memory", text("32 MiB"))]),
    ] {
        let values: BTreeMap<String, Value> =
            values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let workload = find(name, &values).unwrap();
        let beside = RUNS.read().unwrap_or_else(|e| e.into_inner());
        let with_files = HostSpec { folder: Some(folder.path().to_owned()), ..spec(folder.path()) };
        let record = run(&with_files, Inputs::default(), workload.code()).unwrap();
        drop(beside);
        assert!(!record.metrics.is_empty(), "{name}");
        assert!(record.held.is_some(), "{name}");
    }
}

// Settings, below a folder that stands for /proc/sys and /sys.

const SWAPPINESS: &str = "proc/sys/vm/swappiness";
const ENABLED: &str = "sys/kernel/mm/transparent_hugepage/enabled";

fn fake_root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in [(SWAPPINESS, "60\n"), (ENABLED, "always [madvise] never\n")] {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn with_knobs(root: &Path) -> impl FnOnce(&mut HostSpec) {
    let (root, state) = (root.to_owned(), root.join("state"));
    move |spec| {
        spec.knob_root = root;
        spec.state_folder = state;
        spec.apply_knobs = true;
        spec.knobs = BTreeMap::from([("vm.swappiness".to_owned(), "10".to_owned())]);
    }
}

fn swappiness(root: &Path) -> String {
    fs::read_to_string(root.join(SWAPPINESS)).unwrap().trim().to_owned()
}

#[test]
fn settings_are_changed_for_the_run_and_as_before_afterwards() {
    let root = fake_root();
    run_with(with_knobs(root.path()), |sys| {
        assert_eq!(sys.knob("vm.swappiness")?, "10");
        assert_eq!(sys.knob("transparent_hugepage/enabled")?, "madvise");
        sys.set_knob("transparent_hugepage/enabled", "always")?;
        assert_eq!(sys.knob("transparent_hugepage/enabled")?, "always");
        assert!(sys.set_knob("vm.nothing", "1").is_err());
        Ok(())
    })
    .unwrap();
    assert_eq!(swappiness(root.path()), "60");
    assert_eq!(fs::read_to_string(root.path().join(ENABLED)).unwrap(), "madvise\n");
}

#[test]
fn settings_are_as_before_after_errors_and_panics() {
    let root = fake_root();
    type Failing = fn(&mut dyn System) -> Result<(), Failure>;
    let failing: [Failing; 3] = [
        |_| Err(Failure::Refused("no".to_owned())),
        |_| panic!("no"),
        |sys| {
            let barrier = sys.new_barrier(2)?;
            sys.barrier(barrier)
        },
    ];
    for code in failing {
        run_with(with_knobs(root.path()), code).unwrap_err();
        assert_eq!(swappiness(root.path()), "60");
    }
    let unknown = |spec: &mut HostSpec| {
        with_knobs(root.path())(spec);
        spec.knobs.insert("vm.zzz".to_owned(), "1".to_owned());
    };
    let error = run_with(unknown, |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("vm.zzz"), "{error}");
    assert_eq!(swappiness(root.path()), "60", "those set before the bad one too");
}

#[test]
fn settings_are_not_changed_unless_that_is_allowed() {
    let root = fake_root();
    let not_allowed = |spec: &mut HostSpec| {
        with_knobs(root.path())(spec);
        spec.apply_knobs = false;
    };
    let error = run_with(not_allowed, |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("vm.swappiness is `60` and not `10`"), "{error}");
    let two = |spec: &mut HostSpec| {
        not_allowed(spec);
        spec.knobs.insert("transparent_hugepage/enabled".to_owned(), "never".to_owned());
    };
    let error = run_with(two, |_| Ok(())).unwrap_err().to_string();
    let both = "transparent_hugepage/enabled is `madvise` and not `never`, vm.swappiness is `60` and not `10`";
    assert!(error.contains(both), "{error}");
    fs::write(root.path().join(SWAPPINESS), "10\n").unwrap();
    run_with(not_allowed, |sys| {
        let refused = sys.set_knob("vm.swappiness", "20").unwrap_err();
        assert!(refused.to_string().contains("may not change settings"), "{refused}");
        Ok(())
    })
    .unwrap();
    assert_eq!(swappiness(root.path()), "10");
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..200 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("10 s passed, and not: {what}");
}

#[test]
fn settings_are_as_before_whatever_signal_ends_the_program() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGKILL] {
        let root = fake_root();
        let program = PathBuf::from(env!("CARGO_BIN_EXE_on-real"));
        let mut child = Command::new(program)
            .args(["host-sleep", &format!("hi-sig{signal}")])
            .arg(root.path())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let name = format!("hi-sig{signal}");
        wait_until("the workload runs", || is_there(&name));
        assert_eq!(swappiness(root.path()), "10");
        send(child.id(), signal);
        let status = child.wait().unwrap();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(status.signal(), Some(signal), "its own action follows");
        if signal == libc::SIGKILL {
            // The program could do nothing: the warden does, a moment later.
            wait_until("settings are as before", || swappiness(root.path()) == "60");
            wait_until("the workload is gone", || !is_there(&name));
        }
        assert_eq!(swappiness(root.path()), "60", "after signal {signal}");
        assert!(!is_there(&name));
        wait_until("nothing is left to restore", || {
            !root.path().join("state/knobs-to-restore").exists()
        });
    }
}

#[allow(unsafe_code, reason = "the signals that people send")]
fn send(pid: u32, signal: i32) {
    // SAFETY: to a child that has not been waited for.
    unsafe { libc::kill(pid as i32, signal) };
}
