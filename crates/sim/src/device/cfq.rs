//! Order of service by shares of time: each task that waits for its transfers has a queue, and those that nobody waits for
//! have one together. A queue that has the device keeps it for a slice of time, and may leave it idle for a moment, since
//! the task's next request is likely to be near.
//!
//! Models: `cfq_select_queue`, `cfq_may_dispatch`, `cfq_completed_request`, `cfq_should_preempt`, `cfq_should_idle`,
//! block/cfq-iosched.c, v3.3, with its defaults, for tasks of one priority in one group.
//! Departs: queues of tasks that work on the same place are not merged, nor does a request close to where an idle device
//! stands take it over. Visible as: readers of one file seek more.
//! Departs: a reader takes the device from writes whose turn has come and that wait for other reads to end, however long
//! they have waited; 4.x has one of those served first that waited too long. Visible as: beside readers that
//! never pause writes take longer there.
//! Departs: what holds kswapd up beside a full queue where stress-highalloc was published is not known. Visible as: kswapd of
//! 3.3 scans four times as many pages there.

use super::{Class, Direction, Request, Waiting};
use std::collections::{BTreeMap, BTreeSet};

const MS: u64 = 1_000_000;
/// Requests of a queue that the device has at once while others wait (`cfq_quantum`).
const QUANTUM: u32 = 8;
/// A slice, by class (`cfq_slice_async`, `cfq_slice_sync`).
const SLICE: [u64; 2] = [40 * MS, 100 * MS];
/// What the slice of the highest priority is, from which queues' places in the order are reckoned.
const LONGEST_SLICE: u64 = 180 * MS;
/// Requests in a slice that nobody waits for (`cfq_prio_to_maxrq` of the common priority).
const SLICE_ASYNC_REQUESTS: u32 = 16;
/// How long a device may be left idle (`cfq_slice_idle`).
const SLICE_IDLE: u64 = 8 * MS;
/// When a request has waited too long, by class (`cfq_fifo_expire`).
const FIFO_EXPIRE: [u64; 2] = [250 * MS, 125 * MS];
/// In what time every queue shall have had its turn (`cfq_target_latency`).
const TARGET_LATENCY: u64 = 300 * MS;
/// How far back a request may be to be the next one, and how many times as far it then counts (`cfq_back_max`,
/// `cfq_back_penalty`).
const BACK_MAX: u64 = 16 << 20;
const BACK_PENALTY: u64 = 2;
/// A request further away than that is far (`CFQQ_SEEK_THR`).
const FAR_BYTES: u64 = 800 * 512;
/// More far ones than these of the last 32, and the queue's task seeks (`CFQQ_SEEKY`).
const FAR_MAX: u32 = 4;
/// From so many waiting requests on a queue is deep, and idling pays though its task seeks.
const DEEP: usize = 4;
/// From this weight of samples on the mean time to think is believed (`sample_valid`).
const SAMPLES_MIN: u64 = 80;

/// The queue of what nobody waits for.
pub(super) const ASYNC: u32 = 0;

/// What queues are served for a while: those of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Async,
    /// Their tasks seek, or think for long: they are idled for together.
    NoIdle,
    Sync,
}

#[derive(Clone, Debug)]
struct Queue {
    name: u32,
    class: Class,
    /// Requests that wait.
    nr_waiting: usize,
    /// Its place in the order of service.
    key: i64,
    dispatched: u32,
    idles: bool,
    is_deep: bool,
    far: u32,
    last_end: Option<u64>,
    last_done: Option<u64>,
    think_samples: u64,
    think_total: u64,
    residue: i64,
}

impl Queue {
    fn kind(&self) -> Kind {
        match (self.class, self.idles) {
            (Class::Async, _) => Kind::Async,
            (Class::Sync, true) => Kind::Sync,
            (Class::Sync, false) => Kind::NoIdle,
        }
    }

    /// Whether its task thinks longer than that before its next request, as far as is known.
    fn thinks_longer_than(&self, time: u64) -> bool {
        self.think_samples > SAMPLES_MIN && (self.think_total + 128) / self.think_samples > time
    }
}

/// The queue that has the device.
#[derive(Clone, Copy, Debug)]
struct Active {
    queue: usize,
    /// None before its first request is done.
    slice_end: Option<u64>,
    nr_dispatched: u32,
    has_checked_age: bool,
    idle_until: Option<u64>,
}

