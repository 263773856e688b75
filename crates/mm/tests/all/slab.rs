//! Slab caches: layouts as recorded, packing worked by hand, random use beside a model of obvious code.

use crate::scene::{all_free, linux_4_4, linux_6_12, numa_96, single_zone};
use highorder_mm::gfp::Gfp;
use highorder_mm::kernel_use::KernelUse;
use highorder_mm::policy::{CpuPartial, HighOrder, Policy, Slab, SlabAllocator, SlabOrder};
use highorder_mm::slab::layout::{CpuLimit, Layout};
use highorder_mm::slab::{AllocObject, Attempt, CacheId, Object};
use highorder_mm::{CpuId, Memory, Order, Pfn};
use proptest::prelude::{Strategy, prop};
use proptest::{prop_assert, prop_assert_eq, proptest};
use rand_core::Rng;
use rand_pcg::Pcg64;
use std::collections::BTreeMap;

const NO_OTHER: Gfp = Gfp::KERNEL;

fn with_slab(change: impl Fn(&mut Slab)) -> Policy {
    let mut policy = linux_6_12();
    change(&mut policy.slab);
    policy
}

fn memory(policy: &Policy) -> Memory {
    all_free(&single_zone(4096), policy)
}

/// An object, of a fresh slab of the order asked for first if there is no other.
fn alloc(memory: &mut Memory, id: CacheId, cpu: CpuId) -> Object {
    match memory.alloc_object(id, NO_OTHER, cpu) {
        AllocObject::Object(object) => object,
        AllocObject::NeedsSlab { first, .. } => {
            let pfn = take(memory, first, cpu);
            memory.add_slab(id, pfn, first.order, cpu)
        }
    }
}

fn take(memory: &mut Memory, Attempt { order, gfp }: Attempt, cpu: CpuId) -> Pfn {
    let node = memory.machine.cpu_nodes[cpu.index()];
    let request = highorder_mm::alloc::Request { order, gfp, cpu, node, past_lists: false };
    memory
        .get_page_from_nodes(request, u64::MAX, None, highorder_mm::gfp::AllocFlags::NONE)
        .expect("the machine has room")
}

fn pages(memory: &Memory) -> u64 {
    let [reclaimable, other] = memory.slab_pages();
    reclaimable + other
}

#[test]
fn layouts_are_those_that_kernels_print() {
    // `/proc/slabinfo` of Debian's 6.12 and 6.1 on machines with two CPUs: bytes, objects of a slab, pages.
    let recorded = |order: SlabOrder, rows: &[(u32, u32, u32)]| {
        let policy = with_slab(|slab| slab.order = order).slab;
        for &(bytes, objects, pages) in rows {
            let layout = Layout::new(&policy, CacheId::DENTRY, bytes, 2);
            let found = (layout.objects(layout.order), layout.order.pages());
            assert_eq!(found, (objects, pages), "objects of {bytes} bytes");
        }
    };
    recorded(
        SlabOrder::MoreWaste,
        &[
            (120, 34, 1),
            (1168, 14, 4),
            (640, 12, 2),
            (256, 16, 1),
            (104, 39, 1),
            (192, 21, 1),
            (632, 25, 4),
            (176, 23, 1),
            (8448, 3, 8),
            (584, 14, 2),
            (8192, 4, 8),
            (4096, 8, 8),
            (2048, 16, 8),
            (1024, 16, 4),
            (96, 42, 1),
            (8, 512, 1),
        ],
    );
    recorded(
        SlabOrder::FewerObjects,
        &[(1192, 13, 4), (40, 102, 1), (640, 12, 2), (152, 26, 1), (8384, 3, 8), (584, 14, 2)],
    );
}

