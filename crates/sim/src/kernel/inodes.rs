//! Directory entries and inodes: what the kernel remembers of files besides their pages.
//!
//! An *entry* is a name that the kernel knows: of a file, of a directory, or of no file (a negative one). It has a
//! dentry and an inode as long as these are in memory. What nobody uses is on a list of its file system, from
//! which shrinkers take the oldest.
//!
//! Models: fs/dcache.c (`dput`, `dentry_lru_isolate`, `d_delete`), fs/inode.c (`iput_final`, `inode_lru_isolate`,
//! `inode_add_lru`, `inode_sync_complete`, `evict`, `relatime_need_update`, `file_update_time`), v4.4 and v6.12; the
//! inode tables of ext4 as pages of the block device's cache, which the journal holds where they change;
//! `alloc_empty_file`, fs/file_table.c.
//! Departs: a file has one name. Of metadata only inode tables change. Visible as: `Buffers` and writes lack bitmaps
//! and directories. Access times are not updated once a day. Visible as: nothing in runs of hours. XFS's inodes are
//! freed with their VFS part instead of some seconds later. Visible as: nothing that is known. Of where a file of XFS
//! lies no more than one node is in memory (`xfs_iext_realloc_root`). Visible as: files of more than fifteen pieces
//! take some hundred bytes less. Open files of ext4 take no memory, and those of XFS are objects of the generic cache
//! of their size instead of `filp`. Visible as: a slab of a page for each sixteen files that are open is missing, or
//! has another name.

use super::policy::InodeLists;
use super::throttle::JIFFY;
use super::xfs_buffers::{self, Buffers, Use};
use super::xfs_log::{self, Change, Chunk, PLACE_BYTES};
use super::{Kernel, KernelCx, PAGE_BYTES, filemap, journal, slab};
use crate::machine::FileSystem;
use crate::sched::DeviceId;
use crate::task::Mode;
use highorder_mm::filemap::FileId;
use highorder_mm::gfp::Gfp;
use highorder_mm::slab::{CacheId, Object};
use highorder_mm::types::NodeId;
use highorder_mm::vma::ProcessId;
use highorder_mm::vmstat::Vm;
use highorder_words::CpuId;
use std::collections::{BTreeMap, BTreeSet};

/// Inodes in a block of a disk with ext4, 256 bytes each (mke2fs.conf).
const INODES_OF_BLOCK: u64 = PAGE_BYTES / 256;

/// Names an entry.
type EntryId = u32;
/// An entry, and its serial number: it may have gone meanwhile.
pub(super) type EntryRef = (EntryId, u64);

/// What an entry's name means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    File(FileId),
    Directory,
    /// No file of this name: that is remembered too.
    Negative,
}

/// An object of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Dentry,
    Inode,
    LogItem,
}

#[derive(Clone, Debug)]
struct Entry {
    name: String,
    /// Tells it from others that had its number before.
    serial: u64,
    parent: Option<EntryId>,
    superblock: usize,
    kind: Kind,
    /// Its inode's number on the disk.
    number: u64,
    dentry: Object,
    inode: Object,
    /// XFS's note of the inode's changes, and what its log has of them.
    log_item: Object,
    log: xfs_log::Item,
    /// Where the file lies, as XFS has it in memory.
    places: Option<Chunk>,
    /// Who has it open, and entries below it whose dentries are in memory.
    users: u32,
    /// What the kernel knows of those who have it open.
    open_files: Vec<Object>,
    /// When it came to the list of unused dentries, on which node: 0 is never.
    dentry_since: (u64, NodeId),
    inode_since: (u64, NodeId),
    dentry_referenced: bool,
    inode_referenced: bool,
}

/// Of an object that is on no list of unused ones.
const UNLISTED: (u64, NodeId) = (0, NodeId(0));

/// Unused objects of a file system on a node, oldest first.
#[derive(Clone, Debug, Default)]
struct Unused {
    dentries: BTreeMap<u64, EntryId>,
    inodes: BTreeMap<u64, EntryId>,
    /// What shrinkers put off.
    deferred: u64,
}

/// A file system in use.
#[derive(Clone, Debug)]
pub(super) struct Superblock {
    pub(super) file_system: FileSystem,
    /// Pages of its disk that are not of files: inode tables.
    metadata: Option<FileId>,
    /// Numbers of inodes: the next new one, and those given back.
    next_number: u64,
    free_numbers: BTreeSet<u64>,
    nodes: Vec<Unused>,
    pub(super) buffers: Buffers,
}

/// What the kernel knows of names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vfs {
    pub(super) superblocks: Vec<Superblock>,
    entries: Vec<Option<Entry>>,
    free_entries: Vec<EntryId>,
    by_name: BTreeMap<String, EntryId>,
    /// By number of the file.
    by_file: Vec<Option<EntryId>>,
    clock: u64,
    nr_objects: u64,
    pub(super) shadows_deferred: u64,
}

