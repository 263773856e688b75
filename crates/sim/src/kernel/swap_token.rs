//! The swap token: of processes that thrash, one keeps its pages while it serves a fault.
//!
//! Models: `grab_swap_token`, `disable_swap_token`, `__put_swap_token`, mm/thrash.c, and `page_referenced_one`,
//! mm/rmap.c, v3.3 and v3.4; e709ffd6169c (3.5) took it away.

use std::collections::BTreeMap;

use super::Kernel;
use highorder_mm::vma::ProcessId;

/// Faults after which what the holder has earned is halved (`TOKEN_AGING_INTERVAL`).
const AGING_INTERVAL: u64 = 0xff;

/// Who has the token, and what others have earned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SwapToken {
    holder: Option<ProcessId>,
    /// Pages that had to be read from swap, by whomever.
    nr_faults: u64,
    /// When the holder's claim was last halved.
    aged_at: u64,
    /// By process.
    claims: BTreeMap<u32, Claim>,
}

/// What a process has earned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Claim {
    priority: u64,
    /// Its last fault, and how many of all were between that and the one before.
    fault: u64,
    interval: u64,
    /// Its tasks that serve faults at this moment.
    nr_in_fault: u32,
}

impl SwapToken {
    /// A process is about to read a page from swap: how many have been read since its last one. Nothing keeps another of
    /// its tasks from asking before this one has [grabbed](Self::grab).
    #[doc(alias = "grab_swap_token")]
    pub(crate) fn ask(&mut self, process: ProcessId) -> u64 {
        self.nr_faults += 1;
        self.nr_faults - self.claims.entry(process.0).or_default().fault
    }

    /// Gives the token to a process that was told of this interval, if it has earned it.
    #[doc(alias = "grab_swap_token")]
    pub(crate) fn grab(&mut self, process: ProcessId, interval: u64) {
        let is_holder = self.holder == Some(process);
        if self.nr_faults - self.aged_at > AGING_INTERVAL
            && let Some(holder) = self.holder
        {
            self.claims.entry(holder.0).or_default().priority /= 2;
            self.aged_at = self.nr_faults;
        }
        let held = self.holder.map(|holder| self.claims.entry(holder.0).or_default().priority);
        let claim = self.claims.entry(process.0).or_default();
        if is_holder {
            claim.priority += 2;
        } else if held.is_some() {
            claim.priority = match interval < claim.interval {
                true => claim.priority + 1,
                false => claim.priority.saturating_sub(1),
            };
        }
        if held.is_none_or(|held| !is_holder && claim.priority > held) {
            claim.priority += 2;
            self.holder = Some(process);
        }
        (claim.fault, claim.interval) = (self.nr_faults, interval);
    }

    /// A task of a process begins to serve a fault.
    pub(crate) fn begin_fault(&mut self, process: ProcessId) {
        self.claims.entry(process.0).or_default().nr_in_fault += 1;
    }

    /// It has. A process that was killed meanwhile has no claim any more.
    pub(crate) fn end_fault(&mut self, process: ProcessId) {
        if let Some(claim) = self.claims.get_mut(&process.0) {
            claim.nr_in_fault = claim.nr_in_fault.saturating_sub(1);
        }
    }

    /// Nobody has it any more: reclaim is at its last priority.
    #[doc(alias = "disable_swap_token")]
    pub(crate) const fn disable(&mut self) {
        self.holder = None;
    }

    /// A process is gone.
    #[doc(alias = "__put_swap_token")]
    pub(crate) fn put(&mut self, process: ProcessId) {
        self.holder = self.holder.filter(|&holder| holder != process);
        self.claims.remove(&process.0);
    }

    /// Whose pages count as referenced for somebody of `process` who reclaims.
    #[doc(alias = "page_referenced_one")]
    pub(crate) fn protected_from(&self, process: Option<ProcessId>) -> Option<ProcessId> {
        let is_in_fault = |holder: &ProcessId| self.claims[&holder.0].nr_in_fault > 0;
        self.holder.filter(|&holder| process != Some(holder)).filter(is_in_fault)
    }
}

impl Kernel {
    /// The token, on kernels that have one.
    pub(crate) fn token(&mut self) -> Option<&mut SwapToken> {
        self.flows.stall.swap_token.then_some(&mut self.swap_token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: ProcessId = ProcessId(1);
    const SECOND: ProcessId = ProcessId(2);

    impl SwapToken {
        fn ask_and_grab(&mut self, process: ProcessId) {
            let interval = self.ask(process);
            self.grab(process, interval);
        }
    }

    #[test]
    fn who_comes_first_holds_it_until_another_faults_more_and_more_often() {
        let mut token = SwapToken::default();
        token.ask_and_grab(FIRST);
        assert_eq!(token.holder, Some(FIRST));
        // Two of the holder's priority have to be outdone, by faults each sooner than the last.
        for distance in [5, 4, 3, 2] {
            assert_eq!(token.holder, Some(FIRST), "{distance}");
            token.nr_faults += distance;
            token.ask_and_grab(SECOND);
        }
        assert_eq!(token.holder, Some(SECOND));
    }

    #[test]
    fn only_a_holder_in_a_fault_is_protected_and_not_from_itself() {
        let mut token = SwapToken::default();
        token.ask_and_grab(FIRST);
        assert_eq!(token.protected_from(None), None);
        token.begin_fault(FIRST);
        assert_eq!(token.protected_from(None), Some(FIRST));
        assert_eq!(token.protected_from(Some(SECOND)), Some(FIRST));
        assert_eq!(token.protected_from(Some(FIRST)), None);
        token.disable();
        assert_eq!(token.protected_from(None), None);
    }

    #[test]
    fn one_that_faults_alone_earns_it_only_when_two_of_its_tasks_ask_at_once() {
        let mut token = SwapToken::default();
        token.ask_and_grab(FIRST);
        (0..2000).for_each(|_| token.ask_and_grab(SECOND));
        assert_eq!(token.holder, Some(FIRST), "each is as near to the last as that was");
        let intervals = [token.ask(SECOND), token.ask(SECOND)];
        assert_eq!(intervals, [1, 2]);
        intervals.into_iter().for_each(|interval| token.grab(SECOND, interval));
        assert_eq!(token.holder, Some(FIRST));
        token.ask_and_grab(SECOND);
        assert_eq!(token.holder, Some(SECOND), "this one is nearer than the last seemed to be");
    }

    #[test]
    fn a_holder_that_goes_leaves_it_to_the_next() {
        let mut token = SwapToken::default();
        token.ask_and_grab(FIRST);
        token.put(FIRST);
        token.ask_and_grab(SECOND);
        assert_eq!(token.holder, Some(SECOND));
    }
}
