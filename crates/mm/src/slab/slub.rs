//! SLUB: a CPU takes from one slab, keeps some partial ones, and its node the others.

use super::layout::CpuLimit;
use super::{Cache, Object, Place};
use crate::types::{CpuId, NodeId};

impl Cache {
    /// An object without growing, from wherever there is one.
    #[doc(alias = "___slab_alloc")]
    pub(super) fn slub_alloc(&mut self, cpu: CpuId, node: NodeId) -> Option<Object> {
        if let Some(number) = self.cpus[cpu.index()].slab {
            if self.has_free(number) {
                return Some(self.take(number));
            }
            // All in use: whoever frees the first of them finds it again.
            self.slabs[number as usize].place = Place::Full;
            self.cpus[cpu.index()].slab = None;
        }
        let number = match self.cpus[cpu.index()].partial.pop() {
            Some(number) => {
                let slab = &self.slabs[number as usize];
                let free = u32::from(slab.objects - slab.in_use);
                let kept = &mut self.cpus[cpu.index()].partial_objects;
                *kept = kept.saturating_sub(free);
                if self.cpus[cpu.index()].partial.is_empty() {
                    self.cpus[cpu.index()].partial_objects = 0;
                }
                number
            }
            None => self.get_partial(cpu, node)?,
        };
        self.hold(number, cpu);
        Some(self.take(number))
    }

    /// A partial slab of a node; some more go to the CPU's own list.
    #[doc(alias = "get_partial_node")]
    fn get_partial(&mut self, cpu: CpuId, node: NodeId) -> Option<u32> {
        let min_partial = self.layout.min_partial;
        for from in self.nodes_from(node) {
            // Other nodes give only what they have beyond their own need.
            if from != node && self.nodes[from.index()].partial.nr <= min_partial {
                continue;
            }
            let mut first = None;
            let (mut objects, mut slabs) = (0, 0);
            while self.nodes[from.index()].partial.nr > 0 {
                let number = self.nodes[from.index()].partial.head;
                self.unlink(number);
                let slab = &self.slabs[number as usize];
                objects += u32::from(slab.objects - slab.in_use);
                if first.is_none() {
                    first = Some(number);
                } else {
                    self.keep_partial(number, cpu);
                    slabs += 1;
                }
                let enough = match self.layout.cpu_partial {
                    CpuLimit::Objects(limit) => objects > limit / 2,
                    CpuLimit::Slabs(limit) => slabs > limit / 2,
                };
                if enough {
                    break;
                }
            }
            if first.is_some() {
                return first;
            }
        }
        None
    }

    /// The CPU takes from this slab from now on.
    fn hold(&mut self, number: u32, cpu: CpuId) {
        self.slabs[number as usize].place = Place::Cpu(cpu.0 as u8);
        self.cpus[cpu.index()].slab = Some(number);
    }

    /// A new slab: the CPU takes from it; what it took from before, another task having grown the cache
    /// meanwhile, goes to its node.
    pub(super) fn slub_add(&mut self, number: u32, cpu: CpuId) -> Object {
        if let Some(old) = self.cpus[cpu.index()].slab.take() {
            self.deactivate(old);
        }
        self.hold(number, cpu);
        self.take(number)
    }

    /// A slab that a CPU held goes where it belongs (`deactivate_slab`).
    #[doc(alias = "deactivate_slab")]
    fn deactivate(&mut self, number: u32) {
        let slab = &mut self.slabs[number as usize];
        slab.place = Place::Full;
        let (in_use, objects, node) = (slab.in_use, slab.objects, slab.node());
        if in_use == 0 && self.nodes[node.index()].partial.nr >= self.layout.min_partial {
            self.discard(number);
        } else if in_use < objects {
            self.push(number, Place::Partial, true);
        }
    }

    /// Puts a slab on a CPU's list, which goes to the nodes before if it is full (`put_cpu_partial`).
    #[doc(alias = "put_cpu_partial")]
    fn keep_partial(&mut self, number: u32, cpu: CpuId) {
        let slab = &mut self.slabs[number as usize];
        slab.place = Place::CpuPartial(cpu.0 as u8);
        let free = u32::from(slab.objects - slab.in_use);
        self.cpus[cpu.index()].partial.push(number);
        self.cpus[cpu.index()].partial_objects += free;
    }

    fn drain_cpu_partial_if_full(&mut self, cpu: CpuId) {
        let kept = &self.cpus[cpu.index()];
        let is_full = match self.layout.cpu_partial {
            CpuLimit::Objects(limit) => kept.partial_objects > limit,
            CpuLimit::Slabs(limit) => kept.partial.len() as u32 >= limit,
        };
        if is_full {
            self.drain_cpu_partial(cpu);
        }
    }

    /// A CPU's partial slabs go to their nodes' lists; empty ones that those do not want go back.
    #[doc(alias = "__unfreeze_partials")]
    fn drain_cpu_partial(&mut self, cpu: CpuId) {
        self.cpus[cpu.index()].partial_objects = 0;
        while let Some(number) = self.cpus[cpu.index()].partial.pop() {
            let slab = &mut self.slabs[number as usize];
            slab.place = Place::Full;
            let (in_use, node) = (slab.in_use, slab.node());
            if in_use == 0 && self.nodes[node.index()].partial.nr >= self.layout.min_partial {
                self.discard(number);
            } else {
                self.push(number, Place::Partial, false);
            }
        }
    }

    #[doc(alias = "__slab_free")]
    pub(super) fn slub_free(&mut self, object: Object, cpu: CpuId) {
        let number = self.put(object);
        let slab = &self.slabs[number as usize];
        match slab.place {
            Place::Full => {
                self.drain_cpu_partial_if_full(cpu);
                self.keep_partial(number, cpu);
            }
            Place::Partial => {
                let node = slab.node();
                if slab.in_use == 0
                    && self.nodes[node.index()].partial.nr >= self.layout.min_partial
                {
                    self.unlink(number);
                    self.discard(number);
                }
            }
            Place::Cpu(_) | Place::CpuPartial(_) => {}
            Place::Gone | Place::Free => unreachable!("no object of such a slab is in use"),
        }
    }

    /// Everything that CPUs hold goes to the nodes, which keep no empty slab (`__kmem_cache_do_shrink`).
    ///
    /// Departs: the lists are not sorted by use, which the kernel does on this occasion. Visible as: other
    /// slabs are filled first.
    pub(super) fn slub_shrink(&mut self) {
        for cpu in CpuId::all(self.cpus.len()) {
            if let Some(number) = self.cpus[cpu.index()].slab.take() {
                self.deactivate(number);
            }
            self.drain_cpu_partial(cpu);
        }
        for node in NodeId::all(self.nodes.len()) {
            let mut number = self.nodes[node.index()].partial.head;
            while number != super::NIL {
                let next = self.slabs[number as usize].next;
                if self.slabs[number as usize].in_use == 0 {
                    self.unlink(number);
                    self.discard(number);
                }
                number = next;
            }
        }
    }
}
