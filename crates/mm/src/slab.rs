//! Slab caches: objects of one size, packed into blocks of pages.
//!
//! A *slab* is a block that a cache cut into objects. It stays in use until its last object is freed, and
//! longer where the cache keeps it for later; so one object that lives on pins a whole block. Growing a
//! cache takes two steps, for the pages come from whoever can wait for them: [`Memory::alloc_object`] says
//! which block it wants, [`Memory::add_slab`] takes it.
//!
//! Models: mm/slub.c (`___slab_alloc`, `get_partial_node`, `__slab_free`, `put_cpu_partial`, `__unfreeze_partials`,
//! `deactivate_slab`, `allocate_slab`), v6.12 and v4.4; mm/slab.c (`cache_alloc_refill`, `cache_flusharray`,
//! `free_block`, `drain_freelist`), v4.4.
//! Departs: within a slab the lowest free object is taken, where kernels take the one freed last, or a random
//! one. Visible as: nothing, since an object's place in its slab decides nothing about pages. Objects go back
//! at once, where kernels wait until no reader is left (RCU). Visible as: slabs are freed some milliseconds
//! early. Other nodes' partial slabs are used always, where SLUB grows in 24 of 1024 cases instead. Visible as:
//! on several nodes a few slabs less.
//!
//! Reading order: this file, [`layout`] (how many objects of which order), then either allocator.

mod array;
pub mod layout;
mod slub;

use crate::gfp::Gfp;
use crate::memory::Memory;
use crate::policy::{HighOrder, Slab as SlabPolicy, SlabAllocator};
use crate::types::{CpuId, NodeId, Order, Pfn};
use layout::Layout;
use std_alloc::format;
use std_alloc::string::String;
use std_alloc::vec;
use std_alloc::vec::Vec;

/// No slab.
pub(crate) const NIL: u32 = u32::MAX;

/// Names a cache: one of those that [`Self::all`] gives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CacheId(pub u8);

impl CacheId {
    /// Directory entries.
    pub const DENTRY: Self = Self(0);
    /// Inodes of ext4.
    pub const EXT4_INODE: Self = Self(1);
    /// Inodes of XFS.
    pub const XFS_INODE: Self = Self(2);
    /// XFS's note of what changed in an inode.
    pub const XFS_ILI: Self = Self(3);
    /// XFS's buffers of metadata.
    pub const XFS_BUF: Self = Self(4);
    /// Nodes of the tree that holds a file's pages, 64 each (`xa_node`).
    pub const RADIX_TREE_NODE: Self = Self(5);
    /// What ties a page of a file to its blocks.
    pub const BUFFER_HEAD: Self = Self(6);
    /// The first generic cache, of 8 bytes.
    const KMALLOC: u8 = 7;

    /// The generic cache for this many bytes; `None` for more than 8192, which get pages of their own.
    #[must_use]
    pub fn kmalloc(bytes: u32) -> Option<Self> {
        let at = KMALLOC_BYTES.iter().position(|&size| size >= bytes)?;
        Some(Self(Self::KMALLOC + at as u8))
    }

    /// Every cache.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..SPECS.len() as u8).map(Self)
    }

    /// Its name in `/proc/slabinfo`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        SPECS[self.0 as usize].name
    }

    /// Whether its slabs count as reclaimable (`SLAB_RECLAIM_ACCOUNT`).
    #[must_use]
    pub const fn is_reclaimable(self, policy: &SlabPolicy) -> bool {
        match self {
            Self::XFS_ILI | Self::XFS_BUF => policy.xfs_log_reclaimable,
            _ => SPECS[self.0 as usize].reclaim_account,
        }
    }
}

/// Sizes of the generic caches (`kmalloc_info`, mm/slab_common.c), by size rather than in the kernel's order.
const KMALLOC_BYTES: [u32; 13] = [8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192];

/// What never changes about a cache.
#[derive(Clone, Copy, Debug)]
struct Spec {
    name: &'static str,
    reclaim_account: bool,
}

