//! Allocating and freeing, beside two allocators of the registry, on the patterns of LLFree's bench.
//!
//! Every sample of one pattern visits all allocators in turn, so that a busy machine slows them alike;
//! what counts are the ratios, printed at the end. The peers know neither migratetypes nor zones nor
//! per-CPU lists; `bitmap-allocator` does not merge, having nothing to merge.
#![allow(
    missing_docs,
    clippy::disallowed_types,
    reason = "a bench: its macros, and it prints speed"
)]

use bitmap_allocator::{BitAlloc, BitAlloc16M};
use buddy_system_allocator::FrameAllocator;
use criterion::{Criterion, criterion_group, criterion_main};
use highorder_mm::alloc::Request;
use highorder_mm::gfp::{AllocFlags, Gfp};
use highorder_mm::policy::{FallbackRule, ListType, LruKind, PcpHigh, Policy};
use highorder_mm::types::{NodeId, Order, Pfn, ZoneKind};
use highorder_mm::watermark::Mark;
use highorder_mm::{CpuId, Machine, Memory, NodeSpec, ZoneSpec};
use rand_core::Rng;
use rand_pcg::Pcg64;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// 8 GiB for the table of ratios; half of it is taken in each round.
const FRAMES: u32 = 1 << 21;
/// 256 MiB for criterion's samples.
const FEW_FRAMES: u32 = 1 << 16;

/// 6.12's policy, or what of 6.1's changes the cost of the paths here.
fn policy(modern: bool) -> Policy {
    let file = include_str!("../../../kernels/linux-6.12.toml");
    let mut policy: Policy = toml::from_str(file).expect("a kernel file");
    policy.lru.kind = LruKind::Classic;
    if !modern {
        policy.freelist.list_type = ListType::Remembered;
        policy.freelist.split_large_frees = false;
        policy.pcp.high = PcpHigh::LowWatermark;
        policy.fallback.rule = FallbackRule::MoveAndRetry;
        policy.watermark.boost_single_steals = true;
    }
    policy
}

/// What every allocator here can do.
trait Pages {
    fn take(&mut self, order: u8) -> usize;
    fn give(&mut self, page: usize, order: u8);
}

struct Ours(Memory);

impl Ours {
    fn new(frames: u32, modern: bool) -> Self {
        let zone = ZoneSpec {
            kind: ZoneKind::Normal,
            start: Pfn(0),
            spanned_pages: frames,
            present_pages: frames,
            managed_pages: u64::from(frames),
        };
        let nodes = vec![NodeSpec { distances: vec![10], zones: vec![zone] }];
        let machine = Machine { nr_frames: frames, nodes, cpu_nodes: vec![NodeId(0), NodeId(0)] };
        let mut memory = Memory::new(machine, policy(modern));
        memory.release_boot_memory(Pfn(0)..Pfn(frames));
        memory.setup_watermarks(Some(8_192), false);
        Self(memory)
    }
}

impl Pages for Ours {
    #[inline]
    fn take(&mut self, order: u8) -> usize {
        let request = Request {
            order: Order(order),
            gfp: Gfp::HIGHUSER_MOVABLE,
            cpu: CpuId(0),
            node: NodeId(0),
            past_lists: false,
        };
        let flags = AllocFlags::fast_path(request.gfp);
        let pfn = self.0.get_page_from_freelist(request, Some(Mark::Low), flags);
        pfn.expect("half of memory is free").index()
    }

    #[inline]
    fn give(&mut self, page: usize, order: u8) {
        self.0.free(Pfn(page as u32), Order(order), CpuId(0));
    }
}

impl Pages for FrameAllocator<33> {
    fn take(&mut self, order: u8) -> usize {
        self.alloc(1 << order).expect("half of memory is free")
    }

    fn give(&mut self, page: usize, order: u8) {
        self.dealloc(page, 1 << order);
    }
}

struct Bitmap(Box<BitAlloc16M>);

impl Pages for Bitmap {
    fn take(&mut self, order: u8) -> usize {
        if order == 0 {
            self.0.alloc().expect("half of memory is free")
        } else {
            let order = usize::from(order);
            self.0.alloc_contiguous(None, 1 << order, order).expect("half of memory is free")
        }
    }

