//! About how long experiments take: measured once, on one machine, not while a result is made.

/// How long an experiment's runs took together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// Its name.
    pub experiment: &'static str,
    /// The scale, as the command line has it.
    pub scale: &'static str,
    /// Time of one CPU in whole seconds, at least one.
    pub cpu_seconds: u32,
}

/// What the durations are of.
pub const NOTE: &str = "Durations are time of one CPU, measured on a virtual machine of an AMD EPYC that did other \
                        work as well; runs are shared among the CPUs there are.";

/// Measured: user and system time of `highorder run EXPERIMENT --scale SCALE --workers 1`, version 0.1.0 built with
/// `--release`, on two CPUs of a virtual machine of an AMD EPYC, November 2026. What is not here was not measured, or
/// had not ended after seven minutes of a machine that had other work to do.
const TIMES: [Time; 38] = [
    small("compaction-direct-freepage", 33),
    small("compaction-week", 170),
    small("dd-half-disk", 1),
    full("dd-half-disk", 4),
    small("frag-adverse-1socket", 18),
    small("frag-adverse-2socket", 37),
    small("lumpy-dd", 1),
    full("lumpy-dd", 9),
    small("lumpy-fsmark", 6),
    full("lumpy-fsmark", 93),
    small("lumpy-highalloc", 11),
    small("lumpy-micro", 10),
    small("lumpy-postmark", 5),
    full("lumpy-postmark", 48),
    small("mmap-demo", 1),
    full("mmap-demo", 2),
    small("overcommit", 15),
    small("small-files", 57),
    small("swap-small", 1),
    full("swap-small", 1),
    small("thp-defrag-matrix", 69),
    small("thp-defrag-stutter", 10),
    small("thp-defrag-thpscale", 17),
    full("thp-defrag-thpscale", 311),
    small("thp-defrag-usemem", 3),
    full("thp-defrag-usemem", 51),
    small("thp-numa-bench", 8),
    full("thp-numa-bench", 13),
    small("thp-numa-mmap-demo", 1),
    full("thp-numa-mmap-demo", 9),
    small("thp-numa-policies", 2),
    full("thp-numa-policies", 33),
    small("usemem", 1),
    full("usemem", 19),
    small("usemem-anon", 4),
    full("usemem-anon", 58),
    small("usemem-small", 1),
    full("usemem-small", 1),
];

const fn small(experiment: &'static str, cpu_seconds: u32) -> Time {
    Time { experiment, scale: "1/16", cpu_seconds }
}

const fn full(experiment: &'static str, cpu_seconds: u32) -> Time {
    Time { experiment, scale: "1", cpu_seconds }
}

/// The times that were measured, by experiment and scale.
#[must_use]
pub const fn times() -> &'static [Time] {
    &TIMES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{BUILT_IN, Experiment};

    #[test]
    fn times_are_of_experiments_that_there_are_at_scales_that_they_take() {
        for time in times() {
            assert!(BUILT_IN.iter().any(|(name, _)| *name == time.experiment), "{time:?}");
            let experiment = Experiment::load(time.experiment).unwrap();
            experiment.plan(time.scale.parse().unwrap()).unwrap();
            assert!(time.cpu_seconds > 0, "{time:?}");
        }
    }
}