const fn spec(name: &'static str, reclaim_account: bool) -> Spec {
    Spec { name, reclaim_account }
}

/// Flags as their `kmem_cache_create` calls give them: fs/dcache.c, fs/ext4/super.c, fs/xfs/xfs_super.c,
/// lib/radix-tree.c, fs/buffer.c, v4.4 and v6.12.
const SPECS: [Spec; 7 + KMALLOC_BYTES.len()] = [
    spec("dentry", true),
    spec("ext4_inode_cache", true),
    spec("xfs_inode", true),
    spec("xfs_ili", false),
    spec("xfs_buf", false),
    spec("radix_tree_node", true),
    spec("buffer_head", true),
    spec("kmalloc-8", false),
    spec("kmalloc-16", false),
    spec("kmalloc-32", false),
    spec("kmalloc-64", false),
    spec("kmalloc-96", false),
    spec("kmalloc-128", false),
    spec("kmalloc-192", false),
    spec("kmalloc-256", false),
    spec("kmalloc-512", false),
    spec("kmalloc-1k", false),
    spec("kmalloc-2k", false),
    spec("kmalloc-4k", false),
    spec("kmalloc-8k", false),
];

/// Bytes of a cache's object, alignment included (`objsize` of `/proc/slabinfo`).
#[must_use]
pub const fn object_bytes(policy: &SlabPolicy, cache: CacheId) -> u32 {
    match cache {
        CacheId::DENTRY => policy.dentry_bytes,
        CacheId::EXT4_INODE => policy.ext4_inode_bytes,
        CacheId::XFS_INODE => policy.xfs_inode_bytes,
        CacheId::XFS_ILI => policy.xfs_ili_bytes,
        CacheId::XFS_BUF => policy.xfs_buf_bytes,
        CacheId::RADIX_TREE_NODE => policy.radix_tree_node_bytes,
        CacheId::BUFFER_HEAD => policy.buffer_head_bytes,
        CacheId(number) => KMALLOC_BYTES[(number - CacheId::KMALLOC) as usize],
    }
}

/// An object of a cache: its slab and its place there. Good until it is freed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Object(u32);

impl Object {
    /// No object.
    pub const NONE: Self = Self(u32::MAX);

    /// Itself, unless it is none.
    #[must_use]
    pub fn some(self) -> Option<Self> {
        if self == Self::NONE { None } else { Some(self) }
    }
}

/// A block that a cache asks for, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// Its order.
    pub order: Order,
    /// The request's flags.
    pub gfp: Gfp,
}

/// What a request for an object comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllocObject {
    /// This object.
    Object(Object),
    /// There is no slab with a free one: [`Memory::add_slab`] is to be given a block.
    NeedsSlab {
        /// What to ask for first.
        first: Attempt,
        /// What to ask for if that is not to be had.
        fallback: Option<Attempt>,
    },
}

/// Where a slab is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// Its block went back.
    Gone,
    /// No list: all of it is in use.
    Full,
    /// A CPU takes from it.
    Cpu(u8),
    /// On a CPU's list of partial slabs.
    CpuPartial(u8),
    /// On its node's list of partial slabs.
    Partial,
    /// On its node's list of empty slabs.
    Free,
}

#[derive(Clone, Copy, Debug)]
struct Slab {
    pfn: Pfn,
    order: Order,
    node: u8,
    place: Place,
    /// Objects it was cut into, and how many are in use (by their users or by a CPU's array).
    objects: u16,
    in_use: u16,
    next: u32,
    prev: u32,
}

impl Slab {
    const fn node(&self) -> NodeId {
        NodeId(self.node as u32)
    }
}

/// A list of slabs. New ones may go to either end; the head is taken first.
#[derive(Clone, Copy, Debug)]
struct SlabList {
    head: u32,
    tail: u32,
    nr: u32,
}

impl SlabList {
    const EMPTY: Self = Self { head: NIL, tail: NIL, nr: 0 };
}