    fn give(&mut self, page: usize, order: u8) {
        if order == 0 {
            self.0.dealloc(page);
        } else {
            self.0.dealloc_contiguous(page, 1 << order);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pattern {
    /// Take many, give them back in the order they came.
    Bulk,
    /// Take many, give them back in random order.
    Rand,
    /// With every second page in use, at random, give one back and take one, again and again.
    Repeat,
    /// Bulk, in huge pages.
    Huge,
}

const PATTERNS: [Pattern; 4] = [Pattern::Bulk, Pattern::Rand, Pattern::Repeat, Pattern::Huge];

/// One round; returns the time of all takings and of all givings, and how many of each there were.
fn round(pages: &mut dyn Pages, frames: u32, pattern: Pattern) -> (Duration, Duration, u32) {
    let half = frames as usize / 2;
    let (nr, order) = if pattern == Pattern::Huge { (half >> 9, 9) } else { (half, 0) };
    let mut rng = Pcg64::new(3, 5);
    let mut shuffle = |held: &mut [usize]| {
        for i in (1..held.len()).rev() {
            held.swap(i, rng.next_u32() as usize % (i + 1));
        }
    };
    if pattern == Pattern::Repeat {
        // Nearly all of memory is taken, and a random half given back, before the clock runs.
        let mut held: Vec<_> = (0..nr * 2 - nr / 8).map(|_| pages.take(order)).collect();
        shuffle(&mut held);
        for page in held.split_off(nr) {
            pages.give(page, order);
        }
        let picks: Vec<_> = (0..nr / 4).map(|_| rng.next_u32() as usize % nr).collect();
        let start = Instant::now();
        for &at in &picks {
            pages.give(held[at], order);
            held[at] = black_box(pages.take(order));
        }
        let pairs = start.elapsed();
        held.into_iter().for_each(|page| pages.give(page, order));
        return (pairs, Duration::ZERO, picks.len() as u32);
    }
    let start = Instant::now();
    let mut held: Vec<_> = (0..nr).map(|_| pages.take(order)).collect();
    let taking = start.elapsed();
    if pattern == Pattern::Rand {
        shuffle(&mut held);
    }
    let start = Instant::now();
    for &page in &held {
        pages.give(page, order);
    }
    (taking, start.elapsed(), nr as u32)
}

fn allocators(frames: u32) -> Vec<(&'static str, Box<dyn Pages>)> {
    let mut buddy = FrameAllocator::<33>::new();
    buddy.add_frame(0, frames as usize);
    let mut bitmap = Bitmap(Box::new(BitAlloc16M::DEFAULT));
    bitmap.0.insert(0..frames as usize);
    vec![
        ("highorder 6.12", Box::new(Ours::new(frames, true))),
        ("highorder 6.1", Box::new(Ours::new(frames, false))),
        ("buddy_system_allocator", Box::new(buddy)),
        ("bitmap-allocator", Box::new(bitmap)),
    ]
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// All allocators in turn, some rounds, as a table of medians and ratios.
fn interleaved(_: &mut Criterion) {
    const ROUNDS: usize = 5;
    println!("ns an operation, median of {ROUNDS} interleaved rounds (ratio to the first column)");
    println!(
        "pattern        {:>22} {:>22} {:>30} {:>26}",
        "highorder 6.12", "highorder 6.1", "buddy_system_allocator", "bitmap-allocator"
    );
    let mut ours = Vec::new();
    for pattern in PATTERNS {
        let mut all = allocators(FRAMES);
        let mut samples = vec![(Vec::new(), Vec::new()); all.len()];
        for _ in 0..ROUNDS {
            for ((_, pages), samples) in all.iter_mut().zip(&mut samples) {
                let (taking, giving, nr) = round(pages.as_mut(), FRAMES, pattern);
                samples.0.push(taking.as_secs_f64() * 1e9 / f64::from(nr));
                samples.1.push(giving.as_secs_f64() * 1e9 / f64::from(nr));
            }
        }
        let rows: &[_] = if pattern == Pattern::Repeat { &["pair"] } else { &["alloc", "free"] };
        for (row, name) in rows.iter().enumerate() {
            let medians: Vec<_> = samples
                .iter_mut()
                .map(|s| if row == 0 { median(&mut s.0) } else { median(&mut s.1) })
                .collect();
            print!("{:<14}", format!("{pattern:?} {name}"));
            for ns in &medians {
                print!(" {ns:>14.1} ({:>7.2})", ns / medians[0]);
            }
            println!();
            ours.push(medians[0]);
        }
    }
    let (bulk, huge) = (ours[0] + ours[1], ours[5] + ours[6]);
    println!("highorder 6.12: a huge page costs {:.2} times a page (alloc and free)", huge / bulk);
}

/// The same under criterion's own sampling, for comparing with an earlier run.
fn sampled(c: &mut Criterion) {
    for pattern in PATTERNS {
        let mut group = c.benchmark_group(format!("{pattern:?}"));
        group.sample_size(10).warm_up_time(Duration::from_millis(300));
        group.measurement_time(Duration::from_secs(1));
        for (name, mut pages) in allocators(FEW_FRAMES) {
            group.bench_function(name, |b| b.iter(|| round(pages.as_mut(), FEW_FRAMES, pattern)));
        }
        group.finish();
    }
}

criterion_group!(peers, interleaved, sampled);
criterion_main!(peers);