#[test]
fn what_cpus_and_nodes_keep_follows_from_the_size() {
    let slabs = with_slab(|slab| slab.cpu_partial = CpuPartial::Slabs).slab;
    let layout = Layout::new(&slabs, CacheId::DENTRY, 192, 2);
    // 120 objects are wanted: 240 of 21 a slab, rounded up.
    assert_eq!(layout.cpu_partial, CpuLimit::Slabs(12));
    // log2(192) / 2 = 3, but 5 at least; log2(8192) / 2 = 6.
    assert_eq!(layout.min_partial, 5);
    assert_eq!(Layout::new(&slabs, CacheId::DENTRY, 8192, 2).min_partial, 6);
    let objects = with_slab(|slab| slab.cpu_partial = CpuPartial::Objects).slab;
    for (bytes, limit) in [(192, 30), (256, 13), (1024, 6), (4096, 2)] {
        let layout = Layout::new(&objects, CacheId::DENTRY, bytes, 2);
        assert_eq!(layout.cpu_partial, CpuLimit::Objects(limit));
    }
    // SLAB: an index byte for each small object; reclaimable caches stay at order 0, others stop at 1.
    let slab = with_slab(|slab| slab.allocator = SlabAllocator::Slab).slab;
    let dentry = Layout::new(&slab, CacheId::DENTRY, 192, 2);
    assert_eq!((dentry.order, dentry.objects(dentry.order), dentry.array), (Order(0), 21, 120));
    // 3 of 1192 bytes leave 520, more than an eighth; 6 leave 1040, more than an eighth too: but 1 is enough.
    let kmalloc = CacheId::kmalloc(1024).expect("there is one");
    assert_eq!(Layout::new(&slab, kmalloc, 1192, 2).order, Order(1));
    assert_eq!(Layout::new(&slab, CacheId::EXT4_INODE, 1192, 2).order, Order(0));
}

#[test]
fn a_full_slab_is_pinned_by_its_last_object() {
    let mut memory = memory(&linux_6_12());
    let id = CacheId::DENTRY;
    // Twenty slabs of 21, the last of them the CPU's.
    let objects: Vec<Object> = (0..420).map(|_| alloc(&mut memory, id, CpuId(0))).collect();
    assert_eq!(pages(&memory), 20);
    let mut slabs: BTreeMap<Pfn, Vec<Object>> = BTreeMap::new();
    for &object in &objects {
        slabs.entry(memory.slab_of_object(id, object)).or_default().push(object);
    }
    assert!(slabs.values().all(|objects| objects.len() == 21), "slabs are filled one by one");
    for &pfn in slabs.keys() {
        assert_eq!(memory.kernel_use(pfn), Some(KernelUse::Slab(id)));
    }
    // All but one of each: twelve partial slabs fill the CPU's list, the next one sends them to the node, and no
    // page is free. The last slab is the one the CPU takes from.
    let mut last = Vec::new();
    for objects in slabs.values() {
        for &object in &objects[1..] {
            assert_eq!(memory.free_object(id, object, CpuId(0)), 0);
        }
        last.push(objects[0]);
    }
    assert_eq!(pages(&memory), 20);
    // Their last objects: the node's twelve go as long as it has five or more, so four stay; and so do the CPU's
    // seven and the one it takes from.
    let freed: u64 = last.into_iter().map(|object| memory.free_object(id, object, CpuId(0))).sum();
    assert_eq!((freed, pages(&memory)), (8, 12));
    memory.audit().unwrap();
    assert_eq!(memory.shrink_cache(id, CpuId(0)), 12);
    assert_eq!(pages(&memory), 0);
    memory.audit().unwrap();
    memory.validate().unwrap();
}

#[test]
fn a_cpu_fills_partial_slabs_before_it_grows() {
    let mut memory = memory(&linux_6_12());
    let id = CacheId::EXT4_INODE;
    let objects: Vec<Object> = (0..42).map(|_| alloc(&mut memory, id, CpuId(0))).collect();
    assert_eq!(pages(&memory), 12);
    // One out of each of the first two slabs of 14; the third is the CPU's and full.
    memory.free_object(id, objects[3], CpuId(0));
    memory.free_object(id, objects[17], CpuId(0));
    let first = memory.slab_of_object(id, objects[3]);
    let second = memory.slab_of_object(id, objects[17]);
    // The CPU's own list is taken from its newest end.
    let again = [alloc(&mut memory, id, CpuId(0)), alloc(&mut memory, id, CpuId(0))];
    assert_eq!(again.map(|object| memory.slab_of_object(id, object)), [second, first]);
    assert_eq!(pages(&memory), 12);
    alloc(&mut memory, id, CpuId(0));
    assert_eq!(pages(&memory), 16);
    memory.audit().unwrap();
}