/// What a CPU has of a cache.
#[derive(Clone, Debug, Default)]
struct CpuCache {
    /// The slab it takes from (SLUB).
    slab: Option<u32>,
    /// Slabs with free objects, the next one last (SLUB).
    partial: Vec<u32>,
    /// Free objects there, as far as they were counted when a slab came (`pobjects`).
    partial_objects: u32,
    /// Free objects, the next one last (SLAB).
    array: Vec<Object>,
}

/// What a node has of a cache.
#[derive(Clone, Debug)]
struct NodeCache {
    partial: SlabList,
    free: SlabList,
    /// Free objects that CPUs share (SLAB).
    shared: Vec<Object>,
    /// Free objects of its slabs (SLAB).
    free_objects: u32,
}

/// A cache (`struct kmem_cache`).
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    id: CacheId,
    layout: Layout,
    /// Bits of an object's number that are its place.
    shift: u32,
    slabs: Vec<Slab>,
    /// Numbers of slabs that are gone.
    gone: Vec<u32>,
    /// A bit for each object of each slab in use; `words` for a slab.
    bits: Vec<u64>,
    words: usize,
    cpus: Vec<CpuCache>,
    nodes: Vec<NodeCache>,
    nr_in_use: u64,
    nr_objects: u64,
    nr_slabs: u64,
    nr_pages: u64,
    /// Blocks that are to go back.
    discarded: Vec<(Pfn, Order)>,
}

/// A line of `/proc/slabinfo`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheStats {
    /// The cache.
    pub name: &'static str,
    /// Objects in use.
    pub active_objects: u64,
    /// Objects of all its slabs.
    pub nr_objects: u64,
    /// Bytes of an object.
    pub object_bytes: u32,
    /// Objects of a slab of the order it asks for first.
    pub objects_per_slab: u32,
    /// That order.
    pub order: Order,
    /// Slabs.
    pub nr_slabs: u64,
    /// Base pages of them.
    pub nr_pages: u64,
}

/// All caches.
#[derive(Clone, Debug, Default)]
pub struct SlabCaches {
    /// Built with the first object: until then policy may still change.
    caches: Vec<Cache>,
    /// Pages of reclaimable and other slabs, by zone.
    pages: Vec<[u64; 2]>,
}

impl Cache {
    fn new(id: CacheId, policy: &SlabPolicy, nr_cpus: usize, nr_nodes: usize) -> Self {
        let bytes = object_bytes(policy, id);
        let layout = Layout::new(policy, id, bytes, nr_cpus as u32);
        let most = layout.objects(layout.order).max(layout.objects(layout.min_order));
        let node = NodeCache {
            partial: SlabList::EMPTY,
            free: SlabList::EMPTY,
            shared: Vec::new(),
            free_objects: 0,
        };
        Self {
            id,
            layout,
            shift: most.next_power_of_two().trailing_zeros(),
            slabs: Vec::new(),
            gone: Vec::new(),
            bits: Vec::new(),
            words: most.div_ceil(64) as usize,
            cpus: vec![CpuCache::default(); nr_cpus],
            nodes: vec![node; nr_nodes],
            nr_in_use: 0,
            nr_objects: 0,
            nr_slabs: 0,
            nr_pages: 0,
            discarded: Vec::new(),
        }
    }

    const fn slab_of(&self, object: Object) -> u32 {
        object.0 >> self.shift
    }

    /// Notes a block as a slab on no list.
    fn new_slab(&mut self, pfn: Pfn, order: Order, node: NodeId) -> u32 {
        let objects = self.layout.objects(order);
        let slab = Slab {
            pfn,
            order,
            node: node.0 as u8,
            place: Place::Full,
            objects: objects as u16,
            in_use: 0,
            next: NIL,
            prev: NIL,
        };
        let number = match self.gone.pop() {
            Some(number) => {
                self.slabs[number as usize] = slab;
                number
            }
            None => {
                self.slabs.push(slab);
                self.bits.resize(self.slabs.len() * self.words, 0);
                self.slabs.len() as u32 - 1
            }
        };
        assert!(number < NIL >> self.shift, "objects of {} are counted in 32 bits", self.id.name());
        self.nr_objects += u64::from(objects);
        self.nr_slabs += 1;
        self.nr_pages += u64::from(order.pages());
        number
    }

