//! Picking by deadlines: each task asks its CPU for a slice, and the slice that is to end first goes first.
//!
//! A task's *lag* is by how much it has run less than the mean of its CPU's tasks. Only a task that has not run more
//! than the mean may go next. Of those the one goes whose *deadline* comes first: its time so far, and a slice. Whoever
//! begins a slice keeps the CPU until it has run for it, even if a task is woken meanwhile, as long as it has not run
//! more than the mean. The end of a slice is seen at ticks and when a task is woken. So a thread of the kernel that is
//! woken, as kswapd is by a task that finds memory short, often waits until the next tick, where it took the CPU at once
//! before 6.6.
//!
//! A task that sleeps after having had more than its share *lingers*: it counts among the tasks of its CPU until its turn
//! comes, and then leaves them with nothing to its credit. Whoever is woken while it lingers stays on its CPU, and is
//! placed by what the running task had run when that was last looked at, at a tick perhaps. Looked at anew the running
//! task has run more, and so kswapd, woken again soon after it slept, takes the CPU at once.
//!
//! Models: kernel/sched/fair.c, v6.12, for tasks of equal weight and slice: `pick_eevdf` with `RUN_TO_PARITY`,
//! `place_entity` with `PLACE_LAG` and `PLACE_DEADLINE_INITIAL`, `update_deadline`, `update_entity_lag`,
//! `requeue_delayed_entity` with `DELAY_DEQUEUE` and `DELAY_ZERO`.
//! Departs: whoever lingers does not count as load when CPUs are balanced. Visible as: tasks move between CPUs a little
//! differently.

use super::{Picks, Scheduler, TICK, tick_from};
use highorder_words::{CpuId, Ns};

/// What a task asked its CPU for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// By then, in the time of its CPU's tasks, it is to have run for its slice.
    deadline: i64,
    /// By how much it had run less than the mean when it left the CPU's tasks.
    lag: i64,
    /// It has not run yet, and asks for half a slice.
    is_new: bool,
}

impl Request {
    pub(super) const fn of_new_task(slice: Ns) -> Self {
        Self { deadline: slice.0 as i64 / 2, lag: 0, is_new: true }
    }
}

/// The tasks of a CPU together.
#[derive(Clone, Copy, Debug)]
struct Sum {
    nr: i64,
    vruntime: i128,
}

impl Sum {
    fn mean(self) -> i64 {
        self.vruntime.div_euclid(i128::from(self.nr.max(1))) as i64
    }

    /// Whether a task that has run for so long has not had more than its share.
    #[doc(alias = "entity_eligible")]
    fn may_go(self, vruntime: i64) -> bool {
        i128::from(vruntime) * i128::from(self.nr) <= self.vruntime
    }
}

impl Scheduler {
    const fn request_slice(&self) -> i64 {
        self.spec.min_granularity.0 as i64
    }

    /// Of the tasks that run on a CPU or wait for it.
    fn sum(&self, cpu: CpuId) -> Sum {
        let this = &self.cpus[cpu];
        let running = this.running.map(|task| self.tasks[task as usize].vruntime);
        // A task that is about to give up its CPU may wait for it already.
        let running = running.filter(|&vruntime| {
            this.running.is_none_or(|task| {
                !this.queue.contains(&(vruntime, task)) && !this.lingering.contains(&task)
            })
        });
        let lingering = this.lingering.iter().map(|&task| self.tasks[task as usize].vruntime);
        let all = this.queue.iter().map(|&(vruntime, _)| vruntime).chain(lingering).chain(running);
        all.fold(Sum { nr: 0, vruntime: 0 }, |sum, vruntime| Sum {
            nr: sum.nr + 1,
            vruntime: sum.vruntime + i128::from(vruntime),
        })
    }

    /// How long a task may run until its deadline.
    pub(super) fn until_deadline(&self, task: usize) -> u64 {
        let this = &self.tasks[task];
        u64::try_from(this.request.deadline - this.vruntime).unwrap_or(0)
    }

