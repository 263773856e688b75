//! The picture of what became of pageblocks in a run: which of them held what, from one sample to the next.
//!
//! Lumpy reclaim empties a block where it lies: its row goes from whatever it held to free at once, and its neighbours
//! stay. Compaction empties the low addresses into the high ones.

use crate::memory_map;
use highorder_mm::frame::State;
use highorder_mm::memory::Memory;
use highorder_mm::types::Pfn;
use highorder_model::Watch;
use highorder_record::Inputs;
use highorder_report::{BLOCK_LIVES, BlockLives, Caption, UseClass, ZoneLives};
use highorder_sim::Ns;
use highorder_sim::kernel::Kernel;
use highorder_snapshot::FrameUse;

/// Most pageblocks of a picture: of larger memory every second is shown, or every third, and so on. Our choice: as many
/// as a page shows.
const BLOCKS_MAX: usize = 240;
/// Most moments: of a longer run every second sample is kept, then every fourth, and so on. Our choice.
const MOMENTS_MAX: usize = 180;

/// Begins to look at the memory of a run.
pub(crate) fn watch(kernel: &Kernel) -> Box<dyn Watch> {
    Box::new(begin(kernel))
}

fn begin(kernel: &Kernel) -> Lives {
    let memory = &kernel.memory;
    let blocks = memory_map::pageblocks(memory);
    let step = blocks.len().div_ceil(BLOCKS_MAX).max(1);
    let zones = memory.zones.iter().filter(|zone| zone.present_pages > 0).map(|zone| {
        let own = blocks.iter().filter(|(pfn, _)| (zone.start.0..zone.end.0).contains(&pfn.0));
        Watched {
            name: format!("node {}, zone {}", zone.node, zone.kind.name()),
            blocks: own.step_by(step).map(|&(pfn, _)| pfn).collect(),
            moments: Vec::new(),
        }
    });
    Lives { zones: zones.collect(), seconds: Vec::new(), step, every: 1, looks: 0 }
}

/// What was seen so far.
struct Lives {
    zones: Vec<Watched>,
    seconds: Vec<f64>,
    /// Of so many pageblocks one is shown.
    step: usize,
    /// Of so many samples one is kept.
    every: usize,
    looks: usize,
}

/// A zone.
struct Watched {
    name: String,
    blocks: Vec<Pfn>,
    /// What each block held, moment by moment.
    moments: Vec<Vec<UseClass>>,
}

impl Watch for Lives {
    fn look(&mut self, now: Ns, kernel: &Kernel) {
        self.looks += 1;
        if !(self.looks - 1).is_multiple_of(self.every) {
            return;
        }
        if self.seconds.len() == MOMENTS_MAX {
            self.every *= 2;
            keep_every_second(&mut self.seconds);
            self.zones.iter_mut().for_each(|zone| keep_every_second(&mut zone.moments));
            if !(self.looks - 1).is_multiple_of(self.every) {
                return;
            }
        }
        self.seconds.push(now.0 as f64 / 1e9);
        for zone in &mut self.zones {
            let held = zone.blocks.iter().map(|&block| most_of(&kernel.memory, block));
            zone.moments.push(held.collect());
        }
    }

    fn draw(&self, inputs: &Inputs) -> (&'static str, String) {
        let kernel = inputs.kernel.values.get("kernel").unwrap_or(&inputs.kernel.name);
        let shown = match self.step {
            1 => "Every pageblock is a row".to_owned(),
            step => format!("One pageblock of {step} is a row"),
        };
        let lives = BlockLives {
            title: format!("{}, {kernel}: what became of pageblocks", inputs.machine.name),
            explanation: format!(
                "{shown}, coloured by what most of it holds; time runs to the right."
            ),
            seconds: self.seconds.clone(),
            zones: self.zones.iter().map(Watched::lives).collect(),
            caption: Caption { lines: vec![inputs.readable_name()], command: None },
        };
        (BLOCK_LIVES, lives.svg())
    }
}