    /// Gives a slab's block back. It is on no list.
    fn discard(&mut self, number: u32) {
        let slab = &mut self.slabs[number as usize];
        assert_eq!(slab.in_use, 0, "a slab goes without objects in use");
        slab.place = Place::Gone;
        self.nr_objects -= u64::from(slab.objects);
        self.nr_slabs -= 1;
        self.nr_pages -= u64::from(slab.order.pages());
        self.discarded.push((slab.pfn, slab.order));
        self.gone.push(number);
    }

    /// Takes the lowest free object of a slab that has one.
    fn take(&mut self, number: u32) -> Object {
        let first = number as usize * self.words;
        let words = &mut self.bits[first..first + self.words];
        let word = words.iter().position(|&word| word != u64::MAX);
        let word = word.unwrap_or_else(|| unreachable!("a slab with a free object has room"));
        let bit = words[word].trailing_ones();
        words[word] |= 1 << bit;
        let place = word as u32 * 64 + bit;
        let slab = &mut self.slabs[number as usize];
        assert!(place < u32::from(slab.objects), "a full slab has no free object");
        slab.in_use += 1;
        Object(number << self.shift | place)
    }

    /// Puts an object back into its slab. Returns the slab.
    fn put(&mut self, object: Object) -> u32 {
        let number = self.slab_of(object);
        let place = object.0 & ((1 << self.shift) - 1);
        let word = &mut self.bits[number as usize * self.words + place as usize / 64];
        let bit = 1 << (place % 64);
        assert!(*word & bit != 0, "an object of {} is freed twice", self.id.name());
        *word &= !bit;
        self.slabs[number as usize].in_use -= 1;
        number
    }

    fn has_free(&self, number: u32) -> bool {
        let slab = &self.slabs[number as usize];
        slab.in_use < slab.objects
    }

    fn list_mut(&mut self, number: u32) -> &mut SlabList {
        let slab = &self.slabs[number as usize];
        let node = &mut self.nodes[slab.node as usize];
        match slab.place {
            Place::Partial => &mut node.partial,
            Place::Free => &mut node.free,
            other => unreachable!("a slab that is {other:?} is on no list"),
        }
    }

    fn push(&mut self, number: u32, place: Place, at_head: bool) {
        self.slabs[number as usize].place = place;
        let mut list = *self.list_mut(number);
        let (next, prev) = if at_head { (list.head, NIL) } else { (NIL, list.tail) };
        let slab = &mut self.slabs[number as usize];
        (slab.next, slab.prev) = (next, prev);
        if next == NIL {
            list.tail = number;
        } else {
            self.slabs[next as usize].prev = number;
        }
        if prev == NIL {
            list.head = number;
        } else {
            self.slabs[prev as usize].next = number;
        }
        list.nr += 1;
        *self.list_mut(number) = list;
    }

    fn unlink(&mut self, number: u32) {
        let Slab { next, prev, .. } = self.slabs[number as usize];
        let mut list = *self.list_mut(number);
        if prev == NIL {
            list.head = next;
        } else {
            self.slabs[prev as usize].next = next;
        }
        if next == NIL {
            list.tail = prev;
        } else {
            self.slabs[next as usize].prev = prev;
        }
        list.nr -= 1;
        *self.list_mut(number) = list;
        self.slabs[number as usize].place = Place::Full;
    }

    /// Nodes in the order in which their slabs are looked at: the own one first.
    fn nodes_from(&self, node: NodeId) -> impl Iterator<Item = NodeId> + use<> {
        core::iter::once(node)
            .chain(NodeId::all(self.nodes.len()).filter(move |&other| other != node))
    }

