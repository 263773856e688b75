//! How long the runs that are left will take, by how long others of their kind took.
//!
//! Runs of one experiment may differ a hundredfold, so that their number says little. What is not known is not
//! guessed: until a run of each workload has ended there is no estimate.

use highorder_lab::RunKind;
use highorder_record::Identity;
use std::collections::BTreeMap;
use std::time::Duration;

/// Runs of a kind.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Not begun yet.
    nr_left: u32,
    nr_ended: u32,
    /// All that have ended together.
    took: Duration,
}

/// What is known of runs and their times.
#[derive(Debug)]
pub(crate) struct Eta {
    kinds: BTreeMap<RunKind, Tally>,
    running: BTreeMap<Identity, (RunKind, Duration)>,
    /// Runs at once.
    workers: u32,
}

impl Eta {
    /// Of runs of these kinds, so many at once.
    pub(crate) fn new(runs: impl IntoIterator<Item = RunKind>, workers: usize) -> Self {
        let mut kinds: BTreeMap<RunKind, Tally> = BTreeMap::new();
        for kind in runs {
            kinds.entry(kind).or_default().nr_left += 1;
        }
        let workers = u32::try_from(workers).unwrap_or(u32::MAX).max(1);
        Self { kinds, running: BTreeMap::new(), workers }
    }

    /// A run has begun.
    pub(crate) fn begun(&mut self, run: Identity, kind: RunKind, now: Duration) {
        if let Some(tally) = self.kinds.get_mut(&kind) {
            tally.nr_left = tally.nr_left.saturating_sub(1);
        }
        self.running.insert(run, (kind, now));
    }

    /// It has ended.
    pub(crate) fn ended(&mut self, run: Identity, now: Duration) {
        let Some((kind, begun)) = self.running.remove(&run) else { return };
        let tally = self.kinds.entry(kind).or_default();
        tally.nr_ended += 1;
        tally.took += now.saturating_sub(begun);
    }

    /// How long it will take until all have ended; none while a workload is left of which no run has ended.
    pub(crate) fn left(&self, now: Duration) -> Option<Duration> {
        let (mut sum, mut longest) = (Duration::ZERO, Duration::ZERO);
        for (kind, tally) in self.kinds.iter().filter(|(_, tally)| tally.nr_left > 0) {
            let each = self.expected(kind)?;
            sum += each * tally.nr_left;
            longest = longest.max(each);
        }
        for (kind, begun) in self.running.values() {
            let rest = self.expected(kind)?.saturating_sub(now.saturating_sub(*begun));
            sum += rest;
            longest = longest.max(rest);
        }
        Some((sum / self.workers).max(longest))
    }

    /// What a run takes: the mean of its kind, or else of its workload.
    fn expected(&self, kind: &RunKind) -> Option<Duration> {
        let mean = |of: &dyn Fn(&RunKind) -> bool| {
            let tallies = self.kinds.iter().filter(|(other, _)| of(other)).map(|(_, tally)| tally);
            let (nr, took) = tallies.fold((0, Duration::ZERO), |(nr, took), tally| {
                (nr + tally.nr_ended, took + tally.took)
            });
            (nr > 0).then(|| took / nr)
        };
        mean(&|other| other == kind).or_else(|| mean(&|other| other.workload == kind.workload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highorder_record::Inputs;

    const SECOND: Duration = Duration::from_secs(1);

    fn kind(workload: &str, values: &str) -> RunKind {
        RunKind { workload: workload.to_owned(), values: values.to_owned() }
    }

    fn run(number: u64) -> Identity {
        Inputs { seed: number, ..Inputs::default() }.identity()
    }

    /// Twelve runs of a second, twelve of ten: one of each first, then in the plan's order.
    fn plan() -> Vec<(RunKind, Duration)> {
        let short = || (kind("usemem", "a"), SECOND);
        let long = || (kind("stutter", "b"), 10 * SECOND);
        let rest = std::iter::repeat_with(short).take(11);
        [short(), long()]
            .into_iter()
            .chain(rest)
            .chain(std::iter::repeat_with(long).take(11))
            .collect()
    }

    #[test]
    fn an_estimate_is_right_from_when_each_workload_has_been_run_once() {
        let plan = plan();
        let mut eta = Eta::new(plan.iter().map(|(kind, _)| kind.clone()), 1);
        let all: Duration = plan.iter().map(|(_, took)| *took).sum();
        let mut now = Duration::ZERO;
        for (number, (kind, took)) in plan.into_iter().enumerate() {
            eta.begun(run(number as u64), kind, now);
            if number < 2 {
                assert_eq!(eta.left(now), None, "run {number}");
            } else {
                assert_eq!(eta.left(now), Some(all - now), "run {number}");
                assert_eq!(eta.left(now + took / 2), Some(all - now - took / 2), "run {number}");
            }
            now += took;
            eta.ended(run(number as u64), now);
        }
        assert_eq!((now, eta.left(now)), (all, Some(Duration::ZERO)));
    }

    #[test]
    fn runs_at_once_share_what_is_left_and_the_longest_is_the_least() {
        let runs =
            [kind("usemem", "a"), kind("usemem", "b"), kind("usemem", "b"), kind("usemem", "b")];
        let mut eta = Eta::new(runs.clone(), 2);
        eta.begun(run(0), runs[0].clone(), Duration::ZERO);
        eta.ended(run(0), 4 * SECOND);
        // Another kind of the same workload is taken for this one until one has ended.
        assert_eq!(eta.left(4 * SECOND), Some(6 * SECOND));
        eta.begun(run(1), runs[1].clone(), 4 * SECOND);
        eta.begun(run(2), runs[2].clone(), 4 * SECOND);
        eta.ended(run(1), 12 * SECOND);
        assert_eq!(
            eta.left(12 * SECOND),
            Some(8 * SECOND),
            "one alone, and one that is over its time"
        );
    }
}
