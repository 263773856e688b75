//! The memory manager's state and its atomic steps: no time, no I/O.
//!
//! [`Memory`] is a machine's physical memory: a frame table of 16 bytes a frame, pageblocks, zones
//! with their free lists and per-CPU lists. Its methods are the kernel's atomic steps (take a block,
//! free one, refill or drain a per-CPU list, fall back to another migratetype); none of them knows of
//! time, and none asks which kernel it is: each decision reads one named value of [`policy::Policy`].
//!
//! Reading order: [`types`], [`policy`], [`machine`], [`frame`], [`zone`], [`buddy`], [`fallback`], [`pcp`],
//! [`watermark`], [`alloc`](mod@alloc), [`fast_search`], [`validate`]; then user memory: [`page_table`],
//! [`vma`], [`anon`], [`filemap`], [`rmap`], [`lru`], [`reclaim`], [`mglru`], [`workingset`], [`swap`], [`vmstat`], [`audit`].

#![no_std]
// Nobody may allow them here: no wall clock, no order by chance.
#![forbid(clippy::disallowed_types)]
extern crate alloc as std_alloc;

pub mod adopt;
pub mod alloc;
pub mod anon;
pub mod audit;
pub mod buddy;
pub mod compaction;
pub mod dirty;
pub mod fallback;
pub mod fast_search;
pub mod filemap;
pub mod frame;
pub mod gfp;
pub mod index;
pub mod isolate;
pub mod kernel_use;
pub mod khugepaged;
pub mod lru;
pub mod lumpy;
pub mod machine;
pub mod memory;
pub mod mglru;
pub mod migrate;
pub mod numa;
pub mod page_table;
pub mod pcp;
pub mod policy;
pub mod reclaim;
pub mod restore;
pub mod rmap;
pub mod shmem;
pub mod slab;
mod split_queue;
pub mod swap;
pub mod tlb;
pub mod validate;
pub mod vma;
pub mod vmstat;
pub mod warm;
pub mod watermark;
pub mod workingset;
pub mod zone;

pub use highorder_words as types;
pub use machine::{Machine, MachineError, NodeSpec, ZoneSpec};
pub use memory::Memory;
pub use types::{
    Access, CpuId, MAX_PAGE_ORDER, MemPolicy, Migratetype, NR_PAGE_ORDERS, NodeId, Order, Pfn,
    ZoneKind,
};
