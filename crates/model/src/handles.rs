//! What a thread holds of the kernel, by the number that it was given for it.

use std::collections::BTreeMap;

/// Things by number. No number is given twice, and what is given back leaves nothing, however long a thread lives.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    held: BTreeMap<u32, T>,
    next: u32,
}

impl<T> Handles<T> {
    /// None.
    pub(crate) const fn new() -> Self {
        Self { held: BTreeMap::new(), next: 0 }
    }

    /// Holds something, and returns its number.
    pub(crate) fn add(&mut self, thing: T) -> u32 {
        let number = self.next;
        self.held.insert(number, thing);
        self.next += 1;
        number
    }

    /// What has this number.
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.held.get_mut(&number)
    }

    /// Gives back what has this number.
    pub(crate) fn take(&mut self, number: u32) -> Option<T> {
        self.held.remove(&number)
    }

    /// All that is held, the oldest first.
    pub(crate) fn into_held(self) -> impl Iterator<Item = T> {
        self.held.into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Issue 23: a week's run grew by all that it had ever opened.
    #[test]
    fn what_is_given_back_leaves_nothing() {
        let mut handles = Handles::new();
        let kept = handles.add(0);
        for thing in 1..10_000 {
            let number = handles.add(thing);
            assert_eq!(handles.take(number), Some(thing));
            assert_eq!(handles.take(number), None);
        }
        assert_eq!(handles.held.len(), 1);
        assert_eq!(handles.get_mut(kept), Some(&mut 0));
        assert_eq!(handles.into_held().collect::<Vec<_>>(), [0]);
    }
}
