//! The words that all crates share, as types: frames, orders, mobility, zones, nodes, CPUs, time.
//!
//! They are the kernel's own words. Whoever uses one need not climb to the model for it, and two numbers that
//! mean different things cannot be taken for each other.
#![no_std]
extern crate alloc;

mod access;
mod frames;
mod mobility;
mod place;
mod time;

pub use access::{Access, MemPolicy, Placement};
pub use frames::{COSTLY_ORDER, MAX_PAGE_ORDER, NR_PAGE_ORDERS, Order, Pfn};
pub use mobility::{Migratetype, NR_MIGRATETYPES};
pub use place::{CpuId, NR_ZONE_KINDS, NodeId, ZoneKind};
pub use time::Ns;
