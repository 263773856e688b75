//! The machine in virtual time: its scheduler, its files, and work that waits.

mod files;
mod fragment_stall;
mod in_use;
mod linux_3;
mod numa_balancing;
mod slab;
mod tasks;
mod work;