impl Vfs {
    /// File systems on disks of which nothing is in memory.
    pub(crate) fn new(file_systems: impl Iterator<Item = FileSystem>, nr_nodes: usize) -> Self {
        let superblock = |file_system| Superblock {
            file_system,
            metadata: None,
            next_number: 0,
            free_numbers: BTreeSet::new(),
            nodes: vec![Unused::default(); nr_nodes],
            buffers: Buffers::new(nr_nodes),
        };
        Self { superblocks: file_systems.map(superblock).collect(), ..Self::default() }
    }

    pub(super) const fn nr_superblocks(&self) -> usize {
        self.superblocks.len()
    }

    /// Dentries and inodes in memory.
    pub(super) const fn nr_objects(&self) -> u64 {
        self.nr_objects
    }

    /// Unused dentries and inodes of a file system on a node.
    pub(super) fn unused(&self, superblock: usize, node: NodeId) -> (u64, u64) {
        let unused = &self.superblocks[superblock].nodes[node.index()];
        (unused.dentries.len() as u64, unused.inodes.len() as u64)
    }

    pub(super) fn take_deferred(&mut self, superblock: usize, node: NodeId) -> u64 {
        std::mem::take(&mut self.superblocks[superblock].nodes[node.index()].deferred)
    }

    pub(super) fn put_deferred(&mut self, superblock: usize, node: NodeId, deferred: u64) {
        self.superblocks[superblock].nodes[node.index()].deferred += deferred;
    }

    /// The file system of a disk.
    pub(crate) fn file_system(&self, device: DeviceId) -> FileSystem {
        self.superblocks[device.0 as usize].file_system
    }

    /// The file that holds a disk's metadata, if any is known.
    pub(crate) fn metadata(&self, device: DeviceId) -> Option<FileId> {
        self.superblocks[device.0 as usize].metadata
    }

    /// What is known of a file that has, or had, a name.
    fn file_entry(&self, file: FileId) -> Option<EntryId> {
        self.by_file.get(file.0 as usize).copied().flatten()
    }

    fn set_file_entry(&mut self, file: FileId, id: EntryId) {
        let at = file.0 as usize;
        if self.by_file.len() <= at {
            self.by_file.resize(at + 1, None);
        }
        self.by_file[at] = Some(id);
    }

    fn forget_file_entry(&mut self, file: FileId) -> Option<EntryId> {
        self.by_file.get_mut(file.0 as usize)?.take()
    }

    fn entry(&self, id: EntryId) -> &Entry {
        let entry = self.entries[id as usize].as_ref();
        entry.unwrap_or_else(|| panic!("entry {id} is gone"))
    }

    fn entry_mut(&mut self, id: EntryId) -> &mut Entry {
        let entry = self.entries[id as usize].as_mut();
        entry.unwrap_or_else(|| panic!("entry {id} is gone"))
    }

    fn add(
        &mut self,
        name: &str,
        parent: Option<EntryId>,
        superblock: usize,
        kind: Kind,
    ) -> EntryId {
        self.clock += 1;
        let entry = Entry {
            name: name.to_owned(),
            serial: self.clock,
            parent,
            superblock,
            kind,
            number: 0,
            dentry: Object::NONE,
            inode: Object::NONE,
            log_item: Object::NONE,
            log: xfs_log::Item::default(),
            places: None,
            users: 0,
            open_files: Vec::new(),
            dentry_since: UNLISTED,
            inode_since: UNLISTED,
            dentry_referenced: false,
            inode_referenced: false,
        };
        let id = match self.free_entries.pop() {
            Some(id) => {
                self.entries[id as usize] = Some(entry);
                id
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() as EntryId - 1
            }
        };
        self.by_name.insert(name.to_owned(), id);
        id
    }

    fn remove(&mut self, id: EntryId) {
        let entry = self.entries[id as usize].take();
        let entry = entry.unwrap_or_else(|| panic!("entry {id} is gone"));
        if self.by_name.get(&entry.name) == Some(&id) {
            self.by_name.remove(&entry.name);
        }
        self.free_entries.push(id);
    }

    fn take_number(&mut self, superblock: usize) -> u64 {
        let superblock = &mut self.superblocks[superblock];
        superblock.free_numbers.pop_first().unwrap_or_else(|| {
            superblock.next_number += 1;
            superblock.next_number - 1
        })
    }

    fn unlist_dentry(&mut self, id: EntryId) {
        let (since, node) = std::mem::replace(&mut self.entry_mut(id).dentry_since, UNLISTED);
        if since != 0 {
            let superblock = self.entry(id).superblock;
            self.superblocks[superblock].nodes[node.index()].dentries.remove(&since);
        }
    }

    fn unlist_inode(&mut self, id: EntryId) {
        let (since, node) = std::mem::replace(&mut self.entry_mut(id).inode_since, UNLISTED);
        if since != 0 {
            let superblock = self.entry(id).superblock;
            self.superblocks[superblock].nodes[node.index()].inodes.remove(&since);
        }
    }
}

/// What becomes of an inode that shrinkers look at.
enum Fate {
    /// Somebody uses it after all: it leaves the list.
    Leaves,
    /// It was used again, or keeps its file's pages: another round.
    ComesAgain,
    /// The pages of its file go first.
    LosesPages(FileId),
    Goes,
}

/// A file that somebody has open: closing it once more, or after its deletion, does nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenFile {
    /// The file.
    pub file: FileId,
    serial: u64,
}

