//! The file system that a kernel starts its first program from, as guests without a disk for it stay in: it is in memory
//! alone.
//!
//! Models: init/do_mounts.c and init/initramfs.c, v3.3, v4.4 and v6.12: a kernel that is not told of a root device unpacks
//! its archive into ramfs, since 3.12 into tmpfs (6e19eded3684).
//! Departs: files have neither inodes nor directory entries in slab caches, nor nodes for their pages. Visible as:
//! nothing, for the archive is unpacked before anything is counted.

use super::filemap::{FileError, memory_page};
use super::policy::Rootfs;
use super::{KernelCx, PAGE_BYTES};
use crate::sched::DeviceId;
use crate::task::Mode;
use highorder_mm::filemap::FileId;
use highorder_mm::vma::ProcessId;

/// Puts a file of so many bytes there. Suspends.
///
/// # Errors
/// The process was killed.
pub fn unpack(cx: &mut KernelCx<'_>, process: ProcessId, bytes: u64) -> Result<FileId, FileError> {
    let kernel = cx.world();
    let file = kernel.create_file(DeviceId(0));
    kernel.file_mut(file).size = bytes;
    for index in 0..bytes.div_ceil(PAGE_BYTES) {
        let pfn = memory_page(cx, process)?;
        let cpu = cx.cpu();
        let kernel = cx.world();
        match kernel.flows.files.rootfs {
            Rootfs::Ramfs => kernel.memory.add_to_ramfs(file, index, pfn, cpu),
            Rootfs::Tmpfs => kernel.memory.add_to_tmpfs(file, index, pfn, cpu),
        }
        let copy = kernel.costs.copy_base_page.once();
        cx.spend(copy, Mode::System);
    }
    Ok(file)
}
