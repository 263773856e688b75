//! Workloads on the model: what each mechanism does to them.

mod common;
mod compaction;
mod fleet;
mod huge_pages;
mod journal;
mod knobs;
mod mmap_lock;
mod model;
mod recorded;
mod rootfs;
mod small_files;
mod tlb;
