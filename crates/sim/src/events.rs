//! When each subject (a device or a task) acts next, and who is first.
//!
//! A tree of minima over the subjects: the first moment is at the root, and the subject is found by
//! going down, to the left where both sides are equal. So ties go to the lowest number, and nothing
//! depends on the order in which moments were set.

/// No moment: the subject does not act by itself.
pub(crate) const NEVER: u64 = u64::MAX;

/// The next moment of each subject.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    /// Leaves at `leaves..2 * leaves`; the node `i` holds the least of `2 * i` and `2 * i + 1`.
    tree: Vec<u64>,
    leaves: usize,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self { tree: vec![NEVER; 2], leaves: 1 }
    }

    /// Makes room for subjects below `nr`.
    pub(crate) fn grow(&mut self, nr: usize) {
        if nr <= self.leaves {
            return;
        }
        let old = self.tree[self.leaves..].to_vec();
        self.leaves = nr.next_power_of_two();
        self.tree = vec![NEVER; 2 * self.leaves];
        self.tree[self.leaves..self.leaves + old.len()].copy_from_slice(&old);
        for node in (1..self.leaves).rev() {
            self.tree[node] = self.tree[2 * node].min(self.tree[2 * node + 1]);
        }
    }

    /// Sets when `subject` acts next.
    #[inline]
    pub(crate) fn set(&mut self, subject: usize, at: u64) {
        let mut node = self.leaves + subject;
        self.tree[node] = at;
        while node > 1 {
            let least = self.tree[node].min(self.tree[node ^ 1]);
            node /= 2;
            if self.tree[node] == least {
                return;
            }
            self.tree[node] = least;
        }
    }

    /// The first moment and its subject; the moment is [`NEVER`] if nobody acts.
    #[inline]
    pub(crate) fn first(&self) -> (u64, usize) {
        let mut node = 1;
        while node < self.leaves {
            node *= 2;
            node += usize::from(self.tree[node + 1] < self.tree[node]);
        }
        (self.tree[1], node - self.leaves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_the_earliest_and_among_equals_the_lowest() {
        let mut events = Events::new();
        events.grow(5);
        for (subject, at) in [(4, 30), (3, 10), (1, 20), (2, 10)] {
            events.set(subject, at);
        }
        assert_eq!(events.first(), (10, 2));
        events.set(2, NEVER);
        assert_eq!(events.first(), (10, 3));
        events.set(3, 40);
        assert_eq!(events.first(), (20, 1));
        events.grow(100);
        assert_eq!(events.first(), (20, 1));
        events.set(99, 5);
        assert_eq!(events.first(), (5, 99));
    }

    #[test]
    fn every_small_assignment_agrees_with_a_plain_search() {
        let mut events = Events::new();
        events.grow(4);
        for code in 0..4_u64.pow(4) {
            let at: Vec<u64> = (0..4).map(|i| (code / 4_u64.pow(i)) % 4).collect();
            for (subject, &moment) in at.iter().enumerate() {
                events.set(subject, moment);
            }
            let (subject, &moment) = at.iter().enumerate().min_by_key(|&(_, &at)| at).unwrap();
            assert_eq!(events.first(), (moment, subject), "{at:?}");
        }
    }
}
