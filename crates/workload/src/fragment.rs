//! A node fragmented on purpose: in a share of its pageblocks one page stays in use.
//!
//! Whether that can be undone depends on the page: anonymous ones move, those of files move or go, and those of
//! a pipe's buffer stay where they are.
//!
//! Departs: which frames a system hands out is its own affair. Pages are taken by whole units in a row, and
//! one of each is kept. Visible as: where free memory was in pieces before, some pageblocks keep several pages
//! and others none.

use highorder_system::{
    Access, Advice, Area, BlockId, Failure, FileId, KernelBlock, NodeId, Pattern, Place, System,
};

/// With what: the words of a `fragment_with` parameter.
pub(crate) const FRAGMENT_WITH: &[&str] = &["pinned", "anon", "file"];

const FILE: &str = "fragment-file";

/// What keeps a node fragmented.
pub(crate) struct Fragmented {
    area: Option<Area>,
    blocks: Vec<BlockId>,
    file: Option<FileId>,
}

/// Fragments `percent` of 100 of a node, from a CPU of it. The calling thread may run anywhere afterwards.
///
/// # Errors
/// What the system refused.
pub(crate) fn fragment(
    sys: &mut dyn System,
    node: NodeId,
    percent: u64,
    with: &str,
) -> Result<Fragmented, Failure> {
    let machine = sys.machine();
    let (unit, page_bytes) = (machine.huge_pages, machine.page_bytes);
    let found = machine.nodes.iter().find(|info| info.number == node);
    let pages = found.map(|info| info.total_pages);
    let pages = pages.ok_or_else(|| Failure::Refused(format!("no node {node}")))?;
    let units = pages * percent / 100 / unit;
    let mut kept = Fragmented { area: None, blocks: Vec::new(), file: None };
    if units == 0 {
        return Ok(kept);
    }
    sys.set_place(Place::Node(node))?;
    if with == "pinned" {
        let mut rest = Vec::new();
        for number in 0..units * unit {
            let Some(block) = sys.take_block(KernelBlock::PipeBuffer)? else { break };
            if number % unit == 0 { &mut kept.blocks } else { &mut rest }.push(block);
        }
        rest.into_iter().try_for_each(|block| sys.free_block(block))?;
    } else {
        let area = sys.mmap(units * unit)?;
        sys.madvise(area, Advice::NoHuge)?;
        let file = if with == "file" { Some(sys.create_file(FILE)?) } else { None };
        for number in 0..units {
            let part = area.part(number * unit, unit);
            match file {
                Some(file) => {
                    sys.touch_range(part.part(1, unit - 1), Pattern::word(Access::Write))?;
                    sys.write_file(file, number * page_bytes, page_bytes)?;
                }
                None => sys.touch_range(part, Pattern::word(Access::Write))?,
            }
        }
        for number in 0..units {
            sys.madvise(area.part(number * unit + 1, unit - 1), Advice::DontNeed)?;
        }
        if file.is_some() {
            sys.munmap(area)?;
            // Dirty pages could not be dropped.
            sys.sync()?;
        } else {
            kept.area = Some(area);
        }
        kept.file = file;
    }
    sys.set_place(Place::Any)?;
    Ok(kept)
}

impl Fragmented {
    /// Gives all of it back.
    ///
    /// # Errors
    /// What the system refused.
    pub(crate) fn undo(self, sys: &mut dyn System) -> Result<(), Failure> {
        self.blocks.into_iter().try_for_each(|block| sys.free_block(block))?;
        if let Some(area) = self.area {
            sys.munmap(area)?;
        }
        match self.file {
            Some(file) => {
                sys.close_file(file)?;
                sys.unlink(FILE)
            }
            None => Ok(()),
        }
    }
}
