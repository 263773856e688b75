//! The objects that a file's pages need beside themselves: nodes of the tree that holds them, and buffer heads.
//!
//! Models: lib/xarray.c and lib/radix-tree.c (64 entries a node; a lone first page needs none), fs/buffer.c
//! (`create_empty_buffers`, `try_to_free_buffers`), mm/workingset.c (`shadow_lru_isolate`), v4.4 and v6.12.
//! Departs: nodes above the lowest level are left out. Visible as: a 64th less of them. A page has one buffer
//! head, as with blocks of a page's size. Visible as: nothing, with file systems of such blocks.
//!
//! Objects are allocated by whoever can wait, and given to the cache with [`PageCache::give_node`] and
//! [`PageCache::give_buffer`]. Those that go with a page's entry are gathered until
//! [`Memory::release_objects`].

use super::{CHUNK, CachedPage, Chunk, FileId, NIL, PageCache, decode};
use crate::memory::Memory;
use crate::slab::{CacheId, Object};
use crate::types::{CpuId, Pfn};
use std_alloc::vec::Vec;

/// Entries of a node (`XA_CHUNK_SIZE`).
pub const NODE_ENTRIES: usize = 64;

/// The part of a file's tree that one node holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    object: Object,
    pages: u8,
    shadows: u8,
    /// When it came to hold shadows alone; 0 if it does not.
    shadow_since: u64,
}

impl Node {
    pub(super) const EMPTY: Self =
        Self { object: Object::NONE, pages: 0, shadows: 0, shadow_since: 0 };
}

/// A page's buffer heads, where some page has one.
pub(super) type Buffers = Vec<Object>;

impl PageCache {
    /// Whether a node is missing that page `index` of a file needs: any but the first needs one.
    #[must_use]
    pub fn needs_node(&self, file: FileId, index: u64) -> bool {
        if index == 0 {
            return false;
        }
        match self.place(file, index) {
            Some((chunk, _)) => self.chunks[chunk].node.object == Object::NONE,
            None => true,
        }
    }

    /// Gives the part of a file that holds page `index` its node, just before the page.
    ///
    /// # Panics
    /// If it has one.
    pub fn give_node(&mut self, file: FileId, index: u64, object: Object) {
        let (chunk, _) = self.place_to_fill(file, index);
        let node = &mut self.chunks[chunk].node;
        assert_eq!(node.object, Object::NONE, "a node is there already");
        node.object = object;
        self.track_shadows(chunk);
    }

    /// Whether the page in memory whose owner this is has a buffer head.
    #[must_use]
    pub fn has_buffer(&self, owner: u32) -> bool {
        let (chunk, at) = (owner as usize / CHUNK, owner as usize % CHUNK);
        self.chunks[chunk].buffers.get(at).is_some_and(|&buffer| buffer != Object::NONE)
    }

    /// Gives the page in memory whose owner this is a buffer head, which goes with it.
    ///
    /// # Panics
    /// If it has one, or is no page.
    #[doc(alias = "create_empty_buffers")]
    pub fn give_buffer(&mut self, owner: u32, object: Object) {
        assert!(!self.has_buffer(owner), "a page has one buffer head");
        let (chunk, at) = (owner as usize / CHUNK, owner as usize % CHUNK);
        let chunk = &mut self.chunks[chunk];
        assert!(
            matches!(decode(chunk.entries[at]), CachedPage::Page(_)),
            "only pages have buffers"
        );
        if chunk.buffers.len() <= at {
            chunk.buffers.resize(chunk.entries.len(), Object::NONE);
        }
        chunk.buffers[at] = object;
    }

    /// An entry has changed.
    pub(super) fn note_entry(
        &mut self,
        chunk: usize,
        at: usize,
        before: CachedPage,
        after: CachedPage,
    ) {
        let this = &mut self.chunks[chunk];
        let node = &mut this.node;
        match before {
            CachedPage::Page(_) => node.pages -= 1,
            CachedPage::Shadow(_) => node.shadows -= 1,
            CachedPage::Swapped(_) | CachedPage::None => {}
        }
        match after {
            CachedPage::Page(_) => node.pages += 1,
            CachedPage::Shadow(_) => node.shadows += 1,
            CachedPage::Swapped(_) | CachedPage::None => {}
        }
        if !matches!(after, CachedPage::Page(_))
            && let Some(buffer) = this.buffers.get_mut(at)
            && let Some(object) = core::mem::replace(buffer, Object::NONE).some()
        {
            self.released.push((CacheId::BUFFER_HEAD, object));
        }
        if node.pages == 0
            && node.shadows == 0
            && let Some(object) = core::mem::replace(&mut node.object, Object::NONE).some()
        {
            self.released.push((CacheId::RADIX_TREE_NODE, object));
        }
        self.track_shadows(chunk);
    }

