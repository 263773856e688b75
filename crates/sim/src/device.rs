//! Block devices: queue, merging, order of service, access time, bandwidth, congestion.
//!
//! A [`Device`] is a deterministic state machine in virtual time: requests go in with a moment,
//! completions come out with one. It knows neither tasks nor memory.
//!
//! Models: block/blk-core.c, v2.6.10 to v4.20 (`blk_queue_congestion_threshold`, `__get_request`,
//! `__freed_request`): a class of requests is congested from nr - nr/8 + 1 allocated requests on, and no
//! longer below nr - nr/8 - nr/16 - 1; with nr requests allocated, submitters wait.
//! block/blk-merge.c: a request grows at its end or its beginning, and joins the next one when they come
//! to touch. block/deadline-iosched.c (`deadline_dispatch_requests`): an order of service, made for rotating
//! devices.
//! Departs: a submitter who waited gets one request, not a batch of 32. Visible as: a full queue is
//! shared more evenly.
//! Departs: a rotating device serves what it has taken as it came: a disk's own reordering (NCQ) and write cache are
//! left out, but for sequential requests, which cost their transfer alone. Visible as: random writes to a rotating
//! device are slower than on disks with a large cache.
//! Departs: flash has no garbage collection. Visible as: no write cliffs.

mod cfq;

use cfq::Cfq;
use highorder_words::Ns;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Requests of one direction served before the other is considered: `fifo_batch`,
/// block/deadline-iosched.c.
const FIFO_BATCH: u32 = 16;
/// Times that reads may go before waiting writes: `writes_starved`, block/deadline-iosched.c.
const WRITES_STARVED: u32 = 2;
/// A read waiting longer goes first at the next batch: `read_expire`, block/deadline-iosched.c.
const READ_EXPIRE: u64 = 500_000_000;
/// A write waiting longer goes first at the next batch: `write_expire`, block/deadline-iosched.c.
const WRITE_EXPIRE: u64 = 5_000_000_000;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From the device.
    Read = 0,
    /// To the device.
    Write = 1,
}

/// Which of the two pools a request is allocated from; each is congested for itself.
///
/// Models: `BLK_RW_ASYNC`, `BLK_RW_SYNC` (v2.6.30 and later): reads, and writes somebody waits for, are
/// synchronous; writeback is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Nobody waits: writeback.
    Async = 0,
    /// Somebody waits: reads, and writes for `fsync`.
    Sync = 1,
}

/// One transfer as it is submitted, before any merging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Direction.
    pub direction: Direction,
    /// Pool that its request is allocated from.
    pub class: Class,
    /// First byte on the device.
    pub offset: u64,
    /// Length in bytes, not 0.
    pub bytes: u64,
    /// Whatever the submitter wants to find again in the [`Completion`].
    pub tag: u64,
    /// How much later than usual the device gets to a request that begins with it.
    pub late: Ns,
}

impl Io {
    /// A read.
    #[must_use]
    pub const fn read(offset: u64, bytes: u64, tag: u64) -> Self {
        Self { direction: Direction::Read, class: Class::Sync, offset, bytes, tag, late: Ns::ZERO }
    }

    /// A write that nobody waits for.
    #[must_use]
    pub const fn write(offset: u64, bytes: u64, tag: u64) -> Self {
        Self {
            direction: Direction::Write,
            class: Class::Async,
            offset,
            bytes,
            tag,
            late: Ns::ZERO,
        }
    }

    /// The same transfer, waited for.
    #[must_use]
    pub const fn sync(self) -> Self {
        Self { class: Class::Sync, ..self }
    }
}

/// Names a submitted transfer, in order of submission over all devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A transfer that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Its name.
    pub ticket: Ticket,
    /// As submitted.
    pub io: Io,
}

/// What a device is like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceSpec {
    /// Name: `sda`.
    pub name: String,
    /// Size in bytes.
    pub capacity_bytes: u64,
    /// Requests of one class that may be allocated: `/sys/block/*/queue/nr_requests`.
    pub nr_requests: u32,
    /// Longest request that merging makes, in bytes: `/sys/block/*/queue/max_sectors_kb`.
    pub max_request_bytes: u64,
    /// Pieces of memory that a request may have at most: `/sys/block/*/queue/max_segments`. Each page of swap is one.
    pub max_segments: u32,
    /// Queues to the hardware, at which CPUs do not wait for each other: `/sys/block/*/mq`.
    pub hardware_queues: u32,
    /// Whether the kernel takes it for a rotating disk, as it does virtio's whatever they are:
    /// `/sys/block/*/queue/rotational`. Swap slots are given out accordingly.
    pub says_rotational: bool,
    /// What decides about the order in which it serves.
    pub elevator: Elevator,
    /// How it works.
    pub kind: DeviceKind,
}