impl Watched {
    fn lives(&self) -> ZoneLives {
        let of_block = |block: usize| self.moments.iter().map(|held| held[block]).collect();
        ZoneLives {
            name: self.name.clone(),
            blocks: (0..self.blocks.len()).map(of_block).collect(),
        }
    }
}

fn keep_every_second<T>(list: &mut Vec<T>) {
    let mut at = 0;
    list.retain(|_| {
        at += 1;
        at % 2 == 1
    });
}

/// What most frames of a pageblock hold; of uses with as many the one that a map stacks lower.
fn most_of(memory: &Memory, block: Pfn) -> UseClass {
    let order = memory.policy.freelist.pageblock_order;
    let frames = memory.frames();
    let end = (block.0 + order.pages()).min(frames.len() as u32);
    let mut counts = [0_u32; UseClass::COUNT];
    let mut pfn = block.0;
    while pfn < end {
        let head = frames.head_of(Pfn(pfn));
        let pages = match frames.state(head) {
            State::Hole | State::Reserved => 1,
            _ => frames.order(head).pages(),
        };
        let until = (head.0 + pages).clamp(pfn + 1, end);
        let held = match frames.state(head) {
            State::Hole => FrameUse::Hole,
            State::Reserved => FrameUse::Reserved,
            State::Free => FrameUse::Free(frames.order(head).0),
            State::Pcp => FrameUse::PerCpu,
            State::Isolated | State::Allocated | State::Inner => memory_map::content(memory, head),
        };
        counts[UseClass::of(held, order) as usize] += until - pfn;
        pfn = until;
    }
    let most = counts.iter().copied().max().unwrap_or(0);
    let is_most = |class: &UseClass| counts[*class as usize] == most;
    UseClass::ALL.into_iter().find(is_most).unwrap_or(UseClass::Hole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use highorder_kernels::machine;
    use highorder_mm::Order;
    use highorder_mm::alloc::Request;
    use highorder_mm::gfp::Gfp;
    use highorder_mm::types::NodeId;
    use highorder_sim::kernel::{Knobs, boot};

    fn machine() -> Kernel {
        let machine = machine::load("one-node-8g").unwrap().scaled(1, 8).unwrap();
        let of = highorder_kernels::KernelFile::load("linux-3.3").unwrap();
        let knobs = Knobs::at_boot(&of.policy, &of.flows);
        boot(&machine, of.policy, of.flows, knobs).into_world()
    }

    #[test]
    fn a_pageblock_is_what_most_of_it_holds() {
        let memory = &mut machine().memory;
        let request = |order| Request {
            order: Order(order),
            gfp: Gfp::KERNEL,
            cpu: highorder_mm::CpuId(0),
            node: NodeId(0),
            past_lists: false,
        };
        let whole = memory.alloc_without_reclaim(request(9)).expect("memory is free");
        assert_eq!(most_of(memory, whole), UseClass::Kernel);
        memory.free(whole, Order(9), highorder_mm::CpuId(0));
        assert_eq!(most_of(memory, whole), UseClass::FreeHuge);
        // Less than half of it.
        let part = memory.alloc_without_reclaim(request(7)).expect("memory is free");
        assert_eq!(most_of(memory, part.align_down(Order(9))), UseClass::FreeMiddle);
    }

    #[test]
    fn of_a_long_run_moments_are_kept_that_lie_as_far_apart() {
        let kernel = machine();
        let mut lives = begin(&kernel);
        for second in 0..1000 {
            lives.look(Ns::from_secs(second), &kernel);
        }
        assert!(lives.seconds.len() <= MOMENTS_MAX && lives.seconds.len() > MOMENTS_MAX / 2);
        let gaps: Vec<f64> = lives.seconds.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|&gap| gap == lives.every as f64), "{gaps:?}");
        let rows: usize = lives.zones.iter().map(|zone| zone.blocks.len()).sum();
        assert!(rows <= BLOCKS_MAX + lives.zones.len(), "{rows}");
        assert!(lives.zones.iter().all(|zone| zone.moments.len() == lives.seconds.len()));
    }
}