/// Creates a file of this name and opens it. Suspends.
pub fn create(cx: &mut KernelCx<'_>, process: ProcessId, name: &str, device: DeviceId) -> OpenFile {
    let superblock = device.0 as usize;
    let file = cx.world().create_file(device);
    let parent = directory_of(cx, process, name, superblock);
    let kernel = cx.world();
    let id = match kernel.vfs.by_name.get(name) {
        // Looked for and not found, or deleted lately.
        Some(&id) if kernel.vfs.entry(id).kind == Kind::Negative => {
            kernel.vfs.entry_mut(id).kind = Kind::File(file);
            kernel.vfs.set_parent(id, parent);
            id
        }
        _ => kernel.vfs.add(name, parent, superblock, Kind::File(file)),
    };
    let number = kernel.vfs.take_number(superblock);
    let entry = kernel.vfs.entry_mut(id);
    (entry.number, entry.users) = (number, entry.users + 1);
    let serial = entry.serial;
    kernel.vfs.set_file_entry(file, id);
    kernel.file_mut(file).inode_block = kernel.inode_block(superblock, number);
    ensure_objects(cx, process, (id, serial), true);
    add_open_file(cx, process, (id, serial));
    touch_inode(cx, process, superblock, number, true);
    log_change(cx, Some(process), file, Change::Core);
    let change = cx.world().costs.metadata_change.once();
    cx.spend(change, Mode::System);
    OpenFile { file, serial }
}

/// Opens a file that has a name. Suspends.
pub fn open(cx: &mut KernelCx<'_>, process: ProcessId, file: FileId) -> OpenFile {
    let kernel = cx.world();
    let Some(id) = kernel.vfs.file_entry(file) else { return OpenFile { file, serial: 0 } };
    let entry = kernel.vfs.entry_mut(id);
    entry.users += 1;
    let serial = entry.serial;
    let (superblock, number) = (entry.superblock, entry.number);
    let (has_dentry, has_inode) = (entry.dentry != Object::NONE, entry.inode != Object::NONE);
    if !has_dentry {
        // Its directory has to be in memory before it.
        let name = entry.name.clone();
        let parent = directory_of(cx, process, &name, superblock);
        let vfs = &mut cx.world().vfs;
        if vfs.is_same(id, serial) {
            vfs.set_parent(id, parent);
        } else {
            vfs.put_user(parent);
        }
    }
    if !has_inode {
        touch_inode(cx, process, superblock, number, false);
    }
    ensure_objects(cx, process, (id, serial), false);
    if let Some(this) = cx.world().file_table[file.0 as usize].as_ref().filter(|_| !has_inode) {
        let pieces = this.nr_pieces();
        ensure_places(cx, Some(process), file, pieces);
    }
    add_open_file(cx, process, (id, serial));
    OpenFile { file, serial }
}

/// Closes a file.
pub fn close(cx: &mut KernelCx<'_>, open: OpenFile) {
    let kernel = cx.world();
    if let Some(id) = kernel.vfs.file_entry(open.file)
        && kernel.vfs.is_same(id, open.serial)
    {
        let object = kernel.vfs.entry_mut(id).open_files.pop();
        kernel.put_entry(id);
        if let Some(object) = object {
            slab::free(cx, generic_cache(OPEN_FILE_BYTES), object);
        }
    }
}

/// Bytes of `struct file` (`filp` in `/proc/slabinfo` of 4.4 and 4.20).
const OPEN_FILE_BYTES: u32 = 256;
/// Pieces of a file that a node of XFS's tree of them holds (`RECS_PER_LEAF`), and its bytes (`NODE_SIZE`,
/// fs/xfs/libxfs/xfs_iext_tree.c, since 4.15).
const PLACES_OF_NODE: u32 = 15;
const NODE_BYTES: u32 = 256;

fn generic_cache(bytes: u32) -> CacheId {
    CacheId::kmalloc(bytes).unwrap_or_else(|| unreachable!("there is a cache for {bytes} bytes"))
}

/// Has the kernel note that somebody opened a file, if it lies on XFS and memory can be had.
#[doc(alias = "alloc_empty_file")]
fn add_open_file(cx: &mut KernelCx<'_>, process: ProcessId, (id, serial): EntryRef) {
    if cx.world().vfs.file_system_of((id, serial)) != Some(FileSystem::Xfs) {
        return;
    }
    let Some(object) = slab::alloc(cx, generic_cache(OPEN_FILE_BYTES), Gfp::KERNEL, Some(process))
    else {
        return;
    };
    let vfs = &mut cx.world().vfs;
    if vfs.is_same(id, serial) {
        vfs.entry_mut(id).open_files.push(object);
    } else {
        slab::free(cx, generic_cache(OPEN_FILE_BYTES), object);
    }
}

