//! What is known of a recorded run: what its programs printed, and what was seen while they ran.

use super::pace::share;
use highorder_system::Ns;
use std::collections::BTreeMap;
use std::ops::Range;

/// Base pages of 1 MiB: what `usemem`'s reader reads at once.
const MIB_PAGES: u64 = 256;

/// What recorded programs printed: numbers by name, such as `usemem.streamed_mb`.
pub type Results = BTreeMap<String, Vec<f64>>;

/// A recorded run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// What its programs printed.
    pub results: Results,
    /// What was seen at some moments, the earliest first.
    pub moments: Vec<Moment>,
}

/// What was seen at one moment of a recorded run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Since the run began.
    pub time: Ns,
    /// Places of huge pages that were settled: given a huge page, or told to do without (`thp_fault_alloc` and
    /// `thp_fault_fallback`).
    pub settled: u64,
    /// Pages of files that were read again, because reclaim had taken them (`workingset_refault`).
    pub refaults: u64,
}

/// The only number of a name.
pub(super) fn only(results: &Results, name: &str) -> Option<f64> {
    match results.get(name)?.as_slice() {
        &[number] if number > 0.0 => Some(number),
        _ => None,
    }
}

/// A rising line through points: for values in between, the share of the way between both neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Line(Vec<(u64, u64)>);

impl Line {
    fn first(&self) -> (u64, u64) {
        self.0.first().copied().unwrap_or_default()
    }

    fn last(&self) -> (u64, u64) {
        self.0.last().copied().unwrap_or_default()
    }

    /// The value at `x`: that of the last of all points there, and of the ends beyond them.
    fn at(&self, x: u64) -> u64 {
        let next = self.0.partition_point(|point| point.0 <= x);
        let Some(&(x0, y0)) = next.checked_sub(1).and_then(|before| self.0.get(before)) else {
            return self.first().1;
        };
        match self.0.get(next) {
            Some(&(x1, y1)) => y0 + share(y1 - y0, x - x0, x1 - x0),
            None => y0,
        }
    }
}

/// Microseconds of each moment and how much more was counted by then than at the first. A counter of all CPUs is read
/// while they count, and can fall by a little.
fn rising(moments: &[Moment], counter: impl Fn(&Moment) -> u64) -> Vec<(u64, u64)> {
    let first = moments.first().map_or(0, &counter);
    let mut most = 0;
    let mut count = |moment: &Moment| {
        most = counter(moment).saturating_sub(first).max(most);
        (moment.time.0 / 1000, most)
    };
    moments.iter().map(&mut count).collect()
}

/// When the work in front of a recorded run had come how far: microseconds by places that were settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Course(Line);

impl Course {
    /// `None` where no moment tells of any progress.
    pub(super) fn of(moments: &[Moment]) -> Option<Self> {
        let mut points: Vec<(u64, u64)> = Vec::new();
        // How long it has stood still.
        let mut stood_until = None;
        for (time_us, settled) in rising(moments, |moment| moment.settled) {
            match points.last_mut() {
                // Nothing was done yet: what comes next began here.
                Some(first) if settled == 0 => first.1 = time_us,
                Some(last) if last.0 == settled => stood_until = Some(time_us),
                last => {
                    let stood = last.zip(stood_until.take()).map(|(last, until)| (last.0, until));
                    points.extend(stood);
                    points.push((settled, time_us));
                }
            }
        }
        (points.len() > 1).then_some(Self(Line(points)))
    }

    /// When the first of them was settled, or soon before.
    fn began_us(&self) -> u64 {
        self.0.first().1
    }

    /// Microseconds since the run began, when `done` of `of` was done.
    pub(super) fn time_us(&self, done: u64, of: u64) -> u64 {
        let (settled, _) = self.0.last();
        // Finer than a whole place: a thousandth.
        let wanted = share(settled.saturating_mul(1000), done, of);
        let (whole, rest) = (wanted / 1000, wanted % 1000);
        let (from, to) = (self.0.at(whole), self.0.at(whole + 1));
        from + share(to - from, rest, 1000)
    }

