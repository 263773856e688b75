//! SLAB: CPUs have arrays of free objects, nodes lists of partial and of empty slabs.
//!
//! Departs: objects are of the CPU's own node or of another as slabs are found, without arrays for other nodes'
//! objects (alien caches). Visible as: on several nodes an object of another one may stay in a CPU's array.

use super::{Cache, NIL, Object, Place};
use crate::types::{CpuId, NodeId};

/// CPUs share eight batches of objects at each node (`enable_cpucache`: `shared`).
const SHARED_BATCHES: usize = 8;

impl Cache {
    /// An object without growing.
    pub(super) fn array_alloc(&mut self, cpu: CpuId, node: NodeId) -> Option<Object> {
        if self.cpus[cpu.index()].array.is_empty() {
            self.refill(cpu, node);
        }
        self.cpus[cpu.index()].array.pop()
    }

    /// Fills a CPU's array with a batch: of shared objects, or from partial slabs, or from empty ones.
    #[doc(alias = "cache_alloc_refill")]
    fn refill(&mut self, cpu: CpuId, node: NodeId) {
        let batch = self.layout.batch() as usize;
        let shared = &mut self.nodes[node.index()].shared;
        if !shared.is_empty() {
            let from = shared.len().saturating_sub(batch);
            let moved = shared.split_off(from);
            self.cpus[cpu.index()].array.extend(moved);
            return;
        }
        for from in self.nodes_from(node) {
            while self.cpus[cpu.index()].array.len() < batch {
                let lists = &self.nodes[from.index()];
                let number =
                    if lists.partial.nr > 0 { lists.partial.head } else { lists.free.head };
                if number == NIL {
                    break;
                }
                self.unlink(number);
                while self.has_free(number) && self.cpus[cpu.index()].array.len() < batch {
                    let object = self.take(number);
                    self.nodes[from.index()].free_objects -= 1;
                    self.cpus[cpu.index()].array.push(object);
                }
                if self.has_free(number) {
                    self.push(number, Place::Partial, true);
                }
            }
            if !self.cpus[cpu.index()].array.is_empty() {
                return;
            }
        }
    }

    /// A new slab joins the empty ones, and the CPU takes from it.
    pub(super) fn array_add(&mut self, number: u32, cpu: CpuId, node: NodeId) -> Object {
        let slab = &self.slabs[number as usize];
        let (of, objects) = (slab.node(), u32::from(slab.objects));
        self.nodes[of.index()].free_objects += objects;
        self.push(number, Place::Free, false);
        let found = self.array_alloc(cpu, node);
        found.unwrap_or_else(|| unreachable!("a slab was added"))
    }

    pub(super) fn array_free(&mut self, object: Object, cpu: CpuId, node: NodeId) {
        if self.cpus[cpu.index()].array.len() >= self.layout.array as usize {
            self.flush(cpu, node);
        }
        self.cpus[cpu.index()].array.push(object);
    }

    /// The oldest batch of a full array goes to the shared one as far as there is room, else to its slabs.
    #[doc(alias = "cache_flusharray")]
    fn flush(&mut self, cpu: CpuId, node: NodeId) {
        let batch = self.layout.batch() as usize;
        let most = if self.cpus.len() > 1 { SHARED_BATCHES * batch } else { 0 };
        let shared = self.nodes[node.index()].shared.len();
        if shared < most {
            let moved = batch.min(most - shared);
            let objects = self.cpus[cpu.index()].array.drain(..moved);
            self.nodes[node.index()].shared.extend(objects);
            return;
        }
        let objects: std_alloc::vec::Vec<Object> =
            self.cpus[cpu.index()].array.drain(..batch).collect();
        for object in objects {
            self.free_to_slab(object);
        }
    }

    /// An object goes back to its slab; a slab that is empty goes back if the node has free objects enough
    /// (`free_block`).
    #[doc(alias = "free_block")]
    fn free_to_slab(&mut self, object: Object) {
        let number = self.put(object);
        if self.slabs[number as usize].place == Place::Partial {
            self.unlink(number);
        }
        let slab = &self.slabs[number as usize];
        let (node, in_use, objects) = (slab.node(), slab.in_use, u32::from(slab.objects));
        self.nodes[node.index()].free_objects += 1;
        if in_use > 0 {
            self.push(number, Place::Partial, false);
        } else if self.nodes[node.index()].free_objects > self.free_limit(objects) {
            self.nodes[node.index()].free_objects -= objects;
            self.discard(number);
        } else {
            self.push(number, Place::Free, true);
        }
    }

    /// Free objects that a node keeps: a batch for each CPU and one more, and a slab's.
    fn free_limit(&self, objects: u32) -> u32 {
        (1 + self.cpus.len() as u32) * self.layout.batch() + objects
    }

    /// A fifth of what arrays may hold goes back, and some empty slabs.
    pub(super) fn array_reap(&mut self, cpu: CpuId, node: NodeId) {
        let fifth = self.layout.array.div_ceil(5) as usize;
        let shared_fifth = fifth * SHARED_BATCHES / 2;
        let own = fifth.min(self.cpus[cpu.index()].array.len().div_ceil(2));
        let shared = shared_fifth.min(self.nodes[node.index()].shared.len().div_ceil(2));
        let mut objects: std_alloc::vec::Vec<Object> =
            self.cpus[cpu.index()].array.drain(..own).collect();
        objects.extend(self.nodes[node.index()].shared.drain(..shared));
        for object in objects {
            self.free_to_slab(object);
        }
        let per_slab = self.layout.objects(self.layout.order);
        let limit = self.free_limit(per_slab);
        let most = limit.div_ceil(5 * per_slab);
        self.drain_free(node, most);
    }

    /// Gives empty slabs back, the oldest first.
    #[doc(alias = "drain_freelist")]
    fn drain_free(&mut self, node: NodeId, most: u32) {
        for _ in 0..most {
            let number = self.nodes[node.index()].free.tail;
            if number == NIL {
                return;
            }
            self.unlink(number);
            self.nodes[node.index()].free_objects -= u32::from(self.slabs[number as usize].objects);
            self.discard(number);
        }
    }

    pub(super) fn array_shrink(&mut self) {
        let mut objects = std_alloc::vec::Vec::new();
        for cpu in &mut self.cpus {
            objects.append(&mut cpu.array);
        }
        for node in &mut self.nodes {
            objects.append(&mut node.shared);
        }
        for object in objects {
            self.free_to_slab(object);
        }
        for node in NodeId::all(self.nodes.len()) {
            self.drain_free(node, u32::MAX);
        }
    }
}