/// The directory that a name lies in, in memory, with one user more; none for a name in the root.
fn directory_of(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    name: &str,
    superblock: usize,
) -> Option<EntryId> {
    let mut parent = None;
    for (at, _) in name.match_indices('/').filter(|&(at, _)| at > 0) {
        let path = &name[..at];
        let kernel = cx.world();
        let found = kernel.vfs.by_name.get(path).copied();
        let id = match found.filter(|&id| kernel.vfs.entry(id).kind == Kind::Directory) {
            Some(id) => {
                kernel.vfs.entry_mut(id).users += 1;
                kernel.vfs.set_parent(id, parent);
                id
            }
            None => {
                let id = kernel.vfs.add(path, parent, superblock, Kind::Directory);
                let number = kernel.vfs.take_number(superblock);
                let entry = kernel.vfs.entry_mut(id);
                (entry.number, entry.users) = (number, 1);
                touch_inode(cx, process, superblock, number, true);
                id
            }
        };
        let serial = cx.world().vfs.entry(id).serial;
        ensure_objects(cx, process, (id, serial), false);
        parent = Some(id);
    }
    parent
}

/// Gives an entry that somebody uses its dentry and its inode, where they are missing and memory can be had. Its file may
/// have been deleted while somebody was about to open it. Suspends.
fn ensure_objects(cx: &mut KernelCx<'_>, process: ProcessId, entry: EntryRef, changes: bool) {
    let Some(file_system) = cx.world().vfs.file_system_of(entry) else { return };
    // File systems hold locks where they allocate: not into themselves.
    let nofs = Gfp::KERNEL - Gfp::FS;
    let is_logged = changes && file_system == FileSystem::Xfs;
    let wanted = [
        (Part::Dentry, CacheId::DENTRY, Gfp::KERNEL, true),
        (Part::Inode, inode_cache(file_system), nofs, true),
        (Part::LogItem, CacheId::XFS_ILI, nofs, is_logged),
    ];
    for (part, cache, gfp, _) in wanted.into_iter().filter(|&(.., is_wanted)| is_wanted) {
        ensure_part(cx, Some(process), entry, part, (cache, gfp));
    }
}

fn ensure_part(
    cx: &mut KernelCx<'_>,
    process: Option<ProcessId>,
    (id, serial): EntryRef,
    part: Part,
    (cache, gfp): (CacheId, Gfp),
) {
    let is_missing = |vfs: &mut Vfs| vfs.is_same(id, serial) && *vfs.part(id, part) == Object::NONE;
    if !is_missing(&mut cx.world().vfs) {
        return;
    }
    let Some(object) = slab::alloc(cx, cache, gfp, process) else { return };
    let vfs = &mut cx.world().vfs;
    if is_missing(vfs) {
        *vfs.part(id, part) = object;
        vfs.nr_objects += u64::from(matches!(part, Part::Dentry | Part::Inode));
    } else {
        // Somebody else was faster, or the file is gone.
        slab::free(cx, cache, object);
    }
}

const fn inode_cache(file_system: FileSystem) -> CacheId {
    match file_system {
        FileSystem::Ext4 => CacheId::EXT4_INODE,
        FileSystem::Xfs => CacheId::XFS_INODE,
    }
}

/// A file is read: its access time changes if it was written since it was last read, and a journal has to know.
/// Suspends.
pub(crate) fn file_accessed(cx: &mut KernelCx<'_>, process: ProcessId, file: FileId) {
    update_times(cx, process, file, true);
}

/// A file is written: its times and perhaps its size change, and a journal has to know. Suspends.
#[doc(alias = "file_update_time")]
pub(crate) fn file_changed(cx: &mut KernelCx<'_>, process: ProcessId, file: FileId) {
    update_times(cx, process, file, false);
}

#[doc(alias = "relatime_need_update")]
fn update_times(cx: &mut KernelCx<'_>, process: ProcessId, file: FileId, is_read: bool) {
    let now = cx.now();
    let tick = now.0 / JIFFY.0 + 1;
    let kernel = cx.world();
    // Whoever maps a file finds out later that it was deleted.
    let Some(this) = kernel.file_table[file.0 as usize].as_mut() else { return };
    let was_current = std::mem::replace(&mut this.atime_is_current, is_read);
    let device = this.device;
    let Some(block) = this.inode_block else {
        // A time that is still the same after a tick of the clock is not noted twice.
        let same_tick = std::mem::replace(&mut this.times_tick, tick) == tick;
        if !(same_tick || is_read && was_current) {
            log_change(cx, Some(process), file, Change::Core);
        }
        return;
    };
    if !(is_read && was_current) {
        kernel.dirty_inode(file, now);
    }
    let is_noted = !kernel.has_journal(device) || kernel.is_journaled(device, block);
    if !(is_noted || is_read && was_current) {
        touch_block(cx, process, device, block, true);
    }
}

/// A file got places on the disk or lost its name, which its inode tells: a journal has to know where its block is in
/// memory, and XFS's log what changed. Suspends.
pub(crate) fn note_change(cx: &mut KernelCx<'_>, file: FileId) {
    let kernel = cx.world();
    let this = kernel.file(file);
    let (device, pieces) = (this.device, this.nr_pieces());
    let Some(block) = this.inode_block else {
        ensure_places(cx, None, file, pieces);
        return log_change(cx, None, file, Change::Places(pieces));
    };
    if let Some(pfn) = kernel.metadata_page(device, block)
        && kernel.has_journal(device)
        && !kernel.is_journaled(device, block)
    {
        let is_noted = journal::note_change(cx, device, block, pfn);
        debug_assert!(is_noted, "there is a journal");
    }
}