/// What decides about the order in which requests are served: `/sys/block/*/queue/scheduler`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Elevator {
    /// As they arrive.
    Noop,
    /// Upwards from where the heads are, reads before writes, none for too long.
    Deadline,
    /// Shares of time for each task: what kernels before 5.0 had if nobody said otherwise.
    Cfq,
}

impl Elevator {
    /// What the kernel calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Deadline => "deadline",
            Self::Cfq => "cfq",
        }
    }
}

/// How a device works, with its times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// A disk with one set of heads, serving one request after the other.
    Rotating {
        /// Requests that it takes before the first of them is done.
        queue_depth: u32,
        /// One turn.
        turn: Ns,
        /// Seek to the next track.
        seek_track: Ns,
        /// Seek averaged over all pairs of places.
        seek_average: Ns,
        /// Time of the controller for each request.
        command: Ns,
        /// Bytes a second under the head.
        bandwidth: u64,
    },
    /// Flash: accesses overlap, transfers share one interface.
    Flash {
        /// Requests served at once.
        queue_depth: u32,
        /// Times of reads.
        read: FlashTimes,
        /// Times of writes.
        write: FlashTimes,
    },
}

impl DeviceKind {
    /// Requests that it has at once, in service or waiting for that.
    const fn queue_depth(&self) -> usize {
        match self {
            Self::Rotating { queue_depth, .. } | Self::Flash { queue_depth, .. } => {
                *queue_depth as usize
            }
        }
    }
}

/// Times of one direction of a flash device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FlashTimes {
    /// From a request's start until its data may move; overlaps with other requests.
    pub access: Ns,
    /// Time of the interface for each request, besides the transfer.
    pub command: Ns,
    /// Bytes a second over the interface.
    pub bandwidth: u64,
}

/// What a device has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// Requests completed, by [`Direction`].
    pub requests: [u64; 2],
    /// Transfers that joined another one's request, by [`Direction`].
    pub merges: [u64; 2],
    /// Bytes transferred, by [`Direction`].
    pub bytes: [u64; 2],
    /// Time with at least one request allocated.
    pub busy: Ns,
    /// Requests a class had allocated at most, by [`Class`].
    pub allocated_max: [u32; 2],
    /// Times a class became congested, by [`Class`].
    pub congestions: [u64; 2],
}

/// Every request of the class is allocated: wait for one to be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

/// What a completion freed, by [`Class`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Requests freed.
    pub requests: [u32; 2],
    /// The class is not congested, be it for long or since now: who waits for that goes on
    /// (`blk_clear_congested` wakes whether or not there was anything to clear).
    pub uncongested: [bool; 2],
}

/// One or more transfers served as one.
#[derive(Clone, Debug)]
struct Request {
    direction: Direction,
    class: Class,
    /// Whose it is, where that counts.
    queue: u32,
    offset: u64,
    bytes: u64,
    arrived: u64,
    late: Ns,
    parts: Vec<Completion>,
}

impl Request {
    fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    /// Whether a transfer goes on where it ends, and both can be one request.
    fn takes_behind(&self, io: Io, queue: u32, most: u64) -> bool {
        self.end() == io.offset && self.takes(io.class, queue, io.bytes, most)
    }

    /// Whether so many bytes of a class and of somebody's can be part of it, which then has no more than `most`.
    fn takes(&self, class: Class, queue: u32, bytes: u64, most: u64) -> bool {
        self.class == class && self.queue == queue && self.bytes + bytes <= most
    }
}

/// Requests of one direction that wait, by place and by arrival.
#[derive(Clone, Debug, Default)]
struct Waiting {
    by_place: BTreeMap<(u64, u64), Request>,
    by_arrival: BTreeMap<u64, u64>,
    /// The place of the request that came or grew last; it may have gone since (`last_merge`).
    latest: (u64, u64),
}

