//! Packet sizes, and probes for them.

use core::net::IpAddr;

use super::{Model, Wrong};

impl<P: Clone> Model<P> {
    /// Returns true if packets of a path are sent one by one, so that no device has to segment them.
    pub fn is_one_by_one(&self, slot: u32) -> bool {
        self.path(slot).is_some_and(|path| path.one_by_one)
    }

    /// Sets the size of the largest packet that may enter the tunnel (host), in bytes.
    pub fn set_mtu(&mut self, mtu: u16) {
        self.mtu = Some(mtu);
    }

    /// The last value of [`Model::set_mtu`].
    #[must_use]
    pub fn mtu(&self) -> Option<u16> {
        self.mtu
    }

    /// Sets the size of the largest packet to an inner address (anchor), in bytes; `None` when no host has the
    /// address any longer.
    pub(crate) fn set_mtu_to(&mut self, address: IpAddr, mtu: Option<u16>) {
        let Some(mtu) = mtu else {
            self.mtus.remove(&address);
            return;
        };
        if !self.inner.contains_key(&address) {
            self.note(Wrong::NoAddress(address));
        }
        self.mtus.insert(address, mtu);
    }

    /// The last value of [`Model::set_mtu_to`] for an assigned address.
    #[must_use]
    pub fn mtu_to(&self, address: IpAddr) -> Option<u16> {
        self.mtus.get(&address).copied()
    }
}
