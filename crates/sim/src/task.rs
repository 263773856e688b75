//! What a task is to those outside the scheduler: its name, where it may run, what it has used.

use highorder_mm::types::NodeId;
use highorder_words::{CpuId, Ns};

/// A task's number, in order of creation; it decides between tasks at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId(pub u32);

/// On whose account time is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// The program.
    User = 0,
    /// The kernel.
    System = 1,
}

/// Where a task may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Affinity {
    /// Anywhere.
    #[default]
    Any,
    /// On the CPUs of one node.
    Node(NodeId),
    /// On one CPU.
    Cpu(CpuId),
}

/// What a new task is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSpec {
    /// Its name: `usemem`, `kswapd0`.
    pub name: String,
    /// Kernel threads do not keep a run going: it ends with the last other task.
    pub is_kernel_thread: bool,
    /// Where it may run.
    pub affinity: Affinity,
}

impl TaskSpec {
    /// A program's task, free to run anywhere.
    #[must_use]
    pub fn user(name: impl Into<String>) -> Self {
        Self { name: name.into(), is_kernel_thread: false, affinity: Affinity::Any }
    }

    /// A kernel thread, free to run anywhere.
    #[must_use]
    pub fn kernel_thread(name: impl Into<String>) -> Self {
        Self { is_kernel_thread: true, ..Self::user(name) }
    }

    /// The same, but running there.
    #[must_use]
    pub fn on(self, affinity: Affinity) -> Self {
        Self { affinity, ..self }
    }
}

/// What a task has done with its time. The five times add up to its life so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskTimes {
    /// Running the program.
    pub user: Ns,
    /// Running the kernel: its own work, switching to it, spinning on locks.
    pub system: Ns,
    /// Waiting for a device.
    pub iowait: Ns,
    /// Waiting for anything else.
    pub asleep: Ns,
    /// Able to run while the CPU ran somebody else.
    pub runnable: Ns,
    /// Times it gave its CPU up to wait.
    pub voluntary_switches: u64,
    /// Times its CPU was taken from it.
    pub involuntary_switches: u64,
    /// Times it went on on another CPU.
    pub migrations: u64,
}

impl TaskTimes {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> Ns {
        self.user + self.system + self.iowait + self.asleep + self.runnable
    }
}

/// What a CPU has done with its time. The four add up to the time since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Running programs.
    pub user: Ns,
    /// Running the kernel.
    pub system: Ns,
    /// Nothing to run, while a task that last ran here waits for a device.
    pub iowait: Ns,
    /// Nothing to run.
    pub idle: Ns,
}

impl CpuTimes {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> Ns {
        self.user + self.system + self.iowait + self.idle
    }
}

/// How a wait with a limit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// Somebody woke the task.
    Woken,
    /// The time was up.
    TimedOut,
}

/// One resumption of a task, as recorded for comparing runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumption {
    /// When.
    pub at: Ns,
    /// Which task.
    pub task: TaskId,
    /// Where.
    pub cpu: CpuId,
}
