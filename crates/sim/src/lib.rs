//! Virtual time: tasks, CPUs, locks, block devices, and machines with their costs.
//!
//! A [`Sim`] owns a world and the tasks that work on it. A task is straight-line code over a [`Cx`]: it
//! changes the world, spends nanoseconds for that on its CPU, sleeps, waits, locks, and transfers to and
//! from [`Device`]s. Whoever's moment is the earliest goes on; there is no wall clock, no OS thread and no
//! chance in it, so the same inputs give the same course of events.
//!
//! ```
//! use highorder_kernels::machine;
//! use highorder_sim::{Affinity, CpuId, Mode, Ns, Sim, TaskSpec};
//!
//! let machine = machine::load("one-node-8g").unwrap();
//! let mut sim = Sim::new(machine.sim_spec(), Vec::new());
//! for (name, step) in [("slow", 50), ("quick", 30)] {
//!     sim.spawn(TaskSpec::user(name), move |cx| {
//!         for _ in 0..2 {
//!             cx.spend(Ns::from_micros(step), Mode::User);
//!             cx.world().push(name);
//!         }
//!     });
//! }
//! sim.run().unwrap();
//! assert_eq!(sim.world(), &["quick", "slow", "quick", "slow"]);
//! ```
//!
//! Reading order: [`task`], [`sim`], [`sched`], [`device`], [`machine`].

// Nobody may allow them here: no wall clock, no order by chance.
#![forbid(clippy::disallowed_types)]

pub mod device;
pub mod error;
mod events;
pub mod kernel;
pub mod machine;
pub mod sched;
pub mod sim;
pub mod task;

pub use device::{
    Class, Completion, Device, DeviceKind, DeviceSpec, Direction, Elevator, Io, Ticket,
};
pub use error::RunError;
pub use highorder_words::{CpuId, Ns};

pub use machine::{Cost, Costs, Machine};
pub use sched::{
    BarrierId, ByBusy, DeviceId, Host, LockId, LockKind, LockStats, Picks, SchedSpec, SimSpec,
    TICK, WaitQueue,
};
pub use sim::{Cx, Sim, Waker};
pub use task::{Affinity, CpuTimes, Mode, Resumption, TaskId, TaskSpec, TaskTimes, Wakeup};
