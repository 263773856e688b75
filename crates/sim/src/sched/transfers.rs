//! Transfers under way, and who waits for each.
//!
//! Tickets are given in order and transfers end nearly in order, so they stand in a row by their tickets.

use crate::device::Ticket;
use std::collections::VecDeque;

/// Transfers from the first that is still under way on.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    /// The ticket of the row's first.
    first: u64,
    /// Who waits for each; `None` for those that are done.
    row: VecDeque<Option<Vec<u32>>>,
}

impl Transfers {
    /// The ticket that the next transfer gets.
    pub(super) fn next(&self) -> Ticket {
        Ticket(self.first + self.row.len() as u64)
    }

    /// The transfer of [`Self::next`] is under way.
    pub(super) fn begin(&mut self) {
        self.row.push_back(Some(Vec::new()));
    }

    /// Who waits for a transfer, if it is under way.
    pub(super) fn waiters(&mut self, ticket: Ticket) -> Option<&mut Vec<u32>> {
        self.place(ticket).and_then(Option::as_mut)
    }

    /// A transfer is done. Returns who waits for it.
    pub(super) fn end(&mut self, ticket: Ticket) -> Vec<u32> {
        let waiters = self.place(ticket).and_then(Option::take).unwrap_or_default();
        while let Some(None) = self.row.front() {
            self.row.pop_front();
            self.first += 1;
        }
        waiters
    }

    fn place(&mut self, ticket: Ticket) -> Option<&mut Option<Vec<u32>>> {
        let at = ticket.0.checked_sub(self.first)?;
        self.row.get_mut(usize::try_from(at).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_end_in_any_order() {
        let mut transfers = Transfers::default();
        let tickets: Vec<Ticket> = (0..4)
            .map(|_| {
                let ticket = transfers.next();
                transfers.begin();
                ticket
            })
            .collect();
        transfers.waiters(tickets[2]).expect("under way").push(7);
        assert_eq!(transfers.end(tickets[2]), [7]);
        assert_eq!(transfers.waiters(tickets[2]), None);
        assert_eq!(transfers.end(tickets[0]), []);
        assert_eq!(transfers.end(tickets[1]), []);
        assert_eq!((transfers.first, transfers.row.len()), (3, 1), "what is done is forgotten");
        assert_eq!(transfers.waiters(tickets[1]), None);
        assert!(transfers.waiters(tickets[3]).is_some());
        assert_eq!(transfers.next(), Ticket(4));
        assert_eq!(transfers.waiters(Ticket(4)), None);
    }
}
