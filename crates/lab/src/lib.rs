//! Kernel files, experiments and their runs, recordings and their replay.

pub mod attainable;
mod block_lives;
pub mod catalogue;
pub mod compact_memory;
mod demands;
pub mod experiment;
pub mod fallbacks;
mod family;
pub mod free_running;
pub mod future;
pub mod lockstep;
pub mod machine;
pub mod memory_map;
pub mod passes;
pub mod reclaim_events;
pub mod recording;
pub mod reproduce;
pub mod residents;
pub mod run;
mod run_inputs;
pub mod start;
mod sweep;
pub mod target;
pub mod times;
pub mod trace_text;
pub mod unknowns;
pub mod validate;
pub mod what_if;

pub use experiment::{Experiment, Scale, Variant};
pub use recording::Recording;
pub use run::{ExecuteError, Executed, Failed, ModelSize, Plan, Run, RunKind, Watch};
pub use sweep::{Axis, Sweep};
pub use target::{RealError, RealOptions, Target};
