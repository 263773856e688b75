//! Pages of `docs/` that are collected from the code, or held against it.

#[path = "../common/mod.rs"]
mod common;
mod kernels;
mod limits;
mod machines;
mod page;
mod record;
mod workloads;
