//! Values sampled in virtual time.
//!
//! Columns carry the kernel's own names, so that a listing or a chart finds them:
//!
//! | column | of | unit |
//! | --- | --- | --- |
//! | any name of `/proc/vmstat` | | as there: base pages or events since boot |
//! | `MemFree`, `Buffers`, `Cached`, `SReclaimable`, `SwapTotal`, `SwapFree` | `/proc/meminfo` | KiB |
//! | `procs_running`, `procs_blocked` | `/proc/stat` | tasks |
//! | `intr`, `ctxt` | `/proc/stat` | events since boot |
//! | `cpu_user_ns`, `cpu_system_ns`, `cpu_idle_ns`, `cpu_iowait_ns`, `cpu_steal_ns` | all CPUs | nanoseconds since boot |
//! | `buddyinfo NODE ZONE ORDER`, such as `buddyinfo 0 DMA32 09` | `/proc/buddyinfo` | free blocks |
//!
//! Others may stand beside them.

/// Columns of equal length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// When each sample was taken, in nanoseconds since the run began; strictly rising.
    pub time_ns: Vec<u64>,
    /// The columns.
    pub columns: Vec<TimelineColumn>,
}

/// One column.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineColumn {
    /// Its name.
    pub name: String,
    /// Its unit; empty where the name says it.
    pub unit: String,
    /// A value for each sample, or none.
    pub values: TimelineValues,
}

/// The values of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum TimelineValues {
    /// Whole numbers.
    Counts(Vec<Option<u64>>),
    /// Measured numbers.
    Reals(Vec<Option<f64>>),
}

impl TimelineValues {
    /// Returns how many there are, missing ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Counts(values) => values.len(),
            Self::Reals(values) => values.len(),
        }
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns one value; `None` if it is missing.
    #[must_use]
    pub fn get(&self, sample: usize) -> Option<f64> {
        match self {
            Self::Counts(values) => values.get(sample).copied().flatten().map(|n| n as f64),
            Self::Reals(values) => values.get(sample).copied().flatten(),
        }
    }

    fn pad(&mut self, len: usize) {
        match self {
            Self::Counts(values) => values.resize(len, None),
            Self::Reals(values) => values.resize(len, None),
        }
    }
}

