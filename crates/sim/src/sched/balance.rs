//! Balancing from time to time: a CPU that has less to do than another one takes a waiting task from it.
//!
//! Each task has a *load*: the share of the last time in which it ran or waited for a CPU, older time counting half
//! for each [`HALF_LIFE`]. A CPU's load is the sum of its tasks'. Every CPU compares itself with the others of its
//! node at intervals, and every node with the other nodes at longer ones. It takes tasks if the other side has
//! clearly more to do ([`CPUS_PERCENT`], [`NODES_PERCENT`]): as much load as would make both sides equal. Where a
//! single task is more than that, it still takes one if the sides differ by at least a whole task. So three tasks
//! that never sleep change places on two CPUs, and each has two thirds of one; a task that often sleeps shares a CPU
//! with one that never does.
//!
//! Models: kernel/sched/fair.c, v4.4: `__update_load_avg`, `rebalance_domains`, `find_busiest_group`,
//! `calculate_imbalance`, `fix_small_imbalance`, `detach_tasks`; kernel/sched/core.c: `sd_init`.
//! Departs: a CPU is compared when a slice ends on the one that has more to do, not at a tick of its own; kernels
//! before 3.8 and their averages by CPU, and those since 5.10 which balance twice as often (6e7499135db7), are as
//! 4.4. Visible as: tasks change places up to a slice later, and on kernels since 5.10 half as often.

use super::Scheduler;
use highorder_mm::types::{CpuId, NodeId};

/// After this time what a task did counts half: 32 periods of 2^20 ns.
const HALF_LIFE: u64 = 32 << 20;
/// The load of a task that never sleeps.
const FULL: u64 = 1 << 20;
/// A CPU is balanced every so many milliseconds for each CPU of its domain while it has work (`busy_factor`,
/// `balance_interval`), twice as many where there was nothing to do the last time.
const INTERVAL_PER_CPU: u64 = 32_000_000;
/// How much more than its own load a CPU finds elsewhere before it takes some, in percent: `imbalance_pct` of CPUs
/// that share a cache.
const CPUS_PERCENT: u64 = 117;
/// The same between nodes.
const NODES_PERCENT: u64 = 125;
/// A task that ran this recently has its data in the cache of its CPU (`sysctl_sched_migration_cost`).
const CACHE_HOT: u64 = 500_000;

/// 2^(-k/32) in units of 2^-32, for k from 0 to 32.
const POWERS: [u64; 33] = {
    // 2^(-1/32), rounded down.
    const ROOT: u64 = 4_202_935_003;
    let mut powers = [1 << 32; 33];
    let mut k = 1;
    while k < 33 {
        powers[k] = (powers[k - 1] * ROOT) >> 32;
        k += 1;
    }
    powers
};

/// What is left of something after a time in which it halves every [`HALF_LIFE`].
#[doc(alias = "__update_load_avg")]
fn decayed(value: u64, time: u64) -> u64 {
    let halvings = time / HALF_LIFE;
    if halvings >= 32 {
        return 0;
    }
    let rest = time % HALF_LIFE;
    let (step, within) = ((rest >> 20) as usize, rest & ((1 << 20) - 1));
    let (left, right) = (POWERS[step], POWERS[step + 1]);
    let power = left - (((left - right) * within) >> 20);
    ((value * power) >> 32) >> halvings
}

/// How much of the time a task runs or wants to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// At the moment until which it is known; of [`FULL`].
    value: u64,
    until: u64,
}

impl Load {
    /// Of a new task: as if it had always run.
    pub(super) const fn of_new_task(now: u64) -> Self {
        Self { value: FULL, until: now }
    }

    /// Goes on to `now`; meanwhile the task could run, or slept.
    pub(super) fn pass(&mut self, now: u64, could_run: bool) {
        *self = Self { value: self.at(now, could_run), until: now };
    }

    fn at(self, now: u64, could_run: bool) -> u64 {
        let passed = now - self.until;
        if could_run {
            FULL - decayed(FULL - self.value, passed)
        } else {
            decayed(self.value, passed)
        }
    }
}

