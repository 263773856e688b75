//! What a thread holds of the kernel, by the number that it was given for it.

use std::collections::BTreeMap;

/// Handles of a block.
const BLOCK: u32 = 64;

/// Things by number. No number is given twice, and what is given back leaves nothing, however long a thread lives.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    /// Those that hold anything: things whose numbers follow each other stand together.
    blocks: BTreeMap<u32, Vec<Option<T>>>,
    next: u32,
}

impl<T> Handles<T> {
    /// None.
    pub(crate) const fn new() -> Self {
        Self { blocks: BTreeMap::new(), next: 0 }
    }

    /// Holds something, and returns its number.
    pub(crate) fn add(&mut self, thing: T) -> u32 {
        let number = self.next;
        self.blocks.entry(number / BLOCK).or_default().push(Some(thing));
        self.next += 1;
        number
    }

    /// What has this number.
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.blocks.get_mut(&(number / BLOCK))?.get_mut((number % BLOCK) as usize)?.as_mut()
    }

    /// Gives back what has this number.
    pub(crate) fn take(&mut self, number: u32) -> Option<T> {
        let block = self.blocks.get_mut(&(number / BLOCK))?;
        let thing = block.get_mut((number % BLOCK) as usize)?.take()?;
        self.forget_if_empty(number / BLOCK);
        Some(thing)
    }

    /// Forgets a block that holds nothing and never will: the last one grows yet.
    fn forget_if_empty(&mut self, block: u32) {
        let is_empty = |things: &Vec<Option<T>>| things.iter().all(Option::is_none);
        if block < self.next / BLOCK && self.blocks.get(&block).is_some_and(is_empty) {
            self.blocks.remove(&block);
        }
    }

    /// All that is held, the oldest first.
    pub(crate) fn into_held(self) -> impl Iterator<Item = T> {
        self.blocks.into_values().flatten().flatten()
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
        assert_eq!(handles.blocks.len(), 2, "the first and the last");
        assert_eq!(handles.get_mut(kept), Some(&mut 0));
        assert_eq!(handles.into_held().collect::<Vec<_>>(), [0]);
    }
}
