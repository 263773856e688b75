//! What would have become of pages that reclaim took.
//!
//! A page that was swapped out leaves no event when its task gives it back. Nothing says that it was wanted to the end:
//! of the memory that was taken beside it, some was given back and some was not. So such a page shares the fate of
//! others that were as old: first of those taken in a row with it, which are most likely of one use, else of one drawn
//! from all that were there when it went (a hot-deck imputation). What is drawn depends on the recording alone.

use highorder_system::Ns;
use rand_core::Rng;
use rand_pcg::Pcg64;

/// The stream of what is drawn: "fates" in ASCII.
const STREAM: u128 = 0x66_6174_6573;
/// So many are looked at before a page is taken to be wanted to the end.
const DRAWS_MAX: usize = 64;

/// Memory that lived and died as one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    /// When its first page was handed out; 0 for what was there before.
    pub(super) born: Ns,
    /// When its last one was.
    pub(super) complete: Ns,
    /// What became of it.
    pub(super) fate: Fate,
}

/// What became of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// A task gave it back then.
    GivenBack(Ns),
    /// It was there at the end.
    Kept,
    /// Reclaim took it then.
    Reclaimed(Ns),
}

/// Gives one task's memory that reclaim took the fate that it would have had: of what was handed out less than `in_a_row`
/// before or after, else drawn. `lives` are in the order of their births, `number` chooses what is drawn.
pub(super) fn give(lives: &mut [Life], in_a_row: Ns, number: u64) {
    let is_row = |a: &Life, b: &Life| b.born.saturating_sub(a.complete) < in_a_row;
    lives.chunk_by_mut(is_row).for_each(share);
    let known = lives.to_vec();
    let mut fates = Fates::of(&known, number);
    for row in lives.chunk_by_mut(is_row) {
        // Where one is without a fate, reclaim took all.
        if let Fate::Reclaimed(at) = row[0].fate {
            let fate = fates.draw(at).map_or(Fate::Kept, Fate::GivenBack);
            row.iter_mut().for_each(|life| life.fate = fate);
        }
    }
}

/// Gives those of a row that reclaim took the fate of the one before them, or else of the first that has one.
fn share(row: &mut [Life]) {
    let is_known = |life: &&Life| !matches!(life.fate, Fate::Reclaimed(_));
    let Some(mut nearest) = row.iter().find(is_known).map(|life| life.fate) else { return };
    for life in row {
        match life.fate {
            Fate::Reclaimed(_) => life.fate = nearest,
            known => nearest = known,
        }
    }
}

/// Draws fates from lives, which are in the order of their births.
pub(super) struct Fates<'a> {
    lives: &'a [Life],
    rng: Pcg64,
}

impl<'a> Fates<'a> {
    pub(super) fn of(lives: &'a [Life], number: u64) -> Self {
        Self { lives, rng: Pcg64::new(u128::from(number), STREAM) }
    }

    /// When a page would have been given back that reclaim took at this time, if it would have been at all.
    pub(super) fn draw(&mut self, mut at: Ns) -> Option<Ns> {
        for _ in 0..DRAWS_MAX {
            let nr = self.lives.partition_point(|life| life.born <= at);
            if nr == 0 {
                return None;
            }
            match self.lives[(self.rng.next_u64() % nr as u64) as usize].fate {
                Fate::Kept => return None,
                Fate::GivenBack(then) if then > at => return Some(then),
                // It was as old then, and its own fate is unknown from there on.
                Fate::Reclaimed(then) if then > at => at = then,
                Fate::GivenBack(_) | Fate::Reclaimed(_) => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{Fate, Fates, Life, give};
    use highorder_system::Ns;

    #[test]
    fn what_reclaim_took_is_given_back_as_often_as_what_was_left() {
        let life = |born, fate| Life { born: Ns(born), complete: Ns(born), fate };
        let mut lives = vec![life(0, Fate::GivenBack(Ns(5))); 100];
        lives.extend(vec![life(0, Fate::GivenBack(Ns(20))); 300]);
        lives.extend(vec![life(0, Fate::Kept); 100]);
        lives.extend(vec![life(0, Fate::Reclaimed(Ns(10))); 500]);
        lives.extend(vec![life(15, Fate::Kept); 1000]);
        let mut fates = Fates::of(&lives, 1);
        let drawn: Vec<Option<Ns>> = (0..1000).map(|_| fates.draw(Ns(10))).collect();
        let given = drawn.iter().filter(|&&drawn| drawn == Some(Ns(20))).count();
        assert!((700..800).contains(&given), "{given}");
        assert_eq!(drawn.iter().filter(|drawn| drawn.is_none()).count(), 1000 - given);
    }

    #[test]
    fn a_row_goes_together_and_a_row_that_went_whole_goes_as_another() {
        let life = |born, fate| Life { born: Ns(born), complete: Ns(born + 1), fate };
        let (kept, taken) = (Fate::Kept, Fate::Reclaimed(Ns(500)));
        let gone = |at| Fate::GivenBack(Ns(at));
        let mut lives = [
            life(0, taken),
            life(2, gone(900)),
            life(4, taken),
            life(6, kept),
            life(8, taken),
            // Another row, of which nothing is left.
            life(200, taken),
            life(202, taken),
        ];
        give(&mut lives, Ns(10), 7);
        let fates = lives.map(|life| life.fate);
        assert_eq!(fates[..5], [gone(900), gone(900), gone(900), kept, kept]);
        assert_eq!(fates[5], fates[6]);
        assert!([gone(900), kept].contains(&fates[5]), "{fates:?}");
    }

    #[test]
    fn nobody_left_tells_nothing() {
        let lives = [Life { born: Ns(3), complete: Ns(3), fate: Fate::GivenBack(Ns(4)) }];
        let mut fates = Fates::of(&lives, 1);
        assert_eq!((fates.draw(Ns(2)), fates.draw(Ns(9))), (None, None));
    }
}