    /// Which share of an amount was done by then, had it been done at one rate while the work in front went on.
    pub(super) fn at_one_rate(&self, amount: u64, done: u64, of: u64) -> u64 {
        let (_, ended_us) = self.0.last();
        let began_us = self.began_us();
        share(amount, self.time_us(done, of) - began_us, ended_us - began_us)
    }
}

/// What `usemem`'s reader read in a recorded run, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadMeanwhile {
    /// In all, in MiB.
    pub mib: u64,
    /// How long each loop took, in microseconds.
    pub loop_us: Vec<u64>,
    /// How far the first loop, which faults all of the memory in, had come by when; if that is known.
    course: Option<Course>,
    /// Pages read by microseconds since the run began: none before the first loop did.
    read: Line,
}

impl ReadMeanwhile {
    /// `faults_huge` says whether the mapping may have huge pages: else their places tell nothing of it.
    pub(super) fn of(told: &Told, loops: u32, faults_huge: bool) -> Option<Self> {
        let mib = only(&told.results, "usemem.streamed_mb")? as u64;
        let seconds = told.results.get("usemem.loop_s")?;
        let loop_us: Vec<u64> = seconds.iter().map(|seconds| (seconds * 1e6) as u64).collect();
        let all_us = sum(&loop_us);
        if loop_us.len() != loops as usize || all_us == 0 {
            return None;
        }
        let course = faults_huge.then(|| Course::of(&told.moments)).flatten();
        let began_us = course.as_ref().map_or(0, Course::began_us);
        let loops_us = began_us..began_us.saturating_add(all_us);
        let read = read_by_time(&told.moments, mib.saturating_mul(MIB_PAGES), loops_us);
        Some(Self { mib, loop_us, course, read })
    }

    /// How many MiB of it are due when so much of a loop is done.
    pub(super) fn due(&self, number: usize, done: u64, of: u64) -> u64 {
        let time_us = match &self.course {
            Some(course) if number == 0 => course.time_us(done, of),
            _ => {
                let (began_us, _) = self.read.first();
                let before = began_us.saturating_add(sum(&self.loop_us[..number]));
                before.saturating_add(share(self.loop_us[number], done, of))
            }
        };
        match number + 1 == self.loop_us.len() && done >= of {
            true => self.mib,
            false => self.read.at(time_us) / MIB_PAGES,
        }
    }
}

fn sum(times_us: &[u64]) -> u64 {
    times_us.iter().fold(0, |sum, &time_us| sum.saturating_add(time_us))
}