impl Waiting {
    fn insert(&mut self, number: u64, request: Request) {
        self.by_arrival.insert(number, request.offset);
        self.latest = (request.offset, number);
        self.by_place.insert(self.latest, request);
    }

    /// Appends a transfer to the request that came or grew last, if it goes on there and then touches no other.
    fn grow_latest(&mut self, part: Completion, queue: u32, most: u64) -> bool {
        let mut requests = self.by_place.range_mut(self.latest..);
        let Some((place, request)) = requests.next() else { return false };
        if *place != self.latest || !request.takes_behind(part.io, queue, most) {
            return false;
        }
        let end = part.io.offset + part.io.bytes;
        if requests.next().is_some_and(|(&(next, _), _)| next <= end) {
            return false;
        }
        request.bytes += part.io.bytes;
        request.parts.push(part);
        true
    }

    fn remove(&mut self, place: (u64, u64)) -> Option<Request> {
        self.by_arrival.remove(&place.1);
        self.by_place.remove(&place)
    }

    /// The waiting request of the longest standing.
    fn oldest(&self) -> Option<(u64, u64)> {
        self.by_arrival.first_key_value().map(|(&number, &offset)| (offset, number))
    }

    /// The first request at `offset` or beyond, and its place.
    fn next_from(&self, offset: u64) -> Option<((u64, u64), &Request)> {
        self.by_place.range((offset, 0)..).next().map(|(&place, request)| (place, request))
    }
}

/// Requests of one direction that a rotating device serves one after the other.
#[derive(Clone, Copy, Debug)]
struct Run {
    direction: Direction,
    /// Requests that may yet be served in it.
    nr_left: u32,
}

/// A block device.
#[derive(Clone, Debug)]
pub struct Device {
    spec: DeviceSpec,
    waiting: [Waiting; 2],
    /// By moment of completion, then number.
    in_service: BTreeMap<(u64, u64), Request>,
    next_number: u64,
    allocated: [u32; 2],
    congested: [bool; 2],
    /// Where the last dispatched request ended.
    head: u64,
    cfq: Cfq,
    /// When its heads, or its interface, have done all that they were given so far.
    free_at: u64,
    run: Option<Run>,
    /// Runs of reads since the last of writes that had to wait meanwhile.
    nr_passed_over: u32,
    busy_since: u64,
    stats: DeviceStats,
}

impl Device {
    /// A device at rest, its heads at the beginning.
    #[must_use]
    pub fn new(spec: DeviceSpec) -> Self {
        Self {
            spec,
            waiting: Default::default(),
            in_service: BTreeMap::new(),
            next_number: 0,
            allocated: [0; 2],
            congested: [false; 2],
            head: 0,
            cfq: Cfq::default(),
            free_at: 0,
            run: None,
            nr_passed_over: 0,
            busy_since: 0,
            stats: DeviceStats::default(),
        }
    }

    /// What it is like.
    #[must_use]
    pub fn spec(&self) -> &DeviceSpec {
        &self.spec
    }

    /// What it has done so far; time of work that is under way counts when it ends.
    #[must_use]
    pub fn stats(&self) -> DeviceStats {
        self.stats
    }

    /// Requests allocated: waiting or in service.
    #[must_use]
    pub fn nr_allocated(&self, class: Class) -> u32 {
        self.allocated[class as usize]
    }

    /// The class has more requests allocated than the kernel thinks good.
    #[must_use]
    pub fn is_congested(&self, class: Class) -> bool {
        self.congested[class as usize]
    }

    /// Allocated requests from which on a class is congested.
    #[doc(alias = "blk_queue_congestion_threshold")]
    #[must_use]
    pub fn congestion_on(&self) -> u32 {
        let nr = self.spec.nr_requests;
        (nr - nr / 8 + 1).min(nr)
    }

    /// Allocated requests below which a class is no longer congested.
    #[must_use]
    pub fn congestion_off(&self) -> u32 {
        let nr = self.spec.nr_requests;
        (nr - nr / 8 - nr / 16).saturating_sub(1).max(1)
    }

