//! The memory manager against models of obvious code, examples worked by hand, and spaces enumerated whole.

mod against_naive;
mod compaction_by_hand;
mod compaction_properties;
mod dirty;
mod fast_search;
mod hand_worked;
mod linux_3;
mod lru_against_naive;
mod mapped_files;
mod naive;
mod reclaim_by_hand;
mod scene;
mod shmem;
mod slab;
mod small_spaces;
mod splits_by_hand;
mod tlb_by_hand;
mod user;
mod user_memory;
mod volume;
