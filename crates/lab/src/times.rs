//! About how long experiments take: measured once, on one machine, not while a result is made.

/// How long an experiment's runs took together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// Its name.
    pub experiment: &'static str,
    /// The scale, as the command line has it.
    pub scale: &'static str,
    /// Time of one CPU, in seconds, rounded.
    pub cpu_seconds: u32,
}

/// What a duration is of.
pub const NOTE: &str = "Durations are of one CPU of a virtual machine (";

/// The times that were measured, by experiment and scale.
#[must_use]
pub const fn times() -> &'static [Time] {
    &[]
}