/// When a CPU, or a node, compares itself with others next, and after which interval again.
#[doc(alias = "sd_init")]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rota {
    next: u64,
    interval: u64,
}

impl Rota {
    fn is_due(self, now: u64) -> bool {
        self.next <= now
    }

    /// Sets the next moment: soon if tasks were moved, later and later if not.
    fn advance(&mut self, now: u64, nr_cpus: u64, has_moved: bool) {
        let least = INTERVAL_PER_CPU * nr_cpus;
        self.interval = match has_moved {
            true => least,
            false => (2 * self.interval).clamp(least, 2 * least),
        };
        self.next = now + self.interval;
    }
}

/// One side of a comparison: what its CPUs have to do together.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    nr_cpus: u64,
    nr_running: u64,
    load: u64,
}

impl Group {
    const fn per_cpu(self) -> u64 {
        self.load / self.nr_cpus
    }

    fn per_task(self) -> u64 {
        self.load.checked_div(self.nr_running).unwrap_or(0)
    }
}

/// How much load the local side takes from the busiest; `all` is both and the others together.
#[doc(alias = "fix_small_imbalance")]
#[doc(alias = "calculate_imbalance")]
fn imbalance(local: Group, busiest: Group, all: Group, percent: u64) -> u64 {
    let (here, there, average) = (local.per_cpu(), busiest.per_cpu(), all.per_cpu());
    if here >= average || 100 * there <= percent * here {
        return 0;
    }
    // Elsewhere CPUs may have more to do for which nothing waits.
    let surplus = there.saturating_sub(average);
    let equal = surplus.min(average - here) * local.nr_cpus.min(busiest.nr_cpus);
    let a_task = busiest.per_task();
    if equal >= a_task {
        return equal;
    }
    // Less than a task's worth. Where the local side's tasks are smaller, a task would not stay for long.
    let must_differ = match local.nr_running {
        0 => 2,
        _ if a_task > local.per_task() => 1,
        _ => 2,
    };
    let scaled = a_task / busiest.nr_cpus;
    if there + scaled >= here + must_differ * scaled { a_task } else { 0 }
}

impl Scheduler {
    /// Lets CPUs that have less to do than this one take tasks that wait for it, those whose time for that has come.
    #[doc(alias = "rebalance_domains")]
    pub(super) fn balance_from(&mut self, from: CpuId) {
        if self.cpus[from].queue.is_empty() || self.cpus.len() == 1 {
            return;
        }
        let node = self.cpus[from].node;
        let on_node: Vec<CpuId> = self.cpus_of(node).collect();
        for &local in &on_node {
            // An idle CPU takes what it can by itself.
            let is_busy = local != from && !self.cpus[local].is_idle();
            if is_busy && self.cpus[local].rota.is_due(self.now) {
                if self.busiest_of(&on_node) != Some(from) {
                    return;
                }
                self.balance_within_node(local, from, &on_node);
            }
        }
        for other in NodeId::all(self.nr_nodes) {
            if other != node && self.node_rotas[other.index()].is_due(self.now) {
                if self.busiest_of(&on_node) != Some(from) {
                    return;
                }
                self.balance_between_nodes(other, from, &on_node);
            }
        }
    }

    fn balance_within_node(&mut self, local: CpuId, from: CpuId, on_node: &[CpuId]) {
        let (here, there) = (self.group(&[local]), self.group(&[from]));
        let amount = imbalance(here, there, self.group(on_node), CPUS_PERCENT);
        let has_moved = self.move_load(from, local, amount);
        let now = self.now;
        self.cpus[local].rota.advance(now, on_node.len() as u64, has_moved);
    }

    fn balance_between_nodes(&mut self, local: NodeId, from: CpuId, there: &[CpuId]) {
        let here: Vec<CpuId> = self.cpus_of(local).collect();
        // The first CPU of a node stands for it; an idle one would have taken tasks already.
        let Some(&to) = here.first() else { return };
        if here.iter().any(|&cpu| self.cpus[cpu].is_idle()) {
            return;
        }
        let all: Vec<CpuId> = self.cpus.ids().collect();
        let (nr_cpus, all) = (all.len() as u64, self.group(&all));
        let amount = imbalance(self.group(&here), self.group(there), all, NODES_PERCENT);
        let has_moved = self.move_load(from, to, amount);
        let now = self.now;
        self.node_rotas[local.index()].advance(now, nr_cpus, has_moved);
    }

