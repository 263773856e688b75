//! The memory manager's state and its atomic steps: no time, no I/O.
//!
//! A [`types::Pfn`] is always an index of a base page, an [`types::Order`] always inclusive of the
//! largest. The crate never asks which kernel it is: each decision reads one named policy value.
#![no_std]
extern crate alloc;

pub mod types;