/// Pages of a file that had no place were sent to the disk: XFS notes its new size. Suspends.
#[doc(alias = "xfs_setfilesize")]
pub(super) fn note_size(cx: &mut KernelCx<'_>, file: FileId) {
    if cx.world().file_table[file.0 as usize].is_some() {
        log_change(cx, None, file, Change::Core);
    }
}

impl Kernel {
    /// The entry of a file on XFS.
    fn xfs_entry(&mut self, file: FileId) -> Option<(DeviceId, EntryRef)> {
        let id = self.vfs.file_entry(file)?;
        let Entry { superblock, serial, .. } = *self.vfs.entry(id);
        let device = DeviceId(superblock as u32);
        self.xfs_log(device).is_some().then_some((device, (id, serial)))
    }
}

/// Has XFS's log know of a change of a file's inode. Suspends.
#[doc(alias = "xfs_trans_log_inode")]
fn log_change(cx: &mut KernelCx<'_>, process: Option<ProcessId>, file: FileId, change: Change) {
    let Some((device, entry)) = cx.world().xfs_entry(file) else { return };
    let item = (CacheId::XFS_ILI, Gfp::KERNEL - Gfp::FS);
    ensure_part(cx, process, entry, Part::LogItem, item);
    xfs_log::note_change(cx, process, device, entry, change);
}

/// Has XFS keep in memory where a file lies, in so many pieces. Suspends.
#[doc(alias = "xfs_iext_realloc_root")]
fn ensure_places(cx: &mut KernelCx<'_>, process: Option<ProcessId>, file: FileId, pieces: u32) {
    let bytes = if pieces < PLACES_OF_NODE { pieces * PLACE_BYTES } else { NODE_BYTES };
    let Some((_, (id, serial))) = cx.world().xfs_entry(file) else { return };
    let places = cx.world().vfs.entry(id).places;
    if pieces == 0 || places.is_some_and(|places| places.has_room_for(bytes)) {
        return;
    }
    let Some(larger) = Chunk::alloc(cx, process, bytes) else { return };
    let vfs = &mut cx.world().vfs;
    let has_inode = vfs.is_same(id, serial) && vfs.entry(id).inode != Object::NONE;
    let unused = if has_inode { vfs.entry_mut(id).places.replace(larger) } else { Some(larger) };
    if let Some(unused) = unused {
        unused.free(cx);
    }
}

/// Reads the block that holds an inode unless it is in memory, and perhaps changes it. Suspends.
fn touch_inode(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    superblock: usize,
    number: u64,
    changes: bool,
) {
    match cx.world().inode_block(superblock, number) {
        Some(block) => touch_block(cx, process, DeviceId(superblock as u32), block, changes),
        None => {
            let wish = if changes { Use::Create } else { Use::Read };
            xfs_buffers::touch(cx, Some(process), superblock, number, wish);
        }
    }
}

fn touch_block(
    cx: &mut KernelCx<'_>,
    process: ProcessId,
    device: DeviceId,
    block: u64,
    changes: bool,
) {
    let superblock = device.0 as usize;
    let kernel = cx.world();
    let metadata = match kernel.vfs.superblocks[superblock].metadata {
        Some(file) => file,
        None => {
            let file = kernel.create_file(device);
            kernel.vfs.superblocks[superblock].metadata = Some(file);
            file
        }
    };
    let this = kernel.file_mut(metadata);
    this.size = this.size.max((block + 1) * PAGE_BYTES);
    // Whoever is killed looks for himself, and a full disk tells when the block is written.
    let _ = filemap::touch_metadata(cx, process, metadata, block, changes);
}

impl Vfs {
    /// Whether the entry of this number is still the one that it was.
    fn is_same(&self, id: EntryId, serial: u64) -> bool {
        let entry = self.entries.get(id as usize).and_then(Option::as_ref);
        entry.is_some_and(|entry| entry.serial == serial)
    }

    /// What XFS's log has of an inode that is in memory.
    pub(super) fn log_item(&mut self, (id, serial): EntryRef) -> Option<&mut xfs_log::Item> {
        let is_there = self.is_same(id, serial) && self.entry(id).inode != Object::NONE;
        is_there.then(|| &mut self.entry_mut(id).log)
    }

    /// The file system that an entry lies on, if it is still there.
    fn file_system_of(&self, (id, serial): EntryRef) -> Option<FileSystem> {
        let is_there = self.is_same(id, serial);
        is_there.then(|| self.superblocks[self.entry(id).superblock].file_system)
    }

    /// The number of an inode on its disk.
    pub(super) fn number(&self, (id, serial): EntryRef) -> Option<u64> {
        self.is_same(id, serial).then(|| self.entry(id).number)
    }

    fn part(&mut self, id: EntryId, part: Part) -> &mut Object {
        let entry = self.entry_mut(id);
        match part {
            Part::Dentry => &mut entry.dentry,
            Part::Inode => &mut entry.inode,
            Part::LogItem => &mut entry.log_item,
        }
    }

