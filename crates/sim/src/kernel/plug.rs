//! What a task gathers of its transfers before their devices get them.
//!
//! Models: `struct blk_plug`, `blk_flush_plug`, `blk_attempt_plug_merge`, block/blk-core.c, v3.3 to v6.12; `blk_mq_make_request`
//! (v4.4 to v5.0), `blk_add_rq_to_plug` (v6.12), block/blk-mq.c; `blk_queue_bio`, block/blk-core.c (v3.3).
//! Departs: what reclaim writes of files is handed over at once; a page joins the last request only, and only at its end.
//! Visible as: nothing that is known.

use super::policy::Block;
use super::swap::Run;

/// From this length on nothing is gained from waiting for more (`BLK_PLUG_FLUSH_SIZE`).
const LARGE_BYTES: u64 = 128 << 10;

/// Requests that were begun and not handed over.
#[derive(Default)]
pub(crate) struct Plug {
    held: Vec<Run>,
}

impl Plug {
    /// Whether what is held has to go before a request to a device of so many queues is begun.
    #[doc(alias = "blk_queue_bio")]
    #[doc(alias = "blk_mq_make_request")]
    #[doc(alias = "blk_add_rq_to_plug")]
    pub(crate) fn is_full(&self, policy: Block, hardware_queues: u32) -> bool {
        let Some(last) = self.held.last() else { return false };
        let holds_one = policy.holds_one_for_many_queues && hardware_queues > 1;
        let is_large = policy.large_go_at_once && last.bytes() >= LARGE_BYTES;
        holds_one || is_large || self.held.len() >= policy.plug_requests as usize
    }

    /// The request that was begun last.
    pub(crate) fn last(&mut self) -> Option<&mut Run> {
        self.held.last_mut()
    }

    /// Holds one request more.
    pub(crate) fn hold(&mut self, request: Run) {
        self.held.push(request);
    }

    /// Gives out what is held.
    #[doc(alias = "blk_flush_plug")]
    pub(crate) fn take(&mut self) -> Vec<Run> {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINCE_5_16: Block = Block {
        plug_requests: 32,
        large_go_at_once: true,
        holds_one_for_many_queues: false,
        has_cfq: false,
    };

    fn holds(nr_requests: usize, pages: u32) -> Plug {
        let mut plug = Plug::default();
        (0..nr_requests).for_each(|_| plug.hold(Run::of_pages(pages)));
        plug
    }

    #[test]
    fn what_is_gathered_goes_when_it_is_much_and_another_request_is_begun() {
        assert!(!holds(0, 1).is_full(SINCE_5_16, 1), "nothing is held");
        assert!(!holds(31, 31).is_full(SINCE_5_16, 1));
        assert!(holds(32, 1).is_full(SINCE_5_16, 1), "many requests");
        assert!(holds(1, 32).is_full(SINCE_5_16, 1), "a large one");
        let before_4_10 = Block { plug_requests: 16, large_go_at_once: false, ..SINCE_5_16 };
        assert!(!holds(15, 512).is_full(before_4_10, 1));
        assert!(holds(16, 1).is_full(before_4_10, 1));
    }

    #[test]
    fn one_request_is_held_for_a_device_of_several_queues() {
        let policy = Block { holds_one_for_many_queues: true, ..SINCE_5_16 };
        assert!(holds(1, 1).is_full(policy, 2));
        assert!(!holds(1, 1).is_full(policy, 1));
        assert_eq!(holds(3, 1).take().len(), 3);
    }
}