    /// Puts a transfer into the queue: into a neighbouring request, or into a new one.
    ///
    /// It waits there for [`Device::dispatch`], so several transfers can merge before any is served
    /// (the kernel's plug). `submitter` is the number of the task that it is for: [`Elevator::Cfq`] has a queue for each.
    ///
    /// # Errors
    /// [`QueueFull`] when it needs a new request and its class has none left.
    ///
    /// # Panics
    /// If the transfer is empty or reaches beyond the device.
    #[doc(alias = "__get_request")]
    pub fn submit(
        &mut self,
        now: Ns,
        ticket: Ticket,
        io: Io,
        submitter: u32,
    ) -> Result<(), QueueFull> {
        let inside = io.offset.checked_add(io.bytes).is_some_and(|e| e <= self.spec.capacity_bytes);
        assert!(
            io.bytes > 0 && inside,
            "{}: a transfer of {} bytes at {} on a device of {}",
            self.spec.name,
            io.bytes,
            io.offset,
            self.spec.capacity_bytes
        );
        let part = Completion { ticket, io };
        let queue = match (self.spec.elevator, io.class) {
            (Elevator::Cfq, Class::Sync) => submitter.saturating_add(1),
            _ => cfq::ASYNC,
        };
        if self.merge_back(part, queue) || self.merge_front(part, queue) {
            self.stats.merges[io.direction as usize] += 1;
            return Ok(());
        }
        let class = io.class as usize;
        if self.allocated[class] >= self.spec.nr_requests {
            return Err(QueueFull);
        }
        if self.allocated == [0; 2] {
            self.busy_since = now.0;
        }
        self.allocated[class] += 1;
        self.stats.allocated_max[class] =
            self.stats.allocated_max[class].max(self.allocated[class]);
        if self.allocated[class] >= self.congestion_on() && !self.congested[class] {
            self.congested[class] = true;
            self.stats.congestions[class] += 1;
        }
        let request = Request {
            direction: io.direction,
            class: io.class,
            queue,
            offset: io.offset,
            bytes: io.bytes,
            arrived: now.0,
            late: io.late,
            parts: vec![part],
        };
        if self.spec.elevator == Elevator::Cfq {
            self.cfq.add(now.0, &request);
        }
        self.waiting[io.direction as usize].insert(self.next_number, request);
        self.next_number += 1;
        Ok(())
    }

    /// Gives the device as many waiting requests as it takes at once.
    pub fn dispatch(&mut self, now: Ns) {
        while self.in_service.len() < self.spec.kind.queue_depth() {
            let next = match self.spec.elevator {
                Elevator::Noop => self.next_by_arrival(),
                Elevator::Deadline => self.next_by_deadline(now.0),
                Elevator::Cfq => self.cfq.next(now.0, &self.waiting, self.head),
            };
            let Some((direction, place)) = next else { return };
            let Some(request) = self.waiting[direction as usize].remove(place) else { return };
            let done = self.service(now.0, &request);
            (self.free_at, self.head) = (done, request.end());
            self.in_service.insert((done, place.1), request);
        }
    }

    /// When the next request will be done.
    #[must_use]
    pub fn next_completion(&self) -> Option<Ns> {
        let done = self.in_service.first_key_value().map(|(&(done, _), _)| done);
        let idle = self.cfq.idle_until().filter(|_| self.in_service.is_empty());
        done.into_iter().chain(idle).min().map(Ns)
    }

    /// Completes the requests that are done at `now`, in order, and starts what can now be served.
    pub fn complete(&mut self, now: Ns, done: &mut VecDeque<Completion>) -> Freed {
        let mut freed = Freed::default();
        while let Some(entry) = self.in_service.first_entry() {
            if entry.key().0 > now.0 {
                break;
            }
            let request = entry.remove();
            let (class, direction) = (request.class as usize, request.direction as usize);
            self.stats.requests[direction] += 1;
            self.stats.bytes[direction] += request.bytes;
            self.free_request(class, &mut freed);
            if self.allocated == [0; 2] {
                self.stats.busy += now - Ns(self.busy_since);
            }
            if self.spec.elevator == Elevator::Cfq {
                let may_idle = self.spec.says_rotational;
                self.cfq.complete(now.0, &request, may_idle);
            }
            done.extend(request.parts);
        }
        self.dispatch(now);
        freed
    }

    #[doc(alias = "__freed_request")]
    fn free_request(&mut self, class: usize, freed: &mut Freed) {
        self.allocated[class] -= 1;
        freed.requests[class] += 1;
        if self.allocated[class] < self.congestion_off() {
            self.congested[class] = false;
            freed.uncongested[class] = true;
        }
    }