#[test]
fn the_first_attempt_for_a_slab_may_do_what_the_kernel_lets_it() {
    let attempts = |high_order: HighOrder, id: CacheId, gfp: Gfp| {
        let mut memory = memory(&with_slab(|slab| slab.high_order = high_order));
        match memory.alloc_object(id, gfp, CpuId(0)) {
            AllocObject::NeedsSlab { first, fallback } => (first, fallback.unwrap()),
            AllocObject::Object(_) => panic!("there is no slab yet"),
        }
    };
    let inodes = CacheId::EXT4_INODE;
    let own = Gfp::KERNEL | Gfp::RECLAIMABLE;
    let gentle = own | Gfp::NOWARN | Gfp::NORETRY | Gfp::COMP;
    // Order 2 for 14 inodes, order 0 for 3.
    let (first, fallback) = attempts(HighOrder::MayReclaim, inodes, Gfp::KERNEL);
    assert_eq!(first, Attempt { order: Order(2), gfp: gentle });
    assert_eq!(fallback, Attempt { order: Order(0), gfp: own });
    let (first, _) = attempts(HighOrder::MayWakeKswapd, inodes, Gfp::KERNEL);
    let kswapd = (gentle | Gfp::NOMEMALLOC) - Gfp::DIRECT_RECLAIM;
    assert_eq!(first.gfp, kswapd);
    let (first, fallback) = attempts(HighOrder::Neither, inodes, Gfp::KERNEL | Gfp::NOFAIL);
    assert_eq!(first.gfp, (gentle | Gfp::NOMEMALLOC) - Gfp::RECLAIM);
    assert_eq!(fallback.gfp, own | Gfp::NOFAIL);
    // Whoever may not reclaim anyway keeps kswapd, and so does whoever wants the least order anyway.
    let (first, _) = attempts(HighOrder::Neither, inodes, Gfp::NOWAIT);
    assert!(first.gfp.contains(Gfp::KSWAPD_RECLAIM));
    let (first, _) = attempts(HighOrder::Neither, CacheId::DENTRY, Gfp::KERNEL);
    assert_eq!((first.order, first.gfp.contains(Gfp::RECLAIM)), (Order(0), true));
}

#[test]
fn a_slab_of_the_least_order_holds_fewer_objects() {
    let mut memory = memory(&linux_6_12());
    let id = CacheId::EXT4_INODE;
    let AllocObject::NeedsSlab { fallback: Some(fallback), .. } =
        memory.alloc_object(id, Gfp::KERNEL, CpuId(0))
    else {
        panic!("there is no slab yet")
    };
    let pfn = take(&mut memory, fallback, CpuId(0));
    let first = memory.add_slab(id, pfn, fallback.order, CpuId(0));
    let second = alloc(&mut memory, id, CpuId(0));
    let third = alloc(&mut memory, id, CpuId(0));
    assert_eq!(pages(&memory), 1, "4096 bytes hold three inodes of 1168");
    let fourth = alloc(&mut memory, id, CpuId(0));
    assert_eq!(pages(&memory), 5);
    for object in [first, second, third, fourth] {
        memory.free_object(id, object, CpuId(0));
    }
    memory.shrink_cache(id, CpuId(0));
    assert_eq!(pages(&memory), 0);
}

/// What caches hold, in obvious code: objects by slab.
#[derive(Default)]
struct NaiveCaches {
    slabs: BTreeMap<(CacheId, Pfn), Vec<Object>>,
}

/// One use of caches: which cache, which CPU, how much of what is there is freed first.
type Use = (u8, u8, bool, u32);

fn uses() -> impl Strategy<Value = Vec<Use>> {
    prop::collection::vec((0u8..4, 0u8..4, prop::bool::weighted(0.5), 0u32..u32::MAX), 1..3000)
}

const USED: [CacheId; 4] =
    [CacheId::DENTRY, CacheId::EXT4_INODE, CacheId::RADIX_TREE_NODE, CacheId::XFS_ILI];