    /// Gives an entry its directory, which counts it as a user already.
    fn set_parent(&mut self, id: EntryId, parent: Option<EntryId>) {
        if self.entry(id).parent.is_none() {
            self.entry_mut(id).parent = parent;
        } else {
            self.put_user(parent);
        }
    }

    /// A user of a directory goes, which others keep or the shrinker will find.
    fn put_user(&mut self, id: Option<EntryId>) {
        if let Some(id) = id {
            self.entry_mut(id).users -= 1;
        }
    }
}

impl Kernel {
    /// Which block of the inode tables holds an inode, on file systems that keep these in the page cache.
    fn inode_block(&self, superblock: usize, number: u64) -> Option<u64> {
        let is_ext4 = self.vfs.superblocks[superblock].file_system == FileSystem::Ext4;
        is_ext4.then_some(number / INODES_OF_BLOCK)
    }

    /// One user less of an entry (`dput`): without any it may be shrunk.
    #[doc(alias = "dput")]
    fn put_entry(&mut self, id: EntryId) {
        let entry = self.vfs.entry_mut(id);
        entry.users -= 1;
        if entry.users == 0 {
            self.list_dentry(id);
        }
    }

    /// The node whose list an object belongs to.
    fn node_of(&self, cache: CacheId, object: Object) -> NodeId {
        let by_node = self.flows.shrinkers.by_node;
        if by_node { self.memory.node_of_object(cache, object) } else { NodeId(0) }
    }

    fn list_dentry(&mut self, id: EntryId) {
        let references = self.flows.shrinkers.first_use_references;
        let dentry = self.vfs.entry(id).dentry;
        let Some(object) = dentry.some() else {
            self.list_inode(id);
            return;
        };
        let node = self.node_of(CacheId::DENTRY, object);
        let vfs = &mut self.vfs;
        let entry = vfs.entry_mut(id);
        if entry.dentry_since.0 != 0 {
            entry.dentry_referenced = true;
            return;
        }
        vfs.clock += 1;
        let since = vfs.clock;
        let entry = vfs.entry_mut(id);
        entry.dentry_since = (since, node);
        entry.dentry_referenced = references;
        let superblock = entry.superblock;
        vfs.superblocks[superblock].nodes[node.index()].dentries.insert(since, id);
    }

    /// An inode without a dentry goes on the list of those that may go, if it may.
    #[doc(alias = "inode_add_lru")]
    #[doc(alias = "iput_final")]
    fn list_inode(&mut self, id: EntryId) {
        let policy = self.flows.shrinkers;
        let entry = self.vfs.entry(id);
        let Some(object) = entry.inode.some() else { return };
        if entry.users > 0 || entry.dentry != Object::NONE || entry.inode_since.0 != 0 {
            return;
        }
        if let Kind::File(file) = entry.kind {
            let is_busy = self.is_inode_dirty(file)
                || self.file_table[file.0 as usize]
                    .as_ref()
                    .is_some_and(|file| file.nr_writing > 0)
                || self.memory.files.counts(file).1 > 0;
            let is_kept =
                policy.inodes == InodeLists::Unpopulated && !self.memory.files.is_shrinkable(file);
            if is_busy || is_kept || self.memory.spaces.is_file_mapped(file) {
                return;
            }
        }
        let cache = inode_cache(self.vfs.superblocks[entry.superblock].file_system);
        let node = self.node_of(cache, object);
        let vfs = &mut self.vfs;
        vfs.clock += 1;
        let since = vfs.clock;
        let entry = vfs.entry_mut(id);
        entry.inode_since = (since, node);
        entry.inode_referenced = policy.first_use_references;
        let superblock = entry.superblock;
        vfs.superblocks[superblock].nodes[node.index()].inodes.insert(since, id);
    }

    /// Whether a file's inode changed and no flusher has seen to it.
    fn is_inode_dirty(&self, file: FileId) -> bool {
        let this = self.file_table[file.0 as usize].as_ref();
        this.is_some_and(|this| this.inode_dirtied_at.is_some())
    }

    /// A file lost pages, or was written: its inode may go now, if nobody needs it.
    pub(crate) fn consider_inode(&mut self, file: FileId) {
        if let Some(id) = self.vfs.file_entry(file) {
            self.list_inode(id);
        }
    }

    /// Frees a dentry that nobody uses. Returns how many pages that freed.
    fn free_dentry(&mut self, id: EntryId, cpu: CpuId) -> u64 {
        self.vfs.unlist_dentry(id);
        let entry = self.vfs.entry_mut(id);
        let object = std::mem::replace(&mut entry.dentry, Object::NONE);
        let (parent, kind) = (entry.parent.take(), entry.kind);
        let mut pages = 0;
        if let Some(object) = object.some() {
            self.vfs.nr_objects -= 1;
            pages = self.memory.free_object(CacheId::DENTRY, object, cpu);
        }
        if let Some(parent) = parent {
            self.put_entry(parent);
        }
        if kind == Kind::Negative {
            self.vfs.remove(id);
        } else {
            self.list_inode(id);
        }
        pages
    }

