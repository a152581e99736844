//! The states of all paths, mapped into this process. An anchor reads each path's state about once per period; a
//! system call for each would cost more than the reading.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::{MapCore, MapHandle};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use super::skel::path_state;
use crate::maps::Shared;

/// The kernel rounds array entries up to eight bytes; these already fit.
const WORDS: usize = size_of::<path_state>() / 8;
const _: () = assert!(size_of::<path_state>() == WORDS * 8);

/// The table `segue_state`, read-only.
#[derive(Debug)]
pub(super) struct States {
    memory: NonNull<u64>,
    paths: usize,
}

// SAFETY: only this value has the mapping, which is valid in every thread and read by atomic loads only.
unsafe impl Send for States {}
// SAFETY: as above.
unsafe impl Sync for States {}

impl States {
    pub(super) fn map(table: &MapHandle) -> io::Result<States> {
        let paths = table.max_entries() as usize;
        let bytes = NonZeroUsize::new(paths * size_of::<path_state>())
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let (protection, shared) = (ProtFlags::PROT_READ, MapFlags::MAP_SHARED);
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let memory = unsafe { mmap(None, bytes, protection, shared, table.as_fd(), 0) }?;
        Ok(States { memory: memory.cast(), paths })
    }

    /// A path's state, read word by word as the programs write it; `None` outside the table.
    pub(super) fn read(&self, slot: u32) -> Option<path_state> {
        let slot = Some(slot as usize).filter(|slot| *slot < self.paths)?;
        let words: [u64; WORDS] = std::array::from_fn(|i| {
            // SAFETY: within the mapping by the line above, and aligned since it begins with a page. Only the kernel
            // writes there; this process holds no reference to it.
            let word = unsafe { AtomicU64::from_ptr(self.memory.as_ptr().add(slot * WORDS + i)) };
            word.load(Ordering::Relaxed)
        });
        path_state::from_bytes(words.map(u64::to_ne_bytes).as_flattened())
    }
}

impl Drop for States {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length and nothing refers to it any more. The kernel refuses only a
        // range that was not mapped.
        let _ = unsafe { munmap(self.memory.cast(), self.paths * size_of::<path_state>()) };
    }
}