    /// Appends the transfer to a waiting request that ends where it begins.
    fn merge_back(&mut self, part: Completion, queue: u32) -> bool {
        let (io, most) = (part.io, self.spec.max_request_bytes);
        let waiting = &mut self.waiting[io.direction as usize];
        if waiting.grow_latest(part, queue, most) {
            return true;
        }
        let Some((&place, request)) = waiting.by_place.range_mut(..(io.offset, 0)).next_back()
        else {
            return false;
        };
        if !request.takes_behind(io, queue, most) {
            return false;
        }
        request.bytes += io.bytes;
        request.parts.push(part);
        waiting.latest = place;
        self.join_next(io.direction, place);
        true
    }

    /// Prepends the transfer to a waiting request that begins where it ends.
    fn merge_front(&mut self, part: Completion, queue: u32) -> bool {
        let io = part.io;
        let end = io.offset + io.bytes;
        let waiting = &mut self.waiting[io.direction as usize];
        let Some((place, request)) = waiting.next_from(end) else { return false };
        let most = self.spec.max_request_bytes;
        if request.offset != end || !request.takes(io.class, queue, io.bytes, most) {
            return false;
        }
        let Some(mut request) = waiting.remove(place) else { return false };
        request.offset = io.offset;
        request.bytes += io.bytes;
        request.parts.insert(0, part);
        waiting.insert(place.1, request);
        true
    }

    /// Joins a request that has grown with the one that it now touches.
    fn join_next(&mut self, direction: Direction, place: (u64, u64)) {
        let waiting = &mut self.waiting[direction as usize];
        let grown = &waiting.by_place[&place];
        let Some((next, other)) = waiting.next_from(grown.end()) else { return };
        let most = self.spec.max_request_bytes;
        let touches = other.offset == grown.end();
        if !touches || !grown.takes(other.class, other.queue, other.bytes, most) {
            return;
        }
        let Some(other) = waiting.remove(next) else { return };
        if self.spec.elevator == Elevator::Cfq {
            self.cfq.leaves(other.queue);
        }
        if let Some(grown) = waiting.by_place.get_mut(&place) {
            grown.bytes += other.bytes;
            grown.parts.extend(other.parts);
            grown.arrived = grown.arrived.min(other.arrived);
        }
        self.stats.merges[direction as usize] += 1;
        // The class does not leave congestion here: that is looked at when a request completes.
        self.allocated[other.class as usize] -= 1;
    }

    fn next_by_arrival(&self) -> Option<(Direction, (u64, u64))> {
        [Direction::Read, Direction::Write]
            .into_iter()
            .filter_map(|d| self.waiting[d as usize].oldest().map(|place| (d, place)))
            .min_by_key(|&(_, (_, number))| number)
    }

    /// The request that is served next by deadline.
    ///
    /// Service goes in *runs*: requests of one direction, upwards from where the heads are, 16 at most. A run that
    /// has nothing ahead of it is over too. Reads have the next run, but a third one in a row is not theirs while
    /// writes wait. A run begins with the request of the longest standing if that has waited too long, or if
    /// nothing lies ahead of the heads.
    #[doc(alias = "deadline_dispatch_requests")]
    fn next_by_deadline(&mut self, now: u64) -> Option<(Direction, (u64, u64))> {
        if let Some(run) = &mut self.run
            && run.nr_left > 0
            && let Some((place, _)) = self.waiting[run.direction as usize].next_from(self.head)
        {
            run.nr_left -= 1;
            return Some((run.direction, place));
        }
        let direction = self.direction_of_next_run()?;
        let waiting = &self.waiting[direction as usize];
        let oldest = waiting.oldest()?;
        let deadline = waiting.by_place[&oldest].arrived
            + match direction {
                Direction::Read => READ_EXPIRE,
                Direction::Write => WRITE_EXPIRE,
            };
        let ahead = waiting.next_from(self.head).filter(|_| now < deadline).map(|(place, _)| place);
        self.run = Some(Run { direction, nr_left: FIFO_BATCH - 1 });
        Some((direction, ahead.unwrap_or(oldest)))
    }