    /// Frees an inode, and what is remembered of its file's pages with it (`truncate_inode_pages_final`). Returns how many
    /// pages that freed. The entry stays: the name is on the disk.
    #[doc(alias = "evict")]
    fn free_inode(&mut self, id: EntryId, cpu: CpuId) -> u64 {
        self.vfs.unlist_inode(id);
        let entry = self.vfs.entry_mut(id);
        let inode = std::mem::replace(&mut entry.inode, Object::NONE);
        let log_item = std::mem::replace(&mut entry.log_item, Object::NONE);
        let (shadow, vector) = entry.log.dissolve();
        let chunks = [entry.places.take(), shadow].into_iter().flatten().map(Chunk::part);
        let of_xfs: Vec<_> =
            chunks.chain(log_item.some().map(|item| (CacheId::XFS_ILI, item))).collect();
        let device = DeviceId(entry.superblock as u32);
        if let (Some(vector), Some(log)) = (vector, self.xfs_log(device)) {
            log.adopt(vector);
        }
        let cache = inode_cache(self.vfs.superblocks[self.vfs.entry(id).superblock].file_system);
        let mut pages = 0;
        if let Some(object) = inode.some() {
            self.vfs.nr_objects -= 1;
            pages += self.memory.free_object(cache, object, cpu);
        }
        for (cache, object) in of_xfs {
            pages += self.memory.free_object(cache, object, cpu);
        }
        if let Kind::File(file) = self.vfs.entry(id).kind {
            pages += self.memory.forget_shadows(file, 0, cpu);
        }
        pages
    }

    /// A file's name is deleted: its dentry goes, or becomes one that says that there is no such file.
    #[doc(alias = "d_delete")]
    pub(crate) fn unlink_entry(&mut self, file: FileId, cpu: CpuId) {
        let Some(id) = self.vfs.file_entry(file) else { return };
        let keeps = self.flows.shrinkers.unlink_keeps_dentry;
        let entry = self.vfs.entry(id);
        let (has_dentry, superblock) = (entry.dentry != Object::NONE, entry.superblock);
        if keeps && has_dentry {
            // The name goes on without a file; the file without a name.
            let (name, parent) = (entry.name.clone(), entry.parent);
            let negative = self.vfs.add(&name, parent, superblock, Kind::Negative);
            let entry = self.vfs.entry_mut(id);
            let dentry = std::mem::replace(&mut entry.dentry, Object::NONE);
            entry.parent = None;
            self.vfs.unlist_dentry(id);
            self.vfs.entry_mut(negative).dentry = dentry;
            self.list_dentry(negative);
            return;
        }
        if self.vfs.by_name.get(&self.vfs.entry(id).name) == Some(&id) {
            let name = self.vfs.entry(id).name.clone();
            self.vfs.by_name.remove(&name);
        }
        self.free_dentry(id, cpu);
    }

    /// A file is gone for good: its inode goes, and its number is free.
    pub(crate) fn forget_inode(&mut self, file: FileId, cpu: CpuId) {
        let Some(id) = self.vfs.forget_file_entry(file) else { return };
        self.free_inode(id, cpu);
        if self.vfs.entry(id).dentry != Object::NONE {
            self.free_dentry(id, cpu);
        }
        for object in std::mem::take(&mut self.vfs.entry_mut(id).open_files) {
            self.memory.free_object(generic_cache(OPEN_FILE_BYTES), object, cpu);
        }
        let (superblock, number) = (self.vfs.entry(id).superblock, self.vfs.entry(id).number);
        self.vfs.superblocks[superblock].free_numbers.insert(number);
        self.vfs.remove(id);
    }

    /// Looks at the oldest unused dentries and then inodes of a file system on a node, `nr` in all, each kind in
    /// proportion, and frees those that were not used again. Returns how many pages that freed, pages of files
    /// included that went with their inodes.
    #[doc(alias = "dentry_lru_isolate")]
    pub(crate) fn prune_superblock(
        &mut self,
        superblock: usize,
        node: NodeId,
        nr: u64,
        one_more: bool,
        is_kswapd: bool,
        cpu: CpuId,
    ) -> u64 {
        let (dentries, inodes) = self.vfs.unused(superblock, node);
        let total = dentries + inodes + 1;
        let one_more = u64::from(one_more);
        let mut pages = 0;
        for _ in 0..nr * dentries / total + one_more {
            let unused = &self.vfs.superblocks[superblock].nodes[node.index()];
            let Some((_, &id)) = unused.dentries.first_key_value() else { break };
            let is_mapped = match self.vfs.entry(id).kind {
                Kind::File(file) => self.memory.spaces.is_file_mapped(file),
                _ => false,
            };
            let entry = self.vfs.entry_mut(id);
            let (is_used, is_referenced) = (entry.users > 0, entry.dentry_referenced || is_mapped);
            entry.dentry_referenced = false;
            if is_used || is_referenced {
                self.vfs.unlist_dentry(id);
                if !is_used {
                    self.list_dentry(id);
                    self.vfs.entry_mut(id).dentry_referenced = false;
                }
            } else {
                pages += self.free_dentry(id, cpu);
            }
        }
        for _ in 0..nr * inodes / total + one_more {
            let unused = &self.vfs.superblocks[superblock].nodes[node.index()];
            let Some((_, &id)) = unused.inodes.first_key_value() else { break };
            pages += self.isolate_inode(id, is_kswapd, cpu);
        }
        pages
    }