/// Pages that a reader of a large file read, by microseconds. The file was in memory when it began. As long as it is
/// ahead of reclaim it reads from memory, at one rate. Where reclaim overtakes it, it reads from the disk what reclaim
/// took before it: then pages are read again, and these are the ones it reads.
fn read_by_time(moments: &[Moment], pages: u64, loops_us: Range<u64>) -> Line {
    let mut line = vec![(loops_us.start, 0)];
    let seen: Vec<(u64, u64)> = rising(moments, |moment| moment.refaults)
        .into_iter()
        .map(|(time, missed)| (time.max(loops_us.start), missed))
        .collect();
    let missed = seen.last().map_or(0, |&(_, missed)| missed);
    let overtaken = seen.iter().position(|&(_, missed)| missed >= MIB_PAGES);
    if let Some(at) = overtaken.filter(|&at| at > 0 && missed <= pages) {
        // It had missed so much by the end of this step: it was overtaken as long before as that took in the next one.
        let (end, by_then) = seen[at];
        let before = seen[at - 1].0;
        let needed = match seen.get(at + 1) {
            Some(next) if next.1 > by_then => share(next.0 - end, by_then, next.1 - by_then),
            _ => end - before,
        };
        let from_memory = pages - missed;
        line.push((end.saturating_sub(needed).max(before), from_memory));
        line.extend(seen[at..].iter().map(|&(time, missed)| (time, from_memory + missed)));
    }
    let mut line = Line(line);
    if line.last().0 < loops_us.end {
        line.0.push((loops_us.end, pages));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(of: &[(u64, u64, u64)]) -> Vec<Moment> {
        let moment = |&(seconds, settled, refaults)| Moment {
            time: Ns::from_secs(seconds),
            settled,
            refaults,
        };
        of.iter().map(moment).collect()
    }

    #[test]
    fn a_course_tells_when_so_much_was_done() {
        // Nothing for two seconds, then a quarter in one second and the rest in three.
        let moments = moments(&[(0, 7, 0), (2, 7, 0), (3, 32, 0), (6, 107, 0)]);
        let course = Course::of(&moments).unwrap();
        let at = |done| course.time_us(done, 400);
        assert_eq!([at(0), at(50), at(100), at(400)], [2_000_000, 2_500_000, 3_000_000, 6_000_000]);
        assert_eq!(course.at_one_rate(1000, 100, 400), 250, "one second of four");
        assert_eq!(Course::of(&moments[..2]), None, "nothing went on");
    }

    #[test]
    fn a_reader_reads_from_memory_until_reclaim_overtakes_it() {
        // 100 MiB in all, 40 of which from the disk: 10 in the fourth second, 20 in the fifth, 10 in the sixth.
        let refaults = [0, 0, 0, 0, 10, 30, 40];
        let moments: Vec<_> =
            refaults.iter().zip(0..).map(|(&mib, second)| (second, 0, 500 + mib * 256)).collect();
        let line = read_by_time(&self::moments(&moments), 100 * 256, 0..6_000_000);
        let mib = |ms: u64| line.at(ms * 1000) / 256;
        // At the rate of the fifth second, the fourth's 10 MiB took half of it.
        assert_eq!([mib(0), mib(1750), mib(3500)], [0, 30, 60]);
        assert_eq!([mib(4000), mib(4500), mib(5000), mib(6000), mib(9000)], [70, 80, 90, 100, 100]);
    }

    #[test]
    fn work_that_stands_still_goes_on_where_it_stood() {
        // Half in a second, nothing for three, and the rest in one. What comes after all was done is not its own.
        let moments = moments(&[(0, 0, 0), (1, 50, 0), (4, 50, 0), (5, 100, 0), (9, 100, 0)]);
        let course = Course::of(&moments).unwrap();
        let at = |done| course.time_us(done, 100);
        assert_eq!([at(25), at(50), at(75), at(100)], [500_000, 4_000_000, 4_500_000, 5_000_000]);
    }

    #[test]
    fn work_that_begins_late_has_nothing_due_before() {
        let results = [("usemem.streamed_mb", vec![60.0]), ("usemem.loop_s", vec![4.0, 2.0])];
        let results = results.map(|(name, values)| (name.to_owned(), values)).into();
        // It begins after three seconds.
        let moments = moments(&[(0, 0, 0), (3, 0, 0), (5, 50, 0), (7, 100, 0), (9, 100, 0)]);
        let told = Told { results, moments };
        for faults_huge in [true, false] {
            let read = ReadMeanwhile::of(&told, 2, faults_huge).unwrap();
            let due =
                [(0, 0), (0, 2), (1, 0), (1, 1), (1, 2)].map(|(n, done)| read.due(n, done, 2));
            assert_eq!(due, [0, 40, 40, 50, 60], "{faults_huge}");
        }
    }

    #[test]
    fn without_moments_it_reads_evenly() {
        let results = [("usemem.streamed_mb", vec![80.0]), ("usemem.loop_s", vec![3.0, 1.0])];
        let results = results.map(|(name, values)| (name.to_owned(), values)).into();
        let told = Told { results, moments: Vec::new() };
        let read = ReadMeanwhile::of(&told, 2, true).unwrap();
        assert_eq!(
            [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2)].map(|(n, d)| read.due(n, d, 2)),
            [0, 30, 60, 70, 80]
        );
        assert_eq!(ReadMeanwhile::of(&told, 3, true), None, "another number of loops");
    }
}