    /// Whose turn it is, `None` if nothing waits; writes that wait meanwhile are counted as passed over.
    fn direction_of_next_run(&mut self) -> Option<Direction> {
        let [reads, writes] = self.waiting.each_ref().map(|waiting| !waiting.by_place.is_empty());
        if !reads && !writes {
            return None;
        }
        if reads && (!writes || self.nr_passed_over < WRITES_STARVED) {
            self.nr_passed_over += u32::from(writes);
            return Some(Direction::Read);
        }
        self.nr_passed_over = 0;
        Some(Direction::Write)
    }

    /// When a request that the device takes now will be done.
    fn service(&self, now: u64, request: &Request) -> u64 {
        let now = now + request.late.0;
        match self.spec.kind {
            DeviceKind::Rotating { turn, seek_track, seek_average, command, bandwidth, .. } => {
                let start = now.max(self.free_at) + command.0;
                let transfer = transfer_ns(request.bytes, bandwidth);
                if request.offset == self.head {
                    return start + transfer;
                }
                let track_bytes = (bandwidth * turn.0 / SECOND).max(1);
                let there = if request.offset / track_bytes == self.head / track_bytes {
                    start
                } else {
                    let distance = request.offset.abs_diff(self.head);
                    start + seek_ns(distance, self.spec.capacity_bytes, seek_track, seek_average)
                };
                let angle = there % turn.0;
                let target = request.offset % track_bytes * turn.0 / track_bytes;
                there + (target + turn.0 - angle) % turn.0 + transfer
            }
            DeviceKind::Flash { read, write, .. } => {
                let times = [read, write][request.direction as usize];
                let begin = (now + times.access.0).max(self.free_at);
                begin + times.command.0 + transfer_ns(request.bytes, times.bandwidth)
            }
        }
    }
}

/// Time to move `bytes` at `bandwidth` bytes a second, rounded down.
fn transfer_ns(bytes: u64, bandwidth: u64) -> u64 {
    (u128::from(bytes) * u128::from(SECOND) / u128::from(bandwidth)) as u64
}