/// The state of the elevator.
#[derive(Clone, Debug, Default)]
pub(super) struct Cfq {
    queues: Vec<Queue>,
    by_name: BTreeMap<u32, usize>,
    /// Those of which requests wait.
    busy: BTreeSet<usize>,
    active: Option<Active>,
    kind: Option<(Kind, u64)>,
    in_flight: [u32; 2],
    last_delayed_sync: Option<u64>,
}

impl Cfq {
    /// When an idle device is not to be left idle any longer.
    pub(super) fn idle_until(&self) -> Option<u64> {
        self.active?.idle_until
    }

    fn index(&self, name: u32) -> usize {
        self.by_name[&name]
    }

    /// One request fewer of a queue waits: it is served, or has become part of another.
    pub(super) fn leaves(&mut self, name: u32) {
        let index = self.index(name);
        self.queues[index].nr_waiting -= 1;
        if self.queues[index].nr_waiting == 0 {
            self.busy.remove(&index);
        }
    }

    /// Queues that have something to be done, or have the device.
    fn nr_busy(&self) -> usize {
        let is_empty = self.active.is_some_and(|active| !self.busy.contains(&active.queue));
        self.busy.len() + usize::from(is_empty)
    }

    fn busy_of(&self, class: Class) -> usize {
        self.busy.iter().filter(|&&queue| self.queues[queue].class == class).count()
    }

    /// A request has come, and waits.
    pub(super) fn add(&mut self, now: u64, request: &Request) {
        let name = request.queue;
        if !self.by_name.contains_key(&name) {
            self.by_name.insert(name, self.queues.len());
            self.queues.push(Queue {
                name,
                class: request.class,
                nr_waiting: 0,
                key: 0,
                dispatched: 0,
                idles: request.class == Class::Sync,
                is_deep: false,
                far: 0,
                last_end: None,
                last_done: None,
                think_samples: 0,
                think_total: 0,
                residue: 0,
            });
        }
        let index = self.index(name);
        self.busy.insert(index);
        let queue = &mut self.queues[index];
        queue.nr_waiting += 1;
        let nr_waiting = queue.nr_waiting;
        if let Some(done) = queue.last_done {
            let thought = (now - done).min(2 * SLICE_IDLE);
            queue.think_samples = (7 * queue.think_samples + 256) / 8;
            queue.think_total = (7 * queue.think_total + 256 * thought) / 8;
        }
        if let Some(last) = queue.last_end {
            queue.far = queue.far << 1 | u32::from(last.abs_diff(request.offset) > FAR_BYTES);
        }
        queue.last_end = Some(request.end());
        queue.is_deep |= nr_waiting >= DEEP;
        if queue.class == Class::Sync {
            let seeks = queue.far.count_ones() > FAR_MAX;
            let is_write = request.direction == Direction::Write;
            let pauses = queue.thinks_longer_than(SLICE_IDLE);
            queue.idles = !(is_write || !queue.is_deep && seeks || pauses);
        }
        let is_active = self.active.is_some_and(|active| active.queue == index);
        if nr_waiting == 1 && !is_active {
            self.line_up(now, index);
        }
        if let Some(active) = &mut self.active {
            if is_active {
                active.idle_until = None;
            } else if self.preempts(now, index) {
                self.expire(now, true);
                self.queues[index].key = i64::MIN;
                self.kind = None;
            }
        }
    }

    /// Gives a queue its place in the order.
    fn line_up(&mut self, now: u64, index: usize) {
        let nr_busy = self.nr_busy();
        let queue = &mut self.queues[index];
        let offset =
            nr_busy.saturating_sub(1) as u64 * (LONGEST_SLICE - SLICE[queue.class as usize]);
        queue.key = (now + offset) as i64 - std::mem::take(&mut queue.residue);
    }

    #[doc(alias = "cfq_should_preempt")]
    fn preempts(&self, now: u64, index: usize) -> bool {
        let Some(active) = self.active else { return false };
        let (ours, new) = (&self.queues[active.queue], &self.queues[index]);
        if new.class == Class::Sync && ours.class == Class::Async {
            return true;
        }
        if new.class == Class::Async {
            return false;
        }
        let both = ours.kind() == Kind::NoIdle && new.kind() == Kind::NoIdle;
        active.slice_end.is_some_and(|end| now > end) || both && !self.busy.contains(&active.queue)
    }

