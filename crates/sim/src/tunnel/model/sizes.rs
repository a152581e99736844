//! Packet sizes, and tests of them.

use core::net::IpAddr;

use super::{Model, Wrong};

impl<P: Clone> Model<P> {
    /// Whether packets of a path leave one by one, so that no device has to cut them.
    pub fn is_one_by_one(&self, slot: u32) -> bool {
        self.path(slot).is_some_and(|path| path.one_by_one)
    }

    /// Sets the largest packet that may enter the tunnel (host).
    pub fn set_mtu(&mut self, mtu: u16) {
        self.mtu = Some(mtu);
    }

    /// The last value of [`Model::set_mtu`].
    #[must_use]
    pub fn mtu(&self) -> Option<u16> {
        self.mtu
    }

    /// Sets the largest packet to send to an inner address (anchor); `None` when no host has the address any more.
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

    /// The last value of [`Model::set_mtu_to`] for an address that a host has.
    #[must_use]
    pub fn mtu_to(&self, address: IpAddr) -> Option<u16> {
        self.mtus.get(&address).copied()
    }
}
