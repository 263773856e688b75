//! Which processes CPUs have to be told of when entries are gone.
//!
//! Models: `mm_cpumask`, `ptep_clear_flush`, `try_to_unmap_flush_dirty`, v4.4 to v6.12: only CPUs that run a process may still
//! use its entries.
//! Departs: a CPU that went from a process to a kernel thread keeps nothing of it, where kernels before 4.20 tell it once
//! more (145f573b89a6). Visible as: a little less to tell there.

use crate::memory::Memory;
use crate::page_table::Vpn;
use crate::types::Pfn;
use crate::vma::ProcessId;
use core::ops::BitOrAssign;

/// Processes of whose entries CPUs have to be told: a bit for each, by its number modulo 64.
#[doc(alias = "mm_cpumask")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlbUsers(u64);

impl TlbUsers {
    /// None.
    pub const NONE: Self = Self(0);

    /// One process.
    #[must_use]
    pub const fn of(process: ProcessId) -> Self {
        Self(1 << (process.0 % u64::BITS))
    }

    /// Whether it is one of them, as far as the bits tell.
    #[must_use]
    pub const fn has(self, process: ProcessId) -> bool {
        self.0 & Self::of(process).0 != 0
    }

    /// Whether there is one at all.
    #[must_use]
    pub const fn is_any(self) -> bool {
        self.0 != 0
    }
}

impl BitOrAssign for TlbUsers {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl Memory {
    /// Tells the CPUs that an entry of these processes is gone, so many times over. Nothing is to tell of none.
    #[doc(alias = "ptep_clear_flush")]
    pub(crate) fn flush_entries(&mut self, users: TlbUsers, times: u32) {
        if users.is_any() {
            self.work.tlb_flushes += u64::from(times);
            self.work.tlb_users |= users;
        }
    }

    /// Tells the CPUs that entries of these processes are gone, whichever: they forget all. Nothing is to tell of none.
    pub(crate) fn flush_tlb(&mut self, users: TlbUsers) {
        if users.is_any() {
            self.work.tlb_flushes_all += 1;
            self.work.tlb_users |= users;
        }
    }

    /// The process in whose mapping a page lies.
    pub(crate) fn tlb_user_at(&self, vpn: Vpn) -> TlbUsers {
        self.spaces.find(vpn).map_or(TlbUsers::NONE, |vma| TlbUsers::of(vma.task))
    }

    /// The processes that map a page.
    pub(crate) fn tlb_users_of(&self, pfn: Pfn) -> TlbUsers {
        let mut users = TlbUsers::NONE;
        if self.place_of(pfn).is_some() {
            for vpn in self.file_places(pfn) {
                users |= self.tlb_user_at(vpn);
            }
        } else if let Some(vpn) = self.vpn_of(pfn) {
            users = self.tlb_user_at(vpn);
        }
        users
    }
}
