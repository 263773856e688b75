//! Workloads on real kernels: this machine's, and any kernel image in a virtual machine.
//!
//! - [`host`]: the running kernel, with real memory and real time.
//! - [`vm`]: a kernel image booted in QEMU; [`guest`] is what runs in there, as process 1.
//! - [`knobs`]: the kernel's settings under their own names, put back whatever happens.
//!
//! All leave the same [`highorder_record::Record`] as the model.

mod clock;
pub mod guest;
pub mod host;
mod job;
pub mod knobs;
mod proc;
pub mod signals;
#[doc(hidden)]
pub mod testing;
pub mod twin;
pub mod vm;

pub use host::{HostError, HostSpec, MemoryRule};
pub use vm::{Accel, Image, Limits, VmError, VmSpec};