    /// The active queue gives up the device; if its time was up or another one takes it, what is left of its slice, or what it
    /// took too much, counts the next time.
    fn expire(&mut self, now: u64, timed_out: bool) {
        let Some(active) = self.active.take() else { return };
        if timed_out {
            let class = self.queues[active.queue].class;
            // Of a slice that has not begun all is left.
            let left = match active.slice_end {
                Some(end) => end as i64 - now as i64,
                None => self.slice(class) as i64,
            };
            self.queues[active.queue].residue = left;
        }
        if self.busy.contains(&active.queue) {
            self.line_up(now, active.queue);
        }
    }

    /// Whether the device is left idle once a queue has nothing to be done.
    #[doc(alias = "cfq_should_idle")]
    fn should_idle(&self, index: usize) -> bool {
        let queue = &self.queues[index];
        if queue.class == Class::Async {
            return false;
        }
        if queue.idles {
            return true;
        }
        let is_other = |&other: &usize| other != index && self.queues[other].kind() == Kind::NoIdle;
        !self.busy.iter().any(is_other) && !queue.thinks_longer_than(SLICE_IDLE)
    }

    /// A request is done.
    #[doc(alias = "cfq_completed_request")]
    pub(super) fn complete(&mut self, now: u64, request: &Request, may_idle: bool) {
        let index = self.index(request.queue);
        let class = request.class;
        self.in_flight[class as usize] -= 1;
        let queue = &mut self.queues[index];
        queue.dispatched -= 1;
        let dispatched = queue.dispatched;
        if class == Class::Sync {
            queue.last_done = Some(now);
            if now >= request.arrived + FIFO_EXPIRE[1] {
                self.last_delayed_sync = Some(now);
            }
        }
        let Some(active) = self.active.filter(|active| active.queue == index) else { return };
        let end = active.slice_end.unwrap_or_else(|| now + self.slice(class));
        let mut active = Active { slice_end: Some(end), ..active };
        let is_last = class == Class::Sync && dispatched == 0 && !self.busy.contains(&index);
        if is_last
            && may_idle
            && let Some(left) = end.checked_sub(now)
            && !self.queues[index].thinks_longer_than(left)
            && self.should_idle(index)
        {
            active.idle_until = Some(now + SLICE_IDLE);
        }
        self.active = Some(active);
        if now > end {
            self.expire(now, true);
        }
    }

    /// How long a slice is: shorter where many tasks wait, so that each has its turn in time.
    fn slice(&self, class: Class) -> u64 {
        let nr_sync = self.busy_of(Class::Sync) as u64;
        let expected = SLICE[1] * nr_sync;
        let slice = SLICE[class as usize];
        if expected > TARGET_LATENCY { slice * TARGET_LATENCY / expected } else { slice }
    }

    /// The request that is served next, and its direction; `None` if none may be now.
    pub(super) fn next(
        &mut self,
        now: u64,
        waiting: &[Waiting; 2],
        head: u64,
    ) -> Option<(Direction, (u64, u64))> {
        let index = self.select(now)?;
        if !self.may_dispatch(now, index) {
            return None;
        }
        let active = self.active.as_mut()?;
        let checks = !std::mem::replace(&mut active.has_checked_age, true);
        active.nr_dispatched += 1;
        let nr_dispatched = active.nr_dispatched;
        let queue = &mut self.queues[index];
        queue.dispatched += 1;
        let class = queue.class;
        self.in_flight[class as usize] += 1;
        let name = queue.name;
        let expired = now.checked_sub(FIFO_EXPIRE[class as usize]).filter(|_| checks);
        let place = choose(waiting, name, expired, head);
        if class == Class::Async && nr_dispatched >= SLICE_ASYNC_REQUESTS && self.nr_busy() > 1 {
            self.expire(now, false);
        }
        self.leaves(name);
        place
    }

    /// The queue that has the device now.
    #[doc(alias = "cfq_select_queue")]
    fn select(&mut self, now: u64) -> Option<usize> {
        if let Some(active) = self.active {
            let is_used = active.slice_end.is_some_and(|end| now > end);
            if !is_used {
                if self.busy.contains(&active.queue) {
                    return Some(active.queue);
                }
                if active.idle_until.is_some_and(|until| now < until) {
                    return None;
                }
                let is_idle = active.idle_until.is_some();
                if !is_idle
                    && self.queues[active.queue].dispatched > 0
                    && self.should_idle(active.queue)
                {
                    return None;
                }
            }
            self.expire(now, is_used);
        }
        let kind = self.kind_to_serve(now)?;
        let of_kind = self.busy.iter().filter(|&&queue| self.queues[queue].kind() == kind);
        let &index = of_kind.min_by_key(|&&queue| self.queues[queue].key)?;
        self.active = Some(Active {
            queue: index,
            slice_end: None,
            nr_dispatched: 0,
            has_checked_age: false,
            idle_until: None,
        });
        Some(index)
    }

