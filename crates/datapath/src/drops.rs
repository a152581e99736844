//! Counters of refused packets.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use segue_wire::DropReason;

/// Refused packets by reason.
#[derive(Default)]
pub(crate) struct Drops([AtomicU64; DropReason::ALL.len()]);

impl Drops {
    pub(crate) fn add(&self, reason: DropReason, packets: u64) {
        self.0[reason as usize].fetch_add(packets, Ordering::Relaxed);
    }

    /// The counts above zero.
    pub(crate) fn counts(&self) -> BTreeMap<DropReason, u64> {
        self.read(|count| count.load(Ordering::Relaxed))
    }

    /// The counts above zero; resets all of them.
    pub(crate) fn take(&self) -> BTreeMap<DropReason, u64> {
        self.read(|count| count.swap(0, Ordering::Relaxed))
    }

    fn read(&self, read: impl Fn(&AtomicU64) -> u64) -> BTreeMap<DropReason, u64> {
        let counts = DropReason::ALL.map(|reason| (reason, read(&self.0[reason as usize])));
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

/// The reason why the kernel did not send a packet.
pub(crate) fn reason(error: &io::Error) -> DropReason {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOBUFS) => DropReason::QueueFull,
        _ => DropReason::Encapsulation,
    }
}