    /// Remembers the lag of a task that runs on a CPU or waits for it, and is about to leave it.
    #[doc(alias = "update_entity_lag")]
    pub(super) fn keep_lag(&mut self, task: usize, cpu: CpuId) {
        debug_assert_eq!(self.picks, Picks::EarliestDeadline);
        let most = (2 * self.request_slice()).max(TICK.0 as i64);
        let lag = self.sum(cpu).mean() - self.tasks[task].vruntime;
        self.tasks[task].request.lag = lag.clamp(-most, most);
    }

    /// Has a task that is about to sleep linger on its CPU if it has had more than its share.
    #[doc(alias = "DELAY_DEQUEUE")]
    pub(super) fn linger(&mut self, task: usize, cpu: CpuId) {
        if !self.sum(cpu).may_go(self.tasks[task].vruntime) {
            self.cpus[cpu].lingering.push(task as u32);
        }
    }

    /// Ends a task's lingering, if it does.
    fn ends_lingering(&mut self, task: usize, cpu: CpuId) -> bool {
        let lingering = &mut self.cpus[cpu].lingering;
        let place = lingering.iter().position(|&other| other as usize == task);
        place.map(|place| lingering.remove(place)).is_some()
    }

    /// Puts a task that lingers on its CPU into the queue there, as it is woken; whether it did. Its running task may go on
    /// until the end of the slice that this sets.
    #[doc(alias = "requeue_delayed_entity")]
    pub(super) fn requeue(&mut self, task: usize) -> bool {
        let cpu = self.tasks[task].cpu;
        if self.picks != Picks::EarliestDeadline || !self.ends_lingering(task, cpu) {
            return false;
        }
        let running = self.cpus[cpu].running.expect("nobody lingers on an idle CPU") as usize;
        self.charge(running);
        let looked_at = self.cpus[cpu].looked_at.max(self.now / TICK.0 * TICK.0);
        let unseen = i128::from(self.now - looked_at);
        let others = self.sum(cpu);
        let others = Sum { vruntime: others.vruntime - unseen, ..others };
        let slice = self.request_slice();
        let this = &mut self.tasks[task];
        if others.mean() > this.vruntime {
            this.vruntime = others.mean();
            this.request.deadline = this.vruntime + slice;
        }
        let is_over = self.renew(running, cpu);
        self.await_turn(task, cpu);
        self.put_in_queue(task, cpu);
        let slice_end = self.goes_on_until(running, task, is_over);
        self.set_slice_end(cpu, slice_end);
        true
    }

    /// Puts a task among those of a CPU, with the lag that it had, and gives it a deadline.
    #[doc(alias = "place_entity")]
    pub(super) fn place(&mut self, task: usize, cpu: CpuId) {
        let sum = self.sum(cpu);
        let slice = self.request_slice();
        let (mean, min_vruntime) = (sum.mean(), self.cpus[cpu].min_vruntime);
        let this = &mut self.tasks[task];
        this.vruntime = if sum.nr == 0 {
            min_vruntime.max(this.vruntime)
        } else {
            // With it among them the mean moves towards it.
            mean - this.request.lag * (sum.nr + 1) / sum.nr
        };
        let slice = if this.request.is_new { slice / 2 } else { slice };
        this.request.is_new = false;
        this.request.deadline = this.vruntime + slice;
    }

    /// Gives a running task a new deadline if it has run to its own, and says whether it had.
    #[doc(alias = "update_deadline")]
    fn renew(&mut self, task: usize, cpu: CpuId) -> bool {
        let slice = self.request_slice();
        let this = &mut self.tasks[task];
        let is_over = this.vruntime >= this.request.deadline;
        if is_over {
            this.request.deadline = this.vruntime + slice;
            self.cpus[cpu].is_kept = false;
        }
        is_over
    }

    /// What ticks have made of the deadline of a task that ran alone.
    fn pass_ticks(&mut self, task: usize, cpu: CpuId) {
        let now = self.now;
        let slice = self.request_slice();
        let this = &mut self.tasks[task];
        let beyond = this.vruntime - this.request.deadline;
        if beyond < 0 {
            return;
        }
        let ran_to_it = (now - beyond as u64).max(self.cpus[cpu].picked_at);
        let first = tick_from(ran_to_it);
        if first > now {
            return;
        }
        let interval = tick_from(slice as u64);
        let last = first + (now - first) / interval * interval;
        this.request.deadline = this.vruntime - (now - last) as i64 + slice;
        self.cpus[cpu].is_kept = false;
    }