    /// Counts everything anew, for those who check.
    fn audit(&self) -> Result<(), String> {
        let name = self.id.name();
        let (mut in_use, mut nr_slabs) = (0, 0);
        let mut listed = vec![false; self.slabs.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            for (list, place) in [(&node.partial, Place::Partial), (&node.free, Place::Free)] {
                let (mut number, mut prev, mut nr) = (list.head, NIL, 0);
                while number != NIL {
                    let slab = &self.slabs[number as usize];
                    if slab.place != place || usize::from(slab.node) != at || slab.prev != prev {
                        return Err(format!("{name}: slab {number} is on a list by mistake"));
                    }
                    if core::mem::replace(&mut listed[number as usize], true) {
                        return Err(format!("{name}: slab {number} is on a list twice"));
                    }
                    (prev, number, nr) = (number, slab.next, nr + 1);
                }
                if list.tail != prev || list.nr != nr {
                    return Err(format!("{name}: a list of {nr} slabs claims {}", list.nr));
                }
            }
        }
        for (number, slab) in self.slabs.iter().enumerate() {
            let words = &self.bits[number * self.words..(number + 1) * self.words];
            let used: u32 = words.iter().map(|word| word.count_ones()).sum();
            if used != u32::from(slab.in_use) || slab.in_use > slab.objects {
                return Err(format!("{name}: slab {number} counts {} of {used}", slab.in_use));
            }
            let should_be_listed = matches!(slab.place, Place::Partial | Place::Free);
            if should_be_listed != listed[number] {
                return Err(format!("{name}: slab {number} says that it is {:?}", slab.place));
            }
            let is_right = match slab.place {
                Place::Gone => slab.in_use == 0,
                Place::Full => slab.in_use == slab.objects,
                Place::Cpu(cpu) => self.cpus[usize::from(cpu)].slab == Some(number as u32),
                Place::CpuPartial(cpu) => {
                    self.cpus[usize::from(cpu)].partial.contains(&(number as u32))
                }
                Place::Partial => slab.in_use < slab.objects,
                Place::Free => slab.in_use == 0,
            };
            if !is_right {
                return Err(format!("{name}: slab {number} is {:?}, and is not", slab.place));
            }
            in_use += u64::from(slab.in_use);
            nr_slabs += u64::from(slab.place != Place::Gone);
        }
        let cached = self.cpus.iter().map(|cpu| cpu.array.len()).sum::<usize>()
            + self.nodes.iter().map(|node| node.shared.len()).sum::<usize>();
        if in_use != self.nr_in_use + cached as u64 || nr_slabs != self.nr_slabs {
            return Err(format!(
                "{name}: counts {} objects and {} slabs, has {in_use} with {cached} in arrays and \
                 {nr_slabs}",
                self.nr_in_use, self.nr_slabs
            ));
        }
        Ok(())
    }
}

impl Memory {
    fn cache(&mut self, id: CacheId) -> &mut Cache {
        if self.slabs.caches.is_empty() {
            let (nr_cpus, nr_nodes) = (self.machine.cpu_nodes.len(), self.machine.nr_nodes());
            let policy = &self.policy.slab;
            self.slabs.caches =
                CacheId::all().map(|id| Cache::new(id, policy, nr_cpus, nr_nodes)).collect();
            self.slabs.pages = vec![[0; 2]; self.zones.len()];
        }
        &mut self.slabs.caches[usize::from(id.0)]
    }

    /// An object of a cache for the task on `cpu`, or which block the cache has to be given before.
    pub fn alloc_object(&mut self, id: CacheId, gfp: Gfp, cpu: CpuId) -> AllocObject {
        let policy = self.policy.slab;
        let node = self.machine.cpu_nodes[cpu.index()];
        let cache = self.cache(id);
        let found = match policy.allocator {
            SlabAllocator::Slub => cache.slub_alloc(cpu, node),
            SlabAllocator::Slab => cache.array_alloc(cpu, node),
        };
        if let Some(object) = found {
            cache.nr_in_use += 1;
            self.work.slab_ops += 1;
            return AllocObject::Object(object);
        }
        let (first, fallback) = attempts(&policy, &cache.layout, id, gfp);
        AllocObject::NeedsSlab { first, fallback }
    }

