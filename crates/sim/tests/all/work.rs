//! Whose time is spent for what is done: each task's own.

use highorder_kernels::KernelFile;
use highorder_kernels::machine;
use highorder_mm::types::{Access, MemPolicy};
use highorder_mm::vma::ProcessId;
use highorder_mm::vmstat::Vm;
use highorder_sim::DeviceId;
use highorder_sim::kernel::fault::{self, Extent};
use highorder_sim::kernel::files::Readahead;
use highorder_sim::kernel::thp::Enabled;
use highorder_sim::kernel::{self, Kernel, KernelCx, Knobs, filemap};
use highorder_sim::{Ns, Sim, TaskSpec};
use std::cell::Cell;
use std::rc::Rc;

const PROCESS: ProcessId = ProcessId(0);
const MIB: u64 = 1 << 20;
/// What was done and not taken, as often as somebody looked.
#[derive(Clone, Copy, Default)]
struct Left {
    /// Operations on lists.
    list_ops: u64,
    /// Looks for the entries that map a page, and at those.
    walks: u64,
}

/// Runs a program on 512 MiB, and beside it a task that looks every 20 us for work that somebody has left.
fn left_by(
    kernel: &str,
    enabled: Enabled,
    program: impl FnOnce(&mut KernelCx<'_>) + 'static,
) -> (Left, Sim<Kernel>) {
    let machine = machine::load("one-node-8g").unwrap().scaled(1, 16).unwrap();
    let kernel = KernelFile::load(kernel).unwrap();
    let mut knobs = Knobs::at_boot(&kernel.policy, &kernel.flows);
    knobs.thp.enabled = enabled;
    let mut sim = kernel::boot(&machine, kernel.policy, kernel.flows, knobs);
    sim.world_mut().add_process("program");
    let (is_over, left) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(Left::default())));
    let (over, found) = (is_over.clone(), left.clone());
    sim.spawn(TaskSpec::user("program"), move |cx| {
        program(cx);
        over.set(true);
    });
    sim.spawn(TaskSpec::user("watcher"), move |cx| {
        cx.world().memory.take_work();
        while !is_over.get() {
            cx.sleep(Ns::from_micros(20));
            let work = cx.world().memory.take_work();
            let Left { list_ops, walks } = found.get();
            found.set(Left {
                list_ops: list_ops
                    + work.list_ops
                    + work.near_list_ops
                    + work.lru_ops
                    + work.near_lru_ops,
                walks: walks + work.rmap_walks + work.ptes_scanned,
            });
        }
    });
    sim.run().unwrap();
    (left.get(), sim)
}

#[test]
fn whoever_reads_and_writes_files_leaves_no_work_to_others() {
    for kernel in ["linux-4.4", "linux-6.12"] {
        let (left, sim) = left_by(kernel, Enabled::Never, |cx| {
            let file = cx.world().create_file(DeviceId(0));
            for at in 0..640 {
                filemap::write(cx, PROCESS, file, at * MIB, MIB).unwrap();
            }
            let mut readahead = Readahead::default();
            for at in 0..640 {
                filemap::read(cx, PROCESS, file, &mut readahead, at * MIB, MIB).unwrap();
            }
        });
        let vm = &sim.world().memory.vm;
        assert!(vm.get(Vm::PgStealKswapd) + vm.get(Vm::PgStealDirect) > 100_000, "{kernel}");
        // Of 320,000 pages. What interrupts rotate, since reclaim waits for its being written, is nobody's.
        let by_interrupts = 2 * vm.get(Vm::PgRotated);
        let by_tasks = left.list_ops.saturating_sub(by_interrupts);
        assert!(by_tasks < 3000, "{kernel}: {by_tasks} beside {by_interrupts}");
    }
}

#[test]
fn whoever_splits_a_huge_page_pays_for_its_batch() {
    let (left, sim) = left_by("linux-6.12", Enabled::Always, |cx| {
        let pages = (640 * MIB / 4096) as u32;
        let area = cx.world().memory.spaces.mmap(PROCESS, pages, MemPolicy::Default);
        fault::touch_range(cx, PROCESS, area, pages, Access::Write, Extent::Word).unwrap();
    });
    let vm = &sim.world().memory.vm;
    assert!(vm.get(Vm::ThpSplitPage) > 50, "{}", vm.get(Vm::ThpSplitPage));
    // An interrupt that tells of what was written rotates pages, and looks for no entries.
    assert!(left.walks < 100, "{}", left.walks);
}