    /// Which kind of queue is served: the same for a while, then that of the one that is first in the order.
    fn kind_to_serve(&mut self, now: u64) -> Option<Kind> {
        let of = |kind: Kind| {
            self.busy.iter().filter(|&&queue| self.queues[queue].kind() == kind).count() as u64
        };
        if let Some((kind, until)) = self.kind
            && now < until
            && of(kind) > 0
        {
            return Some(kind);
        }
        let &first = self.busy.iter().min_by_key(|&&queue| self.queues[queue].key)?;
        let kind = self.queues[first].kind();
        let share = TARGET_LATENCY * of(kind) / self.busy.len() as u64;
        let time = match kind {
            Kind::Async => share * SLICE[0] / SLICE[1],
            Kind::NoIdle | Kind::Sync => share.max(2 * SLICE_IDLE),
        };
        self.kind = Some((kind, now + time));
        Some(kind)
    }

    #[doc(alias = "cfq_may_dispatch")]
    fn may_dispatch(&self, now: u64, index: usize) -> bool {
        let queue = &self.queues[index];
        if self.in_flight[0] > 0 && self.should_idle(index) {
            return false;
        }
        if self.in_flight[1] > 0 && queue.class == Class::Async {
            return false;
        }
        let mut most = QUANTUM / 2;
        if queue.dispatched >= most {
            let nr_busy = self.nr_busy();
            let nr_sync = self.busy_of(Class::Sync);
            let promotes = queue.class == Class::Sync && nr_sync == 1;
            let ends_soon = self.active.is_none_or(|active| {
                active
                    .slice_end
                    .is_none_or(|end| now + SLICE_IDLE * u64::from(queue.dispatched) > end)
            });
            if nr_busy > 1 && ends_soon && !promotes {
                return false;
            }
            most = if nr_busy == 1 || promotes { u32::MAX } else { QUANTUM };
        }
        if queue.class == Class::Async
            && let Some(last) = self.last_delayed_sync
        {
            let mut depth = ((now - last) / SLICE[1]) as u32;
            if depth == 0 && queue.dispatched == 0 {
                depth = 1;
            }
            most = most.min(depth);
        }
        queue.dispatched < most
    }
}