fn check_uses(policy: &Policy, uses: &[Use]) -> Result<(), proptest::test_runner::TestCaseError> {
    let mut memory = all_free(&numa_96(), policy);
    let free_before: u64 = memory.zones.iter().map(|zone| zone.nr_free_pages).sum();
    let nr_cpus = memory.machine.cpu_nodes.len();
    let mut naive = NaiveCaches::default();
    let mut live: Vec<(CacheId, Object)> = Vec::new();
    for &(cache, cpu, frees, which) in uses {
        let (id, cpu) = (USED[usize::from(cache)], CpuId(u32::from(cpu) % nr_cpus as u32));
        if frees && !live.is_empty() {
            let (id, object) = live.swap_remove(which as usize % live.len());
            let slab = (id, memory.slab_of_object(id, object));
            let objects = naive.slabs.get_mut(&slab).expect("its slab is known");
            objects.retain(|&other| other != object);
            memory.free_object(id, object, cpu);
            // Slabs that hold an object are there.
            for ((id, pfn), objects) in &naive.slabs {
                if !objects.is_empty() {
                    prop_assert_eq!(memory.kernel_use(*pfn), Some(KernelUse::Slab(*id)));
                }
            }
            naive.slabs.retain(|_, objects| !objects.is_empty());
        } else {
            let object = alloc(&mut memory, id, cpu);
            prop_assert!(!live.contains(&(id, object)), "{object:?} is given out twice");
            let slab = (id, memory.slab_of_object(id, object));
            naive.slabs.entry(slab).or_default().push(object);
            live.push((id, object));
        }
        let found: BTreeMap<&str, u64> =
            memory.slabinfo().iter().map(|line| (line.name, line.active_objects)).collect();
        for id in USED {
            let wanted = live.iter().filter(|(of, _)| *of == id).count() as u64;
            prop_assert_eq!(found.get(id.name()).copied().unwrap_or(0), wanted);
        }
    }
    memory.audit().expect("caches count what they have");
    // Kept for later or not: a cache gives back all but the slabs that hold something.
    for id in USED {
        memory.shrink_cache(id, CpuId(0));
    }
    memory.audit().expect("caches count what they have");
    prop_assert_eq!(
        memory.slabinfo().iter().map(|line| line.nr_slabs).sum::<u64>(),
        naive.slabs.len() as u64
    );
    for (id, object) in live {
        memory.free_object(id, object, CpuId(0));
    }
    for id in USED {
        memory.shrink_cache(id, CpuId(0));
    }
    prop_assert_eq!(pages(&memory), 0);
    memory.drain_all_pages(None);
    memory.validate().expect("the allocator's invariants hold");
    prop_assert_eq!(memory.zones.iter().map(|zone| zone.nr_free_pages).sum::<u64>(), free_before);
    Ok(())
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 24, ..Default::default() })]

    #[test]
    fn slub_loses_no_object_and_keeps_no_page_without_one(uses in uses()) {
        check_uses(&linux_6_12(), &uses)?;
        check_uses(&with_slab(|slab| slab.cpu_partial = CpuPartial::Objects), &uses)?;
    }

    #[test]
    fn slab_loses_no_object_and_keeps_no_page_without_one(uses in uses()) {
        check_uses(&with_slab(|slab| slab.allocator = SlabAllocator::Slab), &uses)?;
    }
}

#[test]
fn arrays_of_idle_cpus_are_emptied_in_time() {
    let mut policy = linux_4_4();
    policy.slab.allocator = SlabAllocator::Slab;
    let mut memory = memory(&policy);
    let mut rng = Pcg64::new(7, 0x736c);
    let id = CacheId::DENTRY;
    let mut objects: Vec<Object> = (0..4000).map(|_| alloc(&mut memory, id, CpuId(0))).collect();
    while !objects.is_empty() {
        let at = rng.next_u32() as usize % objects.len();
        memory.free_object(id, objects.swap_remove(at), CpuId(0));
    }
    // (1 + CPUs) * 60 + 21 free objects stay in slabs at most, and what arrays hold beside.
    let nr_cpus = memory.machine.cpu_nodes.len() as u64;
    let shared = if nr_cpus > 1 { 8 * 60 } else { 0 };
    assert!(pages(&memory) > 0);
    assert!(memory.slabinfo()[0].nr_objects <= ((1 + nr_cpus) * 60 + 21) + (120 + shared) * 21);
    for _ in 0..200 {
        memory.reap_caches(CpuId(0));
    }
    assert_eq!(pages(&memory), 0);
    memory.audit().unwrap();
}