/// Time of a seek: a constant and a part that grows with the square root of the distance, the arm being
/// accelerated half of the way and slowed down the other half (Ruemmler and Wilkes, An introduction to
/// disk drive modeling, IEEE Computer 27(3), 1994).
///
/// Between two places of equal chance the distance x (a share of the device) has the density 2(1 - x), so
/// the mean of sqrt(x) is 2 * (2/3 - 2/5) = 8/15, and the factor of the root is 15/8 of what the average
/// seek takes beyond one track.
fn seek_ns(distance: u64, capacity: u64, seek_track: Ns, seek_average: Ns) -> u64 {
    const ONE: u128 = 1_000_000;
    let root = (u128::from(distance) * ONE * ONE / u128::from(capacity)).isqrt();
    let factor = u128::from((seek_average - seek_track).0) * 15 / 8;
    seek_track.0 + (factor * root / ONE) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    /// 10 ms a turn and 100 MB/s: a track is 1 MB, and an angle is an offset in it at 10 ns a byte.
    pub(super) fn rotating() -> DeviceSpec {
        DeviceSpec {
            name: "sda".into(),
            capacity_bytes: 100_000_000_000,
            nr_requests: 128,
            max_request_bytes: 512 * KIB,
            max_segments: 128,
            hardware_queues: 1,
            says_rotational: true,
            elevator: Elevator::Deadline,
            kind: DeviceKind::Rotating {
                queue_depth: 1,
                turn: Ns::from_millis(10),
                seek_track: Ns::from_millis(1),
                seek_average: Ns::from_millis(9),
                command: Ns(0),
                bandwidth: 100_000_000,
            },
        }
    }

    /// 100 us of access, 1 us of command and 1 ns a byte; two at once.
    fn flash() -> DeviceSpec {
        let times =
            FlashTimes { access: Ns::from_micros(100), command: Ns(1000), bandwidth: SECOND };
        DeviceSpec {
            name: "sdb".into(),
            says_rotational: false,
            elevator: Elevator::Noop,
            kind: DeviceKind::Flash { queue_depth: 2, read: times, write: times },
            ..rotating()
        }
    }

    fn submit(device: &mut Device, now: u64, ios: &[Io]) {
        for (n, &io) in ios.iter().enumerate() {
            device.submit(Ns(now), Ticket(n as u64), io, 0).unwrap();
        }
        device.dispatch(Ns(now));
    }

    /// Runs the device until it is idle: the tag and moment of each completion.
    pub(super) fn completions(device: &mut Device) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        while let Some(at) = device.next_completion() {
            let mut done = VecDeque::new();
            device.complete(at, &mut done);
            all.extend(done.iter().map(|completion| (completion.io.tag, at.0)));
        }
        all
    }

    #[test]
    fn sequential_requests_run_at_the_bandwidth() {
        let mut device = Device::new(rotating());
        submit(&mut device, 0, &[Io::read(0, 500_000, 1)]);
        assert_eq!(completions(&mut device), [(1, 5_000_000)]);
        // 3 ms later than it ended, and still neither seek nor rotation.
        submit(&mut device, 8_000_000, &[Io::read(500_000, 100_000, 2)]);
        assert_eq!(completions(&mut device), [(2, 9_000_000)]);
        assert_eq!(device.stats().bytes, [600_000, 0]);
        assert_eq!(device.stats().busy, Ns::from_millis(6));
    }

    #[test]
    fn a_disk_that_takes_two_at_once_has_them_before_the_kernel_can_reorder_them() {
        let order = |queue_depth| {
            let mut spec = rotating();
            if let DeviceKind::Rotating { queue_depth: depth, .. } = &mut spec.kind {
                *depth = queue_depth;
            }
            let mut device = Device::new(spec);
            // The far one comes while the first is served, the near one after it.
            for (now, offset) in [(0, 0), (1000, 50_000_000_000), (2000, 1_000_000)] {
                submit(&mut device, now, &[Io::read(offset, 4096, offset)]);
            }
            completions(&mut device)
        };
        let of = |done: &[(u64, u64)]| done.iter().map(|&(offset, _)| offset).collect::<Vec<_>>();
        let (one, two) = (order(1), order(2));
        assert_eq!(of(&one), [0, 1_000_000, 50_000_000_000]);
        assert_eq!(of(&two), [0, 50_000_000_000, 1_000_000]);
        // And it still serves one after the other.
        assert!(two[2].1 > two[1].1 + 8_000_000, "{two:?}");
    }

    #[test]
    fn a_far_request_pays_a_seek_by_the_root_of_its_distance_and_the_rotation() {
        let mut device = Device::new(rotating());
        // A quarter of the device away: 1 ms + 15/8 * 8 ms * sqrt(1/4) = 8.5 ms. The place is at angle 0
        // (a multiple of 1 MB), which comes round at 10 ms; then 4096 bytes take 40.96 us.
        submit(&mut device, 0, &[Io::read(25_000_000_000, 4096, 1)]);
        assert_eq!(completions(&mut device), [(1, 10_040_960)]);
    }

    #[test]
    fn a_request_on_the_same_track_pays_the_rotation_alone() {
        let mut device = Device::new(rotating());
        submit(&mut device, 0, &[Io::read(300_000, 100_000, 1)]);
        assert_eq!(completions(&mut device), [(1, 4_000_000)]);
        // Backwards by 200 000 bytes: round again, to 12 ms, and 1 ms of transfer.
        submit(&mut device, 4_000_000, &[Io::read(200_000, 100_000, 2)]);
        assert_eq!(completions(&mut device), [(2, 13_000_000)]);
    }

    #[test]
    fn the_average_seek_is_what_the_specification_says() {
        let (track, average) = (Ns::from_millis(1), Ns::from_millis(9));
        let parts = 200_u64;
        let mut sum = 0;
        for a in 0..parts {
            for b in 0..parts {
                let distance = a.abs_diff(b);
                sum += seek_ns(distance, parts, track, average);
            }
        }
        let mean = sum / (parts * parts);
        assert!(mean.abs_diff(average.0) < average.0 / 100, "{mean}");
    }

    #[test]
    fn flash_overlaps_accesses_and_shares_the_interface() {
        let mut device = Device::new(flash());
        let far = |n| Io::read(n * 1_000_000, 4000, n);
        submit(&mut device, 0, &[far(1), far(2), far(3)]);
        // 1: 100 us access, then 1 us command and 4 us transfer. 2: the interface is free at 105 us.
        // 3 begins when 1 is done: its access ends at 205 us.
        assert_eq!(completions(&mut device), [(1, 105_000), (2, 110_000), (3, 210_000)]);
    }

    #[test]
    fn neighbours_merge_at_either_end_and_join_when_they_come_to_touch() {
        let mut device = Device::new(rotating());
        let page = |n: u64| Io::write(n * 4096, 4096, n);
        // 0 and 2 wait apart; 1 continues 0 and lets it touch 2; 3 continues, 8 is apart, 7 precedes it.
        submit(&mut device, 0, &[page(0), page(2), page(1), page(3), page(8), page(7)]);
        assert_eq!(device.nr_allocated(Class::Async), 2);
        assert_eq!(device.stats().merges, [0, 4]);
        let order: Vec<u64> = completions(&mut device).iter().map(|&(tag, _)| tag).collect();
        assert_eq!(order, [0, 1, 2, 3, 7, 8]);
        assert_eq!(device.stats().requests, [0, 2]);
    }

    #[test]
    fn merging_stops_at_the_longest_request_and_between_classes_and_directions() {
        let mut device = Device::new(DeviceSpec { max_request_bytes: 8192, ..rotating() });
        submit(
            &mut device,
            0,
            &[
                Io::write(0, 4096, 0),
                Io::write(4096, 4096, 1),
                Io::write(8192, 4096, 2),
                Io::write(12288, 4096, 3).sync(),
                Io::read(16384, 4096, 4),
            ],
        );
        assert_eq!(device.nr_allocated(Class::Async), 2);
        assert_eq!(device.nr_allocated(Class::Sync), 2);
    }

    #[test]
    fn a_class_is_congested_at_113_of_128_requests_until_there_are_fewer_than_103() {
        let mut device = Device::new(rotating());
        // 128 - 16 + 1 and 128 - 16 - 8 - 1.
        assert_eq!((device.congestion_on(), device.congestion_off()), (113, 103));
        let apart = |n: u64| Io::write(n * 1_000_000, 4096, n);
        for n in 0..112 {
            device.submit(Ns(0), Ticket(n), apart(n), 0).unwrap();
        }
        assert!(!device.is_congested(Class::Async));
        device.submit(Ns(0), Ticket(112), apart(112), 0).unwrap();
        assert!(device.is_congested(Class::Async));
        assert!(!device.is_congested(Class::Sync));
        device.dispatch(Ns(0));
        let mut done = VecDeque::new();
        while device.is_congested(Class::Async) {
            let at = device.next_completion().unwrap();
            let freed = device.complete(at, &mut done);
            assert_eq!(freed.uncongested[0], !device.is_congested(Class::Async));
        }
        assert_eq!(device.nr_allocated(Class::Async), 102);
        assert_eq!(device.stats().congestions, [1, 0]);
    }

    #[test]
    fn a_full_class_refuses_and_the_other_one_does_not() {
        let mut device = Device::new(DeviceSpec { nr_requests: 2, ..rotating() });
        let apart = |n: u64| Io::write(n * 1_000_000, 4096, n);
        device.submit(Ns(0), Ticket(0), apart(0), 0).unwrap();
        device.submit(Ns(0), Ticket(1), apart(2), 0).unwrap();
        assert_eq!(device.submit(Ns(0), Ticket(2), apart(4), 0), Err(QueueFull));
        device.submit(Ns(0), Ticket(3), Io::read(9_000_000, 4096, 3), 0).unwrap();
        // What merges needs no request.
        device.submit(Ns(0), Ticket(4), Io::write(4096, 4096, 4), 0).unwrap();
    }

    #[test]
    fn reads_pass_writes_twice_and_a_batch_goes_on_upwards() {
        let mut device = Device::new(rotating());
        let mut ios: Vec<Io> = (0..3).map(|n| Io::write((50 + n) * 10_000_000, 4096, n)).collect();
        ios.extend((0..40).map(|n| Io::read((100 + n) * 10_000_000, 4096, 100 + n)));
        submit(&mut device, 0, &ios);
        let order: Vec<u64> = completions(&mut device).iter().map(|&(tag, _)| tag).collect();
        let reads = |range: std::ops::Range<u64>| range.map(|n| 100 + n).collect::<Vec<_>>();
        // Two batches of 16 reads, the writes, the rest.
        assert_eq!(order[..32], reads(0..32));
        assert_eq!(order[32..35], [0, 1, 2]);
        assert_eq!(order[35..], reads(32..40));
    }
}