/// The request of a queue that is next: one that came before `expired`, else the nearest.
fn choose(
    waiting: &[Waiting; 2],
    name: u32,
    expired: Option<u64>,
    head: u64,
) -> Option<(Direction, (u64, u64))> {
    let mine = || {
        [Direction::Read, Direction::Write].into_iter().flat_map(move |direction| {
            let all = waiting[direction as usize].by_place.iter();
            all.filter(move |(_, request)| request.queue == name)
                .map(move |(&place, request)| (direction, place, request.arrived))
        })
    };
    if let Some(expired) = expired
        && let Some((direction, place, arrived)) = mine().min_by_key(|&(_, place, _)| place.1)
        && arrived < expired
    {
        return Some((direction, place));
    }
    let distance = |place: (u64, u64)| {
        if place.0 >= head {
            place.0 - head
        } else if head - place.0 <= BACK_MAX {
            (head - place.0) * BACK_PENALTY
        } else {
            // Round and on from the beginning.
            (1 << 62) + place.0
        }
    };
    mine()
        .min_by_key(|&(_, place, _)| (distance(place), place.1))
        .map(|(direction, place, _)| (direction, place))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{completions, rotating};
    use super::super::{Completion, Device, DeviceSpec, Elevator, Io, Ticket};
    use super::MS;
    use highorder_words::Ns;
    use std::collections::VecDeque;

    const PIECE: u64 = 64 << 10;
    /// Where each reader's file begins: far apart.
    const APART: u64 = 20_000_000_000;
    /// How long a reader computes between two pieces: shorter than the device is left idle.
    const THINKS: u64 = MS;
    const WRITER: u32 = 9;

    /// Readers each read a file of their own, piece after piece, until `end`, beside writes to far places that nobody waits
    /// for; then all that is left is served. What was done, and when.
    fn serve(elevator: Elevator, readers: u32, writes: u64, end: u64) -> Vec<(Completion, u64)> {
        let mut device = Device::new(DeviceSpec { elevator, ..rotating() });
        let mut next_ticket = (0..).map(Ticket);
        let mut submit = |device: &mut Device, now: u64, io: Io, submitter: u32| {
            let ticket = next_ticket.next().unwrap();
            device.submit(Ns(now), ticket, io, submitter).unwrap();
        };
        for write in 0..writes {
            let io = Io::write(90_000_000_000 + write * 10_000_000, 4096, WRITER.into());
            submit(&mut device, 0, io, WRITER);
        }
        device.dispatch(Ns(0));
        // When each reader asks for its next piece, and which one that is.
        let mut asks: Vec<Option<(u64, u64)>> = vec![Some((0, 0)); readers as usize];
        let mut all = Vec::new();
        loop {
            let ask = asks.iter().flatten().map(|&(at, _)| at).min();
            let completion = device.next_completion().map(|at| at.0);
            let Some(now) = ask.into_iter().chain(completion).min() else { return all };
            let mut done = VecDeque::new();
            device.complete(Ns(now), &mut done);
            for completion in done {
                if let Some(ask) = asks.get_mut(completion.io.tag as usize) {
                    let piece = completion.io.offset % APART / PIECE;
                    *ask = (now < end).then_some((now + THINKS, piece + 1));
                }
                all.push((completion, now));
            }
            for (reader, ask) in (0..).zip(&mut asks) {
                if let Some((_, piece)) = ask.take_if(|&mut (at, _)| at <= now) {
                    let offset = u64::from(reader) * APART + piece * PIECE;
                    submit(&mut device, now, Io::read(offset, PIECE, reader.into()), reader);
                }
            }
            device.dispatch(Ns(now));
        }
    }

    fn of(done: &[(Completion, u64)], task: u32, until: u64) -> usize {
        let is_it = |(completion, at): &&(Completion, u64)| {
            completion.io.tag == u64::from(task) && *at <= until
        };
        done.iter().filter(is_it).count()
    }

    #[test]
    fn writes_that_nobody_waits_for_wait_for_readers() {
        let [deadline, cfq] =
            [Elevator::Deadline, Elevator::Cfq].map(|elevator| serve(elevator, 1, 100, 1000 * MS));
        let until = |done| of(done, WRITER, 1000 * MS);
        // By deadline a batch of 16 writes goes with each second read.
        assert!(until(&deadline) > 70, "{}", until(&deadline));
        assert!((1..50).contains(&until(&cfq)), "{}", until(&cfq));
        let pieces = |done| of(done, 0, 1000 * MS);
        assert!(pieces(&cfq) > 2 * pieces(&deadline), "{} {}", pieces(&cfq), pieces(&deadline));
        assert_eq!(of(&cfq, WRITER, u64::MAX), 100, "in the end all are written");
    }

    #[test]
    fn readers_of_far_places_have_the_device_by_turns() {
        let done = serve(Elevator::Cfq, 2, 0, 2000 * MS);
        let shares = [0, 1].map(|reader| of(&done, reader, 2000 * MS));
        assert!(shares.iter().all(|&share| share * 3 > done.len()), "{shares:?}");
        // A slice is 100 ms, and a piece with a moment to think takes 1.7.
        let turns = done.windows(2).filter(|pair| pair[0].0.io.tag != pair[1].0.io.tag).count();
        assert!((15..=25).contains(&turns), "{turns}");
    }

    #[test]
    fn an_idle_device_waits_for_a_reader_for_8_ms() {
        let times = [true, false].map(|says_rotational| {
            let spec = DeviceSpec { elevator: Elevator::Cfq, says_rotational, ..rotating() };
            let mut device = Device::new(spec);
            device.submit(Ns(0), Ticket(0), Io::read(0, PIECE, 0), 0).unwrap();
            device.dispatch(Ns(0));
            device.submit(Ns(0), Ticket(1), Io::write(PIECE, PIECE, 1), WRITER).unwrap();
            completions(&mut device).into_iter().map(|(_, at)| at).collect::<Vec<u64>>()
        });
        let [waits, does_not] = times;
        assert_eq!(waits[0], does_not[0]);
        assert!(waits[1] >= waits[0] + 8 * MS, "{waits:?}");
        // What follows in a row costs its transfer alone.
        assert!(does_not[1] < does_not[0] + MS, "{does_not:?}");
    }

    #[test]
    fn everything_is_served_whoever_waits() {
        for readers in 0..=4 {
            let done = serve(Elevator::Cfq, readers, 60, 1000 * MS);
            assert_eq!(of(&done, WRITER, u64::MAX), 60, "{readers} readers");
            for reader in 0..readers {
                assert!(of(&done, reader, u64::MAX) > 5, "reader {reader} of {readers}");
            }
        }
    }
}