    fn cpus_of(&self, node: NodeId) -> impl Iterator<Item = CpuId> {
        self.cpus.ids().filter(move |&cpu| self.cpus[cpu].node == node)
    }

    /// Of the CPUs for which tasks wait, the first of those with the largest load (`find_busiest_queue`).
    #[doc(alias = "find_busiest_group")]
    fn busiest_of(&self, cpus: &[CpuId]) -> Option<CpuId> {
        let waited_for = cpus.iter().copied().filter(|&cpu| !self.cpus[cpu].queue.is_empty());
        waited_for.rev().max_by_key(|&cpu| self.group(&[cpu]).load)
    }

    fn group(&self, cpus: &[CpuId]) -> Group {
        let mut group = Group { nr_cpus: cpus.len() as u64, ..Group::default() };
        for &cpu in cpus {
            let this = &self.cpus[cpu];
            for task in this.queue.iter().map(|&(_, task)| task).chain(this.running) {
                group.nr_running += 1;
                group.load += self.tasks[task as usize].load.at(self.now, true);
            }
        }
        group
    }

    /// Moves waiting tasks from one CPU to another, those that ran least first, until this much load has moved.
    /// Tasks go whose load is at most twice of what is left, and that have not run a moment ago. Whether one went.
    #[doc(alias = "detach_tasks")]
    fn move_load(&mut self, from: CpuId, to: CpuId, amount: u64) -> bool {
        let (mut left, mut has_moved) = (amount, false);
        let waiting: Vec<(i64, u32)> = self.cpus[from].queue.iter().copied().collect();
        for entry in waiting {
            if left == 0 {
                break;
            }
            let task = entry.1 as usize;
            let load = self.tasks[task].load.at(self.now, true);
            let is_hot = self.now < self.tasks[task].since + CACHE_HOT;
            if !self.may_run(task, to) || load / 2 > left || is_hot {
                continue;
            }
            self.take_from_queue(entry, from);
            self.account_waiting(task);
            self.move_to(task, to);
            self.enter(task, to);
            left = left.saturating_sub(load);
            has_moved = true;
        }
        has_moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_task_did_counts_half_after_a_half_life() {
        let mut load = Load::of_new_task(0);
        assert_eq!(load.at(HALF_LIFE, true), FULL, "it always ran");
        assert!(FULL / 2 - load.at(HALF_LIFE, false) <= 2, "{load:?}");
        load.pass(HALF_LIFE, false);
        assert!(FULL * 3 / 4 - load.at(2 * HALF_LIFE, true) <= 2, "{load:?}");
        // Many short times are as one long one, but for the hundredth by which chords decay slower than the curve.
        let mut often = Load::of_new_task(0);
        for at in 1..=1000 {
            often.pass(at * HALF_LIFE / 1000, false);
        }
        assert!((FULL / 2).abs_diff(often.value) < 4000, "{often:?}");
        assert_eq!(load.at(u64::MAX, false), 0);
    }

    #[test]
    fn as_much_is_taken_as_makes_both_sides_equal_or_one_task() {
        let group = |nr_running: u64, load: u64| Group { nr_cpus: 1, nr_running, load: load << 10 };
        let taken = |local: Group, busiest: Group| {
            let all = Group {
                nr_cpus: 2,
                nr_running: local.nr_running + busiest.nr_running,
                load: local.load + busiest.load,
            };
            imbalance(local, busiest, all, CPUS_PERCENT) >> 10
        };
        assert_eq!(taken(group(1, 1024), group(2, 2048)), 1024, "one of three changes places");
        assert_eq!(taken(group(2, 2048), group(2, 2048)), 0);
        assert_eq!(taken(group(1, 1024), group(5, 5120)), 2048);
        assert_eq!(
            taken(group(1, 1024), group(2, 1126)),
            0,
            "a task that nearly always sleeps waits too"
        );
    }
}