    /// Gives a cache a block that it asked for, and takes an object from it.
    ///
    /// # Panics
    /// If the block's order is none that the cache asks for.
    pub fn add_slab(&mut self, id: CacheId, pfn: Pfn, order: Order, cpu: CpuId) -> Object {
        let policy = self.policy.slab;
        let zone = self.zone_of(pfn);
        let node = self.zones[zone.index()].node;
        let own = self.machine.cpu_nodes[cpu.index()];
        let class = usize::from(!id.is_reclaimable(&policy));
        let cache = self.cache(id);
        let layout = &cache.layout;
        assert!(
            order == layout.order || order == layout.min_order,
            "no slab of {order} was asked for"
        );
        let number = cache.new_slab(pfn, order, node);
        let object = match policy.allocator {
            SlabAllocator::Slub => cache.slub_add(number, cpu),
            SlabAllocator::Slab => cache.array_add(number, cpu, own),
        };
        cache.nr_in_use += 1;
        self.slabs.pages[zone.index()][class] += u64::from(order.pages());
        self.set_kernel_use(pfn, crate::kernel_use::KernelUse::Slab(id));
        self.count_alloc(pfn, u64::from(order.pages()));
        self.work.slab_ops += 1;
        self.give_discarded_back(id, cpu);
        object
    }

    /// Frees an object. Returns how many pages that freed.
    ///
    /// # Panics
    /// If it is free already.
    pub fn free_object(&mut self, id: CacheId, object: Object, cpu: CpuId) -> u64 {
        let allocator = self.policy.slab.allocator;
        let node = self.machine.cpu_nodes[cpu.index()];
        let cache = self.cache(id);
        cache.nr_in_use -= 1;
        match allocator {
            SlabAllocator::Slub => cache.slub_free(object, cpu),
            SlabAllocator::Slab => cache.array_free(object, cpu, node),
        }
        self.work.slab_ops += 1;
        self.give_discarded_back(id, cpu)
    }

    /// Empties what CPUs and nodes keep of a cache for later (`kmem_cache_shrink`). Returns how many pages
    /// that freed.
    pub fn shrink_cache(&mut self, id: CacheId, cpu: CpuId) -> u64 {
        let allocator = self.policy.slab.allocator;
        let cache = self.cache(id);
        match allocator {
            SlabAllocator::Slub => cache.slub_shrink(),
            SlabAllocator::Slab => cache.array_shrink(),
        }
        self.give_discarded_back(id, cpu)
    }

    /// What a CPU does every two seconds or so where the allocator keeps arrays: a fifth of what it keeps
    /// goes back, and some empty slabs (`cache_reap`). Returns how many pages that freed.
    pub fn reap_caches(&mut self, cpu: CpuId) -> u64 {
        if self.policy.slab.allocator != SlabAllocator::Slab || self.slabs.caches.is_empty() {
            return 0;
        }
        let node = self.machine.cpu_nodes[cpu.index()];
        CacheId::all()
            .map(|id| {
                self.cache(id).array_reap(cpu, node);
                self.give_discarded_back(id, cpu)
            })
            .sum()
    }

    fn give_discarded_back(&mut self, id: CacheId, cpu: CpuId) -> u64 {
        let mut discarded = core::mem::take(&mut self.cache(id).discarded);
        let class = usize::from(!id.is_reclaimable(&self.policy.slab));
        let mut pages = 0;
        for (pfn, order) in discarded.drain(..) {
            let zone = self.zone_of(pfn);
            self.slabs.pages[zone.index()][class] -= u64::from(order.pages());
            self.free_kernel_block(pfn, order, cpu);
            pages += u64::from(order.pages());
        }
        // The buffer is used again.
        self.cache(id).discarded = discarded;
        pages
    }

    /// The node that an object lies on.
    #[must_use]
    pub fn node_of_object(&self, id: CacheId, object: Object) -> NodeId {
        let cache = &self.slabs.caches[usize::from(id.0)];
        cache.slabs[cache.slab_of(object) as usize].node()
    }

