//! Simulated faults and touches a second, without reclaim.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use highorder_mm::anon::TouchRange;
use highorder_mm::page_table::Vpn;
use highorder_mm::types::{Access, MemPolicy};
use highorder_mm::vma::ProcessId;
use highorder_mm::{CpuId, Memory};
use std::hint::black_box;

#[allow(dead_code, reason = "tests use the rest")]
#[path = "../tests/all/naive/mod.rs"]
mod naive;
#[allow(dead_code, reason = "tests use the rest")]
#[path = "../tests/all/scene/mod.rs"]
mod scene;

/// 4 GiB, of which 2 GiB are touched.
const FRAMES: u32 = 1 << 20;
const PAGES: u32 = 1 << 19;

fn ready(policy: &highorder_mm::policy::Policy) -> (Memory, Vpn) {
    let mut memory = scene::all_free(&scene::single_zone(FRAMES), policy);
    memory.setup_watermarks(None, false);
    memory.update_pcp_limits();
    let start = memory.spaces.mmap(ProcessId(0), PAGES, MemPolicy::Default);
    (memory, start)
}

fn touch(memory: &mut Memory, start: Vpn, access: Access) -> u32 {
    let range = TouchRange {
        start,
        pages: PAGES,
        access,
        cpu: CpuId(0),
        stop_for_huge: false,
        faults_max: u32::MAX,
        stop_for_remote: false,
        stop_for_buffer: false,
    };
    memory.touch_and_fault(range).pages
}

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("user_memory");
    group.sample_size(10).throughput(Throughput::Elements(u64::from(PAGES)));
    for (name, policy) in [("6.12", scene::linux_6_12()), ("4.4", scene::linux_4_4())] {
        group.bench_function(format!("fault a base page, {name}"), |b| {
            b.iter_batched_ref(
                || ready(&policy),
                |(memory, start)| {
                    let pages = touch(memory, *start, Access::Write);
                    assert_eq!(black_box(pages), PAGES);
                },
                BatchSize::PerIteration,
            );
        });
        group.bench_function(format!("unmap a base page, {name}"), |b| {
            b.iter_batched_ref(
                || {
                    let (mut memory, start) = ready(&policy);
                    touch(&mut memory, start, Access::Write);
                    (memory, start)
                },
                |(memory, start)| memory.munmap(*start..Vpn(start.0 + PAGES), CpuId(0)),
                BatchSize::PerIteration,
            );
        });
    }
    let (mut memory, start) = ready(&scene::linux_6_12());
    touch(&mut memory, start, Access::Write);
    group.bench_function("touch a mapped base page", |b| {
        b.iter(|| black_box(touch(&mut memory, start, Access::Write)));
    });
    group.finish();
}

criterion_group!(user_memory, benches);
criterion_main!(user_memory);