    /// Keeps the list of nodes that hold nothing but shadows.
    fn track_shadows(&mut self, chunk: usize) {
        let node = &mut self.chunks[chunk].node;
        let belongs = node.object != Object::NONE && node.pages == 0 && node.shadows > 0;
        if belongs && node.shadow_since == 0 {
            self.shadow_clock += 1;
            node.shadow_since = self.shadow_clock;
            self.shadow_nodes.insert(self.shadow_clock, chunk as u32);
        } else if !belongs && node.shadow_since != 0 {
            self.shadow_nodes.remove(&node.shadow_since);
            node.shadow_since = 0;
        }
    }

    /// The objects of a chunk that goes.
    pub(super) fn release_chunk_objects(&mut self, chunk: usize) {
        let this: &mut Chunk = &mut self.chunks[chunk];
        let node = core::mem::replace(&mut this.node, Node::EMPTY);
        if let Some(object) = node.object.some() {
            self.released.push((CacheId::RADIX_TREE_NODE, object));
        }
        if node.shadow_since != 0 {
            self.shadow_nodes.remove(&node.shadow_since);
        }
        this.buffers = Vec::new();
    }

    /// Nodes that hold nothing but shadows.
    #[must_use]
    pub fn nr_shadow_nodes(&self) -> u64 {
        self.shadow_nodes.len() as u64
    }

    /// Forgets the shadows of the node that has held nothing else for longest. Returns its file.
    #[doc(alias = "shadow_lru_isolate")]
    pub fn drop_shadow_node(&mut self) -> Option<FileId> {
        let (_, &chunk) = self.shadow_nodes.first_key_value()?;
        let chunk = chunk as usize;
        let this = &self.chunks[chunk];
        let (file, number) = (this.file, this.number as usize);
        for at in 0..this.entries.len() {
            let before = decode(self.chunks[chunk].entries[at]);
            if before != CachedPage::None {
                let this = &mut self.chunks[chunk];
                this.entries[at] = 0;
                this.used -= 1;
                self.note_entry(chunk, at, before, CachedPage::None);
            }
        }
        if self.chunks[chunk].used == 0 {
            self.release(chunk, file as usize, number);
        }
        Some(FileId(file))
    }

    /// Whether nothing of a file is remembered but perhaps its first page's shadow, which lies in the inode
    /// itself (`mapping_shrinkable`).
    #[must_use]
    pub fn is_shrinkable(&self, file: FileId) -> bool {
        let this = &self.files[file.0 as usize];
        let mut chunks = this.chunks.iter().filter(|&&chunk| chunk != NIL);
        let in_inode = |&chunk: &u32| {
            let chunk = &self.chunks[chunk as usize];
            chunk.number == 0 && chunk.used <= 1 && chunk.node.object == Object::NONE
        };
        this.nr_pages == 0 && chunks.all(in_inode)
    }

    /// Counts nodes anew, for those who check.
    pub(super) fn audit_nodes(&self) -> Result<(), &'static str> {
        let mut shadow_nodes = 0;
        for (number, chunk) in self.chunks.iter().enumerate() {
            let node = &chunk.node;
            let count = |wanted: fn(&CachedPage) -> bool| {
                chunk.entries.iter().map(|&entry| decode(entry)).filter(wanted).count()
            };
            let pages = count(|entry| matches!(entry, CachedPage::Page(_)));
            let shadows = count(|entry| matches!(entry, CachedPage::Shadow(_)));
            if usize::from(node.pages) != pages || usize::from(node.shadows) != shadows {
                return Err("a node counts its pages and shadows");
            }
            let listed = self.shadow_nodes.get(&node.shadow_since);
            let belongs = node.object != Object::NONE && pages == 0 && shadows > 0;
            if belongs != (listed == Some(&(number as u32))) {
                return Err("nodes of nothing but shadows are on their list");
            }
            shadow_nodes += usize::from(belongs);
            for (&buffer, &entry) in chunk.buffers.iter().zip(&chunk.entries) {
                if buffer != Object::NONE && !matches!(decode(entry), CachedPage::Page(_)) {
                    return Err("only pages have buffers");
                }
            }
        }
        if shadow_nodes != self.shadow_nodes.len() {
            return Err("the list of shadow nodes has no others");
        }
        Ok(())
    }
}

impl Memory {
    /// Frees the objects of pages that went. Returns how many pages of slabs that freed.
    #[doc(alias = "try_to_free_buffers")]
    pub fn release_objects(&mut self, cpu: CpuId) -> u64 {
        if self.files.released.is_empty() {
            return 0;
        }
        let mut released = core::mem::take(&mut self.files.released);
        let pages = released.drain(..).map(|(id, object)| self.free_object(id, object, cpu)).sum();
        // The buffer is used again.
        self.files.released = released;
        pages
    }

    /// Whether the page of a file at `pfn` has a buffer head.
    #[must_use]
    pub fn page_has_buffer(&self, pfn: Pfn) -> bool {
        self.files.has_buffer(self.frames.owner(pfn))
    }

    /// Gives the page of a file at `pfn` a buffer head.
    ///
    /// # Panics
    /// As [`PageCache::give_buffer`].
    pub fn give_page_buffer(&mut self, pfn: Pfn, object: Object) {
        self.files.give_buffer(self.frames.owner(pfn), object);
    }
}