impl Timeline {
    /// Returns how many samples there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.time_ns.len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.time_ns.is_empty()
    }

    /// Returns a column.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<&TimelineColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Returns one value; `None` if it, or its column, is missing.
    #[must_use]
    pub fn get(&self, name: &str, sample: usize) -> Option<f64> {
        self.column(name)?.values.get(sample)
    }

    /// Returns all of it as CSV: a row for each sample, empty where a value is missing.
    #[must_use]
    pub fn csv(&self) -> String {
        let quoted = |name: &str| match name.contains([',', '"']) {
            true => format!("\"{}\"", name.replace('"', "\"\"")),
            false => name.to_owned(),
        };
        let names = self.columns.iter().map(|column| quoted(&column.name));
        let mut text =
            std::iter::once("time_ns".to_owned()).chain(names).collect::<Vec<_>>().join(",");
        for (sample, time_ns) in self.time_ns.iter().enumerate() {
            text.push_str(&format!("\n{time_ns}"));
            for column in &self.columns {
                let value = column.values.get(sample).map(|value| value.to_string());
                text.push_str(&format!(",{}", value.unwrap_or_default()));
            }
        }
        text + "\n"
    }

    /// Adds a sample of whole numbers.
    ///
    /// A name that is new gets a column; columns that are not named miss a value. Fast if the names
    /// come in the same order every time.
    ///
    /// # Panics
    /// If time does not rise, if a name comes twice, or if a column of that name holds reals.
    pub fn push<'a>(&mut self, time_ns: u64, values: impl IntoIterator<Item = (&'a str, u64)>) {
        let last = self.time_ns.last();
        assert!(last.is_none_or(|&last| last < time_ns), "a timeline's time rises");
        let before = self.len();
        self.time_ns.push(time_ns);
        for (guess, (name, value)) in values.into_iter().enumerate() {
            let at = match self.columns.get(guess) {
                Some(column) if column.name == name => Some(guess),
                _ => self.columns.iter().position(|column| column.name == name),
            };
            let at = at.unwrap_or_else(|| {
                self.columns.push(TimelineColumn {
                    name: name.to_owned(),
                    unit: String::new(),
                    values: TimelineValues::Counts(vec![None; before]),
                });
                self.columns.len() - 1
            });
            let TimelineValues::Counts(counts) = &mut self.columns[at].values else {
                panic!("timeline column {name} holds whole numbers");
            };
            assert_eq!(counts.len(), before, "a sample names {name} once");
            counts.push(Some(value));
        }
        for column in &mut self.columns {
            column.values.pad(before + 1);
        }
    }

    /// Returns what is wrong, a sentence each.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(pair) = self.time_ns.windows(2).find(|pair| pair[0] >= pair[1]) {
            let (first, second) = (pair[0], pair[1]);
            problems.push(format!(
                "timeline: a sample at {second} ns after one at {first} ns, expected rising time"
            ));
        }
        for (i, column) in self.columns.iter().enumerate() {
            let name = &column.name;
            if RESERVED.contains(&name.as_str())
                || self.columns[..i].iter().any(|other| other.name == *name)
            {
                problems.push(format!("timeline: column `{name}` again, expected each name once"));
            }
            if column.values.len() != self.len() {
                problems.push(format!(
                    "timeline: column `{name}` has {} values, expected {}",
                    column.values.len(),
                    self.len()
                ));
            }
            if let TimelineValues::Reals(values) = &column.values
                && let Some(bad) = values.iter().flatten().find(|value| !value.is_finite())
            {
                problems.push(format!(
                    "timeline: column `{name}` has a value of {bad}, expected a finite number"
                ));
            }
        }
        problems
    }
}

/// Names that the stored table uses for itself.
pub(crate) const RESERVED: [&str; 2] = ["identity", "time_ns"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_comes_late_misses_its_first_values() {
        let mut timeline = Timeline::default();
        timeline.push(0, [("nr_free_pages", 100), ("pgfault", 0)]);
        timeline.push(5, [("nr_free_pages", 90), ("pswpout", 3), ("pgfault", 7)]);
        timeline.push(6, [("pswpout", 4)]);
        assert_eq!(timeline.problems(), Vec::<String>::new());
        assert_eq!(timeline.get("pgfault", 1), Some(7.0));
        assert_eq!(timeline.get("pswpout", 0), None);
        assert_eq!(timeline.get("nr_free_pages", 2), None);
        assert_eq!(timeline.get("nr_nothing", 0), None);
    }

    #[test]
    #[should_panic(expected = "time rises")]
    fn time_that_stands_still_is_refused() {
        let mut timeline = Timeline::default();
        timeline.push(5, []);
        timeline.push(5, []);
    }

    #[test]
    fn every_problem_is_told() {
        let column = |name: &str, values| TimelineColumn {
            name: name.into(),
            unit: String::new(),
            values: TimelineValues::Reals(values),
        };
        let timeline = Timeline {
            time_ns: vec![3, 3],
            columns: vec![
                column("a", vec![Some(1.0)]),
                column("a", vec![None, Some(f64::INFINITY)]),
                column("time_ns", vec![None, None]),
            ],
        };
        assert_eq!(
            timeline.problems(),
            [
                "timeline: a sample at 3 ns after one at 3 ns, expected rising time",
                "timeline: column `a` has 1 values, expected 2",
                "timeline: column `a` again, expected each name once",
                "timeline: column `a` has a value of inf, expected a finite number",
                "timeline: column `time_ns` again, expected each name once",
            ]
        );
    }
}
