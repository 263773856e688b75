//! The machine's clock: what real runs measure is time.

use highorder_system::Ns;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds since some moment before the machine's start; the same in every process.
pub(crate) fn now_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Nanoseconds of CPU time that this thread has used.
pub(crate) fn thread_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A length of time as system calls take it.
pub(crate) fn timespec(time: Ns) -> Timespec {
    Timespec { tv_sec: (time.0 / 1_000_000_000) as i64, tv_nsec: (time.0 % 1_000_000_000) as i64 }
}
