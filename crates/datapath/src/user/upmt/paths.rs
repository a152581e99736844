//! Finds the path of a packet that has no index.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;

use segue_wire::Encapsulation;

use super::super::path::Path;
use crate::PathSetup;

/// An index of the paths with UPMT packets.
#[derive(Default)]
pub(crate) struct UpmtPaths {
    /// Slots of these paths.
    pub(super) slots: BTreeSet<u32>,
    /// At an anchor: by owner and the host's number of the path.
    pub(super) numbers: HashMap<(u32, u32), u32>,
    /// At an anchor: by owner and the outer source of the last request, one per slot. The owner is part of the key
    /// so that no host can claim another host's packets by using its address as a source.
    pub(super) sources: HashMap<(u32, SocketAddr), u32>,
}

impl UpmtPaths {
    /// Applies a path's new configuration.
    pub(crate) fn set(&mut self, slot: u32, config: &PathSetup, kept: bool) {
        let upmt = config.probing.encapsulation == Encapsulation::Upmt;
        if !upmt || !kept {
            self.remove(slot);
        }
        if upmt {
            self.slots.insert(slot);
            self.numbers.retain(|_, known| *known != slot);
            self.numbers.insert((config.owner, config.tx_index), slot);
        }
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        if self.slots.remove(&slot) {
            self.numbers.retain(|_, known| *known != slot);
            self.sources.retain(|_, known| *known != slot);
        }
    }

    /// Records the source of a path's request, which replaces the previous one.
    pub(super) fn learn(&mut self, path: &Path, from: SocketAddr) {
        let (slot, source) = (path.slot, (path.config.owner, from));
        if self.sources.get(&source) != Some(&slot) {
            self.sources.retain(|_, known| *known != slot);
            self.sources.insert(source, slot);
        }
    }
}
