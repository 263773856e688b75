//! Named counters in file order: what `vmstat`, `zoneinfo`'s statistics and page marks have in
//! common.

use crate::lines::Spacing;

/// A name and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The kernel's name, e.g. `nr_free_pages`.
    pub name: String,
    /// The value, in the kernel's unit for that name.
    pub value: u64,
    /// How the line was spaced.
    pub spacing: Spacing,
}

/// Counters in the order of their file, found by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(Vec<Counter>);

impl Counters {
    /// Returns no counters.
    pub fn new() -> Counters {
        Counters::default()
    }

    /// Returns a counter's value, or `None` if the file has no such counter.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|counter| counter.name == name).map(|counter| counter.value)
    }

    /// Sets a counter, appending it if there is none of that name.
    pub fn set(&mut self, name: &str, value: u64) {
        match self.0.iter_mut().find(|counter| counter.name == name) {
            Some(counter) => counter.value = value,
            None => self.push(name, value, Spacing::KERNEL),
        }
    }

    /// Removes a counter and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<u64> {
        let at = self.0.iter().position(|counter| counter.name == name)?;
        Some(self.0.remove(at).value)
    }

    /// Returns names and values in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|counter| (counter.name.as_str(), counter.value))
    }

    /// Returns the counters themselves, in file order.
    pub fn as_slice(&self) -> &[Counter] {
        &self.0
    }

    /// Returns how many counters there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces the spacing of the counter added last.
    pub(crate) fn set_last_spacing(&mut self, spacing: Spacing) {
        if let Some(last) = self.0.last_mut() {
            last.spacing = spacing;
        }
    }

    /// Forgets kept lines that are laid out as `canonical` says.
    pub(crate) fn respace(&mut self, canonical: impl Fn(&str, u64) -> String) {
        for counter in &mut self.0 {
            counter.spacing.resolve(&canonical(&counter.name, counter.value));
        }
    }

    pub(crate) fn push(&mut self, name: &str, value: u64, spacing: Spacing) {
        self.0.push(Counter { name: name.into(), value, spacing });
    }
}

impl<N: AsRef<str>> FromIterator<(N, u64)> for Counters {
    fn from_iter<I: IntoIterator<Item = (N, u64)>>(counters: I) -> Counters {
        let mut all = Counters::new();
        for (name, value) in counters {
            all.push(name.as_ref(), value, Spacing::KERNEL);
        }
        all
    }
}
