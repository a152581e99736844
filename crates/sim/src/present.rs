//! Tracks the neighbour on each link: at each interface, the node at the other end while the carrier is present.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::Io;
use crate::stock::link_layer;

/// An interface, and the link-layer address of its neighbour.
pub(crate) type At = (u32, [u8; 6]);

/// The neighbours that the last call of [`look`](Present::look) found.
#[derive(Debug, Default)]
pub(crate) struct Present(BTreeMap<u32, [u8; 6]>);

impl Present {
    /// The neighbour on a link.
    pub(crate) fn at(&self, interface: u32) -> Option<[u8; 6]> {
        self.0.get(&interface).copied()
    }

    /// All neighbours.
    pub(crate) fn all(&self) -> impl Iterator<Item = At> {
        self.0.iter().map(|(interface, mac)| (*interface, *mac))
    }

    /// Updates the list for these interfaces (all others are forgotten). Returns the neighbours that left and
    /// those that arrived.
    pub(crate) fn look(
        &mut self,
        io: &Io<'_>,
        interfaces: impl Iterator<Item = u32>,
    ) -> (Vec<At>, Vec<At>) {
        let there = |interface: u32| {
            let (node, index) = io.other_end(interface).filter(|_| io.has_carrier(interface))?;
            Some((interface, link_layer(node, index)))
        };
        let here: BTreeMap<u32, [u8; 6]> = interfaces.filter_map(there).collect();
        let differs = |all: &BTreeMap<u32, [u8; 6]>, other: &BTreeMap<u32, [u8; 6]>| {
            let new = all.iter().filter(|(at, mac)| other.get(at) != Some(mac));
            new.map(|(at, mac)| (*at, *mac)).collect()
        };
        let changed = (differs(&self.0, &here), differs(&here, &self.0));
        self.0 = here;
        changed
    }
}
