//! Who is at links: at each interface the one at its other end, while nobody misses a carrier.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::Io;
use crate::stock::link_layer;

/// An interface, and the link-layer address of the one at its other end.
pub(crate) type At = (u32, [u8; 6]);

/// What was seen there last.
#[derive(Debug, Default)]
pub(crate) struct Present(BTreeMap<u32, [u8; 6]>);

impl Present {
    /// Who is at a link.
    pub(crate) fn at(&self, interface: u32) -> Option<[u8; 6]> {
        self.0.get(&interface).copied()
    }

    /// Looks anew at these interfaces and no others: who has left, and who has come.
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