    /// Puts a task into the queue of a CPU that is busy, and says until when its running task may go on.
    #[doc(alias = "check_preempt_wakeup_fair")]
    pub(super) fn join_queue(&mut self, task: usize, cpu: CpuId) -> u64 {
        let running = self.cpus[cpu].running.expect("a busy CPU") as usize;
        let was_alone = !self.cpus[cpu].is_wanted();
        if was_alone {
            self.pass_ticks(running, cpu);
        }
        let is_over = self.renew(running, cpu);
        self.place(task, cpu);
        self.put_in_queue(task, cpu);
        self.goes_on_until(running, task, is_over && !was_alone)
    }

    /// Until when a running task goes on beside one just woken: that one takes the CPU if it is its turn, any other one only
    /// if the running task's slice is over.
    fn goes_on_until(&mut self, running: usize, woken: usize, is_over: bool) -> u64 {
        let cpu = self.tasks[running].cpu;
        self.cpus[cpu].looked_at = self.now;
        match self.turn(cpu, Some(running)) {
            Turn::Of((_, next)) if next as usize == woken || is_over => self.now,
            _ => self.tick_after(self.until_deadline(running)),
        }
    }

    /// Whether a task whose slice may be over goes on.
    pub(super) fn is_still_due(&mut self, task: usize, cpu: CpuId) -> bool {
        self.renew(task, cpu);
        self.turn_of_the_awake(cpu, Some(task)).is_none()
    }

    /// Who of those that wait for a CPU goes next.
    pub(super) fn due_first(&mut self, cpu: CpuId) -> Option<(i64, u32)> {
        self.turn_of_the_awake(cpu, None)
    }

    /// Whose turn it is of those that wait for a CPU. Whoever lingers and is found to be next leaves.
    #[doc(alias = "pick_next_entity")]
    fn turn_of_the_awake(&mut self, cpu: CpuId, running: Option<usize>) -> Option<(i64, u32)> {
        loop {
            let Turn::Of(entry) = self.turn(cpu, running) else { return None };
            let next = entry.1 as usize;
            if !self.cpus[cpu].lingering.contains(&entry.1) {
                return Some(entry);
            }
            self.keep_lag(next, cpu);
            let request = &mut self.tasks[next].request;
            request.lag = request.lag.min(0);
            self.ends_lingering(next, cpu);
        }
    }

    #[doc(alias = "pick_eevdf")]
    fn turn(&self, cpu: CpuId, running: Option<usize>) -> Turn {
        let this = &self.cpus[cpu];
        let sum = self.sum(cpu);
        let running = running.filter(|&task| sum.may_go(self.tasks[task].vruntime));
        if running.is_some() && this.is_kept {
            return Turn::Running;
        }
        let lingering =
            this.lingering.iter().map(|&task| (self.tasks[task as usize].vruntime, task));
        let all = this.queue.iter().copied().chain(lingering);
        let waiting = all.clone().filter(|&(vruntime, _)| sum.may_go(vruntime));
        // Whoever has waited longest of those that are due together.
        let first = waiting.min_by_key(|&(_, task)| {
            let task = &self.tasks[task as usize];
            (task.request.deadline, task.since)
        });
        // Where rounding leaves nobody who has not run more than the mean, the one goes that has run least.
        let first = first.or_else(|| if running.is_none() { all.min() } else { None });
        match (first, running) {
            (None, _) => Turn::Running,
            (Some(first), None) => Turn::Of(first),
            (Some(first), Some(running)) => {
                let deadline = |task: usize| self.tasks[task].request.deadline;
                match deadline(running) < deadline(first.1 as usize) {
                    true => Turn::Running,
                    false => Turn::Of(first),
                }
            }
        }
    }
}

/// Whose turn it is on a CPU.
enum Turn {
    /// That of the task that runs, or nobody's.
    Running,
    /// That of one that waits.
    Of((i64, u32)),
}
