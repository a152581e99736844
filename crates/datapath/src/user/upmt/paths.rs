//! How to find the path of a packet that has no index.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;

use segue_wire::Encapsulation;

use super::super::path::Path;
use crate::PathSetup;

/// How to find the paths with UPMT's packets.
#[derive(Default)]
pub(crate) struct UpmtPaths {
    /// Their slots.
    pub(super) slots: BTreeSet<u32>,
    /// An anchor's: by owner and the host's number of the path.
    pub(super) numbers: HashMap<(u32, u32), u32>,
    /// An anchor's: by owner and the outer source of the last request, one for each slot. The owner is in the key so
    /// that no host can claim another's packets by naming that host's address as its source.
    pub(super) sources: HashMap<(u32, SocketAddr), u32>,
}

impl UpmtPaths {
    /// Takes a path's new configuration.
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

    /// Records where a request of a path came from; it replaces the previous source.
    pub(super) fn learn(&mut self, path: &Path, from: SocketAddr) {
        let (slot, source) = (path.slot, (path.config.owner, from));
        if self.sources.get(&source) != Some(&slot) {
            self.sources.retain(|_, known| *known != slot);
            self.sources.insert(source, slot);
        }
    }
}
