//! How memory is touched, and from which nodes it is to come.

use crate::place::NodeId;

/// How memory is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read.
    Read,
    /// Written.
    Write,
}

/// From which nodes a mapping's pages come; a mask has a bit for each node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MemPolicy {
    /// The CPU's own node, then the others by distance.
    #[default]
    Default,
    /// Likewise, whatever the task's policy is (`MPOL_LOCAL`).
    Local,
    /// This node, then the others by distance.
    Preferred(NodeId),
    /// These nodes as long as no request has to reclaim, then all (`MPOL_PREFERRED_MANY`, b27abaccf8e8, 5.15).
    PreferredMany(u64),
    /// These nodes alone.
    Bind(u64),
    /// These nodes in turn, by the page's place in the mapping.
    Interleave(u64),
}

/// Where a page is to come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The node whose zonelist is walked.
    pub node: NodeId,
    /// The nodes allowed, all bits set if all are.
    pub allowed: u64,
}

impl MemPolicy {
    /// Where page `index` of the mapping is to come from, for a task on `node`.
    ///
    /// Of many preferred nodes it is the first try's; the second may take any.
    #[must_use]
    pub fn placement(self, index: u32, node: NodeId) -> Placement {
        match self {
            Self::Default | Self::Local => Placement { node, allowed: u64::MAX },
            Self::Preferred(node) => Placement { node, allowed: u64::MAX },
            Self::Bind(mask) | Self::PreferredMany(mask) => Placement { node, allowed: mask },
            Self::Interleave(mask) => {
                let nr = mask.count_ones().max(1);
                let mut left = mask;
                for _ in 0..index % nr {
                    left &= left - 1;
                }
                let node = if mask == 0 { node } else { NodeId(left.trailing_zeros()) };
                Placement { node, allowed: u64::MAX }
            }
        }
    }
}