    /// What becomes of the oldest unused inode.
    fn fate_of_inode(&self, id: EntryId) -> Fate {
        let entry = self.vfs.entry(id);
        let is_dirty = matches!(entry.kind, Kind::File(file) if self.is_inode_dirty(file));
        if entry.users > 0 || entry.dentry != Object::NONE || is_dirty {
            return Fate::Leaves;
        }
        let keeps = self.flows.shrinkers.inodes == InodeLists::AllKeepingPages;
        let with_pages = match entry.kind {
            Kind::File(file) => Some((file, self.memory.files.counts(file).0)),
            Kind::Directory | Kind::Negative => None,
        };
        match with_pages {
            _ if entry.inode_referenced => Fate::ComesAgain,
            Some((_, pages)) if keeps && pages > 1 => Fate::ComesAgain,
            Some((file, pages)) if pages > 0 => Fate::LosesPages(file),
            _ => Fate::Goes,
        }
    }

    /// Takes the oldest unused inode off its list, and frees it if it may go. Returns how many pages that freed,
    /// those of its file included, which go before it.
    #[doc(alias = "inode_lru_isolate")]
    fn isolate_inode(&mut self, id: EntryId, is_kswapd: bool, cpu: CpuId) -> u64 {
        self.vfs.unlist_inode(id);
        match self.fate_of_inode(id) {
            Fate::Leaves => 0,
            Fate::ComesAgain => {
                self.list_inode_again(id);
                0
            }
            Fate::LosesPages(file) => {
                let pages = self.invalidate_pages(file, cpu);
                let event = if is_kswapd { Vm::KswapdInodeSteal } else { Vm::PgInodeSteal };
                self.memory.vm.add(event, pages);
                if self.memory.files.counts(file).0 > 0 || !self.flows.shrinkers.emptied_inodes_go {
                    self.list_inode_again(id);
                    return pages;
                }
                pages + self.free_inode(id, cpu)
            }
            Fate::Goes => self.free_inode(id, cpu),
        }
    }

    /// An inode has another round on its list, not as one that is referenced.
    fn list_inode_again(&mut self, id: EntryId) {
        self.list_inode(id);
        self.vfs.entry_mut(id).inode_referenced = false;
    }

    /// Drops the clean pages of a file that nobody maps (`invalidate_mapping_pages`).
    fn invalidate_pages(&mut self, file: FileId, cpu: CpuId) -> u64 {
        let (mut from, mut nr) = (0, 0);
        while let Some((index, pfn)) = self.memory.files.next_page(file, from) {
            nr += u64::from(self.memory.invalidate_page(pfn, cpu));
            from = index + 1;
        }
        nr
    }

    /// Pages of metadata in memory (`Buffers`).
    #[must_use]
    pub fn nr_buffer_pages(&self) -> u64 {
        let files = self.vfs.superblocks.iter().filter_map(|superblock| superblock.metadata);
        files.map(|file| self.memory.files.counts(file).0).sum()
    }

    /// Whether a file of the page cache is a disk's metadata, so that its pages count as `Buffers`.
    #[must_use]
    pub fn is_metadata(&self, file: FileId) -> bool {
        self.vfs.superblocks.iter().any(|superblock| superblock.metadata == Some(file))
    }

    /// Checks what the lists of unused dentries and inodes say, for tests.
    ///
    /// # Errors
    /// A sentence for the first thing that is wrong.
    pub fn audit_entries(&self) -> Result<(), String> {
        let mut users: BTreeMap<EntryId, u32> = BTreeMap::new();
        let mut objects = 0;
        for (id, entry) in self.vfs.entries.iter().enumerate() {
            let Some(entry) = entry else { continue };
            objects +=
                u64::from(entry.dentry != Object::NONE) + u64::from(entry.inode != Object::NONE);
            if let Some(parent) = entry.parent {
                *users.entry(parent).or_default() += 1;
            }
            let nodes = &self.vfs.superblocks[entry.superblock].nodes;
            let (since, node) = entry.dentry_since;
            if since != 0 && nodes[node.index()].dentries.get(&since) != Some(&(id as EntryId)) {
                return Err(format!("`{}` says that its dentry is unused", entry.name));
            }
            let (since, node) = entry.inode_since;
            if since != 0 && nodes[node.index()].inodes.get(&since) != Some(&(id as EntryId)) {
                return Err(format!("`{}` says that its inode is unused", entry.name));
            }
        }
        if objects != self.vfs.nr_objects {
            return Err(format!(
                "{} dentries and inodes are counted, {objects} are there",
                self.vfs.nr_objects
            ));
        }
        for (id, entry) in self.vfs.entries.iter().enumerate() {
            let Some(entry) = entry else { continue };
            let below = users.get(&(id as EntryId)).copied().unwrap_or(0);
            if entry.users < below {
                return Err(format!(
                    "`{}` has {} users, {below} below it",
                    entry.name, entry.users
                ));
            }
        }
        Ok(())
    }
}