    /// The first page of the slab that an object lies in.
    #[must_use]
    pub fn slab_of_object(&self, id: CacheId, object: Object) -> Pfn {
        let cache = &self.slabs.caches[usize::from(id.0)];
        cache.slabs[cache.slab_of(object) as usize].pfn
    }

    /// A line for each cache that has slabs.
    #[must_use]
    pub fn slabinfo(&self) -> Vec<CacheStats> {
        let caches = self.slabs.caches.iter().filter(|cache| cache.nr_slabs > 0);
        caches
            .map(|cache| CacheStats {
                name: cache.id.name(),
                active_objects: cache.nr_in_use,
                nr_objects: cache.nr_objects,
                object_bytes: cache.layout.bytes,
                objects_per_slab: cache.layout.objects(cache.layout.order),
                order: cache.layout.order,
                nr_slabs: cache.nr_slabs,
                nr_pages: cache.nr_pages,
            })
            .collect()
    }

    /// Pages of slabs: reclaimable ones (`NR_SLAB_RECLAIMABLE`), others (`NR_SLAB_UNRECLAIMABLE`).
    #[must_use]
    pub fn slab_pages(&self) -> [u64; 2] {
        self.slabs.pages.iter().fold([0; 2], |[a, b], [c, d]| [a + c, b + d])
    }

    /// Checks what caches count, and that their slabs' pages say so.
    pub(crate) fn audit_slabs(&self) -> Result<(), String> {
        use crate::frame::State;
        use crate::kernel_use::KernelUse;
        let mut pages = vec![[0; 2]; self.slabs.pages.len()];
        for cache in &self.slabs.caches {
            cache.audit()?;
            let class = usize::from(!cache.id.is_reclaimable(&self.policy.slab));
            for slab in cache.slabs.iter().filter(|slab| slab.place != Place::Gone) {
                let pfn = slab.pfn;
                if self.frames.state(pfn) != State::Allocated
                    || self.frames.order(pfn) != slab.order
                    || self.kernel_use(pfn) != Some(KernelUse::Slab(cache.id))
                {
                    return Err(format!(
                        "{pfn} is a slab of {} and does not say so",
                        cache.id.name()
                    ));
                }
                pages[self.zone_of(pfn).index()][class] += u64::from(slab.order.pages());
            }
        }
        if pages != self.slabs.pages {
            return Err(format!("slabs count {:?} pages: {pages:?}", self.slabs.pages));
        }
        Ok(())
    }
}

/// How a cache asks for a slab: of the order it likes best, and if that is not to be had, of the least.
///
/// Models: `allocate_slab`, mm/slub.c; `kmem_getpages`, mm/slab.c, which knows one order and adds nothing.
#[doc(alias = "kmem_getpages")]
#[doc(alias = "allocate_slab")]
fn attempts(
    policy: &SlabPolicy,
    layout: &Layout,
    id: CacheId,
    gfp: Gfp,
) -> (Attempt, Option<Attempt>) {
    let mut own = gfp;
    if id.is_reclaimable(policy) {
        own |= Gfp::RECLAIMABLE;
    }
    let with_order = |gfp: Gfp, order: Order| {
        let comp = if order > Order(0) { Gfp::COMP } else { Gfp::NONE };
        Attempt { order, gfp: gfp | comp }
    };
    if policy.allocator == SlabAllocator::Slab {
        return (with_order(own, layout.order), None);
    }
    let mut first = (own | Gfp::NOWARN | Gfp::NORETRY) - Gfp::NOFAIL;
    if layout.order > layout.min_order && first.contains(Gfp::DIRECT_RECLAIM) {
        let without = match policy.high_order {
            HighOrder::MayReclaim => Gfp::NONE,
            HighOrder::MayWakeKswapd => Gfp::DIRECT_RECLAIM,
            HighOrder::Neither => Gfp::RECLAIM,
        };
        if without != Gfp::NONE {
            first = (first | Gfp::NOMEMALLOC) - without;
        }
    }
    (with_order(first, layout.order), Some(with_order(own, layout.min_order)))
}
